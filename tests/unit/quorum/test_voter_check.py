"""A crash at any call leaves whole voters, by a look at the files as by their opening."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from pyreplog.quorum import (
    Identity,
    QuorumConfig,
    RaftNode,
    ReplicaKey,
    TimerDue,
    Voter,
    VoterSet,
    find_voter_damage,
    format_quorum,
    is_formatted,
)
from pyreplog.testing import SimClock, SimDisk
from pyreplog.testing.crash import crash_points
from tests.unit.quorum.quorum_net import CLUSTER, FOLDER, MS, address_of_node, directory_of

IDENTITY = Identity(1, directory_of(1), CLUSTER)
VOTERS = VoterSet([Voter.at(ReplicaKey(1, directory_of(1)), address_of_node(1))])
CONFIG = QuorumConfig(segment_bytes=1024)


def make(disk: SimDisk) -> None:
    """Make the folder of the only voter."""
    format_quorum(disk, FOLDER, IDENTITY, SimClock(), VOTERS, CONFIG)
    disk.sync_directory("node")


def opened(disk: SimDisk, clock: SimClock) -> RaftNode:
    """Open it and let it lead."""
    node = RaftNode.open(
        disk, FOLDER, IDENTITY, CONFIG, clock, Random(1), endpoint=address_of_node(1), now_ns=clock.monotonic_ns()
    )
    assert node.voter_failure is None
    for _ in range(20):
        if node.is_leader:
            break
        clock.advance(200 * MS)
        node.step(TimerDue(), clock.monotonic_ns())
    assert node.is_leader
    return node


def check(disk: SimDisk, known: Sequence[int]) -> None:
    """A folder that was formatted is that of a whole voter with every record; any other one is made again."""
    if not is_formatted(disk, FOLDER):
        assert not known
        make(disk)
    assert find_voter_damage(disk, FOLDER, IDENTITY) is None
    node = opened(disk, SimClock())
    assert node.log_end_offset >= max(known, default=0)
    node.close()


def test_a_crash_while_the_folder_is_made() -> None:
    def life(disk: SimDisk, known: list[int]) -> None:
        disk.make_directory(FOLDER)
        make(disk)

    assert crash_points(life, check, seed=1, damages=6).states > 50


def test_a_crash_while_the_voter_leads() -> None:
    """Over several segments, and with snapshots after which the log loses its beginning."""

    def life(disk: SimDisk, known: list[int]) -> None:
        disk.make_directory(FOLDER)
        make(disk)
        clock = SimClock()
        node = opened(disk, clock)
        for number in range(6):
            known.append(node.append([b"%d" % number * 400], clock.monotonic_ns()).last_offset + 1)
            if number % 2:
                node.write_snapshot(node.high_watermark, [b"all"])
        node.close()

    assert crash_points(life, check, seed=2, damages=3, every=3).states > 50
