"""Damage: what reads met of one log's rot, and so was not known when the log was opened."""

from __future__ import annotations

from typing import Final

from pyreplog.errors import CorruptError, CorruptLogError

__all__ = ["GIVE_WAY_NS", "Damage"]

GIVE_WAY_NS: Final = 1_000_000_000
"""So long a leader waits for another to lead in its place before it tells who reads that none does."""
TELL_INTERVAL_NS: Final = 500_000_000
"""The same place is told again after this, at the earliest."""
KNOWN_MAX: Final = 64
"""No more places are told apart: what is told of these says enough."""


class Damage:
    """The places where one log is damaged, as far as reads met them."""

    __slots__ = ("_is_only_member", "_leader_epoch", "_places", "_told_ns", "since_ns")

    def __init__(self) -> None:
        self._places: list[tuple[int, int, bool]] = []
        self._told_ns = -TELL_INTERVAL_NS
        self._leader_epoch = -1
        self._is_only_member = False
        self.since_ns = 0
        """When it was met first in the present reign, with others in the in-sync set."""

    def met(self, leader_epoch: int, now_ns: int, *, is_only_member: bool) -> None:
        """A read met damage."""
        if leader_epoch != self._leader_epoch or (self._is_only_member and not is_only_member):
            self.since_ns = now_ns
        self._leader_epoch = leader_epoch
        self._is_only_member = is_only_member

    def is_news(self, error: CorruptError, *, is_last: bool) -> bool:
        """Whether ``error`` is of another place than those before it: each batch is met by many readers, from many offsets."""
        start, end = (error.start, error.end) if isinstance(error, CorruptLogError) else (-1, 0)
        if any(start < known_end and known_start < end and known_last == is_last for known_start, known_end, known_last in self._places):
            return False
        if len(self._places) < KNOWN_MAX:
            self._places.append((start, end, is_last))
            return True
        return False

    def is_due(self, now_ns: int) -> bool:
        """Whether what is no news may be told again."""
        if now_ns - self._told_ns < TELL_INTERVAL_NS:
            return False
        self._told_ns = now_ns
        return True
