"""The metadata of a cluster, made again from its nodes' folders when no metadata log is left.

The folders say which partitions there are, with topic ids, leader epochs, ends and settings. They do
not say everything: see :data:`UNKNOWN`. Every copy is a suspect, so the one with the highest leader
epoch and end leads, and the others catch up. The lowest node that may vote becomes the only voter;
the cluster brings its voters to the rule when it opens.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyreplog.config import LogConfig, default_min_insync_replicas
from pyreplog.controller.compacted_topics import WAS_COMPACTED
from pyreplog.controller.features import LEVEL_LATEST
from pyreplog.controller.image import FEATURE, MetadataImage, PartitionImage, TopicImage
from pyreplog.controller.survivors import MARGIN, PossibleLoss, SurvivingCopy, copy_in, loss_of, with_survivors
from pyreplog.controller.topics import new_id
from pyreplog.errors import ConfigError, StorageError
from pyreplog.log import (
    METADATA_FOLDER,
    ROLES_PROPERTY,
    directory_name,
    is_partition,
    join,
    outgoing_name,
    parse_directory_name,
    read_config,
    read_mark,
    read_properties,
    topic_id_of,
)
from pyreplog.ports import Address, Clock, Disk, Random
from pyreplog.quorum import Identity, QuorumConfig, Voter, VoterSet, find_epoch, format_quorum
from pyreplog.values import TopicPartition
from pyreplog.wire import NO_LEADER, SnapshotId, encode_record

__all__ = ["UNKNOWN", "RebuiltMetadata", "rebuild_metadata"]

UNKNOWN: Final = (
    "topics and partitions of which no folder here has a copy, and topics that were deleted while a node was away",
    "the replication factor that was meant: the replicas of a partition are the nodes that have a copy of it",
    "settings that were changed while a topic's folders were away, and the defaults of the cluster",
    "broker epochs and producer ids: both go on far above all that were given out",
)
"""The facts that the folders do not have, for people."""
_OFFSET: Final = 1_000_000_000
"""The offset at which the metadata log begins. A broker epoch is an offset of the log before, of which no file is
left; so many changes take years."""
_IDS_PER_MS: Final = 1000
"""Producer ids go on at the present time in ms times this. The log before gave them out from 0 on, so none of its ids
and none of an earlier rebuilding is given out again."""

_PRODUCER_ID_MIN: Final = 1 << 40
"""Beside a clock that stands at 1970."""


class RebuiltMetadata(NamedTuple):
    """The metadata that was made: ``node_id`` is the only voter. ``partitions``: the nodes with a copy of each, and
    the node whose copy leads (None: no copy survives). ``losses``: records that are known to be lost."""

    node_id: int
    partitions: Mapping[TopicPartition, tuple[tuple[int, ...], int | None]]
    losses: tuple[PossibleLoss, ...]


class _Found(NamedTuple):
    """The folders of the partitions, by topic: by number the nodes, and the topic's ids with a folder of each."""

    nodes: dict[str, dict[int, list[int]]]
    topic_ids: dict[str, dict[str, str]]


def rebuild_metadata(
    disk: Disk,
    home: str,
    roots: Mapping[int, str],
    address: Address,
    clock: Clock,
    random: Random,
    config: QuorumConfig,
    *,
    write: bool,
) -> RebuiltMetadata:
    """Make the metadata of the cluster in the folder ``home`` from the nodes' folders ``roots``, by node id.

    ``address``: the address of the new voter, with ``{}`` in place of its node id. ``write`` False: only say what
    would be made. Otherwise the unreadable metadata folders get names under which nothing opens them, then the new
    voter's folder is made, durably. REQUIRES the cluster's lock, and that no folder has readable metadata.

    Raises :class:`ConfigError` if the folders are of several clusters, if two topics have one name, or if no node may
    vote, and :class:`StorageError` if there is no partition.
    """
    identities = _identities(disk, home, roots)
    voter = _first_voter(disk, home, roots)
    found = _find_partitions(disk, home, roots)
    image = MetadataImage()
    image.feature_levels[FEATURE] = LEVEL_LATEST
    image.next_producer_id = max(clock.wall_ms() * _IDS_PER_MS, _PRODUCER_ID_MIN)
    losses: list[PossibleLoss] = []
    partitions: dict[TopicPartition, tuple[tuple[int, ...], int | None]] = {}
    for name in sorted(found.nodes):
        topic_id = next((one for one in found.topic_ids[name] if one), None) or new_id(random)
        topic = TopicImage(name, topic_id)
        _add_partitions(disk, roots, topic, found.nodes[name], partitions, losses)
        image.topics[topic_id] = topic
        image.topic_ids[name] = topic_id
    if write:
        _write(disk, roots, identities[voter], image, address, clock, random, config)
    return RebuiltMetadata(voter, partitions, tuple(losses))


def _identities(disk: Disk, home: str, roots: Mapping[int, str]) -> dict[int, Identity]:
    found: dict[int, Identity] = {}
    for number, root in roots.items():
        properties = read_properties(disk, root) or {}
        found[number] = Identity(number, properties.get("directory.id", ""), properties.get("cluster.id", ""))
    clusters = {one.cluster_id: roots[number] for number, one in found.items()}
    if len(clusters) > 1:
        (first, one), (second, other), *_ = clusters.items()
        raise ConfigError(
            f"{home} has nodes of several clusters: {one} is of {first[:64]!r}, {other} of {second[:64]!r}. Move the"
            " folders away that are not this cluster's"
        )
    return found


def _first_voter(disk: Disk, home: str, roots: Mapping[int, str]) -> int:
    roles = {number: (read_properties(disk, root) or {}).get(ROLES_PROPERTY, "") for number, root in roots.items()}
    voters = [number for number in roles if not any(roles.values()) or "controller" in roles[number].split(",")]
    if not voters:
        raise ConfigError(
            f"no node in {home} votes by its role ({ROLES_PROPERTY} in meta.properties is"
            f" {', '.join(sorted(set(roles.values())))!r}): put back the folder of a node that does, or change the role"
            " of one to 'broker,controller'"
        )
    return min(voters)


def _find_partitions(disk: Disk, home: str, roots: Mapping[int, str]) -> _Found:
    found = _Found({}, {})
    for number, root in sorted(roots.items()):
        for name in disk.list(root):
            parsed = parse_directory_name(name)
            if parsed is None or parsed.kind or name == METADATA_FOLDER or not is_partition(disk, join(root, name)):
                continue
            key = parsed.topic_partition
            found.nodes.setdefault(key.topic, {}).setdefault(key.partition, []).append(number)
            ids = found.topic_ids.setdefault(key.topic, {})
            ids.setdefault(topic_id_of(disk, join(root, name)), join(root, name))
            known = [one for one in ids if one]
            if len(known) > 1:
                raise ConfigError(
                    f"two topics are called {key.topic!r}: {ids[known[0]]} is of topic id {known[0]}, {ids[known[1]]}"
                    f" of {known[1]}. Move the folders of the one away that was deleted, and repair again"
                )
    if not found.nodes:
        raise StorageError(errno.ENOENT, "no node's folder has a partition, so there is nothing to make", home)
    return found


def _add_partitions(
    disk: Disk,
    roots: Mapping[int, str],
    topic: TopicImage,
    nodes: Mapping[int, list[int]],
    partitions: dict[TopicPartition, tuple[tuple[int, ...], int | None]],
    losses: list[PossibleLoss],
) -> None:
    """Add every partition up to the highest number that has a folder. A number without one has no copy left."""
    everywhere = sorted({node for holders in nodes.values() for node in holders})
    configured = False
    for number in range(max(nodes) + 1):
        key = TopicPartition(topic.name, number)
        copies = [
            copy
            for node in nodes.get(number, ())
            if (copy := copy_in(disk, roots[node], node, key, topic.topic_id)) is not None
        ]
        best = max(copies, key=lambda copy: copy.end, default=None)
        replicas = _replicas(nodes.get(number, everywhere), best)
        new = PartitionImage(replicas, replicas, (), (), NO_LEADER, 0, 0, recovering=False)
        topic.partitions[number] = with_survivors(new, copies)
        partitions[key] = (tuple(sorted(replicas)), None if best is None else best.node_id)
        if (loss := loss_of(topic.name, number, replicas, copies)) is not None:
            losses.append(loss)
        if best is not None and not configured:
            configured = True
            topic.config = _settings(disk, join(roots[best.node_id], directory_name(topic.name, number)), replicas)


def _replicas(holders: list[int], best: SurvivingCopy | None) -> tuple[int, ...]:
    """Return the replicas in order of preference: the copy that leads first."""
    if best is None:
        return tuple(holders)
    return (best.node_id, *(node for node in holders if node != best.node_id))


def _settings(disk: Disk, folder: str, replicas: tuple[int, ...]) -> dict[str, str]:
    """Return the settings that the folder keeps. ``durability`` is always among them."""
    mark = read_mark(disk, folder)
    kept = read_config(disk, folder) or LogConfig(durability="sync" if mark is None else mark.durability)
    settings = kept.to_mapping()
    if settings.get("min.insync.replicas") == str(default_min_insync_replicas(len(replicas))):
        del settings["min.insync.replicas"]
    if kept.compacts or (mark is not None and mark.compacted):
        settings[WAS_COMPACTED] = "true"
    return {"durability": kept.durability, **settings}


def _write(
    disk: Disk,
    roots: Mapping[int, str],
    voter: Identity,
    image: MetadataImage,
    address: Address,
    clock: Clock,
    random: Random,
    config: QuorumConfig,
) -> None:
    epoch = max(find_epoch(disk, join(root, METADATA_FOLDER)) for root in roots.values())
    for root in roots.values():
        folder = join(root, METADATA_FOLDER)
        if disk.stat(folder) is not None:
            parsed = parse_directory_name(METADATA_FOLDER)
            assert parsed is not None
            unique = f"{random.getrandbits(128):032x}"
            disk.rename(folder, join(root, outgoing_name(parsed.topic_partition, unique, "stray")))
            disk.sync_directory(root)
    folder = join(roots[voter.node_id], METADATA_FOLDER)
    disk.make_directory(folder)
    voters = VoterSet([Voter.at(voter.key, address.format(voter.node_id))])
    records = [encode_record(record) for record in image.records()]
    format_quorum(disk, folder, voter, clock, voters, config, SnapshotId(_OFFSET, epoch + MARGIN), records)
    disk.sync_directory(roots[voter.node_id])
