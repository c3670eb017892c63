"""The lock that ``with`` takes and gives back whatever a signal handler raises, also on Python 3.14 and newer."""

from __future__ import annotations

import sys
import threading
from typing import Any, Final, cast

__all__ = ["Mutex", "new_mutex"]

_RLock: Any = type(threading.RLock())

IS_LEAKY: Final = sys.version_info >= (3, 14)
"""Whether something may be raised between the end of an ``__enter__`` of C's and the beginning of what ``with`` guards, which leaves the
lock taken for ever. On Python 3.14 by signal handlers: https://github.com/python/cpython/issues/148874. Since 3.15 by tracers alone."""


class Mutex(_RLock):  # type: ignore[misc]  # typeshed calls it final; it is not
    """An RLock that is entered in Python: behind the return of such a function no handler runs. Left it is in C."""

    __slots__ = ()

    def __enter__(self) -> bool:
        """Take it, or raise what a handler raised and leave it as it was."""
        depth = self._recursion_count()
        try:
            return bool(self.acquire())
        except BaseException:
            if self._recursion_count() > depth:
                self.release()
            raise


def new_mutex() -> threading.RLock:
    """A lock to be entered by ``with``. Its owner may enter it again; who must not has to ask first (``Guard``)."""
    return cast("threading.RLock", Mutex()) if IS_LEAKY else threading.RLock()
