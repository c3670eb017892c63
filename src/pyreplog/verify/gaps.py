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


def recorded_gaps(data: bytes, base: int) -> Mapping[int, int]:
    """Return start -> end of each gap of the segment at ``base``, from the content of its file. Gaps that touch are
    one."""
    if len(data) < _HEAD.size + 4:
        raise Unreadable(f"{len(data)} bytes are too few")
    if crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
        raise Unreadable("its checksum does not match")
    magic, version, _, its_base, _, count = _HEAD.unpack_from(data)
    if magic != b"RLGP" or version != 1:
        raise Unreadable(f"magic {magic!r}, version {version} are not known")
    if its_base != base or len(data) != _HEAD.size + count * _PAIR.size + 4:
        raise Unreadable(f"it is of a segment at {its_base}, with {count} gaps in {len(data)} bytes")
    found: dict[int, int] = {}
    at, begin = base, -1
    for distance, length in _PAIR.iter_unpack(data[_HEAD.size : -4]):
        if not length or at + distance + length > _OFFSET_MAX:
            raise Unreadable(f"a gap of {length} offsets at {at + distance} cannot be")
        if distance or begin < 0:
            begin = at + distance
        at += distance + length
        found[begin] = at
    return found


def dropped_tombstone(data: bytes) -> int:
    """Return the highest offset of a tombstone that compaction dropped from the segment; -1 for none. REQUIRES the
    content of a file that :func:`recorded_gaps` reads."""
    tombstone: int = _HEAD.unpack_from(data)[4]
    return tombstone
