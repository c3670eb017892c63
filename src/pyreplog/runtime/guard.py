"""Guard: the lock of one log, or one of a cluster's, which refuses the thread that has it already instead of
waiting for ever.

That thread is in the middle of something: a signal handler or a ``__del__`` that runs within it can neither wait
for its end nor go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from pyreplog.errors import ReentrantCallError
from pyreplog.mutex import new_mutex

__all__ = ["Guard"]


class Guard:
    """``lock``, to be entered by ``with`` (no signal handler comes between taking it and guarding it), and who has
    it.

    It knows its owner, which costs nothing more. That its owner could take it again is what nobody may do: ask
    ``is_mine`` first.
    """

    __slots__ = ("_name", "is_mine", "lock")

    def __init__(self, name: str) -> None:
        """``name``: what errors call the log, or the cluster."""
        self._name = name
        lock: Any = new_mutex()
        self.lock: Final[threading.RLock] = lock
        #: Whether this thread has it. What ``threading.Condition`` asks, too.
        self.is_mine: Final[Callable[[], bool]] = lock._is_owned

    def free(self) -> threading.RLock:
        """``lock``, where this thread does not hold it. Raises :class:`ReentrantCallError`."""
        if self.is_mine():
            raise self.refuse()
        return self.lock

    def refuse(self, advice: str = "") -> ReentrantCallError:
        """What to tell who is within another call; ``advice``: what else would do."""
        return ReentrantCallError(
            f"{self._name} is used within another use of it by this thread, by a signal handler, a __del__ or a weak"
            f" reference's callback: have another thread do it, or do it when that has returned{advice}"
        )
