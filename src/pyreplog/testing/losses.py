"""Which copies of a simulated cluster may lack records, and which more may be lost before the
acknowledgement table promises nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyreplog.controller import MISSING, MetadataImage, PartitionImage, PartitionKey
from pyreplog.log import Log, UnloadedLog
from pyreplog.testing.observed import ObservedNode
from pyreplog.testing.options import TopicOptions
from pyreplog.values import TopicPartition

__all__ = ["CopyLosses"]


class _World(Protocol):
    """The parts of a cluster that tell which copies are whole."""

    @property
    def machines(self) -> Mapping[int, ObservedNode]: ...
    @property
    def image(self) -> MetadataImage: ...
    def partitions(self) -> Sequence[tuple[TopicPartition, PartitionKey, PartitionImage]]: ...
    def has_copy(self, node_id: int, topic_partition: TopicPartition) -> bool: ...
    def log_of(self, node_id: int, key: PartitionKey) -> Log | UnloadedLog | None: ...
    def is_registered(self, node_id: int) -> bool: ...
    def topic_options(self, name: str) -> TopicOptions: ...


class CopyLosses:
    """The copies of one world that lost data and have not been in sync since."""

    def __init__(self, world: _World) -> None:
        self._world = world
        self.lost: dict[TopicPartition, dict[int, None]] = {}
        """Replicas that may lack records that the table allows them to lose."""
        self.rotten: dict[tuple[TopicPartition, int], None] = {}
        """Replicas that may have lost more than a torn tail without their node knowing it."""

    def add(self, topic_partition: TopicPartition, node_id: int, *, rotten: bool) -> None:
        """Count a copy as lossy until it is in sync again. ``rotten``: its node may not know it."""
        self.lost.setdefault(topic_partition, {})[node_id] = None
        if rotten:
            self.rotten[topic_partition, node_id] = None

    def allow(self, node_ids: Sequence[int], *, wiped: bool) -> bool:
        """Return whether the table still holds after these nodes lose power (or their disks).

        It holds if at most ``min.insync.replicas`` - 1 copies of each partition may lack something
        at a time, and the controller can count on one copy that lacks nothing. A replica that has not made its copy
        yet may die before that, and cannot prove then that it lacks nothing.
        """
        self._forget_complete_copies()
        for name, key, partition in self._world.partitions():
            options = self._world.topic_options(name.topic)
            hit = [one for one in node_ids if one in partition.replicas]
            if (not wiped and options.durability == "sync") or not hit:
                continue
            unmade = [one for one in partition.replicas if not self._world.has_copy(one, name)]
            lost = dict.fromkeys([*self.lost.get(name, ()), *hit, *unmade])
            left = [one for one in (*partition.isr, *partition.elr) if one not in lost and self._counts(one, key)]
            if len(lost) > options.min_insync_replicas - 1 or not left:
                return False
        return True

    def is_whole(self, topic: str) -> bool:
        """Return whether all copies of a topic are in sync, and none counts as lossy."""
        self._forget_complete_copies()
        return all(
            len(partition.isr) == len(partition.replicas) and not self.lost.get(name)
            for name, _, partition in self._world.partitions()
            if name.topic == topic
        )

    def _forget_complete_copies(self) -> None:
        """Forget the losses of each replica whose present incarnation is in sync, so that it holds
        every committed record, even if its node does not know that yet."""
        world = self._world
        for name, key, partition in world.partitions():
            lost = self.lost.get(name, {})
            if partition.leader < 0:
                continue  # without a leader the ISR is the one of before the restart
            for node_id in list(lost):
                whole = self._counts(node_id, key) and not world.machines[node_id].disk_failed
                if whole and node_id in partition.isr and world.is_registered(node_id):
                    del lost[node_id]
                    self.rotten.pop((name, node_id), None)

    def _counts(self, node_id: int, key: PartitionKey) -> bool:
        """Return whether the controller would count on this copy after another restart. It does not
        count on a copy that was created empty when its broker, which had been a member, returned."""
        log = self._world.log_of(node_id, key)
        if log is None or not log.incomplete:
            return log is not None
        partition = self._world.image.partition(key)
        return log.reported and (partition is None or partition.suspect_ends.get(node_id) != MISSING)
