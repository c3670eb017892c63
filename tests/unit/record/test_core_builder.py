"""BatchBuilder: writes what the twin writes, never more than it may, and never into memory that somebody still
looks at."""

from __future__ import annotations

import array
import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyreplog._core import HEADER_SIZE, Ack, BatchBuilder, Gathering, RecordBatch, find_too_large, murmur2, stamp
from pyreplog.errors import ConfigError
from pyreplog.timestamps import TIMESTAMP_MAX
from pyreplog.values import RecordMetadata, TimestampType
from tests.interop.golden import vectors
from tests.oracle import batch as oracle

INT_MAX = 2**31 - 1
NOW = 1700000000000

payloads = st.none() | st.binary(max_size=200)
header_lists = st.lists(st.tuples(st.text(max_size=10), payloads), max_size=4).map(tuple)
timestamps = st.integers(-1, 2**62)
one_record = st.tuples(payloads, payloads, header_lists, timestamps)


def twin(rows: list[tuple[bytes | None, bytes | None, oracle.Headers, int]], base_offset: int = 0) -> oracle.Batch:
    """The same records for the twin; rows are (value, key, headers, timestamp)."""
    batch = oracle.Batch(base_offset=base_offset)
    batch.records = [
        oracle.OneRecord(base_offset + i, t, key, value, headers) for i, (value, key, headers, t) in enumerate(rows)
    ]
    return batch


def test_a1_and_a2_are_built() -> None:
    """Kafka's own bytes come out for Kafka's own input."""
    builder = BatchBuilder()
    assert builder.append(b"1", b"a", (), 1700000000000)
    assert builder.append(b"22", None, (), 1700000000100)
    assert builder.append(None, b"", (("h", None), ("", b"")), 1699999999999)
    assert builder.size == len(vectors.A1_DATA)
    built = builder.finish(
        base_offset=1000,
        leader_epoch=5,
        producer_id=4294967296,
        producer_epoch=7,
        base_sequence=INT_MAX,
        transactional=True,
    )
    assert bytes(built) == vectors.A1_DATA
    builder.reset()
    builder.append(None, None, (), 0)
    assert bytes(builder.finish()) == vectors.A2_NULLS


def test_a3_and_a4_are_built() -> None:
    """Compressed and control batches too."""
    builder = BatchBuilder()
    for codec, data in vectors.A3_BY_CODEC.items():
        builder.reset()
        builder.append(b"v", b"k", (), 0)
        assert bytes(builder.payload()) == vectors.A3_RECORD
        assert bytes(builder.finish(codec=codec, payload=data[HEADER_SIZE:])) == data
    builder.reset()
    [marker] = RecordBatch(vectors.A4_COMMIT).records()
    builder.append(marker.value, marker.key, (), marker.timestamp)
    built = builder.finish(
        base_offset=200, leader_epoch=9, producer_id=77, producer_epoch=3, transactional=True, control=True
    )
    assert bytes(built) == vectors.A4_COMMIT


@given(st.lists(one_record, min_size=1, max_size=20), st.integers(0, 2**40))
def test_agrees_with_the_twin(
    rows: list[tuple[bytes | None, bytes | None, oracle.Headers, int]], base_offset: int
) -> None:
    """Any records become the twin's bytes, one by one or all at once, and read back as they were."""
    one_by_one, at_once = BatchBuilder(), BatchBuilder()
    for row in rows:
        assert one_by_one.append(*row)
    values, keys, headers, times = map(list, zip(*rows, strict=True))
    assert at_once.extend(values, keys, headers, times, -1, 0) == len(rows)
    expected = oracle.encode(twin(rows, base_offset))
    assert one_by_one.count == at_once.count == len(rows)
    assert one_by_one.size == at_once.size == len(expected)
    built = one_by_one.finish(base_offset=base_offset)
    assert bytes(built) == bytes(at_once.finish(base_offset=base_offset)) == expected
    batch = RecordBatch(built)
    batch.check_crc()
    assert batch.is_dense()
    assert [(r.value, r.key, r.headers, r.timestamp) for r in batch.records()] == rows


@given(st.lists(payloads, max_size=30), st.integers(0, 40), st.integers(70, 3000), timestamps)
def test_extend_takes_what_fits(values: list[bytes | None], start: int, size_max: int, timestamp: int) -> None:
    """``extend`` is ``append`` in a loop, up to the first that does not fit."""
    one_by_one, at_once = BatchBuilder(size_max), BatchBuilder(size_max)
    start = min(start, len(values))
    taken = start
    while taken < len(values) and one_by_one.append(values[taken], None, (), timestamp):
        taken += 1
    assert at_once.extend(values, None, None, None, timestamp, start) == taken
    assert (one_by_one.count, one_by_one.size) == (at_once.count, at_once.size)
    assert at_once.size <= size_max
    if at_once.count:
        assert bytes(one_by_one.finish()) == bytes(at_once.finish())


runs_of_values = st.lists(
    st.tuples(st.sampled_from([0, 1, 31, 32, 63, 64, 100, 4087, 4088, 8191, 8192]), st.integers(1, 70)), max_size=5
)


@given(runs_of_values, st.sampled_from([0, 1, -1, 64, 2**40, -NOW - 1]), st.integers(0, 100), st.booleans())
def test_extend_by_values_alike(runs: list[tuple[int, int]], delta: int, short_by: int, with_gap: bool) -> None:
    """Values of one size after the other, in whatever runs and however near the end of the memory, become the bytes
    of ``append`` in a loop."""
    values: list[bytes | None] = [bytes([i % 251]) * size for size, count in runs for i in range(count)]
    if with_gap and values:
        values.insert(len(values) // 2, None)
    whole = BatchBuilder()
    whole.append(b"first", None, (), NOW)
    whole.extend(values, None, None, None, NOW + delta, 0)
    size_max = max(whole.size - short_by, 70)
    one_by_one, at_once = BatchBuilder(size_max), BatchBuilder(size_max)
    assert one_by_one.append(b"first", None, (), NOW) == at_once.append(b"first", None, (), NOW)
    taken = 0
    while taken < len(values) and one_by_one.append(values[taken], None, (), NOW + delta):
        taken += 1
    assert at_once.extend(values, None, None, None, NOW + delta, 0) == taken
    if at_once.count:
        assert bytes(at_once.finish()) == bytes(one_by_one.finish())


@pytest.mark.parametrize("size", [0, 100])
def test_as_many_values_alike_as_offsets_grow_long(size: int) -> None:
    """Behind 63, 8191 and 1,048,575 records the offset takes a byte more."""

    def varint_size(number: int) -> int:
        return next(size for size in range(1, 6) if number < 2 ** (7 * size - 1))

    count = 2**20 + 3
    builder = BatchBuilder(2**28)
    assert builder.extend([bytes(size)] * count, None, None, None, NOW, 0) == count
    bodies = [
        4 + varint_size(i) + varint_size(size) + size for i in range(count)
    ]  # attributes, timestamp, no key, no headers
    assert builder.size == HEADER_SIZE + sum(varint_size(body) + body for body in bodies)
    batch = RecordBatch(builder.finish())
    assert batch.is_dense()
    assert batch.record_count == count


def test_size_limit_is_exact() -> None:
    """A record that just fits is taken; one byte more is refused and changes nothing; the first is refused like any
    other."""
    exact = BatchBuilder()
    exact.append(bytes(100), b"key", (("h", b"v"),), NOW)
    builder = BatchBuilder(exact.size)
    assert builder.append(bytes(101), b"key", (("h", b"v"),), NOW) is False
    assert (builder.count, builder.size) == (0, HEADER_SIZE)
    assert builder.append(bytes(100), b"key", (("h", b"v"),), NOW) is True
    assert builder.append(None, None, (), NOW) is False
    assert builder.count == 1
    assert bytes(builder.finish()) == bytes(exact.finish())
    assert BatchBuilder(100).extend([bytes(10), bytes(100), bytes(1)], None, None, None, NOW, 0) == 1
    assert BatchBuilder(100).extend([bytes(100)], None, None, None, NOW, 0) == 0


def test_a_record_above_the_target_is_alone() -> None:
    """Several records stay within ``size_target``, exactly; a first one may have ``size_max``, and nothing follows
    it."""
    for target in range(150, 230):
        builder = BatchBuilder(1000, target)
        assert builder.extend([bytes(900), b""], None, None, None, NOW, 0) == 1
        assert not builder.append(b"", None, (), NOW)
        builder.reset()
        assert builder.extend([bytes(2000)], None, None, None, NOW, 0) == 0
        for values in ([b"v" * 7] * 40, [bytearray(b"v" * 7)] * 40):
            builder.reset()
            exact = BatchBuilder(target)
            assert builder.extend(values, None, None, None, NOW, 0) == exact.extend(values, None, None, None, NOW, 0)
            assert bytes(builder.finish()) == bytes(exact.finish())
    with pytest.raises(ValueError, match="size_target"):
        BatchBuilder(100, 101)
    with pytest.raises(ValueError, match="size_target"):
        BatchBuilder(100, -1)


@pytest.mark.parametrize("size_max", [-1, 0, 61, 2**31])
def test_absurd_limits(size_max: int) -> None:
    """A limit that no batch fits, or that no segment could hold, is a ValueError."""
    with pytest.raises(ValueError, match="size_max"):
        BatchBuilder(size_max)


def test_grows_over_many_sizes() -> None:
    """Memory grows with the batch, whatever the sizes of its records."""
    builder = BatchBuilder(4_000_000)
    values = [bytes([i % 251]) * (i * 37 % 9000) for i in range(500)]
    assert builder.extend(values, None, None, None, NOW, 0) == 500
    assert [r.value for r in RecordBatch(builder.finish()).records()] == values


def test_takes_any_contiguous_buffer() -> None:
    """bytearray, memoryview and array serve as values, keys and header values; mutation afterwards changes
    nothing."""
    builder = BatchBuilder()
    value = bytearray(b"value")
    numbers = array.array("i", [1, 2])
    builder.append(value, memoryview(b"_key_")[1:4], [("h", bytearray(b"x")), ("n", numbers)], NOW)  # type: ignore[list-item]
    builder.extend([b"plain", value, None, numbers], None, None, None, NOW, 0)
    value[:] = b"other"
    value.append(0)  # no view was left behind
    records = RecordBatch(builder.finish()).records()
    assert [r.value for r in records] == [b"value", b"plain", b"value", None, numbers.tobytes()]
    assert records[0].key == b"key"
    assert records[0].headers == (("h", b"x"), ("n", numbers.tobytes()))


class Pointers(ctypes.Structure):
    """Two fields, of which one is an address; the name of the other only looks like it."""

    _fields_ = (("O", ctypes.c_int), ("p", ctypes.c_char_p))


class Plain(ctypes.Structure):
    """Numbers, with names that look like addresses."""

    _fields_ = (("OPX", ctypes.c_int), ("z", ctypes.c_short))


WITH_POINTERS: list[Any] = [
    numpy.array(["a"], dtype=object),
    numpy.zeros(1, [("a", "i4"), ("b", object)]),
    numpy.zeros(1, [("at", "M8[s]"), ("b", object)]),  # for which numpy gives no format
    memoryview(numpy.array(["a", "b"], dtype=object)),  # type: ignore[arg-type]
    (ctypes.py_object * 1)(),
    (ctypes.c_char_p * 1)(),
    (ctypes.c_wchar_p * 1)(),
    (ctypes.c_void_p * 1)(),
    (ctypes.POINTER(ctypes.c_int) * 1)(),
    (Pointers * 1)(),
    numpy.array(None, dtype=object),
]
SINGLE: list[Any] = [
    numpy.int64(3),
    numpy.float64(3),
    numpy.bool_(True),
    numpy.datetime64("2024-06-01"),
    numpy.timedelta64(3, "s"),
    numpy.void(b"ab"),
    numpy.array(3),
    numpy.array("2024-06-01", "M8[s]"),
    memoryview(numpy.array(3)),  # type: ignore[arg-type]
    ctypes.c_int(3),
    Plain(),
]
LENDING: list[Any] = [
    numpy.bytes_(b"abc"),
    numpy.arange(3),
    numpy.zeros((2, 3), "f4"),
    numpy.zeros(2, complex),
    numpy.array(["2024-06-01"], "M8[s]"),
    numpy.array(["ab"]),
    numpy.array([b"ab"]),
    numpy.zeros(1, [("O", "i4"), ("P", "f8", (2,))]),
    numpy.array([]),
    memoryview(numpy.arange(6).reshape(2, 3)),  # type: ignore[arg-type]
    array.array("d", [1.5]),
    ctypes.create_unicode_buffer("text"),
    (ctypes.c_int * 2)(1, 2),
    (ctypes.c_char * 3)(b"a"),
    ctypes.create_string_buffer(b"abc"),
    (Plain * 2)(),
    pyarrow.py_buffer(b"abc"),
    pyarrow.scalar(b"abc"),
]


def taken_by_each(data: Any, what: str) -> Iterator[bytes | None]:
    """What becomes of ``data`` as a value, a key or the value of a header, by each way into a batch."""
    value, key, headers = (
        data if name == what else other for name, other in (("value", b""), ("key", None), ("header value", None))
    )
    pairs = () if what != "header value" else [("h", headers)]

    def one(fill: Callable[[BatchBuilder], object]) -> bytes | None:
        builder = BatchBuilder()
        fill(builder)
        (record,) = RecordBatch(builder.finish()).records()
        return record.value if what == "value" else record.key if what == "key" else record.headers[0][1]

    def gather(builder: BatchBuilder) -> None:
        builder.begin(Outcome(), [], 1 << 20)
        assert builder.gather(value, key, pairs, NOW) is not None

    yield one(lambda builder: builder.append(value, key, pairs, NOW))
    yield one(lambda builder: builder.extend([value], [key], [pairs], None, NOW, 0))
    yield one(gather)
    if what == "value":
        yield one(lambda builder: builder.extend([value], None, None, None, NOW, 0))


@pytest.mark.parametrize("what", ["value", "key", "header value"])
def test_what_lends_bytes_that_say_nothing_is_refused(what: str) -> None:
    """Addresses, and the memory of one number, would be stored in silence and mean nothing to who reads them."""
    for data in WITH_POINTERS + SINGLE:
        text = f"a {what} is bytes, (not one|and a) {type(data).__name__}"
        before = sys.getrefcount(data)
        with pytest.raises(TypeError, match=text):
            next(taken_by_each(data, what))
        assert sys.getrefcount(data) == before  # no buffer is held
        if what == "key":
            with pytest.raises(TypeError, match=text):
                murmur2(data)
    for data in LENDING:
        lent = data.tobytes() if isinstance(data, numpy.ndarray) else memoryview(data).tobytes()
        assert {*taken_by_each(data, what)} == {lent}


@pytest.mark.parametrize("what", ["value", "key", "header value"])
def test_a_null_of_arrow_is_none(what: str) -> None:
    """As iterating over an Arrow array gives it, whatever its type."""
    for data in (pyarrow.scalar(None, pyarrow.binary()), pyarrow.scalar(None, pyarrow.string()), pyarrow.scalar(None)):
        assert {*taken_by_each(data, what)} == {None}


@pytest.mark.parametrize(
    ("value", "key", "headers", "timestamp", "error", "text"),
    [
        ("text", None, (), 0, TypeError, r"value.encode\(\)"),
        (b"", "text", (), 0, TypeError, r"key.encode\(\)"),
        (7, None, (), 0, TypeError, "not int"),
        (b"", 1.5, (), 0, TypeError, "not float"),
        (
            memoryview(bytes(10))[::2],
            None,
            (),
            0,
            ValueError,
            r"a value that is a memoryview lends .*: copy it, .* bytes\(value\)",
        ),
        (
            b"",
            numpy.arange(9)[::2],
            (),
            0,
            ValueError,
            r"a key that is a ndarray lends no bytes .*: copy it.* bytes\(key\)",
        ),
        (b"", None, [("a", "text")], 0, TypeError, "encode it"),
        (b"", None, [(b"a", b"")], 0, TypeError, "header key is a str, not bytes"),
        (b"", None, [(None, b"")], 0, TypeError, "header key is a str, not NoneType"),
        (b"", None, [("a", 5)], 0, TypeError, "not int"),
        (b"", None, [("a",)], 0, TypeError, "pairs"),
        (b"", None, ["ab"], 0, TypeError, "pairs"),
        (b"", None, [5], 0, TypeError, "pairs"),
        (b"", None, {"a": 5}, 0, TypeError, "not int"),
        (b"", None, {5: b"b"}, 0, TypeError, "header key is a str, not int"),
        (b"", None, 5, 0, TypeError, "pairs, not int"),
        (
            b"",
            None,
            [("a\ud800", b"")],
            0,
            ConfigError,
            r"header key is text that UTF-8 can hold, and 'a\\ud800' has half of .* pair at 1",
        ),
        (b"", None, (), -2, ValueError, "below -1"),
        (b"", None, (), 2**63, ValueError, "beyond 9999-12-31"),
        (b"", None, (), -(2**63) - 1, ValueError, "does not fit 64 bits"),
        (b"", None, (), "now", TypeError, "in ms since 1970, not str"),
        (b"", None, (), 1.5, TypeError, "in ms since 1970, not float"),
    ],
)
def test_wrong_records(
    value: object, key: object, headers: object, timestamp: object, error: type[Exception], text: str
) -> None:
    """A wrong record is refused with words that help, alone or in a list, and leaves the batch as it was."""
    builder = BatchBuilder()
    builder.append(b"first", None, (), NOW)
    size = builder.size
    with pytest.raises(error, match=text or None):
        builder.append(value, key, headers, timestamp)  # type: ignore[arg-type]
    with pytest.raises(error, match=text or None):
        builder.extend([b"good", value], [None, key], [(), headers], [5, timestamp], 0, 0)  # type: ignore[list-item]
    assert (builder.count, builder.size) == (1, size)
    builder.append(b"second", None, (), 3)
    batch = RecordBatch(builder.finish())
    batch.check_records()
    assert [r.value for r in batch.records()] == [b"first", b"second"]
    assert batch.max_timestamp == NOW


def test_extend_undoes_on_error_from_the_start() -> None:
    """A failed ``extend`` of an empty builder leaves it empty, base timestamp included."""
    builder = BatchBuilder()
    with pytest.raises(TypeError):
        builder.extend([b"a", "b"], None, None, None, 50, 0)  # type: ignore[list-item]
    assert (builder.count, builder.size) == (0, HEADER_SIZE)
    builder.append(b"c", None, (), 9)
    batch = RecordBatch(builder.finish())
    assert (batch.base_timestamp, batch.max_timestamp) == (9, 9)


def test_extend_arguments() -> None:
    """Lists of unequal length, a negative start and a bad common timestamp are ValueErrors; tuples serve as
    lists."""
    builder = BatchBuilder()
    for keys, headers, times in (([None], None, None), (None, [()], None), (None, None, [1])):
        with pytest.raises(ValueError, match="for 2 values"):
            builder.extend([b"", b""], keys, headers, times, 0, 0)
    with pytest.raises(ValueError, match="negative"):
        builder.extend([b""], None, None, None, 0, -1)
    with pytest.raises(ValueError, match="below"):
        builder.extend([b""], None, None, None, -2, 0)
    assert builder.extend((b"a", b"b"), (b"k", None), ((), ()), (1, 2), -1, 0) == 2
    assert builder.extend([], None, None, None, 0, 0) == 0


def test_finish_arguments() -> None:
    """What would make a batch that contradicts itself is a ValueError, and the builder can still finish."""
    builder = BatchBuilder()
    with pytest.raises(ValueError, match="at least one"):
        builder.finish()
    builder.append(b"v", None, (), NOW)
    wrong: list[dict[str, object]] = [
        {"base_offset": -1},
        {"codec": 5, "payload": b""},
        {"codec": -1, "payload": b""},
        {"codec": 1},
        {"payload": b"x"},
        {"timestamp_type": 2},
        {"transactional": True},
        {"producer_id": 5},
        {"producer_id": 5, "producer_epoch": 0},
        {"producer_id": 5, "base_sequence": 0},
    ]
    for arguments in wrong:
        with pytest.raises(ValueError):
            builder.finish(**arguments)  # type: ignore[arg-type]
    assert RecordBatch(builder.finish(producer_id=5, producer_epoch=0, base_sequence=0)).last_sequence == 0


def test_log_append_time() -> None:
    """With type 1 the batch's max timestamp is the one given, and every record reads it."""
    builder = BatchBuilder()
    builder.append(b"v", None, (), NOW)
    batch = RecordBatch(builder.finish(timestamp_type=1, append_timestamp=NOW + 5))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (batch.max_timestamp, batch.base_timestamp, batch.records()[0].timestamp) == (NOW + 5, NOW, NOW + 5)


def test_finished_means_finished() -> None:
    """After ``finish`` only ``reset`` goes on: the bytes handed out are never written again."""
    builder = BatchBuilder()
    builder.append(b"v", None, (), NOW)
    view = builder.finish()
    before = bytes(view)
    for call in (
        lambda: builder.append(b"w", None, (), NOW),
        lambda: builder.extend([b"w"], None, None, None, NOW, 0),
        builder.finish,
        builder.payload,
    ):
        with pytest.raises(ValueError, match="reset"):
            call()
    assert bytes(view) == before


class Calling:
    """Headers that call something when they are read, and remember its error."""

    def __init__(self, call: Callable[[], object]) -> None:
        """Nothing is called yet."""
        self.call = call
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """One header."""
        try:
            self.call()
        except (RuntimeError, ValueError) as error:
            self.error = error
        return iter([("h", b"x")])


def test_what_extend_is_given_may_not_call_the_builder() -> None:
    """Another batch begun half-way would count records of this one, and consist of memory that was never
    written."""
    builder, other = BatchBuilder(), Outcome()
    builder.begin(other, other.timestamps, 100_000)
    calls: list[Callable[[], object]] = [
        builder.reset,
        builder.finish,
        builder.payload,
        lambda: builder.append(b"inside", None, (), NOW),
        lambda: builder.extend([b"inside"], None, None, None, NOW, 0),
        lambda: builder.begin(other, other.timestamps, 100),
        lambda: builder.gather(b"inside", None, (), NOW),
    ]
    given = [Calling(call) for call in calls]
    builder.append(b"before", None, (), NOW)
    assert builder.extend([b"v"] * len(given), None, given, None, NOW, 0) == len(given)  # type: ignore[arg-type]
    assert [type(headers.error) for headers in given] == [RuntimeError] * len(given)
    with pytest.raises(TypeError):
        builder.extend([b"w", "text"], None, [Calling(builder.reset), ()], None, NOW, 0)  # type: ignore[list-item]
    assert builder.append(b"behind", None, (), NOW)
    batch = RecordBatch(builder.finish())
    batch.check_crc()
    assert [r.value for r in batch.records()] == [b"before", *[b"v"] * len(given), b"behind"]
    builder.reset()
    assert builder.append(b"next", None, (), NOW)


def test_a_batch_that_is_finished_while_a_record_comes() -> None:
    """By the record's own headers: the record is refused, instead of being lost. One that came in between is in the
    batch, too."""
    builder = BatchBuilder()
    builder.append(b"v", None, (), NOW)
    inside = Calling(lambda: builder.append(b"inside", None, (), NOW))
    assert builder.append(b"w", None, inside, NOW)  # type: ignore[arg-type]
    views: list[memoryview] = []
    with pytest.raises(ValueError, match="reset"):
        builder.append(b"x", None, Calling(lambda: views.append(builder.finish())), NOW)  # type: ignore[arg-type]
    assert [r.value for r in RecordBatch(views[0]).records()] == [b"v", b"inside", b"w"]


def test_memory_is_reused_when_free_and_only_then() -> None:
    """A buffer that is still looked at, even by a record, stays as it is; one that nobody looks at is written
    again."""
    builder = BatchBuilder()

    def build(value: bytes) -> memoryview:
        builder.reset()
        builder.append(value, None, (), NOW)
        return builder.finish()

    first = build(b"first")
    stamp(first, 10, 1)
    second = build(b"second")
    assert RecordBatch(first).records()[0].value == b"first"
    assert RecordBatch(first).base_offset == 10
    address = address_of(first)
    record = RecordBatch(first).records()[0]
    del first
    third = build(b"third")
    assert record.value == b"first"
    del record
    gc.collect()
    fourth = build(b"fourth")
    assert address_of(fourth) == address
    assert [bytes(v)[-6:-1] for v in (second, third, fourth)] == [b"econd", b"third", b"ourth"]


def address_of(view: memoryview) -> int:
    """Where a writable view's bytes lie."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def test_many_views_alive() -> None:
    """Any number of batches may be in flight at once."""
    builder = BatchBuilder()
    views = []
    for i in range(100):
        builder.reset()
        builder.append(b"%d" % i, None, (), NOW)
        views.append(builder.finish())
    assert [RecordBatch(v).records()[0].value for v in views] == [b"%d" % i for i in range(100)]
    del builder
    gc.collect()
    assert RecordBatch(views[99]).records()[0].value == b"99"


def test_payload_view_survives_going_on() -> None:
    """A payload view that was not released keeps its bytes when the builder grows, finishes or begins again."""
    builder = BatchBuilder()
    builder.append(b"x" * 1000, None, (), NOW)
    held = builder.payload()
    before = bytes(held)
    while builder.append(b"y" * 1000, None, (), NOW) and builder.count < 100:
        pass
    compressed = builder.finish(codec=1, payload=held)
    assert bytes(compressed[HEADER_SIZE:]) == before == bytes(held)
    builder.reset()
    builder.append(b"z" * 1000, None, (), NOW)
    assert bytes(held) == before


def test_compressed_may_be_larger() -> None:
    """A payload that compression made larger than the records is taken, whatever ``size_max`` says of them."""
    builder = BatchBuilder(100)
    builder.append(b"x", None, (), NOW)
    view = builder.finish(codec=4, payload=bytes(50_000))
    assert len(view) == HEADER_SIZE + 50_000
    RecordBatch(view).check_crc()
    view.release()
    builder.reset()
    assert builder.append(bytes(100), None, (), NOW) is False


class Outcome:
    """Whose records a gathered batch has."""

    def __init__(self) -> None:
        self.timestamps: list[int] = []
        self.values: list[bytes | None] = []
        self.settled = True
        self.error: BaseException | None = None

    def wait(self, timeout: float | None) -> None:
        """It is there."""

    def future(self) -> None:
        """Nobody asks."""

    def metadata(self, index: int) -> RecordMetadata:
        """Tells nothing but ``index``, as the offset, and whose it is, as the topic."""
        return RecordMetadata(str(id(self)), 0, index, 0, 0)


def place(ack: Ack | None) -> tuple[str, int]:
    """Whose record an Ack is about, and which one of theirs."""
    assert type(ack) is Ack
    found = ack.result()
    return found.topic, found.offset


def of(outcome: Outcome, index: int) -> tuple[str, int]:
    """What :func:`place` should say."""
    return str(id(outcome)), index


def test_gather() -> None:
    """Each record gets an Ack of outcome and index; all kinds of values, keys and headers; the clock where
    asked."""
    builder, outcome = BatchBuilder(), Outcome()
    builder.begin(outcome, outcome.timestamps, 10_000)
    assert place(builder.gather(b"a", None, (), None, lambda: 1234)) == of(outcome, 0)
    assert place(builder.gather(bytearray(b"b"), memoryview(b"k"), [("h", b"x")], 77)) == of(outcome, 1)
    assert place(builder.gather(None, b"k", (("h", None),), -1)) == of(outcome, 2)
    assert outcome.timestamps == [1234, 77, -1]
    records = RecordBatch(builder.finish()).records()
    assert [(r.value, r.key, r.headers, r.timestamp) for r in records] == [
        (b"a", None, (), 1234),
        (b"b", b"k", (("h", b"x"),), 77),
        (None, b"k", (("h", None),), -1),
    ]


def test_a_batch_that_was_begun_otherwise_is_gathered_too() -> None:
    """From ``resume`` on, and until it is finished; never with timestamps that belong to other records."""
    builder, outcome = BatchBuilder(), Outcome()
    assert builder.append(b"a", None, (), 7)
    assert builder.gather(b"b", None, (), 8) is None
    builder.resume(outcome, [7], 10_000)
    builder.resume(outcome, outcome.timestamps, 10_000)
    assert place(builder.gather(b"b", b"k", (), 8)) == of(outcome, 1)
    assert builder.append(b"c", None, (), 9)  # and its timestamp is not noted yet
    assert builder.gather(b"d", None, (), 10) is None
    assert Gathering(builder, None, lambda *_: None).append(b"d") is None
    outcome.timestamps.append(9)
    assert place(builder.gather(b"d", None, (), 10)) == of(outcome, 3)
    assert builder.gather(bytes(10_000), None, (), 10) is None
    records = RecordBatch(builder.finish()).records()
    assert [(r.value, r.key, r.timestamp) for r in records] == [
        (b"a", None, 7),
        (b"b", b"k", 8),
        (b"c", None, 9),
        (b"d", None, 10),
    ]
    assert builder.gather(b"e", None, (), 8) is None
    with pytest.raises(ValueError, match="finished"):
        builder.resume(outcome, outcome.timestamps, 10_000)
    builder.reset()
    assert builder.gather(b"e", None, (), 8) is None


def test_each_record_has_the_millisecond_it_was_given_in() -> None:
    """The clock is not asked for each record, and nobody can tell: hundreds of times a millisecond ends between two
    of these."""
    builder, outcome = BatchBuilder(), Outcome()
    gathering = Gathering(builder, None, lambda *_: None)
    now_ns, stamps = time.time_ns, outcome.timestamps
    wrong = []
    until = now_ns() + 300_000_000
    while now_ns() < until:
        builder.begin(outcome, stamps, 1 << 20)
        for _ in range(1000):
            before = now_ns()
            gathering.append(b"v")
            after = now_ns()
            if not before // 1_000_000 <= stamps[-1] <= after // 1_000_000:
                wrong.append((before, stamps[-1], after))
        builder.finish()
    assert stamps[-1] - stamps[0] >= 250
    assert not wrong


def test_gathering_takes_the_long_way_where_it_must() -> None:
    """What the builder takes is gathered by the clock given; what it does not take goes to ``otherwise``, all
    arguments with it."""
    builder, outcome = BatchBuilder(), Outcome()
    long_way: list[tuple[object, ...]] = []

    def otherwise(*given: object) -> str:
        long_way.append(given)
        return "long"

    gathering = Gathering(builder, lambda: 2500, otherwise)
    assert gathering.append(b"a") == "long"
    builder.begin(outcome, outcome.timestamps, 10_000)
    assert place(gathering.append(b"b")) == of(outcome, 0)
    assert place(gathering.append(b"c", key=b"k", headers=[("h", None)], timestamp=5)) == of(outcome, 1)
    builder.finish()
    assert gathering.append(b"d", key=b"k", headers=[("h", None)], timestamp=6) == "long"
    assert outcome.timestamps == [2500, 5]
    assert long_way == [(b"a", None, (), None), (b"d", b"k", [("h", None)], 6)]
    with pytest.raises(TypeError):
        gathering.append()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        gathering.append(b"x", what=2)  # type: ignore[call-arg]


def test_gather_without_a_batch() -> None:
    """None, and nothing changed, before ``begin``, after ``finish`` and after ``reset``."""
    builder, outcome = BatchBuilder(), Outcome()
    assert builder.gather(b"a", None, (), None) is None
    builder.begin(outcome, outcome.timestamps, 10_000)
    builder.gather(b"a", None, (), None)
    view = builder.finish()
    assert builder.gather(b"a", None, (), None) is None
    builder.reset()
    assert builder.gather(b"a", None, (), None) is None
    assert (builder.count, len(outcome.timestamps), RecordBatch(view).record_count) == (0, 1, 1)


def test_gather_until_full() -> None:
    """No record makes a batch longer than ``size_limit`` bytes, but a first one, up to ``size_max``; one that did
    not fit left nothing."""
    builder, outcome = BatchBuilder(1000), Outcome()
    builder.begin(outcome, outcome.timestamps, 200)
    assert builder.gather(bytes(1000), None, (), None) is None
    assert place(builder.gather(bytes(900), None, (), None)) == of(outcome, 0)
    assert builder.gather(b"", None, (), None) is None
    builder.begin(outcome, outcome.timestamps, 200)
    taken = 0
    while builder.gather(bytes(10), None, (), 5) is not None:
        taken += 1
    assert taken == builder.count
    assert 180 < builder.size <= 200
    before = builder.size
    assert builder.gather(bytes(100), None, (), 1000) is None
    assert (builder.count, builder.size) == (taken, before)
    batch = RecordBatch(builder.finish())
    assert (batch.record_count, batch.max_timestamp, batch.size) == (taken, 5, before)


@pytest.mark.parametrize(
    ("value", "key", "headers", "timestamp"),
    [("text", None, (), 0), (b"", 5, (), 0), (b"", None, [("a", "b")], 0), (b"", None, (), 1.5), (b"", None, (), -2)],
)
def test_gather_refuses(value: object, key: object, headers: object, timestamp: object) -> None:
    """A wrong record is an error, and leaves batch and timestamps as they were."""
    builder, outcome = BatchBuilder(), Outcome()
    builder.begin(outcome, outcome.timestamps, 10_000)
    with pytest.raises((TypeError, ValueError)):
        builder.gather(value, key, headers, timestamp)  # type: ignore[arg-type]
    assert (builder.count, outcome.timestamps) == (0, [])
    assert place(builder.gather(b"a", None, (), None)) == of(outcome, 0)


def test_gather_without_memory() -> None:
    """Whatever allocation fails: a record's Ack, its timestamp and its place in the batch come together, or not at
    all."""
    memory = pytest.importorskip("_testcapi")
    refused = 0
    for short, nth in product((True, False), range(12)):
        builder, outcome = BatchBuilder(), Outcome()
        gathering = Gathering(builder, None, lambda *_: None)
        builder.begin(outcome, outcome.timestamps, 100_000)
        assert place(gathering.append(b"first")) == of(outcome, 0)
        sent = [b"first"]
        for number in range(9):  # the list of timestamps grows at some of them
            value = b"%d" % number if short else bytes(5000)
            memory.set_nomemory(nth, nth + 1)
            try:
                ack = gathering.append(value) if short else gathering.append(value, timestamp=NOW)
            except MemoryError:
                refused += 1
                continue
            finally:
                memory.remove_mem_hooks()
            sent.append(value)
            assert place(ack) == of(outcome, len(sent) - 1)
        assert builder.count == len(outcome.timestamps) == len(sent)
        records = RecordBatch(builder.finish()).records()
        assert [r.value for r in records] == sent
        assert [r.timestamp for r in records] == outcome.timestamps
    assert refused


def test_gather_from_many_threads() -> None:
    """Threads without a lock, beside one that finishes batches under one: every record is where its Ack says, and
    nowhere else."""
    builder, lock = BatchBuilder(4000), threading.Lock()
    current: list[Outcome] = []
    outcomes: dict[str, Outcome] = {}
    acks: list[tuple[bytes, Ack]] = []

    def flush() -> None:
        if current and builder.count:
            view = builder.finish()
            current.pop().values = [r.value for r in RecordBatch(view).records()]

    def gather(value: bytes, headers: oracle.Headers) -> Ack:
        found = builder.gather(value, None, headers, None)
        while found is None:
            with lock:
                flush()
                if not current:
                    current.append(Outcome())
                    outcomes[str(id(current[0]))] = current[0]
                    builder.begin(current[0], current[0].timestamps, 1000)
                found = builder.gather(bytearray(value), None, headers, None)
        return found

    def work(thread: int) -> None:
        for i in range(3000):
            value = b"%d-%d" % (thread, i)
            acks.append((value, gather(value, (("h", None),) if i % 3 == 0 else ())))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    flush()
    assert len(acks) == 12_000
    places = [place(ack) for _, ack in acks]
    assert len(set(places)) == len(acks)
    assert [outcomes[name].values[index] for name, index in places] == [value for value, _ in acks]
    assert all(len(outcome.values) == len(outcome.timestamps) for outcome in outcomes.values())


class Pool(RuleBasedStateMachine):
    """Builds, holds and releases batches in any order: what is held never changes."""

    def __init__(self) -> None:
        super().__init__()
        self.builder = BatchBuilder(100_000)
        self.held: list[tuple[memoryview, bytes]] = []
        self.values: list[bytes] = []

    @rule(value=st.binary(max_size=30), repeat=st.integers(1, 1000))
    def append(self, value: bytes, repeat: int) -> None:
        """Add a record."""
        if self.builder.append(value * repeat, None, (), NOW):
            self.values.append(value * repeat)

    @precondition(lambda self: self.values)
    @rule()
    def finish(self) -> None:
        """Finish, hold, begin again."""
        view = self.builder.finish()
        assert [r.value for r in RecordBatch(view).records()] == self.values
        self.held.append((view, bytes(view)))
        self.builder.reset()
        self.values = []

    @precondition(lambda self: self.values)
    @rule()
    def hold_payload(self) -> None:
        """Hold a view of an unfinished batch."""
        view = self.builder.payload()
        self.held.append((view, bytes(view)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Let one go."""
        view, _ = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        view.release()

    @invariant()
    def held_is_unchanged(self) -> None:
        """Every view shows what it showed."""
        assert all(bytes(view) == before for view, before in self.held)


TestPool = Pool.TestCase
TestPool.settings = settings(stateful_step_count=30, max_examples=30)


@given(st.lists(one_record, max_size=6), st.integers(HEADER_SIZE + 1, 400), st.sampled_from(["all", "values", "keys"]))
def test_what_is_too_large_is_what_no_builder_takes_alone(rows: list[Any], size_max: int, given_: str) -> None:
    """To the byte, whatever a record has."""
    rows = [(value, key, headers, min(stamp, TIMESTAMP_MAX)) for value, key, headers, stamp in rows]
    if given_ != "all":
        rows = [(value, key if given_ == "keys" else None, (), NOW) for value, key, _, _ in rows]
    refused = [index for index, row in enumerate(rows) if not BatchBuilder(size_max).append(*row)]
    values, keys, headers, stamps = ([row[column] for row in rows] for column in range(4))
    found = find_too_large(
        values,
        None if given_ == "values" else keys,
        headers if given_ == "all" else None,
        stamps if given_ == "all" else None,
        size_max,
    )
    assert found == (refused[0] if refused else len(rows))


def test_what_no_record_can_hold_is_found_beside_what_is_too_large() -> None:
    """As ``extend`` would say it."""
    with pytest.raises(TypeError, match="encode"):
        find_too_large([b"x", "text"], None, None, None, 1000)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="encode"):
        find_too_large([b"x"], ["text"], None, None, 1000)  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="below -1"):
        find_too_large([b"x"], None, None, [-2], 1000)
    with pytest.raises(ConfigError, match="2 keys for 1 values"):
        find_too_large([b"x"], [b"", b""], None, None, 1000)
