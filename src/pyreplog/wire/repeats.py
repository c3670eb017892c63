"""Repeats: remember the latest requests, so that a request that a transport delivers twice is
carried out once.

A client believes the first answer to a request. If a second copy were carried out after the first
was refused, that answer would be wrong. If it were carried out after the first succeeded, records
would be in the log twice, or later records would be deleted.
"""

from __future__ import annotations

from typing import Final

from pyreplog.ports import Address

__all__ = ["REMEMBERED_MIN", "Repeats"]

REMEMBERED_MIN: Final = 4096
"""The latest requests of all clients together that are remembered at least; at most it is twice as
many. A copy that arrives even later is carried out again."""


class Repeats:
    """The latest requests, by sender and correlation id.

    A client that is gone is not forgotten, because a copy of its request may still be in flight. So
    a later client at the same address must use other correlation ids.
    """

    __slots__ = ("_before", "_latest")

    def __init__(self) -> None:
        # Two generations: dropping the older one costs nothing for each request.
        self._latest: set[tuple[Address, int]] = set()
        self._before: set[tuple[Address, int]] = set()

    def is_repeat(self, source: Address, correlation_id: int) -> bool:
        """Return whether this request was asked about before, and remember it."""
        request = (source, correlation_id)
        if request in self._latest or request in self._before:
            return True
        if len(self._latest) >= REMEMBERED_MIN:
            self._before, self._latest = self._latest, set()
        self._latest.add(request)
        return False
