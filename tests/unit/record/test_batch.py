"""Batches in Python's terms: splitting, reading, rewriting, and what a leader lets in."""

from __future__ import annotations

import pytest

from pyreplog.errors import CorruptError, InvalidRequestError, InvalidTimestampError
from pyreplog.record import (
    CODEC_NAMES,
    BatchBuilder,
    RecordBatch,
    compress,
    crc32c,
    payload_of,
    recompress,
    records_of,
    set_append_time,
    split,
    stamp,
    validate_from_client,
)
from pyreplog.values import TimestampType

COMMIT = bytes.fromhex(
    "00000000000000c80000004200000009023ba772d40030000000000000018bcfe56fd00000018bcfe56fd0000000000000004d0003ffffffff0000000120000000080000"
    "00010c00000000000c00"
)
EMPTY = bytes.fromhex(
    "00000000000000640000003100000009029159a5d1001000000004ffffffffffffffff0000018bcfe56be7000000000000004d00030000000500000000"
)


def make(count: int = 3, codec: int = 0, **options: object) -> bytes:
    """A batch of ``count`` records."""
    builder = BatchBuilder()
    for number in range(count):
        assert builder.append(b"value %d" % number, b"key", [("h", None)], 1000 + number)
    if codec:
        view = builder.payload()
        options["payload"] = compress(codec, view)
        view.release()
    return bytes(builder.finish(codec=codec, **options))  # type: ignore[arg-type]


def test_a_buffer_is_split_into_its_batches() -> None:
    """Batches one after another come apart; nothing else does."""
    parts = [make(1), make(4, 4), make(2)]
    assert [bytes(batch.data) for batch in split(b"".join(parts))] == parts
    assert split(b"") == []
    whole = b"".join(parts)
    for size in range(1, len(whole)):
        if size in (len(parts[0]), len(parts[0]) + len(parts[1])):
            continue
        with pytest.raises(CorruptError):
            split(whole[:size])
    with pytest.raises(CorruptError):
        split(whole + b"\0")


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_records_are_read_through_any_codec(codec: int) -> None:
    """The records of a range, with topic and partition; control and empty batches have none for readers."""
    batch = RecordBatch(make(5, codec))
    assert (payload_of(batch) is None) == (codec == 0)
    records = records_of(batch, "topic", 7, 1, 4)
    assert [(record.topic, record.partition, record.offset, record.value) for record in records] == [
        ("topic", 7, offset, b"value %d" % offset) for offset in (1, 2, 3)
    ]


def test_control_and_empty_batches_hold_nothing_for_readers() -> None:
    """Transaction markers and batches that compaction emptied count as offsets only."""
    assert RecordBatch(COMMIT).is_control
    assert records_of(RecordBatch(COMMIT)) == []
    assert records_of(RecordBatch(EMPTY)) == []
    assert RecordBatch(EMPTY).next_offset == 105


@pytest.mark.parametrize("target", range(5), ids=CODEC_NAMES)
@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_recompression_changes_the_codec_alone(codec: int, target: int) -> None:
    """The same records and header fields, in another codec, with a checksum that holds."""
    before = RecordBatch(
        make(20, codec, producer_id=9, producer_epoch=1, base_sequence=4, leader_epoch=3, base_offset=77)
    )
    after = RecordBatch(recompress(before, target))
    after.check_crc()
    assert after.codec == target
    for name in (
        "base_offset",
        "last_offset",
        "leader_epoch",
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "record_count",
    ):
        assert getattr(after, name) == getattr(before, name)
    assert records_of(after) == records_of(before)


def test_append_time_is_set_in_place() -> None:
    """Bit, timestamp and checksum change; every record reads back with it."""
    data = bytearray(make(3))
    set_append_time(memoryview(data), 123456)
    batch = RecordBatch(data)
    batch.check_crc()
    assert batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in records_of(batch)] == [123456] * 3


def test_a_leader_lets_in_what_a_client_may_send() -> None:
    """Plain, compressed and idempotent batches."""
    for codec in range(5):
        validate_from_client(RecordBatch(make(3, codec)))
    validate_from_client(RecordBatch(make(1, producer_id=5, producer_epoch=0, base_sequence=0)))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (COMMIT, "control"),
        (make(1, base_offset=5), "base offset 5"),
        (make(1, transactional=True, producer_id=1, producer_epoch=0, base_sequence=0), "transactions"),
    ],
)
def test_a_leader_refuses_what_a_client_may_not_send(data: bytes, words: str) -> None:
    """Markers, transactions, offsets of its own: well formed, and not allowed."""
    with pytest.raises(InvalidRequestError, match=words):
        validate_from_client(RecordBatch(data))


def test_a_client_may_not_claim_the_log_s_append_time() -> None:
    """Kafka's rule: who reads it may believe that it is the leader's."""
    data = bytearray(make(1))
    set_append_time(memoryview(data), 123456)
    with pytest.raises(InvalidTimestampError, match="only the leader may set"):
        validate_from_client(RecordBatch(data))


def test_a_leader_refuses_empty_and_sparse_batches() -> None:
    """Without records, or with holes between the offsets, a batch is what only compaction makes."""
    empty = bytearray(EMPTY)
    stamp(empty, 0, -1)
    with pytest.raises(InvalidRequestError):
        validate_from_client(RecordBatch(empty))
    sparse = bytearray(make(2))
    sparse[23:27] = (5).to_bytes(4, "big")  # last offset delta
    sparse = _with_checksum(sparse)
    with pytest.raises((InvalidRequestError, CorruptError)):
        validate_from_client(RecordBatch(sparse))


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_a_leader_refuses_every_flipped_bit(codec: int) -> None:
    """No flipped bit under the checksum, in magic or length passes."""
    good = make(2, codec)
    for position in [*range(8, 12), *range(16, len(good))]:
        flipped = bytearray(good)
        flipped[position] ^= 1 << position % 8
        with pytest.raises(CorruptError):
            validate_from_client(RecordBatch(flipped))


def test_a_leader_refuses_records_that_contradict_their_batch() -> None:
    """With a checksum that holds, a wrong count, codec or broken records are refused all the same."""
    for position, value in ((57, b"\0\0\0\5"), (57, b"\xff\xff\xff\xff"), (21, b"\0\5"), (21, b"\0\4"), (61, b"\x7f")):
        bad = bytearray(make(2))
        bad[position : position + len(value)] = value
        with pytest.raises((CorruptError, InvalidRequestError)):
            validate_from_client(RecordBatch(_with_checksum(bad)))


def _with_checksum(data: bytearray) -> bytearray:
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return data
