"""Damage: what reads met of one log's rot, and so was not known when the log was opened."""

from __future__ import annotations

from typing import Final

from pyreplog.errors import CorruptError, CorruptLogError

__all__ = ["Damage"]

KNOWN_MAX: Final = 64
"""No more places are told apart: what is told of these says enough."""


class Damage:
    """The places where one log is damaged, as far as reads met them."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: list[tuple[int, int]] = []

    def is_news(self, error: CorruptError) -> bool:
        """Whether ``error`` is of another place than those before it: each batch is met by many readers, from many offsets."""
        start, end = (error.start, error.end) if isinstance(error, CorruptLogError) else (-1, 0)
        if any(start < known_end and known_start < end for known_start, known_end in self._places):
            return False
        if len(self._places) < KNOWN_MAX:
            self._places.append((start, end))
            return True
        return False
