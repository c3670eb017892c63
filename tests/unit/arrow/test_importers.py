"""pyarrow, Polars, DuckDB and pandas read the same stream, and none of them is needed to make it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyreplog._core import ArrowStream  # the stream itself is not public
from pyreplog.arrow import COLUMNS, TOPIC_COLUMNS, ArrowBatch, Scan
from pyreplog.errors import ClosedError
from tests.unit.arrow.memory import EPOCH, Event, MemorySource, Stored

COUNT = 40_000


@pytest.fixture(scope="module")
def scan() -> Scan:
    """Two partitions with nulls, headers and two codecs, of several Arrow batches each."""
    events = [
        Event(
            None if i % 7 == 0 else b"value-%d" % i,
            None if i % 3 == 0 else b"k%d" % (i % 5),
            (("trace", b"%d" % i), ("empty", None)) if i % 2 else (),
            -1 if i % 11 == 0 else 1_700_000_000_000 + i,
        )
        for i in range(COUNT)
    ]
    batches = [Stored(events[at : at + 1000], codec=4 if at % 3000 == 0 else 0) for at in range(0, COUNT, 1000)]
    source = MemorySource(batches)
    return Scan([(0, source), (1, source)], name="events", default_columns=TOPIC_COLUMNS)


@pytest.fixture(scope="module")
def truth(scan: Scan) -> pa.Table:
    """The scan as pyarrow reads it, with its counts checked against how it was made."""
    table = pa.table(scan)
    table.validate(full=True)
    assert table.num_rows == 2 * COUNT
    for name, every in (("value", 7), ("key", 3), ("timestamp", 11)):
        assert table.column(name).null_count == 2 * ((COUNT + every - 1) // every)
    assert pc.sum(pc.list_value_length(table.column("headers"))).as_py() == 2 * COUNT
    assert table.column("timestamp")[1].as_py() == EPOCH.fromtimestamp(1_700_000_000.001, EPOCH.tzinfo)
    return table


def test_polars_reads_it(scan: Scan, truth: pa.Table) -> None:
    """Polars gives the same rows."""
    frame = pl.DataFrame(scan)
    assert frame.schema["timestamp"] == pl.Datetime("ms", "UTC")
    assert frame.to_arrow().cast(truth.schema).equals(truth)
    assert frame.group_by("partition").len().sort("partition").rows() == [(0, COUNT), (1, COUNT)]


def test_duckdb_reads_it(scan: Scan, truth: pa.Table) -> None:
    """DuckDB reads it by its variable's name, as often as it likes, also with several threads."""
    events = scan
    connection = duckdb.connect()
    connection.execute("SET threads = 4")
    for _ in range(2):
        ((count, nulls, last, size, headers),) = connection.execute(
            "SELECT count(*), count(*) - count(value), epoch_ms(max(timestamp)), sum(octet_length(value)),"
            " sum(len(headers)) FROM events"
        ).fetchall()
        assert (count, nulls) == (2 * COUNT, truth.column("value").null_count)
        assert last == pc.max(truth.column("timestamp").cast(pa.int64())).as_py()
        assert size == pc.sum(pc.binary_length(truth.column("value"))).as_py()
        assert headers == 2 * COUNT
    assert events is scan


def test_pandas_reads_it(scan: Scan, truth: pa.Table) -> None:
    """pandas gives the same rows."""
    frame = pd.DataFrame.from_arrow(scan)
    assert list(frame["offset"]) == truth.column("offset").to_pylist()
    assert frame["value"].isna().sum() == truth.column("value").null_count
    assert frame["value"][1] == b"value-1"


def test_arrays_outlive_everything(scan: Scan) -> None:
    """What was imported stays right when the scan, the batches and the builder are gone, and memory is used
    again."""
    batches = scan.batches()
    first = pa.record_batch(next(batches))
    wanted = first.to_pylist()
    column, item = first.column("value"), first.column("headers").flatten()
    for _ in batches:
        pass
    del batches, first
    gc.collect()
    for _ in range(3):
        pa.table(scan)
    assert column.to_pylist() == [row["value"] for row in wanted]
    assert item.to_pylist() == [header for row in wanted for header in row["headers"]]


def test_large_memory_that_came_back_shows_nothing_of_before() -> None:
    """Of columns so large that their memory is used again: other rows, other nulls, other columns."""
    full = MemorySource([Stored([Event(b"%090d" % row, b"k", (("h", b"x"),), row) for row in range(9000)])] * 3)
    empty = MemorySource([Stored([Event(None)] * 9000)] * 3)
    held = []
    for source in (full, empty, full, empty):
        for names in (COLUMNS, ("offset", "value"), ("key", "headers")):
            table = pa.table(Scan([(0, source)], columns=names))
            table.validate(full=True)
            assert table.num_rows == 27000
            some = source is full
            for name, wanted in (("value", b"%090d" % 0), ("key", b"k"), ("timestamp", EPOCH)):
                if name in names:
                    column = table.column(name)
                    assert column.null_count == (0 if some else 27000)
                    assert column[0].as_py() == column[18000].as_py() == (wanted if some else None)
            if "headers" in names:
                assert len(table.column("headers").combine_chunks().values) == (27000 if some else 0)
            if "offset" in names:
                assert table.column("offset").to_pylist() == list(range(27000))
            held.append(table)
        if len(held) > 3:
            del held[:3]


def test_a_batch_can_be_imported_twice(scan: Scan) -> None:
    """Each export has its own share of the memory."""
    batch = next(scan.batches())
    one, two = pa.record_batch(batch), pa.record_batch(batch)
    del batch
    values = one.column("value").to_pylist()
    del one
    gc.collect()
    assert two.column("value").to_pylist() == values


def test_capsules_nobody_takes_are_freed(scan: Scan) -> None:
    """A schema, an array and a stream that no importer takes are released with their capsules."""
    for _ in range(100):
        scan.__arrow_c_schema__()
        scan.__arrow_c_stream__()
        batch = next(scan.batches())
        batch.__arrow_c_array__()
        batch.__arrow_c_schema__()


def test_children_moved_out_live_on() -> None:
    """An importer may take a column and drop the rest."""
    source = MemorySource([Stored([Event(b"v", headers=(("k", b"h"),))] * 10)])
    reader = pa.RecordBatchReader.from_stream(Scan([(0, source)]))
    headers = reader.read_next_batch().column("headers").flatten()
    reader.close()
    assert headers.to_pylist() == [{"key": "k", "value": b"h"}] * 10


def test_a_stream_is_handed_over_once(scan: Scan) -> None:
    """A second importer of the same pass is told to ask the scan again."""
    stream = ArrowStream(scan.columns, scan.batches())
    pa.RecordBatchReader.from_stream(stream)
    with pytest.raises(ClosedError, match="handed over already"):
        stream.__arrow_c_stream__()


class Wordless(Exception):
    """It has no text: asking for it is another error."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unsaid(str):
    """A name that cannot be told."""

    __slots__ = ()

    def encode(self, *_: object, **__: object) -> bytes:
        raise RuntimeError("no bytes")


@pytest.mark.parametrize(("named", "text"), [(True, "Wordless"), (False, "an error whose text could not be made")])
def test_an_error_without_a_text_is_not_the_end(scan: Scan, named: bool, text: str) -> None:
    """Rows that are missing are never passed over in silence, whatever becomes of the words; and a stream that
    failed stays so."""
    kind = type("Meta", (type,), {"__name__": "Wordless" if named else Unsaid("Wordless")})("Wordless", (Wordless,), {})

    def source() -> Iterator[ArrowBatch]:
        yield next(scan.batches())
        raise kind

    reader = pa.RecordBatchReader.from_stream(ArrowStream(scan.columns, source()))
    assert reader.read_next_batch().num_rows > 0
    for _ in range(2):
        with pytest.raises(OSError, match=text):
            reader.read_next_batch()


NO_MEMORY = """
import _testcapi
import pyarrow as pa
from pyreplog._core import ArrowStream
from pyreplog.arrow import Scan
from tests.unit.arrow.memory import Event, MemorySource, Stored
batches = list(Scan([(0, MemorySource([Stored([Event(b"v")] * 1000)] * 4))], columns=["value"]).batches())
batches = [part for batch in batches for part in batch.slices(100)]
failed = 0
for nth in range(60):
    reader, rows = pa.RecordBatchReader.from_stream(ArrowStream(["value"], batches)), 0
    try:
        _testcapi.set_nomemory(nth, nth + 3)
        try:
            while True:
                rows += reader.read_next_batch().num_rows
        finally:
            _testcapi.remove_mem_hooks()
    except StopIteration:
        assert rows == 4000, (nth, rows)
    except (MemoryError, OSError):
        failed += 1
assert failed
"""


def test_no_memory_is_not_the_end() -> None:
    """Three allocations in a row fail, those for the words of the first among them: all rows come, or an error."""
    pytest.importorskip("_testcapi")
    subprocess.run([sys.executable, "-c", NO_MEMORY], cwd=Path(__file__).parents[3], timeout=60, check=True)


def test_threads_read_side_by_side(scan: Scan, truth: pa.Table) -> None:
    """Several threads each read a pass of their own."""
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(pa.table(scan).equals(truth))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def test_no_arrow_package_is_imported() -> None:
    """Importing pyreplog and reading a scan's batches loads none of the packages that can take them."""
    program = """
import sys
import pyreplog, pyreplog.arrow
from tests.unit.arrow.memory import Event, MemorySource, Stored
scan = pyreplog.arrow.Scan([(0, MemorySource([Stored([Event(b"a")])]))])
assert [batch.row_count for batch in scan.batches()] == [1]
scan.__arrow_c_stream__(); scan.__arrow_c_schema__()
loaded = {"pyarrow", "polars", "duckdb", "pandas", "numpy", "pyspark"} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3], timeout=60)
