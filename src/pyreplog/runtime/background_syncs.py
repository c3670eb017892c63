"""EarlySyncs: the disk is at work while more is being written, so that whoever is done writing waits for the rest
alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from pyreplog.ports import Disk, File, SyncDone

__all__ = ["BackgroundSyncs"]


class BackgroundSyncs:
    """Syncs of files that are still written. Belongs to one thread, which alone may poll ``disk`` meanwhile."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._news = threading.Event()
        self._open: set[int] = set()

    def begin(self, files: Sequence[File]) -> int:
        """Begin to sync what is in ``files`` by now; the token by which its end is told."""
        token = self._disk.submit_sync(files, self._news.set)
        self._open.add(token)
        return token

    def ended(self) -> Sequence[SyncDone]:
        """Those that ended since, at once. Each is told once, whatever becomes of those before it."""
        ended = self._disk.poll()
        self._open.difference_update(done.token for done in ended)
        return ended

    def rest(self) -> Iterator[Sequence[SyncDone]]:
        """All that did not end yet, as they do."""
        while self._open:
            self._news.wait()
            self._news.clear()
            yield self.ended()
