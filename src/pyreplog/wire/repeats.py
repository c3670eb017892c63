"""Repeats: which requests were carried out lately, so that one that a transport doubled is carried out once.

A client believes the first answer to a request. Were a second copy carried out after the first was refused, that answer would be wrong;
were it carried out after the first was done, records would be there twice, or what was written since would be deleted.
"""

from __future__ import annotations

from typing import Final

from pyreplog.ports import Address

__all__ = ["REMEMBERED_MIN", "Repeats"]

REMEMBERED_MIN: Final = 4096
"""So many of the latest requests, of all clients together, are remembered at least, and never more than twice as many. A copy that comes
even later is carried out as well."""


class Repeats:
    """The latest requests, by who sent them and their correlation ids. A client that is gone is not forgotten: a copy of what it sent may
    still be on its way. So whoever comes after it at its address gives other numbers."""

    __slots__ = ("_before", "_latest")

    def __init__(self) -> None:
        # Two generations: dropping the older one costs nothing for each request.
        self._latest: set[tuple[Address, int]] = set()
        self._before: set[tuple[Address, int]] = set()

    def is_repeat(self, source: Address, correlation_id: int) -> bool:
        """Whether this request was asked about before; remembers it."""
        request = (source, correlation_id)
        if request in self._latest or request in self._before:
            return True
        if len(self._latest) >= REMEMBERED_MIN:
            self._before, self._latest = self._latest, set()
        self._latest.add(request)
        return False
