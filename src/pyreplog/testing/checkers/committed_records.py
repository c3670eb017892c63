"""The committed records of one compacted partition, and what each of its copies may lack of them.

The history has every record that was ever committed, also those that no copy has any more. A slow twin of compaction:
it knows no segments and no passes, only which records a copy must have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyreplog.record import Record, RecordBatch, records_of
from pyreplog.testing.workload import identity

__all__ = ["CommittedRecords", "Kept"]


class Kept(NamedTuple):
    """The content of one record. ``value`` is None for a tombstone."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]
    identity: bytes

    @classmethod
    def of(cls, record: Record) -> Kept:
        """Return the content of ``record``."""
        return cls(record.key, record.value, record.timestamp, tuple(record.headers), identity(record))

    def __str__(self) -> str:
        """Return the key and the beginning of the value."""
        return f"{self.key!r} = {'a tombstone' if self.value is None else repr(self.value[:40])}"


class _Frame(NamedTuple):
    """The fields of a batch that compaction keeps."""

    next_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    attributes: int

    @classmethod
    def of(cls, batch: RecordBatch) -> _Frame:
        kept = batch.attributes & 0x3F  # without the bit of the delete horizon
        return cls(
            batch.next_offset,
            batch.leader_epoch,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            kept,
        )


class CommittedRecords:
    """The history of one compacted partition. ``records`` is by offset, ``newest`` the last offset of each key."""

    def __init__(self) -> None:
        self.records: dict[int, Kept] = {}
        self.newest: dict[bytes | None, int] = {}
        self.dropped: dict[int, None] = {}
        """Tombstones that a pass dropped after their delete horizon, and that are the newest of their key."""
        self._frames: dict[int, _Frame] = {}
        self._parsed: dict[tuple[int, int], dict[int, Kept]] = {}

    def add(self, batch: RecordBatch) -> None:
        """Add a batch that has just been committed."""
        self._frames[batch.base_offset] = _Frame.of(batch)
        for offset, kept in self.content(batch).items():
            self.records[offset] = kept
            self.newest[kept.key] = offset

    def content(self, batch: RecordBatch) -> dict[int, Kept]:
        """Return the records of a batch by offset. Do not change it."""
        place = (batch.base_offset, batch.crc)
        found = self._parsed.get(place)
        if found is None:
            found = self._parsed[place] = {one.offset: Kept.of(one) for one in records_of(batch)}
        return found

    def present(self, batches: Iterable[RecordBatch], start: int) -> dict[int, Kept]:
        """Return the records from offset ``start`` on in ``batches``."""
        return {offset: kept for batch in batches for offset, kept in self.content(batch).items() if offset >= start}

    def are_all(self, found: dict[int, Kept], start: int, end: int) -> bool:
        """Return whether ``found`` are all records from ``start`` to ``end``, as they were committed."""
        records = self.records
        return all(found.get(offset) == records.get(offset) for offset in range(start, end))

    def may_lack(self, offset: int) -> bool:
        """Return whether a copy may lack the record at ``offset``: a later record of its key is committed, or it is a
        tombstone that was dropped rightly. A record without a key never goes."""
        key = self.records[offset].key
        return key is not None and (self.newest[key] > offset or offset in self.dropped)

    def wrong(self, batches: Sequence[RecordBatch], start: int, end: int) -> str:
        """Return the first fault of ``batches``, all that a copy has from offset ``start`` to ``end``; empty if there
        is none. REQUIRES that all below ``end`` is committed."""
        before = 0
        for batch in batches:
            base = batch.base_offset
            frame = self._frames.get(base)
            if base < before:
                return f"the batch at {base} begins below the end of the one before, {before}"
            if frame != _Frame.of(batch):
                return f"the batch at {base} is {_Frame.of(batch)}, and {frame} was committed"
            before = batch.next_offset
        found = self.present(batches, start)
        for offset, kept in found.items():
            if self.records.get(offset) != kept:
                return f"offset {offset} is {kept}, and {self.records.get(offset)} was committed"
        return self._wrongly_missing(found, start, end) or self._stale(found, start, end)

    def _wrongly_missing(self, found: dict[int, Kept], start: int, end: int) -> str:
        for offset, kept in self.records.items():
            if start <= offset < end and offset not in found and not self.may_lack(offset):
                return f"offset {offset} is missing, which is the newest of its key: {kept}"
        return ""

    def _stale(self, found: dict[int, Kept], start: int, end: int) -> str:
        """Return a key whose newest record in a copy is not the newest committed one below ``end``, although no later
        record of the key will come."""
        newest = {kept.key: offset for offset, kept in found.items()}
        for offset, kept in self.records.items():
            here = newest.get(kept.key, -1)
            if start <= offset < end and -1 < here < offset and self.newest[kept.key] < end:
                return f"its newest record of a key is at {here}: {found[here]}; offset {offset} is {kept}"
        return ""

    def wrong_table(self, read: dict[int, bytes]) -> str:
        """Return a key whose newest record a reader did not get that read ``read``, identities by offset; empty if
        there is none. Of a key whose newest record is a dropped tombstone it must have got nothing."""
        found: dict[bytes | None, int] = {}
        for offset in read:
            key = self.records[offset].key
            found[key] = max(found.get(key, -1), offset)
        for key, newest in self.newest.items():
            last = found.get(key, -1)
            if key is not None and last != newest and (last >= 0 or newest not in self.dropped):
                return f"has offset {last} as the newest of {key!r}; that is at {newest}: {self.records[newest]}"
        return ""

    def not_replaced(self, batches: Sequence[RecordBatch], start: int, end: int) -> str:
        """Return a record below ``end`` that a copy has beside a later one of its key below ``end``; empty if there
        is none, as after a pass up to ``end``."""
        before: dict[bytes | None, int] = {}
        for offset, kept in self.present(batches, start).items():
            if kept.key is None or offset >= end:
                continue
            if kept.key in before:
                return f"offset {before[kept.key]} is there beside {offset} of the same key, {kept.key!r}"
            before[kept.key] = offset
        return ""
