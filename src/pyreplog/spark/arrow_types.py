"""Arrow batches of :mod:`pyreplog.arrow` in the types that Spark takes: it compares schemas exactly, and knows only
microseconds.

Keys, values and offsets are not copied. Columns that Spark wants in another type (topic, microseconds, 32-bit
types) are built new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from pyreplog.errors import ConfigError
from pyreplog.spark.planner import OffsetRange
from pyreplog.spark.schema import Column

__all__ = ["Converter", "spark_schema"]

TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
"""The last millisecond that Spark's timestamps (microseconds in 64 bits) can say."""

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_TYPES: Final = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<struct<key:string,value:binary>>": pa.list_(pa.field("element", _HEADER)),
}


def spark_schema(columns: Sequence[Column], nullable: Sequence[bool]) -> pa.Schema:
    """The schema that Spark compares with: plain types, in order, nullable as its own schema says."""
    return pa.schema(
        [pa.field(column.name, _TYPES[column.type], null) for column, null in zip(columns, nullable, strict=True)]
    )


class Converter:
    """Turns batches of one projection into Spark's. Belongs to one task."""

    def __init__(self, columns: Sequence[Column], nullable: Sequence[bool]) -> None:
        """``nullable`` is what Spark's schema says of each column."""
        self._wanted = tuple(columns)
        self._schema = spark_schema(columns, nullable)
        read = [column.source for column in columns if column.source not in ("topic", "log")]
        if "timestamp" in read and "offset" not in read:
            read.append("offset")  # to name it should the timestamp not fit
        self.columns = read or ["offset"]
        self._texts: dict[str, pa.Array] = {}

    def convert(self, batch: pa.RecordBatch, where: OffsetRange) -> pa.RecordBatch:
        """The same rows as Spark wants them. :class:`ConfigError` names the offset of a timestamp that Spark cannot
        say."""
        arrays = []
        for column in self._wanted:
            if column.source == "topic":
                arrays.append(self._repeated(where.topic, batch.num_rows))
            elif column.source == "log":
                arrays.append(self._repeated(where.log, batch.num_rows))
            elif column.source == "timestamp":
                arrays.append(_microseconds(batch, where))
            elif column.source == "timestamp_type":
                arrays.append(batch.column("timestamp_type").cast(pa.int32()))
            elif column.source == "headers":
                arrays.append(_headers(batch.column("headers")))
            else:
                arrays.append(batch.column(column.source))
        # Of no columns there is nothing that would say how many rows there are.
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema) if arrays else batch.select([])

    def _repeated(self, text: str, count: int) -> pa.Array:
        made = self._texts.get(text)
        if made is None or len(made) < count:
            made = self._texts[text] = pa.repeat(pa.scalar(text, pa.string()), count)
        return made.slice(0, count)


def _microseconds(batch: pa.RecordBatch, where: OffsetRange) -> pa.Array:
    """The timestamps in microseconds; Arrow checks the range."""
    timestamps = batch.column("timestamp")
    try:
        return timestamps.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        import pyarrow.compute as pc  # noqa: PLC0415  (slow to load, and every process that plans a query would)

        plain = timestamps.cast(pa.int64())
        beyond: Any = pc.or_(pc.greater(plain, TIMESTAMP_MS_MAX), pc.less(plain, -TIMESTAMP_MS_MAX))
        row = pc.index(beyond, True).as_py()
        offset, timestamp = batch.column("offset")[row].as_py(), plain[row].as_py()
        raise ConfigError(
            f"the record at offset {offset} of {where.place} has timestamp {timestamp} ms, which is beyond what Spark's"
            " timestamps can say: read other offsets, or leave the column out by .schema(...)"
        ) from None


def _headers(headers: pa.ListArray) -> pa.Array:
    """Null if a record has none, as in Spark's Kafka source; the names of fields and the nullability are
    Spark's."""
    import pyarrow.compute as pc  # noqa: PLC0415  (as above)

    items = headers.values
    struct = pa.StructArray.from_arrays([items.field(0), items.field(1)], fields=list(_HEADER))
    none = pc.equal(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(
        headers.offsets, struct, type=_TYPES["array<struct<key:string,value:binary>>"], mask=none
    )
