"""NowaitBatch: the batch that gathers the records of ``append_nowait``.

A record usually costs one call into the core and no lock. The batch is written when it is full,
when a caller waits for one of its records, before any other change of the log, or by the background
thread about a millisecond later.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from pyreplog.client import BatchResult
from pyreplog.errors import OutcomeUnknownError, PyreplogError
from pyreplog.ports import Buffer, Headers
from pyreplog.record import Ack, BatchBuilder, Gathering
from pyreplog.runtime.background import Background
from pyreplog.runtime.backpressure import UnsyncedBudget
from pyreplog.runtime.change_fence import ChangeFence
from pyreplog.runtime.encoder import Encoder
from pyreplog.runtime.pending_appends import PendingAppends
from pyreplog.timestamps import TIMESTAMP_MAX

__all__ = ["NowaitBatch"]

SIZE_MAX: Final = 256 << 10
"""Bytes at which the batch is full. A larger one gains nothing and leaves the processor's cache."""


class NowaitBatch:
    """Gather records, one call each, and write them as one batch. Any thread, unless the lock is
    required."""

    def __init__(
        self,
        fence: ChangeFence,
        pending: PendingAppends,
        budget: UnsyncedBudget,
        encoder: Encoder,
        background: Background,
        now_ms: Callable[[], int] | None,
    ) -> None:
        """``now_ms`` gives the time of records without one. None: the core asks this machine's
        clock itself, for each record."""
        self.result: BatchResult | None = None
        """The result of the open batch; None if no batch is open."""
        self.bounded = encoder.bounded or encoder.keyed
        """Whether a record's own timestamp, or that it has a key, must be checked first: ``append_unbounded`` does not
        check it."""
        self._fence = fence
        self._pending = pending
        self._budget = budget
        self._encoder = encoder
        self._background = background
        self._now_ms = now_ms
        self._size_max = min(SIZE_MAX, budget.size_max // 4)
        self._builder = BatchBuilder(encoder.size_target, timestamp_max=TIMESTAMP_MAX)
        self._timestamps: list[int] = []
        self.append_unbounded: Final[Callable[..., Ack]] = Gathering(self._builder, now_ms, self._gather).append
        """As :meth:`append`, if not :attr:`bounded`: one call into the core. Records that do not
        fit the open batch go to ``_gather``."""

    # ----------------------------------------------------------------------------------- gathering

    def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
    ) -> Ack:
        """Add one record to the open batch and return its Ack. Waits only for room; see
        :meth:`await_room`."""
        if self.bounded:
            timestamp = self._check(key, timestamp)
        return self.append_unbounded(value, key=key, headers=headers, timestamp=timestamp)

    def _check(self, key: Buffer | None, timestamp: int | datetime | None) -> int | datetime | None:
        if key is None and self._encoder.keyed:
            raise self._encoder.unkeyed(0)
        return None if timestamp is None else self._encoder.check_time(timestamp)

    def try_append(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | datetime | None
    ) -> Ack | None:
        """Append as :meth:`append` does if that needs neither the disk nor a wait. None: nothing
        was taken."""
        if self.bounded:
            timestamp = self._check(key, timestamp)
        ack: Ack | None = self._builder.gather(value, key, headers, timestamp, self._now_ms)
        if ack is not None:
            return ack
        held: list[bool] = []
        lock = self._fence.lock.enter()
        try:
            if not lock.try_enter(held) or self._fence.is_raised or self.result is not None or not self.has_room():
                return None
            self._begin()
            return self._builder.gather(value, key, headers, timestamp, self._now_ms)
        finally:
            if held:
                lock.release()

    def _gather(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | datetime | None
    ) -> Ack:
        """Add a record that the open batch did not take without the lock."""
        while True:
            self.await_room()
            with self._fence.lock.enter():
                if not self.has_room():
                    continue  # other threads were faster
                if self.result is None:
                    self._begin()
                ack: Ack | None = self._builder.gather(value, key, headers, timestamp, self._now_ms)
                if ack is None and self.has_room():
                    ack = self._gather_in_next(value, key, headers, timestamp)
                if ack is not None:
                    return ack

    def _begin(self) -> BatchResult:
        self._fence.make_whole()
        self._background.start()
        self._timestamps = []
        self.result = result = self._pending.new_result(self._timestamps)
        try:
            self._builder.begin(result, self._timestamps, self._size_max)
        except MemoryError:  # the builder still holds the batch before
            self.result = None
            raise
        self._background.arm()
        return result

    def _gather_in_next(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | datetime | None
    ) -> Ack | None:
        """Write the open batch, which is full, and begin the next one with the record.

        Other threads need no lock to fill that one too; then repeat. None: they used up the room.
        """
        while True:
            if self._builder.count:
                self.prepare_change()
            begun = self._begin()
            ack: Ack | None = self._builder.gather(value, key, headers, timestamp, self._now_ms)
            if ack is not None:
                return ack
            if self.result is begun and not self._builder.count:
                return self._append_alone(value, key, headers, timestamp)
            if not self.has_room():
                return None

    def _append_alone(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | datetime | None
    ) -> Ack:
        """Write a record that is too large to share a batch, or refuse it."""
        stamp = self._encoder.now_ms() if timestamp is None else timestamp
        batch = self._encoder.one(value, key, headers, stamp)
        self._encoder.check_size(batch, 0)
        return Ack(self._pending.append(batch, 1, [stamp]), 0)

    # -------------------------------------------------------------------------------- back-pressure

    def _unsynced_size(self) -> int:
        """Return the bytes that wait to be written or, under ``sync``, for a sync."""
        return self._budget.size + (0 if self.result is None else self._builder.size)

    def has_room(self) -> bool:
        """Return whether one more batch may wait. Under ``os`` only the open batch ever waits."""
        return not self._pending.needs_sync or self._unsynced_size() + self._size_max <= self._budget.size_max

    def await_room(self, since: float | None = None) -> None:
        """Return once one more batch may wait for the disk.

        BufferExhaustedError ``max_block_ms`` after ``since``, a moment of ``time.monotonic`` (None:
        now). REQUIRES that the lock is not held.
        """
        if not self.has_room():
            self._fence.lock.enter()  # a wait within this thread's own change would never end
            self._budget.wait(self.has_room, self._unsynced_size, self._fence.check, self._pending.hurry, since)

    # ------------------------------------------------------------------------------------- writing

    def prepare_change(self) -> None:
        """Prepare for a change of the log: repair the log if needed, and write the open batch, so that the change
        comes behind it. REQUIRES the lock."""
        fence = self._fence
        if fence.is_raised or fence.ended is not None or fence.log_failure is not None:
            fence.make_whole()
        if self.result is not None:
            self._write()

    def write(self) -> None:
        """For ``flush`` and ``close``: write the open batch. REQUIRES the lock.

        Raises the error that the Acks of the batch would report, or the reason why the log could
        not be opened again.
        """
        if self._fence.is_raised:
            self._fence.reopen()
        result = self.result
        if result is not None:
            self._write()
            if result.error is not None:
                result.asked = True
                raise result.error

    def _write(self) -> None:
        """Write the open batch. If the log refuses it as a whole, only its result fails; any other error is raised
        too."""
        result = self.result
        if result is None or not self._builder.count:
            return  # the first record of the batch is on its way, or was refused
        pending = self._pending
        try:
            batch = self._builder.finish()
            self.result = None
            pending.add(pending.write(batch), result)
        except BaseException as error:
            if isinstance(error, MemoryError) or self._fence.is_refusal(error):
                self.fail(error, result)
                return
            if not result.settled and pending.find(result) is None:
                partition = self._fence.log.topic_partition
                tried = f"append of {len(self._timestamps)} records to {partition}"
                self.fail(OutcomeUnknownError(tried, "interrupted"), result)
            raise

    def fail(self, error: BaseException, result: BatchResult | None = None) -> None:
        """Settle the result of the open batch, or ``result``, which was its own a moment ago, with
        ``error``. REQUIRES the lock."""
        result = result or self.result
        try:
            if result is not None and not result.settled:
                self._pending.fail(result, len(self._timestamps), error)
        finally:
            self.result = None

    def end(self) -> None:
        """Take no more records without the lock."""
        self._builder.reset()

    def forked(self, error: PyreplogError) -> None:
        """Settle the open batch with ``error``, because this process is a forked child. Wake no waiter, because the
        waiters are the parent's."""
        self._builder.reset()
        if self.result is not None and not self.result.settled:
            self.result.error, self.result.settled = error, True
        self.result = None
