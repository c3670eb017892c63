"""A scan gives exactly the rows asked for, whatever the batches look like, and says what is wrong with a wrong
question."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from itertools import accumulate
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog._core import ColumnsBuilder, RecordBatch
from pyreplog.arrow import BATCH_ROWS_MAX, COLUMNS, LOG_COLUMNS, READ_SIZE, TOPIC_COLUMNS, Scan, timestamp_ms
from pyreplog.errors import ConfigError, CorruptError, OffsetOutOfRangeError
from pyreplog.ports import Buffer
from tests.oracle import batch as oracle
from tests.unit.arrow.memory import EPOCH, Event, MemorySource, Stored, expected

ALL = tuple(name for name in COLUMNS if name != "partition")
TIMES = st.one_of(st.just(-1), st.integers(0, 20), st.integers(0, 250_000_000_000_000))

events = st.builds(
    Event,
    value=st.none() | st.binary(max_size=80),
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3).map(tuple),
    timestamp=TIMES,
)
batches = st.builds(
    Stored,
    events=st.lists(events, min_size=1, max_size=12),
    codec=st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
    append_timestamp=st.sampled_from([-1, -1, 7, 15]),
    leader_epoch=st.integers(0, 3),
    control=st.sampled_from([False, False, False, False, True]),
)
edges = st.none() | st.integers(0, 25)


def rows(scan: Scan) -> list[dict[str, Any]]:
    """Everything the scan gives, checked by pyarrow."""
    table = pa.table(scan)
    table.validate(full=True)
    result: list[dict[str, Any]] = table.to_pylist()
    return result


@given(
    st.lists(batches, max_size=6),
    st.integers(0, 3),
    edges,
    edges,
    edges,
    edges,
    st.permutations(ALL),
    st.integers(1, len(ALL)),
)
def test_rows_are_those_of_the_slow_twin(
    stored: list[Stored],
    first: int,
    start: int | None,
    end: int | None,
    start_timestamp: int | None,
    end_timestamp: int | None,
    names: list[str],
    count: int,
) -> None:
    """Any batches, any ranges, any columns in any order: the rows are those of plain comparisons over what was
    stored."""
    source = MemorySource(stored, first)
    start = None if start is None else min(max(start, source.start_offset), source.end_offset)
    if start is not None and end is not None:
        end = max(start, end)
    if start_timestamp is not None and end_timestamp is not None:
        end_timestamp = max(start_timestamp, end_timestamp)
    chosen = names[:count]
    scan = Scan(
        [(0, source)],
        columns=chosen,
        start=start,
        end=end,
        start_timestamp=start_timestamp,
        end_timestamp=end_timestamp,
    )
    wanted = expected(source, start=start, end=end, start_timestamp=start_timestamp, end_timestamp=end_timestamp)
    assert rows(scan) == [{name: row[name] for name in chosen} for row in wanted]


def test_types_are_those_promised() -> None:
    """Each column has its documented type, in the order asked for."""
    schema = pa.schema(Scan([], columns=COLUMNS))
    item = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    assert schema.names == list(COLUMNS)
    assert schema.types == [
        pa.int32(),
        pa.int64(),
        pa.timestamp("ms", "UTC"),
        pa.int8(),
        pa.binary(),
        pa.binary(),
        pa.list_(pa.field("item", item, nullable=False)),
        pa.int32(),
    ]
    assert pa.schema(Scan([], columns=["value", "offset"])).names == ["value", "offset"]
    assert pa.schema(Scan([])).names == list(LOG_COLUMNS)
    assert pa.schema(Scan([], default_columns=TOPIC_COLUMNS)).names == list(TOPIC_COLUMNS)


def test_partitions_follow_one_another() -> None:
    """A scan of several partitions names each row's partition, and has each partition's own order."""
    sources = [
        (number, MemorySource([Stored([Event(b"%d-%d" % (number, i)) for i in range(3)])])) for number in (0, 2, 1)
    ]
    scan = Scan(sources, columns=["partition", "offset", "value"])
    assert [(row["partition"], row["offset"], row["value"]) for row in rows(scan)] == [
        (number, i, b"%d-%d" % (number, i)) for number in (0, 2, 1) for i in range(3)
    ]


def test_each_pass_is_a_fresh_one() -> None:
    """The same scan can be read again, and then sees what was appended meanwhile."""
    source = MemorySource([Stored([Event(b"a")])])
    scan = Scan([(0, source)])
    assert len(rows(scan)) == len(rows(scan)) == 1
    more = MemorySource([Stored([Event(b"b")])], 1)
    source.chunks += more.chunks
    source.end_offset = more.end_offset
    assert [row["value"] for row in rows(scan)] == [b"a", b"b"]


def test_batches_are_bounded() -> None:
    """No Arrow batch has more than 32768 rows, also when one record batch has, and none much more than 2 MiB of
    data."""
    many = Stored([Event(b"x")] * 70_000, codec=4)
    large = [Stored([Event(bytes(1000))] * 500) for _ in range(10)]
    batches = list(Scan([(0, MemorySource([many, *large, many]))], columns=["offset", "value"]).batches())
    assert sum(batch.row_count for batch in batches) == 145_000
    assert max(batch.row_count for batch in batches) <= 32_768
    sizes = [pa.record_batch(batch).column("value").nbytes for batch in batches]
    assert max(sizes) <= (2 << 20) + 4 * 32_769
    offsets = pa.concat_arrays([pa.record_batch(batch).column("offset") for batch in batches])
    assert offsets.to_pylist() == list(range(145_000))


def test_later_pieces_of_a_large_batch_have_their_own_rows() -> None:
    """One record batch of more than 32768 rows becomes several Arrow batches: every column of each begins at its
    own row."""
    stored = [
        Event(
            value=None if index % 7 == 3 else b"v%d" % index,
            key=None if index % 5 == 1 else b"k%d" % index,
            headers=tuple((f"h{number}", None if index % 2 else b"%d" % index) for number in range(index % 3)),
            timestamp=-1 if index % 11 == 4 else 1_000_000 + index,
        )
        for index in range(2 * BATCH_ROWS_MAX + 101)
    ]
    source = MemorySource([Stored(stored, codec=4)])
    batches = [pa.record_batch(batch) for batch in Scan([(0, source)], columns=COLUMNS).batches()]
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS_MAX, BATCH_ROWS_MAX, 101]
    start = 0
    wanted = expected(source)
    for batch in batches:
        batch.validate(full=True)
        end = start + batch.num_rows
        for name in COLUMNS:
            found = batch.column(name)
            values = [row[name] if name != "partition" else 0 for row in wanted[start:end]]
            assert found.to_pylist() == values, name
            assert found.null_count == values.count(None), name
        start = end


class Sized(MemorySource):
    """Remembers what was asked for, and what came."""

    def __init__(self, sizes: Iterable[int], ends: Iterable[int] = ()) -> None:
        super().__init__([Stored([Event(bytes(size))]) for size in sizes])
        self.asked: list[tuple[int, int]] = []
        self.starts = list(accumulate(map(len, self.chunks), initial=0))
        self.ends = [*ends, len(self.chunks)]

    def read(self, offset: int, size_max: int) -> Buffer:
        """As a log does, never across the ``ends`` of its segments, one record to a batch."""
        reach = next(end for end in self.ends if end > offset)
        last = max(bisect_right(self.starts, self.starts[offset] + size_max) - 1, offset + 1)
        taken = b"".join(self.chunks[offset : min(last, reach)])
        self.asked.append((size_max, len(taken)))
        return taken


@pytest.mark.parametrize(
    "size", [READ_SIZE * 2 // 7, READ_SIZE * 7 // 5], ids=["several at once", "more than is asked for at first"]
)
def test_batches_of_one_size_are_read_once(size: int) -> None:
    """After the first few of them, what is asked for ends behind a batch: next to nothing is read that has to be
    read again."""
    source = Sized([size] * 40)
    assert len(rows(Scan([(0, source)], columns=["offset"]))) == 40
    assert all(got <= asked <= got + got // 32 for asked, got in source.asked[1:-1])


SMALL = [1_000] * 4_000
MIXED = [Random(1).choice((1_000, 30_000, 110_000, 400_000)) for _ in range(300)]


@pytest.mark.parametrize(
    ("sizes", "ends"),
    [(SMALL, ()), (MIXED, ()), (SMALL, (2, 100, 2_000)), ([*SMALL, READ_SIZE * 3, *SMALL], (4_001,))],
    ids=["small", "mixed", "short segments", "one that is large"],
)
def test_steps_are_neither_short_nor_long(sizes: list[int], ends: tuple[int, ...]) -> None:
    """Whatever came: a short segment does not make every later step a short one, small batches do not make each
    longer than the one before, and one that is much larger than the others is soon forgotten."""
    source = Sized(sizes, ends)
    assert len(rows(Scan([(0, source)], columns=["offset"]))) == len(sizes)
    assert len(source.asked) < 3 + len(ends) + 1.3 * sum(sizes) / READ_SIZE
    assert sum(asked > READ_SIZE for asked, _ in source.asked) <= 1


def test_a_time_range_begins_where_the_index_says() -> None:
    """What lies before the first record that is late enough is not even read."""
    source = MemorySource([Stored([Event(bytes(100_000), timestamp=t)]) for t in range(50)])
    assert len(rows(Scan([(0, source)], start_timestamp=49))) == 1
    assert source.reads == 1


def test_ends_of_time() -> None:
    """The largest and the smallest timestamp a record can have are selected by ranges that include them, and only
    by those."""
    largest = 2**63 - 1
    source = MemorySource([Stored([Event(b"a", timestamp=largest), Event(b"b", timestamp=0)])])
    for arguments, values in (
        ({"start_timestamp": largest}, [b"a"]),
        ({"start_timestamp": 0}, [b"a", b"b"]),
        ({"end_timestamp": largest}, [b"b"]),
        ({"end_timestamp": 0}, []),
        ({"start_timestamp": 0, "end_timestamp": 0}, []),
    ):
        assert [row["value"] for row in rows(Scan([(0, source)], columns=["value"], **arguments))] == values  # type: ignore[arg-type]


def test_datetimes_are_exact() -> None:
    """A datetime inside a millisecond selects from the next whole one, whatever its zone; a naive one is
    refused."""
    zone = timezone(timedelta(hours=5, minutes=30))
    assert timestamp_ms(EPOCH + timedelta(milliseconds=5), "t") == 5
    assert timestamp_ms(EPOCH + timedelta(milliseconds=5, microseconds=1), "t") == 6
    assert timestamp_ms(EPOCH - timedelta(microseconds=1), "t") == 0
    assert timestamp_ms(datetime(2024, 6, 1, 5, 30, tzinfo=zone), "t") == timestamp_ms(
        datetime(2024, 6, 1, tzinfo=UTC), "t"
    )
    with pytest.raises(
        ConfigError, match="start_timestamp is 1180591620717411303424; it must be a whole number of milliseconds"
    ):
        Scan([], start_timestamp=1 << 70)
    with pytest.raises(ConfigError, match="start_timestamp is the naive datetime 2024-06-01"):
        Scan([], start_timestamp=datetime(2024, 6, 1))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"columns": ["valeu"]}, "unknown column 'valeu'; did you mean 'value'"),
        ({"columns": ["value", "value"]}, "asked for twice"),
        ({"columns": "value"}, "give a list of names"),
        ({"columns": []}, "columns is empty"),
        ({"start": 1.5}, r"start is 1\.5"),
        ({"start": True}, "start is True"),
        ({"end": "5"}, "end is '5'"),
        ({"start": 3, "end": 2}, "start 3 lies behind end 2"),
        ({"start_timestamp": 1.5}, r"start_timestamp is 1\.5"),
        ({"start_timestamp": 3, "end_timestamp": 2}, "start_timestamp 3 lies behind"),
    ],
)
def test_wrong_questions_are_refused(arguments: dict[str, Any], text: str) -> None:
    """A wrong column or range is a ConfigError that names it, when the scan is made and not when it is read."""
    with pytest.raises(ConfigError, match=text):
        Scan([], **arguments)


def test_offsets_that_are_gone_are_refused() -> None:
    """A start below what the log still holds, or behind its end, is not silently moved; an end behind it is."""
    source = MemorySource([Stored([Event(b"a")] * 3)], start_offset=5)
    for start in (-1, 4, 9, 2**70):
        with pytest.raises(OffsetOutOfRangeError, match=f"offset {start} is outside orders"):
            Scan([(0, source)], name="orders", start=start)
    for end in (-1, -(2**70)):
        with pytest.raises(OffsetOutOfRangeError, match=f"offset {end} is outside orders"):
            Scan([(0, source)], name="orders", end=end)
    assert rows(Scan([(0, source)], start=8)) == []
    assert len(rows(Scan([(0, source)], start=6, end=100))) == 2


def test_rot_is_an_error_that_says_where() -> None:
    """A flipped byte ends the pass with the error of its source for that offset, which has the place; importers see
    its text."""
    source = MemorySource(
        [Stored([Event(b"abc")] * 4), Stored([Event(b"def")] * 4), Stored([Event(b"ghi")] * 4, codec=1)]
    )
    whole = [bytearray(chunk) for chunk in source.chunks]
    for number, (batch, offset) in enumerate(((1, 4), (2, 8))):
        source.chunks = [bytes(chunk) for chunk in whole]
        rotten = bytearray(source.chunks[batch])
        rotten[-1] ^= 1
        source.chunks[batch] = bytes(rotten)
        scan = Scan([(number, source)], name="orders")
        text = rf"checksum mismatch \(CRC-32C\) in memory at byte 0 \(memory-0\): offsets {offset} to {offset}"
        with pytest.raises(CorruptError, match=text):
            list(scan.batches())
        with pytest.raises(OSError, match=f"CorruptLogError: {text}"):
            pa.table(scan)


@pytest.mark.parametrize("count", [1, 40, 5000])
def test_header_names_that_are_not_utf8_grow_the_column(count: int) -> None:
    """Header names of wrong bytes become three times as long in Arrow; the column has room for them, and the other
    columns are right."""
    name = b"\xff" * 100
    body = b"\0\0%b\1\2v\2" + oracle.varint(len(name)) + name + b"\2w"
    records = [body % oracle.varint(delta) for delta in range(count)]
    payload = b"".join(oracle.varint(len(record)) + record for record in records)
    data = oracle.encode_header(oracle.Batch(record_count=count, last_offset_delta=count - 1), payload)
    builder = ColumnsBuilder(["offset", "value", "headers"])
    builder.extend(data)
    builder.append(RecordBatch(data))
    rows = pa.record_batch(builder.finish())
    assert rows["offset"].to_pylist() == [*range(count)] * 2
    assert rows["value"].to_pylist() == [b"v"] * 2 * count
    assert set(rows["headers"].flatten().field("key").to_pylist()) == {"\ufffd" * 100}
    assert rows["headers"].flatten().field("value").to_pylist() == [b"w"] * 2 * count
