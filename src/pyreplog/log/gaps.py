"""The gaps that compaction left in one segment, ``.gaps``: which offsets have no batch any more.

Without this file nothing would tell a removed batch from a lost one. It is one of the segment's files: it is written
before the segment takes its place, and is renamed and removed with it. It counts only if the log's mark says that
the log was compacted by this library, so that a folder which a broker wrote to since does not use it.

Format (docs/internals/format/gaps.md), big-endian::

    magic "RLGP" | version | zero | base offset | tombstone | count | pairs of (distance, length) | crc
       4 bytes   |    2    |   2  |      8      |     8     |   4   |      4 and 4 each          |  4

``tombstone`` is the highest offset of a tombstone that compaction dropped from the segment, -1 if it dropped none.
``distance`` is from the end of the gap before, or from the base offset. A gap longer than 2^32 - 1 offsets takes
several pairs. The checksum is the CRC-32C of all bytes of the block before it.

A follower of a compacted log adds a block of this form for each fetch answer with gaps, so that it never rewrites a
file that grows. The gaps of all blocks count. The first block is put in place at once; a later one may be torn, then
the file counts up to there, and the log is cut before the first batch that needs the rest.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain
from operator import eq, sub
from typing import Final

from pyreplog._core import LOG_OVERHEAD, crc32c, find_gaps
from pyreplog.errors import CorruptError, StorageNotFoundError
from pyreplog.log.layout import GAPS_SUFFIX, INT64_MAX, SCAN_CHUNK_SIZE, join, segment_name
from pyreplog.log.snapshot import read_whole
from pyreplog.ports import Disk, File
from pyreplog.record import base_offset_of, size_of

# On disk: never change.
_MAGIC: Final = b"RLGP"
_VERSION: Final = 1
_HEADER: Final = struct.Struct(">4sHHqqI")
_CRC: Final = struct.Struct(">I")
_PAIR_SIZE: Final = 8
_LENGTH_MAX: Final = 2**32 - 1

GAPS_SIZE_MAX: Final = 512 << 20
"""A larger file counts as damaged."""


class Gaps:
    """The gaps of one segment, by rising offsets. Only the segment that is being written adds to them."""

    __slots__ = ("_bounds", "_sums", "dropped_tombstone", "file_size")

    def __init__(self, bounds: Iterable[int] = (), dropped_tombstone: int = -1) -> None:
        """``bounds``: start and end of each gap; a gap that begins at the end of the one before is joined with it."""
        #: The highest offset of a tombstone that was dropped from the segment; -1 if none was.
        self.dropped_tombstone = -1
        #: The bytes of the file that count; 0 if they are of no file.
        self.file_size = 0
        self._bounds = array("q")
        #: The number of offsets in all gaps before each gap, once it is needed.
        self._sums: array[int] | None = None
        self.add(bounds, dropped_tombstone)

    def add(self, bounds: Iterable[int], dropped_tombstone: int) -> None:
        """Add gaps behind the present ones, and another dropped tombstone."""
        joined, given = self._bounds, array("q", bounds)
        if joined[-1:] == given[:1] or any(map(eq, given[1::2], given[2::2])):
            for index, offset in enumerate(given):
                if index % 2 == 0 and joined and joined[-1] == offset:
                    joined.pop()
                else:
                    joined.append(offset)
        else:
            joined.extend(given)
        self._sums = None
        self.dropped_tombstone = max(self.dropped_tombstone, dropped_tombstone)

    def __len__(self) -> int:
        return len(self._bounds) // 2

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Gaps)
            and self._bounds == other._bounds
            and self.dropped_tombstone == other.dropped_tombstone
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def bounds(self) -> array[int]:
        """Start and end of each gap, one after the other. Do not change it."""
        return self._bounds

    @property
    def count(self) -> int:
        """The number of offsets in all gaps."""
        return sum(self._bounds[1::2]) - sum(self._bounds[::2])

    def behind(self, offset: int) -> int:
        """Return the end of the gap that holds ``offset``; ``offset`` itself if no gap does."""
        index = bisect_right(self._bounds, offset)
        return self._bounds[index] if index % 2 else offset

    def within(self, start: int, end: int) -> int:
        """Return how many offsets from ``start`` to below ``end`` are in gaps."""
        return self._count_below(end) - self._count_below(start) if start < end else 0

    def _count_below(self, offset: int) -> int:
        bounds = self._bounds
        if self._sums is None:
            self._sums = array("q", accumulate(map(sub, bounds[1::2], bounds[::2]), initial=0))
        index = bisect_right(bounds, offset)
        return self._sums[index // 2] + (offset - bounds[index - 1] if index % 2 else 0)

    def below(self, offset: int) -> Gaps:
        """Return the gaps that begin below ``offset``, for a segment that is cut there."""
        count = bisect_right(self._bounds, offset - 1)
        kept = self._bounds[: count - count % 2]
        if count % 2:
            kept.extend((self._bounds[count - 1], offset))
        return Gaps(kept, min(self.dropped_tombstone, offset - 1))


def format_gaps(base_offset: int, gaps: Gaps) -> bytes:
    """Return the content of the file."""
    bounds = gaps.bounds
    steps = array("q", map(sub, bounds, chain((base_offset,), bounds)))  # distance, length, distance, ...
    if steps and max(steps) > _LENGTH_MAX:
        steps = _short(steps)
    numbers = array("I", steps)
    if numbers.itemsize != 4:  # pragma: no cover (no platform that we know)
        raise AssertionError("the array type I has 4 bytes")
    count = len(numbers) // 2
    if sys.byteorder == "little":
        numbers.byteswap()
    content = _HEADER.pack(_MAGIC, _VERSION, 0, base_offset, gaps.dropped_tombstone, count) + numbers.tobytes()
    return content + _CRC.pack(crc32c(content))


def _short(steps: array[int]) -> array[int]:
    """Return the steps with gaps of at most ``_LENGTH_MAX`` offsets."""
    short = array("q")
    for distance, length in zip(steps[::2], steps[1::2], strict=True):
        whole, rest = divmod(length - 1, _LENGTH_MAX)
        short.extend((distance, _LENGTH_MAX, *(0, _LENGTH_MAX) * (whole - 1), 0) if whole else (distance,))
        short.append(rest + 1)
    return short


def parse_gaps(content: bytes, base_offset: int, path: str = "") -> Gaps:
    """Return the gaps in the content of the file of the segment at ``base_offset``. ``file_size`` is the size of the
    blocks up to one that is torn. Raises :class:`CorruptError` if the first block is damaged."""
    gaps = Gaps()
    while not gaps.file_size or gaps.file_size < len(content):
        try:
            _parse_block(memoryview(content)[gaps.file_size :], base_offset, gaps)
        except CorruptError as error:
            if gaps.file_size:
                break
            raise CorruptError(error.reason, file=path) from None
    return gaps


def _parse_block(content: memoryview, base_offset: int, gaps: Gaps) -> None:
    """Add the first block of ``content`` to ``gaps``. Raises :class:`CorruptError`."""
    if len(content) < _HEADER.size + _CRC.size:
        raise CorruptError(f"a file of gaps with {len(content)} bytes is cut off")
    magic, version, _, base, tombstone, count = _HEADER.unpack_from(content)
    size = _HEADER.size + count * _PAIR_SIZE
    if magic == _MAGIC and size + _CRC.size > len(content):
        raise CorruptError(f"a file of gaps with {len(content)} bytes is cut off")
    body = content[:size]
    if magic != _MAGIC or _CRC.unpack_from(content, size)[0] != crc32c(body):
        raise CorruptError("a file of gaps has a wrong checksum")
    if version != _VERSION:
        raise CorruptError(f"a file of gaps has version {version}, expected {_VERSION}")
    if base != base_offset:
        raise CorruptError(f"a file of gaps is of another segment, at {base}")
    numbers = array("I", bytes(body[_HEADER.size :]))
    if sys.byteorder == "little":
        numbers.byteswap()
    bounds = list(accumulate(numbers, initial=base_offset))[1:]
    if bounds and (bounds[-1] > INT64_MAX or 0 in numbers[1::2]):
        raise CorruptError("a file of gaps has an empty gap or passes the greatest offset")
    if bounds and gaps.bounds and bounds[0] < gaps.bounds[-1]:
        raise CorruptError("a file of gaps has gaps that overlap")
    gaps.add(bounds, tombstone)
    gaps.file_size += size + _CRC.size


def read_gaps(disk: Disk, directory: str, base_offset: int, name: str = "") -> Gaps | None:
    """Return the gaps of the segment at ``base_offset``; None if it has no such file. ``name``: the file, if it does
    not have its usual name. Raises :class:`CorruptError`, :class:`StorageError`."""
    path = join(directory, name or segment_name(base_offset, GAPS_SUFFIX))
    try:
        content = read_whole(disk, path, GAPS_SIZE_MAX)
    except StorageNotFoundError:  # renamed since
        return None
    return None if content is None else parse_gaps(content, base_offset, path)


def walk_gaps(file: File, size: int, base_offset: int) -> Iterator[tuple[int, int, int]]:
    """Yield (position, start, end) of each gap between the batches in the first ``size`` bytes of ``file``, a segment
    at ``base_offset``. ``position`` is that of the batch behind it. REQUIRES whole batches."""
    position, expected, want = 0, base_offset, SCAN_CHUNK_SIZE
    while position < size:
        data = file.read_at(position, min(want, size - position))
        whole, length = 0, 0
        while whole + LOG_OVERHEAD <= len(data) and whole + (length := size_of(data[whole:])) <= len(data):
            whole += length
        if not whole:
            want = max(length, SCAN_CHUNK_SIZE)
            continue
        found, end = find_gaps(data[:whole], expected)
        pairs = memoryview(found).cast("q")
        for start, stop in zip(pairs[::2], pairs[1::2], strict=True):
            at = 0
            while base_offset_of(data[at:]) != stop:
                at += size_of(data[at:])
            yield position + at, start, stop
        expected, position, want = end, position + whole, SCAN_CHUNK_SIZE


def unrecorded_gap(file: File, size: int, base_offset: int, gaps: Gaps) -> tuple[int, int, int] | None:
    """Return the first gap of :func:`walk_gaps` that is not in ``gaps``; None if there is none."""
    return next((found for found in walk_gaps(file, size, base_offset) if gaps.behind(found[1]) != found[2]), None)
