"""PeriodicRetry: a driven machine that tries one thing again until it succeeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyreplog.ports import Clock

__all__ = ["RETRY_NS", "PeriodicRetry"]

RETRY_NS: Final = 500_000_000


class PeriodicRetry:
    """A driven machine that calls ``act`` every half second until ``act`` returns True.

    ``act`` may then remove this machine from the driver.
    """

    def __init__(self, clock: Clock, act: Callable[[], bool]) -> None:
        self._clock = clock
        self._act = act
        self._next_ns: int | None = clock.monotonic_ns() + RETRY_NS

    @property
    def next_wake_ns(self) -> int | None:
        """The time of the next attempt; None after success."""
        return self._next_ns

    def poll(self, timeout_ns: int = 0) -> bool:
        """Call ``act`` if it is due, and return whether it was. It never waits."""
        if self._next_ns is None or self._clock.monotonic_ns() < self._next_ns:
            return False
        self._next_ns = None if self._act() else self._clock.monotonic_ns() + RETRY_NS
        return True
