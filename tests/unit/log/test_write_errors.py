"""What an append, a deletion, a sync or a close leaves behind when the disk refuses a write."""

from __future__ import annotations

import contextlib
import errno
from random import Random

import pytest

from pyreplog.config import Durability, LogConfig
from pyreplog.errors import (
    ClosedError,
    OutcomeUnknownError,
    StorageError,
)
from pyreplog.log import Log
from pyreplog.testing.disk import SimDisk
from tests.unit.log.support import (
    SMALL,
    batch,
    contents,
    create,
    raw,
    reopen,
    sync,
)


def test_a_gap_that_cannot_be_noted_is_not_appended() -> None:
    """Without the note in the mark the next opening would take it for damage."""
    disk = SimDisk(Random(1))
    log = create(disk, "t-0")
    log.append_as_follower([batch(1, base_offset=0, leader_epoch=0)])
    disk.fail("write", "*replog.mark", error=errno.ENOSPC)
    with pytest.raises(StorageError):
        log.append_as_follower([batch(1, base_offset=5, leader_epoch=0)])
    assert log.end_offset == 1
    assert log.append_as_follower([batch(1, base_offset=5, leader_epoch=0)]) == 6
    log.close(clean=False)
    log = reopen(disk, "t-0")
    assert [record.offset for record in contents(log)] == [0, 5]
    log.close(clean=True)


def test_a_full_disk_refuses_and_goes_on() -> None:
    """Wherever the disk is full, the append raises ENOSPC, leaves nothing behind, and works again when there is
    room."""
    for capacity in range(1200, 9000, 270):
        disk = SimDisk(Random(1), capacity=capacity)
        disk.make_directory("data")
        try:
            log = create(disk, "data/t-0", SMALL)
        except StorageError as error:
            assert error.errno == errno.ENOSPC
            continue
        appended = 0
        refused = 0
        for number in range(40):
            try:
                ones = [
                    (batch(2, size=50 + number % 30 + one, tag=b"%d" % number), True) for one in range(1 + number % 3)
                ]
                appended += len(log.append_many_as_leader(ones, 0))
            except StorageError as error:
                assert error.errno == errno.ENOSPC
                refused += 1
                if refused == 3:
                    disk.capacity = None
        assert log.failure is None
        assert log.end_offset == 2 * appended
        assert len(contents(log)) == 2 * appended
        before = raw(log)
        log.close(clean=False)
        log = reopen(disk, "data/t-0")
        assert raw(log) == before
        assert log.recovery.torn_size == 0
        log.close(clean=True)


def test_a_write_error_poisons() -> None:
    """After an I/O error nothing is appended any more, and what was written before is read as far as it was
    durable."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = create(disk, "data/t-0")
    log.append_as_leader(batch(2), 0)
    sync(disk, log)
    log.advance_high_watermark(2)
    log.append_as_leader(batch(2), 0)
    disk.fail("write", path="*.log", error=errno.EIO)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(2), 0)
    disk.clear_faults()
    with pytest.raises(ClosedError, match="poisoned"):
        log.append_as_leader(batch(2), 0)
    assert log.failure is not None
    assert log.sync_plan() is None
    assert len(contents(log, 0, 4)) == 2
    log.close(clean=True)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("path", ["*.log", "*.index"])
def test_an_epoch_that_was_not_appended_is_not_in_the_history(path: str, code: int) -> None:
    """A fetch brings the rest of one epoch and the beginning of the next, and the disk refuses it, or the segment
    that it takes: the history ends where the log does. (Found by the simulation: the next fetch told the leader of
    an epoch that the log did not have, and got what could not follow it, again and again.)"""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = create(disk, "data/t-0", SMALL)
    log.append_as_follower([batch(2, size=400, leader_epoch=0)])
    fetched = [batch(2, size=400, base_offset=2, leader_epoch=0), batch(2, size=400, base_offset=4, leader_epoch=3)]
    disk.fail("write" if path == "*.log" else "create", path=path, error=code)
    with pytest.raises(StorageError):
        log.append_as_follower(fetched)
    assert log.end_offset == 2
    assert log.epochs.entries == [(0, 0)]
    disk.clear_faults()
    if code == errno.ENOSPC:
        assert log.append_as_follower(fetched[:1]) == 4
        log.become_leader(7)
        log.append_as_leader(batch(1), 7)
        expected = [(0, 0), (7, 4)]
    else:
        expected = [(0, 0)]
    log.close(clean=False)
    log = reopen(disk, "data/t-0")
    assert log.epochs.entries == expected


@pytest.mark.parametrize("size", [10, 400])
def test_a_full_disk_that_does_not_even_cut(size: int) -> None:
    """What a refused write left behind is gone before the next batch, or the next segment, is written: a file
    system that copies on write may have no room to shorten a file."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = create(disk, "data/t-0", SMALL)
    log.append_as_leader(batch(1, size=700), 0)
    disk.fail("write", path="*.log", error=errno.ENOSPC, partial=250)
    disk.fail("truncate", path="*.log", error=errno.ENOSPC)
    for _ in range(2):
        with pytest.raises(StorageError):
            log.append_as_leader(batch(1, size=200), 0)
        disk.fail("truncate", path="*.log", error=errno.ENOSPC)
    disk.clear_faults()
    log.append_as_leader(batch(1, size=size), 0)
    log.append_as_leader(batch(1, size=400), 0)
    log.advance_high_watermark(3)
    log.write_mark()
    log.close(clean=False)
    log = reopen(disk, "data/t-0")
    assert len(contents(log)) == log.high_watermark == 3
    log.close(clean=True)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EMFILE, errno.ENOMEM])
def test_deleting_needs_no_room_and_no_descriptor(code: int) -> None:
    """The leader epoch history cannot be written: what is deleted is so all the same, and for good."""
    disk = SimDisk(Random(1))
    log = create(disk, "t-0")
    disk.sync_directory("")
    for epoch in (1, 2):
        log.become_leader(epoch)
        log.append_as_leader(batch(2), epoch)
    sync(disk, log)
    log.advance_high_watermark(4)
    disk.fail(path="*leader-epoch-checkpoint*", times=None, error=code)
    assert log.delete_records(3) == 3
    disk.clear_faults()
    log = reopen(disk.crash(Random(2)), "t-0", same_boot=False)
    assert (log.start_offset, log.end_offset, log.epochs.entries) == (3, 4, [(2, 3)])


@pytest.mark.parametrize("times", [1, 2, 3])
def test_what_is_deleted_once_more_after_a_full_disk_stays_so(times: int) -> None:
    """The mark could not be written, and the deletion failed. Once more it succeeds: then it is durable, as
    always."""
    disk = SimDisk(Random(1))
    log = create(disk, "t-0")
    disk.sync_directory("")
    log.append_as_leader(batch(4), 0)
    sync(disk, log)
    log.advance_high_watermark(4)
    log.write_mark()
    disk.fail("write", path="*replog.mark", times=times, error=errno.ENOSPC)
    for _ in range(times):
        with contextlib.suppress(StorageError):
            log.delete_records(3)
    disk.clear_faults()
    assert log.delete_records(3) == 3
    assert reopen(disk.crash(Random(2)), "t-0", same_boot=False).start_offset == 3


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_history_that_could_not_be_written_is_at_the_close(durability: Durability) -> None:
    """Records were deleted while the disk was full, and the leader epoch history stayed as it was. A close in order
    leaves one that the mark vouches for: the next start need not scan, and an ``os`` log has everything after a
    reboot."""
    disk = SimDisk(Random(1))
    log = create(disk, "t-0", LogConfig(durability=durability))
    disk.sync_directory("")
    log.append_as_leader(batch(4), 0)
    sync(disk, log)
    log.advance_high_watermark(4)
    disk.fail(path="*leader-epoch-checkpoint*", error=errno.ENOSPC)
    assert log.delete_records(3) == 3
    disk.clear_faults()
    log.close(clean=True)
    log = reopen(disk, "t-0", clean=True, same_boot=False)
    assert log.recovery.clean
    assert not log.incomplete
    assert log.epochs.entries == [(0, 3)]
    log.close(clean=True)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_full_disk_while_epochs_are_cut(durability: Durability) -> None:
    """The history could not be written once the log was cut, and the cut is made again: no epoch that is gone comes
    back to contradict what is appended then."""
    disk = SimDisk(Random(1))
    log = create(disk, "t-0", LogConfig(segment_bytes=1024, durability=durability))
    disk.sync_directory("")
    log.append_as_leader(batch(4, size=90), 0)
    log.append_as_leader(batch(2), log.epochs.latest + 5)
    sync(disk, log)
    disk.fail(path="*leader-epoch-checkpoint*", error=errno.ENOSPC)
    with pytest.raises(StorageError):
        log.truncate_to(4)
    disk.clear_faults()
    log.truncate_to(4)
    assert log.epochs.entries == [(0, 0)]
    for base in (4, 8, 12):
        log.append_as_follower([batch(4, size=90, base_offset=base, leader_epoch=0)])
        sync(disk, log)
    assert len(log.segments()) > 1
    log.close(clean=False)
    log = reopen(disk, "t-0")
    assert (log.end_offset, log.epochs.entries) == (16, [(0, 0)])
    log.close(clean=True)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_what_could_not_be_cut_off_again_is_not_called_refused(code: int, count: int) -> None:
    """A write failed, and the cut of what it left behind too: a whole batch may be there at the next start, so
    nobody says that it is not. Less than a batch never comes back."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = create(disk, "data/t-0")
    log.append_as_leader(batch(2), 0)
    full = code == errno.ENOSPC
    disk.fail("write", path="*.log", error=code, partial=len(batch(2)) - full)
    disk.fail("truncate", path="*.log", error=code, times=99)
    with pytest.raises(StorageError if full and count == 1 else OutcomeUnknownError) as caught:
        log.append_many_as_leader([(bytearray(batch(2)), True) for _ in range(count)], 0)
    assert log.poisoned is not full
    assert code in (getattr(caught.value, "errno", None), getattr(caught.value.__cause__, "errno", None))
    log.close(clean=False)
    disk.clear_faults()
    log = reopen(disk, "data/t-0")
    assert log.end_offset == (2 if full else 4)
    log.close(clean=True)


def test_of_several_that_were_refused_none_comes_back() -> None:
    """An I/O error behind the first whole batch of several: the next start does not find what was refused."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = create(disk, "data/t-0")
    log.append_as_leader(batch(2), 0)
    disk.fail("write", path="*.log", error=errno.EIO, partial=len(batch(2)) + 10)
    with pytest.raises(StorageError):
        log.append_many_as_leader([(bytearray(batch(2)), True), (bytearray(batch(2)), True)], 0)
    assert log.poisoned
    log.close(clean=False)
    disk.clear_faults()
    log = reopen(disk, "data/t-0")
    assert log.end_offset == 2
    log.close(clean=True)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_sync_that_fails_at_the_close_is_told_to_the_next_start(durability: str) -> None:
    """The system takes for written what that sync lost: only what is written once more gets to the disk."""
    disk = SimDisk(Random(4))
    disk.make_directory("/data")
    log = create(disk, "/data/t-0", LogConfig(durability=durability))  # type: ignore[arg-type]
    disk.sync_directory("/")
    disk.sync_directory("/data")
    log.append_as_leader(batch(2), 0)
    disk.fail("sync", path="*.log")
    with pytest.raises(StorageError):
        log.close(clean=True)
    disk.clear_faults()
    log = reopen(disk, "/data/t-0", same_boot=True)
    assert log.recovery.poisoned
    log.close(clean=True)
    for seed in range(10):
        after = reopen(disk.crash(Random(seed)), "/data/t-0")
        assert len(contents(after, 0, 2)) == 2


def test_a_process_that_dies_before_it_notes_a_failed_sync() -> None:
    """What waited for a sync is written again by the next start on the same boot: the sync may have failed, and
    nobody could say so."""
    disk = SimDisk(Random(4))
    disk.make_directory("/data")
    log = create(disk, "/data/t-0", LogConfig(durability="sync"))
    disk.sync_directory("/")
    disk.sync_directory("/data")
    log.append_as_leader(batch(2), 0)
    plan = log.sync_plan()
    assert plan is not None
    disk.fail("sync", path="*.log")
    with pytest.raises(StorageError):
        plan.files[0].sync()
    disk.clear_faults()
    disk.kill()
    log = reopen(disk, "/data/t-0", same_boot=True)
    assert log.flushed_offset == 2
    for seed in range(10):
        after = reopen(disk.crash(Random(seed)), "/data/t-0", same_boot=False)
        assert len(contents(after, 0, 2)) == 2


@pytest.mark.parametrize("call", ["sync_mark", "set_incomplete"])
def test_a_mark_that_cannot_be_synced_poisons(call: str) -> None:
    """As any failed sync: the next one would only say that all is well."""
    disk = SimDisk(Random(4))
    disk.make_directory("data")
    log = create(disk, "data/t-0")
    log.append_as_leader(batch(2), 0)
    sync(disk, log)
    disk.fail("sync", path="*.mark")
    with pytest.raises(StorageError):
        log.sync_mark() if call == "sync_mark" else log.set_incomplete(True)
    assert log.failure is not None
    log.close(clean=False)


def test_a_failed_sync_poisons_for_good() -> None:
    """After a failed sync the log takes nothing, shows only what was durable before, and says so at the next start,
    which trusts no cache."""
    disk = SimDisk(Random(4))
    disk.make_directory("data")
    log = create(disk, "data/t-0", LogConfig(durability="os"))
    log.append_as_leader(batch(2), 0)
    sync(disk, log)
    log.append_as_leader(batch(2), 0)
    log.advance_high_watermark(4)
    log.write_mark()
    disk.fail("sync", path="*.log")
    with pytest.raises(StorageError):
        sync(disk, log)
    disk.clear_faults()
    assert log.high_watermark == 2
    with pytest.raises(ClosedError):
        log.append_as_leader(batch(1), 0)
    with pytest.raises(ClosedError):
        log.become_leader(3)
    assert [record.offset for record in contents(log, 0, 4)] == [0, 1]
    log.poison(OSError("again"))
    log.close(clean=True)
    log = reopen(disk, "data/t-0", same_boot=True)
    assert log.recovery.poisoned
    assert log.incomplete
    assert log.high_watermark <= 2
    log.close(clean=True)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("follows", [False, True])
def test_a_lack_of_means_refuses_one_append_or_read(code: int, follows: bool) -> None:
    """Whichever file no descriptor or memory is left for: an append that must roll appends nothing, a read is
    refused, and the next ones succeed. A sync that fails poisons all the same; one that found no descriptor did not
    begin, and ends the log where it is, without a word of what the disk may have lost."""

    def append(log: Log, tag: bytes) -> None:
        if follows:
            log.append_as_follower([bytes(batch(1, size=500, base_offset=log.end_offset, leader_epoch=1, tag=tag))])
        else:
            log.append_as_leader(batch(1, size=500, tag=tag), 1)

    for kind in ("create", "open", "write", "read", "sync", "sync_directory"):
        for nth in range(1, 100):
            disk = SimDisk(Random(nth))
            log = create(disk, "t-0", LogConfig(durability="os", segment_bytes=1200, index_interval_bytes=100))
            for number in range(4):
                append(log, b"%d" % number)
            log.advance_high_watermark(3)
            log.write_mark()
            log.set_tail_cache_size(0)
            log._segments.close()
            fault = disk.fail(kind, "t-0*", nth=nth, error=code)
            refused = None
            try:
                for number in range(4, 6):
                    append(log, b"%d" % number)
                contents(log)
            except StorageError as error:
                refused = error.errno
            disk.clear_faults()
            if not fault.hits:
                assert nth > 1, kind
                break
            assert refused in (code, None), (kind, nth)
            if kind in ("sync", "sync_directory"):
                assert log.failure is not None
                assert log.poisoned == (code == errno.ENOMEM)
                continue
            assert log.failure is None, (kind, nth)
            while log.end_offset < 6:
                append(log, b"%d" % log.end_offset)
            assert [bytes(record.value or b"")[:1] for record in contents(log)] == [
                b"%d" % number for number in range(6)
            ]
            log.close(clean=True)
        else:
            raise AssertionError("there is an end to the calls")
