"""One partition's log on a Disk: append, read, truncate, and what of it is durable.

It owns the segments, the leader epoch history and the durable mark. It makes no decision about replication: who
leads, what the high watermark is, and when to sync is told to it. Every mutation needs the caller's lock (one
owner); nothing here waits for the disk but small state files.

Appends and truncations touch the page cache and wait for no sync. :meth:`Log.sync_plan` says what makes everything
durable, the caller has it done (``Disk.submit_sync``), and :meth:`Log.synced` hears of it.
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
from pyreplog.log import retention, truncation
from pyreplog.log.append import LogAppender
from pyreplog.log.epochs import write_epochs
from pyreplog.log.index_cache import IndexCache
from pyreplog.log.layout import INT64_MAX, READ_CHUNK_SIZE_MAX, parent_of
from pyreplog.log.opening import NewLog, Parts, create_parts, durability_text, open_parts
from pyreplog.log.recovery_listener import RecoveryListener
from pyreplog.log.recovery_report import RecoveryContext
from pyreplog.log.reserve import with_reserve
from pyreplog.log.scan import sound_batches
from pyreplog.log.settings import write_config
from pyreplog.log.transaction_index import AbortedRange
from pyreplog.log.trusted_clock import TrustedClock
from pyreplog.ports import Clock, Disk, File
from pyreplog.values import LogStats, TopicPartition


class SyncPlan(NamedTuple):
    """``files`` to sync so that the log is durable below ``upto``. Valid for this ``generation`` of the log."""

    files: list[File]
    upto: int
    generation: int


class Log(LogAppender):
    """One partition. Made by :meth:`create` or :meth:`open`; REQUIRES the caller's lock for everything but reads of
    :class:`LogSlice`."""

    __slots__ = ()

    def __init__(self, disk: Disk, directory: str, topic_partition: TopicPartition, parts: Parts, clock: Clock) -> None:
        super().__init__(disk, directory, topic_partition, parts, clock)
        self._write_to(self._active)

    # -- life --

    @classmethod
    def create(cls, disk: Disk, wanted: Sequence[NewLog], clock: Clock) -> list[Self]:
        """New, empty logs, each in a new folder. Its mark comes last, and is synced with it: without one a folder
        counts as never made.

        Their syncs begin together, so that many cost little more than one. The caller syncs the folder above. Where
        it fails, some of the folders may be there.
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
        onlooker: RecoveryListener | None = None,
    ) -> Log:
        """The log in an existing folder, recovered where it was not stopped cleanly.

        ``config``: None takes the one kept with the log; ``topic_id``: None takes any. ``onlooker`` is told how far
        a recovery is.

        Raises :class:`CorruptLogError` for damage below the durable mark, which is left as it is;
        :class:`ConfigError` where ``config`` contradicts the kept durability; :class:`StorageError`.
        """
        parts = open_parts(disk, directory, topic_partition, config, clock, topic_id, origin, onlooker)
        log = cls(disk, directory, topic_partition, parts, clock)
        with_reserve(disk, parent_of(directory), log._write_indexes)
        return log

    def close(self, *, clean: bool) -> None:
        """Release everything. ``clean``: first make all of it durable, complete the indexes, and sync the mark; not
        clean: as a kill would."""
        if self._closed:
            return
        try:
            if clean and self._failure is None:
                with_reserve(self.disk, parent_of(self.directory), partial(self._write_indexes, closing=True))
                self._sync_blocking()
                self._sync_or_poison(lambda: self.producers.close(self._segments.first.base_offset, self.end_offset))
                write_epochs(self.disk, self.directory, self.epochs, durable=True)
                if self._mark.state.epochs_crc != (
                    crc := self.epochs.checksum()
                ):  # it could not be written down before
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
        """``sync`` or ``os``: which end counts."""
        return self._config.durability

    @property
    def ack_offset(self) -> int:
        """The end offset that counts for the high watermark and acknowledgements: the flushed one for ``sync``, the
        written one for ``os``."""
        return self.flushed_offset if self._counts_flushed else self.end_offset

    @property
    def first_base_offset(self) -> int:
        """Base offset of the oldest segment: not above the start offset, which it is where the log ended before it
        could begin anew."""
        return self._segments.first.base_offset if len(self._segments) else self.start_offset

    @property
    def recovery_point(self) -> int:
        """What the root's checkpoint may say: everything below is on stable storage, and so is who wrote it."""
        return self.producers.recovery_point(self.flushed_offset)

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records end: the high watermark, or where the oldest transaction begins that
        is not known to be ended."""
        unstable = self.producers.table.first_unstable(self.high_watermark)
        if unstable < 0:
            return self.high_watermark
        return min(max(unstable, self.start_offset), self.high_watermark)

    def segments(self) -> list[tuple[int, int]]:
        """(base offset, size in bytes) of each segment, in order."""
        return [(segment.base_offset, segment.size) for segment in self._segments]

    @property
    def has_unsynced_segment(self) -> bool:
        """Whether a segment was closed since the last sync: an ``os`` log is to have one then."""
        return self._segments.closed_unsynced

    @property
    def incomplete(self) -> bool:
        """Whether this replica may miss acknowledged records (kept in the mark)."""
        return self._mark.incomplete

    @property
    def reported(self) -> bool:
        """Whether the controller has heard that it is incomplete, and nothing was lost since (kept in the mark)."""
        return self._mark.reported

    def update_config(self, config: LogConfig) -> None:
        """Take over new settings and keep them with the log. Its durability cannot change
        (:class:`ConfigError`)."""
        self._check_open()
        if config.durability != self._config.durability:
            raise ConfigError(durability_text(self.directory, self._config.durability, config.durability))
        write_config(self.disk, self.directory, config)
        self._take_config(config)
        self._write_to(self._active)

    def share_memory(self, cache: IndexCache, room: TailBudget) -> None:
        """Keep indexes of closed segments in memory as ``cache`` allows, and what is appended as ``room`` does,
        together with other logs of the same owner. REQUIRES that nothing was appended yet."""
        self._segments.share(cache)
        self._tail = TailCache(self._tail.size_max, room)

    def trust_clock(self, clock: TrustedClock) -> None:
        """Judge the age of segments by ``clock``, which has watched the wall clock for longer than this log."""
        self._trusted_clock = clock

    def set_tail_cache_size(self, size_max: int) -> None:
        """Keep up to ``size_max`` bytes of what is appended in memory for readers near the end; with 0 buffers are
        free at once."""
        self._tail = TailCache(size_max)

    # -- reading --

    def read(self, offset: int, size_max: int, end_offset: int, *, checked: bool = False) -> LogSlice:
        """Whole batches from the one that holds ``offset`` on, all below ``end_offset``: up to ``size_max`` bytes,
        at least one batch if any, none where ``size_max`` is 0.

        Empty where ``offset`` is the end. The first batch may begin below ``offset``. Raises
        :class:`OffsetOutOfRangeError` outside the log, :class:`CorruptError` for bytes that are no batches.
        ``checked``: those of the disk are held against their checksums (which those in memory were when they were
        appended), and end before one that does not fit; :class:`CorruptLogError` where it is the first.
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
        """The error for the batch that was read for ``offset`` below ``end_offset`` and turned out to be damaged,
        with its place."""
        self._check_open()
        return self._segments.damage(offset, end_offset, reason)

    def find_timestamp(
        self, timestamp: int, end_offset: int, size_max: int = MAX_BATCH_BYTES
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below ``end_offset`` whose timestamp is at least ``timestamp``
        (ms); None where there is none."""
        self._check_open()
        if self._poisoned:
            end_offset = min(end_offset, self.flushed_offset)
        end = min(end_offset, self.end_offset)
        return self._segments.find_timestamp(timestamp, self.start_offset, end, self._contiguity, size_max)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedRange]:
        """What a reader of committed records must leave out of the half-open range: the aborted transactions that
        reach into it, by the offset of their markers. REQUIRES ``end_offset`` not above
        :attr:`last_stable_offset`."""
        self._check_open()
        return self.producers.aborted(list(self._segments), start_offset, end_offset)

    # -- what counts --

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to ``offset``, as far as the log goes; whether it rose. The mark is written by
        :meth:`write_mark`."""
        offset = min(offset, self.end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def set_high_watermark(self, offset: int) -> None:
        """Set it, within the log, up or down: after a restart or a truncation."""
        self.high_watermark = max(self.start_offset, min(offset, self.end_offset))

    def increment_start_offset(self, offset: int) -> bool:
        """Hide what lies below ``offset`` (REQUIRES: not above the high watermark); whether anything changed. The
        mark is written by :meth:`write_mark`."""
        self._check_writable()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                offset, self.start_offset, self.high_watermark, log=f"the committed part of {self.topic_partition}"
            )
        return retention.raise_start(self, offset)

    def delete_records(self, offset: int) -> int:
        """Hide every record below ``offset`` for good, -1: all below the high watermark; the start offset that the
        log has then.

        Durable when it returns; segments that lie wholly below go with the next :meth:`apply_retention`. Raises
        :class:`OffsetOutOfRangeError` above the high watermark, :class:`StorageError`.
        """
        self.increment_start_offset(self.high_watermark if offset == -1 else offset)
        self._write_mark_synced()  # also where the call before this one ended half-way
        return self.start_offset

    def apply_retention(self, *, confirmed: bool = False) -> int:
        """Remove the oldest segments as ``retention.bytes``, ``retention.ms`` and the start offset allow; how many
        went.

        Also removes the files of segments that went before and whose ``file.delete.delay.ms`` is over.
        ``confirmed``: the wall clock is right, whatever it was before; otherwise one segment at a time goes that
        only a jump of the clock makes old. Raises :class:`StorageError`: the log is as before, or without the
        segments, whose files are removed later.
        """
        return retention.apply_retention(self, confirmed=confirmed)

    @property
    def removal_due_ns(self) -> int:
        """When, by the monotonic clock, :meth:`apply_retention` has to be called next so that a file of a segment
        that went stays no longer than ``file.delete.delay.ms``."""
        return self._pending_deletes.due_ns

    def sync_mark(self) -> None:
        """Bring the mark up to date and wait for the disk."""
        self._check_open()
        self._write_mark_synced()

    def set_incomplete(self, incomplete: bool) -> None:
        """Keep whether this replica may miss acknowledged records; durable when it returns."""
        self._check_open()
        if self._mark.incomplete != incomplete or self._mark.reported:
            self._mark.write_state(self._state()._replace(incomplete=incomplete, reported=False))
        self._sync_mark()

    def set_reported(self) -> None:
        """Keep that the controller has heard that this replica is incomplete: what it says of it from now on says
        it of this copy. Survives what the copy survives: of a ``sync`` log it is durable when the call returns."""
        self._check_open()
        if self._mark.incomplete and not self._mark.reported:
            self._mark.write_state(self._state()._replace(reported=True))
        if self._counts_flushed:
            self._sync_mark()

    def sync_plan(self) -> SyncPlan | None:
        """What to sync so that the log is durable up to its end; None where it is already, or poisoned."""
        if self.flushed_offset == self.end_offset or self._failure is not None or self._closed:
            return None
        files: list[File] = []
        for segment in self._segments.unsynced():
            files += segment.files(closed=True)
        files.append(self._active.file)
        return SyncPlan(files, self.end_offset, self.generation)

    def synced(self, upto: int, generation: int, *, alone: bool = False, mark: bool = True) -> None:
        """The files of a plan with these values are on stable storage. Void where the log was truncated since.

        ``alone``: there is no other replica, and what counts may be seen at once; so one write of the mark says
        both. ``mark`` False: the caller writes it (:meth:`write_mark`), before it tells anybody.
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
        """Whether ``flush.messages``, ``flush.ms`` or a segment that was closed ask for a sync by now (monotonic
        ns)."""
        unsynced = self.end_offset - self.flushed_offset
        if unsynced <= 0:
            return False
        if self.has_unsynced_segment:
            return True
        return unsynced >= self._config.flush_messages or now_ns >= self.flush_due_ns(now_ns)

    def flush_due_ns(self, now_ns: int) -> int:
        """When ``flush.ms`` asks for a sync, by the monotonic clock: counted from when somebody first asked, at
        ``now_ns`` or before, while something was unsynced. The end of time where it never does. REQUIRES that
        something is."""
        if self._unsynced_since_ns < 0:
            self._unsynced_since_ns = now_ns
        flush_ms = self._config.flush_ms
        return INT64_MAX if flush_ms == INT64_MAX else self._unsynced_since_ns + flush_ms * 1_000_000

    # -- cutting --

    def truncate_to(self, offset: int) -> None:
        """Cut every batch whose last offset is at or above ``offset``. The end is then that of the last whole batch
        left.

        Below what the mark calls synced, or promised to readers, the lowered mark comes first.
        """
        truncation.truncate_to(self, offset)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything and begin anew, empty, at ``start_offset``."""
        truncation.truncate_fully(self, start_offset)

    # -- rest --

    def stats(self) -> LogStats:
        """What the log holds and did since it was opened."""
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
        """Complete the indexes of closed segments that recovery made anew or finds short, and write what there is
        of the active one's."""
        for segment in self._segments.unsynced():
            if not closing:
                segment.repair_indexes()
            segment.close_for_writing()
        if closing:
            self._active.close_for_writing()
        else:
            self._active.indexes.write()

    def _sync_blocking(self) -> None:
        """For closing: nobody waits for anything else any more."""
        try:
            for segment in self._segments.unsynced():
                for file in segment.files(closed=True):
                    file.sync()
            for file in self._active.files(closed=True):
                file.sync()
        except StorageError as error:
            self.poison(error)  # the next start has to write it once more
            raise
        self.flushed_offset = self.end_offset
        self._segments.note_synced(self.end_offset)
