"""map_arrow: which types of Arrow Spark reads for a column of its schema. Without Spark's JVM."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as sql

from pyreplog.errors import ConfigError
from pyreplog.spark.arrow_map import _by_name, _columns

SCHEMA = sql.StructType(
    [
        sql.StructField("a", sql.LongType()),
        sql.StructField("b", sql.StringType()),
        sql.StructField("c", sql.TimestampType()),
        sql.StructField("d", sql.DecimalType(10, 2)),
        sql.StructField("e", sql.ArrayType(sql.StructType().add("x", sql.IntegerType()).add("y", sql.BinaryType()))),
        sql.StructField("f", sql.MapType(sql.StringType(), sql.IntegerType())),
    ]
)
PAIR = pa.struct([("x", pa.int32()), ("y", pa.binary())])


def batch(**changed: pa.DataType) -> Any:
    """Two rows of nulls, in the columns of the schema, some of which have another type."""
    types = {
        "a": pa.int64(),
        "b": pa.string(),
        "c": pa.timestamp("us", "UTC"),
        "d": pa.decimal128(10, 2),
        "e": pa.list_(PAIR),
        "f": pa.map_(pa.string(), pa.int32()),
    }
    return pa.record_batch({name: pa.nulls(2, kind) for name, kind in (types | changed).items()})


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"a": pa.null()},
        {"b": pa.large_string()},
        {"c": pa.timestamp("us")},
        {"c": pa.timestamp("us", "Europe/Berlin")},
        {"d": pa.decimal128(20, 2)},
        {"e": pa.list_(pa.field("other", pa.struct([("p", pa.int32()), ("q", pa.large_binary())])))},
    ],
    ids=str,
)
def test_what_spark_reads(changed: dict[str, Any]) -> None:
    """The type itself, one that lies otherwise in memory, and a column of nulls."""
    made = batch(**changed)
    assert _by_name(made, _columns(SCHEMA)) is made


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("a", pa.int32(), "column a as int32; the schema says bigint, which is int64"),
        ("a", pa.float64(), "column a as double; the schema says bigint"),
        ("b", pa.binary(), "column b as binary; the schema says string"),
        ("c", pa.timestamp("ns", "UTC"), r"column c as timestamp\[ns, tz=UTC\]; the schema says timestamp"),
        ("d", pa.float32(), r"column d as float; the schema says decimal\(10,2\)"),
        ("e", pa.list_(pa.int32()), "column e as list<item: int32>; the schema says array<struct<x:int,y:binary>>"),
        ("f", pa.map_(pa.string(), pa.int64()), "column f as map<string, int64>; the schema says map<string,int>"),
    ],
    ids=str,
)
def test_what_spark_does_not_read(name: str, given: pa.DataType, text: str) -> None:
    """The column and both types are named, where Spark would fail in the JVM."""
    with pytest.raises(ConfigError, match=text):
        _by_name(batch(**{name: given}), _columns(SCHEMA))
