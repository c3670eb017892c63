"""Queue: hands each record of a log to one of several workers, until one of them accepts it. Thread-safe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, NoReturn, SupportsIndex

from pyreplog.config import check_seconds, whole
from pyreplog.errors import ClosedError, ConfigError
from pyreplog.readers import IN_FLIGHT_MAX
from pyreplog.record import Record
from pyreplog.runtime.follow import ChangeSignal
from pyreplog.runtime.queue_worker import QueueWorker
from pyreplog.runtime.views import CommittedView, ReaderView, WriterView
from pyreplog.system import OwnedLock, current_process
from pyreplog.values import QueueStats

__all__ = ["Queue"]

PAUSE_S: Final = 0.05
"""A waiting worker looks this often for records that ended workers left behind."""
LOOK_PAUSE_S: Final = 0.001
"""Between two looks of a waiting worker, because other workers change the journal all the time."""


class Queue:
    """A queue over one log, for any number of workers. Made by :meth:`Log.queue`; use it in ``with``.

    Each open ``Queue`` is one worker; several threads may share it. A record that :meth:`receive`
    returned is locked for this worker for 30 seconds. ``accept`` settles it. If the lock ends
    first, or the worker ends, however it ends, another worker gets the record, with a higher
    ``delivery_count``. After five deliveries it becomes a dead letter. Order is kept as far as
    records are not delivered again.
    """

    def __init__(
        self,
        name: str,
        worker: QueueWorker,
        view: WriterView | ReaderView | CommittedView,
        on_close: Callable[[Queue], None],
    ) -> None:
        """Called by the log only."""
        self._name = name
        self._worker = worker
        self._view = view
        self._topic, self._partition = view.topic, view.partition
        self._on_close = on_close
        self._process = current_process()
        self._lock = OwnedLock(worker.title)
        self._waiting: set[ChangeSignal] = set()
        self._is_closed = False

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a Queue cannot be copied or pickled: open the log and its queue in each process")

    # -- receiving ---------------------------------------------------------------------------------

    def receive(self, timeout: float | None = 0.0) -> Record | None:
        """Return the next record, or None if none came within ``timeout`` seconds (None: wait for ever).

        Its ``delivery_count`` is 1 at its first delivery. Records that were delivered before come
        first. Dead letters that are due are written before that. Raises ClosedError once the queue
        or its log is closed, CorruptLogError for damaged records, LockedError if another process
        keeps the journal's lock for many seconds, StorageError if the disk refuses: no record is
        lost by any of them.
        """
        if timeout.__class__ is not float or timeout:
            received = self.receive_many(1, timeout)
        elif not self._is_closed and not self._process.left and (record := self._worker.take_next()) is not None:
            return record
        else:
            received = self._take(1)
        return received[0] if received else None

    def receive_many(self, n: int, timeout: float | None = 0.0) -> list[Record]:
        """Return up to ``n`` records (from 1), as soon as there is one; see :meth:`receive`.

        All of them are locked from now on, and all of their deliveries count. At most 2,000 records
        of a queue are in flight, with all its workers together.
        """
        count = self._count(whole("n", n, 1))
        patience = check_seconds("timeout", timeout)
        taken = self._take(count)
        if taken or patience == 0:
            return taken
        deadline = None if patience is None else time.monotonic() + patience
        news = self._begin_waiting()
        try:
            while True:
                looked = time.monotonic()
                taken = self._take(count)
                left = None if deadline is None else deadline - time.monotonic()
                if taken or (left is not None and left <= 0):
                    return taken
                news.wait(self._pause(left))
                if (early := looked + LOOK_PAUSE_S - time.monotonic()) > 0:
                    time.sleep(early)
        finally:
            self._end_waiting(news)

    @staticmethod
    def _count(count_max: int) -> int:
        return min(count_max, IN_FLIGHT_MAX)

    @staticmethod
    def _pause(left: float | None) -> float:
        """Return how long to wait for a signal if ``left`` seconds are left (None: no limit)."""
        return PAUSE_S if left is None else min(left, PAUSE_S)

    def _take(self, count: int) -> list[Record]:
        """Return records that can be delivered now."""
        self._check()
        if count == 1 and (record := self._worker.take_next()) is not None:
            return [record]
        return self._worker.take(count)

    def _untake(self, records: list[Record]) -> None:
        """Give records back that no caller got."""
        if records and not self._is_closed:
            self._worker.release(records)
            self._wake()

    def _begin_waiting(self) -> ChangeSignal:
        """Return a signal for new records, released ones and :meth:`close`. End it with :meth:`_end_waiting`."""
        news = self._worker.news()
        with self._lock:
            self._waiting.add(news)
        return news

    def _end_waiting(self, news: ChangeSignal) -> None:
        with self._lock:
            self._waiting.discard(news)
        news.close()

    def _wake(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
        for news in waiting:
            news.wake()

    # -- settling ----------------------------------------------------------------------------------

    def accept(self, records: Record | Iterable[Record]) -> None:
        """Settle a record, or several at once: they are done, and never delivered again.

        Returns when the journal has it; for a ``sync`` log when that is on stable storage (threads
        that wait share syncs). Raises InvalidRecordStateError if another worker has one of the
        records by now, or it was settled: then none of them is changed. UnsyncedError if the sync
        failed: the queue must be opened again, and may deliver the records again.
        """
        self._worker.accept(self._received(records))

    def release(self, records: Record | Iterable[Record]) -> None:
        """Give records back: another worker, or this one, gets them next. Their delivery counts.

        Raises as :meth:`accept` does.
        """
        self._worker.release(self._received(records))
        self._wake()

    def reject(self, records: Record | Iterable[Record], error: BaseException | str | None = None) -> None:
        """Make dead letters of records at once. ``error`` is the reason, which the dead letter names.

        The journal notes the rejection, the dead letter is written, then the journal notes that
        too. If the process ends in between, the next worker writes the dead letter, unless it is
        there. Raises as :meth:`accept` does, and the errors of writing the dead letter: this worker
        does not have the records any more then, and the next :meth:`receive` of any worker tries
        again.
        """
        text = "rejected" if error is None else error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self._worker.reject(self._received(records), text)

    def renew(self, records: Record | Iterable[Record]) -> None:
        """Lock records for another 30 seconds from now. Raises as :meth:`accept` does."""
        self._worker.renew(self._received(records))

    def _received(self, records: Record | Iterable[Record]) -> list[Record]:
        """Return the records as a list. Raises TypeError or ConfigError unless a queue of this log delivered them."""
        self._check()
        topic, partition = self._topic, self._partition
        if isinstance(records, Record):
            given = [records]
        elif isinstance(records, Iterable):
            given = list(records)
        else:
            raise TypeError(f"a queue settles records that it delivered, not {type(records).__name__}")
        for record in given:
            if not isinstance(record, Record):
                raise TypeError(f"a queue settles records that it delivered, not {type(record).__name__}")
            if not record.delivery_count or record.topic != topic or record.partition != partition:
                raise ConfigError(f"{record!r} was not delivered by {self._worker.title}")
        return given

    # -- facts -------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._name

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` of this queue or of its log was called."""
        return self._is_closed

    def stats(self) -> QueueStats:
        """Return the numbers of the queue, of all its workers."""
        self._check()
        return self._worker.stats()

    def close(self) -> None:
        """End this worker: its records are available again. A second call is harmless."""
        if self._process.left:
            return
        self._is_closed = True
        self._wake()
        self._worker.close()
        self._on_close(self)

    def __enter__(self) -> Queue:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<pyreplog.Queue {self._name!r} in {self._worker.path!r}{' closed' if self._is_closed else ''}>"

    def _check(self) -> None:
        if self._process.left:
            raise self._process.refuse(self._worker.title)
        if self._is_closed:
            raise ClosedError(f"{self._worker.title} is closed: open it again to use it")
