"""A driver's moment in which no machine moves, for as long as a test wants it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyreplog.runtime.driver import Driver

__all__ = ["still"]


@contextmanager
def still(driver: Driver) -> Iterator[None]:
    """While inside, no machine of ``driver`` moves, as in its ``alone``."""
    with driver._exclusive:
        driver._exclusive_wanted = True
        driver._wake_driver()
        with driver._drive:
            driver._is_driven = True
            driver._exclusive_wanted = False
            try:
                yield
            finally:
                driver._is_driven = False
        driver._hand_over()
