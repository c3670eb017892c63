"""Compressed records to plain ones, for a reader that shares nothing with the library's own.

gzip by the standard library; the blocks of snappy, lz4 and zstd by cramjam, if it is installed; the framings by
hand, from Kafka's description. The unpacked bytes come in pieces, so memory stays bounded for any size that a
stream claims.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Iterator
from typing import Any, Final

try:
    import cramjam
except ImportError:  # the payloads of these codecs then go unread, which is said
    cramjam = None  # type: ignore[assignment]

SIZE_MAX: Final = 1 << 30
"""Bytes that a batch may take unpacked, unless the caller says otherwise."""
_PIECE_SIZE: Final = 1 << 20
NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE: Final = 16
_LZ4_MAGIC: Final = 0x184D2204


class Undecodable(ValueError):
    """A compressed stream that does not decode; the text says why."""


class Unavailable(ValueError):
    """No library for this codec is at hand."""


class TooLarge(ValueError):
    """A stream that takes more bytes unpacked than the caller allows; nothing is known to be wrong with it."""


def decompress(codec: int, data: bytes, magic: int = 2, limit: int = SIZE_MAX) -> Iterator[bytes]:
    """``data`` unpacked, in pieces that take at most ``limit`` bytes together.

    Raises :class:`Undecodable`, :class:`TooLarge`, or :class:`Unavailable` where nothing here can tell.
    """
    if codec == 0:
        yield data
        return
    left = limit
    for piece in _pieces(codec, data, magic, limit):
        left -= len(piece)
        if left < 0:
            raise TooLarge(f"it takes more than {limit} bytes unpacked")
        yield piece


def _pieces(codec: int, data: bytes, magic: int, limit: int) -> Iterator[bytes]:
    if codec != 1 and cramjam is None:
        raise Unavailable(
            f"cramjam is not installed, so {NAMES[codec] if codec < len(NAMES) else codec} payloads were not read"
        )
    try:
        if codec == 1:
            yield from _gzip(data)
        elif codec == 2:
            yield from _snappy(data, limit)
        elif codec == 3 and magic == 0:
            yield from _lz4(data)
        elif codec == 3:
            yield from _piped(cramjam.lz4.decompress_into, data)
        elif codec == 4:
            yield from _piped(cramjam.zstd.decompress_into, data)
        else:
            raise Undecodable(f"unknown compression codec {codec}")
    except (zlib.error, struct.error, OverflowError) as error:
        raise Undecodable(f"the {NAMES[codec]} stream is broken: {error}") from None


def _gzip(data: bytes) -> Iterator[bytes]:
    rest, begun = data, False
    while rest or not begun:
        begun = True
        stream = zlib.decompressobj(31)
        while not stream.eof:
            piece = stream.decompress(rest, _PIECE_SIZE)
            if not piece and not stream.eof and not stream.unconsumed_tail:
                raise Undecodable("the gzip stream is cut off")
            yield piece
            rest = stream.unconsumed_tail
        rest = stream.unused_data


def _piped(into: Any, data: bytes) -> Iterator[bytes]:
    """cramjam decodes a whole stream in one call. Small ones into memory; else a thread makes the call, into a pipe
    that is read here."""
    room = bytearray(max(64 << 10, min(4 * len(data), _PIECE_SIZE)))
    try:
        yield bytes(memoryview(room)[: into(data, room)])
        return
    except cramjam.DecompressionError as error:
        if "whole buffer" not in str(error):
            raise Undecodable(f"the stream is broken: {error}") from None
    source, sink = os.pipe()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            into(data, cramjam.File(f"/proc/self/fd/{sink}", read=False, write=True))
        except (cramjam.DecompressionError, OSError, OverflowError) as error:
            failures.append(error)
        finally:
            os.close(sink)

    with open(source, "rb", buffering=0) as file:
        thread = threading.Thread(target=run, name="verify unpacking", daemon=True)
        thread.start()
        while piece := file.read(_PIECE_SIZE):
            yield piece
        thread.join()
    if failures:
        raise Undecodable(f"the stream is broken: {failures[0]}")


def _snappy(data: bytes, limit: int) -> Iterator[bytes]:
    if not data.startswith(_XERIAL):
        yield _snappy_block(data, limit)
        return
    if len(data) < _XERIAL_HEADER_SIZE:
        raise Undecodable("the snappy stream is broken: its header is cut off")
    at = 0
    while at < len(data):
        if data.startswith(_XERIAL, at):
            at += _XERIAL_HEADER_SIZE
            continue
        (size,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < size <= len(data) - at:
            raise Undecodable(f"the snappy stream is broken: a block of {size} bytes where {len(data) - at} are left")
        yield _snappy_block(data[at : at + size], limit)
        at += size


def _snappy_block(block: bytes, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > 22 * len(block):  # three bytes copy 64 at most
            raise Undecodable(f"the snappy stream is broken: a block of {len(block)} bytes claims to hold {size}")
        if size > limit:
            raise TooLarge(f"it takes more than {limit} bytes unpacked")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise Undecodable(f"the snappy stream is broken: {error}") from None


def _lz4(data: bytes) -> Iterator[bytes]:
    """Unpack an lz4 frame of format 0. The checksum of its header is ignored, because the writers of that format
    wrote a wrong one."""
    magic, flags, block_code = struct.unpack_from("<IBB", data)
    if magic != _LZ4_MAGIC or flags >> 6 != 1:
        raise Undecodable("the lz4 stream has no lz4 frame header")
    if not flags & 0x20:
        yield from _piped(cramjam.lz4.decompress_into, data)
        return
    block_max = 1 << (8 + 2 * (block_code >> 4 & 7))
    at = 7 + (8 if flags & 0x08 else 0)
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
            try:
                block = bytes(memoryview(room)[: cramjam.lz4.decompress_block_into(block, room, output_len=block_max)])
            except cramjam.DecompressionError as error:
                raise Undecodable(f"the lz4 stream is broken: {error}") from None
        at += size + (4 if flags & 0x10 else 0)
        yield block
    at += 4 if flags & 0x04 else 0
    if at != len(data):
        raise Undecodable(f"the lz4 stream is broken: {len(data) - at} bytes behind its end")
