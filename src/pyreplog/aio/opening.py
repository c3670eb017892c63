"""Opening: an object to await, or to enter with ``async with``, that opens a log or a client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pyreplog.aio.calls import OwnedResult, ThreadCalls
from pyreplog.errors import LockedError, PyreplogError
from pyreplog.runtime import LockWait

__all__ = ["Opening"]

_log = logging.getLogger("pyreplog")


class BlockingResource(Protocol):
    """An object that blocks while it closes."""

    def close(self) -> None:
        """Close in order."""
        ...


class AsyncFace(Protocol):
    """The asyncio API of such an object."""

    async def close(self) -> None:
        """Close in order."""
        ...


F = TypeVar("F", bound=AsyncFace)


class Opening(Generic[F]):
    """Opens an object in a thread.

    ``await`` it for the object's asyncio API, or enter it with ``async with``, which also closes
    the object at the end.
    """

    def __init__(
        self,
        name: str,
        face: Callable[[Any, ThreadCalls], F],
        open_it: Callable[[], BlockingResource],
        wait: Callable[[], LockWait] | None = None,
    ) -> None:
        """``face`` gets the object that ``open_it`` made. ``wait``: how long ``open_it`` is
        repeated while a lock is held; None: not at all.
        """
        self._name = name
        self._face = face
        self._open = open_it
        self._wait = wait
        self._opened: F | None = None

    def __await__(self) -> Generator[Any, None, F]:
        return self._run().__await__()

    async def __aenter__(self) -> F:
        self._opened = await self._run()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()

    def __repr__(self) -> str:
        return f"<pyreplog.aio opening of {self._name!r}: await it, or enter it with `async with`>"

    if not TYPE_CHECKING:  # type checkers report such a use by themselves

        def __getattr__(self, name: str) -> object:
            raise AttributeError(f"{name!r} was used before the opening: enter it with `async with`, or await it")

    async def _run(self) -> F:
        wait = None if self._wait is None else self._wait()
        calls = ThreadCalls(self._name)
        try:
            while True:
                try:
                    return await self._attempt(calls)
                except LockedError as error:
                    refusal = error if wait is None else wait.refusal(error)
                pause = None if wait is None else wait.pause()
                if pause is None:
                    try:
                        raise refusal
                    finally:
                        del refusal  # as in LockWait.call
                await asyncio.sleep(pause)  # not in the thread, which no cancellation would end
        except BaseException:
            calls.stop()
            raise

    async def _attempt(self, calls: ThreadCalls) -> F:
        gift: OwnedResult[BlockingResource] = OwnedResult(self._open, _close)
        future: asyncio.Future[BlockingResource] | None = None  # as in Calls.acquire
        try:
            future = calls.begin(gift)
            return self._face(await asyncio.shield(future), calls)
        except BaseException:
            calls.drop(future, gift)
            raise


def _close(opened: BlockingResource) -> None:
    """Close an object that was opened for a cancelled caller."""
    try:
        opened.close()
    except PyreplogError:
        _log.exception("closing an object that was opened for a cancelled caller failed")
