"""Which partitions lie under a path, and where: a log root, a cluster's folder with several roots, a broker's, or one bare partition."""

from __future__ import annotations

from typing import Final

from pyreplog.log.copy import PartitionCopy, RootView
from pyreplog.log.layout import (
    INCARNATION_NAME,
    LOG_SUFFIX,
    META_PROPERTIES_NAME,
    PARTITION_METADATA_NAME,
    join,
    name_of,
    parent_of,
    parse_base_offset,
    parse_directory_name,
)
from pyreplog.log.reader import LogReader
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition

_ROOT_FILES: Final = (META_PROPERTIES_NAME, INCARNATION_NAME)


class Finder:
    """The roots under ``path`` and what their files say, as they were when it was made. Short-lived: make another one for a fresh look.

    Raises :class:`StorageError` where there is no such folder.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        #: The one partition, where the path is its folder.
        self._bare: TopicPartition | None = None
        self._roots = [path]
        self._views: dict[str, RootView] = {}
        self._folders: dict[TopicPartition, list[str]] | None = None
        names = disk.list(path)
        if any(parse_base_offset(name, LOG_SUFFIX) is not None for name in names):
            parsed = parse_directory_name(name_of(path))
            self._bare = parsed.topic_partition if parsed is not None else TopicPartition(name_of(path), 0)
        elif not any(name in _ROOT_FILES for name in names):
            # A node's root may be called `node-1`, which would also be the name of a partition: what is in it decides.
            self._roots = [root for name in names if self._is_root(root := join(path, name))] or [path]

    def folders(self) -> dict[TopicPartition, list[str]]:
        """The folders of each partition, sorted by partition: one, or in a cluster's folder one for each node that has it."""
        if self._folders is None:
            found: dict[TopicPartition, list[str]] = {} if self._bare is None else {self._bare: [self._path]}
            for root in self._roots if self._bare is None else ():
                for name in self._disk.list(root):
                    parsed = parse_directory_name(name)
                    if parsed is not None and not parsed.kind and is_partition(self._disk, join(root, name)):
                        found.setdefault(parsed.topic_partition, []).append(join(root, name))
            self._folders = {partition: found[partition] for partition in sorted(found)}
        return self._folders

    def open(self, partition: TopicPartition) -> LogReader | None:
        """A reader of one partition, without a look at the others; None where it has no folder."""
        if self._folders is not None:
            folders = self._folders.get(partition, [])
        elif self._bare is not None:
            folders = [self._path] if partition == self._bare else []
        else:
            paths = [join(root, f"{partition.topic}-{partition.partition}") for root in self._roots]
            folders = [path for path in paths if is_partition(self._disk, path)]
        return LogReader(partition, [self._copy(folder, partition) for folder in folders]) if folders else None

    def _copy(self, folder: str, partition: TopicPartition) -> PartitionCopy:
        root = parent_of(folder)
        if root not in self._views:
            self._views[root] = RootView(self._disk, root)
        return PartitionCopy(self._disk, folder, partition, self._views[root])

    def _is_root(self, path: str) -> bool:
        return any(self._disk.stat(join(path, file)) is not None for file in _ROOT_FILES)


def is_partition(disk: Disk, path: str) -> bool:
    """Whether the files of a partition lie right in the folder ``path``."""
    if disk.stat(join(path, PARTITION_METADATA_NAME)) is not None:
        return True
    found = disk.stat(path)
    if found is None or not found.is_directory:
        return False
    return any(parse_base_offset(name, LOG_SUFFIX) is not None for name in disk.list(path))


def open_readers(disk: Disk, path: str, topic: str | None = None) -> dict[TopicPartition, LogReader]:
    """A reader for every partition under ``path``, or for those of ``topic``; sorted. Nothing is locked or written.

    Raises :class:`StorageError` where there is no such folder, :class:`CorruptError` for a message format that is not read.
    """
    readers: dict[TopicPartition, LogReader] = {}
    try:
        finder = Finder(disk, path)
        for key in finder.folders():
            if (topic is None or key.topic == topic) and (reader := finder.open(key)) is not None:
                readers[key] = reader
    except BaseException:
        for reader in readers.values():
            reader.close()
        raise
    return readers


def list_topics(disk: Disk, path: str) -> dict[str, list[int]]:
    """The topics under ``path`` and their partitions that have a folder there, both sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in Finder(disk, path).folders():
        topics.setdefault(topic, []).append(partition)
    return topics
