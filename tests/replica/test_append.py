"""What an acknowledgement means: acks, min.insync.replicas, durability, timeouts, step-downs."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import StorageError
from pyreplog.log import Appended, NewLog
from pyreplog.replica import Fetch, Produce, ProduceMany, Reply, Stop, Synced, SyncFailed, Tick
from pyreplog.testing import SimClock, SimDisk
from pyreplog.values import TopicPartition
from pyreplog.wire import ErrorCode
from tests.replica.batches import batch
from tests.replica.conftest import TOPIC_ID, MakeHarness, Patchable
from tests.replica.replica_harness import CLIENT, MS, ReplicaHarness, led

AFTER_APPEND = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_acks_zero_gets_no_answer(make_harness: MakeHarness) -> None:
    """acks=0 appends and never answers, not even when it is refused."""
    harness = led(make_harness())
    harness.append(1, acks=0)
    assert harness.ends()[0] == 1
    harness.append(2, acks=0)
    harness.settle()
    assert harness.results == {}


def test_acks_one_is_answered_by_the_leader_alone(make_harness: MakeHarness) -> None:
    """acks=1 of an ``os`` log is answered in the step of the append."""
    harness = led(make_harness())
    number = harness.append(1, 3, acks=1)
    assert (harness.code(number), harness.results[number].base_offset) == (0, 0)
    assert harness.logs[1].high_watermark == 0


def test_several_at_once_are_told_once(make_harness: MakeHarness) -> None:
    """Batches of one turn are appended in their order; a refused one hinders no other; followers get them all in
    one answer, and each is answered as its own ``acks`` say."""
    harness = led(make_harness())
    given = [
        Produce(CLIENT, 1, -1, batch([b"a", b"b"]), 1000),
        Produce(CLIENT, 2, 1, batch([b"c"]), 1000),
        Produce(CLIENT, 3, -1, b"no batch", 1000),
        Produce(CLIENT, 4, -1, batch([b"d"]), 1000, 77),
        Produce(CLIENT, 5, 2, batch([b"d"]), 1000),
        Produce(CLIENT, 6, 0, batch([b"e"]), 1000),
        Produce(CLIENT, 7, -1, batch([b"f"]), 1000),
    ]
    harness.step(1, ProduceMany(given))
    assert harness.ends()[0] == 5
    assert [(number, harness.code(number)) for number in sorted(harness.results)] == [
        (2, 0),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (5, ErrorCode.INVALID_REQUIRED_ACKS),
    ]
    harness.exchange(2)
    harness.exchange(3)
    assert harness.ends() == [5, 5, 5]
    harness.settle()
    assert [harness.results[number].base_offset for number in (1, 2, 7)] == [0, 2, 4]
    assert 6 not in harness.results


def test_a_disk_that_fails_in_the_middle_of_several(make_harness: MakeHarness) -> None:
    """Those that are not in the log are refused, all of them, and those that are are waited for as ever."""
    harness = led(make_harness())
    harness.step(
        1, ProduceMany([Produce(CLIENT, 1, -1, b"no batch", 1000), Produce(CLIENT, 2, -1, batch([b"a"]), 1000)])
    )
    harness.logs[1].poison(StorageError(errno.EIO, "broken"))
    harness.step(1, ProduceMany([Produce(CLIENT, number, -1, batch([b"b"]), 1000) for number in (3, 4, 5)]))
    assert harness.replicas[1].role.name == "offline"
    assert [harness.code(number) for number in (1, 2, 3, 4, 5)] == [ErrorCode.CORRUPT_MESSAGE, AFTER_APPEND] + [
        ErrorCode.KAFKA_STORAGE_ERROR
    ] * 3


def test_a_disk_that_is_full_for_a_moment_refuses_the_first_of_several() -> None:
    """Those behind it are tried for themselves, as they came."""
    disk = SimDisk(Random(1))
    (log,) = Patchable.create(
        disk, [NewLog("n1/t-0", TopicPartition("t", 0), TOPIC_ID, LogConfig(durability="os"))], SimClock()
    )
    harness = led(ReplicaHarness({1: log}))
    harness.append(1)
    disk.fail("write", path="*.log", error=errno.ENOSPC)
    harness.step(1, ProduceMany([Produce(CLIENT, number, -1, batch([b"a"]), 1000) for number in (2, 3, 4)]))
    assert [harness.code(number) for number in (2, 3, 4)] == [ErrorCode.KAFKA_STORAGE_ERROR, 0, 0]
    assert [harness.results[number].base_offset for number in (3, 4)] == [1, 2]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_what_a_disk_refused_and_did_not_let_cut_off_is_not_called_refused(code: int, count: int) -> None:
    """It may be there after a restart, so the outcome is unknown, of all that the write was for; less than a batch
    never is."""
    disk = SimDisk(Random(1))
    (log,) = Patchable.create(
        disk, [NewLog("n1/t-0", TopicPartition("t", 0), TOPIC_ID, LogConfig(durability="os"))], SimClock()
    )
    harness = led(ReplicaHarness({1: log}))
    harness.append(1)
    given = batch([b"a"])
    disk.fail("write", path="*.log", error=code, partial=len(given) - (count == 1 and code == errno.ENOSPC))
    disk.fail("truncate", path="*.log", error=code, times=None)
    numbers = range(2, 2 + count)
    events = [Produce(CLIENT, number, -1, bytearray(given), 1000) for number in numbers]
    harness.step(1, ProduceMany(events) if count > 1 else events[0])
    refused = count == 1 and code == errno.ENOSPC
    assert [harness.code(number) for number in numbers] == [
        ErrorCode.KAFKA_STORAGE_ERROR if refused else AFTER_APPEND
    ] * count
    assert harness.replicas[1].role.name == ("leader" if code == errno.ENOSPC else "offline")
    harness.step(1, Produce(CLIENT, 9, -1, batch([b"b"]), 1000))
    assert harness.code(9) == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("behind", [0, 2])
def test_a_disk_that_fails_behind_the_first_of_several(make_harness: MakeHarness, behind: int) -> None:
    """Who is in the log by then is told that it may be, the others that they are not: nobody is left without an
    answer."""
    harness = led(make_harness())
    log, error = harness.logs[1], StorageError(errno.EIO, "broken")
    append = log.append_many_as_leader

    def append_once(batches: list[tuple[bytes, bool]], leader_epoch: int) -> list[Appended]:
        if log.end_offset:
            log.poison(error)
            raise error
        return list(append(batches[:2], leader_epoch))

    log.append_many_as_leader = append_once
    harness.step(1, ProduceMany([Produce(CLIENT, number, -1, batch([b"a"]), 1000) for number in range(1, 4 + behind)]))
    assert harness.replicas[1].role.name == "offline"
    in_log = log.end_offset
    expected = [AFTER_APPEND] * in_log + [ErrorCode.KAFKA_STORAGE_ERROR] * (3 + behind - in_log)
    assert [harness.code(number) for number in range(1, 4 + behind)] == expected


def test_acks_one_waits_for_the_leaders_sync(make_harness: MakeHarness) -> None:
    """acks=1 of a ``sync`` log is answered in the step of the leader's ``Synced``, not before."""
    harness = led(make_harness(durability="sync"))
    number = harness.append(1, acks=1)
    assert harness.code(number) is None
    harness.sync(1)
    assert harness.code(number) == 0


def test_acks_all_waits_for_every_flushed_end(make_harness: MakeHarness) -> None:
    """acks=all of a ``sync`` log is answered only when leader and followers have it on stable storage."""
    harness = led(make_harness(durability="sync", min_insync_replicas=2))
    number = harness.append(1)
    harness.exchange(2, 3)
    assert harness.ends() == [1, 1, 1]
    assert 2 not in harness.fetches, "a follower that has not synced does not fetch"
    harness.sync(2)
    harness.exchange(2)
    harness.sync(1)
    assert harness.code(number) is None
    harness.sync(3)
    harness.exchange(3)
    assert harness.code(number) == 0


def test_the_leaders_own_flushed_end_counts(make_harness: MakeHarness) -> None:
    """The high watermark of a ``sync`` log waits for the leader's own sync as for anyone's."""
    harness = led(make_harness(durability="sync", min_insync_replicas=2))
    number = harness.append(1)
    harness.exchange(2, 3)
    harness.sync(2)
    harness.sync(3)
    harness.exchange(2, 3)
    assert harness.code(number) is None
    harness.sync(1)
    assert harness.code(number) == 0


def test_one_sync_covers_what_came_meanwhile(make_harness: MakeHarness) -> None:
    """At most one sync is outstanding; the next one covers everything appended during it."""
    harness = led(make_harness(1, durability="sync"))
    first = harness.append(1)
    rest = [harness.append(1) for _ in range(5)]
    assert len(harness.syncs[1]) == 1
    harness.sync(1)
    assert harness.code(first) == 0
    assert all(harness.code(n) is None for n in rest)
    assert harness.syncs[1][0].upto == 6
    harness.sync(1)
    assert all(harness.code(n) == 0 for n in rest)
    assert not harness.syncs[1]


def test_too_few_in_sync_refuses_before_the_append(make_harness: MakeHarness) -> None:
    """NOT_ENOUGH_REPLICAS appends nothing; acks=1 is still accepted, and stays invisible."""
    harness = make_harness(min_insync_replicas=2)
    harness.elect(1, isr=[1])
    assert harness.code(harness.append(1)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert harness.ends()[0] == 0
    assert harness.code(harness.append(1, acks=1)) == 0
    assert harness.logs[1].high_watermark == 0


def test_minimum_is_capped_by_the_assignment(make_harness: MakeHarness) -> None:
    """min.insync.replicas above the number of assigned replicas counts as that number."""
    harness = led(make_harness(1, min_insync_replicas=3))
    assert harness.code(harness.append(1)) == 0


@pytest.mark.parametrize(
    ("acks", "code"), [(2, ErrorCode.INVALID_REQUIRED_ACKS), (-2, ErrorCode.INVALID_REQUIRED_ACKS)]
)
def test_unknown_acks(make_harness: MakeHarness, acks: int, code: int) -> None:
    """acks outside 0, 1, -1 is refused."""
    harness = led(make_harness())
    assert harness.code(harness.append(1, acks=acks)) == code


def test_epochs_of_the_sender_are_checked(make_harness: MakeHarness) -> None:
    """A sender that names an older epoch is fenced, one that names a newer one has to wait; a follower refuses with
    a hint."""
    harness = led(make_harness())
    harness.elect(1)
    assert harness.code(harness.append(1, epoch=0)) == ErrorCode.FENCED_LEADER_EPOCH
    assert harness.code(harness.append(1, epoch=2)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert harness.code(harness.append(1, epoch=1, acks=1)) == 0
    number = harness.append(2)
    assert harness.code(number) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert harness.results[number].current_leader.leader_id == 1


def test_bad_batches_are_refused(make_harness: MakeHarness) -> None:
    """Garbage and too large batches answer their codes and append nothing."""
    harness = led(make_harness(max_message_bytes=200))
    for records, code in ((b"garbage", ErrorCode.CORRUPT_MESSAGE), (batch([b"x" * 500]), ErrorCode.MESSAGE_TOO_LARGE)):
        harness.numbers += 1
        harness.step(1, Produce(CLIENT, harness.numbers, -1, records, 1000))
        assert harness.code(harness.numbers) == code
    assert harness.ends()[0] == 0


def test_timeout_says_nothing_about_the_outcome(make_harness: MakeHarness) -> None:
    """An append that is not acknowledged in time gets REQUEST_TIMED_OUT, and may be committed later."""
    harness = led(make_harness(min_insync_replicas=2))
    number = harness.append(1, timeout_ms=100)
    later = harness.append(1, timeout_ms=200)
    harness.pass_time(100, 1)
    assert harness.code(number) == ErrorCode.REQUEST_TIMED_OUT
    assert harness.code(later) is None
    harness.pass_time(100, 1)
    assert harness.code(later) == ErrorCode.REQUEST_TIMED_OUT
    harness.settle()
    assert harness.logs[1].high_watermark == 2


def test_shrinking_below_the_minimum_does_not_fail_who_waits(make_harness: MakeHarness) -> None:
    """F22: the set falls below the minimum while an append waits: no success, no early error; when the other is
    back in time, success."""
    harness = led(make_harness(2, min_insync_replicas=2))
    number = harness.append(1, timeout_ms=1000)
    harness.set_isr(1, tell=[1])
    harness.pass_time(10, 1)
    assert harness.code(number) is None
    assert harness.logs[1].high_watermark == 0
    harness.exchange(2)
    harness.present(2)
    assert harness.code(number) is None, "caught up, but not yet in the set"
    harness.decide(1)
    assert harness.isr == [1, 2]
    assert harness.code(number) == 0


def test_shrinking_below_the_minimum_times_out(make_harness: MakeHarness) -> None:
    """F22: when nobody comes back the append times out."""
    harness = led(make_harness(2, min_insync_replicas=2))
    number = harness.append(1, timeout_ms=1000)
    harness.set_isr(1, tell=[1])
    harness.pass_time(1000, 1)
    assert harness.code(number) == ErrorCode.REQUEST_TIMED_OUT


def test_high_watermark_passed_but_too_few_at_the_check(make_harness: MakeHarness) -> None:
    """F23: the mark passed the record, yet the maximal set is too small when the waiter is looked at: AFTER_APPEND,
    and the record stays."""
    harness = led(make_harness(2, min_insync_replicas=2))
    number = harness.append(1)
    role: Any = harness.replicas[1].role
    harness.logs[1].advance_high_watermark(1)  # the race, put there by hand: inside one step it cannot happen
    role.in_sync_set.maximal = (1,)
    harness.replicas[1].out = []
    role.acknowledge_appends()
    assert [e.result.error_code for e in harness.replicas[1].out if hasattr(e, "result")] == [AFTER_APPEND]
    assert harness.logs[1].end_offset == 1
    assert number not in harness.results


def test_waiters_fail_when_the_leader_steps_down(make_harness: MakeHarness) -> None:
    """W1, F24: an append that waits is failed as unknown at the step-down, and never acknowledged by what comes to
    its offset later."""
    harness = led(make_harness(min_insync_replicas=2))
    first = harness.append(1, 3)
    harness.elect(2)
    assert harness.code(first) == AFTER_APPEND
    assert harness.results[first].current_leader.leader_id == 2
    harness.settle()
    second = harness.append(2, 5)
    harness.settle()
    assert harness.code(second) == 0
    assert harness.ends() == [5, 5, 5]
    assert harness.results[first].error_code == AFTER_APPEND


def test_waiters_fail_on_a_new_epoch_of_the_same_leader(make_harness: MakeHarness) -> None:
    """W1, R0b: a new leader epoch fails who waits even when the leader stays: it may have been somebody else's in
    between."""
    harness = led(make_harness(min_insync_replicas=2))
    number = harness.append(1)
    harness.elect(1)
    assert harness.code(number) == AFTER_APPEND


def test_no_leader_fails_waiters(make_harness: MakeHarness) -> None:
    """Leader -1 ends the reign: waiters are answered, new appends refused."""
    harness = led(make_harness(min_insync_replicas=2))
    number = harness.append(1)
    harness.elect(-1, tell=[1, 2, 3])
    assert harness.code(number) == AFTER_APPEND
    assert harness.code(harness.append(1)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert harness.replicas[1].role.name == "none"
    assert not harness.fetches


def test_the_mark_is_written_before_the_answer(make_harness: MakeHarness) -> None:
    """The log's mark holds the new high watermark when the acknowledgement is emitted."""
    harness = led(make_harness(2, min_insync_replicas=2))
    number = harness.append(1)
    seen: list[tuple[int, bool]] = []
    log = harness.logs[1]
    write = log.write_mark

    def spy() -> None:
        seen.append((log.high_watermark, any(getattr(e, "source", "") == CLIENT for e in harness.replicas[1].out)))
        write()

    log.write_mark = spy
    harness.exchange(2)
    harness.present(2)
    assert harness.code(number) == 0
    assert seen == [(1, False)]


def test_the_mark_of_a_synced_log_is_written_before_anybody_is_told(make_harness: MakeHarness) -> None:
    """A follower's before its fetch leaves, a leader's before it answers, acks=1 too; one write says sync and high
    watermark."""
    harness = led(make_harness(2, durability="sync", min_insync_replicas=2))
    marks: list[tuple[int, int, int, bool]] = []

    def spy(broker: int) -> None:
        log, write = harness.logs[broker], harness.logs[broker].write_mark

        def note() -> None:
            tells = any(isinstance(effect, Fetch | Reply) for effect in harness.replicas[broker].out)
            marks.append((broker, log.flushed_offset, log.high_watermark, tells))
            write()

        log.write_mark = note

    spy(1)
    spy(2)
    number = harness.append(1)
    harness.exchange(2)
    assert marks == []
    harness.sync(2)
    assert marks == [(2, 1, 0, False)]
    harness.sync(1)
    assert len(marks) == 1
    harness.exchange(2)
    assert marks[1:] == [(1, 1, 1, False)]
    assert harness.code(number) == 0
    number = harness.append(1, acks=1)
    harness.sync(1)
    assert marks[2:] == [(1, 2, 1, False)]
    assert harness.code(number) == 0


def test_full_disk_refuses_and_recovers(make_harness: MakeHarness) -> None:
    """A full disk answers KAFKA_STORAGE_ERROR and keeps the role: it works again when there is room."""
    harness = led(make_harness(min_insync_replicas=2))
    log = harness.logs[1]
    append = log.append_as_leader

    def full(*_: object, **__: object) -> None:
        raise StorageError(errno.ENOSPC, "No space left on device", "x")

    log.append_as_leader = full
    assert harness.code(harness.append(1)) == ErrorCode.KAFKA_STORAGE_ERROR
    log.append_as_leader = append
    number = harness.append(1)
    harness.settle()
    assert harness.code(number) == 0


def test_write_error_takes_the_replica_offline(make_harness: MakeHarness) -> None:
    """An I/O error on append takes the replica offline: it answers KAFKA_STORAGE_ERROR for good, who waited learns
    that the outcome is unknown."""
    harness = led(make_harness(min_insync_replicas=2))
    waiting = harness.append(1)

    def broken(*_: object, **__: object) -> None:
        raise StorageError(errno.EIO, "Input/output error", "x")

    harness.logs[1].append_as_leader = broken
    assert harness.code(harness.append(1)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.code(waiting) == AFTER_APPEND
    assert harness.offline == [1]
    harness.elect(1)
    assert harness.replicas[1].role.name == "offline"
    assert harness.code(harness.append(1)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_failed_sync_poisons(make_harness: MakeHarness) -> None:
    """A failed sync is data loss: nothing that waited is acknowledged, the log is poisoned, the replica is offline
    and never syncs again."""
    harness = led(make_harness(durability="sync", min_insync_replicas=2))
    number, one = harness.append(1), harness.append(1, acks=1)
    harness.step(1, SyncFailed(OSError(errno.EIO, "Input/output error")))
    assert (harness.code(number), harness.code(one)) == (AFTER_APPEND, AFTER_APPEND)
    assert harness.offline == [1]
    harness.syncs[1].clear()
    harness.step(1, Synced(2, 0))
    harness.step(1, Tick())
    assert harness.logs[1].flushed_offset == 0
    assert not harness.syncs[1]


def test_flush_messages_of_an_os_log(make_harness: MakeHarness) -> None:
    """An ``os`` log is synced after ``flush.messages`` records, without anybody waiting for it."""
    harness = led(make_harness(1, flush_messages=3))
    harness.append(1, 2)
    assert not harness.syncs[1]
    harness.append(1, 2)
    assert harness.syncs[1][0].upto == 4
    harness.sync(1)
    assert harness.logs[1].flushed_offset == 4


def test_flush_ms_of_an_os_log(make_harness: MakeHarness) -> None:
    """An ``os`` log is synced when something has been unsynced for ``flush.ms``."""
    harness = led(make_harness(1, flush_ms=50))
    harness.append(1)
    harness.pass_time(40, 1)
    harness.append(1)
    assert not harness.syncs[1]
    harness.pass_time(10, 1)
    assert harness.syncs[1][0].upto == 2
    harness.sync(1)
    harness.pass_time(200, 1)
    assert not harness.syncs[1]


@pytest.mark.parametrize(("flush_ms", "synced"), [(0, [1]), (50, [])])
def test_an_os_log_that_is_not_to_wait(make_harness: MakeHarness, flush_ms: int, synced: list[int]) -> None:
    """``flush.ms`` of 0 is at once, not never."""
    harness = led(make_harness(1, flush_ms=flush_ms))
    harness.append(1)
    assert [sync.upto for sync in harness.syncs[1]] == synced


@pytest.mark.parametrize("log_kind", ["disk"])
def test_a_full_segment_of_an_os_log_is_synced(make_harness: MakeHarness) -> None:
    """On leader and follower, whatever ``flush.*`` say: an unclean opening has to look through no more than came
    since."""
    harness = led(make_harness(2, segment_bytes=1024))
    for broker in (1, 2):
        log = harness.logs[broker]
        while log.stats().segment_count == 1:
            assert not harness.syncs[broker]
            harness.append(1)
            harness.exchange(2)
        harness.sync(broker)
        assert log.flushed_offset > 0
        harness.step(broker, Tick())
        assert not harness.syncs[broker]


def fill_two_segments(harness: ReplicaHarness) -> None:
    """The sync of the first is asked for, and not over when the second becomes full."""
    for count in (2, 3):
        while harness.logs[1].stats().segment_count < count:
            harness.append(1)
        assert len(harness.syncs[1]) == 1


@pytest.mark.parametrize("log_kind", ["disk"])
def test_after_a_stop_a_full_segment_is_synced_by_nobody(make_harness: MakeHarness) -> None:
    """One became full while another was being synced, and then the replica was stopped: the log is no longer its
    own."""
    harness = led(make_harness(1, segment_bytes=1024))
    log = harness.logs[1]
    fill_two_segments(harness)
    harness.step(1, Stop())
    harness.sync(1)
    assert log.has_unsynced_segment
    assert not harness.syncs[1]


@pytest.mark.parametrize("log_kind", ["disk"])
def test_a_segment_that_became_full_during_a_sync_is_synced_next(make_harness: MakeHarness) -> None:
    """Of what was planned before it nothing is known of it; nor where the sync could not be begun."""
    harness = led(make_harness(1, segment_bytes=1024))
    log = harness.logs[1]
    fill_two_segments(harness)
    harness.sync(1)
    (again,) = harness.syncs[1]
    harness.syncs[1].clear()
    harness.step(1, Synced(0, -1))
    assert [sync.upto for sync in harness.syncs[1]] == [again.upto]
    harness.sync(1)
    assert not harness.syncs[1]
    assert not log.has_unsynced_segment


def test_pipelined_appends_are_answered_in_order(make_harness: MakeHarness) -> None:
    """Many appends in flight are acknowledged in order of their offsets, each with its own base offset."""
    harness = led(make_harness(min_insync_replicas=2))
    numbers = [harness.append(1, count) for count in (1, 3, 2, 5)]
    harness.settle()
    assert [harness.results[n].base_offset for n in numbers] == [0, 1, 4, 6]
    assert list(harness.results) == numbers


def test_a_second_fetch_is_not_needed_for_one_replica(make_harness: MakeHarness) -> None:
    """With one replica an ``os`` append is committed and answered in its own step."""
    harness = led(make_harness(1))
    number = harness.append(1)
    assert harness.code(number) == 0
    assert harness.logs[1].high_watermark == 1
    assert harness.now % MS == 0
