"""Record batches for the replica's tests."""

from __future__ import annotations

from collections.abc import Sequence

from pyreplog.record import BatchBuilder


def batch(
    values: Sequence[bytes] | int = 1,
    *,
    base: int = 0,
    epoch: int = -1,
    timestamp: int = 1,
    numbers: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """One batch of these values (or of so many short ones), writable. ``numbers``: producer id, producer epoch,
    base sequence."""
    builder = BatchBuilder()
    for value in [b"v%d" % i for i in range(values)] if isinstance(values, int) else values:
        assert builder.append(value, None, (), timestamp)
    producer_id, producer_epoch, base_sequence = numbers
    return bytearray(
        builder.finish(
            base_offset=base,
            leader_epoch=epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
    )
