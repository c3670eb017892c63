"""The slow, obvious twin of ``pyreplog.log.Log``: batches in a list, nothing on a disk.

It has the part of the log's interface that a replica uses, so the replica's tests run over both. Every rule is the
plainest form of what ``docs/internals/durability.md`` and ``docs/internals/replication.md`` say.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, CorruptError, MessageTooLargeError, OffsetOutOfRangeError, OutcomeUnknownError
from pyreplog.ports import File
from pyreplog.values import EpochEntry, TopicPartition

HEADER = struct.Struct(">qiibIhiqqqhii")


class Batch(NamedTuple):
    """One batch and the offsets it covers, both ends included."""

    base: int
    last: int
    epoch: int
    data: bytes


class Appended(NamedTuple):
    """What ``append_as_leader`` returns."""

    base_offset: int
    last_offset: int
    timestamp: int
    record_count: int
    size: int
    duplicate: bool = False


class SyncPlan(NamedTuple):
    """What ``sync_plan`` returns."""

    files: list[File]
    upto: int
    generation: int


def parse(data: bytes | bytearray) -> list[Batch]:
    """The whole batches of ``data``."""
    found, position = [], 0
    while position < len(data):
        if position + HEADER.size > len(data):
            raise CorruptError("cut in a header", position=position)
        base, length, epoch, magic, _crc, _attributes, delta, *_ = HEADER.unpack_from(data, position)
        if magic != 2 or position + 12 + length > len(data):
            raise CorruptError("not a whole batch", position=position)
        found.append(Batch(base, base + delta, epoch, bytes(data[position : position + 12 + length])))
        position += 12 + length
    return found


class MemoryEpochs:
    """The epoch cache as a list of (epoch, start offset)."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.entries: list[EpochEntry] = []

    @property
    def latest(self) -> int:
        return self.entries[-1].epoch if self.entries else -1

    def assign(self, epoch: int, start: int) -> None:
        if self.entries and self.entries[-1].epoch == epoch and self.entries[-1].start_offset <= start:
            return
        self.entries = [e for e in self.entries if e.epoch < epoch and e.start_offset < start]
        self.entries.append(EpochEntry(epoch, start))

    def truncate_from_end(self, offset: int) -> None:
        self.entries = [e for e in self.entries if e.start_offset < offset]

    def truncate_from_start(self, offset: int) -> None:
        kept = [
            e
            for i, e in enumerate(self.entries)
            if i + 1 == len(self.entries) or self.entries[i + 1].start_offset > offset
        ]
        if kept and kept[0].start_offset < offset:
            kept[0] = EpochEntry(kept[0].epoch, offset)
        self.entries = kept

    def end_offset_for(self, epoch: int, end_offset: int) -> EpochEntry:
        if epoch < 0 or not self.entries:
            return EpochEntry(-1, -1)
        if epoch == self.entries[-1].epoch:
            return EpochEntry(epoch, end_offset)
        above = [e for e in self.entries if e.epoch > epoch]
        below = [e for e in self.entries if e.epoch <= epoch]
        if not above:
            return EpochEntry(-1, -1)
        if not below:
            return EpochEntry(epoch, self.entries[0].start_offset)
        return EpochEntry(below[-1].epoch, above[0].start_offset)

    def epoch_for_offset(self, offset: int) -> int:
        found = [e.epoch for e in self.entries if e.start_offset <= offset]
        return found[-1] if found else -1


class MemorySlice:
    """Batches read; stale once the log was truncated."""

    def __init__(self, log: MemoryLog, offset: int, batches: list[Batch]) -> None:
        self.log, self.offset, self.batches, self.generation = log, offset, batches, log.generation
        self.size = sum(len(b.data) for b in batches)

    def parts(self) -> list[memoryview]:
        if self.generation != self.log.generation:
            raise OutcomeUnknownError("reading a slice", "the log was truncated since")
        return [memoryview(b.data) for b in self.batches]


class MemoryLog:
    """One partition. ``mark`` is what ``write_mark`` last wrote: (synced end, high watermark, incomplete)."""

    has_unsynced_segment = False  # it has none

    def __init__(
        self, config: LogConfig | None = None, *, topic: str = "t", partition: int = 0, topic_id: str = "T" * 22
    ) -> None:
        self.config = config or LogConfig()
        self.topic_partition = TopicPartition(topic, partition)
        self.topic_id = topic_id
        self.durability = self.config.durability
        self.batches: list[Batch] = []
        self.start_offset = 0
        self.end_offset = 0
        self.flushed_offset = 0
        self.high_watermark = 0
        self.generation = 0
        self.incomplete = self.reported = False
        self.epochs = MemoryEpochs(self)
        self.mark = (0, 0, False)
        self.failure: OSError | None = None
        self.fail_next: BaseException | None = None

    @property
    def ack_offset(self) -> int:
        return self.flushed_offset if self.durability == "sync" else self.end_offset

    def set_incomplete(self, value: bool) -> None:
        self.incomplete, self.reported = value, False
        self.write_mark()

    def set_reported(self) -> None:
        self.reported = self.incomplete

    def write_mark(self) -> None:
        self.mark = (self.flushed_offset, self.high_watermark, self.incomplete)

    def _may_append(self) -> None:
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        if self.failure is not None:
            raise ClosedError("poisoned") from self.failure

    def append_as_leader(self, batch: bytes, leader_epoch: int, *, trusted: bool = False) -> Appended:
        self._may_append()
        data = bytearray(batch)
        found = parse(data)
        if len(found) != 1:
            raise CorruptError("not one batch")
        if len(data) > self.config.max_message_bytes:
            raise MessageTooLargeError
        struct.pack_into(">q", data, 0, self.end_offset)
        struct.pack_into(">i", data, 12, leader_epoch)
        one = parse(data)[0]
        self.epochs.assign(leader_epoch, one.base)
        self.batches.append(one)
        self.end_offset = one.last + 1
        return Appended(one.base, one.last, -1, one.last - one.base + 1, len(data))

    def append_many_as_leader(self, batches: Sequence[tuple[bytes, bool]], leader_epoch: int) -> list[Appended]:
        return [self.append_as_leader(batches[0][0], leader_epoch)]

    def append_as_follower(self, parts: Sequence[bytes], *, at_end: bool = False, dropped_tombstone: int = -1) -> int:
        self._may_append()
        for batch in parse(b"".join(parts)):
            if batch.base != self.end_offset:
                raise CorruptError(f"batch at {batch.base}, log ends at {self.end_offset}")
            self.epochs.assign(batch.epoch, batch.base)
            self.batches.append(batch)
            self.end_offset = batch.last + 1
        return self.end_offset

    def become_leader(self, leader_epoch: int) -> None:
        self.epochs.assign(leader_epoch, self.end_offset)

    def read(self, offset: int, size_max: int, end_offset: int, *, checked: bool = False) -> MemorySlice:
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        found: list[Batch] = []
        for batch in self.batches:
            if batch.last < offset:
                continue
            if batch.last >= end_offset or (found and sum(len(b.data) for b in found) + len(batch.data) > size_max):
                break
            found.append(batch)
        return MemorySlice(self, offset, found)

    def find_timestamp(self, timestamp: int, end_offset: int) -> tuple[int, int] | None:
        for batch in self.batches:
            base_timestamp, max_timestamp = HEADER.unpack_from(batch.data)[7:9]
            if max_timestamp >= timestamp and batch.last < end_offset:
                return (batch.base, base_timestamp)
        return None

    def truncate_to(self, offset: int) -> None:
        self.epochs.truncate_from_end(offset)
        if offset >= self.end_offset:
            return
        if offset < (self.batches[0].base if self.batches else self.start_offset):
            self.truncate_fully(offset)
            return
        self.generation += 1
        self.batches = [b for b in self.batches if b.last < offset]
        self.end_offset = self.batches[-1].last + 1 if self.batches else self.start_offset
        self.flushed_offset = min(self.flushed_offset, self.end_offset)
        self.high_watermark = min(self.high_watermark, self.end_offset)
        self.write_mark()

    def truncate_fully(self, start_offset: int) -> None:
        self.generation += 1
        self.batches = []
        self.epochs.entries = []
        self.start_offset = self.end_offset = self.flushed_offset = self.high_watermark = start_offset
        self.write_mark()

    def advance_high_watermark(self, offset: int) -> bool:
        offset = min(max(offset, self.start_offset), self.end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = min(max(offset, self.start_offset), self.end_offset)

    def increment_start_offset(self, offset: int) -> None:
        if offset > self.start_offset:
            self.start_offset = offset
            self.batches = [b for b in self.batches if b.last >= offset]
            self.epochs.truncate_from_start(offset)

    def delete_records(self, offset: int) -> int:
        self.increment_start_offset(offset)
        self.write_mark()
        return self.start_offset

    def sync_plan(self) -> SyncPlan | None:
        return None if self.flushed_offset == self.end_offset else SyncPlan([], self.end_offset, self.generation)

    def synced(self, upto: int, generation: int, *, mark: bool = True) -> None:
        if generation == self.generation:
            self.flushed_offset = max(self.flushed_offset, upto)
            if mark:
                self.write_mark()

    def poison(self, error: OSError) -> None:
        self.failure = error

    # -- for the tests

    def lose_power(self) -> None:
        """What was not synced is gone; the high watermark is the mark's, as far as it is covered."""
        kept = self.flushed_offset
        self.truncate_to(kept)
        self.high_watermark = min(self.mark[1], self.end_offset)

    @property
    def shape(self) -> list[tuple[int, int, int]]:
        """(base, last, epoch) of every batch."""
        return [(b.base, b.last, b.epoch) for b in self.batches]

    @property
    def content(self) -> list[bytes]:
        """Every batch's bytes."""
        return [b.data for b in self.batches]
