"""Record batches in Python's terms: reading one, splitting a buffer, rewriting on the leader, and the checks a leader makes.

Nothing here loops over records: what does is in the core.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from pyreplog._core import HEADER_SIZE, LOG_OVERHEAD, Record, RecordBatch, SegmentScanner, crc32c
from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import BatchTooLargeError, CorruptError, InvalidRequestError, InvalidTimestampError, MessageTooLargeError
from pyreplog.ports import Buffer
from pyreplog.record.compression import CODEC_NAMES, SIZE_MAX, compress, decompress
from pyreplog.record.unpacking import parts_of

RECORDS_SIZE_MAX: Final = SIZE_MAX

# Positions in a batch's header. On disk: never change.
_LENGTH: Final = struct.Struct(">i")
_LENGTH_POSITION: Final = 8
_CRC: Final = struct.Struct(">I")
_CRC_POSITION: Final = 17
_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_POSITION: Final = 21
_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION: Final = 35
_PRODUCER: Final = struct.Struct(">qhi")  # id, epoch, base sequence
_PRODUCER_POSITION: Final = 43

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08


def payload_of(batch: RecordBatch) -> Buffer | None:
    """What the ``payload`` arguments of :class:`RecordBatch` want: None where the batch has no codec, else its records uncompressed.

    For a batch that a writer takes on: :class:`MessageTooLargeError` where its records have more than ``RECORDS_SIZE_MAX`` bytes. Readers
    take a batch in parts: see :func:`pyreplog.record.unpacking.parts_of`."""
    if batch.codec == 0:
        return None
    try:
        return decompress(batch)
    except BatchTooLargeError:
        raise MessageTooLargeError(
            f"the records of a compressed batch take more than {RECORDS_SIZE_MAX} bytes when they are unpacked: append less at a time"
        ) from None


def records_of(batch: RecordBatch, topic: str = "", partition: int = -1, start: int = 0, end: int = 0x7FFFFFFFFFFFFFFF) -> list[Record]:
    """The records with ``start`` <= offset < ``end``; none for a control batch, whose records are not for readers."""
    found: list[Record] = []
    for records in record_lists_of(batch, topic, partition, start, end):
        found = found + records if found else records
    return found


def record_lists_of(
    batch: RecordBatch,
    topic: str = "",
    partition: int = -1,
    start: int = 0,
    end: int = 0x7FFFFFFFFFFFFFFF,
    size_max: int = MAX_BATCH_BYTES,
) -> Iterable[list[Record]]:
    """The same as lists, none of them empty: one list, or for a batch that is large when it is unpacked one for each part.

    Raises :class:`BatchTooLargeError` for a batch that unpacks to more than ``size_max`` bytes."""
    if batch.is_control or batch.record_count == 0:
        return ()
    if batch.codec:
        return _unpacked_lists(batch, topic, partition, start, end, size_max)
    found = batch.records(None, topic=topic, partition=partition, start_offset=start, end_offset=end)
    return (found,) if found else ()


def _unpacked_lists(batch: RecordBatch, topic: str, partition: int, start: int, end: int, size_max: int) -> Iterator[list[Record]]:
    for payload, count, last_offset in parts_of(batch, size_max, partition=f"{topic}-{partition}" if topic else None):
        if last_offset >= start:
            found = batch.records(payload, topic=topic, partition=partition, start_offset=start, end_offset=end, record_count=count)
            if found:
                yield found
        if last_offset >= end - 1:
            return


def split(data: Buffer) -> list[RecordBatch]:
    """The batches of ``data``, which holds nothing but whole ones (:class:`CorruptError` otherwise). Each keeps ``data`` alive."""
    size = memoryview(data).nbytes
    batches: list[RecordBatch] = []
    position = 0
    while position < size:
        batch = RecordBatch(data, position)
        batches.append(batch)
        position += batch.size
    return batches


def end_of(data: Buffer) -> int:
    """The offset behind the whole batches that ``data`` is. REQUIRES at least one. Costs a look at each header."""
    view = memoryview(data)
    scan = SegmentScanner(RecordBatch(view).base_offset, index_interval=view.nbytes, check_crc=False)
    scan.feed(view)
    return scan.next_offset


def validate_from_client(batch: RecordBatch) -> int:
    """Check what a leader demands of a client's batch: checksum, codec, dense offsets from 0, well-formed records, no control records.

    Returns the greatest timestamp of its records, -1 where none has one: what its header should say, and may not. Raises
    :class:`CorruptError` for bad bytes, :class:`InvalidRequestError` and :class:`InvalidTimestampError` for what is well formed and not
    allowed.
    """
    batch.check_crc()
    if batch.codec >= len(CODEC_NAMES):
        raise CorruptError(f"unknown compression codec {batch.codec}")
    if batch.is_control:
        raise InvalidRequestError("control batches are written by the broker alone")
    if batch.is_transactional:
        raise InvalidRequestError("transactions are not supported")
    if batch.attributes & LOG_APPEND_TIME_BIT:
        raise InvalidTimestampError("the log's append time is set by the leader alone, and the batch bears one")
    if batch.base_offset != 0:
        raise InvalidRequestError(f"a client's batch begins at offset 0, not {batch.base_offset}")
    if batch.record_count <= 0:
        raise InvalidRequestError("a batch without records")
    if batch.producer_id != -1 and (batch.producer_epoch < 0 or batch.base_sequence < 0):
        raise InvalidRequestError("a producer id needs a producer epoch and a sequence")
    is_dense, max_timestamp = batch.examine(payload_of(batch))
    if not is_dense:
        raise InvalidRequestError("record offsets are not 0, 1, 2, ...")
    return max_timestamp


def recompress(batch: RecordBatch, codec: int) -> bytearray:
    """A copy of ``batch`` whose records are stored with ``codec`` (0 to 4); everything else stays, the checksum is new."""
    records = payload_of(batch)
    if records is None:
        records = batch.payload
    stored: Buffer = records if codec == 0 else compress(codec, records)
    copy = bytearray(batch.data[:HEADER_SIZE])
    copy += stored
    _LENGTH.pack_into(copy, _LENGTH_POSITION, len(copy) - LOG_OVERHEAD)
    _ATTRIBUTES.pack_into(copy, _ATTRIBUTES_POSITION, batch.attributes & ~CODEC_MASK | codec)
    _CRC.pack_into(copy, _CRC_POSITION, crc32c(memoryview(copy)[_ATTRIBUTES_POSITION:]))
    return copy


def set_append_time(data: memoryview, timestamp: int) -> None:
    """Make the batch that ``data`` (writable) is bear the log's append time, in ms: every record then reads back with it."""
    (attributes,) = _ATTRIBUTES.unpack_from(data, _ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(data, _ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME_BIT)
    _TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_POSITION, timestamp)
    _CRC.pack_into(data, _CRC_POSITION, crc32c(data[_ATTRIBUTES_POSITION:]))


def set_max_timestamp(data: memoryview, timestamp: int) -> None:
    """Make the header of the batch that ``data`` (writable) is say that ``timestamp``, in ms, is the greatest of its records; the checksum
    is new."""
    _TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_POSITION, timestamp)
    _CRC.pack_into(data, _CRC_POSITION, crc32c(data[_ATTRIBUTES_POSITION:]))


def set_producer(data: memoryview, producer_id: int, epoch: int, base_sequence: int) -> None:
    """Make the batch that ``data`` (writable) is one of this producer; the checksum is new. REQUIRES numbers that are not negative."""
    _PRODUCER.pack_into(data, _PRODUCER_POSITION, producer_id, epoch, base_sequence)
    _CRC.pack_into(data, _CRC_POSITION, crc32c(data[_ATTRIBUTES_POSITION:]))
