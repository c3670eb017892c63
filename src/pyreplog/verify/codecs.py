"""Compressed records to plain ones, for a reader that shares nothing with the library's own.

gzip by the standard library; the blocks of snappy, lz4 and zstd by cramjam, where it is installed; the framings by hand, from Kafka's
description. Nothing is allocated beyond a limit, whatever a stream claims.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

try:
    import cramjam
except ImportError:  # the payloads of these codecs then go unread, which is said
    cramjam = None  # type: ignore[assignment]

SIZE_MAX: Final = 64 << 20
NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE: Final = 16
_LZ4_MAGIC: Final = 0x184D2204


class Undecodable(ValueError):
    """A compressed stream that does not decode; the text says why."""


class Unavailable(ValueError):
    """No library for this codec is at hand."""


def decompress(codec: int, data: bytes, magic: int = 2) -> bytes:
    """``data`` uncompressed, at most 64 MiB. Raises :class:`Undecodable`, or :class:`Unavailable` where nothing here can tell."""
    if codec == 0:
        return data
    if codec == 1:
        return _gzip(data)
    if cramjam is None:
        raise Unavailable(f"cramjam is not installed, so {NAMES[codec] if codec < len(NAMES) else codec} payloads were not read")
    try:
        if codec == 2:
            return _snappy(data)
        if codec == 3:
            return _lz4(data) if magic == 0 else _growing(cramjam.lz4.decompress_into, data)
        if codec == 4:
            return _growing(cramjam.zstd.decompress_into, data)
    except (cramjam.DecompressionError, struct.error, OverflowError) as error:
        raise Undecodable(f"the {NAMES[codec]} stream is broken: {error}") from None
    raise Undecodable(f"unknown compression codec {codec}")


def _gzip(data: bytes) -> bytes:
    out: list[bytes] = []
    left = SIZE_MAX
    rest = data
    try:
        while rest or not out:
            stream = zlib.decompressobj(31)
            piece = stream.decompress(rest, left)
            out.append(piece)
            left -= len(piece)
            if not stream.eof:
                raise Undecodable("the gzip stream is cut off, or larger than 64 MiB uncompressed")
            rest = stream.unused_data
    except zlib.error as error:
        raise Undecodable(f"the gzip stream is broken: {error}") from None
    return b"".join(out)


def _growing(into: Any, data: bytes) -> bytes:
    size = min(max(16 << 10, 4 * len(data)), SIZE_MAX)
    while True:
        room = bytearray(size)
        try:
            return bytes(memoryview(room)[: into(data, room)])
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error) or size == SIZE_MAX:
                raise
            size = min(4 * size, SIZE_MAX)


def _snappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL):
        return _snappy_block(data, SIZE_MAX)
    if len(data) < _XERIAL_HEADER_SIZE:
        raise Undecodable("the snappy stream is broken: its header is cut off")
    out: list[bytes] = []
    left = SIZE_MAX
    at = 0
    while at < len(data):
        if data.startswith(_XERIAL, at):
            at += _XERIAL_HEADER_SIZE
            continue
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < size <= len(data) - at:
            raise Undecodable(f"the snappy stream is broken: a block of {size} bytes where {len(data) - at} are left")
        block = _snappy_block(data[at : at + size], left)
        left -= len(block)
        at += size
        out.append(block)
    return b"".join(out)


def _snappy_block(block: bytes, limit: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > limit:
        raise Undecodable("the snappy stream is larger than 64 MiB uncompressed")
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4(data: bytes) -> bytes:
    """An lz4 frame of format 0. The checksum of its header is not looked at: who wrote that format wrote a wrong one."""
    magic, flags, block_code = struct.unpack_from("<IBB", data)
    if magic != _LZ4_MAGIC or flags >> 6 != 1:
        raise Undecodable("the lz4 stream has no lz4 frame header")
    if not flags & 0x20:
        return _growing(cramjam.lz4.decompress_into, data)
    block_max = 1 << (8 + 2 * (block_code >> 4 & 7))
    at = 7 + (8 if flags & 0x08 else 0)
    out: list[bytes] = []
    left = SIZE_MAX
    while True:
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
        if size == 0:
            break
        stored, size = size >> 31, size & 0x7FFFFFFF
        if size > len(data) - at:
            raise Undecodable(f"the lz4 stream is broken: a block of {size} bytes where {len(data) - at} are left")
        block = data[at : at + size]
        if not stored:
            room = bytearray(block_max)
            block = bytes(memoryview(room)[: cramjam.lz4.decompress_block_into(block, room, output_len=block_max)])
        at += size + (4 if flags & 0x10 else 0)
        left -= len(block)
        if left < 0:
            raise Undecodable("the lz4 stream is larger than 64 MiB uncompressed")
        out.append(block)
    at += 4 if flags & 0x04 else 0
    if at != len(data):
        raise Undecodable(f"the lz4 stream is broken: {len(data) - at} bytes behind its end")
    return b"".join(out)
