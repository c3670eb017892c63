"""The two sparse indexes of one segment and their files, ``.index`` and ``.timeindex``.

An index can only cost time: it is held in memory, read and written with absolute positions, checked against its log before it is
believed, and rebuilt where it is wrong. Entries of the segment being written reach the file in groups and are complete once it is closed.
Kafka preallocates these files and may leave zeros, or stale entries, behind the last one: those are never believed.
"""

from __future__ import annotations

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


class IndexFiles:
    """The indexes of the segment at ``base_offset``. Belongs to the segment."""

    __slots__ = (
        "_base_offset",
        "_directory",
        "_disk",
        "_offsets_file",
        "_offsets_written",
        "_times_file",
        "_times_written",
        "offsets",
        "times",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        self._offsets_file: File | None = None
        self._times_file: File | None = None
        # Entries that are in the files. -1: the file's content is to be replaced as a whole.
        self._offsets_written = -1
        self._times_written = -1

    @classmethod
    def load(cls, disk: Disk, directory: str, base_offset: int, offsets_name: str = "", times_name: str = "") -> IndexFiles:
        """What the files hold, without zeros behind the last entry. :class:`CorruptError` (or StorageError) where they cannot be right."""
        files = cls(disk, directory, base_offset)
        offsets = read_there(disk, join(directory, offsets_name or segment_name(base_offset, INDEX_SUFFIX)), "an index")
        times = read_there(disk, join(directory, times_name or segment_name(base_offset, TIME_INDEX_SUFFIX)), "an index")
        kept_offsets = _without_zeros(offsets, INDEX_ENTRY_SIZE, keep_only=False)
        kept_times = _without_zeros(times, TIME_INDEX_ENTRY_SIZE, keep_only=True)
        files.offsets = OffsetIndex(base_offset, kept_offsets)
        files.times = TimeIndex(base_offset, kept_times)
        if len(kept_offsets) == len(offsets):
            files._offsets_written = files.offsets.count
        if len(kept_times) == len(times):
            files._times_written = files.times.count
        return files

    @classmethod
    def of_scan(cls, disk: Disk, directory: str, scan: SegmentScanner, base_offset: int, *, closed: bool) -> IndexFiles:
        """The indexes of what ``scan`` (from position 0) walked over; with ``closed`` the final time entry too."""
        files = cls(disk, directory, base_offset)
        files.offsets = OffsetIndex(base_offset, scan.offset_entries())
        entries = scan.time_entries()
        times = TimeIndex(base_offset, entries)
        # The scanner always gives the final entry of a closed segment. While one is still being written, only those made
        # together with an offset entry belong there: it is dropped again unless it was one of them.
        if not closed and times.count and not _made_together(files.offsets, times):
            times = TimeIndex(base_offset, entries[:-TIME_INDEX_ENTRY_SIZE])
        files.times = times
        return files

    def create_files(self) -> None:
        """Make both (empty) files; ones there before are replaced. The caller syncs the folder."""
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = join(self._directory, segment_name(self._base_offset, suffix))
            if self._disk.stat(path) is not None:
                self._disk.remove(path)
        self._offsets_file = self._disk.create(join(self._directory, segment_name(self._base_offset, INDEX_SUFFIX)))
        self._times_file = self._disk.create(join(self._directory, segment_name(self._base_offset, TIME_INDEX_SUFFIX)))
        self._offsets_written = self._times_written = 0

    @property
    def pending(self) -> int:
        """Offset entries that are not in the file yet."""
        return self.offsets.count - max(self._offsets_written, 0)

    def write(self) -> None:
        """Bring the files up to date. Not synced."""
        offsets, times = self._open()
        if self._offsets_written != self.offsets.count:
            start = max(self._offsets_written, 0)
            if self._offsets_written < 0:
                offsets.truncate(0)
            offsets.write_at(start * INDEX_ENTRY_SIZE, [self.offsets.data(start)])
            self._offsets_written = self.offsets.count
        if self._times_written != self.times.count:
            start = max(self._times_written, 0)
            if self._times_written < 0:
                times.truncate(0)
            times.write_at(start * TIME_INDEX_ENTRY_SIZE, [self.times.data(start)])
            self._times_written = self.times.count

    def truncate(self, offset: int) -> None:
        """Drop every entry at or above ``offset``, in the files too."""
        self.offsets.truncate(offset)
        self.times.truncate(offset)
        if self._offsets_written > self.offsets.count:
            self._open()[0].truncate(self.offsets.count * INDEX_ENTRY_SIZE)
            self._offsets_written = self.offsets.count
        if self._times_written > self.times.count:
            self._open()[1].truncate(self.times.count * TIME_INDEX_ENTRY_SIZE)
            self._times_written = self.times.count

    def files(self) -> list[File]:
        """Both files, open for writing, for a sync."""
        return list(self._open())

    def close(self) -> None:
        """Release the files. What was not written is lost, and found again by a scan."""
        for file in (self._offsets_file, self._times_file):
            if file is not None:
                file.close()
        self._offsets_file = self._times_file = None

    def _open(self) -> tuple[File, File]:
        if self._offsets_file is None:
            self._offsets_file = _open_or_create(self._disk, join(self._directory, segment_name(self._base_offset, INDEX_SUFFIX)))
        if self._times_file is None:
            self._times_file = _open_or_create(self._disk, join(self._directory, segment_name(self._base_offset, TIME_INDEX_SUFFIX)))
        return self._offsets_file, self._times_file


def _open_or_create(disk: Disk, path: str) -> File:
    return disk.open(path, write=True) if disk.stat(path) is not None else disk.create(path)


def _without_zeros(data: bytes, entry_size: int, *, keep_only: bool) -> bytes:
    """``data``'s whole entries without the all-zero ones at the end. A single zero entry is one where ``keep_only``.

    (A segment of one batch at its base offset with timestamp 0 has a time index of one zero entry; an offset index never has one.)
    """
    count = len(data) // entry_size
    zero = bytes(entry_size)
    if keep_only and data == zero:
        return data
    while count and data[(count - 1) * entry_size : count * entry_size] == zero:
        count -= 1
    return data[: count * entry_size]


def _made_together(offsets: OffsetIndex, times: TimeIndex) -> bool:
    """Whether the last time entry is one made with an offset entry: then its batch lies at or below the last of those."""
    return bool(offsets.count) and times.last[1] <= offsets.last[0]
