"""ReaderConsumer: reads a cluster's topics from their files, beside the process that writes them. Thread-safe."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Final, Literal, NamedTuple, NoReturn, Self, SupportsIndex, overload

from pyreplog.arrow import timestamp_ms
from pyreplog.config import INT64_MAX, check_seconds, whole
from pyreplog.errors import ClosedError, ConfigError, OffsetOutOfRangeError, PyreplogError, UnknownTopicError
from pyreplog.log import LogReader
from pyreplog.ports import Disk
from pyreplog.record import Record
from pyreplog.runtime.deserializers import NO_DESERIALIZERS, Deserializers
from pyreplog.runtime.follow import FileWatchSignal
from pyreplog.runtime.subscription import Subject, Topics, partitions_of, place_of, topics_of
from pyreplog.runtime.views import CommittedView, ReaderView, record_lists
from pyreplog.system import OwnedLock, current_process
from pyreplog.values import TopicPartition

__all__ = ["MAX_POLL_RECORDS", "ReadCursor", "Ends", "ReaderConsumer", "Reset"]

MAX_POLL_RECORDS: Final = 500
FILL_RECORDS: Final = 5000
FILL_SIZE: Final = 1 << 20
"""A read into the buffer ends with the batch that reaches this many records or bytes of values. Each read looks at the
files again, so small reads are slow."""
LOOK_AGAIN_S: Final = 1.0
"""A waiting consumer of a whole topic looks for new partitions this often."""

Reset = Literal["earliest", "latest", "none"]
Ends = Mapping[TopicPartition, int]


class _Pieces(NamedTuple):
    """Lists of records of ``view`` from ``offset`` up to ``end``."""

    view: ReaderView | CommittedView
    offset: int
    end: int
    lists: Iterator[list[Record]]


class ReadCursor:
    """The read position of one partition."""

    __slots__ = ("files", "next_offset", "pieces", "seek_count", "view")

    def __init__(self, files: ReaderView, next_offset: int, view: ReaderView | CommittedView | None = None) -> None:
        #: The view of all records, and the view of the records to hand out.
        self.files = files
        self.view = view or files
        #: The offset behind the last record that was read into the buffer.
        self.next_offset = next_offset
        #: A read that began before the last seek is dropped.
        self.seek_count = 0
        #: The rest of the last read from the files, which the next read into the buffer goes on
        #: with.
        self.pieces: _Pieces | None = None

    def take_pieces(self, offset: int, end_max: int | None) -> tuple[_Pieces, bool]:
        """Return the lists of records from ``offset`` on, below ``end_max``, and whether they were kept."""
        kept, self.pieces = self.pieces, None
        view = self.view
        if kept is not None and kept[:2] == (view, offset) and (end_max is None or kept.end <= end_max):
            return kept, True
        end = view.end_offset if end_max is None else min(end_max, view.end_offset)
        return _Pieces(view, offset, end, record_lists(view, offset, end)), False

    def seek_end(self) -> int:
        """Return the highest offset to which a caller may seek."""
        return self.view.end_offset

    def read_on(self, offset: int, last: Record | None) -> None:
        """Go on at ``offset``. ``last``: the last record that was read; None if there was none."""
        self.next_offset = offset


class ReaderConsumer:
    """Reads records of a cluster's topics from its files. Made by ``Cluster(path, mode="r").consumer(...)``; use it
    in ``with``.

    It has the methods of :class:`Consumer` and returns the same records. Records come in order within each partition,
    once they are below the high watermark. A consumer of a whole topic also reads partitions that are made later, from
    their first record on.
    """

    def __init__(
        self,
        disk: Disk,
        catalog: Topics,
        subject: Subject,
        reset: Reset,
        max_poll_records: int,
        on_close: Callable[[ReaderConsumer], object],
        deserializers: Deserializers = NO_DESERIALIZERS,
    ) -> None:
        """Called by the cluster only."""
        self._disk = disk
        self._catalog = catalog
        self._reset = reset
        #: The most records that one poll returns.
        self.max_poll_records = max_poll_records
        self._on_close = on_close
        self._deserializers = deserializers
        self._decodes = deserializers != NO_DESERIALIZERS
        self._process = current_process()
        self._closed = False
        # Two locks: a thread that holds `_reading` may wait for the disk; `_state` is held for a
        # moment only, so an event loop may take it too.
        self._reading = OwnedLock("the consumer")
        self._state = OwnedLock()
        self._cursors: dict[TopicPartition, ReadCursor] = {}
        self._turns: deque[TopicPartition] = deque()
        """The partitions in the order in which they are read next. Under ``_reading``."""
        self._topics: list[str] = []
        self._looked_s = 0.0
        self._left: deque[Record] = deque()
        """Records that were read from the files and not returned yet. The next call returns them."""
        self._chunk: Sequence[Record] = ()
        self._lent: Iterator[Record] = iter(())
        """The records of the buffer that an iterator took, and those of them that it did not return yet. They count as
        read and not handed out. Each use of the buffer takes them back first: see :meth:`_settle`."""
        self._waiting: set[FileWatchSignal] = set()
        self.assign(subject)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a ReaderConsumer cannot be copied or pickled: open the cluster with mode='r' in each process")

    # ----------------------------------------------------------------------------------- assignment

    def assign(self, subject: Subject) -> None:
        """Read these from now on: a topic (all its partitions), a (topic, partition) pair, or several of these.
        Partitions that were assigned before keep their positions.

        Raises UnknownTopicError if a topic or partition does not exist, StorageError if a partition has no folder. The
        assignment is then unchanged.
        """
        if isinstance(subject, Iterator):
            subject = list(subject)
        with self._locked():
            topics = topics_of(subject)
            self._take_up(partitions_of(subject, self._catalog.numbers), self._reset)
            self._topics, self._looked_s = topics, time.monotonic()

    def _take_up(self, partitions: list[TopicPartition], reset: Reset) -> None:
        """Read these partitions, and no others. REQUIRES ``_reading``."""
        new = [key for key in dict.fromkeys(partitions) if key not in self._cursors]
        made = self._begin(self._catalog.open(new), reset)
        with self._state:
            before, self._cursors = (
                self._cursors,
                {key: self._cursors.get(key) or made[key] for key in dict.fromkeys(partitions)},
            )
            self._settle()
            self._left = deque(record for record in self._left if (record.topic, record.partition) in self._cursors)
        self._turns = deque(self._cursors)
        for key, cursor in before.items():
            if key not in self._cursors:
                cursor.view.close()

    def _begin(self, readers: list[LogReader], reset: Reset) -> dict[TopicPartition, ReadCursor]:
        """Return the positions at which to begin with these partitions. REQUIRES ``_reading``."""
        return {
            reader.topic_partition: ReadCursor(
                ReaderView(reader, self._disk), reader.end_offset if reset == "latest" else reader.start_offset
            )
            for reader in readers
        }

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        return list(self._cursors)

    # -------------------------------------------------------------------------------------- reading

    def poll(self, timeout: float | None = 0.0, count_max: int | None = None) -> list[Record]:
        """Return the available records. Wait up to ``timeout`` seconds for the first (None: for ever); the list is
        empty if none came.

        Returns at most ``count_max`` records (from 1; default 500) and moves the positions behind them. Raises
        CorruptLogError for damaged records, after all records before the damage were returned. Under
        ``auto_offset_reset="none"`` it raises OffsetOutOfRangeError if the records at a position were deleted.
        """
        patience = check_seconds("timeout", timeout)
        count = self.max_poll_records if count_max is None else whole("count_max", count_max, 1)
        if patience is None:
            self._check_assigned()
        deadline = None if patience is None else time.monotonic() + patience
        while True:
            records = self._pick(count)
            if records or not self._await_more(deadline):
                return records

    def __iter__(self) -> Iterator[Record]:
        """Yield records for ever; at the end, wait for more."""
        return self._until(None)

    def _until(self, timeout: float | None) -> Iterator[Record]:
        """Yield records until none came for ``timeout`` seconds (None: for ever)."""
        while True:
            while (lent := self._lend()) is not None:
                yield from lent
            while picked := self._pick(1):
                yield picked[0]
            self._check_assigned()
            if not self._await_more(None if timeout is None else time.monotonic() + timeout):
                return

    def _follow(self, timeout: float | None) -> Iterator[Record]:
        """Yield records until none came for ``timeout`` seconds, or until any thread closes this consumer; then close
        it."""
        try:
            yield from self._until(timeout)
        except ClosedError:
            if not self._closed:
                raise
        finally:
            self.close()

    def until_end(self) -> Iterator[Record]:
        """Yield records up to the current ends of the partitions. Later records stay for the next read."""
        self._check()
        ends = self._ends()
        while self._has_more(ends):
            lent = self._lend(ends)
            yield from self._pick(1, ends) if lent is None else lent

    def _ends(self) -> dict[TopicPartition, int]:
        return {key: self.end_offset(*key) for key in self.assignment}

    def _has_more(self, ends: Ends) -> bool:
        """Return whether there is a record below ``ends`` to pick. May wait for the disk."""
        return self._find_left(ends) is not None or (self._fill(ends) and self._find_left(ends) is not None)

    def _pick(self, count: int, ends: Ends | None = None) -> list[Record]:
        """Return the next records of the buffer, at most ``count``, deserialized. It does not wait for the disk."""
        records = self._pick_raw(count, ends)
        return self._deserializers.apply_all(records, self._put_back) if self._decodes else records

    def _lend(self, ends: Ends | None = None) -> Iterator[Record] | None:
        """Return an iterator that takes the records of the buffer without a lock; None if the buffer has none.

        None too if it has records at or above ``ends`` or of several partitions, or if records are deserialized.
        """
        self._check()
        with self._state:
            self._settle()
            left = self._left
            if not left or self._decodes:
                return None
            first, last = left[0], left[-1]
            if (first.partition, first.topic) != (last.partition, last.topic):
                return None
            if ends is not None and last.offset >= ends.get(TopicPartition(last.topic, last.partition), 0):
                return None
            self._chunk = tuple(left)
            self._lent = iter(self._chunk)
            left.clear()
            return self._lent

    def _settle(self) -> None:
        """Take back the records that an iterator took and did not return yet. REQUIRES ``_state``.

        ``list`` empties the iterator within one call in C, so an iterator in another thread returns a record, or this
        method takes it back, but never both.
        """
        chunk = self._chunk
        if chunk:
            rest = list(self._lent)
            self._chunk = ()
            self._left.extendleft(reversed(rest))
            if len(rest) < len(chunk):
                self._handed_out(chunk[len(chunk) - len(rest) - 1])

    def _handed_out(self, record: Record) -> None:
        """Note that an iterator returned ``record`` last. REQUIRES ``_state``."""

    def _put_back(self, records: list[Record]) -> None:
        with self._state:
            self._settle()
            self._left.extendleft(reversed(records))

    def _pick_raw(self, count: int, ends: Ends | None) -> list[Record]:
        self._check()
        with self._state:
            self._settle()
            left = self._left
            if ends is None:
                return [left.popleft() for _ in range(min(count, len(left)))]
            records: list[Record] = []
            while len(records) < count and (place := self._find_left(ends)) is not None:
                records.append(left[place])
                del left[place]
            return records

    def _find_left(self, ends: Ends | None) -> int | None:
        """Return the index of the first record in the buffer that lies below ``ends``; None if there is none."""
        with self._state:
            self._settle()
            if ends is None:
                return 0 if self._left else None
            below = (
                place
                for place, one in enumerate(self._left)
                if one.offset < ends.get(TopicPartition(one.topic, one.partition), 0)
            )
            return next(below, None)

    def _await_more(self, deadline: float | None, fill: Callable[[], bool] | None = None) -> bool:
        """Wait until a record was read, and return True; False if ``deadline`` passes before (by ``time.monotonic``;
        None: wait for ever). ``fill`` reads; default :meth:`_fill`."""
        fill = fill or self._fill
        news: FileWatchSignal | None = None
        try:
            while True:
                if fill():
                    return True
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                if news is None:
                    news = self._begin_waiting()  # then read once more: the signal misses earlier changes
                    continue
                news.wait(left)
        finally:
            if news is not None:
                self._end_waiting(news)

    def _begin_waiting(self) -> FileWatchSignal:
        """Return a signal that is set from now on when there may be more to read. ``close`` wakes it. End it with
        :meth:`_end_waiting`."""
        with self._state:
            marks = [mark for cursor in self._cursors.values() for mark in cursor.files.marks]
        news = FileWatchSignal(self._disk, marks)
        with self._state:
            self._waiting.add(news)
        return news

    def _end_waiting(self, news: FileWatchSignal) -> None:
        with self._state:
            self._waiting.discard(news)
        news.close()

    def _fill(self, ends: Ends | None = None) -> bool:
        """Return whether there are records to pick. If the buffer has none, read on in the partition whose turn it is.
        Waits for the disk."""
        with self._locked():
            if self._find_left(ends) is not None:
                return True
            for _ in range(len(self._turns)):
                key = self._turns[0]
                self._turns.rotate(-1)  # the others come first next time, even if this one is damaged
                cursor = self._cursors[key]
                if self._may_read(cursor) and self._read(key, cursor, None if ends is None else ends.get(key, 0)):
                    return True
            self._look_for_partitions()
            return False

    def _refresh(self, key: TopicPartition, cursor: ReadCursor) -> None:
        """Have the partition's view see the files as they are now. REQUIRES ``_reading``."""
        cursor.view.refresh()

    def _may_read(self, cursor: ReadCursor) -> bool:
        """Return whether to read this partition now."""
        return True

    def _read(self, key: TopicPartition, cursor: ReadCursor, end_max: int | None) -> bool:
        """Read on in one partition, below ``end_max``. Return whether there was a record. REQUIRES ``_reading``."""
        with self._state:
            offset, seeks = cursor.next_offset, cursor.seek_count
        self._refresh(key, cursor)
        offset = self._place(key, cursor, offset)
        records: list[Record] = []
        size, kept = 0, True
        try:
            while kept and not records:
                pieces, kept = cursor.take_pieces(offset, end_max)
                for batch in pieces.lists:
                    records += batch
                    offset = batch[-1].offset + 1
                    size += len(batch) * len(batch[-1].value or b"")  # an estimate, for records of one kind
                    if len(records) >= FILL_RECORDS or size >= FILL_SIZE:
                        cursor.pieces = pieces._replace(offset=offset)
                        break
                else:
                    offset = max(offset, pieces.end)
        except PyreplogError:
            if not records:
                raise
            # Return the records before the damage first; the next read raises.
        with self._state:
            if cursor.seek_count == seeks and self._cursors.get(key) is cursor:
                self._settle()
                self._left.extend(records)
                cursor.read_on(offset, records[-1] if records else None)
        return bool(records)

    def _place(self, key: TopicPartition, cursor: ReadCursor, offset: int) -> int:
        """Return the offset at which to read on: ``offset``, unless the record there was deleted. The view was just
        refreshed."""
        view = cursor.view
        if offset >= view.start_offset:
            return offset
        if self._reset == "none":
            raise OffsetOutOfRangeError(offset, view.start_offset, view.end_offset, log=str(key))
        return view.end_offset if self._reset == "latest" else view.start_offset

    def _look_for_partitions(self) -> None:
        """Add new partitions of the assigned topics, from their first record on. REQUIRES ``_reading``."""
        if not self._topics or time.monotonic() - self._looked_s < LOOK_AGAIN_S:
            return
        self._looked_s = time.monotonic()
        found = [TopicPartition(topic, number) for topic in self._topics for number in self._catalog.numbers(topic)]
        if any(key not in self._cursors for key in found):
            self._take_up([*self._cursors, *found], "earliest")

    def _check_assigned(self) -> None:
        """Raise :class:`ConfigError` if nothing is assigned: a wait without a timeout would then never end."""
        if not self._cursors and not self._closed:
            raise ConfigError("nothing is assigned to this consumer, so no record can come; assign() says what to read")

    # ------------------------------------------------------------------------------------ positions

    @overload
    def seek(
        self, topic: str, partition: int, offset: int | None = None, *, timestamp: int | datetime | None = None
    ) -> int: ...
    @overload
    def seek(self, topic: tuple[str, int], offset: int, /) -> int: ...
    @overload
    def seek(
        self, topic: tuple[str, int], /, *, offset: int | None = None, timestamp: int | datetime | None = None
    ) -> int: ...
    def seek(
        self,
        topic: str | tuple[str, int],
        partition: int | None = None,
        offset: int | None = None,
        *,
        timestamp: int | datetime | None = None,
    ) -> int:
        """Go on at ``offset``, or at the first record at or after ``timestamp`` (the end if there is none); return
        the offset.

        ``seek("orders", 0, 17)``, or ``seek(TopicPartition("orders", 0), 17)``. Raises UnknownTopicError if this
        consumer does not read the partition, OffsetOutOfRangeError for an offset behind the end. For an offset below
        the start, ``auto_offset_reset`` applies when the consumer reads on.
        """
        self._check()
        if not isinstance(topic, str) and offset is None:
            partition, offset = None, partition
        key = TopicPartition(*place_of("seek", topic, partition))
        if (offset is None) == (timestamp is None):
            raise TypeError("seek takes a topic, a partition, and an offset or a timestamp: seek('orders', 0, 17)")
        with self._locked():
            self._refresh(key, self._cursor(key))
            view = self._cursor(key).view
            if timestamp is not None:
                found = view.find_timestamp(max(timestamp_ms(timestamp, "timestamp"), 0))
                where = view.end_offset if found is None else max(found[0], view.start_offset)
            else:
                where = whole("offset", offset, 0, INT64_MAX)
                if where > view.end_offset and where > (end := self._cursor(key).seek_end()):
                    raise OffsetOutOfRangeError(where, view.start_offset, end, log=str(key))
            self._move(key, where)
            return where

    def _move(self, key: TopicPartition, offset: int) -> None:
        """Go on at ``offset``, and drop this partition's records from the buffer."""
        cursor = self._cursor(key)
        with self._state:
            cursor.next_offset = offset
            cursor.seek_count += 1
            self._drop_left(key)

    def _drop_left(self, key: TopicPartition) -> None:
        """Drop a partition's records from the buffer. REQUIRES ``_state``."""
        self._settle()
        self._left = deque(record for record in self._left if (record.topic, record.partition) != key)

    def _cursor(self, key: TopicPartition) -> ReadCursor:
        cursor = self._cursors.get(key)
        if cursor is None:
            raise UnknownTopicError(f"{key} is not assigned to this consumer; assign() changes that")
        return cursor

    def seek_to_beginning(self) -> None:
        """Go on at the first record of every partition."""
        for key in self.assignment:
            self.seek(key, self.start_offset(*key))

    def seek_to_end(self) -> None:
        """Go on behind the last record of every partition."""
        for key in self.assignment:
            self.seek(key, self.end_offset(*key))

    @overload
    def position(self, topic: str, partition: int) -> int: ...
    @overload
    def position(self, topic: tuple[str, int], /) -> int: ...
    def position(self, topic: str | tuple[str, int], partition: int | None = None) -> int:
        """Return the offset of the next record to read. Raises UnknownTopicError if this consumer does not read the
        partition."""
        self._check()
        key = TopicPartition(*place_of("position", topic, partition))
        with self._state:
            return self._position_of(key)

    def _position_of(self, key: TopicPartition) -> int:
        """Return the offset of the next record to hand out. REQUIRES ``_state``."""
        self._settle()
        left = next((record.offset for record in self._left if (record.topic, record.partition) == key), None)
        return self._cursor(key).next_offset if left is None else left

    @overload
    def start_offset(self, topic: str, partition: int) -> int: ...
    @overload
    def start_offset(self, topic: tuple[str, int], /) -> int: ...
    def start_offset(self, topic: str | tuple[str, int], partition: int | None = None) -> int:
        """Return the first offset of any partition, assigned or not."""
        return self._look_up(*place_of("start_offset", topic, partition))[0]

    @overload
    def end_offset(self, topic: str, partition: int) -> int: ...
    @overload
    def end_offset(self, topic: tuple[str, int], /) -> int: ...
    def end_offset(self, topic: str | tuple[str, int], partition: int | None = None) -> int:
        """Return the high watermark: the offset behind the last record that consumers may read."""
        return self._look_up(*place_of("end_offset", topic, partition))[1]

    def _look_up(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the current (start, end) offsets of a partition."""
        key = TopicPartition(topic, partition)
        with self._locked():
            cursor = self._cursors.get(key)
            if cursor is not None:
                self._refresh(key, cursor)
                return cursor.view.start_offset, cursor.view.end_offset
            (key,) = partitions_of(key, self._catalog.numbers)
            (reader,) = self._catalog.open([key])
            found = reader.start_offset, reader.end_offset
            reader.close()
            return found

    # -------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Close the consumer and release the files; a waiting call ends. A second call is harmless."""
        if self._process.left:
            return
        self._closed = True
        with self._state:
            self._settle()  # an iterator returns no more of them
            waiting = list(self._waiting)
        for news in waiting:
            news.wake()
        with self._reading.enter():
            for cursor in self._cursors.values():
                cursor.view.close()
        self._on_close(self)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, on this consumer or on its cluster."""
        return self._closed

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold ``_reading``: only this thread reads."""
        self._check()
        with self._reading.enter():
            self._check()
            yield

    def _check(self) -> None:
        if self._process.left:
            raise self._process.refuse("the consumer")
        if self._closed:
            raise ClosedError("the consumer is closed")

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<pyreplog.ReaderConsumer of {len(self._cursors)} partition(s){', closed' if self._closed else ''}>"
