"""Which process an object belongs to.

A forked child inherits every object of its parent, and writing through one of them would corrupt the parent's log. So each
file and disk remembers the :class:`Process` it was made in; after ``fork()`` the child marks that one as left behind, and
everything made in it raises :class:`ForkedError`. Testing one attribute costs 20 ns where ``os.getpid()`` costs a system call.

An open-file-description lock is shared with the child and would outlive the parent in it, so the child closes its copies of the
lock files' descriptors at once. The parent's lock stays held: only the last copy's close, or an unlock, gives it up. The parent unlocks
when it releases: a child that was forked just before may not have come to that yet.
"""

from __future__ import annotations

import contextlib
import os

from pyreplog.errors import ForkedError

__all__ = ["Process", "current"]


class Process:
    """One process, as its objects see it. ``left`` turns True in a child that inherited them."""

    __slots__ = ("left", "lock_descriptors", "pid")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.left = False
        self.lock_descriptors: dict[int, None] = {}

    def refuse(self, what: str) -> ForkedError:
        """The error for a use of ``what`` in a child."""
        return ForkedError(f"{what} belongs to process {self.pid}, of which this one is a fork: open it again here")


_current = Process()


def current() -> Process:
    """The process that is running now."""
    return _current


def _in_child() -> None:
    global _current
    parent, _current = _current, Process()
    parent.left = True
    for descriptor in parent.lock_descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    parent.lock_descriptors.clear()


os.register_at_fork(after_in_child=_in_child)
