"""The store of a simulated disk: one file that is written in place, so that a crash can damage all of it."""

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
    """A :class:`~pyreplog.ports.Store` in a file of a :class:`SimDisk`.

    It has no checksums: its user must check the entries.
    """

    def __init__(self, disk: Disk, path: str, *, write: bool) -> None:
        fresh = write and disk.stat(path) is None
        self._file = disk.create(path) if fresh else disk.open(path, write=write)
        if fresh:
            self._file.write_at(0, [_MAGIC])

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every (key, value), in the order of the keys."""
        data = bytes(self._file.read_at(0, self._file.size()))
        if data[: len(_MAGIC)] != _MAGIC:
            raise CorruptError("the file does not begin as a simulated store does", file=self._file.path)
        position = len(_MAGIC)
        while position < len(data):
            key_size, value_size = _LENGTHS.unpack_from(data, position)
            position += _LENGTHS.size
            yield data[position : position + key_size], data[position + key_size : position + key_size + value_size]
            position += key_size + value_size

    def fill(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Add all of ``entries``."""
        known = {**dict(self.scan()), **dict(entries)}
        content = b"".join(_LENGTHS.pack(len(key), len(known[key])) + key + known[key] for key in sorted(known))
        self._file.write_at(len(_MAGIC), [content])
        self._file.sync()

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        self._file.close()
