"""The leader epoch history of one open log: memory, file, and the checksum in the mark change together.

If the disk refuses a change, the change is undone, and :attr:`EpochCache.current` is None: the file
must say the same as the memory before the next append.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyreplog.errors import StorageError
from pyreplog.log.epochs import EpochCache, write_epochs
from pyreplog.log.mark import MarkFile, MarkState
from pyreplog.ports import NO_SPACE_ERRNOS, RESOURCES_EXHAUSTED_ERRNOS, Disk
from pyreplog.values import EpochEntry


class LeaderEpochs:
    """Changes the leader epoch history of one log. Read the history in the ``EpochCache`` itself.

    Each method takes the mark state to write, as the log has it now; the method adds the checksum.
    All raise :class:`StorageError`, and the log reacts to the refusal. REQUIRES the log's lock.
    """

    __slots__ = ("_cache", "_directory", "_disk", "_mark")

    def __init__(self, cache: EpochCache, disk: Disk, directory: str, mark: MarkFile) -> None:
        self._cache = cache
        self._disk = disk
        self._directory = directory
        self._mark = mark

    def write(self, state: MarkState) -> None:
        """Write the history and its checksum, without a sync: recovery compares the two and scans if they differ."""
        self._cache.current = None
        write_epochs(self._disk, self._directory, self._cache)
        self._mark.write_state(state._replace(epochs_crc=self._cache.checksum()))
        self._cache.current = self._cache.latest

    def assign(self, epoch: int, offset: int, state: MarkState) -> None:
        """Begin ``epoch`` at ``offset``.

        If the disk refuses, the next batch tries it again: a kill would lose an epoch that is only in memory.
        """
        before = self._cache.entries
        if self._cache.assign(epoch, offset):
            self._write_or_undo(before, state)

    def cut_end(self, end_offset: int, state: MarkState) -> bool:
        """Drop the epochs that begin at or above ``end_offset``, and return whether there were any.

        If the disk refuses, they stay, and no older epoch can go on before the next try. Otherwise a kill could
        leave a file that contradicts the records that were appended after the cut.
        """
        before = self._cache.entries
        if not self._cache.truncate_from_end(end_offset):
            return False
        self._write_or_undo(before, state)
        return True

    def cut_start(self, start_offset: int, state: MarkState) -> None:
        """Forget the history below ``start_offset``, if need be in memory only."""
        is_written = self._cache.current is not None
        if not self._cache.truncate_from_start(start_offset):
            return
        try:
            self.write(state)
        except StorageError as error:
            if error.errno not in NO_SPACE_ERRNOS and error.errno not in RESOURCES_EXHAUSTED_ERRNOS:
                raise
            # Records can be deleted although the disk is full or no descriptor is left. The file
            # and its checksum in the mark stay as they were, and each reader of the file cuts it
            # again. If it lacked an epoch before, it still does.
            if is_written:
                self._cache.current = self._cache.latest

    def restore(self, before: Sequence[EpochEntry]) -> None:
        """Set the history back to ``before``, in memory: :meth:`write` must follow before the next append."""
        self._cache.restore(before)
        self._cache.current = None

    def _write_or_undo(self, before: Sequence[EpochEntry], state: MarkState) -> None:
        try:
            self.write(state)
        except BaseException:
            self.restore(before)
            raise
