"""LogWriter: one partition that this process writes directly, without replicas. What is behind ``open_log`` in mode
``"a"``.

One lock guards the log and the batch being gathered; a sync runs without it (:mod:`pyreplog.runtime.group_commit`).
The log's high watermark is its end that counts: the flushed one under durability ``sync``, the written one under
``os``. The mark that tells other processes is written before anything is acknowledged.

A signal handler that raises (Ctrl-C) may do so between any two steps of an append. The section that changes the log
is therefore fenced by a flag, and whoever finds it standing opens the partition again from its files, as after a
kill: what was acknowledged is there. The lock is always taken by ``with``: see :mod:`pyreplog.runtime.guard`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from pyreplog.arrow import ArrowRows
from pyreplog.client import Acks, BatchResult, Completion, Failures
from pyreplog.config import INT64_MAX, MAX_BATCH_BYTES
from pyreplog.errors import (
    ClosedError,
    CorruptLogError,
    ForkedError,
    OutcomeUnknownError,
    PyreplogError,
    ReentrantCallError,
    StorageError,
    UnsyncedError,
    again,
)
from pyreplog.log import Appended, Log, LogRoot, LogSlice
from pyreplog.mutex import new_mutex
from pyreplog.ports import Buffer, Clock, Headers
from pyreplog.record import Ack, BatchBuilder, Gathering
from pyreplog.runtime.background import LINGER_S, Background
from pyreplog.runtime.backpressure import UnsyncedBudget
from pyreplog.runtime.encoder import Encoder
from pyreplog.runtime.follow import WriterSignal
from pyreplog.runtime.group_commit import GroupCommit
from pyreplog.runtime.guard import Guard
from pyreplog.runtime.logger import LOGGER, tell_unheard
from pyreplog.runtime.loop_future import loop_future
from pyreplog.runtime.maintenance import Maintenance
from pyreplog.runtime.row_timestamps import RowStamps
from pyreplog.system import SystemClock
from pyreplog.timestamps import TIMESTAMP_MAX
from pyreplog.values import LogStats

__all__ = ["BUFFER_MEMORY", "MAX_BLOCK_MS", "LogWriter"]

GATHER_SIZE_MAX: Final = 256 << 10
"""``append_nowait`` calls a batch of this many bytes full: more gains nothing and leaves the processor's cache."""
BUFFER_MEMORY: Final = 64 << 20
"""Bytes that may wait for a sync unless ``open_log`` was told another number."""
MAX_BLOCK_MS: Final = 60_000
"""How long who does not want to wait waits for room among them, unless ``open_log`` was told otherwise."""
RETRY_NS: Final = 500_000_000
"""A sync that could not begin is tried again after this."""


class LogWriter:
    """Appends to one partition, from any number of threads. Owns the root, the partition's log and one background
    thread."""

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
        """Takes ``root`` and ``log`` over and leads ``log`` in a new epoch. ``reopen`` opens the partition again as
        after a kill; ``name`` is what errors call the log."""
        self.log = log
        self.name = name
        self._guard = Guard(name)
        self.closed = False
        self.released = False
        """Whether :meth:`close` is over: an exception may have cut it short."""
        self._closing = new_mutex()
        self._closer: int | None = None
        self.is_told_of = False
        """Whether somebody was warned that nobody closed it."""
        self.abandoned: Callable[[], None] | None = None
        """Closes what was made with it, where nobody holds its face any more."""
        self._root = root
        self._reopen_log = reopen
        self._now_ms = clock.wall_ms
        # None: the core asks this machine's clock itself, for each record of `append_nowait`.
        self._stamp_ms = None if isinstance(clock, SystemClock) else clock.wall_ms
        self._now_ns = clock.monotonic_ns
        self._syncer = GroupCommit(
            log, name, self._guard, self._reopen_if_interrupted, self._after_sync, self._after_failure
        )
        self._background = Background(f"pyreplog {log.topic_partition}", self._work)
        self._failure: PyreplogError | None = None
        self._busy = False  # the fence against half-done changes
        config = log.config
        self._sync_each = config.durability == "sync"
        self._flushes = not self._sync_each and (config.flush_messages != INT64_MAX or config.flush_ms != INT64_MAX)
        log.set_tail_cache_size(0)  # readers take from the page cache, and the builders' buffers are free again at once
        self._gather_size_max = min(GATHER_SIZE_MAX, buffer_memory // 4)
        self._encoder = Encoder(log, clock.wall_ms)
        self.bounded = self._encoder.bounded
        """Whether a record's own timestamp is looked at before it is gathered: :attr:`gathering` does not."""
        self._gatherer = BatchBuilder(self._encoder.size_target, timestamp_max=TIMESTAMP_MAX)
        # One call into the core for each record of `append_nowait`, with no lock. What it does not
        # take goes the long way.
        self.gathering = Gathering(self._gatherer, self._stamp_ms, self._gather)
        self._gathering: BatchResult | None = None
        self._stamps: list[int] = []
        self._unsettled: deque[tuple[Appended, BatchResult]] = deque()  # written, to be settled by a sync
        self._followers: list[WriterSignal] = []
        self._failures = Failures()
        self._last_seen_batch: BatchResult | None = None
        self._sync_now = False
        # Only what waits for a sync: under `os` nothing does.
        self._room = UnsyncedBudget(buffer_memory, max_block_ms)
        self._is_new = True
        self._look: Callable[[], float | None] | None = None
        self._look_due_ns = 0
        self._chores = Maintenance(root, self._now_ns())
        self._lead()
        self._chores.begin(log)

    @property
    def lock(self) -> threading.RLock:
        """Of the log and of the batch being gathered. :class:`ReentrantCallError` where this thread has it."""
        return self._guard.free()

    def watch(self, look: Callable[[], float | None]) -> None:
        """Call ``look`` now, and from the background thread after as many seconds as it returns each time, until
        that is None.

        Once, before anything is appended: which then need not wait until a thread has started.
        """
        self._note_look(look())
        self._look = look
        self._background.start(max((self._look_due_ns - self._now_ns()) / 1e9, LINGER_S))
        self._is_new = False

    def _note_look(self, pause_s: float | None) -> None:
        self._look_due_ns = INT64_MAX if pause_s is None else self._now_ns() + int(pause_s * 1e9)

    def _lead(self) -> None:
        log = self.log
        log.on_roll = self._retain_soon
        self.epoch = log.epochs.latest + 1
        log.become_leader(self.epoch)
        log.advance_high_watermark(log.ack_offset)
        log.write_mark()

    # ------------------------------------------------------------------------------------ appending

    def append(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | datetime | None
    ) -> int:
        """The offset of one record, which counts when this returns."""
        guard = self._guard
        if guard.is_mine():  # as in `lock`: what is appended by itself is many
            raise guard.refuse()
        with guard.lock:
            self._prepare_change()
            offset = self._write(self._encoder.one(value, key, headers, timestamp)).base_offset
        try:
            if self._sync_each:
                self._syncer.wait(offset + 1)
            elif self._flushes:
                self._flush_if_due()
        except (StorageError, ClosedError, ReentrantCallError, MemoryError) as error:
            raise self._unsynced_error(1, error) from error
        return offset

    def append_many(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int | datetime] | None,
    ) -> range:
        """The offsets of many records, which count when this returns: one batch where they fit, several in order
        where not."""
        count = len(values)
        with self.lock:
            self._prepare_change()
            if not count:
                return range(self.log.end_offset, self.log.end_offset)
            batches = self._encoder.many(values, keys, headers, timestamps, self._now_ms())
            start = self.log.end_offset
            offsets = range(start, start + count)  # made first: a lack of memory would be told as if nothing were there
            in_part = None
            if len(batches) == 1:
                self._write(batches[0][0])
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
        """The same records, written when this returns, and handles on when they count."""
        self.await_room()
        runs: list[tuple[BatchResult, int, int]] = []
        with self.lock:
            self._prepare_change()
            if len(values):
                stamp = self._now_ms()
                row = 0
                for batch, count in self._encoder.many(values, keys, headers, timestamps, stamp):
                    self._write_later(
                        batch, count, stamp if timestamps is None else timestamps[row : row + count], runs
                    )
                    row += count
        self._background.arm()
        return Acks(runs)

    def append_arrow(self, rows: ArrowRows) -> range:
        """The offsets of a table's rows, which count when this returns. One batch, or several in order."""
        self._encoder.check_rows(rows)
        count = rows.row_count
        with self.lock:
            self._prepare_change()
            start = self.log.end_offset
            offsets = range(start, start + count)
            in_part = self._write_several((batch for batch, _, _, _ in self._encoder.rows(rows)), offsets)
        return self._await_durable(offsets, in_part)

    def append_arrow_nowait(self, rows: ArrowRows) -> Acks:
        """The same rows, written when this returns, and handles on when they count."""
        self._encoder.check_rows(rows)
        self.await_room()
        runs: list[tuple[BatchResult, int, int]] = []
        with self.lock:
            self._prepare_change()
            for batch, row, count, stamp in self._encoder.rows(rows):
                self._write_later(batch, count, RowStamps(rows, row, count, stamp), runs)
        self._background.arm()
        return Acks(runs)

    def _await_durable(self, offsets: range, in_part: tuple[int, Exception] | None) -> range:
        """The range, once it counts. ``in_part``: of :meth:`_write_several`; raised once what is there counts, so
        that whoever then reads finds it."""
        end, rest = offsets.stop, ""
        if in_part is not None:
            end = in_part[0]
            rest = f", the others are refused ({str(in_part[1]) or 'no memory'})"
        try:
            self._settle_up_to(end)
        except (StorageError, ClosedError, ReentrantCallError, MemoryError) as error:
            if in_part is not None:
                rest = f", of which those at {offsets.start} to {end - 1} were{rest}"
            raise self._unsynced_error(len(offsets), error, rest) from error
        if in_part is not None:
            tried = f"append of {len(offsets)} records to {self.log.topic_partition}"
            reason = f"those at offsets {offsets.start} to {end - 1} are written{rest}"
            raise OutcomeUnknownError(tried, reason) from in_part[1]
        return offsets

    def _unsynced_error(
        self, count: int, error: StorageError | ClosedError | ReentrantCallError | MemoryError, rest: str = ""
    ) -> UnsyncedError:
        """What to tell of records that are in the log, and whose sync failed with ``error``; ``rest``: of those
        that are not."""
        cause: Exception = (
            error.__cause__ if isinstance(error, ClosedError) and isinstance(error.__cause__, StorageError) else error
        )
        if isinstance(error, MemoryError):
            cause = MemoryError("there was no memory left")
        return UnsyncedError(
            f"append of {count} record{'s' if count > 1 else ''} to {self.log.topic_partition}{rest}", cause
        )

    def _write_later(
        self,
        batch: memoryview,
        count: int,
        stamps: Sequence[int | datetime] | int,
        runs: list[tuple[BatchResult, int, int]],
    ) -> None:
        """Write a batch whose records nobody waits for; what the disk refuses, its handles tell."""
        outcome = BatchResult(self, *self.log.topic_partition, stamps)
        runs.append((outcome, 0, count))
        try:
            appended = self._write(batch)
        except (PyreplogError, MemoryError) as error:
            self._fail(outcome, count, error)
            return
        self._note_written(appended, outcome)

    def _note_written(self, appended: Appended, outcome: BatchResult) -> None:
        """What nobody waits for is in the log. Under ``os`` it counts; under ``sync`` the next sync settles it."""
        if self._sync_each:
            self._unsettled.append((appended, outcome))
        else:
            outcome.succeed(appended.base_offset, self.epoch, appended.timestamp)

    def append_nowait(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
    ) -> Ack:
        """A handle on one record, which joins the batch being gathered. Whoever waits first writes the batch, or
        the background thread."""
        if timestamp is not None and self.bounded:
            timestamp = self._encoder.check_time(timestamp)
        ack: Ack = self.gathering.append(value, key=key, headers=headers, timestamp=timestamp)
        return ack

    def _gather(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | datetime | None
    ) -> Ack:
        while True:
            self.await_room()
            with self.lock:
                if not self._has_room():
                    continue  # others were faster
                if self._gathering is None:
                    self._begin_gathering()
                ack: Ack | None = self._gatherer.gather(value, key, headers, timestamp, self._stamp_ms)
                if ack is None and self._has_room():
                    ack = self._gather_anew(value, key, headers, timestamp)
                if ack is not None:
                    return ack

    def try_append_nowait(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | datetime | None
    ) -> Ack | None:
        """As :meth:`append_nowait`, where that needs neither the disk nor a wait. None: nothing was taken; take the
        long way."""
        if timestamp is not None and self.bounded:
            timestamp = self._encoder.check_time(timestamp)
        ack: Ack | None = self._gatherer.gather(value, key, headers, timestamp, self._stamp_ms)
        if ack is not None:
            return ack
        held: list[bool] = []
        lock = self.lock
        try:
            held.extend(
                map(lock.acquire, (False,))
            )  # one call into C: no signal handler comes between the lock and its note
            if not held[0] or self._busy or self._gathering is not None or not self._has_room():
                return None
            self._begin_gathering()
            return self._gatherer.gather(value, key, headers, timestamp, self._stamp_ms)
        finally:
            if held and held[0]:
                lock.release()

    def _begin_gathering(self) -> BatchResult:
        self._check()
        self._background.start()
        topic, partition = self.log.topic_partition
        self._stamps = []
        self._gathering = outcome = BatchResult(self, topic, partition, self._stamps)
        try:
            self._gatherer.begin(outcome, self._stamps, self._gather_size_max)
        except MemoryError:  # it did not begin, and what it holds is the batch before
            self._gathering = None
            raise
        self._background.arm()
        return outcome

    def _gather_anew(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | datetime | None
    ) -> Ack | None:
        """The batch being gathered is full: write it and begin the next, again while others, who need no lock, fill
        that one too. None: they did, and there is no room for one more."""
        while True:
            if self._gatherer.count:
                self._prepare_change()
            begun = self._begin_gathering()
            ack: Ack | None = self._gatherer.gather(value, key, headers, timestamp, self._stamp_ms)
            if ack is not None:
                return ack
            if self._gathering is begun and not self._gatherer.count:
                return self._append_alone(value, key, headers, timestamp)
            if not self._has_room():
                return None

    def _append_alone(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | datetime | None
    ) -> Ack:
        """The Ack of a record that goes into no batch with others: written now, or refused."""
        stamp = self._now_ms() if timestamp is None else timestamp
        batch = self._encoder.one(value, key, headers, stamp)
        self._encoder.check_size(batch, 0)
        runs: list[tuple[BatchResult, int, int]] = []
        self._write_later(batch, 1, [stamp], runs)
        return Ack(runs[0][0], 0)

    def _waiting_size(self) -> int:
        """Bytes that wait to be written or, under ``sync``, for a sync."""
        return self._room.size + (0 if self._gathering is None else self._gatherer.size)

    def _has_room(self) -> bool:
        """Whether one more batch may wait. Under ``os`` nothing does but the batch being gathered."""
        return not self._sync_each or self._waiting_size() + self._gather_size_max <= self._room.size_max

    def await_room(self, since: float | None = None) -> None:
        """Back-pressure: return once one more batch may wait for the disk; BufferExhaustedError ``max_block_ms``
        after ``since``, a moment of ``time.monotonic`` (None: now). REQUIRES that the lock is not held."""
        if not self._has_room():
            self._guard.free()  # a wait within this thread's own change would be for nothing
            self._room.wait(self._has_room, self._waiting_size, self.check, self._sync_soon, since)

    def _sync_soon(self) -> None:
        self._sync_now = True
        self._background.wake()

    def _write_gathered(self) -> None:
        """Append the gathered batch. A failure goes to its outcome alone."""
        outcome = self._gathering
        if outcome is None or not self._gatherer.count:
            return  # begun, and the first record is on its way or was refused
        try:
            batch = self._gatherer.finish()
            self._gathering = None
            self._note_written(self._write(batch), outcome)
        except BaseException as error:
            if isinstance(error, (PyreplogError, MemoryError)):
                self._gathering = None
                self._fail(outcome, len(self._stamps), error)
                return
            # Ctrl-C, or what another handler raised
            if not outcome.settled and all(waiting is not outcome for _, waiting in self._unsettled):
                self._gathering = None
                count = len(self._stamps)
                self._fail(
                    outcome,
                    count,
                    OutcomeUnknownError(f"append of {count} records to {self.log.topic_partition}", "interrupted"),
                )
            raise

    def _write_rest(self) -> None:
        """For who vouches for what was gathered: write it. Raises what its handles hear, and what keeps the log
        from being whole."""
        if self._busy:
            self._reopen()
        gathered = self._gathering
        if gathered is not None:
            self._write_gathered()
            if gathered.error is not None:
                gathered.asked = True
                raise gathered.error

    def _fail(self, outcome: BatchResult, count: int, error: BaseException) -> None:
        """So many records were refused, or nobody knows: their handles tell, and the end of the log does where
        nobody asks these."""
        self._failures.note(outcome, count)
        outcome.fail(error)

    # -------------------------------------------------------------------------------------- the log

    def _prepare_change(self) -> None:
        """Before a change: usable, whole, and in order behind what was gathered."""
        if self._busy or self._failure is not None or self._syncer.failure is not None:
            self._check()
        if self._gathering is not None:
            self._write_gathered()

    @property
    def failure(self) -> Exception | None:
        """Why nothing can be appended any more: closed, forked or poisoned."""
        return self._failure or (None if self._is_mendable else self._syncer.failure)

    @property
    def _is_mendable(self) -> bool:
        """Whether a change was interrupted half-way and no more is wrong, although the log may have ended with
        it."""
        return self._busy and not self._syncer.poisoned

    def check(self) -> None:
        """Raise :attr:`failure`, as :class:`ClosedError` where the log is poisoned."""
        if self._failure is not None:
            raise again(self._failure)
        if not self._is_mendable:
            self._syncer.check()

    def _check(self) -> None:
        self.check()
        if self._busy:
            self._reopen()

    def _write(self, batch: memoryview, times_checked: bool = True) -> Appended:
        """Append one encoded batch. Under ``os`` it counts, and the mark says so, when this returns.
        ``times_checked``: as :meth:`pyreplog.log.Log.append_as_leader`."""
        log = self.log
        appended: Appended | None = None
        if self._is_new:  # first: where no thread is to be had, nothing is appended
            self._background.start()
            self._is_new = False
        self._busy = True
        try:
            appended = log.append_as_leader(batch, self.epoch, trusted=True, times_checked=times_checked)
            if not self._sync_each:
                log.advance_high_watermark(log.end_offset)
                log.write_mark()
                if self._followers:
                    self._tell_followers()
            else:
                self._room.take(appended.last_offset + 1, appended.size)
        except PyreplogError as error:
            if isinstance(error, ReentrantCallError):
                raise  # a use of this log within the change was refused, not the change
            self._busy = (
                False  # refused as a whole by the log itself; anything else (no memory) may have struck anywhere
            )
            self._tell_followers()  # who may wait for what can no longer come
            if appended is not None:  # there, and not in the mark: the next opening finds it
                raise OutcomeUnknownError(
                    f"append of {appended.record_count} records to {log.topic_partition}", str(error)
                ) from error
            raise
        except (
            MemoryError
        ) as error:  # before the write or behind it: who finds `_busy` opens the partition again, and it may be there
            raise OutcomeUnknownError(f"append to {log.topic_partition}", "there was no memory left") from error
        self._busy = False
        return appended

    def _write_several(self, batches: Iterable[memoryview], offsets: range) -> tuple[int, Exception] | None:
        """The batches of one append. To refuse a later one does not undo the first: where what is written ends
        then, and the refusal."""
        try:
            for batch in batches:
                self._write(batch)
        except (PyreplogError, MemoryError) as error:
            end = self.log.end_offset
            if end == offsets.start or isinstance(error, OutcomeUnknownError):
                raise
            return end, error
        return None

    def append_batch(self, batch: memoryview) -> Appended:
        """Append one encoded batch of a producer, checked by the caller, or find that it is there. It counts after
        :meth:`settle`."""
        with self.lock:
            self._prepare_change()
            return self._write(batch, times_checked=False)

    def keep_producers(self, producer_ids: frozenset[int]) -> None:
        """The log forgets none of these for age: what they began is not finished. Told anew from time to time."""
        with self.lock:
            self.log.producers.kept = producer_ids

    def settle(self) -> None:
        """Return when everything appended so far counts, as the log's durability says."""
        self._settle_up_to(self.log.end_offset)

    def _settle_up_to(self, end: int) -> None:
        if self._sync_each:
            self._syncer.wait(end)
        elif self._flushes:
            self._flush_if_due()

    def _flush_if_due(self) -> None:
        """``flush.messages`` and ``flush.ms`` of an ``os`` log."""
        if self.log.sync_due(self._now_ns()):
            self._syncer.wait(self.log.end_offset)
        else:
            self._background.arm()

    def _after_sync(self) -> None:
        """Everything below the flushed end is durable: say so in the mark, then to those who wait."""
        log = self.log
        flushed = log.flushed_offset
        self._room.give_below(flushed)
        if self._sync_each:
            log.advance_high_watermark(flushed)
            log.write_mark()
            if self._followers:
                self._tell_followers()
        self._settle_below(flushed)
        self._room.tell()

    def _settle_below(self, flushed: int) -> None:
        """What is wholly below the offset ``flushed`` counts."""
        unsettled = self._unsettled
        while unsettled:
            appended, outcome = unsettled[0]
            if appended.last_offset >= flushed:
                break
            if not outcome.settled:
                outcome.succeed(appended.base_offset, self.epoch, appended.timestamp)
            unsettled.popleft()

    def _after_failure(self, error: StorageError) -> None:
        """Nobody can say what of the unsynced is on the disk: who waits for it hears what failed."""
        self._fail_all(error)

    def _fail_all(self, reason: PyreplogError | None = None) -> None:
        """Of a log that takes nothing any more: whoever waits hears of it, for what was written (with ``reason``,
        if there is one) and for what was only gathered. REQUIRES the lock."""
        self._gatherer.reset()  # takes nothing any more
        try:
            self.check()
        except ClosedError as error:
            refusal = error
        else:
            return
        while self._unsettled:
            appended, outcome = self._unsettled[0]
            if not outcome.settled:
                cause = reason if isinstance(reason, (StorageError, ClosedError)) else refusal
                self._fail(outcome, appended.record_count, self._unsynced_error(appended.record_count, cause))
            self._unsettled.popleft()
        gathered = self._gathering
        if gathered is not None and not gathered.settled:
            self._fail(gathered, len(self._stamps), refusal)
        self._gathering = None
        self._tell_followers()
        self._room.tell()

    def _tell_followers(self) -> None:
        for news in tuple(self._followers):
            news.wake()

    def news(self) -> WriterSignal:
        """Woken from now on whenever the high watermark moves, the log is poisoned, or closed. The caller closes
        it."""
        news = WriterSignal(self._forget_follower)
        self._followers.append(news)
        return news

    def _forget_follower(self, news: WriterSignal) -> None:
        try:
            self._followers.remove(news)
        except ValueError:  # closed twice
            pass

    def _reopen_if_interrupted(self) -> None:
        """Before a look, or a wait: a repair that was itself interrupted leaves a log that is closed, and a change
        may leave one ended."""
        if self._busy and self.failure is None:
            self._reopen()

    def _reopen(self) -> None:
        """Open the partition again after a change that was interrupted half-way."""
        LOGGER.warning("%s: an append was interrupted; opening the partition again", self.name)
        self.log = self._reopen_log()
        self._syncer.replace_log(self.log)
        self._room.clear()
        self._lead()
        self._busy = False

    # -------------------------------------------------------------------------------------- waiting

    def monotonic_ns(self) -> int:
        """The log's clock."""
        return self._now_ns()

    def wait_for(self, pending: Completion, timeout: float | None) -> None:
        """Bring ``pending`` about and return when it is settled; TimeoutError as :meth:`GroupCommit.wait`."""
        with self.lock:
            if pending is self._gathering:
                self._prepare_change()
            written = next((appended for appended, waiting in self._unsettled if waiting is pending), None)
        if written is not None and not pending.settled:
            if timeout == 0:  # a sync that the caller carried out itself would be waited for
                self._sync_now = True
                self._background.wake()
                raise TimeoutError("not on stable storage yet; it is on its way there")
            try:
                self._syncer.wait(written.last_offset + 1, timeout)
            except (StorageError, ClosedError, ReentrantCallError) as error:
                if not pending.settled:  # the sync could not even begin: a later one may settle it
                    raise self._unsynced_error(written.record_count, error) from error
        self._check_process(pending)  # it may have been on its way from the one to the other
        assert pending.settled, "what is neither gathered nor waits for a sync is settled"

    def _check_process(self, pending: Completion) -> None:
        if isinstance(self._failure, ForkedError) and not pending.settled:
            raise again(self._failure)

    def future_of(self, pending: Completion) -> Any:
        """A future of the running event loop that ends when ``pending`` is settled, by the background thread."""
        self._check_process(pending)
        future, end = loop_future()
        if not pending.add_waiter(end):
            future.set_result(None)
        else:
            self._sync_now = True
            self._background.wake()
        return future

    def flush(self) -> None:
        """Make everything appended so far durable, what ``append_nowait`` gathered included. Raises what kept that
        from being written."""
        with self.lock:
            self.check()
            self._write_rest()
            end = self.log.end_offset
        self._syncer.wait(end)

    def settle_gathered(self) -> None:
        """Append what was gathered, so that it can be read (under ``sync``: once it is synced). A poisoned log is
        read up to what was durable."""
        if self._gathering is not None:
            with self.lock:
                if self._failure is None and self.failure is not None:
                    self._fail_all()
                else:
                    self._prepare_change()

    def read(self, offset: int, size_max: int, end_offset: int) -> LogSlice:
        """See :meth:`pyreplog.log.Log.read`."""
        with self.lock:
            self._reopen_if_interrupted()
            return self.log.read(offset, size_max, end_offset)

    def find_timestamp(self, timestamp: int, size_max: int = MAX_BATCH_BYTES) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below the high watermark that is as late as ``timestamp``
        (ms)."""
        with self.lock:
            self._reopen_if_interrupted()
            return self.log.find_timestamp(timestamp, self.log.high_watermark, size_max)

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """See :meth:`pyreplog.log.Log.damage`."""
        with self.lock:
            return self.log.damage(offset, self.log.high_watermark, reason)

    def stats(self) -> LogStats:
        """Of the log as it is now."""
        with self.lock:
            return self.log.stats()

    def _work(self) -> float | None:
        """What nobody waits for. The seconds until there is something to do again."""
        pause_s = self._background_step()
        if self._look is None or self._look_due_ns == INT64_MAX:
            return pause_s
        if self._now_ns() >= self._look_due_ns:
            self._note_look(self._look())
        look_s = max(self._look_due_ns - self._now_ns(), 0) / 1e9
        return look_s if pause_s is None else min(pause_s, look_s)

    def _background_step(self) -> float | None:
        end = -1
        try:
            with self.lock:
                if self.failure is not None:
                    if self._failure is None:  # a chore found it out, and those who wait do not know yet
                        self._fail_all()
                    return None
                now = self._now_ns()
                flush_due = not self._sync_each and self.log.sync_due(now)
                if (
                    self._gathering is not self._last_seen_batch
                    and not self._sync_now
                    and not flush_due
                    and now < self._chores.due_ns
                ):
                    # Begun since the last look: who fills batches this fast needs no help.
                    self._last_seen_batch = self._gathering
                    return LINGER_S
                self._sync_now = False
                self._prepare_change()
                if self._unsettled or flush_due or (not self._sync_each and self.log.sync_due(now)):
                    end = self.log.end_offset
            if end >= 0:
                self._syncer.wait(end)
            # Last, so that nobody who waits for the sync waits for these too; and in any case, so
            # that no load puts them off for good.
            self._do_chores(now)
        except PyreplogError as error:
            LOGGER.error("%s: %s", self.name, error)
            if self.failure is None:
                return RETRY_NS / 1e9  # what could not begin, or be opened again, is no sooner possible
        if self._failure is None and self.failure is not None:
            return 0.0  # some of those who wait may not have heard of it
        return self._pause_s()

    def _do_chores(self, now: int) -> None:
        if now < self._chores.due_ns:
            return
        with self.lock:
            self._reopen_if_interrupted()
            if self.failure is None:
                with self._fence():
                    self._chores.do(self.log, now)

    def _pause_s(self) -> float:
        """The seconds until something falls due by itself."""
        due = self._chores.due_ns
        now = self._now_ns()
        if self._flushes and self.log.flushed_offset < self.log.end_offset:
            due = min(due, self.log.flush_due_ns(now))
        if self._unsettled and self.failure is None:
            due = min(due, now + RETRY_NS)  # a sync that could not begin, for lack of descriptors
        return max(due - now, 0) / 1e9

    def delete_records(self, before: int) -> int:
        """See :meth:`pyreplog.log.Log.delete_records`; whole segments below go at once."""
        with self.lock:
            self._prepare_change()
            with self._fence():
                start = self.log.delete_records(before)
                self.log.apply_retention()
                self._note_removals()
            return start

    @contextmanager
    def _fence(self) -> Iterator[None]:
        """Round a change that is no append: where anything but a refusal of the log's cuts it short, the next call
        opens the partition again."""
        self._busy = True
        try:
            yield
        except PyreplogError as error:
            self._busy = isinstance(error, ReentrantCallError)
            raise
        self._busy = False

    def apply_retention(self) -> int:
        """See :meth:`pyreplog.log.Log.apply_retention`: who calls this vouches for the clock."""
        with self.lock:
            self._prepare_change()
            with self._fence():
                count = self.log.apply_retention(confirmed=True)
                self._note_removals()
            return count

    def _note_removals(self) -> None:
        """The background thread is to know when the files of what went have to go."""
        self._chores.note_removals(self.log)
        self._background.arm()

    def _retain_soon(self) -> None:
        self._chores.retain_soon()
        self._background.arm()

    # -------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Write and sync everything, leave the clean marker, release the folder. Twice is harmless: who comes
        second waits for the first, and where an exception (Ctrl-C) cut that short does the rest. Raises what
        failed, having closed all the same."""
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
        """Each step may be done already."""
        failure: PyreplogError | None = None
        try:
            self.closed = True
            self._failure = self._failure or ClosedError(f"{self.name} is closed: open it again to use it")
            with self.lock:
                if self._is_mendable or self._syncer.failure is None:
                    try:
                        self._write_rest()
                    except PyreplogError as error:
                        failure = error
                end = self.log.end_offset
                self._gatherer.reset()  # takes nothing any more
            if self._syncer.failure is None and not self._busy and not self.log.closed:
                try:
                    self._syncer.wait(end)
                except PyreplogError as error:
                    failure = error
            self._background.stop()
            with self.lock:
                well = self._syncer.failure is None and not self._busy
                if well and not self.log.closed:
                    try:
                        with self._fence():
                            self._chores.retain(
                                self.log, self._now_ns()
                            )  # who opens and closes often may never have had a turn
                    except PyreplogError as error:
                        failure = failure or error
                        well = not self._busy
                try:
                    self._root.close(clean=well)
                except PyreplogError as error:
                    failure = failure or error
                else:
                    self._settle_below(
                        self.log.flushed_offset if well else -1
                    )  # a sync that could not begin before was made now
                self._fail_all(failure)
                self.released = True
        finally:
            self._tell_followers()
        tell_unheard(self._failures, self.name)
        if failure is not None:
            raise failure

    @property
    def folder(self) -> str:
        """The log root, which this process has locked."""
        return self._root.path

    def _unclosed(self) -> str | None:
        """For the warning at exit. None where its face has given one, and where somebody began to close it."""
        return None if self.is_told_of or self.closed else self.name.removeprefix("the ")

    def _forked(self) -> None:
        """In the child of a fork: this object is the parent's. REQUIRES that no other thread runs yet (a fork
        leaves one)."""
        self._guard = Guard(self.name)
        self._closing, self._closer = new_mutex(), None
        self.closed = self.released = True
        self._gatherer.reset()
        self._failure = ForkedError(
            f"{self.name} belongs to the parent process, of which this one is a fork: open it again here, with mode='r'"
            " while that one writes it"
        )
        for outcome in (*(outcome for _, outcome in self._unsettled), self._gathering):
            if outcome is not None and not outcome.settled:
                outcome.error, outcome.settled = self._failure, True  # nobody is called: its waiters are the parent's
        self._gathering = None
        self._unsettled.clear()
        self._followers.clear()
