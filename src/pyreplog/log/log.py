"""One partition's log on a Disk: append, read, truncate, and track which records are durable.

The log owns the segments, the leader epoch history and the durable mark. It decides nothing about replication: its
caller chooses the leader, the high watermark and the time of each sync. Every mutation needs the caller's lock (one
owner). Only writes of small state files wait for the disk.

Appends and truncations write to the page cache and wait for no sync. :meth:`Log.sync_plan` lists the files that
make everything durable, the caller syncs them (``Disk.submit_sync``), and reports that to :meth:`Log.synced`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Self

from pyreplog._core import LogSlice, TailBudget, TailCache
from pyreplog.config import MAX_BATCH_BYTES, LogConfig
from pyreplog.errors import (
    ConfigError,
    CorruptLogError,
    OffsetOutOfRangeError,
    StorageError,
)
from pyreplog.log.compaction import LogCompactor
from pyreplog.log.epochs import write_epochs
from pyreplog.log.index_cache import IndexCache
from pyreplog.log.layout import INT64_MAX, READ_CHUNK_SIZE_MAX, parent_of
from pyreplog.log.partition_opening import NewLog, Parts, create_parts, durability_text, open_parts
from pyreplog.log.recovery_listener import RecoveryListener
from pyreplog.log.recovery_report import RecoveryContext
from pyreplog.log.reserve import with_reserve
from pyreplog.log.retention import removable
from pyreplog.log.scan import sound_batches
from pyreplog.log.settings import write_config
from pyreplog.log.transaction_index import AbortedRange
from pyreplog.log.trusted_clock import TrustedClock
from pyreplog.ports import Clock, Disk, File
from pyreplog.values import LogStats, TopicPartition


class SyncPlan(NamedTuple):
    """The ``files`` to sync so that the log is durable below ``upto``. Valid for this ``generation`` of the log."""

    files: list[File]
    upto: int
    generation: int


class Log(LogCompactor):
    """The log of one partition, from :meth:`create` or :meth:`open`. REQUIRES the caller's lock for everything but
    reads of a :class:`LogSlice`."""

    __slots__ = ()

    def __init__(self, disk: Disk, directory: str, topic_partition: TopicPartition, parts: Parts, clock: Clock) -> None:
        super().__init__(disk, directory, topic_partition, parts, clock)
        self._write_to(self._active)

    # -- life --

    @classmethod
    def create(cls, disk: Disk, wanted: Sequence[NewLog], clock: Clock) -> list[Self]:
        """Create empty logs, each in a new folder. The mark is written last and synced with the folder, because a
        folder without a mark counts as never created.

        The syncs of all logs begin together, so many logs cost little more than one. The caller syncs the folder
        above. If an error is raised, some of the folders may exist.
        """
        made = create_parts(disk, wanted, clock)
        return [
            cls(disk, new.directory, new.topic_partition, parts, clock) for new, parts in zip(wanted, made, strict=True)
        ]

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig | None,
        clock: Clock,
        topic_id: str | None,
        origin: RecoveryContext,
        listener: RecoveryListener | None = None,
    ) -> Log:
        """Open the log in an existing folder, and recover it if it was not stopped cleanly.

        ``config`` None takes the settings that are kept with the log, and ``topic_id`` None takes any id. A
        recovery reports its progress to ``listener``.

        Raises :class:`CorruptLogError` for damage below the durable mark, and leaves the damage as it is;
        :class:`ConfigError` if ``config`` contradicts the kept durability; :class:`StorageError`.
        """
        parts = open_parts(disk, directory, topic_partition, config, clock, topic_id, origin, listener)
        log = cls(disk, directory, topic_partition, parts, clock)
        with_reserve(disk, parent_of(directory), log._write_indexes)
        return log

    def close(self, *, clean: bool) -> None:
        """Release all files and memory. ``clean`` first makes the whole log durable, completes the indexes and syncs
        the mark; otherwise the log is left as a kill would leave it."""
        if self._closed:
            return
        try:
            if clean and self._failure is None:
                with_reserve(self.disk, parent_of(self.directory), partial(self._write_indexes, closing=True))
                self._sync_blocking()
                self._sync_or_poison(lambda: self.producers.close(self._segments.first.base_offset, self.end_offset))
                write_epochs(self.disk, self.directory, self.epochs, durable=True)
                crc = self.epochs.checksum()
                if self._mark.state.epochs_crc != crc:  # an earlier write of the history was refused
                    self._mark.write_state(self._state()._replace(epochs_crc=crc))
                self.write_mark()
                self._sync_or_poison(self._mark.write_redundantly)
                if self._pending_deletes.names_changed:
                    self.disk.sync_directory(self.directory)
        finally:
            self._closed = True
            self._tail.clear()
            self._segments.close()
            self._mark.close()

    @property
    def durability(self) -> str:
        """The log's durability: ``sync`` or ``os``."""
        return self._config.durability

    @property
    def ack_offset(self) -> int:
        """The end offset that counts for the high watermark and for acknowledgements: the flushed one for ``sync``,
        the written one for ``os``."""
        return self.flushed_offset if self._counts_flushed else self.end_offset

    @property
    def first_base_offset(self) -> int:
        """The base offset of the oldest segment, never above the start offset. If a full truncation failed half-way
        there is no segment, and this is the start offset."""
        return self._segments.first.base_offset if len(self._segments) else self.start_offset

    @property
    def recovery_point(self) -> int:
        """The offset for the root's recovery point checkpoint: the records below it, and the state of their
        producers, are on stable storage."""
        return self.producers.recovery_point(self.flushed_offset)

    def segments(self) -> list[tuple[int, int]]:
        """Return (base offset, size in bytes) of each segment, in order."""
        return [(segment.base_offset, segment.size) for segment in self._segments]

    @property
    def has_unsynced_segment(self) -> bool:
        """Whether a segment was closed since the last sync. An ``os`` log must be synced then."""
        return self._segments.closed_unsynced

    @property
    def incomplete(self) -> bool:
        """Whether this replica may miss acknowledged records (kept in the mark)."""
        return self._mark.incomplete

    @property
    def reported(self) -> bool:
        """Whether the controller knows that this replica is incomplete, and nothing was lost since (kept in the
        mark)."""
        return self._mark.reported

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings and keep them with the log. Raises :class:`ConfigError` if they change the
        durability."""
        self._check_open()
        if config.durability != self._config.durability:
            raise ConfigError(durability_text(self.directory, self._config.durability, config.durability))
        write_config(self.disk, self.directory, config)
        self._take_config(config)
        self._write_to(self._active)

    def retune(self, config: LogConfig) -> bool:
        """Apply new settings of the same durability at once; return whether they could be kept with the log too. If
        the disk refuses that, the folder has the old settings, and the caller may try again."""
        self._check_open()
        self._take_config(config)
        self._write_to(self._active)
        try:
            write_config(self.disk, self.directory, config)
        except StorageError:
            return False
        return True

    def share_memory(self, cache: IndexCache, room: TailBudget) -> None:
        """Share the memory for indexes of closed segments (``cache``) and for appended batches (``room``) with other
        logs of the same owner. REQUIRES that nothing was appended yet."""
        self._segments.share(cache)
        self._tail = TailCache(self._tail.size_max, room)

    def trust_clock(self, clock: TrustedClock) -> None:
        """Judge the age of segments by ``clock``, which has watched the wall clock for longer than this log has."""
        self._trusted_clock = clock

    def set_tail_cache_size(self, size_max: int) -> None:
        """Keep up to ``size_max`` bytes of appended batches in memory for readers near the end. With 0 the buffers
        are free at once."""
        self._tail = TailCache(size_max)

    # -- reading --

    def read(self, offset: int, size_max: int, end_offset: int, *, checked: bool = False) -> LogSlice:
        """Return whole batches below ``end_offset``, beginning with the batch that holds ``offset``: up to ``size_max``
        bytes, but at least one batch unless ``size_max`` is 0.

        The slice is empty if ``offset`` is the end. The first batch may begin below ``offset``. Raises
        :class:`OffsetOutOfRangeError` outside the log, :class:`CorruptError` for bytes that are no batches.
        ``checked`` verifies the checksums of batches from the disk; those in memory were verified when they were
        appended. The slice then ends before the first damaged batch, and :class:`CorruptLogError` is raised if that
        is the first of all.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset, log=str(self.topic_partition))
        if self._poisoned:
            end_offset = min(end_offset, self.flushed_offset)
        end_offset = min(end_offset, self.end_offset)
        if offset >= end_offset or size_max <= 0:
            return LogSlice(self, offset, (), 0)
        found = self._tail.read(offset, size_max, end_offset)
        if found is not None:
            return LogSlice(self, offset, found[0], found[1])
        self._check_open()
        data = self._segments.read(offset, min(size_max, READ_CHUNK_SIZE_MAX), end_offset, self._contiguity)
        if data is None:
            return LogSlice(self, offset, (), 0)
        if checked:
            data = sound_batches(data, partial(self._segments.damage, offset, end_offset))
        return LogSlice(self, offset, (data,), data.nbytes)

    def damage(self, offset: int, end_offset: int, reason: str) -> CorruptLogError:
        """Return the error, with file and position, for the batch that was read for ``offset`` below ``end_offset``
        and is damaged."""
        self._check_open()
        return self._segments.damage(offset, end_offset, reason)

    def find_timestamp(
        self, timestamp: int, end_offset: int, size_max: int = MAX_BATCH_BYTES
    ) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record below ``end_offset`` whose timestamp is at least
        ``timestamp`` (ms), or None."""
        self._check_open()
        if self._poisoned:
            end_offset = min(end_offset, self.flushed_offset)
        end = min(end_offset, self.end_offset)
        return self._segments.find_timestamp(timestamp, self.start_offset, end, self._contiguity, size_max)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedRange]:
        """Return the aborted transactions that reach into the half-open range, by the offset of their markers. A
        reader of committed records leaves their records out. REQUIRES ``end_offset`` not above
        :attr:`last_stable_offset`."""
        self._check_open()
        return self.producers.aborted(list(self._segments), start_offset, end_offset)

    # -- high watermark, start offset, mark and syncs --

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to ``offset``, at most to the log's end, and return whether it rose. The caller
        writes the mark (:meth:`write_mark`)."""
        offset = min(offset, self.end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark, up or down but within the log: after a restart or a truncation."""
        self.high_watermark = max(self.start_offset, min(offset, self.end_offset))

    def increment_start_offset(self, offset: int) -> bool:
        """Hide the records below ``offset``, and return whether anything changed. The caller writes the mark
        (:meth:`write_mark`). Raises :class:`OffsetOutOfRangeError` above the high watermark."""
        self._check_writable()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                offset, self.start_offset, self.high_watermark, log=f"the committed part of {self.topic_partition}"
            )
        return self._raise_start(offset)

    def delete_records(self, offset: int) -> int:
        """Hide every record below ``offset`` for good (-1: all below the high watermark), and return the new start
        offset.

        Durable when it returns. The next :meth:`apply_retention` removes the segments that lie wholly below. Raises
        :class:`OffsetOutOfRangeError` above the high watermark, :class:`StorageError`.
        """
        self.increment_start_offset(self.high_watermark if offset == -1 else offset)
        self._write_mark_synced()  # also if nothing changed, because an earlier call may have failed here
        return self.start_offset

    def apply_retention(self, *, confirmed: bool = False) -> int:
        """Remove the oldest segments as ``retention.bytes``, ``retention.ms`` and the start offset allow, and return
        how many.

        Also deletes the files of segments that were removed earlier, if their ``file.delete.delay.ms`` is over.
        ``confirmed``: the wall clock is right, even if it has jumped. Otherwise, of the segments that only a jump of
        the clock makes old, each call removes one. Raises :class:`StorageError`: the log is unchanged, or without
        the segments, and their files are deleted later.
        """
        self._check_writable()
        now_ns = self.clock.monotonic_ns()
        failure = self._delete_due(now_ns)
        if confirmed:
            self._trusted_clock.accept_jump()
        wall_ms, sure_ms = self._trusted_clock.now_and_trusted_ms()
        count = removable(
            self._segments,
            self.config,
            start_offset=self.start_offset,
            bound=self.high_watermark,
            wall_ms=wall_ms,
            sure_ms=sure_ms,
        )
        if count:
            failure = self._remove_oldest(count, now_ns) or failure
        if failure is not None:
            raise failure
        return count

    def retention_due_ms(self) -> int:
        """Return the wall time in ms from which :meth:`apply_retention` may remove something if the log does not
        change; 2**63 - 1 for never. REQUIRES that the log was just closed in order."""
        now, segments = self.clock.wall_ms(), self._segments
        bound, start = self.high_watermark, self.start_offset
        try:
            if removable(segments, self.config, start_offset=start, bound=bound, wall_ms=now, sure_ms=now):
                return 0
            if self.config.retention_ms < 0 or not self.config.deletes or self.end_offset == self.first_base_offset:
                return INT64_MAX
            newest = segments.first.largest_timestamp()
            return min(newest + self.config.retention_ms + 1, INT64_MAX) if newest >= 0 else 0
        finally:
            segments.close()

    def _raise_start(self, offset: int) -> bool:
        if offset <= self.start_offset:
            return False
        self.start_offset = offset
        self.producers.table.raise_start(offset)
        self._change_epochs(partial(self._leader_epochs.cut_start, offset))
        return True

    def _remove_oldest(self, count: int, now_ns: int) -> StorageError | None:
        """Remove the ``count`` oldest segments. Return the first error of renaming or deleting their files."""
        if count == len(self._segments):
            self._roll(self.end_offset)
        start = self._segments.base_of(count)
        self._raise_start(start)
        # The records below are gone, so nothing of them is left to sync.
        if start > self.flushed_offset:
            self.flushed_offset, self._unsynced_since_ns = start, -1
        self._write_mark_synced()
        failure: StorageError | None = None
        for segment in self._segments.remove_first(count):
            try:
                self._pending_deletes.schedule(segment, now_ns + self.config.file_delete_delay_ms * 1_000_000)
            except StorageError as error:
                failure = failure or error
        return self._delete_due(now_ns) or failure

    def _delete_due(self, now_ns: int) -> StorageError | None:
        """Delete the files whose delay is over. Return the error of the first that could not be deleted."""
        try:
            self._pending_deletes.delete_due(now_ns)
        except StorageError as error:
            return error
        return None

    @property
    def removal_due_ns(self) -> int:
        """The time of the monotonic clock at which :meth:`apply_retention` must be called next, so that no file of a
        removed segment stays longer than ``file.delete.delay.ms``."""
        return self._pending_deletes.due_ns

    def sync_mark(self) -> None:
        """Write the mark if it is out of date, and sync it."""
        self._check_open()
        self._write_mark_synced()

    def set_incomplete(self, incomplete: bool) -> None:
        """Keep in the mark whether this replica may miss acknowledged records. Durable when it returns."""
        self._check_open()
        if self._mark.incomplete != incomplete or self._mark.reported:
            self._mark.write_state(self._state()._replace(incomplete=incomplete, reported=False))
        self._sync_mark()

    def set_reported(self) -> None:
        """Keep in the mark that the controller knows that this replica is incomplete, so that its later decisions
        are about this copy. For a ``sync`` log it is durable when the call returns; for an ``os`` log it survives
        as much as the copy does."""
        self._check_open()
        if self._mark.incomplete and not self._mark.reported:
            self._mark.write_state(self._state()._replace(reported=True))
        if self._counts_flushed:
            self._sync_mark()

    def sync_plan(self) -> SyncPlan | None:
        """Return the files to sync so that the log is durable up to its end; None if it already is, or has failed."""
        if self.flushed_offset == self.end_offset or self._failure is not None or self._closed:
            return None
        files: list[File] = []
        for segment in self._segments.unsynced():
            files += segment.files(closed=True)
        files += self._active.files(closed=False)
        return SyncPlan(files, self.end_offset, self.generation)

    def synced(self, upto: int, generation: int, *, alone: bool = False, mark: bool = True) -> None:
        """Note that the files of the plan with these values are on stable storage. Does nothing if the log was
        truncated since the plan was made.

        ``alone``: there is no other replica, so the high watermark rises too, and one write of the mark keeps both.
        ``mark`` False: the caller writes the mark (:meth:`write_mark`) before it acknowledges anything.
        """
        if generation != self.generation or self._closed or self._failure is not None:
            return
        self._syncs += 1
        if upto > self.flushed_offset:
            self.flushed_offset = upto
            self._unsynced_since_ns = -1
            self._segments.note_synced(upto)
            if alone:
                self.advance_high_watermark(self.ack_offset)
            if mark:
                self.write_mark()

    def sync_due(self, now_ns: int) -> bool:
        """Return whether a sync is due at ``now_ns`` (monotonic), by ``flush.messages``, by ``flush.ms``, or because a
        segment was closed."""
        unsynced = self.end_offset - self.flushed_offset
        if unsynced <= 0:
            return False
        if self.has_unsynced_segment:
            return True
        return unsynced >= self._config.flush_messages or now_ns >= self.flush_due_ns(now_ns)

    def flush_due_ns(self, now_ns: int) -> int:
        """Return the time of the monotonic clock at which ``flush.ms`` asks for a sync, 2**63 - 1 for never. The time
        counts from the first call, at ``now_ns`` or before, that found unsynced records. REQUIRES that there are
        unsynced records."""
        if self._unsynced_since_ns < 0:
            self._unsynced_since_ns = now_ns
        flush_ms = self._config.flush_ms
        return INT64_MAX if flush_ms == INT64_MAX else self._unsynced_since_ns + flush_ms * 1_000_000

    # -- rest --

    def stats(self) -> LogStats:
        """Return the log's offsets and sizes, and counts since it was opened."""
        return LogStats(
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            flushed_offset=self.flushed_offset,
            high_watermark=self.high_watermark,
            leader_epoch=self.epochs.latest,
            segment_count=len(self._segments),
            size=self._segments.size(),
            batches_appended=self._active.batches_appended,
            records_appended=self._active.records_appended,
            bytes_appended=self._active.bytes_appended,
            syncs=self._syncs,
            torn_bytes_cut=self.recovery.torn_size,
        )

    def _write_indexes(self, *, closing: bool = False) -> None:
        """Complete the indexes of closed segments that recovery rebuilt or found short, and write the entries of the
        active segment's indexes."""
        for segment in self._segments.unsynced():
            if not closing:
                segment.repair_indexes()
            segment.close_for_writing()
        if closing:
            self._active.close_for_writing()
        else:
            self._active.indexes.write()

    def _sync_blocking(self) -> None:
        """Sync every segment in this thread, which is closing the log."""
        try:
            for segment in self._segments.unsynced():
                for file in segment.files(closed=True):
                    file.sync()
            for file in self._active.files(closed=True):
                file.sync()
        except StorageError as error:
            self.poison(error)  # the next start must write the records again
            raise
        self.flushed_offset = self.end_offset
        self._segments.note_synced(self.end_offset)
