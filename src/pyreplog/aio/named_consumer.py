"""NamedConsumer for asyncio: a reader that keeps its place, under a name, in a file beside the log."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NoReturn, SupportsIndex, overload

from pyreplog import runtime
from pyreplog.aio.calls import ThreadCalls
from pyreplog.aio.clients import Subject
from pyreplog.aio.reader_consumer import ReaderConsumer
from pyreplog.aio.records import Steps
from pyreplog.arrow import ArrowTable
from pyreplog.config import check_seconds
from pyreplog.record import Record
from pyreplog.values import TopicPartition

if TYPE_CHECKING:
    from pyreplog.runtime import WhatToCommit

__all__ = ["NamedConsumer"]


class NamedConsumer(ReaderConsumer):
    """Reads records and keeps its place under a name.

    Made by ``log.consumer(name)`` or ``cluster.consumer(topics, name=...)``: ``async with`` it. See
    :class:`pyreplog.NamedConsumer`. Cancelling a call loses no record.
    """

    _consumer: runtime.NamedConsumer

    def __init__(self, consumer: runtime.NamedConsumer, calls: ThreadCalls) -> None:
        """Use ``log.consumer(...)`` or ``cluster.consumer(...)`` to make one."""
        super().__init__(consumer, calls)
        self._in_hand: Record | None = None
        """The record that an iterator with an automatic commit returned last."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a NamedConsumer cannot be copied or pickled: open one in the process that needs it")

    @property
    def name(self) -> str:
        """The name."""
        return self._consumer.name

    async def poll(self, timeout: float | None = 0.0, count_max: int | None = None) -> list[Record]:
        """Return the available records; wait up to ``timeout`` seconds for the first.

        None: wait for ever. The list is empty if none came. With ``auto_commit`` it first commits
        the records of the last poll.
        """
        if self._consumer._polled:
            await self._calls.write(self._consumer._begin_poll)
        return self._consumer._end_poll(await super().poll(timeout, count_max))

    async def poll_arrow(self, timeout: float | None = 0.0) -> ArrowTable:
        """Return the available records as an Arrow table; wait up to ``timeout`` seconds for the
        first.

        See :meth:`pyreplog.NamedConsumer.poll_arrow`.
        """
        patience = check_seconds("timeout", timeout)
        if patience is None:
            self._consumer._check_assigned()
        if self._consumer._polled:
            await self._calls.write(self._consumer._begin_poll)
        found: list[ArrowTable] = []
        deadline = None if patience is None else asyncio.get_running_loop().time() + patience
        await self._await_more(deadline, partial(self._consumer._take_table, found))
        return found[-1]

    async def _commit_in_hand(self) -> None:
        record, self._in_hand = self._in_hand, None
        if record is not None:
            await self._calls.write(self._consumer.commit, record)

    def __aiter__(self) -> Steps:
        """Iterate over records for ever, waiting for more at the end."""
        self._in_hand = None
        return Steps(self._step)

    async def _step(self) -> Record:
        await self._commit_in_hand()
        record = await super()._step()
        if self._consumer._options.auto_commit:
            self._in_hand = record
        return record

    def until_end(self) -> Steps:
        """Iterate over records up to the current ends of the partitions.

        Later records stay for the next call.
        """
        self._in_hand = None
        next_record = self._until_end_step()

        async def step() -> Record | None:
            await self._commit_in_hand()
            record = await next_record()
            if self._consumer._options.auto_commit:
                self._in_hand = record
            return record

        return Steps(step)

    async def pause(self, subject: Subject | None = None) -> None:
        """Return no more records of these partitions until :meth:`resume` (None: of all)."""
        await self._calls.write(self._consumer.pause, subject)

    async def resume(self, subject: Subject | None = None) -> None:
        """Undo :meth:`pause`, for these partitions (None: for all)."""
        await self._calls.write(self._consumer.resume, subject)

    @property
    def paused(self) -> list[TopicPartition]:
        """The partitions that :meth:`pause` stopped."""
        return self._consumer.paused

    async def commit(self, what: WhatToCommit = None, *, sync: bool = False) -> None:
        """Note that records are done; the next consumer of this name goes on behind them.

        See :meth:`pyreplog.NamedConsumer.commit`.
        """
        await self._calls.write(partial(self._consumer.commit, what, sync=sync))

    @overload
    def committed(self, partition: None = None) -> dict[TopicPartition, int]: ...
    @overload
    def committed(self, partition: tuple[str, int]) -> int | None: ...
    def committed(self, partition: tuple[str, int] | None = None) -> int | dict[TopicPartition, int] | None:
        """Return the committed offset of a partition, or a dict of all.

        See :meth:`pyreplog.NamedConsumer.committed`.
        """
        return self._consumer.committed(partition)

    async def lag(self) -> dict[TopicPartition, int]:
        """Return, for each partition, the number of offsets from the next record to the end."""
        return await self._calls.read(self._consumer.lag)
