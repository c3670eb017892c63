"""Which roots a source folder stands for, and where each of them lies in a backup."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import NamedTuple

from pyreplog.errors import ConfigError, StorageError
from pyreplog.log import (
    DEPTH_MAX,
    META_PROPERTIES_NAME,
    FoundRoot,
    find_logs,
    has_root_file,
    holds_cluster,
    is_partition,
    is_refusal,
    join,
    parse_directory_name,
    read_cluster,
    read_nodes,
)
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition


class Place(NamedTuple):
    """One root of the source, and the folder for it in the backup."""

    source: str
    target: str
    log: str
    """Which of the independent logs under the source it belongs to."""
    cluster_id: str
    """"" where the root does not say."""
    node_id: int
    """-1 if it is unknown."""

    def partitions(self, disk: Disk) -> dict[TopicPartition, str]:
        """The folders of the partitions in the source, by rising partition."""
        found = {}
        for name in disk.list(self.source):
            parsed = parse_directory_name(name)
            if parsed is not None and not parsed.kind and is_partition(disk, join(self.source, name)):
                found[parsed.topic_partition] = join(self.source, name)
        return dict(sorted(found.items()))


def find_places(disk: Disk, source: str, target: str) -> list[Place]:
    """The roots that the folder ``source`` stands for, each with its place below ``target``.

    A root keeps its path within ``source``; a node of a cluster, which may lie on a disk of its own, becomes
    ``node-N``. Raises :class:`StorageError` if there is no log, or if a folder that may be a root cannot be read;
    :class:`ConfigError` for a partition's folder, for folders that are copies of one another, and for a folder that
    holds clusters.
    """
    stat = disk.stat(source)
    if stat is None or not stat.is_directory:
        raise StorageError(
            errno.ENOENT if stat is None else errno.ENOTDIR, "there is no such folder to back up", source
        )
    refuse_clusters_below(disk, source)
    found = find_logs(disk, source)
    for folder, error in found.unreadable.items():
        raise StorageError(
            error.errno or errno.EACCES, "this process may not look into it, and it may be a part of the log", folder
        )
    places = []
    in_cluster = holds_cluster(disk, source)
    for log in found.logs:
        if log.bare is not None:
            raise ConfigError(
                f"{source} is a partition's folder: back up the folder that it lies in, which knows its ids and its"
                " settings"
            )
        log.partitions()
        for folder, error in log.unreadable.items():
            raise StorageError(
                error.errno or errno.EACCES, "this process may not look into it, and it may be a partition", folder
            )
        for conflict in log.conflicts():
            raise ConfigError(
                f"{' and '.join(conflict.folders)} cannot be backed up together: {conflict.why}. Move one of them away"
            )
        log.check()
        places += [_place(source, target, root, log.name, in_cluster=in_cluster) for root in log.roots]
    if not places:
        raise StorageError(
            errno.ENOENT, "there is no log here to back up: neither a log, nor a cluster's or a broker's folder", source
        )
    twice = {place.target for place in places if [other.target for other in places].count(place.target) > 1}
    if twice:
        raise ConfigError(
            f"two nodes of {source} would have one folder in the backup, {min(twice)}: their {META_PROPERTIES_NAME}"
            " name one node"
        )
    return places


def refuse_clusters_below(disk: Disk, source: str) -> None:
    """Raise :class:`ConfigError` if a folder below ``source`` is a cluster's, or the folder of a node whose cluster
    is elsewhere.

    A backup keeps the controller's state and the list of the nodes of one cluster, the one in ``source`` itself.
    """
    clusters = dict.fromkeys(cluster for cluster in _clusters_below(disk, source, DEPTH_MAX) if cluster != source)
    if clusters:
        raise ConfigError(
            f"{source} is not the folder of one log or cluster: it holds clusters, or nodes of clusters, and a backup"
            " of it would lack the files that keep a cluster together. Back up each cluster by itself:"
            f" {', '.join(clusters)}. Then back up the other logs in the folder, if there are any, by themselves too"
        )


def _clusters_below(disk: Disk, folder: str, depth: int) -> Iterator[str]:
    """The folders of clusters of ours that lie in ``folder``, or that name a node there as theirs."""
    for name in disk.list(folder):
        path = join(folder, name)
        if name.startswith("."):
            continue
        try:
            stat = disk.stat(path)
            if stat is None or not stat.is_directory:
                continue
            cluster = read_cluster(disk, path)
            if cluster:
                yield cluster
            elif holds_cluster(disk, path) or read_nodes(disk, path):
                yield path
            elif depth > 1 and not has_root_file(disk, path) and not is_partition(disk, path):
                yield from _clusters_below(disk, path, depth - 1)
        except StorageError as error:
            if not is_refusal(error) and error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise


def _place(source: str, target: str, root: FoundRoot, log: str, *, in_cluster: bool) -> Place:
    inside = source.rstrip("/") + "/"
    if root.home and root.home != source:
        raise ConfigError(
            f"{root.home} is a cluster with nodes on other disks: back it up by itself, and the other logs of"
            f" {source} too"
        )
    if root.path == source:
        where = target
    elif in_cluster and root.node_id is not None:
        where = join(target, f"node-{root.node_id}")  # the place of a node in a cluster without a list of nodes
    elif root.path.startswith(inside):
        where = join(target, root.path[len(inside) :])
    else:
        raise ConfigError(f"{root.path} does not say in {META_PROPERTIES_NAME} which node it is: put that file back")
    return Place(root.path, where, log, root.cluster_id, -1 if root.node_id is None else root.node_id)
