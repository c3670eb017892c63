"""This machine's clock."""

from __future__ import annotations

import time

__all__ = ["SystemClock"]


class SystemClock:
    """The real :class:`~pyreplog.ports.Clock`. Any thread."""

    __slots__ = ()

    # Nanoseconds since a fixed moment; stands still while the machine sleeps, never goes back. This
    # is the system's own function, because it is called many times per append.
    monotonic_ns = staticmethod(time.monotonic_ns)

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970 UTC; they jump when the clock is set."""
        return time.time_ns() // 1_000_000
