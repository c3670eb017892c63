"""Every known-bad variant loses, diverges or exposes something in a schedule that the true rules survive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyreplog.config import LogConfig
from pyreplog.replica import BrokersApplied, BrokerStatus, Replica
from pyreplog.testing.known_bad import VARIANTS
from tests.oracle.memory_log import MemoryLog
from tests.replica.replica_harness import Bench
from tests.replica.test_truncation import fill


def table(kind: type[Replica], count: int = 3, **settings: Any) -> Bench:
    """A bench on in-memory logs, because these can lose their power."""
    config = LogConfig(**({"durability": "os"} | settings))
    return Bench({b: MemoryLog(config) for b in range(1, count + 1)}, replica_class=kind, strict=False)


def acknowledged_and_lost(bench: Bench, number: int, brokers: list[int]) -> bool:
    """Whether append ``number`` was acknowledged and none of these logs has its record."""
    if bench.code(number) != 0:
        return False
    offset = bench.results[number].base_offset
    return all(not log.start_offset <= offset < log.end_offset for b, log in bench.logs.items() if b in brokers)


def power_loss(bench: Bench) -> None:
    """All lose their power at once."""
    for log in bench.logs.values():
        log.lose_power()


def acknowledge_then_power_loss(kind: type[Replica]) -> bool:
    """acks=1 and acks=all on a ``sync`` topic, nothing synced, power gone."""
    bench = table(kind, 1, durability="sync")
    bench.elect(1)
    numbers = [bench.append(1, acks=1), bench.append(1)]
    power_loss(bench)
    return any(acknowledged_and_lost(bench, n, [1]) for n in numbers)


def follower_loses_its_tail(kind: type[Replica]) -> bool:
    """The leader synced, the follower only wrote; acknowledged; then the leader's disk is lost and the follower had
    a power cut."""
    bench = table(kind, 2, durability="sync", min_insync_replicas=2)
    bench.elect(1)
    bench.settle()
    number = bench.append(1)
    bench.sync(1)
    bench.exchange(2)
    if 2 in bench.fetches:
        bench.present(2)
    power_loss(bench)
    return acknowledged_and_lost(bench, number, [2])


def kip_101(kind: type[Replica]) -> bool:
    """F1: a follower with an old high watermark restarts, the leader dies, the follower is elected."""
    bench = table(kind, 2, min_insync_replicas=2)
    bench.elect(2)
    bench.settle()
    number = bench.append(2)
    bench.exchange(1)
    bench.present(1)
    assert bench.code(number) == 0
    bench.restart(1)
    bench.elect(2, tell=[1])
    bench.elect(1, isr=[1], tell=[1])
    return acknowledged_and_lost(bench, number, [1])


def diverging_follower(kind: type[Replica]) -> bool:
    """A follower with a foreign tail fetches until it agrees: the logs must then be equal."""
    bench = table(kind, 2, min_insync_replicas=1)
    fill(bench.logs[1], (0, 3), tag=b"A")
    fill(bench.logs[2], (0, 3), tag=b"A")
    fill(bench.logs[2], (0, 3), tag=b"B")
    bench.leader_epoch = 1
    bench.elect(1, isr=[1])
    bench.append(1, acks=1)
    bench.append(1, acks=1)
    for _ in range(10):
        if 2 in bench.fetches:
            bench.exchange(2)
        bench.pass_time(1000)
    return bool(bench.logs[1].content != bench.logs[2].content)


def proposed_member_without_the_record(kind: type[Replica]) -> bool:
    """The controller accepted a new member, its answer is on the way; the leader acknowledges, dies, the new member
    is elected."""
    bench = table(kind, 2, min_insync_replicas=1)
    bench.elect(1, isr=[1])
    bench.present(2)
    bench.accept(bench.proposals[1][0])
    bench.now += 10**12
    number = bench.append(1)
    bench.step(1, BrokersApplied(dict(bench.brokers)))
    assert bench.isr == [1, 2]
    return acknowledged_and_lost(bench, number, [2])


def below_the_minimum(kind: type[Replica]) -> bool:
    """A leader alone, below the minimum, exposes what a returning eligible replica does not have."""
    bench = table(kind, 2, min_insync_replicas=2)
    bench.elect(1)
    bench.settle()
    bench.brokers[2] = BrokerStatus(2, eligible=False)
    bench.set_isr(1, tell=[1])
    bench.append(1, acks=1)
    bench.now += 10**12
    bench.append(1, acks=1)
    return bool(bench.logs[1].high_watermark > bench.logs[2].end_offset)


def join_below_the_epochs_start(kind: type[Replica]) -> bool:
    """F7: the new leader's high watermark is old; a replica between it and the start of the epoch is let in, and
    may be elected."""
    bench = table(kind, 4, min_insync_replicas=2)
    for broker, count in ((1, 20), (2, 20), (3, 12), (4, 20)):
        fill(bench.logs[broker], (0, count))
    bench.logs[2].set_high_watermark(10)  # broker 1 had exposed 20, and is gone
    bench.leader_epoch = 0
    bench.elect(2, isr=[2, 4], tell=[2, 3])
    bench.present(3)
    while bench.proposals[2]:
        bench.decide(2)
    return 3 in bench.isr and bench.ends()[2] < 20


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
