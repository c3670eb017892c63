"""Exceptions that a signal handler raised while our code ran. What was under way was cut short anywhere; it did not fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from types import CodeType

__all__ = ["is_ending", "is_interruption", "is_no_thread", "is_too_late"]


def is_interruption(error: BaseException) -> bool:
    """Whether a signal handler of the program's raised ``error``, such as one that puts a limit on the time a call may take.

    It then says nothing of what our code was doing, and belongs to whoever called us. Known by the handlers that are set now: a frame of
    one of them is in the traceback. One that is written in C, or was replaced meanwhile, is not known. Any thread; takes some ten
    microseconds, so ask only about what was raised. Of what the frame that asks got from C itself it is known at once: nobody's.
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
    """Whether ``error`` is Python's for a thread that cannot be started. What a handler raises within a lock of Python's may
    come out as a RuntimeError, too."""
    return is_ending(error) or (isinstance(error, RuntimeError) and str(error).startswith("can't start new thread"))


def is_ending(error: BaseException) -> bool:
    """Whether ``error`` is Python's for a thread that is not started any more since the interpreter ends (from 3.12 on)."""
    return isinstance(error, RuntimeError) and str(error).startswith("can't create new thread at interpreter shutdown")


def is_too_late(error: BaseException) -> bool:
    """Whether ``error`` is that of ``concurrent.futures`` while the interpreter ends: it takes nothing on, or cannot be loaded any more."""
    refusals = ("cannot schedule new futures after interpreter shutdown", "can't register atexit after shutdown")
    return isinstance(error, RuntimeError) and str(error).startswith(refusals)


def _handlers() -> Iterator[CodeType]:
    signal = sys.modules.get("signal")
    if signal is None:  # then nobody has set one; and to load it may be what there is no descriptor for
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
