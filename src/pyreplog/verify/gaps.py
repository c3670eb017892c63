"""The file of gaps of a compacted segment: which offsets compaction removed. Read without the writer's code."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from crc32c import crc32c

from pyreplog.verify.states import Unreadable

_HEAD: Final = struct.Struct(">4sHHqqI")
_PAIR: Final = struct.Struct(">II")
_OFFSET_MAX: Final = 2**63 - 1


def recorded_gaps(data: bytes, base: int, *, torn: bool = False) -> Mapping[int, int]:
    """Return start -> end of each gap of the segment at ``base``, from the content of its file: one block after
    another. Gaps that touch are one. ``torn``: a block behind the first may be torn, because the segment is being
    written; the file counts up to there."""
    found: dict[int, int] = {}
    begin, end, position = -1, base, 0
    rest = memoryview(data)
    while not position or position < len(data):
        try:
            size, pairs = _block(rest[position:], base)
            if pairs and pairs[0][0] < end:
                raise Unreadable(f"a gap at {pairs[0][0]} is in front of one that ends at {end}")
        except Unreadable:
            if torn and position:
                break
            raise
        for start, behind in pairs:
            if begin < 0 or start != end:
                begin = start
            found[begin] = end = behind
        position += size
    return found


def _block(data: memoryview, base: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the size of the block that ``data`` begins with, and its gaps."""
    if len(data) < _HEAD.size + 4:
        raise Unreadable(f"{len(data)} bytes are too few")
    magic, version, _, its_base, _, count = _HEAD.unpack_from(data)
    if magic != b"RLGP":
        raise Unreadable(f"magic {magic!r} is not known")
    size = _HEAD.size + count * _PAIR.size
    if len(data) < size + 4:
        raise Unreadable(f"{len(data)} bytes are too few for {count} gaps")
    if crc32c(data[:size]) != int.from_bytes(data[size : size + 4], "big"):
        raise Unreadable("its checksum does not match")
    if version != 1:
        raise Unreadable(f"version {version} is not known")
    if its_base != base:
        raise Unreadable(f"it is of a segment at {its_base}")
    pairs, at = [], base
    for distance, length in _PAIR.iter_unpack(data[_HEAD.size : size]):
        if not length or at + distance + length > _OFFSET_MAX:
            raise Unreadable(f"a gap of {length} offsets at {at + distance} cannot be")
        pairs.append((at + distance, at + distance + length))
        at += distance + length
    return size + 4, pairs


def dropped_tombstone(data: bytes) -> int:
    """Return the highest offset of a tombstone that compaction dropped from the segment; -1 for none. REQUIRES the
    content of a file that :func:`recorded_gaps` reads."""
    found, position = -1, 0
    while position + _HEAD.size <= len(data):
        magic, _, _, _, tombstone, count = _HEAD.unpack_from(data, position)
        position += _HEAD.size + count * _PAIR.size + 4
        if magic != b"RLGP" or position > len(data):
            break
        found = max(found, tombstone)
    return found
