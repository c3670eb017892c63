"""How a Spark process reaches a log: by its files, on a path that driver and workers share. No lock is taken and nothing is written.

No Spark in here.
"""

from __future__ import annotations

import errno
from types import TracebackType
from typing import Self

from pyreplog.arrow import BatchSource
from pyreplog.errors import ConfigError, StorageError
from pyreplog.log import LogReader, list_topics, open_readers
from pyreplog.spark.planner import Available, OffsetRange
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition

__all__ = ["FileAccess"]


class FileAccess:
    """The partitions under one folder. Opens those of a topic when first asked for one; belongs to one thread; a context manager."""

    def __init__(self, path: str) -> None:
        self._disk = SystemDisk()
        self._path = path
        self._readers: dict[TopicPartition, LogReader] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release the files. Twice is harmless."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def partitions(self) -> list[TopicPartition]:
        """Every partition that has a folder, sorted. :class:`ConfigError` where the path is no folder of a log."""
        try:
            topics = list_topics(self._disk, self._path)
        except StorageError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            what = "does not exist on this machine" if error.errno == errno.ENOENT else "is a file"
            raise ConfigError(f"path {self._path} {what}; it must be the folder of a log, of a cluster, or a broker's log.dirs") from None
        return [TopicPartition(topic, partition) for topic, partitions in topics.items() for partition in partitions]

    def available(self, partition: TopicPartition) -> Available | None:
        """What readers may see of it now; None where it has no folder."""
        reader = self._reader(partition)
        return None if reader is None else Available(reader.start_offset, reader.end_offset, reader.topic_id)

    def find_timestamp(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Offset of its first record at or after ``timestamp`` (ms); None where there is none."""
        reader = self._reader(partition)
        found = None if reader is None else reader.find_timestamp(timestamp)
        return None if found is None else found[0]

    def split_points(self, whole: OffsetRange, size: int) -> list[int]:
        """Offsets strictly inside ``whole`` at which pieces of about ``size`` bytes begin."""
        reader = self._reader(TopicPartition(whole.topic, whole.partition))
        points = [] if reader is None else reader.split_points(whole.start, whole.end, size)
        return [point for point in points if whole.start < point < whole.end]

    def source(self, wanted: OffsetRange) -> BatchSource:
        """Where to read it. REQUIRES that :meth:`available` gave something."""
        reader = self._reader(TopicPartition(wanted.topic, wanted.partition))
        assert reader is not None
        return reader

    def _reader(self, partition: TopicPartition) -> LogReader | None:
        if partition not in self._readers:
            opened = open_readers(self._disk, self._path, partition.topic)
            for reader in [self._readers[key] for key in opened if key in self._readers]:
                reader.close()
            self._readers.update(opened)
        return self._readers.get(partition)
