"""NamedConsumer: a reader that keeps its place, under a name, in a file beside the log. Thread-safe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, NoReturn, SupportsIndex, cast, overload

from pyreplog.arrow import ArrowTable, timestamp_ms
from pyreplog.config import INT64_MAX, check_flag, check_seconds, whole
from pyreplog.errors import ConfigError, DataLossError, OffsetOutOfRangeError, TopicRecreatedError, copy_for_raise
from pyreplog.log import LogReader
from pyreplog.ports import Clock, Disk
from pyreplog.readers import OffsetEntry, OffsetsFile, message_of
from pyreplog.record import Record, delivered
from pyreplog.runtime.arrow_poll import read_table
from pyreplog.runtime.deserializers import DecodedRecord
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.named_position import NamedCursor, ReaderOptions, committed_one_by_one, last_of_each
from pyreplog.runtime.open_options import ViewOptions
from pyreplog.runtime.reader_consumer import Ends, ReadCursor, ReaderConsumer, Reset
from pyreplog.runtime.record_handling import check_handler, handle_all
from pyreplog.runtime.retries import DEFAULT_RETRIES, RetryPolicy
from pyreplog.runtime.subscription import Subject, Topics, is_pair, partitions_of
from pyreplog.runtime.views import CommittedView, ReaderView
from pyreplog.system import OwnedLock
from pyreplog.values import NO_EPOCH, TopicPartition

__all__ = ["NamedConsumer", "WhatToCommit"]

WhatToCommit = Record | DecodedRecord | Mapping[TopicPartition, int] | None


class NamedConsumer(ReaderConsumer):
    """Reads records and keeps its place under a name. Made by ``log.consumer(name)`` or ``cluster.consumer(topics,
    name=...)``; use it in ``with``.

    A name belongs to one open consumer at a time, in any process. ``commit`` notes that records are done; the next
    consumer of the name goes on behind them. Records that were handed out and not committed are handed out again.
    It has the methods of :class:`ReaderConsumer` too. It reads files and asks nothing of the process that writes
    them.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        topics: Topics,
        subject: Subject,
        options: ReaderOptions,
        reading: ViewOptions,
        open_offsets: Callable[[list[LogReader]], OffsetsFile],
        on_close: Callable[[ReaderConsumer], object],
    ) -> None:
        """Called by the log or the cluster only. ``open_offsets`` takes the lock of the name."""
        self._clock = clock
        self._options = options
        self._reading_options = reading
        self._open_offsets = open_offsets
        self._opened_offsets: OffsetsFile | None = None
        self._committing = OwnedLock(f"the named reader {options.name!r}")
        self._polled: dict[TopicPartition, tuple[int, int]] = {}
        """The (offset, epoch) behind the records of the last poll, for the automatic commit of the next one."""
        self._is_new = True
        self._has_loss = False
        self._has_unsynced = True  # the commits of an earlier process, perhaps
        try:
            super().__init__(
                disk, topics, subject, "earliest", options.max_poll_records, on_close, options.deserializers
            )
        except BaseException:
            if self._opened_offsets is not None:
                self._opened_offsets.close()
            raise
        self._is_new = False

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a NamedConsumer cannot be copied or pickled: open one in the process that needs it")

    @property
    def name(self) -> str:
        """The name."""
        return self._options.name

    @property
    def _own(self) -> dict[TopicPartition, NamedCursor]:
        return cast("dict[TopicPartition, NamedCursor]", self._cursors)

    @property
    def _offsets(self) -> OffsetsFile:
        assert self._opened_offsets is not None
        return self._opened_offsets

    # ------------------------------------------------------------------------------------ beginning

    def _begin(self, readers: list[LogReader], reset: Reset) -> dict[TopicPartition, ReadCursor]:
        """See :class:`ReaderConsumer`. The first call takes the name's lock."""
        try:
            if self._opened_offsets is None:
                self._opened_offsets = self._open_offsets(readers)
            made = {reader.topic_partition: self._cursor_of(reader) for reader in readers}
            if self._options.start != "earliest" or self._offsets.has_damage:
                # A reader that begins behind the first record must begin there again if power loss
                # takes its first commits; else it would skip records.
                new = {key: one for key, one in made.items() if one.committed is None and one.loss is None}
                with self._committing:
                    self._write([(one, self._entry(key, one, one.next_offset)) for key, one in new.items()], sync=True)
        except BaseException:
            for reader in readers:
                reader.close()
            raise
        return dict[TopicPartition, ReadCursor](made)

    def _cursor_of(self, reader: LogReader) -> NamedCursor:
        """Return the position of one partition: behind its last commit, or at the start of a new one."""
        key = reader.topic_partition
        cursor = NamedCursor(*self._views_of(reader))
        commit = self._offsets.commit_of(key.topic, reader.topic_id, key.partition)
        if commit is not None:
            cursor.next_offset, cursor.read_epoch, cursor.committed = commit.offset, commit.leader_epoch, commit.offset
            loss = cursor.loss_at(self.name, key)
        elif (earlier := self._offsets.earlier_commit(key.topic, reader.topic_id, key.partition)) is not None:
            cursor.next_offset = earlier[1].offset
            loss = cursor.recreated(self.name, key)
        else:
            cursor.next_offset, loss = self._start_of(key, cursor), None
        if loss is not None:
            self._lose(cursor, loss)
        return cursor

    def _views_of(self, reader: LogReader) -> tuple[ReaderView, ReaderView | CommittedView]:
        view = self._reading_options.view_of(reader, self._disk)
        files = view if isinstance(view, ReaderView) else view.source_view
        assert isinstance(files, ReaderView)
        return files, view

    def _start_of(self, key: TopicPartition, cursor: NamedCursor) -> int:
        """Return the offset at which a reader without a commit begins."""
        start, view = self._options.start, cursor.view
        if self._offsets.has_damage and start != "earliest":
            LOGGER.warning(
                "%s is damaged and has no commit of %s: the reader %r begins at its first record",
                self._offsets.path,
                key,
                self.name,
            )
            start = "earliest"
        if start == "earliest" or not self._is_new:
            return view.start_offset
        if start == "latest":
            return view.end_offset
        if isinstance(start, datetime):
            found = view.find_timestamp(timestamp_ms(start, "start"))
            return view.end_offset if found is None else max(found[0], view.start_offset)
        if not view.start_offset <= start <= view.end_offset:
            raise OffsetOutOfRangeError(start, view.start_offset, view.end_offset, log=str(key))
        return start

    # --------------------------------------------------------------------------------- lost records

    def _lose(self, cursor: NamedCursor, loss: DataLossError) -> None:
        """Keep ``loss`` for the next poll, or go on where ``on_data_loss`` says."""
        policy = self._options.on_data_loss
        if policy == "raise":
            cursor.loss = loss
            self._has_loss = True
            return
        cursor.next_offset = cursor.view.end_offset if policy == "latest" else cursor.view.start_offset
        cursor.read_epoch, cursor.is_sought, cursor.has_news = NO_EPOCH, True, True
        LOGGER.warning("%s. It goes on at offset %d (on_data_loss=%r)", loss.what, cursor.next_offset, policy)

    def _raise_loss(self) -> None:
        """Raise the loss of a partition that is not paused, if there is one."""
        if self._has_loss:
            for cursor in self._own.values():
                if cursor.loss is not None and not cursor.is_paused:
                    raise copy_for_raise(cursor.loss)

    def _refresh(self, key: TopicPartition, cursor: ReadCursor) -> None:
        """See :class:`ReaderConsumer`. If the folder holds another topic now, read that one."""
        try:
            cursor.view.refresh()
        except TopicRecreatedError:
            self._take_recreated(key, cast("NamedCursor", cursor))

    def _take_recreated(self, key: TopicPartition, cursor: NamedCursor) -> None:
        """Read the topic that the folder holds now, and keep the loss. REQUIRES ``_reading``."""
        (reader,) = self._catalog.open([key])
        cursor.view.close()
        cursor.files, cursor.view = self._views_of(reader)
        with self._state:
            commit = self._offsets.commit_of(key.topic, reader.topic_id, key.partition)
            cursor.topic_id, cursor.committed = reader.topic_id, None if commit is None else commit.offset
            cursor.next_offset = self._position_of(key)
            self._lose(cursor, cursor.recreated(self.name, key))
            cursor.seek_count += 1
            self._drop_left(key)

    def _place(self, key: TopicPartition, cursor: ReadCursor, offset: int) -> int:
        """See :class:`ReaderConsumer`."""
        own = cast("NamedCursor", cursor)
        if own.loss is None:
            loss = own.loss_at(self.name, key)
            if loss is None:
                return own.next_offset
            self._lose(own, loss)
        if own.loss is not None:
            raise copy_for_raise(own.loss)
        return own.next_offset

    def _may_read(self, cursor: ReadCursor) -> bool:
        own = cast("NamedCursor", cursor)
        if own.due_s is not None and time.monotonic() >= own.due_s:
            own.due_s = None
        return not own.is_paused and own.due_s is None

    # -------------------------------------------------------------------------------------- reading

    def poll(self, timeout: float | None = 0.0, count_max: int | None = None) -> list[Record]:
        """Return the available records. Wait up to ``timeout`` seconds for the first (None: for ever); the list is
        empty if none came.

        Returns at most ``count_max`` records (from 1; default 500). With ``auto_commit`` it first commits the
        records of the last poll. Raises RecordsDeletedError, LogTruncatedError or TopicRecreatedError if the
        records at the position are gone, until a seek; CorruptLogError for damaged records, after all records
        before the damage were returned.
        """
        self._begin_poll()
        return self._end_poll(super().poll(timeout, count_max))

    def poll_arrow(self, timeout: float | None = 0.0) -> ArrowTable:
        """Return the available records as an Arrow table. Wait up to ``timeout`` seconds for the first (None: for
        ever); the table has no rows if none came.

        It ends with the batch that reaches 4 MiB of the log. Arrow libraries take it without a copy
        (``pyarrow.table(table)``, ``polars.DataFrame(table)``). Its columns are those of ``scan``. It commits and
        raises as :meth:`poll` does.
        """
        patience = check_seconds("timeout", timeout)
        if patience is None:
            self._check_assigned()
        self._begin_poll()
        found: list[ArrowTable] = []
        deadline = None if patience is None else time.monotonic() + patience
        self._await_more(deadline, partial(self._take_table, found))
        return found[-1]

    def _take_table(self, found: list[ArrowTable]) -> bool:
        """Add the next table to ``found``. Return whether it has rows. May wait for the disk."""
        with self._locked():
            self._raise_loss()
            table, is_end = self._next_table()
            while not table.num_rows and not is_end:  # batches without records are passed over
                table, is_end = self._next_table()
            if is_end:
                self._look_for_partitions()
            found.append(table)
            return table.num_rows > 0

    def _next_table(self) -> tuple[ArrowTable, bool]:
        """Read a table, and return it and whether there was no batch. REQUIRES the lock of reading."""
        positions = []
        for key in self._turns:
            cursor = self._own[key]
            if not cursor.is_paused:
                self._rewind(key, cursor)
                self._refresh(key, cursor)
                positions.append((key, cursor.view, self._place(key, cursor, cursor.next_offset)))
        table, ends = read_table(positions)
        self._turns.rotate(-len(ends))
        with self._state:
            for key, offset, epoch in ends:
                cursor = self._own[key]
                cursor.next_offset, cursor.read_epoch = offset, epoch
                cursor.seek_count += 1
                cursor.hand_out(offset, epoch)
                if self._options.auto_commit:
                    self._polled[key] = offset, epoch
        return table, not ends

    def _rewind(self, key: TopicPartition, cursor: NamedCursor) -> None:
        """Move the position back to the first record that was read and not handed out. REQUIRES ``_reading``."""
        with self._state:
            offset = self._position_of(key)
            if offset != cursor.next_offset:
                cursor.next_offset, cursor.read_epoch = offset, NO_EPOCH
                cursor.seek_count += 1
                self._drop_left(key)

    def _begin_poll(self) -> None:
        """Commit the records of the last poll, if that is automatic."""
        if self._polled:
            self._check()
            with self._committing:
                with self._state:
                    polled, self._polled = self._polled, {}
                self._write(
                    [
                        (self._own[key], self._entry(key, self._own[key], *done))
                        for key, done in polled.items()
                        if key in self._own and self._is_new_offset(self._own[key], done[0])
                    ]
                )

    def _end_poll(self, records: list[Record]) -> list[Record]:
        """Remember ``records`` for the automatic commit of the next poll."""
        if self._options.auto_commit and records:
            with self._state:
                for key, record in last_of_each(records):
                    self._polled[key] = record.offset + 1, record.leader_epoch
        return records

    def _pick_raw(self, count: int, ends: Ends | None) -> list[Record]:
        """See :class:`ReaderConsumer`. The records count as handed out."""
        self._raise_loss()
        with self._state:
            records = super()._pick_raw(count, ends)
            if records:
                if len(records) == 1:
                    one = records[0]
                    self._own[TopicPartition(one.topic, one.partition)].hand_out(one.offset + 1, one.leader_epoch)
                else:
                    for key, one in last_of_each(records):
                        self._own[key].hand_out(one.offset + 1, one.leader_epoch)
        return records

    def _lend(self, ends: Ends | None = None) -> Iterator[Record] | None:
        """See :class:`ReaderConsumer`."""
        self._raise_loss()
        return super()._lend(ends)

    def _handed_out(self, record: Record) -> None:
        """See :class:`ReaderConsumer`."""
        cursor = self._own.get(TopicPartition(record.topic, record.partition))
        if cursor is not None:
            cursor.hand_out(record.offset + 1, record.leader_epoch)

    def _until(self, timeout: float | None) -> Iterator[Record]:
        return self._committed_one_by_one(super()._until(timeout))

    def until_end(self) -> Iterator[Record]:
        """Yield records up to the current ends of the partitions. Later records stay for the next read."""
        return self._committed_one_by_one(super().until_end())

    def _committed_one_by_one(self, records: Iterator[Record]) -> Iterator[Record]:
        """Return ``records``. If commits are automatic, each is committed when the next one is asked for."""
        return committed_one_by_one(records, self.commit) if self._options.auto_commit else records

    def pause(self, subject: Subject | None = None) -> None:
        """Return no more records of these partitions until :meth:`resume` (None: of all). The positions stay.

        ``subject``: a topic, a (topic, partition) pair, or several of these. Raises UnknownTopicError if this
        consumer does not read one of them.
        """
        with self._locked():
            for key in self._keys_of(subject):
                cursor = self._own[key]
                self._rewind(key, cursor)
                cursor.is_paused = True

    def resume(self, subject: Subject | None = None) -> None:
        """Undo :meth:`pause`, for these partitions (None: for all)."""
        with self._locked():
            for key in self._keys_of(subject):
                self._own[key].is_paused = False
        with self._state:
            waiting = list(self._waiting)
        for news in waiting:
            news.wake()

    @property
    def paused(self) -> list[TopicPartition]:
        """The partitions that :meth:`pause` stopped."""
        return [key for key, cursor in self._own.items() if cursor.is_paused]

    def _keys_of(self, subject: Subject | None) -> list[TopicPartition]:
        if subject is None:
            return self.assignment
        numbers: dict[str, list[int]] = {}
        for topic, partition in self._cursors:
            numbers.setdefault(topic, []).append(partition)

        def read(topic: str) -> list[int]:
            if topic not in numbers:
                self._cursor(TopicPartition(topic, 0))  # raises
            return numbers[topic]

        return partitions_of(subject, read)

    # ------------------------------------------------------------------------------- poison records

    def run(
        self,
        handler: Callable[[Any], object],
        *,
        retry: RetryPolicy | None = DEFAULT_RETRIES,
        until_end: bool = False,
    ) -> None:
        """Call ``handler`` with each record, one after another, and commit it when the call returns.

        An exception is a failed attempt: the partition waits as ``retry`` says, others go on, and the record comes
        again. After the last attempt it becomes a dead letter and is passed. The attempt is noted before the handler is
        called, so that a record that kills the process counts too. KeyboardInterrupt, SystemExit and the exceptions of
        signal handlers do not count and are raised. ``retry`` None: every exception is raised, and the record comes
        again at the next call. ``until_end``: return at the ends that the partitions have now; else when another thread
        closes the consumer.

        Raises as :meth:`poll` and :meth:`commit` do, and what writing a dead letter raises: then the record stays
        uncommitted.
        """
        check_flag("until_end", until_end)
        check_handler(handler)
        self._check()
        handle_all(self, handler, retry, self._ends() if until_end else None)

    def dead_letter(self, record: Record | DecodedRecord, error: object = None) -> None:
        """Make ``record`` a dead letter, and commit it: for loops of one's own.

        The dead letter has the record's value, key and headers, and six headers more: where the record is, the
        reader's name, the number of attempts, and ``error``, an exception or a text. It is written first, as durable
        as the log, and only once: if the process ends before the commit, the next reader finds it. Raises
        UnknownTopicError for a record of another log, ConfigError for a reader of a cluster in ``mode="r"`` without
        ``dead_letters=``, and the errors of appending to the log of dead letters.
        """
        self._check()
        raw = record.record if isinstance(record, DecodedRecord) else record
        if not isinstance(raw, Record):
            raise TypeError(f"dead_letter takes a Record, not {type(record).__name__}")
        cursor = cast("NamedCursor", self._cursor(TopicPartition(raw.topic, raw.partition)))
        noted = self._offsets.attempts_of(cursor.topic_id, raw.partition)
        count = noted.number if noted is not None and noted.offset == raw.offset else 0
        self._give_up(raw, max(count, 1), "" if error is None else message_of(error))

    def _give_up(self, record: Record, count: int, message: str) -> None:
        """Write the dead letter of a record after ``count`` attempts, then commit the record."""
        cursor = self._own[TopicPartition(record.topic, record.partition)]
        letters, floor = self._options.letters(cursor.files), min(cursor.committed or 0, record.offset)
        letters.write(delivered([record], count), group=self.name, message=message, floor=floor)
        if self._is_new_offset(cursor, record.offset + 1):
            self.commit(record)

    def _go_back(self, record: Record, due_s: float | None) -> None:
        """Read on at ``record``, at ``due_s`` (None: at once)."""
        key = TopicPartition(record.topic, record.partition)
        with self._locked(), self._state:
            cursor = self._own[key]
            cursor.next_offset, cursor.read_epoch, cursor.due_s = record.offset, NO_EPOCH, due_s
            cursor.handed = -1, NO_EPOCH
            cursor.seek_count += 1
            self._drop_left(key)

    # -------------------------------------------------------------------------------------- commits

    def commit(self, what: WhatToCommit = None, *, sync: bool = False) -> None:
        """Note that records are done; the next consumer of this name goes on behind them.

        ``what``: a record, with all records before it in its partition; None: all records that were handed out; or
        the next offset of each partition, ``{TopicPartition("orders", 0): 17}``. Nothing new: nothing is written. A
        commit survives the end of the process. ``sync``: it survives power loss too; without it power loss may take
        back the last commits, and their records are handed out again.

        Raises ConfigError for an offset below the committed one unless a seek came before, OffsetOutOfRangeError
        for an offset behind the end of the log, UnknownTopicError for a partition that this consumer does not read,
        StorageError if the disk refuses: nothing is committed then. Raises DataLossError for a partition whose
        records are gone, until a seek.
        """
        check_flag("sync", sync)
        self._check()
        with self._committing:
            self._check()
            self._write(
                [
                    (self._own[key], self._entry(key, self._own[key], *done))
                    for key, done in self._done(what)
                    if self._is_new_offset(self._own[key], done[0])
                ],
                sync=sync,
            )

    def _done(self, what: object) -> list[tuple[TopicPartition, tuple[int, int]]]:
        """Return the partitions that ``what`` names, and their (offset, epoch of the record before it)."""
        if isinstance(what, (Record, DecodedRecord)):
            key = TopicPartition(what.topic, what.partition)
            self._check_commit(key, what.offset + 1)
            return [(key, (what.offset + 1, what.leader_epoch))]
        if what is None:
            with self._state:
                self._settle()
                moved = {
                    key: (self._position_of(key), cursor.handed)
                    for key, cursor in self._own.items()
                    if cursor.has_news and cursor.loss is None
                }
            return [
                (key, handed if offset == handed[0] else (offset, self._own[key].epoch_before(offset)))
                for key, (offset, handed) in moved.items()
            ]
        if not isinstance(what, Mapping):
            raise TypeError(
                f"commit takes a Record, a dict of offsets by TopicPartition, or nothing, not {type(what).__name__}"
            )
        done = []
        for place, next_offset in what.items():
            if not is_pair(place):
                raise TypeError(f"{place!r} is no TopicPartition")
            key, offset = TopicPartition(*place), whole("offset", next_offset, 0, INT64_MAX)
            self._check_commit(key, offset)
            files = self._own[key].files
            if offset > files.end_offset:
                files.refresh()
                if offset > (end := files.log_end()):
                    raise OffsetOutOfRangeError(offset, files.start_offset, end, log=str(key))
            done.append((key, (offset, self._own[key].epoch_before(offset))))
        return done

    def _check_commit(self, key: TopicPartition, offset: int) -> None:
        """Raise the error of a commit of ``offset``."""
        cursor = cast("NamedCursor", self._cursor(key))
        if cursor.loss is not None:
            raise copy_for_raise(cursor.loss)
        if cursor.committed is not None and offset < cursor.committed and not cursor.is_sought:
            raise ConfigError(
                f"offset {offset} of {key} lies below the committed offset {cursor.committed}: seek before a lower"
                " offset is committed"
            )

    def _is_new_offset(self, cursor: NamedCursor, offset: int) -> bool:
        return cursor.committed is None or offset > cursor.committed or (offset < cursor.committed and cursor.is_sought)

    def _entry(self, key: TopicPartition, cursor: NamedCursor, offset: int, epoch: int = NO_EPOCH) -> OffsetEntry:
        return cursor.commit_entry(offset, epoch, self._clock.wall_ms())

    def _write(self, commits: list[tuple[NamedCursor, OffsetEntry]], *, sync: bool = False) -> None:
        """Write these commits. REQUIRES ``_committing``."""
        if commits:
            self._offsets.write([entry for _, entry in commits])
            self._has_unsynced = True
            for cursor, entry in commits:
                cursor.committed, cursor.is_sought = entry.offset, False
        if sync and self._has_unsynced:
            self._offsets.sync()
            self._has_unsynced = False

    @overload
    def committed(self, tp: None = None) -> dict[TopicPartition, int]: ...
    @overload
    def committed(self, tp: tuple[str, int]) -> int | None: ...
    def committed(self, tp: tuple[str, int] | None = None) -> int | dict[TopicPartition, int] | None:
        """Return the committed offset of the partition ``tp``, the offset at which the next consumer of this name goes
        on; None if nothing was committed. Without ``tp``: a dict of those of all partitions that have one."""
        self._check()
        if tp is not None:
            if not is_pair(tp):
                raise TypeError(f"committed takes a TopicPartition, not {tp!r}")
            return cast("NamedCursor", self._cursor(TopicPartition(*tp))).committed
        return {key: cursor.committed for key, cursor in self._own.items() if cursor.committed is not None}

    def lag(self) -> dict[TopicPartition, int]:
        """Return, for each partition, the number of offsets from the next record to hand out to the high watermark.

        Deleted or compacted records, and markers of transactions, have offsets too, so the number of records may be
        smaller.
        """
        found = {}
        for key in self.assignment:
            end = self.end_offset(*key)
            found[key] = max(end - self.position(*key), 0)
        return found

    def _move(self, key: TopicPartition, offset: int) -> None:
        """See :class:`ReaderConsumer`. A lower offset may be committed now, and a loss is done with."""
        super()._move(key, offset)
        cursor = self._own[key]
        with self._state:
            cursor.read_epoch, cursor.loss, cursor.is_sought, cursor.has_news = NO_EPOCH, None, True, True
            cursor.handed = -1, NO_EPOCH
            self._polled.pop(key, None)
            self._has_loss = any(other.loss is not None for other in self._own.values())

    # -------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Close the consumer and give its name back; a waiting call ends. Nothing is committed. A second call is
        harmless."""
        if self._process.left:
            return
        try:
            super().close()
        finally:
            with self._committing:
                if self._opened_offsets is not None:
                    self._opened_offsets.close()

    def __repr__(self) -> str:
        return (
            f"<pyreplog.NamedConsumer {self.name!r} of {len(self._cursors)}"
            f" partition(s){', closed' if self._closed else ''}>"
        )
