"""How fast is the core at its two daily jobs: checksums, and turning values into a batch and back?"""

from __future__ import annotations

from random import Random

import crc32c as reference
import pytest

from benchmarks.conftest import Duel, Peer
from pyreplog.record import BatchBuilder, RecordBatch, crc32c

COUNT = 1000


@pytest.mark.parametrize(("size", "reach"), [(64, 1.0), (64 << 10, 0.9), (1 << 20, None)], ids=["64B", "64KiB", "1MiB"])
def test_crc32c(duel: Duel, size: int, reach: float | None) -> None:
    """CRC-32C of a warm buffer, called from Python."""
    data = Random(size).randbytes(size)
    calls = min((64 << 20) // size, 100_000)
    assert crc32c(data) == reference.crc32c(data)

    def ours() -> None:
        for _ in range(calls):
            crc32c(data)

    def theirs() -> None:
        for _ in range(calls):
            reference.crc32c(data)

    duel(
        f"CRC-32C, {size >> 10} KiB" if size >= 1024 else f"CRC-32C, {size} B",
        ours,
        [Peer("the package crc32c", theirs, reach)],
        count=calls * size,
        unit="B",
    )


@pytest.mark.parametrize("size", [100, 1000], ids=["100B", "1KB"])
def test_encode(duel: Duel, size: int) -> None:
    """1000 values into one batch, checksum included, against a bare copy of them."""
    random = Random(size)
    values = [random.randbytes(size) for _ in range(COUNT)]
    builder = BatchBuilder(2 << 20)

    def ours() -> None:
        for _ in range(100):
            builder.reset()
            builder.extend(values, None, None, None, 1_700_000_000_000, 0)
            builder.finish()

    def bare() -> None:
        for _ in range(100):
            b"".join(values)

    builder.extend(values, None, None, None, 1_700_000_000_000, 0)
    assert [record.value for record in RecordBatch(builder.finish()).records()] == values
    duel(f"encode a batch, {size} B x 1000", ours, [Peer("b''.join(values)", bare)], count=100 * COUNT)


def test_decode(duel: Duel) -> None:
    """A batch of 1000 records of 100 B back into records, and their values into bytes."""
    random = Random(1)
    builder = BatchBuilder(2 << 20)
    values = [random.randbytes(100) for _ in range(COUNT)]
    builder.extend(values, None, None, None, 1_700_000_000_000, 0)
    data = bytes(builder.finish())

    def ours() -> None:
        for _ in range(100):
            assert len([record.value for record in RecordBatch(data).records()]) == COUNT

    def bare() -> None:
        for _ in range(100):
            assert len([data[position : position + 100] for position in range(61, 61 + COUNT * 106, 106)]) == COUNT

    duel("decode a batch, 100 B x 1000", ours, [Peer("slicing bytes", bare)], count=100 * COUNT)
