"""Ordered keys and values in one file, in LMDB.

This is the only code that writes to the disk without :class:`~pyreplog.system.file.SystemFile`:
LMDB maps its file for reading, and writes it itself. A mapped file that another process truncates,
or a read error of the disk below the map, ends this process with SIGBUS. So data logs never use a
store. LMDB trusts the bytes that it reads, so a user that did not write the file itself since the
machine started compares it with a checksum before it opens the store, and a file that other users
may have written is not opened.

No environment is open across ``fork()``, as LMDB demands: the stores of the process are closed
before each fork, and opened again at their next use. In the child they raise
:class:`~pyreplog.errors.ForkedError`. LMDB allows one environment of a file in a process, so the
stores of one file share it.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter, lt
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pyreplog.errors import ClosedError, CorruptError, ForkedError, StorageError
from pyreplog.system.locks import OwnedLock
from pyreplog.system.permissions import Modes

if TYPE_CHECKING:
    import lmdb

__all__ = ["SystemStore"]

MAP_SIZE: Final = 64 << 30
"""Size of the map in the address space. The file is as large as its content needs. The map is
doubled when a write does not fit."""
SLICE_COUNT: Final = 1024
"""Entries that a scan reads at a time."""

T = TypeVar("T")
_key = itemgetter(0)


class _Shared:
    """The environment of one file, for all stores of the process that name it."""

    __slots__ = ("__weakref__", "environment", "errors", "lock", "users")

    def __init__(self) -> None:
        self.environment: lmdb.Environment | None = None
        self.errors: tuple[type[Exception], ...] = ()
        self.users = 0
        self.lock = OwnedLock("the lock of a store")


_shared: Final[weakref.WeakValueDictionary[tuple[int, int], _Shared]] = weakref.WeakValueDictionary()
"""By (device, inode) of the file. An open environment keeps the inode from reuse."""
_opening = OwnedLock("the list of open stores")


class SystemStore:
    """The real :class:`~pyreplog.ports.Store`."""

    __slots__ = (
        "__weakref__",
        "_closed",
        "_is_open",
        "_key",
        "_map_size",
        "_modes",
        "_path",
        "_pid",
        "_room",
        "_write",
    )

    def __init__(self, path: str, modes: Modes, *, write: bool, map_size: int = MAP_SIZE) -> None:
        self._path = path
        self._modes = modes
        self._write = write
        self._map_size = map_size
        self._pid = os.getpid()
        self._closed = False
        self._is_open = False
        self._key = self._identity()
        with _opening:
            self._room = _shared.setdefault(self._key, _Shared())
            with self._room.lock:
                self._opened()
        _stores.add(self)

    def _identity(self) -> tuple[int, int]:
        """Return (device, inode) of the file, which is made if it is missing and may be written."""
        try:
            status = os.lstat(self._path)
        except FileNotFoundError:
            if not self._write:
                raise StorageError(errno.ENOENT, os.strerror(errno.ENOENT), self._path) from None
            # An empty file is a new environment for LMDB.
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self._path, flags, self._modes.file)
            try:
                self._modes.settle_file(fd)
                status = os.fstat(fd)
            finally:
                os.close(fd)
        if stat.S_ISLNK(status.st_mode):
            raise StorageError(errno.ELOOP, "a symbolic link is in place of the store: remove it", self._path)
        if not stat.S_ISREG(status.st_mode):
            raise CorruptError("it is no regular file, so it cannot be a store", file=self._path)
        others = stat.S_IWGRP | stat.S_IWOTH
        if status.st_uid != os.geteuid() or status.st_nlink != 1 or status.st_mode & others & ~self._modes.file:
            raise CorruptError("the file belongs to another user, or others may write it", file=self._path)
        return status.st_dev, status.st_ino

    def _opened(self) -> lmdb.Environment:
        """Return the environment, opened again if a fork closed it. REQUIRES the lock."""
        room = self._room
        if self._closed:
            raise ClosedError(f"{self._path} is closed")
        if self._pid != os.getpid():
            raise ForkedError(f"the store {self._path} belongs to the parent process: open it again here")
        if not self._is_open:
            self._is_open = True
            room.users += 1
        found = room.environment
        if found is not None:
            return found
        import lmdb  # noqa: PLC0415  (5 ms, and most programs do not need it)

        with _Doing("opening the store", self._path):
            if self._identity() != self._key:
                raise CorruptError("another file took the place of the store", file=self._path)
            # The caller holds a lock, so LMDB needs none of its own (it would be one more file).
            # Nothing is synced except by fill(), because the content can be rebuilt.
            found = lmdb.open(
                self._path,
                map_size=self._map_size,
                subdir=False,
                readonly=not self._write,
                lock=False,
                sync=False,
                mode=self._modes.file,
                create=os.path.getsize(self._path) == 0,
                readahead=False,
            )
        room.environment = found
        room.errors = (lmdb.Error,)
        return found

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of ``keys``, None for a key that is not there."""

        def read(environment: lmdb.Environment) -> list[bytes | None]:
            with environment.begin() as transaction:
                return [transaction.get(key) for key in keys]

        return self._read(read)

    def get_one(self, key: bytes) -> bytes | None:
        """Return the value of ``key``; None if it is not there."""
        with self._room.lock:
            environment = self._room.environment
            if environment is not None and self._is_open:  # a forked child has no environment
                try:
                    with environment.begin() as transaction:
                        return transaction.get(key)
                except self._room.errors:  # the other way raises it, or takes another size of the map
                    pass
        return self.get([key])[0]

    def read_from(self, key: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        """Return up to ``count_max`` (key, value), by rising key, beginning at ``key``."""

        def read(environment: lmdb.Environment) -> list[tuple[bytes, bytes]]:
            with environment.begin() as transaction:
                cursor = transaction.cursor()
                found = cursor.set_range(key) if key else cursor.first()
                return list(islice(cursor.iternext(), count_max)) if found else []

        return self._read(read)

    def count(self) -> int:
        """Return the number of entries."""

        def read(environment: lmdb.Environment) -> int:
            with environment.begin() as transaction:
                return int(transaction.stat()["entries"])

        return self._read(read)

    def _read(self, read: Callable[[lmdb.Environment], T]) -> T:
        """Return ``read`` of the environment. If another process doubled the map, take its size first."""
        with self._room.lock, _Doing("reading the store", self._path):
            environment = self._opened()
            import lmdb  # noqa: PLC0415  (loaded already)

            try:
                return read(environment)
            except lmdb.MapResizedError:
                environment.set_mapsize(0)
                return read(environment)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every (key, value), by rising key."""
        key = b""
        while entries := self.read_from(key, SLICE_COUNT):
            yield from entries
            key = entries[-1][0] + b"\0"

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Set each key to its value; None removes it. A kill leaves all or none of the changes."""
        made = changes if isinstance(changes, list) else list(changes)
        with self._room.lock, _Doing("writing the store", self._path):
            environment = self._opened()
            import lmdb  # noqa: PLC0415  (loaded already)

            while True:
                try:
                    _put(environment, made)
                except lmdb.MapResizedError:
                    environment.set_mapsize(0)
                except lmdb.MapFullError:
                    environment.set_mapsize(2 * environment.info()["map_size"])
                else:
                    return

    def fill(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Put all of ``entries`` in; they are durable when it returns. A kill leaves all or none."""
        self.write(entries)
        with self._room.lock, _Doing("writing the store", self._path):
            self._opened().sync(True)

    def close(self) -> None:
        """Close the store. A second call is harmless."""
        with self._room.lock:
            self._closed = True
            if self._is_open and self._pid == os.getpid():
                self._is_open = False
                self._room.users -= 1
                if not self._room.users:
                    self.release()

    def release(self) -> None:
        """Close the environment until the next use. REQUIRES the lock."""
        environment, self._room.environment = self._room.environment, None
        if environment is not None:
            environment.close()

    def hold_for_fork(self) -> bool:
        """Close the environment and keep the lock until :meth:`let_go`.

        Return False if this thread is at work in the store, which a signal handler that forks may
        find, or if another store of the file holds the lock for the same fork.
        """
        if self._room.lock.is_mine():
            return False
        self._room.lock.acquire()
        self.release()
        return True

    def let_go(self) -> None:
        """Release the lock that :meth:`hold_for_fork` took."""
        self._room.lock.release()

    def abandon(self) -> None:
        """Forget the environment, in the child of a fork."""
        self._room = _Shared()


def _put(environment: lmdb.Environment, changes: list[tuple[bytes, bytes | None]]) -> None:
    """Carry out the changes in their order. LMDB's own loop takes the values between two removals."""
    with environment.begin(write=True) as transaction:
        cursor = transaction.cursor()
        last = cursor.key() if cursor.last() else b""
        start = 0
        for end in [*(place for place, change in enumerate(changes) if change[1] is None), len(changes)]:
            if end > start:
                run = cast("list[tuple[bytes, bytes]]", changes[start:end])
                rises = run[0][0] > last and all(map(lt, map(_key, run), map(_key, islice(run, 1, None))))
                cursor.putmulti(run, append=rises)  # appended entries fill the pages
                last = max(last, run[-1][0]) if rises else max(last, max(map(_key, run)))
            if end < len(changes):
                transaction.delete(changes[end][0])
            start = end + 1


class _Doing:
    """Turns LMDB's errors into ours."""

    __slots__ = ("_doing", "_path")

    def __init__(self, doing: str, path: str) -> None:
        self._doing = doing
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is None:
            return
        import lmdb  # noqa: PLC0415  (as above)

        if isinstance(
            error, lmdb.InvalidError | lmdb.CorruptedError | lmdb.VersionMismatchError | lmdb.PageNotFoundError
        ):
            raise CorruptError(f"the file is not a store of this program ({error})", file=self._path) from error
        if isinstance(error, lmdb.Error):
            # LMDB gives the system's error only as text.
            code = next(
                (
                    code
                    for code in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.ENOMEM)
                    if os.strerror(code) in str(error)
                ),
                errno.EIO,
            )
            raise StorageError(code, f"{error} while {self._doing}", self._path) from error
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise StorageError.from_os_error(error, self._doing, self._path) from error


_stores: Final[weakref.WeakSet[SystemStore]] = weakref.WeakSet()
_held: Final[list[SystemStore]] = []
"""The stores that are locked while the process forks."""


def _before_fork() -> None:
    _held.extend(store for store in list(_stores) if store.hold_for_fork())


def _in_parent() -> None:
    while _held:
        _held.pop().let_go()


def _in_child() -> None:
    global _opening
    for store in list(_stores):
        store.abandon()
    _stores.clear()
    _shared.clear()
    _held.clear()
    _opening = OwnedLock("the list of open stores")


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
