"""One segment: a file of batches and its two indexes. Append, look up, read, cut, close.

A segment knows bytes and offsets, and nothing of leaders, marks or watermarks. Its indexes are only ever a hint:
what they say is checked against the batch they name, and where they lie they are rebuilt from the log (in memory,
when it is open for reading only).
"""

from __future__ import annotations

import contextlib
import errno
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from pyreplog._core import (
    ENTRIES_PENDING_MAX,
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
from pyreplog.errors import CorruptError, StorageError
from pyreplog.log.file_slice import FileSlice
from pyreplog.log.index_files import IndexFiles
from pyreplog.log.layout import (
    FIRST_LOOK_SIZE,
    INDEX_ENTRY_SIZE,
    INDEX_SUFFIX,
    INT32_MAX,
    INT64_MAX,
    LOG_SUFFIX,
    LOOKUP_CHUNK_SIZE,
    TIME_INDEX_ENTRY_SIZE,
    TIME_INDEX_SUFFIX,
    join,
    segment_name,
)
from pyreplog.log.legacy import LegacyPrefix, begins_legacy
from pyreplog.log.scan import describe_damage, scan_segment
from pyreplog.log.transaction_index import TransactionIndex
from pyreplog.ports import NO_SPACE_ERRNOS, Buffer, Disk, File
from pyreplog.record import SIZE_UP_TO_MAGIC, base_offset_of, extent_of, parts_of, size_of

RESERVE_FROM: Final = 1 << 20
"""A segment smaller than this reserves no room ahead."""
RESERVE_SIZE_MAX: Final = 8 << 20
"""Bytes reserved ahead at most. What is not used is given back when the segment is closed."""
PIECE_SIZE: Final = 128 << 10
"""Bytes of a large write that are handed to the disk at a time, where a sync follows: whole pages, however large
those are."""
# What may end any step of a change between two lines.
INTERRUPTING: Final = (MemoryError, KeyboardInterrupt)


class SegmentNames:
    """The files of a segment, where they are not under their usual names (an unfinished replacement, seen by a
    reader)."""

    __slots__ = ("index", "log", "times")

    def __init__(self, base_offset: int, suffix: str = "", log: str = "") -> None:
        """``log``: the file that its batches are in, where that is not its own."""
        self.log = log or segment_name(base_offset, LOG_SUFFIX) + suffix
        self.index = segment_name(base_offset, INDEX_SUFFIX) + suffix
        self.times = segment_name(base_offset, TIME_INDEX_SUFFIX) + suffix


class Segment(SegmentEnd):
    """The segment at ``base_offset`` of the partition folder ``directory``. Belongs to one owner.

    ``size`` is the length of what counts in the log file, in bytes. ``next_offset`` is one past the last offset, or
    -1 where nobody has looked yet (:meth:`end_offset` looks). Files are opened on first use.
    """

    __slots__ = (
        "_legacy",
        "_legacy_known",
        "_names",
        "_reserve_from",
        "_times_checked",
        "_transactions",
        "_untrimmed",
        "base_offset",
        "created_ms",
        "directory",
        "disk",
        "origin",
        "synced",
        "writable",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        size: int,
        index_interval: int,
        writable: bool,
        names: SegmentNames | None = None,
        origin: int | None = None,
    ) -> None:
        """``origin``: where it begins in a log file that it is only a part of, of ``size`` bytes."""
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.next_offset = -1
        self.writable = writable
        self.origin = origin
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.bytes_since_entry = 0
        self.first_timestamp = -1
        self.first_producer = UNKNOWN_POSITION
        #: When the segment was begun, by the wall clock: decides when it is closed if its first
        #: batch has no timestamp.
        self.created_ms = 0
        self.entries_left = INT32_MAX
        # Whoever writes the log says when it is full.
        self.size_max = self.roll_offset = self.roll_timestamp = INT64_MAX
        # Index entries made since the files were last written.
        self._pending = 0
        # Where the room reserved for this file ends, and whether what is beyond its size is to be
        # given back.
        self._reserve_from = self._reserved = RESERVE_FROM
        self._untrimmed = False
        # Writes from this size on are done in pieces.
        self._pieces_from = INT64_MAX
        # Whether what a refused write left behind is still to be cut off.
        self._torn = False
        self._times_checked = False
        #: Whether all its files are on stable storage. Only kept for a log that is being written.
        self.synced = False
        self._interval = index_interval
        self._names = names or SegmentNames(base_offset)
        self._file: File | None = None
        self._indexes: IndexFiles | None = None
        self._transactions: TransactionIndex | None = None
        self._legacy: LegacyPrefix | None = None
        self._legacy_known = False

    # -- life --

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, *, index_interval: int, wall_ms: int, room: int = 0
    ) -> Segment:
        """A new, empty segment with its three files. The caller syncs the folder. Empty files there before are
        replaced.

        ``room``: bytes to reserve for the log at once; :class:`StorageError` where there is not as much.
        """
        segment = cls(disk, directory, base_offset, size=0, index_interval=index_interval, writable=True)
        path = segment.path
        before = disk.stat(path)
        if before is not None:
            if before.size:
                raise StorageError(errno.EEXIST, "a segment with content is in the way of a new one", path)
            disk.remove(path)
        segment._indexes = indexes = IndexFiles(disk, directory, base_offset)
        try:
            indexes.create_files()
            segment._file = disk.create(path, room)
        except StorageError:
            with contextlib.suppress(StorageError):  # the next opening does
                indexes.remove_files()
            raise
        segment._reserved = max(room, RESERVE_FROM)
        segment._untrimmed = room > 0
        segment.next_offset = base_offset
        segment.created_ms = wall_ms
        return segment

    @property
    def path(self) -> str:
        """Of the log file."""
        return join(self.directory, self._names.log)

    @property
    def file(self) -> File:
        """The log file, opened on first use."""
        file = self._file
        if file is None:
            file = self.disk.open(self.path, write=self.writable)
            if self.origin is not None:
                file = FileSlice(file, self.origin, self.size)
            self._file = file
        return file

    def holds(self, error: CorruptError) -> bool:
        """Whether ``error`` names a byte of this segment."""
        start = self.file_position(0)
        return error.file == self.path and error.position is not None and start <= error.position <= start + self.size

    def offset_at(self, position: int) -> int:
        """The offset behind the batches that lie before ``position``, by their headers alone."""
        offsets = self.indexes.offsets
        start = 0 if self.legacy is None else self.legacy.end
        for slot in range(offsets.count - 1, -1, -1):
            entry = offsets.entry(slot)[1]
            if start < entry < position:
                start = entry
                break
        scan = scan_segment(self.file, position, self.base_offset, position=start, check_crc=False)
        return scan.next_offset if scan.batch_count or self.legacy is None else self.legacy.next_offset

    def file_position(self, position: int) -> int:
        """``position``, one of the segment, as one of its log file: for who tells a person where to look."""
        return position + (self.origin or 0)

    @property
    def indexes(self) -> IndexFiles:
        """Both indexes, loaded and checked on first use, rebuilt from the log where they are wrong or missing."""
        indexes = self._indexes
        if indexes is None:
            indexes = self._indexes = self._load_indexes()
        return indexes

    @property
    def transactions(self) -> TransactionIndex:
        """The aborted transactions whose marker is in this segment."""
        if self._transactions is None:
            self._transactions = TransactionIndex(self.disk, self.directory, self.base_offset)
        return self._transactions

    @property
    def legacy(self) -> LegacyPrefix | None:
        """What the segment begins with in a format of Kafka before 0.11; None where there is no such thing."""
        if not self._legacy_known and self.size:
            self._legacy_known = True
            if begins_legacy(self.file, self.size):
                prefix = LegacyPrefix(lambda: self.file, self.size, self.base_offset)
                self._legacy = prefix if prefix.end else None
        return self._legacy

    @property
    def index_size(self) -> int:
        """Bytes of the indexes as they are in memory; 0 where they are not loaded."""
        indexes = self._indexes
        return 0 if indexes is None else indexes.offsets.count * INDEX_ENTRY_SIZE + indexes.times.size

    def set_scanned(self, scan: SegmentScanner, *, closed: bool) -> None:
        """Take over what a scan from position 0 found: end, timestamps, indexes."""
        if self._indexes is not None:
            self._indexes.close()
        self._indexes = IndexFiles.of_scan(self.disk, self.directory, scan, self.base_offset, closed=closed)
        self.next_offset = scan.next_offset if scan.batch_count else self.base_offset
        self.max_timestamp = scan.max_timestamp
        self.max_timestamp_offset = scan.max_timestamp_offset
        self.bytes_since_entry = scan.bytes_since_entry
        self.first_producer = scan.first_producer
        # What was reserved ahead before a crash is still there.
        self._untrimmed = not closed
        self._read_first_timestamp()

    def release(self) -> None:
        """Close the files; they are opened again when asked for. Loaded indexes are forgotten unless they have
        pending entries."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._indexes is not None:
            self._indexes.close()
            if self._indexes.pending == 0 or not self.writable:
                self._indexes = None
        if self._transactions is not None:
            self._transactions.close()

    def reset_to(self, size: int) -> None:
        """Other bytes may be there by now, ``size`` of them: what was found in those before no longer counts.
        REQUIRES that nobody writes through it."""
        self.release()
        self.size = size
        self.next_offset = self.max_timestamp = -1
        self.max_timestamp_offset = self.base_offset
        self._times_checked = False
        self._transactions = None
        self._legacy, self._legacy_known = None, False

    def forget(self) -> None:
        """Let go of files and indexes for good. A sync that is under way with one of them ends in peace."""
        self._file = None
        self._indexes = None
        self._transactions = None

    def close_for_writing(self) -> None:
        """Complete the indexes: the final time entry is made, everything is in the files, nothing is behind it. Not
        synced.

        Raises :class:`StorageError` where the folder has all of that no more: what is open here is then not what
        the next opening finds.
        """
        found = self.disk.stat(self.path)
        if found is None or found.size < self.size:
            raise StorageError(
                errno.ENOENT, "the file being written was removed, exchanged or cut by something else", self.path
            )
        if self.max_timestamp >= 0 and self.max_timestamp > self.indexes.times.last[0]:
            with contextlib.suppress(
                CorruptError
            ):  # an entry of a damaged batch, which claims to lie behind that of this timestamp
                self.indexes.times.append(self.max_timestamp, self.max_timestamp_offset)
        self.indexes.write()
        self._pending = 0
        if self._transactions is not None:
            self._transactions.write()
        if self._untrimmed or self._torn:
            self._cut(self.file)

    def repair_indexes(self) -> None:
        """Make both indexes of this closed segment anew where it was not scanned and the time index ends too early:
        power loss may have taken what was written when it was closed. Looks at what lies behind the last entry of
        the offset index alone."""
        if self.max_timestamp >= 0 or not self.size:
            return
        indexes = self.indexes
        if self._scan_tail().max_timestamp <= indexes.times.last[0]:
            return
        scan = scan_segment(self.file, self.size, self.base_offset, index_interval=self._interval, check_crc=False)
        if scan.position == self.size:  # else it is damaged, and what there is says more than a walk up to there
            indexes.close()
            self._indexes = IndexFiles.of_scan(self.disk, self.directory, scan, self.base_offset, closed=True)

    def files(self, *, closed: bool) -> list[File]:
        """What a sync of this segment covers: the log, and once it is closed the indexes."""
        return [self.file, *self.indexes.files(), *self.transactions.files()] if closed else [self.file]

    # -- writing --

    def limit_entries(self, index_size_max: int) -> None:
        """Let the index files grow to ``index_size_max`` bytes. Kafka's rule: the time index is full one entry
        early."""
        indexes = self.indexes
        self.entries_left = min(
            index_size_max // INDEX_ENTRY_SIZE - indexes.offsets.count,
            index_size_max // TIME_INDEX_ENTRY_SIZE - 1 - indexes.times.count,
        )

    def mark_torn(self) -> None:
        """What lies behind the last batch is of an append that ended half-way: it is cut off before anything else
        is written."""
        self._torn = True

    def expect_syncs(self) -> None:
        """From now on each write is followed by a sync. No room is asked for ahead: each sync of a piece of it has
        to note in the file system's journal that it is in use, which costs a tenth of it or more. And what is large
        is on its way to the disk while it is still being written."""
        self._reserve_from = self._reserved = INT64_MAX
        self._pieces_from = 2 * PIECE_SIZE

    def write_in_pieces(self, parts: Sequence[Buffer]) -> None:
        """Write ``parts`` behind what counts, and have the disk begin with each piece while the next is being
        written."""
        file, at = self.file, self.size
        left = (
            PIECE_SIZE - at % PIECE_SIZE
        )  # pieces end where pages do: none is written to again while it is on its way
        piece: list[Buffer] = []
        start = at
        for part in parts:
            view = memoryview(part).cast("B")
            while len(view) > left:
                piece.append(view[:left])
                view = view[left:]
                at += left
                file.write_at(start, piece)
                file.start_sync(start, at - start)
                piece, start, left = [], at, PIECE_SIZE
            piece.append(view)
            at += len(view)
            left -= len(view)
        file.write_at(start, piece)

    def make_ready(self, size: int) -> None:
        """What has to be done before some writes of ``size`` bytes, and not before most. See
        :class:`SegmentEnd`."""
        if self._pending >= ENTRIES_PENDING_MAX:
            self.indexes.write()
            self._pending = 0
        file = self.file
        if self._torn:
            self._cut(file)
        if self.size + size > self._reserved:
            # As much again as there is: half of the time of an append goes into finding room when
            # it is asked for piece by piece.
            ahead = size + min(self.size, RESERVE_SIZE_MAX)
            file.reserve(self.size, ahead)
            self._reserved = self.size + ahead
            self._untrimmed = True

    def take_back(self, error: StorageError) -> None:
        """A write was refused with ``error``. Half a batch must not stay: the next, shorter append would leave its
        end behind itself. Nor may the first of several that are all refused: the next start would find it whole."""
        self._torn = self._untrimmed = True
        try:
            self._cut(self.file)
        except StorageError:
            if error.errno in NO_SPACE_ERRNOS:
                raise

    @property
    def torn(self) -> bool:
        """Whether something of an append that was refused lies behind the last batch, because it could not be cut
        off."""
        return self._torn

    def _cut(self, file: File) -> None:
        """Nothing may lie behind the last batch, nor be reserved there."""
        file.truncate(self.size)
        self._reserved = self._reserve_from
        self._torn = self._untrimmed = False

    def truncate(self, offset: int, wall_ms: int) -> None:
        """Cut every batch whose last offset is at or above ``offset``. The segment then is the one being written.
        Raises :class:`CorruptError`, having cut nothing, where the first of them is damaged: it may not be what it
        says; and behind the cut, where what is now the end is."""
        position = self.position_of(offset)
        indexes = self.indexes
        if position is not None:
            self.check_batch(position)
            self.file.truncate(position)
            self.size = position
            self._reserved = self._reserve_from
            self._legacy, self._legacy_known = None, False
            if self.first_producer >= position:
                self.first_producer = UNKNOWN_POSITION  # other batches will be there
        indexes.truncate(offset)
        while indexes.offsets.count and indexes.offsets.last[1] >= self.size:
            indexes.truncate(indexes.offsets.last[0])  # of a batch that went because it reaches up to ``offset``
        self.transactions.truncate(offset)
        self._settle_tail(wall_ms)

    def check_batch(self, position: int) -> None:
        """Raises :class:`CorruptError` where what begins at ``position`` is no whole batch that fits its
        checksum."""
        legacy = self.legacy
        if legacy is not None and position < legacy.end:
            return  # what it is converted from is checked wherever it is read
        end = min(position + size_of(self.file.read_at(position, LOG_OVERHEAD)), self.size)
        scan = scan_segment(self.file, end, self.base_offset, position=position, check_crc=True)
        if scan.position != end or scan.batch_count != 1:
            raise CorruptError("a batch is damaged", file=self.path, position=position)

    def _settle_tail(self, wall_ms: int) -> None:
        """Find end, timestamps and entries anew behind the last index entry."""
        # A final time entry of a closed segment may name a batch behind the last offset entry: it
        # stays, the scan only adds.
        scan = self._scan_tail(check_crc=True)
        if scan.position != self.size:
            raise CorruptError("a batch is damaged", file=self.path, position=scan.position)
        self._take_tail(scan)
        if self.size == 0:
            self.created_ms = wall_ms

    def open_tail(self, wall_ms: int, *, check_crc: bool) -> SegmentScanner:
        """Make this the segment being written: walk what lies behind its last index entry and take over what it
        finds.

        The scan says how far the batches are good; what is behind that is the caller's to judge. With ``check_crc``
        they are checked.
        """
        scan = self._scan_tail(check_crc=check_crc)
        self._take_tail(scan)
        self.created_ms = wall_ms
        return scan

    def _scan_tail(self, *, check_crc: bool = False) -> SegmentScanner:
        """A walk over what lies behind the last entry of the offset index."""
        position = self.indexes.offsets.last[1]
        return scan_segment(
            self.file,
            self.size,
            self.base_offset,
            position=position,
            index_interval=self._interval,
            check_crc=check_crc,
        )

    def _take_tail(self, scan: SegmentScanner) -> None:
        """Take over what :meth:`_scan_tail` found."""
        self.next_offset = scan.next_offset if scan.batch_count else self.base_offset
        self.bytes_since_entry = scan.bytes_since_entry
        offsets = self.indexes.offsets
        if offsets.count and offsets.last[0] >= self.next_offset:
            self._rebuild_indexes()  # damaged, and no entry of what is appended would fit behind it
        self._find_latest(scan)
        self._read_first_timestamp()

    def _find_latest(self, scan: SegmentScanner) -> None:
        """Take over the greatest timestamp; ``scan`` is that of the tail.

        A time index that was cut does not say all that lies before. Entries that are added and know less would hide
        it from every later search, so it is walked, too.
        """
        times = self.indexes.times
        latest = times.last
        with contextlib.suppress(CorruptError):  # headers on the way are damaged: that is for who reads them
            start = (self.position_of(latest[1]) or 0) if times.count else 0
            if start < (position := self.indexes.offsets.last[1]):
                before = scan_segment(self.file, position, self.base_offset, position=start, check_crc=False)
                if before.max_timestamp > latest[0]:
                    latest = before.max_timestamp, before.max_timestamp_offset
        self.max_timestamp, self.max_timestamp_offset = latest
        if scan.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = scan.max_timestamp, scan.max_timestamp_offset

    # -- reading --

    def end_offset(self) -> int:
        """One past the last offset: known, or found by walking what lies behind the last index entry."""
        if self.next_offset < 0:
            scan = self._scan_tail()
            self.next_offset = scan.next_offset if scan.batch_count else self.base_offset
        return self.next_offset

    def largest_timestamp(self) -> int:
        """The greatest timestamp in the segment, -1 where there is none. REQUIRES that it is not being written, or
        was set up for it."""
        if self.max_timestamp < 0 and self.size and not self._times_checked:
            # The last entry of a closed segment has its greatest timestamp. One that was cut off
            # would hide records, so what lies behind the last one is looked at, once.
            indexes = self.indexes
            timestamp, offset = indexes.times.last
            position = (self.position_of(offset) or 0) if indexes.times.count else 0
            scan = scan_segment(
                self.file,
                self.size,
                self.base_offset,
                position=position,
                index_interval=self._interval,
                check_crc=False,
            )
            if scan.max_timestamp > timestamp:
                self._rebuild_indexes()
            self._times_checked = True
            times = self.indexes.times
            if times.count:
                self.max_timestamp, self.max_timestamp_offset = times.last
        return self.max_timestamp

    def position_of(self, offset: int) -> int | None:
        """Where the first batch begins whose last offset is at least ``offset``; None where there is none."""
        legacy = self.legacy
        if legacy is not None and offset < legacy.next_offset:
            return legacy.position_of(offset)
        found = self._find(offset, LOOKUP_CHUNK_SIZE)
        return None if found is None else found[0]

    def anchor(self, offset: int) -> tuple[int, int]:
        """A place not behind the batch of ``offset``, and the base offset of the batch there that the index vouches
        for."""
        offsets = self.indexes.offsets
        if offsets.count:
            entry_offset, position = offsets.lookup(offset)
            header = self.header_at(position) if position else None
            if header is not None and header[1] == entry_offset:
                return position, header[0]
        return 0, self.base_offset

    def named(self, offset: int) -> int | None:
        """Where the batch of ``offset`` begins, where an index entry names just that one: no walk is needed then,
        which damage before it would end. None where there is no such entry."""
        offsets = self.indexes.offsets
        slot = bisect_left(range(offsets.count), offset, key=lambda slot: offsets.entry(slot)[0])
        if slot == offsets.count:
            return None
        last_offset, position = offsets.entry(slot)
        header = self.header_at(position)
        return position if header is not None and header[1] == last_offset and header[0] <= offset else None

    def locate(self, offset: int, size_max: int, end_offset: int) -> tuple[int, memoryview] | None:
        """Whole batches from the one that holds ``offset`` (or the next) on, all below ``end_offset``: as many as
        fit, at least one.

        Where they lie, and they. None where no such batch begins below ``end_offset``.
        """
        legacy = self.legacy
        if legacy is not None and offset < legacy.next_offset:
            found = legacy.locate(offset, size_max, end_offset)
            if found is not None:
                # else no record of theirs is meant, whatever they claim, and what lies behind is to
                # be looked at
                return found
        # A small look first: the index is near, and what is read in front of the batch is read for
        # nothing.
        found = self._find(offset, FIRST_LOOK_SIZE)
        if found is None:
            return None
        return self.locate_at(*found, size_max, end_offset)

    def locate_at(
        self, position: int, data: memoryview, size_max: int, end_offset: int
    ) -> tuple[int, memoryview] | None:
        """As :meth:`locate`, for the batch that begins at ``position``. ``data``: what was read from there
        already."""
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
        """Whole batches from the one that begins at ``position``, at least one; empty at the end. For walking a
        segment in order."""
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

    def search_start(self, timestamp: int, start_offset: int) -> int:
        """The offset from which on :meth:`find_timestamp` searches."""
        return max(self._time_bound(timestamp), start_offset)

    def find_timestamp(
        self,
        timestamp: int,
        start_offset: int,
        end_offset: int,
        check: Callable[[int, memoryview, int], object] | None = None,
        size_max: int = MAX_BATCH_BYTES,
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record from ``start_offset`` on, below ``end_offset``, that is not older
        than ``timestamp``.

        ``check`` gets position, bytes and base offset of each batch that is looked into. What lies behind
        ``end_offset`` may be torn. ``size_max``: bytes that a compressed batch may take unpacked
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
        """Whether all below ``end_offset`` lies before the damage that ``error`` tells of."""
        if error.position is None or self.file_position(0) > error.position:
            return False
        position = max(self.anchor(end_offset - 1)[0], 0 if self.legacy is None else self.legacy.end)
        size = error.position - self.file_position(0)
        scan = scan_segment(self.file, size, self.base_offset, position=position, check_crc=False)
        return scan.batch_count > 0 and scan.next_offset >= end_offset

    def _find(self, offset: int, window: int) -> tuple[int, memoryview] | None:
        """Position of the first batch whose last offset is at least ``offset``, and up to ``window`` bytes from
        there."""
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
        """A position at or before the batch that holds ``offset``, from the index, checked against the log; not
        below ``least``."""
        offsets = self.indexes.offsets
        if not offsets.count:
            return least
        entry_offset, position = offsets.lookup(offset)
        if position <= least:
            return least
        batch = self.header_at(position)
        # All batches before one that begins at or below `offset` end below it: then the hint is
        # safe whatever else it says.
        if batch is not None and batch[0] <= offset and batch[0] <= entry_offset:
            return position
        self._rebuild_indexes()
        return max(self.indexes.offsets.lookup(offset)[1], least)

    def _time_bound(self, timestamp: int) -> int:
        """An offset that no record not older than ``timestamp`` lies before.

        One entry earlier than the index says: then a single wrong entry cannot hide a record.
        """
        times = self.indexes.times
        slot = bisect_right(range(times.count), timestamp, key=lambda slot: times.entry(slot)[0])
        return times.entry(slot - 2)[1] if slot >= 2 else self.base_offset

    def _load_indexes(self) -> IndexFiles:
        try:
            indexes = IndexFiles.load(self.disk, self.directory, self.base_offset, self._names.index, self._names.times)
            if self._indexes_match_log(indexes):
                return indexes
            indexes.close()
            return self._indexes_of_scan(indexes)
        except CorruptError:
            pass
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
        return self._indexes_of_scan()

    def _indexes_match_log(self, indexes: IndexFiles) -> bool:
        """Whether the last entry of each index names the batch it should."""
        if indexes.offsets.count:
            offset, position = indexes.offsets.last
            header = self.header_at(position)
            if header is None or not header[0] <= offset:
                return False
        if indexes.times.count:
            timestamp, offset = indexes.times.last
            position = indexes.offsets.lookup(offset)[1]
            while position < self.size:
                data = self.file.read_at(position, min(LOOKUP_CHUNK_SIZE, self.size - position))
                try:
                    at, walked = find_offset(data, offset)
                except CorruptError:
                    return True  # a walk would stop there, too, and the entries behind it lead to what is whole
                if at >= 0:
                    header = self.header_at(position + at)
                    return header is not None and header[1] == offset and header[2] == timestamp
                position += max(walked, 1)
            return False
        return True

    def _rebuild_indexes(self) -> None:
        if self._indexes is not None:
            self._indexes.close()
        self._indexes = self._indexes_of_scan(self._indexes)

    def _indexes_of_scan(self, before: IndexFiles | None = None) -> IndexFiles:
        """Both indexes anew. A walk ends at damage: what ``before`` has of the batches behind it is kept."""
        scan = scan_segment(self.file, self.size, self.base_offset, index_interval=self._interval, check_crc=False)
        indexes = IndexFiles.of_scan(self.disk, self.directory, scan, self.base_offset, closed=True)
        if self.next_offset >= 0:
            indexes.truncate(
                self.next_offset
            )  # a damaged batch may claim to lie behind the end, and what is appended would not fit
        if before is None or scan.position == self.size:
            return indexes
        known_times = {before.times.entry(slot) for slot in range(before.times.count)}
        for offset, position in map(before.offsets.entry, range(before.offsets.count)):
            header = (
                self.header_at(position) if position >= scan.position and offset > indexes.offsets.last[0] else None
            )
            if header is not None and header[1] == offset:
                indexes.offsets.append(offset, position)
                if (header[2], offset) in known_times:
                    indexes.times.append(header[2], offset)
        return indexes

    def _read_first_timestamp(self) -> None:
        header = self.header_at(0) if self.size else None
        self.first_timestamp = -1 if header is None else header[2]

    def header_at(self, position: int) -> tuple[int, int, int] | None:
        """(base offset, last offset, max timestamp) of the batch that begins at ``position``; None where none can
        begin there."""
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

    def _whole(self, data: memoryview, position: int, end_offset: int = INT64_MAX, size_max: int = INT64_MAX) -> int:
        """Bytes of the whole batches that ``data``, at byte ``position``, begins with, all below ``end_offset``."""
        try:
            return whole_batches(data, end_offset, size_max)
        except CorruptError as error:
            raise self._corrupt(error, position) from None

    def _whole_size(self, data: memoryview, position: int) -> int:
        """Bytes of the batch whose first bytes ``data`` holds; :class:`CorruptError` where they are none, or it is
        not all in the file."""
        if len(data) < SIZE_UP_TO_MAGIC:
            raise CorruptError("a batch is cut off", file=self.path, position=self.file_position(position))
        size = size_of(data)
        if size < HEADER_SIZE or position + size > self.size:
            raise CorruptError(
                "a batch's length contradicts the file", file=self.path, position=self.file_position(position)
            )
        return size

    def _step(self, walked: int, data: memoryview, position: int) -> int:
        """How far to go on when the chunk ``data`` held no answer: past what was walked over, which may lie behind
        ``data``."""
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
        """``error`` (whose position is one in a chunk that began at ``position``), with the file named."""
        at = position + (error.position or 0)
        return CorruptError(self.describe_damage(at, error.reason), file=self.path, position=self.file_position(at))

    def describe_damage(self, position: int, reason: str) -> str:
        """``reason``, or what to know about the old message format where an intact message of it is at
        ``position``."""
        return describe_damage(self.file, position, self.size, 0 if self.legacy is None else self.legacy.end, reason)
