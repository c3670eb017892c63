"""The files of several logs: each folder that a pattern matches is a log of its own, opened like one folder alone.
No Spark in here."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Final, Self

from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import ConfigError, StorageError
from pyreplog.log import DistinctLogs, LogReader
from pyreplog.spark.access import Access, FileAccess
from pyreplog.spark.options import ReadOptions
from pyreplog.spark.places import WILDCARD, LogPartition, log_of
from pyreplog.spark.planner import Available, OffsetRange
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition

__all__ = ["SeveralAccess", "access_of", "matching"]

OPEN_LOGS_MAX: Final = 64
"""So many logs keep their files open."""
NEVER_A_LOG: Final = "lost+found"


def access_of(options: ReadOptions, isolation: str) -> Access:
    """The files that ``options`` name: of one log, or of several."""
    if options.several:
        return SeveralAccess(
            options.logs_in,
            options.path,
            isolation,
            options.max_batch_bytes,
            above_high_watermark=options.above_high_watermark,
        )
    return FileAccess(
        options.path, isolation, options.max_batch_bytes, above_high_watermark=options.above_high_watermark
    )


def matching(base: str, pattern: str) -> dict[str, str]:
    """The folders that match ``pattern`` now, by their names relative to ``base``, its part before the first
    wildcard; sorted.

    ``*`` and ``?`` match no slash, and no dot at the start of a name. Raises :class:`StorageError` for a folder on
    the way that may not be looked into, because folders in it may match.
    """
    folders = [base]
    for part in pattern.removeprefix(base).strip("/").split("/"):
        if WILDCARD.search(part):
            folders = [entry.path for folder in folders for entry in _folders_in(folder) if _matches(entry.name, part)]
        else:
            folders = [path for folder in folders if os.path.isdir(path := os.path.join(folder, part))]
    return {_name(os.path.relpath(folder, base), folder): folder for folder in sorted(folders)}


def _matches(name: str, part: str) -> bool:
    return fnmatchcase(name, part) and (not name.startswith(".") or part.startswith(".")) and name != NEVER_A_LOG


def _folders_in(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if entry.is_dir())
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise StorageError.from_os_error(error, "looking for logs", folder) from error


def _name(name: str, folder: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"the name of the folder {os.fsencode(folder)!r} is not UTF-8, so the column log cannot say it"
        ) from None
    return name


class SeveralAccess:
    """The partitions of the logs that a pattern matches. Belongs to one thread; a context manager.

    Two logs that hold the same partition (a copy, a replica) are refused when both are asked for, because its
    records would be read twice.
    """

    def __init__(
        self,
        base: str,
        pattern: str,
        isolation: str,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        *,
        above_high_watermark: bool = False,
    ) -> None:
        self._includes_above = above_high_watermark
        self._base = base
        self._pattern = pattern
        self._isolation = isolation
        self.max_batch_bytes = max_batch_bytes
        self._disk = SystemDisk()
        self._together = DistinctLogs(self._disk)
        self._logs: dict[str, FileAccess] = {}
        #: Those that may have files open, by last use.
        self._opened: dict[str, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the files. Twice is harmless."""
        for access in self._logs.values():
            access.close()
        self._logs.clear()
        self._opened.clear()

    def partitions(self) -> list[TopicPartition]:
        """Every partition of every log that matches now, sorted. A folder without a log is passed over."""
        self._together = DistinctLogs(self._disk)
        folders = matching(self._base, self._pattern)
        for gone in self._logs.keys() - folders.keys():
            self._logs.pop(gone).close()
            self._opened.pop(gone, None)
        found: list[TopicPartition] = []
        for name, folder in folders.items():
            try:
                found += [LogPartition(*partition, name) for partition in self._log(name).partitions()]
            except ConfigError:
                if os.path.isdir(folder):
                    raise
                # It was removed since the look at the folders, and is one of those that are gone.
        return found

    def refresh(self) -> None:
        """Make :meth:`available` check the folders again."""
        self._together = DistinctLogs(self._disk)
        for name, access in list(self._logs.items()):
            try:
                access.refresh()
            except (ConfigError, StorageError):
                if os.path.isdir(os.path.join(self._base, name)):
                    raise
                self._logs.pop(name).close()  # its folder was removed since it was looked at

    def reader(self, partition: TopicPartition) -> LogReader | None:
        """Return the reader of one partition; None if it has no folder."""
        access = self._there(partition)
        return None if access is None else access.reader(_within(partition))

    def reopen(self, partition: TopicPartition) -> LogReader | None:
        """Search all folders again and return a new reader; None if the partition has no folder."""
        access = self._there(partition)
        return None if access is None else access.reopen(_within(partition))

    def available(self, partition: TopicPartition) -> Available | None:
        """Return the offsets that readers may see, as of the opening or the last :meth:`refresh`; None if the
        partition has no folder.

        Raises :class:`ConfigError` if another log that was used since the last :meth:`partitions` holds the same
        partition.
        """
        access = self._there(partition)
        found = None if access is None else access.available(_within(partition))
        reader = None if found is None else self.reader(partition)
        if found is None or reader is None:
            return None
        self._together.add(os.path.join(self._base, log_of(partition)), [reader])
        return replace(found, cluster_id=self._together.cluster_id(reader))

    def cluster_id(self, partition: TopicPartition) -> str:
        """The cluster id of its log's folder, as it is now; "" if the folder does not say."""
        return self._log(log_of(partition)).cluster_id(_within(partition))

    def find_timestamp(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Return the offset of the first record at or after ``timestamp`` (ms); None if there is none."""
        return self._log(log_of(partition)).find_timestamp(_within(partition), timestamp)

    def split_points(self, whole: OffsetRange, size: int) -> list[int]:
        """See :meth:`FileAccess.split_points`."""
        return self._log(whole.log).split_points(whole, size)

    def size_of(self, whole: OffsetRange) -> int:
        """See :meth:`FileAccess.size_of`."""
        return self._log(whole.log).size_of(whole)

    def missing(self, whole: OffsetRange) -> int:
        """See :meth:`FileAccess.missing`."""
        return self._log(whole.log).missing(whole)

    def first_at(self, partition: TopicPartition, offset: int) -> int:
        """See :meth:`FileAccess.first_at`."""
        return self._log(log_of(partition)).first_at(_within(partition), offset)

    def _there(self, partition: TopicPartition) -> FileAccess | None:
        """The files of the log of ``partition``; None if its folder is gone."""
        log = log_of(partition)
        return self._log(log) if os.path.isdir(os.path.join(self._base, log)) else None

    def _log(self, name: str) -> FileAccess:
        """The files of one log. The files of the log that was not used for longest are closed; they are opened
        again if they are needed."""
        if name not in self._logs:
            path = os.path.join(self._base, name)
            self._logs[name] = FileAccess(
                path, self._isolation, self.max_batch_bytes, above_high_watermark=self._includes_above
            )
        self._opened.pop(name, None)
        self._opened[name] = None
        if len(self._opened) > OPEN_LOGS_MAX:
            oldest = next(iter(self._opened))
            del self._opened[oldest]
            self._logs[oldest].release()
        return self._logs[name]


def _within(partition: TopicPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)
