"""Recognise exceptions of signal handlers, and those of an interpreter that starts no thread.

An exception of a signal handler interrupted an operation anywhere; the operation did not fail. The
rooms that cannot import this module ask :func:`pyreplog.errors.is_interruption`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from types import CodeType
from typing import Final

from pyreplog.errors import install_interruption_check

__all__ = ["is_interruption", "is_no_thread", "is_too_late"]

_NO_THREAD_TEXTS: Final = ("can't start new thread", "can't create new thread at interpreter shutdown")
_TOO_LATE_TEXTS: Final = (
    "cannot schedule new futures after interpreter shutdown",
    "can't register atexit after shutdown",
)


def is_interruption(error: BaseException) -> bool:
    """Return whether one of the program's signal handlers raised ``error``.

    A handler may, for example, limit the time of a call. Such an error says nothing about the work
    of our code; it must reach our caller. It is recognised by the handlers that are set now: the
    traceback has a frame of one of them. A handler that is written in C, or was replaced since, is
    not recognised. Any thread. It takes some ten microseconds, so call it only for raised errors.
    If the calling frame got the error from C itself, the answer is False at once.
    """
    trace = error.__traceback__
    if trace is None or (trace.tb_next is None and trace.tb_frame is sys._getframe(1)):
        return False
    handlers = frozenset(_handlers())
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def is_no_thread(error: BaseException) -> bool:
    """Return whether ``error`` means that no thread can be started: at a limit, or at interpreter exit.

    The text decides, because an exception that a handler raises within a lock of Python may come
    out as a RuntimeError, too.
    """
    return isinstance(error, RuntimeError) and str(error).startswith(_NO_THREAD_TEXTS)


def is_too_late(error: BaseException) -> bool:
    """Return whether ``concurrent.futures`` raised ``error`` because the interpreter ends.

    It then accepts no work, or cannot be loaded any more.
    """
    return isinstance(error, RuntimeError) and str(error).startswith(_TOO_LATE_TEXTS)


def _handlers() -> Iterator[CodeType]:
    signal = sys.modules.get("signal")
    if signal is None:  # then no handler is set; and there may be no descriptor left to load it
        return
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        while isinstance(handler, partial):
            handler = handler.func
        if callable(handler):
            for found in (handler, getattr(handler, "__func__", None), type(handler).__call__):
                code = getattr(found, "__code__", None)
                if isinstance(code, CodeType):
                    yield code


install_interruption_check(is_interruption)
