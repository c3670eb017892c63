"""Snapshots: written, copied to nodes that are too far behind, found again after a crash."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.errors import InvalidRequestError, OffsetOutOfRangeError
from pyreplog.quorum import (
    Identity,
    QuorumConfig,
    RaftNode,
    SnapshotInstalled,
    Voter,
    VoterSet,
    format_quorum,
    list_snapshots,
    make_only_voter,
)
from pyreplog.testing import SimClock, SimDisk
from pyreplog.wire import SnapshotId
from tests.unit.quorum.quorum_net import FOLDER, QuorumNet, address_of_node

SMALL = QuorumConfig(bootstrap=(address_of_node(1),), fetch_max_bytes=200)


def trim(net: QuorumNet) -> int:
    """Write two snapshots on every node that is up, so that the logs begin at the first; return that offset."""
    ends = []
    for value in (b"x", b"y"):
        net.append(value * 100)
        net.deliver()
        ends.append(net.leader.high_watermark)
        for node in net.nodes.values():
            node.write_snapshot(ends[-1], [b"state at %d" % ends[-1]] * 5)
    return ends[0]


def test_the_log_begins_where_the_older_snapshot_ends() -> None:
    net = QuorumNet(3)
    net.advance(50)
    start = trim(net)
    node = net.nodes[2]
    assert node.storage.start_offset == start
    assert node.latest_snapshot == SnapshotId(start + 1, 1)
    with pytest.raises(OffsetOutOfRangeError):
        list(node.read_committed(0))
    found = node.read_snapshot()
    assert found is not None
    assert list(found[1]) == [b"state at %d" % (start + 1)] * 5
    net.kill(2)
    node = net.open(2)
    assert node.storage.start_offset == start
    assert node.voters == net.voter_set
    net.advance(100)
    net.append(b"z")
    net.deliver()
    assert net.values(2)[-1] == b"z"


def test_a_snapshot_ends_with_a_committed_batch() -> None:
    """KAFKA-14618, 14619 (A12)."""
    net = QuorumNet(3)
    net.advance(50)
    net.append(b"a", b"b")
    net.deliver()
    with pytest.raises(InvalidRequestError, match="inside a batch"):
        net.leader.write_snapshot(4, [])
    with pytest.raises(InvalidRequestError, match="above the high watermark"):
        net.leader.write_snapshot(6, [])


def test_a_node_far_behind_gets_a_snapshot_in_pieces() -> None:
    net = QuorumNet(4, voters=3, config=SMALL)
    net.advance(50)
    net.kill(3)
    net.kill(4)
    start = trim(net)
    net.open(3)
    net.format(4)
    net.open(4)
    net.advance(3_000)
    for node_id in (3, 4):
        node = net.nodes[node_id]
        assert node.storage.start_offset == start + 1
        assert SnapshotInstalled(SnapshotId(start + 1, 1)) in net.effects[node_id]
        assert node.voters == net.voter_set
        found = node.read_snapshot()
        assert found is not None
        assert list(found[1]) == [b"state at %d" % (start + 1)] * 5
    net.append(b"z")
    net.advance(1_000)
    assert net.values(3) == net.values(4) == [b"z"]
    net.kill(3)
    node = net.open(3)
    assert node.storage.last_epoch == 1
    assert node.voters == net.voter_set


def test_a_crash_between_rename_and_truncation_is_finished() -> None:
    """F54."""
    net = QuorumNet(3, config=SMALL)
    net.advance(50)
    net.kill(3)
    start = trim(net)
    name = f"{FOLDER}/{start + 1:020d}-{1:010d}.checkpoint"
    disk, source = net.disks[3], net.disks[1].open(name)
    disk.create(name).write_at(0, [source.read_at(0, source.size())])
    node = net.open(3)
    assert node.storage.start_offset == node.storage.end_offset == start + 1
    net.advance(100)
    net.append(b"z")
    net.advance(1_000)
    assert net.values(3) == [b"z"]


def test_an_empty_snapshot_is_ignored() -> None:
    """KAFKA-15312 (A10): an older one is used."""
    net = QuorumNet(3)
    net.advance(50)
    start = trim(net)
    net.kill(2)
    net.disks[2].create(f"{FOLDER}/{start + 5:020d}-{1:010d}.checkpoint")
    node = net.open(2)
    assert node.latest_snapshot == SnapshotId(start + 1, 1)
    assert node.voter_failure is None


def test_a_log_without_its_snapshot_is_refused() -> None:
    """KAFKA-14240 (A11)."""
    net = QuorumNet(3)
    net.advance(50)
    start = trim(net)
    net.kill(2)
    for end in (start, start + 1):
        net.disks[2].remove(f"{FOLDER}/{end:020d}-{1:010d}.checkpoint")
    node = net.open(2)
    assert node.voter_failure is not None
    assert node.role_name == "failed"


def test_a_log_that_begins_behind_its_older_snapshots_drops_them() -> None:
    """A recovery makes such a log. Fetches are checked against the oldest snapshot, and would never be valid."""
    disk, clock, identity = SimDisk(), SimClock(), Identity(1, "x8eZxIiI6FzqjrRRbN2Wdw", "y8eZxIiI6FzqjrRRbN2Wdw")
    voter = Voter.at(identity.key, "controller-1")
    disk.make_directory(FOLDER)
    format_quorum(disk, FOLDER, identity, clock, VoterSet([voter]), QuorumConfig())
    recovered = SnapshotId(1000, 1001)
    make_only_voter(disk, FOLDER, identity, voter, recovered, [b"state"], clock, QuorumConfig())
    node = RaftNode.open(disk, FOLDER, identity, QuorumConfig(), clock, Random(1), endpoint="controller-1", now_ns=0)
    assert node.storage.oldest_snapshot() == recovered
    assert list_snapshots(disk, FOLDER) == [recovered]
    node.close()
