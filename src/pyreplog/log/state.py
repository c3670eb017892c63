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
from pyreplog.log.opening import Parts
from pyreplog.log.pending_deletes import PendingDeletes
from pyreplog.log.trusted_clock import TrustedClock
from pyreplog.log.validator import LogValidator
from pyreplog.ports import NO_DESCRIPTORS_ERRNOS, NO_SPACE_ERRNOS, RESOURCES_EXHAUSTED_ERRNOS, Clock, Disk
from pyreplog.values import TopicPartition

TAIL_SIZE: Final = 4 << 20
"""Bytes of appended batches that a log keeps in memory, unless told otherwise."""
# Made beforehand: there may be no memory for it when it is needed.
_INTERRUPTED: Final = InternalError("a change of the log was interrupted half-way")

T = TypeVar("T")


class LogState:
    """The parts of one partition's log, and how far it goes. REQUIRES the caller's lock, as
    :class:`~pyreplog.log.log.Log` does."""

    __slots__ = (
        "_active",
        "_append_time",
        "_closed",
        "_config",
        "_contiguity",
        "_counts_flushed",
        "_failure",
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
        "topic_id",
        "topic_partition",
    )

    def __init__(self, disk: Disk, directory: str, topic_partition: TopicPartition, parts: Parts, clock: Clock) -> None:
        self.disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = parts.topic_id
        self.clock = clock
        #: The leader epoch history. Read it; mutate it through the log only.
        self.epochs = parts.epochs
        #: Who writes here: ids, epochs, last batches, open transactions. Read its ``table``; the
        #: log tells it what happens.
        self.producers = parts.producers
        #: What opening found and did.
        self.recovery = parts.recovery
        #: Rises with each truncation; slices and syncs of an older one are void.
        self.generation = 0
        self._segments = parts.segments
        self._active = parts.segments.last
        self._mark = parts.mark
        self._leader_epochs = LeaderEpochs(parts.epochs, disk, directory, parts.mark)
        #: Checks what is read from the disk; None where offsets may have gaps.
        self._contiguity = None if parts.mark.may_have_gaps else ContiguityCheck(parts.epochs)
        state = parts.mark.state
        self.start_offset = state.start_offset
        #: One past the last offset: what the next batch gets.
        self.end_offset = self._active.next_offset
        #: Everything below is on stable storage.
        self.flushed_offset = state.synced_end
        self.high_watermark = state.high_watermark
        self._tail = TailCache(TAIL_SIZE)
        self._failure: Exception | None = None
        self._poisoned = False
        self._closed = False
        self._unsynced_since_ns = -1
        self._syncs = 0
        self._pending_deletes = PendingDeletes(disk)
        self._trusted_clock = TrustedClock(clock)
        #: Called when a segment was closed and the next one begun.
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
        """What ended the use of the log until it is opened again; None while it is well."""
        return self._failure

    @property
    def poisoned(self) -> bool:
        """Whether it ended because what was written before may never reach the disk: see :meth:`poison`."""
        return self._poisoned

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @property
    def mark(self) -> MarkState:
        """The content of the mark's file."""
        return self._mark.state

    def write_mark(self) -> None:
        """Bring the mark's file up to date where it differs. Not synced; costs one small write."""
        if not self._closed:
            try:
                self._mark.write(self.flushed_offset, self.high_watermark, self.start_offset)
            except StorageError as error:
                self._write_failed(error)
                raise

    def poison(self, error: Exception) -> None:
        """A sync failed: what is in the page cache may never reach the disk. No appends from now on, reads only of
        what was durable before. Where there was no descriptor to sync with, the log only ends (:meth:`end`)."""
        if self._poisoned or self._closed:
            return
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTORS_ERRNOS:
            self.end(error)
            return
        self._failure = self._failure or error
        self._poisoned = True
        self.high_watermark = max(min(self.high_watermark, self.flushed_offset), self.start_offset)
        self._tail.clear()
        try:
            self._mark.write_state(self._state()._replace(poisoned=True))
            self._mark.sync()
        except StorageError:
            pass  # the same disk: the next start is an unclean one all the same

    def give_up(self, error: StorageError) -> None:
        """A change of several steps ended half-way: no more of them, until the next opening has put right what it
        left. For lack of room or of leave nothing that was written before is in doubt; after any other refusal of a
        write it is."""
        if error.errno not in NO_SPACE_ERRNOS and not isinstance(error, StoragePermissionError):
            self.poison(error)
        elif self._failure is None:
            self._failure = error

    def end(self, error: BaseException) -> None:
        """As :meth:`give_up`, of a change that ended half-way for lack of memory, or because somebody interrupted
        it."""
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
        """A sync that failed is data loss, whatever the reason: for lack of room, too, where room is looked for
        late."""
        try:
            sync()
        except StorageError as error:
            self.poison(error)
            raise

    def _write_failed(self, error: StorageError) -> None:
        """A disk that is full may have room again. Who has no leave to write stops, and nothing is in doubt; after
        any other refusal nobody knows what is on the disk."""
        if isinstance(error, StoragePermissionError):
            self.end(error)
        elif error.errno not in NO_SPACE_ERRNOS:
            self.poison(error)

    def _append_refused(self, error: StorageError) -> None:
        """Nothing was appended, by a step that can be made again: for lack of descriptors or memory, too, nothing
        is in doubt."""
        if error.errno not in RESOURCES_EXHAUSTED_ERRNOS:
            self._write_failed(error)

    def _append_failed(self, error: BaseException, before: int) -> None:
        """Note that appending to the active segment, which had ``before`` bytes, raised ``error``."""
        if self._active.size > before:
            # The batches are written, and memory was lacking for what is kept besides. They must
            # not be written again.
            self.end_offset = self._active.next_offset
            if self._active.producers_pending and not isinstance(error, StorageError):
                # The table of producers would not recognise them if their producer sent them again.
                # The next opening finds who wrote them.
                self.end(error)
        elif isinstance(error, StorageError):
            self._append_refused(error)

    def _change_epochs(self, change: Callable[[MarkState], T]) -> T:
        """Call ``change``, a method of :class:`LeaderEpochs`, with the mark state that it is to write."""
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
