"""Decide which open files hold one of the process's few descriptors, and which give theirs up.

Ten thousand partitions have more files than a process may open. If too many descriptors are held,
the least recently used file gives its descriptor up. It opens its path again when it is used next,
if the same file is still there. There is one such registry per process.

A file with unsynced writes keeps its descriptor, so that the kernel reports a failed write-back to
the sync. Only if the process would run out of descriptors is such a file synced first; it gives its
descriptor up if that succeeded.
"""

from __future__ import annotations

import os
import resource
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from pyreplog.ports import NO_DESCRIPTORS_ERRNOS
from pyreplog.system.signals import is_interruption

__all__ = ["DESCRIPTORS_MAX", "DESCRIPTORS", "DescriptorCache", "with_free_descriptor", "opener"]

DESCRIPTORS_MAX: Final = 256
"""Most descriptors held by files without unsynced writes, besides those with unsynced writes."""
EVICTION_SCAN: Final = 16
"""Files examined per eviction."""
RESERVED: Final = 64
"""Descriptors of the process's limit that are left to other code."""


class Evictable(Protocol):
    """A file that can do without its descriptor for a while."""

    def release_descriptor(self, *, sync: bool) -> bool:
        """Give the descriptor up, unless it has unsynced writes; return whether it is given up now.

        With ``sync``, sync the unsynced writes first.
        """
        ...

    def clear_used(self) -> bool:
        """Return whether the file was used since the last call."""
        ...


class DescriptorCache:
    """The files that hold a descriptor, in the order in which they got it.

    Any thread and any signal handler may use it: there is no lock to wait for.
    """

    def __init__(self) -> None:
        #: Above this many descriptors, files without unsynced writes give theirs up.
        self.size_max = DESCRIPTORS_MAX
        self._files: deque[weakref.ref[Evictable]] = deque()

    def put(self, file: Evictable) -> None:
        """Register ``file``, which just got a descriptor; other files may have to give theirs up."""
        most = hard_limit()
        if len(self._files) >= min(self.size_max, most):
            self._evict(most)
        self._files.append(weakref.ref(file))

    def clear(self, *, sync: bool = False) -> None:
        """Have every file give its descriptor up that can.

        With ``sync``, this includes files that must be synced first.
        """
        self._rotate(len(self._files), 0, sync=sync, all_of_them=True)

    def abandon(self) -> None:
        """Forget all files in a forked child: they are the parent's."""
        self._files.clear()

    def _evict(self, most: int) -> None:
        # A few at a time: most may have to stay.
        self._rotate(EVICTION_SCAN, min(self.size_max, most) - 1, sync=False)
        if len(self._files) >= most:
            self._rotate(len(self._files), most, sync=True)

    def _rotate(self, turns: int, size: int, *, sync: bool, all_of_them: bool = False) -> None:
        """Examine up to ``turns`` files until no more than ``size`` are left."""
        for _ in range(turns):
            if len(self._files) <= size:
                return
            try:
                reference = self._files.popleft()
            except IndexError as error:  # other threads emptied it
                if is_interruption(error):
                    raise
                return
            file = reference()
            if file is None:
                continue
            if (file.clear_used() and not all_of_them and not sync) or not file.release_descriptor(sync=sync):
                self._files.append(reference)


def hard_limit() -> int:
    """Return how many descriptors files may hold at most, including those with unsynced writes."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if soft == resource.RLIM_INFINITY else max(soft - RESERVED, soft // 2)


def with_free_descriptor(open_it: Callable[[], int]) -> int:
    """Return the result of ``open_it``; if no descriptor is left, free some and call it again."""
    for sync in (False, True):
        try:
            return open_it()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS_ERRNOS:
                raise
        DESCRIPTORS.clear(sync=sync)
    return open_it()


def opener(path: str, flags: int) -> int:
    """Open a small file that is read at once: for ``open(..., opener=opener)``."""
    return with_free_descriptor(lambda: os.open(path, flags))


DESCRIPTORS: Final = DescriptorCache()
os.register_at_fork(after_in_child=DESCRIPTORS.abandon)
