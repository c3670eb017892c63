"""A partition in memory, built by the real encoder, and the rows a scan of it must give by the obvious way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from typing_extensions import Buffer

from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import CorruptLogError
from pyreplog.record import BatchBuilder, RecordBatch, compress

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Event(NamedTuple):
    """One record to be stored."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = -1


class Stored(NamedTuple):
    """One batch: its records, its codec, when the log appended it (-1: the producers' times stand), its epoch."""

    events: Sequence[Event]
    codec: int = 0
    append_timestamp: int = -1
    leader_epoch: int = 0
    control: bool = False


def encode(stored: Stored, base_offset: int) -> bytes:
    """The batch as it stands in a log."""
    builder = BatchBuilder(1 << 26)
    for event in stored.events:
        assert builder.append(event.value, event.key, event.headers, event.timestamp)
    payload = compress(stored.codec, bytes(builder.payload())) if stored.codec else None
    log_append_time = stored.append_timestamp >= 0
    return bytes(
        builder.finish(
            base_offset=base_offset,
            leader_epoch=stored.leader_epoch,
            codec=stored.codec,
            payload=payload,
            timestamp_type=int(log_append_time),
            append_timestamp=stored.append_timestamp,
            control=stored.control,
            transactional=stored.control,
            producer_id=1 if stored.control else -1,
            producer_epoch=0 if stored.control else -1,
        )
    )


class MemorySource:
    """A partition whose batches lie in memory: what a scan reads from."""

    def __init__(self, batches: Iterable[Stored], start_offset: int = 0) -> None:
        self.start_offset = start_offset
        self.rows: list[dict[str, Any]] = []
        self.chunks: list[bytes] = []
        offset = start_offset
        for stored in batches:
            self.chunks.append(encode(stored, offset))
            for index, event in enumerate(stored.events):
                timestamp = event.timestamp if stored.append_timestamp < 0 else stored.append_timestamp
                if not stored.control:
                    self.rows.append(
                        {
                            "offset": offset + index,
                            "timestamp": timestamp,
                            "timestamp_type": int(stored.append_timestamp >= 0),
                            "key": event.key,
                            "value": event.value,
                            "headers": [{"key": key, "value": value} for key, value in event.headers],
                            "leader_epoch": stored.leader_epoch,
                        }
                    )
            offset += len(stored.events)
        self.end_offset = offset
        self.reads = 0
        self.max_batch_bytes = MAX_BATCH_BYTES

    def refresh(self) -> None:
        """Nothing to notice."""

    def read(self, offset: int, size_max: int) -> Buffer:
        """Whole batches from the one that holds ``offset``, at least one."""
        self.reads += 1
        taken = b""
        for chunk in self.chunks:
            if RecordBatch(chunk).next_offset > offset and (not taken or len(taken) + len(chunk) <= size_max):
                taken += chunk
            elif taken:
                break
        return taken

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """The error for a batch of this source."""
        return CorruptLogError(reason, start=offset, end=offset + 1, file="memory", position=0, partition="memory-0")

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """The first row that late."""
        for row in self.rows:
            if row["timestamp"] >= timestamp:
                return row["offset"], row["timestamp"]
        return None


def expected(
    source: MemorySource,
    *,
    start: int | None = None,
    end: int | None = None,
    start_timestamp: int | None = None,
    end_timestamp: int | None = None,
) -> list[dict[str, Any]]:
    """The rows of the ranges, one comparison after the other; timestamps as Arrow gives them."""
    rows = []
    for row in source.rows:
        timestamp = row["timestamp"]
        if (start is not None and row["offset"] < start) or (end is not None and row["offset"] >= end):
            continue
        if (start_timestamp is not None or end_timestamp is not None) and timestamp == -1:
            continue
        if (start_timestamp is not None and timestamp < start_timestamp) or (
            end_timestamp is not None and timestamp >= end_timestamp
        ):
            continue
        rows.append(row | {"timestamp": None if timestamp == -1 else EPOCH + timedelta(milliseconds=timestamp)})
    return rows
