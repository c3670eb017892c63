"""The decisions of a controller that keeps its whole state in one small file."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from pyreplog.controller.image import MetadataImage
from pyreplog.controller.metadata_log import RecentRecords
from pyreplog.controller.state import ControllerState, decode, encode, read_state, store
from pyreplog.errors import StorageError
from pyreplog.ports import Disk
from pyreplog.wire import MetadataRecord

__all__ = ["FileMetadataLog"]


class FileMetadataLog:
    """A :class:`MetadataLog` whose every append replaces the state file. One owner.

    ``image`` is the controller's own, to which it has applied the records that it appends.
    """

    def __init__(self, disk: Disk, folder: str, cluster_id: str, image: MetadataImage) -> None:
        self._disk = disk
        self._folder = folder
        self._cluster_id = cluster_id
        self.image = image
        self._durable = b""
        """The content of the file; empty before the first append."""
        self._recent = RecentRecords(image.offset + 1)
        self.committed_offset = -1
        """The offset of the last durable record."""
        self.failure: StorageError | None = None
        """The error after which the content of the file is not known."""

    def append(self, records: Sequence[tuple[int, MetadataRecord]]) -> int:
        """Write the file; return the last offset.

        If the disk was full, the file has its old content and :attr:`image` is read from it again.
        After any other error :attr:`failure` is set.
        """
        if not records and self._durable:
            return self.committed_offset
        data = encode(ControllerState(self._cluster_id, self.image))
        try:
            store(self._disk, self._folder, data)
        except StorageError as error:
            if self._durable:  # else the state on disk is unknown
                self._undo(error)
            raise
        self._durable = data
        self.committed_offset = self.image.offset
        self._recent.append(records)
        return self.committed_offset

    def read_from(self, offset: int) -> Sequence[tuple[int, MetadataRecord]] | None:
        """Return the records from ``offset`` on; None if they are not kept."""
        return self._recent.read_from(offset)

    @property
    def start_offset(self) -> int:
        """The first offset whose record may be read."""
        return self._recent.start_offset

    def _undo(self, error: StorageError) -> None:
        """Return to the durable state, if the file in place is known to be that state; else fail.

        That is so if the disk was full before the new file replaced the old one. A disk may also be
        full in the sync of the folder; then a kill would bring back the refused decisions.
        """
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._is_in_place():
            self.failure = error
            return
        levels = self.image.feature_levels
        self.image = decode(self._durable, self._folder).image
        self.image.feature_levels = levels

    def _is_in_place(self) -> bool:
        """Return whether the file holds the state that is known to be durable."""
        try:
            return read_state(self._disk, self._folder) == self._durable
        except StorageError:
            return False
