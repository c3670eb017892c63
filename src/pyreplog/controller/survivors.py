"""The surviving copies of a partition, after the metadata of its cluster was lost: what they hold, and which leads.

Every copy is a suspect, so the one with the greatest (last epoch, end) leads and the others follow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyreplog.controller.election import MISSING
from pyreplog.controller.image import PartitionImage, ReplicaEnd
from pyreplog.errors import CorruptError
from pyreplog.log import ReplicaView, RootView, directory_name, is_partition, join, topic_id_of
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition
from pyreplog.wire import NO_LEADER, SuspectReplica

__all__ = ["MARGIN", "PossibleLoss", "SurvivingCopy", "copy_in", "loss_of", "with_survivors"]

MARGIN: Final = 1000
"""Offsets and epochs that lost metadata may have used and no surviving file names."""


class PossibleLoss(NamedTuple):
    """Acknowledged records that no surviving copy of a partition may have.

    ``node_id``: the node whose copy leads; None if no copy survives. They have the offsets from
    ``start`` up to ``end`` (exclusive), the greatest end that a surviving file names; -1 if none
    names one above ``start``.
    """

    topic: str
    partition: int
    node_id: int | None
    start: int
    end: int

    def __str__(self) -> str:
        name = f"{self.topic}-{self.partition}"
        if self.node_id is None:
            return f"{name}: no copy survives"
        lost = (
            f"offsets {self.start} to {self.end - 1}" if self.end >= 0 else f"all records from offset {self.start} on"
        )
        return f"{name}: {lost} may be lost; the copy of node {self.node_id} goes on"


class SurvivingCopy(NamedTuple):
    """A surviving copy of a partition. ``high_watermark``: the offset below which it knows its records committed."""

    node_id: int
    end: ReplicaEnd
    high_watermark: int


def copy_in(disk: Disk, root: str, node: int, key: TopicPartition, topic_id: str) -> SurvivingCopy | None:
    """Return the copy of a partition in the node's folder ``root``; None if there is none of that topic, or if it is
    damaged."""
    folder = join(root, directory_name(key.topic, key.partition))
    if not is_partition(disk, folder) or topic_id_of(disk, folder) not in ("", topic_id):
        return None
    view = ReplicaView(disk, folder, key, RootView(disk, root))
    try:
        return SurvivingCopy(node, ReplicaEnd(view.epochs.latest, view.valid_end()), view.high_watermark)
    except CorruptError:
        return None  # it counts as missing until its node reports it
    finally:
        view.close()


def with_survivors(partition: PartitionImage, copies: Sequence[SurvivingCopy]) -> PartitionImage:
    """Return ``partition`` without a leader, with the surviving ``copies`` as its members, all of them suspects."""
    last_epochs = [partition.leader_epoch, *(copy.end.last_epoch for copy in copies)]
    changed = partition._replace(
        leader=NO_LEADER,
        last_known_elr=(),
        leader_epoch=max(last_epochs) + MARGIN,
        partition_epoch=partition.partition_epoch + MARGIN,
    )
    if not copies:
        suspects = tuple(SuspectReplica(node, *MISSING) for node in (*partition.isr, *partition.elr))
        return changed._replace(suspects=suspects)
    return changed._replace(
        isr=tuple(copy.node_id for copy in copies),
        elr=(),
        suspects=tuple(SuspectReplica(copy.node_id, *copy.end) for copy in copies),
    )


def loss_of(topic: str, number: int, replicas: Sequence[int], copies: Sequence[SurvivingCopy]) -> PossibleLoss | None:
    """Return the range that may be lost; None if every replica survives, because one of them was in sync."""
    if not copies:
        return PossibleLoss(topic, number, None, 0, -1)
    best = max(copies, key=lambda copy: copy.end)
    start = best.end.end_offset
    known = max(copy.high_watermark for copy in copies)
    if len(copies) == len(replicas) and known <= start:
        return None
    return PossibleLoss(topic, number, best.node_id, start, known if known > start else -1)
