"""Find partitions of a cluster that no folder holds while the disk of a node is not mounted."""

from __future__ import annotations

import errno
from collections.abc import Collection

from pyreplog.errors import StorageError
from pyreplog.log import missing_nodes
from pyreplog.ports import Disk
from pyreplog.quorum.state import load
from pyreplog.values import TopicPartition

__all__ = ["absent"]


def absent(disk: Disk, path: str, found: Collection[TopicPartition], topic: str | None = None) -> StorageError | None:
    """Return the error to report if ``found`` lacks partitions of the cluster under ``path``, else
    None.

    ``found``: the partitions of ``topic`` (None: of all topics). Partitions can be absent only if
    the cluster has nodes on other disks and one of their folders is missing. A reader would then
    read some of the partitions as if they were all.
    """
    missing = missing_nodes(disk, path)
    state = load(disk, path) if missing else None
    if state is None:
        return None
    lost = {
        TopicPartition(one.name, number): partition.replicas
        for one in state.image.topics.values()
        if topic in (None, one.name)
        for number, partition in sorted(one.partitions.items())
        if TopicPartition(one.name, number) not in found
    }
    if not lost:
        return None
    first, replicas = next(iter(lost.items()))
    more = f" and {len(lost) - 1} more partitions have" if len(lost) > 1 else " has"
    folders = ", ".join(folder for number, folder in missing.items() if number in replicas) or ", ".join(missing.values())
    nodes = ", ".join(map(str, replicas))
    why = f"{first}{more} no folder: its copies are on node {nodes}, and the node's folder {folders} is missing or empty"
    return StorageError(errno.ENOENT, f"{why}. Perhaps its disk is not mounted; the other folders do not hold all partitions", path)
