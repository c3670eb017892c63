"""A simulated clock, which only its owner moves."""

from __future__ import annotations

from typing import Final

__all__ = ["MachineClock", "SimClock"]

EPOCH_MS: Final = 1_700_000_000_000
_MILLION: Final = 1_000_000


class SimClock:
    """A :class:`~pyreplog.ports.Clock` that the caller moves, so that no test sleeps.

    Monotonic time starts at one second, wall time at ``wall_ms``. ``skew_wall`` lets the wall clock jump, as an
    administrator or NTP does; timeouts must not depend on it.
    """

    __slots__ = ("_now_ns", "_wall_offset_ms")

    def __init__(self, wall_ms: int = EPOCH_MS) -> None:
        self._now_ns = 1_000_000_000
        self._wall_offset_ms = wall_ms - self._now_ns // 1_000_000

    def monotonic_ns(self) -> int:
        """Return the monotonic time in ns; a new clock begins at one second."""
        return self._now_ns

    def wall_ms(self) -> int:
        """Return the wall time in ms since 1970: it moves with the monotonic time, plus the jumps of ``skew_wall``."""
        return self._now_ns // 1_000_000 + self._wall_offset_ms

    def advance(self, delta_ns: int) -> None:
        """Move the clock forward by ``delta_ns`` nanoseconds."""
        if delta_ns < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-delta_ns} ns")
        self._now_ns += delta_ns

    def advance_to(self, at_ns: int) -> None:
        """Move the clock forward to ``at_ns``; do nothing if that is in the past."""
        if at_ns > self._now_ns:
            self._now_ns = at_ns

    def skew_wall(self, delta_ms: int) -> None:
        """Let the wall clock jump by ``delta_ms``, forward or back."""
        self._wall_offset_ms += delta_ms


class MachineClock:
    """The :class:`~pyreplog.ports.Clock` of one machine: the time of the world, with a wall clock that may jump.

    The monotonic clock gains ``error_ppm`` microseconds in each second of the world (loses, if it is negative).
    """

    __slots__ = ("_rate", "_skew_ms", "_time")

    def __init__(self, time: SimClock, error_ppm: int = 0) -> None:
        self._time = time
        self._rate = _MILLION + error_ppm
        self._skew_ms = 0

    def monotonic_ns(self) -> int:
        """Return the monotonic time of this machine in ns."""
        return self._time.monotonic_ns() * self._rate // _MILLION

    def world_ns(self, own_ns: int) -> int:
        """Return the time of the world at which this machine's clock shows ``own_ns``."""
        return -(-own_ns * _MILLION // self._rate)

    def wall_ms(self) -> int:
        """Return the wall time of the world in ms, plus the jumps of :meth:`skew_wall` on this machine."""
        return self._time.wall_ms() + self._skew_ms

    def skew_wall(self, delta_ms: int) -> None:
        """Let the wall clock of this machine jump by ``delta_ms``, forward or back."""
        self._skew_ms += delta_ms
