"""A driver's moment in which no machine moves, for as long as a test wants it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyreplog.runtime.driver import Driver

__all__ = ["still"]


@contextmanager
def still(driver: Driver) -> Iterator[None]:
    """While inside, no machine of ``driver`` moves, as in its ``alone``."""
    with driver._exclusive_guard:
        driver._exclusive_wanted = True
        driver._rouse()
        with driver._drive:
            driver._exclusive_wanted = False
            yield
        driver._pass_on()
