"""A lock for ``with`` that no signal handler's exception can leak, also on Python 3.14 and newer."""

from __future__ import annotations

import sys
import threading
from typing import Any, Final, cast

__all__ = ["Mutex", "new_mutex"]

_RLock: Any = type(threading.RLock())

IS_LEAKY: Final = sys.version_info >= (3, 14)
"""Whether an exception may strike between the end of a C ``__enter__`` and the ``with`` body, which
leaves the lock taken for ever. On Python 3.14 signal handlers can raise there:
https://github.com/python/cpython/issues/148874. Since 3.15 only tracers can.
"""


class Mutex(_RLock):  # type: ignore[misc]  # typeshed calls it final; it is not
    """An RLock whose ``__enter__`` is written in Python.

    CPython runs no signal handler between the return of a Python ``__enter__`` and the ``with``
    body, so the lock cannot leak. ``__exit__`` is the C implementation.
    """

    __slots__ = ()

    def __enter__(self) -> bool:
        """Take the lock, or raise a signal handler's exception and leave the lock as before."""
        depth = self._recursion_count()
        try:
            return bool(self.acquire())
        except BaseException:
            if self._recursion_count() > depth:
                self.release()
            raise


def new_mutex() -> threading.RLock:
    """Return a lock to be entered by ``with``.

    Its owner may enter it again. A caller that must not has to check first (``Guard``).
    """
    return cast("threading.RLock", Mutex()) if IS_LEAKY else threading.RLock()
