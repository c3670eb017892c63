"""Edge cases 10 to 23: record batches, their builder, control records."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import pyreplog
from pyreplog._core import SegmentScanner
from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, InvalidRequestError
from pyreplog.log import Log
from pyreplog.log.producers import ProducerTable
from pyreplog.record import (
    BatchBuilder,
    RecordBatch,
    compress,
    control_records,
    end_marker,
    records_of,
    set_append_time,
    stamp,
    validate_from_client,
)
from pyreplog.values import TimestampType
from tests.interop.edges.support import INT32_MAX, rebuilt, with_records
from tests.interop.golden import vectors
from tests.oracle import batch as oracle
from tests.unit.log.conftest import Place
from tests.unit.log.producing import produced
from tests.unit.log.support import CLOCK, batch, contents, create
from tests.unit.record.test_core_builder import Outcome


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_e010_a_wrong_count(codec: int) -> None:
    """A declared count above or below the records there is refused, plain and compressed, by whoever reads and by a
    leader."""
    whole, size = oracle.decode_header(bytes(batch(3)))
    plain = bytes(batch(3))[61:size]
    payload = bytes(compress(codec, plain)) if codec else plain
    for count in (0, 1, 2, 3, 4, 1000, INT32_MAX):
        whole.record_count, whole.attributes = count, codec
        found = RecordBatch(oracle.encode_header(whole, payload))
        found.check_crc()
        if count == 3:
            assert len(records_of(found)) == 3
            validate_from_client(found)
            continue
        with pytest.raises(CorruptError):
            found.check_records(plain)
        with pytest.raises(CorruptError):
            found.records(plain)
        with pytest.raises((CorruptError, InvalidRequestError)):
            validate_from_client(found)


@pytest.mark.parametrize("data", vectors.WHOLE)
def test_e011_any_byte_flipped(data: bytes) -> None:
    """Any other byte from 21 on makes a batch invalid; another base offset or leader epoch does not."""
    RecordBatch(data).check_crc()
    for position in range(21, len(data)):
        for mask in (0x01, 0x80, 0xFF):
            flipped = bytearray(data)
            flipped[position] ^= mask
            with pytest.raises(CorruptError):
                RecordBatch(flipped).check_crc()
    for position in (*range(1, 8), *range(12, 16)):
        flipped = bytearray(data)
        flipped[position] ^= 0x55
        RecordBatch(flipped).check_crc()


def test_e012_smaller_than_a_header() -> None:
    """A batch of fewer than 61 bytes is corrupt, however many bytes follow, and whatever its checksum says."""
    data = bytearray(vectors.A1_DATA)
    for length in (-(2**31), -1, 0, 13, 14, 47, 48):
        struct.pack_into(">i", data, 8, length)
        end = max(12 + length, 21)
        struct.pack_into(">I", data, 17, oracle.crc32c_table(bytes(data[21:end])))
        with pytest.raises(CorruptError, match="length"):
            RecordBatch(data)
    for size in range(61):
        with pytest.raises(CorruptError):
            RecordBatch(vectors.A5_EMPTY[:size])
    assert RecordBatch(vectors.A5_EMPTY).size == 61


def test_e013_offset_and_epoch_set_in_place() -> None:
    """Setting base offset and leader epoch moves the last offset along, and leaves the checksum right and every
    other byte alone."""
    for number, data in enumerate(vectors.WHOLE):
        stamped = bytearray(data)
        delta = RecordBatch(data).last_offset - RecordBatch(data).base_offset
        for base, epoch in ((0, 0), (2**40, 77), (2**62, INT32_MAX)):
            stamp(stamped, base, epoch)
            found = RecordBatch(stamped)
            found.check_crc()
            assert (found.base_offset, found.leader_epoch, found.last_offset) == (base, epoch, base + delta), number
            assert bytes(stamped[8:12] + stamped[16:]) == data[8:12] + data[16:]


def test_e014_the_logs_append_time(place: Place) -> None:
    """With LogAppendTime every record reads back with the time of appending, its own whatever it was; nothing else
    changes."""
    data = bytearray(batch(3, timestamp=5))
    set_append_time(memoryview(data), 123456)
    found = RecordBatch(data)
    found.check_crc()
    assert [(one.timestamp, one.timestamp_type) for one in records_of(found)] == [
        (123456, TimestampType.LOG_APPEND_TIME)
    ] * 3
    assert (found.base_timestamp, found.max_timestamp) == (5, 123456)
    log = create(place.disk, place.of("t-0"), LogConfig(message_timestamp_type="LogAppendTime"))
    for trusted, codec in ((False, 0), (True, 0), (False, 4)):
        assert log.append_as_leader(batch(3, timestamp=5, codec=codec), 0, trusted=trusted).timestamp == CLOCK.wall_ms()
    assert {(one.timestamp, one.timestamp_type) for one in contents(log)} == {
        (CLOCK.wall_ms(), TimestampType.LOG_APPEND_TIME)
    }
    assert [one.key for one in contents(log)] == [b"k0", b"k1", b"k2"] * 3
    log.close(clean=True)


@pytest.mark.parametrize(
    ("base", "count", "last"),
    [(0, 1, 0), (INT32_MAX, 1, INT32_MAX), (INT32_MAX, 2, 0), (INT32_MAX - 1, 4, 1), (INT32_MAX - 2, 2, INT32_MAX - 1)],
)
def test_e015_sequences_wrap(base: int, count: int, last: int) -> None:
    """Behind the greatest sequence comes 0: forwards from a batch's first to its last, backwards from its last, as
    kept, to its first."""
    found = RecordBatch(produced(base, count))
    assert (found.base_sequence, found.last_sequence) == (base, last)
    table = ProducerTable()
    table.note(found, 0)
    entry = table.get(7)
    assert entry is not None
    assert (entry.last_sequence, entry.batches[-1].first_sequence) == (last, base)
    # The next one follows, and nothing else does.
    table.check(RecordBatch(produced(0 if last == INT32_MAX else last + 1)))
    with pytest.raises(pyreplog.PyreplogError):
        table.check(RecordBatch(produced(last + 2 if last < INT32_MAX - 1 else 5)))
    assert RecordBatch(rebuilt(vectors.A5_EMPTY, base_sequence=-1, last_offset_delta=5)).last_sequence == -1


def test_e016_an_empty_batch() -> None:
    """A batch that the cleaner emptied is 61 bytes, keeps offsets, producer, epoch and greatest timestamp, and is
    walked like any other."""
    found = RecordBatch(vectors.A5_EMPTY)
    found.check_crc()
    found.check_records()
    assert (found.size, found.base_offset, found.last_offset, found.next_offset, found.record_count) == (
        61,
        100,
        104,
        105,
        0,
    )
    assert (found.base_timestamp, found.max_timestamp, found.leader_epoch, found.codec) == (-1, 1700000000999, 9, 0)
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.last_sequence) == (77, 3, 5, 9)
    assert (found.is_transactional, found.is_control, found.delete_horizon_ms) == (True, False, None)
    assert (found.records(), bytes(found.payload), found.find_timestamp(0)) == ([], b"", None)
    scan = SegmentScanner(100)
    assert scan.feed(vectors.A5_EMPTY) == 61
    assert (scan.next_offset, scan.max_timestamp, scan.max_timestamp_offset) == (105, 1700000000999, 104)


def test_e017_a_delete_horizon() -> None:
    """A delete horizon takes the place of the base timestamp, and each record still has its own, also below the
    horizon."""
    found = RecordBatch(vectors.A6_HORIZON)
    found.check_crc()
    assert (found.delete_horizon_ms, [one.timestamp for one in found.records()]) == (1700009999999, [1700000000000])
    # The same conversion of several records: deltas count from the horizon.
    before = RecordBatch(batch(3, timestamp=1000))
    horizon = 10**6
    payload = b"".join(
        oracle.encode_record(oracle.OneRecord(one.offset, one.timestamp, one.key, one.value, one.headers), 0, horizon)
        for one in before.records()
    )
    header = oracle.Batch(0, 0, 0x40, 2, horizon, before.max_timestamp, record_count=3)
    after = RecordBatch(oracle.encode_header(header, payload))
    after.check_crc()
    after.check_records()
    assert [(one.timestamp, one.key, one.value) for one in after.records()] == [
        (one.timestamp, one.key, one.value) for one in before.records()
    ]
    assert (after.delete_horizon_ms, after.max_timestamp) == (horizon, 1002)
    assert after.find_timestamp(1001) == (1, 1001)


def test_e018_no_records_no_bytes(tmp_path: Path) -> None:
    """A builder without records makes no batch, and appending nothing writes nothing."""
    with pytest.raises(ValueError, match="at least one"):
        BatchBuilder().finish()
    with pyreplog.open_log(tmp_path / "log") as log:
        assert len(log.append_many([])) == 0
        (path,) = (tmp_path / "log").glob("*-0/*.log")
        assert (path.stat().st_size, log.end_offset) == (0, 0)
        log.append_many([b"x"])
        size = path.stat().st_size
        assert len(log.append_many([])) == 0
        assert (path.stat().st_size, log.end_offset) == (size, 1)


def test_e019_room_for_a_record() -> None:
    """The first record of a batch always fits, up to what a batch may be at all; later ones as far as the limit,
    headers counted."""
    for headers in ((), (("name", b"x" * 50),)):
        exact = BatchBuilder()
        assert exact.append(b"v" * 20, b"k", headers, 5)
        one = exact.size
        assert exact.append(b"v" * 20, b"k", headers, 5)
        for limit, fits in ((one - 1, 1), (one, 1), (exact.size - 1, 1), (exact.size, 2)):
            builder, outcome = BatchBuilder(1 << 20), Outcome()
            builder.begin(outcome, outcome.timestamps, limit)
            taken = 0
            while builder.gather(b"v" * 20, b"k", headers, 5) is not None:
                taken += 1
            assert taken == fits
            assert RecordBatch(builder.finish()).record_count == fits
    # A first one that no batch can hold is refused, and changes nothing.
    builder = BatchBuilder(100)
    assert not builder.append(bytes(100), None, (), 5)
    assert (builder.count, builder.size) == (0, 61)


def test_e020_offsets_rise() -> None:
    """Offsets of a batch that do not rise are an error: ours rise by one each, and what comes from elsewhere is
    refused."""
    found = RecordBatch(batch(5, base_offset=40))
    assert [one.offset for one in found.records()] == [40, 41, 42, 43, 44]
    assert found.is_dense()
    for deltas in ((0, 0), (1, 0), (2, 1, 3), (0, 1, 1), (-1, 0)):
        payload = b"".join(oracle.encode_record(oracle.OneRecord(delta, 5, None, b"v"), 0, 5) for delta in deltas)
        wrong = with_records(payload, len(deltas))
        for walk in (wrong.check_records, wrong.records):
            with pytest.raises(CorruptError, match="order"):
                walk()
    with pytest.raises(ValueError, match="negative"):
        stamp(bytearray(batch(1)), -1, 0)


def test_e021_who_writes_a_transaction() -> None:
    """A transactional batch needs a producer id, and a producer id an epoch and a sequence, none of them
    negative."""
    builder = BatchBuilder()
    assert builder.append(b"v", None, (), 5)
    right = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    for wrong in (
        {"producer_id": -1},
        {"producer_epoch": -1},
        {"base_sequence": -1},
        {"producer_epoch": -2},
        {"base_sequence": -2},
    ):
        with pytest.raises(ValueError):
            builder.finish(**{**right, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        builder.finish(transactional=True)
    found = RecordBatch(builder.finish(**right))  # type: ignore[arg-type]
    assert (found.is_transactional, found.producer_id, found.producer_epoch, found.base_sequence) == (True, 5, 0, 0)
    # A leader does not take one that was made by others either.
    for fields in ({"producer_epoch": -1}, {"base_sequence": -1}, {"producer_epoch": -7}):
        data = rebuilt(bytes(produced(0)), **fields)
        with pytest.raises(InvalidRequestError, match="producer"):
            validate_from_client(RecordBatch(data))


def control(key: bytes, value: bytes) -> RecordBatch:
    """A control batch of one record."""
    builder = BatchBuilder()
    assert builder.append(value, key, (), 5)
    return RecordBatch(builder.finish(producer_id=1, producer_epoch=0, transactional=True, control=True))


def test_e022_control_records() -> None:
    """An unknown type is UNKNOWN and ends nothing, a newer version is read as 0, a negative one is refused, and so
    are short keys and values."""
    (unknown,) = control_records(control(struct.pack(">hh", 0, 99), b""))
    assert (unknown.name, unknown.ends_transaction) == ("UNKNOWN", False)
    assert end_marker(control(struct.pack(">hh", 0, 99), b"")) is None
    assert end_marker(control(struct.pack(">hh", 0, 2), b"")) is None
    newer = end_marker(control(struct.pack(">hh", 7, 1), struct.pack(">hiq", 3, 12, 0)))
    assert newer is not None
    assert (newer.name, newer.coordinator_epoch) == ("COMMIT", 12)
    for key, value in (
        (struct.pack(">hh", -1, 1), struct.pack(">hi", 0, 1)),
        (struct.pack(">h", 0), b""),
        (b"", b""),
        (struct.pack(">hh", 0, 0), struct.pack(">h", 0)),
        (struct.pack(">hh", 0, 1), b""),
        (struct.pack(">hh", 0, 1), struct.pack(">hi", -1, 0)),
    ):
        with pytest.raises(CorruptError):
            control_records(control(key, value))


def test_e023_offsets_too_far_apart(place: Place) -> None:
    """A batch spans 2**31 offsets at most, and none reaches further from its segment's base: it is refused, or gets
    its own segment."""
    widest = RecordBatch(rebuilt(vectors.A5_EMPTY, base_offset=0, last_offset_delta=INT32_MAX))
    assert widest.last_offset == INT32_MAX
    beyond = bytearray(widest.data)
    struct.pack_into(">I", beyond, 23, INT32_MAX + 1)
    with pytest.raises(CorruptError):
        RecordBatch(beyond)
    # From the segment's base.
    for base, fits in ((0, True), (1, False)):
        scan = SegmentScanner(0)
        taken = scan.feed(rebuilt(vectors.A5_EMPTY, base_offset=base, last_offset_delta=INT32_MAX, leader_epoch=0))
        assert (taken > 0, scan.status == 0) == (fits, fits)
    log = _with_widest(place)
    assert log.segments() == [(0, 61), (INT32_MAX + 1, 61)]
    log.close(clean=True)


def _with_widest(place: Place) -> Log:
    """A log of two batches that are as wide as may be."""
    log = create(place.disk, place.of("t-0"))
    for base in (0, INT32_MAX + 1):
        data = rebuilt(
            vectors.A5_EMPTY,
            base_offset=base,
            last_offset_delta=INT32_MAX,
            leader_epoch=0,
            attributes=0,
            producer_id=-1,
        )
        assert log.append_as_follower([data]) == base + INT32_MAX + 1
    return log
