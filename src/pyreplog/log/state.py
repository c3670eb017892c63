"""The parts of one partition's log, its mark, and the meaning of a failed write or sync.

:class:`~pyreplog.log.append.LogAppender` adds appending,
:class:`~pyreplog.log.truncation.LogTruncator` truncating, and :class:`~pyreplog.log.log.Log` reading,
syncing and retention.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from pyreplog._core import TailCache
from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, InternalError, StorageError, StoragePermissionError
from pyreplog.log.contiguity import ContiguityCheck
from pyreplog.log.leader_epochs import LeaderEpochs
from pyreplog.log.mark import MarkState
from pyreplog.log.partition_opening import Parts
from pyreplog.log.pending_deletes import PendingDeletes
from pyreplog.log.trusted_clock import TrustedClock
from pyreplog.log.validator import LogValidator
from pyreplog.ports import NO_DESCRIPTORS_ERRNOS, NO_SPACE_ERRNOS, RESOURCES_EXHAUSTED_ERRNOS, Clock, Disk
from pyreplog.values import TopicPartition

TAIL_SIZE: Final = 4 << 20
"""Bytes of appended batches that a log keeps in memory, unless told otherwise."""
# Created at import, because there may be no memory for it later.
_INTERRUPTED: Final = InternalError("a change of the log was interrupted half-way")

T = TypeVar("T")


class LogState:
    """The parts and the offsets of one partition's log. REQUIRES the caller's lock, as
    :class:`~pyreplog.log.log.Log` does."""

    __slots__ = (
        "_active",
        "_append_time",
        "_closed",
        "_config",
        "_contiguity",
        "_counts_flushed",
        "_dropped_tombstone",
        "_failure",
        "_gaps_allowed",
        "_leader_epochs",
        "_mark",
        "_pending_deletes",
        "_poisoned",
        "_segments",
        "_size_limit",
        "_syncs",
        "_tail",
        "_trusted_clock",
        "_unsynced_since_ns",
        "_validator",
        "cleaned_end",
        "clock",
        "directory",
        "disk",
        "end_offset",
        "epochs",
        "flushed_offset",
        "generation",
        "high_watermark",
        "on_roll",
        "producers",
        "recovery",
        "start_offset",
        "tombstone_bound",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, disk: Disk, directory: str, topic_partition: TopicPartition, parts: Parts, clock: Clock) -> None:
        self.disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = parts.topic_id
        self.clock = clock
        #: The leader epoch history, to be read. Only the log changes it.
        self.epochs = parts.epochs
        #: The producers of this log: ids, epochs, last batches, open transactions. Other code reads
        #: its ``table``; only the log changes it.
        self.producers = parts.producers
        #: The report of the recovery that opened the log.
        self.recovery = parts.recovery
        #: Rises with each truncation, which invalidates slices and sync plans of older generations.
        self.generation = 0
        self._segments = parts.segments
        self._active = parts.segments.last
        self._mark = parts.mark
        self._leader_epochs = LeaderEpochs(parts.epochs, disk, directory, parts.mark)
        #: Checks the batches that are read from the disk; None if offsets may have gaps.
        state = parts.mark.state
        self._contiguity = None if state.may_have_gaps else ContiguityCheck(parts.epochs, compacted=state.compacted)
        self.start_offset = state.start_offset
        #: One past the last offset: the base offset of the next batch.
        self.end_offset = self._active.next_offset
        #: All records below this offset are on stable storage.
        self.flushed_offset = state.synced_end
        self.high_watermark = state.high_watermark
        #: Records below this offset were compacted: the entry in the root's cleaner checkpoint.
        self.cleaned_end = 0
        #: A replica's log: every assigned replica has the records below, as far as is known.
        #: Compaction drops no tombstone from there on. None: the log has no other replica.
        self.tombstone_bound: int | None = None
        self._dropped_tombstone: int | None = None  # not looked up yet
        # Whether this life of the log made sure that its mark says that recorded gaps count.
        self._gaps_allowed = False
        self._tail = TailCache(TAIL_SIZE)
        self._failure: Exception | None = None
        self._poisoned = False
        self._closed = False
        self._unsynced_since_ns = -1
        self._syncs = 0
        self._pending_deletes = PendingDeletes(disk)
        self._trusted_clock = TrustedClock(clock)
        #: Called after a segment was closed and the next one created.
        self.on_roll: Callable[[], None] | None = None
        self._take_config(parts.config)

    def _take_config(self, config: LogConfig) -> None:
        self._config = config
        self._counts_flushed = config.durability == "sync"
        self._validator = LogValidator(config, self.topic_partition, self.clock)
        self._append_time = self._validator.append_time
        self._size_limit = self._validator.size_max

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self._config

    @property
    def failure(self) -> Exception | None:
        """The error that ended the use of the log until it is opened again; None while it works."""
        return self._failure

    @property
    def poisoned(self) -> bool:
        """Whether the log failed because records that were written may never reach the disk: see :meth:`poison`."""
        return self._poisoned

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @property
    def mark(self) -> MarkState:
        """The content of the mark's file."""
        return self._mark.state

    @property
    def takes_gaps(self) -> bool:
        """Whether offsets may be missing in what a leader sends: the topic is or was compacted."""
        return self._config.may_have_gaps or self._mark.state.compacted

    @property
    def droppable_end(self) -> int:
        """Compaction drops only tombstones, and markers of transactions, below this offset: every replica has had
        them, so none can keep an older record of their key."""
        bound = self.high_watermark if self.tombstone_bound is None else self.tombstone_bound
        return min(bound, self.high_watermark)

    @property
    def dropped_tombstone(self) -> int:
        """The highest offset of a tombstone that compaction dropped from this log; -1 if it dropped none. A reader
        that goes on below it may have missed that a key was deleted."""
        if not self._mark.state.compacted:
            return -1
        if self._dropped_tombstone is None:
            self._dropped_tombstone = max(segment.gaps.dropped_tombstone for segment in self._segments)
        return self._dropped_tombstone

    @property
    def last_stable_offset(self) -> int:
        """The offset below which readers of committed records read: the high watermark, or the begin of the oldest
        transaction without a known end."""
        unstable = self.producers.table.first_unstable(self.high_watermark)
        if unstable < 0:
            return self.high_watermark
        return min(max(unstable, self.start_offset), self.high_watermark)

    def write_mark(self) -> None:
        """Write the mark if the log's offsets have changed: one small write, and no sync."""
        if not self._closed:
            try:
                self._mark.write(self.flushed_offset, self.high_watermark, self.start_offset)
            except StorageError as error:
                self._write_failed(error)
                raise

    def poison(self, error: Exception) -> None:
        """Note that a sync failed, so the page cache may never reach the disk. From now on the log takes no appends,
        and serves only records that were durable before. If the sync only lacked a file descriptor, the log ends
        (:meth:`fail_until_reopened`)."""
        if self._poisoned or self._closed:
            return
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTORS_ERRNOS:
            self.fail_until_reopened(error)
            return
        self._failure = self._failure or error
        self._poisoned = True
        self.high_watermark = max(min(self.high_watermark, self.flushed_offset), self.start_offset)
        self._tail.clear()
        try:
            self._mark.write_state(self._state()._replace(poisoned=True))
            self._mark.sync()
        except StorageError:
            pass  # the disk fails here too, but the next start is an unclean one in any case

    def fail_after_refused_write(self, error: StorageError) -> None:
        """End the log because a change of several steps failed half-way; the next opening repairs it. After a full
        disk or a denied permission, earlier writes are not in doubt. After any other error they are, so the log is
        poisoned."""
        if error.errno not in NO_SPACE_ERRNOS and not isinstance(error, StoragePermissionError):
            self.poison(error)
        elif self._failure is None:
            self._failure = error

    def fail_until_reopened(self, error: BaseException) -> None:
        """End the log because a change stopped half-way for lack of memory or because of an interrupt. Earlier
        writes are not in doubt."""
        if self._failure is None:
            self._failure = error if isinstance(error, Exception) else _INTERRUPTED

    def _state(self) -> MarkState:
        return self._mark.state._replace(
            synced_end=self.flushed_offset, high_watermark=self.high_watermark, start_offset=self.start_offset
        )

    def _write_mark_synced(self) -> None:
        self.write_mark()
        self._sync_mark()

    def _sync_mark(self) -> None:
        self._sync_or_poison(self._mark.sync)

    def _sync_directory(self) -> None:
        self._sync_or_poison(partial(self.disk.sync_directory, self.directory))

    def _sync_or_poison(self, sync: Callable[[], None]) -> None:
        """Call ``sync``, and poison the log if it fails. That holds for a full disk too, because some file systems
        allocate blocks only at the sync."""
        try:
            sync()
        except StorageError as error:
            self.poison(error)
            raise

    def _write_failed(self, error: StorageError) -> None:
        """Note a failed write. A full disk may have room again, so the log goes on. Without the permission to write
        it ends. After any other error the content of the disk is unknown, so the log is poisoned."""
        if isinstance(error, StoragePermissionError):
            self.fail_until_reopened(error)
        elif error.errno not in NO_SPACE_ERRNOS:
            self.poison(error)

    def _append_refused(self, error: StorageError) -> None:
        """Note that a step before an append failed. The step can be repeated, so a lack of descriptors or memory
        leaves nothing in doubt either."""
        if error.errno not in RESOURCES_EXHAUSTED_ERRNOS:
            self._write_failed(error)

    def _append_failed(self, error: BaseException, before: int) -> None:
        """Note that appending to the active segment, which had ``before`` bytes, raised ``error``."""
        if self._active.size > before:
            # The batches are written, but there was no memory to note their producers or to cache
            # them. They must not be written again.
            self.end_offset = self._active.next_offset
            if self._active.producers_pending and not isinstance(error, StorageError):
                # The producer table would not recognise these batches if their producer sent them
                # again. The next opening rebuilds the table from the log.
                self.fail_until_reopened(error)
        elif isinstance(error, StorageError):
            self._append_refused(error)

    def _change_epochs(self, change: Callable[[MarkState], T]) -> T:
        """Call ``change``, a method of :class:`LeaderEpochs`, with the state that it writes to the mark."""
        try:
            return change(self._state())
        except StorageError as error:
            self._append_refused(error)
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the log {self.directory!r} is closed")

    def _check_writable(self) -> None:
        self._check_open()
        if self._failure is not None:
            raise ClosedError(
                f"the log {self.directory!r} is {'poisoned' if self._poisoned else 'ended'} by an earlier failure "
                f"({str(self._failure) or 'no memory'}): close it and open it again"
            ) from self._failure
