"""The log files of one partition's folder as a reader saw them at its last look, without a lock."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from pyreplog.errors import StorageError
from pyreplog.log.folder import FolderPlan, plan_folder
from pyreplog.log.index_cache import IndexCache
from pyreplog.log.layout import SWAP_SUFFIX, join
from pyreplog.log.overflow import find_parts, may_overflow
from pyreplog.log.segment_reader import SegmentNames, SegmentReader
from pyreplog.log.segments import Segments
from pyreplog.ports import Disk, Stat

INDEX_INTERVAL: Final = 4096


class LogFileView(NamedTuple):
    """A log file with its attributes at the last look, and its segments.

    A file is one segment, except a file of an old broker whose offsets span more than one segment can.
    """

    path: str
    found: Stat
    segments: list[SegmentReader]

    def is_still(self, found: Stat) -> bool:
        """Return whether ``found`` is the same file with the same content."""
        before = self.found
        return (found.size, found.mtime_ms, found.identity) == (before.size, before.mtime_ms, before.identity)


class LogFilePart(NamedTuple):
    """The first ``size`` bytes of the log file at ``path``, whose segment begins at ``base_offset``. A backup copies
    these bytes."""

    path: str
    base_offset: int
    size: int
    suffix: str
    """The suffix after the file's usual name, such as that of an interrupted replacement."""
    last: bool
    """Whether this is the last segment of the copy."""


class FolderView:
    """The log files in ``directory``. One thread at a time may use it.

    A writer may remove or replace files at any time. Then :meth:`look` raises :class:`StorageError`,
    and the caller calls it again.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        #: By the base offset in the file's name.
        self.files: dict[int, LogFileView] = {}
        #: All segments; None if there are none.
        self.segments: Segments[SegmentReader] | None = None
        # The names that the last look listed, and their plan; no plan if the next look must read
        # all.
        self._names: Sequence[str] = ()
        self._plan: FolderPlan | None = None
        self._index_cache = IndexCache()

    def release(self) -> None:
        """Close the files; they are opened again when they are needed."""
        if self.segments is not None:
            self.segments.close()

    def forget(self) -> None:
        """Drop all files, because the folder holds another log now."""
        self.release()
        self.files, self._plan = {}, None

    def distrust(self) -> None:
        """Make the next look read all files, because a file that the last look skipped may be gone."""
        self._plan = None

    def is_replaced(self) -> bool:
        """Return whether a closed segment has another file, or none, since the last look."""
        for _, file in sorted(self.files.items())[:-1]:
            found = self._disk.stat(file.path)
            if found is None or not file.is_still(found):
                return True
        return False

    def look(self, settled: int, *, foreign: bool) -> None:
        """List the folder again and read the files that may have changed.

        ``settled``: records below this offset cannot have changed since the last look. ``foreign``:
        there is no mark, so a file may hold offsets that span more than one segment can.
        """
        disk = self._disk
        known, self.files = self.files, {}
        before_names, before_plan = self._names, self._plan
        self._plan = None
        names_there = disk.list(self._directory)
        first = 0
        if before_plan is not None and not foreign and names_there == before_names:
            # Readers look after each commit, and a log may have thousands of segments.
            plan = before_plan
            first = self._first_unsettled(plan, known, settled)
            self.files = {base: known.pop(base) for base in plan.bases[:first]}
        else:
            plan = plan_folder(disk, self._directory, names_there)
        for base, following in zip(plan.bases[first:], [*plan.bases[first + 1 :], None], strict=False):
            names = SegmentNames(base, SWAP_SUFFIX if base in plan.swapped else "")
            path = join(self._directory, names.log)
            found = disk.stat(path)
            if found is None:
                # Other listed files may be gone too, so the caller must look again.
                self.files = {**known, **self.files}
                raise StorageError(errno.ENOENT, "a segment that the folder lists is not there", path)
            before = known.pop(base, None)
            # Records above ``settled`` may have been truncated and replaced by as many other bytes.
            # Without a mark only the file's attributes tell.
            kept = foreign or (following is not None and following <= settled)
            if not kept or before is None or before.path != path or not before.is_still(found):
                before = self._look_into(base, following, names, found, before, foreign=foreign)
            self.files[base] = before
        for gone in known.values():
            for segment in gone.segments:
                segment.release()
        segments = [segment for base in plan.bases for segment in self.files[base].segments]
        self.segments = Segments(segments, self._index_cache) if segments else None
        if not plan.drop and not plan.rename:  # else the plan depends on the content of files
            self._names, self._plan = names_there, plan

    def _first_unsettled(self, plan: FolderPlan, known: dict[int, LogFileView], settled: int) -> int:
        """Return the index of the first segment that must be read again."""
        first = max(bisect_right(plan.bases, settled) - 1, 0)
        if first:
            # If a backup was restored and written to, all files from some offset on have changed.
            # The last settled file shows that.
            last = known[plan.bases[first - 1]]
            found = self._disk.stat(last.path)
            if found is None or not last.is_still(found):
                return 0
        return first

    def _look_into(
        self,
        base: int,
        following: int | None,
        names: SegmentNames,
        found: Stat,
        before: LogFileView | None,
        *,
        foreign: bool,
    ) -> LogFileView:
        """Return the log file of ``base``, which is new or may differ from ``before``.

        ``following`` is the base offset of the next file.
        """
        disk, directory = self._disk, self._directory
        path, size = join(directory, names.log), found.size
        for segment in () if before is None else before.segments:
            segment.release()
        if before is not None and before.path == path and len(before.segments) == 1:
            segment = before.segments[0]
            segment.reset_to(size)
        else:
            segment = SegmentReader(disk, directory, base, size=size, index_interval=INDEX_INTERVAL, names=names)
        if not foreign or not may_overflow(segment, following):
            return LogFileView(path, found, [segment])
        parts = find_parts(segment.file, size, base, following)
        if len(parts) == 1:
            return LogFileView(path, found, [segment])
        segment.release()
        segments = [
            SegmentReader(
                disk,
                directory,
                part.base_offset,
                size=part.end - part.start,
                index_interval=INDEX_INTERVAL,
                names=SegmentNames(part.base_offset, log=names.log),
                origin=part.start,
            )
            for part in parts
        ]
        return LogFileView(path, found, segments)
