"""The rows of an Arrow table as the fields of records, for a producer that spreads them over partitions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyreplog.arrow import ArrowRows
from pyreplog.errors import MessageTooLargeError
from pyreplog.ports import Buffer, Headers
from pyreplog.record import RecordBatch

__all__ = ["fields_of"]

Fields = tuple[
    Sequence[Buffer | None], Sequence[Buffer | None] | None, Sequence[Headers] | None, Sequence[int | datetime] | None
]


def fields_of(rows: ArrowRows, size_max: int, topic: str) -> Fields:
    """Return the values, keys, headers and timestamps of ``rows``; None for a missing column.

    The rows are encoded and decoded by the core, which costs less than asking an Arrow library for each value. Raises
    MessageTooLargeError for a row that does not fit a batch of ``size_max`` bytes, ConfigError for one that no record
    can hold.
    """
    row = rows.check(size_max)
    if row < rows.row_count:
        raise MessageTooLargeError(
            f"row {row} of {rows.row_count} for {topic} does not fit a batch of {size_max} bytes; nothing was sent"
        )
    values: list[Buffer | None] = []
    keys: list[Buffer | None] | None = [] if "key" in rows.names else None
    headers: list[Headers] | None = [] if "headers" in rows.names else None
    timestamps: list[int | datetime] | None = [] if "timestamp" in rows.names else None
    memory = bytearray(size_max)
    row = 0
    while row < rows.row_count:
        row, size = rows.encode(row, -1, memory)
        records = RecordBatch(bytes(memoryview(memory)[:size])).records()
        values += [record.value for record in records]
        if keys is not None:
            keys += [record.key for record in records]
        if headers is not None:
            headers += [record.headers for record in records]
        if timestamps is not None:
            timestamps += [record.timestamp for record in records]
    return values, keys, headers, timestamps
