"""Compaction as the slow twin does it: a dict of the newest offset of each key, one record after another.

The rules are those of Kafka's Cleaner, written from docs/internals/compaction.md: nothing here is shared with the
library.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.oracle.batch import Batch, OneRecord, decode_header, decode_records

HORIZON = 0x40
CONTROL = 0x20
TRANSACTIONAL = 0x10
APPEND_TIME = 0x08


def batches_of(data: bytes) -> list[Batch]:
    """The batches of ``data``, gzip or uncompressed, with their records."""
    found = []
    while data:
        batch, size = decode_header(data)
        payload = data[61:size]
        batch.records = decode_records(batch, gzip.decompress(payload) if batch.attributes & 7 else payload)
        found.append(batch)
        data = data[size:]
    return found


def compacted(
    batches: Sequence[Batch],
    first_dirty: int,
    end: int,
    segments_end: int,
    *,
    now_ms: int,
    retention_ms: int,
    producers: Mapping[int, tuple[int, int]],
    aborted: Sequence[tuple[int, int, int]] = (),
    drops_unkeyed: bool = True,
) -> list[Batch]:
    """What a pass leaves of the batches below ``segments_end``. Records from ``end`` on are not in its map.
    ``aborted``: (producer, first offset, offset of the marker)."""
    newest: dict[bytes, int] = {}
    for batch in batches:
        if batch.attributes & CONTROL or _is_aborted(batch, aborted):
            continue
        for record in batch.records:
            if record.key is not None and first_dirty <= record.offset < end:
                newest[record.key] = record.offset
    seen: set[int] = set()
    left = []
    for batch in batches:
        if batch.base_offset >= segments_end:
            left.append(batch)
            continue
        horizon = batch.base_timestamp if batch.attributes & HORIZON else None
        empties = False
        if batch.attributes & CONTROL:
            empties = not batch.records or _marks_nothing(batch, seen)
            discards = empties and horizon is not None and horizon <= now_ms
        else:
            discards = _is_aborted(batch, aborted)
            if batch.attributes & TRANSACTIONAL:
                seen.add(batch.producer_id)
        kept = []
        for record in batch.records:
            if discards:
                continue
            if batch.attributes & CONTROL or record.offset >= end:
                kept.append(record)
            elif record.key is None:
                if not drops_unkeyed:
                    kept.append(record)
            elif record.offset >= newest.get(record.key, -1) and (
                record.value is not None or horizon is None or now_ms < horizon
            ):
                kept.append(record)
        if kept:
            marks = empties or any(record.value is None for record in kept)
            if marks and horizon is None:
                left.append(_rebuilt(batch, kept, now_ms + retention_ms))
            elif len(kept) < len(batch.records):
                left.append(_rebuilt(batch, kept, horizon))
            else:
                left.append(batch)
        elif _stays(batch, end, producers):
            left.append(
                replace(batch, records=[], record_count=0, base_timestamp=-1, attributes=batch.attributes & 0x38)
            )
    return left


def _rebuilt(batch: Batch, kept: Sequence[OneRecord], horizon: int | None) -> Batch:
    records = list(kept)
    greatest = batch.max_timestamp
    if not batch.attributes & APPEND_TIME:
        greatest = max(record.timestamp for record in records)
    base = records[0].timestamp if horizon is None else horizon
    return replace(
        batch,
        records=records,
        record_count=len(records),
        base_timestamp=base,
        max_timestamp=greatest,
        attributes=batch.attributes | (HORIZON if horizon is not None else 0),
    )


def _stays(batch: Batch, end: int, producers: Mapping[int, tuple[int, int]]) -> bool:
    last = batch.base_offset + batch.last_offset_delta
    if last + 1 == end:
        return True
    if batch.producer_id not in producers:
        return False
    newest, epoch = producers[batch.producer_id]
    return last == newest if newest >= 0 else bool(batch.attributes & CONTROL) and batch.producer_epoch == epoch


def _is_aborted(batch: Batch, aborted: Sequence[tuple[int, int, int]]) -> bool:
    return bool(batch.attributes & TRANSACTIONAL) and any(
        producer == batch.producer_id and first <= batch.base_offset < marker for producer, first, marker in aborted
    )


def _marks_nothing(batch: Batch, seen: set[int]) -> bool:
    """Whether no batch of the transaction that this marker ends was seen since the one before."""
    had = batch.producer_id in seen
    seen.discard(batch.producer_id)
    return not had
