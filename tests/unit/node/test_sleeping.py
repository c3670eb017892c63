"""Logs that nobody uses are not open: nodes start without opening them, lead and follow with them, and open one
when it is used."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from pyreplog.log import Log, LogRoot
from pyreplog.log.unloaded import UnloadedLog
from pyreplog.record import split
from pyreplog.testing import SimDisk, TopicOptions, Totals, World
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from tests.replication.sim.cluster import NAME, calm, in_sync, key_of, log_of, partition, until
from tests.unit.node.caller import OS, SYNC, Caller, node_of, produce

PARTITIONS = 6


class DrowsyRoot(LogRoot):
    """Its logs sleep from the first one on."""

    summaries_from = 1
    unloaded_from = 0


class Drowsy(World):
    """A world of such roots."""

    root_class = DrowsyRoot


def drowsy(topic: TopicOptions = OS) -> tuple[World, Caller]:
    """A cluster in sync whose producer is silent, which nobody reads or looks at: a look opens."""
    world = Drowsy(1, replace(calm(topic).options, consumers=0), checkers=())
    for producer in world.producers:
        producer.sending = False
    until(world, in_sync(world, *partition(world).replicas), "in sync")
    world.run_for(500)
    return world, Caller(world)


def opened(world: World, node_id: int) -> list[TopicPartition]:
    """The partitions of a node whose logs are open."""
    root = world.machines[node_id].root
    assert root is not None
    return [log.topic_partition for log in root.logs.opened()]


def open_everywhere(world: World) -> list[TopicPartition]:
    return sorted({one for node_id in world.node_ids for one in opened(world, node_id)})


def append(world: World, caller: Caller, number: int = 0) -> int:
    """Two records; the base offset."""
    found: list[int] = []

    def sent() -> bool:
        leader = world.image.topics[key_of(world)[0]].partitions[number].leader
        answer = caller.ask(leader, produce(key_of(world)[0], number)) if leader >= 0 else None
        part = answer.responses[0].partition_responses[0] if answer is not None else None
        if part is not None and part.error_code == 0:
            found.append(part.base_offset)
        return bool(found)

    for _ in range(40):
        if sent():
            return found[0]
        world.run_for(100)
    raise AssertionError("nobody takes it")


def read(world: World, caller: Caller, number: int = 0) -> int:
    """How many records the leader shows."""
    leader = world.image.topics[key_of(world)[0]].partitions[number].leader
    answer = caller.ask(leader, FetchRequest(300, 1, [FetchTopic(key_of(world)[0], [FetchPartition(number, -1, 0)])]))
    records: Any = answer.responses[0].partitions[0].records
    return sum(one.record_count for one in split(records)) if records is not None else 0


def settled(world: World) -> None:
    """Everybody is in sync again, and has heard of it."""
    until(world, in_sync(world, 1, 2, 3), "in sync again")
    world.run_for(300)


def restart_all(world: World) -> None:
    """Stop and start every node in order: afterwards all are in sync again, and no log is open."""
    for node_id in (1, 2, 3):
        world.stop(node_id)
    for node_id in (1, 2, 3):
        world.start(node_id)
    settled(world)
    assert open_everywhere(world) == []


def test_new_partitions_are_led_and_followed_asleep() -> None:
    """None of them is open until the first record comes; then that one is, on each of its nodes, with the right
    epoch."""
    world, caller = drowsy(TopicOptions("t", partitions=PARTITIONS, durability="os"))
    assert open_everywhere(world) == []
    assert append(world, caller, 2) == 0
    world.run_for(200)
    assert [opened(world, node_id) for node_id in (1, 2, 3)] == [[TopicPartition("t", 2)]] * 3
    assert {(log.end_offset, log.epochs.latest) for log in (_log(world, node_id, 2) for node_id in (1, 2, 3))} == {
        (2, 0)
    }
    assert read(world, caller, 2) == 2
    assert append(world, caller, 2) == 2


@pytest.mark.parametrize("topic", [OS, SYNC], ids=["os", "sync"])
def test_a_clean_restart_opens_no_log(topic: TopicOptions) -> None:
    """Of one node, and of all: elected, followed and in sync again, and no log was opened; what is read and
    appended then is right."""
    world, caller = drowsy(TopicOptions("t", partitions=PARTITIONS, durability=topic.durability))
    for number in range(PARTITIONS):
        assert append(world, caller, number) == 0
    world.run_for(500)
    world.stop(1)
    world.start(1)
    settled(world)
    assert opened(world, 1) == []
    epochs = [one.leader_epoch for one in world.image.topics[key_of(world)[0]].partitions.values()]
    restart_all(world)
    assert all(
        one.leader_epoch > epochs[number] for number, one in world.image.topics[key_of(world)[0]].partitions.items()
    )
    assert read(world, caller, 3) == 2
    assert append(world, caller, 4) == 2
    world.run_for(300)
    assert set(open_everywhere(world)) == {TopicPartition("t", 3), TopicPartition("t", 4)}
    for node_id in (1, 2, 3):
        log = _log(world, node_id, 4)
        assert (log.end_offset, log.high_watermark) == (4, 4)
        assert log.epochs.entries[-1].start_offset == 2
        assert log.epochs.latest == world.image.topics[key_of(world)[0]].partitions[4].leader_epoch
    assert read(world, caller, 4) == 4


def test_a_killed_node_opens_and_checks_everything() -> None:
    """What sleeps is not forgotten when the process dies: the next start looks at each folder, as ever."""
    world, caller = drowsy(TopicOptions("t", partitions=PARTITIONS, durability="os"))
    append(world, caller, 1)
    world.run_for(300)
    world.kill(2)
    world.start(2)
    assert len(opened(world, 2)) == PARTITIONS
    settled(world)
    assert append(world, caller, 1) == 2
    assert _log(world, 2, 1).end_offset == 4


def test_a_log_that_sleeps_is_cut_where_it_parts_from_its_leaders() -> None:
    """A leader that nobody followed any more stops in order, with records that the next one never had: it comes
    back, and they go."""
    world, caller = drowsy(TopicOptions("t", durability="os", acks=1))
    assert append(world, caller) == 0
    settled(world)
    old = partition(world).leader
    others = [node_id for node_id in world.node_ids if node_id != old]
    for other in others:
        world.network.cut_both(f"node-{old}", f"node-{other}")
    answer = caller.ask(old, produce(key_of(world)[0], 0, acks=1))
    assert answer.responses[0].partition_responses[0].base_offset == 2
    world.stop(old)
    world.network.heal()
    until(world, lambda: partition(world).leader in others, "another leads")
    assert append(world, caller) == 2
    world.start(old)
    assert opened(world, old) == []
    settled(world)
    assert opened(world, old) == [NAME]
    logs = [log_of(world, node_id) for node_id in (1, 2, 3)]
    assert {log.end_offset for log in logs} == {4}
    assert len({bytes(b"".join(bytes(part) for part in log.read(0, 10_000, 4).parts())) for log in logs}) == 1


def damage(world: World, node_id: int) -> None:
    """A node that is down loses the end of its copy."""
    disk: SimDisk = world.machines[node_id].disk
    folder = f"node-{node_id}/{NAME}"
    path = next(f"{folder}/{name}" for name in disk.list(folder) if name.endswith(".log"))
    file = disk.open(path, write=True)
    file.truncate(20)
    file.close()


def test_a_follower_whose_copy_does_not_open_goes_alone() -> None:
    """The node and its other partitions go on; the copy leaves the set, is kept beside, and is fetched anew. The
    partition has a new epoch then: what waited for that copy may be there, this client hears, and sends it
    again."""
    world, caller = drowsy(TopicOptions("t", partitions=PARTITIONS, durability="os"))
    append(world, caller)
    settled(world)
    victim = next(node_id for node_id in world.node_ids if node_id != partition(world).leader)
    world.stop(victim)
    damage(world, victim)
    world.start(victim)
    settled(world)
    root = world.machines[victim].root
    assert root is not None
    assert not root.damaged
    assert append(world, caller) == 4
    assert node_of(world, victim).offline is None
    for number in range(1, PARTITIONS):
        assert append(world, caller, number) == 0
    until(
        world,
        lambda: any(name.endswith("-stray") for name in world.machines[victim].disk.list(f"node-{victim}")),
        "set aside",
    )
    settled(world)
    assert not root.damaged
    assert log_of(world, victim).end_offset == 6


def test_a_follower_behind_whose_copy_does_not_open() -> None:
    """It is out of the set already when that shows, and no news of the partition would come any more: the copy is
    kept beside at once, and fetched anew."""
    world, caller = drowsy(TopicOptions("t", partitions=PARTITIONS, durability="os"))
    append(world, caller)
    settled(world)
    victim = next(node_id for node_id in world.node_ids if node_id != partition(world).leader)
    world.stop(victim)
    damage(world, victim)
    assert append(world, caller) == 2
    world.start(victim)
    settled(world)
    assert any(name.endswith("-stray") for name in world.machines[victim].disk.list(f"node-{victim}"))
    assert log_of(world, victim).end_offset == 4


def test_a_leader_whose_copy_does_not_open_gives_its_place_away() -> None:
    """Nothing is acknowledged by it; another one leads, and has everything."""
    world, caller = drowsy(TopicOptions("t", partitions=PARTITIONS, durability="os"))
    append(world, caller)
    settled(world)
    for node_id in (1, 2, 3):
        world.stop(node_id)
    damage(world, 3)
    world.start(3)
    until(world, lambda: partition(world).leader == 3, "the last to stop leads")
    for node_id in (1, 2):
        world.start(node_id)
    settled(world)
    assert partition(world).leader == 3
    refused = caller.ask(3, produce(key_of(world)[0], 0)).responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR, "not the message's fault"
    assert append(world, caller) == 2
    assert partition(world).leader in (1, 2)
    assert node_of(world, 3).offline is None
    settled(world)
    assert any(name.endswith("-stray") for name in world.machines[3].disk.list("node-3"))
    assert {log_of(world, node_id).end_offset for node_id in (1, 2, 3)} == {4}
    assert read(world, caller) == 4


@pytest.mark.parametrize("alone", [False, True], ids=["others", "alone"])
def test_a_follower_whose_copy_did_not_open_for_a_reader(alone: bool) -> None:
    """The controller hears that the copy counts no more, and gives the partition to somebody who has it; who alone
    has a copy keeps it."""
    world, caller = drowsy(TopicOptions("t", partitions=PARTITIONS, durability="os"))
    append(world, caller)
    settled(world)
    restart_all(world)
    first, *others = (node_id for node_id in partition(world).replicas if node_id != partition(world).leader)
    leader = partition(world).leader
    world.stop(first)
    damage(world, first)
    world.start(first)
    settled(world)
    assert partition(world).leader == leader
    if alone:
        for node_id in (*others, leader):
            world.kill(node_id)
        until(world, lambda: partition(world).leader == first, "led by the only one that is up")
    fetch = FetchRequest(300, 1, [FetchTopic(key_of(world)[0], [FetchPartition(0, -1, 0)])], rack_id="any")
    assert caller.ask(first, fetch).responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def lied_for() -> bool:
        hosted = node_of(world, first).hosted[key_of(world)]
        return first in partition(world).isr and hosted.replica.role.name == "follower" and hosted.log.end_offset < 2

    if not alone:
        assert not world.run_until(lied_for, 1000), "the new copy is no member for what the old one had"
    if alone:
        world.run_for(2000)
        for node_id in (*others, leader):
            world.start(node_id)
    else:
        world.kill(leader)
    until(world, lambda: partition(world).leader not in (-1, first if alone else leader), "led by who has it all")
    assert append(world, caller) == 2
    assert read(world, caller) == 4
    assert node_of(world, first).offline is None
    if not alone:
        world.start(leader)
    settled(world)
    assert any(name.endswith("-stray") for name in world.machines[first].disk.list(f"node-{first}"))
    assert {log_of(world, node_id).end_offset for node_id in (1, 2, 3)} == {4}


def starve(world: World, node_id: int, *, wakes: bool = False) -> None:
    """A node finds no descriptor for the files of its copies; or does again."""
    disk: SimDisk = world.machines[node_id].disk
    if wakes:
        disk.clear_faults()
    else:
        disk.fail("open", f"*{NAME}/*", times=None, error=errno.EMFILE)


def unharmed(world: World, node_id: int) -> None:
    root = world.machines[node_id].root
    assert root is not None
    assert not root.damaged
    assert node_of(world, node_id).offline is None
    assert not any(name.endswith("-stray") for name in world.machines[node_id].disk.list(f"node-{node_id}"))


@pytest.mark.parametrize("topic", [OS, SYNC], ids=["os", "sync"])
def test_a_leader_without_a_descriptor_to_wake_with(topic: TopicOptions) -> None:
    """It refuses what it cannot do, goes on leading, and does it as soon as it can."""
    world, caller = drowsy(topic)
    append(world, caller)
    settled(world)
    restart_all(world)
    leader, epoch = partition(world).leader, partition(world).leader_epoch
    starve(world, leader)
    for _ in range(2):
        refused = caller.ask(leader, produce(key_of(world)[0], 0)).responses[0].partition_responses[0]
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        fetch = FetchRequest(300, 1, [FetchTopic(key_of(world)[0], [FetchPartition(0, -1, 0)])])
        assert caller.ask(leader, fetch).responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        deletion = DeleteRecordsRequest([DeleteRecordsTopic(NAME.topic, [DeleteRecordsPartition(0, 1)])], 100)
        assert caller.ask(leader, deletion).topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        world.run_for(1000)
        unharmed(world, leader)
    starve(world, leader, wakes=True)
    assert append(world, caller) == 2
    assert read(world, caller) == 4
    assert (partition(world).leader, partition(world).leader_epoch) == (leader, epoch)
    assert log_of(world, leader).epochs.latest == epoch


def test_a_follower_without_a_descriptor_to_wake_with() -> None:
    """It asks again later, and goes on where it was."""
    world, caller = drowsy()
    append(world, caller)
    settled(world)
    victim = next(node_id for node_id in world.node_ids if node_id != partition(world).leader)
    world.stop(victim)
    world.start(victim)
    settled(world)
    assert opened(world, victim) == []
    starve(world, victim)
    assert (
        caller.ask(partition(world).leader, produce(key_of(world)[0], 0, acks=1))
        .responses[0]
        .partition_responses[0]
        .error_code
        == 0
    )
    world.run_for(3000)
    unharmed(world, victim)
    assert opened(world, victim) == []
    starve(world, victim, wakes=True)
    settled(world)
    until(world, lambda: log_of(world, victim).end_offset == 4, "has it")
    unharmed(world, victim)


def test_a_new_copy_that_cannot_be_called_complete_yet() -> None:
    """The controller has it in sync, and its log has no descriptor to write that down with: it does so later."""
    world, _ = drowsy()
    victim = next(node_id for node_id in world.node_ids if node_id != partition(world).leader)
    world.wipe(victim)
    starve(world, victim)
    world.start(victim)
    settled(world)
    world.run_for(2000)
    hosted = node_of(world, victim).find(NAME)
    assert hosted is not None
    assert hosted.log.incomplete
    unharmed(world, victim)
    starve(world, victim, wakes=True)
    world.run_for(1000)
    assert not hosted.log.incomplete
    unharmed(world, victim)


def test_no_invariant_breaks_where_everything_sleeps() -> None:
    """Random clusters under random faults, all of whose logs sleep whenever they can."""
    totals = Totals()
    for seed in range(20, 28):
        world = Drowsy(seed)
        world.run()
        totals.add(world)
    assert totals.faults["clean_restart"] > 0


def _log(world: World, node_id: int, number: int) -> Log:
    found = world.log_of(node_id, (key_of(world)[0], number))
    assert found is not None
    assert not isinstance(found, UnloadedLog)
    return found
