"""Queue for asyncio: hands each record of a log to one of several workers, until one of them accepts it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import NoReturn, SupportsIndex

from pyreplog import runtime
from pyreplog.aio.calls import ThreadCalls
from pyreplog.aio.follow import LoopNews
from pyreplog.config import check_seconds, whole
from pyreplog.errors import InvalidRecordStateError, PyreplogError, copy_for_raise
from pyreplog.record import Record
from pyreplog.values import QueueStats

__all__ = ["Queue"]


class Queue:
    """One worker of a queue over one log, for the coroutines of one event loop.

    Made by ``log.queue(name)``: await it, or ``async with`` it. See :class:`pyreplog.Queue`.
    Cancelling a ``receive`` gives the records back that it had acquired. Cancelling another call
    does not undo it.
    """

    def __init__(self, queue: runtime.Queue, calls: ThreadCalls) -> None:
        """Use ``log.queue(...)`` to make one."""
        self._queue = queue
        self._calls = calls
        self._accepts = _Accepts(queue, calls)
        self._closing: asyncio.Future[None] | None = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a Queue cannot be copied or pickled: open the log and its queue in each process")

    async def receive(self, timeout: float | None = 0.0) -> Record | None:
        """Return the next record, or None if none came within ``timeout`` seconds.

        None: wait for ever. See :meth:`pyreplog.Queue.receive`.
        """
        received = await self.receive_many(1, timeout)
        return received[0] if received else None

    async def receive_many(self, n: int, timeout: float | None = 0.0) -> list[Record]:
        """Return up to ``n`` records, as soon as there is one.

        See :meth:`pyreplog.Queue.receive_many`.
        """
        count = self._queue._count(whole("n", n, 1))
        patience = check_seconds("timeout", timeout)
        taken = await self._take(count)
        if taken or patience == 0:
            return taken
        loop = asyncio.get_running_loop()
        deadline = None if patience is None else loop.time() + patience
        plain = await self._calls.acquire(self._queue._begin_waiting, self._queue._end_waiting)
        news = LoopNews(plain, partial(self._queue._end_waiting, plain))
        try:
            while True:
                news.clear()
                looked = loop.time()
                taken = await self._take(count)
                left = None if deadline is None else deadline - loop.time()
                if taken or (left is not None and left <= 0):
                    return taken
                await news.wait(self._queue._pause(left))
                if (early := looked + runtime.LOOK_PAUSE_S - loop.time()) > 0:
                    await asyncio.sleep(early)
        finally:
            news.close()

    async def _take(self, count: int) -> list[Record]:
        return await self._calls.acquire(partial(self._queue._take, count), self._queue._untake)

    async def accept(self, records: Record | Iterable[Record]) -> None:
        """Settle a record, or several at once. See :meth:`pyreplog.Queue.accept`.

        Coroutines that call it at the same time share one write and one sync.
        """
        await self._accepts.add(self._queue._received(records))

    async def release(self, records: Record | Iterable[Record]) -> None:
        """Give records back. See :meth:`pyreplog.Queue.release`."""
        await self._calls.flush(self._queue.release, _listed(records))

    async def reject(self, records: Record | Iterable[Record], error: BaseException | str | None = None) -> None:
        """Make dead letters of records at once. See :meth:`pyreplog.Queue.reject`."""
        await self._calls.flush(self._queue.reject, _listed(records), error)

    async def renew(self, records: Record | Iterable[Record]) -> None:
        """Lock records for another 30 seconds. See :meth:`pyreplog.Queue.renew`."""
        await self._calls.flush(self._queue.renew, _listed(records))

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._queue.name

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` of this queue or of its log was called."""
        return self._closing is not None or self._queue.closed

    async def stats(self) -> QueueStats:
        """Return the numbers of the queue, of all its workers."""
        return await self._calls.read(self._queue.stats)

    async def close(self) -> None:
        """End this worker: its records are available again. A second call is harmless."""
        if self._closing is None:
            self._closing = self._calls.begin(self._queue.close)
            self._calls.stop()
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Queue:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._queue).replace("pyreplog.", "pyreplog.aio.", 1)


class _Accepts:
    """The accepts of all coroutines. While one call is in a thread, later ones gather for the next."""

    def __init__(self, queue: runtime.Queue, calls: ThreadCalls) -> None:
        self._queue = queue
        self._calls = calls
        self._waiting: list[tuple[list[Record], asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def add(self, records: list[Record]) -> None:
        """Accept ``records``, which are checked; return when that is done.

        Cancelling the wait does not undo it.
        """
        self._calls.check()
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((records, done))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        await done

    async def _run(self) -> None:
        """Accept until none waits."""
        try:
            while self._waiting:
                together, self._waiting = self._waiting, []
                await self._accept(together)
        finally:
            self._task = None
            for _, done in self._waiting:  # only if this task was cancelled
                done.cancel()
            self._waiting.clear()

    async def _accept(self, together: list[tuple[list[Record], asyncio.Future[None]]]) -> None:
        records = [record for given, _ in together for record in given]
        try:
            if len(together) > 1 and len({record.offset for record in records}) == len(records):
                try:
                    await self._calls.flush(self._queue.accept, records)
                except InvalidRecordStateError:
                    pass  # nothing was changed: find out whose records they are
                else:
                    for _, done in together:
                        if not done.done():
                            done.set_result(None)
                    return
            for given, done in together:
                try:
                    await self._calls.flush(self._queue.accept, given)
                except PyreplogError as error:
                    if not done.done():
                        done.set_exception(error)
                else:
                    if not done.done():
                        done.set_result(None)
        except BaseException as error:
            for _, done in together:
                if done.done():
                    continue
                if isinstance(error, PyreplogError):
                    done.set_exception(copy_for_raise(error))
                else:
                    done.cancel()
            if not isinstance(error, PyreplogError):
                raise


def _listed(records: Record | Iterable[Record]) -> list[Record]:
    """Return the records in a list, because an iterable of the loop must not run in a thread."""
    return [records] if isinstance(records, Record) else list(records)
