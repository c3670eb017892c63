"""Polled: the simplest machine that a driver can drive."""

from __future__ import annotations

__all__ = ["Polled"]


class Polled:
    """A machine that only counts."""

    next_wake_ns: int | None = None

    def __init__(self) -> None:
        self.count = 0

    def poll(self, timeout_ns: int = 0) -> bool:
        """One more."""
        self.count += 1
        return True
