"""Roles, timers and the rules that every role shares; incomplete replicas."""

from __future__ import annotations

import errno
from itertools import pairwise
from random import Random

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, CorruptError, StorageError
from pyreplog.log import LogRoot, UnloadedLog
from pyreplog.replica import (
    AlterPartitionAnswered,
    BrokersApplied,
    CancelFetch,
    ConsumerFetch,
    Event,
    FetchAnswered,
    FollowerFetch,
    Leader,
    ListOffsets,
    OffsetForLeaderEpoch,
    Produce,
    Replica,
    Reply,
    Stop,
    Synced,
    SyncFailed,
    Tick,
)
from pyreplog.testing import SimClock, SimDisk
from pyreplog.values import TopicPartition
from pyreplog.wire import ErrorCode, ListOffsetsPartition, OffsetForLeaderPartition, PartitionData
from tests.oracle.memory_log import MemoryLog
from tests.replica.batches import batch
from tests.replica.conftest import TOPIC_ID, MakeHarness
from tests.replica.replica_harness import ReplicaHarness, request


def test_metadata_moves_the_roles(make_harness: MakeHarness) -> None:
    """The roles follow the newest picture; an older one changes nothing."""
    harness = make_harness(min_insync_replicas=1)
    replica = harness.replicas[1]
    assert replica.role.name == "none"
    harness.elect(1)
    old = harness.picture()
    assert (replica.role.name, replica.is_leader, replica.isr) == ("leader", True, (1, 2, 3))
    harness.elect(2)
    assert (replica.role.name, replica.is_leader, replica.isr, replica.maximal_isr) == ("follower", False, (), ())
    harness.step(1, old)
    assert (replica.role.name, replica.leader_id, replica.leader_epoch) == ("follower", 2, 1)
    harness.elect(-1, tell=[1])
    assert (replica.role.name, replica.leader_id) == ("none", -1)
    harness.elect(3, tell=[1])
    assert replica.role.name == "follower"


def test_the_same_leader_is_not_fetched_anew(make_harness: MakeHarness) -> None:
    """A picture that changes only the in-sync set leaves the follower's fetch alone; a grown epoch replaces it."""
    harness = make_harness(2)
    harness.elect(1)
    first = harness.fetches[2]
    harness.set_isr(1, tell=[2])
    assert harness.fetches[2] is first
    harness.elect(1)
    assert harness.fetches[2].request.current_leader_epoch == 1


def test_nobody_leads_in_an_epoch_its_log_knows(make_harness: MakeHarness) -> None:
    """L0: a leader that returns with the epoch it had is refused: two histories of one epoch could not be told
    apart."""
    harness = make_harness(2, strict=False, min_insync_replicas=1)
    harness.elect(1)
    harness.append(1, acks=1)
    harness.restart(1)
    harness.step(1, harness.picture())
    assert harness.replicas[1].role.name == "none"
    assert [b.rule for b in harness.broken] == ["L0"]
    harness.elect(1)
    assert harness.replicas[1].role.name == "leader"


def test_incomplete_until_in_the_set(make_harness: MakeHarness) -> None:
    """An incomplete replica fetches like any other and becomes complete when a picture has this incarnation in the
    in-sync set."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.logs[2].set_incomplete(True)
    harness.elect(1, isr=[1])
    assert harness.logs[2].incomplete
    harness.append(1, 3)
    harness.settle()
    assert harness.isr == [1, 2]
    assert harness.logs[2].incomplete, "the answer went to the leader; the metadata has not arrived here"
    harness.tell(2)
    assert not harness.logs[2].incomplete


def test_records_without_an_epoch_are_an_error() -> None:
    """A log that holds records but no leader epoch cannot be compared with a leader's: the replica goes offline."""
    log = MemoryLog(LogConfig(durability="os"))
    log.append_as_follower([bytes(batch(2, base=0, epoch=0))])
    log.epochs.entries.clear()
    harness = ReplicaHarness({1: MemoryLog(), 2: log})
    harness.elect(1)
    assert harness.offline == [2]


def test_stop_answers_everybody_and_ends_it(make_harness: MakeHarness) -> None:
    """After ``Stop`` nobody waits, nothing is fetched or synced."""
    harness = make_harness(2, durability="sync", min_insync_replicas=1)
    harness.elect(1)
    harness.exchange(2)
    number = harness.append(1)
    assert harness.ask(1, ConsumerFetch, request(0, -1), 1000) is None
    reader = harness.numbers
    harness.step(1, Stop())
    assert harness.code(number) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert harness.code(reader) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert harness.answers[2][0].data.error_code == 0, "the records went out before"
    harness.step(2, Stop())
    assert 2 not in harness.fetches
    harness.sync(1)
    assert not harness.syncs[1]


def test_offline_answers_everybody(make_harness: MakeHarness) -> None:
    """An offline replica answers KAFKA_STORAGE_ERROR to every kind of question and stays offline."""
    harness = make_harness(1)
    harness.elect(1)
    harness.step(1, SyncFailed(OSError(5, "Input/output error")))
    storage = ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.code(harness.append(1)) == storage
    assert harness.ask(1, ConsumerFetch, request(0, -1), 1000).error_code == storage
    assert harness.ask(1, ListOffsets, ListOffsetsPartition(0, -1)).error_code == storage
    assert harness.ask(1, OffsetForLeaderEpoch, OffsetForLeaderPartition(0, 0)).error_code == storage
    harness.step(1, SyncFailed(OSError(5, "Input/output error")))
    harness.elect(1)
    assert harness.offline == [1]


@pytest.mark.parametrize(
    "error", [StorageError(5, "Input/output error", "x"), ClosedError("poisoned"), CorruptError("rot")]
)
def test_a_log_that_fails_anywhere_takes_the_replica_offline(make_harness: MakeHarness, error: Exception) -> None:
    """Whatever the log refuses outside an append (here: to be cut) ends in ``Offline``, never in an exception of
    the step."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(1)
    harness.append(1, 3, acks=1)
    harness.elect(2)

    def failing(*_: object, **__: object) -> None:
        raise error

    harness.logs[1].truncate_to = failing
    harness.exchange(1)
    assert harness.offline == [1]
    assert harness.replicas[1].role.name == "offline"
    assert 1 not in harness.fetches


def test_a_leader_whose_log_cannot_wake_to_show_more_tries_again_later() -> None:
    """Where its high watermark could rise, and there is no descriptor to open the log with, the replica goes on
    leading."""
    disk, clock, key = SimDisk(Random(1)), SimClock(), TopicPartition("t", 0)

    class Drowsy(LogRoot):
        summaries_from = 1

    def opened() -> LogRoot:
        return Drowsy.open(disk, "n1", clock=clock, random=Random(1), lazy=True)

    root = opened()
    root.create_log("t", 0, TOPIC_ID, LogConfig(durability="os")).append_as_leader(bytearray(batch([b"a"])), 0)
    root.close()
    root = opened()
    log = root.logs.peek(key, LogConfig(durability="os"))
    assert isinstance(log, UnloadedLog)
    harness = ReplicaHarness({1: log})
    harness.leader_epoch = 3
    disk.fail("open", "*t-0/*", times=None, error=errno.EMFILE)
    harness.elect(1)
    for _ in range(3):
        harness.now = harness.wakes.pop(1)
        harness.step(1, Tick())
    assert (harness.offline, harness.replicas[1].role.name, log.high_watermark) == ([], "leader", 0)
    assert harness.replicas[1].log is log
    disk.clear_faults()
    harness.now = harness.wakes.pop(1)
    harness.step(1, Tick())
    loaded = harness.replicas[1].log
    assert not isinstance(loaded, UnloadedLog)
    assert (loaded.high_watermark, loaded.epochs.latest) == (1, harness.leader_epoch)
    root.close()


def everything() -> list[Event]:
    """One of each event, none of them expected."""
    stale = request(0, 0)
    return [
        Tick(),
        Synced(5, 7),
        CancelFetch("x", 1),
        AlterPartitionAnswered(99, 0),
        BrokersApplied({}),
        FetchAnswered(stale, PartitionData(0, 0, 9, 9, 0)),
        FollowerFetch("7", 1, stale, 7, 7),
        ConsumerFetch("x", 1, request(0, -1), 0),
        ListOffsets("x", 1, ListOffsetsPartition(0, -1)),
        OffsetForLeaderEpoch("x", 1, OffsetForLeaderPartition(0, 3)),
        Produce("x", 1, 1, batch(), 1000, 77),
        Stop(),
    ]


@pytest.mark.parametrize("role", ["none", "leader", "follower", "offline"])
def test_unexpected_events_do_no_harm(make_harness: MakeHarness, role: str) -> None:
    """Late, foreign and repeated events are answered or ignored in every role, and change neither log nor high
    watermark."""
    for event in everything():
        harness = make_harness(2)
        if role != "none":
            harness.elect(2 if role == "follower" else 1)
            harness.settle()
        if role == "offline":
            harness.step(1, SyncFailed(OSError(5, "Input/output error")))
        before = (harness.ends(), harness.high_watermarks())
        effects = harness.replicas[1].step(event, harness.now)
        assert (harness.ends(), harness.high_watermarks()) == before
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.result.error_code or isinstance(event, ConsumerFetch | ListOffsets | OffsetForLeaderEpoch)


def test_ticks_come_when_asked_and_stop(make_harness: MakeHarness) -> None:
    """Each ``Wake`` is followed by its ``Tick``; after the last append the timers run out: an idle partition costs
    nothing."""
    harness = make_harness()
    harness.elect(1)
    harness.append(1)
    harness.settle()
    for _ in range(40):
        harness.pass_time(1000)
        harness.exchange(2, 3)
    assert not harness.wakes


def test_steps_are_deterministic() -> None:
    """The same events at the same moments on the same logs give the same effects."""

    def run() -> list[str]:
        trace: list[str] = []

        class Traced(ReplicaHarness):
            def step(self, broker: int, event: Event) -> list[object]:  # type: ignore[override]
                effects = super().step(broker, event)
                trace.extend(f"{broker} {type(e).__name__} {getattr(e, 'correlation_id', '')}" for e in effects)
                return list(effects)

        harness = Traced({b: MemoryLog(LogConfig(durability="sync", min_insync_replicas=2)) for b in (1, 2, 3)})
        harness.elect(1)
        for i in range(20):
            harness.append(1 + i // 10, i % 3 + 1)
            harness.settle()
            if i == 9:
                harness.elect(2)
        return trace

    traces = [run() for _ in range(2)]
    assert all(a == b for a, b in pairwise(traces))
    assert len(traces[0]) > 100


def test_variants_need_only_a_class() -> None:
    """The classes of the roles can be replaced on a subclass of the machine."""

    class L(Leader):
        pass

    class Other(Replica):
        leader_class = L

    log = MemoryLog(LogConfig(durability="os"))
    harness = ReplicaHarness({1: log}, replica_class=Other)
    harness.elect(1)
    assert type(harness.replicas[1].role).__name__ == "L"
