"""Every parser, on bytes cut anywhere, flipped anywhere or made up: the answer is the twin's, or CorruptError;
never anything else."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyreplog._core import (
    HEADER_SIZE,
    ColumnsBuilder,
    Record,
    RecordBatch,
    SegmentScanner,
    crc32c,
    find_offset,
    find_timestamp,
    whole_batches,
)
from pyreplog.errors import CorruptError
from tests.interop.golden import vectors
from tests.oracle import batch as oracle
from tests.unit.record.guarded import GuardedMemory


def core_reads(data: bytes, payload: bytes | None = None) -> list[oracle.OneRecord] | None:
    """The records as the core reads them, None where it says they are corrupt. Every other way in must not crash
    either."""
    try:
        batch = RecordBatch(data)
    except CorruptError:
        return None
    if payload is None and batch.codec != 0:  # a flipped codec: the twin reads the bytes as they are
        payload = bytes(batch.payload)
    try:
        batch.find_timestamp(0, 0, payload)
        lenient: list[Record] | None = batch.records(payload)
    except CorruptError:
        lenient = None
    try:
        batch.check_records(payload)
    except CorruptError:
        assert lenient is None
        return None
    assert lenient is not None
    return [oracle.OneRecord(r.offset, r.timestamp, r.key, r.value, r.headers) for r in lenient]


def twin_reads(data: bytes) -> list[oracle.OneRecord] | None:
    """The same by the twin."""
    try:
        return oracle.decode(data, strict=False)[0].records
    except oracle.Wrong:
        return None


def with_payload(data: bytes, payload: bytes) -> bytes:
    """The header of ``data`` around other records, sizes and CRC right."""
    return oracle.encode_header(oracle.decode_header(data)[0], payload)


@pytest.mark.parametrize("data", vectors.WHOLE)
def test_cut_anywhere(data: bytes) -> None:
    """A prefix of a batch is never a batch."""
    for size in range(len(data)):
        with pytest.raises(CorruptError):
            RecordBatch(data[:size])


@pytest.mark.parametrize("data", vectors.WHOLE)
def test_any_bit_flipped(data: bytes) -> None:
    """A flipped bit is found, by the CRC or by the header's own rules, but for base offset and leader epoch, which
    a leader rewrites."""
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        rewritten = bit // 8 < 8 or 12 <= bit // 8 < 16
        if rewritten and bit != 7:  # 7: the sign of the base offset
            batch = RecordBatch(flipped)
            batch.check_crc()
            assert batch.size == len(data)
        else:
            with pytest.raises(CorruptError):
                RecordBatch(flipped).check_crc()


@pytest.mark.parametrize("data", vectors.PLAIN)
def test_records_cut_anywhere(data: bytes) -> None:
    """Records that end early are refused though header and CRC agree with the shorter bytes."""
    payload = data[HEADER_SIZE:]
    for size in range(len(payload)):
        assert core_reads(with_payload(data, payload[:size])) is None
        assert core_reads(data, payload[:size]) is None


@pytest.mark.parametrize("data", vectors.PLAIN)
def test_records_with_any_bit_flipped(data: bytes) -> None:
    """With the CRC made right again, what the core makes of any flipped bit is what the twin makes of it."""
    for bit in range(8 * 12, len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert core_reads(bytes(flipped)) == twin_reads(bytes(flipped)), bit


@pytest.mark.parametrize("data", vectors.PLAIN)
def test_records_with_any_byte_replaced(data: bytes) -> None:
    """The same for each byte of the records set to the values that lengths trip over."""
    for position in range(HEADER_SIZE, len(data)):
        for value in (0x00, 0x01, 0x02, 0x7E, 0x7F, 0x80, 0xFE, 0xFF):
            changed = bytearray(data)
            changed[position] = value
            assert core_reads(bytes(changed)) == twin_reads(bytes(changed)), (position, value)


def varied(size: int) -> st.SearchStrategy[bytes]:
    """Bytes rich in what the format uses: small lengths, minus one, continued varints."""
    common = st.sampled_from([0, 1, 2, 4, 6, 8, 16, 32, 0x7F, 0x80, 0xFF])
    return st.lists(common | st.integers(0, 255), max_size=size).map(bytes)


@given(varied(80), st.integers(0, 6), st.integers(0, 10), st.integers(0, 15))
def test_made_up_records(payload: bytes, count: int, last: int, attributes: int) -> None:
    """Made-up records under a right header read as the twin reads them."""
    header = oracle.Batch(attributes=attributes & 8, record_count=count, last_offset_delta=last, max_timestamp=5)
    data = oracle.encode_header(header, payload)
    assert core_reads(data) == twin_reads(data)


@given(st.lists(varied(20), min_size=1, max_size=4), st.booleans())
def test_made_up_bodies(bodies: list[bytes], rising: bool) -> None:
    """The same with right lengths around made-up bodies: deeper into the fields."""
    payload = b""
    for i, body in enumerate(bodies):
        whole = b"\0\0" + (oracle.varint(i) if rising else b"") + body
        payload += oracle.varint(len(whole)) + whole
    data = oracle.encode_header(oracle.Batch(record_count=len(bodies), last_offset_delta=len(bodies) - 1), payload)
    assert core_reads(data) == twin_reads(data)


@given(st.binary(max_size=200))
def test_made_up_batches(data: bytes) -> None:
    """No bytes whatever crash the reader or pass as a batch that the twin does not see."""
    assert core_reads(data) == twin_reads(data)


@given(st.binary(min_size=61, max_size=120), st.integers(-5, 100))
def test_made_up_headers(data: bytes, length: int) -> None:
    """The same with the magic right and the length near the truth."""
    data = data[:8] + struct.pack(">i", length) + data[12:16] + b"\2" + data[17:]
    assert core_reads(data) == twin_reads(data)


# -- varints and lengths one by one --


def record(body: bytes) -> bytes:
    """A batch of one record with this body."""
    return oracle.encode_header(oracle.Batch(record_count=1), oracle.varint(len(body)) + body)


@pytest.mark.parametrize(
    "value",
    [0, 1, -1, 63, -63, 64, -64, -65, 8191, -8192, 8192, 2**31 - 1, -(2**31), 2**62, -(2**62), 2**63 - 1, -(2**63)],
)
def test_varlongs_read_exactly(value: int) -> None:
    """Every timestamp delta reads back, from exactly as many bytes as it takes, and from no fewer."""
    body = b"\0" + oracle.varint(value) + b"\0\1\1\0"
    data = oracle.encode_header(oracle.Batch(record_count=1, base_timestamp=0), oracle.varint(len(body)) + body)
    assert [r.timestamp for r in RecordBatch(data).records()] == [value]
    for cut in range(1, len(oracle.varint(value))):
        short = b"\0" + oracle.varint(value)[:cut]
        assert core_reads(record(short)) is None


@pytest.mark.parametrize(
    ("encoded", "accepted"),
    [
        (b"\x00", True),
        (b"\x80\x00", True),  # over-long, within the limit: Kafka accepts it
        (b"\x80\x80\x80\x80\x00", True),
        (b"\x80\x80\x80\x80\x70", True),  # surplus bits of the fifth byte are dropped
        (b"\x80\x80\x80\x80\x80\x00", False),
        (b"\x80\x80\x80\x80\x80", False),
        (b"\xff\xff\xff\xff\xff", False),
        (b"\xff" * 20, False),
    ],
)
def test_varints_end(encoded: bytes, accepted: bool) -> None:
    """A 32-bit varint has five bytes at most; its fifth must end it."""
    found = core_reads(record(b"\0\0" + encoded + b"\1\1\0"))
    assert (found is not None) is accepted
    assert found == twin_reads(record(b"\0\0" + encoded + b"\1\1\0"))


@pytest.mark.parametrize(("size", "accepted"), [(9, True), (10, True), (11, False), (12, False)])
def test_varlongs_end(size: int, accepted: bool) -> None:
    """A 64-bit varint has ten bytes at most."""
    body = b"\0" + b"\x80" * (size - 1) + b"\0" + b"\0\1\1\0"
    assert (core_reads(record(body)) is not None) is accepted


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "cut off"),
        (b"\0\0\0\x06ab\1\0", "cut off"),  # key longer than what is left
        (b"\0\0\0\1\xfe\xff\xff\xff\x0f\0", "cut off"),  # value of INT_MAX bytes
        (b"\0\0\0\1\1\1", "negative or absurd count"),  # -1 headers
        (b"\0\0\0\1\1\2", "negative or absurd count"),  # one header in no bytes
        (b"\0\0\0\1\1\xfe\xff\xff\xff\x0f", "negative or absurd count"),  # INT_MAX headers
        (b"\0\0\0\1\1\2\1\1", "header key is null"),
        (b"\0\0\0\1\1\2\3\1", "header key is null"),  # any negative length
        (b"\0\0\0\1\1\2\4a", "cut off"),
        (b"\0\0\0\1\1\2\2a\4b", "cut off"),
        (b"\0\0\0\1\1\0\0", "length field"),  # more bytes than fields
    ],
)
def test_reasons(body: bytes, reason: str) -> None:
    """Each kind of damage is named."""
    with pytest.raises(CorruptError, match=reason):
        RecordBatch(record(body)).check_records()


@pytest.mark.parametrize("length", [-1, 5, 7, 100, 2**31 - 1])
def test_record_length_is_exact(length: int) -> None:
    """A body that is longer or shorter than its fields is refused, whatever follows it."""
    body = b"\0\0\0\1\1\0"
    for tail in (b"", bytes(10)):
        data = oracle.encode_header(oracle.Batch(record_count=1), oracle.varint(length) + body + tail)
        with pytest.raises(CorruptError):
            RecordBatch(data).check_records()


def test_nulls_are_not_empties() -> None:
    """Null and empty keys, values and header values stay apart; any negative length reads as null."""
    for field, expected in (
        (b"\1", None),
        (b"\0", b""),
        (b"\2x", b"x"),
        (b"\3", None),
        (b"\xff\xff\xff\xff\x0f", None),
    ):
        [found] = RecordBatch(record(b"\0\0\0" + field + field + b"\2\0" + field)).records()
        assert (found.key, found.value, found.headers) == (expected, expected, (("", expected),))


@given(st.binary(max_size=12) | st.text(max_size=6).map(lambda text: text.encode()[:-1]))
@example(b"\xed\xa0\x80")  # a surrogate
@example(b"\xf0\x90\x80a\xe1\x80")
def test_wrong_bytes_of_a_header_key_are_replaced_as_python_does(key: bytes) -> None:
    """The strict walk takes any header key; a record and an Arrow column show it as Python's ``errors="replace"``
    does."""
    batch = RecordBatch(record(b"\0\0\0\1\1\2" + oracle.varint(len(key)) + key + b"\1"))
    batch.check_records()
    text = key.decode(errors="replace")
    assert batch.records()[0].headers == ((text, None),)
    builder = ColumnsBuilder(["headers"])
    builder.append(batch)
    assert pa.record_batch(builder.finish()).to_pydict() == {"headers": [[{"key": text, "value": None}]]}


# -- not a byte too far --


def read_every_way(data: memoryview) -> None:
    """Everything that parses, on these bytes."""
    crc32c(data)
    SegmentScanner(0).feed(data)
    SegmentScanner(0, check_crc=False, index_interval=0).feed(data)
    for search in (find_offset, find_timestamp):
        try:
            search(data, 2**62)
        except CorruptError:
            pass
    try:
        whole_batches(data, 2**62, 2**31)
        batch = RecordBatch(data)
    except CorruptError:
        return
    for read in (batch.check_crc, batch.check_records, batch.records, lambda: batch.find_timestamp(2**62)):
        try:
            read()
        except (CorruptError, ValueError):
            pass
    try:
        [record.headers for record in batch.records()]
    except (CorruptError, ValueError):
        pass


def test_never_reads_behind_the_end() -> None:
    """Cut anywhere, and with any byte replaced, at the very edge of readable memory: nothing touches what lies
    behind."""
    memory = GuardedMemory()
    whole = vectors.A1_DATA + vectors.A4_COMMIT
    for size in range(len(whole) + 1):
        read_every_way(memory.place(whole[:size]))
        read_every_way(memory.place(whole[size:]))
    for data in vectors.PLAIN:
        for position in range(8, len(data)):
            for value in (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF, data[position] ^ 1, data[position] + 2 & 255):
                read_every_way(memory.place(data[:position] + bytes([value]) + data[position + 1 :]))


def test_payload_never_read_behind_its_end() -> None:
    """The same for records handed over decompressed."""
    memory = GuardedMemory()
    for data in vectors.PLAIN:
        batch = RecordBatch(data)
        for size in range(len(data) - HEADER_SIZE):
            view = memory.place(data[HEADER_SIZE : HEADER_SIZE + size])
            for read in (batch.check_records, batch.records):
                with pytest.raises(CorruptError):
                    read(view)
            with pytest.raises(CorruptError):
                batch.find_timestamp(2**62, payload=view)


@given(st.binary(max_size=600))
def test_crc_never_reads_behind_the_end(data: bytes) -> None:
    """Every path of the CRC, at the edge."""
    assert crc32c(GUARDED.place(data)) == oracle.crc32c_table(data)


GUARDED = GuardedMemory()
