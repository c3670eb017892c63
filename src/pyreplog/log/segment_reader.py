"""The reader of one segment, a file of batches with two indexes: looks up offsets, reads, and searches by time.

A segment knows bytes and offsets, and nothing of leaders, marks or watermarks. Its indexes are only
hints: the reader checks each entry that it uses against the batch, and rebuilds wrong indexes from
the log. :class:`~pyreplog.log.segment_writer.SegmentWriter` can also be written.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import ClassVar

from pyreplog._core import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    UNKNOWN_POSITION,
    RecordBatch,
    SegmentEnd,
    SegmentScanner,
    find_offset,
    find_timestamp,
    whole_batches,
)
from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import CorruptError
from pyreplog.log.file_slice import FileSlice
from pyreplog.log.gaps import Gaps, read_gaps
from pyreplog.log.index_files import IndexFiles
from pyreplog.log.layout import (
    FIRST_LOOK_SIZE,
    GAPS_SUFFIX,
    INDEX_ENTRY_SIZE,
    INDEX_SUFFIX,
    INT64_MAX,
    LOG_SUFFIX,
    LOOKUP_CHUNK_SIZE,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    join,
    segment_name,
)
from pyreplog.log.legacy import LegacyPrefix, begins_legacy
from pyreplog.log.scan import describe_damage, scan_segment
from pyreplog.log.transaction_index import TransactionIndex
from pyreplog.ports import Disk, File
from pyreplog.record import SIZE_UP_TO_MAGIC, base_offset_of, extent_of, parts_of, size_of


class SegmentNames:
    """The file names of a segment. A reader may meet an unfinished replacement, whose files have a suffix."""

    __slots__ = ("gaps", "index", "log", "times")

    def __init__(self, base_offset: int, suffix: str = "", log: str = "") -> None:
        """``log``: the file that holds the batches, if it is not the segment's own."""
        self.log = log or segment_name(base_offset, LOG_SUFFIX) + suffix
        self.index = segment_name(base_offset, INDEX_SUFFIX) + suffix
        self.times = segment_name(base_offset, TIME_INDEX_SUFFIX) + suffix
        self.gaps = segment_name(base_offset, GAPS_SUFFIX)


class SegmentReader(SegmentEnd):
    """The segment at ``base_offset`` of the partition folder ``directory``. Belongs to one owner.

    ``size`` is the number of bytes of the log file that count. ``next_offset`` is one past the last
    offset, or -1 if it is not known yet (:meth:`end_offset` finds it). Files are opened on first use.
    """

    __slots__ = (
        "_gaps",
        "_legacy",
        "_legacy_known",
        "_names",
        "_times_checked",
        "_transactions",
        "base_offset",
        "directory",
        "disk",
        "origin",
    )

    opens_for_writing: ClassVar = False

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        size: int,
        index_interval: int,
        names: SegmentNames | None = None,
        origin: int | None = None,
    ) -> None:
        """``origin``: the byte of its log file at which the segment begins, if it is only a part of it."""
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.origin = origin
        self.index_interval = index_interval
        self._names = names or SegmentNames(base_offset)
        self._file: File | None = None
        self._indexes: IndexFiles | None = None
        self._forget_batches()

    def _forget_batches(self) -> None:
        """Forget everything that was found in the batches."""
        self.next_offset = self.max_timestamp = self.first_timestamp = -1
        self.max_timestamp_offset = self.base_offset
        self.first_producer = UNKNOWN_POSITION
        self._times_checked = False
        self._transactions: TransactionIndex | None = None
        self._gaps: Gaps | None = None
        self._forget_legacy()

    def _forget_legacy(self) -> None:
        self._legacy: LegacyPrefix | None = None
        self._legacy_known = False

    # -- files --

    @property
    def path(self) -> str:
        """The path of the log file."""
        return join(self.directory, self._names.log)

    @property
    def file(self) -> File:
        """The log file, opened on first use."""
        file = self._file
        if file is None:
            file = self.disk.open(self.path, write=self.opens_for_writing)
            if self.origin is not None:
                file = FileSlice(file, self.origin, self.size)
            self._file = file
        return file

    def holds(self, error: CorruptError) -> bool:
        """Return whether ``error`` names a byte of this segment."""
        start = self.file_position(0)
        return error.file == self.path and error.position is not None and start <= error.position <= start + self.size

    def file_position(self, position: int) -> int:
        """Return the position in the log file of ``position`` in this segment, for error messages."""
        return position + (self.origin or 0)

    @property
    def indexes(self) -> IndexFiles:
        """Both indexes, loaded and checked on first use."""
        indexes = self._indexes
        if indexes is None:
            indexes = self._indexes = IndexFiles.open(self, self._names.index, self._names.times)
        return indexes

    def _rebuild_indexes(self) -> None:
        if self._indexes is not None:
            self._indexes.close()
        self._indexes = IndexFiles.rebuild(self, self._indexes)

    @property
    def transactions(self) -> TransactionIndex:
        """The aborted transactions whose marker is in this segment."""
        if self._transactions is None:
            self._transactions = TransactionIndex(self.disk, self.directory, self.base_offset)
        return self._transactions

    @property
    def gaps(self) -> Gaps:
        """The gaps that compaction left, from their file. They count only if the log's mark says that it was
        compacted. Raises :class:`CorruptError`."""
        gaps = self._gaps
        if gaps is None:
            gaps = self._gaps = self._read_gaps()
        return gaps

    def refresh_gaps(self) -> bool:
        """Read the gaps again if their file has grown since, because a follower adds to it. Return whether it
        had."""
        before = self.gaps
        now = self._read_gaps()
        if now.file_size <= before.file_size:
            return False
        self._gaps = now
        return True

    def _read_gaps(self) -> Gaps:
        # A writer renames the file a moment after its segment.
        for name in (self._names.gaps + SWAP_SUFFIX, self._names.gaps):
            found = read_gaps(self.disk, self.directory, self.base_offset, name)
            if found is not None:
                return found
        return Gaps()

    @property
    def legacy(self) -> LegacyPrefix | None:
        """The messages of Kafka before 0.11 at the beginning of the segment; None if there are none."""
        if not self._legacy_known and self.size:
            self._legacy_known = True
            if begins_legacy(self.file, self.size):
                prefix = LegacyPrefix(lambda: self.file, self.size, self.base_offset)
                self._legacy = prefix if prefix.end else None
        return self._legacy

    @property
    def index_size(self) -> int:
        """The size of the indexes in memory in bytes; 0 if they are not loaded."""
        indexes = self._indexes
        return 0 if indexes is None else indexes.offsets.count * INDEX_ENTRY_SIZE + indexes.times.size

    @property
    def is_releasable(self) -> bool:
        """Whether :meth:`release` loses nothing."""
        return True

    def release(self) -> None:
        """Close the files and drop the indexes from memory. The next use opens them again."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._indexes is not None:
            self._indexes.close()
            self._indexes = None
        if self._transactions is not None:
            self._transactions.close()
        self._gaps = None

    def reset_to(self, size: int) -> None:
        """Forget everything read so far, because the file may have other bytes now, ``size`` of them."""
        self.release()
        self.size = size
        self._forget_batches()

    def forget(self) -> None:
        """Drop files and indexes for good, without closing them: a sync may still use them."""
        self._file = None
        self._indexes = None
        self._transactions = None
        self._gaps = None

    # -- its content --

    def end_offset(self) -> int:
        """Return one past the last offset: known, or found by a walk from the last index entry."""
        if self.next_offset < 0:
            scan = self._scan_tail()
            self.next_offset = scan.next_offset if scan.batch_count else self.base_offset
        return self.next_offset

    def _scan_tail(self, *, check_crc: bool = False) -> SegmentScanner:
        """Walk the batches behind the last entry of the offset index."""
        position = self.indexes.offsets.last[1]
        return scan_segment(
            self.file,
            self.size,
            self.base_offset,
            position=position,
            index_interval=self.index_interval,
            check_crc=check_crc,
        )

    def largest_timestamp(self) -> int:
        """Return the greatest timestamp in the segment, -1 if there is none.

        REQUIRES that it is not being written, or was set up for writing.
        """
        if self.max_timestamp < 0 and self.size and not self._times_checked:
            # The last entry of a closed segment has its greatest timestamp. If entries were cut
            # off, searches would miss records, so the batches behind the last entry are scanned
            # once.
            indexes = self.indexes
            timestamp, offset = indexes.times.last
            position = (self.position_of(offset) or 0) if indexes.times.count else 0
            scan = scan_segment(
                self.file,
                self.size,
                self.base_offset,
                position=position,
                index_interval=self.index_interval,
                check_crc=False,
            )
            if scan.max_timestamp > timestamp:
                self._rebuild_indexes()
            self._times_checked = True
            times = self.indexes.times
            if times.count:
                self.max_timestamp, self.max_timestamp_offset = times.last
        return self.max_timestamp

    def offset_at(self, position: int) -> int:
        """Return the offset behind the batches before ``position``, by their headers alone."""
        offsets = self.indexes.offsets
        start = 0 if self.legacy is None else self.legacy.end
        for slot in range(offsets.count - 1, -1, -1):
            entry = offsets.entry(slot)[1]
            if start < entry < position:
                start = entry
                break
        scan = scan_segment(self.file, position, self.base_offset, position=start, check_crc=False)
        return scan.next_offset if scan.batch_count or self.legacy is None else self.legacy.next_offset

    def header_at(self, position: int) -> tuple[int, int, int] | None:
        """Return (base offset, last offset, max timestamp) of the batch at ``position``.

        Return None if no batch can begin there.
        """
        if not 0 <= position <= self.size - HEADER_SIZE:
            return None
        data = self.file.read_at(position, HEADER_SIZE)
        extent = extent_of(data) if len(data) == HEADER_SIZE else None
        if extent is None:
            return None
        size, base, last, timestamp = extent
        if size < HEADER_SIZE or position + size > self.size or not self.base_offset <= base <= last:
            return None
        return base, last, timestamp

    def check_batch(self, position: int) -> None:
        """Raise :class:`CorruptError` unless a whole batch with the right checksum begins at ``position``."""
        legacy = self.legacy
        if legacy is not None and position < legacy.end:
            return  # old messages are checked at every read
        end = min(position + size_of(self.file.read_at(position, LOG_OVERHEAD)), self.size)
        scan = scan_segment(self.file, end, self.base_offset, position=position, check_crc=True)
        if scan.position != end or scan.batch_count != 1:
            raise CorruptError("a batch is damaged", file=self.path, position=position)

    def describe_damage(self, position: int, reason: str) -> str:
        """Return ``reason``, or a text about the old message format if an intact old message is at ``position``."""
        return describe_damage(self.file, position, self.size, 0 if self.legacy is None else self.legacy.end, reason)

    # -- looking up --

    def position_of(self, offset: int) -> int | None:
        """Return where the first batch begins whose last offset is at least ``offset``; None if there is none."""
        legacy = self.legacy
        if legacy is not None and offset < legacy.next_offset:
            return legacy.position_of(offset)
        found = self._find(offset, LOOKUP_CHUNK_SIZE)
        return None if found is None else found[0]

    def anchor(self, offset: int) -> tuple[int, int]:
        """Return the position of a batch at or before the batch of ``offset``, and its base offset.

        The index confirms both."""
        offsets = self.indexes.offsets
        if offsets.count:
            entry_offset, position = offsets.lookup(offset)
            header = self.header_at(position) if position else None
            if header is not None and header[1] == entry_offset:
                return position, header[0]
        return 0, self.base_offset

    def named(self, offset: int) -> int | None:
        """Return where the batch of ``offset`` begins if an index entry names this batch, else None.

        No walk is needed then, so damage before the batch does not matter."""
        offsets = self.indexes.offsets
        slot = bisect_left(range(offsets.count), offset, key=lambda slot: offsets.entry(slot)[0])
        if slot == offsets.count:
            return None
        last_offset, position = offsets.entry(slot)
        header = self.header_at(position)
        return position if header is not None and header[1] == last_offset and header[0] <= offset else None

    # -- reading --

    def locate(self, offset: int, size_max: int, end_offset: int) -> tuple[int, memoryview] | None:
        """Return the position and the bytes of whole batches, beginning with the batch that holds ``offset`` or the
        next.

        All lie below ``end_offset``; as many as fit ``size_max``, at least one. None if no such batch
        begins below ``end_offset``.
        """
        legacy = self.legacy
        if legacy is not None and offset < legacy.next_offset:
            found = legacy.locate(offset, size_max, end_offset)
            if found is not None:
                # Otherwise no old message holds the offset, so search behind them.
                return found
        # A small read first: the index entry is near, and bytes before the batch are of no use.
        found = self._find(offset, FIRST_LOOK_SIZE)
        if found is None:
            return None
        return self.locate_at(*found, size_max, end_offset)

    def locate_at(
        self, position: int, data: memoryview, size_max: int, end_offset: int
    ) -> tuple[int, memoryview] | None:
        """Return what :meth:`locate` does, for the batch at ``position``. ``data``: bytes already read from there."""
        if len(data) < size_max and position + len(data) < self.size:
            data = self.file.read_at(position, min(size_max, self.size - position))
        size = self._whole(data, position, end_offset, size_max)
        if size == 0:
            whole = self._whole_size(data, position)
            if whole <= len(data):
                return None
            data = self.file.read_at(position, whole)
            size = self._whole(data, position, end_offset, whole)
            if size == 0:
                return None
        return position, data[:size]

    def read_at(self, position: int, size_max: int) -> memoryview:
        """Return whole batches from ``position`` on, at least one; empty at the end of the segment.

        For walking a segment in order."""
        rest = self.size - position
        if rest <= 0:
            return memoryview(b"")
        data = self.file.read_at(position, min(size_max, rest))
        size = self._whole(data, position)
        if size == 0:
            whole = self._whole_size(data, position)
            if whole > rest:
                raise CorruptError("a batch is cut off", file=self.path, position=self.file_position(position))
            data = self.file.read_at(position, whole)
            size = self._whole(data, position)
        return data[:size]

    def _whole(self, data: memoryview, position: int, end_offset: int = INT64_MAX, size_max: int = INT64_MAX) -> int:
        """Return the size of the whole batches below ``end_offset`` at the begin of ``data``, which was read at byte
        ``position``."""
        try:
            return whole_batches(data, end_offset, size_max)
        except CorruptError as error:
            raise self._corrupt(error, position) from None

    def _whole_size(self, data: memoryview, position: int) -> int:
        """Return the size of the batch at the start of ``data``.

        Raises :class:`CorruptError` if no whole batch of the file can begin there.
        """
        if len(data) < SIZE_UP_TO_MAGIC:
            raise CorruptError("a batch is cut off", file=self.path, position=self.file_position(position))
        size = size_of(data)
        if size < HEADER_SIZE or position + size > self.size:
            raise CorruptError(
                "a batch's length contradicts the file", file=self.path, position=self.file_position(position)
            )
        return size

    # -- searching by time --

    def search_start(self, timestamp: int, start_offset: int) -> int:
        """Return the offset from which :meth:`find_timestamp` searches."""
        return max(self._time_bound(timestamp), start_offset)

    def find_timestamp(
        self,
        timestamp: int,
        start_offset: int,
        end_offset: int,
        check: Callable[[int, memoryview, int], object] | None = None,
        size_max: int = MAX_BATCH_BYTES,
    ) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record from ``start_offset`` on, below ``end_offset``, that is not
        older than ``timestamp`` (ms), or None.

        ``check`` gets position, bytes and base offset of each batch whose records are searched. Batches
        behind ``end_offset`` may be torn. ``size_max``: bytes that a compressed batch may take unpacked
        (:class:`BatchTooLargeError`).
        """
        try:
            return self._find_timestamp(timestamp, start_offset, end_offset, check, size_max)
        except CorruptError as error:
            if self._is_behind(error, end_offset):
                return None
            raise

    def _find_timestamp(
        self,
        timestamp: int,
        start_offset: int,
        end_offset: int,
        check: Callable[[int, memoryview, int], object] | None,
        size_max: int,
    ) -> tuple[int, int] | None:
        search_start = self.search_start(timestamp, start_offset)
        legacy = self.legacy
        if legacy is not None and search_start < legacy.next_offset:
            hit = legacy.find_timestamp(timestamp, start_offset, end_offset)
            if hit is not None:
                return hit
        found = self._find(search_start, LOOKUP_CHUNK_SIZE)
        if found is None:
            return None
        position = found[0]
        while position < self.size:
            data = self.file.read_at(position, min(LOOKUP_CHUNK_SIZE, self.size - position))
            try:
                at, walked = find_timestamp(data, timestamp)
            except CorruptError as error:
                raise self._corrupt(error, position) from None
            if at < 0:
                position += self._step(walked, data, position)
                continue
            whole = self._whole_size(data[at:], position + at)
            if at + whole > len(data):
                data, at, position = self.file.read_at(position + at, whole), 0, position + at
            if base_offset_of(data[at:]) >= end_offset:
                return None
            batch = self._batch(data, at, position)
            if check is not None:
                check(position + at, data[at : at + batch.size], batch.base_offset)
            hit = self._find_in(batch, timestamp, start_offset, position + at, size_max) if batch.record_count else None
            if hit is not None:
                return hit if hit[0] < end_offset else None
            position += at + batch.size
        return None

    # -- inside --

    def _find_in(
        self, batch: RecordBatch, timestamp: int, start_offset: int, position: int, size_max: int
    ) -> tuple[int, int] | None:
        try:
            for payload, count, _ in parts_of(batch, size_max, partition=self.directory.rpartition("/")[2]):
                hit = batch.find_timestamp(timestamp, start_offset, payload, count)
                if hit is not None:
                    return hit
        except CorruptError as error:
            raise CorruptError(error.reason, file=self.path, position=self.file_position(position)) from None
        return None

    def _is_behind(self, error: CorruptError, end_offset: int) -> bool:
        """Return whether all batches below ``end_offset`` lie before the damage that ``error`` reports."""
        if error.position is None or self.file_position(0) > error.position:
            return False
        position = max(self.anchor(end_offset - 1)[0], 0 if self.legacy is None else self.legacy.end)
        size = error.position - self.file_position(0)
        scan = scan_segment(self.file, size, self.base_offset, position=position, check_crc=False)
        return scan.batch_count > 0 and scan.next_offset >= end_offset

    def _find(self, offset: int, window: int) -> tuple[int, memoryview] | None:
        """Return the position of the first batch whose last offset is at least ``offset``, and up to ``window`` bytes
        from there."""
        legacy = self.legacy
        position = self._lookup(offset, 0 if legacy is None else legacy.end)
        while position < self.size:
            data = self.file.read_at(position, min(window, self.size - position))
            try:
                at, walked = find_offset(data, offset)
            except CorruptError as error:
                raise self._corrupt(error, position) from None
            if at >= 0:
                return position + at, data[at:]
            position += self._step(walked, data, position)
        return None

    def _lookup(self, offset: int, least: int) -> int:
        """Return a position at or before the batch that holds ``offset``, but not below ``least``. It comes from the
        index, and is checked against the log."""
        offsets = self.indexes.offsets
        if not offsets.count:
            return least
        entry_offset, position = offsets.lookup(offset)
        if position <= least:
            return least
        batch = self.header_at(position)
        # If a batch begins at or below `offset`, all batches before it end below `offset`. So the
        # hint is safe.
        if batch is not None and batch[0] <= offset and batch[0] <= entry_offset:
            return position
        self._rebuild_indexes()
        return max(self.indexes.offsets.lookup(offset)[1], least)

    def _time_bound(self, timestamp: int) -> int:
        """Return an offset below which all records are older than ``timestamp``.

        It is one entry earlier than the index gives, so that a single wrong entry cannot hide a record.
        """
        times = self.indexes.times
        slot = bisect_right(range(times.count), timestamp, key=lambda slot: times.entry(slot)[0])
        return times.entry(slot - 2)[1] if slot >= 2 else self.base_offset

    def _step(self, walked: int, data: memoryview, position: int) -> int:
        """Return the number of bytes to the batch behind the chunk ``data``, which held no answer.

        The last batch of the chunk may end behind ``data``.
        """
        if walked <= 0:
            walked = self._whole_size(data, position)
        return walked

    def _batch(self, data: memoryview, at: int, position: int) -> RecordBatch:
        try:
            batch = RecordBatch(data, at)
            batch.check_crc()
        except CorruptError as error:
            raise self._corrupt(error, position) from None
        return batch

    def _corrupt(self, error: CorruptError, position: int) -> CorruptError:
        """Return ``error`` with the file's name. Its position is relative to a chunk at ``position``."""
        at = position + (error.position or 0)
        return CorruptError(self.describe_damage(at, error.reason), file=self.path, position=self.file_position(at))
