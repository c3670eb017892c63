"""The two sparse indexes of one segment and their files, ``.index`` and ``.timeindex``.

An index can only cost time: it is held in memory, read and written with absolute positions, checked against its log
before it is believed, and rebuilt if it is wrong. Entries of the segment being written reach the file in groups
and are complete once it is closed. Kafka preallocates these files and may leave zeros, or stale entries, behind the
last one: those are never believed.
"""

from __future__ import annotations

import errno
from typing import Final, Protocol

from pyreplog._core import OffsetIndex, SegmentScanner, TimeIndex, find_offset
from pyreplog.errors import CorruptError, StorageError
from pyreplog.log.layout import (
    INDEX_ENTRY_SIZE,
    INDEX_SUFFIX,
    LOOKUP_CHUNK_SIZE,
    TIME_INDEX_ENTRY_SIZE,
    TIME_INDEX_SUFFIX,
    join,
    segment_name,
)
from pyreplog.log.scan import scan_segment
from pyreplog.log.snapshot import read_there
from pyreplog.ports import Disk, File

_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
_ENTRY_SIZES: Final = (INDEX_ENTRY_SIZE, TIME_INDEX_ENTRY_SIZE)


class IndexedLog(Protocol):
    """The log file of a segment. The indexes are checked against its batches, and rebuilt from them."""

    disk: Disk
    directory: str
    base_offset: int
    size: int
    next_offset: int
    index_interval: int

    @property
    def file(self) -> File:
        """The log file, open for reading."""
        ...

    def header_at(self, position: int) -> tuple[int, int, int] | None:
        """Return (base offset, last offset, max timestamp) of the batch at ``position``; None if no batch can begin
        there."""
        ...


class IndexFiles:
    """The indexes of the segment at ``base_offset``. Belongs to the segment."""

    __slots__ = ("_disk", "_files", "_paths", "_written", "offsets", "times")

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self._disk = disk
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        # Of both, in this order.
        self._paths = [join(directory, segment_name(base_offset, suffix)) for suffix in _SUFFIXES]
        self._files: list[File | None] = [None, None]
        # Entries that are in the files. -1: the next write replaces the file's content as a whole.
        self._written = [-1, -1]

    @classmethod
    def load(
        cls, disk: Disk, directory: str, base_offset: int, offsets_name: str = "", times_name: str = ""
    ) -> IndexFiles:
        """Return the content of the files, without zeros behind the last entry.

        Raises :class:`CorruptError` or :class:`StorageError` if they cannot be right.
        """
        files = cls(disk, directory, base_offset)
        offsets = read_there(disk, join(directory, offsets_name or segment_name(base_offset, INDEX_SUFFIX)), "an index")
        times = read_there(
            disk, join(directory, times_name or segment_name(base_offset, TIME_INDEX_SUFFIX)), "an index"
        )
        kept_offsets = _without_zeros(offsets, INDEX_ENTRY_SIZE, keep_only=False)
        kept_times = _without_zeros(times, TIME_INDEX_ENTRY_SIZE, keep_only=True)
        files.offsets = OffsetIndex(base_offset, kept_offsets)
        files.times = TimeIndex(base_offset, kept_times)
        if len(kept_offsets) == len(offsets):
            files._written[0] = files.offsets.count
        if len(kept_times) == len(times):
            files._written[1] = files.times.count
        return files

    @classmethod
    def of_scan(cls, disk: Disk, directory: str, scan: SegmentScanner, base_offset: int, *, closed: bool) -> IndexFiles:
        """Return the indexes of the batches of ``scan``, a scan from position 0; if ``closed``, with the final time
        entry."""
        files = cls(disk, directory, base_offset)
        files.offsets = OffsetIndex(base_offset, scan.offset_entries())
        entries = scan.time_entries()
        times = TimeIndex(base_offset, entries)
        # The scanner always adds the final time entry of a closed segment. In a segment that is
        # still written each time entry belongs to an offset entry, so a final entry without one is
        # dropped.
        if not closed and times.count and not _made_together(files.offsets, times):
            times = TimeIndex(base_offset, entries[:-TIME_INDEX_ENTRY_SIZE])
        files.times = times
        return files

    @classmethod
    def open(cls, log: IndexedLog, offsets_name: str, times_name: str) -> IndexFiles:
        """Load the indexes of ``log``, or build them from its batches if they are missing or do not match it."""
        try:
            indexes = cls.load(log.disk, log.directory, log.base_offset, offsets_name, times_name)
            if indexes.matches(log):
                return indexes
            indexes.close()
            return cls.rebuild(log, indexes)
        except CorruptError:
            pass
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
        return cls.rebuild(log)

    @classmethod
    def rebuild(cls, log: IndexedLog, before: IndexFiles | None = None) -> IndexFiles:
        """Build both indexes from the batches of ``log``.

        The walk ends at damage; the entries of ``before`` for the batches behind the damage are kept.
        """
        scan = scan_segment(log.file, log.size, log.base_offset, index_interval=log.index_interval, check_crc=False)
        indexes = cls.of_scan(log.disk, log.directory, scan, log.base_offset, closed=True)
        if log.next_offset >= 0:
            # A damaged batch may claim an offset above the end: no later entry would fit behind it.
            indexes.truncate(log.next_offset)
        if before is not None and scan.position < log.size:
            indexes._adopt(before, log, scan.position)
        return indexes

    def _adopt(self, before: IndexFiles, log: IndexedLog, position: int) -> None:
        """Take over the entries of ``before`` for batches from byte ``position`` on, if ``log`` has these batches."""
        known_times = {before.times.entry(slot) for slot in range(before.times.count)}
        for offset, at in map(before.offsets.entry, range(before.offsets.count)):
            header = log.header_at(at) if at >= position and offset > self.offsets.last[0] else None
            if header is not None and header[1] == offset:
                self.offsets.append(offset, at)
                if (header[2], offset) in known_times:
                    self.times.append(header[2], offset)

    def matches(self, log: IndexedLog) -> bool:
        """Return whether the last entry of each index names the batch that it should."""
        if self.offsets.count:
            offset, position = self.offsets.last
            header = log.header_at(position)
            if header is None or not header[0] <= offset:
                return False
        if not self.times.count:
            return True
        timestamp, offset = self.times.last
        position = self.offsets.lookup(offset)[1]
        while position < log.size:
            data = log.file.read_at(position, min(LOOKUP_CHUNK_SIZE, log.size - position))
            try:
                at, walked = find_offset(data, offset)
            except CorruptError:
                return True  # a rebuild would end here too, and would lose the entries behind
            if at >= 0:
                header = log.header_at(position + at)
                return header is not None and header[1] == offset and header[2] == timestamp
            position += max(walked, 1)
        return False

    def create_files(self) -> None:
        """Create both files, empty, in place of older ones. The caller syncs the folder."""
        self.remove_files()
        for slot, path in enumerate(self._paths):
            self._files[slot] = self._disk.create(path)
        self._written = [0, 0]

    def remove_files(self) -> None:
        """Remove the files that exist."""
        self.close()
        for path in self._paths:
            if self._disk.stat(path) is not None:
                self._disk.remove(path)

    @property
    def _both(self) -> tuple[OffsetIndex | TimeIndex, ...]:
        return self.offsets, self.times

    @property
    def pending(self) -> int:
        """The number of offset entries that are not in the file yet."""
        return self.offsets.count - max(self._written[0], 0)

    def write(self) -> None:
        """Write new entries to the files, without a sync."""
        for slot, (file, index) in enumerate(zip(self.files(), self._both, strict=True)):
            start = self._written[slot]
            if start == index.count:
                continue
            if start < 0:
                file.truncate(0)
                start = 0
            file.write_at(start * _ENTRY_SIZES[slot], [index.data(start)])
            self._written[slot] = index.count

    def truncate(self, offset: int) -> None:
        """Drop every entry at or above ``offset``, in the files too."""
        self.offsets.truncate(offset)
        self.times.truncate(offset)
        for slot, index in enumerate(self._both):
            if self._written[slot] > index.count:
                self.files()[slot].truncate(index.count * _ENTRY_SIZES[slot])
                self._written[slot] = index.count

    def files(self) -> list[File]:
        """Return both files, open for writing, for a sync."""
        return [self._open(slot) for slot in range(len(_SUFFIXES))]

    def close(self) -> None:
        """Release the files. Unwritten entries are lost; a scan finds them again."""
        for file in self._files:
            if file is not None:
                file.close()
        self._files = [None, None]

    def _open(self, slot: int) -> File:
        file = self._files[slot]
        if file is None:
            disk, path = self._disk, self._paths[slot]
            file = self._files[slot] = disk.open(path, write=True) if disk.stat(path) is not None else disk.create(path)
        return file


def _without_zeros(data: bytes, entry_size: int, *, keep_only: bool) -> bytes:
    """Return the whole entries of ``data`` without the all-zero ones at the end. With ``keep_only`` a single zero
    entry counts.

    (A segment of one batch at its base offset with timestamp 0 has a time index of one zero entry; an offset index
    never has one.)
    """
    count = len(data) // entry_size
    zero = bytes(entry_size)
    if keep_only and data == zero:
        return data
    while count and data[(count - 1) * entry_size : count * entry_size] == zero:
        count -= 1
    return data[: count * entry_size]


def _made_together(offsets: OffsetIndex, times: TimeIndex) -> bool:
    """Return whether the last time entry belongs to an offset entry: its batch then lies at or below the last offset
    entry."""
    return bool(offsets.count) and times.last[1] <= offsets.last[0]
