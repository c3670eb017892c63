"""News of files, from inotify: what wakes who follows a log that another process writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from pyreplog._core import _platform

__all__ = ["SystemWatch", "open_watch"]

EVENTS_SIZE: Final = 1 << 16
"""Bytes taken from the queue at once. Equal news in a row is one entry in it, so there is rarely more than one."""


class SystemWatch:
    """One inotify queue. Closed with the process, and not inherited by programs it starts."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """Readable while there is news; -1 once closed."""
        return self._fd

    def clear(self) -> None:
        """Forget the news so far."""
        try:
            while len(os.read(self._fd, EVENTS_SIZE)) > EVENTS_SIZE // 2:
                pass
        except BlockingIOError:  # none
            pass

    def close(self) -> None:
        """Release it. Twice is harmless."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def open_watch(paths: Sequence[str]) -> SystemWatch | None:
    """News of writes to ``paths``; None where there is nothing to watch, one is not there, or the system has no queue to spare."""
    if not paths:
        return None
    place = _platform.ffi.new("int *")
    if _platform.lib.rl_watch_open(place):
        return None
    watch = SystemWatch(place[0])
    for path in paths:
        if _platform.lib.rl_watch_add(watch.fileno(), os.fsencode(path)):
            watch.close()
            return None
    return watch
