"""ReaderConsumer for asyncio: read a cluster's topics from the files of another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self, SupportsIndex, overload

from pyreplog import runtime
from pyreplog.aio.calls import ThreadCalls
from pyreplog.aio.clients import Subject
from pyreplog.aio.follow import CHUNK_COUNT, LoopNews
from pyreplog.aio.records import Steps
from pyreplog.config import check_seconds, whole
from pyreplog.record import Record
from pyreplog.values import TopicPartition

__all__ = ["ReaderConsumer"]


class ReaderConsumer:
    """Reads records of a cluster's topics from its files.

    Made by ``cluster.consumer(...)``: ``async with`` it. See :class:`pyreplog.ReaderConsumer`.
    Cancelling a call loses no record.
    """

    def __init__(self, consumer: runtime.ReaderConsumer, calls: ThreadCalls) -> None:
        """Use ``cluster.consumer(...)`` to make one."""
        self._consumer = consumer
        self._calls = calls
        self._closing: asyncio.Future[None] | None = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a ReaderConsumer cannot be copied or pickled: open the cluster with mode='r' in each process that needs it"
        )

    async def poll(self, timeout: float | None = 0.0, count_max: int | None = None) -> list[Record]:
        """Return the available records; wait up to ``timeout`` seconds for the first.

        None: wait for ever. The list is empty if none came.
        """
        patience = check_seconds("timeout", timeout)
        count = self._consumer.max_poll_records if count_max is None else whole("count_max", count_max, 1)
        if patience is None:
            self._consumer._check_assigned()
        deadline = None if patience is None else asyncio.get_running_loop().time() + patience
        while True:
            records = self._consumer._pick(count)
            if records or not await self._await_more(deadline):
                return records

    async def _await_more(self, deadline: float | None, fill: Callable[[], bool] | None = None) -> bool:
        """Return whether ``fill`` read records before ``deadline`` of the loop's clock (None: no
        limit).
        """
        loop = asyncio.get_running_loop()
        consumer, news = self._consumer, None
        try:
            while True:
                if news is not None:
                    news.clear()
                if await self._calls.read(fill or consumer._fill):
                    return True
                left = None if deadline is None else deadline - loop.time()
                if left is not None and left <= 0:
                    return False
                if news is None:
                    plain = await self._calls.acquire(consumer._begin_waiting, consumer._end_waiting)
                    news = LoopNews(plain, partial(consumer._end_waiting, plain))
                    continue
                await news.wait(left)
        finally:
            if news is not None:
                news.close()

    def __aiter__(self) -> Steps:
        """Iterate over records for ever, waiting for more at the end."""
        return Steps(self._step)

    async def _step(self) -> Record:
        while True:
            if picked := self._consumer._pick(1):
                return picked[0]
            self._consumer._check_assigned()
            await self._await_more(None)

    async def _until(self, timeout: float | None) -> AsyncGenerator[list[Record], None]:
        loop = asyncio.get_running_loop()
        while True:
            while picked := self._consumer._pick(CHUNK_COUNT):
                yield picked
            self._consumer._check_assigned()
            if not await self._await_more(None if timeout is None else loop.time() + timeout):
                return

    def until_end(self) -> Steps:
        """Iterate over records up to the current ends of the partitions.

        Later records stay for the next call.
        """
        return Steps(self._until_end_step())

    def _until_end_step(self) -> Callable[[], Awaitable[Record | None]]:
        """Return a function that returns the next record each time, None at the end."""
        found: list[Mapping[TopicPartition, int]] = []

        async def step() -> Record | None:
            if not found:
                found.append(await self._calls.read(self._consumer._ends))
            while True:
                if picked := self._consumer._pick(1, found[0]):
                    return picked[0]
                if not await self._calls.read(self._consumer._has_more, found[0]):
                    return None

        return step

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return self._consumer.assignment

    async def assign(self, subject: Subject) -> None:
        """Read these topics or partitions from now on."""
        await self._calls.write(self._consumer.assign, subject)

    @overload
    async def seek(
        self, topic: str, partition: int, offset: int | None = None, *, timestamp: int | datetime | None = None
    ) -> int: ...
    @overload
    async def seek(self, topic: tuple[str, int], offset: int, /) -> int: ...
    @overload
    async def seek(
        self, topic: tuple[str, int], /, *, offset: int | None = None, timestamp: int | datetime | None = None
    ) -> int: ...
    async def seek(
        self,
        topic: Any,
        partition: int | None = None,
        offset: int | None = None,
        *,
        timestamp: int | datetime | None = None,
    ) -> int:
        """Continue at ``offset``, or at the first record at or after ``timestamp``.

        If no record is that late, continue at the end. Return the offset.
        """
        return await self._calls.write(partial(self._consumer.seek, topic, partition, offset, timestamp=timestamp))

    async def seek_to_beginning(self) -> None:
        """Continue at the first record of every partition."""
        await self._calls.write(self._consumer.seek_to_beginning)

    async def seek_to_end(self) -> None:
        """Continue after the last record of every partition."""
        await self._calls.write(self._consumer.seek_to_end)

    @overload
    async def position(self, topic: str, partition: int) -> int: ...
    @overload
    async def position(self, topic: tuple[str, int], /) -> int: ...
    async def position(self, topic: str | tuple[str, int], partition: int | None = None) -> int:
        """Return the offset of the next record that is handed out."""
        place = runtime.place_of("position", topic, partition)
        return await self._calls.read(partial(self._consumer.position, *place))

    @overload
    async def start_offset(self, topic: str, partition: int) -> int: ...
    @overload
    async def start_offset(self, topic: tuple[str, int], /) -> int: ...
    async def start_offset(self, topic: str | tuple[str, int], partition: int | None = None) -> int:
        """Return the log start offset of a partition."""
        place = runtime.place_of("start_offset", topic, partition)
        return await self._calls.read(partial(self._consumer.start_offset, *place))

    @overload
    async def end_offset(self, topic: str, partition: int) -> int: ...
    @overload
    async def end_offset(self, topic: tuple[str, int], /) -> int: ...
    async def end_offset(self, topic: str | tuple[str, int], partition: int | None = None) -> int:
        """Return the high watermark: the offset after the last record that may be read."""
        place = runtime.place_of("end_offset", topic, partition)
        return await self._calls.read(partial(self._consumer.end_offset, *place))

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` of this consumer or of its cluster was called."""
        return self._closing is not None or self._consumer.closed

    async def close(self) -> None:
        """Release the files. A second call is harmless."""
        if self._closing is None:
            self._closing = self._calls.begin(self._consumer.close)
            self._calls.stop()
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._consumer).replace("pyreplog.", "pyreplog.aio.", 1)
