"""Syncer: group commit for one log. Everyone who waits shares one sync.

The first caller that needs durability carries the sync out in its own thread, without the log's lock; who comes meanwhile waits,
and the next sync covers all of them. So a lone caller pays no thread switch, and a crowd pays one sync per round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pyreplog.errors import ClosedError, StorageError
from pyreplog.log import Log

__all__ = ["Syncer", "acquire_surely"]


class Syncer:
    """Makes a log durable up to an offset. All methods REQUIRE ``lock``, which is given up while a sync is under way.

    A failed sync poisons the log: it is never tried again (what the disk holds afterwards is unknown), and everyone who
    waits hears of it. ``after_sync`` and ``after_failure`` run under the lock before anyone is released.
    """

    __slots__ = ("_after_failure", "_after_sync", "_lock", "_log", "_syncing", "_turns", "count", "failure")

    def __init__(
        self, log: Log, lock: threading.Lock, after_sync: Callable[[], None], after_failure: Callable[[StorageError], None]
    ) -> None:
        self._log = log
        self._lock = lock
        self._turns: list[threading.Lock] = []
        self._after_sync = after_sync
        self._after_failure = after_failure
        self._syncing = False
        self.failure: StorageError | None = None
        self.count = 0

    def replace_log(self, log: Log) -> None:
        """Go on with ``log``: the same partition, opened again. REQUIRES that no sync is under way (:meth:`drain`)."""
        self._log = log

    def wait(self, offset: int, timeout: float | None = None) -> None:
        """Return when everything below ``offset`` is on stable storage, by syncing if nobody else does.

        Raises the StorageError of this caller's own sync, ClosedError after an earlier failure; TimeoutError when others took longer
        than ``timeout`` seconds (a sync that this caller carries out is not cut short).
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._log.flushed_offset < offset:
            self.check()
            if not self._syncing:
                self._sync()
                continue
            pause = None if deadline is None else deadline - time.monotonic()
            if pause is not None and pause <= 0:
                raise TimeoutError(f"not on stable storage after {timeout} s; it may still get there")
            self._wait_for_others(pause)

    def check(self) -> None:
        """Raise ClosedError, with its cause, after a sync failed."""
        if self.failure is not None:
            raise ClosedError(
                f"the log is poisoned by a failed sync ({self.failure}). What the disk holds is unknown: "
                "close the log and open it again, which verifies it"
            ) from self.failure

    def drain(self) -> None:
        """Wait until no sync is under way."""
        while self._syncing:
            self._wait_for_others(None)

    def _wait_for_others(self, pause: float | None) -> None:
        turn = threading.Lock()
        turn.acquire()
        self._turns.append(turn)
        try:
            self._lock.release()  # inside, so that Ctrl-C right after it finds the way to the line below
            turn.acquire(timeout=-1 if pause is None else pause)
        finally:
            acquire_surely(self._lock)

    def _sync(self) -> None:
        log = self._log
        plan = log.sync_plan()
        if plan is None:
            return
        self._syncing = True
        failure: StorageError | None = None
        finished = False
        try:
            self._lock.release()  # inside: see above
            for file in plan.files:
                file.sync()
            finished = True
        except StorageError as error:
            failure = error
        finally:
            acquire_surely(self._lock)
            self._syncing = False
            turns, self._turns = self._turns, []
            for turn in turns:
                turn.release()
            # Neither finished nor failed: a signal handler raised (Ctrl-C). Nothing is known, and the next in line syncs again.
            if finished:
                self.count += 1
                log.synced(plan.upto, plan.generation)
                self._after_sync()
            elif failure is not None:
                self.failure = failure
                log.poison(failure)
                self._after_failure(failure)
        if failure is not None:
            raise failure


def acquire_surely(lock: threading.Lock) -> None:
    """Take ``lock``, then raise what interrupted the waiting: whoever gave a lock up inside ``with`` must hold it again whatever
    happens."""
    interrupted: BaseException | None = None
    while True:
        try:
            lock.acquire()
            break
        except BaseException as error:  # raised below, with the lock held
            interrupted = error
    if interrupted is not None:
        raise interrupted
