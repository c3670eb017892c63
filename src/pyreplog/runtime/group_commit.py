"""GroupCommit: one sync of a log serves all threads that wait for one.

The first caller that needs durability syncs in its own thread, without the log's lock. Callers that
come during the sync wait, and the next sync covers all of them. So a lone caller pays for no thread
switch, and a crowd pays for one sync per round. A caller that begins a sync after a crowd was
released lets the others come back with their next records first, or every sync would go with half
of them (Helland, "Group Commit Timers and High Volume Transaction Systems", 1988; the wait is at
most a part of what the last sync took).

A signal handler that raises (Ctrl-C) can strike between any two calls. Therefore the right to sync
is a token, which its owner gives back by a mere assignment; ``PendingAppends.is_unsettled`` tells
the next caller that a sync ended and its results are not settled yet; and a sleeper looks again
from time to time.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pyreplog.errors import ClosedError, PyreplogError, StorageError
from pyreplog.log import Log, SyncPlan
from pyreplog.ports import NO_DESCRIPTORS_ERRNOS, File
from pyreplog.runtime.backpressure import LOOK_AGAIN_S
from pyreplog.runtime.change_fence import ChangeFence
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.pending_appends import PendingAppends

__all__ = ["GroupCommit"]

GATHER_SHARE: Final = 0.5
"""The part of the last sync's time that the next sync waits for other callers at most."""
GATHER_MAX_S: Final = 0.001


class GroupCommit:
    """Make a log durable up to an offset, with syncs that all waiting threads share.

    A failed sync poisons the log: it is never tried again, because the content of the disk is then
    unknown, and all waiting threads get an error.
    """

    __slots__ = ("_crowd", "_fence", "_gather_s", "_lock", "_on_failure", "_owner", "_pending", "_turns")

    def __init__(self, fence: ChangeFence, pending: PendingAppends, on_failure: Callable[[StorageError], None]) -> None:
        """After each sync, settle ``pending`` or call ``on_failure``, under the lock, before any waiting thread is
        released."""
        self._fence = fence
        self._lock = fence.lock
        self._pending = pending
        self._on_failure = on_failure
        self._owner: int | None = None
        self._turns: list[threading.Lock] = []
        self._crowd = 0  # how many threads slept when the last sync ended
        self._gather_s = 0.0

    def wait(self, offset: int, timeout: float | None = None) -> None:
        """Return when everything below ``offset`` is on stable storage, by syncing unless another
        thread does. REQUIRES that the lock is not held.

        Raises the StorageError of this caller's own sync, ClosedError after an earlier failure;
        TimeoutError if the syncs of others took longer than ``timeout`` seconds (a sync by this
        caller is not cut short).
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._step(offset, deadline):
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"not on stable storage after {timeout:g} s; it may still get there")

    def _step(self, offset: int, deadline: float | None) -> bool:
        """Sync, or wait for another thread's sync, once. Return whether ``offset`` was reached
        before."""
        token = threading.get_ident()  # a new object each time, which says whose it is
        turn: threading.Lock | None = None
        fence = self._fence
        try:
            with self._lock:
                if self._pending.is_unsettled:
                    self._pending.settle()
                log = fence.log
                if log.flushed_offset >= offset:
                    return True
                if (log.failure is not None or log.closed) and not fence.poisoned:
                    fence.repair()
                fence.check_log()
                if self._owner is None:
                    self._owner = token
                elif self._owner == token:
                    raise fence.lock.refuse()  # it would wait for itself
                else:
                    turn = threading.Lock()
                    turn.acquire()
                    self._turns.append(turn)
            if turn is not None:
                turn.acquire(
                    timeout=LOOK_AGAIN_S if deadline is None else max(min(LOOK_AGAIN_S, deadline - time.monotonic()), 0)
                )
            else:
                if self._crowd:
                    self._gather()
                with self._lock:
                    log = fence.log
                    plan = log.sync_plan()
                    if plan is None:
                        self._check_reachable(offset)
                if plan is not None:
                    self._sync(log, plan)
        finally:
            if self._owner is token:
                self._owner = None
                turns, self._turns = self._turns, []
                self._crowd = len(turns)
                for other in turns:
                    other.release()
        return False

    def _check_reachable(self, offset: int) -> None:
        """If there is nothing to sync: raise ClosedError unless ``offset`` can be reached all the
        same."""
        fence = self._fence
        if fence.log.closed:
            raise ClosedError(
                f"{fence.name} was interrupted, and could not be opened again so far: the next append tries it"
            )
        if offset > fence.log.end_offset:
            raise ClosedError(
                f"{fence.name} was opened again after an interruption, and ends at {fence.log.end_offset}, before"
                " the appended records"
            )

    def _gather(self) -> None:
        """Let the threads that were released together come back first, for a moment."""
        until = time.monotonic() + self._gather_s
        while len(self._turns) < self._crowd and time.monotonic() < until:
            time.sleep(0)

    def _sync(self, log: Log, plan: SyncPlan) -> None:
        started = time.monotonic()
        fence = self._fence
        try:
            for file in plan.files:
                self._sync_file(log, file)
        except StorageError as error:
            if error.errno in NO_DESCRIPTORS_ERRNOS:
                raise  # the sync did not begin, so it cannot have failed: the next one makes it durable
            with self._lock:
                log.poison(error)
                fence.poison(error)  # its log may be another one: the same files, opened again during the sync
                self._on_failure(error)
            # Without the lock, because a handler of `logging` may wait for a thread that uses the
            # log.
            LOGGER.error("%s is poisoned by a failed sync: %s", fence.name, error)
            raise
        except ClosedError:
            with self._lock:  # a thread that opens the log again holds it until that is done, or was cut short
                if log is fence.log:
                    with suppress(PyreplogError):  # it could not be opened again; the next append tries it
                        fence.repair()
                if log is fence.log:
                    self._check_reachable(plan.upto)
                    raise
            return  # the records are in the log that replaced this one
        self._gather_s = min((time.monotonic() - started) * GATHER_SHARE, GATHER_MAX_S)
        with self._lock:
            self._pending.is_unsettled = True
            log.synced(plan.upto, plan.generation, alone=True)
            self._pending.settle()

    def _sync_file(self, log: Log, file: File) -> None:
        """Sync ``file``, unless its segment was deleted and the file, whose descriptor was evicted,
        is not there any more."""
        try:
            file.sync()
        except StorageError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            with self._lock:
                plan = log.sync_plan()
            if plan is not None and file in plan.files:
                raise
