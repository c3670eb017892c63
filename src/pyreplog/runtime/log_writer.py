"""LogWriter: one partition that this process writes directly, without replicas. ``open_log`` in
mode ``"a"`` uses it.

One lock guards the log and the batch of ``append_nowait``; a sync runs without it. The parts:

* :mod:`~pyreplog.runtime.change_fence`: the log, and its repair after a change that an exception
  cut short;
* :mod:`~pyreplog.runtime.pending_appends` and :mod:`~pyreplog.runtime.group_commit`: how a batch
  gets written, synced and acknowledged;
* :mod:`~pyreplog.runtime.nowait_batch`: the records of ``append_nowait`` until they are written;
* :mod:`~pyreplog.runtime.maintenance`: the work of the background thread.

The log's high watermark is the flushed end under durability ``sync``, the written end under ``os``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from pyreplog.arrow import ArrowRows
from pyreplog.client import Acks, BatchResult, Completion
from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import (
    ClosedError,
    CorruptLogError,
    ForkedError,
    OutcomeUnknownError,
    PyreplogError,
    ReentrantCallError,
    StorageError,
    copy_for_raise,
)
from pyreplog.log import Appended, Log, LogRoot, LogSlice
from pyreplog.ports import Buffer, Clock, Headers
from pyreplog.runtime.background import Background
from pyreplog.runtime.backpressure import UnsyncedBudget
from pyreplog.runtime.change_fence import ChangeFence
from pyreplog.runtime.compactor import Compactor
from pyreplog.runtime.encoder import Encoder, RowStamps
from pyreplog.runtime.follow import WriterSignal
from pyreplog.runtime.group_commit import GroupCommit
from pyreplog.runtime.logger import tell_unheard
from pyreplog.runtime.loop_future import loop_future
from pyreplog.runtime.maintenance import Maintenance
from pyreplog.runtime.nowait_batch import NowaitBatch
from pyreplog.runtime.pending_appends import PendingAppends
from pyreplog.system import OwnedLock, SystemClock
from pyreplog.values import LogStats

__all__ = ["BUFFER_MEMORY", "MAX_BLOCK_MS", "LogWriter"]

BUFFER_MEMORY: Final = 64 << 20
"""The bytes that may wait for a sync, unless the caller of ``open_log`` gives another number."""
MAX_BLOCK_MS: Final = 60_000
"""How long ``append_nowait`` waits for room among them, unless the caller of ``open_log`` gives
another number."""


class LogWriter:
    """Append to one partition, from any number of threads. Owns the root, the partition's log and
    one background thread."""

    def __init__(
        self,
        root: LogRoot,
        log: Log,
        clock: Clock,
        reopen: Callable[[], Log],
        name: str,
        buffer_memory: int = BUFFER_MEMORY,
        max_block_ms: float = MAX_BLOCK_MS,
    ) -> None:
        """Take ``root`` and ``log`` over, and lead ``log`` in a new epoch.

        ``reopen`` opens the partition again as after a kill; errors call the log ``name``.
        """
        self.name = name
        self.log = log
        """The log, which is another object after a repair."""
        self.closed = False
        self.released = False
        """Whether :meth:`close` is over: an exception may have cut it short."""
        self.is_told_of = False
        """Whether the user was warned that the log is not closed."""
        self.abandoned: Callable[[], None] | None = None
        """Closes all that its opening made, once the user holds no ``Log`` of it any more."""
        self._closing = OwnedLock()
        self._closer: int | None = None
        self._root = root
        self._now_ns = clock.monotonic_ns
        log.set_tail_cache_size(0)  # readers take from the page cache, and the builders' buffers are free again at once
        self._fence = fence = ChangeFence(log, name, reopen, self._log_reopened)
        self._background = background = Background(f"pyreplog {log.topic_partition}", self._work)
        budget = UnsyncedBudget(buffer_memory, max_block_ms)
        self._pending = pending = PendingAppends(fence, budget, background, self)
        self._group_commit = GroupCommit(fence, pending, self._fail_all)
        self._encoder = encoder = Encoder(log, clock.wall_ms)
        now_ms = None if isinstance(clock, SystemClock) else clock.wall_ms
        self.nowait = NowaitBatch(fence, pending, budget, encoder, background, now_ms)
        """The batch of ``append_nowait``."""
        self._maintenance = Maintenance(
            root, fence, pending, self.nowait, self._group_commit, background, self._now_ns, self._fail_all
        )
        log.on_roll = self._maintenance.retain_soon
        self.compactor = Compactor(root, fence, self.nowait, self._group_commit, clock)
        """Runs the passes of compaction."""
        self.compactor.start()

    def _log_reopened(self, log: Log) -> None:
        self.log = log
        self._pending.log_reopened()
        log.on_roll = self._maintenance.retain_soon

    def _work(self) -> float | None:
        return self._maintenance.work()

    @property
    def folder(self) -> str:
        """The log root, which this process has locked."""
        return self._root.path

    @property
    def lock(self) -> OwnedLock:
        """The lock of the log and the open batch. :class:`ReentrantCallError` if this thread has
        it."""
        return self._fence.lock.enter()

    @property
    def failure(self) -> Exception | None:
        """Why nothing can be appended any more: closed, forked or poisoned."""
        return self._fence.failure

    def check(self) -> None:
        """Raise :attr:`failure`, as :class:`ClosedError` if the log is poisoned."""
        self._fence.check()

    def watch(self, look: Callable[[], float | None]) -> None:
        """See :meth:`Maintenance.watch`."""
        self._maintenance.watch(look)

    def follow(self) -> WriterSignal:
        """See :meth:`PendingAppends.follow`."""
        return self._pending.follow()

    # ------------------------------------------------------------------------------------ appending

    def append(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | datetime | None
    ) -> int:
        """Append one record and return its offset once it counts."""
        lock = self._fence.lock
        if lock.is_mine():  # as in `lock`, but without its calls, which single records would notice
            raise lock.refuse()
        pending = self._pending
        with lock:
            self.nowait.prepare_change()
            offset = pending.write(self._encoder.one(value, key, headers, timestamp)).base_offset
        try:
            if pending.needs_sync:
                self._group_commit.wait(offset + 1)
            elif pending.flushes:
                self._flush_if_due()
        except (StorageError, ClosedError, ReentrantCallError, MemoryError) as error:
            raise pending.unsynced_error(1, error) from error
        return offset

    def append_many(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int | datetime] | None,
    ) -> range:
        """Append records and return their offsets once they count: one batch if they fit, else
        several in order."""
        count = len(values)
        with self.lock:
            self.nowait.prepare_change()
            log = self._fence.log
            if not count:
                return range(log.end_offset, log.end_offset)
            encoder = self._encoder
            batches = encoder.many(values, keys, headers, timestamps, encoder.now_ms())
            start = log.end_offset
            offsets = range(start, start + count)  # first: without memory for it, nothing must be in the log
            in_part = None
            if len(batches) == 1:
                self._pending.write(batches[0][0])
            else:
                in_part = self._write_several((batch for batch, _ in batches), offsets)
        return self._await_durable(offsets, in_part)

    def append_many_nowait(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int | datetime] | None,
    ) -> Acks:
        """Write records and return their Acks, which tell when they count."""
        self.nowait.await_room()
        runs: list[tuple[BatchResult, int, int]] = []
        with self.lock:
            self.nowait.prepare_change()
            if len(values):
                stamp = self._encoder.now_ms()
                row = 0
                for batch, count in self._encoder.many(values, keys, headers, timestamps, stamp):
                    stamps = stamp if timestamps is None else timestamps[row : row + count]
                    runs.append((self._pending.append(batch, count, stamps), 0, count))
                    row += count
        self._background.arm()
        return Acks(runs)

    def append_arrow(self, rows: ArrowRows) -> range:
        """Append the rows of a table and return their offsets once they count. One batch, or
        several in order."""
        self._encoder.check_rows(rows)
        count = rows.row_count
        with self.lock:
            self.nowait.prepare_change()
            start = self._fence.log.end_offset
            offsets = range(start, start + count)
            in_part = self._write_several((batch for batch, _, _, _ in self._encoder.rows(rows)), offsets)
        return self._await_durable(offsets, in_part)

    def append_arrow_nowait(self, rows: ArrowRows) -> Acks:
        """Write the rows of a table and return their Acks, which tell when they count."""
        self._encoder.check_rows(rows)
        self.nowait.await_room()
        runs: list[tuple[BatchResult, int, int]] = []
        with self.lock:
            self.nowait.prepare_change()
            for batch, row, count, stamp in self._encoder.rows(rows):
                runs.append((self._pending.append(batch, count, RowStamps(rows, row, count, stamp)), 0, count))
        self._background.arm()
        return Acks(runs)

    def append_batch(self, batch: memoryview) -> Appended:
        """Append one encoded batch of a producer, which the caller checked, or find that it is in
        the log already. It counts after :meth:`settle`."""
        with self.lock:
            self.nowait.prepare_change()
            return self._pending.write(batch, times_checked=False)

    def _write_several(self, batches: Iterable[memoryview], offsets: range) -> tuple[int, Exception] | None:
        """Write the batches of one append. If a later one is refused, the first ones stay: return
        the end of the written ones, and the refusal."""
        try:
            for batch in batches:
                self._pending.write(batch)
        except (PyreplogError, MemoryError) as error:
            end = self._fence.log.end_offset
            if end == offsets.start or isinstance(error, (OutcomeUnknownError, ReentrantCallError)):
                raise
            return end, error
        return None

    def _await_durable(self, offsets: range, in_part: tuple[int, Exception] | None) -> range:
        """Return ``offsets`` once they count. ``in_part``, of :meth:`_write_several`, is raised
        once the written records count, so that the caller can read them then."""
        end, rest = offsets.stop, ""
        if in_part is not None:
            end = in_part[0]
            rest = f", the others are refused ({str(in_part[1]) or 'no memory'})"
        try:
            self._settle_up_to(end)
        except (StorageError, ClosedError, ReentrantCallError, MemoryError) as error:
            if in_part is not None:
                rest = f", of which those at {offsets.start} to {end - 1} were{rest}"
            raise self._pending.unsynced_error(len(offsets), error, rest) from error
        if in_part is not None:
            tried = f"append of {len(offsets)} records to {self.log.topic_partition}"
            reason = f"those at offsets {offsets.start} to {end - 1} are written{rest}"
            raise OutcomeUnknownError(tried, reason) from in_part[1]
        return offsets

    # -------------------------------------------------------------------------------------- waiting

    def settle(self) -> None:
        """Return when everything appended so far counts."""
        self._settle_up_to(self._fence.log.end_offset)

    def _settle_up_to(self, end: int) -> None:
        if self._pending.needs_sync:
            self._group_commit.wait(end)
        elif self._pending.flushes:
            self._flush_if_due()

    def _flush_if_due(self) -> None:
        """Follow ``flush.messages`` and ``flush.ms`` of an ``os`` log."""
        log = self._fence.log
        if log.sync_due(self._now_ns()):
            self._group_commit.wait(log.end_offset)
        else:
            self._background.arm()

    def monotonic_ns(self) -> int:
        """Return the time of the log's clock."""
        return self._now_ns()

    def wait_for(self, pending: Completion, timeout: float | None) -> None:
        """Bring ``pending`` about and return when it is settled; TimeoutError as
        :meth:`GroupCommit.wait`."""
        with self.lock:
            if pending is self.nowait.result:
                self.nowait.prepare_change()
            written = self._pending.find(pending)
        if written is not None and not pending.settled:
            if timeout == 0:  # the caller must not sync itself: it could not be cut short
                self._pending.hurry()
                raise TimeoutError("not on stable storage yet; it is on its way there")
            try:
                self._group_commit.wait(written.last_offset + 1, timeout)
            except (StorageError, ClosedError, ReentrantCallError) as error:
                if not pending.settled:  # the sync did not even begin: a later one may settle it
                    raise self._pending.unsynced_error(written.record_count, error) from error
        self._check_process(pending)
        assert pending.settled, "a result that is neither open nor waits for a sync is settled"

    def _check_process(self, pending: Completion) -> None:
        ended = self._fence.ended
        if isinstance(ended, ForkedError) and not pending.settled:  # a thread of the parent was about to settle it
            raise copy_for_raise(ended)

    def obstacle(self) -> str:
        """Return nothing: only this process and its disk take part."""
        return ""

    def future_of(self, pending: Completion) -> Any:
        """Return a future of the running event loop that ends when the background thread settles
        ``pending``."""
        self._check_process(pending)
        future, end = loop_future()
        if not pending.add_waiter(end):
            future.set_result(None)
        else:
            self._pending.hurry()
        return future

    def flush(self) -> None:
        """Make everything appended so far durable, and the records of ``append_nowait`` too. Raises
        the error that kept them from being written."""
        with self.lock:
            self._fence.check()
            self.nowait.write()
            end = self._fence.log.end_offset
        self._group_commit.wait(end)

    # -------------------------------------------------------------------------------------- the log

    def write_open_batch(self) -> None:
        """Append the records of ``append_nowait``, so that they can be read (under ``sync``: once
        they are synced). A poisoned log can be read up to its durable end."""
        if self.nowait.result is not None:
            with self.lock:
                if self._fence.ended is None and self._fence.failure is not None:
                    self._fail_all()
                else:
                    self.nowait.prepare_change()

    def read(self, offset: int, size_max: int, end_offset: int) -> LogSlice:
        """See :meth:`pyreplog.log.Log.read`."""
        with self.lock:
            self._fence.repair()
            return self._fence.log.read(offset, size_max, end_offset)

    def find_timestamp(self, timestamp: int, size_max: int = MAX_BATCH_BYTES) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record below the high watermark at or after
        ``timestamp`` (ms)."""
        with self.lock:
            self._fence.repair()
            return self.log.find_timestamp(timestamp, self.log.high_watermark, size_max)

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """See :meth:`pyreplog.log.Log.damage`."""
        with self.lock:
            return self.log.damage(offset, self.log.high_watermark, reason)

    def stats(self) -> LogStats:
        """Return the numbers of the log as it is now."""
        with self.lock:
            return self.log.stats()

    def keep_producers(self, producer_ids: frozenset[int]) -> None:
        """Keep the log from forgetting these producers for their age: their batches are not
        finished. Each call replaces the last one's."""
        with self.lock:
            self.log.producers.pinned_ids = producer_ids

    def delete_records(self, before: int) -> int:
        """See :meth:`pyreplog.log.Log.delete_records`; whole segments below are deleted at once."""
        with self.lock:
            self.nowait.prepare_change()
            with self._fence:
                start = self.log.delete_records(before)
                self.log.apply_retention()
                self._maintenance.segments_deleted()
            return start

    def apply_retention(self) -> int:
        """See :meth:`pyreplog.log.Log.apply_retention`: the caller vouches for the clock."""
        with self.lock:
            self.nowait.prepare_change()
            with self._fence:
                count = self.log.apply_retention(confirmed=True)
                self._maintenance.segments_deleted()
            return count

    # -------------------------------------------------------------------------------------- the end

    def _fail_all(self, reason: PyreplogError | None = None) -> None:
        """Fail all pending results, because the log takes no more records; those of written records with ``reason``,
        if there is one. REQUIRES the lock."""
        self.nowait.end()
        try:
            self._fence.check()
        except ClosedError as error:
            refusal = error
        else:
            return
        self._pending.fail_all(refusal, reason)
        self.nowait.fail(refusal)
        self._pending.wake_all()

    def close(self) -> None:
        """Write and sync everything, leave the clean marker, release the folder. Raises the first failure; the log
        is closed all the same.

        Twice is harmless: a second call waits for the first, and does the rest if an exception
        (Ctrl-C) cut the first short.
        """
        if self._closer == threading.get_ident():
            return  # a signal handler, within a close of its own thread
        with self._closing:
            try:
                self._closer = threading.get_ident()
                if not self.released:
                    self._close()
            finally:
                self._closer = None

    def _close(self) -> None:
        """Close. Each step may be done already."""
        fence = self._fence
        failure: PyreplogError | None = None
        try:
            self.closed = True
            fence.ended = fence.ended or ClosedError(f"{self.name} is closed: open it again to use it")
            with self.lock:
                if fence.is_repairable or fence.log_failure is None:
                    try:
                        self.nowait.write()
                    except PyreplogError as error:
                        failure = error
                end = fence.log.end_offset
                self.nowait.end()
            if fence.log_failure is None and not fence.is_raised and not fence.log.closed:
                try:
                    self._group_commit.wait(end)
                except PyreplogError as error:
                    failure = error
            self.compactor.stop()
            self._background.stop()
            with self.lock:
                failure = self._release(failure)
        finally:
            self._pending.wake_tailers()
        tell_unheard(self._pending.failures, self.name)
        if failure is not None:
            raise failure

    def _release(self, failure: PyreplogError | None) -> PyreplogError | None:
        """Apply retention, close the root and settle all results. Return the first failure."""
        fence = self._fence
        well = fence.log_failure is None and not fence.is_raised
        if well and not fence.log.closed:
            try:
                with fence:  # a caller that opens and closes often may leave the background thread no turn
                    self._maintenance.retain(self._now_ns())
            except PyreplogError as error:
                failure = failure or error
                well = not fence.is_raised
        try:
            self._root.close(clean=well)
        except PyreplogError as error:
            failure = failure or error
        else:  # a sync that could not begin before was made now
            self._pending.settle_below(fence.log.flushed_offset if well else -1)
        self._fail_all(failure)
        self.released = True
        return failure

    def _unclosed(self) -> str | None:
        """Return the log's name for the warning at exit. None if its ``Log`` has warned, or a close
        has begun."""
        return None if self.is_told_of or self.closed else self.name.removeprefix("the ")

    def _forked(self) -> None:
        """Refuse every call, because this process is a forked child and the log is the parent's. REQUIRES that no
        other thread runs yet (a fork leaves one)."""
        error = ForkedError(
            f"{self.name} belongs to the parent process, and this is a fork of it: open it again here, with mode='r'"
            " while that one writes it"
        )
        self._closing, self._closer = OwnedLock(), None
        self.closed = self.released = True
        self.compactor.forked()
        self._fence.forked(error)
        self.nowait.forked(error)
        self._pending.forked(error)
