"""Cutting a log at its end: what a follower does that had more than its leader. A part of :class:`Log`, and used by
it alone."""

from __future__ import annotations

from pyreplog.errors import CorruptError, InternalError, StorageError
from pyreplog.log import history
from pyreplog.log.append import LogAppender
from pyreplog.log.contiguity import ContiguityCheck
from pyreplog.log.segment_writer import INTERRUPTING, SegmentWriter


def truncate_to(log: LogAppender, offset: int) -> None:
    """See :meth:`Log.truncate_to`."""
    log._check_writable()
    if offset < 0:
        raise InternalError(f"{log.topic_partition}: truncation to offset {offset}")
    if offset >= log.end_offset:
        history.cut_end(log)
        return
    if offset < log._segments.first.base_offset:
        truncate_fully(log, offset)
        return
    try:
        _truncate(log, offset)
    except StorageError as error:
        log.poison(error)
        raise
    except (CorruptError, *INTERRUPTING) as error:
        log.end(error)
        raise
    if not history.cut_end(log):
        log.write_mark()


def _truncate(log: LogAppender, offset: int) -> None:
    _invalidate_readers(log)
    target = log._segments.end_below(offset)
    _lower_mark_first(log, target)
    log._write_to(log._segments.truncate(offset, log.clock.wall_ms()))
    # Before anything follows: after power loss what was cut must not lie, whole, between batches
    # that were written in its place.
    log._active.file.sync()
    log.end_offset = log._active.next_offset
    _clamp_offsets(log)
    log.producers.truncate(list(log._segments), log.start_offset, log.end_offset)


def truncate_fully(log: LogAppender, start_offset: int) -> None:
    """See :meth:`Log.truncate_fully`."""
    log._check_writable()
    try:
        try:
            _remove_all(log, start_offset)
        except StorageError as error:
            log.poison(error)
            raise
        _begin_at(log, start_offset)
    except INTERRUPTING as error:
        log.end(error)
        raise
    history.write(log)
    log._sync_mark()


def _remove_all(log: LogAppender, start_offset: int) -> None:
    _invalidate_readers(log)
    first = log._segments.first.base_offset
    log.start_offset = first
    log.high_watermark = first
    # Where the log is to begin below what it has, a mark that promises what lies between would find
    # nothing there.
    _lower_mark_first(log, min(first, start_offset))
    log._segments.remove_all()
    log._pending_deletes.delete_unrenamed()
    log.producers.clear(start_offset)


def _begin_at(log: LogAppender, start_offset: int) -> None:
    """A log that has lost its segments gets a new one."""
    try:
        interval = log.config.index_interval_bytes
        segment = SegmentWriter.create(
            log.disk, log.directory, start_offset, index_interval=interval, wall_ms=log.clock.wall_ms()
        )
        log._sync_directory()
    except StorageError as error:
        log.give_up(error)
        raise
    log._segments.append(segment)
    log._write_to(segment)
    log.start_offset = log.end_offset = log.flushed_offset = log.high_watermark = start_offset
    log._unsynced_since_ns = -1
    log.epochs.clear()


def _invalidate_readers(log: LogAppender) -> None:
    """What was handed out, kept in memory or remembered of the end is void."""
    log.generation += 1
    log._tail.clear()
    if log._contiguity is not None:
        log._contiguity = ContiguityCheck(log.epochs)


def _lower_mark_first(log: LogAppender, offset: int) -> None:
    """Before a cut at ``offset``: no mark on the disk may promise what is about to go."""
    if offset >= log._mark.promised_end and offset >= log.flushed_offset:
        return
    log.flushed_offset = min(log.flushed_offset, offset)
    log.high_watermark = min(log.high_watermark, offset)
    log.start_offset = min(log.start_offset, offset)
    log._write_mark_synced()


def _clamp_offsets(log: LogAppender) -> None:
    end = log.end_offset
    if end <= log.flushed_offset:
        log.flushed_offset, log._unsynced_since_ns = end, -1
    log.start_offset = min(log.start_offset, end)
    log.high_watermark = max(min(log.high_watermark, end), log.start_offset)
