"""Retry: what could not be done is tried again until it can be, by whoever drives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyreplog.ports import Clock

__all__ = ["Retry"]

INTERVAL_NS: Final = 500_000_000


class Retry:
    """A machine that calls ``act`` after a while, again and again until it says True. REQUIRES a seat of its own
    with the driver, which ``act`` may give to somebody else then."""

    def __init__(self, clock: Clock, act: Callable[[], bool]) -> None:
        self._clock = clock
        self._act = act
        self._next_ns: int | None = clock.monotonic_ns() + INTERVAL_NS

    @property
    def next_wake_ns(self) -> int | None:
        """When the next trial is due; None: it is done."""
        return self._next_ns

    def poll(self, timeout_ns: int = 0) -> bool:
        """Try, where it is time. Whether anything happened. It never waits."""
        if self._next_ns is None or self._clock.monotonic_ns() < self._next_ns:
            return False
        self._next_ns = None if self._act() else self._clock.monotonic_ns() + INTERVAL_NS
        return True
