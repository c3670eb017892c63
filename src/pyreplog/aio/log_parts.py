"""The methods of a log for coroutines that open named readers, queues and tables."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pyreplog import runtime
from pyreplog.aio.named_consumer import NamedConsumer
from pyreplog.aio.opening import Opening
from pyreplog.aio.queue import Queue
from pyreplog.aio.table import Table
from pyreplog.errors import ClosedError

if TYPE_CHECKING:
    from pyreplog.runtime import OnDataLoss, Start

__all__ = ["LogParts"]


class LogParts:
    """The part of :class:`Log` that opens objects which keep files of their own beside the log."""

    _log: runtime.Log
    _closing: asyncio.Future[None] | None

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closing is not None

    def _check(self) -> None:
        if self.closed:
            raise ClosedError(f"{self._log._name} is closed")

    def queue(
        self,
        name: str,
        offsets: str | os.PathLike[str] | None = None,
        dead_letters: str | os.PathLike[str] | None = None,
    ) -> Opening[Queue]:
        """Open a worker of the queue ``name``, by ``await`` or ``async with``.

        See :meth:`pyreplog.Log.queue`.
        """
        self._check()
        return Opening(f"queue {name}", Queue, partial(self._log.queue, name, offsets, dead_letters))

    def consumer(
        self,
        name: str,
        offsets: str | os.PathLike[str] | None = None,
        dead_letters: str | os.PathLike[str] | None = None,
        lock_timeout: float | None = 0,
        auto_commit: bool = False,
        start: Start = "earliest",
        on_data_loss: OnDataLoss = "raise",
    ) -> Opening[NamedConsumer]:
        """Open the reader ``name`` of this log: ``async with log.consumer("billing") as consumer``.

        See :meth:`pyreplog.Log.consumer`.
        """
        open_it = partial(
            self._log.consumer,
            name,
            offsets,
            dead_letters,
            auto_commit=auto_commit,
            start=start,
            on_data_loss=on_data_loss,
        )
        return Opening("consumer", NamedConsumer, open_it, partial(runtime.reader_wait, name, lock_timeout))

    def table(
        self, store: str | os.PathLike[str] | None = None, *, progress: Callable[[int, int], object] | None = None
    ) -> Opening[Table]:
        """Open the latest value of each key, by ``await`` or ``async with``; see :meth:`pyreplog.Log.table`.

        ``progress`` is called in a thread.
        """
        self._check()
        return Opening("table", Table, partial(self._log.table, store, progress=progress))
