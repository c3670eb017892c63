"""Calls: what may wait for a disk or a lock runs in threads, never in the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from pyreplog.errors import ClosedError, ForkedError

__all__ = ["Calls"]

READERS_MAX: Final = 4

P = ParamSpec("P")
T = TypeVar("T")


class Calls:
    """One thread that writes, so that calls keep their order, and a few that read, so that a slow read delays nobody's write.

    Cancelling who waits does not take a call back: it is carried out, and its result dropped. Threads start when first needed. Belongs to
    one event loop.
    """

    def __init__(self, name: str) -> None:
        self._writing = ThreadPoolExecutor(1, f"pyreplog writing {name}")
        self._reading = ThreadPoolExecutor(READERS_MAX, f"pyreplog reading {name}")
        self._pid = os.getpid()
        self._stopped = False
        self.waiting_count = 0
        """Writes that were not carried out yet: who comes now waits behind them."""

    async def write(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of ``call``, carried out after all writes before it."""
        self.waiting_count += 1
        future = self._submit(self._writing, partial(call, *args, **kwargs))
        future.add_done_callback(self._done)
        return await asyncio.shield(future)

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of ``call``, carried out when a reading thread is free."""
        return await asyncio.shield(self._submit(self._reading, partial(call, *args, **kwargs)))

    async def acquire(self, call: Callable[[], T], release: Callable[[T], None]) -> T:
        """As :meth:`read`; what nobody wants any more, because who waited was cancelled, is released again."""
        future = self._submit(self._reading, call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda done: None if done.cancelled() or done.exception() else release(done.result()))
            raise

    def begin(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """As :meth:`write`, for who wants to hold the call itself."""
        self.waiting_count += 1
        future = self._submit(self._writing, call)
        future.add_done_callback(self._done)
        return future

    def dispatch(self, call: Callable[[], None]) -> None:
        """Have ``call`` carried out in a reading thread, with nobody waiting for it."""
        if not self._stopped:
            self._reading.submit(call)

    def stop(self) -> None:
        """Take nothing more on. What was begun is finished, and the threads end."""
        self._stopped = True
        self._writing.shutdown(wait=False)
        self._reading.shutdown(wait=False)

    def _submit(self, pool: ThreadPoolExecutor, call: Callable[[], T]) -> asyncio.Future[T]:
        if os.getpid() != self._pid:
            raise ForkedError("it belongs to the parent process, of which this one is a fork: open it again here")
        if self._stopped:
            raise ClosedError("closed meanwhile")
        return asyncio.get_running_loop().run_in_executor(pool, call)

    def _done(self, future: asyncio.Future[Any]) -> None:
        self.waiting_count -= 1
