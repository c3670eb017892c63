"""The batches of a segment file, one after another, and where good ones go on behind damage."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from pyreplog.ports import File
from pyreplog.verify.records import Malformed, old_records_of

CHUNK_SIZE: Final = 4 << 20
HEADER_SIZE: Final = 61
OVERHEAD: Final = 12
_UP_TO_MAGIC: Final = 17
_UP_TO_DELTA: Final = 27
_OLD_SIZE_MIN: Final = 14

_V2: Final = struct.Struct(">qiibIhiqqqhii")
_COMMON: Final = struct.Struct(">qiIb")
_INT32_MAX: Final = 2**31 - 1
_NEW_FORMAT: Final = re.compile(rb"\x02")
_ANY_FORMAT: Final = re.compile(rb"\x02|[\x00\x01](?=[\x00-\x0f])")
"""Old messages use four bits of their attributes byte. They are searched only in places that may have them, because
the search takes longer."""
_LOOKS: Final = 3
"""So many batches behind one are asked whether they agree with its offsets."""


class Broken(Exception):
    """No whole batch begins at byte ``position``; ``reason`` says why. ``size`` is the number of bytes that the
    header claims, 0 if it claims none."""

    def __init__(self, position: int, reason: str, size: int = 0) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason
        self.size = size


class CheckedBatch(NamedTuple):
    """One whole batch in its file; in formats 0 and 1 a message or wrapper. A field that a format lacks is -1."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    data: bytes

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & 7

    @property
    def is_log_append_time(self) -> bool:
        """Whether the timestamps are the broker's."""
        return bool(self.attributes & 8)

    @property
    def is_transactional(self) -> bool:
        """As the name says."""
        return self.magic == 2 and bool(self.attributes & 16)

    @property
    def is_control(self) -> bool:
        """Not for applications."""
        return self.magic == 2 and bool(self.attributes & 32)

    @property
    def last_sequence(self) -> int:
        """Of the last record; -1 without one. After 2**31 - 1 comes 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) & _INT32_MAX

    def checksum(self) -> int:
        """What ``crc`` should be."""
        return crc32c(self.data[21:]) if self.magic == 2 else zlib.crc32(self.data[16:])


class Window:
    """A file that is read in order, in large pieces. ``tell`` is called with the number of bytes of each new
    piece."""

    def __init__(self, file: File, size: int, tell: Callable[[int], None] | None = None) -> None:
        self.file = file
        self.size = size
        self._tell = tell
        self._at = 0
        self._chunk = b""
        self._told = 0

    def take(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``position``; fewer at the end."""
        size = min(size, self.size - position)
        start = position - self._at
        if start < 0 or start + size > len(self._chunk):
            self._chunk = bytes(self.file.read_at(position, min(max(size, CHUNK_SIZE), self.size - position)))
            self._at, start = position, 0
            end = position + len(self._chunk)
            if self._tell is not None and end > self._told:
                self._tell(end - max(position, self._told))
                self._told = end
        return self._chunk[start : start + size]


def batch_at(window: Window, position: int) -> CheckedBatch | None:
    """Return the batch at ``position``; None at the end of the file. Raise :class:`Broken` if there is no batch;
    checksums are not checked."""
    left = window.size - position
    if left <= 0:
        return None
    if left <= _UP_TO_MAGIC:
        raise Broken(position, f"{left} bytes, too few for a batch")
    head = window.take(position, HEADER_SIZE)
    if len(head) <= _UP_TO_MAGIC:
        raise Broken(position, f"{len(head)} bytes, too few for a batch")
    offset, length, word, magic = _COMMON.unpack_from(head)
    if not any(head):
        raise Broken(position, "zeros where a batch should begin")
    if magic not in (0, 1, 2):
        raise Broken(position, f"its format is {magic}; only 0, 1 and 2 are known")
    size = length + OVERHEAD
    if length < _OLD_SIZE_MIN or (magic == 2 and size < HEADER_SIZE):
        raise Broken(position, f"its length field is {length}")
    if size > left:
        raise Broken(position, f"it has {size} bytes by its header, and {left} are left", size)
    if offset < 0:
        raise Broken(position, f"its offset is {offset}", size)
    data = window.take(position, size)
    if len(data) < size:
        raise Broken(position, "the file was shortened while it was read", size)
    if magic < 2:
        return _old_batch(position, size, data, offset, word, magic)
    _, _, epoch, _, crc, attributes, delta, base_time, max_time, producer, producer_epoch, sequence, count = (
        _V2.unpack_from(data)
    )
    if delta < 0 or count < 0:
        raise Broken(position, f"its last offset delta is {delta}, its record count {count}", size)
    return CheckedBatch(
        position,
        size,
        offset,
        offset + delta,
        epoch,
        magic,
        crc,
        attributes,
        base_time,
        max_time,
        producer,
        producer_epoch,
        sequence,
        count,
        data,
    )


def _old_batch(position: int, size: int, data: bytes, offset: int, crc: int, magic: int) -> CheckedBatch:
    attributes = data[17]
    timestamp = int.from_bytes(data[18:26], "big", signed=True) if magic == 1 else -1
    base, count, newest = offset, 1, timestamp
    try:
        records = old_records_of(data)
    except Malformed as error:
        if zlib.crc32(data[16:]) == crc:
            raise Broken(position, str(error), size) from None
    else:
        if records[-1].offset != offset:
            raise Broken(
                position, f"its offset is {offset}, and that of the last message in it {records[-1].offset}", size
            )
        base, count = records[0].offset, len(records)
        newest = timestamp if attributes & 8 else max(record.timestamp for record in records)
    return CheckedBatch(
        position, size, base, offset, -1, magic, crc, attributes, timestamp, newest, -1, -1, -1, count, data
    )


def walk(window: Window, position: int = 0) -> Iterator[CheckedBatch]:
    """Yield the batches from ``position`` to the end of the file. Raise :class:`Broken` if one is not whole, or its
    checksum differs."""
    while True:
        batch = batch_at(window, position)
        if batch is None:
            return
        if batch.checksum() != batch.crc:
            raise Broken(
                position,
                f"checksum mismatch (offsets {batch.base_offset} to {batch.last_offset} by its header)",
                batch.size,
            )
        yield batch
        position += batch.size


def resume(
    window: Window, position: int, expected: int, claimed: int = 0, *, following: int | None = None, dense: bool = False
) -> CheckedBatch | None:
    """Return the first batch behind the damage at ``position`` that is whole, with its checksum, and begins at
    offset ``expected`` or later.

    ``claimed`` is the size that the damaged batch claims. The search looks there first. It accepts a batch there if
    its offset follows by the damaged batch's last offset delta; otherwise other batches may lie before it. Then it
    goes byte by byte. No checksum covers a base offset. So an offset that the next batches contradict (``dense``:
    each begins at the end of the one before), or ``following``, the base offset of the next segment, is refused.
    """
    if claimed:
        offset, delta = _offsets_claimed(window, position)
        found = _good(window, position + claimed, expected, following, dense=dense)
        if found is not None and found.base_offset - delta in (offset + 1, expected):
            return found
    first = _whole(window, 0)  # old messages are in front of all others
    is_new = first is not None and first.magic == 2
    formats, smallest = (_NEW_FORMAT, HEADER_SIZE) if is_new else (_ANY_FORMAT, _OLD_SIZE_MIN + OVERHEAD)
    start = position + 1
    while start + smallest <= window.size:
        piece = window.take(start, CHUNK_SIZE)
        end = len(piece.rstrip(b"\0")) + 9  # none begins in zeros up to the end: its length, at byte 8, is none
        for match in formats.finditer(piece, 16, end):
            at = match.start() - 16
            if at + smallest > len(piece):
                break
            offset, length = struct.unpack_from(">qi", piece, at)
            if expected <= offset < expected + _INT32_MAX and smallest - OVERHEAD <= length <= window.size - start:
                found = _good(window, start + at, expected, following, dense=dense)
                if found is not None:
                    return found
        start += max(len(piece) - smallest + 1, 1)
    return None


def _offsets_claimed(window: Window, position: int) -> tuple[int, int]:
    """The base offset and the last offset delta by the header at ``position``."""
    head = window.take(position, _UP_TO_DELTA)
    delta = int.from_bytes(head[23:], "big", signed=True) if head[16:17] == b"\2" else 0
    return int.from_bytes(head[:8], "big", signed=True), delta


def _good(window: Window, position: int, expected: int, following: int | None, *, dense: bool) -> CheckedBatch | None:
    batch = _whole(window, position)
    if batch is None or not expected <= batch.base_offset < expected + _INT32_MAX:
        return None
    return batch if leads_on(window, batch, following, dense=dense) else None


def leads_on(window: Window, batch: CheckedBatch, following: int | None, *, dense: bool = False) -> bool:
    """Whether neither the batches behind ``batch`` nor ``following``, as in :func:`resume`, say that its base
    offset is wrong."""
    if following is not None and batch.last_offset >= following:
        return False
    after = batch.last_offset + 1
    # How many offsets a batch has its checksum covers: so one of those behind may be wrong where
    # the next one agrees.
    for behind in look_behind(window, batch):
        if behind.base_offset == after or (behind.base_offset > after and not dense):
            return True
        after += behind.last_offset - behind.base_offset + 1
    return after == batch.last_offset + 1


def look_behind(window: Window, batch: CheckedBatch) -> Iterator[CheckedBatch]:
    """The next few batches behind ``batch``, as far as they are whole."""
    at = batch.position + batch.size
    for _ in range(_LOOKS):
        behind = _whole(window, at)
        if behind is None:
            return
        yield behind
        at += behind.size


def _whole(window: Window, position: int) -> CheckedBatch | None:
    try:
        batch = batch_at(window, position)
    except Broken:
        return None
    return None if batch is None or batch.checksum() != batch.crc else batch
