"""Message sets of magic 0 and 1 become batches with the same records."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreplog.errors import CorruptError
from pyreplog.record import Record, compress, convert_legacy, legacy_batches, records_of, shallow_messages
from pyreplog.values import TimestampType
from tests.interop.golden.vectors import A2_NULLS, A13_MAGIC_0, A13_MAGIC_1
from tests.oracle.legacy import Old, message, wrapper


def read(data: bytes, start: int = 0, end: int = 2**63 - 1) -> list[Record]:
    """The records that ``data`` becomes."""
    found: list[Record] = []
    for batch in legacy_batches(convert_legacy(memoryview(data), start, end)):
        batch.check_crc()
        batch.check_records()
        assert batch.leader_epoch == -1
        found += records_of(batch)
    return found


def test_golden_vectors() -> None:
    """What Kafka's Java code wrote: one message of magic 0, one of magic 1."""
    (old,) = read(A13_MAGIC_0)
    assert (old.offset, old.key, old.value, old.timestamp, old.timestamp_type) == (
        7,
        b"k",
        b"v",
        -1,
        TimestampType.NONE,
    )
    (one,) = read(A13_MAGIC_1)
    assert (one.offset, one.key, one.value, one.timestamp, one.timestamp_type) == (
        7,
        b"k",
        b"v",
        1_700_000_000_000,
        TimestampType.CREATE_TIME,
    )
    assert message(0, 7, -1, b"k", b"v") == A13_MAGIC_0
    assert message(1, 7, 1_700_000_000_000, b"k", b"v") == A13_MAGIC_1
    assert one.headers == ()
    assert [m.offset for m in shallow_messages(memoryview(A13_MAGIC_0 + A13_MAGIC_1 + A2_NULLS))[0]] == [7, 7]


FIELD = st.one_of(st.none(), st.binary(max_size=12))
SETS = st.lists(
    st.tuples(
        st.integers(0, 3),  # codec
        st.lists(
            st.tuples(st.integers(1, 3), st.integers(-1, 50), FIELD, FIELD), min_size=1, max_size=6
        ),  # step, timestamp, key, value
        st.booleans(),  # log append time
    ),
    max_size=6,
)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1), SETS, st.integers(0, 40), st.integers(0, 40))
def test_any_message_set(
    magic: int, sets: list[tuple[int, list[tuple[int, int, bytes | None, bytes | None]], bool]], low: int, size: int
) -> None:
    """Whatever is in it, plain or compressed, with gaps, in either time: the records come out as they went in, in
    any range."""
    data = b""
    expected: list[Old] = []
    offset = 4
    for codec, fields, append in sets:
        offsets = list(accumulate((step for step, *_ in fields), initial=offset))[1:]
        offset = offsets[-1]
        records = [
            Old(at, timestamp if magic else -1, key, value)
            for at, (_, timestamp, key, value) in zip(offsets, fields, strict=True)
        ]
        append = append and magic == 1  # noqa: PLW2901
        if codec:
            data += wrapper(magic, codec, records, 77 if append else -1, bad_lz4=magic == 0 and codec == 3)
        else:
            for record in records:
                data += message(
                    magic,
                    record.offset,
                    77 if append else record.timestamp,
                    record.key,
                    record.value,
                    8 if append else 0,
                )
        expected += [record._replace(timestamp=77) if append else record for record in records]
    found = read(data)
    assert [Old(record.offset, record.timestamp, record.key, record.value) for record in found] == expected
    for one in found:
        kind = (
            TimestampType.NONE
            if magic == 0
            else TimestampType.LOG_APPEND_TIME
            if one.timestamp == 77
            else TimestampType.CREATE_TIME
        )
        assert one.timestamp_type is kind
    high = low + size
    assert [record.offset for record in read(data, low, high)] == [
        old.offset for old in expected if low <= old.offset < high
    ]


def test_the_quirk_of_an_outer_offset_of_zero() -> None:
    """Some early clients left the wrapper's offset 0: the inner ones then count from 0."""
    inner = b"".join(message(1, number, 5, None, b"%d" % number) for number in range(3))
    assert [record.offset for record in read(message(1, 0, 5, None, compress(1, inner), 1))] == [0, 1, 2]


@pytest.mark.parametrize(
    "data",
    [
        message(1, 5, 1, None, compress(1, message(0, 0, -1, None, b"x")), 1),
        message(1, 5, 1, None, compress(1, message(1, 0, 1, None, compress(1, b""), 1)), 1),
        message(1, 5, 1, None, None, 1),
        message(1, 5, 1, None, b"", 1),
        message(1, 5, 1, None, b"no gzip", 1),
        message(1, 5, 1, None, compress(1, b""), 1),
        message(1, 5, 1, None, compress(1, message(1, 0, 1, None, b"x")[:-1]), 1),
        message(1, 5, 1, None, compress(1, message(1, 0, 1, None, b"x") + A2_NULLS), 1),
        message(1, 5, 1, None, compress(4, message(1, 0, 1, None, b"x")), 4),
        message(1, 2, 1, None, compress(1, message(1, 1, 1, None, b"x") + message(1, 1, 1, None, b"x")), 1),
        message(1, 2, 1, None, compress(1, message(1, 3, 1, None, b"x") + message(1, 9, 1, None, b"x")), 1),
        message(1, 2, -2, None, b"x"),
    ],
)
def test_malformed_sets(data: bytes) -> None:
    """Another magic inside, a set in a set, none at all, a broken stream, bytes behind the last message, zstd,
    offsets that do not rise or are negative, a timestamp below -1: each a CorruptError."""
    with pytest.raises(CorruptError):
        read(data)


def test_every_flipped_bit_is_noticed() -> None:
    """A flipped bit anywhere but in the offset is noticed; cut anywhere, the message is not there."""
    good = wrapper(1, 2, [Old(4, 9, b"k", b"v"), Old(5, 10, None, b"w")])
    for bit in range(64, len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        try:
            assert shallow_messages(memoryview(bytes(bad)))[0] == []
        except CorruptError:
            continue
    for size in range(len(good)):
        assert shallow_messages(memoryview(good[:size]))[0] == []


def test_hostile_bytes() -> None:
    """Random bytes give messages or CorruptError, nothing else, and never more than there is."""
    chance = random.Random(3)
    good = message(0, 1, -1, b"k", b"v") + wrapper(1, 3, [Old(4, 9, b"k", b"v")]) + message(1, 6, 3, None, None)
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 127, 128, 255))
        try:
            _, size = shallow_messages(memoryview(bytes(data)))
            assert size <= len(data)
            read(bytes(data))
        except CorruptError:
            continue
