"""Table: the latest value of each key of a log, as a Mapping; ClusterTable: of all partitions of a topic.

A look-up shows all that was committed when it began: it first applies the records that the store
does not have. Any process may do that, under the lock of the table's files; the others read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Final, NoReturn, SupportsIndex, TypeVar

from pyreplog.errors import LockedError, UnkeyedRecordError
from pyreplog.ports import Buffer
from pyreplog.readers import TableState, TableStore
from pyreplog.record import partition_for_key
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.send_functions import Partitioner, SendFunctions
from pyreplog.runtime.views import CommittedView, ReaderView, WriterView, record_lists
from pyreplog.system import current_process
from pyreplog.values import TopicPartition

__all__ = ["ClusterTable", "TablePart", "Table", "TableProgress", "TopicParts"]

CHUNK_COUNT: Final = 200_000
CHUNK_SIZE: Final = 64 << 20
"""Records, and bytes of values, of one transaction: a second or two. LMDB copies each page that a transaction
touches, so many small ones over a large table would write it many times."""
LOCKED_S: Final = 60.0
"""A look-up waits this long for another process that applies records."""
PAUSE_S: Final = 0.002
"""Between two transactions the lock is free for this long, so that other processes get their turn."""
LONG_S: Final = 1.0
"""Catching up for longer is logged."""

D = TypeVar("D")
TableProgress = Callable[[int, int], object]
"""Called with the next offset and the end, while a table is made or catches up."""
_View = WriterView | ReaderView | CommittedView


class TablePart:
    """The table of one partition. Thread-safe."""

    def __init__(self, view: _View, store: TableStore, name: str, progress: TableProgress | None) -> None:
        """``view``: the partition, which this object does not close. ``name``: the log in errors."""
        self._view = view
        self._store = store
        self._name = name
        self._process = current_process()
        self._progress = progress
        self._next_offset = -1
        self._epoch = -2
        """The newest epoch of the log at the last check; a truncation makes a newer one."""

    @property
    def next_offset(self) -> int:
        """The offset below which all records are shown, as of the last look-up."""
        return self._next_offset

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``; None if there is none."""
        view = self._view
        view.refresh()
        if view.end_offset != self._next_offset or view.leader_epoch != self._epoch or self._process.left:
            self.refresh()
        return self._store.get(key)

    def count(self) -> int:
        """Return the number of keys."""
        self.refresh()
        return self._store.count()

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every (key, value)."""
        self.refresh()
        return self._store.entries()

    def refresh(self) -> None:
        """Apply what was committed before this call."""
        if self._process.left:
            raise self._process.refuse(self._name)
        view = self._view
        view.refresh()
        end = view.end_offset
        if end != self._next_offset or view.leader_epoch != self._epoch:
            self._catch_up(end)

    def _catch_up(self, end: int) -> None:
        view = self._view
        began = time.monotonic()
        told = False
        while True:
            epoch = view.leader_epoch
            with self._changing() as found:
                state = self._judged(found, end)
                applies = state.next_offset < end
                if applies:
                    state = self._apply(state, end)
                self._next_offset = state.next_offset
            if applies and self._progress is not None:
                self._progress(state.next_offset, end)
            if state.next_offset >= end:
                break
            if not told and time.monotonic() - began > LONG_S:
                told = True
                LOGGER.info("the table of %s is at offset %d of %d", self._name, state.next_offset, end)
            time.sleep(PAUSE_S)
        self._epoch = epoch
        if told:
            LOGGER.info("the table of %s took %.1f s", self._name, time.monotonic() - began)

    @contextmanager
    def _changing(self) -> Iterator[TableState | None]:
        """Enter :meth:`TableStore.change`, however long another process applies records, up to a minute."""
        began = time.monotonic()
        with ExitStack() as stack:
            while True:
                try:
                    found = stack.enter_context(self._store.change())
                    break
                except LockedError:
                    if time.monotonic() - began > LOCKED_S:
                        raise
            yield found

    def _judged(self, found: TableState | None, end: int) -> TableState:
        """Return the state to go on from: ``found``, or an empty table if its records are not those of the log."""
        start = self._view.start_offset
        if found is not None:
            reason = self._reason(found, start, end)
            if not reason:
                return found
            LOGGER.info("the table of %s is made again: %s", self._name, reason)
            self._store.remake()
        empty = TableState(start, -1, self._view.dropped_tombstone)
        self._store.apply({}, empty)
        return empty

    def _reason(self, state: TableState, start: int, end: int) -> str:
        """Return why the table cannot go on from ``state``; "" if it can."""
        offset = state.next_offset
        if offset < start:
            return f"it has the records below offset {offset}, and the log begins at {start} now"
        if offset > end and offset > self._view.log_end_offset + self._above():
            return f"it has the records below offset {offset}, and the log ends at {end}"
        dropped = self._view.dropped_tombstone
        if dropped > state.tombstone and dropped >= offset:
            return f"the log dropped a tombstone at {dropped}, and the table has the records below offset {offset}"
        epoch = self._epoch_before(offset)
        if offset > start and state.epoch >= 0 and epoch != state.epoch:
            return f"the record before offset {offset} was of epoch {state.epoch}, and is of epoch {epoch} now"
        return ""

    def _above(self) -> int:
        """Return how many offsets lie above the high watermark of a reader: another process may know a later one."""
        view = self._view._view if isinstance(self._view, CommittedView) else self._view
        return view.above_high_watermark if isinstance(view, ReaderView) else 0

    def _epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the record before ``offset``; -1 if it is not known."""
        found = -1
        for epoch, start in self._view.epochs:
            if start < offset:
                found = epoch
        return found

    def _apply(self, state: TableState, end: int) -> TableState:
        """Apply the records from ``state`` on, up to ``end`` or to a full transaction; return the new state.

        Nothing is applied if compaction dropped a tombstone while the records were read: the next look at the state
        decides what that means.
        """
        dropped = self._view.dropped_tombstone
        changes: dict[bytes, bytes | None] = {}
        count = size = 0
        offset = state.next_offset
        unkeyed = -1
        for batch in record_lists(self._view, offset, end):
            for record in batch:
                key = record.key
                if key is None:
                    unkeyed = record.offset
                    break
                changes[key] = value = record.value
                if value is not None:
                    size += len(value)
            if unkeyed >= 0:
                break
            offset = batch[-1].offset + 1
            count += len(batch)
            if count >= CHUNK_COUNT or size >= CHUNK_SIZE:
                break
        else:
            offset = end  # the last offsets may have no record: control records, or compacted ones
        if unkeyed >= 0:
            offset = unkeyed
        if self._view.dropped_tombstone != dropped:
            return state
        reached = TableState(offset, self._epoch_before(offset), dropped)
        if offset > state.next_offset:
            self._store.apply(changes, reached)
        if unkeyed >= 0:
            self._next_offset = offset
            raise UnkeyedRecordError(self._view.topic, self._view.partition, unkeyed)
        return reached

    @property
    def closed(self) -> bool:
        """Whether the table, or its log or cluster, is closed."""
        return self._store.closed

    def close(self) -> None:
        """Sync the store, and close it. A second call is harmless."""
        if not self._process.left:
            self._store.close()


class TopicParts:
    """The tables of all partitions of a topic, and the views that they read, which close with the cluster."""

    def __init__(self, parts: Sequence[TablePart], views: Sequence[ReaderView]) -> None:
        self.parts = parts
        self._views = views

    def close(self) -> None:
        """Close all of them. A second call is harmless."""
        with ExitStack() as stack:
            for view in self._views:
                stack.callback(view.close)
            for part in self.parts:  # these close first
                stack.callback(part.close)


class _Items(ItemsView[bytes, bytes]):
    """The (key, value) pairs of a table, read in slices."""

    def __init__(self, table: TableFace) -> None:
        super().__init__(table)
        self._table = table

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._table._entries()


class _Values(ValuesView[bytes]):
    """The values of a table, read in slices."""

    def __init__(self, table: TableFace) -> None:
        super().__init__(table)
        self._table = table

    def __iter__(self) -> Iterator[bytes]:
        return (value for _, value in self._table._entries())


class TableFace(Mapping[bytes, bytes]):
    """The common part of both tables."""

    _name: str
    _all: Sequence[TablePart]

    def _part(self, key: bytes) -> TablePart:
        """Return the table that has ``key``, if any has it."""
        return self._all[0]

    def __getitem__(self, key: Buffer) -> bytes:
        """Return the value of ``key``. Raises KeyError if the last record of the key is a deletion, or if there is
        none."""
        name = key if type(key) is bytes else _checked(key)
        found = self._part(name).get(name)
        if found is None:
            raise KeyError(key)
        return found

    def get(self, key: Buffer, default: D | None = None) -> bytes | D | None:  # type: ignore[override]
        """Return the value of ``key``; ``default`` if there is none."""
        name = _checked(key)
        found = self._part(name).get(name)
        return default if found is None else found

    def __contains__(self, key: object) -> bool:
        name = _checked(key)
        return self._part(name).get(name) is not None

    def __len__(self) -> int:
        """Return the number of keys."""
        return sum(part.count() for part in self._all)

    def _entries(self) -> Iterator[tuple[bytes, bytes]]:
        return chain.from_iterable(part.entries() for part in self._all)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the keys, in no promised order. If the table catches up during the loop, the loop shows each key that
        did not change once, and a changed one as it was or as it is."""
        return (key for key, _ in self._entries())

    def keys(self) -> KeysView[bytes]:
        """Return the keys, in no promised order; see ``iter``."""
        return super().keys()

    def items(self) -> ItemsView[bytes, bytes]:
        """Return the (key, value) pairs, in no promised order. They are read in slices; see ``iter``."""
        return _Items(self)

    def values(self) -> ValuesView[bytes]:
        """Return the values, in the order of ``items``."""
        return _Values(self)

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, TableFace) else super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # as of every Mapping that compares by content

    def refresh(self) -> None:
        """Apply all that was committed before this call. Each look-up does it by itself."""
        for part in self._all:
            part.refresh()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, on the table, or on its log or cluster."""
        return any(part.closed for part in self._all)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a table cannot be copied or pickled: open it in each process; dict(table) is a copy")


class Table(TableFace):
    """The latest value of each key of one log. Made by ``log.table()``; it closes with its log. Thread-safe.

    A Mapping of bytes to bytes. A look-up shows all records that were committed when it began. A record without a value
    deletes its key; a record without a key is an UnkeyedRecordError, at every look-up, which names its offset.
    """

    def __init__(self, part: TablePart, name: str) -> None:
        """Made by ``log.table()``."""
        self._all = (part,)
        self._name = name

    @property
    def offset(self) -> int:
        """The table shows the records below this offset, as of the last look-up."""
        return self._all[0].next_offset

    def close(self) -> None:
        """Close the table's files. A second call is harmless."""
        self._all[0].close()

    def __enter__(self) -> Table:
        self.refresh()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<pyreplog.Table of {self._name} at offset {self.offset}{', closed' if self.closed else ''}>"


class ClusterTable(TableFace):
    """The latest value of each key of a topic. Made by ``cluster.table(topic)``; it closes with its cluster.

    A Mapping of bytes to bytes, see :class:`Table`. A key is looked up in the partition to which the partitioner sends
    it: Kafka's murmur2, or that of ``cluster.table(topic, partitioner=...)``. Records that a topic had before it got
    more partitions stay where they are.
    """

    def __init__(self, topic: str, parts: TopicParts, partitioner: Partitioner | None) -> None:
        """Made by ``cluster.table()``."""
        self._topic = topic
        self._name = f"topic {topic!r}"
        self._all = parts.parts
        self._parts = parts
        self._functions = SendFunctions(partitioner=partitioner).checked()

    def _part(self, key: bytes) -> TablePart:
        if self._functions.partitioner is not None:
            return self._all[self._functions.partition_of(self._topic, key, len(self._all))]
        return self._all[partition_for_key(key, len(self._all))]

    @property
    def offset(self) -> dict[TopicPartition, int]:
        """By partition: the table shows the records below this offset, as of the last look-up."""
        return {TopicPartition(self._topic, number): part.next_offset for number, part in enumerate(self._all)}

    def close(self) -> None:
        """Close the table's files. A second call is harmless."""
        self._parts.close()

    def __enter__(self) -> ClusterTable:
        self.refresh()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<pyreplog.ClusterTable of {self._name}{', closed' if self.closed else ''}>"


def _checked(key: object) -> bytes:
    """Return ``key`` as bytes. Raises TypeError for a ``str`` and anything else without bytes."""
    if type(key) is bytes:
        return key
    if isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    raise TypeError(f"a key is bytes, not {type(key).__name__}")
