"""Every known-bad variant loses, diverges or exposes something in a schedule that the true rules survive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyreplog.config import LogConfig
from pyreplog.replica import BrokersApplied, BrokerStatus, Replica
from pyreplog.testing.known_bad import VARIANTS
from tests.oracle.memory_log import MemoryLog
from tests.replica.replica_harness import ReplicaHarness
from tests.replica.test_truncation import fill


def table(kind: type[Replica], count: int = 3, **settings: Any) -> ReplicaHarness:
    """A harness on in-memory logs, because these can lose their power."""
    config = LogConfig(**({"durability": "os"} | settings))
    return ReplicaHarness({b: MemoryLog(config) for b in range(1, count + 1)}, replica_class=kind, strict=False)


def acknowledged_and_lost(harness: ReplicaHarness, number: int, brokers: list[int]) -> bool:
    """Whether append ``number`` was acknowledged and none of these logs has its record."""
    if harness.code(number) != 0:
        return False
    offset = harness.results[number].base_offset
    return all(not log.start_offset <= offset < log.end_offset for b, log in harness.logs.items() if b in brokers)


def power_loss(harness: ReplicaHarness) -> None:
    """All lose their power at once."""
    for log in harness.logs.values():
        log.lose_power()


def acknowledge_then_power_loss(kind: type[Replica]) -> bool:
    """acks=1 and acks=all on a ``sync`` topic, nothing synced, power gone."""
    harness = table(kind, 1, durability="sync")
    harness.elect(1)
    numbers = [harness.append(1, acks=1), harness.append(1)]
    power_loss(harness)
    return any(acknowledged_and_lost(harness, n, [1]) for n in numbers)


def follower_loses_its_tail(kind: type[Replica]) -> bool:
    """The leader synced, the follower only wrote; acknowledged; then the leader's disk is lost and the follower had
    a power cut."""
    harness = table(kind, 2, durability="sync", min_insync_replicas=2)
    harness.elect(1)
    harness.settle()
    number = harness.append(1)
    harness.sync(1)
    harness.exchange(2)
    if 2 in harness.fetches:
        harness.present(2)
    power_loss(harness)
    return acknowledged_and_lost(harness, number, [2])


def kip_101(kind: type[Replica]) -> bool:
    """F1: a follower with an old high watermark restarts, the leader dies, the follower is elected."""
    harness = table(kind, 2, min_insync_replicas=2)
    harness.elect(2)
    harness.settle()
    number = harness.append(2)
    harness.exchange(1)
    harness.present(1)
    assert harness.code(number) == 0
    harness.restart(1)
    harness.elect(2, tell=[1])
    harness.elect(1, isr=[1], tell=[1])
    return acknowledged_and_lost(harness, number, [1])


def diverging_follower(kind: type[Replica]) -> bool:
    """A follower with a foreign tail fetches until it agrees: the logs must then be equal."""
    harness = table(kind, 2, min_insync_replicas=1)
    fill(harness.logs[1], (0, 3), tag=b"A")
    fill(harness.logs[2], (0, 3), tag=b"A")
    fill(harness.logs[2], (0, 3), tag=b"B")
    harness.leader_epoch = 1
    harness.elect(1, isr=[1])
    harness.append(1, acks=1)
    harness.append(1, acks=1)
    for _ in range(10):
        if 2 in harness.fetches:
            harness.exchange(2)
        harness.pass_time(1000)
    return bool(harness.logs[1].content != harness.logs[2].content)


def proposed_member_without_the_record(kind: type[Replica]) -> bool:
    """The controller accepted a new member, its answer is on the way; the leader acknowledges, dies, the new member
    is elected."""
    harness = table(kind, 2, min_insync_replicas=1)
    harness.elect(1, isr=[1])
    harness.present(2)
    harness.accept(harness.proposals[1][0])
    harness.now += 10**12
    number = harness.append(1)
    harness.step(1, BrokersApplied(dict(harness.brokers)))
    assert harness.isr == [1, 2]
    return acknowledged_and_lost(harness, number, [2])


def below_the_minimum(kind: type[Replica]) -> bool:
    """A leader alone, below the minimum, exposes what a returning eligible replica does not have."""
    harness = table(kind, 2, min_insync_replicas=2)
    harness.elect(1)
    harness.settle()
    harness.brokers[2] = BrokerStatus(2, eligible=False)
    harness.set_isr(1, tell=[1])
    harness.append(1, acks=1)
    harness.now += 10**12
    harness.append(1, acks=1)
    return bool(harness.logs[1].high_watermark > harness.logs[2].end_offset)


def join_below_the_epochs_start(kind: type[Replica]) -> bool:
    """F7: the new leader's high watermark is old; a replica between it and the start of the epoch is let in, and
    may be elected."""
    harness = table(kind, 4, min_insync_replicas=2)
    for broker, count in ((1, 20), (2, 20), (3, 12), (4, 20)):
        fill(harness.logs[broker], (0, count))
    harness.logs[2].set_high_watermark(10)  # broker 1 had exposed 20, and is gone
    harness.leader_epoch = 0
    harness.elect(2, isr=[2, 4], tell=[2, 3])
    harness.present(3)
    while harness.proposals[2]:
        harness.decide(2)
    return 3 in harness.isr and harness.ends()[2] < 20


SCHEDULES: dict[str, Callable[[type[Replica]], bool]] = {
    "AckBeforeFsync": acknowledge_then_power_loss,
    "NonDurableFollower": follower_loses_its_tail,
    "TruncateToHighWatermark": kip_101,
    "EpochEndOffByOne": diverging_follower,
    "CommittedIsrOnly": proposed_member_without_the_record,
    "NoMinimum": below_the_minimum,
    "JoinBelowStartOfEpoch": join_below_the_epochs_start,
}


def test_every_variant_has_a_schedule() -> None:
    """No known-bad variant is without a schedule that catches it."""
    assert set(SCHEDULES) == set(VARIANTS)


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_variant_is_caught(name: str) -> None:
    """The schedule goes wrong with the variant and goes well with the true rules."""
    assert SCHEDULES[name](VARIANTS[name])
    assert not SCHEDULES[name](Replica)
