"""When the segment being written is full, and how the next one begins. A part of :class:`Log`, and used by it
alone."""

from __future__ import annotations

import contextlib
from functools import partial

from pyreplog._core import crc32c
from pyreplog.errors import StorageError
from pyreplog.log.layout import INT32_MAX, INT64_MAX
from pyreplog.log.segment import INTERRUPTING, Segment
from pyreplog.log.state import LogState


def is_full(log: LogState, active: Segment, size: int, next_offset: int, max_timestamp: int) -> bool:
    """Whether a batch for which ``active`` says that it has no room is really to go to the next segment."""
    return (
        active.size > active.size_max - size
        or next_offset > active.roll_offset
        or active.entries_left <= 0
        or (max_timestamp > active.roll_timestamp and is_old(log, max_timestamp))
    )


def is_old(log: LogState, max_timestamp: int) -> bool:
    """Whether the segment being written was begun too long ago for a batch with that timestamp: Kafka's rule, by
    its first batch's."""
    active = log._active
    if active.size == 0:
        return False
    if active.first_timestamp >= 0:
        active.roll_timestamp = min(active.first_timestamp + log._segment_ms, INT64_MAX)
        return max_timestamp > active.roll_timestamp
    # No timestamps to go by: asked anew for each batch.
    active.roll_timestamp = -INT64_MAX
    return log.clock.wall_ms() - active.created_ms > log._segment_ms


def write_to(log: LogState, segment: Segment) -> None:
    """Make ``segment`` the one being written: work out once where it will be full."""
    log._active = segment
    config = log.config
    segment.limit_entries(config.segment_index_bytes)
    log._segment_ms = config.segment_ms
    if config.segment_jitter_ms:
        # Any number will do that differs between segments: no chance is needed.
        drawn = crc32c(f"{log.topic_partition}/{segment.base_offset}".encode())
        log._segment_ms -= drawn * min(config.segment_jitter_ms, config.segment_ms) >> 32
    segment.size_max = config.segment_bytes
    segment.roll_offset = min(segment.base_offset + INT32_MAX + 1, INT64_MAX)
    # Until somebody asks for real; any timestamp does.
    segment.roll_timestamp = -INT64_MAX
    if log._counts_flushed:
        segment.expect_syncs()


def roll(log: LogState, base_offset: int | None = None) -> Segment:
    """Close the segment being written and begin the next one: its files are made, their folder synced, and the mark
    too."""
    active = log._active
    base = log.end_offset if base_offset is None else base_offset
    if active.size == 0 and active.base_offset == base:
        return active
    try:
        active.close_for_writing()
        active.synced = False
        segment = Segment.create(
            log.disk,
            log.directory,
            base,
            index_interval=log.config.index_interval_bytes,
            wall_ms=log.clock.wall_ms(),
            room=log.config.segment_bytes if log.config.preallocate else 0,
        )
    except StorageError as error:
        log._append_refused(error)
        raise
    try:
        log._sync_or_poison(partial(log.producers.roll, base, log.clock.monotonic_ns() // 1_000_000))
        log._sync_directory()
        log._write_mark_synced()
    except StorageError as error:
        # For lack of room too: the new segment is there by now, and going on in the old one would
        # make them overlap.
        log.give_up(error)
        raise
    try:
        log._segments.append(segment)
        write_to(log, segment)
    except INTERRUPTING as error:
        log.end(error)
        raise
    if active.size == 0 and active is not log._segments.first:
        # What comes is too far away for its indexes. The oldest stays: the log's start is in it.
        # One that the disk keeps does no harm: it is empty, and the next opening reads over it.
        with contextlib.suppress(StorageError):
            log._segments.drop(active)
    if log.on_roll is not None:
        log.on_roll()
    return segment
