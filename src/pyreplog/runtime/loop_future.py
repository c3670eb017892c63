"""What a coroutine waits for, and another thread brings about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["loop_future"]


def loop_future() -> tuple[Any, Callable[[], None]]:
    """A future of the running event loop, and what ends it: from any thread, any number of times, and for nothing
    where the loop is closed by then."""
    import asyncio  # noqa: PLC0415  (takes longer to load than a log to open, and who awaits has it)

    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def finish() -> None:
        if not future.done():
            future.set_result(None)

    def end() -> None:
        try:
            loop.call_soon_threadsafe(finish)
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass

    return future, end
