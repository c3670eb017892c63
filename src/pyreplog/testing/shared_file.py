"""A file of a simulated disk that several simulated processes change, one at a time."""

from __future__ import annotations

import errno
from typing import Protocol

from typing_extensions import Buffer

from pyreplog.errors import ClosedError, LockedError
from pyreplog.ports import Stat
from pyreplog.testing.file_tree import storage_error
from pyreplog.testing.storage import Inode

__all__ = ["SharedLocks", "SimSharedFile"]


class _Disk(Protocol):
    """The parts of a simulated disk that a shared file uses."""

    generation: int

    def begin(self, kind: str, path: str) -> None:
        """Count one call."""
        ...

    def write(self, path: str, inode: Inode, position: int, data: bytes) -> None:
        """Write ``data`` to a file."""
        ...

    def sync(self, path: str, inode: Inode) -> None:
        """Sync a file."""
        ...

    def stat(self, path: str) -> Stat | None:
        """Return the status of ``path``."""
        ...


class SharedLocks:
    """The locks of all shared files of a disk. :meth:`SimDisk.kill` clears them."""

    def __init__(self) -> None:
        self.owners: dict[Inode, SimSharedFile] = {}
        self.numbers: dict[tuple[Inode, int], SimSharedFile] = {}

    def clear(self) -> None:
        """Forget all locks."""
        self.owners.clear()
        self.numbers.clear()


class SimSharedFile:
    """A :class:`~pyreplog.ports.SharedFile` of a :class:`SimDisk`.

    One thread runs the simulated processes, so a lock that another opening has is never given back while a caller
    waits: :meth:`lock` raises at once.
    """

    def __init__(self, disk: _Disk, path: str, inode: Inode, locks: SharedLocks) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._locks = locks
        self._closed = False
        self._generation = disk.generation
        self._sync_failed = False

    @property
    def path(self) -> str:
        """The path by which the file was opened."""
        return self._path

    def lock(self, *, shared: bool = False) -> None:
        """Keep every other opening out, also if the lock is ``shared``: one thread runs all processes."""
        self._check()
        self._disk.begin("lock_shared", self._path)
        owner = self._locks.owners.setdefault(self._inode, self)
        if owner is not self:
            raise LockedError(self._path, "another process of this simulated machine")

    def lock_and_read(self, first: int, first_size: int, second: int, second_size: int) -> tuple[bytes, bytes]:
        """Take the lock, and return the bytes of two places."""
        self.lock()
        return self.read_at(first, first_size), self.read_at(second, second_size)

    def append_unchanged(self, place: int, expected: bytes, position: int, data: bytes) -> bool:
        """Append under the lock, unless another opening changed the file."""
        self._check()
        if self._locks.owners.get(self._inode, self) is not self:
            return False
        found, free = self.lock_and_read(place, len(expected), position, 4)
        if found == expected and free == bytes(4):
            self.write_at(position, data)
            self.unlock()
            return True
        self.unlock()
        return False

    def unlock(self) -> None:
        """Give the lock back."""
        if self._locks.owners.get(self._inode) is self:
            del self._locks.owners[self._inode]

    def hold(self, number: int) -> bool:
        """Hold ``number``; return False if another opening holds it."""
        self._check()
        return self._locks.numbers.setdefault((self._inode, number), self) is self

    def is_held(self, number: int) -> bool:
        """Return whether another opening holds ``number``."""
        self._check()
        return self._locks.numbers.get((self._inode, number), self) is not self

    def is_current(self) -> bool:
        """Return whether the path still names this file."""
        self._check()
        found = self._disk.stat(self._path)
        return found is not None and found.identity == (0, self._inode.number)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of ``data``. If a fault strikes, only the first bytes may be written."""
        self._check()
        self._disk.write(self._path, self._inode, position, bytes(data))

    def read_at(self, position: int, size: int) -> bytes:
        """Return ``size`` bytes from ``position``; fewer only at the end of the file."""
        self._check()
        self._disk.begin("read", self._path)
        return bytes(self._inode.data[position : position + size])

    def sync(self) -> None:
        """Make the content stable. After a failure every later call fails too."""
        self._check()
        if self._sync_failed:
            raise storage_error(errno.EIO, "syncing after a sync failed", self._path)
        self._sync_failed = True
        self._disk.sync(self._path, self._inode)
        self._sync_failed = False

    def close(self) -> None:
        """Close the file, and give up its locks."""
        if self._closed:
            return
        self._closed = True
        if self._generation == self._disk.generation:
            self.unlock()
            for key in [key for key, holder in self._locks.numbers.items() if holder is self]:
                del self._locks.numbers[key]

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._path} is closed")
        if self._generation != self._disk.generation:
            raise ClosedError(f"{self._path}: the process that opened it was killed")
