"""The lock of a folder: one writer, whoever it is.

An open-file-description lock (``F_OFD_SETLK``) excludes another process, a second open in this one, a second copy of this library in this
one, and a Kafka broker (whose POSIX lock it conflicts with). ``flock`` would miss the broker; a POSIX lock would miss the
second open, and would be lost when anybody here opened and closed the file. Where a system has no such lock, a POSIX lock and a
registry of (device, inode) do what can be done.

People remove lock files, and then there is another one to lock. So a file that nobody removes is held too, by a ``flock`` that concerns
nobody but this library (:func:`hold_file`).
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import os
import stat
import struct
import sys
import time
from collections.abc import Callable
from typing import Final

from pyreplog.errors import LockedError, StorageError
from pyreplog.interruptions import is_interruption
from pyreplog.system.permissions import Modes, modes_of
from pyreplog.system.process import current

__all__ = ["SystemLock", "hold_file", "take_lock"]

OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
HOLD_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
TEXT_SIZE_MAX: Final = 512
HOLDER_TRIES: Final = 10
HOLDER_WAIT_S: Final = 0.005
"""The holder writes its text just after it got the lock: who is refused in between waits this often, this long."""

_SETLK: Final[int] = getattr(fcntl, "F_OFD_SETLK", 0)
_GETLK: Final[int] = getattr(fcntl, "F_OFD_GETLK", 0)
_FLOCK: Final = "qqihh" if sys.platform == "darwin" else "hhqqi0q"
"""``struct flock``, in native alignment. Of macOS: start, length (0: to the end), pid, type, whence; of Linux: the last two come first."""

_NO_FLOCK: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.EBADF, errno.ENOSYS)
"""Of a file system without this kind of lock, as a network's may be."""

_OWNER: Final = modes_of("owner")

_registry: dict[tuple[int, int], str] = {}
"""What this process holds: (device, inode) -> text. Asked only where the system's lock does not exclude the process itself. There it names
a file until that is closed, which gives up the POSIX lock of whoever has one."""


class SystemLock:
    """A lock that is held, of a lock file or of one that stays as it is. Given up by ``release``, or by the end of the process, or where
    nobody has it any more.

    A signal handler that raises may do so at any call. What belongs together is therefore done by statements without one.
    """

    __slots__ = ("_fd", "_key", "_process", "_text")

    def __init__(self) -> None:
        """Nothing yet: made by :func:`take_lock` and :func:`hold_file`."""
        self._fd = -1
        self._key: tuple[int, int] | None = None  # None: no lock file that is locked
        self._text = ""
        self._process = current()

    def release(self) -> None:
        """Give it up. Twice is harmless, and so is a call in a forked child, which never held it."""
        fd = self._fd
        if fd < 0 or self._process.left:
            return
        try:
            if self._key is not None:
                _tidy(lambda: os.ftruncate(fd, 0))  # the text names a holder, and there is none any more
            # Whichever of both it has: a process that was forked just now may still have a copy, which would keep it.
            _tidy(lambda: _set(fd, fcntl.F_UNLCK))
            _tidy(lambda: fcntl.flock(fd, fcntl.LOCK_UN))
        finally:
            if self._fd >= 0:  # no other thread was faster
                self._fd = -1
                del self._process.lock_descriptors[fd]
                try:
                    os.close(fd)
                finally:
                    # Another thread may have the system's lock by now, and its own text there.
                    if self._key in _registry and _registry[self._key] is self._text:
                        del _registry[self._key]

    def __del__(self) -> None:
        # Of one whose taking was interrupted before anybody had it.
        if getattr(self, "_fd", -1) >= 0:
            self.release()


def _tidy(step: Callable[[], None]) -> None:
    """A step before a descriptor is closed, which gives up what this could not. What a signal handler raises is its caller's."""
    try:
        step()
    except OSError as error:
        if is_interruption(error):
            raise


def take_lock(path: str, about: str, modes: Modes = _OWNER) -> SystemLock:
    """Take the lock file ``path``, made where missing, and write this process and ``about`` into it.

    Raises :class:`LockedError` with the holder's text, or :class:`StorageError`.
    """
    text = f"pid {os.getpid()} on {os.uname().nodename} since {_now()}{f' ({about})' if about else ''}"
    lock = SystemLock()
    _get(lock, path, OPEN_FLAGS, modes.file, lambda: _take(lock, path, text, modes))
    return lock


def hold_file(path: str) -> SystemLock:
    """Hold the file ``path``, which stays as it is. Raises :class:`LockedError`, or :class:`StorageError`."""
    held = SystemLock()
    _get(held, path, HOLD_FLAGS, 0, lambda: _flock(held._fd, path))
    return held


def _get(lock: SystemLock, path: str, flags: int, mode: int, take: Callable[[], None]) -> None:
    """Open ``path`` for ``lock``, and ``take`` it."""
    opened: list[int] = []
    try:
        _open(path, flags, mode, opened)
        fd = opened[0]
        lock._process.lock_descriptors[fd] = None
        lock._fd = fd
        del opened[:]
        take()
    except BaseException as error:
        lock.release()
        for descriptor in opened:
            os.close(descriptor)
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise StorageError.from_os_error(error, "locking", path) from error
        raise


def _open(path: str, flags: int, mode: int, opened: list[int]) -> None:
    """Add its descriptor to ``opened``."""
    try:
        if not _SETLK and flags is OPEN_FLAGS:
            _refuse_registered(path)
        # One call into C: no signal handler comes between the descriptor and its note.
        opened.extend(map(os.open, (path,), (flags,), (mode,)))
    except LockedError:
        raise
    except OSError as error:
        raise StorageError.from_os_error(error, "opening the lock file" if flags is OPEN_FLAGS else "opening", path) from error


def _take(lock: SystemLock, path: str, text: str, modes: Modes) -> None:
    fd = lock._fd
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(errno.EINVAL, "the lock file is no regular file", path)
    if status.st_size == 0 and status.st_uid == os.geteuid():
        modes.settle_file(fd)
    if not _try(fd):
        raise LockedError(path, _holder(fd))
    key = (status.st_dev, status.st_ino)
    lock._text = _registry[key] = text
    lock._key = key
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode()[:TEXT_SIZE_MAX], 0)


def _flock(fd: int, path: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if is_interruption(error) or error.errno not in (errno.EAGAIN, *_NO_FLOCK):
            raise
        if error.errno == errno.EAGAIN:
            raise LockedError(path, f"a process whose lock file was removed (`fuser {path}` names it)") from None


def _now() -> str:
    return datetime.datetime.fromtimestamp(time.time(), datetime.UTC).isoformat(timespec="seconds")


def _try(fd: int) -> bool:
    try:
        _set(fd, fcntl.F_WRLCK)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES) and not is_interruption(error):
            return False
        raise
    return True


def _set(fd: int, kind: int) -> None:
    """``F_WRLCK`` or ``F_UNLCK``."""
    if _SETLK:
        fcntl.fcntl(fd, _SETLK, _request(kind))
    else:
        fcntl.lockf(fd, fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _request(kind: int) -> bytes:
    """For a lock of ``kind``, of the whole file."""
    if sys.platform == "darwin":
        return struct.pack(_FLOCK, 0, 0, 0, kind, os.SEEK_SET)
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


def _refuse_registered(path: str) -> None:
    # Before the file is opened: closing it again would give this process's own POSIX lock up.
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(path)
        holder = _registry.get((status.st_dev, status.st_ino))
        if holder is not None:
            raise LockedError(path, f"this process, {holder}")


def _holder(fd: int) -> str:
    if _GETLK:
        found = struct.unpack(_FLOCK, fcntl.fcntl(fd, _GETLK, _request(fcntl.F_WRLCK)))
        kind, pid = (found[3], found[2]) if sys.platform == "darwin" else (found[0], found[4])
        if kind != fcntl.F_UNLCK and pid > 0:
            # A POSIX lock: not one of ours, so the text, if any, is of an earlier holder.
            return f"pid {pid} (another program, perhaps a Kafka broker)"
    for _ in range(HOLDER_TRIES):
        if text := os.pread(fd, TEXT_SIZE_MAX, 0):
            holder = text.decode("utf-8", "replace")
            return f"this process, {holder}" if holder.startswith(f"pid {os.getpid()} on {os.uname().nodename} ") else holder
        time.sleep(HOLDER_WAIT_S)
    return "a process that left no name"


def _in_child() -> None:
    _registry.clear()  # a child holds none of its parent's locks


os.register_at_fork(after_in_child=_in_child)
