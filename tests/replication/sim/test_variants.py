"""Planted bugs: each known-bad variant is caught, by random seeds under a profile that suits it or by a schedule;
the same schedules leave the real thing unharmed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from pyreplog.errors import CorruptError
from pyreplog.log import Log
from pyreplog.record import split
from pyreplog.replica import Replica
from pyreplog.testing import FaultRates, InvariantBroken, TopicOptions, World, WorldOptions
from pyreplog.testing.known_bad import (
    AckBeforeFsync,
    ChecksumUnchecked,
    EpochEndOffByOne,
    MarkTooEarly,
    NoMinimum,
    NonDurableFollower,
    TruncateToHighWatermark,
)
from tests.replication.sim.cluster import (
    NAME,
    QUICK,
    acknowledged,
    calm,
    finish,
    in_sync,
    key_of,
    log_of,
    partition,
    until,
)

SEEDS_MAX = 60


def stormy(topic: TopicOptions, *, sync_delay_max_us: int = 3000, producers: int = 1, **faults: int) -> WorldOptions:
    """Three seconds under these faults."""
    return WorldOptions(
        producers=producers,
        topics=(topic,),
        burst_interval_ms=15,
        safety_ms=3000,
        sync_delay_max_us=sync_delay_max_us,
        faults=replace(FaultRates.none(), **faults),
        config=QUICK,
    )


SINGLE = TopicOptions("t", replication_factor=1, min_insync_replicas=1)
PROFILES: list[tuple[type[Replica], type[Log], WorldOptions]] = [
    (AckBeforeFsync, Log, stormy(SINGLE, sync_delay_max_us=20_000, interval_ms=200, lasting_ms=200, power_loss=1)),
    (
        NonDurableFollower,
        Log,
        stormy(TopicOptions("t"), sync_delay_max_us=50_000, interval_ms=100, lasting_ms=300, power_loss=3, slow_disk=1),
    ),
    (
        NoMinimum,
        Log,
        stormy(TopicOptions("t", durability="os", acks=1), interval_ms=100, lasting_ms=200, kill=3, isolate=1),
    ),
    (
        Replica,
        MarkTooEarly,
        stormy(SINGLE, producers=3, sync_delay_max_us=20_000, interval_ms=200, lasting_ms=200, power_loss=1),
    ),
]
IDS = [f"{one.__name__}-{log.__name__}" for one, log, _ in PROFILES]


@pytest.mark.parametrize(("replica_class", "log_class", "options"), PROFILES, ids=IDS)
def test_caught_by_seeds(replica_class: type[Replica], log_class: type[Log], options: WorldOptions) -> None:
    """Random faults find the bug within a bounded number of seeds; under those very seeds the real thing is
    well."""
    for seed in range(SEEDS_MAX):
        try:
            World(seed, options, replica_class=replica_class, log_class=log_class).run()
        except InvariantBroken:
            break
    else:
        pytest.fail(f"not caught within {SEEDS_MAX} seeds")
    for well in range(seed + 1):
        World(well, options).run()


def two_leaders_die(replica_class: type[Replica]) -> None:
    """F1: a leader dies right after an acknowledgement, and the next one as soon as its follower has heard of
    it."""
    world = calm(TopicOptions("t", durability="os"), replica_class=replica_class)
    for _ in range(15):
        until(world, in_sync(world, 1, 2, 3), "all are in sync")
        before = acknowledged(world)
        until(world, partial(more_acknowledged, world, before + 5), "records")
        first = partition(world).leader
        world.kill(first)
        second = partition(world).leader
        (third,) = [one for one in world.node_ids if one not in (first, second)]
        epoch = partition(world).leader_epoch
        until(world, partial(has_heard, world, third, epoch), "the third has heard of the second")
        world.kill(second)
        world.run_for(20)
        world.start(first)
        world.start(second)
    finish(world)


def more_acknowledged(world: World, count: int) -> bool:
    """Whether more than ``count`` appends were acknowledged."""
    return acknowledged(world) > count


def has_heard(world: World, node_id: int, leader_epoch: int) -> bool:
    """Whether a replica knows of that leader epoch."""
    hosted = world.hosted(node_id, key_of(world))
    return hosted is not None and hosted.replica.leader_epoch >= leader_epoch


def another_leads(world: World, old: int) -> bool:
    """Whether somebody leads who is not ``old``."""
    return partition(world).leader not in (old, -1)


def test_truncation_to_the_high_watermark() -> None:
    """A follower that truncates to its own high watermark loses what was acknowledged, with the second failure."""
    two_leaders_die(Replica)
    with pytest.raises(InvariantBroken):
        two_leaders_die(TruncateToHighWatermark)


def zombie_comes_back(replica_class: type[Replica]) -> None:
    """A leader that is cut off takes more (acks=1), while another leads on; then it comes back with its foreign
    tail."""
    world = calm(TopicOptions("t", durability="os", acks=1), replica_class=replica_class, burst_max=1)
    for _ in range(4):
        until(world, in_sync(world, 1, 2, 3), "all are in sync")
        world.run_for(100)
        old = partition(world).leader
        for other in (*(f"node-{one}" for one in world.node_ids if one != old), world.controller_address(old)):
            world.network.cut_both(f"node-{old}", other)
        until(world, partial(another_leads, world, old), "another leads")
        world.run_for(400)
        world.network.heal()
    finish(world)


def test_epoch_end_off_by_one() -> None:
    """A leader that tells the end of an older epoch one too high leaves a foreign record in the returning leader's
    log."""
    zombie_comes_back(Replica)
    with pytest.raises(InvariantBroken):
        zombie_comes_back(EpochEndOffByOne)


def rot_on_the_leader(log_class: type[Log]) -> tuple[World, int]:
    """The only leader there is has a flipped bit in an old batch, and an empty follower fetches everything from it;
    who that is."""
    world = calm(TopicOptions("t", min_insync_replicas=1), log_class=log_class)
    until(world, lambda: acknowledged(world) > 60 and in_sync(world, 1, 2, 3)(), "records")
    for producer in world.producers:
        producer.sending = False
    until(world, lambda: all(producer.is_idle for producer in world.producers), "quiet")
    world.run_for(500)
    leader, _, empty = partition(world).replicas
    world.stop_controller(power_loss=False)
    for machine in world.machines.values():
        machine.stop()
    disk = world.machines[leader].disk
    path = f"node-{leader}/{NAME}/00000000000000000000.log"
    file = disk.open(path)
    size = int.from_bytes(bytes(file.read_at(8, 4)), "big") + 12
    disk.flip(path, size - 2)
    world.machines[leader].rotten = True
    world.wipe(empty, tell=False)
    world.start_controller()
    world.start(leader)
    until(world, lambda: partition(world).leader == leader, "it leads")
    world.start(empty)
    world.run_for(3000)
    return world, empty


def whole(log: Log) -> bool:
    """Whether every batch has the checksum it says it has."""
    offset = log.start_offset
    while offset < log.end_offset:
        for part in log.read(offset, 1 << 20, log.end_offset).parts():
            for batch in split(part):
                try:
                    batch.check_crc()
                except CorruptError:
                    return False
                offset = batch.next_offset
    return True


def test_unchecked_checksums() -> None:
    """Rot on the leader's disk never reaches another copy; it does where followers do not look at checksums."""
    world, empty = rot_on_the_leader(Log)
    assert whole(log_of(world, empty))
    assert empty not in partition(world).isr
    world, empty = rot_on_the_leader(ChecksumUnchecked)
    assert not whole(log_of(world, empty))
