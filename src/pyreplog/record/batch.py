"""Read, split, rewrite and validate record batches.

No function here loops over records: such loops are in the core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pyreplog._core import HEADER_SIZE, Record, RecordBatch, SegmentScanner
from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import (
    BatchTooLargeError,
    CorruptError,
    InvalidRequestError,
    InvalidTimestampError,
    MessageTooLargeError,
)
from pyreplog.ports import Buffer
from pyreplog.record.compression import CODEC_NAMES, SIZE_MAX, compress, decompress
from pyreplog.record.header import set_attributes, set_checksum, set_length, set_max_timestamp
from pyreplog.record.unpacking import parts_of

RECORDS_SIZE_MAX: Final = SIZE_MAX

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08


def payload_of(batch: RecordBatch) -> Buffer | None:
    """Return the ``payload`` argument for methods of :class:`RecordBatch`.

    It is None if the batch has no codec, else its decompressed records. Use it for a batch that a
    writer accepts: it raises :class:`MessageTooLargeError` if the records have more than
    ``RECORDS_SIZE_MAX`` bytes. Readers decompress a batch in parts: see
    :func:`pyreplog.record.unpacking.parts_of`.
    """
    if batch.codec == 0:
        return None
    try:
        return decompress(batch)
    except BatchTooLargeError:
        raise MessageTooLargeError(
            f"the records of a compressed batch have more than {RECORDS_SIZE_MAX} bytes uncompressed: append less at a"
            " time"
        ) from None


def records_of(
    batch: RecordBatch, topic: str = "", partition: int = -1, start: int = 0, end: int = 0x7FFFFFFFFFFFFFFF
) -> list[Record]:
    """Return the records with ``start`` <= offset < ``end``.

    A control batch gives none, because its records are not for readers.
    """
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
    """Return the records of :func:`records_of` as non-empty lists.

    There is one list, or one for each part of a batch that is large when decompressed. Raises
    :class:`BatchTooLargeError` for a batch that decompresses to more than ``size_max`` bytes.
    """
    if batch.is_control or batch.record_count == 0:
        return ()
    if batch.codec:
        return _unpacked_lists(batch, topic, partition, start, end, size_max)
    found = batch.records(None, topic=topic, partition=partition, start_offset=start, end_offset=end)
    return (found,) if found else ()


def _unpacked_lists(
    batch: RecordBatch, topic: str, partition: int, start: int, end: int, size_max: int
) -> Iterator[list[Record]]:
    for payload, count, last_offset in parts_of(batch, size_max, partition=f"{topic}-{partition}" if topic else None):
        if last_offset >= start:
            found = batch.records(
                payload, topic=topic, partition=partition, start_offset=start, end_offset=end, record_count=count
            )
            if found:
                yield found
        if last_offset >= end - 1:
            return


def split(data: Buffer) -> list[RecordBatch]:
    """Return the batches of ``data``, which must hold whole batches only.

    Each batch keeps ``data`` alive. Raises :class:`CorruptError` for other bytes.
    """
    size = memoryview(data).nbytes
    batches: list[RecordBatch] = []
    position = 0
    while position < size:
        batch = RecordBatch(data, position)
        batches.append(batch)
        position += batch.size
    return batches


def end_of(data: Buffer) -> int:
    """Return the offset after the whole batches in ``data``; it reads each header.

    REQUIRES at least one batch.
    """
    view = memoryview(data)
    scan = SegmentScanner(RecordBatch(view).base_offset, index_interval=view.nbytes, check_crc=False)
    scan.feed(view)
    return scan.next_offset


def validate_from_client(batch: RecordBatch) -> int:
    """Validate a client's batch: checksum, codec, dense offsets from 0, well-formed data records.

    Return the greatest timestamp of its records, -1 if none has one; the header may claim another
    value. Raises :class:`CorruptError` for bad bytes, and :class:`InvalidRequestError` or
    :class:`InvalidTimestampError` for a well-formed batch that is not allowed.
    """
    batch.check_crc()
    if batch.codec >= len(CODEC_NAMES):
        raise CorruptError(f"unknown compression codec {batch.codec}")
    if batch.is_control:
        raise InvalidRequestError("control batches are written by the broker only")
    if batch.is_transactional:
        raise InvalidRequestError("transactions are not supported")
    if batch.attributes & LOG_APPEND_TIME_BIT:
        raise InvalidTimestampError("the batch has a log append time, which only the leader may set")
    if batch.base_offset != 0:
        raise InvalidRequestError(f"the batch has base offset {batch.base_offset}, a client's must have 0")
    if batch.record_count <= 0:
        raise InvalidRequestError("the batch has no records")
    if batch.producer_id != -1 and (batch.producer_epoch < 0 or batch.base_sequence < 0):
        raise InvalidRequestError("the batch has a producer id but no producer epoch or sequence")
    is_dense, max_timestamp = batch.examine(payload_of(batch))
    if not is_dense:
        raise InvalidRequestError("record offsets in the batch are not 0, 1, 2, ...")
    return max_timestamp


def recompress(batch: RecordBatch, codec: int) -> bytearray:
    """Return a copy of ``batch`` whose records are stored with ``codec`` (0 to 4).

    Its length, attributes and checksum are updated; all other fields stay.
    """
    records = payload_of(batch)
    if records is None:
        records = batch.payload
    stored: Buffer = records if codec == 0 else compress(codec, records)
    copy = bytearray(batch.data[:HEADER_SIZE])
    copy += stored
    set_length(copy)
    set_attributes(copy, CODEC_MASK, codec)
    set_checksum(copy)
    return copy


def set_append_time(data: memoryview, timestamp: int) -> None:
    """Set the log's append time, in ms, in the batch ``data`` (writable).

    Every record of the batch then has this timestamp when it is read. The checksum is updated.
    """
    set_attributes(data, 0, LOG_APPEND_TIME_BIT)
    set_max_timestamp(data, timestamp)
