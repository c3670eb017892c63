"""Bytes that lie: whatever is done to a batch, a scan gives the right rows or a CorruptError, and never looks
outside the buffer."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from pyreplog._core import ColumnsBuilder
from pyreplog.arrow import COLUMNS, Scan
from pyreplog.errors import CorruptError
from pyreplog.record import HEADER_SIZE, RecordBatch, crc32c
from tests.unit.arrow.memory import Event, MemorySource, Stored, encode

EVENTS = [
    Event(b"value", b"key", (("h", b"x"), ("é", None)), 1000),
    Event(None, None, (), -1),
    Event(b"", b"", (("", b""),), 999),
    Event(b"v" * 200, None, (), 2**62),
]
GOOD = encode(Stored(EVENTS, leader_epoch=3), 7)
CRC = slice(17, 21)


def plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Its rows, checked; timestamps as numbers, because Python's datetimes end in 9999."""
    batch.validate(full=True)
    at = batch.schema.get_field_index("timestamp")
    rows: list[dict[str, Any]] = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64())).to_pylist()
    return rows


def scanned(data: bytes) -> list[dict[str, Any]]:
    """Rows of a log that holds ``data``."""
    source = MemorySource([])
    source.chunks = [data]
    source.end_offset = 2**63 - 1
    source.read = lambda offset, size_max: data if offset == 0 else b""  # type: ignore[method-assign]
    return [row for batch in Scan([(0, source)], columns=COLUMNS).batches() for row in plain(pa.record_batch(batch))]


RIGHT = scanned(GOOD)


def test_every_flipped_bit_is_noticed() -> None:
    """With any one bit of a batch flipped a scan raises CorruptError, or, where the CRC does not cover it (base
    offset, epoch), gives the rows as the header then has them."""
    uncovered = 0
    for bit in range(len(GOOD) * 8):
        data = bytearray(GOOD)
        data[bit // 8] ^= 1 << bit % 8
        try:
            rows = scanned(bytes(data))
        except CorruptError:
            continue
        uncovered += 1
        assert bit // 8 < 8 or 12 <= bit // 8 < 16, f"bit {bit} went unnoticed"
        base_offset, _, epoch = struct.unpack_from(">qii", data)
        assert rows == [row | {"offset": row["offset"] - 7 + base_offset, "leader_epoch": epoch} for row in RIGHT]
    assert uncovered == 63 + 32  # a negative base offset is refused


def rows_below_crc(data: bytes) -> list[dict[str, Any]]:
    """Rows of a batch whose CRC is made right first, so that the decoder meets the damage."""
    fixed = bytearray(data)
    fixed[CRC] = struct.pack(">I", crc32c(memoryview(fixed)[21:]))
    builder = ColumnsBuilder(COLUMNS)
    builder.extend(bytes(fixed))
    return plain(pa.record_batch(builder.finish()))


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF, 0x40])
def test_damage_below_the_crc_gives_errors_or_valid_arrow(mask: int) -> None:
    """With a right CRC over wrong bytes (a buggy writer's), every byte changed gives CorruptError or rows that are
    valid Arrow."""
    for position in range(21, len(GOOD)):
        data = bytearray(GOOD)
        data[position] ^= mask
        try:
            rows_below_crc(bytes(data))
        except CorruptError:
            pass


def test_every_cut_is_an_error_or_nothing() -> None:
    """A batch cut anywhere is not there yet; records cut anywhere, with the length and CRC made right, are an
    error."""
    for size in range(len(GOOD)):
        assert ColumnsBuilder(COLUMNS).extend(GOOD[:size]) == 0
    for size in range(HEADER_SIZE, len(GOOD)):
        data = bytearray(GOOD[:size])
        struct.pack_into(">i", data, 8, size - 12)
        with pytest.raises(CorruptError):
            rows_below_crc(bytes(data))


def test_a_bad_batch_leaves_what_was_gathered() -> None:
    """A batch that fails halfway adds nothing: its nulls do not show through in the rows that come after it."""
    bad = bytearray(encode(Stored([Event(None), Event(None), Event(b"x")]), 0))
    bad[-2] ^= 0x40  # the last record's value: its header count comes out wrong
    bad[-1] = 0x09
    bad[CRC] = struct.pack(">I", crc32c(memoryview(bad)[21:]))
    builder = ColumnsBuilder(COLUMNS)
    builder.extend(GOOD)
    for _ in range(2):
        with pytest.raises(CorruptError):
            builder.extend(bytes(bad))
        with pytest.raises(CorruptError):
            builder.append(RecordBatch(bytes(bad)))
        builder.extend(GOOD, partition=-1)
    assert builder.row_count == 3 * len(EVENTS)
    assert plain(pa.record_batch(builder.finish())) == [row | {"partition": -1} for row in RIGHT] * 3


def test_absurd_counts_allocate_nothing() -> None:
    """A record count beyond what the bytes can hold is refused before any memory is taken for it."""
    data = bytearray(GOOD)
    struct.pack_into(">i", data, 57, 2**31 - 1)
    with pytest.raises(CorruptError, match="absurd count"):
        rows_below_crc(bytes(data))


def test_wrong_calls_leave_a_builder_usable() -> None:
    """What is no buffer, a position outside, or a compressed batch without its records is refused, and nothing is
    lost."""
    builder = ColumnsBuilder(["value"])
    with pytest.raises(TypeError):
        builder.extend("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="position 5 is outside data"):
        builder.extend(b"", 5)
    assert builder.extend(GOOD) == len(GOOD)
    compressed = RecordBatch(encode(Stored(EVENTS, codec=1), 0))
    with pytest.raises(ValueError, match="pass its decompressed records"):
        builder.append(compressed)
    assert builder.finish().row_count == len(EVENTS)


def outcome(data: bytes, start_offset: int) -> list[dict[str, Any]] | str:
    """Rows from an offset on, or what is wrong."""
    builder = ColumnsBuilder(COLUMNS)
    try:
        builder.extend(data, start_offset=start_offset, check_crc=False)
    except CorruptError as error:
        return str(error)
    return plain(pa.record_batch(builder.finish()))


def test_a_part_of_a_batch_is_read_as_the_whole() -> None:
    """Records that are all taken are read another way than those that must be chosen: both see the same rows, and
    the same damage."""
    chance = Random(1)
    seen = set()
    for _ in range(1500):
        events = [
            Event(
                None if chance.random() < 0.2 else chance.randbytes(chance.choice([0, 3, 63, 64, 70, 300, 9000])),
                None if chance.random() < 0.5 else chance.randbytes(chance.choice([0, 5, 70])),
                (("h", b"x"),) if chance.random() < 0.1 else (),
                chance.choice([1, 5, 100, 10_000, 2**40, -1]),
            )
            for _ in range(chance.choice([5, 40]))
        ]
        data = bytearray(encode(Stored(events), 0))
        first = len(encode(Stored(events[:1]), 0))
        for _ in range(chance.choice([0, 1, 1, 2])):
            data[chance.randrange(first, len(data))] ^= chance.choice([1, 2, 0x80, 0xFF, 0x40])
        whole, part = outcome(bytes(data), 0), outcome(bytes(data), 1)
        assert part == (whole if isinstance(whole, str) else whole[1:])
        seen.add(type(whole))
    assert seen == {str, list}
