"""A range of bytes of a file, read as if it were a file of its own."""

from __future__ import annotations

from collections.abc import Sequence

from pyreplog.errors import InternalError
from pyreplog.ports import Buffer, File


class FileSlice:
    """A read-only :class:`~pyreplog.ports.File` of ``length`` bytes of ``file``, from ``start`` on. Closing it closes
    ``file``."""

    __slots__ = ("_file", "_length", "_start")

    def __init__(self, file: File, start: int, length: int) -> None:
        self._file = file
        self._start = start
        self._length = length

    @property
    def path(self) -> str:
        """The path of the whole file."""
        return self._file.path

    def read_at(self, position: int, size: int) -> memoryview:
        """Return up to ``size`` bytes from ``position`` of the slice; fewer only at its end."""
        return self._file.read_at(self._start + position, max(min(size, self._length - position), 0))

    def size(self) -> int:
        """Return the size of the slice in bytes."""
        return self._length

    def drop_cached(self) -> None:
        """Drop the whole file from the page cache."""
        self._file.drop_cached()

    def close(self) -> None:
        """Close the whole file. A second call does nothing."""
        self._file.close()

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Raise :class:`InternalError`, because the slice is read-only."""
        raise self._only_read()

    def truncate(self, size: int) -> None:
        """Raise :class:`InternalError`, because the slice is read-only."""
        raise self._only_read()

    def reserve(self, position: int, size: int) -> None:
        """Raise :class:`InternalError`, because the slice is read-only."""
        raise self._only_read()

    def start_sync(self, position: int, size: int) -> None:
        """Raise :class:`InternalError`, because the slice is read-only."""
        raise self._only_read()

    def sync(self) -> None:
        """Raise :class:`InternalError`, because the slice is read-only."""
        raise self._only_read()

    def _only_read(self) -> InternalError:
        return InternalError(f"a part of {self.path} is only read")
