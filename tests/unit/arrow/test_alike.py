"""Runs of records that are alike are read by comparing them; what comes out is what reading every one of them
gives."""

from __future__ import annotations

import struct
from random import Random

import pyarrow as pa
import pytest

from pyreplog._core import ColumnsBuilder
from pyreplog.arrow import COLUMNS
from pyreplog.errors import CorruptError
from pyreplog.record import HEADER_SIZE, crc32c
from tests.unit.arrow.memory import Event, Stored, encode

COUNT = 200  # the deltas of the offsets take one byte and two


def read(data: bytes, *, careful: bool) -> pa.RecordBatch | str:
    """All columns of a batch whose CRC is made right first, or what is wrong with it. ``careful``: by a range of
    timestamps that holds all, for which every record is looked at by itself."""
    fixed = bytearray(data)
    fixed[17:21] = struct.pack(">I", crc32c(memoryview(fixed)[21:]))
    builder = ColumnsBuilder(COLUMNS)
    try:
        builder.extend(bytes(fixed), start_timestamp=-(2**63) if careful else None)
    except CorruptError as error:
        return str(error)
    batch = pa.record_batch(builder.finish())
    batch.validate(full=True)
    return batch


def batch_of(random: Random, key_size: int | None, value_size: int | None) -> bytes:
    """Records of these sizes, with a few others among them."""
    now = 1_700_000_000_000
    events = []
    for number in range(COUNT):
        now += random.choice([0, 0, 0, 0, 1, 200, -5])
        key = None if key_size is None else random.randbytes(key_size)
        value = None if value_size is None else random.randbytes(value_size)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if number in (50, 51, 90):
            headers = (("h", None),)
        elif number == 120:
            value = None
        elif number == 150:
            key = b"other"
        events.append(Event(value, key, headers, now))
    return encode(Stored(events, leader_epoch=3), 7)


SIZES = [(None, 100), (None, 0), (None, None), (0, 5), (3, None), (16, 40), (None, 300), (70, 1000), (300, 7)]


@pytest.mark.parametrize(("key_size", "value_size"), SIZES)
def test_whole_batches(key_size: int | None, value_size: int | None) -> None:
    """Records of equal sizes, and the others among them, are all there."""
    data = batch_of(Random(1), key_size, value_size)
    quick = read(data, careful=False)
    assert isinstance(quick, pa.RecordBatch)
    assert quick.num_rows == COUNT
    assert quick == read(data, careful=True)


@pytest.mark.parametrize(("key_size", "value_size"), SIZES)
def test_any_byte_may_lie(key_size: int | None, value_size: int | None) -> None:
    """With bytes of the records changed both ways give the same rows, or find the same thing wrong."""
    random = Random(2)
    data = batch_of(random, key_size, value_size)
    wrong = 0
    for _ in range(80):
        changed = bytearray(data)
        for _ in range(random.choice([1, 1, 2])):
            changed[random.randrange(HEADER_SIZE, len(data))] ^= random.choice([1, 2, 0x40, 0x80, 0xFF])
        quick, careful = read(bytes(changed), careful=False), read(bytes(changed), careful=True)
        assert quick == careful
        wrong += isinstance(careful, str)
    assert wrong > 0
