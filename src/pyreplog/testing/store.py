"""The store of a simulated disk: a journal of its writes in one file, without checksums.

As the real one, it may have lost anything that was not synced when the power failed, and it finds
no flipped bit. :func:`damage_store` makes such damage.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pyreplog.errors import ClosedError, CorruptError
from pyreplog.ports import Disk, Random

__all__ = ["SimStore", "damage_store"]

_SIZE: Final = struct.Struct(">I")
_LENGTHS: Final = struct.Struct(">Ii")
"""The lengths of a key and of its value; -1 for a removed key."""
_MAGIC: Final = b"SIMSTORE"


class SimStore:
    """A :class:`~pyreplog.ports.Store` in a file of a :class:`SimDisk`. Each write is one piece of the journal."""

    def __init__(self, disk: Disk, path: str, *, write: bool) -> None:
        fresh = write and disk.stat(path) is None
        self._file = disk.create(path) if fresh else disk.open(path, write=write)
        self._closed = False
        if fresh:
            self._file.write_at(0, [_MAGIC])
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] | None = None
        self._end = len(_MAGIC)
        data = bytes(self._file.read_at(0, self._file.size()))
        if data[: len(_MAGIC)] != _MAGIC:
            raise CorruptError("the file does not begin as a simulated store does", file=self._file.path)
        for start, end in _pieces(data):
            self._apply(_changes(data[start:end], self._file.path))
            self._end = end

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each of ``keys``, None for a key that is not there."""
        self._check()
        return [self._values.get(key) for key in keys]

    def get_one(self, key: bytes) -> bytes | None:
        """Return the value of ``key``; None if it is not there."""
        self._check()
        return self._values.get(key)

    def read_from(self, key: bytes, count_max: int) -> list[tuple[bytes, bytes]]:
        """Return up to ``count_max`` (key, value), by rising key, beginning at ``key``."""
        self._check()
        if self._keys is None:
            self._keys = sorted(self._values)
        first = bisect_left(self._keys, key)
        return [(one, self._values[one]) for one in self._keys[first : first + count_max]]

    def count(self) -> int:
        """Return the number of entries."""
        self._check()
        return len(self._values)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every (key, value), in the order of the keys."""
        return iter(self.read_from(b"", len(self._values)))

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Set each key to its value; None removes it."""
        self._check()
        made = list(changes)
        body = b"".join(
            _LENGTHS.pack(len(key), -1 if value is None else len(value)) + key + (value or b"") for key, value in made
        )
        self._file.write_at(self._end, [_SIZE.pack(len(body)) + body])
        self._end += _SIZE.size + len(body)
        self._apply(made)

    def fill(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Put all of ``entries`` in, durably."""
        self.write(entries)
        self._file.sync()

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        self._closed = True
        self._file.close()

    def _apply(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        self._keys = None
        for key, value in changes:
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._file.path} is closed")


def _pieces(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the content of each whole piece of a journal."""
    position = len(_MAGIC)
    while position + _SIZE.size <= len(data):
        start = position + _SIZE.size
        position = start + _SIZE.unpack_from(data, position)[0]
        if position > len(data):
            return
        yield start, position


def _changes(piece: bytes, path: str) -> Iterator[tuple[bytes, bytes | None]]:
    position = 0
    while position < len(piece):
        try:
            key_size, value_size = _LENGTHS.unpack_from(piece, position)
        except struct.error:
            raise CorruptError("the simulated store is damaged", file=path) from None
        position += _LENGTHS.size
        key = piece[position : position + key_size]
        position += key_size
        if not key or value_size < -1 or position + value_size > len(piece):
            raise CorruptError("the simulated store is damaged", file=path)
        yield key, None if value_size < 0 else piece[position : position + value_size]
        position += max(value_size, 0)


def damage_store(disk: Disk, path: str, random: Random) -> str:
    """Damage a simulated store that is not open, as a disk may. Return a word for it.

    It loses its newest writes (``suffix``) or all of them (``all``), or one bit flips (``bit``).
    """
    file = disk.open(path, write=True)
    try:
        data = bytes(file.read_at(0, file.size()))
        ends = [len(_MAGIC), *(end for _, end in _pieces(data))]
        kind = random.choice(("suffix", "all", "bit"))
        if kind == "bit" and len(data) > len(_MAGIC):
            position = random.randrange(len(_MAGIC), len(data))
            file.write_at(position, [bytes([data[position] ^ 1 << random.randrange(8)])])
        else:
            file.truncate(random.choice(ends) if kind == "suffix" else len(_MAGIC))
        return kind
    finally:
        file.close()
