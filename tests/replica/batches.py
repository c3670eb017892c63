"""A plain encoder of record batches for the replica's tests: bytes by ``struct``, the checksum by the ``crc32c`` package."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import crc32c

HEAD = struct.Struct(">qiib")
REST = struct.Struct(">hiqqqhii")


def varint(value: int) -> bytes:
    """``value`` as a zigzag varint."""
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def batch(
    values: Sequence[bytes] | int = 1,
    *,
    base: int = 0,
    epoch: int = -1,
    timestamp: int = 1,
    numbers: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """One v2 batch of these values (or of so many short ones), writable. ``numbers``: producer id, producer epoch, base sequence."""
    items = [b"v%d" % i for i in range(values)] if isinstance(values, int) else list(values)
    records = bytearray()
    for delta, value in enumerate(items):
        body = b"\x00" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(body)) + body
    rest = REST.pack(0, len(items) - 1, timestamp, timestamp, *numbers, len(items)) + records
    return bytearray(HEAD.pack(base, 9 + len(rest), epoch, 2) + struct.pack(">I", crc32c.crc32c(rest)) + rest)
