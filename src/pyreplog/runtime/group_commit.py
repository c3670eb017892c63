"""GroupCommit: group commit for one log. Everyone who waits shares one sync.

The first caller that needs durability carries the sync out in its own thread, without the log's lock; who comes
meanwhile waits, and the next sync covers all of them. So a lone caller pays no thread switch, and a crowd pays one
sync per round: who begins a sync after a crowd was released gives the others a moment to come back with their next
records, or every sync would go with half of them (Helland, "Group Commit Timers and High Volume Transaction
Systems", 1988; the bound is part of what the last sync took).

A signal handler that raises (Ctrl-C) can strike between any two calls. So who syncs is a token, which its owner
takes back by a mere assignment; what a sync must be followed by is a flag, seen to by whoever comes next; and who
sleeps looks again from time to time.
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
from pyreplog.runtime.guard import Guard
from pyreplog.runtime.logger import LOGGER

__all__ = ["LOOK_AGAIN_S", "GroupCommit"]

LOOK_AGAIN_S: Final = 0.1
"""How long a sleeper trusts that it will be woken."""
GATHER_SHARE: Final = 0.5
"""Part of the time of the last sync that the next one waits for others at most."""
GATHER_MAX_S: Final = 0.001


class GroupCommit:
    """Makes a log durable up to an offset. ``wait`` takes the log's lock itself; the rest REQUIRES it.

    A failed sync poisons the log: it is never tried again (what the disk holds afterwards is unknown), and everyone
    who waits hears of it. ``mend`` opens a log again that ended half-way through a change, if it can (see
    :meth:`replace_log`); ``after_sync`` and ``after_failure`` run before anyone is released. All three are called
    under the lock.
    """

    __slots__ = (
        "_after_failure",
        "_after_sync",
        "_crowd",
        "_failed",
        "_gather_s",
        "_guard",
        "_lock",
        "_log",
        "_mend",
        "_name",
        "_owner",
        "_turns",
        "_unfinished",
    )

    def __init__(
        self,
        log: Log,
        name: str,
        guard: Guard,
        mend: Callable[[], None],
        after_sync: Callable[[], None],
        after_failure: Callable[[StorageError], None],
    ) -> None:
        self._log = log
        self._name = name
        self._guard = guard
        self._lock = guard.lock
        self._mend = mend
        self._after_sync = after_sync
        self._after_failure = after_failure
        self._owner: int | None = None
        self._turns: list[threading.Lock] = []
        self._unfinished = False
        self._failed: StorageError | None = None
        self._crowd = 0  # how many slept when the last sync ended
        self._gather_s = 0.0

    @property
    def failure(self) -> Exception | None:
        """What poisoned or ended the log: a sync here, or a write of which the log itself heard."""
        return self._failed or self._log.failure

    @property
    def poisoned(self) -> bool:
        """Whether nobody knows what the disk holds: the rest of what ends a log, such as no memory half-way through
        a change, an opening puts right at once."""
        return self._failed is not None or self._log.poisoned

    def replace_log(self, log: Log) -> None:
        """Go on with ``log``: the same partition, opened again. A sync of the former one that is under way counts
        for nothing."""
        self._log = log
        self._unfinished = True

    def check(self) -> None:
        """Raise ClosedError, with its cause, after a sync or a write failed, or the log ended otherwise."""
        failure = self.failure
        if failure is not None:
            if not self.poisoned:
                raise ClosedError(
                    f"{self._name} has ended with an earlier failure ({failure}): close the log and open it again"
                ) from failure
            raise ClosedError(
                f"{self._name} is poisoned by an earlier failure ({failure}). What the disk holds is unknown: "
                "close the log and open it again, which verifies it"
            ) from failure

    def wait(self, offset: int, timeout: float | None = None) -> None:
        """Return when everything below ``offset`` is on stable storage, by syncing if nobody else does. REQUIRES
        that the lock is not held.

        Raises the StorageError of this caller's own sync, ClosedError after an earlier failure; TimeoutError when
        others took longer than ``timeout`` seconds (a sync that this caller carries out is not cut short).
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._step(offset, deadline):
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"not on stable storage after {timeout:g} s; it may still get there")

    def _step(self, offset: int, deadline: float | None) -> bool:
        """Sync, or wait for whoever does, once. Whether ``offset`` is reached."""
        token = threading.get_ident()  # a new object each time, which says whose it is
        turn: threading.Lock | None = None
        try:
            with self._lock:
                if self._unfinished:
                    self._finish()
                if self._log.flushed_offset >= offset:
                    return True
                if (self._log.failure is not None or self._log.closed) and not self.poisoned:
                    self._mend()
                self.check()
                if self._owner is None:
                    self._owner = token
                elif self._owner == token:
                    raise self._guard.refuse()  # it would wait for itself
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
                    log = self._log
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
        """Where there is nothing to sync: raise ClosedError unless ``offset`` can be reached all the same."""
        log = self._log
        if log.closed:
            raise ClosedError(
                f"{self._name} was interrupted, and could not be opened again so far: the next append tries it"
            )
        if offset > log.end_offset:
            raise ClosedError(
                f"{self._name} was opened again after an interruption, and ends at {log.end_offset}, before what was"
                " appended"
            )

    def _gather(self) -> None:
        """Let those who were released together come back first, for a moment."""
        until = time.monotonic() + self._gather_s
        while len(self._turns) < self._crowd and time.monotonic() < until:
            time.sleep(0)

    def _sync(self, log: Log, plan: SyncPlan) -> None:
        started = time.monotonic()
        try:
            for file in plan.files:
                self._sync_file(log, file)
        except StorageError as error:
            if error.errno in NO_DESCRIPTORS_ERRNOS:
                raise  # nothing was tried that could have failed: the next one makes it durable
            with self._lock:
                self._failed = error
                log.poison(error)
                if self._log is not log:  # the same files, opened again meanwhile: what their next opening must know
                    self._log.poison(error)
                self._after_failure(error)
            LOGGER.error(
                "%s is poisoned by a failed sync: %s", self._name, error
            )  # a handler may wait for who uses the log
            raise
        except ClosedError:
            with self._lock:  # whoever opens the log again has it until it is there, or was cut short
                if log is self._log:
                    with suppress(PyreplogError):  # it could not be opened again, and the next append tries it
                        self._mend()
                if log is self._log:
                    self._check_reachable(plan.upto)
                    raise
            return  # what is to be synced is in the log that was opened in its place
        self._gather_s = min((time.monotonic() - started) * GATHER_SHARE, GATHER_MAX_S)
        with self._lock:
            self._unfinished = True
            log.synced(plan.upto, plan.generation, alone=True)
            self._finish()

    def _sync_file(self, log: Log, file: File) -> None:
        """What went meanwhile, with its segment, and had given its descriptor up is not to be found any more, and
        need not be."""
        try:
            file.sync()
        except StorageError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            with self._lock:
                plan = log.sync_plan()
            if plan is not None and file in plan.files:
                raise

    def _finish(self) -> None:
        self._after_sync()
        self._unfinished = False
