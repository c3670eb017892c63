"""Edge cases 1 to 9: varints and records."""

from __future__ import annotations

import pyarrow
import pytest

from pyreplog._core import ColumnsBuilder, RecordBatch
from pyreplog.errors import CorruptError
from pyreplog.record import BatchBuilder
from tests.interop.edges.support import INT32_MAX, record, with_records
from tests.interop.golden import vectors
from tests.oracle import batch as oracle
from tests.unit.record.guarded import GuardedMemory

INT64_MAX = 2**63 - 1
NUMBERS = [
    0,
    1,
    -1,
    63,
    -63,
    64,
    -64,
    -65,
    8191,
    -8191,
    8192,
    -8192,
    -8193,
    INT32_MAX,
    -INT32_MAX - 1,
    INT64_MAX,
    -INT64_MAX - 1,
]


def size_of(number: int) -> int:
    """Bytes of a zig-zag varint, counted."""
    unsigned = 2 * number if number >= 0 else -2 * number - 1
    return max(1, -(-unsigned.bit_length() // 7))


@pytest.mark.parametrize("number", NUMBERS)
def test_e001_numbers_there_and_back(number: int) -> None:
    """Our encoder writes each number as a timestamp delta in exactly the bytes it takes, and it is read back; no
    bytes fewer will do."""
    first = 0 if number >= 0 else -number - 1
    builder = BatchBuilder()
    assert builder.append(None, None, (), first)
    before = builder.size
    assert builder.append(None, None, (), first + number)
    # Length, attributes, delta, offset delta, null key, null value, no headers.
    assert builder.size - before == 6 + size_of(number)
    data = bytes(builder.finish())
    encoded = oracle.varint(number)
    assert len(encoded) == size_of(number)
    assert data[-4 - len(encoded) :] == encoded + b"\x02\x01\x01\x00"
    batch = RecordBatch(data)
    batch.check_crc()
    assert [one.timestamp for one in batch.records()] == [first, first + number]
    for cut in range(len(encoded)):
        short = oracle.encode_header(oracle.Batch(record_count=1), record(b"\0" + encoded[:cut]))
        with pytest.raises(CorruptError):
            RecordBatch(short).check_records()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 1 << 20])
def test_e001_lengths_there_and_back(size: int) -> None:
    """The same for lengths: of key, value, header key and header value."""
    builder = BatchBuilder(16 << 20)
    content = bytes(size)
    before = builder.size
    assert builder.append(content, content, [("h" * size, content)], 5)
    body = 1 + 1 + 1 + 4 * (size_of(size) + size) + 1
    assert builder.size - before == size_of(body) + body
    (found,) = RecordBatch(builder.finish()).records()
    assert (found.key, found.value, found.headers) == (content, content, (("h" * size, content),))


@pytest.mark.parametrize(
    "field", ["length", "offset delta", "key length", "value length", "header count", "header key", "header value"]
)
def test_e002_varints_that_do_not_end(field: str) -> None:
    """The fifth byte of a 32-bit number ends it, wherever it stands; the tenth byte that of a 64-bit one."""

    def encoded(size: int) -> bytes:
        """A zero in ``size`` bytes."""
        return b"\x80" * (size - 1) + b"\0"

    fields = {
        "offset delta": b"\0\0%s\1\1\0",
        "key length": b"\0\0\0%s\1\0",
        "value length": b"\0\0\0\1%s\0",
        "header count": b"\0\0\0\1\1%s",
        "header key": b"\0\0\0\1\1\2%s\1",
        "header value": b"\0\0\0\1\1\2\0%s",
    }
    for size, accepted in ((1, True), (4, True), (5, True), (6, False), (7, False), (20, False)):
        if field == "length":
            body = b"\0\0\0\1\1\0"
            payload = bytes([2 * len(body) | 0x80]) + encoded(size - 1) + body if size > 1 else record(body)
        else:
            payload = record(fields[field].replace(b"%s", encoded(size)))
        batch = with_records(payload)
        if accepted:
            batch.check_records()
            assert len(batch.records()) == 1
        else:
            for walk in (batch.check_records, batch.records):
                with pytest.raises(CorruptError):
                    walk()
    for size, accepted in ((9, True), (10, True), (11, False), (12, False)):
        batch = with_records(record(b"\0" + encoded(size) + b"\0\1\1\0"))
        if accepted:
            batch.check_records()
        else:
            with pytest.raises(CorruptError):
                batch.check_records()


def test_e003_nulls_are_not_empties() -> None:
    """Null and empty keys, values and header values stay apart, through our encoder and back, and in the bytes."""
    seen = set()
    for key in (None, b"", b"k"):
        for value in (None, b"", b"v"):
            for header in (None, b"", b"h"):
                builder = BatchBuilder()
                assert builder.append(value, key, [("", header)], 1)
                data = bytes(builder.finish())
                (found,) = RecordBatch(data).records()
                assert (found.key, found.value, found.headers) == (key, value, (("", header),))
                ((twin,), _) = (oracle.decode(data)[0].records, None)
                assert (twin.key, twin.value, twin.headers) == (key, value, (("", header),))
                seen.add(data)
    assert len(seen) == 27
    # On the way in any negative length is null.
    for null in (b"\1", b"\3", b"\xff\xff\xff\xff\x0f"):
        (found,) = with_records(record(b"\0\0\0" + null + null + b"\2\0" + null)).records()
        assert (found.key, found.value, found.headers) == (None, None, (("", None),))


def test_e004_a_header_has_a_key() -> None:
    """A null header key is refused when written, and a negative key length when read."""
    with pytest.raises(TypeError):
        BatchBuilder().append(b"v", b"k", [(None, b"x")], 1)  # type: ignore[list-item]
    fields = b"\x00\x00\x00" + oracle.varint(-1) + oracle.varint(1) + b"v" + oracle.varint(1)
    for negative in (-1, -2, -INT32_MAX - 1):
        with pytest.raises(CorruptError, match="header key"):
            with_records(record(fields + oracle.varint(negative) + oracle.varint(-1))).check_records()


def test_e005_header_counts() -> None:
    """A header count that is negative, or larger than the bytes left, is refused before anything is allocated."""
    fields = b"\x00\x00\x00" + oracle.varint(-1) + oracle.varint(1) + b"v"
    for count in (-1, -(2**31), 2, 1000, INT32_MAX):
        batch = with_records(record(fields + oracle.varint(count) + b"\x00"))
        for walk in (batch.check_records, batch.records):
            with pytest.raises(CorruptError):
                walk()


def test_e006_a_body_longer_than_what_is_left() -> None:
    """A record that claims more bytes than there are is refused, and nothing behind the end of the bytes is
    touched."""
    memory = GuardedMemory()
    body = b"\0\0\0\1\2v\0"
    for missing in (1, 2, 60, 8192, INT32_MAX - len(body)):
        payload = oracle.varint(len(body) + missing) + body
        data = oracle.encode_header(oracle.Batch(record_count=1), payload)
        batch = RecordBatch(memory.place(data))
        for walk in (batch.check_records, batch.records):
            with pytest.raises(CorruptError):
                walk()
    for field in (b"\0\0\0%s", b"\0\0\0\1%s", b"\0\0\0\1\1\2%s", b"\0\0\0\1\1\2\0%s"):
        for length in (1, 100, INT32_MAX):
            data = oracle.encode_header(
                oracle.Batch(record_count=1), record(field.replace(b"%s", oracle.varint(length)))
            )
            with pytest.raises(CorruptError):
                RecordBatch(memory.place(data)).check_records()


def test_e007_a_body_of_another_length_than_its_fields() -> None:
    """A length that is below or above what the fields take is refused, whatever bytes follow."""
    body = b"\0\0\0\2k\2v\0"
    with_records(record(body)).check_records()
    for length in (0, len(body) - 1, len(body) + 1, len(body) + 7, -1):
        for tail in (b"", bytes(7), record(body)):
            batch = with_records(oracle.varint(length) + body + tail)
            for walk in (batch.check_records, batch.records):
                with pytest.raises(CorruptError):
                    walk()


def test_e008_cut_in_any_field() -> None:
    """Records that end anywhere within a field are refused as corrupt, though header and checksum agree with the
    shorter bytes."""
    for data in vectors.PLAIN:
        header, size = oracle.decode_header(data)
        payload = data[61:size]
        for end in range(len(payload)):
            cut = RecordBatch(oracle.encode_header(header, payload[:end]))
            cut.check_crc()
            for walk in (cut.check_records, cut.records):
                with pytest.raises(CorruptError):
                    walk()


def following(sequence: int, delta: int) -> int:
    """The sequence ``delta`` behind ``sequence``: 0 comes after the greatest."""
    return (sequence + delta) % (INT32_MAX + 1) if sequence >= 0 else -1


@pytest.mark.parametrize("base_sequence", [-1, 0, 17, INT32_MAX - 3, INT32_MAX])
def test_e009_without_keys_and_values(base_sequence: int) -> None:
    """A reader that skips keys and values gives the offsets, timestamps and so the sequences of one that does not,
    gaps included."""
    deltas = [0, 1, 4, 5, 9, 10]
    records = [
        oracle.OneRecord(100 + delta, 1000 + delta * 7 % 5, b"k" * delta, b"v" * 300, (("h", b"x" * delta),))
        for delta in deltas
    ]
    plain = oracle.Batch(100, 3, 0, 0, -1, -1, 7 if base_sequence >= 0 else -1, 0, base_sequence, records=records)
    data = oracle.encode(plain)
    batch = RecordBatch(data)
    full = batch.records()
    builder = ColumnsBuilder(["offset", "timestamp"])
    assert builder.append(batch) == len(deltas)
    table = pyarrow.record_batch(builder.finish())
    offsets = table.column("offset").to_pylist()
    assert offsets == [one.offset for one in full] == [100 + delta for delta in deltas]
    assert table.column("timestamp").cast(pyarrow.int64()).to_pylist() == [one.timestamp for one in full]
    sequences = [following(batch.base_sequence, offset - batch.base_offset) for offset in offsets]
    assert sequences == [following(base_sequence, delta) for delta in deltas]
    assert batch.last_sequence == sequences[-1]
    # From the middle on, too.
    builder = ColumnsBuilder(["offset"])
    builder.append(batch, start_offset=104, end_offset=110)
    assert pyarrow.record_batch(builder.finish()).column("offset").to_pylist() == [104, 105, 109]


def test_e009_a_log_without_keys_and_values(tmp_path: object) -> None:
    """The same for a whole log: the columns of a scan are those of its records."""
    import pyreplog  # noqa: PLC0415  (only here)

    with pyreplog.open_log(f"{tmp_path}/log", durability="os") as log:
        for number in range(1, 20):
            log.append_many(
                [b"v%d" % number] * number, keys=[b"k"] * number, timestamps=[number * 3 % 7 + i for i in range(number)]
            )
        table = pyarrow.table(log.scan(["offset", "timestamp"]))
        whole = list(log.read())
        assert len(whole) == 190
        assert table.column("offset").to_pylist() == [one.offset for one in whole]
        assert table.column("timestamp").cast(pyarrow.int64()).to_pylist() == [one.timestamp for one in whole]
