"""Which partitions lie under a path, and where: a log root, a cluster's folder with several roots, a broker's, or one bare partition.

This is the one place that tells these apart for whoever reads; ``verify``, which shares no code with it, has its own.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Final

from pyreplog.errors import StorageError
from pyreplog.log.copy import PartitionCopy, RootView
from pyreplog.log.identity import read_properties
from pyreplog.log.layout import (
    INCARNATION_NAME,
    META_PROPERTIES_NAME,
    PARTITION_METADATA_NAME,
    is_log_file,
    join,
    name_of,
    parent_of,
    parse_directory_name,
)
from pyreplog.log.reader import LogReader
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition

DEPTH_MAX: Final = 2
"""Roots lie so deep below a cluster's folder at most: each node's is in it (`node-1`), or in a folder of that node (`n1/data`)."""

_ROOT_FILES: Final = (META_PROPERTIES_NAME, INCARNATION_NAME)


def find_roots(disk: Disk, path: str, depth: int = DEPTH_MAX) -> list[str]:
    """The log roots that the folder ``path`` stands for, in the order of their names: itself, or those in it, or, where it has none
    itself, those one folder deeper if all are of one cluster. Empty where there are none.

    ``depth``: look so many folders deep at most. Raises :class:`StorageError` where there is no such folder.
    """
    return _find_roots(disk, path, disk.list(path), depth)


def _find_roots(disk: Disk, path: str, names: Iterable[str], depth: int) -> list[str]:
    if any(name in _ROOT_FILES for name in names):
        return [path]
    # A node's root may be called `node-1`, which would also be the name of a partition: what is in it decides.
    below = [join(path, name) for name in names]
    roots = [folder for folder in below if _is_root(disk, folder)] if depth > 0 else []
    if roots or depth < DEPTH_MAX or any(parse_directory_name(name_of(folder)) and is_partition(disk, folder) for folder in below):
        return roots
    deeper = [join(folder, name) for folder in below if not name_of(folder).startswith(".") for name in _names_in(disk, folder)]
    roots = [folder for folder in deeper if _is_root(disk, folder)]
    clusters = {properties.get("cluster.id") for folder in roots if (properties := read_properties(disk, folder)) is not None}
    return roots if len(clusters) <= 1 else []  # what is of several clusters has nothing to do with one another


def _is_root(disk: Disk, path: str) -> bool:
    return any(disk.stat(join(path, file)) is not None for file in _ROOT_FILES)


def _names_in(disk: Disk, path: str) -> list[str]:
    """What is in the folder ``path``; nothing where it is none, is gone, or may not be looked into: it is none of ours then."""
    found = disk.stat(path)
    if found is None or not found.is_directory:
        return []
    try:
        return list(disk.list(path))
    except StorageError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM):
            raise
        return []


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
        if any(map(is_log_file, names)):
            parsed = parse_directory_name(name_of(path))
            self._bare = parsed.topic_partition if parsed is not None else TopicPartition(name_of(path), 0)
        else:
            self._roots = _find_roots(disk, path, names, DEPTH_MAX) or [path]

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
        if not folders:
            return None
        return LogReader(partition, [self._copy(folder, partition) for folder in folders], self._roots if self._bare is None else ())

    def _copy(self, folder: str, partition: TopicPartition) -> PartitionCopy:
        root = parent_of(folder)
        if root not in self._views:
            self._views[root] = RootView(self._disk, root)
        return PartitionCopy(self._disk, folder, partition, self._views[root])


def is_partition(disk: Disk, path: str) -> bool:
    """Whether the files of a partition lie right in the folder ``path``."""
    if disk.stat(join(path, PARTITION_METADATA_NAME)) is not None:
        return True
    found = disk.stat(path)
    if found is None or not found.is_directory:
        return False
    return any(map(is_log_file, disk.list(path)))


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


def distrusted(disk: Disk, readers: Iterable[LogReader]) -> str:
    """As :func:`untrusted`, of the folders that ``readers`` read, and the roots that these are in."""
    folders = dict.fromkeys(directory for reader in readers for directory in reader.replicas)
    roots = [root for root in dict.fromkeys(map(parent_of, folders)) if root not in folders and _is_root(disk, root)]
    return untrusted(disk, (*roots, *folders))


def untrusted(disk: Disk, folders: Iterable[str]) -> str:
    """Why not to trust the content of ``folders``: the first one that others may write to, and how many more there are; empty if there is
    none. One text for all, because the folders of one log mostly have one mode."""
    found: list[StorageError] = []
    for folder in folders:
        try:
            disk.check_directory(folder, write=False)
        except StorageError as error:
            if error.errno == errno.EPERM:
                found.append(error)
    if not found:
        return ""
    count = len(found) - 1
    return str(found[0]) + (f", and so it is with {count:,} more folder{'s' if count > 1 else ''}" if count else "")


def list_topics(disk: Disk, path: str) -> dict[str, list[int]]:
    """The topics under ``path`` and their partitions that have a folder there, both sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in Finder(disk, path).folders():
        topics.setdefault(topic, []).append(partition)
    return topics
