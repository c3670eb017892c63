"""Encode and decode record batches.

The compiled core knows the layout of a batch. This layer adds compression, the checks that a leader
makes, and the partition of a key. ``Record``, ``RecordBatch``, ``BatchBuilder`` and ``Ack`` come
from the core and are exported from here.
"""

from __future__ import annotations

from pyreplog._core import (
    HEADER_SIZE,
    Ack,
    BatchBuilder,
    Gathering,
    Record,
    RecordBatch,
    RowEncoder,
    chained_frame,
    crc32c,
    delivered,
    find_too_large,
    murmur2,
    stamp,
    xxh64,
)
from pyreplog.record.batch import (
    RECORDS_SIZE_MAX,
    end_of,
    payload_of,
    recompress,
    record_lists_of,
    records_of,
    set_append_time,
    split,
    validate_from_client,
)
from pyreplog.record.compression import CODEC_NAMES, CODEC_NUMBERS, compress, decompress
from pyreplog.record.control import ABORT, COMMIT, LEADER_CHANGE, ControlRecord, control_records, end_marker
from pyreplog.record.header import (
    DELTA_POSITION,
    LENGTH_POSITION,
    MAGIC,
    MAGIC_POSITION,
    OFFSET_AND_LENGTH,
    SEQUENCE_FIELDS,
    SIZE_UP_TO_DELTA,
    SIZE_UP_TO_MAGIC,
    base_offset_of,
    extent_of,
    set_max_timestamp,
    set_producer,
    size_of,
)
from pyreplog.record.legacy import LegacyMessage, convert_legacy, legacy_batches, shallow_messages
from pyreplog.record.partitioner import partition_for_key
from pyreplog.record.unpacking import Part, parts_of

__all__ = [
    "ABORT",
    "CODEC_NAMES",
    "CODEC_NUMBERS",
    "COMMIT",
    "DELTA_POSITION",
    "HEADER_SIZE",
    "LEADER_CHANGE",
    "LENGTH_POSITION",
    "MAGIC",
    "MAGIC_POSITION",
    "OFFSET_AND_LENGTH",
    "RECORDS_SIZE_MAX",
    "SEQUENCE_FIELDS",
    "SIZE_UP_TO_DELTA",
    "SIZE_UP_TO_MAGIC",
    "Ack",
    "BatchBuilder",
    "ControlRecord",
    "Gathering",
    "LegacyMessage",
    "Part",
    "Record",
    "RecordBatch",
    "RowEncoder",
    "base_offset_of",
    "compress",
    "control_records",
    "convert_legacy",
    "chained_frame",
    "crc32c",
    "delivered",
    "decompress",
    "end_marker",
    "end_of",
    "extent_of",
    "legacy_batches",
    "find_too_large",
    "murmur2",
    "partition_for_key",
    "payload_of",
    "parts_of",
    "recompress",
    "record_lists_of",
    "records_of",
    "set_append_time",
    "set_max_timestamp",
    "set_producer",
    "shallow_messages",
    "size_of",
    "split",
    "stamp",
    "validate_from_client",
    "xxh64",
]
