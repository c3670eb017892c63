"""Exclusive: the moment in which a driver moves no machine. For the driver alone.

A generator that is left to the interpreter: it is closed when it is dropped, wherever Ctrl-C strikes on the way in or out of it, and then
gives its locks back. One that mypyc compiles is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyreplog.errors import ForkedError

if TYPE_CHECKING:
    from pyreplog.runtime.driver import Driver

__all__ = ["exclusive"]


@contextmanager
def exclusive(driver: Driver) -> Iterator[None]:
    """While inside, no machine of ``driver`` moves. Raises ForkedError in the child of a fork."""
    if isinstance(driver._refusal, ForkedError):
        raise driver._refusal
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
