"""The partitions of one topic by number, in chunks that copies share until one of them changes.

A cluster may have a million partitions, so an entry takes one pointer, and a copy of the table costs
one pointer for each chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

__all__ = ["CHUNK", "PartitionTable"]

CHUNK: Final = 512
"""Partition numbers in a chunk."""
T = TypeVar("T")
_Chunk = list[T | None]


class PartitionTable(Generic[T]):
    """A mapping from partition numbers, from 0 on, to values. Iterates by rising number. One owner."""

    __slots__ = ("_chunks", "_count", "_own")

    def __init__(self) -> None:
        self._chunks: dict[int, _Chunk[T]] = {}
        self._own = 0
        """One bit for each chunk that no other table holds."""
        self._count = 0

    def copy(self) -> PartitionTable[T]:
        """Return a table that says the same and changes independently."""
        other: PartitionTable[T] = PartitionTable()
        other._chunks = dict(self._chunks)
        other._count = self._count
        self._own = 0
        return other

    def get(self, number: int) -> T | None:
        """Return the value of a number, None if it has none."""
        chunk = self._chunks.get(number // CHUNK, ())
        index = number % CHUNK
        return chunk[index] if index < len(chunk) else None

    def __getitem__(self, number: int) -> T:
        found = self.get(number)
        if found is None:
            raise KeyError(number)
        return found

    def __setitem__(self, number: int, value: T) -> None:
        where = number // CHUNK
        chunk = self._chunks.get(where)
        if chunk is None or not self._own >> where & 1:
            chunk = self._chunks[where] = [] if chunk is None else list(chunk)
            self._own |= 1 << where
        index = number % CHUNK
        if index < len(chunk):
            self._count += chunk[index] is None
            chunk[index] = value
        else:
            chunk.extend([None] * (index - len(chunk)))
            chunk.append(value)
            self._count += 1

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return (number for number, _ in self.items())

    def keys(self) -> Iterator[int]:
        """Return the numbers."""
        return iter(self)

    def values(self) -> Iterator[T]:
        """Return the values."""
        return (value for _, value in self.items())

    def items(self) -> Iterator[tuple[int, T]]:
        """Return every (number, value). The table may change during the walk."""
        for where, chunk in self.chunks():
            for number, value in enumerate(chunk, where * CHUNK):
                if value is not None:
                    yield number, value

    def items_from(self, number: int) -> Iterator[tuple[int, T]]:
        """Return every (number, value) from ``number`` on."""
        for where in sorted(self._chunks):
            if where >= number // CHUNK:
                for found, value in enumerate(self._chunks[where], where * CHUNK):
                    if value is not None and found >= number:
                        yield found, value

    def chunks(self) -> list[tuple[int, _Chunk[T]]]:
        """Return (first number // :data:`CHUNK`, values) of each chunk. The caller must not change
        the values."""
        return sorted(self._chunks.items(), key=lambda entry: entry[0])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionTable):
            return self._chunks == other._chunks or list(self.items()) == list(other.items())
        return isinstance(other, dict) and dict(self.items()) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PartitionTable({dict(self.items())!r})"
