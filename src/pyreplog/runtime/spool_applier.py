"""The owner's side of a spool: whoever holds a log appends what other processes staged for it.

Three kinds of owner: a process with ``open_log`` (:class:`WriterAppender`), one with a ``Cluster``
(:mod:`pyreplog.runtime.relay`), and, where nobody has the folder open, the driver that wants its batch in
(:func:`apply_offline`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

from pyreplog.config import LogConfig
from pyreplog.errors import ClosedError, PyreplogError, SpoolDamagedError, StorageError, UnknownTopicError
from pyreplog.log import Log, LogRoot, LogValidator, RecoveryOptions, SyncPlan
from pyreplog.ports import RESOURCES_EXHAUSTED_ERRNOS, Clock, Disk, SyncDone
from pyreplog.record import RecordBatch
from pyreplog.runtime.background import Background
from pyreplog.runtime.background_syncs import BackgroundSyncs
from pyreplog.runtime.log_writer import LogWriter
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.recovery import Recovery, tell_torn
from pyreplog.spool import Appender, Resumer, Spool, Waiting, apply, producer_of
from pyreplog.system import SystemChance
from pyreplog.values import TopicPartition

__all__ = [
    "RootAppender",
    "SpoolApplier",
    "WriterAppender",
    "apply_offline",
    "apply_waiting",
    "make_unowned",
    "settle_root",
]

IDLE_S: Final = 0.2
"""How often an owner looks for batches while none come."""
BUSY_S: Final = 0.005
BUSY_FOR_S: Final = 10.0
"""After a batch it looks this often for this long: a stream's next one comes soon."""
RETRY_S: Final = 1.0
"""Pause of a query after a batch of it that the log did not take."""
RETRY_MAX_S: Final = 60.0
"""The longest pause of one with a damaged batch; each is twice as long as the one before."""
SWEEP_INTERVAL_S: Final = 3600.0
EARLY_SYNC_SIZE: Final = 8 << 20
"""After so many bytes more it pays to begin another sync."""


class WriterAppender:
    """Appends to the one partition that this process writes by ``open_log``, beside its own appends."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self._resumer = Resumer(writer.append_batch)

    def check_of(self, key: TopicPartition) -> Callable[[RecordBatch], None]:
        """See :class:`Appender`."""
        log = self._writer.log
        if key != log.topic_partition:
            raise UnknownTopicError(
                f"{key} is not written by the process that has the folder open; it writes {log.topic_partition}"
            )
        return LogValidator(log.config, key, log.clock).check

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
    """Appends to any partition of a root that nobody else has: leads each in a new epoch. A topic that is not there
    is made, with one partition. One thread; :meth:`close` it.

    What it appends is synced while it goes on, whatever the durability: who closes a log in order has to wait for
    that anyway.
    """

    def __init__(self, root: LogRoot) -> None:
        self._root = root
        self._led: dict[TopicPartition, tuple[Log, Resumer]] = {}
        self._syncs = BackgroundSyncs(root.disk)
        self._under_way: dict[int, tuple[Log, SyncPlan]] = {}
        #: Bytes appended to each since its last sync was begun.
        self._sizes: dict[TopicPartition, int] = {}

    def check_of(self, key: TopicPartition) -> Callable[[RecordBatch], None]:
        """See :class:`Appender`."""
        if key in self._root.damaged:
            raise self._root.damaged[key]
        log = self._root.logs.get(key)
        if log is None:
            # Whoever staged it found no such topic, and may not be the one who opens the folder:
            # then its driver waits for this one.
            if key.partition or any(key.topic == other.topic for other in (*self._root.logs, *self._root.damaged)):
                raise UnknownTopicError(f"{key} is not in {self._root.path}")
            log = self._root.create_log(key.topic, key.partition, self._root.new_topic_id(), LogConfig())
        return LogValidator(log.config, key, log.clock).check

    def append(self, key: TopicPartition, data: memoryview) -> None:
        """See :class:`Appender`."""
        if key not in self._led:
            self._lead(key)
        log, resumer = self._led[key]
        resumer.append(data)
        size = self._sizes.get(key, 0) + data.nbytes
        if size >= EARLY_SYNC_SIZE:
            size = 0
            self._note(self._syncs.ended())
            self._begin(log)
        self._sizes[key] = size

    def _lead(self, key: TopicPartition) -> None:
        if key in self._root.damaged or key not in self._root.logs:
            self.check_of(key)
        log = self._root.logs[key]
        # A new leader is a new epoch, unless its predecessor left in order: a stream that opens the
        # log for each batch would fill the history with epochs that tell nothing.
        epoch = log.epochs.latest if log.recovery.clean and log.epochs.latest >= 0 else log.epochs.latest + 1
        log.set_tail_cache_size(0)
        if log.incomplete:
            log.set_incomplete(False)  # there is no other copy to wait for
        log.become_leader(epoch)
        self._led[key] = (log, Resumer(lambda data: log.append_as_leader(data, epoch, trusted=True)))

    def finish(self) -> None:
        """See :class:`Appender`."""
        for _, resumer in self._led.values():
            resumer.finish()
        for log, _ in self._led.values():
            self._begin(log)
        self._settle()
        for log, _ in self._led.values():
            log.advance_high_watermark(log.ack_offset)
            log.write_mark()

    def close(self) -> None:
        """See :class:`Appender`. Returns when no sync is under way any more."""
        try:
            self._settle()
        except StorageError as error:
            LOGGER.error("a sync of what was appended to %s failed: %s", self._root.path, error)

    def _begin(self, log: Log) -> None:
        plan = log.sync_plan()
        if plan is None:
            return
        try:
            token = self._syncs.begin(plan.files)
        except StorageError as error:
            if error.errno not in RESOURCES_EXHAUSTED_ERRNOS or not self._under_way:
                raise
            self._settle()  # each keeps a descriptor
            token = self._syncs.begin(plan.files)
        self._under_way[token] = (log, plan)

    def _settle(self) -> None:
        """Wait for all syncs under way. Raises the first failure, after telling of all."""
        failure: OSError | None = None
        for ended in self._syncs.rest():
            try:
                self._note(ended)
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _note(self, ended: Sequence[SyncDone]) -> None:
        """Tell the logs of syncs, of those that failed first: a second one would succeed and make nothing durable.
        Raises the first failure, after telling all."""
        failure: OSError | None = None
        told: list[tuple[Log, SyncPlan]] = []
        for done in ended:
            log, plan = self._under_way.pop(done.token)
            if done.error is None:
                told.append((log, plan))
            else:
                log.poison(done.error)
                failure = failure or done.error
        for log, plan in told:
            try:
                log.synced(plan.upto, plan.generation)
            except StorageError as error:
                failure = failure or error
        if failure is not None:
            raise failure


def apply_waiting(spool: Spool, make_appender: Callable[[], Appender]) -> int:
    """Append every batch that waits, oldest first; how many. Raises the first failure, after trying those of other
    queries, and logs the others."""
    done, failures = _apply_each(spool, make_appender, spool.waiting())
    for waiting, error in failures[1:]:
        LOGGER.error("%s", _stays(spool, waiting, error))
    if failures:
        raise failures[0][1]
    return done


def _apply_each(
    spool: Spool, make_appender: Callable[[], Appender], every: Iterable[Waiting]
) -> tuple[int, list[tuple[Waiting, PyreplogError]]]:
    """How many of the batches are in the log now, and what failed. No later one of a query that failed: a batch
    that is in the log says that all of its query before it are done with."""
    done = 0
    failures: dict[str, tuple[Waiting, PyreplogError]] = {}
    for waiting in every:
        if waiting.batch_id.query in failures:
            continue
        try:
            with closing(make_appender()) as appender:
                done += apply(spool, waiting, appender)
        except PyreplogError as error:
            failures[waiting.batch_id.query] = (waiting, error)
    return done, list(failures.values())


def _stays(spool: Spool, waiting: Waiting, error: PyreplogError) -> str:
    return f"{waiting.batch_id} stays in the spool of {spool.folder}: {error}"


def settle_root(root: LogRoot) -> None:
    """Let readers see all that is durable: power loss may have left marks that say less."""
    for log in root.logs.values():
        if log.high_watermark < log.ack_offset:
            log.advance_high_watermark(log.ack_offset)
            log.write_mark()


def apply_offline(disk: Disk, folder: str, clock: Clock) -> None:
    """Open the log root ``folder``, append what waits in its spool, and release it. :class:`LockedError` where
    somebody has it open."""
    with _unowned(disk, folder, clock) as root:
        apply_waiting(Spool(disk, folder), lambda: RootAppender(root))


def make_unowned(disk: Disk, folder: str, topic: str, clock: Clock) -> None:
    """Make partition 0 of ``topic`` in the log root ``folder``, with the default settings, unless the root has the
    topic. Raises :class:`LockedError` if another process has the root open."""
    with _unowned(disk, folder, clock) as root:
        if all(topic != key.topic for key in (*root.logs, *root.damaged)):
            RootAppender(root).check_of(TopicPartition(topic, 0))


@contextmanager
def _unowned(disk: Disk, folder: str, clock: Clock) -> Iterator[LogRoot]:
    name = f"the log root {folder!r}"
    with Recovery(name, clock) as recovery:
        root = LogRoot.open(disk, folder, clock=clock, random=SystemChance(), recovery=RecoveryOptions(recovery))
    clean = False
    try:
        tell_torn(root, name)
        settle_root(root)
        yield root
        clean = True
    finally:
        root.close(clean=clean)


class SpoolApplier:
    """Looks for batches from a thread of its own and appends them. :meth:`stop` it before what it appends to is
    closed."""

    def __init__(
        self,
        spool: Spool,
        make_appender: Callable[[], Appender],
        clock: Clock,
        retain: Callable[[frozenset[int]], None] = lambda ids: None,
    ) -> None:
        """``retain`` gets the producer ids that must not expire: at each look while there are any, and
        once when there are none any more.
        """
        self._spool = spool
        self._retain = retain
        self._has_retained = False
        self._make_appender = make_appender
        self._clock = clock
        self._busy_until_s = 0.0
        self._sweep_s = 0.0
        self._said: set[str] = set()
        #: Query -> when its batches are tried again, and after how long a pause.
        self._later: dict[str, tuple[float, float]] = {}
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
            if not waiting:
                self._later.clear()
            due = [one for one in waiting if now >= self._later.get(one.batch_id.query, (0.0, 0.0))[0]]
            if due or (self._has_retained and not waiting):
                # What is begun may wait for a day or two: for room on the disk, for replicas.
                begun = frozenset(producer_of(one.batch_id)[0] for one in waiting if one.begun)
                if begun or self._has_retained:
                    self._has_retained = bool(begun)
                    self._retain(begun)
            failures = self._apply(due) if due else []
        except PyreplogError as error:
            if self.stopping and isinstance(error, ClosedError):
                return None
            self._tell(f"the spool of {self._spool.folder} cannot be looked at: {error}")
            return RETRY_S
        if self.stopping and any(isinstance(error, ClosedError) for _, error in failures):
            return None
        if not self._later:
            self._said.clear()
        return BUSY_S if time.monotonic() < self._busy_until_s else IDLE_S

    def _apply(self, due: Sequence[Waiting]) -> list[tuple[Waiting, PyreplogError]]:
        """Append ``due``; what failed, which is put off."""
        self._busy_until_s = time.monotonic() + BUSY_FOR_S
        _, failures = _apply_each(self._spool, self._make_appender, due)
        pauses = {
            query: self._later.pop(query, (0.0, 0.0))[1] for query in dict.fromkeys(one.batch_id.query for one in due)
        }
        for waiting, error in failures:
            query = waiting.batch_id.query
            # Room and replicas may come back at any moment; what is damaged waits for somebody who
            # does something.
            pause = min(2 * pauses[query], RETRY_MAX_S) if isinstance(error, SpoolDamagedError) else 0.0
            self._later[query] = (time.monotonic() + max(pause, RETRY_S), max(pause, RETRY_S))
            if not (self.stopping and isinstance(error, ClosedError)):
                self._tell(_stays(self._spool, waiting, error))
        return failures

    def _tell(self, text: str) -> None:
        """Log it, once until all is well again."""
        if text not in self._said:
            self._said.add(text)
            LOGGER.error("%s", text)
