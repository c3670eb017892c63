"""The calls of a simulated disk, and the faults planted for them."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyreplog.testing.storage import Inode

__all__ = ["MUTATING", "Call", "Fault"]

MUTATING: Final = frozenset(
    (
        "create",
        "write",
        "truncate",
        "start_sync",
        "sync",
        "submit_sync",
        "rename",
        "remove",
        "make_directory",
        "remove_directory",
        "sync_directory",
        "lock",
    )
)
"""Kinds of calls that change the disk. Only a crash before one of these leaves a new state."""


class Call(NamedTuple):
    """A disk call that is about to happen. ``number`` counts from 1; ``data`` is the data of a write."""

    number: int
    kind: str
    path: str
    position: int = 0
    data: bytes = b""
    inode: Inode | None = None

    def __str__(self) -> str:
        detail = (
            f" {len(self.data)} bytes at {self.position}"
            if self.data
            else f" at {self.position}"
            if self.position
            else ""
        )
        return f"{self.number} {self.kind} {self.path}{detail}"


@dataclass(slots=True)
class Fault:
    """A fault planted by :meth:`SimDisk.fail`. ``kind`` and ``path`` are patterns (``*``)."""

    kind: str
    path: str
    nth: int
    times: int | None
    errno: int
    partial: int
    seen: int = 0
    hits: int = 0
    """The number of calls that failed: a test of a fault asserts that it is not 0."""

    def strikes(self, kind: str, path: str) -> bool:
        """Count one call, and return whether it fails."""
        if not (fnmatch.fnmatchcase(kind, self.kind) and fnmatch.fnmatchcase(path, self.path)):
            return False
        self.seen += 1
        if self.seen < self.nth or (self.times is not None and self.seen >= self.nth + self.times):
            return False
        self.hits += 1
        return True
