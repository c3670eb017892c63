"""Ordered keys and values in one file, in LMDB.

This is the only code that writes to the disk without :class:`~pyreplog.system.file.SystemFile`:
LMDB maps its file for reading, and writes it itself. A mapped file that another process truncates,
or a read error of the disk below the map, ends this process with SIGBUS. So data logs never use a
store. LMDB trusts the bytes that it reads, so a user that did not write the file itself since the
machine started compares it with a checksum before it opens the store.

No environment is open across ``fork()``, as LMDB demands: the stores of the process are closed
before each fork, and opened again at their next use. In the child they raise
:class:`~pyreplog.errors.ForkedError`.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pyreplog.errors import ClosedError, CorruptError, ForkedError, StorageError
from pyreplog.system.locks import OwnedLock
from pyreplog.system.permissions import Modes

if TYPE_CHECKING:
    import lmdb

__all__ = ["SystemStore"]

MAP_SIZE: Final = 64 << 30
"""Size of the map in the address space. The file is as large as its content needs."""
SLICE_COUNT: Final = 1024
"""Entries that a scan reads at a time."""


class SystemStore:
    """The real :class:`~pyreplog.ports.Store`."""

    __slots__ = ("__weakref__", "_closed", "_environment", "_is_new", "_lock", "_modes", "_path", "_pid", "_write")

    def __init__(self, path: str, modes: Modes, *, write: bool) -> None:
        self._path = path
        self._modes = modes
        self._write = write
        self._pid = os.getpid()
        self._lock = OwnedLock("the lock of a store")
        self._closed = False
        self._environment: lmdb.Environment | None = None
        if os.path.islink(path):
            raise StorageError(errno.ELOOP, "a symbolic link is in place of the store: remove it", path)
        self._is_new = not os.path.exists(path)
        if not write and self._is_new:
            raise StorageError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        with self._lock:
            self._opened()
        _stores.add(self)

    def _opened(self) -> lmdb.Environment:
        """Return the environment, opened again if a fork closed it. REQUIRES the lock."""
        found = self._environment
        if found is not None:
            return found
        if self._closed:
            raise ClosedError(f"{self._path} is closed")
        if self._pid != os.getpid():
            raise ForkedError(f"the store {self._path} belongs to the parent process: open it again here")
        import lmdb  # noqa: PLC0415  (5 ms, and most programs do not need it)

        with _Doing("opening the store", self._path):
            # The caller holds the root's lock, so LMDB needs none of its own (it would be one more
            # file). Nothing is synced except by fill(), because the content can be rebuilt.
            found = lmdb.open(
                self._path,
                map_size=MAP_SIZE,
                subdir=False,
                readonly=not self._write,
                lock=False,
                sync=False,
                mode=self._modes.file,
                create=self._is_new,
                readahead=False,
            )
            if self._is_new and self._modes.exact:
                os.chmod(self._path, self._modes.file)  # the umask removed bits
        self._is_new = False
        self._environment = found
        return found

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of ``keys``, None for a key that is not there."""
        with self._lock, _Doing("reading the store", self._path), self._opened().begin() as transaction:
            return [transaction.get(key) for key in keys]

    def read_from(self, key: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        """Return up to ``count_max`` (key, value), by rising key, beginning at ``key``."""
        with self._lock, _Doing("reading the store", self._path), self._opened().begin() as transaction:
            cursor = transaction.cursor()
            found = cursor.set_range(key) if key else cursor.first()
            return list(islice(cursor.iternext(), count_max)) if found else []

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every (key, value), by rising key."""
        key = b""
        while entries := self.read_from(key, SLICE_COUNT):
            yield from entries
            key = entries[-1][0] + b"\0"

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Set each key to its value; None removes it. A kill leaves all or none of the changes."""
        with self._lock, _Doing("writing the store", self._path), self._opened().begin(write=True) as transaction:
            cursor = transaction.cursor()
            last = cursor.key() if cursor.last() else b""
            for key, value in changes:
                if value is None:
                    transaction.delete(key)
                elif key > last:
                    transaction.put(key, value, append=True)  # it fills the pages
                    last = key
                else:
                    transaction.put(key, value)

    def fill(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Put all of ``entries`` in; they are durable when it returns. A kill leaves all or none."""
        self.write(entries)
        with self._lock, _Doing("writing the store", self._path):
            self._opened().sync(True)

    def close(self) -> None:
        """Close the store. A second call is harmless."""
        with self._lock:
            self._closed = True
            self.release()

    def release(self) -> None:
        """Close the environment until the next use. REQUIRES the lock."""
        environment, self._environment = self._environment, None
        if environment is not None:
            environment.close()

    def hold_for_fork(self) -> bool:
        """Close the environment and keep the lock until :meth:`let_go`.

        Return False if this thread is at work in the store, which a signal handler that forks may
        find.
        """
        if self._lock.is_mine():
            return False
        self._lock.acquire()
        self.release()
        return True

    def let_go(self) -> None:
        """Release the lock that :meth:`hold_for_fork` took."""
        self._lock.release()

    def abandon(self) -> None:
        """Forget the environment, in the child of a fork."""
        self._environment = None
        self._lock = OwnedLock("the lock of a store")


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
    for store in list(_stores):
        store.abandon()
    _stores.clear()
    _held.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
