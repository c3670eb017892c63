"""Several independent logs that are read together: the name of each, and the check that no record is read twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyreplog.errors import ConfigError
from pyreplog.log.identity import id_for_name, read_properties
from pyreplog.log.layout import parent_of
from pyreplog.log.reader import LogReader
from pyreplog.log.root_discovery import proves_topic
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition

_CLUSTER_ID: Final = "cluster.id"


def log_names(folders: Sequence[str]) -> list[str]:
    """Return a name for each of ``folders``: its path below the deepest folder that holds all of them.

    REQUIRES absolute paths without ``.``, ``..`` and slashes at their ends, none of them twice.
    """
    parents = [folder.split("/")[:-1] for folder in folders]
    shared = 0
    for parts in zip(*parents, strict=False):
        if len(set(parts)) > 1:
            break
        shared += 1
    return ["/".join(folder.split("/")[shared:]) for folder in folders]


def printable_name(name: str) -> str:
    """Return ``name`` as text that has a UTF-8 form: bytes of a file's name that are not UTF-8 become escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def cluster_id_of(disk: Disk, root: str) -> str:
    """Return the cluster id in the ``meta.properties`` of the folder ``root``, or "" if it has none."""
    return (read_properties(disk, root) or {}).get(_CLUSTER_ID, "")


class DistinctLogs:
    """The partitions of several logs that are read together; each partition must be read only once.

    Two logs that hold the same partition are replicas, copies, or a cluster and one of its nodes. Reading both
    would give its records twice. A missing id agrees with no other, except that equal topic ids suffice if no
    folder has a cluster id.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._cluster_ids: dict[str, str] = {}
        self._owners: dict[object, str] = {}

    def cluster_id(self, reader: LogReader) -> str:
        """Return the cluster id of the root that ``reader`` reads from, or "" if it has none."""
        root = parent_of(reader.directory)
        if root not in self._cluster_ids:
            self._cluster_ids[root] = cluster_id_of(self._disk, root)
        return self._cluster_ids[root]

    def add(self, log: str, readers: Iterable[LogReader]) -> None:
        """Add the partitions of ``log``. Raises :class:`ConfigError` if another log holds one of them."""
        for reader in readers:
            keys: list[object] = [self._place(folder) for folder in reader.replicas]
            cluster_id = self.cluster_id(reader)
            # id_for_name() gives a topic from before Kafka 2.8 the same id in every cluster, so
            # that id proves nothing without a cluster id.
            if reader.topic_id and (
                cluster_id or (proves_topic(reader.topic_id) and reader.topic_id != id_for_name(reader.topic))
            ):
                keys.append((cluster_id, reader.topic_id, reader.partition))
            for key in keys:
                owner = self._owners.setdefault(key, log)
                if owner != log:
                    raise twice(owner, log, reader.topic_partition)

    def _place(self, folder: str) -> object:
        """Return the identity of the folder, so that links to it compare equal. On a simulated disk, which has no
        inode numbers, that is its path."""
        found = self._disk.stat(folder)
        return folder if found is None or not any(found.identity) else found.identity


def twice(one: str, other: str, partition: TopicPartition) -> ConfigError:
    """Return the error for two logs that hold the same ``partition``."""
    return ConfigError(
        f"{one} and {other} hold the same partition, {partition} of one topic id: they are replicas or copies of one"
        " log, or one lies in the other, and its records would be read twice. Name one of them; replicas are read"
        " together by their cluster's folder"
    )
