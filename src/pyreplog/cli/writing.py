"""Where ``append`` puts records: a log in one folder, or a topic of a cluster's folder."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Literal, Protocol

from pyreplog.cli.output import ProgressBar, counted, printable, say
from pyreplog.cli.rows import Row, RowError
from pyreplog.config import LogConfig, Permissions, batch_max, meant, suggestion
from pyreplog.errors import ConfigError, MessageTooLargeError, PyreplogError, UnknownTopicError
from pyreplog.log import holds_cluster, is_internal, parse_directory_name
from pyreplog.record import Ack, BatchBuilder
from pyreplog.runtime import Cluster, Log, Producer, open_log
from pyreplog.system import SystemDisk
from pyreplog.timestamps import TIMESTAMP_MAX
from pyreplog.values import RecoveryProgress

__all__ = ["RowTarget", "ShownRecovery", "append_whole", "check_first", "is_cluster", "makes_log", "open_target"]


class RowTarget(Protocol):
    """Takes rows; knows how many, and which offsets they got. ``ranges``: partition -> (first offset, one past the
    last)."""

    topic: str
    count: int
    ranges: dict[int, tuple[int, int]]
    record_size_max: int
    """Bytes of the largest record that the topic takes."""

    def append(self, rows: Sequence[Row]) -> None:
        """Append ``rows`` in order and wait until they are acknowledged."""
        ...


class LogTarget:
    """A log in one folder: one partition."""

    def __init__(self, log: Log) -> None:
        self._log = self.log = log
        self.topic = log.topic
        self.record_size_max = batch_max(log.config)
        self.count = 0
        self.ranges: dict[int, tuple[int, int]] = {}

    def append(self, rows: Sequence[Row]) -> None:
        """One batch where the rows' times are given for all or for none. Those before one of another partition,
        too."""
        own = self._log.partition
        for index, row in enumerate(rows):
            if row.partition not in (None, own):
                self.append(rows[:index])
                _check_partition(row, own, self.count, self._log.path)
        start = 0
        while start < len(rows):
            timed = rows[start].timestamp is not None
            end = next(
                (index for index in range(start, len(rows)) if (rows[index].timestamp is not None) != timed), len(rows)
            )
            self._put(rows[start:end], timed=timed)
            start = end

    def _put(self, part: Sequence[Row], *, timed: bool) -> None:
        try:
            offsets = self._log.append_many(
                [row.value for row in part],
                keys=[row.key for row in part],
                headers=[row.headers for row in part],
                timestamps=[row.timestamp for row in part if row.timestamp is not None] if timed else None,
            )
        except MessageTooLargeError:
            if len(part) == 1:
                raise _too_large(part[0], self.count) from None
            for row in part:  # those before it are taken
                self._put([row], timed=timed)
        else:
            self._note(offsets)

    def _note(self, offsets: range) -> None:
        first, _ = self.ranges.get(self._log.partition, (offsets.start, 0))
        self.ranges[self._log.partition] = (first, offsets.stop)
        self.count += len(offsets)


class TopicTarget:
    """A topic of a cluster: keys decide the partition unless a row or the option ``--partition`` names it."""

    def __init__(self, producer: Producer, topic: str, config: LogConfig, partition: int | None) -> None:
        self._producer = producer
        self._partition = partition
        self.topic = topic
        self.record_size_max = batch_max(config)
        self.count = 0
        self.ranges: dict[int, tuple[int, int]] = {}

    def append(self, rows: Sequence[Row]) -> None:
        """Send all rows, then wait for all, also for those before a refused one. Raise the first failure, after the
        other rows are counted."""
        acks: list[Ack] = []
        failure: Exception | None = None
        for row in rows:
            try:
                partition = self._partition if row.partition is None else row.partition
                ack = self._producer.send(
                    self.topic,
                    row.value,
                    key=row.key,
                    partition=partition,
                    headers=row.headers,
                    timestamp=row.timestamp,
                )
            except MessageTooLargeError:
                failure = _too_large(row, self.count + len(acks))
                break
            except PyreplogError as error:
                failure = RowError(f"row {self.count + len(acks) + 1:,} of this run: {error}")
                break
            acks.append(ack)
        self._producer.flush()
        for ack in acks:
            try:
                done = ack.result()
            except PyreplogError as error:
                failure = failure or error
                continue
            first, end = self.ranges.get(done.partition, (done.offset, done.offset + 1))
            self.ranges[done.partition] = (min(first, done.offset), max(end, done.offset + 1))
            self.count += 1
        if failure is not None:
            raise failure


class _Uncut:
    """Delay a Ctrl-C until the end of the block, because rows of an interrupted append are in the log, but not
    counted. A second Ctrl-C does not wait, because the disk or the cluster may never answer, and reports the
    uncounted rows."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._asked = False
        self._ours = False

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def __enter__(self) -> None:
        # A program that ignores SIGINT, or has its own handler, keeps it. Only the main thread may
        # set a handler.
        self._ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._ours:
            signal.signal(signal.SIGINT, self._ask)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if isinstance(error, KeyboardInterrupt):
            say(
                f"replog: not waited for: up to {counted(self._count, 'record')} more may be in the log than are"
                " told of"
            )
        if self._asked and error is None:  # otherwise that error is reported, and ends the command too
            raise KeyboardInterrupt


def append_whole(target: RowTarget, rows: Sequence[Row]) -> None:
    """Call ``target.append``; a Ctrl-C during the call is raised when all ``rows`` are counted."""
    with _Uncut(len(rows)):
        target.append(rows)


def _too_large(row: Row, before: int) -> RowError:
    size = len(row.value or b"") + len(row.key or b"")
    return RowError(
        f"row {before + 1:,} of this run ({size:,} bytes and its headers) does not fit a batch: the topic's"
        " max.message.bytes (and segment.bytes) would have to be larger"
    )


def _topics_of(path: str) -> list[str]:
    """Return the topics of the log root at ``path``, sorted; none if there is no folder."""
    folder = Path(path)
    parsed = [parse_directory_name(one.name) for one in folder.iterdir()] if folder.is_dir() else []
    return sorted({one.topic_partition.topic for one in parsed if one is not None and not one.kind})


def is_cluster(path: str) -> bool:
    """Whether it is a cluster's folder: its nodes may lie elsewhere."""
    if any(Path(path).glob("node-*/meta.properties")):
        return True
    disk = SystemDisk()
    try:
        return holds_cluster(disk, path)
    finally:
        disk.close()


def makes_log(path: str, topic: str | None) -> bool:
    """Whether appending to ``path`` makes a log that is not there yet."""
    if is_cluster(path):
        return False
    topics = _topics_of(path)
    return not topics or (topic is not None and topic not in topics)


def check_first(row: Row, partition: int | None) -> None:
    """Raise :class:`RowError` if a new log of ``partition`` (None: 0) would refuse its first row, so that none is
    made for it."""
    _check_partition(row, partition or 0, 0, "a new log")
    limits = LogConfig()
    builder = BatchBuilder(min(limits.max_message_bytes, limits.segment_bytes), timestamp_max=TIMESTAMP_MAX)
    if not builder.append(row.value, row.key, row.headers, -1 if row.timestamp is None else row.timestamp):
        raise _too_large(row, 0)


def _check_partition(row: Row, own: int, before: int, path: str) -> None:
    if row.partition not in (None, own):
        raise RowError(
            f"row {before + 1:,} of this run asks for partition {row.partition}; {path} holds partition {own} only. "
            "A cluster's topic with as many takes it; --partition is for rows without such a field; "
            "of rows as `replog cat` prints them these options leave partitions out: "
            "--value-field value --key-field key --timestamp-field timestamp --headers-field headers"
        )


class _Told(logging.Handler):
    """Keeps the warnings of ``pyreplog``: the command is the application, so it must print them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging``."""
        self.lines.append(record.getMessage())


class ShownRecovery:
    """Shows the progress of a recovery at ``path``, and then its result."""

    def __init__(self, path: str, *, forced: bool) -> None:
        self._path = os.path.abspath(path)
        self._told = _Told()
        self._progress = ProgressBar("recovered", forced=forced, sized=True)

    def tell(self, now: RecoveryProgress) -> None:
        """As ``open_log`` calls it: by one thread at a time."""
        if not now.scanned_size:
            self._progress.turn(f"{printable(os.path.relpath(now.directory, self._path))}: recovered", now.total_size)
        self._progress.add(now.scanned_size - self._progress.count)

    def __enter__(self) -> ShownRecovery:
        logging.getLogger("pyreplog").addHandler(self._told)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logging.getLogger("pyreplog").removeHandler(self._told)
        self._progress.close()
        for line in self._told.lines:
            say(f"replog: {line}")


@contextmanager
def open_target(
    path: str,
    *,
    topic: str | None,
    partition: int | None,
    durability: Literal["sync", "os"] | None,
    permissions: Permissions,
    lock_timeout: float,
    progress: bool = False,
) -> Iterator[RowTarget]:
    """Open ``path``: a cluster's folder (its nodes are started), else a log, which is made if there is none.
    ``partition``: the log's, or that of rows that name none. ``progress``: say how far a recovery is even if no
    terminal shows it."""
    if not is_cluster(path):
        before = _topics_of(path)
        with ShownRecovery(path, forced=progress) as recovery:
            opened = open_log(
                path,
                topic=topic,
                partition=partition,
                durability=durability,
                progress=recovery.tell,
                permissions=permissions,
                lock_timeout=lock_timeout,
            )
        with opened as log:
            public = [name for name in before if not is_internal(name)]
            if public and log.topic not in before:
                near = meant(log.topic, public)
                say(f"replog: {path} had no topic {log.topic} (but {', '.join(public)}): it is made now{near}")
            yield LogTarget(log)
        return
    if durability is not None:
        raise ConfigError("--durability is for a new log; a cluster's topics have theirs")
    with ShownRecovery(path, forced=progress) as recovery:
        started = Cluster(path, progress=recovery.tell, permissions=permissions, lock_timeout=lock_timeout)
    with started as cluster:
        names = tuple(cluster.admin.topics(internal=topic is not None and is_internal(topic)))
        if topic is None:
            if len(names) != 1:
                raise UnknownTopicError(
                    f"{path} is a cluster's folder: name a topic with --topic; it has {', '.join(names) or 'none'}"
                )
            topic = names[0]
        if topic not in names:
            raise UnknownTopicError(f"{path} has no topic {topic!r}{suggestion(topic, names) if names else ''}")
        with cluster.producer() as producer:
            config = LogConfig.from_mapping(dict(cluster.admin.describe(topic).config))
            yield TopicTarget(producer, topic, config, partition)
