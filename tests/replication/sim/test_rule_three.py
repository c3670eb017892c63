"""The three schedules in which each clause of the rule of unclean exclusion lost records when it was left out, and
whole clusters that die at once."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pyreplog.controller import Controller
from pyreplog.log import Log, RecoveryContext
from pyreplog.log.mark import find_mark
from pyreplog.ports import Disk
from pyreplog.testing import InvariantBroken, SimDisk, TopicOptions, World
from pyreplog.wire import (
    ELECT_UNCLEAN,
    NO_LEADER,
    BrokerRegistrationRequest,
    ElectLeadersRequest,
    ElectLeadersTopic,
    PartitionEnd,
)
from tests.replication.sim.cluster import (
    NAME,
    acknowledged,
    all_die,
    calm,
    finish,
    in_sync,
    key_of,
    log_of,
    partition,
    until,
)

SYNC = TopicOptions("t")
OS = TopicOptions("t", durability="os")


def busy(topic: TopicOptions, *, seed: int = 1, records: int = 60) -> World:
    """A world whose three replicas are in sync and hold acknowledged records."""
    world = calm(topic, seed=seed)
    until(world, lambda: acknowledged(world) >= records and in_sync(world, 1, 2, 3)(), "records")
    return world


@pytest.mark.parametrize("seed", range(4))
def test_excluded_after_power_loss_then_killed_on_the_same_boot(seed: int) -> None:
    """A replica that lost power, was excluded, and then was merely killed and restarted on the same boot is still
    excluded: it does not lead, although this time only its process died."""
    world = busy(OS, seed=seed)
    victim = partition(world).replicas[0]
    others = [one for one in world.node_ids if one != victim]
    world.lose_power(victim)
    for other in others:
        world.network.cut_both(f"node-{victim}", f"node-{other}")
    before = acknowledged(world)
    until(world, lambda: acknowledged(world) > before + 60, "the others go on")
    world.start(victim)
    until(world, lambda: world.hosted(victim, key_of(world)) is not None, "it is back, but cannot reach its leader")
    assert log_of(world, victim).incomplete
    for _ in range(2):
        world.kill(victim, silent=True)
        world.start(victim)
        until(world, lambda: not world.image.brokers[victim].fenced, "killed and restarted on the same boot")
        assert log_of(world, victim).incomplete
    for other in others:
        world.kill(other)
    until(world, lambda: partition(world).leader == NO_LEADER, "nobody is left who has everything")
    world.run_for(3000)
    assert partition(world).leader == NO_LEADER, "it must not lead"
    all_die(world, power_loss=False)
    world.start(victim)
    world.run_for(3000)
    assert partition(world).leader == NO_LEADER, "nor after everybody was killed at once"
    assert victim not in (*partition(world).isr, *partition(world).elr)
    finish(world)
    assert not log_of(world, victim).incomplete


def live_unheard(world: World, node_id: int) -> None:
    """Started, and killed before it can tell the controller anything."""
    world.network.cut_both(f"node-{node_id}", world.controller_address(node_id))
    world.start(node_id)
    world.run_for(50)
    world.kill(node_id, tell=False, silent=True)


def come_back(world: World, node_id: int) -> World:
    """Started alone, heard by all."""
    world.network.heal()
    world.start(node_id)
    world.run_for(3000)
    return world


def killed_before_it_registered(seed: int, log_class: type[Log] = Log) -> World:
    """All die at once, one of them by power loss; that one starts, is killed before the controller hears of it, and
    starts again on the same boot, alone. The controller still believes that it is in sync."""
    world = calm(OS, seed=seed, log_class=log_class, sync_delay_max_us=50_000)
    until(world, lambda: acknowledged(world) >= 60 and in_sync(world, 1, 2, 3)(), "records")
    victim = partition(world).replicas[0]
    world.lose_power(victim, tell=False)
    all_die(world, power_loss=False)
    assert victim in partition(world).isr
    live_unheard(world, victim)
    return come_back(world, victim)


@pytest.mark.parametrize("seed", range(4))
def test_killed_before_it_could_register_as_incomplete(seed: int) -> None:
    """Being incomplete is durable before the node registers: a kill in between does not wash it off."""
    world = killed_before_it_registered(seed)
    assert partition(world).leader == NO_LEADER
    finish(world)


class Forgetful(Log):
    """A log that does not remember over a mere kill that it was incomplete."""

    @classmethod
    def open(cls, *about: Any) -> Log:
        """With the flag washed off where only the process died."""
        log = super().open(*about)
        if any(one.same_boot for one in about if isinstance(one, RecoveryContext)) and log.incomplete:
            log.set_incomplete(False)
        return log


def test_without_that_clause_records_are_lost() -> None:
    """The same schedule over a log that forgets: an incomplete copy leads, and the checkers say so."""
    with pytest.raises(InvariantBroken):
        for seed in range(10):
            finish(killed_before_it_registered(seed, Forgetful))


def put_in_the_set(seed: int, *, power_loss: bool, log_class: type[Log] = Log) -> World:
    """A replica that lost power is put in the set again, and dies before it hears of that, with all the others; it
    comes back alone."""
    world = calm(OS, seed=seed, log_class=log_class, sync_delay_max_us=50_000)
    until(world, lambda: acknowledged(world) >= 60 and in_sync(world, 1, 2, 3)(), "records")
    victim = partition(world).replicas[0]
    world.lose_power(victim)
    for other in world.node_ids:
        world.network.cut_both(f"node-{victim}", f"node-{other}")
    world.start(victim)
    until(world, lambda: world.hosted(victim, key_of(world)) is not None, "it is back, and knows that it is out")
    world.network.heal()
    world.network.cut(world.controller_address(victim), f"node-{victim}")
    before = acknowledged(world)
    until(world, lambda: in_sync(world, 1, 2, 3)() and acknowledged(world) > before + 20, "it is in the set")
    assert log_of(world, victim).incomplete, "it has not heard of that"
    if power_loss:
        world.lose_power(victim, tell=False)
    all_die(world, power_loss=False)
    assert victim in partition(world).isr
    for _ in range(2):
        live_unheard(world, victim)
    return come_back(world, victim)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_put_in_the_set_and_dead_before_it_heard_of_that(seed: int, power_loss: bool) -> None:
    """It is believed where only its process died, and not where it lost power after it was put in the set."""
    world = put_in_the_set(seed, power_loss=power_loss)
    victim = partition(world).replicas[0]
    assert partition(world).leader == (NO_LEADER if power_loss else victim)
    assert (victim in partition(world).isr) is not power_loss
    finish(world)


class Remembering(Log):
    """A log that remembers over a loss that the controller had heard of an earlier one."""

    @classmethod
    def open(cls, disk: Disk, directory: str, *about: Any) -> Log:
        """With the flag put back."""
        found = find_mark(disk, directory)
        log = super().open(disk, directory, *about)
        if found is not None and found[0].reported:
            log.set_reported()
        return log


def test_without_a_look_at_what_was_lost_since_records_are_lost() -> None:
    """The same schedule over such a log: an incomplete copy leads, and the checkers say so."""
    with pytest.raises(InvariantBroken):
        for seed in range(10):
            finish(put_in_the_set(seed, power_loss=True, log_class=Remembering))


@pytest.mark.parametrize("seed", range(4))
def test_one_bit_above_a_stale_mark(seed: int) -> None:
    """Everybody loses power, the durable marks are old, and one bit of the first replica's acknowledged records
    flipped: that is a torn tail to it, so it is cut; but it must not lead, because two good copies reach
    further."""
    world, victim = one_bit(seed)
    until(world, lambda: partition(world).leader != NO_LEADER, "an election")
    assert partition(world).leader != victim
    finish(world)


def test_without_the_comparison_records_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same schedule with an election that takes the first in the list."""
    monkeypatch.setattr(Controller, "_suspected", lambda self, broker_id, end: ())
    with pytest.raises(InvariantBroken):
        for seed in range(6):
            finish(one_bit(seed)[0])


def one_bit(seed: int) -> tuple[World, int]:
    """The schedule, up to everybody's return; and who has the flipped bit."""
    world = busy(SYNC, seed=seed)
    victim = partition(world).replicas[0]
    end = log_of(world, victim).flushed_offset
    before = world.machines[victim].disk
    all_die(world, power_loss=True)
    folder = f"node-{victim}/{NAME}"
    for chance in range(100):
        disk = world.machines[victim].disk = before.crash(Random(chance))
        disk.manual = True
        found = find_mark(disk, folder)
        assert found is not None
        stale = found[0].synced_end
        if stale < end // 2:
            break
    else:
        pytest.fail("the mark was never old")
    segment = [name for name in disk.list(folder) if name.endswith(".log")][-1]
    flip_in_a_batch(disk, f"{folder}/{segment}", stale)
    world.machines[victim].rotten = True
    world.lose_copy(NAME, victim, rotten=True)
    for node_id in world.node_ids:
        world.start(node_id)
    root = world.machines[victim].root
    assert root is not None
    assert root.logs[NAME].recovery.torn_size > 0
    assert root.logs[NAME].end_offset < end
    assert not root.logs[NAME].incomplete, "it recovered up to its mark"
    return world, victim


def flip_in_a_batch(disk: SimDisk, path: str, offset: int) -> None:
    """Flip a bit in the payload of a batch in the second half of those behind ``offset``."""
    file = disk.open(path)
    data = bytes(file.read_at(0, file.size()))
    places = []
    position = 0
    while position + 61 <= len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        if int.from_bytes(data[position : position + 8], "big") >= offset and position + size <= len(data):
            places.append((position, size))
        position += size
    position, size = places[len(places) // 2]
    disk.flip(path, position + size - 2)


@pytest.mark.parametrize("topic", [SYNC, OS], ids=["sync", "os"])
def test_an_empty_replacement_disk(topic: TopicOptions) -> None:
    """The first replica's disk is replaced while everybody is down: its missing copy counts as lost, not as
    recovered to its mark; also when it is alone for long, and killed and restarted in between."""
    world = busy(topic)
    victim = partition(world).replicas[0]
    all_die(world, power_loss=False)
    world.wipe(victim, tell=False)
    for _ in range(3):
        world.start(victim)
        until(world, lambda: victim in world.image.brokers and not world.image.brokers[victim].fenced, "it registered")
        world.run_for(2000)
        assert partition(world).leader == NO_LEADER
        assert victim not in partition(world).isr
        world.kill(victim)
    for node_id in world.node_ids:
        world.start(node_id)
    until(world, lambda: partition(world).leader != NO_LEADER, "an election")
    assert partition(world).leader != victim
    finish(world)


def test_without_the_look_at_what_is_missing_records_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same schedule with a controller that takes a missing copy for an empty, complete one."""
    original = Controller._reconcile_replicas

    def trusting(self: Controller, request: BrokerRegistrationRequest, *rest: Any, **more: Any) -> None:
        """Every copy is there."""
        has = [(end.topic_id, end.partition) for end in request.partition_ends]
        missing = [key for key in self.image.index.holds(request.broker_id) if key not in has]
        request.partition_ends = [*request.partition_ends, *(PartitionEnd(*key, -1, 0) for key in missing)]
        original(self, request, *rest, **more)

    monkeypatch.setattr(Controller, "_reconcile_replicas", trusting)
    with pytest.raises((InvariantBroken, AssertionError)):
        test_an_empty_replacement_disk(SYNC)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("topic", [SYNC, OS], ids=["sync", "os"])
def test_everybody_is_killed_at_once(topic: TopicOptions, seed: int) -> None:
    """A whole cluster whose processes die at one moment comes back by itself with everything that was
    acknowledged."""
    world = busy(topic, seed=seed, records=40)
    all_die(world, power_loss=False)
    finish(world)


@pytest.mark.parametrize("seed", range(10))
def test_everybody_loses_power_at_once(seed: int) -> None:
    """Under ``sync`` the same holds for power loss of all machines at one moment."""
    world = busy(SYNC, seed=seed, records=40)
    all_die(world, power_loss=True)
    finish(world)


@pytest.mark.parametrize("topic", [SYNC, OS], ids=["sync", "os"])
def test_everybody_stops_in_order(topic: TopicOptions) -> None:
    """After a clean stop of all, the first that comes back leads once it has waited for who led before, and for
    nobody else."""
    world = busy(topic)
    for producer in world.producers:
        producer.sending = False
    until(world, lambda: all(producer.is_idle for producer in world.producers), "quiet")
    world.stop_controller(power_loss=False)
    for machine in world.machines.values():
        machine.stop()
    world.start_controller()
    first = partition(world).replicas[1]
    world.start(first)
    until(world, lambda: partition(world).leader == first, "it leads", within_ms=800)
    assert sorted(partition(world).isr) == [1, 2, 3]
    finish(world)


@pytest.mark.parametrize("topic", [SYNC, OS], ids=["sync", "os"])
@pytest.mark.parametrize("back", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_a_kill_while_everybody_stops_in_order(topic: TopicOptions, back: tuple[int, ...]) -> None:
    """The followers have stopped in order when the process is killed, the leader has not. With acks=1 the leader
    alone has what it acknowledged last: it leads again, although they are trusted and it is not, because by its
    report it holds all they hold."""
    world = busy(replace(topic, acks=1))
    leader, *followers = partition(world).replicas
    assert partition(world).leader == leader
    for follower in followers:
        world.network.cut_both(f"node-{leader}", f"node-{follower}")
    before = acknowledged(world)
    until(world, lambda: acknowledged(world) > before + 5, "more that the leader alone has")
    assert in_sync(world, leader, *followers)()
    world.stop_controller(power_loss=False)
    for follower in followers:
        world.machines[follower].stop()
    end = log_of(world, leader).end_offset
    world.kill(leader, tell=False, silent=True)
    world.network.heal()
    for producer in world.producers:
        producer.sending = False
    world.start_controller()
    for number in back:
        world.start((leader, *followers)[number])
        world.run_for(50)
    until(world, lambda: partition(world).leader != NO_LEADER, "somebody leads")
    assert partition(world).leader == leader
    assert log_of(world, leader).end_offset == end
    finish(world)


def test_os_after_power_loss_of_all_waits_for_a_person() -> None:
    """Beyond what the table promises nothing happens by itself: no leader, until a person asks for the best log and
    is told the loss."""
    world = busy(OS)
    for producer in world.producers:
        producer.sending = False
    until(world, lambda: all(producer.is_idle for producer in world.producers), "quiet")
    all_die(world, power_loss=True)
    for node_id in world.node_ids:
        world.start(node_id)
    until(world, lambda: all(not broker.fenced for broker in world.image.brokers.values()), "all are back")
    world.run_for(3000)
    assert (partition(world).leader, partition(world).isr, partition(world).elr) == (NO_LEADER, (), ())
    best = max(log_of_root(world, node_id) for node_id in world.node_ids)
    world.watch_with([])
    answers: list[Any] = []
    assert world.ask_controller(ElectLeadersRequest(ELECT_UNCLEAN, [ElectLeadersTopic("t", [0])]), answers.append)
    until(world, lambda: bool(answers), "an answer")
    assert answers[0].replica_election_results[0].partition_result[0].error_code == 0
    until(world, in_sync(world, 1, 2, 3), "everybody follows")
    assert not partition(world).recovering
    assert log_of(world, partition(world).leader).end_offset >= best[1]


def log_of_root(world: World, node_id: int) -> tuple[int, int]:
    """(last epoch, end) of a copy that nobody leads."""
    root = world.machines[node_id].root
    assert root is not None
    log = root.logs[NAME]
    return (log.epochs.latest, log.end_offset)


def test_nobody_had_made_a_copy_yet() -> None:
    """Everybody dies after the controller wrote a new topic down and before any node made its folder: the topic is
    not lost for ever."""
    world = calm(SYNC)
    assert all(world.hosted(node_id, key_of(world)) is None for node_id in world.node_ids)
    all_die(world, power_loss=True)
    for node_id in world.node_ids:
        world.start(node_id)
    until(world, lambda: acknowledged(world) > 20, "it is used")
    finish(world)
