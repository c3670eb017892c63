"""BreakableLog: one real log on real files, for tests that break its disk."""

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
    """The folder of one log on a :class:`BreakableDisk`.

    ``open()`` opens the log, also after a crash. Leaving the ``with`` block closes it. The pytest fixture
    ``replog_log`` makes one. For a cluster see :class:`BreakableCluster`. ``seed`` decides how much a torn file
    keeps. ``permissions``: as for ``open_log``.
    """

    def __init__(self, path: str | os.PathLike[str], *, seed: int = 0, permissions: Permissions = "owner") -> None:
        """Prepare the disk; the log is not opened yet."""
        self.path = os.fspath(path)
        self.disk = BreakableDisk(check_permissions(permissions))
        """For ``pyreplog.open_log(path, disk=...)`` and its asyncio twin, if the program under test opens the
        log."""
        self._tears = Random(seed)
        self._log: Log | None = None

    def open(self, **settings: Any) -> Log:
        """Open the log for writing and return it, with the settings of :func:`pyreplog.open_log`.

        Only one can be open: an earlier one is closed first.
        """
        self.close()
        self._log = open_log(self.path, disk=self.disk.begin_life(), **settings)
        return self._log

    def close(self) -> None:
        """Close the log if it is open. Raises the error that the disk reports."""
        log, self._log = self._log, None
        if log is not None:
            log.close()

    def fail_disk(self, calls: Sequence[str] = ("write", "sync"), *, errno: int = errors.EIO) -> None:
        """Let these disk calls fail until :meth:`heal`: ``"write"``, ``"sync"``, ``"read"``, ``"create"``."""
        self.disk.fail(calls, errno)

    def slow_disk(self, seconds: float) -> None:
        """Delay every sync by ``seconds`` until :meth:`heal`."""
        self.disk.slow(seconds)

    def heal(self) -> None:
        """Repair the disk. A log in which a sync failed still refuses appends: :meth:`open` it again."""
        self.disk.mend()

    def tear(self) -> int:
        """Cut the power; return the number of bytes lost.

        The log is closed without another write, and part of its unsynced data is lost. :meth:`open` opens it again,
        as after a crash.
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
        with suppress(PyreplogError):  # a poisoned log raises its error again
            self.close()
