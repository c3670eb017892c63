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
from tests.unit.replica.batches import batch
from tests.unit.replica.conftest import TOPIC_ID, MakeStage
from tests.unit.replica.replica_stage import ReplicaStage, request


def test_metadata_moves_the_roles(make_stage: MakeStage) -> None:
    """The roles follow the newest picture; an older one changes nothing."""
    stage = make_stage(min_insync_replicas=1)
    replica = stage.replicas[1]
    assert replica.role.name == "none"
    stage.elect(1)
    old = stage.picture()
    assert (replica.role.name, replica.is_leader, replica.isr) == ("leader", True, (1, 2, 3))
    stage.elect(2)
    assert (replica.role.name, replica.is_leader, replica.isr, replica.maximal_isr) == ("follower", False, (), ())
    stage.step(1, old)
    assert (replica.role.name, replica.leader_id, replica.leader_epoch) == ("follower", 2, 1)
    stage.elect(-1, tell=[1])
    assert (replica.role.name, replica.leader_id) == ("none", -1)
    stage.elect(3, tell=[1])
    assert replica.role.name == "follower"


def test_the_same_leader_is_not_fetched_anew(make_stage: MakeStage) -> None:
    """A picture that changes only the in-sync set leaves the follower's fetch alone; a grown epoch replaces it."""
    stage = make_stage(2)
    stage.elect(1)
    first = stage.fetches[2]
    stage.set_isr(1, tell=[2])
    assert stage.fetches[2] is first
    stage.elect(1)
    assert stage.fetches[2].request.current_leader_epoch == 1


def test_nobody_leads_in_an_epoch_its_log_knows(make_stage: MakeStage) -> None:
    """L0: a leader that returns with the epoch it had is refused: two histories of one epoch could not be told
    apart."""
    stage = make_stage(2, strict=False, min_insync_replicas=1)
    stage.elect(1)
    stage.append(1, acks=1)
    stage.restart(1)
    stage.step(1, stage.picture())
    assert stage.replicas[1].role.name == "none"
    assert [b.rule for b in stage.noted.broken] == ["L0"]
    stage.elect(1)
    assert stage.replicas[1].role.name == "leader"


def test_incomplete_until_in_the_set(make_stage: MakeStage) -> None:
    """An incomplete replica fetches like any other and becomes complete when a picture has this incarnation in the
    in-sync set."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.logs[2].set_incomplete(True)
    stage.elect(1, isr=[1])
    assert stage.logs[2].incomplete
    stage.append(1, 3)
    stage.settle()
    assert stage.isr == [1, 2]
    assert stage.logs[2].incomplete, "the answer went to the leader; the metadata has not arrived here"
    stage.show(2)
    assert not stage.logs[2].incomplete


def test_records_without_an_epoch_are_an_error() -> None:
    """A log that holds records but no leader epoch cannot be compared with a leader's: the replica goes offline."""
    log = MemoryLog(LogConfig(durability="os"))
    log.append_as_follower([bytes(batch(2, base=0, epoch=0))])
    log.epochs.entries.clear()
    stage = ReplicaStage({1: MemoryLog(), 2: log})
    stage.elect(1)
    assert stage.noted.offline == [2]


def test_stop_answers_everybody_and_ends_it(make_stage: MakeStage) -> None:
    """After ``Stop`` nobody waits, nothing is fetched or synced."""
    stage = make_stage(2, durability="sync", min_insync_replicas=1)
    stage.elect(1)
    stage.exchange(2)
    number = stage.append(1)
    assert stage.ask(1, ConsumerFetch, request(0, -1), 1000) is None
    reader = stage.numbers
    stage.step(1, Stop())
    assert stage.code(number) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert stage.code(reader) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stage.answers[2][0].data.error_code == 0, "the records went out before"
    stage.step(2, Stop())
    assert 2 not in stage.fetches
    stage.sync(1)
    assert not stage.syncs[1]


def test_offline_answers_everybody(make_stage: MakeStage) -> None:
    """An offline replica answers KAFKA_STORAGE_ERROR to every kind of question and stays offline."""
    stage = make_stage(1)
    stage.elect(1)
    stage.step(1, SyncFailed(OSError(5, "Input/output error")))
    storage = ErrorCode.KAFKA_STORAGE_ERROR
    assert stage.code(stage.append(1)) == storage
    assert stage.ask(1, ConsumerFetch, request(0, -1), 1000).error_code == storage
    assert stage.ask(1, ListOffsets, ListOffsetsPartition(0, -1)).error_code == storage
    assert stage.ask(1, OffsetForLeaderEpoch, OffsetForLeaderPartition(0, 0)).error_code == storage
    stage.step(1, SyncFailed(OSError(5, "Input/output error")))
    stage.elect(1)
    assert stage.noted.offline == [1]


@pytest.mark.parametrize(
    "error", [StorageError(5, "Input/output error", "x"), ClosedError("poisoned"), CorruptError("rot")]
)
def test_a_log_that_fails_anywhere_takes_the_replica_offline(make_stage: MakeStage, error: Exception) -> None:
    """Whatever the log refuses outside an append (here: to be cut) ends in ``Offline``, never in an exception of
    the step."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(1)
    stage.append(1, 3, acks=1)
    stage.elect(2)

    def failing(*_: object, **__: object) -> None:
        raise error

    stage.logs[1].truncate_to = failing
    stage.exchange(1)
    assert stage.noted.offline == [1]
    assert stage.replicas[1].role.name == "offline"
    assert 1 not in stage.fetches


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
    stage = ReplicaStage({1: log})
    stage.set_partition(leader_epoch=3)
    disk.fail("open", "*t-0/*", times=None, error=errno.EMFILE)
    stage.elect(1)
    for _ in range(3):
        stage.pass_time_to_wake(1)
    assert (stage.noted.offline, stage.replicas[1].role.name, log.high_watermark) == ([], "leader", 0)
    assert stage.replicas[1].log is log
    disk.clear_faults()
    stage.pass_time_to_wake(1)
    loaded = stage.replicas[1].log
    assert not isinstance(loaded, UnloadedLog)
    assert (loaded.high_watermark, loaded.epochs.latest) == (1, stage.partition.leader_epoch)
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
def test_unexpected_events_do_no_harm(make_stage: MakeStage, role: str) -> None:
    """Late, foreign and repeated events are answered or ignored in every role, and change neither log nor high
    watermark."""
    for event in everything():
        stage = make_stage(2)
        if role != "none":
            stage.elect(2 if role == "follower" else 1)
            stage.settle()
        if role == "offline":
            stage.step(1, SyncFailed(OSError(5, "Input/output error")))
        before = (stage.ends(), stage.high_watermarks())
        effects = stage.replicas[1].step(event, stage.now_ns)
        assert (stage.ends(), stage.high_watermarks()) == before
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.result.error_code or isinstance(event, ConsumerFetch | ListOffsets | OffsetForLeaderEpoch)


def test_ticks_come_when_asked_and_stop(make_stage: MakeStage) -> None:
    """Each ``Wake`` is followed by its ``Tick``; after the last append the timers run out: an idle partition costs
    nothing."""
    stage = make_stage()
    stage.elect(1)
    stage.append(1)
    stage.settle()
    for _ in range(40):
        stage.pass_time(1000)
        stage.exchange(2, 3)
    assert not stage.wakes


def test_steps_are_deterministic() -> None:
    """The same events at the same moments on the same logs give the same effects."""

    def run() -> list[str]:
        trace: list[str] = []

        class Traced(ReplicaStage):
            def step(self, broker: int, event: Event) -> list[object]:  # type: ignore[override]
                effects = super().step(broker, event)
                trace.extend(f"{broker} {type(e).__name__} {getattr(e, 'correlation_id', '')}" for e in effects)
                return list(effects)

        stage = Traced({b: MemoryLog(LogConfig(durability="sync", min_insync_replicas=2)) for b in (1, 2, 3)})
        stage.elect(1)
        for i in range(20):
            stage.append(1 + i // 10, i % 3 + 1)
            stage.settle()
            if i == 9:
                stage.elect(2)
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
    stage = ReplicaStage({1: log}, replica_class=Other)
    stage.elect(1)
    assert type(stage.replicas[1].role).__name__ == "L"
