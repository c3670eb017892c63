"""PendingAppends: batches that were written to the log, until they count.

The commit protocol of one log is here and in :mod:`pyreplog.runtime.group_commit`. Under durability
``os`` a batch counts once it is written: ``write`` advances the high watermark and writes the mark.
Under ``sync`` the batch counts after the next sync: GroupCommit syncs the files and calls
``settle``, which advances the high watermark to the flushed end, writes the mark, and then tells
the appenders and the followers. The mark, which tells other processes, is always written before
anything is acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from pyreplog.client import BatchResult, Completion, Failures, Owner
from pyreplog.config import INT64_MAX
from pyreplog.errors import (
    ClosedError,
    OutcomeUnknownError,
    PyreplogError,
    ReentrantCallError,
    StorageError,
    UnsyncedError,
)
from pyreplog.log import Appended
from pyreplog.runtime.background import Background
from pyreplog.runtime.backpressure import UnsyncedBudget
from pyreplog.runtime.change_fence import ChangeFence
from pyreplog.runtime.follow import WriterSignal

__all__ = ["PendingAppends"]


class PendingAppends:
    """Write batches, and settle their results once they count. All methods REQUIRE the log's lock,
    except ``follow`` and ``hurry``."""

    def __init__(self, fence: ChangeFence, budget: UnsyncedBudget, background: Background, owner: Owner) -> None:
        """``background`` syncs the batches that no caller waits for; ``owner`` waits for their
        results."""
        config = fence.log.config
        self.needs_sync = config.durability == "sync"
        """Whether a batch counts only once it is synced."""
        self.flushes = not self.needs_sync and (config.flush_messages != INT64_MAX or config.flush_ms != INT64_MAX)
        """Whether ``flush.messages`` or ``flush.ms`` asks for syncs of an ``os`` log."""
        self.is_urgent = False
        """Whether a caller asked for a sync by the background thread."""
        self.is_unsettled = False
        """Whether a sync ended, or the log was opened again, and ``settle`` has not followed yet.
        """
        self.failures = Failures()
        self._fence = fence
        self._budget = budget
        self._background = background
        self.new_result = partial(BatchResult, owner, *fence.log.topic_partition)
        """Return the result of a batch with the given timestamps, for which no caller waits yet."""
        self._has_thread = False
        self._unsynced: deque[tuple[Appended, BatchResult]] = deque()
        self._tailers: list[WriterSignal] = []

    @property
    def has_unsynced(self) -> bool:
        """Whether a result waits for a sync."""
        return bool(self._unsynced)

    # ------------------------------------------------------------------------------------- writing

    def write(self, batch: memoryview, times_checked: bool = True) -> Appended:
        """Append one encoded batch. Under ``os`` it is acknowledged, and the mark is moved behind it, on return.

        ``times_checked``: see :meth:`pyreplog.log.Log.append_as_leader`. OutcomeUnknownError if the
        batch may be in the log although the append failed.
        """
        fence = self._fence
        log = fence.log
        appended: Appended | None = None
        if not self._has_thread:  # first: if no thread can be started, nothing is appended
            self._background.start()
            self._has_thread = True
        fence.is_raised = True  # by hand: `with` would cost two calls for each batch
        try:
            appended = log.append_as_leader(batch, fence.epoch, trusted=True, times_checked=times_checked)
            if self.needs_sync:
                self._budget.take(appended.last_offset + 1, appended.size)
            else:
                log.advance_high_watermark(log.end_offset)
                log.write_mark()
                if self._tailers:
                    self.wake_tailers()
        except PyreplogError as error:
            if not fence.is_refusal(error):
                raise
            fence.is_raised = False
            self.wake_tailers()  # they may wait for records that can no longer come
            if appended is not None:  # it is in the log and not in the mark: the next opening finds it
                raise OutcomeUnknownError(
                    f"append of {appended.record_count} records to {log.topic_partition}", str(error)
                ) from error
            raise
        except MemoryError as error:  # before the write or behind it: the fence stays raised
            raise OutcomeUnknownError(f"append to {log.topic_partition}", "there was no memory left") from error
        fence.is_raised = False
        return appended

    def append(self, batch: memoryview, count: int, timestamps: Sequence[int | datetime] | int) -> BatchResult:
        """Append a batch of ``count`` records and return its result, which also tells if the disk
        refused it."""
        result = self.new_result(timestamps)
        try:
            appended = self.write(batch)
        except ReentrantCallError:  # of a signal handler within the write, which is cut short
            raise
        except (PyreplogError, MemoryError) as error:
            self.fail(result, count, error)
        else:
            self.add(appended, result)
        return result

    def add(self, appended: Appended, result: BatchResult) -> None:
        """Settle ``result`` of a batch that was written: under ``os`` now, under ``sync`` after the
        next sync."""
        if self.needs_sync:
            self._unsynced.append((appended, result))
        else:
            result.succeed(appended.base_offset, self._fence.epoch, appended.timestamp)

    # ------------------------------------------------------------------------------------ settling

    def settle(self) -> None:
        """Acknowledge the records below the flushed end, which a sync made durable. Write the mark, then tell
        the waiters."""
        log = self._fence.log
        flushed = log.flushed_offset
        self._budget.give_below(flushed)
        if self.needs_sync:
            log.advance_high_watermark(flushed)
            log.write_mark()
            if self._tailers:
                self.wake_tailers()
        self.settle_below(flushed)
        self._budget.tell()
        self.is_unsettled = False

    def settle_below(self, offset: int) -> None:
        """Acknowledge the batches that end below ``offset``."""
        unsynced = self._unsynced
        while unsynced:
            appended, result = unsynced[0]
            if appended.last_offset >= offset:
                break
            if not result.settled:
                result.succeed(appended.base_offset, self._fence.epoch, appended.timestamp)
            unsynced.popleft()

    def log_reopened(self) -> None:
        """The partition was opened again, which synced it. The next wait settles the batches."""
        self.is_unsettled = True
        self._budget.clear()

    def find(self, pending: Completion) -> Appended | None:
        """Return the place of the batch whose result is ``pending``; None unless it waits for a
        sync."""
        return next((appended for appended, result in self._unsynced if result is pending), None)

    def hurry(self) -> None:
        """Have the background thread write and sync the pending batches, at once. Any thread."""
        self.is_urgent = True
        self._background.wake()

    # ------------------------------------------------------------------------------------- failing

    def fail(self, result: BatchResult, count: int, error: BaseException) -> None:
        """Settle ``result`` of ``count`` records with ``error``. ``close`` logs it if no caller
        asks for it."""
        self.failures.note(result, count)
        result.fail(error)

    def fail_all(self, refusal: ClosedError, reason: PyreplogError | None) -> None:
        """Fail all batches that wait for a sync: with ``reason`` if it is a failure of the disk or
        a ClosedError, else with ``refusal``."""
        while self._unsynced:
            appended, result = self._unsynced[0]
            if not result.settled:
                cause = reason if isinstance(reason, (StorageError, ClosedError)) else refusal
                self.fail(result, appended.record_count, self.unsynced_error(appended.record_count, cause))
            self._unsynced.popleft()

    def unsynced_error(
        self, count: int, error: StorageError | ClosedError | ReentrantCallError | MemoryError, rest: str = ""
    ) -> UnsyncedError:
        """Return the error for ``count`` records that are in the log and whose sync failed with
        ``error``.

        ``rest``: what else to say of the append.
        """
        cause: Exception = (
            error.__cause__ if isinstance(error, ClosedError) and isinstance(error.__cause__, StorageError) else error
        )
        if isinstance(error, MemoryError):
            cause = MemoryError("there was no memory left")
        return UnsyncedError(
            f"append of {count} record{'s' if count > 1 else ''} to {self._fence.log.topic_partition}{rest}", cause
        )

    def forked(self, error: PyreplogError) -> None:
        """Settle all results with ``error``, because this process is a forked child. Wake no waiter, because the
        waiters are the parent's."""
        for _, result in self._unsynced:
            if not result.settled:
                result.error, result.settled = error, True
        self._unsynced.clear()
        self._tailers.clear()

    # ----------------------------------------------------------------------------------- followers

    def follow(self) -> WriterSignal:
        """Return a signal that wakes whenever the high watermark moves, or the log is poisoned or
        closed.

        The caller closes it. Any thread.
        """
        signal = WriterSignal(self._forget_follower)
        self._tailers.append(signal)
        return signal

    def _forget_follower(self, signal: WriterSignal) -> None:
        try:
            self._tailers.remove(signal)
        except ValueError:  # closed twice
            pass

    def wake_all(self) -> None:
        """Have the followers and the threads that wait for room look at the log."""
        self.wake_tailers()
        self._budget.tell()

    def wake_tailers(self) -> None:
        """Have all followers look at the log."""
        for signal in tuple(self._tailers):
            signal.wake()
