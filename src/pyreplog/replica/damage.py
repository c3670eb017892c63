"""Track the damage that reads found in one log after it was opened."""

from __future__ import annotations

from typing import Final

from pyreplog.errors import CorruptError, CorruptLogError

__all__ = ["RESIGN_AFTER_NS", "DamagedRanges"]

RESIGN_AFTER_NS: Final = 1_000_000_000
"""How long a leader with damage waits for another leader, before it reports the damage to readers.
"""
TELL_INTERVAL_NS: Final = 500_000_000
"""Shortest time between two reports of the same damage."""
KNOWN_MAX: Final = 64
"""Number of damaged places that are kept apart. Damage beyond them is not reported as new."""


class DamagedRanges:
    """The damaged places of one log, as far as reads have found them."""

    __slots__ = ("_is_only_member", "_leader_epoch", "_places", "_told_ns", "since_ns")

    def __init__(self) -> None:
        self._places: list[tuple[int, int, bool]] = []
        self._told_ns = -TELL_INTERVAL_NS
        self._leader_epoch = -1
        self._is_only_member = False
        self.since_ns = 0
        """When damage was first found in the current leader epoch while the ISR had other members.
        """

    def met(self, leader_epoch: int, now_ns: int, *, is_only_member: bool) -> None:
        """Record that a read found damage."""
        if leader_epoch != self._leader_epoch or (self._is_only_member and not is_only_member):
            self.since_ns = now_ns
        self._leader_epoch = leader_epoch
        self._is_only_member = is_only_member

    def is_news(self, error: CorruptError, *, is_last: bool) -> bool:
        """Return whether ``error`` reports a place that was not reported before.

        Many readers find the same damaged batch, from many offsets.
        """
        start, end = (error.start, error.end) if isinstance(error, CorruptLogError) else (-1, 0)
        if any(
            start < known_end and known_start < end and known_last == is_last
            for known_start, known_end, known_last in self._places
        ):
            return False
        if len(self._places) < KNOWN_MAX:
            self._places.append((start, end, is_last))
            return True
        return False

    def is_due(self, now_ns: int) -> bool:
        """Return whether damage that is already known may be reported again."""
        if now_ns - self._told_ns < TELL_INTERVAL_NS:
            return False
        self._told_ns = now_ns
        return True
