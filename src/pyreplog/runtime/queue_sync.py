"""JournalSync: one sync of a queue's journal serves all threads that wait for one.

The first caller syncs in its own thread. Callers that come during the sync wait, and the next sync covers all of them.
As in :mod:`pyreplog.runtime.group_commit`, a caller that begins a sync after a crowd was released lets the others come
back first, for a part of the time that the last sync took.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from pyreplog.errors import ClosedError, StorageError, UnsyncedError
from pyreplog.ports import NO_DESCRIPTORS_ERRNOS
from pyreplog.readers import QueueJournal
from pyreplog.runtime.backpressure import LOOK_AGAIN_S
from pyreplog.system import OwnedLock

__all__ = ["JournalSync"]

GATHER_SHARE: Final = 0.5
"""The part of the last sync's time that the next sync waits for other callers at most."""
GATHER_MAX_S: Final = 0.001


class JournalSync:
    """Make the entries of a journal durable, with syncs that all waiting threads share. Thread-safe."""

    def __init__(self, journal: QueueJournal) -> None:
        self._journal = journal
        self._lock = OwnedLock(f"the syncs of {journal.path}")
        self._synced = 0
        self._owner: int | None = None
        self._turns: list[threading.Lock] = []
        self._crowd = 0
        self._gather_s = 0.0
        self.failure: StorageError | None = None
        """The first failed sync. It is never tried again, because the content of the disk is then unknown."""

    def wait(self, count: int) -> None:
        """Return when the first ``count`` entries of this worker are on stable storage.

        Raises :class:`UnsyncedError` if a sync failed, here or in another thread.
        """
        while not self._step(count):
            pass

    def _step(self, count: int) -> bool:
        """Sync, or wait for the sync of another thread, once. Return whether ``count`` was reached before."""
        token = threading.get_ident()
        turn: threading.Lock | None = None
        try:
            with self._lock:
                if self._synced >= count:
                    return True
                if self.failure is not None:
                    raise UnsyncedError("an entry of the queue's journal", self.failure) from self.failure
                if self._owner is None:
                    self._owner = token
                else:
                    turn = threading.Lock()
                    turn.acquire()
                    self._turns.append(turn)
            if turn is not None:
                turn.acquire(timeout=LOOK_AGAIN_S)
            else:
                self._sync()
        finally:
            if self._owner is token:
                self._owner = None
                turns, self._turns = self._turns, []
                self._crowd = len(turns)
                for other in turns:
                    other.release()
        return False

    def _sync(self) -> None:
        if self._crowd:
            until = time.monotonic() + self._gather_s
            while len(self._turns) < self._crowd and time.monotonic() < until:
                time.sleep(0)
        started = time.monotonic()
        upto = self._journal.append_count
        try:
            self._journal.sync()
        except ClosedError:
            raise  # the queue was closed during the call
        except StorageError as error:
            if error.errno not in NO_DESCRIPTORS_ERRNOS:
                self.failure = error
            raise UnsyncedError("an entry of the queue's journal", error) from error
        self._gather_s = min((time.monotonic() - started) * GATHER_SHARE, GATHER_MAX_S)
        self._synced = max(self._synced, upto)
