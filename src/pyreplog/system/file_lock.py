"""The lock of a folder: it admits one writer.

An open-file-description lock (``F_OFD_SETLK``) excludes another process, a second open in this one,
a second copy of this library in this one, and a Kafka broker (its POSIX lock conflicts). ``flock``
would miss the broker. A POSIX lock would miss the second open, and would be lost when any code of
this process opened and closed the file. If a system has no open-file-description lock, a POSIX lock
and a registry of (device, inode) do as much as they can.

People remove lock files, and the next opener then locks a new file. So a second file that is never
removed is held too, by a ``flock`` that concerns only this library (:func:`hold_file`).
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
from pyreplog.ports import HOLDER_TEXT_SIZE
from pyreplog.system.permissions import Modes, modes_of
from pyreplog.system.process import current
from pyreplog.system.signals import is_interruption

__all__ = ["SystemLock", "hold_file", "take_lock"]

OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
HOLD_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
TEXT_SIZE_MAX: Final = 512
HOLDER_TRIES: Final = 10
HOLDER_WAIT_S: Final = 0.005
"""The holder writes its text just after it got the lock. A caller that is refused in between
retries the read this many times, after this pause.
"""

_SETLK: Final[int] = getattr(fcntl, "F_OFD_SETLK", 0)
_GETLK: Final[int] = getattr(fcntl, "F_OFD_GETLK", 0)
_FLOCK: Final = "qqihh" if sys.platform == "darwin" else "hhqqi0q"
"""``struct flock``, in native alignment. macOS: start, length (0: to the end), pid, type, whence;
Linux: type and whence come first.
"""

_NO_FLOCK: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.EBADF, errno.ENOSYS)
"""Errnos of a file system without this kind of lock, such as some network file systems."""

_OWNER: Final = modes_of("owner")

_registry: dict[tuple[int, int], str] = {}
"""Locks that this process holds: (device, inode) -> text. It is used only if the system's lock does
not exclude the process itself. There an entry stays until its file is closed, because the close
releases any POSIX lock of this process on it.
"""


class SystemLock:
    """A held lock, of a lock file or of a file that stays as it is.

    It is released by ``release``, by the end of the process, or when its last reference goes. A
    signal handler that raises may do so at any call; so steps that belong together are statements
    without a call.
    """

    __slots__ = ("_fd", "_key", "_process", "_text", "_text_position")

    def __init__(self) -> None:
        """Make an object that holds nothing yet, for :func:`take_lock` and :func:`hold_file`."""
        self._fd = -1
        self._key: tuple[int, int] | None = None  # None: holds no lock file
        self._text = ""
        self._text_position: int | None = None
        self._process = current()

    @property
    def identity(self) -> tuple[int, int]:
        """The locked file, as in :class:`pyreplog.ports.Stat`. REQUIRES that the lock is held."""
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino

    def release(self) -> None:
        """Release the lock.

        A second call is harmless, and so is a call in a forked child, which never held it.
        """
        fd = self._fd
        if fd < 0 or self._process.left:
            return
        try:
            if self._key is not None:
                _tidy(lambda: _write_text(fd, "", self._text_position))  # it must not name a holder any more
            # Unlock both kinds explicitly: a process that was forked just now may still have a copy
            # of the descriptor, which would keep the lock.
            _tidy(lambda: _set(fd, fcntl.F_UNLCK))
            _tidy(lambda: fcntl.flock(fd, fcntl.LOCK_UN))
        finally:
            if self._fd >= 0:  # no other thread was faster
                self._fd = -1
                del self._process.lock_descriptors[fd]
                try:
                    os.close(fd)
                finally:
                    # Another thread may have the system's lock now, and its own text here.
                    if self._key in _registry and _registry[self._key] is self._text:
                        del _registry[self._key]

    def __del__(self) -> None:
        # An interrupted `take_lock` leaves a lock without an owner.
        if getattr(self, "_fd", -1) >= 0:
            self.release()


def _tidy(step: Callable[[], None]) -> None:
    """Run a step before a descriptor is closed, and ignore its OSError: the close unlocks too.

    An exception of a signal handler is raised to the caller.
    """
    try:
        step()
    except OSError as error:
        if is_interruption(error):
            raise


def take_lock(path: str, about: str, modes: Modes = _OWNER, text_position: int | None = None) -> SystemLock:
    """Take the lock of the file ``path``, and write this process and ``about`` into it.

    ``text_position``: the text's place in a file that has other content too; None: the file is only
    a lock. The file is made if it is missing. Raises :class:`LockedError` with the holder's text, or
    :class:`StorageError`.
    """
    text = f"pid {os.getpid()} on {os.uname().nodename} since {_now()}{f' ({about})' if about else ''}"
    lock = SystemLock()
    lock._text_position = text_position
    _get(lock, path, OPEN_FLAGS, modes.file, lambda: _take(lock, path, text, modes))
    return lock


def hold_file(path: str) -> SystemLock:
    """Hold the file ``path``, which stays as it is. Raises :class:`LockedError`, or
    :class:`StorageError`.
    """
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
    """Open ``path`` and add its descriptor to ``opened``."""
    try:
        if not _SETLK and flags is OPEN_FLAGS:
            _refuse_registered(path)
        # One call into C: no signal handler runs between the open and the note of the descriptor.
        opened.extend(map(os.open, (path,), (flags,), (mode,)))
    except LockedError:
        raise
    except OSError as error:
        raise StorageError.from_os_error(
            error, "opening the lock file" if flags is OPEN_FLAGS else "opening", path
        ) from error


def _take(lock: SystemLock, path: str, text: str, modes: Modes) -> None:
    fd = lock._fd
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(errno.EINVAL, "the lock file is not a regular file", path)
    if status.st_size == 0 and status.st_uid == os.geteuid():
        modes.settle_file(fd)
    if not _try(fd):
        raise LockedError(path, _holder(fd, lock._text_position))
    key = (status.st_dev, status.st_ino)
    lock._text = _registry[key] = text
    lock._key = key
    _write_text(fd, text, lock._text_position)


def _write_text(fd: int, text: str, position: int | None) -> None:
    """Write the holder's text, "" for none."""
    if position is None:
        os.ftruncate(fd, 0)
        if text:
            os.pwrite(fd, text.encode()[:TEXT_SIZE_MAX], 0)
    else:
        os.pwrite(fd, text.encode()[:HOLDER_TEXT_SIZE].ljust(HOLDER_TEXT_SIZE, b"\0"), position)


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
    """Set the lock to ``F_WRLCK`` or ``F_UNLCK``."""
    if _SETLK:
        fcntl.fcntl(fd, _SETLK, _request(kind))
    else:
        fcntl.lockf(fd, fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB)


def _request(kind: int) -> bytes:
    """Return the request for a lock of ``kind`` on the whole file."""
    if sys.platform == "darwin":
        return struct.pack(_FLOCK, 0, 0, 0, kind, os.SEEK_SET)
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


def _refuse_registered(path: str) -> None:
    # Check before the file is opened: closing it again would release this process's own POSIX lock.
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(path)
        holder = _registry.get((status.st_dev, status.st_ino))
        if holder is not None:
            raise LockedError(path, f"this process, {holder}")


def _holder(fd: int, text_position: int | None) -> str:
    if _GETLK:
        found = struct.unpack(_FLOCK, fcntl.fcntl(fd, _GETLK, _request(fcntl.F_WRLCK)))
        kind, pid = (found[3], found[2]) if sys.platform == "darwin" else (found[0], found[4])
        if kind != fcntl.F_UNLCK and pid > 0:
            # A POSIX lock, so not one of this library. The text, if any, is of an earlier holder.
            return f"pid {pid} (another program, perhaps a Kafka broker)"
    for _ in range(HOLDER_TRIES):
        if text_position is None:
            text = os.pread(fd, TEXT_SIZE_MAX, 0)
        else:
            text = os.pread(fd, HOLDER_TEXT_SIZE, text_position).rstrip(b"\0")
        if text:
            holder = text.decode("utf-8", "replace")
            return (
                f"this process, {holder}"
                if holder.startswith(f"pid {os.getpid()} on {os.uname().nodename} ")
                else holder
            )
        time.sleep(HOLDER_WAIT_S)
    return "a process that left no name"


def _in_child() -> None:
    _registry.clear()  # a child holds none of its parent's locks


os.register_at_fork(after_in_child=_in_child)
