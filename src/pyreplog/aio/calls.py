"""Calls: run the calls that may wait for a disk or a lock in threads, never in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Generic, ParamSpec, TypeVar

from pyreplog.errors import ClosedError, ForkedError, NoThreadError
from pyreplog.system import OwnedLock, is_no_thread

__all__ = ["ThreadCalls", "OwnedResult"]

READERS_MAX: Final = 4

P = ParamSpec("P")
T = TypeVar("T")


class OwnedResult(Generic[T]):
    """A call in a thread, whose result is released if the waiting coroutine was cancelled.

    The later of the two releases it: the thread when the call ends, or the coroutine when it is
    cancelled. No event loop needs to run any more.
    """

    def __init__(self, call: Callable[[], T], release: Callable[[T], object]) -> None:
        self._call = call
        self._release = release
        self._lock = OwnedLock()
        self._made: list[T] = []
        self._is_unwanted = False

    def __call__(self) -> T:
        """Run the call in a thread; release the result if it is no longer wanted."""
        made = self._call()
        with self._lock:
            self._made.append(made)
            is_unwanted = self._is_unwanted
        if is_unwanted:
            self._release(made)
        return made

    def refuse(self) -> Callable[[], object] | None:
        """Note that the result is not wanted; return a call that releases it, if it exists."""
        with self._lock:
            self._is_unwanted = True
            return partial(self._release, self._made[0]) if self._made else None


class _LazyExecutor:
    """Threads that start when first needed.

    If no thread can be started, a call is refused for good. A ThreadPoolExecutor alone would keep
    the refused call and run it later.
    """

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, name)
        self._is_alone = count == 1
        self._name = name
        self._is_there = False
        """Whether at least one thread started. It stays."""

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run ``call`` in a thread. NoThreadError: the call will never run."""
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
            # The pool wanted one more thread; the running threads carry out the call.
        self._is_there = True
        return future

    def stop(self) -> None:
        """Finish the started calls, and end the threads."""
        self._pool.shutdown(wait=False)


class ThreadCalls:
    """The threads of one log, cluster or client.

    * One thread writes, so that writes keep their order.
    * A few threads read, so that a slow read delays no write.
    * A few threads run calls that neither may delay: a flush of a log or a producer, or a
      consumer's check for records.

    Cancelling a coroutine that waits for a write does not undo the write: it is carried out, and
    its result is dropped. The same holds for a read or a flush that has started; before its start
    it is never run. Threads start when first needed. Belongs to one event loop.
    """

    def __init__(self, name: str) -> None:
        self._writing = _LazyExecutor(1, f"pyreplog writing {name}")
        self._reading = _LazyExecutor(READERS_MAX, f"pyreplog reading {name}")
        self._flushing = _LazyExecutor(READERS_MAX, f"pyreplog flushing {name}")
        self._name = name
        self._pid = os.getpid()
        self._stopped = False
        self.waiting_count = 0
        """Number of unfinished writes; a new write waits for them."""

    async def write(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``call`` after all earlier writes, and return its result."""
        return await asyncio.shield(self.begin_write(partial(call, *args, **kwargs)))

    def begin_write(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Start a write, see :meth:`write`, for a caller that awaits it, shielded, later."""
        future = self.begin(call)
        future.add_done_callback(_heard)
        return future

    async def written(self) -> None:
        """Return when all earlier writes are carried out."""
        if self.waiting_count:
            await self.write(lambda: None)

    async def flush(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``call``, for which no write waits, and return its result.

        If it must come after the earlier writes, await :meth:`written` first.
        """
        return await self._submit(self._flushing, partial(call, *args, **kwargs))

    def beside(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Start a call, see :meth:`flush`, for a caller that wants the future itself."""
        return self._submit(self._flushing, call)

    async def read(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``call`` when a reading thread is free, and return its result."""
        return await self._submit(self._reading, partial(call, *args, **kwargs))

    async def acquire(self, call: Callable[[], T], release: Callable[[T], object]) -> T:
        """Run ``call`` as :meth:`read` does; if the caller is cancelled, release the result.

        Any thread may release it.
        """
        gift = OwnedResult(call, release)
        # None until it is assigned: a signal handler may raise when a thread has the call already
        future: asyncio.Future[T] | None = None
        try:
            future = self._submit(self._reading, gift)
            return await asyncio.shield(future)
        except BaseException:
            self.drop(future, gift)
            raise

    def drop(self, future: asyncio.Future[T] | None, gift: OwnedResult[T]) -> None:
        """Drop the result of ``gift``, because the waiting caller was cancelled.

        ``future`` is the gift's future, if the caller got one.
        """
        if future is not None:
            # The loop is closed: no coroutine waits for the future.
            with contextlib.suppress(RuntimeError):
                future.cancel()
        left = gift.refuse()
        if left is not None:
            try:
                self._reading.submit(left)
            except RuntimeError:  # no thread can be started, or the threads have ended
                left()

    def begin(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Start a write, see :meth:`write`, for a caller that wants the future and its outcome."""
        future = self._submit(self._writing, call)
        if not future.done():  # from Python 3.14 on it may be done already
            self.waiting_count += 1
            future.add_done_callback(self._done)
        return future

    def dispatch(self, call: Callable[[], object]) -> None:
        """Run ``call`` beside the others; no caller waits for it."""
        if not self._stopped:
            self._flushing.submit(call)

    def stop(self) -> None:
        """Accept no more calls; the started ones are finished, then the threads end."""
        self._stopped = True
        self._writing.stop()
        self._reading.stop()
        self._flushing.stop()

    def check(self) -> None:
        """Raise ForkedError in the child of a fork, and ClosedError after :meth:`stop`."""
        if os.getpid() != self._pid:
            raise ForkedError(
                "it belongs to the parent process, and this process is a fork of that: open it again here"
            )
        if self._stopped:
            raise ClosedError(f"{self._name!r} is closed")

    def _submit(self, crew: _LazyExecutor, call: Callable[[], T]) -> asyncio.Future[T]:
        self.check()
        return asyncio.wrap_future(crew.submit(call))

    def _done(self, future: asyncio.Future[Any]) -> None:
        self.waiting_count -= 1


def _heard(future: asyncio.Future[Any]) -> None:
    """Mark the error of ``future`` as retrieved: the caller may have been cancelled."""
    if not future.cancelled():
        future.exception()


def _carry_out(future: Future[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
        # Break the cycle: the error would keep the future alive, and the future the error.
        del future
    else:
        future.set_result(result)
