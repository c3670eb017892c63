"""Arrow's structs from any producer: what the C data interface leaves open is taken, what it forbids is told."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pyreplog.arrow import ArrowRows
from pyreplog.record import Record, RowEncoder, records_of, split
from tests.unit.arrow.foreign import Foreign

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KEY, VALUE, PAIRS, TIME = range(4)  # the columns of `batch`
NOW = 1_700_000_000_000


def batch() -> pa.RecordBatch:
    """Rows with all there is, which both ways in take."""
    return pa.record_batch(
        {
            "key": pa.array([b"k", None, b"kk"]),
            "value": pa.array([b"one", b"two", None]),
            "headers": pa.array(
                [[{"key": "h", "value": b"x"}], None, [{"key": "i", "value": None}, {"key": "j", "value": b""}]],
                HEADERS,
            ),
            "timestamp": pa.array([NOW * 1000, NOW * 1000 + 1000, NOW * 1000 + 2000], pa.timestamp("us", "UTC")),
        }
    )


def by_table(source: object) -> list[Record]:
    """As ``append_arrow`` takes it."""
    rows = ArrowRows(source)
    assert rows.check(1 << 20) == rows.row_count
    memory = bytearray(1 << 20)
    size = rows.encode(0, NOW, memory)[1] if rows.row_count else 0
    return [record for found in split(bytes(memory[:size])) for record in records_of(found)]


def by_rows(source: Any) -> list[Record]:
    """As Spark's sink takes it."""
    encoder = RowEncoder(1)
    return [
        record
        for _, data in [*encoder.add(source, NOW, 0), *encoder.drain()]
        for found in split(data)
        for record in records_of(found)
    ]


WAYS = pytest.mark.parametrize("way", [by_table, by_rows])
Way = Callable[[Any], list[Record]]


def test_a_row_above_the_target_is_alone() -> None:
    """Several rows stay within ``size_target``; a first one may fill the memory, and nothing follows it."""
    values = [b"1", bytes(900), b"", b"2" * 30, b"3" * 60]
    rows, memory = ArrowRows(pa.record_batch({"value": pa.array(values, pa.binary())})), bytearray(1000)
    first, found = 0, []
    while first < rows.row_count:
        behind, size = rows.encode(first, NOW, memory, 150)
        found.append((behind - first, size <= 150))
        first = behind
    assert found == [(1, True), (1, False), (2, True), (1, True)]


class Handed:
    """Gives the same capsules to whoever asks."""

    def __init__(self, capsules: Any) -> None:
        """Of a stream, or of a schema and an array."""
        setattr(
            self,
            "__arrow_c_array__" if isinstance(capsules, tuple) else "__arrow_c_stream__",
            lambda requested_schema=None: capsules,
        )


@WAYS
def test_a_copy_is_the_same(way: Way) -> None:
    """What these tests change is taken as it is, and released once."""
    foreign = Foreign(batch())
    assert way(foreign) == way(batch())
    assert foreign.released.count("array") == 1
    assert foreign.released.count("schema") <= 1


@WAYS
def test_an_array_that_was_taken_is_refused(way: Way) -> None:
    """Another consumer moved it out of its capsule: what is left there is memory that was freed. So is an array
    that was taken here."""
    theirs = Handed(batch().__arrow_c_array__())
    pa.record_batch(theirs)
    with pytest.raises(ValueError, match="the Arrow array was taken already"):
        way(theirs)
    ours = Handed(batch().__arrow_c_array__())
    assert len(way(ours)) == 3
    with pytest.raises(ValueError, match="the Arrow array was taken already"):
        way(ours)


def test_a_stream_that_was_taken_is_refused() -> None:
    """By another consumer, and by an earlier append: it is not the empty table that its end would be."""
    theirs = Handed(pa.RecordBatchReader.from_batches(batch().schema, iter([batch()])).__arrow_c_stream__())
    pa.RecordBatchReader.from_stream(theirs).read_all()
    with pytest.raises(ValueError, match="the Arrow stream was taken already"):
        by_table(theirs)
    ours = Handed(pa.RecordBatchReader.from_batches(batch().schema, iter([batch()])).__arrow_c_stream__())
    assert len(by_table(ours)) == 3
    with pytest.raises(ValueError, match="the Arrow stream was taken already"):
        by_table(ours)


def test_names_may_be_missing() -> None:
    """A column without a name is one of another name; the parts of a map need none."""
    foreign = Foreign(batch())
    foreign.schema.name = foreign.column(KEY)[0].name = None
    assert ArrowRows(foreign).names == ("", "value", "headers", "timestamp")
    foreign = Foreign(batch())
    foreign.column(KEY)[0].name = None
    with pytest.raises(TypeError, match="column  is none of key"):
        by_rows(foreign)
    pairs = pa.array([[("h", b"x")]], pa.map_(pa.string(), pa.binary()))
    foreign = Foreign(pa.record_batch({"value": pa.array([b"v"]), "headers": pairs}))
    for path in ((1, 0), (1, 0, 0), (1, 0, 1)):
        foreign.column(*path)[0].name = None
    assert [record.headers for record in by_table(foreign)] == [(("h", b"x"),)]


@WAYS
def test_a_header_without_names_is_no_header(way: Way) -> None:
    """Of a list the parts are told by their names."""
    for part in (0, 1):
        foreign = Foreign(batch())
        foreign.column(PAIRS, 0, part)[0].name = None
        with pytest.raises(TypeError, match="of key and value"):
            way(foreign)


@WAYS
def test_what_may_be_left_out(way: Way) -> None:
    """Nobody needs to count nulls, nor to have buffers where there are no rows; and addresses may be odd."""
    foreign = Foreign(batch())
    for path in ((), (KEY,), (VALUE,), (PAIRS,), (PAIRS, 0), (PAIRS, 0, 0), (TIME,)):
        foreign.column(*path)[1].null_count = -1
    assert way(foreign) == way(batch())
    foreign = Foreign(batch())
    foreign.buffer(VALUE, number=1, data=struct.pack("=4i", 0, 3, 6, 6), at=1)
    foreign.buffer(PAIRS, number=1, data=struct.pack("=4i", 0, 1, 1, 3), at=3)
    foreign.buffer(TIME, number=1, data=struct.pack("=3q", *(NOW * 1000 + row * 1000 for row in range(3))), at=5)
    assert way(foreign) == way(batch())
    foreign = Foreign(batch().slice(0, 0))
    for path in ((), (KEY,), (VALUE,), (PAIRS,), (PAIRS, 0), (PAIRS, 0, 0), (PAIRS, 0, 1), (TIME,)):
        array = foreign.column(*path)[1]
        array.length = array.null_count = array.offset = 0
        for number in range(array.n_buffers):
            array.buffers[number] = None
    assert way(foreign) == []


@WAYS
def test_rows_that_are_null_as_a_whole(way: Way) -> None:
    """They are refused, counted or not, because their columns may hold anything; rows before and behind a slice do
    not matter."""
    values = pa.array([b"a", b"hidden", b"c"])
    rows = pa.StructArray.from_arrays([values], names=["value"], mask=pa.array([False, True, False]))
    for count in (-1, 1):
        foreign = Foreign(rows)
        foreign.array.null_count = count
        with pytest.raises(TypeError, match="a row of the table is null as a whole"):
            way(foreign)
    for start, value in ((0, b"a"), (2, b"c")):
        foreign = Foreign(rows)
        foreign.array.offset, foreign.array.length, foreign.array.null_count = start, 1, -1
        assert [record.value for record in way(foreign)] == [value]


def test_a_partition_is_no_number_of_a_dictionary() -> None:
    """The format of a column with a dictionary is that of the numbers into it."""
    numbers = pa.array([7, 7], pa.int32()).dictionary_encode()
    with pytest.raises(TypeError, match="column partition must be int32"):
        RowEncoder(8).add(pa.record_batch({"value": pa.array([b"a", b"b"]), "partition": numbers}), NOW, 0)


def change(*path: int, **fields: Any) -> Callable[[Foreign], None]:
    """One that sets fields of an array."""

    def apply(foreign: Foreign) -> None:
        for name, value in fields.items():
            setattr(foreign.column(*path)[1], name, value)

    return apply


def describe(*path: int, **fields: Any) -> Callable[[Foreign], None]:
    """One that sets fields of a schema."""

    def apply(foreign: Foreign) -> None:
        for name, value in fields.items():
            setattr(foreign.column(*path)[0], name, value)

    return apply


def lose(*path: int, number: int) -> Callable[[Foreign], None]:
    """One that makes a buffer NULL."""

    def apply(foreign: Foreign) -> None:
        foreign.column(*path)[1].buffers[number] = None

    return apply


def fill(*path: int, number: int, items: tuple[int, ...]) -> Callable[[Foreign], None]:
    """One that puts other int32 into a buffer."""
    return lambda foreign: foreign.buffer(*path, number=number, data=struct.pack(f"={len(items)}i", *items))


def orphan(foreign: Foreign) -> None:
    """A child of the array is not there."""
    foreign.array.children[VALUE] = type(foreign.array.children[VALUE])()


def nameless(foreign: Foreign) -> None:
    """A child of the schema is not there."""
    foreign.schema.children[VALUE] = type(foreign.schema.children[VALUE])()


def dictionary(foreign: Foreign) -> None:
    """The array has a dictionary, and its type does not say so."""
    array = foreign.column(VALUE)[1]
    array.dictionary = type(array.dictionary)(foreign.column(KEY)[1])


FORBIDDEN: dict[str, tuple[Callable[[Foreign], None], str]] = {
    "no format": (describe(format=None), "the table .*no type"),
    "no format of a column": (describe(VALUE, format=None), "column value .*no type"),
    "no format of a header": (describe(PAIRS, 0, 1, format=None), "column value .*no type"),
    "negative children of the type": (describe(n_children=-1), "-1 children"),
    "nowhere children of the type": (describe(children=None), "4 children"),
    "a column's type is not there": (nameless, "child 1 is not there"),
    "a column's type was taken": (describe(VALUE, release=None), "child 1 is not there, or was taken"),
    "a column was taken": (change(VALUE, release=None), "column value .*taken already"),
    "a column is not there": (orphan, "column value .*not there"),
    "headers were taken": (change(PAIRS, 0, release=None), "taken already"),
    "a list without items": (describe(PAIRS, n_children=0), "column headers .*0 children where a list has one"),
    "fewer children than its type": (change(n_children=3), "3 children; its type has 4"),
    "more children than its type": (change(n_children=5), "5 children; its type has 4"),
    "nowhere children": (change(children=None), "4 children"),
    "no items": (change(PAIRS, n_children=0), "0 children; its type has 1"),
    "one part of a header": (change(PAIRS, 0, n_children=1), "1 children; its type has 2"),
    "negative length": (change(length=-1), "-1 rows from 0"),
    "negative offset": (change(offset=-1), "from -1"),
    "negative length of a column": (change(VALUE, length=-1), "column value .*-1 rows"),
    "negative offset of a column": (change(VALUE, offset=-2), "column value .*from -2"),
    "an end beyond 64 bits": (change(VALUE, offset=2**63 - 2), "column value .*cannot be"),
    "a length beyond memory": (change(length=2**60), "cannot be"),
    "a column that is too short": (change(TIME, length=2), "column timestamp .*2 rows where 3 are needed"),
    "a column that is too short for an offset": (change(offset=1), "3 rows where 4 are needed"),
    "headers that are too short": (change(PAIRS, 0, 1, length=1), "column value .*1 rows where 3 are needed"),
    "items that are too few": (change(PAIRS, 0, length=2), "row 2"),
    "negative nulls": (change(KEY, null_count=-2), "-2 of 3 rows"),
    "more nulls than rows": (change(KEY, null_count=4), "4 of 3 rows"),
    "nulls that nobody knows": (lose(KEY, number=0), "column key .*does not say which"),
    "negative buffers": (change(VALUE, n_buffers=-1), "-1 buffers; its type has 3"),
    "too few buffers": (change(VALUE, n_buffers=2), "2 buffers; its type has 3"),
    "too many buffers": (change(TIME, n_buffers=3), "3 buffers; its type has 2"),
    "no buffers of the table": (change(n_buffers=0), "0 buffers; its type has 1"),
    "no buffers of the items": (change(PAIRS, 0, n_buffers=0), "0 buffers; its type has 1"),
    "nowhere buffers": (change(VALUE, buffers=None), "buffers are nowhere"),
    "nowhere offsets": (lose(VALUE, number=1), "column value .*buffer 1 is nowhere"),
    "nowhere offsets of headers": (lose(PAIRS, number=1), "column headers .*buffer 1 is nowhere"),
    "nowhere bytes": (lose(VALUE, number=2), "row 0"),
    "nowhere bytes of headers": (lose(PAIRS, 0, 0, number=2), "row 0"),
    "nowhere moments": (lose(TIME, number=1), "column timestamp .*buffer 1 is nowhere"),
    "a dictionary that its type does not say": (dictionary, "has a dictionary"),
    "offsets that go backwards": (fill(VALUE, number=1, items=(0, 3, 1, 3)), "row 1"),
    "negative offsets": (fill(VALUE, number=1, items=(-3, 0, 1, 1)), "row 0"),
    "a key behind the last one's end, before a null": (fill(KEY, number=1, items=(0, 9, 3, 3)), "row 0"),
    "a header's key behind the last one's end": (fill(PAIRS, 0, 0, number=1, items=(0, 9, 2, 3)), "row 0"),
    "a header's value behind the last one's end, before a null": (
        fill(PAIRS, 0, 1, number=1, items=(0, 9, 1, 1)),
        "row 0",
    ),
    "keys of which the offsets go backwards": (fill(KEY, number=1, items=(5, 2, 2, 2)), "row 0"),
    "headers of which the offsets go backwards": (fill(PAIRS, number=1, items=(3, 1, 1, 1)), "row 0"),
    "negative headers": (fill(PAIRS, number=1, items=(-1, 1, 1, 1)), "row 0"),
    "more headers than there are": (fill(PAIRS, number=1, items=(0, 1, 1, 4)), "row 2"),
    "header keys of which the offsets go backwards": (fill(PAIRS, 0, 0, number=1, items=(1, 0, 1, 2)), "row 0"),
    "header values of which the offsets go backwards": (fill(PAIRS, 0, 1, number=1, items=(1, 0, 0, 0)), "row 0"),
}


@WAYS
@pytest.mark.parametrize("name", list(FORBIDDEN))
def test_what_is_forbidden_is_told(way: Way, name: str) -> None:
    """An error of one kind that says where, and the array is released."""
    wrong, text = FORBIDDEN[name]
    foreign = Foreign(batch())
    wrong(foreign)
    with pytest.raises(ValueError, match=text):
        way(foreign)
    assert foreign.released.count("array") == 1


def long_views() -> Foreign:
    """A column of views with one buffer of its own."""
    return Foreign(pa.record_batch({"value": pa.array([b"short", bytes(20), b"x" * 30], pa.binary_view())}))


def view(size: int, number: int, start: int) -> bytes:
    """One that is not in place."""
    return struct.pack("=i4sii", size, b"\0\0\0\0", number, start)


def test_views_stay_within_their_buffers() -> None:
    """Their buffers are the ones whose sizes the interface tells, so all that is beyond is seen."""
    assert [len(record.value or b"") for record in by_table(long_views())] == [5, 20, 30]
    for bad in (
        view(-1, 0, 0),
        view(20, 1, 0),
        view(20, -1, 0),
        view(20, 0, -4),
        view(20, 0, 31),
        view(51, 0, 0),
        view(2**31 - 1, 0, 1),
    ):
        foreign = long_views()
        foreign.buffer(0, number=1, data=view(20, 0, 0) + view(30, 0, 20) + bad)
        with pytest.raises(ValueError, match="row 2"):
            by_table(foreign)
    for wrong, text in (
        (lose(0, number=3), "buffer 3 is nowhere"),
        (lose(0, number=2), "row 1"),
        (change(0, n_buffers=2), "2 buffers"),
    ):
        foreign = long_views()
        wrong(foreign)
        with pytest.raises(ValueError, match=text):
            by_table(foreign)


@pytest.mark.parametrize("code", [b"w:", b"w:x", b"w:2x", b"w:-1", b"w:99999999999"])
def test_a_width_is_a_number(code: bytes) -> None:
    """Anything else is no fixed-size column."""
    foreign = Foreign(pa.record_batch({"value": pa.array([b"ab"], pa.binary(2))}))
    foreign.column(0)[0].format = code
    with pytest.raises(TypeError, match="binary or string"):
        by_table(foreign)


def test_nulls_alone() -> None:
    """A column of nulls has no buffers; that some give it one is no matter."""
    for count in (0, 1):
        foreign = Foreign(pa.record_batch({"value": pa.nulls(2)}))
        foreign.column(0)[1].n_buffers = count
        assert [record.value for record in by_table(foreign)] == [None, None]
