"""Which open files hold one of the process's few descriptors, and which must give theirs up.

Ten thousand partitions have more files than a process may open. So a file gives its descriptor up when too many are held and it was not
used for longest, and gets a new one when it is used again, by path, if the same file is still there. One per process.

What was written and not synced keeps its descriptor, so that a failed write-back is told to whoever syncs it; only where the process would
run out is such a file synced first, and let go when that succeeded.
"""

from __future__ import annotations

import os
import resource
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from pyreplog.interruptions import is_interruption
from pyreplog.ports import OUT_OF_DESCRIPTORS

__all__ = ["DESCRIPTORS_MAX", "SHELF", "Shelf", "make_room", "opener"]

DESCRIPTORS_MAX: Final = 256
"""Descriptors of files that have nothing unsynced, besides those that have."""
LOOKS: Final = 16
"""So many files are asked for theirs whenever one more needs one."""
RESERVED: Final = 64
"""Of what the process may open, so many are left to others."""


class Lendable(Protocol):
    """A file that can do without its descriptor for a while."""

    def park(self, *, sync: bool) -> bool:
        """Give it up, unless something unsynced was written through it (with ``sync``: sync that first); whether it has none now."""
        ...

    def take_used(self) -> bool:
        """Whether it was used since the last call."""
        ...


class Shelf:
    """The files that hold a descriptor, those that got it first in front. Any thread, and any signal handler: there is no lock to wait
    for."""

    def __init__(self) -> None:
        #: Above this many, files with nothing unsynced give theirs up.
        self.size_max = DESCRIPTORS_MAX
        self._files: deque[weakref.ref[Lendable]] = deque()

    def put(self, file: Lendable) -> None:
        """``file`` just got a descriptor: others may have to give theirs up."""
        most = hard_limit()
        if len(self._files) >= min(self.size_max, most):
            self._thin_out(most)
        self._files.append(weakref.ref(file))

    def clear(self, *, sync: bool = False) -> None:
        """Have every file give its descriptor up that can; with ``sync`` also those that have to be synced first."""
        self._rotate(len(self._files), 0, sync=sync, all_of_them=True)

    def abandon(self) -> None:
        """In a forked child: the files are the parent's."""
        self._files.clear()

    def _thin_out(self, most: int) -> None:
        # A few at a time: most may have to stay.
        self._rotate(LOOKS, min(self.size_max, most) - 1, sync=False)
        if len(self._files) >= most:
            self._rotate(len(self._files), most, sync=True)

    def _rotate(self, turns: int, size: int, *, sync: bool, all_of_them: bool = False) -> None:
        """Look at up to ``turns`` files until no more than ``size`` are left."""
        for _ in range(turns):
            if len(self._files) <= size:
                return
            try:
                reference = self._files.popleft()
            except IndexError as error:  # others had the same thought
                if is_interruption(error):
                    raise
                return
            file = reference()
            if file is None:
                continue
            if (file.take_used() and not all_of_them and not sync) or not file.park(sync=sync):
                self._files.append(reference)


def hard_limit() -> int:
    """So many descriptors may be held at most, those with something unsynced included."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if soft == resource.RLIM_INFINITY else max(soft - RESERVED, soft // 2)


def make_room(open_it: Callable[[], int]) -> int:
    """What ``open_it`` returns; where the system has no descriptor left, after others gave theirs up."""
    for sync in (False, True):
        try:
            return open_it()
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
        SHELF.clear(sync=sync)
    return open_it()


def opener(path: str, flags: int) -> int:
    """For ``open(..., opener=opener)``: small files that are read at once."""
    return make_room(lambda: os.open(path, flags))


SHELF: Final = Shelf()
os.register_at_fork(after_in_child=SHELF.abandon)
