"""Close open objects when the interpreter exits, and disable them in the child of a fork."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from types import FrameType
from typing import Protocol

from pyreplog.runtime.logger import LOGGER

__all__ = ["ExitClosable", "end_on_sigterm", "forget", "remember", "remembered"]


class ExitClosable(Protocol):
    """An open log or cluster, which owns files and a thread."""

    def close(self) -> None:
        """Close the object in order."""
        ...

    def _forked(self) -> None:
        """Refuse every later call and touch nothing, because this process is a forked child."""
        ...

    def _unclosed(self) -> str | None:
        """Return the object's name for the warning that it was not closed before the exit; None for no warning."""
        ...


_open: dict[int, ExitClosable] = {}
_next = 0


def remember(item: ExitClosable) -> None:
    """Close ``item`` at exit unless it is forgotten before."""
    global _next
    _next += 1
    _open[_next] = item
    # atexit calls the last registered function first. So items are closed before the modules end
    # that were loaded for them, such as the threads that sync.
    try:
        atexit.unregister(_at_exit)
    finally:  # even if a signal handler raises in between
        atexit.register(_at_exit)


def forget(item: ExitClosable) -> None:
    """Do not close ``item`` at exit, because it is closed. An unknown item is ignored. Other threads may call
    :func:`remember` and :func:`forget` at the same time."""
    # dict.copy() is atomic. Making a list of the pairs is not: each new pair may start a garbage
    # collection, in which other threads run.
    for number, known in _open.copy().items():
        if known is item:
            _open.pop(number, None)


def remembered() -> list[ExitClosable]:
    """Return the open items, in the order in which they were opened."""
    return list(_open.values())


def end_on_sigterm() -> None:
    """Have SIGTERM end this process as Ctrl-C does: by an exception in the main thread, so that all open items are
    closed in order. Nothing changes if this is not the main thread, or if the program handles SIGTERM itself."""
    import signal  # noqa: PLC0415  (a log does not need it before)

    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    import signal  # noqa: PLC0415  (as above)

    signal.signal(number, signal.SIG_IGN)  # a second SIGTERM must not interrupt the closing
    raise SystemExit(128 + number)


def _at_exit() -> None:
    refused: ResourceWarning | None = None
    for item in reversed(list(_open.values())):
        try:
            about = item._unclosed()
            if about is not None:
                warnings.warn(
                    f"unclosed {about}; it is closed as the process ends", ResourceWarning, source=item, stacklevel=2
                )
        except ResourceWarning as error:  # warnings are errors: close everything first, then raise
            refused = refused or error
        try:
            item.close()
        except Exception:
            LOGGER.exception("closing at exit")
    _open.clear()
    if refused is not None:
        raise refused  # the interpreter prints it and goes on with the exit


def _in_child() -> None:
    for item in list(_open.values()):
        item._forked()
    _open.clear()


os.register_at_fork(after_in_child=_in_child)
