"""JournalSync: one sync of a queue's journal serves all threads that wait for one.

The first caller syncs in its own thread. Callers that come during the sync form the next group: one
of them syncs for all of it. As in :mod:`pyreplog.runtime.group_commit`, a sync that follows another
one lets the threads that were released come back first, for a part of the time that the last sync
took. The threads of a group wake one another in turn, because all at once they would only wait for
the GIL.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
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


class _SyncGroup:
    """The threads that wait for one sync."""

    __slots__ = ("count", "full", "gate", "wanted")

    def __init__(self) -> None:
        self.count = 0
        self.gate = threading.Lock()
        """Taken until the sync has ended. Each thread that takes it then gives it to the next one."""
        self.gate.acquire()
        self.wanted = 0
        self.full = threading.Lock()
        """Taken until ``wanted`` threads wait."""
        self.full.acquire()

    def join(self) -> None:
        """Count one more thread. REQUIRES the lock of the syncs."""
        self.count += 1
        if self.count == self.wanted:
            _give(self.full)


class JournalSync:
    """Make the entries of a journal durable, with syncs that all waiting threads share. Thread-safe."""

    def __init__(self, journal: QueueJournal) -> None:
        self._journal = journal
        self._lock = OwnedLock(f"the syncs of {journal.path}")
        self._synced = 0
        self._owner: int | None = None
        self._group = _SyncGroup()
        self._crowd = 0
        self._gather_s = 0.0
        self.failure: StorageError | None = None
        """The first failed sync. It is never tried again, because the content of the disk is then unknown."""

    def wait(self, count: int) -> None:
        """Return when the first ``count`` entries of this worker are on stable storage.

        Raises :class:`UnsyncedError` if a sync failed, here or in another thread.
        """
        while self._synced < count:
            self._step(count)

    def _step(self, count: int) -> None:
        """Sync, or wait for the sync of another thread, once."""
        token = threading.get_ident()  # a new object each time, which says whose it is
        done: _SyncGroup | None = None
        try:
            with self._lock:
                if self._synced >= count:
                    return
                if self.failure is not None:
                    raise UnsyncedError("an entry of the queue's journal", self.failure) from self.failure
                group = self._group
                if self._owner is None:
                    self._owner = token
                else:
                    group.join()
            if self._owner is not token:
                self._sleep(group, count)
                return
            self._gather(group)
            with self._lock:
                done, self._group = group, _SyncGroup()
                upto = self._journal.append_count
            self._sync(upto)
        finally:
            if self._owner is token:
                self._end(done)

    def _end(self, done: _SyncGroup | None) -> None:
        """Release the threads that waited for a sync, and one of those that came later: it syncs next."""
        self._owner = None
        later = self._group
        self._crowd = later.count
        if done is not None:
            self._crowd += done.count
            if done.count:
                _give(done.gate)
        if later.count:
            _give(later.gate)

    def _sleep(self, group: _SyncGroup, count: int) -> None:
        """Wait for the end of the sync of ``group``, or until this thread must sync for it."""
        # The time limit: a thread that a signal handler interrupted may have kept the gate.
        is_woken = group.gate.acquire(timeout=LOOK_AGAIN_S)
        if is_woken and (self._synced >= count or self.failure is not None or group is not self._group):
            _give(group.gate)
        else:
            with self._lock:
                group.count -= 1

    def _gather(self, group: _SyncGroup) -> None:
        """Wait until as many threads wait as the last sync released, for a limited time."""
        with self._lock:
            if group.count >= self._crowd:
                return
            group.wanted = self._crowd
        group.full.acquire(timeout=self._gather_s)

    def _sync(self, upto: int) -> None:
        started = time.monotonic()
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


def _give(lock: threading.Lock) -> None:
    """Release a lock that another thread may have released already: then one more thread looks, and sleeps again."""
    with suppress(RuntimeError):
        lock.release()
