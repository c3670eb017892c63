"""What the controller answers about replicas that are out of sync."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pyreplog.controller import PartitionKey
from pyreplog.controller.describe import KnownByController, describe_topics
from pyreplog.wire import (
    BrokerHeartbeatRequest,
    DescribeTopicPartitionsPartition,
    DescribeTopicPartitionsRequest,
    LagReason,
    OutOfSyncReplica,
    PartitionEnd,
    PartitionFilter,
    ReplicaLag,
    ReplicaStatus,
)
from tests.unit.controller.controller_setup import MS, ControllerSetup


def described(setup: ControllerSetup, state: int = PartitionFilter.ALL) -> list[DescribeTopicPartitionsPartition]:
    """The partitions in the controller's answer."""
    controller = setup.controller
    known = KnownByController(controller.is_alive, controller.lags, setup.now)
    answer = describe_topics(setup.image, DescribeTopicPartitionsRequest(state=state), known)
    return [one for topic in answer.topics for one in topic.partitions]


def out_of_sync(setup: ControllerSetup) -> Sequence[OutOfSyncReplica]:
    """Those of the only partition."""
    (partition,) = described(setup)
    return partition.out_of_sync


def report(setup: ControllerSetup, broker: int, *lags: ReplicaLag) -> None:
    """A heartbeat of a leader."""
    request = BrokerHeartbeatRequest(broker, setup.epoch(broker), setup.image.offset, replica_lags=lags)
    assert setup.controller.heartbeat(request, setup.now).error_code == 0


def lag_of(setup: ControllerSetup, key: PartitionKey, replica: int, reason: int, *numbers: int) -> ReplicaLag:
    """A report in the partition's present leader epoch."""
    return ReplicaLag(*key, setup[key].leader_epoch, replica, reason, *numbers)


@pytest.fixture
def shrunk() -> tuple[ControllerSetup, PartitionKey]:
    """A partition led by 1, from whose in-sync set 3 was removed; all brokers live."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.propose(key, (1, 2))
    assert setup[key].isr == (1, 2)
    return setup, key


def test_what_the_leader_told(shrunk: tuple[ControllerSetup, PartitionKey]) -> None:
    """The newest report counts; its times go on."""
    setup, key = shrunk
    assert out_of_sync(setup) == [OutOfSyncReplica(3, LagReason.UNKNOWN)]
    report(setup, 1, lag_of(setup, key, 3, LagReason.CATCHING_UP, 70, 2000, 500))
    setup.now += 100 * MS
    assert out_of_sync(setup) == [OutOfSyncReplica(3, LagReason.CATCHING_UP, 70, 2100, 400)]
    report(setup, 1, lag_of(setup, key, 3, LagReason.STUCK, 70, 2100))
    setup.now += 900 * MS
    assert out_of_sync(setup) == [OutOfSyncReplica(3, LagReason.STUCK, 70, 3000, -1)]
    report(setup, 1, ReplicaLag(*key, -1, 3))
    assert out_of_sync(setup) == [OutOfSyncReplica(3, LagReason.UNKNOWN)]


def test_reports_of_earlier_leaders_do_not_count(shrunk: tuple[ControllerSetup, PartitionKey]) -> None:
    """Another leader, or the same one in another epoch, has not reported yet; a late report of the former one changes
    nothing."""
    setup, key = shrunk
    late = lag_of(setup, key, 3, LagReason.SLOW, 70, 2000)
    report(setup, 1, late)
    setup.kill(1)
    assert setup[key].leader == 2
    assert [(one.replica_id, one.reason) for one in out_of_sync(setup)] == [(1, LagReason.GONE), (3, LagReason.UNKNOWN)]
    report(setup, 2, lag_of(setup, key, 3, LagReason.STUCK, 9, 100))
    setup.controller.lags.note(1, [late], setup.now)
    assert out_of_sync(setup)[1] == OutOfSyncReplica(3, LagReason.STUCK, 9, 100, -1)


def test_gone_and_damaged(shrunk: tuple[ControllerSetup, PartitionKey]) -> None:
    """A fenced broker is gone, since it was heard from last; a copy with reported damage is damaged until it moves."""
    setup, key = shrunk
    report(setup, 1, lag_of(setup, key, 3, LagReason.STUCK, 5, 0))
    missing = PartitionEnd(*key, incomplete=True, status=ReplicaStatus.MISSING)
    request = BrokerHeartbeatRequest(3, setup.epoch(3), setup.image.offset, partition_ends=[missing])
    setup.controller.heartbeat(request, setup.now)
    (one,) = out_of_sync(setup)
    assert (one.reason, one.lag) == (LagReason.DAMAGED, -1)  # the report has made a new leader epoch
    report(setup, 1, lag_of(setup, key, 3, LagReason.CATCHING_UP, 4, 0, 10))
    assert out_of_sync(setup)[0].reason == LagReason.CATCHING_UP
    heard = setup.now
    setup.wait(4000, beating=[1, 2])
    (one,) = out_of_sync(setup)
    assert (one.reason, one.estimate_ms) == (LagReason.GONE, -1)
    assert one.since_ms == (setup.now - heard) // MS


def test_the_four_states() -> None:
    """Each filter returns its partitions only; without a leader, members of the in-sync set that are away count."""
    setup = ControllerSetup()
    key = setup.topic(min_isr=2)
    setup.topic("whole", replicas=(1, 2), min_isr=1)
    counts = [len(described(setup, state)) for state in PartitionFilter]
    assert counts == [2, 0, 0, 0, 0]
    setup.kill(3)
    assert [len(described(setup, state)) for state in PartitionFilter] == [2, 1, 0, 1, 0]
    setup.kill(2)
    assert [len(described(setup, state)) for state in PartitionFilter] == [2, 2, 1, 1, 0]
    (under,) = described(setup, PartitionFilter.UNDER_MIN_ISR)
    assert (under.min_isr, under.isr_nodes, under.leader_id) == (2, (1,), 1)
    setup.kill(1)
    offline = described(setup, PartitionFilter.OFFLINE)
    assert len(offline) == 2
    assert all(one.leader_id == -1 for one in offline)
    first = next(one for one in offline if len(one.replica_nodes) == 3)
    assert {one.replica_id: one.reason for one in first.out_of_sync} == dict.fromkeys((1, 2, 3), LagReason.GONE)
    assert setup[key].leader == -1


def test_reports_of_a_deleted_topic_are_forgotten(shrunk: tuple[ControllerSetup, PartitionKey]) -> None:
    """Nothing is kept about a topic that does not exist."""
    setup, key = shrunk
    report(setup, 1, lag_of(setup, key, 3, LagReason.STUCK, 5, 0))
    setup.controller._remove_topic(setup.image.topics[key[0]])
    assert setup.controller.lags._reported == {}


def test_a_reason_of_newer_software_is_unknown(shrunk: tuple[ControllerSetup, PartitionKey]) -> None:
    """A leader that knows more reasons does not end the controller."""
    setup, key = shrunk
    report(setup, 1, lag_of(setup, key, 3, 99, 5, 0))
    assert out_of_sync(setup) == [OutOfSyncReplica(3, LagReason.UNKNOWN, 5, 0)]


def test_a_reassignment_is_described(shrunk: tuple[ControllerSetup, PartitionKey]) -> None:
    """A replica that is being added is listed as out of sync, and does not make the partition under-replicated."""
    setup, key = shrunk
    whole = setup[key]._replace(isr=(1, 2), replicas=(1, 2, 3), adding=(3,))
    assert not whole.is_under_replicated
    assert whole._replace(isr=(1,)).is_under_replicated
    assert not whole._replace(isr=(1, 2, 3), adding=()).is_under_replicated
    assert whole._replace(adding=()).is_under_replicated
    setup.image.topics[key[0]].partitions[0] = whole._replace(removing=(1,))
    (partition,) = described(setup)
    assert (partition.adding, partition.removing) == ((3,), (1,))
    assert described(setup, PartitionFilter.UNDER_REPLICATED) == []
