"""``open_log`` for asyncio, and the ``Log`` that it returns: the same names, awaited.

It works on any event loop of asyncio's kind (uvloop too), and nothing here blocks the loop. An
append goes into the open batch without a lock, a disk or a thread, and the caller awaits its Ack;
the background thread writes and syncs. Every call that may wait for the disk or a lock runs in
threads of this log.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Literal, NoReturn, ParamSpec, SupportsIndex, TypeVar, overload

from pyreplog import runtime
from pyreplog.aio.calls import ThreadCalls
from pyreplog.aio.follow import follow, in_chunks
from pyreplog.aio.log_parts import LogParts
from pyreplog.aio.opening import Opening
from pyreplog.aio.records import Items, Records
from pyreplog.arrow import Scan
from pyreplog.client import Acks
from pyreplog.config import MAX_BATCH_BYTES, LogConfig, Permissions
from pyreplog.errors import ClosedError, CorruptLogError, PyreplogError
from pyreplog.ports import Buffer, Clock, Disk, Headers
from pyreplog.record import Ack, Record
from pyreplog.values import Compaction, LogStats, RecoveryProgress

__all__ = ["Log", "open_log"]

P = ParamSpec("P")
T = TypeVar("T")


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
) -> Opening[Log]:
    """Open a log as :func:`pyreplog.open_log` does, by ``await`` or ``async with``.

    ``log = await open_log(path)``, or ``async with open_log(path) as log``. ``progress`` is not
    called on the event loop: it must use ``loop.call_soon_threadsafe`` to reach the loop.
    Cancelling ends a wait of ``lock_timeout``.
    """
    opening = partial(
        runtime.open_log,
        path,
        mode,
        topic=topic,
        partition=partition,
        durability=durability,
        config=config,
        buffer_memory=buffer_memory,
        max_block_ms=max_block_ms,
        isolation=isolation,
        above_high_watermark=above_high_watermark,
        max_batch_bytes=max_batch_bytes,
        progress=progress,
        permissions=permissions,
        lock_timeout=0 if mode == "a" else lock_timeout,
        create=create,
        disk=disk,
        clock=clock,
    )
    folder = runtime.folder_of(path)
    wait = partial(runtime.log_wait, folder, lock_timeout)
    return Opening(os.path.basename(folder), Log, lambda: _Opened(opening()), wait)


class _Opened:
    """A log and its ``config``, both read in the thread that opened the log."""

    def __init__(self, log: runtime.Log) -> None:
        self.log = log
        self.config: LogConfig | PyreplogError | None = None
        if log.mode == "r":
            try:
                self.config = log.config
            except PyreplogError as error:
                self.config = error

    def close(self) -> None:
        """Close the log."""
        self.log.close()


class Log(LogParts):
    """One partition, opened by :func:`open_log`, for coroutines of one event loop.

    Names and errors are those of :class:`pyreplog.Log`. Calls that read the disk there are awaited
    here, properties too (``await log.end_offset``). Cancelling a coroutine that waits for an append
    stops the waiting, not the append: the record is appended once, and may still be acknowledged.
    """

    def __init__(self, opened: _Opened, calls: ThreadCalls) -> None:
        """Use :func:`open_log` to make one."""
        self._log = log = opened.log
        self._config = opened.config
        self._calls = calls
        self._writer = log._writer
        self._position = log.position
        self._move_count = 0
        self._closing: asyncio.Future[None] | None = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Log cannot be copied or pickled: open it in each process that needs it; any number may read it with"
            " mode='r'"
        )

    # ------------------------------------------------------------------------------------ appending

    @overload
    async def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
        wait: Literal[True] = True,
    ) -> int: ...
    @overload
    async def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
        wait: Literal[False],
    ) -> Ack: ...
    async def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
        wait: bool = True,
    ) -> int | Ack:
        """Append one record and return its offset, once it is as safe as the log's durability says.

        Coroutines that wait share syncs. ``wait=False``: return its :class:`Ack`, once it has its
        place in the log. See :meth:`pyreplog.Log.append`.
        """
        ack = await self.append_nowait(value, key=key, headers=headers, timestamp=timestamp)
        return (await ack).offset if wait else ack

    async def append_nowait(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
    ) -> Ack:
        """Append one record soon and return its :class:`Ack`: ``await ack``.

        It waits only if the buffer for unwritten records is full.
        """
        writer = self._writing()
        # Queue behind appends that wait for a thread, so that appends keep the order of their
        # calls.
        ack = None if self._calls.waiting_count else writer.nowait.try_append(value, key, headers, timestamp)
        if ack is not None:
            return ack
        return await self._append_later(writer.nowait.append, value, key=key, headers=headers, timestamp=timestamp)

    @overload
    async def append_many(
        self,
        values: Iterable[Buffer | None],
        *,
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps: Sequence[int | datetime] | None = None,
        wait: Literal[True] = True,
    ) -> range: ...
    @overload
    async def append_many(
        self,
        values: Iterable[Buffer | None],
        *,
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps: Sequence[int | datetime] | None = None,
        wait: Literal[False],
    ) -> Acks: ...
    async def append_many(
        self,
        values: Iterable[Buffer | None],
        *,
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps: Sequence[int | datetime] | None = None,
        wait: bool = True,
    ) -> range | Acks:
        """Append many records and return the range of their offsets.

        With ``wait=False`` return their :class:`Acks`. Do not change ``values`` and the other
        sequences until this returns. See :meth:`pyreplog.Log.append_many`.
        """
        acks = await self._append_later(
            self._log.append_many, values, keys=keys, headers=headers, timestamps=timestamps, wait=False
        )
        return await self._range_of(acks) if wait else acks

    @overload
    async def append_arrow(self, table: object, *, wait: Literal[True] = True) -> range: ...
    @overload
    async def append_arrow(self, table: object, *, wait: Literal[False]) -> Acks: ...
    async def append_arrow(self, table: object, *, wait: bool = True) -> range | Acks:
        """Append the rows of an Arrow table. See :meth:`pyreplog.Log.append_arrow`."""
        acks = await self._append_later(self._log.append_arrow, table, wait=False)
        return await self._range_of(acks) if wait else acks

    async def _append_later(self, append: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of ``append``, in its turn.

        Its wait for buffer space counts from now, so that later appends do not each wait the full
        time.
        """
        writer, since = self._writing(), time.monotonic()

        def call() -> T:
            writer.nowait.await_room(since)
            return append(*args, **kwargs)

        return await self._calls.write(call)

    async def _range_of(self, acks: Acks) -> range:
        """Return the range of the offsets of ``acks``, which are consecutive."""
        if not len(acks):
            end = await self._calls.read(lambda: self._log.end_offset)
            return range(end, end)
        first = await acks[0]
        for ack in acks.last_of_each():
            await ack
        return range(first.offset, first.offset + len(acks))

    async def flush(self) -> None:
        """Make everything appended so far durable, under durability ``"os"`` too."""
        self._writing()
        try:
            await self._calls.written()
            await self._calls.flush(self._log.flush)
        except ClosedError:
            if self._closing is None:
                raise
            # A close came in between, and makes the same records durable.
            await asyncio.shield(self._closing)

    async def delete_records(self, before: int | None = None) -> int:
        """Delete every record below ``before``, and return the new log start offset.

        See :meth:`pyreplog.Log.delete_records`.
        """
        start = await self._calls.write(self._log.delete_records, before)
        if self._position < start:
            self._go_to(start)
        return start

    async def apply_retention(self) -> int:
        """Delete segments now by the retention settings; return the number of deleted segments.

        See :meth:`pyreplog.Log.apply_retention`.
        """
        count = await self._calls.write(self._log.apply_retention)
        start = self._log._view.start_offset
        if self._position < start:
            self._go_to(start)
        return count

    async def compact(self) -> Compaction:
        """Keep only the newest record of each key: see :meth:`pyreplog.Log.compact`."""
        return await self._calls.write(self._log.compact)

    # -------------------------------------------------------------------------------------- reading

    def __aiter__(self) -> Records:
        """Iterate from ``position`` to the end as of the loop's start; ``position`` moves along."""
        moves = [-1]  # the number of moves when the current chunk was requested

        def take(record: Record) -> bool:
            if self._move_count != moves[0]:
                return False
            self._position = record.offset + 1
            return True

        return Records(self._from_position(moves), take)

    async def _from_position(self, moves: list[int]) -> AsyncGenerator[list[Record], None]:
        self._check()
        end = await self.high_watermark
        while True:
            moves[0] = self._move_count
            records = await self._calls.read(self._log.read, min(self._position, end), end)
            async for chunk in in_chunks(self._calls, records):
                if self._move_count != moves[0]:
                    break
                yield chunk
            if self._move_count == moves[0]:
                self._position = max(self._position, end)
                return

    def _go_to(self, offset: int) -> None:
        """Set ``position`` to ``offset``, for running loops, too."""
        self._position = offset
        self._move_count += 1

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        start_timestamp: int | datetime | None = None,
        end_timestamp: int | datetime | None = None,
        skip_damaged: bool | Callable[[CorruptLogError], object] = False,
    ) -> Records:
        """Iterate over the records of a range of offsets and timestamps.

        See :meth:`pyreplog.Log.read`; its errors are raised when the loop begins.
        """
        read = partial(
            self._log.read,
            start,
            end,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            skip_damaged=skip_damaged,
        )
        return Records(self._chunks(read))

    async def _chunks(self, read: Callable[[], Iterator[Record]]) -> AsyncGenerator[list[Record], None]:
        self._check()
        async for chunk in in_chunks(self._calls, await self._calls.read(read)):
            yield chunk

    def batches(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        skip_damaged: bool | Callable[[CorruptLogError], object] = False,
    ) -> Items[list[Record]]:
        """Iterate over the records of a range in lists, one for each batch.

        See :meth:`pyreplog.Log.batches`; its errors are raised when the loop begins.
        """
        return Items(self._batches(partial(self._log.batches, start, end, skip_damaged=skip_damaged)))

    async def _batches(self, batches: Callable[[], Iterator[list[Record]]]) -> AsyncGenerator[list[list[Record]], None]:
        self._check()
        lists = await self._calls.read(batches)
        while (batch := await self._calls.read(next, lists, None)) is not None:
            yield [batch]

    async def __getitem__(self, offset: int) -> Record:
        """Return the record at ``offset``: ``await log[5]``, ``await log[-1]`` for the last one.

        See :meth:`pyreplog.Log.__getitem__`. A log for coroutines has no ``len``; ``await
        log.high_watermark`` and ``await log.start_offset`` give it.
        """
        return await self._calls.read(self._log.__getitem__, offset)

    __iter__ = None

    def follow(
        self,
        start: int | None = None,
        *,
        timeout: float | None = None,
        skip_damaged: bool | Callable[[CorruptLogError], object] = False,
    ) -> Records:
        """Iterate over the records from ``start`` on, and over each new one as soon as it can be
        read.

        See :meth:`pyreplog.Log.follow`.
        """
        return Records(self._follow(start, timeout, skip_damaged))

    async def _follow(
        self, start: int | None, timeout: float | None, skip_damaged: bool | Callable[[CorruptLogError], object]
    ) -> AsyncGenerator[list[Record], None]:
        self._check()
        begin, patience = await self._calls.read(self._log._follow_from, start, timeout)
        view = self._log._looking(skip_damaged)
        async for chunk in follow(self._calls, view, begin, patience, lambda: self.closed):
            yield chunk

    async def scan(
        self,
        columns: Sequence[str] | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        start_timestamp: int | datetime | None = None,
        end_timestamp: int | datetime | None = None,
        skip_damaged: bool | Callable[[CorruptLogError], object] = False,
    ) -> Scan:
        """Return the same ranges as Arrow columns.

        The importer reads the disk: ``await asyncio.to_thread(pyarrow.table, scan)``.
        """
        return await self._calls.read(
            self._log.scan,
            columns,
            start=start,
            end=end,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
            skip_damaged=skip_damaged,
        )

    async def seek(self, offset: int | None = None, *, timestamp: int | datetime | None = None) -> int:
        """Move ``position`` to ``offset``, or to the first record at or after ``timestamp``.

        Return the new position.
        """
        self._check()
        found = await self._calls.read(self._log.seek, offset, timestamp=timestamp)
        self._go_to(found)
        return found

    # ---------------------------------------------------------------------------------------- facts

    @property
    def path(self) -> str:
        """The folder."""
        return self._log.path

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._log.topic

    @property
    def topic_id(self) -> str:
        """The topic's id, another one for each log that is made under its name; "" if a broker from before Kafka 2.8
        made it."""
        return self._log.topic_id

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self._log.partition

    @property
    def mode(self) -> Literal["a", "r"]:
        """``"a"`` or ``"r"``."""
        return self._log.mode

    @property
    def position(self) -> int:
        """The offset at which iteration continues."""
        return self._position

    @property
    def durability(self) -> str:
        """``"sync"`` or ``"os"``."""
        return self.config.durability

    @property
    def config(self) -> LogConfig:
        """The log's settings. For a reader: the settings at the time of its opening."""
        self._check()
        if self._config is None:
            return self._log.config
        if isinstance(self._config, PyreplogError):
            raise self._config
        return self._config

    @property
    async def start_offset(self) -> int:
        """``await log.start_offset``: the first offset that can be read."""
        self._check()
        return await self._calls.read(lambda: self._log.start_offset)

    @property
    async def end_offset(self) -> int:
        """``await log.end_offset``: the offset that the next record gets.

        For a reader: the end of the records that it may see.
        """
        self._check()
        return await self._calls.read(lambda: self._log.end_offset)

    @property
    async def high_watermark(self) -> int:
        """``await log.high_watermark``: readers see the records below it."""
        self._check()
        return await self._calls.read(lambda: self._log.high_watermark)

    @property
    async def last_stable_offset(self) -> int:
        """``await log.last_stable_offset``: the end for ``"read_committed"`` readers."""
        self._check()
        return await self._calls.read(lambda: self._log.last_stable_offset)

    async def stats(self) -> LogStats:
        """Return the log's contents, and counts since it was opened."""
        self._check()
        return await self._calls.read(self._log.stats)

    # -------------------------------------------------------------------------------------- the end

    async def close(self) -> None:
        """Write and sync everything and release the folder. A second call is harmless.

        If something failed, it raises the error after the log is closed.
        """
        if self._closing is None:
            self._closing = self._calls.begin(self._log.close)
            self._calls.stop()
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Log:
        self._check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return (
            f"<pyreplog.aio.Log {self.path!r} topic {self.topic!r} mode"
            f" {self.mode!r}{' closed' if self.closed else ''}>"
        )

    def _writing(self) -> runtime.LogWriter:
        self._check()
        return self._log._writing()
