"""The two sparse indexes of one segment and their files, ``.index`` and ``.timeindex``.

An index can only cost time: it is held in memory, read and written with absolute positions, checked against its log
before it is believed, and rebuilt where it is wrong. Entries of the segment being written reach the file in groups
and are complete once it is closed. Kafka preallocates these files and may leave zeros, or stale entries, behind the
last one: those are never believed.
"""

from __future__ import annotations

from typing import Final

from pyreplog._core import OffsetIndex, SegmentScanner, TimeIndex
from pyreplog.log.layout import (
    INDEX_ENTRY_SIZE,
    INDEX_SUFFIX,
    TIME_INDEX_ENTRY_SIZE,
    TIME_INDEX_SUFFIX,
    join,
    segment_name,
)
from pyreplog.log.snapshot import read_there
from pyreplog.ports import Disk, File

_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
_ENTRY_SIZES: Final = (INDEX_ENTRY_SIZE, TIME_INDEX_ENTRY_SIZE)


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
        # Entries that are in the files. -1: the file's content is to be replaced as a whole.
        self._written = [-1, -1]

    @classmethod
    def load(
        cls, disk: Disk, directory: str, base_offset: int, offsets_name: str = "", times_name: str = ""
    ) -> IndexFiles:
        """What the files hold, without zeros behind the last entry. :class:`CorruptError` (or StorageError) where
        they cannot be right."""
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
        """The indexes of what ``scan`` (from position 0) walked over; with ``closed`` the final time entry too."""
        files = cls(disk, directory, base_offset)
        files.offsets = OffsetIndex(base_offset, scan.offset_entries())
        entries = scan.time_entries()
        times = TimeIndex(base_offset, entries)
        # The scanner always gives the final entry of a closed segment. While one is still being
        # written, only those made together with an offset entry belong there: it is dropped again
        # unless it was one of them.
        if not closed and times.count and not _made_together(files.offsets, times):
            times = TimeIndex(base_offset, entries[:-TIME_INDEX_ENTRY_SIZE])
        files.times = times
        return files

    def create_files(self) -> None:
        """Make both (empty) files; ones there before are replaced. The caller syncs the folder."""
        self.remove_files()
        for slot, path in enumerate(self._paths):
            self._files[slot] = self._disk.create(path)
        self._written = [0, 0]

    def remove_files(self) -> None:
        """Remove those that are there."""
        self.close()
        for path in self._paths:
            if self._disk.stat(path) is not None:
                self._disk.remove(path)

    @property
    def _both(self) -> tuple[OffsetIndex | TimeIndex, ...]:
        return self.offsets, self.times

    @property
    def pending(self) -> int:
        """Offset entries that are not in the file yet."""
        return self.offsets.count - max(self._written[0], 0)

    def write(self) -> None:
        """Bring the files up to date. Not synced."""
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
        """Both files, open for writing, for a sync."""
        return [self._open(slot) for slot in range(len(_SUFFIXES))]

    def close(self) -> None:
        """Release the files. What was not written is lost, and found again by a scan."""
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
    """``data``'s whole entries without the all-zero ones at the end. A single zero entry is one where
    ``keep_only``.

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
    """Whether the last time entry is one made with an offset entry: then its batch lies at or below the last of
    those."""
    return bool(offsets.count) and times.last[1] <= offsets.last[0]
