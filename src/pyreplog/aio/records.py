"""Items and Records: an asynchronous iterator that goes on after a timeout."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from pyreplog.record import Record

__all__ = ["Items", "Records", "Steps"]

T = TypeVar("T")


class Items(AsyncIterator[T], Generic[T]):
    """Iterates over items, and survives the cancellation of a wait.

    If the wait for the next item is cancelled, as ``asyncio.wait_for`` does at its timeout, the
    next ``anext`` continues the same wait. Each item comes once, in order. ``aclose()`` ends the
    iterator and releases its resources; ``contextlib.aclosing`` accepts it. Belongs to one event
    loop.
    """

    def __init__(self, chunks: AsyncGenerator[Sequence[T], None], take: Callable[[T], bool] | None = None) -> None:
        """``take`` is called with each item as it is handed over; False skips the rest of its
        chunk.
        """
        self._chunks = chunks
        self._take = take
        self._left: deque[T] = deque()
        self._waiting: asyncio.Task[Sequence[T] | None] | None = None
        """The wait for the next chunk, which a cancelled ``anext`` leaves to the next one."""
        self._ended = False

    def __aiter__(self) -> Items[T]:
        return self

    async def __anext__(self) -> T:
        while True:
            while self._left:
                item = self._left.popleft()
                if self._take is None or self._take(item):
                    return item
                self._left.clear()
            if self._ended:
                raise StopAsyncIteration
            waiting = self._waiting
            if waiting is None:
                # A task of its own, because cancelling the caller must not end the generator. The
                # task has no reference to this object, which may be deleted before it.
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
        """Yield no more items, and release all resources."""
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


async def _next(chunks: AsyncGenerator[Sequence[T], None]) -> Sequence[T] | None:
    """Return the next chunk; None at the end."""
    return await anext(chunks, None)


def _heard(task: asyncio.Task[Sequence[T] | None]) -> None:
    """Mark the task's error as retrieved: the next caller, if any, gets it."""
    if not task.cancelled():
        task.exception()


class Records(Items[Record]):
    """Iterates over records; see :class:`Items`."""

    def __aiter__(self) -> Records:
        return self


class Steps(AsyncIterator[Record]):
    """Iterates over records by an awaitable step, which can be cancelled and repeated.

    No record is lost by that. The step returns None at the end.
    """

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
        """Yield no more records."""
        self._ended = True
