"""The header of a record batch: where each field lies, in bytes from the start of the batch.

No other module in Python knows these positions; ``repair`` and ``verify`` have their own on
purpose. The compiled core has them in ``kernels/batch.h``. Messages of magic 0 and 1 begin like a
batch: with an offset, a length, and the magic at the same place.

Format: docs/internals/format/record_batch.md.
"""

from __future__ import annotations

import struct
from typing import Final

from pyreplog._core import LOG_OVERHEAD, crc32c
from pyreplog.ports import Buffer

# On disk: never change.
LENGTH_POSITION: Final = 8
"""The base offset lies before it. The length counts the bytes after itself."""
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
"""The checksum covers the bytes from here on."""
DELTA_POSITION: Final = 23
"""Last offset minus base offset."""
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_POSITION: Final = 43

SIZE_UP_TO_MAGIC: Final = MAGIC_POSITION + 1
SIZE_UP_TO_DELTA: Final = DELTA_POSITION + 4

MAGIC: Final = 2

OFFSET_AND_LENGTH: Final = struct.Struct(">qi")
SEQUENCE_FIELDS: Final = struct.Struct(">qii7xi")
"""Base offset, length, leader epoch, last offset delta."""
_EXTENT: Final = struct.Struct(">qi4xb6xi8xq")
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")
_PRODUCER: Final = struct.Struct(">qhi")


def base_offset_of(head: Buffer) -> int:
    """Return the base offset in the first 8 bytes of ``head``."""
    return int.from_bytes(memoryview(head)[:LENGTH_POSITION], "big", signed=True)


def size_of(head: Buffer) -> int:
    """Return the size in bytes that the batch or message at the start of ``head`` claims to have."""
    return LOG_OVERHEAD + int.from_bytes(memoryview(head)[LENGTH_POSITION:LOG_OVERHEAD], "big", signed=True)


def extent_of(header: Buffer) -> tuple[int, int, int, int] | None:
    """Return (size, base offset, last offset, greatest timestamp) of the batch with this header.

    Return None if the magic is another one. Nothing else is checked.
    """
    base, length, magic, delta, timestamp = _EXTENT.unpack_from(header)
    return (LOG_OVERHEAD + length, base, base + delta, timestamp) if magic == MAGIC else None


def set_length(data: bytearray) -> None:
    """Set the length in the header of the batch ``data`` to the bytes that it has."""
    _LENGTH.pack_into(data, LENGTH_POSITION, len(data) - LOG_OVERHEAD)


def set_attributes(data: bytearray | memoryview, clear: int, add: int) -> None:
    """Clear and then add bits of the attributes. The caller sets the checksum again."""
    (attributes,) = _ATTRIBUTES.unpack_from(data, ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(data, ATTRIBUTES_POSITION, attributes & ~clear | add)


def set_checksum(data: bytearray | memoryview) -> None:
    """Set the checksum of the batch ``data``, which is all of the buffer."""
    _CRC.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[ATTRIBUTES_POSITION:]))


def set_max_timestamp(data: memoryview, timestamp: int) -> None:
    """Set the greatest timestamp, in ms, in the header of the batch ``data`` (writable).

    The checksum is updated.
    """
    _TIMESTAMP.pack_into(data, MAX_TIMESTAMP_POSITION, timestamp)
    set_checksum(data)


def set_producer(data: memoryview, producer_id: int, epoch: int, base_sequence: int) -> None:
    """Set the producer's id, epoch and sequence in the batch ``data`` (writable).

    The checksum is updated. REQUIRES numbers that are not negative.
    """
    _PRODUCER.pack_into(data, PRODUCER_POSITION, producer_id, epoch, base_sequence)
    set_checksum(data)
