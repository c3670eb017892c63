"""Records: an asynchronous iterator that goes on after a timeout."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

from pyreplog.record import Record

__all__ = ["Records", "Steps"]


class Records(AsyncIterator[Record]):
    """Records one by one. If the wait for the next one is cancelled, as ``asyncio.wait_for`` does at its timeout, the iterator stays good:
    the next ``anext`` goes on with the same wait, and each record comes once, in order.

    ``aclose()`` ends it, and releases what it holds; ``contextlib.aclosing`` takes it. Belongs to one event loop.
    """

    def __init__(self, chunks: AsyncGenerator[Sequence[Record], None], take: Callable[[Record], bool] | None = None) -> None:
        """``take`` is asked for each record as it is handed over. False: this one and the rest of its chunk are left out."""
        self._chunks = chunks
        self._take = take
        self._left: deque[Record] = deque()
        self._waiting: asyncio.Task[Sequence[Record] | None] | None = None
        """The wait for the next chunk, which a cancelled ``anext`` leaves to the next one."""
        self._ended = False

    def __aiter__(self) -> Records:
        return self

    async def __anext__(self) -> Record:
        while True:
            while self._left:
                record = self._left.popleft()
                if self._take is None or self._take(record):
                    return record
                self._left.clear()
            if self._ended:
                raise StopAsyncIteration
            waiting = self._waiting
            if waiting is None:
                # A task of its own: cancelling the caller must not end the generator. It does not know this object, which may go before it.
                waiting = self._waiting = asyncio.ensure_future(_next(self._chunks))
                waiting.add_done_callback(_heard)
            try:
                chunk = await asyncio.shield(waiting)
            except asyncio.CancelledError:
                if waiting.cancelled():
                    self._waiting = None
                raise
            except BaseException:
                self._waiting, self._ended = None, True
                raise
            self._waiting = None
            if chunk is None:
                self._ended = True
            else:
                self._left.extend(chunk)

    async def aclose(self) -> None:
        """No more records, and nothing is held for them any longer."""
        self._ended = True
        self._left.clear()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.cancel()
            await asyncio.wait([waiting])
        await self._chunks.aclose()

    def __del__(self) -> None:
        waiting = getattr(self, "_waiting", None)
        if waiting is not None and not waiting.done():
            with suppress(RuntimeError):  # the loop is closed: nothing waits in it
                waiting.get_loop().call_soon_threadsafe(waiting.cancel)


async def _next(chunks: AsyncGenerator[Sequence[Record], None]) -> Sequence[Record] | None:
    """The next chunk; None at the end."""
    return await anext(chunks, None)


def _heard(task: asyncio.Task[Sequence[Record] | None]) -> None:
    """An error is told to the caller that asks next, if any does."""
    if not task.cancelled():
        task.exception()


class Steps(AsyncIterator[Record]):
    """Records by a step that may be cancelled and asked again without a loss: None is the end."""

    def __init__(self, step: Callable[[], Awaitable[Record | None]]) -> None:
        self._step = step
        self._ended = False

    def __aiter__(self) -> Steps:
        return self

    async def __anext__(self) -> Record:
        record = None if self._ended else await self._step()
        if record is None:
            self._ended = True
            raise StopAsyncIteration
        return record

    async def aclose(self) -> None:
        """No more records."""
        self._ended = True
