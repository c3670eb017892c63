"""LogWriter: one partition that this process writes directly, without replicas. What is behind ``open_log`` in mode ``"a"``.

One lock guards the log and the batch being gathered; a sync runs without it (:mod:`pyreplog.runtime.syncer`). The log's high watermark is
its end that counts: the flushed one under durability ``sync``, the written one under ``os``. The mark that tells other processes is written
before anything is acknowledged.

A signal handler that raises (Ctrl-C) may do so between any two steps of an append. The section that changes the log is therefore fenced
by a flag, and whoever finds it standing opens the partition again from its files, as after a kill: what was acknowledged is there. (The
lock is
always taken by ``with``, whose entry, unlike a call of ``acquire``, cannot be interrupted between taking the lock and guarding it.)
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyreplog.client import Outcome, Pending
from pyreplog.config import INT64_MAX
from pyreplog.errors import ClosedError, ForkedError, MessageTooLargeError, OutcomeUnknownError, PyreplogError, StorageError
from pyreplog.log import Appended, Log, LogRoot, LogSlice
from pyreplog.ports import Buffer, Clock
from pyreplog.record import Ack, BatchBuilder, Gathering
from pyreplog.runtime.background import LINGER_S, Background
from pyreplog.runtime.follow import WriterNews
from pyreplog.runtime.syncer import Syncer
from pyreplog.system import SystemClock
from pyreplog.values import LogStats

__all__ = ["Headers", "LogWriter"]

GATHER_SIZE_MAX: Final = 256 << 10
"""``append_nowait`` calls a batch of this many bytes full: more gains nothing and leaves the processor's cache."""
UNSYNCED_SIZE_MAX: Final = 64 << 20
"""Back-pressure: with more bytes than this waiting for a sync, ``append_nowait`` waits for one."""
HIGH_WATERMARK_CHECKPOINT_INTERVAL_NS: Final = 5_000_000_000
CHECKPOINT_INTERVAL_NS: Final = 60_000_000_000

Headers = Sequence[tuple[str, bytes | None]]
_log = logging.getLogger("pyreplog")


class LogWriter:
    """Appends to one partition, from any number of threads. Owns the root, the partition's log and one background thread."""

    def __init__(self, root: LogRoot, log: Log, clock: Clock, reopen: Callable[[], Log]) -> None:
        """Takes ``root`` and ``log`` over and leads ``log`` in a new epoch. ``reopen`` opens the partition again as after a kill."""
        self.log = log
        self.lock = threading.Lock()
        self.closed = False
        self._root = root
        self._reopen = reopen
        self._now_ms = clock.wall_ms
        # The fastest way to ask this machine's clock: `append_nowait` does it for each record.
        self._now_s = time.time if isinstance(clock, SystemClock) else lambda: clock.wall_ms() / 1000
        self._now_ns = clock.monotonic_ns
        self._syncer = Syncer(log, self.lock, self._after_sync, self._after_failure)
        self._background = Background(f"pyreplog {log.topic_partition}", self._work)
        self._failure: PyreplogError | None = None
        self._busy = False  # the fence against half-done changes
        config = log.config
        self._size_max = config.max_message_bytes
        self._sync_each = config.durability == "sync"
        self._flushes = not self._sync_each and (config.flush_messages != INT64_MAX or config.flush_ms != INT64_MAX)
        self._flush_ns = config.flush_ms * 1_000_000
        log.keep_tail(0)  # readers take from the page cache, and the builders' buffers are free again at once
        self._builder = BatchBuilder(self._size_max)
        self._gatherer = BatchBuilder(self._size_max)
        # One call into the core for each record of `append_nowait`, with no lock. What it does not take goes the long way.
        self.gathering = Gathering(self._gatherer, self._now_s, self._gather)
        self._gathering: Outcome | None = None
        self._stamps: list[int] = []
        self._unsettled: deque[tuple[Appended, Outcome]] = deque()  # written, to be settled by a sync
        self._followers: list[WriterNews] = []
        self._seen: Outcome | None = None
        self._hurry = False
        self._unsynced_size = 0
        self._is_new = True
        now = self._now_ns()
        self._high_watermark_due_ns = now + HIGH_WATERMARK_CHECKPOINT_INTERVAL_NS
        self._checkpoint_due_ns = now + CHECKPOINT_INTERVAL_NS
        self._lead()
        self._checkpointed = log.high_watermark

    def _lead(self) -> None:
        log = self.log
        self.epoch = log.epochs.latest + 1
        log.become_leader(self.epoch)
        log.advance_high_watermark(log.counted_end)
        log.write_mark()

    # ------------------------------------------------------------------------------------------------------------------ appending

    def append(self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | None) -> int:
        """The offset of one record, which counts when this returns."""
        with self.lock:
            self._enter()
            builder = self._builder
            builder.reset()
            if not builder.append(value, key, headers, self._now_ms() if timestamp is None else timestamp):
                raise self._too_large(0)
            offset = self._write(builder.finish()).base_offset
        if self._sync_each:
            self._syncer.wait(offset + 1)
        elif self._flushes:
            self._flush_if_due()
        return offset

    def append_many(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int] | None,
    ) -> range:
        """The offsets of many records, which count when this returns: one batch where they fit, several in order where not."""
        count = len(values)
        with self.lock:
            self._enter()
            if not count:
                return range(self.log.end_offset, self.log.end_offset)
            builder = self._builder
            builder.reset()
            stamp = self._now_ms()
            taken = builder.extend(values, keys, headers, timestamps, stamp, 0)
            if taken == count:
                start = self._write(builder.finish()).base_offset
            else:
                start = self._write_several(values, keys, headers, timestamps, stamp, taken)
        if self._sync_each:
            self._syncer.wait(start + count)
        elif self._flushes:
            self._flush_if_due()
        return range(start, start + count)

    def _write_several(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int] | None,
        stamp: int,
        taken: int,
    ) -> int:
        """Encode everything before writing anything, so that a value that is refused leaves nothing behind."""
        builder = self._builder
        batches: list[memoryview] = []
        while True:
            if not builder.count:
                raise self._too_large(taken)
            batches.append(builder.finish())
            builder.reset()
            if taken == len(values):
                break
            taken = builder.extend(values, keys, headers, timestamps, stamp, taken)
        start = self.log.end_offset
        for batch in batches:
            self._write(batch)
        return start

    def append_nowait(self, value: Buffer | None, *, key: Buffer | None = None, headers: Headers = (), timestamp: int | None = None) -> Ack:
        """A handle on one record, which joins the batch being gathered. Whoever waits first writes the batch, or the background thread."""
        ack: Ack = self.gathering.append(value, key=key, headers=headers, timestamp=timestamp)
        return ack

    def _gather(self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | None) -> Ack:
        if self._unsynced_size > UNSYNCED_SIZE_MAX and self._sync_each:
            self._syncer.wait(self.log.end_offset)
        with self.lock:
            if self._gathering is None:
                self._begin_gathering()
            ack: Ack | None = self._gatherer.gather(value, key, headers, timestamp, self._now_s())
            return self._gather_anew(value, key, headers, timestamp) if ack is None else ack

    def _begin_gathering(self) -> Outcome:
        self._check()
        topic, partition = self.log.topic_partition
        self._stamps = []
        self._gathering = outcome = Outcome(self, topic, partition, self._stamps)
        self._gatherer.begin(Ack, outcome, self._stamps, GATHER_SIZE_MAX)
        self._background.start()
        self._background.arm()
        return outcome

    def _gather_anew(self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | None) -> Ack:
        """The batch being gathered is full: write it and begin the next, again while others, who need no lock, fill that one too."""
        while True:
            if self._gatherer.count:
                self._enter()
            begun = self._begin_gathering()
            ack: Ack | None = self._gatherer.gather(value, key, headers, timestamp, self._now_s())
            if ack is not None:
                return ack
            if self._gathering is begun and not self._gatherer.count:
                raise self._too_large(0)

    def _too_large(self, index: int) -> MessageTooLargeError:
        return MessageTooLargeError(
            f"record {index} does not fit a batch of {self._size_max} bytes; nothing was appended. "
            "Send less at once, or raise the topic's max.message.bytes"
        )

    def _write_gathered(self) -> None:
        """Append the gathered batch. Its outcome is settled here under ``os``, by the next sync under ``sync``; a failure goes to it
        alone."""
        outcome = self._gathering
        if outcome is None or not self._gatherer.count:
            return  # begun, and the first record is on its way or was refused
        try:
            batch = self._gatherer.finish()
            self._gathering = None
            appended = self._write(batch)
            if self._sync_each:
                self._unsettled.append((appended, outcome))
            else:
                outcome.succeed(appended.base_offset, self.epoch, appended.timestamp)
        except (PyreplogError, MemoryError) as error:
            outcome.fail(error)
        except BaseException:  # Ctrl-C
            if not outcome.settled and all(waiting is not outcome for _, waiting in self._unsettled):
                self._gathering = None
                outcome.fail(OutcomeUnknownError(f"append of {len(self._stamps)} records to {self.log.topic_partition}", "interrupted"))
            raise

    # ------------------------------------------------------------------------------------------------------------------- the log

    def _enter(self) -> None:
        """Before a change: usable, whole, and in order behind what was gathered."""
        if self._busy or self._failure is not None or self._syncer.failure is not None:
            self._check()
        if self._gathering is not None:
            self._write_gathered()

    def _enter_surely(self) -> None:
        """As :meth:`_enter`, for who vouches for what was gathered too: raises what its handles hear."""
        gathered = self._gathering
        self._enter()
        if gathered is not None and gathered.error is not None:
            raise gathered.error

    @property
    def failure(self) -> Exception | None:
        """Why nothing can be appended any more: closed, forked or poisoned."""
        return self._failure or self._syncer.failure

    def check(self) -> None:
        """Raise :attr:`failure`, as :class:`ClosedError` where the log is poisoned."""
        if self._failure is not None:
            raise self._failure
        self._syncer.check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._syncer.check()
        if self._busy:
            self._repair()

    def _write(self, batch: memoryview) -> Appended:
        """Append one encoded batch. Under ``os`` it counts, and the mark says so, when this returns."""
        log = self.log
        self._busy = True
        try:
            appended = log.append_as_leader(batch, self.epoch, trusted=True)
            if not self._sync_each:
                log.advance_high_watermark(log.end_offset)
                log.write_mark()
                if self._followers:
                    self._tell_followers()
        except Exception:
            self._busy = False  # refused as a whole by the log itself
            self._tell_followers()  # who may wait for what can no longer come
            raise
        self._busy = False
        self._unsynced_size += appended.size
        if self._is_new:
            self._is_new = False
            self._background.start()
        return appended

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
        if flushed == log.end_offset:
            self._unsynced_size = 0
        if self._sync_each:
            log.advance_high_watermark(flushed)
            log.write_mark()
            if self._followers:
                self._tell_followers()
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
        _log.error("%s: poisoned by a failed sync: %s", self.log.topic_partition, error)
        while self._unsettled:
            _, outcome = self._unsettled.popleft()
            if not outcome.settled:
                outcome.fail(error)
        self._tell_followers()

    def _tell_followers(self) -> None:
        for news in tuple(self._followers):
            news.wake()

    def news(self) -> WriterNews:
        """Woken from now on whenever the high watermark moves, the log is poisoned, or closed. The caller closes it."""
        news = WriterNews(self._forget_follower)
        self._followers.append(news)
        return news

    def _forget_follower(self, news: WriterNews) -> None:
        try:
            self._followers.remove(news)
        except ValueError:  # closed twice
            pass

    def _repair(self) -> None:
        """Open the partition again after a change that was interrupted half-way."""
        _log.warning("%s: an append was interrupted; opening the partition again", self.log.topic_partition)
        self.log = self._reopen()
        self._syncer.replace_log(self.log)
        self._lead()
        self._busy = False

    # ------------------------------------------------------------------------------------------------------------------- waiting

    def wait_for(self, pending: Pending, timeout: float | None) -> None:
        """Bring ``pending`` about and return when it is settled; TimeoutError as :meth:`Syncer.wait`."""
        with self.lock:
            if pending is self._gathering:
                self._enter()
            end = next((appended.last_offset + 1 for appended, waiting in self._unsettled if waiting is pending), -1)
        if end >= 0 and not pending.settled:
            try:
                self._syncer.wait(end, timeout)
            except (StorageError, ClosedError):
                if not pending.settled:
                    raise
        assert pending.settled, "what is neither gathered nor waits for a sync is settled"

    def future_of(self, pending: Pending) -> Any:
        """A future of the running event loop that ends when ``pending`` is settled, by the background thread."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def finish() -> None:
            if not future.done():
                future.set_result(None)

        def release() -> None:
            try:
                loop.call_soon_threadsafe(finish)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass

        if not pending.add_waiter(release):
            future.set_result(None)
        else:
            self._hurry = True
            self._background.wake()
        return future

    def flush(self) -> None:
        """Make everything appended so far durable, what ``append_nowait`` gathered included. Raises what kept that from being written."""
        with self.lock:
            self._enter_surely()
            end = self.log.end_offset
        self._syncer.wait(end)

    def settle_gathered(self) -> None:
        """Append what was gathered, so that it can be read (under ``sync``: once it is synced)."""
        if self._gathering is not None:
            with self.lock:
                self._enter()

    def read(self, offset: int, size_max: int, end_offset: int) -> LogSlice:
        """See :meth:`pyreplog.log.Log.read`."""
        with self.lock:
            return self.log.read(offset, size_max, end_offset)

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below the high watermark that is as late as ``timestamp`` (ms)."""
        with self.lock:
            return self.log.find_timestamp(timestamp, self.log.high_watermark)

    def stats(self) -> LogStats:
        """Of the log as it is now."""
        with self.lock:
            return self.log.stats()

    def _work(self) -> float | None:
        """What nobody waits for. The seconds until there is something to do again."""
        end = -1
        try:
            with self.lock:
                if self._failure is not None or self._syncer.failure is not None:
                    return None
                if self._gathering is not self._seen and not self._hurry:
                    # Begun since the last look: who fills batches this fast needs no help.
                    self._seen = self._gathering
                    return LINGER_S
                self._hurry = False
                self._enter()
                now = self._now_ns()
                if self._unsettled or (self._flushes and self.log.sync_due(now)):
                    end = self.log.end_offset
                else:
                    self._checkpoint(now)
            if end >= 0:
                self._syncer.wait(end)
        except PyreplogError as error:  # those who waited have heard of it
            _log.error("%s: %s", self.log.topic_partition, error)
        due = min(self._high_watermark_due_ns, self._checkpoint_due_ns)
        now = self._now_ns()
        if self._flushes and self.log.flushed_offset < self.log.end_offset:
            due = min(due, now + self._flush_ns)
        return max(due - now, 0) / 1e9

    def _checkpoint(self, now: int) -> None:
        if now >= self._checkpoint_due_ns:
            self._checkpoint_due_ns = now + CHECKPOINT_INTERVAL_NS
            self._root.checkpoint_recovery_points()
            self._root.checkpoint_log_starts()
        if now >= self._high_watermark_due_ns:
            self._high_watermark_due_ns = now + HIGH_WATERMARK_CHECKPOINT_INTERVAL_NS
            if self._checkpointed != self.log.high_watermark:
                self._checkpointed = self.log.high_watermark
                self._root.checkpoint_high_watermarks()

    # ------------------------------------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Write and sync everything, leave the clean marker, release the folder. Twice is harmless. Raises what failed, having closed all
        the same."""
        failure: BaseException | None = None
        with self.lock:
            if self.closed:
                return
            self.closed = True
            if self._syncer.failure is None:
                try:
                    self._enter_surely()
                except PyreplogError as error:
                    failure = error
            end = self.log.end_offset
            self._failure = ClosedError(f"the log {self.log.topic_partition} is closed")
            self._gatherer.reset()  # takes nothing any more
        if self._syncer.failure is None:
            try:
                self._syncer.wait(end)
            except PyreplogError as error:
                failure = error
        self._background.stop()
        with self.lock:
            self._root.close(clean=self._syncer.failure is None and not self._busy)
            if self._gathering is not None:
                self._gathering.fail(self._failure)
                self._gathering = None
        self._tell_followers()
        if failure is not None:
            raise failure

    def forked(self) -> None:
        """In the child of a fork: this object is the parent's. REQUIRES that no other thread runs yet (a fork leaves one)."""
        self.lock = threading.Lock()
        self.closed = True
        self._gatherer.reset()
        self._failure = ForkedError("the log was opened by the parent process; open it again after fork()")
        self._gathering = None
        self._followers.clear()
