"""What several edge cases share: hand-made records and batches, logs of several segments."""

from __future__ import annotations

import struct

from pyreplog.config import LogConfig
from pyreplog.log import Log
from pyreplog.log.segment_writer import SegmentWriter
from pyreplog.record import RecordBatch
from tests.oracle import batch as oracle
from tests.unit.log.conftest import Place
from tests.unit.log.support import batch, create

INT32_MAX = 2**31 - 1


def with_records(payload: bytes, count: int = 1) -> RecordBatch:
    """A batch whose records are ``payload``, whatever it is."""
    header = struct.pack(">qiibIhiqqqhii", 0, 49 + len(payload), 0, 2, 0, 0, count - 1, 5, 5, -1, -1, -1, count)
    return RecordBatch(header + payload)


def record(body: bytes) -> bytes:
    """``body`` with its length."""
    return oracle.varint(len(body)) + body


def rebuilt(data: bytes, **changes: int) -> bytes:
    """The records of a plain batch under a header with other fields, checksum right."""
    header, size = oracle.decode_header(data)
    for name, value in changes.items():
        setattr(header, name, value)
    return oracle.encode_header(header, data[61:size])


def segments(log: Log) -> list[SegmentWriter]:
    """Of a log."""
    return list(log._segments)


def filled(place: Place, count: int = 40, **settings: int) -> Log:
    """A log of batches with 2 records each, in several segments, with an index entry for nearly each."""
    log = create(
        place.disk,
        place.of("t-0"),
        LogConfig(**{"segment_bytes": 1024, "index_interval_bytes": 0, **settings}),  # type: ignore[arg-type]
    )
    for number in range(count):
        log.append_as_leader(batch(2, timestamp=1000 * number), 0)
    return log


def one_segment(place: Place, base: int, starts: list[int]) -> SegmentWriter:
    """A segment at ``base`` with a batch of 2 records at each of ``starts``."""
    segment = SegmentWriter.create(place.disk, place.path, base, index_interval=0, wall_ms=0)
    segment.limit_entries(1 << 20)
    for start in starts:
        data = batch(2, base_offset=start, leader_epoch=0, timestamp=start)
        segment.write((data,), data.nbytes)
        segment.note(data.nbytes, start + 1, start + 1)
    return segment
