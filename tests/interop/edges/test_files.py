"""Edge cases 24 to 34: a segment's file, from one end to the other."""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path

import pytest

from pyreplog._core import SegmentScanner, find_offset
from pyreplog.config import LogConfig
from pyreplog.errors import (
    ConfigError,
    CorruptError,
    InternalError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    StorageError,
)
from pyreplog.log import open_readers
from pyreplog.log.layout import LOG_SUFFIX, segment_name
from pyreplog.record import RecordBatch, split
from pyreplog.system.disk import SystemDisk
from pyreplog.testing.disk import SimDisk
from tests.interop.edges.support import INT32_MAX, filled, segments
from tests.unit.log.conftest import Place
from tests.unit.log.support import batch, contents, create, raw, reopen, sync

FIRST = f"t-0/{segment_name(0, LOG_SUFFIX)}"


def alone(place: Place, content: bytes) -> list[int]:
    """Base offsets of the batches that a reader finds in a folder that has nothing but a log of ``content``."""
    if place.disk.stat(place.of("u-0")) is None:
        place.disk.make_directory(place.of("u-0"))
    place.write(f"u-0/{segment_name(0, LOG_SUFFIX)}", content)
    ((_, reader),) = open_readers(place.disk, place.of("u-0")).items()
    try:
        return [one.base_offset for one in reader.batches(reader.start_offset, reader.end_offset)]
    finally:
        reader.close()


def test_e024_a_cut_end_is_no_batch(place: Place) -> None:
    """A header or a batch that is not all there is left out by whoever walks a file, however much of it is
    there."""
    log = create(place.disk, place.of("t-0"))
    for _ in range(3):
        log.append_as_leader(batch(2), 0)
    whole = raw(log)
    log.close(clean=False)
    one = len(whole) // 3
    for size in (*range(2 * one, 2 * one + 70), 3 * one - 2, 3 * one - 1, 3 * one):
        expected = [0, 2, 4][: size // one]
        assert alone(place, whole[:size]) == expected
        scan = SegmentScanner(0)
        assert (scan.feed(whole[:size]), scan.status) == (len(expected) * one, 0)


def test_e025_a_length_that_cannot_be(place: Place) -> None:
    """A length field below 14 is corrupt, that of a zero-filled tail too; a reader stops before it, and recovery
    cuts it."""
    good = bytes(batch(2, leader_epoch=0))
    for length in (-1, 0, 1, 13):
        bad = bytearray(batch(2, base_offset=2, leader_epoch=0))
        struct.pack_into(">i", bad, 8, length)
        scan = SegmentScanner(0)
        assert scan.feed(good + bad) == len(good)
        assert scan.status < 0
        with pytest.raises(CorruptError, match="length"):
            find_offset(good + bad, 5)
        with pytest.raises(CorruptError, match="length"):
            split(good + bad)
        assert alone(place, good + bad) == [0]
    for zeros in (18, 5000):
        scan = SegmentScanner(0)
        assert (scan.feed(good + bytes(zeros)), scan.status < 0) == (len(good), True)
        assert alone(place, good + bytes(zeros)) == [0]
    log = create(place.disk, place.of("t-0"))
    log.append_as_leader(batch(2), 0)
    whole = raw(log)
    log.close(clean=False)
    place.write(FIRST, whole + bytes(5000))
    log = reopen(place.disk, place.of("t-0"))
    assert (raw(log), log.recovery.torn_size) == (whole, 5000)
    log.close(clean=True)


@pytest.mark.parametrize("tail", [0, 1 << 20])
def test_e026_slices_stay_within(place: Place, tail: int) -> None:
    """A slice larger than what is there ends where that ends; one that begins before the log or behind it is
    refused."""
    log = filled(place)
    log.set_tail_cache_size(tail)
    log.append_as_leader(batch(2), 0)
    size = batch(2).nbytes
    assert log.read(80, 10**15, 82).size == size
    assert log.read(80, 2**31 - 1, 10**15).size == size
    last = segments(log)[-1]
    assert log.read(last.base_offset, 2**62, 82).size == last.size
    for start in (-1, -(2**62), 83, 2**62):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(start, 100, 82)
    file = last.file
    assert file.read_at(last.size - 3, 100).nbytes == 3
    assert file.read_at(last.size + 5, 100).nbytes == 0
    for position, count in ((-1, 5), (0, -5)):
        with pytest.raises(StorageError):
            file.read_at(position, count)
    log.close(clean=True)


@pytest.mark.parametrize("tail", [0, 1 << 20])
def test_e027_a_slice_does_not_grow(place: Place, tail: int) -> None:
    """A slice has the bytes it was cut from, however much is appended before they are taken, also after a roll;
    after a truncation it has none."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    log.set_tail_cache_size(tail)
    cuts = []
    for number in range(30):
        log.append_as_leader(batch(2, tag=b"%d:" % number), 0)
        cut = log.read(log.end_offset - 2, 1 << 20, log.end_offset)
        cuts.append((cut, cut.size))
    for number, (cut, size) in enumerate(cuts):
        data = b"".join(cut.parts())
        assert len(data) == len(cut) == cut.size == size
        assert RecordBatch(data).base_offset == 2 * number
    log.truncate_to(10)
    with pytest.raises(OutcomeUnknownError):
        cuts[0][0].parts()
    log.close(clean=True)


def test_e027_a_slice_beside_a_writer(tmp_path: Path) -> None:
    """The same with a thread that appends while slices are taken and read: each has exactly its batches."""
    disk = SystemDisk()
    log = create(disk, str(tmp_path / "t-0"), LogConfig(durability="os", segment_bytes=4096))
    log.set_tail_cache_size(0)
    lock = threading.Lock()

    def write() -> None:
        for _ in range(300):
            with lock:
                log.append_as_leader(batch(2), 0)

    writer = threading.Thread(target=write)
    writer.start()
    taken = 0
    while taken < 1000 and (writer.is_alive() or taken < 50):
        with lock:
            end = log.end_offset
            start = max(end - 2 * (taken % 9 + 1), 0)
            cut = log.read(start, 1 << 20, end)
        size = cut.size
        found = [one for part in cut.parts() for one in split(part)]
        assert sum(one.size for one in found) == size == cut.size
        if found:
            assert found[0].base_offset == start
            assert found[-1].next_offset <= end
        taken += 1
    writer.join()
    assert log.end_offset == 600
    log.close(clean=True)
    disk.close()


def test_e028_no_segment_beyond_int_max(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """No segment may be told to grow beyond 2**31 - 1 bytes, and what would make one longer goes to the next, a
    follower's too."""
    LogConfig(segment_bytes=INT32_MAX)
    with pytest.raises(ConfigError):
        LogConfig(segment_bytes=INT32_MAX + 1)
    size = batch(2).nbytes
    stat = place.disk.stat
    for room, expected in ((size, 1), (size - 1, 2)):
        for leads in (True, False):
            log = create(place.disk, place.of(f"{expected}{leads}-0"), LogConfig(segment_bytes=INT32_MAX))
            log.append_as_leader(batch(2), 0)
            monkeypatch.setattr(
                type(place.disk), "stat", lambda _, path: (found := stat(path)) and found._replace(size=INT32_MAX)
            )
            first = segments(log)[0]
            first.size = INT32_MAX - room  # as if it were so long: nothing is written there below

            class Nothing:
                """Takes what is written to the long segment."""

                def write_at(self, offset: int, parts: object) -> None:
                    assert offset + size <= INT32_MAX

                def reserve(self, offset: int, room: int) -> None:
                    pass

            file, first._file = first.file, Nothing()  # type: ignore[assignment]
            first.expect_syncs()
            if expected == 2:
                first._file = file
            if leads:
                log.append_as_leader(batch(2), 0)
            else:
                log.append_as_follower([batch(2, base_offset=2, leader_epoch=0)])
            assert len(segments(log)) == expected
            assert first.size <= INT32_MAX
            first._file = file
            monkeypatch.undo()
            log.close(clean=False)


def test_e029_a_file_beyond_int_max(tmp_path: Path) -> None:
    """A log file longer than 2**31 - 1 bytes (here with a hole behind the batches) is read as far as it is good,
    and the rest told of."""
    disk = SystemDisk()
    log = create(disk, str(tmp_path / "t-0"))
    log.append_as_leader(batch(3), 0)
    log.set_high_watermark(3)
    log.write_mark()
    size = log.stats().size
    log.close(clean=False)
    path = tmp_path / "t-0" / segment_name(0, LOG_SUFFIX)
    with path.open("r+b") as file:
        file.truncate(INT32_MAX + 4096)
    (tmp_path / "t-0" / "replog.mark").unlink()
    ((_, reader),) = open_readers(disk, str(tmp_path / "t-0")).items()
    assert [one.next_offset for one in reader.batches(0, reader.end_offset)] == [3]
    assert reader.unreadable_size == INT32_MAX + 4096 - size
    reader.close()
    disk.close()


def test_e030_truncation_to_where_nothing_is(place: Place) -> None:
    """Cutting beyond the end, or at it, changes nothing; at a negative offset it is a bug."""
    log = create(place.disk, place.of("t-0"))
    log.append_as_leader(batch(3), 0)
    before = raw(log)
    for offset in (3, 4, 10**12):
        log.truncate_to(offset)
        assert (raw(log), log.end_offset) == (before, 3)
    with pytest.raises(InternalError):
        log.truncate_to(-1)
    log.close(clean=True)


def test_e031_room_reserved_ahead(place: Place) -> None:
    """With preallocate a segment's room is reserved at once; its length is what was written, and closing it gives
    the rest back."""
    log = create(place.disk, place.of("t-0"), LogConfig(preallocate=True, segment_bytes=1 << 20))
    assert _room(place, FIRST) >= 1 << 20
    for number in range(3):
        found = place.disk.stat(place.of(FIRST))
        assert found is not None
        assert found.size == log.stats().size == number * batch(2).nbytes
        log.append_as_leader(batch(2), 0)
    assert _room(place, FIRST) >= 1 << 20
    whole = raw(log)
    log.close(clean=True)
    assert _room(place, FIRST) < 1 << 16
    assert place.read(FIRST) == whole


def _room(place: Place, name: str) -> int:
    """Bytes that a file takes on its disk."""
    if isinstance(place.disk, SimDisk):
        return place.disk.used
    return os.stat(place.of(name)).st_blocks * 512


def test_e032_reading_moves_no_end(place: Place) -> None:
    """However much is read between appends, each batch goes to the end."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    log.set_tail_cache_size(0)
    for number in range(20):
        assert log.append_as_leader(batch(2), 0).base_offset == 2 * number
        assert [one.offset for one in contents(log)] == list(range(2 * number + 2))
    log.close(clean=True)


@pytest.mark.parametrize("tail", [0, 1 << 20])
def test_e033_the_batch_that_holds_an_offset(place: Place, tail: int) -> None:
    """From any offset, reading begins with the batch that holds it, or, in a gap, with the next one; also in
    another segment."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024, index_interval_bytes=150))
    log.set_tail_cache_size(tail)
    places = []
    base = 0
    for number in range(60):
        count = number % 4 + 1
        log.append_as_follower([batch(count, base_offset=base, leader_epoch=0)])
        places.append((base, base + count))
        base += count + (number % 3) * 5
    assert len(segments(log)) > 5
    for offset in range(log.end_offset):
        expected = next(start for start, end in places if offset < end)
        found = log.read(offset, 1, log.end_offset)
        assert RecordBatch(b"".join(found.parts())).base_offset == expected
    sync(place.disk, log)
    log.close(clean=True)
    log = reopen(place.disk, place.of("t-0"), clean=True)
    for offset in range(0, log.end_offset, 3):
        assert contents(log, offset)[0].offset == next(max(start, offset) for start, end in places if offset < end)
    log.close(clean=True)


def test_e034_a_search_by_time_has_a_start(place: Place) -> None:
    """Records before the starting offset are never found by their time, whatever it is: of a batch, and of a log
    whose start moved."""
    data = RecordBatch(batch(5, timestamp=1000, base_offset=40))
    assert [data.find_timestamp(1002, start) for start in (0, 42, 43, 44)] == [
        (42, 1002),
        (42, 1002),
        (43, 1003),
        (44, 1004),
    ]
    assert data.find_timestamp(1002, 45) is None
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024, index_interval_bytes=0))
    times = [5000 if number == 3 else 1000 + number for number in range(60)]
    for timestamp in times:
        log.append_as_leader(batch(1, timestamp=timestamp), 0)
    log.set_high_watermark(60)
    assert log.find_timestamp(4000, 60) == (3, 5000)
    assert log.find_timestamp(1010, 60) == (3, 5000)
    for start in (1, 3, 4, 5, 20, 41, 59):
        log.increment_start_offset(start)
        for wanted in (0, 1000, 1003, 1010, 1041, 1059, 4000, 5001):
            expected = next(((offset, times[offset]) for offset in range(start, 60) if times[offset] >= wanted), None)
            assert log.find_timestamp(wanted, 60) == expected, (start, wanted)
    log.close(clean=True)
