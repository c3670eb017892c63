"""What a read hands out, and the memory of what was appended last.

Followers and readers near the end are served from the very buffers that were appended, without a copy or a system call; others by
``pread``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Protocol

from pyreplog._core import find_offset, whole_batches
from pyreplog.errors import OutcomeUnknownError
from pyreplog.ports import Buffer

TAIL_SIZE: Final = 4 << 20
"""Bytes of appended batches that a log keeps in memory, unless told otherwise."""
TAIL_COUNT: Final = 8192
"""And so many of them: small ones cost more to keep than their bytes."""
_COMPACT_COUNT: Final = 256


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

    __slots__ = ("_ends", "_first", "_starts", "_views", "size", "size_max")

    def __init__(self, size_max: int = TAIL_SIZE) -> None:
        self.size_max = size_max
        self.size = 0
        # Entry i covers offsets [starts[i], ends[i]); entries below `first` are gone. Each begins where the one before ends.
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._views: list[memoryview] = []
        self._first = 0

    def append(self, start: int, end: int, data: Buffer, size: int) -> None:
        """Keep ``data`` (whole batches, never changed again) as the offsets from ``start`` to ``end``."""
        if size > self.size_max:
            self.clear()
            return
        ends = self._ends
        if ends and ends[-1] != start:
            self.clear()
            ends = self._ends
        self._starts.append(start)
        ends.append(end)
        self._views.append(memoryview(data))
        self.size += size
        while self.size > self.size_max or len(self._views) - self._first > TAIL_COUNT:
            first = self._first
            self.size -= self._views[first].nbytes
            self._views[first] = _GONE
            self._first = first + 1
        if self._first >= _COMPACT_COUNT:
            first = self._first
            del self._starts[:first], self._ends[:first], self._views[:first]
            self._first = 0

    def read(self, offset: int, size_max: int, end_offset: int) -> tuple[list[memoryview], int] | None:
        """Parts and their bytes from the batch that holds ``offset`` on, below ``end_offset``; None where it is not here."""
        starts = self._starts
        ends = self._ends
        slot = bisect_right(starts, offset) - 1
        if slot < self._first or slot < 0 or offset >= ends[slot]:
            return None
        view = self._views[slot]
        if starts[slot] != offset:
            view = view[find_offset(view, offset)[0] :]
        parts: list[memoryview] = []
        total = 0
        last = len(starts) - 1
        while True:
            size = view.nbytes
            if ends[slot] > end_offset or total + size > size_max:
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
            view = self._views[slot]
        return parts, total

    def clear(self) -> None:
        """Forget everything."""
        self._starts = []
        self._ends = []
        self._views = []
        self._first = 0
        self.size = 0


_GONE: Final = memoryview(b"")
