"""The views that a Log reads from: the log that this process writes, or files that another process
may write. Both give batches below the high watermark."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from itertools import chain
from typing import Final, Protocol

from pyreplog.config import MAX_BATCH_BYTES, LogConfig
from pyreplog.errors import BatchTooLargeError, CorruptError, CorruptLogError
from pyreplog.log import CommittedSource, LogReader, StableSource
from pyreplog.ports import Buffer, Disk
from pyreplog.record import Record, record_lists_of, split
from pyreplog.runtime.follow import ChangeSignal, FileWatchSignal, Followed, JoinedSignal
from pyreplog.runtime.log_writer import LogWriter
from pyreplog.system import OwnedLock
from pyreplog.values import EpochEntry, LogStats

__all__ = [
    "CommittedView",
    "LogView",
    "ReaderView",
    "WriterView",
    "record_lists",
    "records",
    "records_in_time",
]

READ_SIZE: Final = 1 << 20
"""Bytes taken from the log at once."""
FIRST_READ_SIZE: Final = 16 << 10
"""Bytes of the first read, so that a look-up of one record does not wait for thousands of batches."""
_forked: Final[weakref.WeakSet[ReaderView | JoinedSignal]] = weakref.WeakSet()
"""The open readers and their signals, which take new locks in the child of a fork."""


class RecordView(Protocol):
    """The source of the records of one partition."""

    topic: str
    partition: int
    is_checked: bool
    """Whether :meth:`read` verified the checksums of the returned batches."""

    @property
    def max_batch_bytes(self) -> int:
        """The largest compressed batch, in unpacked bytes, that is read. It is unpacked in parts."""
        ...

    def read(self, offset: int, size_max: int) -> Buffer:
        """Return whole batches, from that of ``offset`` on; empty at the end."""
        ...

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error for the damaged batch that was read for ``offset``, with its file and position."""
        ...


class TimedView(RecordView, Protocol):
    """A view that can be searched by time."""

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) such that no earlier record is at or after ``timestamp`` (ms); None if none is."""
        ...


class LogView(Followed, StableSource, Protocol):
    """One partition as a reader may see it."""

    topic: str
    partition: int
    is_checked: bool
    """Whether :meth:`read` verified the checksums of the returned batches."""

    @property
    def directory(self) -> str:
        """The folder from which records are read."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The end of the log, as far as this view can tell."""
        ...

    def stats(self) -> LogStats:
        """Return the offsets, sizes and counters of the log."""
        ...

    @property
    def config(self) -> LogConfig:
        """The log's settings."""
        ...

    def close(self) -> None:
        """Release the files or the log."""
        ...


class WriterView:
    """Read the log that this process writes. Any thread: positions are looked up under the writer's
    lock, bytes are read without it."""

    def __init__(self, writer: LogWriter, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        self._writer = writer
        self.max_batch_bytes = max_batch_bytes
        self._closed = False
        self.topic, self.partition = writer.log.topic_partition
        self.is_checked = False

    @property
    def directory(self) -> str:
        """The partition's folder."""
        return self._writer.log.directory

    @property
    def topic_id(self) -> str:
        """The topic's id; empty for an old log that has none yet."""
        return self._writer.log.topic_id

    @property
    def epochs(self) -> list[EpochEntry]:
        """The leader epochs, with the first offset of each."""
        return self._writer.log.epochs.entries

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch; -1 if there is none."""
        return self._writer.log.epochs.latest

    @property
    def dropped_tombstone(self) -> int:
        """The highest offset of a tombstone that compaction dropped; -1 if it dropped none."""
        return self._writer.log.dropped_tombstone

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return self._writer.log.start_offset

    @property
    def end_offset(self) -> int:
        """The high watermark."""
        return self._writer.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset of the log."""
        return self._writer.log.last_stable_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._writer.log.end_offset

    def refresh(self) -> None:
        """Write the open batch of ``append_nowait``: its records were appended before."""
        self._writer.write_open_batch()

    def read(self, offset: int, size_max: int) -> Buffer:
        """Return whole batches below the high watermark, from that of ``offset`` on; empty at the end."""
        writer = self._writer
        parts = writer.read(offset, size_max, writer.log.high_watermark).parts()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after ``timestamp`` (ms)."""
        return self._writer.find_timestamp(timestamp, self.max_batch_bytes)

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error for the damaged batch that was read for ``offset``, with its file and position."""
        return self._writer.damage(offset, reason)

    def see_behind(self) -> None:
        """Do nothing: the log itself says how far readers may see."""

    def stats(self) -> LogStats:
        """Return the offsets, sizes and counters of the log."""
        return self._writer.stats()

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self._writer.log.config

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called, or the process is ending."""
        return self._closed or self._writer.closed

    def look(self) -> None:
        """See :class:`Followed`. Only check the writer: the view reads the log itself, and the background thread writes
        the open batch soon."""
        writer = self._writer
        if writer.failure is not None:
            writer.check()

    def records(self, start: int, end: int) -> Iterator[Record]:
        """Return the records of the half-open range."""
        return records(self, start, end)

    def news(self) -> ChangeSignal:
        """Return a signal that the writer gives as soon as the high watermark moves."""
        return self._writer.follow()

    def news_with(self, disk: Disk, path: str) -> ChangeSignal:
        """Return a signal that the disk gives too, when another process writes the file ``path``."""
        news = JoinedSignal(disk, [path], self._writer.follow())
        _forked.add(news)
        return news

    def close(self) -> None:
        """Close the writer."""
        self._closed = True
        self._writer.close()


class ReaderView:
    """Read files that another process may be writing. Any thread: one lock guards the reader's own
    state."""

    def __init__(self, reader: LogReader, disk: Disk) -> None:
        self._reader = reader
        self._disk = disk
        self._own_lock = OwnedLock(f"the reader of {reader.directory!r}")
        self._closed = False
        self._news: weakref.WeakSet[FileWatchSignal] = weakref.WeakSet()
        self.topic, self.partition = reader.topic, reader.partition
        self.is_checked = True
        _forked.add(self)

    @property
    def _lock(self) -> OwnedLock:
        return self._own_lock.enter()

    @property
    def directory(self) -> str:
        """The folder from which records are read: of several copies, the one with the highest end."""
        return self._reader.directory

    @property
    def topic_id(self) -> str:
        """The topic's id; empty for an old log that has none yet."""
        return self._reader.topic_id

    @property
    def epochs(self) -> list[EpochEntry]:
        """The leader epochs, with the first offset of each, as of the last :meth:`refresh`."""
        with self._lock:
            return self._reader.epochs

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch as of the last :meth:`refresh`; -1 if there is none."""
        return self._reader.leader_epoch

    @property
    def dropped_tombstone(self) -> int:
        """The highest offset of a tombstone that compaction dropped, as the files say now; -1 if it dropped none."""
        with self._lock:
            return self._reader.dropped_tombstone

    @property
    def durability(self) -> str | None:
        """``"sync"`` or ``"os"``; None if the folder has no mark, as one of a broker."""
        return self._reader.durability

    @property
    def above_high_watermark(self) -> int:
        """How many offsets lie in whole batches above the high watermark of the copy that is read."""
        with self._lock:
            return self._reader.above_high_watermark

    @property
    def max_batch_bytes(self) -> int:
        """The largest compressed batch, in unpacked bytes, that is read. It is unpacked in parts."""
        return self._reader.max_batch_bytes

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return self._reader.start_offset

    @property
    def end_offset(self) -> int:
        """The high watermark, as far as the last :meth:`refresh` saw it."""
        return self._reader.end_offset

    @property
    def marks(self) -> list[str]:
        """The files that a writer changes when there is more to read."""
        with self._lock:
            return self._reader.marks

    def log_end(self) -> int:
        """Return the end of the whole batches that are there, also of those above the high watermark."""
        with self._lock:
            return self._reader.end_offset + self._reader.above_high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset, as of the last :meth:`refresh`."""
        with self._lock:
            return self._reader.last_stable_offset

    @property
    def log_end_offset(self) -> int:
        """The high watermark: a reader cannot tell how many records lie behind it."""
        return self._reader.end_offset

    def refresh(self) -> None:
        """Read the mark again, and see the newly appended records."""
        with self._lock:
            self._reader.refresh()

    def read(self, offset: int, size_max: int) -> Buffer:
        """Return whole batches below the high watermark, from that of ``offset`` on; empty at the end."""
        with self._lock:
            return self._reader.read(offset, size_max)

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after ``timestamp`` (ms)."""
        with self._lock:
            return self._reader.find_timestamp(timestamp)

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error for the damaged batch that was read for ``offset``, with its file and position."""
        with self._lock:
            return self._reader.damage(offset, reason)

    def see_behind(self) -> None:
        """Also read the whole batches behind damage at the end of a lone folder without a mark."""
        with self._lock:
            self._reader.see_behind()

    def stats(self) -> LogStats:
        """Return the offsets and sizes of the log. A reader appended and synced nothing."""
        with self._lock:
            reader = self._reader
            reader.refresh()
            segments = reader.segments()
            return LogStats(
                start_offset=reader.start_offset,
                end_offset=reader.end_offset,
                flushed_offset=min(reader.flushed_offset, reader.end_offset),
                high_watermark=reader.end_offset,
                leader_epoch=reader.leader_epoch,
                segment_count=len(segments),
                size=sum(size for _, size in segments),
                batches_appended=0,
                records_appended=0,
                bytes_appended=0,
                syncs=0,
                torn_bytes_cut=0,
            )

    @property
    def config(self) -> LogConfig:
        """The settings kept with the log, as they are now."""
        with self._lock:
            return self._reader.config()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def look(self) -> None:
        """Read the mark again, and see the newly appended records."""
        self.refresh()

    def records(self, start: int, end: int) -> Iterator[Record]:
        """Return the records of the half-open range."""
        return records(self, start, end)

    def news(self) -> FileWatchSignal:
        """Return a signal of the disk, which watches the marks."""
        return self._watch(self._disk, [])

    def news_with(self, disk: Disk, path: str) -> FileWatchSignal:
        """Return a signal of the disk, which watches the marks and the file ``path``."""
        return self._watch(disk, [path])

    def _watch(self, disk: Disk, paths: list[str]) -> FileWatchSignal:
        with self._lock:
            news = FileWatchSignal(disk, [*self._reader.marks, *paths])
            self._news.add(news)
            return news

    def forked(self) -> None:
        """Take new locks, because this process is a forked child and threads of the parent may have held the old ones.
        The files refuse to be read."""
        self._own_lock = OwnedLock(f"the reader of {self._reader.directory!r}")
        for news in list(self._news):
            news.forked()

    def close(self) -> None:
        """Release the files."""
        with self._lock:
            self._closed = True
            self._reader.close()
            waiting = list(self._news)
        for news in waiting:
            news.wake()


class CommittedView:
    """A view without aborted records, up to its last stable offset."""

    def __init__(self, view: WriterView | ReaderView) -> None:
        self._view = view
        self._source = CommittedSource(view)
        self.topic, self.partition = view.topic, view.partition
        self.is_checked = view.is_checked

    @property
    def directory(self) -> str:
        """The folder from which records are read."""
        return self._view.directory

    @property
    def topic_id(self) -> str:
        """The topic's id; empty for an old log that has none yet."""
        return self._view.topic_id

    @property
    def epochs(self) -> list[EpochEntry]:
        """The leader epochs, with the first offset of each."""
        return self._view.epochs

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch; -1 if there is none."""
        return self._view.leader_epoch

    @property
    def dropped_tombstone(self) -> int:
        """The highest offset of a tombstone that compaction dropped; -1 if it dropped none."""
        return self._view.dropped_tombstone

    @property
    def max_batch_bytes(self) -> int:
        """The view's limit for one compressed batch, in unpacked bytes."""
        return self._view.max_batch_bytes

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return self._view.start_offset

    @property
    def end_offset(self) -> int:
        """The last stable offset."""
        return self._view.last_stable_offset

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset, which is also the end of this view."""
        return self._view.last_stable_offset

    @property
    def source_view(self) -> WriterView | ReaderView:
        """The view of all records that this one is made of."""
        return self._view

    @property
    def log_end_offset(self) -> int:
        """The end of the log, as far as the view can tell."""
        return self._view.log_end_offset

    def refresh(self) -> None:
        """See the newly appended records."""
        self._view.refresh()

    def read(self, offset: int, size_max: int) -> Buffer:
        """Return whole batches that were not aborted, from that of ``offset`` or the next on; empty at the end."""
        return self._source.read(offset, size_max)

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after ``timestamp`` (ms), which may
        be an aborted one."""
        return self._source.find_timestamp(timestamp)

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error for the damaged batch that was read for ``offset``, with its file and position."""
        return self._view.damage(offset, reason)

    def stats(self) -> LogStats:
        """Return the offsets, sizes and counters of the log."""
        return self._view.stats()

    @property
    def config(self) -> LogConfig:
        """The log's settings."""
        return self._view.config

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._view.closed

    def look(self) -> None:
        """Have the view look for new records."""
        self._view.look()

    def records(self, start: int, end: int) -> Iterator[Record]:
        """Return the records of the half-open range."""
        return records(self, start, end)

    def news(self) -> ChangeSignal:
        """Return a signal of the view. It may come for records that are not committed yet."""
        return self._view.news()

    def news_with(self, disk: Disk, path: str) -> ChangeSignal:
        """Return a signal of the view, which also tells of the file ``path``."""
        return self._view.news_with(disk, path)

    def close(self) -> None:
        """Close the view."""
        self._view.close()


def records(view: RecordView, start: int, end: int) -> Iterator[Record]:
    """Yield the records of the half-open range; a batch is verified before its first record is
    yielded."""
    return chain.from_iterable(record_lists(view, start, end))


def records_in_time(view: TimedView, start: int, end: int, low: int | None, high: int | None) -> Iterator[Record]:
    """Yield the records of the half-open range of offsets whose timestamp (ms) is at least ``low``
    and below ``high`` (None: no bound); a record without a timestamp is in no range."""
    if low is not None:
        found = view.find_timestamp(low)
        if found is None:
            return
        start = max(start, found[0])
    for record in records(view, start, end):
        timestamp = record.timestamp
        if timestamp != -1 and (low is None or timestamp >= low) and (high is None or timestamp < high):
            yield record


def record_lists(view: RecordView, start: int, end: int) -> Iterator[list[Record]]:
    """Yield the records of one batch at a time (of a large batch, of one part at a time); no list
    is empty."""
    size_max = min(FIRST_READ_SIZE, READ_SIZE)
    while start < end:
        before = start
        for batch in split(view.read(start, size_max)):
            try:
                if not view.is_checked:
                    batch.check_crc()
                yield from record_lists_of(batch, view.topic, view.partition, start, end, view.max_batch_bytes)
            except BatchTooLargeError as error:
                raise error.placed(view.damage(max(start, batch.base_offset), "")) from None
            except CorruptError as error:
                raise view.damage(max(start, batch.base_offset), error.reason) from None
            start = batch.next_offset
            if start >= end:
                return
            del batch  # free its memory before the next read: with two batches alive each read takes new memory
        if start == before:
            return  # the view has no more batches
        size_max = min(4 * size_max, READ_SIZE)


def _in_child() -> None:
    for one in list(_forked):
        one.forked()


os.register_at_fork(after_in_child=_in_child)
