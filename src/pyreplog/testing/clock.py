"""A clock that stands still until it is told to move."""

from __future__ import annotations

from typing import Final

__all__ = ["SimClock"]

EPOCH_MS: Final = 1_700_000_000_000


class SimClock:
    """A :class:`~pyreplog.ports.Clock` moved by hand: no test ever sleeps.

    Monotonic time starts at one second, wall time at ``wall_ms``. ``skew_wall`` lets the wall clock jump, as an administrator or NTP
    does; timeouts must not notice.
    """

    __slots__ = ("_now_ns", "_wall_offset_ms")

    def __init__(self, wall_ms: int = EPOCH_MS) -> None:
        self._now_ns = 1_000_000_000
        self._wall_offset_ms = wall_ms - self._now_ns // 1_000_000

    def monotonic_ns(self) -> int:
        """Nanoseconds since one second before this clock was made."""
        return self._now_ns

    def wall_ms(self) -> int:
        """Milliseconds since 1970: moves with the monotonic time, plus what ``skew_wall`` added."""
        return self._now_ns // 1_000_000 + self._wall_offset_ms

    def advance(self, delta_ns: int) -> None:
        """Move on by ``delta_ns`` nanoseconds."""
        if delta_ns < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-delta_ns} ns")
        self._now_ns += delta_ns

    def advance_to(self, at_ns: int) -> None:
        """Move on to the moment ``at_ns``; a moment that is past changes nothing."""
        self._now_ns = max(self._now_ns, at_ns)

    def skew_wall(self, delta_ms: int) -> None:
        """Let the wall clock jump by ``delta_ms``, either way."""
        self._wall_offset_ms += delta_ms
