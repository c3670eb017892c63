"""The owner's side of a spool: whoever holds a log appends what other processes staged for it.

Three kinds of owner: a process with ``open_log`` (:class:`WriterAppender`), one with a ``Cluster`` (:mod:`pyreplog.runtime.relay`),
and, where nobody has the folder open, the driver that wants its batch in (:func:`apply_unowned`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Final

from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, PyreplogError, StorageError, UnknownTopicError
from pyreplog.log import Log, LogRoot, SyncPlan
from pyreplog.ports import Clock, Disk, SyncDone
from pyreplog.runtime.background import Background
from pyreplog.runtime.early_syncs import EarlySyncs
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.writer import LogWriter
from pyreplog.spool import Appender, Resumer, Spool, apply, producer_of
from pyreplog.system import SystemChance
from pyreplog.values import TopicPartition

__all__ = ["RootAppender", "SpoolOwner", "WriterAppender", "apply_unowned", "apply_waiting", "settle_root"]

IDLE_S: Final = 0.2
"""How often an owner looks for batches while none come."""
BUSY_S: Final = 0.005
BUSY_FOR_S: Final = 10.0
"""After a batch it looks this often for this long: a stream's next one comes soon."""
RETRY_S: Final = 1.0
"""Pause after a batch that the log did not take."""
SWEEP_INTERVAL_S: Final = 3600.0
EARLY_SYNC_SIZE: Final = 8 << 20
"""After so many bytes more it pays to begin another sync."""


class WriterAppender:
    """Appends to the one partition that this process writes by ``open_log``, beside its own appends."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self._resumer = Resumer(writer.append_batch)

    def batch_size_max(self, key: TopicPartition) -> int:
        """See :class:`Appender`."""
        log = self._writer.log
        if key != log.topic_partition:
            raise UnknownTopicError(f"{key} is not written by the process that has the folder open; it writes {log.topic_partition}")
        return _size_max(log.config)

    def append(self, key: TopicPartition, data: memoryview) -> None:
        """See :class:`Appender`."""
        self._resumer.append(data)

    def finish(self) -> None:
        """See :class:`Appender`."""
        self._resumer.finish()
        self._writer.settle()

    def close(self) -> None:
        """See :class:`Appender`."""


class RootAppender:
    """Appends to any partition of a root that nobody else has: leads each in a new epoch. One thread; :meth:`close` it.

    What it appends is synced while it goes on, whatever the durability: who closes a log in order has to wait for that anyway.
    """

    def __init__(self, root: LogRoot) -> None:
        self._root = root
        self._led: dict[TopicPartition, tuple[Log, Resumer]] = {}
        self._syncs = EarlySyncs(root.disk)
        self._under_way: dict[int, tuple[Log, SyncPlan]] = {}
        #: Bytes appended since the last sync was begun.
        self._size = 0

    def batch_size_max(self, key: TopicPartition) -> int:
        """See :class:`Appender`."""
        if key in self._root.damaged:
            raise self._root.damaged[key]
        log = self._root.logs.get(key)
        if log is None:
            raise UnknownTopicError(f"{key} is not in {self._root.path}")
        return _size_max(log.config)

    def append(self, key: TopicPartition, data: memoryview) -> None:
        """See :class:`Appender`."""
        if key not in self._led:
            self._lead(key)
        self._led[key][1].append(data)
        self._size += data.nbytes
        if self._size >= EARLY_SYNC_SIZE:
            self._note(self._syncs.ended())
            self._begin()

    def _lead(self, key: TopicPartition) -> None:
        if key in self._root.damaged or key not in self._root.logs:
            self.batch_size_max(key)
        log = self._root.logs[key]
        # A new leader is a new epoch, unless its predecessor left in order: a stream that opens the log for each batch would fill the
        # history with epochs that tell nothing.
        epoch = log.epochs.latest if log.recovery.clean and log.epochs.latest >= 0 else log.epochs.latest + 1
        log.keep_tail(0)
        if log.incomplete:
            log.set_incomplete(False)  # there is no other copy to wait for
        log.become_leader(epoch)
        self._led[key] = (log, Resumer(lambda data: log.append_as_leader(data, epoch, trusted=True)))

    def finish(self) -> None:
        """See :class:`Appender`."""
        for _, resumer in self._led.values():
            resumer.finish()
        self._begin()
        self._note(self._syncs.rest())
        for log, _ in self._led.values():
            log.advance_high_watermark(log.counted_end)
            log.write_mark()

    def close(self) -> None:
        """See :class:`Appender`. Returns when no sync is under way any more."""
        try:
            self._note(self._syncs.rest())
        except StorageError as error:
            LOGGER.error("a sync of what was appended to %s failed: %s", self._root.path, error)

    def _begin(self) -> None:
        self._size = 0
        for log, _ in self._led.values():
            plan = log.sync_plan()
            if plan is not None:
                self._under_way[self._syncs.begin(plan.files)] = (log, plan)

    def _note(self, ended: Iterable[SyncDone]) -> None:
        """Tell the logs of syncs. Raises the first failure, after telling all."""
        failure: OSError | None = None
        for done in ended:
            log, plan = self._under_way.pop(done.token)
            if done.error is None:
                log.synced(plan.upto, plan.generation)
            else:
                log.poison(done.error)  # a second sync would succeed and make nothing durable
                failure = failure or done.error
        if failure is not None:
            raise failure


def _size_max(config: LogConfig) -> int:
    return min(config.max_message_bytes, config.segment_bytes)


def apply_waiting(spool: Spool, make_appender: Callable[[], Appender]) -> int:
    """Append every batch that waits, oldest first; how many. Raises the first failure, after trying those of other queries: a batch that
    is in the log says that all of its query before it are done with."""
    done = 0
    failure: PyreplogError | None = None
    stuck: set[str] = set()
    for waiting in spool.waiting():
        query = waiting.batch_id.query
        if query in stuck:
            continue
        try:
            with closing(make_appender()) as appender:
                done += apply(spool, waiting, appender)
        except PyreplogError as error:
            LOGGER.error("%s stays in the spool of %s: %s", waiting.batch_id, spool.folder, error)
            failure = failure or error
            stuck.add(query)
    if failure is not None:
        raise failure
    return done


def settle_root(root: LogRoot) -> None:
    """Let readers see all that is durable: power loss may have left marks that say less."""
    for log in root.logs.values():
        if log.high_watermark < log.counted_end:
            log.advance_high_watermark(log.counted_end)
            log.write_mark()


def apply_unowned(disk: Disk, folder: str, clock: Clock, make: TopicPartition | None = None) -> None:
    """Open the log root ``folder``, append what waits in its spool, and release it. :class:`LockedError` where somebody has it open.

    ``make``: a partition to be made where it is not there.
    """
    root = LogRoot.open(disk, folder, clock=clock, random=SystemChance())
    clean = False
    try:
        if make is not None and make not in root.logs and make not in root.damaged:
            root.create_log(make.topic, make.partition, root.new_topic_id(), LogConfig())
        settle_root(root)
        apply_waiting(Spool(disk, folder), lambda: RootAppender(root))
        clean = True
    finally:
        root.close(clean=clean)


class SpoolOwner:
    """Looks for batches from a thread of its own and appends them. :meth:`stop` it before what it appends to is closed."""

    def __init__(
        self, spool: Spool, make_appender: Callable[[], Appender], clock: Clock, keep: Callable[[frozenset[int]], None] = lambda ids: None
    ) -> None:
        """``keep`` is told which producer ids must not expire, as often as there are any, and once when there are none any more."""
        self._spool = spool
        self._keep = keep
        self._kept = False
        self._make_appender = make_appender
        self._clock = clock
        self._busy_until_s = 0.0
        self._sweep_s = 0.0
        self._said = ""
        #: Whether :meth:`stop` was called.
        self.stopping = False
        self._background = Background(f"pyreplog spool of {spool.folder}", self._work)

    def start(self) -> None:
        """Begin to look."""
        self._background.start()

    def stop(self) -> None:
        """Look no more. A batch being appended is finished first, unless its appender looks at :attr:`stopping`."""
        self.stopping = True
        self._background.stop()

    def _work(self) -> float | None:
        now = time.monotonic()
        try:
            if now >= self._sweep_s:
                self._sweep_s = now + SWEEP_INTERVAL_S
                self._spool.sweep(self._clock.wall_ms())
            waiting = self._spool.waiting()
            begun = frozenset(producer_of(one.batch_id)[0] for one in waiting if one.begun)
            if begun or self._kept:
                # What is begun may wait for a day or two: for room on the disk, for replicas.
                self._kept = bool(begun)
                self._keep(begun)
            if waiting:
                self._busy_until_s = time.monotonic() + BUSY_FOR_S
                apply_waiting(self._spool, self._make_appender)
            self._said = ""
        except PyreplogError as error:
            if self.stopping and isinstance(error, ClosedError):
                return None
            if str(error) != self._said:
                self._said = str(error)
                LOGGER.warning("the spool of %s is not empty: %s", self._spool.folder, error)
            return RETRY_S
        return BUSY_S if time.monotonic() < self._busy_until_s else IDLE_S
