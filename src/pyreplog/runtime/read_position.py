"""ReadPosition: how far a loop over a log has come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from operator import length_hint
from typing import Final

from pyreplog.record import Record
from pyreplog.runtime.views import LogView, record_lists

__all__ = ["ReadPosition"]

_NO_RUN: Final[tuple[list[Record], Iterator[Record]]] = ([], iter(()))


class ReadPosition:
    """The offset at which iterating over a log goes on. A loop moves it with each record, and
    ``move`` moves the loop."""

    __slots__ = ("_base", "_move_count", "_run")

    def __init__(self, offset: int) -> None:
        self._base = offset
        # The batch that the loop is in, and its records that are left: how far the loop has come
        # costs nothing until it is asked for.
        self._run = _NO_RUN
        self._move_count = 0

    @property
    def offset(self) -> int:
        """The offset of the next record."""
        batch, left = self._run
        taken = len(batch) - length_hint(left)
        return batch[taken - 1].offset + 1 if taken else self._base

    def move(self, offset: int) -> None:
        """Go on at ``offset``, also in a loop that is under way."""
        run = self._run
        self._run, self._base = _NO_RUN, offset
        self._move_count += 1
        if run is not _NO_RUN:
            deque(run[1], maxlen=0)  # the records that the loop would have gone on with

    def raise_to(self, offset: int) -> None:
        """Move to ``offset``, unless the position is behind it already: the records below are
        deleted."""
        if self.offset < offset:
            self.move(offset)

    def records(self, view: LogView) -> Iterator[Record]:
        """Return the records from here to the present end of ``view``; the position moves along."""
        self._base, self._run = self.offset, _NO_RUN
        return chain.from_iterable(self._runs(view, view.end_offset))

    def _runs(self, view: LogView, end: int) -> Iterator[Iterator[Record]]:
        while True:
            moves = self._move_count
            for batch in record_lists(view, self._base, end):
                left = iter(batch)
                self._run = batch, left
                yield left
                if self._move_count != moves:
                    break
                self._base = batch[-1].offset + 1
                self._run = _NO_RUN
                del batch, left  # nothing here may hold read records while more are read: see record_lists
            else:
                self._base = max(self._base, end)
                return
