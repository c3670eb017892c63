"""The slow, obvious writer of magic 0 and 1: what ``pyreplog.record.legacy`` only reads."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from pyreplog.record import compress


class Old(NamedTuple):
    """A record of a message set."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def _field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    magic: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, attributes: int = 0
) -> bytes:
    """One message."""
    body = (
        struct.pack(">bb", magic, attributes)
        + (struct.pack(">q", timestamp) if magic else b"")
        + _field(key)
        + _field(value)
    )
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(magic: int, codec: int, records: Sequence[Old], append_time: int = -1, *, bad_lz4: bool = False) -> bytes:
    """A compressed message around ``records``; with ``append_time`` it bears the log's time."""
    first = records[0].offset if magic else 0
    inner = b"".join(
        message(magic, record.offset - first, record.timestamp, record.key, record.value) for record in records
    )
    stored = bytearray(compress(codec, inner))
    if bad_lz4:
        stored[6] ^= 0xFF
    timestamp = append_time if append_time >= 0 else max(record.timestamp for record in records)
    return message(magic, records[-1].offset, timestamp, None, bytes(stored), codec | (8 if append_time >= 0 else 0))
