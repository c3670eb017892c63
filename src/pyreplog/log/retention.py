"""Which of the oldest segments retention removes: by size, by age, and below the log's start. Rules: Kafka's
``UnifiedLog``.

Retention removes a prefix of the segments, and nothing above the high watermark, because the other replicas and
readers may need it. The log raises its start offset durably before it removes files. A crash in between leaves files
below the start, which the next opening removes, and never a hole. If all segments are removed, the log first begins
an empty one at its end. With ``cleanup.policy=compact`` only the start offset counts.

The age of a segment is the wall clock's time minus its newest timestamp. If the clock jumps ahead, everything would
be too old at once. So each run removes at most one segment that only the jump makes old, until the clock is back or
the user confirms the time.
"""

from __future__ import annotations

from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError
from pyreplog.log.log_segments import LogSegments
from pyreplog.log.segment_writer import SegmentWriter


def removable(
    segments: LogSegments, config: LogConfig, *, start_offset: int, bound: int, wall_ms: int, sure_ms: int
) -> int:
    """Return how many of the oldest segments may be removed: those below ``start_offset``, then by size, then by
    age. None of them reaches above ``bound``.

    ``wall_ms`` is the time of the wall clock, ``sure_ms`` the latest time that is beyond doubt. At most one of the
    segments that are too old only by ``wall_ms`` is counted.
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
    if not config.deletes:
        return count
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
    """Return the greatest timestamp of a segment in ms, or the time of its file if its records have none or cannot
    be read."""
    try:
        newest = segment.largest_timestamp()
    except CorruptError:
        newest = -1
    if newest >= 0:
        return newest
    found = segment.disk.stat(segment.path)
    return 0 if found is None else found.mtime_ms
