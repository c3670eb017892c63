"""The store of a simulated disk: one file, written in place, as bad as a crash can make it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from pyreplog.errors import CorruptError
from pyreplog.ports import Disk

__all__ = ["SimStore"]

_LENGTHS: Final = struct.Struct(">II")
_MAGIC: Final = b"SIMSTORE"


class SimStore:
    """A :class:`~pyreplog.ports.Store` in a file of a :class:`SimDisk`. Nothing in it is checked: its user has
    to."""

    def __init__(self, disk: Disk, path: str, *, write: bool) -> None:
        fresh = write and disk.stat(path) is None
        self._file = disk.create(path) if fresh else disk.open(path, write=write)
        if fresh:
            self._file.write_at(0, [_MAGIC])

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Every (key, value), by rising key."""
        data = bytes(self._file.read_at(0, self._file.size()))
        if data[: len(_MAGIC)] != _MAGIC:
            raise CorruptError("no store", file=self._file.path)
        position = len(_MAGIC)
        while position < len(data):
            key_size, value_size = _LENGTHS.unpack_from(data, position)
            position += _LENGTHS.size
            yield data[position : position + key_size], data[position + key_size : position + key_size + value_size]
            position += key_size + value_size

    def fill(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Put all of ``entries`` in."""
        known = {**dict(self.scan()), **dict(entries)}
        content = b"".join(_LENGTHS.pack(len(key), len(known[key])) + key + known[key] for key in sorted(known))
        self._file.write_at(len(_MAGIC), [content])
        self._file.sync()

    def close(self) -> None:
        """Release it. Twice is harmless."""
        self._file.close()
