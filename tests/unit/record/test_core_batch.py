"""RecordBatch and Record: what Kafka wrote reads as Kafka reads it."""

from __future__ import annotations

import gc
import gzip
import struct
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog._core import HEADER_SIZE, LOG_OVERHEAD, BatchBuilder, Record, RecordBatch, stamp
from pyreplog.errors import CorruptError
from pyreplog.values import TimestampType
from tests.interop.golden import vectors
from tests.oracle import batch as oracle

INT_MAX = 2**31 - 1


def as_tuples(records: list[Record]) -> list[oracle.OneRecord]:
    """What the twin makes of the same records."""
    return [oracle.OneRecord(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]


def rebuilt(data: bytes, **changes: int) -> bytes:
    """The same records under a header with other fields and a right CRC."""
    batch, size = oracle.decode_header(data)
    for name, value in changes.items():
        setattr(batch, name, value)
    return oracle.encode_header(batch, data[HEADER_SIZE:size])


# -- golden vectors --


def test_a1_data() -> None:
    """Every field, record, null and header of a batch by a transactional producer; the sequence wraps at
    INT_MAX."""
    batch = RecordBatch(vectors.A1_DATA)
    batch.check_crc()
    batch.check_records()
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (1000, 1002, 1003)
    assert (batch.size, batch.leader_epoch, batch.record_count, batch.attributes, batch.codec) == (92, 5, 3, 0x10, 0)
    assert (batch.is_transactional, batch.is_control, batch.delete_horizon_ms) == (True, False, None)
    assert (batch.base_timestamp, batch.max_timestamp) == (1700000000000, 1700000000100)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (
        4294967296,
        7,
        INT_MAX,
        1,
    )
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert batch.crc == 0xD7D8F280
    assert batch.is_dense()
    assert as_tuples(batch.records()) == [
        oracle.OneRecord(1000, 1700000000000, b"a", b"1"),
        oracle.OneRecord(1001, 1700000000100, None, b"22"),
        oracle.OneRecord(1002, 1699999999999, b"", None, (("h", None), ("", b""))),
    ]


def test_a2_nulls() -> None:
    """Nothing set: null key and value, timestamp 0, no producer."""
    batch = RecordBatch(vectors.A2_NULLS)
    batch.check_crc()
    assert (batch.size, batch.leader_epoch, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (
        68,
        -1,
        -1,
        -1,
        -1,
    )
    assert batch.last_sequence == -1
    [record] = batch.records()
    assert (record.offset, record.timestamp, record.key, record.value, record.headers) == (0, 0, None, None, ())
    assert record.key_view is None
    assert record.value_view is None


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a3_codecs(codec: int) -> None:
    """A compressed batch names its codec, checks its CRC over the stored bytes, and reads from the decompressed
    ones."""
    batch = RecordBatch(vectors.A3_BY_CODEC[codec])
    batch.check_crc()
    assert batch.codec == codec
    assert as_tuples(batch.records(vectors.A3_RECORD)) == [oracle.OneRecord(0, 0, b"k", b"v")]
    batch.check_records(vectors.A3_RECORD)
    assert batch.is_dense(payload=vectors.A3_RECORD)
    assert batch.find_timestamp(0, payload=vectors.A3_RECORD) == (0, 0)
    for call in (batch.records, batch.check_records, batch.is_dense, lambda: batch.find_timestamp(0)):
        with pytest.raises(ValueError, match="compressed"):
            call()
    if codec == 1:
        assert gzip.decompress(batch.payload) == vectors.A3_RECORD


def test_a4_markers() -> None:
    """Transaction markers are control batches of one record and 78 bytes."""
    for data, kind in ((vectors.A4_ABORT, 0), (vectors.A4_COMMIT, 1)):
        batch = RecordBatch(data)
        batch.check_crc()
        batch.check_records()
        assert (batch.size, batch.is_control, batch.is_transactional, batch.producer_id) == (78, True, True, 77)
        [record] = batch.records()
        assert record.key == struct.pack(">hh", 0, kind)
        assert record.value == struct.pack(">hi", 0, 12)


def test_a5_empty() -> None:
    """A batch that the cleaner emptied keeps its offsets, and has no records."""
    batch = RecordBatch(vectors.A5_EMPTY)
    batch.check_crc()
    batch.check_records()
    assert (batch.size, batch.base_offset, batch.last_offset, batch.record_count) == (61, 100, 104, 0)
    assert (batch.base_timestamp, batch.max_timestamp) == (-1, 1700000000999)
    assert (batch.base_sequence, batch.last_sequence) == (5, 9)
    assert batch.records() == []
    assert bytes(batch.payload) == b""
    assert batch.find_timestamp(0) is None
    assert not batch.is_dense()


def test_a6_delete_horizon() -> None:
    """A delete horizon takes the place of the base timestamp, and the record still has its own."""
    batch = RecordBatch(vectors.A6_HORIZON)
    batch.check_crc()
    batch.check_records()
    assert batch.delete_horizon_ms == 1700009999999
    assert (batch.base_offset, batch.last_offset) == (100, 109)
    assert as_tuples(batch.records()) == [oracle.OneRecord(100, 1700000000000, b"k", None)]
    assert not batch.is_dense()


@pytest.mark.parametrize("data", [vectors.A13_MAGIC_0, vectors.A13_MAGIC_1])
def test_a13_old_formats_are_refused(data: bytes) -> None:
    """Formats 0 and 1 are refused by name, however many bytes follow."""
    for tail in (b"", bytes(200)):
        with pytest.raises(CorruptError, match="unsupported magic"):
            RecordBatch(data + tail)


@pytest.mark.parametrize("data", vectors.PLAIN)
def test_agrees_with_the_twin(data: bytes) -> None:
    """The twin reads the same records, and writes the same bytes again."""
    batch, size = oracle.decode(data)
    assert size == len(data)
    assert as_tuples(RecordBatch(data).records()) == batch.records
    assert oracle.encode_header(batch, data[HEADER_SIZE:]) == data


# -- single rules --


def test_position_and_neighbours() -> None:
    """A batch is read where it stands, whatever lies before and behind; errors name the byte in the buffer."""
    data = vectors.A1_DATA + vectors.A2_NULLS + b"garbage"
    assert RecordBatch(data, 0).size == 92
    second = RecordBatch(data, 92)
    second.check_crc()
    assert bytes(second.data) == vectors.A2_NULLS
    assert bytes(second.payload) == vectors.A2_NULLS[61:]
    with pytest.raises(CorruptError) as caught:
        RecordBatch(data, 160)
    assert caught.value.position == 160
    with pytest.raises(CorruptError):
        RecordBatch(data, len(data))
    with pytest.raises(CorruptError):
        RecordBatch(data, len(data) + 1)
    with pytest.raises(ValueError, match="negative"):
        RecordBatch(data, -1)
    bad = bytearray(data)
    bad[92 + 40] ^= 1
    with pytest.raises(CorruptError, match="checksum") as caught:
        RecordBatch(bad, 92).check_crc()
    assert caught.value.position == 92


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 14, 48, INT_MAX - 11, INT_MAX])
def test_absurd_lengths(length: int) -> None:
    """A length below a header, or beyond what a segment may hold, is refused whatever follows."""
    data = bytearray(vectors.A1_DATA)
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptError, match="length"):
        RecordBatch(data)


def test_absurd_header_fields() -> None:
    """Negative counts and offsets, and offsets beyond 64 bits, are refused in the header already."""
    for changes in (
        {"record_count": -1},
        {"base_offset": -1},
        {"last_offset_delta": -1},
        {"base_offset": 2**63 - 1},
        {"base_offset": 2**63 - 3, "last_offset_delta": 2},
    ):
        with pytest.raises(CorruptError):
            RecordBatch(rebuilt(vectors.A1_DATA, **changes))
    largest = RecordBatch(rebuilt(vectors.A1_DATA, base_offset=2**63 - 4))
    assert (largest.last_offset, largest.next_offset) == (2**63 - 2, 2**63 - 1)


def test_declared_count() -> None:
    """A count above or below the records there is refused, and so are bytes behind them."""
    for count in (0, 1, 2, 4, 1000, INT_MAX):
        batch = RecordBatch(rebuilt(vectors.A1_DATA, record_count=count))
        batch.check_crc()
        with pytest.raises(CorruptError):
            batch.check_records()
        with pytest.raises(CorruptError):
            batch.records()
    compressed = RecordBatch(vectors.A3_BY_CODEC[1])
    for payload in (b"", vectors.A3_RECORD + b"\0", vectors.A3_RECORD * 2, vectors.A3_RECORD[:-1]):
        with pytest.raises(CorruptError):
            compressed.check_records(payload)


def test_offset_deltas() -> None:
    """Deltas must rise and stay within the last one; gaps are legal but not dense."""

    def batch(*deltas: int, last: int) -> RecordBatch:
        header = oracle.Batch(base_offset=10, last_offset_delta=last, record_count=len(deltas))
        records = (oracle.encode_record(oracle.OneRecord(10 + d, -1, None, b"v"), 10, -1) for d in deltas)
        return RecordBatch(oracle.encode_header(header, b"".join(records)))

    assert batch(0, 1, 2, last=2).is_dense()
    for gaps in (batch(0, 1, 2, last=3), batch(1, 2, last=2), batch(0, 2, last=2), batch(5, last=9)):
        gaps.check_records()
        assert not gaps.is_dense()
    assert [r.offset for r in batch(1, 5, last=7).records()] == [11, 15]
    for wrong in (batch(0, 0, last=2), batch(1, 0, last=2), batch(0, 3, last=2), batch(-1, 0, last=2)):
        with pytest.raises(CorruptError, match="order"):
            wrong.check_records()
        with pytest.raises(CorruptError, match="order"):
            wrong.records()


@pytest.mark.parametrize(
    ("base", "timestamps", "greatest"),
    [
        (1000, [1000, 3000, 2000], 3000),
        (-1, [-1, -1], -1),
        (-1, [-1, 0], 0),
        (0, [0, 2**63 - 1], 2**63 - 1),
        (2**63 - 1, [2**63 - 1, -1], 2**63 - 1),
    ],
)
def test_the_greatest_timestamp_is_that_of_the_records(base: int, timestamps: list[int], greatest: int) -> None:
    """Whatever the header says; with the log's append time it is the header's."""
    records = b"".join(
        oracle.encode_record(oracle.OneRecord(i, time, None, b"v"), 0, base) for i, time in enumerate(timestamps)
    )
    fields = oracle.Batch(
        base_timestamp=base, max_timestamp=17, last_offset_delta=len(timestamps) - 1, record_count=len(timestamps)
    )
    assert RecordBatch(oracle.encode_header(fields, records)).examine() == (True, greatest)
    fields.last_offset_delta += 1
    assert RecordBatch(oracle.encode_header(fields, records)).examine() == (False, greatest)
    fields.attributes = 8
    assert RecordBatch(oracle.encode_header(fields, records)).examine() == (False, 17)
    fields.record_count += 1
    with pytest.raises(CorruptError):
        RecordBatch(oracle.encode_header(fields, records)).examine()


@pytest.mark.parametrize(
    ("base", "delta", "last"), [(0, 0, 0), (INT_MAX, 0, INT_MAX), (INT_MAX, 1, 0), (INT_MAX - 1, 3, 1), (-1, 5, -1)]
)
def test_sequences_wrap(base: int, delta: int, last: int) -> None:
    """INT_MAX is followed by 0; no sequence stays no sequence."""
    assert RecordBatch(rebuilt(vectors.A5_EMPTY, base_sequence=base, last_offset_delta=delta)).last_sequence == last


def test_log_append_time() -> None:
    """With the broker's time every record has the batch's max timestamp."""
    batch = RecordBatch(rebuilt(vectors.A1_DATA, attributes=0x18, max_timestamp=1800000000000))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [r.timestamp for r in batch.records()] == [1800000000000] * 3
    assert all(r.timestamp_type is TimestampType.LOG_APPEND_TIME for r in batch.records())
    assert batch.find_timestamp(1800000000000) == (1000, 1800000000000)


def test_high_attribute_bits_are_ignored() -> None:
    """Bits nobody has defined do not disturb reading."""
    batch = RecordBatch(rebuilt(vectors.A2_NULLS, attributes=-128))
    assert (batch.attributes, batch.codec, batch.is_control, len(batch.records())) == (-128, 0, False, 1)


def test_stamp() -> None:
    """Base offset and leader epoch are set in place; the CRC stays right."""
    data = bytearray(vectors.A1_DATA)
    stamp(data, 2**40, 77)
    batch = RecordBatch(data)
    batch.check_crc()
    assert (batch.base_offset, batch.leader_epoch, batch.last_offset) == (2**40, 77, 2**40 + 2)
    with pytest.raises(BufferError):
        stamp(bytes(data), 0, 0)
    with pytest.raises(CorruptError):
        stamp(bytearray(60), 0, 0)
    with pytest.raises(ValueError, match="negative"):
        stamp(data, -1, 0)
    with pytest.raises(OverflowError):
        stamp(data, 0, 2**31)


def test_record_ranges() -> None:
    """``records`` gives those within [start, end), named as asked for."""
    batch = RecordBatch(vectors.A1_DATA)
    assert [r.offset for r in batch.records(start_offset=1001)] == [1001, 1002]
    assert [r.offset for r in batch.records(end_offset=1002)] == [1000, 1001]
    assert [r.offset for r in batch.records(start_offset=1001, end_offset=1002)] == [1001]
    assert batch.records(end_offset=1000) == []
    assert batch.records(start_offset=5000) == []
    record = batch.records(topic="t", partition=3)[1]
    assert (record.topic, record.partition, record.leader_epoch) == ("t", 3, 5)
    assert batch.records()[0].topic == ""
    assert batch.records()[0].partition == -1


def test_find_timestamp() -> None:
    """The first record at or after an offset that is young enough, by its own timestamp."""
    batch = RecordBatch(vectors.A1_DATA)
    assert batch.find_timestamp(0) == (1000, 1700000000000)
    assert batch.find_timestamp(1700000000001) == (1001, 1700000000100)
    assert batch.find_timestamp(1700000000101) is None
    assert batch.find_timestamp(0, 1002) == (1002, 1699999999999)
    assert batch.find_timestamp(1700000000000, start_offset=1002) is None


def test_views_keep_the_bytes_alive() -> None:
    """A record, and a view of it, outlive the names of batch and buffer; a writable buffer stays pinned as long."""
    data = bytearray(vectors.A1_DATA)
    record = RecordBatch(data).records()[1]
    view = record.value_view
    assert view is not None
    assert view.readonly
    with pytest.raises(BufferError):
        data.append(0)
    del record
    gc.collect()
    assert bytes(view) == b"22"
    del view
    gc.collect()
    data.append(0)


def test_records_compare_by_content() -> None:
    """Equal content is equal wherever it lies; any difference is a difference; equal records hash alike."""
    one = RecordBatch(vectors.A1_DATA).records(topic="t", partition=0)
    two = RecordBatch(b"x" + vectors.A1_DATA, 1).records(topic="t", partition=0)
    assert one == two
    assert [hash(r) for r in one] == [hash(r) for r in two]
    assert len({*one, *two}) == 3
    assert one[0] != one[1]
    assert one[0] != RecordBatch(vectors.A1_DATA).records(topic="u", partition=0)[0]
    assert one[0] != "something else"
    assert "offset=1000" in repr(one[0])
    assert "record_count=3" in repr(RecordBatch(vectors.A1_DATA))


def test_a_bare_record_is_harmless() -> None:
    """One that nobody filled never crashes, and is one of those that may still be made."""
    bare = Record.__new__(Record)
    assert (bare.topic, bare.offset, bare.key, bare.value, bare.headers, bare.key_view) == ("", 0, None, None, (), None)
    assert bare == Record.__new__(Record)
    assert repr(bare)
    assert bare.__reduce__()
    bare.__init__(b"v")
    assert bare == Record(b"v")


def test_immutable() -> None:
    """Neither batches nor records take new values."""
    batch = RecordBatch(vectors.A1_DATA)
    for target, name in ((batch, "base_offset"), (batch.records()[0], "offset"), (batch, "anything")):
        with pytest.raises(AttributeError):
            setattr(target, name, 1)
    assert batch.data.readonly
    with pytest.raises(TypeError):
        weakref.ref(batch)


def test_wrong_arguments() -> None:
    """What is no buffer, number or name is a TypeError before anything is read."""
    with pytest.raises(TypeError):
        RecordBatch("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        RecordBatch(None)  # type: ignore[arg-type]
    batch = RecordBatch(vectors.A1_DATA)
    with pytest.raises(TypeError):
        batch.records(topic=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        batch.records("text")  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        RecordBatch(memoryview(bytearray(200))[::2])


def test_header_sizes() -> None:
    """The two sizes that others compute with."""
    assert (HEADER_SIZE, LOG_OVERHEAD) == (61, 12)


@pytest.mark.parametrize("size", [5000, 6000, 200_000])
def test_large_batches(size: int) -> None:
    """Paths that release the GIL give the same answers."""
    builder = BatchBuilder()
    builder.append(bytes(size), b"k", (), 7)
    data = builder.finish()
    batch = RecordBatch(data)
    batch.check_crc()
    batch.check_records()
    data[-10] ^= 1
    with pytest.raises(CorruptError, match="checksum"):
        batch.check_crc()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_timestamp_arithmetic_wraps(deltas: list[int]) -> None:
    """Any delta on any base gives some int64, as Java's addition does."""
    header = oracle.Batch(base_timestamp=2**63 - 1, last_offset_delta=len(deltas) - 1, record_count=len(deltas))
    payload = b"".join(oracle.encode_record(oracle.OneRecord(i, d, None, None), 0, 0) for i, d in enumerate(deltas))
    records = RecordBatch(oracle.encode_header(header, payload)).records()
    assert [r.timestamp for r in records] == [(2**63 - 1 + d + 2**63) % 2**64 - 2**63 for d in deltas]
