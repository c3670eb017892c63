"""Divergence found inside the fetch, and what follows from it: the fault schedules of truncation and epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyreplog.config import LogConfig
from pyreplog.errors import StorageError
from pyreplog.replica import FetchAnswered, Follower, FollowerFetch
from pyreplog.wire import EpochEndOffset, ErrorCode, PartitionData
from tests.oracle.memory_log import MemoryLog
from tests.replica.batches import batch
from tests.replica.conftest import MakeHarness
from tests.replica.replica_harness import MS, ReplicaHarness, request


def fill(log: Any, *runs: tuple[int, int], tag: bytes = b"") -> None:
    """Append runs (epoch, count) of one-record batches, as a follower would; the values name log and offset."""
    for epoch, count in runs:
        for _ in range(count):
            offset = log.end_offset
            log.append_as_follower([batch([b"%s%d@%d" % (tag, offset, epoch)], base=offset, epoch=epoch)])


def records(log: Any) -> list[bytes]:
    """The log's bytes, part by part."""
    return (
        [bytes(part) for part in log.read(log.start_offset, 1 << 30, log.end_offset).parts()]
        if log.end_offset > log.start_offset
        else []
    )


def same(*logs: Any) -> bool:
    """Whether the logs hold the same bytes and epochs."""
    return all(
        b"".join(records(log)) == b"".join(records(logs[0])) and log.epochs.entries == logs[0].epochs.entries
        for log in logs
    )


def at_epoch(harness: ReplicaHarness, epoch: int) -> ReplicaHarness:
    """The controller's next leader epoch is ``epoch``."""
    harness.leader_epoch = epoch - 1
    return harness


def test_restart_drops_nothing_by_itself(make_harness: MakeHarness) -> None:
    """F1: a follower whose high watermark lags keeps its tail at a restart; when it is elected the tail survives
    everywhere."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(2)
    harness.append(2, acks=1)
    harness.exchange(1, 1)
    harness.append(2, acks=1)
    harness.exchange(1)
    harness.present(1)
    assert harness.high_watermarks()[0] < 2 == harness.high_watermarks()[1]
    before = records(harness.logs[2])
    harness.restart(1)
    harness.step(1, harness.picture())
    assert harness.ends() == [2, 2]
    harness.elect(1)
    harness.settle()
    assert records(harness.logs[1]) == before
    assert records(harness.logs[2]) == before
    assert harness.high_watermarks() == [2, 2]


def test_a_shorter_leader_wins_over_a_longer_follower(make_harness: MakeHarness) -> None:
    """F2: a replica with a tail that the new leader lacks cuts it off and takes the leader's; cutting below its own
    mark is reported as T2."""
    harness = make_harness(2, strict=False, min_insync_replicas=1)
    fill(harness.logs[1], (0, 2))
    fill(harness.logs[2], (0, 1))
    harness.logs[1].set_high_watermark(2)
    at_epoch(harness, 1).elect(2, isr=[2])
    harness.append(2, acks=1, tag=b"m3")
    harness.settle()
    assert same(harness.logs[1], harness.logs[2])
    assert [e.epoch for e in harness.logs[1].epochs.entries] == [0, 1]
    assert [b.rule for b in harness.broken] == ["T2"]


def test_fast_elections(make_harness: MakeHarness) -> None:
    """F3 (KIP-279): after two elections between two fetches one question is not enough; the second round finds the
    common epoch."""
    harness = make_harness(2, min_insync_replicas=1)
    fill(harness.logs[1], (0, 3), (2, 3), tag=b"A")
    fill(harness.logs[2], (0, 3), tag=b"A")
    fill(harness.logs[2], (1, 7), tag=b"B")
    at_epoch(harness, 3).elect(2)
    harness.append(2, acks=1)
    targets = []
    for _ in range(3):
        harness.exchange(1)
        targets.append(harness.ends()[0])
    assert targets == [3, 11, 11]
    harness.settle()
    assert same(harness.logs[1], harness.logs[2])
    assert [(e.epoch, e.start_offset) for e in harness.logs[1].epochs.entries] == [(0, 0), (1, 3), (3, 10)]


def test_zombie_leader_is_nobodys_reference(make_harness: MakeHarness) -> None:
    """F4: a deposed leader that has not heard refuses fetches of the new epoch, and its old answers are dropped."""
    harness = make_harness(min_insync_replicas=2)
    harness.elect(1)
    harness.settle()
    harness.append(1, acks=1)
    harness.present(3)
    harness.elect(2, tell=[2, 3])
    harness.answer(3)
    assert harness.ends()[2] == 0, "an answer of epoch 0 does not count in epoch 1"
    harness.step(1, FollowerFetch("3", 0, harness.fetches[3].request, 3, 3))
    assert harness.answers[3].pop().data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    harness.step(2, FollowerFetch("3", 0, request(0, 0), 3, 3))
    assert harness.answers[3].pop().data.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_empty_epochs_are_recorded(make_harness: MakeHarness) -> None:
    """F5 (KAFKA-7415): epochs in which nothing was written are in the histories, so questions about older ones get
    the true end."""
    harness = make_harness(min_insync_replicas=1)
    at_epoch(harness, 1).elect(1)
    harness.append(1, 2, acks=1)
    harness.settle()
    harness.append(1, 5, acks=1)
    harness.elect(2, tell=[2, 3])
    harness.elect(3, tell=[3, 2, 1])
    assert [(e.epoch, e.start_offset) for e in harness.logs[2].epochs.entries] == [(1, 0), (2, 2)]
    assert [(e.epoch, e.start_offset) for e in harness.logs[3].epochs.entries] == [(1, 0), (3, 2)]
    harness.settle()
    assert harness.ends() == [2, 2, 2]


def test_a_leadership_that_wrote_nothing_leaves_no_entry(make_harness: MakeHarness) -> None:
    """F6 (KAFKA-10706): an epoch entry at the log's end, left by a leadership that wrote nothing, is dropped though
    no record is cut."""
    harness = make_harness(2, min_insync_replicas=1)
    at_epoch(harness, 1).elect(1)
    harness.append(1, 4, acks=1)
    harness.settle()
    harness.elect(2, tell=[2])
    assert harness.logs[2].epochs.latest == 2
    harness.elect(1)
    harness.exchange(2)
    assert harness.logs[2].epochs.latest == 1
    harness.append(1, acks=1)
    harness.settle()
    assert same(harness.logs[1], harness.logs[2])
    assert [e.epoch for e in harness.logs[2].epochs.entries] == [1, 3]


def test_errors_record_no_progress(make_harness: MakeHarness) -> None:
    """F8 (KAFKA-8400): a fetch whose read fails records nothing of its sender."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(1)
    harness.append(1, 3, acks=1)
    harness.exchange(2)
    assert harness.progress(2) == 0
    harness.append(1, 3, acks=1)
    log = harness.logs[1]
    read = log.read

    def failing(*_: object, **__: object) -> None:
        raise StorageError(5, "Input/output error", "x")

    log.read = failing
    harness.present(2)
    assert harness.answers[2].pop().data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (harness.progress(2), log.high_watermark) == (0, 0)
    log.read = read
    harness.present(2)
    assert (harness.progress(2), log.high_watermark) == (3, 3)


def test_a_waiting_fetch_that_cannot_be_served_is_refused_once(make_harness: MakeHarness) -> None:
    """What comes after the error is for the next fetch: two answers to one would be taken for those of two."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(1)
    harness.present(2)
    log = harness.logs[1]
    read = log.read

    def failing(*_: object, **__: object) -> None:
        raise StorageError(5, "Input/output error", "x")

    log.read = failing
    harness.append(1, acks=1)
    log.read = read
    harness.append(1, acks=1)
    assert [answer.data.error_code for answer in harness.answers[2]] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_divergence_records_no_progress(make_harness: MakeHarness) -> None:
    """F9 (KAFKA-13141): a diverging answer carries no records and leaves the sender's progress and the high
    watermark alone."""
    harness = make_harness(2, min_insync_replicas=1)
    fill(harness.logs[1], (0, 6), tag=b"A")
    fill(harness.logs[2], (0, 6), tag=b"A")
    fill(harness.logs[2], (1, 4), tag=b"B")
    at_epoch(harness, 2).elect(1)
    harness.append(1, 10, acks=1)
    harness.present(2)
    data = harness.answers[2][0].data
    assert data.diverging_epoch == EpochEndOffset(0, 6)
    assert data.records is None
    assert (harness.progress(2), harness.logs[1].high_watermark) == (-1, 0)
    harness.settle()
    assert same(harness.logs[1], harness.logs[2])


def test_below_the_leaders_start_wins_over_divergence(make_harness: MakeHarness) -> None:
    """F10 (KAFKA-12996), F11 (KAFKA-9491): a follower that ends below the leader's start starts anew there, its
    high watermark with it."""
    harness = make_harness(2, min_insync_replicas=1)
    fill(harness.logs[1], (0, 30), tag=b"A")
    fill(harness.logs[1], (2, 40), tag=b"A")
    harness.logs[1].set_high_watermark(70)
    harness.logs[1].increment_start_offset(50)
    fill(harness.logs[2], (0, 20), tag=b"A")
    fill(harness.logs[2], (1, 10), tag=b"B")
    harness.logs[2].set_high_watermark(20)
    at_epoch(harness, 3).elect(1)
    harness.present(2)
    assert harness.answers[2][0].data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    harness.answer(2)
    log = harness.logs[2]
    assert (log.start_offset, log.end_offset, log.high_watermark) == (50, 50, 50)
    harness.settle()
    assert (log.start_offset, log.end_offset, log.high_watermark) == (50, 70, 70)
    assert records(log) == records(harness.logs[1])


def test_empty_answers_keep_the_last_epoch(make_harness: MakeHarness) -> None:
    """F12 (KAFKA-15510): after an empty answer the next fetch names the same last epoch."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(1)
    harness.append(1, 3, acks=1)
    harness.settle()
    harness.elect(1)
    first = harness.fetches[2].request
    harness.present(2)
    harness.step(2, FetchAnswered(first, PartitionData(0, 0, 3, 3, 0)))
    again = harness.fetches[2].request
    assert again is not first
    assert (first.last_fetched_epoch, again.last_fetched_epoch) == (0, 0)


def test_a_new_leader_with_an_older_mark(make_harness: MakeHarness) -> None:
    """F18: a new leader keeps its older high watermark until its whole in-sync set has fetched in the new epoch;
    nothing is lost."""
    harness = make_harness(min_insync_replicas=1)
    harness.elect(1)
    harness.append(1, 90)
    harness.settle()
    harness.append(1, 10)
    harness.exchange(2, 3)
    harness.present(2)
    harness.present(3)
    assert harness.high_watermarks() == [100, 90, 90]
    harness.elect(2, isr=[2, 3], tell=[2, 3])
    assert harness.logs[2].high_watermark == 90
    harness.exchange(3)
    assert harness.logs[2].high_watermark == 100
    assert harness.ends() == [100, 100, 100]


def test_answer_of_another_epoch_is_dropped(make_harness: MakeHarness) -> None:
    """T1: a divergence found under an older leader epoch truncates nothing, even where the offsets match."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(1)
    harness.append(1, 5, acks=1)
    harness.settle()
    old = harness.fetches[2].request
    harness.elect(1)
    harness.step(2, FetchAnswered(old, PartitionData(0, 0, 0, 0, 0, EpochEndOffset(0, 0))))
    assert harness.ends()[1] == 5
    assert 2 in harness.fetches


def test_unknown_epoch_backs_off_and_fenced_stops(make_harness: MakeHarness) -> None:
    """UNKNOWN_LEADER_EPOCH and others are asked again after a pause that doubles; FENCED_LEADER_EPOCH ends it until
    newer metadata."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(1)
    pauses = []
    for _ in range(9):
        harness.step(2, FetchAnswered(harness.fetches.pop(2).request, PartitionData(0, ErrorCode.UNKNOWN_LEADER_EPOCH)))
        assert 2 not in harness.fetches
        begin = harness.now
        while 2 not in harness.fetches:
            harness.pass_time(0.25, 2)
        pauses.append((harness.now - begin) / MS)
    assert pauses[:5] == [6.25, 12.5, 25, 50, harness.config.replica_fetch_backoff_ms]
    assert pauses[-1] == 1000
    harness.step(2, FetchAnswered(harness.fetches.pop(2).request, PartitionData(0, ErrorCode.FENCED_LEADER_EPOCH)))
    harness.pass_time(10_000, 2)
    assert 2 not in harness.fetches
    harness.elect(1)
    assert 2 in harness.fetches


def test_garbage_from_the_leader_is_asked_again(make_harness: MakeHarness) -> None:
    """Records that are damaged or do not continue the log are not appended; the follower asks again."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(1)
    for wrong in (b"garbage", bytes(batch(2, base=7, epoch=0)), bytes(batch(2, base=0, epoch=0))[:-3]):
        harness.step(2, FetchAnswered(harness.fetches.pop(2).request, PartitionData(0, 0, 0, 0, 0, records=wrong)))
        assert harness.ends()[1] == 0
        assert 2 not in harness.fetches
        harness.pass_time(1000, 2)
        assert 2 in harness.fetches


def test_a_slice_that_went_stale_is_asked_again(make_harness: MakeHarness) -> None:
    """Records cut away at the leader before the follower took them are not appended."""
    harness = make_harness(2, min_insync_replicas=1)
    harness.elect(1)
    harness.append(1, 2, acks=1)
    harness.present(2)
    harness.logs[1].truncate_to(0)
    harness.answer(2)
    assert harness.ends()[1] == 0
    harness.pass_time(1000, 2)
    assert 2 in harness.fetches


def test_a_former_leader_syncs_before_it_fetches(make_harness: MakeHarness) -> None:
    """A ``sync`` replica that becomes a follower with an unsynced tail syncs first: its fetch says what is
    durable."""
    harness = make_harness(2, durability="sync", min_insync_replicas=1)
    harness.elect(1)
    harness.append(1, acks=1)
    harness.elect(2)
    assert 1 not in harness.fetches
    harness.sync(1)
    assert harness.fetches[1].request.fetch_offset == 1


def test_a_sync_of_before_the_truncation_counts_for_nothing(make_harness: MakeHarness) -> None:
    """The end of a sync that was begun before a truncation does not make the new tail durable."""
    harness = make_harness(2, durability="sync", min_insync_replicas=1)
    harness.elect(1)
    harness.append(1, 3, acks=1)
    sync = harness.syncs[1][0]
    harness.elect(2)
    harness.logs[1].truncate_to(0)
    fill(harness.logs[1], (1, 3))
    assert sync.generation != harness.logs[1].generation
    harness.sync(1)
    assert harness.logs[1].flushed_offset == 0
    assert harness.syncs[1], "a new one was begun"


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
    harness = ReplicaHarness(logs, strict=False)
    harness.leader_epoch = 40
    harness.elect(1, isr=[1])
    rounds = 0
    while True:
        epochs_before = len(logs[2].epochs.entries)
        harness.present(2)
        if not harness.answers[2] or harness.answers[2][0].data.diverging_epoch is None:
            break
        harness.answer(2)
        rounds += 1
        assert rounds <= len(shared) + len(rising(mine)) + len(rising(theirs)) + 1
        assert epochs_before >= len(logs[2].epochs.entries)
    harness.settle()
    assert logs[1].content == logs[2].content
    assert logs[1].epochs.latest == 41
    held = [e for e in logs[1].epochs.entries if e.start_offset < logs[1].end_offset]
    ours = [e for e in logs[2].epochs.entries if e.start_offset < logs[2].end_offset]
    # A follower learns epochs from batches: entries of epochs without records need not be there.
    assert [e for e in ours if e not in held] == []
    assert {b.epoch for b in logs[2].batches} == {b.epoch for b in logs[1].batches}
    assert issubclass(harness.replica_class.follower_class, Follower)
