"""What happens to open objects when the interpreter exits, and in the child of a fork."""

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
    """Something open that owns files and a thread."""

    def close(self) -> None:
        """End it in order."""
        ...

    def _forked(self) -> None:
        """In the child of a fork: refuse everything from now on, and touch nothing."""
        ...

    def _unclosed(self) -> str | None:
        """What to call it in the warning of its not being closed before the exit; None where there
        is none to give."""
        ...


_open: dict[int, ExitClosable] = {}
_next = 0


def remember(item: ExitClosable) -> None:
    """Close ``item`` at exit unless it is forgotten before."""
    global _next
    _next += 1
    _open[_next] = item
    # What was registered last is called first: before the end of whatever was loaded for this item,
    # such as the threads that sync.
    try:
        atexit.unregister(_at_exit)
    finally:  # whatever a signal handler raises in between
        atexit.register(_at_exit)


def forget(item: ExitClosable) -> None:
    """``item`` is closed. Unknown ones are fine, and so are other threads that remember and forget
    meanwhile."""
    # A copy is made at one stroke. A list of pairs is not: for each of them a collection may begin,
    # and other threads run within it.
    for number, known in _open.copy().items():
        if known is item:
            _open.pop(number, None)


def remembered() -> list[ExitClosable]:
    """What is open, in the order in which it was opened."""
    return list(_open.values())


def end_on_sigterm() -> None:
    """Have SIGTERM end this process as Ctrl-C does: by an exception in the main thread, so that
    everything open is closed in order. Nothing happens outside of the main thread, or where the
    program sees to the signal itself."""
    import signal  # noqa: PLC0415  (a log needs it no sooner)

    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    import signal  # noqa: PLC0415  (as above)

    signal.signal(number, signal.SIG_IGN)  # once is enough: the closing is not to be interrupted
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
        except ResourceWarning as error:  # somebody wants warnings as errors: everything is closed all the same
            refused = refused or error
        try:
            item.close()
        except Exception:
            LOGGER.exception("closing at exit")
    _open.clear()
    if refused is not None:
        raise refused  # which the interpreter shows, and goes on ending


def _in_child() -> None:
    for item in list(_open.values()):
        item._forked()
    _open.clear()


os.register_at_fork(after_in_child=_in_child)
