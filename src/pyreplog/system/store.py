"""A small key-value store in one file, in LMDB.

This is the only code that writes to the disk without :class:`~pyreplog.system.file.SystemFile`:
LMDB maps its file and writes it itself. So a store stays open only for one read or one fill. A
mapped file that another process truncates would kill this one, and a forked child must not write in
its parent's map. LMDB trusts the bytes that it reads, so the store's user checks the whole content
before it opens the file.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyreplog.errors import CorruptError, StorageError
from pyreplog.system.permissions import Modes

if TYPE_CHECKING:
    import lmdb

__all__ = ["SystemStore"]

MAP_SIZE: Final = 64 << 30
"""Size of the map in the address space. The file is as large as its content needs."""


class SystemStore:
    """The real :class:`~pyreplog.ports.Store`. For one thread, and a short time."""

    __slots__ = ("_environment", "_path")

    def __init__(self, path: str, modes: Modes, *, write: bool) -> None:
        import lmdb  # noqa: PLC0415  (5 ms, and most programs do not need it)

        self._path = path
        if os.path.islink(path):
            raise StorageError(errno.ELOOP, "a symbolic link is in place of the store: remove it", path)
        is_new = not os.path.exists(path)
        if not write and is_new:
            raise StorageError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        with _Doing("opening the store", path):
            # The caller holds the root's lock, so LMDB needs none of its own (it would be one more
            # file).
            self._environment: lmdb.Environment = lmdb.open(
                path,
                map_size=MAP_SIZE,
                subdir=False,
                readonly=not write,
                lock=False,
                mode=modes.file,
                create=write,
                readahead=False,
            )
            if is_new and modes.exact:
                os.chmod(path, modes.file)  # the umask removed bits

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every (key, value), by rising key."""
        with _Doing("reading the store", self._path), self._environment.begin() as transaction:
            yield from [(bytes(key), bytes(value)) for key, value in transaction.cursor()]

    def fill(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Put all of ``entries`` in; they are durable when it returns. All or none are stored."""
        with _Doing("writing the store", self._path):
            with self._environment.begin(write=True) as transaction:
                for key, value in entries:
                    transaction.put(key, value)
            self._environment.sync(True)

    def close(self) -> None:
        """Close the store. A second call is harmless."""
        self._environment.close()


class _Doing:
    """Turns LMDB's errors into ours."""

    __slots__ = ("_doing", "_path")

    def __init__(self, doing: str, path: str) -> None:
        self._doing = doing
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
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
