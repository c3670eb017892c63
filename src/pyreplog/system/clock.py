"""This machine's clock."""

from __future__ import annotations

import time

__all__ = ["SystemClock"]


class SystemClock:
    """The real :class:`~pyreplog.ports.Clock`. Any thread."""

    __slots__ = ()

    # Nanoseconds since some fixed moment; stands still while the machine sleeps, never goes back. The system's own function: it is
    # asked many times per append.
    monotonic_ns = staticmethod(time.monotonic_ns)

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; jumps when somebody sets the clock."""
        return time.time_ns() // 1_000_000
