"""Which replicas out of sync a node reports with its heartbeats, why, and when again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyreplog.config import NodeConfig
from pyreplog.node import lag_reports
from pyreplog.node.hosting import ClusterView
from pyreplog.node.lag_reports import LagReports
from pyreplog.replica import BrokerStatus, Progress
from pyreplog.wire import LagReason, ReplicaLag

MS = 1_000_000
TOPIC = "topic"


class FakeLog:
    """A log that only has an end."""

    end_offset = 0


class FakeLeader:
    """A replica that leads, whose followers the test moves."""

    leader_epoch = 0

    def __init__(self, *followers: int) -> None:
        self.log = FakeLog()
        self.followers = [Progress(number) for number in followers]


class Stage:
    """A node that leads one partition and has followers 2 and 3; heartbeats come each 500 ms."""

    def __init__(self) -> None:
        self.now = 10_000 * MS
        self.view = ClusterView()
        self.view.brokers = {number: BrokerStatus(number, eligible=True) for number in (1, 2, 3)}
        self.reports = LagReports(self.view, NodeConfig(replica_lag_time_max_ms=2000))
        self.leader = self.lead(0)
        self.reports.confirmed(0, 1)

    def lead(self, partition: int) -> FakeLeader:
        """Lead one more partition."""
        leader = FakeLeader(2, 3)
        leader.followers[1].committed = True
        # A compiled HostedPartition takes no other replica than a real one.
        hosted = SimpleNamespace(key=(TOPIC, partition), topic_id=TOPIC, partition=partition, replica=leader)
        self.view.under_replicated[TOPIC, partition] = cast("Any", hosted)
        return leader

    @property
    def follower(self) -> Progress:
        """The follower that is out of sync."""
        return self.leader.followers[0]

    def fetch(self, offset: int) -> None:
        """The follower fetches from ``offset``."""
        self.follower.fetched(offset, 0, 2, self.leader.log.end_offset, self.now)

    def beat(self, *, answered: bool = True) -> list[ReplicaLag]:
        """Send a heartbeat."""
        self.now += 500 * MS
        found = list(self.reports.next(self.now))
        if answered:
            self.reports.confirmed(self.reports.number, 1)
        return found


def latest(stage: Stage) -> tuple[str, int, LagReason]:
    """The newest report about the follower."""
    (((topic, _), _), (_, reason, lag)) = next(iter(stage.reports._reported.items()))
    return topic, lag, LagReason(reason)


def test_reports_only_changes() -> None:
    """A replica is reported when its reason or lag changes, and once more when it is in sync again."""
    stage = Stage()
    stage.leader.log.end_offset = 10
    (gone,) = stage.beat()
    assert (gone.partition, gone.replica_id, gone.reason, gone.lag) == (0, 2, LagReason.GONE, -1)
    assert stage.beat() == []
    stage.fetch(4)
    (behind,) = stage.beat()
    assert (behind.reason, behind.lag) == (LagReason.CATCHING_UP, 6)
    stage.follower.committed = True
    (joined,) = stage.beat()
    assert (joined.replica_id, joined.reason) == (2, LagReason.IN_SYNC)
    assert stage.beat() == []


def test_in_sync_partitions_cost_nothing_more() -> None:
    """A partition that is led no longer, or is whole again, voids its report."""
    stage = Stage()
    stage.beat()
    stage.view.under_replicated.clear()
    (void,) = stage.beat()
    assert void.reason == LagReason.IN_SYNC
    assert stage.beat() == []


def test_unconfirmed_reports_are_sent_again() -> None:
    """A report is in every heartbeat until one with it is answered; the answer to an earlier heartbeat confirms
    nothing newer."""
    stage = Stage()
    first = stage.beat(answered=False)
    number = stage.reports.number
    assert stage.beat(answered=False) == first
    stage.leader.log.end_offset = 5
    stage.fetch(1)
    newer = stage.beat(answered=False)
    assert [one.lag for one in newer] == [4]
    stage.reports.confirmed(number, 1)
    assert stage.beat() == newer
    assert stage.beat() == []


def test_a_new_controller_gets_everything() -> None:
    """A controller of another epoch has no report of before."""
    stage = Stage()
    first = stage.beat()
    assert stage.beat() == []
    stage.reports.confirmed(stage.reports.number, 2)
    again = stage.beat()
    assert [(one.replica_id, one.reason) for one in again] == [(2, LagReason.GONE)]
    assert first[0].since_ms <= again[0].since_ms


def test_gone_stuck_slow_catching_up() -> None:
    """The four reasons that a leader can see."""
    stage = Stage()
    log = stage.leader.log
    log.end_offset = 1000
    stage.fetch(100)
    stage.beat()
    offset = 100
    for _ in range(4):  # comes nearer: 100 records in 500 ms
        offset += 100
        stage.fetch(offset)
        stage.beat()
    assert latest(stage) == (TOPIC, 500, LagReason.CATCHING_UP)
    for beats in range(5):  # fetches from the same offset, which is not strange at first
        stage.fetch(offset)
        assert bool(stage.beat()) == (beats == 3)
    assert latest(stage) == (TOPIC, 500, LagReason.STUCK)
    for _ in range(6):  # moves, and the leader's end moves faster
        offset += 100
        log.end_offset += 300
        stage.fetch(offset)
        stage.beat()
    assert latest(stage) == (TOPIC, 1700, LagReason.SLOW)
    for _ in range(6):
        stage.beat()
    assert latest(stage) == (TOPIC, 1700, LagReason.GONE)


def test_estimate() -> None:
    """The estimate is the lag by the speed at which it shrinks."""
    stage = Stage()
    stage.leader.log.end_offset = 1000
    stage.fetch(0)
    stage.beat()
    stage.fetch(100)
    (report,) = stage.beat()
    assert (report.lag, report.estimate_ms) == (900, 4500)
    stage.fetch(1000)
    (report,) = stage.beat()
    assert (report.reason, report.lag, report.estimate_ms) == (LagReason.CATCHING_UP, 0, 0)


def test_fenced_is_gone() -> None:
    """A follower whose broker is fenced is gone, although it still fetches."""
    stage = Stage()
    stage.fetch(0)
    stage.view.brokers = {**stage.view.brokers, 2: BrokerStatus(2, eligible=False)}
    assert [one.reason for one in stage.beat()] == [LagReason.GONE]


def test_many_partitions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One heartbeat looks at a bounded number of partitions, and the next ones at the others."""
    monkeypatch.setattr(lag_reports, "EXAMINED_MAX", 2)
    stage = Stage()
    for partition in range(1, 5):
        stage.lead(partition)
    turns = [[one.partition for one in stage.beat()] for _ in range(4)]
    assert turns == [[0, 1], [2, 3], [4], []]
