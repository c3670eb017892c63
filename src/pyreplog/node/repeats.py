"""Repeats: which requests were carried out lately, so that one that the network doubled is carried out once.

A client believes the first answer to a request. Were a second copy carried out after the first was refused, that answer would be wrong: the
records would be there although their sender was told that they are not, or there twice.
"""

from __future__ import annotations

from typing import Final

from pyreplog.ports import Address

__all__ = ["REMEMBERED_MAX", "Repeats"]

REMEMBERED_MAX: Final = 256
"""Requests of one client that are remembered. Far more than it may have on their way at once, as a copy may come late."""


class Repeats:
    """Correlation ids by client. What is not remembered counts as new."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[Address, dict[int, None]] = {}

    def is_repeat(self, source: Address, correlation_id: int) -> bool:
        """Whether this request was asked about before; remembers it."""
        numbers = self._numbers.get(source)
        if numbers is None:
            numbers = self._numbers[source] = {}
        elif correlation_id in numbers:
            return True
        elif len(numbers) >= REMEMBERED_MAX:
            del numbers[next(iter(numbers))]
        numbers[correlation_id] = None
        return False

    def forget(self, source: Address) -> None:
        """The client is gone, and no copy of anything it sent can matter."""
        self._numbers.pop(source, None)
