"""The wall clock as far as retention may trust it. If the clock jumps ahead, all records look old at once."""

from __future__ import annotations

from typing import Final

from pyreplog.ports import Clock

JUMP_MS: Final = 60_000
"""The wall clock may gain this much on the monotonic clock between two readings; more is a jump."""


class TrustedClock:
    """The wall clock, compared with the monotonic clock since the log was opened. Not thread-safe: call it under
    the log's lock."""

    __slots__ = ("_clock", "_offset_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = 0
        self.accept_jump()

    def accept_jump(self) -> None:
        """Trust the present time of the wall clock."""
        self._offset_ms = self._clock.wall_ms() - self._clock.monotonic_ns() // 1_000_000

    def copy(self) -> TrustedClock:
        """Return an independent clock in the same state."""
        copy = TrustedClock(self._clock)
        copy._offset_ms = self._offset_ms
        return copy

    def now_and_trusted_ms(self) -> tuple[int, int]:
        """Return the wall clock's time and the latest time that can be trusted, in ms. They differ only if the wall
        clock jumped ahead."""
        wall = self._clock.wall_ms()
        steady = self._clock.monotonic_ns() // 1_000_000 + self._offset_ms
        if wall > steady + JUMP_MS:
            return wall, steady
        self._offset_ms += wall - steady
        return wall, wall
