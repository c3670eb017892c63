"""File change notifications from inotify, for readers that follow a log of another process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from pyreplog._core import _platform

__all__ = ["SystemWatch", "open_watch"]

EVENTS_SIZE: Final = 1 << 16
"""Bytes read from the queue at once. Equal notifications in a row are one entry in it, so there is
rarely more than one.
"""


class SystemWatch:
    """One inotify queue. It closes with the process, and child programs do not inherit it."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are notifications; -1 once closed."""
        return self._fd

    def clear(self) -> None:
        """Discard the notifications so far."""
        try:
            while len(os.read(self._fd, EVENTS_SIZE)) > EVENTS_SIZE // 2:
                pass
        except BlockingIOError:  # no notification
            pass

    def close(self) -> None:
        """Close the queue. A second call is harmless."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def open_watch(paths: Sequence[str]) -> SystemWatch | None:
    """Watch ``paths`` for writes.

    Return None if ``paths`` is empty, one of them does not exist, or the system has no queue to
    spare.
    """
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
