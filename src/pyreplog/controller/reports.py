"""The reports of brokers about their replicas since this controller started. Soft state, never
written: a new incarnation and a new controller begin without them."""

from __future__ import annotations

from collections.abc import Sequence

from pyreplog.controller.election import MISSING, ReplicaEnd
from pyreplog.controller.image import BrokerImage, PartitionImage, PartitionKey
from pyreplog.wire import PartitionEnd

__all__ = ["ReplicaReports"]


class ReplicaReports:
    """The ends of replicas, and the damage in them. One owner."""

    __slots__ = ("_damaged", "_ends", "_leaderless")

    def __init__(self) -> None:
        self._ends: dict[int, dict[PartitionKey, ReplicaEnd]] = {}
        """Broker -> the ends that it reported since its last registration."""
        self._leaderless: dict[PartitionKey, int] = {}
        """Partition -> offset since which it has no leader."""
        self._damaged: dict[tuple[PartitionKey, int], int] = {}
        """(Partition, broker) -> the broker epoch in which it reported damage in its copy, or that
        it cannot create the copy yet. The next read, or the next try, reports it again."""

    # ----------------------------------------------------------------------------------------- ends

    def registered(self, broker_id: int, ends: Sequence[PartitionEnd]) -> None:
        """Replace the ends of a broker by those of its registration."""
        self._ends[broker_id] = {
            (end.topic_id, end.partition): ReplicaEnd(end.last_epoch, end.end_offset) for end in ends
        }

    def note_end(self, broker_id: int, key: PartitionKey, end: ReplicaEnd, metadata_offset: int) -> None:
        """Note the end of a live replica, unless the report is older than the loss of the leader.

        ``metadata_offset``: the offset up to which the broker had applied the metadata.
        """
        if metadata_offset >= self._leaderless.get(key, -1):
            self._ends.setdefault(broker_id, {})[key] = end

    def note_missing(self, broker_id: int, key: PartitionKey) -> None:
        """Note that the broker has no copy. An earlier report of damage was about the lost one."""
        self._damaged.pop((key, broker_id), None)
        self._ends.setdefault(broker_id, {})[key] = MISSING

    def end(self, broker_id: int, key: PartitionKey) -> ReplicaEnd | None:
        """Return the reported end, or None if none is known."""
        return self._ends.get(broker_id, {}).get(key)

    def leader_lost(self, key: PartitionKey, offset: int, running: Sequence[int]) -> None:
        """Note that the partition has no leader since ``offset``. The copies of the ``running``
        brokers may have grown since their reports, which are forgotten."""
        self._leaderless[key] = offset
        for broker_id in running:
            self._ends.get(broker_id, {}).pop(key, None)

    def leader_found(self, key: PartitionKey) -> None:
        """Note that the partition has a leader."""
        self._leaderless.pop(key, None)

    # --------------------------------------------------------------------------------------- damage

    def note_damage(self, key: PartitionKey, broker_id: int, broker_epoch: int) -> None:
        """Note damage in a part of the copy, or that it cannot be created yet."""
        self._damaged[key, broker_id] = broker_epoch

    def note_restored(self, key: PartitionKey, broker_id: int) -> None:
        """Note that the copy is as good as any other."""
        self._damaged.pop((key, broker_id), None)

    def is_damaged(self, key: PartitionKey, broker: BrokerImage | None) -> bool:
        """Return whether this incarnation of the broker reported damage in its copy."""
        return broker is not None and self._damaged.get((key, broker.broker_id)) == broker.epoch

    def removed(self, key: PartitionKey, partition: PartitionImage) -> None:
        """Forget the damage in a partition that is deleted."""
        for member in partition.replicas:
            self._damaged.pop((key, member), None)
