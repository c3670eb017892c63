"""The slow, obvious twin of the compiled core: batches, indexes and the segment scan, in plain Python from the
format's description.

Nothing here is shared with the code under test. Wrong bytes raise :class:`Wrong`.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

HEADER = struct.Struct(">qiibIhiqqqhii")
INT_MAX = 2**31 - 1
Headers = tuple[tuple[str, bytes | None], ...]


class Wrong(ValueError):
    """The bytes are not what the format says."""


class OneRecord(NamedTuple):
    """A record with absolute offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


# -- CRC-32C, bit by bit --


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C of ``data``, continuing from ``crc``."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


CRC_TABLE = [crc32c(bytes([i]), 0xFFFFFFFF) ^ 0xFFFFFFFF for i in range(256)]


def crc32c_table(data: bytes) -> int:
    """The same, a byte at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


# -- varints --


def varint(value: int) -> bytes:
    """Zig-zag, then groups of seven bits, low ones first. Serves for 32 and 64 bits."""
    u = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while u > 127:
        out.append(u & 127 | 128)
        u >>= 7
    out.append(u)
    return bytes(out)


class Reader:
    """Unread bytes; whoever reads past them gets :class:`Wrong`."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self.data) - self.position

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        if size > self.left:
            raise Wrong("cut")
        self.position += size
        return self.data[self.position - size : self.position]

    def varint(self, bits: int) -> int:
        """A zig-zag varint of at most ``bits`` bits (surplus high bits are dropped)."""
        u = 0
        for i in range(5 if bits == 32 else 10):
            byte = self.take(1)[0]
            u |= (byte & 127) << (7 * i)
            if byte < 128:
                u &= (1 << bits) - 1
                return u // 2 if u % 2 == 0 else -(u // 2) - 1
        raise Wrong("varint too long")

    def nullable(self) -> bytes | None:
        """A length and that many bytes; any negative length is null."""
        size = self.varint(32)
        return None if size < 0 else self.take(size)


# -- batches --


@dataclass
class Batch:
    """A decoded batch: the header's fields as stored, and the records."""

    base_offset: int = 0
    leader_epoch: int = -1
    attributes: int = 0
    last_offset_delta: int = 0
    base_timestamp: int = -1
    max_timestamp: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    record_count: int = 0
    records: list[OneRecord] = field(default_factory=list)


def encode_record(record: OneRecord, base_offset: int, base_timestamp: int) -> bytes:
    """One record as it stands in a batch."""

    def nullable(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = b"\0" + varint(record.timestamp - base_timestamp) + varint(record.offset - base_offset)
    body += nullable(record.key) + nullable(record.value) + varint(len(record.headers))
    for key, value in record.headers:
        body += nullable(key.encode()) + nullable(value)
    return varint(len(body)) + body


def encode_header(batch: Batch, payload: bytes) -> bytes:
    """The whole batch around ``payload``, with its CRC."""
    fields = (
        batch.attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )
    covered = struct.pack(">hiqqqhii", *fields) + payload
    return (
        struct.pack(">qiibI", batch.base_offset, 49 + len(payload), batch.leader_epoch, 2, crc32c_table(covered))
        + covered
    )


def encode(batch: Batch) -> bytes:
    """A whole uncompressed batch as a builder makes it; counts, deltas and timestamps of ``batch`` are taken from
    its records."""
    batch.record_count = len(batch.records)
    batch.last_offset_delta = batch.records[-1].offset - batch.base_offset
    batch.base_timestamp = batch.records[0].timestamp
    batch.max_timestamp = max(record.timestamp for record in batch.records)
    return encode_header(
        batch, b"".join(encode_record(r, batch.base_offset, batch.base_timestamp) for r in batch.records)
    )


def decode_header(data: bytes) -> tuple[Batch, int]:
    """The header at the start of ``data``, and the batch's size. The body may be cut."""
    if len(data) >= 12 and struct.unpack_from(">i", data, 8)[0] < 14:
        raise Wrong("length")
    if len(data) < 17:
        raise Wrong("cut")
    if data[16] != 2:
        raise Wrong("magic")
    length: int = struct.unpack_from(">i", data, 8)[0]
    if length < 49 or length + 12 > INT_MAX:
        raise Wrong("length")
    if len(data) < 61:
        raise Wrong("cut")
    base, _, epoch, _, _, attributes, last, base_time, max_time, pid, pepoch, sequence, count = HEADER.unpack_from(data)
    if count < 0:
        raise Wrong("count")
    if base < 0 or last < 0 or base + last > 2**63 - 2:
        raise Wrong("offsets")
    return Batch(base, epoch, attributes, last, base_time, max_time, pid, pepoch, sequence, count), length + 12


def decode(data: bytes, *, strict: bool = True) -> tuple[Batch, int]:
    """The uncompressed batch at the start of ``data``, and its size. ``strict``: its CRC must be right."""
    batch, size = decode_header(data)
    if size > len(data):
        raise Wrong("cut")
    if strict and crc32c_table(data[21:size]) != struct.unpack_from(">I", data, 17)[0]:
        raise Wrong("crc")
    batch.records = decode_records(batch, data[61:size])
    return batch, size


def decode_records(batch: Batch, payload: bytes) -> list[OneRecord]:
    """The records of ``payload``, by the header of ``batch``."""
    reader = Reader(payload)
    previous = -1
    records = []
    for _ in range(batch.record_count):
        delta, record = decode_record(batch, reader)
        if not previous < delta <= batch.last_offset_delta:
            raise Wrong("offsets")
        previous = delta
        records.append(record)
    if reader.left:
        raise Wrong("trailing")
    return records


def decode_record(batch: Batch, reader: Reader) -> tuple[int, OneRecord]:
    """(offset delta, record) at the reader."""
    length = reader.varint(32)
    if length < 0:
        raise Wrong("length")
    body = Reader(reader.take(length))
    body.take(1)
    timestamp = batch.base_timestamp + body.varint(64)
    timestamp = (timestamp + 2**63) % 2**64 - 2**63
    delta = body.varint(32)
    key = body.nullable()
    value = body.nullable()
    count = body.varint(32)
    if count < 0 or count > body.left:
        raise Wrong("header count")
    headers = []
    for _ in range(count):
        name = body.nullable()
        if name is None:
            raise Wrong("header key")
        headers.append((name.decode(errors="replace"), body.nullable()))
    if body.left:
        raise Wrong("length")
    if batch.attributes & 8:
        timestamp = batch.max_timestamp
    return delta, OneRecord(batch.base_offset + delta, timestamp, key, value, tuple(headers))


# -- indexes: sorted lists --


class OffsetIndex:
    """(offset, position) entries."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.entries: list[tuple[int, int]] = []

    def append(self, offset: int, position: int) -> None:
        """Add an entry; :class:`Wrong` out of order or range."""
        if not (0 <= offset - self.base <= INT_MAX and 0 <= position <= INT_MAX):
            raise Wrong("range")
        if self.entries and (offset <= self.entries[-1][0] or position < self.entries[-1][1]):
            raise Wrong("order")
        self.entries.append((offset, position))

    def lookup(self, offset: int) -> tuple[int, int]:
        """Greatest entry not above, else (base, 0)."""
        at_most = [entry for entry in self.entries if entry[0] <= offset]
        return at_most[-1] if at_most else (self.base, 0)

    def truncate(self, offset: int) -> None:
        """Drop entries at or above ``offset``."""
        self.entries = [entry for entry in self.entries if entry[0] < offset]

    def data(self) -> bytes:
        """As in the file."""
        return b"".join(struct.pack(">ii", offset - self.base, position) for offset, position in self.entries)


class TimeIndex:
    """(timestamp, offset) entries."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.entries: list[tuple[int, int]] = []

    def append(self, timestamp: int, offset: int) -> bool:
        """Add an entry where the timestamp rises; :class:`Wrong` where the offset then falls."""
        if not 0 <= offset - self.base <= INT_MAX:
            raise Wrong("range")
        if timestamp <= (self.entries[-1][0] if self.entries else -1):
            return False
        if self.entries and offset < self.entries[-1][1]:
            raise Wrong("order")
        self.entries.append((timestamp, offset))
        return True

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Greatest entry not above, else (-1, base)."""
        slot = bisect.bisect_right([entry[0] for entry in self.entries], timestamp)
        return self.entries[slot - 1] if slot else (-1, self.base)

    def truncate(self, offset: int) -> None:
        """Drop entries at or above ``offset``."""
        self.entries = [entry for entry in self.entries if entry[1] < offset]

    def data(self) -> bytes:
        """As in the file."""
        return b"".join(struct.pack(">qi", timestamp, offset - self.base) for timestamp, offset in self.entries)


# -- the scan of a segment --


@dataclass
class Scan:
    """What a segment's bytes say."""

    valid_size: int
    problem: str
    next_offset: int
    max_timestamp: int
    epochs: list[tuple[int, int]]
    offset_entries: bytes
    time_entries: bytes


def scan(data: bytes, base_offset: int, interval: int) -> Scan:
    """Take whole, valid batches from the start until one is bad (``problem``: a word) or cut (``"cut"``)."""
    position, next_offset, max_timestamp, max_offset, since = 0, base_offset, -1, base_offset, 0
    offsets, times, problem = OffsetIndex(base_offset), TimeIndex(base_offset), ""
    epochs: list[tuple[int, int]] = []
    while position < len(data):
        try:
            batch, size = decode_header(data[position:])
            check_in_segment(data[position : position + size], batch, size, base_offset, next_offset, epochs)
        except Wrong as wrong:
            problem = str(wrong)
            break
        last = batch.base_offset + batch.last_offset_delta
        if batch.leader_epoch > (epochs[-1][0] if epochs else -1):
            epochs.append((batch.leader_epoch, batch.base_offset))
        if batch.max_timestamp > max_timestamp:
            max_timestamp, max_offset = batch.max_timestamp, last
        if since > interval:
            offsets.append(last, position)
            times.append(max_timestamp, max_offset)
            since = 0
        since += size
        position += size
        next_offset = last + 1
    times.append(max_timestamp, max_offset)
    return Scan(position, problem, next_offset, max_timestamp, epochs, offsets.data(), times.data())


def check_in_segment(
    data: bytes, batch: Batch, size: int, base_offset: int, next_offset: int, epochs: Sequence[tuple[int, int]]
) -> None:
    """Raise :class:`Wrong` unless the batch is whole and may follow what came before."""
    if len(data) < size:
        raise Wrong("cut")
    if crc32c_table(data[21:]) != struct.unpack_from(">I", data, 17)[0]:
        raise Wrong("crc")
    if batch.base_offset < next_offset:
        raise Wrong("order")
    if batch.base_offset + batch.last_offset_delta - base_offset > INT_MAX:
        raise Wrong("range")
    if batch.leader_epoch < (epochs[-1][0] if epochs else -1):
        raise Wrong("epoch")


def headers_of(data: bytes) -> Iterable[tuple[int, Batch, int]]:
    """(position, batch without records, size) of each batch whose header is there."""
    position = 0
    while len(data) - position >= 61:
        batch, size = decode_header(data[position:])
        yield position, batch, size
        position += size
