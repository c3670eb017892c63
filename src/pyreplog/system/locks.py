"""OwnedLock: the lock of every room that has threads. It knows its owner, and no signal handler can leak it.

A thread that holds the lock is in the middle of a change. A signal handler or a ``__del__`` that
runs within that thread can neither wait for the end of the change nor go on, so ``enter`` refuses
it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self

from pyreplog.errors import ReentrantCallError

__all__ = ["OwnedLock"]

_RLock: Any = type(threading.RLock())

ENTRY_LEAKS: Final = sys.version_info >= (3, 14)
"""Whether an exception may strike between the end of a C ``__enter__`` and the ``with`` body, which
leaves the lock taken for ever. On Python 3.14 signal handlers can raise there:
https://github.com/python/cpython/issues/148874. Since 3.15 only tracers can.
"""
_AT_ONCE: Final = (False,)


class OwnedLock(_RLock):  # type: ignore[misc]  # typeshed calls it final; it is not
    """A lock that is taken by ``with lock.enter():``, or by ``with lock:`` if its owner may come again.

    ``with`` costs as much as with a lock of C, because this class has no methods for it before
    Python 3.14.
    """

    __slots__ = ("_name",)

    def __new__(cls, name: str = "the lock") -> Self:
        """``name``: how errors call the guarded object, such as a log or a cluster."""
        made: Self = super().__new__(cls)
        made._name = name
        return made

    is_mine: ClassVar[Callable[[Any], bool]] = _RLock._is_owned
    """Return whether this thread holds the lock. It is a method of C."""

    def enter(self) -> Self:
        """Return the lock, for ``with``. Raises :class:`ReentrantCallError` if this thread holds it."""
        if self.is_mine():
            raise self.refuse()
        return self

    def try_enter(self, held: list[bool]) -> bool:
        """Take the lock if it is free; return whether it was, and then append True to ``held``.

        REQUIRES that the caller does ``if held: lock.release()`` in a ``finally`` clause. One call
        into C takes the lock and appends, so no signal handler runs in between. False too if this
        thread holds the lock already.
        """
        if self.is_mine():
            return False
        held.extend(filter(None, map(self.acquire, _AT_ONCE)))
        return bool(held)

    def refuse(self, advice: str = "") -> ReentrantCallError:
        """Return the error for a call within another call of the same thread.

        ``advice``: another way to reach the same.
        """
        return ReentrantCallError(
            f"{self._name} is used within another use of it by this thread, by a signal handler, a __del__ or a weak"
            f" reference's callback: have another thread do it, or do it when that has returned{advice}"
        )


def enter_safely(lock: Any) -> bool:
    """Take ``lock``, or raise a signal handler's exception and leave the lock as before.

    As the ``__enter__`` of a lock it leaves no gap: CPython runs no signal handler between the
    return of a Python ``__enter__`` and the ``with`` body. ``__exit__`` is the C implementation.
    """
    depth = lock._recursion_count()
    try:
        return bool(lock.acquire())
    except BaseException:
        if lock._recursion_count() > depth:
            lock.release()
        raise


if ENTRY_LEAKS:
    OwnedLock.__enter__ = enter_safely
