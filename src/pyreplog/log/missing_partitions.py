"""Partitions of a cluster that the present folders do not hold completely, according to the cluster's metadata.

The controller's file, or the nodes' metadata logs, name the partitions, their replicas and their in-sync replicas. If
a node's folder is missing, the others may hold only some of the topics, or a follower's copy that lacks acknowledged
records. Neither may be read as if it were complete.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping

from pyreplog.errors import CorruptError, StorageError
from pyreplog.log.controller_file import CONTROLLER_NAME, ControllerBody, Members
from pyreplog.log.layout import join
from pyreplog.log.node_list import read_nodes
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition


def absent_reason(
    key: TopicPartition, members: Members, present: Collection[int], holders: Collection[int] | None
) -> str:
    """Return why the folders of the nodes ``holders`` do not hold the whole partition, or "" if they do.

    ``holders`` is None if no folder names its node; then nothing is refused.

    ``present``: the nodes whose folders are there. A partition without a folder is complete if all its nodes are
    present, because the nodes may be creating it.
    """
    if holders is None:
        return ""
    if not holders:
        if all(node in present for node in members.replicas):
            return ""
        return f"{key} has no folder: its copies are on {_nodes(members.replicas)}"
    if not members.in_sync or any(node in members.in_sync for node in holders):
        return ""
    return (
        f"{key} has no copy of an in-sync replica: the in-sync replicas are on {_nodes(members.in_sync)}, and the copy"
        f" on {_nodes(sorted(holders))} may lack acknowledged records"
    )


def absent_error(
    disk: Disk, home: str, body: ControllerBody, lacking: Mapping[TopicPartition, str], present: Collection[int]
) -> StorageError:
    """Return the error for the partitions ``lacking``, with their reasons from :func:`absent_reason`.

    ``home``: the cluster's folder. REQUIRES at least one partition.
    """
    first = next(iter(lacking))
    listed = read_nodes(disk, home)
    members = body.partitions[first]
    wanted = [node for node in members.in_sync or members.replicas if node not in present]
    folders = ", ".join(listed.get(node) or join(home, f"node-{node}") for node in wanted)
    more = f"; {len(lacking) - 1} more partitions are not whole either" if len(lacking) > 1 else ""
    where = f", and the node's folder {folders} is missing or empty" if folders else ""
    advice = (
        "Perhaps its disk is not mounted; what is left is not the whole. `replog repair PATH --to NEW --yes` saves what"
        " is left"
    )
    return StorageError(errno.ENOENT, f"{lacking[first]}{where}{more}. {advice}", home)


def foreign_controller(home: str, body: ControllerBody, cluster_id: str, folders: Collection[str]) -> CorruptError:
    """Return the error for nodes whose controller's file belongs to another cluster."""
    named = ", ".join(folders)
    why = (
        f"the controller's state is that of cluster {body.cluster_id[:64]}, and {named} is of cluster {cluster_id[:64]}"
    )
    return CorruptError(
        f"{why}: restore the file of this cluster, or read each node's folder as it is",
        file=join(home, CONTROLLER_NAME),
    )


def _nodes(numbers: Collection[int]) -> str:
    return f"node {', '.join(map(str, numbers))}"
