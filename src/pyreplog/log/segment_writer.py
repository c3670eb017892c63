"""The segment being written: append behind the last batch, say when it is full, cut, close.

A closed segment of an open log is one too, because a truncation may open it for writing again.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence
from typing import ClassVar, Final

from pyreplog._core import ENTRIES_PENDING_MAX, UNKNOWN_POSITION, SegmentScanner, crc32c
from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, StorageError
from pyreplog.log.gaps import Gaps, format_gaps
from pyreplog.log.index_files import IndexFiles
from pyreplog.log.layout import (
    GAPS_SUFFIX,
    INDEX_ENTRY_SIZE,
    INT32_MAX,
    INT64_MAX,
    TIME_INDEX_ENTRY_SIZE,
    join,
    parent_of,
    segment_name,
)
from pyreplog.log.scan import scan_segment
from pyreplog.log.segment_reader import SegmentReader
from pyreplog.log.snapshot import replace_file
from pyreplog.ports import NO_SPACE_ERRNOS, Buffer, Clock, Disk, File

RESERVE_FROM: Final = 1 << 20
"""A segment smaller than this reserves no room ahead."""
RESERVE_SIZE_MAX: Final = 8 << 20
"""The most bytes reserved ahead. The unused rest is freed when the segment is closed."""
PIECE_SIZE: Final = 128 << 10
"""If a sync follows, a large write is handed to the disk in pieces of this size in bytes: whole pages."""
# These may end any step of a change between two lines.
INTERRUPTING: Final = (MemoryError, KeyboardInterrupt)


class SegmentWriter(SegmentReader):
    """A segment of an open log. Belongs to the log's owner.

    The compiled base (:class:`~pyreplog._core.SegmentEnd`) appends. It calls ``make_ready``,
    ``write_in_pieces`` and ``take_back`` of this class for the rare steps, and ``is_too_old`` if the
    age of the segment decides whether a batch fits.
    """

    __slots__ = ("_clock", "_gaps_file", "_reserve_from", "_roll_ms", "_untrimmed", "created_ms", "synced")

    opens_for_writing: ClassVar = True

    def __init__(self, disk: Disk, directory: str, base_offset: int, *, size: int, index_interval: int) -> None:
        super().__init__(disk, directory, base_offset, size=size, index_interval=index_interval)
        #: When the segment was begun, in ms by the wall clock. It decides when the segment is full
        #: if the first batch has no timestamp.
        self.created_ms = 0
        #: Whether all files of the segment are on stable storage.
        self.synced = False
        self.entries_left = INT32_MAX
        # The log sets these limits in begin_writing.
        self.size_max = self.roll_offset = self.roll_timestamp = INT64_MAX
        self._clock: Clock | None = None
        self._roll_ms = INT64_MAX
        # Where the room reserved for this file ends, and whether the file may be longer than
        # `size`.
        self._reserve_from = self._reserved = RESERVE_FROM
        self._untrimmed = False
        # The file of gaps, once a second block is written to it.
        self._gaps_file: File | None = None
        # Writes of this size and more are done in pieces.
        self._pieces_from = INT64_MAX

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, *, index_interval: int, wall_ms: int, room: int = 0
    ) -> SegmentWriter:
        """Make a new, empty segment with its three files. The caller syncs the folder.

        Empty files of that name are replaced. ``room``: bytes to reserve for the log at once;
        :class:`StorageError` if there is less room.
        """
        segment = cls(disk, directory, base_offset, size=0, index_interval=index_interval)
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
            with contextlib.suppress(StorageError):  # the next opening removes them
                indexes.remove_files()
            raise
        segment._reserved = max(room, RESERVE_FROM)
        segment._untrimmed = room > 0
        segment.next_offset = base_offset
        segment.created_ms = wall_ms
        return segment

    @property
    def is_releasable(self) -> bool:
        """Whether :meth:`release` loses nothing: no sync needs the files."""
        return self.synced

    def release(self) -> None:
        """Close the files and drop the indexes from memory, unless they have entries that are not in their files."""
        indexes = self._indexes
        if self._gaps_file is not None:
            self._gaps_file.close()
            self._gaps_file = None
        super().release()
        if indexes is not None and indexes.pending:
            self._indexes = indexes

    def forget(self) -> None:
        """Drop files and indexes for good, without closing them: a sync may still use them."""
        super().forget()
        self._gaps_file = None

    # -- when it is full --

    def begin_writing(self, config: LogConfig, clock: Clock, log_name: str) -> None:
        """Make this the segment being written, and work out when it is full. A log's settings decide.

        ``log_name`` shifts the age of the segments of different logs, by ``segment.jitter.ms``.
        """
        self.limit_entries(config.segment_index_bytes)
        self._clock = clock
        self._roll_ms = config.rolls_after_ms
        if config.segment_jitter_ms:
            # Any number will do that differs between segments: no chance is needed.
            drawn = crc32c(f"{log_name}/{self.base_offset}".encode())
            self._roll_ms -= drawn * min(config.segment_jitter_ms, config.rolls_after_ms) >> 32
        self.size_max = config.segment_bytes
        self.roll_offset = min(self.base_offset + INT32_MAX + 1, INT64_MAX)
        self.roll_timestamp = -INT64_MAX  # is_too_old sets it
        if config.durability == "sync":
            self.expect_syncs()

    def limit_entries(self, index_size_max: int) -> None:
        """Let each index file grow to ``index_size_max`` bytes.

        Kafka's rule: the time index is full one entry early.
        """
        indexes = self.indexes
        self.entries_left = min(
            index_size_max // INDEX_ENTRY_SIZE - indexes.offsets.count,
            index_size_max // TIME_INDEX_ENTRY_SIZE - 1 - indexes.times.count,
        )

    def is_too_old(self, max_timestamp: int) -> bool:
        """Return whether the segment was begun too long ago for a batch with this timestamp.

        Kafka's rule: the timestamp of the first batch decides, or the wall clock if it has none.
        """
        if self.size == 0:
            return False
        if self.first_timestamp >= 0:
            self.roll_timestamp = min(self.first_timestamp + self._roll_ms, INT64_MAX)
            return max_timestamp > self.roll_timestamp
        self.roll_timestamp = -INT64_MAX  # ask again for each batch
        return self._clock is not None and self._clock.wall_ms() - self.created_ms > self._roll_ms

    def count_on(self, before: SegmentWriter) -> None:
        """Go on with the counts of appended batches of ``before``, the segment written until now."""
        self.batches_appended = before.batches_appended
        self.records_appended = before.records_appended
        self.bytes_appended = before.bytes_appended

    # -- writing: the compiled base calls these --

    def make_ready(self, size: int) -> None:
        """Prepare a write of ``size`` bytes; most writes need no preparation."""
        if self._pending >= ENTRIES_PENDING_MAX:
            self.indexes.write()
            self._pending = 0
        file = self.file
        if self._torn:
            self._cut(file)
        if self.size + size > self._reserved:
            # As much again as there is: small reservations would take half of the time of appends.
            ahead = size + min(self.size, RESERVE_SIZE_MAX)
            file.reserve(self.size, ahead)
            self._reserved = self.size + ahead
            self._untrimmed = True

    def write_in_pieces(self, parts: Sequence[Buffer]) -> None:
        """Write ``parts`` at the end, and have the disk begin with each piece while the next is written."""
        file, at = self.file, self.size
        left = PIECE_SIZE - at % PIECE_SIZE  # pieces end where pages do, so no page is written twice
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

    def take_back(self, error: StorageError) -> None:
        """Cut off the bytes of a write that was refused with ``error``.

        Half a batch must not stay, because the next append may be shorter and leave its end behind.
        Whole ones must not stay either: the next start would find them, although they were refused.
        """
        self._torn = self._untrimmed = True
        try:
            self._cut(self.file)
        except StorageError:
            if error.errno in NO_SPACE_ERRNOS:
                raise

    @property
    def torn(self) -> bool:
        """Whether bytes of a refused append lie behind the last batch, because they could not be cut off."""
        return self._torn

    def mark_torn(self) -> None:
        """Have the bytes behind the last batch cut off before the next write: an append ended half-way."""
        self._torn = True

    def expect_syncs(self) -> None:
        """Expect a sync after each write: reserve no room, and write large batches in pieces.

        Each sync of a piece of reserved room has to note in the file system's journal that the piece
        is in use, which costs a tenth of the sync or more.
        """
        self._reserve_from = self._reserved = INT64_MAX
        self._pieces_from = 2 * PIECE_SIZE

    def _cut(self, file: File) -> None:
        """Cut off everything behind the last batch, reserved room too."""
        file.truncate(self.size)
        self._reserved = self._reserve_from
        self._torn = self._untrimmed = False

    # -- closing --

    def close_for_writing(self) -> None:
        """Complete the indexes, write them, and give reserved room back. Syncs nothing.

        Raises :class:`StorageError` if the file is no longer in the folder or is too short: the next
        opening would not find the file that is open here.
        """
        found = self.disk.stat(self.path)
        if found is None or found.size < self.size:
            raise StorageError(
                errno.ENOENT, "the file being written was removed, exchanged or cut by something else", self.path
            )
        if self.max_timestamp >= 0 and self.max_timestamp > self.indexes.times.last[0]:
            # A damaged batch may have an entry that claims a later place than this one.
            with contextlib.suppress(CorruptError):
                self.indexes.times.append(self.max_timestamp, self.max_timestamp_offset)
        self.indexes.write()
        self._pending = 0
        if self._transactions is not None:
            self._transactions.write()
        if self._untrimmed or self._torn:
            self._cut(self.file)

    def files(self, *, closed: bool) -> list[File]:
        """Return the files that a sync of this segment covers: the log and its gaps, and the indexes once it is
        ``closed``."""
        files = [self.file] if self._gaps_file is None else [self._gaps_file, self.file]
        return [*files, *self.indexes.files(), *self.transactions.files()] if closed else files

    def repair_indexes(self) -> None:
        """Rebuild both indexes if this closed segment was not scanned and its time index ends too early.

        Power loss may have taken the entries that closing wrote. Looks only behind the last entry of
        the offset index.
        """
        if self.max_timestamp >= 0 or not self.size:
            return
        indexes = self.indexes
        if self._scan_tail().max_timestamp <= indexes.times.last[0]:
            return
        scan = scan_segment(self.file, self.size, self.base_offset, index_interval=self.index_interval, check_crc=False)
        if scan.position == self.size:  # otherwise it is damaged, and the present indexes know more
            indexes.close()
            self._indexes = IndexFiles.of_scan(self.disk, self.directory, scan, self.base_offset, closed=True)

    # -- opening and cutting --

    def set_scanned(self, scan: SegmentScanner, *, closed: bool) -> None:
        """Take over the end, timestamps and indexes that a scan from position 0 found."""
        if self._indexes is not None:
            self._indexes.close()
        self._indexes = IndexFiles.of_scan(self.disk, self.directory, scan, self.base_offset, closed=closed)
        self.next_offset = scan.next_offset if scan.batch_count else self.base_offset
        self.max_timestamp = scan.max_timestamp
        self.max_timestamp_offset = scan.max_timestamp_offset
        self.bytes_since_entry = scan.bytes_since_entry
        self.first_producer = scan.first_producer
        # Room that was reserved before a crash is still there.
        self._untrimmed = not closed
        self._read_first_timestamp()

    def open_tail(self, wall_ms: int, *, check_crc: bool) -> SegmentScanner:
        """Make this the segment being written, from a walk over the batches behind its last index entry.

        The scan says how far the batches are good; the caller judges the bytes behind. With
        ``check_crc`` their checksums are checked.
        """
        scan = self._scan_tail(check_crc=check_crc)
        self._take_tail(scan)
        self.created_ms = wall_ms
        return scan

    def truncate(self, offset: int, wall_ms: int) -> None:
        """Cut every batch whose last offset is at or above ``offset``. The segment can be written then.

        Raises :class:`CorruptError` and cuts nothing if the first of them is damaged, because its
        offsets may be wrong. Raises it after the cut if the new end is damaged.
        """
        position = self.position_of(offset)
        indexes = self.indexes
        if position is not None:
            self.check_batch(position)
            self.file.truncate(position)
            self.size = position
            self._reserved = self._reserve_from
            self._forget_legacy()
            if self.first_producer >= position:
                self.first_producer = UNKNOWN_POSITION  # other batches will be there
        indexes.truncate(offset)
        while indexes.offsets.count and indexes.offsets.last[1] >= self.size:
            indexes.truncate(indexes.offsets.last[0])  # of a batch that was cut because it reaches ``offset``
        self.transactions.truncate(offset)
        self._settle_tail(wall_ms)

    # -- gaps --

    @property
    def _gaps_path(self) -> str:
        return join(self.directory, segment_name(self.base_offset, GAPS_SUFFIX))

    def add_gaps(self, bounds: Sequence[int], dropped_tombstone: int) -> None:
        """Add gaps to the file, which the batches that are written next leave. ``bounds``: start and end of each.

        A first block takes its place at once, durably. The next sync covers a later one. Raises
        :class:`StorageError`: nothing was added, unless :attr:`gaps_torn`.
        """
        gaps = self.gaps
        content = format_gaps(self.base_offset, Gaps(bounds, dropped_tombstone))
        if gaps.file_size:
            file = self._gaps_file
            if file is None:
                file = self._gaps_file = self.disk.open(self._gaps_path, write=True)
            try:
                file.write_at(gaps.file_size, [content])
            except BaseException:
                file.truncate(gaps.file_size)
                raise
        else:
            replace_file(self.disk, self._gaps_path, content, reserve_in=parent_of(self.directory))
        gaps.add(bounds, dropped_tombstone)
        gaps.file_size += len(content)

    def cut_gaps(self, offset: int, *, rewrite: bool = False) -> None:
        """Forget the gaps from ``offset`` on, where the log ends now, because other batches will be there; and a
        torn block of their file. ``rewrite``: write the rest anew in any case."""
        gaps = self.gaps
        kept = gaps.below(offset)
        found = self.disk.stat(self._gaps_path)
        if found is not None and (rewrite or kept != gaps or found.size != gaps.file_size):
            self.write_gaps(kept)
            return
        kept.file_size = gaps.file_size
        # Another object, because a pass of compaction may be reading the old one.
        self._gaps = kept

    def write_gaps(self, gaps: Gaps) -> None:
        """Replace the file of gaps, durably."""
        self._gaps_file = None  # not closed: a sync may still use it
        content = format_gaps(self.base_offset, gaps)
        replace_file(self.disk, self._gaps_path, content, reserve_in=parent_of(self.directory))
        gaps.file_size = len(content)
        self._gaps = gaps

    def refresh_gaps(self) -> bool:
        """Return False, because the gaps in memory always equal those in the file."""
        return False

    def _settle_tail(self, wall_ms: int) -> None:
        """Find the end, timestamps and index entries behind the last index entry again."""
        # The final time entry of a closed segment may name a batch behind the last offset entry. It
        # stays, because the scan only adds.
        scan = self._scan_tail(check_crc=True)
        if scan.position != self.size:
            raise CorruptError("a batch is damaged", file=self.path, position=scan.position)
        self._take_tail(scan)
        if self.size == 0:
            self.created_ms = wall_ms

    def _take_tail(self, scan: SegmentScanner) -> None:
        """Take over the result of :meth:`_scan_tail`."""
        self.next_offset = scan.next_offset if scan.batch_count else self.base_offset
        self.bytes_since_entry = scan.bytes_since_entry
        offsets = self.indexes.offsets
        if offsets.count and offsets.last[0] >= self.next_offset:
            self._rebuild_indexes()  # damaged: no later entry would fit behind it
        self._find_latest(scan)
        self._read_first_timestamp()

    def _find_latest(self, scan: SegmentScanner) -> None:
        """Take over the greatest timestamp; ``scan`` is that of the tail.

        A time index that was cut may lack the greatest timestamp. Entries that are added then would
        hide it from every later search, so the batches between are walked too.
        """
        times = self.indexes.times
        latest = times.last
        with contextlib.suppress(CorruptError):  # damaged headers: readers report them
            start = (self.position_of(latest[1]) or 0) if times.count else 0
            if start < (position := self.indexes.offsets.last[1]):
                before = scan_segment(self.file, position, self.base_offset, position=start, check_crc=False)
                if before.max_timestamp > latest[0]:
                    latest = before.max_timestamp, before.max_timestamp_offset
        self.max_timestamp, self.max_timestamp_offset = latest
        if scan.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = scan.max_timestamp, scan.max_timestamp_offset

    def _read_first_timestamp(self) -> None:
        header = self.header_at(0) if self.size else None
        self.first_timestamp = -1 if header is None else header[2]
