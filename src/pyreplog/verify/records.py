"""The records of a batch, decoded byte by byte from Kafka's description: format 2, and the message sets of formats
0 and 1."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from pyreplog.verify.codecs import TooLarge, Undecodable, decompress


class Malformed(ValueError):
    """Records that are not what their batch says; the text says why."""


class PlainRecord(NamedTuple):
    """A record as it is stored. ``timestamp`` -1: none. ``is_text``: all header names are UTF-8; else U+FFFD
    replaces the wrong bytes."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    is_text: bool = True


_INT64_COUNT: Final = 1 << 64
_OLD: Final = struct.Struct(">qiIbb")
"""Offset, size of the rest, CRC-32, magic, attributes."""


def _varint(data: bytes | bytearray, at: int, bits: int) -> tuple[int, int]:
    """Return a zig-zag number and the position behind it."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise Malformed("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits + 7 - bits % 7:
            raise Malformed("a number is longer than it may be")
    value &= (1 << bits) - 1
    return (value >> 1) ^ -(value & 1), at


def _bytes(data: bytes, at: int, end: int, what: str) -> tuple[bytes | None, int]:
    size, at = _varint(data, at, 32)
    if size < 0:
        return None, at
    if size > end - at:
        raise Malformed(f"a {what} of {size} bytes where {end - at} are left")
    return data[at : at + size], at + size


def records_of(payload: bytes, count: int, base_offset: int, base_timestamp: int) -> Iterator[PlainRecord]:
    """The ``count`` records of a batch of format 2. Raises :class:`Malformed` at the first that is not right, or
    what follows the last."""
    at = 0
    for number in range(count):
        size, at = _varint(payload, at, 32)
        end = at + size
        if size < 0 or end > len(payload):
            raise Malformed(f"record {number} of {count} has {size} bytes where {len(payload) - at} are left")
        at += 1  # attributes, unused
        delta, at = _varint(payload, at, 64)
        offset_delta, at = _varint(payload, at, 32)
        key, at = _bytes(payload, at, end, "key")
        value, at = _bytes(payload, at, end, "value")
        header_count, at = _varint(payload, at, 32)
        if not 0 <= header_count <= end - at:
            raise Malformed(f"record {number} says that it has {header_count} headers, in {end - at} bytes")
        headers: tuple[tuple[str, bytes | None], ...] = ()
        is_text = True
        if header_count:
            found = []
            for _ in range(header_count):
                name, at = _bytes(payload, at, end, "header key")
                if name is None:
                    raise Malformed(f"record {number} has a header without key")
                content, at = _bytes(payload, at, end, "header value")
                try:
                    text = name.decode("utf-8")
                except UnicodeDecodeError:
                    text = name.decode("utf-8", "replace")
                    is_text = False
                found.append((text, content))
            headers = tuple(found)
        if at != end:
            raise Malformed(f"record {number} says that it ends at byte {end}, and its fields at byte {at}")
        timestamp = base_timestamp + delta
        if not -_INT64_COUNT <= 2 * timestamp < _INT64_COUNT:
            # Java's sum wraps, so a delta may stand for a number that 64 bits cannot hold.
            timestamp += _INT64_COUNT if timestamp < 0 else -_INT64_COUNT
        yield PlainRecord(base_offset + offset_delta, timestamp, key, value, headers, is_text)
    if at != len(payload):
        raise Malformed(f"{len(payload) - at} bytes behind the last of {count} records")


def batch_records(
    codec: int, stored: bytes, count: int, base_offset: int, base_timestamp: int, limit: int
) -> Iterator[PlainRecord]:
    """As :func:`records_of` for the bytes as they are stored, which take at most ``limit`` bytes unpacked, a piece
    of them at a time.

    Raises what :func:`~pyreplog.verify.codecs.decompress` raises, too.
    """
    rest = bytearray()
    left = count
    for piece in decompress(codec, stored, limit=limit):
        rest += piece
        size, whole = _whole_records(rest, left)
        yield from records_of(bytes(rest[:size]), whole, base_offset, base_timestamp)
        del rest[:size]
        left -= whole
    yield from records_of(bytes(rest), left, base_offset, base_timestamp)


def _whole_records(data: bytearray, count: int) -> tuple[int, int]:
    """How many bytes, and how many of ``count`` records, lie whole at the beginning of ``data``, by their lengths
    alone."""
    at = found = 0
    while found < count:
        try:
            size, start = _varint(data, at, 32)
        except Malformed:
            break  # it is cut off, or wrong: then so is the last piece
        if size < 0 or start + size > len(data):
            break
        at, found = start + size, found + 1
    return at, found


def old_records_of(data: bytes) -> list[PlainRecord]:
    """The records of one message, or wrapper, of format 0 or 1: ``data`` is all of it, envelope included. Checks
    the inner checksums."""
    offset, _, _, magic, attributes = _OLD.unpack_from(data)
    timestamp, key, value = _old_content(data, magic)
    codec = attributes & 7
    if codec == 0:
        return _rising([PlainRecord(offset, timestamp, key, value, ())])
    if value is None:
        raise Malformed("a compressed wrapper without value")
    try:
        inner = b"".join(decompress(codec, value, magic))
    except (Undecodable, TooLarge) as error:
        raise Malformed(str(error)) from None
    found: list[PlainRecord] = []
    at = 0
    while at < len(inner):
        if len(inner) - at < _OLD.size:
            raise Malformed("an inner message is cut off")
        inner_offset, size, crc, inner_magic, inner_attributes = _OLD.unpack_from(inner, at)
        if size < 14 or size > len(inner) - at - 12 or inner_magic != magic or inner_attributes & 7:
            raise Malformed("an inner message is not allowed there")
        message = inner[at : at + 12 + size]
        if zlib.crc32(message[16:]) != crc:
            raise Malformed("the checksum of an inner message does not match")
        inner_timestamp, inner_key, inner_value = _old_content(message, magic)
        found.append(
            PlainRecord(inner_offset, timestamp if attributes & 8 else inner_timestamp, inner_key, inner_value, ())
        )
        at += 12 + size
    if not found:
        raise Malformed("a compressed wrapper without messages")
    if magic == 1:
        last = found[-1].offset
        found = [record._replace(offset=offset - last + record.offset) for record in found]
    return _rising(found)


def _rising(records: list[PlainRecord]) -> list[PlainRecord]:
    """``records``, whose offsets rise, and whose timestamps are none before 1970."""
    before = -1
    for record in records:
        if record.offset <= before:
            raise Malformed(f"a message has offset {record.offset} after {before}")
        if record.timestamp < -1:
            raise Malformed(f"message {record.offset} has the timestamp {record.timestamp}")
        before = record.offset
    return records


def _old_content(data: bytes, magic: int) -> tuple[int, bytes | None, bytes | None]:
    at, timestamp = _OLD.size, -1
    try:
        if magic == 1:
            (timestamp,) = struct.unpack_from(">q", data, at)
            at += 8
        parts: list[bytes | None] = []
        for _ in range(2):
            (size,) = struct.unpack_from(">i", data, at)
            at += 4
            if not -1 <= size <= len(data) - at:
                raise Malformed(f"a key or value of {size} bytes where {len(data) - at} are left")
            parts.append(data[at : at + size] if size >= 0 else None)
            at += max(size, 0)
    except struct.error:
        raise Malformed("a message is cut off") from None
    if at != len(data):
        raise Malformed(f"{len(data) - at} bytes behind the end of a message")
    return timestamp, parts[0], parts[1]
