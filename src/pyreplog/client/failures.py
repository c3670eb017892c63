"""Failures: batches that were not acknowledged, until somebody asks why. Whoever sends and never asks is told at the end."""

from __future__ import annotations

from typing import Final

from pyreplog.client.outcome import Outcome

__all__ = ["Failures"]

KEPT_MAX: Final = 64
"""Batches that are remembered one by one; of older ones only the number of records is."""


class Failures:
    """Filled where a batch fails, never where one succeeds. One owner at a time."""

    __slots__ = ("_first", "_older_count", "_recent")

    def __init__(self) -> None:
        self._recent: list[tuple[Outcome, int]] = []
        self._older_count = 0
        self._first: BaseException | None = None

    def note(self, outcome: Outcome, count: int) -> None:
        """``outcome``, of so many records, failed, or is about to."""
        self._recent.append((outcome, count))
        if len(self._recent) > KEPT_MAX:
            self._recent = [entry for entry in self._recent if not entry[0].asked]
        while len(self._recent) > KEPT_MAX:
            oldest, older_count = self._recent.pop(0)
            self._older_count += older_count
            self._first = self._first or oldest.error

    def unheard(self) -> tuple[int, BaseException | None]:
        """Of how many records nobody has heard that they failed, and with what the first of them did."""
        left = [entry for entry in self._recent if not entry[0].asked]
        first = self._first or (left[0][0].error if left else None)
        return self._older_count + sum(count for _, count in left), first
