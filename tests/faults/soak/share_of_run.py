"""Pieces of a whole, each dealt once, in an order drawn by the seed: a short run sees another share of it each
time, a long one all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, Generic, TypeVar

P = TypeVar("P")


class ShareOfRun(Generic[P]):
    """``groups``: by name, the pieces, and how much of the time they are to have beside the others. Once all are
    dealt a new round begins, with the next seed."""

    def __init__(
        self, groups: Mapping[str, tuple[Sequence[P], float]], seed: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._groups: Final = groups
        self._clock: Final = clock
        self.seed = seed
        """Of this round: what a piece draws, it draws from this one."""
        self.rounds = 0
        """How many are over: all pieces of each were dealt."""

    def pieces_until(self, until: float) -> Iterator[tuple[str, P]]:
        """One piece at least, and pieces until the clock says ``until``. A group whose pieces took less of the time
        than it is to have goes first; one that is all dealt leaves its time to the others."""
        while True:
            left = {name: self._shuffled(name) for name in self._groups}
            spent = dict.fromkeys(self._groups, 0.0)
            while any(left.values()):
                name = min((name for name in left if left[name]), key=lambda name: spent[name] / self._groups[name][1])
                begun = self._clock()
                yield name, left[name].pop()
                now = self._clock()
                spent[name] += now - begun
                if now >= until:
                    self.rounds += not any(left.values())
                    return
            self.rounds += 1
            self.seed += 1

    def _shuffled(self, name: str) -> list[P]:
        pieces = list(self._groups[name][0])
        Random(f"{name} {self.seed}").shuffle(pieces)
        return pieces
