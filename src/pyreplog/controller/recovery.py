"""Recovery of a cluster whose majority of voters is lost for good.

The surviving metadata log with the highest (epoch, end) is the cluster's metadata from here on, and
its node is the only voter. The lost voters may have known more: later topics, members, epochs,
ids. So offsets, epochs and producer ids go on behind a margin, every surviving copy of a partition
is a suspect, and the one with the greatest (last epoch, end) leads. The result says where
acknowledged records may be missing.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyreplog.controller.image import MetadataImage
from pyreplog.controller.survivors import MARGIN, PossibleLoss, copy_in, loss_of, with_survivors
from pyreplog.errors import CorruptError, InternalError, RemoteProtocolError, StorageError
from pyreplog.log import (
    METADATA_FOLDER,
    MetadataEnd,
    MetadataFolder,
    has_metadata,
    is_partition,
    join,
    newest_metadata,
    parse_directory_name,
    read_properties,
    topic_id_of,
)
from pyreplog.ports import Address, Clock, Disk
from pyreplog.quorum import Identity, QuorumConfig, Voter, format_quorum, make_only_voter
from pyreplog.values import TopicPartition
from pyreplog.wire import SnapshotId, decode_record, encode_record

__all__ = ["PossibleLoss", "QuorumRecovery", "image_in", "recover_quorum"]

PRODUCER_ID_MARGIN: Final = 1_000_000


class QuorumRecovery(NamedTuple):
    """The node that is the only voter now, and the offset and epoch up to which its metadata knows the cluster.

    ``unknown``: folders of partitions that this metadata does not know. Their nodes set them aside when they start, and
    keep them under names that end in ``-stray``.
    """

    node_id: int
    epoch: int
    known_offset: int
    losses: tuple[PossibleLoss, ...]
    unknown: tuple[str, ...] = ()


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
            "no node's folder has a metadata log, so nothing says what the cluster was: `replog repair PATH --metadata`"
            " makes the metadata again from the partitions' folders",
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
    unknown = _unknown_folders(disk, image, roots)
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
    return QuorumRecovery(mine.node_id, end.epoch, end.end_offset - 1, tuple(losses), tuple(unknown))


def _unknown_folders(disk: Disk, image: MetadataImage, roots: Mapping[int, str]) -> list[str]:
    """Return the folders of partitions that the metadata does not know, or knows with another topic id."""
    found = []
    for root in roots.values():
        for name in disk.list(root):
            parsed = parse_directory_name(name)
            if parsed is None or parsed.kind or name == METADATA_FOLDER or not is_partition(disk, join(root, name)):
                continue
            topic = image.topic(parsed.topic_partition.topic)
            if (
                topic is None
                or parsed.topic_partition.partition not in topic.partitions
                or topic_id_of(disk, join(root, name)) not in ("", topic.topic_id)
            ):
                found.append(join(root, name))
    return found


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
            key = TopicPartition(topic.name, number)
            copies = [
                copy
                for node in partition.replicas
                if node in roots and (copy := copy_in(disk, roots[node], node, key, topic.topic_id)) is not None
            ]
            topic.partitions[number] = image.share(with_survivors(partition, copies))
            if (loss := loss_of(topic.name, number, partition.replicas, copies)) is not None:
                losses.append(loss)
    return losses
