"""Back-pressure: how many bytes may wait for a sync, and the threads that wait until some of them
are synced."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from pyreplog.errors import BufferExhaustedError
from pyreplog.runtime.background import release

__all__ = ["LOOK_AGAIN_S", "UnsyncedBudget"]

LOOK_AGAIN_S: Final = 0.1
"""How long a sleeping thread trusts that another one will wake it."""


class UnsyncedBudget:
    """The bytes of one log's batches that are written and not yet synced, and their bound.

    Changed under the log's lock, which a waiting thread does not hold.
    """

    def __init__(self, size_max: int, block_ms: float) -> None:
        """At most ``size_max`` bytes may wait for a sync, and a thread waits at most ``block_ms``
        for room."""
        self.size_max = size_max
        self.size = 0
        self._block_ms = block_ms
        self._batches: deque[tuple[int, int]] = deque()  # (the offset behind, bytes) of each
        self._wanted: list[threading.Lock] = []

    def take(self, next_offset: int, size: int) -> None:
        """Count a batch of ``size`` bytes that was written and ends before ``next_offset``."""
        self._batches.append((next_offset, size))
        self.size += size

    def give_below(self, offset: int) -> None:
        """Give back the bytes of the batches below ``offset``, which are synced."""
        batches = self._batches
        while batches and batches[0][0] <= offset:
            self.size -= batches.popleft()[1]

    def clear(self) -> None:
        """Give all bytes back."""
        self._batches.clear()
        self.size = 0

    def tell(self) -> None:
        """Let every waiting thread look again."""
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
        """Return once ``is_there()`` says that there is room.

        ``check`` raises if there can be none any more. ``ask`` has another thread sync, because a
        sync by the caller itself could not be cut short. BufferExhaustedError, with the
        ``waiting_size``, ``block_ms`` after ``since`` (None: now).
        """
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
