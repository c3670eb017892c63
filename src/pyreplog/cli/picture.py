"""Bytes drawn: each field of a structure on a line of its own, with its position, its bytes and their meaning."""

from __future__ import annotations

from typing import Final

__all__ = ["picture_of_batch", "picture_of_mark"]

# (position, size, name, signed)
_BATCH: Final = (
    (0, 8, "base offset", True),
    (8, 4, "length of what follows", True),
    (12, 4, "leader epoch", True),
    (16, 1, "magic", True),
    (17, 4, "CRC-32C of what follows", False),
    (21, 2, "attributes", False),
    (23, 4, "last offset delta", True),
    (27, 8, "base timestamp", True),
    (35, 8, "max timestamp", True),
    (43, 8, "producer id", True),
    (51, 2, "producer epoch", True),
    (53, 4, "base sequence", True),
    (57, 4, "record count", True),
)
_MARK: Final = (
    (0, 4, "magic", None),
    (4, 2, "version", False),
    (6, 2, "flags", False),
    (8, 8, "sequence", False),
    (16, 8, "synced end", True),
    (24, 8, "high watermark", True),
    (32, 8, "start offset", True),
    (40, 4, "partition", True),
    (44, 4, "CRC-32C of the epochs", False),
    (48, 16, "topic id", None),
    (64, 4, "CRC-32C of the bytes before", False),
)
_WIDTH: Final = 16


def picture_of_batch(data: bytes, position: int) -> list[str]:
    """The header of a batch of format 2 and the beginning of its records, as lines."""
    lines = _draw(data, position, _BATCH)
    if len(data) > 61:
        shown = data[61 : 61 + _WIDTH]
        more = f" ... {len(data) - 61 - _WIDTH} more" if len(data) > 61 + _WIDTH else ""
        lines.append(f"{position + 61:10} | {shown.hex(' '):{3 * _WIDTH}}| records{more}")
    return lines


def picture_of_mark(data: bytes, position: int) -> list[str]:
    """One slot of a mark, as lines."""
    return _draw(data[position:], position, _MARK)


def _draw(data: bytes, position: int, fields: tuple[tuple[int, int, str, bool | None], ...]) -> list[str]:
    lines = []
    for at, size, name, signed in fields:
        piece = data[at : at + size]
        value = "" if signed is None else f" {int.from_bytes(piece, 'big', signed=signed)}"
        if name == "attributes":
            value = f" {int.from_bytes(piece, 'big'):#018b}"
        lines.append(f"{position + at:10} | {piece.hex(' '):{3 * _WIDTH}}| {name}{value}")
    return lines
