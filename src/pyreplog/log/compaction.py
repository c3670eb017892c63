"""Compaction of a log: the plan of a pass, and the new segments put in the place of the old ones.

:class:`~pyreplog.log.cleaner.Cleaner` reads and writes between the two, without the log's lock. The swap is Kafka's,
and each step is durable before the next one:

1. the new files are whole, with the suffix ``.cleaned``;
2. the mark says that the log is compacted, so that the files of gaps count;
3. ``.cleaned`` becomes ``.swap``: from the last of these renames on, an opening keeps the new segment;
4. the old files become ``.deleted``, and stay for ``file.delete.delay.ms`` for lock-free readers;
5. ``.swap`` becomes the final name, the log first.

:mod:`pyreplog.log.folder` finishes or undoes the steps after a crash.
"""

from __future__ import annotations

from pyreplog.errors import ConfigError, StorageError
from pyreplog.log.cleaner import CleanedSegment
from pyreplog.log.cleaning_plan import CleaningPlan, CleanSource
from pyreplog.log.contiguity import ContiguityCheck
from pyreplog.log.gaps import Gaps, walk_gaps
from pyreplog.log.layout import (
    CLEANED_SUFFIX,
    INDEX_ENTRY_SIZE,
    LOG_SUFFIX,
    READ_CHUNK_SIZE_MAX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_ENTRY_SIZE,
    join,
    segment_name,
)
from pyreplog.log.legacy import begins_legacy
from pyreplog.log.segment_writer import INTERRUPTING, SegmentWriter
from pyreplog.log.truncation import LogTruncator
from pyreplog.log.validator import first_unkeyed
from pyreplog.record import split


class LogCompactor(LogTruncator):
    """A log that can be compacted. REQUIRES the caller's lock."""

    __slots__ = ()

    def cleaning_plan(self, now_ms: int) -> CleaningPlan:
        """Return the pass that would be possible at wall time ``now_ms``. Its ``is_due`` says whether it should run.

        Only closed segments that are durable and committed are compacted. Raises :class:`ConfigError` if the log is
        not compacted by its settings, :class:`CorruptError` for a damaged file of gaps.
        """
        self._check_writable()
        config = self._config
        if not config.compacts:
            raise ConfigError(
                f"{self.topic_partition} has cleanup.policy={config.cleanup_policy}: only a log with compact can be"
                " compacted"
            )
        segments = list(self._segments)
        bases = [segment.base_offset for segment in segments]
        first_dirty = self.cleaned_end if self.start_offset <= self.cleaned_end <= self.end_offset else 0
        first_dirty = max(first_dirty, self.start_offset)
        bound = min(self.last_stable_offset, self.high_watermark)
        count = 0
        while count + 1 < len(segments) and bases[count + 1] <= bound and segments[count].synced:
            is_young = segments[count].largest_timestamp() > now_ms - config.min_compaction_lag_ms
            if config.min_compaction_lag_ms and is_young and bases[count + 1] > first_dirty:
                break
            count += 1
        sources = [self._source(segments, slot) for slot in range(count)]
        uncleanable = bases[count]
        return CleaningPlan(
            directory=self.directory,
            config=config,
            sources=sources,
            first_dirty=min(first_dirty, max(uncleanable, self.start_offset)),
            first_uncleanable=uncleanable,
            generation=self.generation,
            droppable_end=self.droppable_end,
            epoch_starts=()
            if self.tombstone_bound is None
            else frozenset(entry.start_offset for entry in self.epochs.entries),
            producers={
                entry.producer_id: (entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
                for entry in self.producers.table
            },
            now_ms=now_ms,
        )

    def _source(self, segments: list[SegmentWriter], slot: int) -> CleanSource:
        segment = segments[slot]
        end = segments[slot + 1].base_offset
        indexes = segment.indexes
        first = segment.header_at(0)
        dense = self._contiguity is not None
        return CleanSource(
            base_offset=segment.base_offset,
            end_offset=end,
            path=segment.path,
            size=segment.size,
            index_size=indexes.offsets.count * INDEX_ENTRY_SIZE,
            time_index_size=indexes.times.count * TIME_INDEX_ENTRY_SIZE,
            first_ms=-1 if first is None else first[2],
            newest_ms=segment.largest_timestamp(),
            gaps=segment.gaps if dense else None,
            aborted=tuple(self.producers.aborted(segments, segment.base_offset, end)),
            dropped_tombstone=segment.gaps.dropped_tombstone if self._mark.state.compacted else -1,
            old=not dense and segment.size > 0 and begins_legacy(segment.file, segment.size),
        )

    def first_unkeyed(self) -> int:
        """Return the offset of the first record without a key; -1 if there is none. Reads the whole log. Raises
        :class:`CorruptLogError` for damage."""
        found, at = -1, self.start_offset
        while found < 0 and at < self.end_offset:
            found, at = self.find_unkeyed(at)
        return found

    def find_unkeyed(self, start: int) -> tuple[int, int]:
        """Return the offset of the first record without a key among some records from ``start`` on, at least one batch
        (-1: none), and the offset at which to go on. It is the log's end after the last record.

        Raises :class:`CorruptLogError` for damage.
        """
        at = max(start, self.start_offset)
        data = None
        if at < self.end_offset:
            data = self._segments.read(at, READ_CHUNK_SIZE_MAX, self.end_offset, self._contiguity)
        if data is None:
            return -1, self.end_offset
        for batch in split(data):
            batch.check_crc()
            found = first_unkeyed(batch)
            if found >= at:
                return found, batch.next_offset
        return -1, batch.next_offset

    def install(self, cleaned: CleanedSegment) -> bool:
        """Put ``cleaned`` in the place of its sources, durably. Return False if the log no longer has them: it was
        truncated, or retention removed one; or if a tombstone was dropped that another replica may lack by now. Then
        the files of ``cleaned`` are removed.

        Raises :class:`StorageError`; the log then ends, and the next opening finishes or undoes the change.
        """
        self._check_writable()
        found = {segment.base_offset: segment for segment in list(self._segments)[:-1]}
        olds = [found.get(source.base_offset) for source in cleaned.sources]
        sources = [
            old
            for old, source in zip(olds, cleaned.sources, strict=True)
            if old is not None and (old.size, old.path, old.synced) == (source.size, source.path, True)
        ]
        is_early = cleaned.newly_dropped >= self.droppable_end
        if len(sources) != len(olds) or cleaned.generation != self.generation or is_early:
            self.discard(cleaned)
            return False
        # The high watermark that the pass was made with is durable before its records go.
        self.write_mark()
        self._allow_recorded_gaps(sync=True)
        try:
            self._swap(cleaned, sources)
        except StorageError as error:
            self.fail_after_refused_write(error)
            raise
        except INTERRUPTING as error:
            self.fail_until_reopened(error)
            raise
        self._tail.clear()
        self._dropped_tombstone = None
        # Another sequence number, so that lock-free readers look at the folder.
        self._mark.write_state(self._state())
        return True

    def discard(self, cleaned: CleanedSegment) -> None:
        """Remove the files of ``cleaned``. Raises :class:`StorageError`; the next opening removes the rest."""
        for suffix in cleaned.suffixes:
            self.disk.remove(join(self.directory, segment_name(cleaned.base_offset, suffix) + CLEANED_SUFFIX))

    def note_cleaned(self, end_offset: int) -> None:
        """Note that a pass is over, which compacted the records below ``end_offset``. The caller writes the root's
        cleaner checkpoint."""
        self.cleaned_end = max(self.cleaned_end, min(end_offset, self.end_offset))

    def close_active_segment(self) -> None:
        """Begin a new segment unless the active one is empty, and sync the closed ones, so that a pass can compact
        all that is committed now."""
        self._check_writable()
        if self._active.size:
            self._roll(self.end_offset)
        for segment in self._segments.unsynced():
            for file in segment.files(closed=True):
                self._sync_or_poison(file.sync)
        self._segments.note_synced(self.end_offset)
        if not self._counts_flushed and self.end_offset > self.flushed_offset:
            self.flushed_offset, self._unsynced_since_ns = self.end_offset, -1
            self.write_mark()

    def record_gaps(self, dropped_tombstone: int, *, dense: bool) -> None:
        """Write down, durably, which offsets have no batch, and that only these may be missing: for a copy of a
        compacted log. ``dropped_tombstone``: that of the log that was copied. Without ``dense`` any offset may be
        missing, and only the tombstone is written.

        REQUIRES that all batches are durable. Raises :class:`StorageError`.
        """
        self._check_writable()
        segments = list(self._segments)
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            bounds: list[int] = []
            end = self.end_offset if following is None else following.base_offset
            if dense:
                for _, start, stop in walk_gaps(segment.file, segment.size, segment.base_offset):
                    bounds.extend((start, stop))
                if segment.next_offset < end:
                    bounds.extend((segment.next_offset, end))
            tombstone = dropped_tombstone if segment.base_offset <= dropped_tombstone < end else -1
            if segment is segments[-1] and dropped_tombstone >= end:
                tombstone = dropped_tombstone
            if bounds or tombstone >= 0:
                segment.write_gaps(Gaps(bounds, tombstone))
        self._mark.write_state(self._state()._replace(compacted=True, may_have_gaps=not dense))
        self._sync_mark()
        self._contiguity = ContiguityCheck(self.epochs, compacted=True) if dense else None
        self._dropped_tombstone = None

    def _swap(self, cleaned: CleanedSegment, sources: list[SegmentWriter]) -> None:
        disk, directory = self.disk, self.directory
        names = [segment_name(cleaned.base_offset, suffix) for suffix in cleaned.suffixes]
        mine = {name + CLEANED_SUFFIX for name in names}
        for name in disk.list(directory):
            # A pass that was given up may have left it. An opening would take it for a part of this
            # swap that is missing, and drop the new segment.
            if name.endswith(CLEANED_SUFFIX) and name not in mine:
                disk.remove(join(directory, name))
        for name in names:
            disk.rename(join(directory, name + CLEANED_SUFFIX), join(directory, name + SWAP_SUFFIX))
        self._sync_directory()
        due_ns = self.clock.monotonic_ns() + self._config.file_delete_delay_ms * 1_000_000
        for segment in sources:
            kept = (SNAPSHOT_SUFFIX,) if segment.base_offset == cleaned.base_offset else ()
            self._pending_deletes.retire(segment, due_ns, kept=kept)
        self._sync_directory()
        for name in names:
            disk.rename(join(directory, name + SWAP_SUFFIX), join(directory, name))
            if name.endswith(LOG_SUFFIX) or name == names[-1]:
                self._sync_directory()
        segment = SegmentWriter(
            disk,
            directory,
            cleaned.base_offset,
            size=cleaned.size,
            index_interval=self._config.index_interval_bytes,
        )
        segment.next_offset = cleaned.next_offset
        segment.synced = True
        self._segments.replace(sources, segment)
