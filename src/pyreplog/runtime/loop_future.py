"""A future that a coroutine awaits and that another thread settles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["loop_future"]


def loop_future() -> tuple[Any, Callable[[], None]]:
    """Return a future of the running event loop, and a function that settles it.

    Any thread may call the function, any number of times. If the loop is closed, the call does nothing.
    """
    import asyncio  # noqa: PLC0415  (loading it takes longer than opening a log; callers that await have it)

    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def finish() -> None:
        if not future.done():
            future.set_result(None)

    def end() -> None:
        try:
            loop.call_soon_threadsafe(finish)
        except RuntimeError:  # the loop is closed, so no coroutine waits
            pass

    return future, end
