"""What a pass of compaction reads and may change: the segments, the dirty part, and whether a pass is due.

The rules are those of Kafka's ``LogCleanerManager`` and ``Cleaner.groupSegmentsBySize``. A plan is made under the
log's lock. It has all that a pass needs to know of the log, so that the pass itself runs without the lock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from pyreplog.config import LogConfig
from pyreplog.log.gaps import Gaps
from pyreplog.log.layout import INT32_MAX
from pyreplog.log.transaction_index import AbortedRange

_OLD_GROWTH: Final = 2
"""A message of Kafka before 0.11 becomes at most about so many times as large in today's format."""


class CleanSource(NamedTuple):
    """A closed segment, as a pass reads it. Sizes are in bytes."""

    base_offset: int
    end_offset: int
    """The base offset of the next segment."""
    path: str
    size: int
    index_size: int
    time_index_size: int
    first_ms: int
    """The timestamp of the first batch in ms; -1 for none."""
    newest_ms: int
    """The greatest timestamp in ms; -1 for none."""
    gaps: Gaps | None
    """The recorded gaps. None: the log may have any gaps."""
    aborted: Sequence[AbortedRange]
    """The aborted transactions that reach into the segment."""
    dropped_tombstone: int = -1
    """The highest offset of a tombstone that earlier passes dropped from the segment; -1 for none."""
    old: bool = False
    """Whether it begins with messages of Kafka before 0.11, which grow as they are converted."""


class CleaningPlan(NamedTuple):
    """One possible pass over a log."""

    directory: str
    config: LogConfig
    sources: Sequence[CleanSource]
    """All segments below ``first_uncleanable``, from the oldest on."""
    first_dirty: int
    """The records below were compacted before."""
    first_uncleanable: int
    """The base offset of the first segment that must stay as it is."""
    producers: Mapping[int, tuple[int, int]]
    """Active producers: id -> (last offset of its newest data batch, or -1; epoch)."""
    now_ms: int
    droppable_end: int
    """No tombstone and no transaction marker from here on is dropped, whatever its age."""
    epoch_starts: Collection[int]
    """The offsets at which a leader epoch begins, if the log has other replicas: the batch there stays, so that each
    copy knows the same history."""
    generation: int
    """Of the log: truncations since make the pass void."""

    @property
    def dirty(self) -> Sequence[CleanSource]:
        """The segments with records that were not compacted yet."""
        return [source for source in self.sources if source.end_offset > self.first_dirty]

    @property
    def dirty_ratio(self) -> float:
        """The share of the dirty segments in the bytes of all closed segments that may be compacted."""
        dirty = sum(source.size for source in self.dirty)
        total = sum(source.size for source in self.sources)
        return dirty / total if total else 0.0

    @property
    def lags_too_far(self) -> bool:
        """Whether a record is older than ``max.compaction.lag.ms`` and was not compacted."""
        first = [source.first_ms for source in self.dirty if source.first_ms > 0]
        return bool(first) and min(first) < self.now_ms - self.config.max_compaction_lag_ms

    @property
    def is_due(self) -> bool:
        """Whether a pass is due by the settings."""
        if not any(source.size for source in self.dirty):
            return False
        return self.dirty_ratio > self.config.min_cleanable_dirty_ratio or self.lags_too_far

    def groups(self, end_offset: int) -> list[list[CleanSource]]:
        """Return the segments that begin below ``end_offset``, in groups that become one segment each."""
        config = self.config
        groups: list[list[CleanSource]] = []
        size = index_size = time_index_size = 0
        for source in self.sources:
            if source.base_offset >= end_offset:
                break
            size += _OLD_GROWTH * source.size if source.old else source.size
            index_size += source.index_size
            time_index_size += source.time_index_size
            if (
                groups
                and size <= config.segment_bytes
                and index_size <= config.segment_index_bytes
                and time_index_size <= config.segment_index_bytes
                and (not source.size or source.end_offset - 1 - groups[-1][0].base_offset <= INT32_MAX)
            ):
                groups[-1].append(source)
            else:
                groups.append([source])
                size = _OLD_GROWTH * source.size if source.old else source.size
                index_size, time_index_size = source.index_size, source.time_index_size
        return groups
