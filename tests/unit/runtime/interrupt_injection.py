"""Exceptions that are raised where the interpreter would run a signal handler, in the thread that asks for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

from pyreplog.errors import ReentrantCallError, UnsyncedError

__all__ = ["Strike", "Struck", "interrupted", "struck"]

SPARED: Final = ("/testing/", "/system/", "/log/")
"""Disks and logs are not struck: they have tests of their own. The locks of ``system`` are."""


class Struck(BaseException):
    """As KeyboardInterrupt: nothing in the library expects it."""


class Strike:
    """Raises ``error`` at the ``moment``-th point where the interpreter would run a signal handler (where a Python
    function begins, and where a C function has returned), and ``again`` as many times, each ``distance`` such
    points later; not in code that is ``spared``."""

    def __init__(
        self,
        moment: int,
        again: int = 0,
        distance: int = 1,
        *,
        error: type[BaseException] = Struck,
        spared: Sequence[str] = SPARED,
    ) -> None:
        self.left = moment
        self.again = again
        self.distance = distance
        self.error = error
        self.spared = spared
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event not in ("call", "c_return") or self._is_spared(frame.f_code.co_filename):
            return
        self.left -= 1
        if self.left == 0:
            self.count += 1
            if self.again:
                self.again, self.left = self.again - 1, self.distance
            raise self.error

    def _is_spared(self, path: str) -> bool:
        return any(part in path for part in self.spared) and not path.endswith("/system/locks.py")


def struck(strike: Strike, use: Callable[[], object]) -> bool:
    """Call ``use`` under ``strike``. Whether that came."""
    sys.setprofile(strike)
    try:
        use()
    except Struck:
        pass
    except RuntimeError as error:  # Python's own Condition, struck within its wait, gives back a lock that it has not
        if not isinstance(error.__context__, Struck):
            raise
    finally:
        sys.setprofile(None)
    return strike.count > 0


def interrupted(moment: int, use: Callable[[], object], error: type[BaseException] = Struck) -> bool:
    """Call ``use``, which is struck once, wherever that is but in the simulated disk: it stands for system calls.
    Whether that came."""
    strike = Strike(moment, error=error, spared=("/testing/",))
    sys.setprofile(strike)
    try:
        use()
    except (error, ReentrantCallError, UnsyncedError):
        pass
    finally:
        sys.setprofile(None)
    return strike.count > 0
