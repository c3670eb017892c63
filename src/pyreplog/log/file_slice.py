"""A range of bytes of a file, read as if it were a file of its own."""

from __future__ import annotations

from collections.abc import Sequence

from pyreplog.errors import InternalError
from pyreplog.ports import Buffer, File


class FileSlice:
    """The ``length`` bytes of ``file`` from ``start`` on. A :class:`~pyreplog.ports.File` that is only read, and
    closes ``file``."""

    __slots__ = ("_file", "_length", "_start")

    def __init__(self, file: File, start: int, length: int) -> None:
        self._file = file
        self._start = start
        self._length = length

    @property
    def path(self) -> str:
        """Of the whole file."""
        return self._file.path

    def read_at(self, position: int, size: int) -> memoryview:
        """Up to ``size`` bytes from ``position``; fewer only at the end."""
        return self._file.read_at(self._start + position, max(min(size, self._length - position), 0))

    def size(self) -> int:
        """In bytes."""
        return self._length

    def drop_cached(self) -> None:
        """As the whole file."""
        self._file.drop_cached()

    def close(self) -> None:
        """Release it. Twice is harmless."""
        self._file.close()

    def write_at(self, position: int, parts: Sequence[Buffer]) -> None:
        """Never: it is only read."""
        raise self._only_read()

    def truncate(self, size: int) -> None:
        """Never: it is only read."""
        raise self._only_read()

    def reserve(self, position: int, size: int) -> None:
        """Never: it is only read."""
        raise self._only_read()

    def start_sync(self, position: int, size: int) -> None:
        """Never: it is only read."""
        raise self._only_read()

    def sync(self) -> None:
        """Never: it is only read."""
        raise self._only_read()

    def _only_read(self) -> InternalError:
        return InternalError(f"a part of {self.path} is only read")
