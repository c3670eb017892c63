"""What lies behind the last whole entry of a queue's journal: the rest of a torn write, or entries behind a damaged
one."""

from __future__ import annotations

import struct
from typing import Final

from pyreplog.record import crc32c

__all__ = ["damage_text", "find_entry_behind"]

_FRAME: Final = struct.Struct(">II")
_KIND_MAX: Final = 9
_SIZE_END: Final = 1 << 16
"""An entry that follows a snapshot has fewer bytes."""


def find_entry_behind(data: bytes, chain: int) -> int | None:
    """Return the position of a whole entry behind the damaged one at the start of ``data``; None if there is none.

    ``chain``: the checksum before the damaged entry. A write that was torn leaves no such entry behind it; a damaged
    byte does, and so may power loss, which can lose an entry and keep a later one.
    """
    end = len(data.rstrip(b"\0"))
    if end <= _FRAME.size:
        return None
    size, stored = _FRAME.unpack_from(data)
    following: int = _FRAME.size + size
    if following < end and _is_whole(data, following, crc32c(data[_FRAME.size : following], crc32c(data[:4], chain))):
        return following
    position = _FRAME.size
    while (position := data.find(b"\0\0", position, end)) >= 0:
        if _is_whole(data, position, stored):
            return position
        size, crc = _plausible(data, position)
        if size and _is_whole(data, position + _FRAME.size + size, crc):
            return position + _FRAME.size + size
        position += 1
    return None


def _plausible(data: bytes, position: int) -> tuple[int, int]:
    """Return size and checksum of what may be an entry at ``position``; (0, 0) if it can be none."""
    body = position + _FRAME.size
    if body >= len(data) or not 0 < data[body] <= _KIND_MAX:
        return 0, 0
    size, crc = _FRAME.unpack_from(data, position)
    return (size, crc) if 0 < size < _SIZE_END and body + size <= len(data) else (0, 0)


def _is_whole(data: bytes, position: int, chain: int) -> bool:
    """Return whether there is an entry at ``position`` that continues ``chain``."""
    size, crc = _plausible(data, position)
    if not size:
        return False
    body = position + _FRAME.size
    return crc32c(data[body : body + size], crc32c(data[position : position + 4], chain)) == crc


def damage_text(path: str, position: int, size: int, behind: int | None) -> str:
    """Return what to tell of ``size`` bytes that are no whole entry. ``behind``: the position of a whole entry behind
    them; None if there is none."""
    what = f"{path}: the {size} bytes at byte {position} are no whole entry of the queue's journal"
    if behind is None:
        return (
            f"{what}: a worker ended within a write, or power loss or damage took its last entry; if that one accepted"
            " records, they are delivered again"
        )
    return (
        f"{what}, and a whole one follows at byte {behind}: power loss or damage took an entry, and the records that"
        " were accepted in it and in those behind it are delivered again"
    )
