"""open_log: one durable log in a folder, and ``Log``, its face.

The folder is a Kafka log root with one partition in it. A log opened for writing belongs to one
process; readers need no lock and may come and go while it is written. Everything here is
thread-safe, except that one thread at a time iterates over the log itself (``read`` has no
position, so any number may).
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, SupportsIndex, overload

from pyreplog.arrow import rows_of
from pyreplog.client import Acks
from pyreplog.config import MAX_BATCH_BYTES, LogConfig, Permissions, listed, whole
from pyreplog.errors import (
    OffsetOutOfRangeError,
    ReadOnlyError,
)
from pyreplog.ports import Buffer, Clock, Disk, Headers
from pyreplog.record import Ack
from pyreplog.runtime.at_exit import forget, remember
from pyreplog.runtime.log_opening import LogOpening, log_name
from pyreplog.runtime.log_place import LogPart, LogPlace, close_parts
from pyreplog.runtime.log_reading import LogReading
from pyreplog.runtime.log_writer import LogWriter
from pyreplog.runtime.open_options import OpenOptions
from pyreplog.runtime.read_position import ReadPosition
from pyreplog.runtime.spool_watcher import SpoolWatcher
from pyreplog.runtime.views import (
    CommittedView,
    LogView,
    ReaderView,
    WriterView,
)
from pyreplog.system import current_process
from pyreplog.values import Compaction, LogStats, RecoveryProgress, TopicPartition

if TYPE_CHECKING:
    from pyreplog.runtime.named_consumer import NamedConsumer
    from pyreplog.runtime.named_position import OnDataLoss, Start
    from pyreplog.runtime.queue import Queue

if TYPE_CHECKING:
    from pyreplog.runtime.table import Table

__all__ = ["Log", "open_log"]


def open_log(
    path: str | os.PathLike[str],
    mode: Literal["a", "r"] = "a",
    *,
    topic: str | None = None,
    partition: int | None = None,
    durability: Literal["sync", "os"] | None = None,
    config: Mapping[str, object] | LogConfig | None = None,
    buffer_memory: int | None = None,
    max_block_ms: float | None = None,
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    above_high_watermark: bool = False,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    progress: Callable[[RecoveryProgress], None] | None = None,
    permissions: Permissions = "owner",
    lock_timeout: float | None = 0,
    create: bool = True,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> Log:
    """Open the log in the folder ``path``: ``"a"`` to append and read (made if it is not there),
    ``"r"`` to read only.

    ``topic``: default the folder's name, or the only topic that is there; another name makes one
    more topic beside those that are. ``partition``: default the only partition that the topic has,
    0 in a new log. If the topic has several partitions and none is named, ConfigError: a log is one
    partition, and ``Cluster(path, mode="r")`` reads the whole topic. ``durability``: ``"sync"``
    (default for a new log, and for a broker's that is written the first time: an append is on
    stable storage when it returns) or ``"os"`` (in the page cache: survives the process, not power
    loss); it is stored with the log, and another one later is refused. ``config``: a topic's
    settings by Kafka's keys, stored with the log; those that are given later replace the ones that
    are stored. A LogConfig, such as another log's ``config``, is taken whole, with its defaults;
    its ``durability`` only if none is given beside it. ``buffer_memory``: the bytes (default 64
    MiB) that ``append_nowait`` and ``wait=False`` may leave waiting for the disk; beyond, such an
    append waits for room, at most ``max_block_ms`` (default 60,000; 0: not at all), and then raises
    BufferExhaustedError. ``isolation``: ``"read_committed"`` reads as Kafka's consumers of that
    setting do: up to the last stable offset, without the records of aborted transactions (which
    only a broker's folder has: nothing here writes any). ``above_high_watermark`` (``"r"`` only):
    read up to the last whole batch, for a log whose high watermark is stale: the copy of a broker's
    folder, or of one whose writer lost power. No acknowledgement vouches for records above it, and
    a leader may truncate them. ``max_batch_bytes``: the bytes (default 1 GiB) that readers unpack
    of one compressed batch, in parts of a few MiB; a batch that takes more is a BatchTooLargeError.
    ``progress`` is called while a log is recovered that was not closed cleanly, for every piece
    that was checked, by several threads, one at a time; its exceptions end the opening. A recovery
    of more than a second is logged besides (INFO). ``permissions``: ``"owner"`` writes only in
    folders that no other user may write to, and makes new folders 0700 and new files 0600;
    ``"group"`` also takes folders, of any owner, that a group of this process may write to, and
    makes 0770 (with the parent's setgid bit) and 0660; ``"any"`` checks nothing, and the umask
    decides. It is not stored with the log: give it at each opening. ``lock_timeout``: the seconds
    to wait (default 0; None: for ever) for another opening, in this process or another, to close
    the log. ``create=False`` opens only a log that exists; a new one is not made (StorageNotFoundError
    or UnknownTopicError, as for ``"r"``). ``disk`` and ``clock`` replace the machine's own, for tests.

    Raises LockedError (with the holder) when another opening still writes it after
    ``lock_timeout``, ConfigError for a setting that cannot be, another durability or a folder that
    is a cluster's or a partition's, InvalidTopicError for a name that cannot be a topic's (of a new
    log also the folder's, if ``topic`` is not given), StorageError if the disk refuses (for ``"r"``
    and ``create=False`` StorageNotFoundError, a FileNotFoundError, if there is no log, and UnknownTopicError if there
    are only others; StoragePermissionError, a PermissionError), CorruptLogError if acknowledged
    records can no longer be read.
    """
    options = OpenOptions(
        topic, partition, durability, config, buffer_memory, max_block_ms, isolation, above_high_watermark,
        max_batch_bytes, progress, permissions, lock_timeout, create, disk, clock,
    )  # fmt: skip
    return LogOpening(path, options).open(mode, Log)


class Log(LogReading):
    """One partition, opened by :func:`open_log`. Use it in ``with``, or call ``close``.

    Iterating reads from ``position`` on and moves it, as with a file, and stops at the end as it
    was when the loop began.
    """

    def __init__(
        self,
        path: str,
        view: WriterView | ReaderView | CommittedView,
        writer: LogWriter | None,
        watcher: SpoolWatcher | None,
        place: LogPlace,
    ) -> None:
        """Made by :func:`open_log`."""
        #: Where the log lies, and the objects that close with it: named readers, queues, tables.
        self._place = place
        self._parts: weakref.WeakSet[LogPart] = weakref.WeakSet()
        self._path = path
        self._name = log_name(path)
        self._view = view
        self._writer = writer
        self._closed = False
        self._process = current_process()
        self._position = ReadPosition(view.start_offset)
        if writer is not None:
            if not writer.nowait.bounded:
                # The same face, and fewer calls for each record.
                self.append_nowait = writer.nowait.append_unbounded  # type: ignore[method-assign]
            remember(writer)
        self._watcher = watcher
        if watcher is not None:
            watcher.start()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Log cannot be copied or pickled: open it in each process that needs it; any number may read it with"
            " mode='r'"
        )

    # ------------------------------------------------------------------------------------ appending

    @overload
    def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
        wait: Literal[True] = True,
    ) -> int: ...
    @overload
    def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
        wait: Literal[False],
    ) -> Ack: ...
    def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
        wait: bool = True,
    ) -> int | Ack:
        """Append one record and return its offset once the record is as durable as the log's ``durability``
        promises.

        ``value`` and ``key`` are bytes (or None); ``timestamp`` in ms since 1970, or an aware
        datetime (default: now). Threads that wait share one sync. ``wait=False`` is
        :meth:`append_nowait`. Raises TypeError for a ``str``, ValueError for a memoryview or array
        with gaps between its bytes, ConfigError for a naive datetime and a time before 1970 (-1
        means none), MessageTooLargeError above max.message.bytes, InvalidTimestampError outside
        message.timestamp.before.max.ms and .after.max.ms, StorageError if the disk refuses: nothing
        was appended then. OutcomeUnknownError if a refused write could not be undone; its kind
        UnsyncedError (a StorageError and a ClosedError, too) if the sync failed, here or in another
        thread: the next opening of the log shows which records are there.
        """
        if wait:
            return self._writing().append(value, key, headers, timestamp)
        return self._writing().nowait.append(value, key=key, headers=headers, timestamp=timestamp)

    @overload
    def append_many(
        self,
        values: Iterable[Buffer | None],
        *,
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps: Sequence[int | datetime] | None = None,
        wait: Literal[True] = True,
    ) -> range: ...
    @overload
    def append_many(
        self,
        values: Iterable[Buffer | None],
        *,
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps: Sequence[int | datetime] | None = None,
        wait: Literal[False],
    ) -> Acks: ...
    def append_many(
        self,
        values: Iterable[Buffer | None],
        *,
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps: Sequence[int | datetime] | None = None,
        wait: bool = True,
    ) -> range | Acks:
        """Append many records as one batch (several in order above max.message.bytes) and return
        the range of their offsets.

        ``keys``, ``headers`` and ``timestamps``, if given, are as long as ``values``. A value or a
        time that is refused leaves nothing behind. If the disk refuses one of several batches,
        OutcomeUnknownError says which records are there. ``wait=False`` returns :class:`Acks` as
        soon as the records are written: ``acks.result()``, ``await acks``, ``acks[0]``. The Acks
        tell their outcome; BufferExhaustedError if too much waits for the disk already.
        """
        if not isinstance(values, (list, tuple)):
            values = listed(values, "append_many", "append")
        if wait:
            return self._writing().append_many(values, keys, headers, timestamps)
        return self._writing().append_many_nowait(values, keys, headers, timestamps)

    @overload
    def append_arrow(self, table: object, *, wait: Literal[True] = True) -> range: ...
    @overload
    def append_arrow(self, table: object, *, wait: Literal[False]) -> Acks: ...
    def append_arrow(self, table: object, *, wait: bool = True) -> range | Acks:
        """Append the rows of an Arrow table, record batch or stream, and return the range of their
        offsets, as :meth:`append_many` would.

        ``table``: whatever has ``__arrow_c_stream__`` or ``__arrow_c_array__`` (pyarrow, Polars,
        DuckDB, pandas, another log's ``scan()``); a stream is read to its end first. Columns:
        ``value`` and, if there, ``key`` (binary or string, which is taken as UTF-8), ``headers``
        (list of structs of key and value, or map) and ``timestamp`` (timestamp of any unit with a
        time zone, or int64 in ms; without it: now; null, or the number -1: none). The other columns
        of a scan, or of a Spark frame of records, are left out: the log gives its own.

        Raises TypeError for an object that is no table and for a column of another type,
        ConfigError for an unknown column, without ``value``, for timestamps without a time zone and
        for values that no record can hold, MessageTooLargeError for a row above max.message.bytes,
        InvalidTimestampError outside message.timestamp.before.max.ms and .after.max.ms: nothing was
        appended then.
        """
        rows = rows_of(table)
        return self._writing().append_arrow(rows) if wait else self._writing().append_arrow_nowait(rows)

    def append_nowait(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
    ) -> Ack:
        """Append one record soon and return its :class:`Ack` at once: ``ack.result()``, ``await
        ack``, ``ack.offset``.

        Records gather into batches, which are written when full, when a caller waits, or about a
        millisecond later. It waits itself only if very much is waiting for the disk.
        """
        return self._writing().nowait.append(value, key=key, headers=headers, timestamp=timestamp)

    def flush(self) -> None:
        """Make everything appended so far durable, under durability ``"os"`` and for
        ``append_nowait`` too."""
        self._writing().flush()

    def delete_records(self, before: int | None = None) -> int:
        """Delete every record below the offset ``before`` (default: all that readers may see), and
        return the first one left.

        They are gone for good when this returns, and ``position`` is not below that; the disk gets
        room back for whole segments, after ``file.delete.delay.ms``. Raises OffsetOutOfRangeError
        if ``before`` lies above the high watermark.
        """
        if before is not None:
            before = whole("before", before)
        if before is not None and before < 0:
            raise OffsetOutOfRangeError(before, self.start_offset, self.high_watermark, log=self._name)
        start = self._writing().delete_records(-1 if before is None else before)
        self._position.raise_to(start)
        return start

    def apply_retention(self) -> int:
        """Delete now the segments that ``retention.bytes`` and ``retention.ms`` allow, believing
        this machine's clock; return their number.

        It happens by itself every five minutes and whenever a segment is full, while the log is
        open.
        """
        count = self._writing().apply_retention()
        self._position.raise_to(self._view.start_offset)
        return count

    def queue(
        self,
        name: str,
        offsets: str | os.PathLike[str] | None = None,
        dead_letters: str | os.PathLike[str] | None = None,
    ) -> Queue:
        """Return a worker of the queue ``name`` of this log: each record goes to one worker, until it is accepted.

        Any number of workers, in any processes, in mode ``"a"`` and ``"r"``. A new queue begins at
        the first record. ``name``: 1 to 200 of ``A-Z a-z 0-9 . _ -``. ``offsets``: another folder
        for the queue's journal, the same for all its workers: for a log in whose folder this user
        may not write, and for a broker's. ``dead_letters``: the folder of the log of dead letters
        (default: the log's folder with ``.dlq`` behind it).

        Raises ConfigError for a wrong name and for a broker's folder without ``offsets``,
        TopicRecreatedError if the log was made again since, CorruptError if the journal is damaged,
        StorageError if the disk refuses.
        """
        from pyreplog.runtime.queue_opening import open_queue  # noqa: PLC0415  (slow to load)

        self._check()
        queue = open_queue(self._place, self._view, name, offsets, dead_letters, self._parts.discard)
        self._parts.add(queue)
        return queue

    def consumer(
        self,
        name: str,
        offsets: str | os.PathLike[str] | None = None,
        dead_letters: str | os.PathLike[str] | None = None,
        lock_timeout: float | None = 0,
        auto_commit: bool = False,
        start: Start = "earliest",
        on_data_loss: OnDataLoss = "raise",
    ) -> NamedConsumer:
        """Return the reader ``name`` of this log, which keeps its place in a file beside the log.

        It begins behind the last commit of the name. In any process; one consumer of a name at a time. ``name``: 1 to
        200 of ``A-Z a-z 0-9 . _ -``. ``offsets``: another folder for the file, for a log in whose folder this user may
        not write, and for a broker's. ``dead_letters``: the folder of the log of dead letters (default: the log's
        folder with ``.dlq`` behind it). ``lock_timeout``: how many seconds to wait for another consumer of the name to
        end (None: for ever). ``auto_commit``: a record is committed when the next one is asked for, the records of a
        ``poll`` at the next poll. ``start``: where a new name begins: "earliest", "latest", an offset, or a datetime
        with a time zone. ``on_data_loss``: "raise", or where to go on if the records at its place are gone: "earliest"
        or "latest".

        Raises LockedError (with the holder) if the name is in use, ConfigError for a wrong argument and for a broker's
        folder without ``offsets``, StorageError, CorruptError if the file of the name is damaged.
        """
        from pyreplog.runtime.reader_opening import ReaderOptions, open_log_reader  # noqa: PLC0415  (slow to load)

        self._check()
        consumer = open_log_reader(
            self._place,
            TopicPartition(self.topic, self.partition),
            ReaderOptions.checked(name, auto_commit, start, on_data_loss),
            (offsets, dead_letters),
            lock_timeout,
            self._parts.discard,
        )
        self._parts.add(consumer)
        return consumer

    def compact(self) -> Compaction:
        """Keep only the newest record of each key, of all that is committed now, and return the
        counts.

        For a log with ``cleanup.policy`` ``compact`` or ``compact,delete``; it happens by itself
        when ``min.cleanable.dirty.ratio`` asks for it. The segment being written is closed first.
        Records keep their offsets, so offsets are missing from then on. Appends and readers go on.
        Raises ConfigError for a log that is not compacted, CorruptLogError for damage, which is
        never compacted away.
        """
        return self._writing().compactor.run()

    def table(
        self, store: str | os.PathLike[str] | None = None, *, progress: Callable[[int, int], object] | None = None
    ) -> Table:
        """Return the latest value of each key, as a Mapping of bytes to bytes that follows the log.

        Its files lie beside the log, or in the folder ``store``, for a log in whose folder this user may not write, and
        for a broker's. All processes that open it share them; the first opening makes it from the whole log, a later
        one goes on. ``progress(next_offset, end)`` is called while it is made. Every record needs a key: one without is
        an UnkeyedRecordError. Raises ConfigError for a broker's folder without ``store``, StorageError,
        CorruptLogError.
        """
        from pyreplog.runtime.table_opening import open_log_table  # noqa: PLC0415  (slow to load)

        self._check()
        table, part = open_log_table(self._place, self._view, self._name, store, progress)
        self._parts.add(part)
        return table

    # ---------------------------------------------------------------------------------------- facts

    @property
    def path(self) -> str:
        """The folder."""
        return self._path

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._view.topic

    @property
    def topic_id(self) -> str:
        """The topic's id, another one for each log that is made under its name; "" if a broker from before Kafka 2.8
        made it."""
        return self._view.topic_id

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self._view.partition

    @property
    def mode(self) -> Literal["a", "r"]:
        """``"a"`` or ``"r"``."""
        return "r" if self._writer is None else "a"

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @property
    def position(self) -> int:
        """The offset at which iterating goes on."""
        return self._position.offset

    @property
    def start_offset(self) -> int:
        """The first offset that is there."""
        return self._refreshed().start_offset

    @property
    def end_offset(self) -> int:
        """The offset the next record gets. For a reader: the high watermark."""
        return self._refreshed().log_end_offset

    @property
    def high_watermark(self) -> int:
        """Readers see the records below: the flushed end under durability ``sync``, the written end
        under ``os``; with isolation ``"read_committed"`` the last stable offset."""
        return self._refreshed().end_offset

    @property
    def last_stable_offset(self) -> int:
        """The start of the oldest open transaction; the high watermark if none is open."""
        return self._refreshed().last_stable_offset

    @property
    def durability(self) -> str:
        """``"sync"`` or ``"os"``."""
        return self.config.durability

    @property
    def config(self) -> LogConfig:
        """The log's settings."""
        self._check()
        return self._view.config

    def stats(self) -> LogStats:
        """Numbers of the log, and of its work since it was opened."""
        self._check()
        return self._view.stats()

    # -------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Write and sync everything and release the folder. A second call is harmless: it completes a close that
        Ctrl-C interrupted, and waits for one that another thread runs. Raises the first failure; the log is closed
        all the same."""
        self._closed = True
        try:
            close_parts(self._parts)
        finally:
            _close(self._view, self._writer, self._watcher)

    def __enter__(self) -> Log:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<pyreplog.Log {self._path!r} topic {self._view.topic!r} mode"
            f" {self.mode!r}{' closed' if self._closed else ''}>"
        )

    def __del__(self) -> None:
        # No input or output here: it would happen at any moment in any thread. The process's exit #
        # closes it.
        if not hasattr(self, "_closed") or self._writer is None or self._writer.released:
            return
        self._writer.is_told_of = True
        self._writer.abandoned = partial(_close, self._view, self._writer, self._watcher)
        text = f"unclosed log {self!r}; it stays open until it is opened again, or the process ends"
        warnings.warn(text, ResourceWarning, source=self, stacklevel=2)

    def _writing(self) -> LogWriter:
        if self._writer is None:
            raise ReadOnlyError(f"{self._name} was opened with mode='r': open it with mode='a' to write")
        return self._writer


def _close(view: LogView, writer: LogWriter | None, watcher: SpoolWatcher | None) -> None:
    """Close everything that one opening made."""
    if watcher is not None:
        watcher.stop()
    try:
        view.close()
    finally:
        if writer is not None and writer.released:  # otherwise it is closed at exit
            forget(writer)
