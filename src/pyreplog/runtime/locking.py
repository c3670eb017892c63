"""Waiting for the lock of a log or a cluster that another opening holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from pyreplog.config import check_seconds
from pyreplog.errors import LockedError

__all__ = ["LockWait", "cluster_wait", "log_wait", "reader_wait"]

PAUSE_MIN_S: Final = 0.001
PAUSE_MAX_S: Final = 0.05
"""The longest pause between two attempts. Locks are polled because the system has no wait for a file lock with a
timeout: the calls that block (``F_OFD_SETLKW``, ``flock``) end only with the lock or a signal, and a thread in one of
them cannot be cancelled."""

T = TypeVar("T")


class LockWait:
    """The time that one opening waits for locks. All locks that it takes share this time."""

    def __init__(
        self,
        name: str,
        lock_timeout: object,
        reading: str = "read it with mode='r'",
        held: str = "is already open for writing",
    ) -> None:
        """``name``, ``reading`` and ``held`` are texts for the error: the name of the locked log or cluster, how to
        read it all the same, and what its holder does. Raises :class:`ConfigError` if ``lock_timeout`` is neither None
        nor a number of seconds from 0."""
        self._name = name
        self._reading = reading
        self._held = held
        self._timeout_s = check_seconds("lock_timeout", lock_timeout)
        self._end_s = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        self._pause_s = PAUSE_MIN_S

    def pause(self) -> float | None:
        """Return the seconds until the next attempt; None if the time is over."""
        pause, self._pause_s = self._pause_s, min(self._pause_s * 2, PAUSE_MAX_S)
        if self._end_s is None:
            return pause
        left = self._end_s - time.monotonic()
        return min(pause, left) if left > 0 else None

    def refusal(self, error: LockedError) -> LockedError:
        """Return a new LockedError with the file and the holder of ``error``, for this opening as a whole. Raise it
        outside ``except``, so that it has no context."""
        return LockedError(
            error.filename,
            error.holder,
            self._name,
            reading=self._reading,
            held=self._held,
            waited_s=self._timeout_s or 0,
        )

    def call(self, attempt: Callable[[], T]) -> T:
        """Return ``attempt()``. Call it again until it does not raise :class:`LockedError`, or the time is over.

        The pauses end early if a signal handler raises, as that of Ctrl-C does.
        """
        while True:
            try:
                return attempt()
            except LockedError as error:
                refusal = self.refusal(error)
            pause = self.pause()
            if pause is None:
                try:
                    raise refusal
                finally:
                    del refusal  # or this frame and the error would keep each other alive
            time.sleep(pause)


def log_wait(folder: str, lock_timeout: object) -> LockWait:
    """Return the wait of ``open_log`` for the log in ``folder``."""
    return LockWait(f"the log {folder!r}", lock_timeout)


def cluster_wait(folder: str, lock_timeout: object) -> LockWait:
    """Return the wait of ``Cluster`` for the locks of the cluster in ``folder`` and of its nodes."""
    return LockWait(f"the cluster {folder!r}", lock_timeout, "read its topics with Cluster(path, mode='r')")


def reader_wait(name: str, lock_timeout: object) -> LockWait:
    """Return the wait of a named reader for its name."""
    return LockWait(f"the named reader {name!r}", lock_timeout, "use another name", "is already open")
