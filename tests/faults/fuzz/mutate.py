"""Mutations: from one input, and a pool of others, the next one. All chance comes from the generator that is passed
in."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from random import Random
from typing import Final

from crc32c import crc32c

SIZE_MAX: Final = 4096
_NUMBERS: Final = (
    0,
    1,
    2,
    7,
    8,
    15,
    16,
    17,
    60,
    61,
    62,
    127,
    128,
    255,
    256,
    4096,
    65535,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
)
_FORMS: Final = ((1, ">B"), (2, ">H"), (4, ">I"), (8, ">Q"), (4, "<I"))
_TEXTS: Final = (
    b"-1",
    b"0",
    b"9" * 19,
    b"9" * 25,
    b" ",
    b"\n",
    b"\t",
    b":",
    b"=",
    b"\\",
    b"\xff",
    b"\x00",
    b"\xc3\x28",
    b"{",
    b'"',
    b"null",
    b"1e400",
)


def mutate(data: bytes, pool: Sequence[bytes], chance: Random) -> bytes:
    """``data`` with one to four changes, at most 4 KiB."""
    out = bytearray(data)
    for _ in range(1 + (chance.random() < 0.4) + (chance.random() < 0.2) + (chance.random() < 0.1)):
        _change(out, pool, chance)
    return bytes(out[:SIZE_MAX])


def _change(out: bytearray, pool: Sequence[bytes], chance: Random) -> None:
    size = len(out)
    kind = int(chance.random() * 10) if size else 7
    at = int(chance.random() * size)
    if kind <= 2:
        out[at] ^= 1 << int(chance.random() * 8)
    elif kind == 3:
        out[at] = int(chance.random() * 256)
    elif kind == 4:
        width, form = _FORMS[int(chance.random() * len(_FORMS))]
        if at + width <= size:
            value = _NUMBERS[int(chance.random() * len(_NUMBERS))]
            if chance.random() < 0.5:
                value = struct.unpack_from(form, out, at)[0] + int(chance.random() * 17) - 8
            struct.pack_into(form, out, at, value & (1 << 8 * width) - 1)
    elif kind == 5:
        del out[at : at + 1 + int(chance.random() * 16)]
    elif kind == 6:
        piece = out[at : at + 1 + int(chance.random() * 64)]
        where = int(chance.random() * (size + 1))
        out[where:where] = piece
    elif kind == 7:
        out[at:at] = _TEXTS[int(chance.random() * len(_TEXTS))]
    elif kind == 8:
        other = pool[int(chance.random() * len(pool))]
        start = int(chance.random() * (len(other) + 1))
        out[at:] = other[start:]
    else:
        del out[at:]


def seal_batch(data: bytes, chance: Random) -> bytes:
    """Most of the time: length and checksum of a record batch set right, so that what is behind them is looked
    at."""
    if len(data) < 61 or chance.random() < 0.25:
        return data
    out = bytearray(data)
    if chance.random() < 0.7:
        struct.pack_into(">i", out, 8, len(out) - 12)
        out[16] = 2
    size = min(max(struct.unpack_from(">i", out, 8)[0] + 12, 21), len(out))
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:size])))
    return bytes(out)


def seal_old(data: bytes, chance: Random) -> bytes:
    """Most of the time: the checksum of a message of format 0 or 1 set right."""
    if len(data) < 26 or chance.random() < 0.25:
        return data
    out = bytearray(data)
    size = min(max(struct.unpack_from(">i", out, 8)[0] + 12, 26), len(out))
    struct.pack_into(">I", out, 12, zlib.crc32(bytes(out[16:size])))
    return bytes(out)


def seal_state(data: bytes, chance: Random) -> bytes:
    """Most of the time: the checksum line of a state file set right."""
    body, _, _ = data.rpartition(b"crc32c: ")
    if not body or chance.random() < 0.25:
        return data
    return body + b"crc32c: %08x\n" % crc32c(body)


def seal_snapshot(data: bytes, chance: Random) -> bytes:
    """Most of the time: version and checksum of a producer snapshot set right."""
    if len(data) < 10 or chance.random() < 0.25:
        return data
    return b"\x00\x01" + struct.pack(">I", crc32c(data[6:])) + data[6:]


def seal_mark(data: bytes, chance: Random) -> bytes:
    """Most of the time: the checksums of a mark's slots set right."""
    if chance.random() < 0.25:
        return data
    out = bytearray(data)
    for position in (0, 512, 1024):
        if len(out) >= position + 68:
            struct.pack_into(">I", out, position + 64, crc32c(bytes(out[position : position + 64])))
    return bytes(out)


def seal_reader_file(data: bytes, chance: Random) -> bytes:
    """Most of the time: the checksums of the header and of each entry of a reader's file set right."""
    if chance.random() < 0.25:
        return data
    out = bytearray(data)
    if len(out) >= 216:
        struct.pack_into(">I", out, 8, crc32c(bytes(out[:8]) + bytes(out[16:216])))
    for position in range(512, len(out) - 63, 64):
        struct.pack_into(">I", out, position + 60, crc32c(bytes(out[position : position + 60])))
    return bytes(out)
