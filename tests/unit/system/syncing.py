"""A stand-in for the system's own sync, below everything that syncs: also below the threads that know nothing of
Python."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from typing import Any

from pyreplog._core import _platform

PATIENCE_S = 20.0

_callbacks: list[Any] = []  # for good: a thread of a test that failed may still be in one


@contextlib.contextmanager
def syncs_by(call: Callable[[int], int]) -> Iterator[None]:
    """Inside, ``call`` is asked to sync a descriptor, in whichever thread: 0 or an errno. REQUIRES that nobody
    syncs at either end."""
    before = _platform.lib.rl_sync_call
    _callbacks.append(_platform.ffi.callback("int(int)", call))
    _platform.lib.rl_sync_call = _callbacks[-1]
    try:
        yield
    finally:
        _platform.lib.rl_sync_call = before


class Kernel:
    """Syncs as Linux does, where nothing is lost but what :meth:`lose` says: of that it tells once, and then says
    that all is well.

    Between that answer and its way out of the system there is a moment, which lasts until ``go`` is set.
    """

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.told = threading.Semaphore(0)
        """Released when somebody was answered that something was lost, and has not heard it yet."""
        self.go = threading.Event()
        self._lost: dict[int, list[int]] = {}

    def lose(self, fd: int, *errors: int) -> None:
        """What was written to ``fd`` is gone, and it has not been told of it. More than one error: are told one
        after another."""
        self._lost[fd] = [*errors] or [errno.EIO]

    def __call__(self, fd: int) -> int:
        """A sync of ``fd``."""
        self.calls.append(fd)
        errors = self._lost.get(fd)
        if not errors:
            return 0
        error = errors.pop(0)
        if error != errno.EINTR:
            self.told.release()
            if not self.go.wait(PATIENCE_S):
                return errno.ETIMEDOUT
        return error
