"""Convert message sets of magic 0 and 1, Kafka's formats before 0.11, to record batches as they are
read.

No code writes them. A plain message is one record. The value of a compressed message holds other
messages. Their offsets are absolute (magic 0) or count from the first (magic 1: the last has the
offset of the outer message). The results are batches of format v2 with leader epoch -1, in memory
only, so that all code that reads batches can read them. Records of magic 0 have no timestamp, and
timestamp type NONE.

Format: docs/internals/format/legacy.md. Source: ``AbstractLegacyRecordBatch`` of Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from pyreplog._core import BatchBuilder, RecordBatch, legacy_messages
from pyreplog.errors import CorruptError
from pyreplog.record.batch import CODEC_MASK, LOG_APPEND_TIME_BIT
from pyreplog.record.compression import CODEC_NAMES, LZ4, SIZE_MAX, ZSTD, decompress_payload
from pyreplog.record.header import set_attributes, set_checksum

_TIMELESS: Final = 0x4000
"""See batch_is_timeless in src/_core/kernels/batch.h."""
_BATCH_SIZE_MAX: Final = 0x7FFFFFFF
_LZ4_MAGIC: Final = 0x184D2204
_LZ4_CONTENT_SIZE_BIT: Final = 0x08
_MASK: Final = 0xFFFFFFFF


class LegacyMessage(NamedTuple):
    """One message as stored, with the positions of its key and value.

    See :func:`pyreplog._core.legacy_messages`.
    """

    offset: int
    timestamp: int
    magic: int
    attributes: int
    size: int
    key_start: int
    key_size: int
    value_start: int
    value_size: int

    @property
    def codec(self) -> int:
        """0 for a plain message; otherwise the codec of the messages in its value."""
        return self.attributes & CODEC_MASK

    @property
    def append_time(self) -> bool:
        """Whether its timestamp is the log's append time."""
        return self.magic == 1 and bool(self.attributes & LOG_APPEND_TIME_BIT)


class _Item(NamedTuple):
    offset: int
    timestamp: int
    magic: int
    append_time: bool
    key: memoryview | None
    value: memoryview | None


def shallow_messages(data: memoryview) -> tuple[list[LegacyMessage], int]:
    """Return the whole messages at the start of ``data``, and their size in bytes.

    Compressed messages stay as they are. Raises :class:`CorruptError` if the first message is
    malformed.
    """
    found, size = legacy_messages(data)
    return [LegacyMessage(*fields) for fields in found], size


def convert_legacy(data: memoryview, start: int = 0, end: int = 0x7FFFFFFFFFFFFFFF) -> bytes:
    """Return the messages at the start of ``data`` as batches.

    The batches have the records with ``start`` <= offset < ``end``. Raises :class:`CorruptError`
    for a compressed set that is broken, too large when decompressed, or of another magic than its
    outer message.
    """
    parts: list[bytes] = []
    run: list[_Item] = []
    for item in _items(data, start, end):
        if run and (
            item.offset != run[-1].offset + 1
            or item.magic != run[0].magic
            or item.append_time != run[0].append_time
            or (item.append_time and item.timestamp != run[0].timestamp)
        ):
            parts.append(_batch(run))
            run = []
        run.append(item)
    if run:
        parts.append(_batch(run))
    return b"".join(parts)


def _items(data: memoryview, start: int, end: int) -> Iterator[_Item]:
    """Yield the records of the range by rising offset, including those inside compressed messages."""
    position = 0
    for message in shallow_messages(data)[0]:
        if message.offset >= start:
            if message.codec == 0:
                items: Sequence[_Item] = (_item(message, data, message.offset, message),)
            else:
                items = _inner(message, data, position)
            for item in items:
                if start <= item.offset < end:
                    yield item
        position += message.size


def _item(message: LegacyMessage, data: memoryview, offset: int, around: LegacyMessage) -> _Item:
    """Return ``message`` of ``data`` as a record at ``offset``.

    The outer message ``around`` (or the message itself) says which kind of timestamp it has.
    """
    timestamp = around.timestamp if around.append_time else message.timestamp
    if timestamp < -1:
        raise CorruptError(f"message {offset} has the timestamp {timestamp}")
    key = None if message.key_start < 0 else data[message.key_start : message.key_start + message.key_size]
    value = None if message.value_start < 0 else data[message.value_start : message.value_start + message.value_size]
    return _Item(offset, timestamp, around.magic, around.append_time, key, value)


def _inner(around: LegacyMessage, data: memoryview, position: int) -> list[_Item]:
    """Return the records in a compressed message."""
    codec = around.codec
    if codec >= ZSTD:
        raise CorruptError(
            f"message of magic {around.magic} has codec {codec}, which that format does not have", position=position
        )
    if around.value_start < 0:
        raise CorruptError("compressed message has no value", position=position)
    stored = data[around.value_start : around.value_start + around.value_size]
    if codec == LZ4 and around.magic == 0:
        stored = _mend_lz4(stored)
    inner = decompress_payload(codec, stored, SIZE_MAX)
    messages, size = shallow_messages(inner)
    if size != inner.nbytes or not messages:
        raise CorruptError(
            f"the {CODEC_NAMES[codec]} set in message {around.offset} has bytes after its last message",
            position=position,
        )
    for message in messages:
        if message.magic != around.magic:
            raise CorruptError(
                f"message of magic {message.magic} inside one of magic {around.magic}", position=position
            )
        if message.codec:
            raise CorruptError("compressed message inside a compressed message", position=position)
    # Some early clients left the offset of the outer message 0.
    first = around.offset - messages[-1].offset if around.magic == 1 and around.offset else 0
    items = [_item(message, inner, first + message.offset, around) for message in messages]
    for before, after in pairwise(items):
        if after.offset <= before.offset:
            raise CorruptError(
                f"offset {after.offset} follows {before.offset} in a compressed message", position=position
            )
    if items[0].offset < 0:
        raise CorruptError(f"offset {items[0].offset} in a compressed message", position=position)
    return items


def _batch(run: Sequence[_Item]) -> bytes:
    """Return a batch of records whose offsets follow one another."""
    builder = BatchBuilder(_BATCH_SIZE_MAX)
    first = run[0]
    for item in run:
        if not builder.append(item.value, item.key, (), item.timestamp):
            raise CorruptError(f"messages from offset {first.offset} on have more than 2 GiB")
    batch = builder.finish(
        base_offset=first.offset,
        timestamp_type=1 if first.append_time else 0,
        append_timestamp=first.timestamp if first.append_time else -1,
    )
    if first.magic == 0:
        set_attributes(batch, 0, _TIMELESS)
        set_checksum(batch)
    return bytes(batch)


def legacy_batches(data: bytes) -> Iterator[RecordBatch]:
    """Yield the batches that :func:`convert_legacy` returned."""
    position = 0
    while position < len(data):
        batch = RecordBatch(data, position)
        yield batch
        position += batch.size


# -- LZ4 of magic 0 --


def _mend_lz4(stored: memoryview) -> memoryview:
    """Return the LZ4 frame with a correct header checksum.

    Kafka before 0.10 included the magic in that checksum, and readers of magic 0 do not check it.
    """
    if len(stored) < 7 or int.from_bytes(stored[:4], "little") != _LZ4_MAGIC:
        return stored
    size = 2 + (8 if stored[4] & _LZ4_CONTENT_SIZE_BIT else 0)
    if len(stored) < 4 + size + 1:
        return stored
    mended = bytearray(stored)
    mended[4 + size] = _xxh32(bytes(stored[4 : 4 + size])) >> 8 & 0xFF
    return memoryview(mended)


def _xxh32(data: bytes) -> int:
    """Return the 32-bit xxHash, with seed 0, of fewer than 16 bytes (Yann Collet)."""
    value = (0x165667B1 + len(data)) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value = (
            _rotate((value + int.from_bytes(data[at : at + 4], "little") * 0xC2B2AE3D) & _MASK, 17) * 0x27D4EB2F & _MASK
        )
    for byte in data[whole:]:
        value = _rotate((value + byte * 0x165667B1) & _MASK, 11) * 0x9E3779B1 & _MASK
    value = (value ^ value >> 15) * 0x85EBCA77 & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE3D & _MASK
    return value ^ value >> 16


def _rotate(value: int, count: int) -> int:
    return (value << count | value >> 32 - count) & _MASK
