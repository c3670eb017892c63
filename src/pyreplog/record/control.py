"""Control records, which Kafka's brokers write into a log for themselves.

They are only read here, and never reach readers of records. Layout: that of Kafka's
``ControlRecordType`` and ``EndTransactionMarker``. A control batch that compaction has emptied has
no record.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pyreplog._core import RecordBatch
from pyreplog.errors import CorruptError
from pyreplog.record.batch import payload_of

# Types of control records. On disk: never change.
ABORT: Final = 0
COMMIT: Final = 1
LEADER_CHANGE: Final = 2
CONTROL_NAMES: Final = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)
UNKNOWN: Final = "UNKNOWN"
"""The name of a type that newer software wrote; ignore such records."""

_KEY: Final = struct.Struct(">hh")
_MARKER: Final = struct.Struct(">hi")


class ControlRecord(NamedTuple):
    """One control record.

    ``timestamp`` is in ms. ``coordinator_epoch`` is -1 unless the record ends a transaction.
    :mod:`pyreplog.wire.control_records` takes ``key`` and ``value`` apart.
    """

    type: int
    offset: int
    timestamp: int
    coordinator_epoch: int
    key: bytes = b""
    value: bytes | None = None

    @property
    def name(self) -> str:
        """``ABORT``, ``COMMIT``, ..., or ``UNKNOWN``."""
        return CONTROL_NAMES[self.type] if 0 <= self.type < len(CONTROL_NAMES) else UNKNOWN

    @property
    def ends_transaction(self) -> bool:
        """Whether the record commits or aborts the transaction of its batch's producer."""
        return self.type in (ABORT, COMMIT)


def control_records(batch: RecordBatch) -> list[ControlRecord]:
    """Return the records of a control batch.

    A newer version is read as version 0, because it starts with the fields of version 0. Raises
    :class:`CorruptError` if a record is too short or has a negative version.
    """
    found: list[ControlRecord] = []
    for record in batch.records(payload_of(batch)):
        key = record.key
        if key is None or len(key) < _KEY.size:
            raise CorruptError(f"the key of control record {record.offset} is too short")
        version, kind = _KEY.unpack_from(key)
        if version < 0:
            raise CorruptError(f"control record {record.offset} has version {version}")
        epoch = -1
        if kind in (ABORT, COMMIT):
            value = record.value
            if value is None or len(value) < _MARKER.size:
                raise CorruptError(f"the transaction marker {record.offset} is too short")
            marker_version, epoch = _MARKER.unpack_from(value)
            if marker_version < 0:
                raise CorruptError(f"the transaction marker {record.offset} has version {marker_version}")
        content = None if record.value is None else bytes(record.value)
        found.append(ControlRecord(kind, record.offset, record.timestamp, epoch, bytes(key), content))
    return found


def end_marker(batch: RecordBatch) -> ControlRecord | None:
    """Return the marker that ends the transaction of the batch's producer.

    Return None if the control batch has another type, or compaction has emptied it.
    """
    records = control_records(batch) if batch.record_count else []
    return records[0] if records and records[0].ends_transaction else None
