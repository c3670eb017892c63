"""The target of a write: the folder of a cluster or a log, the partitions of its topics, and the limits of their
batches."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from pyreplog.config import INT32_MAX, LogConfig, producer_batch_max, suggestion
from pyreplog.errors import ConfigError, StorageError, UnknownTopicError
from pyreplog.log import Finder, check_topic, cluster_of, find_roots, is_internal, read_config
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition

__all__ = ["SinkTarget", "find_target"]


class SinkTarget(NamedTuple):
    """Where rows go. ``counts``: partitions by topic. ``topic``: where those go that name none; None: each has to.
    ``folders``: of each partition, one for each copy."""

    path: str
    is_cluster: bool
    counts: dict[str, int]
    topic: str | None
    folders: Mapping[TopicPartition, Sequence[str]] = MappingProxyType({})

    def count(self, topic: str) -> int:
        """Return the partitions of ``topic``. Raise :class:`UnknownTopicError`, except for the topic of a new
        log."""
        count = self.counts.get(topic)
        if count is not None:
            return count
        if topic == self.topic and not self.is_cluster:
            return 1
        others = tuple(sorted(self.counts))
        known = suggestion(topic, others) if others else ": it holds none"
        how = "cluster.admin.create_topic" if self.is_cluster else "open_log, or write to it alone by option 'topic'"
        raise UnknownTopicError(f"{self.path} has no topic {topic!r}{known}; make it by {how}")

    def batch_limit(self, disk: Disk, topic: str) -> int:
        """Return the size in bytes of the largest batch to build for ``topic``, by the settings that its logs keep
        on disk."""
        return min([producer_batch_max(config) for config in self._settings(disk, topic)], default=INT32_MAX)

    def needs_keys(self, disk: Disk, topic: str) -> bool:
        """Return whether each record of ``topic`` must have a key, because it is compacted by the same settings."""
        return any(config.compacts for config in self._settings(disk, topic))

    def _settings(self, disk: Disk, topic: str) -> list[LogConfig]:
        return [
            read_config(disk, folders[0]) or LogConfig() for key, folders in self.folders.items() if key.topic == topic
        ]


def find_target(disk: Disk, path: str, topic: str | None, *, by_column: bool = False) -> SinkTarget:
    """Look at ``path``, which may not be there yet. ``topic``: of the option; ``by_column``: rows name theirs.

    Raises :class:`ConfigError` where the path is nothing that can be written to.
    """
    stat = disk.stat(path)
    if stat is None:
        return SinkTarget(path, False, {}, None if by_column else topic or _folder_topic(path))
    if not stat.is_directory:
        raise ConfigError(f"path {path} is a file; it must be the folder of a log or of a cluster")
    parent = os.path.dirname(path)
    cluster = cluster_of(disk, path)
    is_cluster = cluster == path
    if not is_cluster and cluster:
        raise ConfigError(f"path {path} is one node of a cluster: write to the cluster, {cluster}")
    if not is_cluster and (roots := find_roots(disk, path)) and roots != [path]:
        named = ", ".join(os.path.relpath(root, path) for root in roots[:3]) + (", ..." if len(roots) > 3 else "")
        raise ConfigError(
            f"path {path} holds the folders of other logs, or of nodes ({named}), and no cluster's metadata: no process"
            " could append to them through it; write to one log's own folder, or to a new one"
        )
    try:
        folders = Finder(disk, path).folders()
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        folders = {}
    if any(name.endswith(".log") for name in disk.list(path)):
        raise ConfigError(f"path {path} is the folder of one partition: write to the log's folder, {parent}")
    counts = {key.topic: key.partition + 1 for key in sorted(folders)}
    if topic is None and not by_column:
        topic = _only(path, counts, is_cluster)
    target = SinkTarget(path, is_cluster, counts, topic, folders)
    if topic is not None:
        target.count(topic)
    return target


def _only(path: str, counts: dict[str, int], is_cluster: bool) -> str:
    """Return the topics without internal ones, which a broker's folder has beside the users' topics. Reads ignore
    them too."""
    topics = sorted(topic for topic in counts if not is_internal(topic))
    if len(topics) == 1:
        return topics[0]
    if not topics and not is_cluster:
        return _folder_topic(path)
    if os.path.basename(path) in topics:
        return os.path.basename(path)
    held = f"several topics ({', '.join(topics)})" if topics else "no topic"
    raise ConfigError(f"{path} holds {held}: name one by option 'topic', or have a column 'topic'")


def _folder_topic(path: str) -> str:
    return check_topic(os.path.basename(path))
