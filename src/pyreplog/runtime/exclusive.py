"""Exclusive: the moment in which a driver moves no machine. For the driver alone.

A generator that is left to the interpreter: it is closed when it is dropped, wherever Ctrl-C strikes on the way in or out of it, and then
gives its locks back. One that mypyc compiles is not. While the exception is on its way its traceback holds the generator: whoever wants
the next such moment then, to clean up, closes it first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import GeneratorType
from typing import TYPE_CHECKING

from pyreplog.errors import ForkedError, again

if TYPE_CHECKING:
    from pyreplog.runtime.driver import Driver

__all__ = ["exclusive", "is_parents"]


def is_parents(driver: Driver) -> bool:
    """Whether this is the child of a fork, and ``driver`` with all that it drives its parent's."""
    return isinstance(driver._refusal, ForkedError)


@contextmanager
def exclusive(driver: Driver) -> Iterator[None]:
    """While inside, no machine of ``driver`` moves. Raises ForkedError in the child of a fork."""
    if is_parents(driver):
        assert driver._refusal is not None, "a ForkedError"
        raise again(driver._refusal)
    error = sys.exception()
    if error is not None:
        _let_go(error)
    with driver._exclusive_guard:
        driver._exclusive_wanted = True
        try:
            if driver._parked:
                driver._rouse()
            with driver._drive:
                driver._exclusive_wanted = False
                yield
        finally:
            driver._exclusive_wanted = False
            driver._pass_on()


def _let_go(error: BaseException | None) -> None:
    """End the moments of which ``error``, and what it followed upon, struck the way in or out."""
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            generator = getattr(trace.tb_frame.f_locals.get("self"), "gen", None)
            if isinstance(generator, GeneratorType) and generator.gi_code is _CODE and not generator.gi_running:
                generator.close()
            trace = trace.tb_next
        error = error.__context__


_CODE = exclusive.__wrapped__.__code__  # type: ignore[attr-defined]
