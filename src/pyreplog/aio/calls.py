"""Calls: what may wait for a disk or a lock runs in threads, never in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeVar

from pyreplog.errors import ClosedError, ForkedError, NoThreadError
from pyreplog.interruptions import is_no_thread
from pyreplog.mutex import new_mutex

__all__ = ["Calls", "Gift"]

READERS_MAX: Final = 4

P = ParamSpec("P")
T = TypeVar("T")


class Gift(Generic[T]):
    """A call that a thread carries out, whose result has to be released where nobody wants it any more by then. Whoever comes second sees
    to that, the thread or who waited: no event loop needs to be left."""

    def __init__(self, call: Callable[[], T], release: Callable[[T], object]) -> None:
        self._call = call
        self._release = release
        self._lock = new_mutex()
        self._made: list[T] = []
        self._is_unwanted = False

    def __call__(self) -> T:
        """In the thread."""
        made = self._call()
        with self._lock:
            self._made.append(made)
            is_unwanted = self._is_unwanted
        if is_unwanted:
            self._release(made)
        return made

    def refuse(self) -> Callable[[], object] | None:
        """Nobody waits any more. What is there already is for the caller to release: that call is returned."""
        with self._lock:
            self._is_unwanted = True
            return partial(self._release, self._made[0]) if self._made else None


class _Crew:
    """Threads that start when first needed, and take nothing on where there is none to do it: a ThreadPoolExecutor keeps what it said that
    it could not take, and carries it out later."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, name)
        self._is_alone = count == 1
        self._name = name
        self._is_there = False
        """Whether at least one thread started. It stays."""

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have ``call`` carried out. NoThreadError: it never will be."""
        if self._is_there and self._is_alone:
            return self._pool.submit(call)
        future: Future[T] = Future()
        try:
            self._pool.submit(_carry_out, future, call)
        except RuntimeError as error:
            if not is_no_thread(error):  # the interpreter ends
                raise
            if not self._is_there:
                future.cancel()
                raise NoThreadError(f"for {self._name}") from error
            # One more was wanted; those that there are carry it out.
        self._is_there = True
        return future

    def stop(self) -> None:
        """Finish what was begun, and end."""
        self._pool.shutdown(wait=False)


class Calls:
    """One thread that writes, so that calls keep their order; a few that read, so that a slow read delays nobody's write; and a few for
    what neither may delay: a log's or a producer's flush, a consumer's look at what is there.

    Cancelling who waits does not take a write back: it is carried out, and its result dropped. So it is with a read or a flush that
    was begun; one that was not never is. Threads start when first needed. Belongs to one event loop.
    """

    def __init__(self, name: str) -> None:
        self._writing = _Crew(1, f"pyreplog writing {name}")
        self._reading = _Crew(READERS_MAX, f"pyreplog reading {name}")
        self._flushing = _Crew(READERS_MAX, f"pyreplog flushing {name}")
        self._name = name
        self._pid = os.getpid()
        self._stopped = False
        self.waiting_count = 0
        """Writes that were not carried out yet: who comes now waits behind them."""

    async def write(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of ``call``, carried out after all writes before it."""
        return await asyncio.shield(self.begin_write(partial(call, *args, **kwargs)))

    def begin_write(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """As :meth:`write`, begun now: for who awaits it, shielded, a little later."""
        future = self.begin(call)
        future.add_done_callback(_heard)
        return future

    async def written(self) -> None:
        """Return when all writes before it are carried out."""
        if self.waiting_count:
            await self.write(lambda: None)

    async def flush(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of ``call``, for which no write waits. It may have to wait for those before it: :meth:`written`."""
        return await self._submit(self._flushing, partial(call, *args, **kwargs))

    def beside(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """As :meth:`flush`, for who wants to hold the call itself."""
        return self._submit(self._flushing, call)

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of ``call``, carried out when a reading thread is free."""
        return await self._submit(self._reading, partial(call, *args, **kwargs))

    async def acquire(self, call: Callable[[], T], release: Callable[[T], object]) -> T:
        """As :meth:`read`; what nobody wants any more, because who waited was cancelled, is released again, in any thread."""
        gift = Gift(call, release)
        future: asyncio.Future[T] | None = None  # until somebody has hold of it: a signal handler may raise when a thread has it already
        try:
            future = self._submit(self._reading, gift)
            return await asyncio.shield(future)
        except BaseException:
            self.drop(future, gift)
            raise

    def drop(self, future: asyncio.Future[T] | None, gift: Gift[T]) -> None:
        """Nobody waits any more for what ``future``, if anybody got hold of that, gives of ``gift``."""
        if future is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is told of that either
                future.cancel()
        left = gift.refuse()
        if left is not None:
            try:
                self._reading.submit(left)
            except RuntimeError:  # no thread is to be had, or none any more
                left()

    def begin(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """As :meth:`write`, for who wants to hold the call itself, and to hear how it ended."""
        future = self._submit(self._writing, call)
        if not future.done():  # from Python 3.14 on it may be already
            self.waiting_count += 1
            future.add_done_callback(self._done)
        return future

    def dispatch(self, call: Callable[[], object]) -> None:
        """Have ``call`` carried out beside the others, with nobody waiting for it."""
        if not self._stopped:
            self._flushing.submit(call)

    def stop(self) -> None:
        """Take nothing more on. What was begun is finished, and the threads end."""
        self._stopped = True
        self._writing.stop()
        self._reading.stop()
        self._flushing.stop()

    def check(self) -> None:
        """Raise ForkedError in the child of a fork, ClosedError where nothing more is taken on."""
        if os.getpid() != self._pid:
            raise ForkedError("it belongs to the parent process, of which this one is a fork: open it again here")
        if self._stopped:
            raise ClosedError(f"{self._name!r} is closed")

    def _submit(self, crew: _Crew, call: Callable[[], T]) -> asyncio.Future[T]:
        self.check()
        return asyncio.wrap_future(crew.submit(call))

    def _done(self, future: asyncio.Future[Any]) -> None:
        self.waiting_count -= 1


def _heard(future: asyncio.Future[Any]) -> None:
    """What it met concerns only who waits for it: who was cancelled does not any more."""
    if not future.cancelled():
        future.exception()


def _carry_out(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
        del future  # which the error would keep alive, and that the error
    else:
        future.set_result(result)
