"""``append_arrow``: tables of any maker and layout become records, the same that appending them one by one would
make."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pyreplog
from pyreplog.testing import SimDisk

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))


@pytest.fixture
def log() -> Iterator[pyreplog.Log]:
    """A log in memory."""
    with pyreplog.open_log("/log", disk=SimDisk(), durability="os") as log:
        yield log


def rows(log: pyreplog.Log) -> list[tuple[Any, ...]]:
    """What is in it: (key, value, timestamp, headers)."""
    return [(record.key, record.value, record.timestamp, tuple(record.headers)) for record in log.read()]


ROW = st.tuples(
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=40),
    st.none() | st.integers(0, 2**41),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
)


def table(found: list[Any]) -> pa.Table:
    """Rows as a table with the columns of a scan."""
    keys, values, stamps, headers = zip(*found, strict=True) if found else ((), (), (), ())
    pairs = [[{"key": key, "value": value} for key, value in row] for row in headers]
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(stamps, pa.timestamp("ms", "UTC")),
            "headers": pa.array(pairs, HEADERS),
        }
    )


def remade(given: Any, kind: pa.DataType) -> Any:
    """``given`` with the same headers in a column of another type, made value by value: pyarrow casts to few of
    them."""
    return given.set_column(3, "headers", pa.chunked_array([pa.array(given["headers"].to_pylist(), kind)], kind))


CASTS: dict[str, Callable[[Any], Any]] = {
    "binary": lambda given: given,
    "large": lambda given: given.cast(
        pa.schema(
            [
                ("key", pa.large_binary()),
                ("value", pa.large_binary()),
                ("timestamp", pa.timestamp("ms", "+02:00")),
                ("headers", pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))),
            ]
        )
    ),
    "views": lambda given: given.set_column(0, "key", given["key"].cast(pa.binary_view())).set_column(
        1, "value", given["value"].cast(pa.binary_view())
    ),
    "list views": lambda given: remade(given, pa.list_view(HEADERS.value_type)),
    "large list views": lambda given: remade(given, pa.large_list_view(HEADERS.value_type)),
    "value before key": lambda given: remade(
        given, pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())]))
    ),
    "polars": lambda given: pl.DataFrame(given),
    "nanoseconds": lambda given: given.set_column(2, "timestamp", given["timestamp"].cast(pa.timestamp("ns", "UTC"))),
    "chunks": lambda given: pa.Table.from_batches(
        [given.to_batches(max_chunksize=3)[i] for i in range(-(-given.num_rows // 3))], given.schema
    ),
    "slice": lambda given: pa.concat_tables([given.slice(0, 1), given]).combine_chunks().slice(min(1, given.num_rows)),
}


@pytest.mark.parametrize("cast", list(CASTS))
@given(found=st.lists(ROW, max_size=12))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_layout_gives_the_same_records(cast: str, found: list[Any]) -> None:
    """Offsets of 32 and 64 bits, views, slices, chunks, units: the rows come back as they were, nulls as nulls,
    empty as empty."""
    with pyreplog.open_log("/log", disk=SimDisk(), durability="os") as log:
        assert log.append_arrow(CASTS[cast](table(found))) == range(len(found))
        assert rows(log) == [
            (key, value, -1 if stamp is None else stamp, tuple(headers)) for key, value, stamp, headers in found
        ]


def test_a_sliced_struct_array_gives_the_rows_of_the_slice(log: pyreplog.Log) -> None:
    """Its children are not sliced with it: every column begins at the struct's offset, and so do the names and
    values of headers."""
    found: list[Any] = [
        (b"k%d" % i, None if i % 3 == 2 else b"v%d" % i, 1000 + i, [(f"h{i}", None if i % 2 else b"%d" % i)] * (i % 3))
        for i in range(20)
    ]
    (whole,) = table(found).to_struct_array().chunks
    assert log.append_arrow(whole.slice(7, 9)) == range(9)
    assert rows(log) == [(key, value, stamp, tuple(headers)) for key, value, stamp, headers in found[7:16]]
    # The structs of a list may themselves be a slice: the null before it is none of theirs.
    pairs = pa.StructArray.from_arrays(
        [pa.array(["a", "b", "c", "d"]), pa.array([b"1", None, b"3", b"4"], pa.binary())],
        fields=list(HEADERS.value_type),
        mask=pa.array([True, False, False, False]),
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), pairs.slice(1))
    log.append_arrow(pa.table({"value": [b"x", b"y"], "headers": lists}))
    assert [tuple(record.headers) for record in log.read(start=9)] == [(("b", None), ("c", b"3")), (("d", b"4"),)]


@given(found=st.lists(ROW, min_size=1, max_size=12))
@settings(max_examples=20, deadline=None)
def test_scan_append_scan(found: list[Any]) -> None:
    """What one log's scan gives, appended to another log, is what that one's scan gives, to the last null."""
    with (
        pyreplog.open_log("/a", disk=SimDisk(), durability="os") as a,
        pyreplog.open_log("/b", disk=SimDisk(), durability="os") as b,
    ):
        for key, value, stamp, headers in found:
            a.append(value, key=key, timestamp=-1 if stamp is None else stamp, headers=headers)
        b.append_arrow(a.scan())
        assert pa.table(b.scan()).equals(pa.table(a.scan()))


@given(found=st.lists(ROW, min_size=1, max_size=12))
@settings(max_examples=20, deadline=None)
def test_the_same_bytes_as_append_many(found: list[Any]) -> None:
    """The batch that a table becomes is byte for byte that of ``append_many``."""
    given = table(found)
    with (
        pyreplog.open_log("/a", disk=(first := SimDisk()), topic="t") as a,
        pyreplog.open_log("/b", disk=(second := SimDisk()), topic="t") as b,
    ):
        a.append_arrow(given)
        keys, values, stamps, headers = zip(*found, strict=True)
        b.append_many(
            values, keys=keys, timestamps=[-1 if stamp is None else stamp for stamp in stamps], headers=headers
        )
        name = "t-0/00000000000000000000.log"
        size = a.stats().size
        assert b.stats().size == size
        assert bytes(first.open(f"/a/{name}").read_at(0, size)) == bytes(second.open(f"/b/{name}").read_at(0, size))


def test_other_makers(log: pyreplog.Log) -> None:
    """pandas, DuckDB, Polars' frames and lazy results, a record batch and a stream: whatever speaks Arrow's
    interface."""
    log.append_arrow(pa.record_batch({"value": [b"batch"]}))
    log.append_arrow(
        pa.RecordBatchReader.from_batches(
            pa.schema([("value", pa.string())]), iter([pa.record_batch({"value": ["stream"]})])
        )
    )
    log.append_arrow(pl.DataFrame({"value": ["polars", None]}))
    relation = duckdb.query("select 'duckdb' as value, 'k' as key")
    assert relation is not None
    log.append_arrow(relation.arrow())
    log.append_arrow(pa.Table.from_pandas(pd.DataFrame({"value": ["pandas"]})))
    assert [record.value for record in log.read()] == [b"batch", b"stream", b"polars", None, b"duckdb", b"pandas"]


def test_other_types(log: pyreplog.Log) -> None:
    """Text is its UTF-8; a column of nulls, fixed-size bytes, a map of headers and whole milliseconds are taken
    too."""
    log.append_arrow(
        pa.table(
            {
                "value": pa.array([b"ab", b"cd"], pa.binary(2)),
                "key": pa.nulls(2),
                "headers": pa.array([[("h", b"1")], None], pa.map_(pa.string(), pa.binary())),
                "timestamp": pa.array([5, -1], pa.int64()),
            }
        )
    )
    nothing = pa.nulls(1)  # as Polars and pandas make of None alone
    log.append_arrow(pa.table({"value": nothing, "key": nothing, "headers": nothing, "timestamp": nothing}))
    assert rows(log) == [(None, b"ab", 5, (("h", b"1"),)), (None, b"cd", -1, ()), (None, None, -1, ())]


def test_headers_of_a_fixed_number(log: pyreplog.Log) -> None:
    """Lists of a fixed size, a slice of them among others; a null list has no headers."""
    kind = pa.list_(HEADERS.value_type, 2)
    pairs: list[Any] = [
        None if i == 3 else [{"key": f"k{i}", "value": b"v"}, {"key": "n", "value": None}] for i in range(6)
    ]
    given = pa.table({"value": [b"%d" % i for i in range(6)], "headers": pa.array(pairs, kind)})
    log.append_arrow(given.slice(2))
    found = [() if pair is None else tuple((one["key"], one["value"]) for one in pair) for pair in pairs[2:]]
    assert [tuple(record.headers) for record in log.read()] == found


@pytest.mark.parametrize("kind", ["null", "int32", "string"])
def test_lists_that_are_all_empty_are_no_headers(log: pyreplog.Log, kind: str) -> None:
    """Of such a column a frame does not know the type: pandas and Polars say null, DuckDB int32. With one item it
    counts again."""
    items = pa.type_for_alias(kind)
    for made in (pa.list_(items), pa.large_list(items), pa.list_view(items), pa.list_(items, 0)):
        log.append_arrow(pa.table({"value": [b"a", b"b", b"c"], "headers": pa.array([[], None, []], made)}))
    assert [tuple(record.headers) for record in log.read()] == [()] * 12
    with pytest.raises(
        TypeError, match="column headers is of type list; it must be a list of structs of key and value"
    ):
        log.append_arrow(pa.table({"value": [b"a", b"b"], "headers": pa.array([[], [None]], pa.list_(items))}))


def test_frames_without_headers(log: pyreplog.Log) -> None:
    """As pandas, Polars and DuckDB make them, so that a scan may pass through any of them."""
    log.append(b"scanned")
    for frame in (
        pd.DataFrame.from_arrow(log.scan()),
        pl.DataFrame({"value": ["polars"], "headers": [[]]}),
        duckdb.sql("SELECT 'duckdb' AS value, [] AS headers"),
    ):
        log.append_arrow(frame)
    assert [(record.value, tuple(record.headers)) for record in log.read()] == [
        (value, ()) for value in (b"scanned", b"scanned", b"polars", b"duckdb")
    ]


def test_a_frame_of_spark(log: pyreplog.Log) -> None:
    """The columns that Spark's source has besides are left out, as the others that the log gives."""
    row: dict[str, Any] = {
        "value": [b"v"],
        "topic": ["t"],
        "partition": [7],
        "offset": [5],
        "timestampType": [0],
        "leaderEpoch": [3],
    }
    log.append_arrow(pa.table(row))
    assert [(record.value, record.offset) for record in log.read()] == [(b"v", 0)]


def test_time(log: pyreplog.Log) -> None:
    """Without the column records get the time of the call; seconds to nanoseconds are cut to whole ms."""
    at = datetime(2024, 6, 1, 12, 0, 0, 123_987, tzinfo=UTC)
    for unit in ("s", "ms", "us", "ns"):
        log.append_arrow(
            pa.table(
                {
                    "value": [b"x"],
                    "timestamp": pa.array([at.replace(microsecond=0) if unit == "s" else at]).cast(
                        pa.timestamp(unit, "UTC"), safe=False
                    ),
                }
            )
        )
    ms = int(at.timestamp()) * 1000
    assert [record.timestamp for record in log.read()] == [ms, ms + 123, ms + 123, ms + 123]
    before = datetime.now(UTC) - timedelta(seconds=1)
    log.append_arrow(pa.table({"value": [b"now"]}))
    (record,) = log.read(4)
    assert record.timestamp >= before.timestamp() * 1000


def test_several_batches() -> None:
    """A table above max.message.bytes is several batches in order, whatever its chunks; the range covers all."""
    with pyreplog.open_log("/small", disk=SimDisk(), durability="os", config={"max.message.bytes": 1000}) as small:
        values = [bytes([number % 251]) * (number % 300) for number in range(500)]
        chunks = pa.chunked_array([values[:1], values[1:7], [], values[7:]], pa.binary())
        assert small.append_arrow(pa.table({"value": chunks})) == range(500)
        assert [record.value for record in small.read()] == values
        assert small.stats().batches_appended > 50
        acks = small.append_arrow(pa.table({"value": chunks, "timestamp": pa.chunked_array([range(500)])}), wait=False)
        assert [(place.offset, place.timestamp) for place in acks.result()] == [
            (500 + number, number) for number in range(500)
        ]
        assert [record.value for record in small.read(500)] == values


REFUSED: list[tuple[Any, type[Exception], str]] = [
    ([b"a"], TypeError, "list is no Arrow data"),
    (pa.array([b"x"]), TypeError, "named columns"),
    (pa.table({"key": [b"x"]}), pyreplog.ConfigError, "no column 'value'"),
    (pa.table({"value": [b"x"], "keys": [b"x"]}), pyreplog.ConfigError, "did you mean 'key'"),
    (
        pd.DataFrame({"value": ["x", "y"]}, index=[7, 3]),
        pyreplog.ConfigError,
        r"the frame's index .*\.reset_index\(drop=True\)",
    ),
    (pa.Table.from_arrays([pa.array([b"x"])] * 2, ["value", "value"]), pyreplog.ConfigError, "twice"),
    (pa.table({"value": [1]}), TypeError, "column value is of type int64; it must be binary or string"),
    (pa.table({"value": [[1]]}), TypeError, "column value is of type list; it must be binary or string"),
    (
        pa.table({"value": pa.array(["x"]).dictionary_encode()}),
        TypeError,
        "column value is of type dictionary of string; it must be",
    ),
    (pl.DataFrame({"value": [bytearray(b"x")]}), TypeError, "column value holds Python objects"),
    (pl.DataFrame({"value": [b"x"], "key": [memoryview(b"k")]}), TypeError, "column key holds Python objects"),
    (type("Frame", (pl.DataFrame,), {})({"value": [bytearray(b"x")]}), TypeError, "column value holds Python objects"),
    (
        pa.table({"value": ["x"], "timestamp": pa.array([1], pa.duration("s"))}),
        TypeError,
        "column timestamp is of type duration; it",
    ),
    (pa.table({"value": pa.array(["x"]).dictionary_encode()}), TypeError, "not a dictionary"),
    (pa.table({"value": [b"x"], "timestamp": ["now"]}), TypeError, "it must be a timestamp"),
    (pa.table({"value": [b"x"], "headers": [b"x"]}), TypeError, "list of structs"),
    (pa.table({"value": [b"x"], "headers": [[{"a": "x", "b": b"y"}]]}), TypeError, "list of structs"),
    (
        pa.table({"value": [b"x"], "headers": [[{"key": 1, "value": b"y"}]]}),
        TypeError,
        "a header's key is of type int64; it must be binary",
    ),
    (
        duckdb.sql("SELECT 'x' AS value, MAP {'retries': 3} AS headers"),
        TypeError,
        "a header's value is of type int32; it must be binary",
    ),
    (pa.table({"value": [b"x", b"y"], "timestamp": pa.array([1, -2])}), ValueError, "row 1: the timestamp"),
    *(
        (
            pa.table({"value": [b"x"], "timestamp": pa.array([-1], pa.timestamp(unit, "UTC"))}),
            ValueError,
            "row 0: the timestamp",
        )
        for unit in ("s", "ms", "us", "ns")
    ),
    (
        pa.table({"value": [b"x"], "timestamp": pa.array([2**62], pa.timestamp("s", "UTC"))}),
        ValueError,
        "row 0: timestamp 4611686018427387904000 is beyond 9999",
    ),
    *(
        (
            pa.table({"value": [b"x"], "timestamp": pa.array([1], pa.timestamp(unit))}),
            pyreplog.ConfigError,
            "no time zone.*assume_timezone",
        )
        for unit in ("s", "ms", "us", "ns")
    ),
    (
        pl.DataFrame({"value": [b"x"], "timestamp": [datetime(2024, 6, 1)]}),
        pyreplog.ConfigError,
        "no time zone.*replace_time_zone",
    ),
    (
        pa.table({"value": [b"x"], "headers": [[{"key": None, "value": b"y"}]]}),
        ValueError,
        "row 0: a header has no key",
    ),
    (pa.table({"value": [b"x"], "headers": [[{"key": b"\xff", "value": b"y"}]]}), ValueError, "not UTF-8"),
    (pa.table({"value": [b"x", bytes(2 << 20)]}), pyreplog.MessageTooLargeError, "record 1 does not fit"),
]


@pytest.mark.parametrize(("given_table", "error", "text"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_what_is_refused_leaves_nothing_behind(
    log: pyreplog.Log, given_table: Any, error: type[Exception], text: str
) -> None:
    """The error says which column or row, and not one row of the table is appended."""
    for wait in (True, False):
        with pytest.raises(error, match=text):
            log.append_arrow(given_table, wait=wait)
    assert log.end_offset == 0


def test_arrays_as_lists(log: pyreplog.Log, tmp_path: Path) -> None:
    """An Arrow array where a list is asked for: its nulls are None, as a record's value and as its key."""
    values, keys = pa.array([b"a", None, b"b"]), pa.array([None, b"k", None], pa.binary())
    log.append_many(values, keys=keys)
    assert [(record.value, record.key) for record in log.read()] == [(b"a", None), (None, b"k"), (b"b", None)]
    with pyreplog.Cluster(tmp_path / "cluster") as cluster, cluster.producer() as producer:
        cluster.admin.create_topic("t", partitions=3, config={"durability": "os"})
        producer.send_many("t", values, keys=keys).result()
        producer.send("t", values[1], key=keys[0]).result()
        with cluster.consumer("t") as consumer:
            found = [(record.value, record.key) for record in consumer.until_end()]
    assert sorted(found, key=repr) == sorted([(b"a", None), (None, b"k"), (b"b", None), (None, None)], key=repr)


def test_a_failing_stream(log: pyreplog.Log) -> None:
    """The error of a source that fails half-way comes out, and nothing was appended."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": [b"x"]})
        raise RuntimeError("no more")

    with pytest.raises(ValueError, match="no more"):
        log.append_arrow(pa.RecordBatchReader.from_batches(pa.schema([("value", pa.binary())]), batches()))
    assert log.end_offset == 0


def test_an_empty_table(log: pyreplog.Log) -> None:
    """No rows are no records."""
    assert log.append_arrow(pa.table({"value": pa.array([], pa.binary())})) == range(0)
    assert len(log.append_arrow(pa.table({"value": pa.array([], pa.binary())}), wait=False)) == 0


def test_a_log_appended_to_itself(log: pyreplog.Log) -> None:
    """The scan of a log may be appended to the same log: it is read to its end first."""
    log.append_many([b"a", b"b"])
    assert log.append_arrow(log.scan()) == range(2, 4)
    assert [record.value for record in log.read()] == [b"a", b"b", b"a", b"b"]


def test_memory_is_given_back() -> None:
    """Arrays are released when the rows were appended."""
    before = pa.total_allocated_bytes()
    with pyreplog.open_log("/log", disk=SimDisk(), durability="os") as log:
        for _ in range(3):
            log.append_arrow(pa.table({"value": pa.array([bytes(1000)] * 1000)}))
    assert pa.total_allocated_bytes() == before


def test_no_pyarrow_is_imported(tmp_path: Path) -> None:
    """Appending a log's own scan to another needs no Arrow package."""
    code = """
import sys, pyreplog
with pyreplog.open_log(sys.argv[1] + "/a") as a, pyreplog.open_log(sys.argv[1] + "/b") as b:
    a.append_many([b"x", b"y"])
    b.append_arrow(a.scan())
    assert [record.value for record in b.read()] == [b"x", b"y"]
assert not {"pyarrow", "polars", "pandas", "numpy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
