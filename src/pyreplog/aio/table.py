"""Tables for asyncio: the blocking classes, with look-ups in threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypeVar

from pyreplog.aio.calls import ThreadCalls
from pyreplog.aio.records import Items
from pyreplog.ports import Buffer

if TYPE_CHECKING:
    from pyreplog import runtime
    from pyreplog.values import TopicPartition

__all__ = ["ClusterTable", "Table"]

D = TypeVar("D")
R = TypeVar("R")
CHUNK_COUNT = 1024
"""Entries that a thread hands over at once."""


class _AwaitedFace:
    """The common part of both tables. A look-up shows all that was committed when it began."""

    def __init__(self, table: Any, calls: ThreadCalls) -> None:
        """Use ``log.table()`` or ``cluster.table(topic)`` to make one."""
        self._table = table
        self._calls = calls
        self._closing: asyncio.Future[None] | None = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a table cannot be copied or pickled: open it in each process")

    async def __getitem__(self, key: Buffer) -> bytes:
        """Return the value of ``key``: ``await table[b"k"]``. Raises KeyError if there is none."""
        return await self._calls.read(self._table.__getitem__, key)

    async def get(self, key: Buffer, default: D | None = None) -> bytes | D | None:
        """Return the value of ``key``; ``default`` if there is none."""
        found = await self._calls.read(self._table.get, key)
        return default if found is None else found

    async def contains(self, key: Buffer) -> bool:
        """Return whether the table has ``key``."""
        return await self._calls.read(self._table.__contains__, key)

    async def count(self) -> int:
        """Return the number of keys."""
        return await self._calls.read(self._table.__len__)

    def items(self) -> Items[tuple[bytes, bytes]]:
        """Iterate over the (key, value) pairs, in no promised order: ``async for``.

        See :meth:`pyreplog.Table.items`.
        """
        return Items(self._chunks(lambda: iter(self._table.items())))

    def keys(self) -> Items[bytes]:
        """Iterate over the keys, in no promised order: ``async for``."""
        return Items(self._chunks(lambda: iter(self._table)))

    def values(self) -> Items[bytes]:
        """Iterate over the values, in the order of ``items``: ``async for``."""
        return Items(self._chunks(lambda: iter(self._table.values())))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.keys()

    async def _chunks(self, begin: Callable[[], Iterator[R]]) -> AsyncGenerator[list[R], None]:
        entries = await self._calls.read(begin)
        while chunk := await self._calls.read(lambda: list(islice(entries, CHUNK_COUNT))):
            yield chunk

    async def refresh(self) -> None:
        """Apply all that was committed before this call. Each look-up does it by itself."""
        await self._calls.read(self._table.refresh)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, on the table, or on its log or cluster."""
        return self._closing is not None or self._table.closed

    async def close(self) -> None:
        """Close the table's files. A second call is harmless."""
        if self._closing is None:
            self._closing = self._calls.begin(self._table.close)
            self._calls.stop()
        await asyncio.shield(self._closing)

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._table).replace("pyreplog.", "pyreplog.aio.", 1)


class Table(_AwaitedFace):
    """The latest value of each key of one log. Made by ``log.table()``. See :class:`pyreplog.Table`."""

    _table: runtime.Table

    @property
    def offset(self) -> int:
        """The table shows the records below this offset, as of the last look-up."""
        return self._table.offset

    async def __aenter__(self) -> Table:
        return self


class ClusterTable(_AwaitedFace):
    """The latest value of each key of a topic. Made by ``cluster.table(topic)``. See
    :class:`pyreplog.ClusterTable`."""

    _table: runtime.ClusterTable

    @property
    def offset(self) -> dict[TopicPartition, int]:
        """By partition: the table shows the records below this offset, as of the last look-up."""
        return self._table.offset

    async def __aenter__(self) -> ClusterTable:
        return self
