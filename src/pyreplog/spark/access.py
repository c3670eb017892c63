"""How a Spark process reaches a log: by its files, on a path that driver and workers share. No lock is taken and
nothing is written.

The writers go on during a query: they append, roll, delete, fail over. So a file that was found may be gone when it
is read; then the folders are searched again. This module does not import Spark.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from pyreplog.config import MAX_BATCH_BYTES, nearest
from pyreplog.errors import (
    BatchTooLargeError,
    ConfigError,
    CorruptError,
    OffsetOutOfRangeError,
    PyreplogError,
    StorageError,
    TopicRecreatedError,
)
from pyreplog.log import READ_COMMITTED, READ_UNCOMMITTED, Finder, LogReader, cluster_id_of
from pyreplog.record import RecordBatch, record_lists_of
from pyreplog.spark.planner import Available, OffsetRange
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition

__all__ = ["CHANGES", "GONE", "Access", "FileAccess", "moved"]

OPEN_READERS_MAX: Final = 64
"""So many partitions keep their files open."""
TRIES: Final = 5
PAUSE_S: Final = 0.02
"""Between tries: a replica that is being cut or removed is done with that soon."""

LOOKS_MAX: Final = 16
"""So many batches without records are passed by one look for a record."""
GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)

CHANGES: Final = (StorageError, CorruptError, OffsetOutOfRangeError, TopicRecreatedError)
"""The errors that a reader may raise because its files change while it reads them."""

Result = TypeVar("Result")


def moved(error: PyreplogError) -> bool:
    """Whether ``error``, one of :data:`CHANGES`, may come from that, so that another look is worth it."""
    return not isinstance(error, StorageError) or error.errno in GONE


def _near(path: str) -> str:
    """A folder beside ``path`` whose name is like its own, as a part of a sentence."""
    try:
        names = tuple(sorted(entry.name for entry in os.scandir(os.path.dirname(path)) if entry.is_dir()))
    except OSError:
        return ""
    near = nearest(os.path.basename(path), names)
    return "" if near is None else f" (did you mean {near!r}?)"


class Access(Protocol):
    """What planning and reading ask of files: those of one log (:class:`FileAccess`), or of several, whose places
    are other ones."""

    max_batch_bytes: int

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def close(self) -> None:
        """See :meth:`FileAccess.close`; so the others."""
        ...

    def partitions(self) -> Sequence[TopicPartition]: ...
    def refresh(self) -> None: ...
    def reader(self, partition: TopicPartition) -> LogReader | None: ...
    def reopen(self, partition: TopicPartition) -> LogReader | None: ...
    def available(self, partition: TopicPartition) -> Available | None: ...
    def cluster_id(self, partition: TopicPartition) -> str: ...
    def find_timestamp(self, partition: TopicPartition, timestamp: int) -> int | None: ...
    def split_points(self, whole: OffsetRange, size: int) -> list[int]: ...
    def size_of(self, whole: OffsetRange) -> int: ...
    def missing(self, whole: OffsetRange) -> int: ...
    def first_at(self, partition: TopicPartition, offset: int) -> int: ...


class FileAccess:
    """The partitions under one folder. Each is opened when first asked for; belongs to one thread; a context
    manager."""

    def __init__(
        self,
        path: str,
        isolation: str = READ_UNCOMMITTED,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        *,
        above_high_watermark: bool = False,
    ) -> None:
        self._isolation = isolation
        self._includes_above = above_high_watermark
        self.max_batch_bytes = max_batch_bytes
        self._disk = SystemDisk()
        self._path = path
        self._finder: Finder | None = None
        self._readers: dict[TopicPartition, LogReader] = {}
        #: Those that may have files open, by last use.
        self._opened: dict[TopicPartition, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the files. Twice is harmless."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._opened.clear()

    def release(self) -> None:
        """Close the files until they are needed again."""
        for reader in self._readers.values():
            reader.release()

    def partitions(self) -> list[TopicPartition]:
        """Every partition that has a folder now, sorted. :class:`ConfigError` where the path is no folder of a log,
        StorageError if a cluster has more of them, on a node's disk that is not mounted."""
        self._finder = None
        folders = self._steady(lambda: self._find().claimed())
        self._find().check_whole()
        for partition in [known for known, reader in self._readers.items() if reader.replicas != folders.get(known)]:
            self._forget(partition)
        return list(folders)

    def refresh(self) -> None:
        """Make :meth:`available` check the folders again."""
        for partition in list(self._readers):
            self._steady(lambda partition=partition: self._refresh(partition))  # type: ignore[misc]

    def reopen(self, partition: TopicPartition) -> LogReader | None:
        """Search all folders again and return a new reader; None if the partition has no folder."""
        self._forget(partition)
        self._finder = None
        return self.reader(partition)

    def reader(self, partition: TopicPartition) -> LogReader | None:
        """Return the reader of one partition; None if it has no folder."""
        reader = self._readers.pop(partition, None)
        if reader is None:
            reader = self._steady(lambda: self._open(partition))
        if reader is not None:
            reader.max_batch_bytes = self.max_batch_bytes
            self._readers[partition] = reader
            self._used(partition)
        return reader

    def _open(self, partition: TopicPartition) -> LogReader | None:
        reader = self._find().open(partition)
        if reader is not None and self._includes_above:
            reader.include_above_high_watermark()
        return reader

    def available(self, partition: TopicPartition) -> Available | None:
        """Return the offsets that readers may see, as of the opening or the last :meth:`refresh`; None if the
        partition has no folder."""
        return self._asked(partition, self._available)

    def _available(self, reader: LogReader) -> Available:
        if self._isolation != READ_COMMITTED:
            return Available(reader.start_offset, reader.end_offset, reader.topic_id)
        return Available(reader.start_offset, reader.last_stable_offset, reader.topic_id, reader.end_offset)

    def cluster_id(self, partition: TopicPartition) -> str:
        """The cluster id in the root that it is read from, as it is now; "" if the root does not say."""
        reader = self.reader(partition)
        return "" if reader is None else cluster_id_of(self._disk, os.path.dirname(reader.directory))

    def find_timestamp(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Return the offset of the first record at or after ``timestamp`` (ms); None if there is none."""
        found = self._asked(partition, lambda reader: reader.isolated(self._isolation).find_timestamp(timestamp))
        return None if found is None else found[0]

    def split_points(self, whole: OffsetRange, size: int) -> list[int]:
        """Return the offsets strictly inside ``whole`` at which pieces of about ``size`` bytes begin. Missing
        records are ignored here: the reader of their piece reports them."""

        def look(reader: LogReader) -> list[int]:
            start = max(whole.start, reader.start_offset)
            return reader.split_points(start, whole.end, size) if start <= reader.end_offset else []

        points = self._asked(TopicPartition(whole.topic, whole.partition), look)
        return [point for point in points or () if whole.start < point < whole.end]

    def size_of(self, whole: OffsetRange) -> int:
        """About how many bytes ``whole`` has: segments in it count whole, those it cuts by their share of
        offsets, without those that compaction removed."""
        reader = self.reader(TopicPartition(whole.topic, whole.partition))
        if reader is None:
            return 0
        segments = reader.segments()
        ends = [base for base, _ in segments[1:]] + [max(reader.end_offset, whole.end)]
        total = 0.0
        for (base, size), end in zip(segments, ends, strict=True):
            first, last = max(base, whole.start), min(end, whole.end)
            if size and last > first:
                is_cut = (first, last) != (base, end)
                inside = last - first - (self.missing(replace(whole, start=first, end=last)) if is_cut else 0)
                among = end - base - (self.missing(replace(whole, start=base, end=end)) if is_cut else 0)
                total += size * inside / max(among, 1) if is_cut else size
        return int(total)

    def missing(self, whole: OffsetRange) -> int:
        """How many offsets of ``whole`` have no batch because compaction removed it, as far as that is recorded."""
        place = TopicPartition(whole.topic, whole.partition)
        return self._asked(place, lambda reader: reader.missing(whole.start, whole.end)) or 0

    def first_at(self, partition: TopicPartition, offset: int) -> int:
        """Return the offset of the first record at or behind ``offset``, or one below it: it looks at a few batches.
        ``offset`` itself where nothing can be read."""

        def look(reader: LogReader) -> int:
            at = offset
            for _ in range(LOOKS_MAX):
                if not reader.start_offset <= at < reader.end_offset:
                    break
                data = reader.read(at, 1)
                if not data.nbytes:
                    return reader.end_offset
                batch = RecordBatch(data)
                first = next((records[0] for records in record_lists_of(batch, start=at) if records), None)
                if first is not None:
                    return first.offset
                at = batch.next_offset
            return at

        try:
            found = self._asked(partition, look)
        except (BatchTooLargeError, *CHANGES):
            return offset  # the reading of it tells why
        return offset if found is None else found

    def _asked(self, partition: TopicPartition, ask: Callable[[LogReader], Result]) -> Result | None:
        """Return the result of ``ask`` for the partition's reader. If the files changed during the call, search the
        folders again and repeat it."""

        def once() -> Result | None:
            reader = self.reader(partition)
            if reader is None:
                return None
            try:
                return ask(reader)
            except CHANGES:
                self._forget(partition)
                raise

        return self._steady(once)

    def _refresh(self, partition: TopicPartition) -> None:
        reader = self._readers.get(partition)
        if reader is None:
            self.reader(partition)  # a try before this one forgot it
            return
        try:
            reader.refresh()
        except CHANGES:
            self._forget(partition)
            raise
        self._used(partition)

    def _used(self, partition: TopicPartition) -> None:
        """Record a use of the partition's reader, and close the files of the least recently used one."""
        self._opened.pop(partition, None)
        self._opened[partition] = None
        if len(self._opened) > OPEN_READERS_MAX:
            oldest = next(iter(self._opened))
            del self._opened[oldest]
            self._readers[oldest].release()

    def _forget(self, partition: TopicPartition) -> None:
        reader = self._readers.pop(partition, None)
        self._opened.pop(partition, None)
        if reader is not None:
            reader.close()

    def _find(self) -> Finder:
        if self._finder is None:
            try:
                self._finder = Finder(self._disk, self._path)
            except StorageError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    raise
                what = (
                    f"does not exist on this machine{_near(self._path)}" if error.errno == errno.ENOENT else "is a file"
                )
                raise ConfigError(
                    f"path {self._path} {what}; it must be the folder of a log, of a cluster, or a broker's log.dirs"
                ) from None
        return self._finder

    def _steady(self, look: Callable[[], Result]) -> Result:
        """What ``look`` gives, which is tried again where files go away under it."""
        for left in reversed(range(TRIES)):
            try:
                return look()
            except CHANGES as error:
                if not left or not moved(error):
                    raise
                self._finder = None
                time.sleep(PAUSE_S)
        raise AssertionError  # the last try returned or raised
