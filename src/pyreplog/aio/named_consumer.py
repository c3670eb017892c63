"""NamedConsumer for asyncio: a reader that keeps its place, under a name, in a file beside the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, overload

from pyreplog import runtime
from pyreplog.aio.calls import ThreadCalls
from pyreplog.aio.clients import Subject
from pyreplog.aio.reader_consumer import ReaderConsumer
from pyreplog.aio.records import Steps
from pyreplog.arrow import ArrowTable
from pyreplog.config import check_seconds
from pyreplog.errors import ClosedError, is_interruption
from pyreplog.record import Record
from pyreplog.runtime import DEFAULT_RETRIES
from pyreplog.values import TopicPartition

if TYPE_CHECKING:
    from pyreplog.runtime import Handling, RetryPolicy, WhatToCommit

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

    async def run(
        self,
        handler: Callable[[Any], object],
        *,
        retry: RetryPolicy | None = DEFAULT_RETRIES,
        until_end: bool = False,
    ) -> None:
        """Call ``handler`` with each record, one after another, and commit it when the call ends.

        ``handler`` may be a coroutine function: it is awaited. See
        :meth:`pyreplog.NamedConsumer.run`. Cancelling it does not count as an attempt.
        """
        consumer = self._consumer
        consumer._check()
        runtime.check_handler(handler)
        ends = await self._calls.read(consumer._ends) if until_end else None
        handling = runtime.Handling(consumer, retry, ends)
        try:
            while (record := await self._await_next(handling)) is not None:
                await self._handle(handler, handling, record, counts=retry is not None)
        except ClosedError:
            if not consumer.closed:
                raise

    async def _handle(
        self, handler: Callable[[Any], object], handling: Handling, record: Record, *, counts: bool
    ) -> None:
        consumer, noted = self._consumer, False
        try:
            if not await self._calls.write(handling.begin, record):
                return
            noted = True
            result = handler(consumer._deserializers.apply(record) if consumer._decodes else record)
            if isawaitable(result):
                await result
        except Exception as error:
            if not noted or not counts or is_interruption(error):
                await self._calls.write(partial(handling.withdraw, record, noted=noted))
                raise
            await self._calls.write(handling.failed, record, error)
        except BaseException:
            await self._calls.write(partial(handling.withdraw, record, noted=noted))
            raise
        else:
            await self._calls.write(consumer.commit, record)

    async def _await_next(self, handling: Handling) -> Record | None:
        while True:
            record = handling.pick()
            if record is not None:
                return record
            if await self._calls.read(handling.fill):
                continue
            if handling.is_over:
                return None
            due = handling.due_s()
            loop = asyncio.get_running_loop()
            deadline = None if due is None else loop.time() + max(due - time.monotonic(), 0.0)
            await self._await_more(deadline, handling.fill_or_over)

    async def dead_letter(self, record: Record, error: object = None) -> None:
        """Make ``record`` a dead letter, and commit it.

        See :meth:`pyreplog.NamedConsumer.dead_letter`.
        """
        await self._calls.write(self._consumer.dead_letter, record, error)

    async def commit(self, what: WhatToCommit = None, *, sync: bool = False) -> None:
        """Note that records are done; the next consumer of this name goes on behind them.

        See :meth:`pyreplog.NamedConsumer.commit`.
        """
        await self._calls.write(partial(self._consumer.commit, what, sync=sync))

    @overload
    def committed(self, tp: None = None) -> dict[TopicPartition, int]: ...
    @overload
    def committed(self, tp: tuple[str, int]) -> int | None: ...
    def committed(self, tp: tuple[str, int] | None = None) -> int | dict[TopicPartition, int] | None:
        """Return the committed offset of the partition ``tp``, or a dict of all.

        See :meth:`pyreplog.NamedConsumer.committed`.
        """
        return self._consumer.committed(tp)

    async def lag(self) -> dict[TopicPartition, int]:
        """Return, for each partition, the number of offsets from the next record to the end."""
        return await self._calls.read(self._consumer.lag)
