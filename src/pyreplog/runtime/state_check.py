"""Check that a controller's file fits the nodes' folders before the cluster opens.

A file that is missing, that belongs to another cluster, or that is older than the folders is
refused, because nodes set partitions aside that their controller does not know.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyreplog.controller import STATE_FILE, MetadataImage, load
from pyreplog.errors import CorruptError, StorageError
from pyreplog.log import METADATA_FOLDER, parse_directory_name, read_epochs, read_properties, read_topic_id
from pyreplog.ports import Disk
from pyreplog.runtime.node_folders import NodeFolders
from pyreplog.values import TopicPartition

__all__ = ["check_not_older", "check_state", "check_without_metadata"]

_RECORDS = "The records are in the nodes' folders, and each can be read as it is"


def check_state(disk: Disk, path: str, folders: NodeFolders) -> None:
    """Raise :class:`CorruptError` if the cluster's folder ``path`` has nodes, and the controller's
    file is missing, of another cluster, or older than the nodes.
    """
    state = load(disk, path)
    inside = [name for name in disk.list(path) if name.startswith("node-")]
    clusters = _clusters_of_nodes(disk, path, inside + (folders.outside() if state is None else []))
    if state is not None and set(clusters) <= {state.cluster_id}:
        places = [(disk, folder) for folder in (*(f"{path}/{name}" for name in inside), *folders.outside())]
        check_not_older(state.image, places, f"the controller's state {STATE_FILE}")
        return
    if not clusters:
        return
    nodes = " and ".join(f"{', '.join(names)} of cluster {cluster[:64]}" for cluster, names in clusters.items())
    found = "is missing" if state is None else f"is that of cluster {state.cluster_id}"
    raise CorruptError(
        f"the controller's state {STATE_FILE} {found}, and this folder holds {nodes}: put the nodes of one cluster and"
        f" its own {STATE_FILE} into {path}, from the backup or the folder that they were copied out of."
        f" {_RECORDS if state is not None else _way_out(path)}",
        file=f"{path}/{STATE_FILE}",
    )


def _way_out(path: str) -> str:
    return (
        f"If it is lost, `replog repair {path} --metadata` makes the metadata again from the nodes' folders. {_RECORDS}"
    )


def _clusters_of_nodes(disk: Disk, path: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the nodes among the folders ``names`` by the cluster id in each. A name is absolute or
    lies in ``path``; folders without a cluster id are left out.
    """
    found: dict[str, list[str]] = {}
    for name in names:
        values = read_properties(disk, name if name.startswith("/") else f"{path}/{name}")
        if values is not None and values.get("cluster.id"):
            found.setdefault(values["cluster.id"], []).append(name)
    return found


def check_not_older(image: MetadataImage, places: Iterable[tuple[Disk, str]], what: str) -> None:
    """Raise :class:`CorruptError` if the nodes at ``places`` hold partitions that ``image`` does
    not know, and a partition that it does know with a later leader epoch. ``what`` names the
    metadata in the error.

    Leader epochs are read only if there are unknown partitions, because a root may hold thousands.
    """
    found = [(disk, folder, _partitions(disk, folder)) for disk, folder in places]
    known = {
        TopicPartition(topic.name, number): (topic.topic_id, partition.leader_epoch)
        for topic in image.topics.values()
        for number, partition in topic.partitions.items()
    }
    unknown = [f"{folder}/{name}" for _, folder, names in found for name, key in names.items() if key not in known]
    for disk, folder, names in found if unknown else ():
        for name, key in names.items():
            if key in known:
                topic_id, epoch = known[key]
                latest = _latest_epoch(disk, f"{folder}/{name}", topic_id)
                if latest > epoch:
                    raise CorruptError(
                        f"{what} is older than the nodes' folders: {folder}/{name} is of leader epoch {latest}, and"
                        f" the metadata knows {epoch}. Opening would set aside {unknown[0]}, which the metadata does"
                        " not name. Put back the latest metadata of this cluster; the records are in the nodes'"
                        " folders, and each can be read as it is",
                        file=folder,
                    )


def check_without_metadata(home: str, places: Iterable[tuple[Disk, str]]) -> None:
    """Raise :class:`CorruptError` if a node at ``places`` of the cluster in ``home`` holds partitions: without
    metadata, its start would set them aside."""
    for disk, folder in places:
        names = _partitions(disk, folder)
        if names:
            properties = read_properties(disk, folder) or {}
            raise CorruptError(
                f"the metadata of the cluster is missing: no node has a folder {METADATA_FOLDER}, nor is there a"
                f" {STATE_FILE} of version 0.1, and {folder} of cluster {properties.get('cluster.id', '')[:64]} holds"
                f" {next(iter(names))}. Put the voters' folders, or that file, back from the backup or the folder that"
                f" they were copied out of. {_way_out(home)}",
                file=folder,
            )


def _partitions(disk: Disk, folder: str) -> dict[str, TopicPartition]:
    """Return the partitions whose folders lie in the node's ``folder``, by the names of these folders."""
    try:
        names = disk.list(folder) if disk.stat(folder) is not None else ()
    except StorageError:
        return {}  # the node's start reports it
    parsed = {name: parse_directory_name(name) for name in names}
    return {
        name: one.topic_partition
        for name, one in parsed.items()
        if one is not None and not one.kind and name != METADATA_FOLDER
    }


def _latest_epoch(disk: Disk, folder: str, topic_id: str) -> int:
    """Return the latest leader epoch in the partition's ``folder``; -1 if it is of another topic, or damaged."""
    try:
        if read_topic_id(disk, folder) != topic_id:
            return -1
        epochs = read_epochs(disk, folder)
    except (CorruptError, StorageError):
        return -1  # the node's start reports it
    return -1 if epochs is None else epochs.latest
