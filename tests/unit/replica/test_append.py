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
from tests.unit.replica.batches import batch
from tests.unit.replica.conftest import TOPIC_ID, MakeStage, Patchable
from tests.unit.replica.replica_stage import CLIENT, MS, ReplicaStage, led

AFTER_APPEND = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_acks_zero_gets_no_answer(make_stage: MakeStage) -> None:
    """acks=0 appends and never answers, not even when it is refused."""
    stage = led(make_stage())
    stage.append(1, acks=0)
    assert stage.ends()[0] == 1
    stage.append(2, acks=0)
    stage.settle()
    assert stage.results == {}


def test_acks_one_is_answered_by_the_leader_alone(make_stage: MakeStage) -> None:
    """acks=1 of an ``os`` log is answered in the step of the append."""
    stage = led(make_stage())
    number = stage.append(1, 3, acks=1)
    assert (stage.code(number), stage.results[number].base_offset) == (0, 0)
    assert stage.logs[1].high_watermark == 0


def test_several_at_once_are_told_once(make_stage: MakeStage) -> None:
    """Batches of one turn are appended in their order; a refused one hinders no other; followers get them all in
    one answer, and each is answered as its own ``acks`` say."""
    stage = led(make_stage())
    given = [
        Produce(CLIENT, 1, -1, batch([b"a", b"b"]), 1000),
        Produce(CLIENT, 2, 1, batch([b"c"]), 1000),
        Produce(CLIENT, 3, -1, b"no batch", 1000),
        Produce(CLIENT, 4, -1, batch([b"d"]), 1000, 77),
        Produce(CLIENT, 5, 2, batch([b"d"]), 1000),
        Produce(CLIENT, 6, 0, batch([b"e"]), 1000),
        Produce(CLIENT, 7, -1, batch([b"f"]), 1000),
    ]
    stage.step(1, ProduceMany(given))
    assert stage.ends()[0] == 5
    assert [(number, stage.code(number)) for number in sorted(stage.results)] == [
        (2, 0),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (5, ErrorCode.INVALID_REQUIRED_ACKS),
    ]
    stage.exchange(2)
    stage.exchange(3)
    assert stage.ends() == [5, 5, 5]
    stage.settle()
    assert [stage.results[number].base_offset for number in (1, 2, 7)] == [0, 2, 4]
    assert 6 not in stage.results


def test_a_disk_that_fails_in_the_middle_of_several(make_stage: MakeStage) -> None:
    """Those that are not in the log are refused, all of them, and those that are are waited for as ever."""
    stage = led(make_stage())
    stage.step(1, ProduceMany([Produce(CLIENT, 1, -1, b"no batch", 1000), Produce(CLIENT, 2, -1, batch([b"a"]), 1000)]))
    stage.logs[1].poison(StorageError(errno.EIO, "broken"))
    stage.step(1, ProduceMany([Produce(CLIENT, number, -1, batch([b"b"]), 1000) for number in (3, 4, 5)]))
    assert stage.replicas[1].role.name == "offline"
    assert [stage.code(number) for number in (1, 2, 3, 4, 5)] == [ErrorCode.CORRUPT_MESSAGE, AFTER_APPEND] + [
        ErrorCode.KAFKA_STORAGE_ERROR
    ] * 3


def test_a_disk_that_is_full_for_a_moment_refuses_the_first_of_several() -> None:
    """Those behind it are tried for themselves, as they came."""
    disk = SimDisk(Random(1))
    (log,) = Patchable.create(
        disk, [NewLog("n1/t-0", TopicPartition("t", 0), TOPIC_ID, LogConfig(durability="os"))], SimClock()
    )
    stage = led(ReplicaStage({1: log}))
    stage.append(1)
    disk.fail("write", path="*.log", error=errno.ENOSPC)
    stage.step(1, ProduceMany([Produce(CLIENT, number, -1, batch([b"a"]), 1000) for number in (2, 3, 4)]))
    assert [stage.code(number) for number in (2, 3, 4)] == [ErrorCode.KAFKA_STORAGE_ERROR, 0, 0]
    assert [stage.results[number].base_offset for number in (3, 4)] == [1, 2]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_what_a_disk_refused_and_did_not_let_cut_off_is_not_called_refused(code: int, count: int) -> None:
    """It may be there after a restart, so the outcome is unknown, of all that the write was for; less than a batch
    never is."""
    disk = SimDisk(Random(1))
    (log,) = Patchable.create(
        disk, [NewLog("n1/t-0", TopicPartition("t", 0), TOPIC_ID, LogConfig(durability="os"))], SimClock()
    )
    stage = led(ReplicaStage({1: log}))
    stage.append(1)
    given = batch([b"a"])
    disk.fail("write", path="*.log", error=code, partial=len(given) - (count == 1 and code == errno.ENOSPC))
    disk.fail("truncate", path="*.log", error=code, times=None)
    numbers = range(2, 2 + count)
    events = [Produce(CLIENT, number, -1, bytearray(given), 1000) for number in numbers]
    stage.step(1, ProduceMany(events) if count > 1 else events[0])
    refused = count == 1 and code == errno.ENOSPC
    assert [stage.code(number) for number in numbers] == [
        ErrorCode.KAFKA_STORAGE_ERROR if refused else AFTER_APPEND
    ] * count
    assert stage.replicas[1].role.name == ("leader" if code == errno.ENOSPC else "offline")
    stage.step(1, Produce(CLIENT, 9, -1, batch([b"b"]), 1000))
    assert stage.code(9) == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("behind", [0, 2])
def test_a_disk_that_fails_behind_the_first_of_several(make_stage: MakeStage, behind: int) -> None:
    """Who is in the log by then is told that it may be, the others that they are not: nobody is left without an
    answer."""
    stage = led(make_stage())
    log, error = stage.logs[1], StorageError(errno.EIO, "broken")
    append = log.append_many_as_leader

    def append_once(batches: list[tuple[bytes, bool]], leader_epoch: int) -> list[Appended]:
        if log.end_offset:
            log.poison(error)
            raise error
        return list(append(batches[:2], leader_epoch))

    log.append_many_as_leader = append_once
    stage.step(1, ProduceMany([Produce(CLIENT, number, -1, batch([b"a"]), 1000) for number in range(1, 4 + behind)]))
    assert stage.replicas[1].role.name == "offline"
    in_log = log.end_offset
    expected = [AFTER_APPEND] * in_log + [ErrorCode.KAFKA_STORAGE_ERROR] * (3 + behind - in_log)
    assert [stage.code(number) for number in range(1, 4 + behind)] == expected


def test_acks_one_waits_for_the_leaders_sync(make_stage: MakeStage) -> None:
    """acks=1 of a ``sync`` log is answered in the step of the leader's ``Synced``, not before."""
    stage = led(make_stage(durability="sync"))
    number = stage.append(1, acks=1)
    assert stage.code(number) is None
    stage.sync(1)
    assert stage.code(number) == 0


def test_acks_all_waits_for_every_flushed_end(make_stage: MakeStage) -> None:
    """acks=all of a ``sync`` log is answered only when leader and followers have it on stable storage."""
    stage = led(make_stage(durability="sync", min_insync_replicas=2))
    number = stage.append(1)
    stage.exchange(2, 3)
    assert stage.ends() == [1, 1, 1]
    assert 2 not in stage.fetches, "a follower that has not synced does not fetch"
    stage.sync(2)
    stage.exchange(2)
    stage.sync(1)
    assert stage.code(number) is None
    stage.sync(3)
    stage.exchange(3)
    assert stage.code(number) == 0


def test_the_leaders_own_flushed_end_counts(make_stage: MakeStage) -> None:
    """The high watermark of a ``sync`` log waits for the leader's own sync as for anyone's."""
    stage = led(make_stage(durability="sync", min_insync_replicas=2))
    number = stage.append(1)
    stage.exchange(2, 3)
    stage.sync(2)
    stage.sync(3)
    stage.exchange(2, 3)
    assert stage.code(number) is None
    stage.sync(1)
    assert stage.code(number) == 0


def test_one_sync_covers_what_came_meanwhile(make_stage: MakeStage) -> None:
    """At most one sync is outstanding; the next one covers everything appended during it."""
    stage = led(make_stage(1, durability="sync"))
    first = stage.append(1)
    rest = [stage.append(1) for _ in range(5)]
    assert len(stage.syncs[1]) == 1
    stage.sync(1)
    assert stage.code(first) == 0
    assert all(stage.code(n) is None for n in rest)
    assert stage.syncs[1][0].upto == 6
    stage.sync(1)
    assert all(stage.code(n) == 0 for n in rest)
    assert not stage.syncs[1]


def test_too_few_in_sync_refuses_before_the_append(make_stage: MakeStage) -> None:
    """NOT_ENOUGH_REPLICAS appends nothing; acks=1 is still accepted, and stays invisible."""
    stage = make_stage(min_insync_replicas=2)
    stage.elect(1, isr=[1])
    assert stage.code(stage.append(1)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert stage.ends()[0] == 0
    assert stage.code(stage.append(1, acks=1)) == 0
    assert stage.logs[1].high_watermark == 0


def test_minimum_is_capped_by_the_assignment(make_stage: MakeStage) -> None:
    """min.insync.replicas above the number of assigned replicas counts as that number."""
    stage = led(make_stage(1, min_insync_replicas=3))
    assert stage.code(stage.append(1)) == 0


@pytest.mark.parametrize(
    ("acks", "code"), [(2, ErrorCode.INVALID_REQUIRED_ACKS), (-2, ErrorCode.INVALID_REQUIRED_ACKS)]
)
def test_unknown_acks(make_stage: MakeStage, acks: int, code: int) -> None:
    """acks outside 0, 1, -1 is refused."""
    stage = led(make_stage())
    assert stage.code(stage.append(1, acks=acks)) == code


def test_epochs_of_the_sender_are_checked(make_stage: MakeStage) -> None:
    """A sender that names an older epoch is fenced, one that names a newer one has to wait; a follower refuses with
    a hint."""
    stage = led(make_stage())
    stage.elect(1)
    assert stage.code(stage.append(1, epoch=0)) == ErrorCode.FENCED_LEADER_EPOCH
    assert stage.code(stage.append(1, epoch=2)) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert stage.code(stage.append(1, epoch=1, acks=1)) == 0
    number = stage.append(2)
    assert stage.code(number) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stage.results[number].current_leader.leader_id == 1


def test_bad_batches_are_refused(make_stage: MakeStage) -> None:
    """Garbage and too large batches answer their codes and append nothing."""
    stage = led(make_stage(max_message_bytes=200))
    for records, code in ((b"garbage", ErrorCode.CORRUPT_MESSAGE), (batch([b"x" * 500]), ErrorCode.MESSAGE_TOO_LARGE)):
        stage.numbers += 1
        stage.step(1, Produce(CLIENT, stage.numbers, -1, records, 1000))
        assert stage.code(stage.numbers) == code
    assert stage.ends()[0] == 0


def test_timeout_says_nothing_about_the_outcome(make_stage: MakeStage) -> None:
    """An append that is not acknowledged in time gets REQUEST_TIMED_OUT, and may be committed later."""
    stage = led(make_stage(min_insync_replicas=2))
    number = stage.append(1, timeout_ms=100)
    later = stage.append(1, timeout_ms=200)
    stage.pass_time(100, 1)
    assert stage.code(number) == ErrorCode.REQUEST_TIMED_OUT
    assert stage.code(later) is None
    stage.pass_time(100, 1)
    assert stage.code(later) == ErrorCode.REQUEST_TIMED_OUT
    stage.settle()
    assert stage.logs[1].high_watermark == 2


def test_shrinking_below_the_minimum_does_not_fail_who_waits(make_stage: MakeStage) -> None:
    """F22: the set falls below the minimum while an append waits: no success, no early error; when the other is
    back in time, success."""
    stage = led(make_stage(2, min_insync_replicas=2))
    number = stage.append(1, timeout_ms=1000)
    stage.set_isr(1, tell=[1])
    stage.pass_time(10, 1)
    assert stage.code(number) is None
    assert stage.logs[1].high_watermark == 0
    stage.exchange(2)
    stage.present(2)
    assert stage.code(number) is None, "caught up, but not yet in the set"
    stage.decide(1)
    assert stage.isr == [1, 2]
    assert stage.code(number) == 0


def test_shrinking_below_the_minimum_times_out(make_stage: MakeStage) -> None:
    """F22: when nobody comes back the append times out."""
    stage = led(make_stage(2, min_insync_replicas=2))
    number = stage.append(1, timeout_ms=1000)
    stage.set_isr(1, tell=[1])
    stage.pass_time(1000, 1)
    assert stage.code(number) == ErrorCode.REQUEST_TIMED_OUT


def test_high_watermark_passed_but_too_few_at_the_check(make_stage: MakeStage) -> None:
    """F23: the mark passed the record, yet the maximal set is too small when the waiter is looked at: AFTER_APPEND,
    and the record stays."""
    stage = led(make_stage(2, min_insync_replicas=2))
    number = stage.append(1)
    role: Any = stage.replicas[1].role
    stage.logs[1].advance_high_watermark(1)  # the race, put there by hand: inside one step it cannot happen
    role.in_sync_set.maximal = (1,)
    stage.replicas[1].out = []
    role.acknowledge_appends()
    assert [e.result.error_code for e in stage.replicas[1].out if hasattr(e, "result")] == [AFTER_APPEND]
    assert stage.logs[1].end_offset == 1
    assert number not in stage.results


def test_waiters_fail_when_the_leader_steps_down(make_stage: MakeStage) -> None:
    """W1, F24: an append that waits is failed as unknown at the step-down, and never acknowledged by what comes to
    its offset later."""
    stage = led(make_stage(min_insync_replicas=2))
    first = stage.append(1, 3)
    stage.elect(2)
    assert stage.code(first) == AFTER_APPEND
    assert stage.results[first].current_leader.leader_id == 2
    stage.settle()
    second = stage.append(2, 5)
    stage.settle()
    assert stage.code(second) == 0
    assert stage.ends() == [5, 5, 5]
    assert stage.results[first].error_code == AFTER_APPEND


def test_waiters_fail_on_a_new_epoch_of_the_same_leader(make_stage: MakeStage) -> None:
    """W1, R0b: a new leader epoch fails who waits even when the leader stays: it may have been somebody else's in
    between."""
    stage = led(make_stage(min_insync_replicas=2))
    number = stage.append(1)
    stage.elect(1)
    assert stage.code(number) == AFTER_APPEND


def test_no_leader_fails_waiters(make_stage: MakeStage) -> None:
    """Leader -1 ends the reign: waiters are answered, new appends refused."""
    stage = led(make_stage(min_insync_replicas=2))
    number = stage.append(1)
    stage.elect(-1, tell=[1, 2, 3])
    assert stage.code(number) == AFTER_APPEND
    assert stage.code(stage.append(1)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stage.replicas[1].role.name == "none"
    assert not stage.fetches


def test_the_mark_is_written_before_the_answer(make_stage: MakeStage) -> None:
    """The log's mark holds the new high watermark when the acknowledgement is emitted."""
    stage = led(make_stage(2, min_insync_replicas=2))
    number = stage.append(1)
    seen: list[tuple[int, bool]] = []
    log = stage.logs[1]
    write = log.write_mark

    def spy() -> None:
        seen.append((log.high_watermark, any(getattr(e, "source", "") == CLIENT for e in stage.replicas[1].out)))
        write()

    log.write_mark = spy
    stage.exchange(2)
    stage.present(2)
    assert stage.code(number) == 0
    assert seen == [(1, False)]


def test_the_mark_of_a_synced_log_is_written_before_anybody_is_told(make_stage: MakeStage) -> None:
    """A follower's before its fetch leaves, a leader's before it answers, acks=1 too; one write says sync and high
    watermark."""
    stage = led(make_stage(2, durability="sync", min_insync_replicas=2))
    marks: list[tuple[int, int, int, bool]] = []

    def spy(broker: int) -> None:
        log, write = stage.logs[broker], stage.logs[broker].write_mark

        def note() -> None:
            tells = any(isinstance(effect, Fetch | Reply) for effect in stage.replicas[broker].out)
            marks.append((broker, log.flushed_offset, log.high_watermark, tells))
            write()

        log.write_mark = note

    spy(1)
    spy(2)
    number = stage.append(1)
    stage.exchange(2)
    assert marks == []
    stage.sync(2)
    assert marks == [(2, 1, 0, False)]
    stage.sync(1)
    assert len(marks) == 1
    stage.exchange(2)
    assert marks[1:] == [(1, 1, 1, False)]
    assert stage.code(number) == 0
    number = stage.append(1, acks=1)
    stage.sync(1)
    assert marks[2:] == [(1, 2, 1, False)]
    assert stage.code(number) == 0


def test_full_disk_refuses_and_recovers(make_stage: MakeStage) -> None:
    """A full disk answers KAFKA_STORAGE_ERROR and keeps the role: it works again when there is room."""
    stage = led(make_stage(min_insync_replicas=2))
    log = stage.logs[1]
    append = log.append_as_leader

    def full(*_: object, **__: object) -> None:
        raise StorageError(errno.ENOSPC, "No space left on device", "x")

    log.append_as_leader = full
    assert stage.code(stage.append(1)) == ErrorCode.KAFKA_STORAGE_ERROR
    log.append_as_leader = append
    number = stage.append(1)
    stage.settle()
    assert stage.code(number) == 0


def test_write_error_takes_the_replica_offline(make_stage: MakeStage) -> None:
    """An I/O error on append takes the replica offline: it answers KAFKA_STORAGE_ERROR for good, who waited learns
    that the outcome is unknown."""
    stage = led(make_stage(min_insync_replicas=2))
    waiting = stage.append(1)

    def broken(*_: object, **__: object) -> None:
        raise StorageError(errno.EIO, "Input/output error", "x")

    stage.logs[1].append_as_leader = broken
    assert stage.code(stage.append(1)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert stage.code(waiting) == AFTER_APPEND
    assert stage.noted.offline == [1]
    stage.elect(1)
    assert stage.replicas[1].role.name == "offline"
    assert stage.code(stage.append(1)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_failed_sync_poisons(make_stage: MakeStage) -> None:
    """A failed sync is data loss: nothing that waited is acknowledged, the log is poisoned, the replica is offline
    and never syncs again."""
    stage = led(make_stage(durability="sync", min_insync_replicas=2))
    number, one = stage.append(1), stage.append(1, acks=1)
    stage.step(1, SyncFailed(OSError(errno.EIO, "Input/output error")))
    assert (stage.code(number), stage.code(one)) == (AFTER_APPEND, AFTER_APPEND)
    assert stage.noted.offline == [1]
    stage.syncs[1].clear()
    stage.step(1, Synced(2, 0))
    stage.step(1, Tick())
    assert stage.logs[1].flushed_offset == 0
    assert not stage.syncs[1]


def test_flush_messages_of_an_os_log(make_stage: MakeStage) -> None:
    """An ``os`` log is synced after ``flush.messages`` records, without anybody waiting for it."""
    stage = led(make_stage(1, flush_messages=3))
    stage.append(1, 2)
    assert not stage.syncs[1]
    stage.append(1, 2)
    assert stage.syncs[1][0].upto == 4
    stage.sync(1)
    assert stage.logs[1].flushed_offset == 4


def test_flush_ms_of_an_os_log(make_stage: MakeStage) -> None:
    """An ``os`` log is synced when something has been unsynced for ``flush.ms``."""
    stage = led(make_stage(1, flush_ms=50))
    stage.append(1)
    stage.pass_time(40, 1)
    stage.append(1)
    assert not stage.syncs[1]
    stage.pass_time(10, 1)
    assert stage.syncs[1][0].upto == 2
    stage.sync(1)
    stage.pass_time(200, 1)
    assert not stage.syncs[1]


@pytest.mark.parametrize(("flush_ms", "synced"), [(0, [1]), (50, [])])
def test_an_os_log_that_is_not_to_wait(make_stage: MakeStage, flush_ms: int, synced: list[int]) -> None:
    """``flush.ms`` of 0 is at once, not never."""
    stage = led(make_stage(1, flush_ms=flush_ms))
    stage.append(1)
    assert [sync.upto for sync in stage.syncs[1]] == synced


@pytest.mark.parametrize("log_kind", ["disk"])
def test_a_full_segment_of_an_os_log_is_synced(make_stage: MakeStage) -> None:
    """On leader and follower, whatever ``flush.*`` say: an unclean opening has to look through no more than came
    since."""
    stage = led(make_stage(2, segment_bytes=1024))
    for broker in (1, 2):
        log = stage.logs[broker]
        while log.stats().segment_count == 1:
            assert not stage.syncs[broker]
            stage.append(1)
            stage.exchange(2)
        stage.sync(broker)
        assert log.flushed_offset > 0
        stage.step(broker, Tick())
        assert not stage.syncs[broker]


def fill_two_segments(stage: ReplicaStage) -> None:
    """The sync of the first is asked for, and not over when the second becomes full."""
    for count in (2, 3):
        while stage.logs[1].stats().segment_count < count:
            stage.append(1)
        assert len(stage.syncs[1]) == 1


@pytest.mark.parametrize("log_kind", ["disk"])
def test_after_a_stop_a_full_segment_is_synced_by_nobody(make_stage: MakeStage) -> None:
    """One became full while another was being synced, and then the replica was stopped: the log is no longer its
    own."""
    stage = led(make_stage(1, segment_bytes=1024))
    log = stage.logs[1]
    fill_two_segments(stage)
    stage.step(1, Stop())
    stage.sync(1)
    assert log.has_unsynced_segment
    assert not stage.syncs[1]


@pytest.mark.parametrize("log_kind", ["disk"])
def test_a_segment_that_became_full_during_a_sync_is_synced_next(make_stage: MakeStage) -> None:
    """Of what was planned before it nothing is known of it; nor where the sync could not be begun."""
    stage = led(make_stage(1, segment_bytes=1024))
    log = stage.logs[1]
    fill_two_segments(stage)
    stage.sync(1)
    (again,) = stage.syncs[1]
    stage.syncs[1].clear()
    stage.step(1, Synced(0, -1))
    assert [sync.upto for sync in stage.syncs[1]] == [again.upto]
    stage.sync(1)
    assert not stage.syncs[1]
    assert not log.has_unsynced_segment


def test_pipelined_appends_are_answered_in_order(make_stage: MakeStage) -> None:
    """Many appends in flight are acknowledged in order of their offsets, each with its own base offset."""
    stage = led(make_stage(min_insync_replicas=2))
    numbers = [stage.append(1, count) for count in (1, 3, 2, 5)]
    stage.settle()
    assert [stage.results[n].base_offset for n in numbers] == [0, 1, 4, 6]
    assert list(stage.results) == numbers


def test_a_second_fetch_is_not_needed_for_one_replica(make_stage: MakeStage) -> None:
    """With one replica an ``os`` append is committed and answered in its own step."""
    stage = led(make_stage(1))
    number = stage.append(1)
    assert stage.code(number) == 0
    assert stage.logs[1].high_watermark == 1
    assert stage.now_ns % MS == 0
