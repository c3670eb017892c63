"""A clock that stands still until it is told to move."""

from __future__ import annotations

from typing import Final

__all__ = ["MachineClock", "SimClock"]

EPOCH_MS: Final = 1_700_000_000_000


class SimClock:
    """A :class:`~pyreplog.ports.Clock` moved by hand: no test ever sleeps.

    Monotonic time starts at one second, wall time at ``wall_ms``. ``skew_wall`` lets the wall clock jump, as an
    administrator or NTP does; timeouts must not notice.
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
        if at_ns > self._now_ns:
            self._now_ns = at_ns

    def skew_wall(self, delta_ms: int) -> None:
        """Let the wall clock jump by ``delta_ms``, either way."""
        self._wall_offset_ms += delta_ms


class MachineClock:
    """One machine's :class:`~pyreplog.ports.Clock`: the world's time, and a wall clock of its own that may jump."""

    __slots__ = ("_skew_ms", "_time")

    def __init__(self, time: SimClock) -> None:
        self._time = time
        self._skew_ms = 0

    def monotonic_ns(self) -> int:
        """As the world has it."""
        return self._time.monotonic_ns()

    def wall_ms(self) -> int:
        """As the world has it, plus what :meth:`skew_wall` added here."""
        return self._time.wall_ms() + self._skew_ms

    def skew_wall(self, delta_ms: int) -> None:
        """Let this machine's wall clock jump by ``delta_ms``, either way."""
        self._skew_ms += delta_ms
