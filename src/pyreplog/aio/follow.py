"""Follow a log in an event loop: the notifications that wake a thread elsewhere set an event here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from itertools import islice
from typing import Final

from pyreplog.aio.calls import ThreadCalls
from pyreplog.errors import ClosedError
from pyreplog.record import Record
from pyreplog.runtime import ChangeSignal, FileWatchSignal, Followed

__all__ = ["CHUNK_COUNT", "LoopNews", "follow", "in_chunks"]

CHUNK_COUNT: Final = 100
"""Records that a thread hands over at once. A thread switch costs about as much as decoding them.
"""


async def in_chunks(calls: ThreadCalls, records: Iterator[Record]) -> AsyncGenerator[list[Record], None]:
    """Yield ``records`` in lists that a thread reads. The records before an error come before it."""
    while True:
        chunk: list[Record] = []
        try:
            await calls.read(chunk.extend, islice(records, CHUNK_COUNT))
        except Exception:
            yield chunk
            raise
        if not chunk:
            return
        yield chunk


class LoopNews:
    """Change notifications (``news``) for one coroutine of the running loop."""

    def __init__(self, news: ChangeSignal, release: Callable[[], None] | None = None) -> None:
        """``release`` ends the notifications; None: ``news.close``."""
        self._news = news
        self._release = news.close if release is None else release
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._fd = -1
        news.told = self._tell
        if isinstance(news, FileWatchSignal) and news.watch is not None:
            self._fd = news.watch.fileno()
            self._loop.add_reader(self._fd, self._ready)

    def _tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the loop is closed: no coroutine waits any more
            pass

    def _ready(self) -> None:
        if isinstance(self._news, FileWatchSignal) and self._news.watch is not None:
            self._news.watch.clear()
        self._event.set()

    def clear(self) -> None:
        """Discard the notifications so far. Call this before you look, not after."""
        self._event.clear()

    async def wait(self, timeout: float | None) -> None:
        """Return at the next notification, and after at most ``timeout`` seconds."""
        if isinstance(self._news, FileWatchSignal):
            pause = self._news.pause()
            timeout = pause if timeout is None else min(timeout, pause)
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        """End the notifications."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
        self._news.told = None
        self._release()


async def follow(
    calls: ThreadCalls, view: Followed, start: int, timeout: float | None, is_closed: Callable[[], bool]
) -> AsyncGenerator[list[Record], None]:
    """Yield the records of :meth:`pyreplog.Log.follow` in lists.

    Once ``is_closed()``, a ClosedError ends it without an error.
    """
    loop = asyncio.get_running_loop()
    plain = await calls.acquire(view.news, lambda unwanted: unwanted.close())
    news = LoopNews(plain)
    try:
        end = await calls.read(_end_of, view)
        while True:
            async for chunk in in_chunks(calls, view.records(start, end)):
                if chunk:
                    start = chunk[-1].offset + 1
                yield chunk
            start = max(start, end)
            deadline = None if timeout is None else loop.time() + timeout
            while True:
                news.clear()
                end = await calls.read(_end_of, view)
                if end > start:
                    break
                left = None if deadline is None else deadline - loop.time()
                if left is not None and left <= 0:
                    return
                await news.wait(left)
            if isinstance(plain, FileWatchSignal):
                plain.came()
    except ClosedError:
        if not is_closed():
            raise
    finally:
        news.close()


def _end_of(view: Followed) -> int:
    view.look()
    return view.end_offset
