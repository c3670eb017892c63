"""BreakableLog: one real log on real files, whose disk breaks when a test says so."""

from __future__ import annotations

import errno as errors
import os
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any, Self

from pyreplog.config import Permissions, check_permissions
from pyreplog.errors import PyreplogError
from pyreplog.runtime import Log, open_log
from pyreplog.testing.breakable import BreakableDisk

__all__ = ["BreakableLog"]


class BreakableLog:
    """A log's folder on a :class:`BreakableDisk`. ``open()`` opens the log, and again after a crash; what is open
    is closed at the end.

    The pytest fixture ``replog_log`` makes one. For a cluster see :class:`BreakableCluster`. ``seed``: how much a
    torn file keeps. ``permissions``: as for ``open_log``.
    """

    def __init__(self, path: str | os.PathLike[str], *, seed: int = 0, permissions: Permissions = "owner") -> None:
        """Nothing is opened yet."""
        self.path = os.fspath(path)
        self.disk = BreakableDisk(check_permissions(permissions))
        """For ``pyreplog.open_log(path, disk=...)`` and its asyncio twin, if the program under test opens the
        log."""
        self._tears = Random(seed)
        self._log: Log | None = None

    def open(self, **settings: Any) -> Log:
        """The log, opened for writing. ``settings``: those of :func:`pyreplog.open_log`. One at a time: the one
        before is closed."""
        self.close()
        self._log = open_log(self.path, disk=self.disk.begin_life(), **settings)
        return self._log

    def close(self) -> None:
        """Close the log that is open, if any. Raises what its disk says."""
        log, self._log = self._log, None
        if log is not None:
            log.close()

    def fail_disk(self, calls: Sequence[str] = ("write", "sync"), *, errno: int = errors.EIO) -> None:
        """These calls of the disk (``"write"``, ``"sync"``, ``"read"``, ``"create"``) fail from now on, until
        :meth:`heal`."""
        self.disk.fail(calls, errno)

    def slow_disk(self, seconds: float) -> None:
        """Every sync takes so much longer, until :meth:`heal`."""
        self.disk.slow(seconds)

    def heal(self) -> None:
        """The disk works again. A log that met a failed sync stays closed to appends: :meth:`open` it again."""
        self.disk.mend()

    def tear(self) -> int:
        """Cut the power: the log ends without writing anything more, and some of what it had not synced is gone.
        Return how many bytes.

        :meth:`open` opens it again, as after a crash.
        """
        self.disk.fail(("write", "sync", "create"), errors.EIO)
        with suppress(PyreplogError):
            self.close()
        self.disk.mend()
        return self.disk.tear(self._tears)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()
        with suppress(PyreplogError):  # a log that was poisoned on purpose says so again
            self.close()
