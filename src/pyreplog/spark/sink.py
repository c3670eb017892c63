"""The sink: what Spark calls, in its own processes, to write a batch or a stream.

Tasks encode rows into record batches and stage them in files; the driver publishes them as one batch, and the owner
of the log appends it once (:mod:`pyreplog.spool`). What travels between Spark's processes is plain data.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyreplog.config import INT32_MAX
from pyreplog.errors import ConfigError, InvalidRecordError, InvalidRequestError
from pyreplog.ports import File
from pyreplog.record import HEADER_SIZE, RowEncoder, xxh64
from pyreplog.runtime import BackgroundSyncs
from pyreplog.spark.schema import Field
from pyreplog.spark.sink_commit import commit_batch, commit_nothing, withdraw_batch
from pyreplog.spark.sink_options import WriteOptions, check_columns
from pyreplog.spark.sink_target import SinkTarget, find_target
from pyreplog.spool import BatchId, Spool, StagedFile, StagedWriter
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition

__all__ = ["ReplogStreamWriter", "ReplogWriter", "Staged"]

GATHERED_SIZE_MAX: Final = 64 << 20
"""With more than this in batches that are not full, a task writes them as they are."""
AHEAD_COUNT: Final = 4
"""So many of Spark's batches are taken from it before they are encoded."""
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_LARGE: Final = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}

_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", object)  # Spark 4.0 has none


@dataclass
class Staged(WriterCommitMessage):
    """What one task staged: its number, and the file, if it had any rows."""

    query: str
    batch: int
    task: int
    file: tuple[str, int, int, int, int, int | None] | None


class _FileSyncs:
    """Has the disk at work on one file while Spark still hands over rows. Belongs to one thread."""

    def __init__(self, disk: SystemDisk) -> None:
        self._syncs = BackgroundSyncs(disk)

    def begin(self, file: File) -> None:
        """See :class:`pyreplog.spool.Syncs`."""
        self._syncs.begin([file])

    def finish(self, file: File) -> None:
        """See :class:`pyreplog.spool.Syncs`. The last sync waits for those before it: one of them raises the error,
        and only one."""
        self.begin(file)
        for ended in self._syncs.rest():
            for done in ended:
                if done.error is not None:
                    raise done.error


class _Stage:
    """Stages the rows of one task. :meth:`run` it once; it encodes and writes in a thread of its own, so that Spark
    is kept waiting for neither."""

    def __init__(self, options: WriteOptions, columns: Sequence[str], batch_id: BatchId, task: int) -> None:
        self._options = options
        self._columns = [name for name in columns if name != "topic"]
        self._by_column = "topic" in columns
        disk = self._disk = SystemDisk(permissions=options.permissions)
        self._target: SinkTarget = find_target(disk, options.path, options.topic, by_column=self._by_column)
        self._writer: StagedWriter | None = None
        self._spool = Spool(disk, options.path)
        self._batch_id = batch_id
        self._task = task
        self._turn = task
        self._encoders: dict[str, RowEncoder] = {}
        self._keyed: set[str] = set()
        """The topics whose records must have keys."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> StagedFile | None:
        """Everything there is; None where that is nothing."""
        try:
            self._take_all(batches)
            for topic, encoder in self._encoders.items():
                self._put(topic, encoder.drain())
            if self._writer is None:
                return None
            return self._writer.finish(sum(encoder.row_sum for encoder in self._encoders.values()) % 2**64)
        except BaseException:
            if self._writer is not None:
                self._writer.discard()
            raise
        finally:
            self._disk.close()

    def _take_all(self, batches: Iterator[pa.RecordBatch]) -> None:
        pending: deque[Future[None]] = deque()
        with ThreadPoolExecutor(1, "pyreplog stage") as encoder:
            try:
                for batch in batches:
                    if len(pending) == AHEAD_COUNT:
                        pending.popleft().result()
                    if batch.num_rows:
                        pending.append(encoder.submit(self._take, batch))
                while pending:
                    pending.popleft().result()
            except BaseException:
                encoder.shutdown(wait=False, cancel_futures=True)
                raise

    def _take(self, batch: pa.RecordBatch) -> None:
        now_ms = time.time_ns() // 1_000_000
        if not self._by_column:
            assert self._target.topic is not None, "no column, so the folder or the option says"
            self._encode(self._target.topic, batch, now_ms)
        else:
            import pyarrow.compute as pc  # noqa: PLC0415  (slow to load, and seldom needed)

            topics = batch.column("topic")
            if topics.null_count:
                raise InvalidRequestError("a row has a null in column 'topic', and option 'topic' is not set")
            for topic in pc.unique(topics).to_pylist():
                self._encode(topic, batch.filter(pc.equal(topics, topic)), now_ms)
        self._turn += 1
        if sum(encoder.size for encoder in self._encoders.values()) > GATHERED_SIZE_MAX:
            for topic, encoder in self._encoders.items():
                self._put(topic, encoder.drain())

    def _encode(self, topic: str, batch: pa.RecordBatch, now_ms: int) -> None:
        encoder = self._encoders.get(topic)
        if encoder is None:
            size = min(self._options.batch_bytes, self._target.batch_limit(self._disk, topic))
            # A row that still does not fit gets a batch of its own, and the owner accepts or
            # refuses it.
            seed = xxh64(topic.encode())
            encoder = self._encoders[topic] = RowEncoder(
                self._target.count(topic), max(size, HEADER_SIZE + 1), INT32_MAX, seed
            )
            if self._target.needs_keys(self._disk, topic):
                self._keyed.add(topic)
        if topic in self._keyed and ("key" not in self._columns or batch.column("key").null_count):
            raise InvalidRecordError(
                f"a row has no key, and topic {topic!r} is compacted (cleanup.policy): it keeps the newest record of"
                " each key; nothing of this batch was appended. Give each row a key"
            )
        columns = [_plain(batch.column(name)) for name in self._columns]
        rows = pa.RecordBatch.from_arrays(columns, names=self._columns)
        self._put(topic, encoder.add(rows, now_ms, self._turn % encoder.partition_count))

    def _put(self, topic: str, batches: Sequence[tuple[int, bytes]]) -> None:
        if not batches:
            return
        if self._writer is None:
            # No two attempts ever have one name: an attempt that lost may still be writing.
            self._writer = self._spool.stage(self._batch_id, f"{self._task}-{token_hex(8)}", _FileSyncs(self._disk))
        self._writer.add([(TopicPartition(topic, partition), data) for partition, data in batches])


def _plain(column: pa.Array) -> pa.Array:
    """With 32-bit offsets, as the encoder takes it."""
    plain = _LARGE.get(column.type)
    if plain is not None:
        return column.cast(plain)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        if pa.types.is_null(column.type.value_type):
            return _no_headers(column)
        return column if not _has_large(column.type) else column.cast(_HEADERS)
    return column


def _no_headers(column: pa.Array) -> pa.Array:
    """Lists of no type, as ``array()`` makes them: none has a header."""
    if len(column.flatten()):
        raise InvalidRequestError(
            "column headers is array<void>, and a row has a header there, which is null: it must be a struct of key and"
            " value"
        )
    return pa.nulls(len(column), _HEADERS)


_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _has_large(kind: pa.DataType) -> bool:
    return pa.types.is_large_list(kind) or any(field.type in _LARGE for field in kind.value_type)


class ReplogWriter(DataSourceArrowWriter):
    """One batch write. Plain data: made in the driver, copied to the tasks."""

    def __init__(self, options: WriteOptions, fields: Sequence[Field]) -> None:
        """Look at the path, and name the write."""
        self._options = options
        self._columns = check_columns(fields, options.topic)
        self._batch_id = options.batch_id or BatchId(f"once-{token_hex(16)}", 0)
        prepare(options, self._columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task: stage its rows."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        file = _Stage(self._options, self._columns, self._batch_id, task).run(iterator)
        return Staged(*self._batch_id, task, file)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done: make their rows one batch, and wait until it is in the log."""
        commit(self._options, self._columns, self._batch_id, messages, once=self._options.batch_id is None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Some task, or the commit, failed: leave nothing behind."""
        withdraw_batch(
            SystemDisk(permissions=self._options.permissions),
            self._options.path,
            self._batch_id,
            files_of(messages),
            once=self._options.batch_id is None,
        )


class ReplogStreamWriter(_StreamWriter):  # type: ignore[misc]
    """A stream's writes, batch by batch. The query's id and the batch's number are Spark's, the same whenever it is
    run again."""

    def __init__(self, options: WriteOptions, fields: Sequence[Field]) -> None:
        """Look at the path."""
        if _StreamWriter is object:
            raise ConfigError(
                "streams can be written with PySpark 4.1 and newer; with this one, write each batch by foreachBatch"
            )
        self._options = options
        self._columns = check_columns(fields, options.topic)
        if options.batch_id is not None:
            raise ConfigError(
                "txnAppId and txnVersion are for batch writes; a stream has a name and numbers of its own"
            )
        prepare(options, self._columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task of one batch: stage its rows."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(_BATCH_ID) if context is not None else None
        if context is None or query is None or batch is None:
            raise InvalidRequestError("this task has no query id and batch number: Spark did not pass them")
        task = context.partitionId()
        file = _Stage(self._options, self._columns, BatchId(query, int(batch)), task).run(iterator)
        return Staged(query, int(batch), task, file)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a batch are done."""
        batch_id = _id_of(messages, batchId)
        if batch_id is not None:
            commit(self._options, self._columns, batch_id, messages, once=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Some task of a batch, or its commit, failed."""
        batch_id = _id_of(messages, batchId)
        if batch_id is not None:
            withdraw_batch(
                SystemDisk(permissions=self._options.permissions),
                self._options.path,
                batch_id,
                files_of(messages),
                once=False,
            )


def prepare(options: WriteOptions, columns: Sequence[str]) -> None:
    """Check the path, and make the folder if it is missing, because tasks stage there."""
    disk = SystemDisk(permissions=options.permissions)
    find_target(disk, options.path, options.topic, by_column="topic" in columns)
    if disk.stat(options.path) is None:
        disk.make_directory(options.path)


def commit(
    options: WriteOptions,
    columns: Sequence[str],
    batch_id: BatchId,
    messages: Sequence[WriterCommitMessage | None],
    *,
    once: bool,
) -> None:
    """Publish the tasks' files, in the order of the tasks, and wait for the log to have them."""
    files = files_of(messages)
    disk = SystemDisk(permissions=options.permissions)
    keep = options.applied_batch == "keep"
    target = find_target(disk, options.path, options.topic, by_column="topic" in columns)
    own = options.owner == "any" and not target.is_cluster
    timeout_s = options.commit_timeout_ms / 1000
    if not files:
        topic = target.topic if own and target.topic not in target.counts else None
        commit_nothing(disk, options.path, batch_id, keep=keep, topic=topic, once=once, timeout_s=timeout_s, own=own)
        return
    commit_batch(disk, options.path, batch_id, files, once=once, timeout_s=timeout_s, own=own, keep=keep)


def files_of(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    """Return the staged files, in the order of the tasks."""
    staged = [message for message in messages if isinstance(message, Staged)]
    return [
        StagedFile(*message.file)
        for message in sorted(staged, key=lambda message: message.task)
        if message.file is not None
    ]


def _id_of(messages: Sequence[WriterCommitMessage | None], batch: int) -> BatchId | None:
    for message in messages:
        if isinstance(message, Staged):
            return BatchId(message.query, batch)
    return None
