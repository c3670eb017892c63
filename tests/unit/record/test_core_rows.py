"""RowEncoder: rows of Arrow arrays become the records that one would have sent one by one, each where its key or
column says."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.errors import InvalidRequestError, InvalidTimestampError, MessageTooLargeError
from pyreplog.record import RowEncoder, partition_for_key, records_of, split, validate_from_client, xxh64
from tests.oracle.xxh64 import xxh64 as slow_xxh64

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("partition", pa.int32()),
    ]
)
NOW = 1_700_000_000_000
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None, int | None]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
headers = st.lists(st.tuples(texts, st.none() | st.binary(max_size=5)), max_size=3)
rows = st.tuples(
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=40),
    st.none() | headers,
    st.none() | st.integers(0, 2**43 * 1000),
    st.none() | st.integers(0, 2),
)


def arrow(given: Sequence[Row], columns: Sequence[str] = SCHEMA.names) -> pa.RecordBatch:
    """The rows as a record batch."""
    lists: list[list[Any]] = [list(column) for column in zip(*given, strict=True)] if given else [[], [], [], [], []]
    lists[2] = [None if pairs is None else [{"key": key, "value": value} for key, value in pairs] for pairs in lists[2]]
    whole = pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(lists, SCHEMA, strict=True)], schema=SCHEMA
    )
    return whole.select(list(columns))


def decoded(batches: Sequence[tuple[int, bytes]]) -> dict[int, list[tuple[Any, ...]]]:
    """Each partition's records, from batches that a leader would take."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for partition, data in batches:
        (batch,) = split(data)
        validate_from_client(batch)
        found.setdefault(partition, []).extend(
            (r.key, r.value, list(r.headers), r.timestamp) for r in records_of(batch)
        )
    return found


def expected(given: Sequence[Row], keyless: int) -> dict[int, list[tuple[Any, ...]]]:
    """The same, one record at a time."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for key, value, pairs, timestamp, partition in given:
        if partition is None:
            partition = keyless if key is None else partition_for_key(key, 3)  # noqa: PLW2901
        found.setdefault(partition, []).append(
            (key, value, pairs or [], NOW if timestamp is None else timestamp // 1000)
        )
    return found


@given(st.lists(st.lists(rows, max_size=12), max_size=4), st.integers(200, 400), st.integers(0, 2), st.integers(0, 3))
def test_as_one_by_one(groups: list[list[Row]], target: int, keyless: int, cut: int) -> None:
    """Every row once, with all its fields, in the order of its partition, in batches of about the size asked for;
    slices are fine."""
    encoder = RowEncoder(3, target, 2000)
    batches = []
    for group in groups:
        whole = arrow(group)
        for part in (whole.slice(0, cut), whole.slice(cut)):
            batches += encoder.add(part, NOW, keyless)
    full = len(batches)
    batches += encoder.drain()
    assert decoded(batches) == expected([row for group in groups for row in group], keyless)
    assert all(len(data) <= target or len(records_of(split(data)[0])) == 1 for _, data in batches)
    assert full <= len(batches)
    assert encoder.size == 0
    assert encoder.drain() == []


@given(st.binary(max_size=100), st.integers(0, 2**64 - 1))
def test_xxh64(data: bytes, seed: int) -> None:
    """It is what its specification says, for any size and seed."""
    assert xxh64(data, seed) == slow_xxh64(data, seed)


def test_xxh64_of_the_specification() -> None:
    """Values that other implementations give: xxhsum, and the tests of python-xxhash."""
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"a") == 0xD24EC4F1A98C6E5B
    assert xxh64(b"abc") == 0x44BC2CF5AD770999
    with pytest.raises(TypeError):
        xxh64(None)  # type: ignore[arg-type]


def varint(number: int) -> bytes:
    """A record's integer."""
    number = number << 1 ^ (-1 if number < 0 else 0)
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def sized(data: bytes | None) -> bytes:
    """A record's field."""
    return varint(-1) if data is None else varint(len(data)) + data


@given(st.lists(rows, max_size=12), st.integers(200, 400), st.randoms(use_true_random=False), st.integers(0, 2**64 - 1))
def test_the_sum_of_rows(given: list[Row], target: int, chance: Random, seed: int) -> None:
    """Each row counts with the bytes of its key, value and headers, and the partition that it names; not its time,
    its order, its batch, or the partition of a row that names none."""
    wanted = 0
    for key, value, pairs, _, partition in given:
        fields = [varint(len(pairs or [])), *(sized(name.encode()) + sized(text) for name, text in pairs or [])]
        wanted += slow_xxh64(
            sized(key) + sized(value) + b"".join(fields), (seed + (0 if partition is None else partition + 1)) % 2**64
        )
    turned = [(key, value, pairs, None if time else 5, partition) for key, value, pairs, time, partition in given]
    chance.shuffle(turned)
    for rows, keyless, cut in ((given, 0, 3), (turned, 1, 5)):
        encoder = RowEncoder(3, target, 2000, seed)
        for part in (arrow(rows).slice(0, cut), arrow(rows).slice(cut)):
            encoder.add(part, NOW + keyless, keyless)
        encoder.drain()
        assert encoder.row_sum == wanted % 2**64


def test_columns_are_optional() -> None:
    """What is not there is null; text is taken for bytes; an empty batch adds nothing."""
    encoder = RowEncoder(1)
    assert encoder.add(arrow([], ["value"]), NOW, 0) == []
    encoder.add(pa.record_batch({"value": pa.array(["a", None, "ä"])}), 5, 0)
    assert decoded(encoder.drain()) == {0: [(None, b"a", [], 5), (None, None, [], 5), (None, "ä".encode(), [], 5)]}


def test_refusals_name_the_row() -> None:
    """A partition that is not there, a header without key, times before 1970 and after 9999, and a record too large
    for any batch."""
    good: Row = (b"k", b"v", None, None, None)
    for bad, kind, text in (
        (
            (b"k", b"v", None, None, 3),
            InvalidRequestError,
            "row 1 asks for partition 3; the topic has partitions 0 to 2",
        ),
        ((b"k", b"v", [(None, b"x")], None, None), InvalidRequestError, "row 1 has a header without a key"),
        ((b"k", b"v", None, -1, None), InvalidRequestError, "row 1 has a timestamp before 1970"),
        (
            (b"k", b"v", None, 10**18, None),
            InvalidTimestampError,
            "row 1: timestamp 1000000000000000 is beyond 9999-12-31",
        ),
        ((b"k", bytes(3000), None, None, None), MessageTooLargeError, "row 1 takes a batch of 30"),
    ):
        with pytest.raises(kind, match=text):
            RowEncoder(3, 200, 2000).add(arrow([good, bad]), NOW, 0)  # type: ignore[list-item]


def test_a_header_key_in_bytes_is_utf_8() -> None:
    """Bytes are taken for text where they are; where not, nobody could read the record."""
    headers = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))

    def with_key(key: bytes) -> pa.RecordBatch:
        whole = arrow([(b"k", b"v", None, None, None)])
        return whole.set_column(
            whole.schema.get_field_index("headers"), "headers", pa.array([[{"key": key, "value": b"x"}]], headers)
        )

    encoder = RowEncoder(1)
    encoder.add(with_key("ä".encode()), 5, 0)
    with pytest.raises(InvalidRequestError, match="row 0 has a header whose key is not UTF-8"):
        encoder.add(with_key(b"\xc3"), 5, 0)
    assert decoded(encoder.drain()) == {0: [(b"k", b"v", [("ä", b"x")], 5)]}


def test_the_fields_of_a_header_are_found_by_name() -> None:
    """Whichever comes first."""
    turned = pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())]))
    given = pa.record_batch({"value": pa.array([b"v"]), "headers": pa.array([[{"value": b"x", "key": "h"}]], turned)})
    encoder = RowEncoder(1)
    encoder.add(given, 5, 0)
    assert decoded(encoder.drain()) == {0: [(None, b"v", [("h", b"x")], 5)]}


def test_types_are_checked() -> None:
    """Other columns and other types are refused by name."""
    for batch, text in (
        (pa.record_batch({"value": pa.array([1])}), "column value is 'l'"),
        (pa.record_batch({"other": pa.array([1])}), "column other is none of"),
        (pa.record_batch({"timestamp": pa.array([1])}), "timestamp"),
        (pa.record_batch({"partition": pa.array([1])}), "column partition must be int32"),
        (pa.record_batch({"headers": pa.array(["x"])}), "list of structs"),
    ):
        with pytest.raises(TypeError, match=text):
            RowEncoder(1).add(batch, NOW, 0)
    with pytest.raises(ValueError, match="partition 1"):
        RowEncoder(1).add(arrow([]), NOW, 1)
