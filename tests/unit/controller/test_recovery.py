"""A cluster that has lost a majority of its voters for good goes on with one of the survivors, and says what it may
have lost."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from pyreplog.config import LogConfig
from pyreplog.controller import MetadataImage
from pyreplog.controller.election import MISSING
from pyreplog.controller.recovery import PRODUCER_ID_MARGIN, QuorumRecovery, recover_quorum
from pyreplog.controller.survivors import MARGIN, PossibleLoss
from pyreplog.errors import StorageError
from pyreplog.log import METADATA_FOLDER, LogRoot, MetadataFolder, newest_metadata, read_properties
from pyreplog.quorum import Identity, QuorumConfig, RaftNode, ReplicaKey, TimerDue, Voter, VoterSet, format_quorum
from pyreplog.testing import SimClock, SimDisk
from pyreplog.testing.crash import crash_points
from pyreplog.verify import Level, Report
from pyreplog.verify.metadata import check_metadata
from pyreplog.wire import (
    BrokerEndpoint,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    SnapshotId,
    SuspectReplica,
    TopicRecord,
    decode_record,
    encode_record,
)
from tests.unit.log.support import batch, sync

HOME = "data"
CLUSTER_ID = "Q2x1c3RlckNsdXN0ZXJDbA"
ORDERS = "x8eZxIiI6FzqjrRRbN2Wdw"
LOST = "y8eZxIiI6FzqjrRRbN2Wdw"
NEW = "z8eZxIiI6FzqjrRRbN2Wdw"
CONFIG = QuorumConfig()
ADDRESS = "controller-{}"
ENDS = {1: 5, 2: 7, 3: 9}
"""The end of each node's copy of ``orders``."""


def records(*, newer: bool) -> list[MetadataRecord]:
    """The metadata of three nodes; ``newer``: with a topic that only the later copies know."""
    found: list[MetadataRecord] = [
        RegisterBrokerRecord(number, ORDERS, number, (BrokerEndpoint("PEER", f"node-{number}", 0),), fenced=False)
        for number in (1, 2, 3)
    ]
    found += [
        ProducerIdsRecord(-1, -1, 3000),
        TopicRecord("orders", ORDERS),
        PartitionRecord(0, ORDERS, [1, 2, 3], [3, 1], leader=3, leader_epoch=4, partition_epoch=6),
        TopicRecord("lost", LOST),
        PartitionRecord(0, LOST, [3], [3], leader=3, leader_epoch=0, partition_epoch=0),
    ]
    return found + ([TopicRecord("new", NEW)] if newer else [])


def make(disk: SimDisk, nodes: Sequence[int] = (1, 2, 3)) -> dict[int, str]:
    """A cluster after the loss of all nodes but ``nodes``. The metadata log of node 2 is the newest."""
    roots = {number: f"{HOME}/node-{number}" for number in nodes}
    disk.make_directory(HOME)
    for number, path in roots.items():
        root = LogRoot.open(disk, path, clock=SimClock(), random=Random(number), node_id=number, cluster_id=CLUSTER_ID)
        log = root.create_log("orders", 0, ORDERS, LogConfig())
        log.become_leader(4)
        log.append_as_leader(batch(ENDS[number]), 4)
        sync(disk, log)
        log.advance_high_watermark(log.end_offset)
        root.close()
    keys = {number: ReplicaKey(number, directory_of(disk, path)) for number, path in roots.items()}
    voters = VoterSet(
        Voter.at(keys.get(number, ReplicaKey(number, LOST)), ADDRESS.format(number)) for number in (1, 2, 3)
    )
    for number, path in roots.items():
        disk.make_directory(f"{path}/{METADATA_FOLDER}")
        identity = Identity(number, keys[number].directory_id, CLUSTER_ID)
        end = SnapshotId(40, 3) if number == 2 else SnapshotId(60, 2)
        values = [encode_record(record) for record in records(newer=number == 2)]
        format_quorum(disk, f"{path}/{METADATA_FOLDER}", identity, SimClock(), voters, CONFIG, end, values)
        disk.sync_directory(path)
    disk.sync_directory(HOME)
    disk.sync_directory(".")
    return roots


def directory_of(disk: SimDisk, root: str) -> str:
    """The directory id of a root."""
    properties = read_properties(disk, root)
    assert properties is not None
    return properties["directory.id"]


def recover(disk: SimDisk, roots: dict[int, str]) -> QuorumRecovery:
    """Recover the cluster from these folders."""
    return recover_quorum(disk, HOME, roots, ADDRESS, SimClock(), CONFIG)


def image_in(disk: SimDisk, root: str) -> MetadataImage:
    """The metadata in a node's folder."""
    image = MetadataImage()
    for value in MetadataFolder(disk, f"{root}/{METADATA_FOLDER}").records():
        image.apply(0, decode_record(value))
    return image


def opened(disk: SimDisk, root: str, number: int) -> RaftNode:
    """The quorum's node in a root, after its first timers."""
    clock = SimClock()
    node = RaftNode.open(
        disk,
        f"{root}/{METADATA_FOLDER}",
        Identity(number, directory_of(disk, root), CLUSTER_ID),
        CONFIG,
        clock,
        Random(1),
        endpoint=ADDRESS.format(number),
        now_ns=clock.monotonic_ns(),
    )
    for _ in range(3):
        node.step(TimerDue(), clock.monotonic_ns())
    return node


def test_the_newest_log_goes_on_with_one_voter() -> None:
    """Epoch before end; its node leads alone, behind every offset and epoch that the lost ones may have used."""
    disk = SimDisk(Random(1))
    roots = make(disk, (1, 2))
    found = recover(disk, roots)
    assert (found.node_id, found.epoch, found.known_offset) == (2, 3, 39)
    node = opened(disk, roots[2], 2)
    assert node.is_leader
    assert [voter.key for voter in node.voters] == [ReplicaKey(2, directory_of(disk, roots[2]))]
    assert node.epoch > 3 + MARGIN
    assert node.log_end_offset > 40 + MARGIN
    other = opened(disk, roots[1], 1)
    assert (other.is_leader, len(other.voters), other.log_end_offset) == (False, 0, 0), "it fetches the metadata again"
    for root in roots.values():
        book = Report()
        check_metadata(disk, f"{root}/{METADATA_FOLDER}", book)
        assert [one for one in book.findings if one.level is Level.DAMAGE] == []


def test_every_survivor_is_a_suspect_and_losses_are_ranges() -> None:
    """Without node 3, whose copy reached further, records behind the best copy may be lost; a partition without a copy
    is named."""
    disk = SimDisk(Random(1))
    roots = make(disk, (1, 2))
    found = recover(disk, roots)
    assert found.losses == (PossibleLoss("orders", 0, 2, 7, -1), PossibleLoss("lost", 0, None, 0, -1))
    assert [str(one) for one in found.losses] == [
        "orders-0: all records from offset 7 on may be lost; the copy of node 2 goes on",
        "lost-0: no copy survives",
    ]
    image = image_in(disk, roots[2])
    assert image.next_producer_id == 3000 + PRODUCER_ID_MARGIN
    assert all(broker.fenced for broker in image.brokers.values())
    assert list(image.topic_ids) == ["orders", "lost", "new"]
    orders = image.topics[ORDERS].partitions[0]
    assert (orders.isr, orders.elr, orders.leader, orders.replicas) == ((1, 2), (), -1, (1, 2, 3))
    assert orders.suspects == (SuspectReplica(1, 4, 5), SuspectReplica(2, 4, 7))
    assert orders.leader_epoch == 4 + MARGIN
    lost = image.topics[LOST].partitions[0]
    assert (lost.isr, lost.suspects) == ((3,), (SuspectReplica(3, *MISSING),))


def test_nothing_is_lost_while_every_copy_survives() -> None:
    """One of them was in sync, and the furthest leads: only the metadata may be older."""
    disk = SimDisk(Random(1))
    roots = make(disk)
    found = recover(disk, roots)
    assert [one.topic for one in found.losses] == ["lost"]


def test_without_any_metadata_log_it_is_refused() -> None:
    """The error names the command that saves the records."""
    disk = SimDisk(Random(1))
    disk.make_directory(HOME)
    with pytest.raises(StorageError, match="`replog repair PATH --metadata` makes the metadata again"):
        recover(disk, {1: f"{HOME}/node-1"})


def test_a_damaged_log_and_vote_do_not_stop_it() -> None:
    """The snapshot of what could be read takes their place."""
    disk = SimDisk(Random(1))
    roots = make(disk, (2,))
    folder = f"{roots[2]}/{METADATA_FOLDER}"
    for name in ("replog.mark", "replog.quorum"):
        file = disk.open(f"{folder}/{name}", write=True)
        file.write_at(0, [bytes(file.size())])
        file.close()
    assert recover(disk, roots).known_offset == 39
    assert opened(disk, roots[2], 2).is_leader


def test_every_crash_leaves_the_old_metadata_or_the_new() -> None:
    """At no call is the surviving metadata in one place only that is being changed; the next call ends the work."""

    def work(disk: SimDisk, acknowledged: list[str]) -> None:
        roots = make(disk, (1, 2))
        acknowledged.append("made")
        recover(disk, roots)
        acknowledged.append("recovered")

    def check(disk: SimDisk, acknowledged: Sequence[str]) -> None:
        if not acknowledged:
            return
        roots = {number: f"{HOME}/node-{number}" for number in (1, 2)}
        newest = newest_metadata(disk, list(roots.values()))
        assert newest == roots[2]
        assert "new" in image_in(disk, newest).topic_ids
        if acknowledged[-1] == "made":
            assert recover(disk, roots).node_id == 2
        assert opened(disk, roots[2], 2).is_leader

    report = crash_points(work, check, seed=4, damages=3, every=3)
    assert report.states > 100
