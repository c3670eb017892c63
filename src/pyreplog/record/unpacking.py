"""Decompress the records of a batch in parts, so that memory stays bounded for a batch of any size.

A batch of up to ``WHOLE_SIZE`` bytes is decompressed at once; nearly every batch is. A larger one
is decompressed piece by piece into parts of about ``PART_SIZE`` bytes that hold whole records.
cramjam decodes gzip, lz4 and zstd in one call only. So a thread makes that call with a pipe as its
output, and the reader reads the pipe. Snappy comes in blocks that need no thread.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from typing import Final, NamedTuple, Protocol

from pyreplog._core import RecordBatch
from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import BatchTooLargeError
from pyreplog.pipe import Pipe
from pyreplog.ports import Buffer
from pyreplog.record.compression import SNAPPY, decompress_payload, decompress_to_file, snappy_blocks

WHOLE_SIZE: Final = 16 << 20
"""Decompressed bytes up to which a batch is decompressed at once."""
PART_SIZE: Final = 8 << 20
"""Bytes of a part; a larger record makes its part larger."""


class Part(NamedTuple):
    """Some of a batch's records.

    ``payload`` and ``record_count`` are the arguments of :meth:`RecordBatch.records`; ``payload``
    is None for the stored records of a batch without a codec. ``last_offset``: no record of the
    part has a higher offset.
    """

    payload: Buffer | None
    record_count: int
    last_offset: int


class _Unpacked(Protocol):
    """A stream of decompressed bytes."""

    def readinto(self, room: memoryview) -> int:
        """Fill the start of ``room``; return the number of bytes, 0 at the end."""
        ...

    def close(self) -> None:
        """Discard the rest."""
        ...


def parts_of(
    batch: RecordBatch, size_max: int = MAX_BATCH_BYTES, *, partition: str | None = None
) -> Generator[Part, None, None]:
    """Yield the records of ``batch`` in order, in parts.

    All parts together have at most ``size_max`` decompressed bytes; one part is alive at a time.
    Raises :class:`BatchTooLargeError`, which names ``partition``, for a larger batch, and
    :class:`CorruptError` if the records are malformed.
    """
    if batch.codec == 0:
        yield Part(None, batch.record_count, batch.last_offset)
        return
    try:
        whole = decompress_payload(batch.codec, batch.payload, min(WHOLE_SIZE, size_max))
    except BatchTooLargeError:
        if size_max <= WHOLE_SIZE:
            raise BatchTooLargeError(batch.base_offset, size_max, partition=partition) from None
    else:
        yield Part(whole, batch.record_count, batch.last_offset)
        return
    stream = _stream_of(batch, size_max)
    try:
        yield from _streamed(batch, stream, size_max)
    except BatchTooLargeError:
        raise BatchTooLargeError(batch.base_offset, size_max, partition=partition) from None
    finally:
        stream.close()


def _streamed(batch: RecordBatch, stream: _Unpacked, size_max: int) -> Iterator[Part]:
    room = bytearray(PART_SIZE)
    used = total = 0
    left, previous = batch.record_count, -1
    while True:
        got = stream.readinto(memoryview(room)[used:])
        used += got
        total += got
        if total > size_max:
            raise BatchTooLargeError(batch.base_offset, size_max)
        if got and used < len(room):
            continue
        taken, count, previous = batch.whole_records(memoryview(room)[:used], left, previous, last=not got)
        left -= count
        # A record that does not fit doubles the room; the length that it claims is not trusted.
        larger = 2 * len(room) if not taken and got else PART_SIZE
        rest = memoryview(room)[taken:used]
        room, used, full = bytearray(max(larger, len(rest) + 1)), len(rest), room
        room[:used] = rest
        if count:
            yield Part(memoryview(full)[:taken], count, batch.base_offset + previous)
        del rest, full
        if not got:
            return


def _stream_of(batch: RecordBatch, size_max: int) -> _Unpacked:
    if batch.codec == SNAPPY:
        return _Blocks(snappy_blocks(batch.payload, size_max))
    return Pipe(partial(decompress_to_file, batch.codec, batch.payload), "to unpack a batch")


class _Blocks:
    """A stream of blocks that are decompressed one after another."""

    def __init__(self, blocks: Iterator[memoryview]) -> None:
        self._blocks = blocks
        self._block = memoryview(b"")

    def readinto(self, room: memoryview) -> int:
        """See :class:`_Unpacked`."""
        while not len(self._block):
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._block = block
        size = min(len(room), len(self._block))
        room[:size] = self._block[:size]
        self._block = self._block[size:]
        return size

    def close(self) -> None:
        """See :class:`_Unpacked`."""
        self._block = memoryview(b"")
