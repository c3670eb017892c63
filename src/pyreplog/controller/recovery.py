"""Recovery of a cluster whose majority of voters is lost for good.

The surviving metadata log with the highest (epoch, end) is the cluster's metadata from here on, and
its node is the only voter. The lost voters may have known more: later topics, members, epochs,
ids. So offsets, epochs and producer ids go on behind a margin, every surviving copy of a partition
is a suspect, and the one with the greatest (last epoch, end) leads. The result says where
acknowledged records may be missing.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyreplog.controller.election import MISSING
from pyreplog.controller.image import MetadataImage, PartitionImage, ReplicaEnd, TopicImage
from pyreplog.errors import CorruptError, InternalError, RemoteProtocolError, StorageError
from pyreplog.log import (
    METADATA_FOLDER,
    MetadataEnd,
    MetadataFolder,
    ReplicaView,
    RootView,
    directory_name,
    has_metadata,
    is_partition,
    join,
    newest_metadata,
    read_properties,
    topic_id_of,
)
from pyreplog.ports import Address, Clock, Disk
from pyreplog.quorum import Identity, QuorumConfig, Voter, format_quorum, make_only_voter
from pyreplog.values import TopicPartition
from pyreplog.wire import NO_LEADER, SnapshotId, SuspectReplica, decode_record, encode_record

__all__ = ["PossibleLoss", "QuorumRecovery", "image_in", "recover_quorum"]

MARGIN: Final = 1000
"""Offsets and epochs that the lost voters may have used and no surviving file names."""
PRODUCER_ID_MARGIN: Final = 1_000_000


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


class QuorumRecovery(NamedTuple):
    """The node that is the only voter now, and the offset and epoch up to which its metadata knows the cluster."""

    node_id: int
    epoch: int
    known_offset: int
    losses: tuple[PossibleLoss, ...]


class _Copy(NamedTuple):
    """A surviving copy of a partition. ``high_watermark``: the offset below which it knows its records committed."""

    node_id: int
    end: ReplicaEnd
    high_watermark: int


def recover_quorum(
    disk: Disk, home: str, roots: Mapping[int, str], address: Address, clock: Clock, config: QuorumConfig
) -> QuorumRecovery:
    """Recover the cluster in the folder ``home`` from the nodes' folders ``roots`` that survive, by node id.

    ``address``: the address of the new voter, with ``{}`` in place of its node id. REQUIRES the cluster's lock.

    Raises :class:`StorageError` if no folder has a metadata log, and :class:`CorruptError` if the newest one holds
    bytes that are no metadata.
    """
    numbers = {root: number for number, root in roots.items()}
    best = newest_metadata(disk, list(numbers))
    if best is None:
        raise StorageError(
            errno.ENOENT,
            "no node's folder has a metadata log, so nothing says what the cluster was: `replog repair PATH --to NEW"
            " --yes` saves the records",
            home,
        )
    ends = {
        root: MetadataFolder(disk, join(root, METADATA_FOLDER)).end()
        for root in roots.values()
        if has_metadata(disk, root)
    }
    end = ends[best]
    image = image_in(disk, join(best, METADATA_FOLDER), end)
    losses = _take_survivors(disk, image, roots)
    identities = {root: _identity(disk, number, root) for root, number in numbers.items() if root in ends}
    snapshot_id = SnapshotId(end.end_offset + MARGIN, max(one.epoch for one in ends.values()) + MARGIN)
    mine = identities[best]
    voter = Voter.at(mine.key, address.format(mine.node_id))
    records = [encode_record(record) for record in image.records()]
    make_only_voter(disk, join(best, METADATA_FOLDER), mine, voter, snapshot_id, records, clock, config)
    for root, identity in identities.items():
        if root != best:
            # It would wait for the lost voters, so it begins again and fetches the metadata.
            format_quorum(disk, join(root, METADATA_FOLDER), identity, clock, None, config)
            disk.sync_directory(root)
    return QuorumRecovery(mine.node_id, end.epoch, end.end_offset - 1, tuple(losses))


def _identity(disk: Disk, number: int, root: str) -> Identity:
    properties = read_properties(disk, root) or {}
    return Identity(number, properties.get("directory.id", ""), properties.get("cluster.id", ""))


def image_in(disk: Disk, folder: str, end: MetadataEnd) -> MetadataImage:
    """Return the metadata in the folder of a metadata log up to its ``end``, without a lock.

    Raises :class:`CorruptError` for a record that is none.
    """
    image = MetadataImage()
    for value in MetadataFolder(disk, folder).records():
        try:
            image.apply(image.offset, decode_record(value))
        except (RemoteProtocolError, InternalError) as error:
            raise CorruptError(f"a record is no metadata: {error}", file=folder) from error
    image.offset = end.end_offset - 1
    return image


def _take_survivors(disk: Disk, image: MetadataImage, roots: Mapping[int, str]) -> list[PossibleLoss]:
    """Change ``image`` to a cluster that only the nodes in ``roots`` are left of, none of which is up."""
    image.next_producer_id += PRODUCER_ID_MARGIN
    for number, broker in image.brokers.items():
        image.brokers[number] = broker._replace(fenced=True)
    losses: list[PossibleLoss] = []
    for topic in image.topics.values():
        for number, partition in list(topic.partitions.items()):
            copies = [
                copy
                for node in partition.replicas
                if node in roots and (copy := _copy_in(disk, roots[node], node, topic, number)) is not None
            ]
            topic.partitions[number] = image.share(_with_survivors(partition, copies))
            if (loss := _loss_of(topic.name, number, partition.replicas, copies)) is not None:
                losses.append(loss)
    return losses


def _copy_in(disk: Disk, root: str, node: int, topic: TopicImage, number: int) -> _Copy | None:
    """Return the copy of a partition in the node's folder ``root``; None if there is none of that topic."""
    folder = join(root, directory_name(topic.name, number))
    if not is_partition(disk, folder) or topic_id_of(disk, folder) not in ("", topic.topic_id):
        return None
    view = ReplicaView(disk, folder, TopicPartition(topic.name, number), RootView(disk, root))
    try:
        return _Copy(node, ReplicaEnd(view.epochs.latest, view.valid_end()), view.high_watermark)
    except CorruptError:
        return None  # it counts as missing until its node reports it
    finally:
        view.close()


def _with_survivors(partition: PartitionImage, copies: Sequence[_Copy]) -> PartitionImage:
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


def _loss_of(topic: str, number: int, replicas: Sequence[int], copies: Sequence[_Copy]) -> PossibleLoss | None:
    """Return the range that may be lost; None if every replica survives, because one of them was in sync."""
    if not copies:
        return PossibleLoss(topic, number, None, 0, -1)
    best = max(copies, key=lambda copy: copy.end)
    start = best.end.end_offset
    known = max(copy.high_watermark for copy in copies)
    if len(copies) == len(replicas) and known <= start:
        return None
    return PossibleLoss(topic, number, best.node_id, start, known if known > start else -1)
