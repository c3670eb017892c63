"""Files of segments that are no part of the log any more: renamed to ``.deleted`` and removed a while later.

Who reads without a lock may be on the way to such a file, or have it open; after the delay it looks again at the
folder. What a crash leaves is removed when the folder is opened the next time.
"""

from __future__ import annotations

import errno

from pyreplog.errors import StorageError
from pyreplog.log.layout import DELETED_SUFFIX, INT64_MAX, SEGMENT_SUFFIXES, join, segment_name
from pyreplog.log.segment_writer import SegmentWriter
from pyreplog.ports import NO_SPACE_ERRNOS, Disk


class PendingDeletes:
    """Of one partition folder. Belongs to the log's owner."""

    __slots__ = ("_disk", "_waiting", "names_changed")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        # When each path is due by the monotonic clock, in the order of burial.
        self._waiting: dict[str, int] = {}
        #: Whether names changed since the folder was last synced.
        self.names_changed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def due_ns(self) -> int:
        """When the first file is to go, by the monotonic clock; the end of time where none is."""
        return min(self._waiting.values(), default=INT64_MAX)

    def schedule(self, segment: SegmentWriter, due_ns: int) -> None:
        """Take the files of ``segment`` out of the log; they go for good once ``due_ns`` has come and
        :meth:`delete_due` is called.

        Raises :class:`StorageError` where a file could not be renamed, having done the rest: that one is removed
        when its time comes. Where it is only for lack of room (the new name is longer, and a folder may need a
        block for it) that is all there is to it.
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
                # One of an earlier segment of this name went: its time is over, and is not this
                # one's.
                self._waiting[path + DELETED_SUFFIX] = due_ns
            self.names_changed = True
        if failure is not None:
            raise failure

    def delete_unrenamed(self) -> None:
        """Remove at once what could not be renamed, so that the log may begin anew where it was. Raises
        :class:`StorageError`."""
        for path in [path for path in self._waiting if not path.endswith(DELETED_SUFFIX)]:
            self._remove(path)
            del self._waiting[path]

    def delete_due(self, now_ns: int) -> None:
        """Remove the files whose time has come. One that cannot be removed is tried again the next time; the first
        error is raised, after all had their turn."""
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
