"""Divergence found inside the fetch, and what follows from it: the fault schedules of truncation and epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyreplog.config import LogConfig
from pyreplog.errors import StorageError
from pyreplog.replica import FetchAnswered, Follower
from pyreplog.wire import EpochEndOffset, ErrorCode, PartitionData
from tests.oracle.memory_log import MemoryLog
from tests.unit.replica.batches import batch
from tests.unit.replica.conftest import MakeStage
from tests.unit.replica.replica_stage import MS, ReplicaStage, request


def fill(log: Any, *runs: tuple[int, int], tag: bytes = b"") -> None:
    """Append runs (epoch, count) of one-record batches, as a follower would; the values name log and offset."""
    for epoch, count in runs:
        for _ in range(count):
            offset = log.end_offset
            log.append_as_follower([batch([b"%s%d@%d" % (tag, offset, epoch)], base=offset, epoch=epoch)])


def records(log: Any) -> bytes:
    """The log's bytes."""
    if log.end_offset == log.start_offset:
        return b""
    return b"".join(log.read(log.start_offset, 1 << 30, log.end_offset).parts())


def same(*logs: Any) -> bool:
    """Whether the logs hold the same bytes and epochs."""
    return all(records(log) == records(logs[0]) and log.epochs.entries == logs[0].epochs.entries for log in logs)


def at_epoch(stage: ReplicaStage, epoch: int) -> ReplicaStage:
    """The controller's next leader epoch is ``epoch``."""
    stage.set_partition(leader_epoch=epoch - 1)
    return stage


def test_restart_drops_nothing_by_itself(make_stage: MakeStage) -> None:
    """F1: a follower whose high watermark lags keeps its tail at a restart; when it is elected the tail survives
    everywhere."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(2)
    stage.append(2, acks=1)
    stage.exchange(1, 1)
    stage.append(2, acks=1)
    stage.exchange(1)
    stage.present(1)
    assert stage.high_watermarks()[0] < 2 == stage.high_watermarks()[1]
    before = records(stage.logs[2])
    stage.restart(1)
    stage.step(1, stage.picture())
    assert stage.ends() == [2, 2]
    stage.elect(1)
    stage.settle()
    assert records(stage.logs[1]) == before
    assert records(stage.logs[2]) == before
    assert stage.high_watermarks() == [2, 2]


def test_a_shorter_leader_wins_over_a_longer_follower(make_stage: MakeStage) -> None:
    """F2: a replica with a tail that the new leader lacks cuts it off and takes the leader's; cutting below its own
    mark is reported as T2."""
    stage = make_stage(2, strict=False, min_insync_replicas=1)
    fill(stage.logs[1], (0, 2))
    fill(stage.logs[2], (0, 1))
    stage.logs[1].set_high_watermark(2)
    at_epoch(stage, 1).elect(2, isr=[2])
    stage.append(2, acks=1, tag=b"m3")
    stage.settle()
    assert same(stage.logs[1], stage.logs[2])
    assert [e.epoch for e in stage.logs[1].epochs.entries] == [0, 1]
    assert [b.rule for b in stage.noted.broken] == ["T2"]


def test_fast_elections(make_stage: MakeStage) -> None:
    """F3 (KIP-279): after two elections between two fetches one question is not enough; the second round finds the
    common epoch."""
    stage = make_stage(2, min_insync_replicas=1)
    fill(stage.logs[1], (0, 3), (2, 3), tag=b"A")
    fill(stage.logs[2], (0, 3), tag=b"A")
    fill(stage.logs[2], (1, 7), tag=b"B")
    at_epoch(stage, 3).elect(2)
    stage.append(2, acks=1)
    targets = []
    for _ in range(3):
        stage.exchange(1)
        targets.append(stage.ends()[0])
    assert targets == [3, 11, 11]
    stage.settle()
    assert same(stage.logs[1], stage.logs[2])
    assert [(e.epoch, e.start_offset) for e in stage.logs[1].epochs.entries] == [(0, 0), (1, 3), (3, 10)]


def test_zombie_leader_is_nobodys_reference(make_stage: MakeStage) -> None:
    """F4: a deposed leader that has not heard refuses fetches of the new epoch, and its old answers are dropped."""
    stage = make_stage(min_insync_replicas=2)
    stage.elect(1)
    stage.settle()
    stage.append(1, acks=1)
    stage.present(3)
    stage.elect(2, tell=[2, 3])
    stage.answer(3)
    assert stage.ends()[2] == 0, "an answer of epoch 0 does not count in epoch 1"
    stage.fetch_by_hand(3, 1, stage.fetches[3].request, epoch=3)
    assert stage.take("records", target=3)[-1].data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    stage.fetch_by_hand(3, 2, request(0, 0), epoch=3)
    assert stage.take("records", target=3)[-1].data.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_empty_epochs_are_recorded(make_stage: MakeStage) -> None:
    """F5 (KAFKA-7415): epochs in which nothing was written are in the histories, so questions about older ones get
    the true end."""
    stage = make_stage(min_insync_replicas=1)
    at_epoch(stage, 1).elect(1)
    stage.append(1, 2, acks=1)
    stage.settle()
    stage.append(1, 5, acks=1)
    stage.elect(2, tell=[2, 3])
    stage.elect(3, tell=[3, 2, 1])
    assert [(e.epoch, e.start_offset) for e in stage.logs[2].epochs.entries] == [(1, 0), (2, 2)]
    assert [(e.epoch, e.start_offset) for e in stage.logs[3].epochs.entries] == [(1, 0), (3, 2)]
    stage.settle()
    assert stage.ends() == [2, 2, 2]


def test_a_leadership_that_wrote_nothing_leaves_no_entry(make_stage: MakeStage) -> None:
    """F6 (KAFKA-10706): an epoch entry at the log's end, left by a leadership that wrote nothing, is dropped though
    no record is cut."""
    stage = make_stage(2, min_insync_replicas=1)
    at_epoch(stage, 1).elect(1)
    stage.append(1, 4, acks=1)
    stage.settle()
    stage.elect(2, tell=[2])
    assert stage.logs[2].epochs.latest == 2
    stage.elect(1)
    stage.exchange(2)
    assert stage.logs[2].epochs.latest == 1
    stage.append(1, acks=1)
    stage.settle()
    assert same(stage.logs[1], stage.logs[2])
    assert [e.epoch for e in stage.logs[2].epochs.entries] == [1, 3]


def test_errors_record_no_progress(make_stage: MakeStage) -> None:
    """F8 (KAFKA-8400): a fetch whose read fails records nothing of its sender."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(1)
    stage.append(1, 3, acks=1)
    stage.exchange(2)
    assert stage.progress(2) == 0
    stage.append(1, 3, acks=1)
    log = stage.logs[1]
    read = log.read

    def failing(*_: object, **__: object) -> None:
        raise StorageError(5, "Input/output error", "x")

    log.read = failing
    stage.present(2)
    assert stage.take("records", target=2)[-1].data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (stage.progress(2), log.high_watermark) == (0, 0)
    log.read = read
    stage.present(2)
    assert (stage.progress(2), log.high_watermark) == (3, 3)


def test_a_waiting_fetch_that_cannot_be_served_is_refused_once(make_stage: MakeStage) -> None:
    """What comes after the error is for the next fetch: two answers to one would be taken for those of two."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(1)
    stage.present(2)
    log = stage.logs[1]
    read = log.read

    def failing(*_: object, **__: object) -> None:
        raise StorageError(5, "Input/output error", "x")

    log.read = failing
    stage.append(1, acks=1)
    log.read = read
    stage.append(1, acks=1)
    assert [answer.data.error_code for answer in stage.answers[2]] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_divergence_records_no_progress(make_stage: MakeStage) -> None:
    """F9 (KAFKA-13141): a diverging answer carries no records and leaves the sender's progress and the high
    watermark alone."""
    stage = make_stage(2, min_insync_replicas=1)
    fill(stage.logs[1], (0, 6), tag=b"A")
    fill(stage.logs[2], (0, 6), tag=b"A")
    fill(stage.logs[2], (1, 4), tag=b"B")
    at_epoch(stage, 2).elect(1)
    stage.append(1, 10, acks=1)
    stage.present(2)
    data = stage.answers[2][0].data
    assert data.diverging_epoch == EpochEndOffset(0, 6)
    assert data.records is None
    assert (stage.progress(2), stage.logs[1].high_watermark) == (-1, 0)
    stage.settle()
    assert same(stage.logs[1], stage.logs[2])


def test_below_the_leaders_start_wins_over_divergence(make_stage: MakeStage) -> None:
    """F10 (KAFKA-12996), F11 (KAFKA-9491): a follower that ends below the leader's start starts anew there, its
    high watermark with it."""
    stage = make_stage(2, min_insync_replicas=1)
    fill(stage.logs[1], (0, 30), tag=b"A")
    fill(stage.logs[1], (2, 40), tag=b"A")
    stage.logs[1].set_high_watermark(70)
    stage.logs[1].increment_start_offset(50)
    fill(stage.logs[2], (0, 20), tag=b"A")
    fill(stage.logs[2], (1, 10), tag=b"B")
    stage.logs[2].set_high_watermark(20)
    at_epoch(stage, 3).elect(1)
    stage.present(2)
    assert stage.answers[2][0].data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    stage.answer(2)
    log = stage.logs[2]
    assert (log.start_offset, log.end_offset, log.high_watermark) == (50, 50, 50)
    stage.settle()
    assert (log.start_offset, log.end_offset, log.high_watermark) == (50, 70, 70)
    assert records(log) == records(stage.logs[1])


def test_empty_answers_keep_the_last_epoch(make_stage: MakeStage) -> None:
    """F12 (KAFKA-15510): after an empty answer the next fetch names the same last epoch."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(1)
    stage.append(1, 3, acks=1)
    stage.settle()
    stage.elect(1)
    first = stage.fetches[2].request
    stage.present(2)
    stage.step(2, FetchAnswered(first, PartitionData(0, 0, 3, 3, 0)))
    again = stage.fetches[2].request
    assert again is not first
    assert (first.last_fetched_epoch, again.last_fetched_epoch) == (0, 0)


def test_a_new_leader_with_an_older_mark(make_stage: MakeStage) -> None:
    """F18: a new leader keeps its older high watermark until its whole in-sync set has fetched in the new epoch;
    nothing is lost."""
    stage = make_stage(min_insync_replicas=1)
    stage.elect(1)
    stage.append(1, 90)
    stage.settle()
    stage.append(1, 10)
    stage.exchange(2, 3)
    stage.present(2)
    stage.present(3)
    assert stage.high_watermarks() == [100, 90, 90]
    stage.elect(2, isr=[2, 3], tell=[2, 3])
    assert stage.logs[2].high_watermark == 90
    stage.exchange(3)
    assert stage.logs[2].high_watermark == 100
    assert stage.ends() == [100, 100, 100]


def test_answer_of_another_epoch_is_dropped(make_stage: MakeStage) -> None:
    """T1: a divergence found under an older leader epoch truncates nothing, even where the offsets match."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(1)
    stage.append(1, 5, acks=1)
    stage.settle()
    old = stage.fetches[2].request
    stage.elect(1)
    stage.step(2, FetchAnswered(old, PartitionData(0, 0, 0, 0, 0, EpochEndOffset(0, 0))))
    assert stage.ends()[1] == 5
    assert 2 in stage.fetches


def test_unknown_epoch_backs_off_and_fenced_stops(make_stage: MakeStage) -> None:
    """UNKNOWN_LEADER_EPOCH and others are asked again after a pause that doubles; FENCED_LEADER_EPOCH ends it until
    newer metadata."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(1)
    pauses = []
    for _ in range(9):
        stage.step(2, FetchAnswered(stage.take_fetch(2).request, PartitionData(0, ErrorCode.UNKNOWN_LEADER_EPOCH)))
        assert 2 not in stage.fetches
        begin = stage.now_ns
        while 2 not in stage.fetches:
            stage.pass_time(0.25, 2)
        pauses.append((stage.now_ns - begin) / MS)
    assert pauses[:5] == [6.25, 12.5, 25, 50, stage.config.replica_fetch_backoff_ms]
    assert pauses[-1] == 1000
    stage.step(2, FetchAnswered(stage.take_fetch(2).request, PartitionData(0, ErrorCode.FENCED_LEADER_EPOCH)))
    stage.pass_time(10_000, 2)
    assert 2 not in stage.fetches
    stage.elect(1)
    assert 2 in stage.fetches


def test_garbage_from_the_leader_is_asked_again(make_stage: MakeStage) -> None:
    """Records that are damaged or do not continue the log are not appended; the follower asks again."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(1)
    for wrong in (b"garbage", bytes(batch(2, base=7, epoch=0)), bytes(batch(2, base=0, epoch=0))[:-3]):
        stage.step(2, FetchAnswered(stage.take_fetch(2).request, PartitionData(0, 0, 0, 0, 0, records=wrong)))
        assert stage.ends()[1] == 0
        assert 2 not in stage.fetches
        stage.pass_time(1000, 2)
        assert 2 in stage.fetches


def test_a_slice_that_went_stale_is_asked_again(make_stage: MakeStage) -> None:
    """Records cut away at the leader before the follower took them are not appended."""
    stage = make_stage(2, min_insync_replicas=1)
    stage.elect(1)
    stage.append(1, 2, acks=1)
    request, records = stage.take_fetch(2).request, stage.logs[1].read(0, 1 << 20, 2)
    stage.logs[1].truncate_to(0)
    stage.step(2, FetchAnswered(request, PartitionData(0, 0, 0, 0, 0, records=records)))
    assert stage.ends()[1] == 0
    stage.pass_time(1000, 2)
    assert 2 in stage.fetches


def test_a_former_leader_syncs_before_it_fetches(make_stage: MakeStage) -> None:
    """A ``sync`` replica that becomes a follower with an unsynced tail syncs first: its fetch says what is
    durable."""
    stage = make_stage(2, durability="sync", min_insync_replicas=1)
    stage.elect(1)
    stage.append(1, acks=1)
    stage.elect(2)
    assert 1 not in stage.fetches
    stage.sync(1)
    assert stage.fetches[1].request.fetch_offset == 1


def test_a_sync_of_before_the_truncation_counts_for_nothing(make_stage: MakeStage) -> None:
    """The end of a sync that was begun before a truncation does not make the new tail durable."""
    stage = make_stage(2, durability="sync", min_insync_replicas=1)
    stage.elect(1)
    stage.append(1, 3, acks=1)
    sync = stage.syncs[1][0]
    stage.elect(2)
    stage.logs[1].truncate_to(0)
    fill(stage.logs[1], (1, 3))
    assert sync.generation != stage.logs[1].generation
    stage.sync(1)
    assert stage.logs[1].flushed_offset == 0
    assert stage.syncs[1], "a new one was begun"


Runs = Sequence[tuple[int, int]]
histories = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=6)


def rising(runs: Runs) -> list[tuple[int, int]]:
    """Runs by rising epoch, one each."""
    return sorted(dict(runs).items())


@settings(max_examples=300)
@given(common=histories, mine=histories, theirs=histories)
def test_any_two_histories_agree_soon(common: Runs, mine: Runs, theirs: Runs) -> None:
    """Two replicas with arbitrary epoch histories (equal bytes for equal (offset, epoch)) agree after at most as
    many rounds as there are epochs."""
    logs = {b: MemoryLog(LogConfig(durability="os")) for b in (1, 2)}
    shared = rising(common)
    last = shared[-1][0] if shared else -1
    for log in logs.values():
        for epoch, count in shared:
            log.epochs.assign(epoch, log.end_offset)
            fill(log, (epoch, count))
    # Beyond the common part no epoch is used by both: one leader per epoch.
    for parity, log, own in ((0, logs[1], mine), (1, logs[2], theirs)):
        for epoch, count in rising(own):
            number = last + 1 + 2 * epoch + parity
            log.epochs.assign(number, log.end_offset)
            fill(log, (number, count), tag=b"AB"[parity : parity + 1])
    stage = ReplicaStage(logs, strict=False)
    stage.set_partition(leader_epoch=40)
    stage.elect(1, isr=[1])
    rounds = 0
    while True:
        epochs_before = len(logs[2].epochs.entries)
        stage.present(2)
        if not stage.answers[2] or stage.answers[2][0].data.diverging_epoch is None:
            break
        stage.answer(2)
        rounds += 1
        assert rounds <= len(shared) + len(rising(mine)) + len(rising(theirs)) + 1
        assert epochs_before >= len(logs[2].epochs.entries)
    stage.settle()
    assert logs[1].content == logs[2].content
    assert logs[1].epochs.latest == 41
    held = [e for e in logs[1].epochs.entries if e.start_offset < logs[1].end_offset]
    ours = [e for e in logs[2].epochs.entries if e.start_offset < logs[2].end_offset]
    # A follower learns epochs from batches: entries of epochs without records need not be there.
    assert [e for e in ours if e not in held] == []
    assert {b.epoch for b in logs[2].batches} == {b.epoch for b in logs[1].batches}
    assert issubclass(stage.replica_class.follower_class, Follower)
