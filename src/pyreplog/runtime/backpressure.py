"""Room: how much may wait for a sync, and who waits until some of it is synced."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from pyreplog.errors import BufferExhaustedError
from pyreplog.runtime.background import release
from pyreplog.runtime.group_commit import LOOK_AGAIN_S

__all__ = ["UnsyncedBudget"]


class UnsyncedBudget:
    """The bytes of one log's batches that are written and wait for a sync. Changed under the log's lock; who waits
    does not hold it."""

    def __init__(self, size_max: int, block_ms: float) -> None:
        """At most ``size_max`` bytes are to wait, and nobody longer than ``block_ms`` for some of them to go."""
        self.size_max = size_max
        self.size = 0
        self._block_ms = block_ms
        self._batches: deque[tuple[int, int]] = deque()  # (the offset behind, bytes) of each
        self._wanted: list[threading.Lock] = []

    def take(self, next_offset: int, size: int) -> None:
        """A batch that ends before ``next_offset`` was written."""
        self._batches.append((next_offset, size))
        self.size += size

    def give_below(self, offset: int) -> None:
        """What ends at or below ``offset`` is synced."""
        batches = self._batches
        while batches and batches[0][0] <= offset:
            self.size -= batches.popleft()[1]

    def clear(self) -> None:
        """Nothing waits."""
        self._batches.clear()
        self.size = 0

    def tell(self) -> None:
        """Let everybody who waits look again."""
        for turn in tuple(self._wanted):
            release(turn)

    def wait(
        self,
        is_there: Callable[[], bool],
        waiting_size: Callable[[], int],
        check: Callable[[], None],
        ask: Callable[[], None],
        since: float | None = None,
    ) -> None:
        """Return once ``is_there``. ``check`` raises where that can no longer be; ``ask`` has somebody else sync,
        because a sync that the caller carried out itself could not be cut short. BufferExhaustedError, with the
        ``waiting_size``, where it takes too long, counted from ``since`` (None: now)."""
        deadline = (time.monotonic() if since is None else since) + self._block_ms / 1000
        while not is_there():
            check()
            left = deadline - time.monotonic()
            if left <= 0:
                raise BufferExhaustedError(waiting_size(), self.size_max, self._block_ms)
            turn = threading.Lock()
            turn.acquire()
            self._wanted.append(turn)
            try:
                ask()
                if not is_there():
                    turn.acquire(timeout=min(left, LOOK_AGAIN_S))
            finally:
                self._wanted.remove(turn)
