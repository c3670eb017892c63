"""RowStamps: the timestamps of a table's rows that were appended, for the handles on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from pyreplog.arrow import ArrowRows

__all__ = ["RowStamps"]


class RowStamps(Sequence[int]):
    """The timestamps (ms) of a table's rows, looked up when somebody asks."""

    __slots__ = ("_count", "_first", "_rows", "_stamp")

    def __init__(self, rows: ArrowRows, first: int, count: int, stamp: int) -> None:
        self._rows = rows
        self._first = first
        self._count = count
        self._stamp = stamp

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        return self._rows.timestamp(self._first + index, self._stamp)
