"""An open file of this machine: absolute positions, whole reads and writes, no buffers in between.

Thread-safe: every call is one or a few system calls with their own position. A file that one thread
closes while another reads stays open until that read ends. Otherwise the kernel could give its
number to another file in between, and the read would return that file's bytes. So the descriptor is
an object of its own, closed when its last user releases it.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, SupportsIndex

from pyreplog._core import _platform
from pyreplog.errors import ClosedError, PyreplogError, StorageError
from pyreplog.ports import NO_DESCRIPTORS_ERRNOS, Buffer
from pyreplog.system.descriptor_cache import DESCRIPTORS, with_free_descriptor
from pyreplog.system.process import Process, current
from pyreplog.system.signals import is_interruption

__all__ = ["Descriptor", "SystemFile", "sync_data", "sync_outcome"]

# not blocking: a FIFO in the folder must not hang us
OPEN_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
PARTS_MAX: Final = 512
"""Parts per system call; the kernel takes at most IOV_MAX (1024)."""

_NONE: Final = _platform.ffi.NULL
_file_new = _platform.lib.rl_file_new
_file_sync = _platform.lib.rl_file_sync
_file_start_sync = _platform.lib.rl_file_start_sync
_file_error = _platform.lib.rl_file_error
_preallocate = _platform.lib.rl_preallocate
_drop_cache = _platform.lib.rl_drop_cache


_openings = 0


def openings() -> int:
    """Return how often this process has opened an existing file by its name."""
    return _openings


def open_again(path: str, *, write: bool) -> int:
    """Return a new descriptor of an existing file; if none is left, other files give theirs up."""
    global _openings
    _openings += 1
    return with_free_descriptor(lambda: os.open(path, (os.O_RDWR if write else os.O_RDONLY) | OPEN_FLAGS))


class Descriptor:
    """Owns one descriptor number, and closes it when its last user, a sync included, releases it.

    -1: closed. ``before`` is an earlier descriptor of the same file, which was given up for this
    one: a sync that failed on it, or still fails, is a failure here too.
    """

    __slots__ = ("close_errors", "fd", "handle", "process", "used", "writes", "writes_synced")

    def __init__(self, fd: int, process: Process, before: Descriptor | None = None) -> None:
        self.close_errors: list[int] = []
        self.handle: Any = _NONE
        """The ``rl_file`` through which all syncs go, so that each sees the failure of another."""
        self.handle = _file_new(fd, _NONE if before is None else before.handle)
        if self.handle == _NONE:
            if fd >= 0:
                os.close(fd)
            raise MemoryError
        self.fd = fd
        self.process = process
        self.used = True
        """Whether the file was read since the last ``clear_used``."""
        self.writes = 0
        """Bytes written plus one for each write, and the part of that which a sync covered. The
        difference is not known to be on the disk.
        """
        self.writes_synced = 0

    @property
    def sync_error(self) -> int:
        """Errno of the first failed sync; 0 if none failed.

        The kernel reports such an error once and forgets it, so it is kept here.
        """
        return _file_error(self.handle)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        # A copy would close the number under the original.
        raise TypeError("an open file cannot be copied")

    def __del__(self, _let_go: Callable[[Any], int] = _platform.lib.rl_file_let_go, _none: Any = _NONE) -> None:
        # No handle if a signal handler came first.
        if error := _let_go(getattr(self, "handle", _none)):
            self.close_errors.append(error)


def sync_data(descriptor: Descriptor) -> int:
    """Sync the content and return 0 or an errno. Blocks without the GIL; any thread.

    A failed sync is never tried again: the kernel marks the lost pages clean, and a second call
    would report success. A concurrent sync could report success too, because the kernel reports an
    error once. So the syncs of a file run one after the other, in whatever thread.
    """
    writes = descriptor.writes
    code = sync_outcome(_file_sync, descriptor.handle)
    if not code:
        descriptor.writes_synced = writes
    return code


def sync_outcome(sync: Callable[[Any], int], handle: Any) -> int:
    """Return the result of a sync: 0 or an errno.

    EINTR is no result, so the sync is called again. The errnos of a sync that could not start
    (:data:`NO_DESCRIPTORS_ERRNOS`) become EIO, because a file system in user space may return them for
    a sync that failed.
    """
    while (code := sync(handle)) == errno.EINTR:
        pass
    return errno.EIO if code in NO_DESCRIPTORS_ERRNOS else code


def _write_rest(fd: int, position: int, rest: list[memoryview], written: int) -> None:
    """Write the bytes after the first ``written`` bytes of ``rest``, which starts at ``position``."""
    while True:
        position += written
        count = 0
        for view in rest:
            if written < len(view):
                break
            written -= len(view)
            count += 1
        if count == 0 and written == 0:
            raise OSError(errno.EIO, "the system wrote no byte")
        del rest[:count]
        if not rest:
            return
        rest[0] = rest[0][written:]
        written = os.pwritev(fd, rest[:PARTS_MAX], position)


class _ReleasedProcess(Process):
    """Takes the place of the process in a descriptor that was given up.

    The test of ``process.left``, which each call makes anyway, finds it.
    """

    __slots__ = ("identity",)

    def __init__(self, identity: tuple[int, int]) -> None:
        super().__init__()
        self.left = True
        #: Device and inode: only the same file is opened again.
        self.identity = identity


_CLOSED: Final = Descriptor(-1, current())


class SystemFile:
    """The real :class:`~pyreplog.ports.File`. Made by :class:`~pyreplog.system.SystemDisk`."""

    __slots__ = ("__weakref__", "_descriptor", "_path", "_write")

    def __init__(self, path: str, fd: int, *, write: bool) -> None:
        self._path = path
        self._write = write
        self._descriptor = Descriptor(fd, current())
        DESCRIPTORS.put(self)

    @property
    def path(self) -> str:
        """The path by which the file was opened."""
        return self._path

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor, which a sync in another thread holds, so that a close is harmless."""
        descriptor = self._descriptor
        return self._again(descriptor) if type(descriptor.process) is _ReleasedProcess else descriptor

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Write all of ``parts`` one after another from ``position``, or raise.

        After an error some bytes may be written. The parts are read during the call and not kept.
        One part costs one system call and no copy.
        """
        descriptor = self._descriptor
        if descriptor.process.left:
            descriptor = self._again(descriptor)
        try:
            if len(parts) == 1:
                part = parts[0]
                size = (
                    part.nbytes
                    if type(part) is memoryview
                    else len(part)
                    if type(part) is bytearray
                    else memoryview(part).nbytes
                )
                descriptor.writes += size + 1
                written = os.pwrite(descriptor.fd, part, position)
            else:
                size = sum([memoryview(part).nbytes for part in parts])
                descriptor.writes += size + 1
                written = os.pwritev(descriptor.fd, parts[:PARTS_MAX], position)
            if written < size:
                _write_rest(descriptor.fd, position, [memoryview(part).cast("B") for part in parts], written)
        except OSError as error:
            del descriptor  # a caller that keeps the error would keep the descriptor open
            raise self._failed(error, f"writing at byte {position}") from error

    def read_at(self, position: int, size: int) -> memoryview:
        """Read up to ``size`` bytes from ``position``; fewer only at the end of the file.

        The memory is new and belongs to the caller.
        """
        descriptor = self._descriptor
        if descriptor.process.left:
            descriptor = self._again(descriptor)
        descriptor.used = True
        try:
            data = os.pread(descriptor.fd, size, position)
            if len(data) == size or not data:
                return memoryview(data)
            pieces = [data]
            got = len(data)
            while got < size and (data := os.pread(descriptor.fd, size - got, position + got)):
                pieces.append(data)
                got += len(data)
        except OSError as error:
            del descriptor
            raise self._failed(error, f"reading {size} bytes at byte {position}") from error
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def sync(self) -> None:
        """Block until the content is on stable storage. After one failure every later call fails
        too.
        """
        descriptor = self._open()
        if code := sync_data(descriptor):
            del descriptor
            raise self._failed(OSError(code, os.strerror(code)), "syncing")

    def start_sync(self, position: int, size: int) -> None:
        """Start to write the range to the device by ``sync_file_range``, which macOS lacks.

        It takes as long as handing the bytes to the device does.
        """
        descriptor = self._open()
        _file_start_sync(descriptor.handle, position, size)

    def size(self) -> int:
        """Return the current length in bytes, asked of the system."""
        descriptor = self._open()  # held until the call is over
        try:
            return os.fstat(descriptor.fd).st_size
        except OSError as error:
            del descriptor
            raise self._failed(error, "asking for the size") from error

    def truncate(self, size: int) -> None:
        """Make the file exactly ``size`` bytes long; new bytes are zeros."""
        descriptor = self._open()
        try:
            descriptor.writes += 1
            os.ftruncate(descriptor.fd, size)
        except OSError as error:
            del descriptor
            raise self._failed(error, f"truncating to {size} bytes") from error

    def reserve(self, position: int, size: int) -> None:
        """Reserve room for ``size`` bytes after the end, which is at ``position``.

        It is no error if the disk is full or cannot reserve.
        """
        descriptor = self._open()
        # macOS counts from the end of the file.
        _preallocate(descriptor.fd, size if sys.platform == "darwin" else position + size)

    def drop_cached(self) -> None:
        """Drop clean pages from the page cache by ``posix_fadvise``, an advice that macOS lacks."""
        descriptor = self._open()
        _drop_cache(descriptor.fd, 0, 0)

    def close(self) -> None:
        """Close the file; a read or sync that runs in another thread finishes first.

        A second call is harmless.
        """
        descriptor, self._descriptor = self._descriptor, _CLOSED
        errors = descriptor.close_errors
        del descriptor  # closes here, unless another thread is using it
        if errors:
            raise StorageError(errors[0], f"{os.strerror(errors[0])} while closing", self._path)

    def _open(self) -> Descriptor:
        descriptor = self._descriptor
        if descriptor.process.left:
            descriptor = self._again(descriptor)
        if descriptor.fd < 0:
            raise ClosedError(f"{self._path} is closed")
        return descriptor

    # -- for the shelf --

    def release_descriptor(self, *, sync: bool) -> bool:
        """See :class:`~pyreplog.system.descriptor_cache.Lendable`.

        A call that runs in another thread ends with the descriptor that it has.
        """
        descriptor = self._descriptor
        if descriptor.fd < 0:
            return True
        if descriptor.process.left:
            return False
        if (descriptor.writes != descriptor.writes_synced or descriptor.sync_error) and (
            not sync or sync_data(descriptor)
        ):
            return False
        try:
            status = os.fstat(descriptor.fd)
        except OSError as error:
            if is_interruption(error):
                raise
            return False
        parked = Descriptor(-1, _ReleasedProcess((status.st_dev, status.st_ino)), descriptor)
        if self._descriptor is descriptor:
            self._descriptor = parked
        if descriptor.writes != descriptor.writes_synced and self._descriptor is parked:
            # A write came in between: only this descriptor reports its failure.
            self._descriptor = descriptor
            return False
        return True

    def clear_used(self) -> bool:
        """See :class:`~pyreplog.system.descriptor_cache.Lendable`."""
        descriptor = self._descriptor
        used, descriptor.used = descriptor.used, False
        return used and descriptor.fd >= 0

    def _again(self, parked: Descriptor) -> Descriptor:
        """Return a new descriptor that replaces a given-up one.

        Raises :class:`ForkedError` in a forked child, which has no descriptor of its own.
        """
        process = parked.process
        if type(process) is not _ReleasedProcess or process.pid != current().pid:
            raise process.refuse(self._path)
        try:
            fd = open_again(self._path, write=self._write)
            status = os.fstat(fd)
        except OSError as error:
            raise StorageError.from_os_error(error, "opening again", self._path) from error
        descriptor = Descriptor(fd, current(), parked)
        if (status.st_dev, status.st_ino) != process.identity:
            del descriptor
            raise StorageError(errno.ESTALE, "another file has replaced it since it was opened", self._path)
        if self._descriptor is parked:
            self._descriptor = descriptor
            DESCRIPTORS.put(self)
        return descriptor

    def _failed(self, error: OSError, doing: str) -> PyreplogError:
        if self._descriptor is _CLOSED:
            return ClosedError(f"{self._path} is closed")
        return StorageError.from_os_error(error, doing, self._path)
