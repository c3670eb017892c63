"""The owner's side of a spool: the process that has a log open appends the batches that other processes staged for
it.

There are three kinds of owner: a process with ``open_log`` (:class:`WriterAppender`), one with a ``Cluster``
(:mod:`pyreplog.runtime.cluster_appender`), and, if no process has the folder open, the Spark driver that commits
its batch (:func:`apply_offline`).
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
"""An owner checks for batches this often while none come."""
BUSY_S: Final = 0.005
BUSY_FOR_S: Final = 10.0
"""For this long after a batch it checks every ``BUSY_S``, because a stream's next batch comes soon."""
RETRY_S: Final = 1.0
"""If the log refuses a batch of a query, the query's batches are tried again after this long."""
RETRY_MAX_S: Final = 60.0
"""The longest pause after a damaged batch; each pause is twice as long as the one before."""
SWEEP_INTERVAL_S: Final = 3600.0
EARLY_SYNC_SIZE: Final = 8 << 20
"""A sync of a partition begins early once this many bytes were appended since its last one."""


class WriterAppender:
    """Appends to the one partition that this process has open with ``open_log``, beside its own appends."""

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
    """Appends to any partition of a root that no other process has open. It leads each partition in a new epoch,
    and makes a missing topic with one partition. One thread may use it, and must :meth:`close` it.

    It syncs the batches while it appends more, whatever the durability: a clean close of a log has to wait for
    these syncs anyway.
    """

    def __init__(self, root: LogRoot) -> None:
        self._root = root
        self._led: dict[TopicPartition, tuple[Log, Resumer]] = {}
        self._syncs = BackgroundSyncs(root.disk)
        self._under_way: dict[int, tuple[Log, SyncPlan]] = {}
        #: Bytes appended to each partition since its last sync was begun.
        self._sizes: dict[TopicPartition, int] = {}

    def check_of(self, key: TopicPartition) -> Callable[[RecordBatch], None]:
        """See :class:`Appender`."""
        if key in self._root.damaged:
            raise self._root.damaged[key]
        log = self._root.logs.get(key)
        if log is None:
            # The staging process found no such topic either. If another process opens the folder
            # to append, the staging driver waits for that one.
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
        # A new leader starts a new epoch, unless the log was closed cleanly: a stream that opens
        # the log for each batch would fill the history with useless epochs.
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
        """See :class:`Appender`. Wait for all syncs under way; a failed one is only logged."""
        try:
            self._settle()
        except StorageError as error:
            LOGGER.error("a sync of the batches appended to %s failed: %s", self._root.path, error)

    def _begin(self, log: Log) -> None:
        plan = log.sync_plan()
        if plan is None:
            return
        try:
            token = self._syncs.begin(plan.files)
        except StorageError as error:
            if error.errno not in RESOURCES_EXHAUSTED_ERRNOS or not self._under_way:
                raise
            self._settle()  # frees descriptors: each sync under way holds one
            token = self._syncs.begin(plan.files)
        self._under_way[token] = (log, plan)

    def _settle(self) -> None:
        """Wait for all syncs under way. Raise the first failure after all logs have their results."""
        failure: OSError | None = None
        for ended in self._syncs.rest():
            try:
                self._note(ended)
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _note(self, ended: Sequence[SyncDone]) -> None:
        """Give the logs the results of their syncs. Raise the first failure after all logs have theirs.

        Failed syncs come first: they poison their log before a later sync, which may succeed and yet make nothing
        durable, can count.
        """
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
    """Append every waiting batch, oldest first; return how many. Raise the first failure after the batches of other
    queries were tried; log the other failures."""
    done, failures = _apply_each(spool, make_appender, spool.waiting())
    for waiting, error in failures[1:]:
        LOGGER.error("%s", _stays(spool, waiting, error))
    if failures:
        raise failures[0][1]
    return done


def _apply_each(
    spool: Spool, make_appender: Callable[[], Appender], every: Iterable[Waiting]
) -> tuple[int, list[tuple[Waiting, PyreplogError]]]:
    """Return the number of batches that are in the log now, and the failures.

    After a failure no later batch of the same query is tried: a batch in the log means that all earlier batches of
    its query are done.
    """
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
    """Let readers see all durable records. After a power loss a log's mark may hold an older high watermark."""
    for log in root.logs.values():
        if log.high_watermark < log.ack_offset:
            log.advance_high_watermark(log.ack_offset)
            log.write_mark()


def apply_offline(disk: Disk, folder: str, clock: Clock) -> None:
    """Open the log root ``folder``, append the batches of its spool, and close it. Raise :class:`LockedError` if
    another process has it open."""
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
    """Looks for batches from a thread of its own and appends them. :meth:`stop` it before its log or cluster is
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
        #: Query -> (the time when its batches are tried again, the length of that pause).
        self._later: dict[str, tuple[float, float]] = {}
        #: Whether :meth:`stop` was called.
        self.stopping = False
        self._background = Background(f"pyreplog spool of {spool.folder}", self._work)

    def start(self) -> None:
        """Start the thread."""
        self._background.start()

    def stop(self) -> None:
        """End the thread. A batch that is being appended is finished first, unless its appender checks
        :attr:`stopping`."""
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
                # A begun batch may wait for days: for room on the disk, or for replicas. The log
                # must not expire its producer in that time.
                begun = frozenset(producer_of(one.batch_id)[0] for one in waiting if one.begun)
                if begun or self._has_retained:
                    self._has_retained = bool(begun)
                    self._retain(begun)
            failures = self._apply(due) if due else []
        except PyreplogError as error:
            if self.stopping and isinstance(error, ClosedError):
                return None
            self._tell(f"cannot read the spool of {self._spool.folder}: {error}")
            return RETRY_S
        if self.stopping and any(isinstance(error, ClosedError) for _, error in failures):
            return None
        if not self._later:
            self._said.clear()
        return BUSY_S if time.monotonic() < self._busy_until_s else IDLE_S

    def _apply(self, due: Sequence[Waiting]) -> list[tuple[Waiting, PyreplogError]]:
        """Append ``due``. Postpone the queries that failed, and return the failures."""
        self._busy_until_s = time.monotonic() + BUSY_FOR_S
        _, failures = _apply_each(self._spool, self._make_appender, due)
        pauses = {
            query: self._later.pop(query, (0.0, 0.0))[1] for query in dict.fromkeys(one.batch_id.query for one in due)
        }
        for waiting, error in failures:
            query = waiting.batch_id.query
            # Room and replicas may come back at any moment, so these are tried again soon. A
            # damaged batch stays damaged until the operator repairs it.
            pause = min(2 * pauses[query], RETRY_MAX_S) if isinstance(error, SpoolDamagedError) else 0.0
            self._later[query] = (time.monotonic() + max(pause, RETRY_S), max(pause, RETRY_S))
            if not (self.stopping and isinstance(error, ClosedError)):
                self._tell(_stays(self._spool, waiting, error))
        return failures

    def _tell(self, text: str) -> None:
        """Log ``text``, but only once until no query is postponed any more."""
        if text not in self._said:
            self._said.add(text)
            LOGGER.error("%s", text)
