"""Files of deleted segments: renamed to ``.deleted`` at once and removed after ``file.delete.delay.ms``.

A lock-free reader may still hold such a file or be about to open it. If the file is missing after the delay, the
reader lists the folder again. Files that a crash leaves behind are removed at the next open of the folder.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from pyreplog.errors import StorageError
from pyreplog.log.layout import DELETED_SUFFIX, INT64_MAX, SEGMENT_SUFFIXES, join, segment_name
from pyreplog.log.segment_writer import SegmentWriter
from pyreplog.ports import NO_SPACE_ERRNOS, Disk


class PendingDeletes:
    """The segment files of one partition folder that wait to be removed. Not thread-safe: call it under the log's
    lock."""

    __slots__ = ("_disk", "_waiting", "names_changed")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        # Path -> when it is due by the monotonic clock (ns), in the order of scheduling.
        self._waiting: dict[str, int] = {}
        #: Whether names changed since the folder was last synced.
        self.names_changed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def due_ns(self) -> int:
        """When the first file is due by the monotonic clock, in ns; ``INT64_MAX`` if no file waits."""
        return min(self._waiting.values(), default=INT64_MAX)

    def schedule(self, segment: SegmentWriter, due_ns: int) -> None:
        """Rename the files of ``segment`` to ``.deleted``. The first :meth:`delete_due` after ``due_ns`` removes
        them.

        A file that cannot be renamed keeps its name until it is removed. Raises the first :class:`StorageError`
        after the other files were renamed, except if the disk was full: the new name is longer, and the folder may
        need one more block for it.
        """
        segment.forget()
        failure: StorageError | None = None
        for suffix in SEGMENT_SUFFIXES:
            path = join(segment.directory, segment_name(segment.base_offset, suffix))
            try:
                if self._disk.stat(path) is None:
                    continue
                self._disk.rename(path, path + DELETED_SUFFIX)
            except StorageError as error:
                if error.errno not in NO_SPACE_ERRNOS:
                    failure = failure or error
                self._waiting[path] = due_ns
            else:
                # This rename replaced a waiting file of an earlier segment with the same base
                # offset, if there was one; its due time goes with it.
                self._waiting[path + DELETED_SUFFIX] = due_ns
            self.names_changed = True
        if failure is not None:
            raise failure

    def retire(self, segment: SegmentWriter, due_ns: int, *, kept: Sequence[str]) -> None:
        """Do as :meth:`schedule` for a segment that another one replaces, except for the files with a suffix of
        ``kept``. A file that cannot be renamed is removed at once. Raises :class:`StorageError`."""
        segment.forget()
        for suffix in SEGMENT_SUFFIXES:
            path = join(segment.directory, segment_name(segment.base_offset, suffix))
            if suffix in kept or self._disk.stat(path) is None:
                continue
            try:
                self._disk.rename(path, path + DELETED_SUFFIX)
            except StorageError:
                self._disk.remove(path)
            else:
                self._waiting[path + DELETED_SUFFIX] = due_ns
            self.names_changed = True

    def delete_unrenamed(self) -> None:
        """Remove the files that could not be renamed at once, so that a segment with the same base offset can be
        created. Raises :class:`StorageError`."""
        for path in [path for path in self._waiting if not path.endswith(DELETED_SUFFIX)]:
            self._remove(path)
            del self._waiting[path]

    def delete_due(self, now_ns: int) -> None:
        """Remove the files that are due at ``now_ns``.

        A file that cannot be removed stays and is tried again the next time. The first error is raised after all
        files were tried.
        """
        failure: StorageError | None = None
        for path in [path for path, due_ns in self._waiting.items() if due_ns <= now_ns]:
            try:
                self._remove(path)
            except StorageError as error:
                failure = failure or error
            else:
                del self._waiting[path]
        if failure is not None:
            raise failure

    def _remove(self, path: str) -> None:
        try:
            self._disk.remove(path)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
        self.names_changed = True
