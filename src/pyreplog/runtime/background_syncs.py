"""BackgroundSyncs: sync files while more is being written to them, so that the writer waits for the
rest alone at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from pyreplog.ports import Disk, File, SyncDone

__all__ = ["BackgroundSyncs"]


class BackgroundSyncs:
    """Sync files that are still written. Belongs to one thread; no other thread may poll ``disk``
    as long."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._news = threading.Event()
        self._open: set[int] = set()

    def begin(self, files: Sequence[File]) -> int:
        """Begin to sync the present content of ``files``. Return the token of this sync."""
        token = self._disk.submit_sync(files, self._news.set)
        self._open.add(token)
        return token

    def ended(self) -> Sequence[SyncDone]:
        """Return the syncs that ended since the last call, without waiting. Each is returned once."""
        ended = self._disk.poll()
        self._open.difference_update(done.token for done in ended)
        return ended

    def rest(self) -> Iterator[Sequence[SyncDone]]:
        """Wait for all syncs that are under way; yield them as they end."""
        while self._open:
            self._news.wait()
            self._news.clear()
            yield self.ended()
