"""What a read hands out, and the memory of what was appended last.

Followers and readers near the end are served from the very buffers that were appended, without a copy or a system call; others by
``pread``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, Protocol

from pyreplog._core import find_offset, whole_batches
from pyreplog.errors import OutcomeUnknownError
from pyreplog.ports import Buffer

TAIL_SIZE: Final = 4 << 20
"""Bytes of appended batches that a log keeps in memory, unless told otherwise."""
TAIL_COUNT: Final = 8192
"""And so many of them: small ones cost more to keep than their bytes."""
_COMPACT_COUNT: Final = 256
_Entry = tuple[int, int, memoryview, int]
_START: Final = itemgetter(0)


class _Generational(Protocol):
    """What a slice was cut from."""

    generation: int


class LogSlice:
    """Whole batches from ``offset`` on, ``size`` bytes. Immutable; any thread.

    The bytes are those that were in the log when it was read. Once the log was truncated they may no longer be: then :meth:`parts` raises.
    """

    __slots__ = ("_log", "_parts", "generation", "offset", "size")

    def __init__(self, log: _Generational, offset: int, parts: Sequence[memoryview], size: int) -> None:
        self._log = log
        self._parts = parts
        self.offset = offset
        self.size = size
        self.generation = log.generation

    def parts(self) -> list[memoryview]:
        """The bytes, each part whole batches, in order. The memory is shared: do not write into it.

        Raises :class:`OutcomeUnknownError` when the log was truncated since: drop the slice and read again.
        """
        if self._log.generation != self.generation:
            raise OutcomeUnknownError("reading a slice of the log", "the log was truncated after the slice was cut; read again")
        return list(self._parts)

    def __len__(self) -> int:
        return self.size


class TailCache:
    """The newest appended buffers, by offset, up to ``size_max`` bytes. Belongs to the log's owner."""

    __slots__ = ("_entries", "_first", "size", "size_max")

    def __init__(self, size_max: int = TAIL_SIZE) -> None:
        self.size_max = size_max
        self.size = 0
        # (start, end, bytes, their size): the offsets [start, end). Entries below `first` are gone. Each begins where the one before ends.
        self._entries: list[_Entry] = []
        self._first = 0

    def append(self, start: int, end: int, data: Buffer, size: int) -> None:
        """Keep ``data`` (whole batches, never changed again) as the offsets from ``start`` to ``end``."""
        if size > self.size_max:
            self.clear()
            return
        entries = self._entries
        if entries and entries[-1][1] != start:
            self.clear()
            entries = self._entries
        entries.append((start, end, data if type(data) is memoryview else memoryview(data), size))
        self.size += size
        if self.size <= self.size_max and len(entries) - self._first <= TAIL_COUNT:
            return
        while self.size > self.size_max or len(entries) - self._first > TAIL_COUNT:
            first = self._first
            gone = entries[first]
            self.size -= gone[3]
            entries[first] = (gone[0], gone[1], _GONE, 0)
            self._first = first + 1
        if self._first >= _COMPACT_COUNT:
            del entries[: self._first]
            self._first = 0

    def read(self, offset: int, size_max: int, end_offset: int) -> tuple[list[memoryview], int] | None:
        """Parts and their bytes from the batch that holds ``offset`` on, below ``end_offset``; None where it is not here."""
        entries = self._entries
        if not entries:
            return None
        start, end, view, size = entries[-1]
        if start == offset and end <= end_offset and size <= size_max:
            return [view], size
        slot = bisect_right(entries, offset, key=_START) - 1
        if slot < self._first or slot < 0 or offset >= entries[slot][1]:
            return None
        start, end, view, _ = entries[slot]
        if start != offset:
            view = view[find_offset(view, offset)[0] :]
        parts: list[memoryview] = []
        total = 0
        last = len(entries) - 1
        while True:
            size = view.nbytes
            if end > end_offset or total + size > size_max:
                # Part of an entry may still fit: it can be many batches. The very first batch is given whatever its size.
                taken = whole_batches(view, end_offset, size_max - total)
                if taken and (total == 0 or total + taken <= size_max):
                    parts.append(view[:taken])
                    total += taken
                break
            parts.append(view)
            total += size
            if slot == last:
                break
            slot += 1
            _, end, view, _ = entries[slot]
        return parts, total

    def clear(self) -> None:
        """Forget everything."""
        self._entries = []
        self._first = 0
        self.size = 0


_GONE: Final = memoryview(b"")
