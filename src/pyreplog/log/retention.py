"""Removing the oldest segments, by size, by age, and where the log's start has passed them. Rules: Kafka's
``UnifiedLog``.

What may go is a prefix of the segments, and nothing above the high watermark: the other replicas, and readers, may
need it. The start offset is raised durably first, then the files go; so a crash in between leaves files below the
start, which the next opening removes, and never a hole. Where everything may go, an empty segment is begun at the
end before.

Age is the wall clock's word against that of the records. A clock that jumps ahead would make everything old at
once: what only the jump makes old goes one segment at a time, each time this runs, until the clock is back or
somebody confirms it.
"""

from __future__ import annotations

from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, StorageError
from pyreplog.log import history
from pyreplog.log.append import LogAppender
from pyreplog.log.log_segments import LogSegments
from pyreplog.log.segment_writer import SegmentWriter


def removable(
    segments: LogSegments, config: LogConfig, *, start_offset: int, bound: int, wall_ms: int, sure_ms: int
) -> int:
    """How many of the oldest segments may go: those below ``start_offset``, then by size, then by age. None reaches
    above ``bound``.

    ``wall_ms`` is what the clock says, ``sure_ms`` the latest time that is beyond doubt: of the segments that are
    too old by the first alone one goes.
    """
    every = list(segments)
    ends = [segment.base_offset for segment in every[1:]] + [every[-1].end_offset()]
    last = len(every) - 1
    allowed = 0
    while allowed <= last and ends[allowed] <= bound and not (allowed == last and every[last].size == 0):
        allowed += 1
    count = 0
    while count < min(allowed, last) and ends[count] <= start_offset:
        count += 1
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in every[count:]) - config.retention_bytes
        while count < allowed and excess >= every[count].size:
            excess -= every[count].size
            count += 1
    if config.retention_ms >= 0:
        while count < allowed:
            newest = _newest(every[count])
            if wall_ms - newest <= config.retention_ms:
                break
            count += 1
            if sure_ms - newest <= config.retention_ms:
                break
    return count


def _newest(segment: SegmentWriter) -> int:
    """The greatest timestamp of a segment, in ms; that of its file where its records have none, or cannot be
    read."""
    try:
        newest = segment.largest_timestamp()
    except CorruptError:
        newest = -1
    if newest >= 0:
        return newest
    found = segment.disk.stat(segment.path)
    return 0 if found is None else found.mtime_ms


def raise_start(log: LogAppender, offset: int) -> bool:
    """Hide what lies below ``offset``; whether anything changed. The mark is the caller's to write."""
    if offset <= log.start_offset:
        return False
    log.start_offset = offset
    log.producers.table.raise_start(offset)
    history.cut_start(log)
    return True


def apply_retention(log: LogAppender, *, confirmed: bool) -> int:
    """See :meth:`Log.apply_retention`."""
    log._check_writable()
    now_ns = log.clock.monotonic_ns()
    failure = _clear_due(log, now_ns)
    if confirmed:
        log._trusted_clock.accept_jump()
    wall_ms, sure_ms = log._trusted_clock.now_and_trusted_ms()
    count = removable(
        log._segments,
        log.config,
        start_offset=log.start_offset,
        bound=log.high_watermark,
        wall_ms=wall_ms,
        sure_ms=sure_ms,
    )
    if not count:
        if failure is not None:
            raise failure
        return 0
    if count == len(log._segments):
        log._roll(log.end_offset)
    start = log._segments.base_of(count)
    raise_start(log, start)
    # What lies below is gone: whatever of it was not synced need not be.
    if start > log.flushed_offset:
        log.flushed_offset, log._unsynced_since_ns = start, -1
    log.write_mark()
    log._sync_mark()
    for segment in log._segments.remove_first(count):
        try:
            log._pending_deletes.schedule(segment, now_ns + log.config.file_delete_delay_ms * 1_000_000)
        except StorageError as error:
            failure = failure or error
    failure = _clear_due(log, now_ns) or failure
    if failure is not None:
        raise failure
    return count


def _clear_due(log: LogAppender, now_ns: int) -> StorageError | None:
    """Remove the files whose time has come; what kept the first of those that stay."""
    try:
        log._pending_deletes.delete_due(now_ns)
    except StorageError as error:
        return error
    return None
