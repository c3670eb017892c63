"""A file that several processes change, one at a time.

Two kinds of locks, which do not know each other. A ``flock`` of the whole file is held during one
change. It takes a third of the time of an open-file-description lock, and excludes another opening
in the same process too. An open-file-description lock of one byte, far behind the end of any file,
is held as long as the file is open. The system gives both back when the process ends, however it
ends. A forked child closes its copies at once (:mod:`pyreplog.system.process`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
import time
from typing import TYPE_CHECKING, Final, NoReturn, SupportsIndex

from pyreplog._core import APPEND_DONE, QuickAppend, _platform
from pyreplog.errors import ClosedError, LockedError, PyreplogError, StorageError
from pyreplog.system.descriptor_cache import with_free_descriptor
from pyreplog.system.file import sync_outcome
from pyreplog.system.locks import OwnedLock
from pyreplog.system.permissions import Modes
from pyreplog.system.process import current
from pyreplog.system.signals import is_interruption

if TYPE_CHECKING:
    from pyreplog.ports import Buffer

__all__ = ["SystemSharedFile"]

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_HELD_BASE: Final = 1 << 61
"""The byte that stands for the number 0. No file reaches so far."""
_SETLK: Final[int] = getattr(fcntl, "F_OFD_SETLK", 0)
_GETLK: Final[int] = getattr(fcntl, "F_OFD_GETLK", 0)
_FLOCK: Final = "qqihh" if sys.platform == "darwin" else "hhqqi0q"
"""``struct flock``, as in :mod:`pyreplog.system.file_lock`."""
_LOCK: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
_SHARE: Final = fcntl.LOCK_SH | fcntl.LOCK_NB

LOCK_WAIT_S: Final = 10.0
"""A change takes microseconds, or two syncs. A process that keeps the lock for longer was stopped, or its disk
hangs."""
PAUSE_MIN_S: Final = 0.00002
PAUSE_MAX_S: Final = 0.001


class SystemSharedFile:
    """The real :class:`~pyreplog.ports.SharedFile`. Made by :class:`~pyreplog.system.SystemDisk`."""

    __slots__ = ("_fd", "_identity", "_path", "_process", "_quick", "_sync_error", "_syncing")

    def __init__(self, path: str, modes: Modes) -> None:
        """Open ``path``, and make it if it is missing. Raises OSError."""
        self._fd = -1
        self._path = path
        self._process = current()
        self._syncing = OwnedLock(path)
        self._sync_error = 0
        self._quick = QuickAppend()
        if not _SETLK:
            raise StorageError(errno.ENOTSUP, "this system has no open-file-description locks, which it needs", path)
        opened: list[int] = []
        try:
            # One call into C: no signal handler runs between the open and its note.
            fd = with_free_descriptor(lambda: _open_into(opened, path, modes.file))
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "Not a regular file")
            if status.st_size == 0 and status.st_uid == os.geteuid():
                modes.settle_file(fd)
            self._identity = (status.st_dev, status.st_ino)
            self._process.lock_descriptors[fd] = None
            self._fd = fd
            del opened[:]
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("an open file cannot be copied")

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    @property
    def path(self) -> str:
        """The path by which the file was opened."""
        return self._path

    def lock(self, *, shared: bool = False) -> None:
        """Keep every other opening out, until :meth:`unlock`; see :class:`pyreplog.ports.SharedFile`."""
        fd = self._fd
        if fd < 0 or self._process.left:
            self._open()
        kind = _SHARE if shared else _LOCK
        try:
            fcntl.flock(fd, kind)
        except OSError as error:
            if error.errno != errno.EAGAIN or is_interruption(error):
                raise self._failed(error, "locking") from error
        else:
            return
        self._wait_for_lock(kind)

    def lock_and_read(self, first: int, first_size: int, second: int, second_size: int) -> tuple[bytes, bytes]:
        """Take the lock, and return the bytes of two places. One method, because its users call nothing more often."""
        fd = self._fd
        if fd < 0 or self._process.left:
            self._open()
        try:
            fcntl.flock(fd, _LOCK)
        except OSError as error:
            if error.errno != errno.EAGAIN or is_interruption(error):
                raise self._failed(error, "locking") from error
            self._wait_for_lock(_LOCK)
        try:
            return os.pread(fd, first_size, first), os.pread(fd, second_size, second)
        except OSError as error:
            raise self._failed(error, f"reading at bytes {first} and {second}") from error

    def append_unchanged(self, place: int, expected: bytes, position: int, data: bytes) -> bool:
        """Append under the lock, unless another opening changed the file; see :class:`pyreplog.ports.SharedFile`."""
        fd = self._fd
        if fd < 0 or self._process.left:
            self._open()
        code = self._quick.append(fd, place, expected, position, data)
        if code < 0:
            raise self._failed(OSError(-code, os.strerror(-code)), f"writing at byte {position}")
        return code == APPEND_DONE

    def _wait_for_lock(self, kind: int) -> None:
        deadline = time.monotonic() + LOCK_WAIT_S
        pause = PAUSE_MIN_S
        while True:
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)
            try:
                fcntl.flock(self._open(), kind)
            except OSError as error:
                if error.errno != errno.EAGAIN or is_interruption(error):
                    raise self._failed(error, "locking") from error
            else:
                return
            if time.monotonic() >= deadline:
                raise LockedError(
                    self._path,
                    f"a process that does not finish its change (`fuser {self._path}` names those that have it open)",
                    "the file",
                    reading="let that process go on",
                    waiting="try again",
                    waited_s=LOCK_WAIT_S,
                )

    def unlock(self) -> None:
        """Give the lock back."""
        fd = self._fd
        if fd < 0 or self._process.left:
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_UN)
        except OSError as error:
            raise self._failed(error, "unlocking") from error

    def hold(self, number: int) -> bool:
        """Hold ``number``; return False if another opening holds it."""
        try:
            fcntl.fcntl(self._open(), _SETLK, _request(number))
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES) or is_interruption(error):
                raise self._failed(error, f"holding number {number}") from error
            return False
        return True

    def is_held(self, number: int) -> bool:
        """Return whether another opening holds ``number``."""
        try:
            found = struct.unpack(_FLOCK, fcntl.fcntl(self._open(), _GETLK, _request(number)))
        except OSError as error:
            raise self._failed(error, f"asking for number {number}") from error
        kind: int = found[3] if sys.platform == "darwin" else found[0]
        return kind != fcntl.F_UNLCK

    def is_current(self) -> bool:
        """Return whether the path still names this file."""
        self._open()
        try:
            status = os.stat(self._path)
        except FileNotFoundError as error:
            if is_interruption(error):
                raise
            return False
        except OSError as error:
            raise self._failed(error, "looking at it") from error
        return (status.st_dev, status.st_ino) == self._identity

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of ``data`` at ``position``."""
        fd = self._open()
        try:
            written = os.pwrite(fd, data, position)
            if type(data) is bytes and written == len(data):
                return
            view = memoryview(data).cast("B")
            while written < len(view):
                count = os.pwrite(fd, view[written:], position + written)
                if not count:
                    raise OSError(errno.EIO, "the system wrote no byte")
                written += count
        except OSError as error:
            raise self._failed(error, f"writing at byte {position}") from error

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``position``."""
        fd = self._open()
        try:
            data = os.pread(fd, size, position)
            while 0 < len(data) < size and (more := os.pread(fd, size - len(data), position + len(data))):
                data += more
        except OSError as error:
            raise self._failed(error, f"reading {size} bytes at byte {position}") from error
        return data

    def sync(self) -> None:
        """Block until the content is on stable storage. One thread at a time, because the kernel reports a failure
        once."""
        with self._syncing:
            fd = self._open()
            code = self._sync_error or sync_outcome(_platform.lib.rl_sync_data, fd)
            if code:
                self._sync_error = code
                raise self._failed(OSError(code, os.strerror(code)), "syncing")

    def close(self) -> None:
        """Close the file; a sync that runs in another thread finishes first."""
        if self._process.left:
            self._fd = -1  # the child has closed its copies
            return
        with self._syncing:
            fd, self._fd = self._fd, -1
            if fd < 0:
                return
            del self._process.lock_descriptors[fd]
            try:
                # A process that was forked just now may still have a copy, which keeps the locks.
                fcntl.flock(fd, fcntl.LOCK_UN)
                fcntl.fcntl(fd, _SETLK, _request(None))
            except OSError as error:
                if is_interruption(error):
                    raise
            finally:
                os.close(fd)

    def _open(self) -> int:
        if self._process.left:
            raise self._process.refuse(self._path)
        if self._fd < 0:
            raise ClosedError(f"{self._path} is closed")
        return self._fd

    def _failed(self, error: OSError, doing: str) -> PyreplogError:
        if self._fd < 0:
            return ClosedError(f"{self._path} is closed")
        return StorageError.from_os_error(error, doing, self._path)


def _open_into(opened: list[int], path: str, mode: int) -> int:
    opened.extend(map(os.open, (path,), (_FLAGS,), (mode,)))
    return opened[0]


def _request(number: int | None) -> bytes:
    """Return the request for a lock of ``number``; None: give up every number."""
    start, size = (_HELD_BASE, 0) if number is None else (_HELD_BASE + number, 1)
    kind = fcntl.F_UNLCK if number is None else fcntl.F_WRLCK
    if sys.platform == "darwin":
        return struct.pack(_FLOCK, start, size, 0, kind, os.SEEK_SET)
    return struct.pack(_FLOCK, kind, os.SEEK_SET, start, size, 0)
