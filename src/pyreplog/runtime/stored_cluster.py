"""How a cluster is, by the folders of its nodes: beside the process that runs it, and without a lock."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pyreplog.controller import BrokerImage, MetadataImage, PartitionImage, TopicImage, effective_min_isr
from pyreplog.errors import CorruptError, PyreplogError, StorageError, StorageNotFoundError
from pyreplog.log import ReplicaView
from pyreplog.runtime.folder_opening import folder_of
from pyreplog.runtime.quorum_folders import FolderMetadata, lost_voters, newest_of
from pyreplog.runtime.quorum_recovery import find_quorum
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition
from pyreplog.wire import NO_LEADER

__all__ = ["StoredCluster", "StoredNode", "StoredPartition", "StoredReplica", "StoredState"]

PartitionCondition = Literal["whole", "under_replicated", "under_min_isr", "offline"]
_WORST_FIRST: Final[Sequence[PartitionCondition]] = ("offline", "under_min_isr", "under_replicated", "whole")


@dataclass(frozen=True, slots=True)
class StoredReplica:
    """One copy. ``log_end`` and ``high_watermark`` as its files say, ``lag`` against the leader's copy; None if the
    copy cannot be read: ``trouble`` says why. ``""``: nothing is wrong with it."""

    node: int
    is_leader: bool
    in_sync: bool
    log_end: int | None
    high_watermark: int | None
    lag: int | None
    trouble: str


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """One partition by the newest metadata, and its copies in the order of preference."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    min_isr: int
    condition: PartitionCondition
    replicas: tuple[StoredReplica, ...]

    @property
    def name(self) -> str:
        """The topic and the number."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class StoredNode:
    """One node. ``state`` by the newest metadata: ``"online"``, ``"fenced"`` (down, or it must not serve),
    ``"stopping"``, ``"voter"`` (it holds no partitions) or ``"missing"`` (its folder is not there). ``metadata_end``:
    the offset behind its copy of the metadata; None if it has none that can be read."""

    node: int
    state: Literal["online", "fenced", "stopping", "voter", "missing"]
    rack: str | None
    votes: bool
    leads: int
    replicas: int
    in_sync: int
    metadata_end: int | None


@dataclass(frozen=True, slots=True)
class StoredState:
    """The whole cluster at one look. ``partitions`` are in the order of their names."""

    path: str
    cluster_id: str
    metadata_epoch: int
    metadata_end: int
    voters: int
    voters_lost: int
    nodes: tuple[StoredNode, ...]
    partitions: tuple[StoredPartition, ...]

    def count(self, condition: PartitionCondition) -> int:
        """Return the number of partitions in this condition, each counted under its worst one."""
        return sum(one.condition == condition for one in self.partitions)

    @property
    def worst_first(self) -> list[StoredPartition]:
        """The partitions, those without a leader first, whole ones last."""
        return sorted(self.partitions, key=lambda one: _WORST_FIRST.index(one.condition))


class StoredCluster:
    """Looks at the folders of a cluster again and again. One thread. Close it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Look at nothing yet."""
        self.path = os.path.abspath(folder_of(path))
        self._disk = SystemDisk()
        self._views: dict[tuple[int, TopicPartition], ReplicaView] = {}

    def look(self) -> StoredState:
        """Return the present state. Raises ConfigError if the folder is no cluster with a quorum, StorageNotFoundError
        if there is no metadata."""
        found, folders = find_quorum(self._disk, self.path)
        newest = newest_of(found)
        if newest is None:
            raise StorageNotFoundError(2, "no node's folder has the metadata of the cluster", self.path)
        image = newest.image
        partitions = tuple(
            self._partition(image, topic, number, one, folders)
            for _, topic in sorted((topic.name, topic) for topic in image.topics.values())
            for number, one in sorted(topic.partitions.items())
        )
        self._forget_others(partitions)
        voters = {voter.node_id for voter in newest.voters}
        cluster_id = next(one.cluster_id for one in found.values() if one.stored is not None)
        return StoredState(
            self.path,
            cluster_id,
            newest.epoch,
            newest.end_offset,
            len(voters),
            len(list(lost_voters(newest.voters, found))),
            tuple(
                _node(number, image, found, partitions, votes=number in voters)
                for number in sorted({*image.brokers, *voters})
            ),
            partitions,
        )

    def _partition(
        self, image: MetadataImage, topic: TopicImage, number: int, one: PartitionImage, folders: Mapping[int, str]
    ) -> StoredPartition:
        key = TopicPartition(topic.name, number)
        views: dict[int, ReplicaView | str] = {node: self._view(node, key, topic, folders) for node in one.replicas}
        ends = {node: view.log_end() for node, view in views.items() if isinstance(view, ReplicaView)}
        leader_end = ends.get(one.leader, max(ends.values(), default=0))
        copies = []
        for node, view in views.items():
            is_leader, in_sync = node == one.leader, node in one.isr
            trouble = "" if isinstance(view, ReplicaView) else view
            broker = image.brokers.get(node)
            if not trouble and (broker is None or not broker.active):
                trouble = "down"
            end = ends.get(node)
            mark = view.high_watermark if isinstance(view, ReplicaView) else None
            lag = None if end is None else max(0, leader_end - end)
            copies.append(StoredReplica(node, is_leader, in_sync, end, mark, lag, trouble))
            if isinstance(view, ReplicaView):
                view.release()  # there may be more copies than descriptors
        min_isr = effective_min_isr(topic, one)
        return StoredPartition(
            topic.name, number, one.leader, one.leader_epoch, min_isr, _condition(one, min_isr), tuple(copies)
        )

    def _view(self, node: int, key: TopicPartition, topic: TopicImage, folders: Mapping[int, str]) -> ReplicaView | str:
        """Return a fresh view of a copy, or why there is none."""
        folder = folders.get(node)
        if folder is None:
            return "the node's folder is missing"
        try:
            view = self._views.get((node, key))
            if view is None or not view.directory.startswith(folder):
                view = self._views[node, key] = ReplicaView(self._disk, f"{folder}/{key}", key)
            else:
                view.refresh()
            view.log_end()  # raises now what it would raise later
        except (StorageError, CorruptError) as error:
            self._drop(node, key)
            return "no copy yet" if isinstance(error, StorageNotFoundError) else f"cannot be read: {error}"
        except PyreplogError as error:
            self._drop(node, key)
            return f"cannot be read: {error}"
        if view.topic_id and view.topic_id != topic.topic_id:
            self._drop(node, key)
            return "the folder is of an earlier topic"
        return view

    def _drop(self, node: int, key: TopicPartition) -> None:
        view = self._views.pop((node, key), None)
        if view is not None:
            view.close()

    def _forget_others(self, partitions: Sequence[StoredPartition]) -> None:
        """Close the views of copies that are none any more."""
        there = {(copy.node, TopicPartition(one.topic, one.partition)) for one in partitions for copy in one.replicas}
        for node, key in [found for found in self._views if found not in there]:
            self._drop(node, key)

    def close(self) -> None:
        """Close all files."""
        for node, key in list(self._views):
            self._drop(node, key)
        self._disk.close()


def _condition(one: PartitionImage, min_isr: int) -> PartitionCondition:
    if one.leader == NO_LEADER:
        return "offline"
    if len(one.isr) < min_isr:
        return "under_min_isr"
    return "under_replicated" if one.is_under_replicated else "whole"


def _node(
    number: int,
    image: MetadataImage,
    found: Mapping[int, FolderMetadata],
    partitions: Sequence[StoredPartition],
    *,
    votes: bool,
) -> StoredNode:
    copies = [copy for one in partitions for copy in one.replicas if copy.node == number]
    broker = image.brokers.get(number)
    folder = found.get(number)
    stored = None if folder is None else folder.stored
    return StoredNode(
        number,
        "missing" if folder is None else _state(broker),
        None if broker is None else broker.rack,
        votes,
        sum(copy.is_leader for copy in copies),
        len(copies),
        sum(copy.in_sync for copy in copies),
        None if stored is None else stored.end_offset,
    )


def _state(broker: BrokerImage | None) -> Literal["online", "fenced", "stopping", "voter"]:
    if broker is None:
        return "voter"
    if broker.fenced:
        return "fenced"
    return "stopping" if broker.in_controlled_shutdown else "online"
