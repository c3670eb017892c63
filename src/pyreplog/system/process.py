"""Which process an object belongs to.

A forked child inherits every object of its parent, and writing through one of them would corrupt
the parent's log. So each file and disk remembers the :class:`Process` that made it. After
``fork()`` the child marks that process as left, and every object made in it raises
:class:`ForkedError`. Testing one attribute costs 20 ns; ``os.getpid()`` costs a system call.

A forked child shares an open-file-description lock and would keep it after the parent ends. So the
child closes its copies of the lock files' descriptors at once. The parent's lock stays held: only
the last copy's close, or an unlock, releases it. The parent unlocks when it releases, because a
child that was forked just before may not have closed its copy yet.
"""

from __future__ import annotations

import contextlib
import os

from pyreplog.errors import ForkedError

__all__ = ["Process", "current"]


class Process:
    """One process, as its objects see it. ``left`` becomes True in a child that inherited them."""

    __slots__ = ("left", "lock_descriptors", "pid")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.left = False
        self.lock_descriptors: dict[int, None] = {}

    def refuse(self, what: str) -> ForkedError:
        """Return the error for a use of ``what`` in a child."""
        return ForkedError(
            f"{what} belongs to process {self.pid}, and this process is a fork of it: open it again here"
        )


_current = Process()


def current() -> Process:
    """Return the process that is running now."""
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
