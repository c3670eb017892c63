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
from typing import Final, NamedTuple, Self

from pyreplog._core import LogSlice, RecordBatch, TailBudget, TailCache, stamp
from pyreplog.config import MAX_BATCH_BYTES, LogConfig
from pyreplog.errors import (
    ConfigError,
    CorruptLogError,
    InternalError,
    InvalidRequestError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from pyreplog.log import follower_append, history, retention, rolling, truncation
from pyreplog.log.epochs import write_epochs
from pyreplog.log.index_cache import IndexCache
from pyreplog.log.layout import INT32_MAX, INT64_MAX, READ_CHUNK_SIZE_MAX, parent_of
from pyreplog.log.opening import NewLog, Parts, create_parts, durability_text, open_parts
from pyreplog.log.recovery_listener import RecoveryListener
from pyreplog.log.recovery_report import RecoveryContext
from pyreplog.log.reserve import with_reserve
from pyreplog.log.scan import sound_batches
from pyreplog.log.settings import write_config
from pyreplog.log.state import LogState
from pyreplog.log.transaction_index import AbortedRange
from pyreplog.log.trusted_clock import TrustedClock
from pyreplog.log.validator import Appended, check_fetched, cut_fetched, is_valid
from pyreplog.ports import Buffer, Clock, Disk, File
from pyreplog.values import LogStats, TopicPartition

_OFFSETS_SCARCE_FROM: Final = INT64_MAX - INT32_MAX
"""Below it any batch finds offsets."""
_new_tuple = tuple.__new__


class SyncPlan(NamedTuple):
    """``files`` to sync so that the log is durable below ``upto``. Valid for this ``generation`` of the log."""

    files: list[File]
    upto: int
    generation: int


class Log(LogState):
    """One partition. Made by :meth:`create` or :meth:`open`; REQUIRES the caller's lock for everything but reads of
    :class:`LogSlice`."""

    __slots__ = ()

    def __init__(self, disk: Disk, directory: str, topic_partition: TopicPartition, parts: Parts, clock: Clock) -> None:
        super().__init__(disk, directory, topic_partition, parts, clock)
        rolling.write_to(self, self._active)

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
        rolling.write_to(self, self._active)

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

    # -- appending --

    def become_leader(self, leader_epoch: int) -> None:
        """Let ``leader_epoch`` begin at the log's end. REQUIRES it to be newer than any in the log. Raises
        :class:`InvalidRequestError` where there is no such number."""
        self._check_writable()
        if leader_epoch > INT32_MAX:
            raise InvalidRequestError(
                f"{self.topic_partition} has used up its leader epochs: import its records into a new log"
            )
        if leader_epoch < self.epochs.latest:
            raise InternalError(f"{self.topic_partition}: leader epoch {leader_epoch} after {self.epochs.latest}")
        history.assign(self, leader_epoch, self.end_offset)

    def append_as_leader(
        self, batch: Buffer, leader_epoch: int, *, trusted: bool = False, times_checked: bool = False
    ) -> Appended:
        """Append one whole batch: give it offsets and epoch, in place where it is writable (it is handed over and
        not to be changed after).

        Checked first (size, checksum, count, density, no control records) unless ``trusted``: made by our own
        encoder in the same call. So are its records' own timestamps, unless ``times_checked``: they were in bounds
        when they came. Raises :class:`MessageTooLargeError`, :class:`CorruptError`, :class:`InvalidRequestError`,
        :class:`StorageError`, and :class:`UnknownServerError` where looking at the batch met what nobody had
        foreseen: nothing was appended then; :class:`OutcomeUnknownError` where a write failed and what it left
        could not be cut off, so that the next opening may find it; :class:`ClosedError` once the log is closed or
        poisoned. A batch with a producer id may also raise :class:`OutOfOrderSequenceError`,
        :class:`InvalidProducerEpochError`, :class:`UnknownProducerIdError`; one that its producer sent before is
        not appended again, see :class:`Appended`.
        """
        if self._failure is not None or self._closed:
            self._check_writable()
        validator = self._validator
        rewrites = validator.converts if times_checked else validator.rewrites
        if trusted and leader_epoch == self.epochs.current and not rewrites and self.end_offset < _OFFSETS_SCARCE_FROM:
            places = self._append_own(((batch, True),), leader_epoch)
            if places:
                return places[0]
        view, header = validator.take(batch, trusted=trusted, times_checked=times_checked)
        size = header.size
        if size > self._size_limit:
            raise MessageTooLargeError(validator.too_large(size))
        base = self.end_offset
        idempotent = header.producer_id != -1
        if idempotent and (sent := self.producers.table.check(header)) is not None:
            timestamp = sent.timestamp if self._append_time else -1
            return Appended(sent.base_offset, sent.last_offset, timestamp, sent.offset_delta + 1, 0, duplicate=True)
        if self.epochs.current is None:
            history.write(self)
        if leader_epoch != self.epochs.latest:
            self.become_leader(leader_epoch)
        header_count = header.record_count
        if header_count > INT64_MAX - base:
            raise InvalidRequestError(
                f"{self.topic_partition} has used up its offsets: import its records into a new log"
            )
        next_offset, max_timestamp = base + header_count, header.max_timestamp
        active = self._active
        if not active.has_room(size, next_offset, max_timestamp) and rolling.is_full(
            self, active, size, next_offset, max_timestamp
        ):
            active = rolling.roll(self)
        before, last_offset, parts = active.size, next_offset - 1, (view,)
        stamp(view, base, leader_epoch)
        try:
            active.write(parts, size)
            active.unheard = idempotent
            active.note(size, last_offset, max_timestamp)
            self.end_offset = next_offset
            if idempotent:
                self.producers.note(header, base, active)
                active.unheard = False
            if self._tail.size_max:
                self._tail.append(base, next_offset, view, size)
        except BaseException as error:
            self._append_failed(error, before, before + size)
            if active.size == before:
                stamp(view, 0, -1)  # as it came, for it may come again
            if active.torn and self._poisoned:  # for lack of room: less than a batch, which no opening takes for one
                raise validator.not_cut(header_count) from error
            raise
        if base == self.flushed_offset:
            self._unsynced_since_ns = -1
        self._batches += 1
        self._records += header_count
        self._bytes += size
        return Appended(base, next_offset - 1, max_timestamp if self._append_time else -1, header_count, size)

    def append_many_as_leader(self, batches: Sequence[tuple[Buffer, bool]], leader_epoch: int) -> list[Appended]:
        """Append the first of ``batches`` (each with whether it is trusted), and with the same write those behind
        it that need no more than that; where these went. What is behind them is to be given again.

        As :meth:`append_as_leader` for the first, whose errors it raises; :class:`OutcomeUnknownError` is about all
        of them.
        """
        plain = (
            leader_epoch == self.epochs.current
            and not self._validator.rewrites
            and self.end_offset < _OFFSETS_SCARCE_FROM
        )
        if len(batches) > 1 and plain and self._failure is None and not self._closed:
            if self._active.roll_timestamp == -INT64_MAX:
                rolling.is_old(self, -1)  # until somebody asks, any batch might be too new for the segment
            if places := self._append_own(batches, leader_epoch):
                return places
        return [self.append_as_leader(batches[0][0], leader_epoch, trusted=batches[0][1])]

    def _append_own(self, batches: Sequence[tuple[Buffer, bool]], leader_epoch: int) -> list[Appended]:
        """Append the first of ``batches`` that need no more than to be written, with one write; where these
        went."""
        base, active = self.end_offset, self._active
        before = active.size
        try:
            places = active.append_own(
                batches, base, leader_epoch, self._size_limit, self._tail, self.producers, is_valid
            )
        except BaseException as error:
            self._append_failed(error, before)
            # For lack of room one leaves less than a batch, which no opening takes for one; several
            # may leave whole ones.
            if active.torn and (self._poisoned or (isinstance(error, StorageError) and active.tried > 1)):
                raise self._validator.not_cut(
                    sum(RecordBatch(batch).record_count for batch, _ in batches[: active.tried])
                ) from error
            raise
        if not places:
            return []
        if base == self.flushed_offset:
            self._unsynced_since_ns = -1
        self.end_offset = next_offset = active.next_offset
        self._batches += len(places)
        self._records += next_offset - base
        self._bytes += active.size - before
        # Not by its own constructor, which is a function in Python.
        return [_new_tuple(Appended, place) for place in places]

    def append_as_follower(self, parts: Sequence[Buffer], *, at_end: bool = False) -> int:
        """Append batches fetched from the leader, each of ``parts`` holding whole ones, their bytes as they are;
        the new end offset.

        All are checked before any is written: checksum, offsets not below the end and rising, leader epochs not
        falling. Gaps are allowed, with ``at_end`` only behind the first batch. Raises :class:`CorruptError`; what
        does not follow is its :class:`UnexpectedAppendOffsetError`.
        """
        if self._failure is not None or self._closed:
            self._check_writable()
        if self.epochs.current is None:
            history.write(self)
        end, active = self.end_offset, self._active
        before = active.size
        try:
            size = active.append_next(parts, end, self.epochs.latest, self._tail, self.producers)
        except BaseException as error:
            self._append_failed(error, before)
            raise
        if size:
            self.end_offset = next_offset = active.next_offset
            self._batches += len(parts)
            self._records += next_offset - end
            self._bytes += size
            return next_offset
        views, batches, with_producer_id, total, gaps = check_fetched(parts, end, self.epochs.latest)
        if not batches:
            return end
        if at_end and batches[0][0] != end:
            reason = f"{self.topic_partition}: a batch fetched from offset {end} begins elsewhere"
            raise UnexpectedAppendOffsetError(
                reason, first_offset=batches[0][0], last_offset=batches[0][1], end_offset=end
            )
        if batches[-1][1] - batches[0][0] <= INT32_MAX:
            self._append_validated(views, batches, with_producer_id, total, gaps)
        else:
            # No segment holds them all.
            for view, fetched in zip(cut_fetched(views, batches), batches, strict=True):
                self._append_validated(
                    [view],
                    [fetched],
                    [one for one in with_producer_id if one.base_offset == fetched[0]],
                    view.nbytes,
                    gaps,
                )
        return self.end_offset

    _append_validated = follower_append.append_validated

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
            batches_appended=self._batches,
            records_appended=self._records,
            bytes_appended=self._bytes,
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
