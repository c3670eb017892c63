"""Background: one parked thread for work that no caller waits for: timers, checkpoints, batches of ``append_nowait``.

It is a daemon thread that owns nothing. The object that made it stops it, at the latest when the interpreter exits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from pyreplog.errors import NoThreadError
from pyreplog.runtime.logger import LOGGER
from pyreplog.system import is_interruption, is_no_thread

__all__ = ["LINGER_S", "Background", "release"]

LINGER_S: Final = 0.001
"""Seconds between ``arm`` and the call of ``work``. A caller that waits by itself within this time does the work, and
saves a thread switch."""


class Background:
    """Calls ``work`` from a thread of its own, which starts when first needed.

    ``work()`` returns the seconds after which it wants to be called again (None: only when woken).
    """

    __slots__ = ("_lingers_s", "_name", "_signal", "_stopping", "_thread", "_urgent", "_work", "is_armed")

    def __init__(self, name: str, work: Callable[[], float | None]) -> None:
        self._name = name
        self._work = work
        # Two binary semaphores: a raw lock costs 40 ns, an Event 600. Held = nothing to do.
        self._signal = threading.Lock()
        self._signal.acquire()
        self._urgent = threading.Lock()
        self._urgent.acquire()
        self.is_armed = False
        """Whether ``work`` will be called within about a millisecond."""
        self._lingers_s = 0.0
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self, after_s: float | None = 0.0) -> None:
        """Start the thread unless it runs. Raise :class:`NoThreadError` if the system has no thread left.

        The thread first calls ``work`` after ``after_s`` (None: never), or earlier if it is armed. REQUIRES that calls
        of this method do not overlap (the owner's lock).
        """
        if self._thread is None and not self._stopping:
            thread = self._thread = threading.Thread(target=self._run, args=(after_s,), name=self._name, daemon=True)
            try:
                thread.start()
            except BaseException as error:  # no thread is available, or Ctrl-C
                # The next call tries again. If this thread does start later, it ends at once.
                if thread.ident is None:
                    self._thread = None
                    if is_no_thread(error):
                        raise NoThreadError(f"for {self._name}") from error
                raise

    @property
    def is_running(self) -> bool:
        """Whether the thread was started, and not stopped."""
        return self._thread is not None and not self._stopping

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return self._thread is threading.current_thread()

    def arm(self) -> None:
        """Have ``work`` called within about a millisecond. Cheap if it is armed already."""
        if not self.is_armed:
            self.is_armed = True
            release(self._signal)

    def linger(self, pause_s: float) -> None:
        """Have ``work`` called again after ``pause_s``, as if armed. Only ``work`` may call this.

        A caller that arms it during the pause wakes no thread: the wake-up would cost that caller more than the rest of
        its call.
        """
        self._lingers_s = pause_s
        self.is_armed = True

    def wake(self) -> None:
        """Have ``work`` called at once."""
        release(self._urgent)
        self.arm()

    def stop(self) -> None:
        """End the thread and wait for it (unless called from it). Afterwards nothing calls ``work``."""
        self._stopping = True
        release(self._urgent)
        release(self._signal)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            try:
                thread.join()
            except RuntimeError:  # another thread is about to start it: it will end before it calls work
                pass

    def _run(self, pause: float | None) -> None:
        thread: threading.Thread | None = None
        while not self._stopping:
            try:
                if thread is None:
                    thread = threading.current_thread()
                if self._thread is not thread:
                    return
                pause = self._turn(pause)
            except Exception:  # even MemoryError: no other thread does this work
                pause = 1.0
                self.is_armed = False  # or the failed work would run, and fail, again at once
                self._signal.acquire(blocking=False)
                try:
                    LOGGER.exception("%s: unexpected failure in the background thread", self._name)
                except Exception:  # no memory for logging either
                    pass

    def _turn(self, pause: float | None) -> float | None:
        lingers_s, self._lingers_s = self._lingers_s, 0.0
        if (lingers_s or self._signal.acquire(timeout=-1 if pause is None else max(pause, 0.0))) and not self._stopping:
            self._urgent.acquire(timeout=lingers_s or LINGER_S)
        if self._stopping:
            return None
        self.is_armed = False
        return self._work()


def release(lock: threading.Lock) -> None:
    """Release ``lock``, which serves as a binary semaphore. A free lock stays free."""
    try:
        lock.release()
    except RuntimeError as error:  # it was free
        if is_interruption(error):
            raise
