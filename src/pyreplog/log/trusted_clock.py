"""Calendar: how far the wall clock is to be believed. A clock that jumps ahead would make everything old at
once."""

from __future__ import annotations

from typing import Final

from pyreplog.ports import Clock

JUMP_MS: Final = 60_000
"""The wall clock may gain this much on the monotonic one between two looks; more is a jump."""


class TrustedClock:
    """The wall clock, and how far the monotonic one bears it out since the log was opened. Belongs to the log's
    owner."""

    __slots__ = ("_clock", "_offset_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = 0
        self.accept_jump()

    def accept_jump(self) -> None:
        """Believe the wall clock as it is now."""
        self._offset_ms = self._clock.wall_ms() - self._clock.monotonic_ns() // 1_000_000

    def copy(self) -> TrustedClock:
        """Another one that has seen the same clock for as long."""
        copy = TrustedClock(self._clock)
        copy._offset_ms = self._offset_ms
        return copy

    def now_and_trusted_ms(self) -> tuple[int, int]:
        """The wall clock's time in ms, and the latest time that is beyond doubt. They are the same unless it jumped
        ahead."""
        wall = self._clock.wall_ms()
        steady = self._clock.monotonic_ns() // 1_000_000 + self._offset_ms
        if wall > steady + JUMP_MS:
            return wall, steady
        self._offset_ms += wall - steady
        return wall, wall
