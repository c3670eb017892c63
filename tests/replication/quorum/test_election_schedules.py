"""Published faults of elections, each as a schedule that is played by hand.

The names carry the ids of the lists in ``docs/internals/simulation.md``: A1 to A25 are from bug reports of raft
libraries, F47 to F54 are Kafka's.
"""

from __future__ import annotations

from typing import Any

import pytest

from pyreplog.quorum import LeaderChanged, QuorumConfig, RaftNode, ReplicaKey
from pyreplog.wire import (
    Request,
    VotePartition,
    VoteRequest,
    VoteTopic,
)
from tests.replication.quorum.quorum_stage import OPERATOR, QuorumStage
from tests.replication.quorum.support import CLUSTER_ID


def vote_of(
    stage: QuorumStage, voter: int, candidate: int, epoch: int, *, pre_vote: bool = False, key: ReplicaKey | None = None
) -> Any:
    """Ask ``voter`` for its vote in the name of ``candidate``, whose log is as long as the voter's; return its answer
    about the partition."""
    node = stage.nodes[voter]
    asking = key or stage.key(candidate)
    part = VotePartition(
        0,
        epoch,
        asking.node_id,
        node.storage.last_epoch,
        node.log_end_offset,
        asking.directory_id,
        stage.key(voter).directory_id,
        pre_vote,
    )
    body = VoteRequest([VoteTopic("__cluster_metadata", [part])], CLUSTER_ID, voter)
    before = len(stage.answers)
    stage.step(voter, Request(OPERATOR, 77, body))
    (answer,) = stage.answers[before:]
    return answer.body.topics[0].partitions[0]  # type: ignore[union-attr]


def test_a6_candidates_with_equal_delays() -> None:
    """Three voters that time out at the same moments have a leader within a bounded time, whatever the seed."""
    for seed in range(30):
        stage = QuorumStage(3, seed=seed)
        assert stage.run(30_000, stop=stage.has_leader), seed
        assert stage.leader.epoch <= 5, f"seed {seed}"


def test_a6_loser_waits_out_its_timeout() -> None:
    """A candidate that lost does not ask again at once: it waits for a random time of its own."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.isolate(3)
    while stage.nodes[3].role_name != "prospective":
        stage.timer(3)
    stage.heal()
    stage.timer(3)
    stage.settle()
    node = stage.nodes[3]
    assert node.role_name != "candidate"
    assert node.next_wake_ns is not None
    assert node.next_wake_ns > stage.now_ns


def test_a7_f47_leader_that_hears_no_majority_resigns() -> None:
    """KAFKA-15489: a leader that can send and hears nothing resigns within 1.5 fetch timeouts."""
    stage = QuorumStage(3)
    leader = stage.elect(1)
    stage.append(1, b"a")
    stage.settle()
    stage.cut((2, 1), (3, 1))
    begun = stage.now_ns
    assert stage.run(10_000, stop=lambda: not leader.is_leader)
    assert stage.now_ns - begun <= 1.5 * stage.config.fetch_timeout_ms * 1_000_000 + 1_000_000
    stage.run(10_000, stop=lambda: any(node.is_leader for node in stage.nodes.values()))
    assert leader.leader_id != 1 or not leader.is_leader


def test_a7_a_single_voter_never_resigns() -> None:
    """The only voter hears from no other voter, and leads on."""
    stage = QuorumStage(1, 1)
    leader = stage.elect(1)
    epoch = leader.epoch
    stage.isolate(1)
    stage.run(60_000)
    assert leader.is_leader
    assert leader.epoch == epoch


def test_a8_f48_returning_node_bumps_no_epoch() -> None:
    """KAFKA-17642: a node that was cut off is refused a pre-vote by those that fetch, so the epoch and the leader
    stay."""
    stage = QuorumStage(3)
    leader = stage.elect(1)
    epoch = leader.epoch
    stage.isolate(3)
    stage.run(20_000)
    assert leader.is_leader
    stage.heal()
    stage.run(20_000)
    assert leader.is_leader
    assert {node.epoch for node in stage.nodes.values()} == {epoch}
    assert stage.nodes[3].leader_id == 1


def test_f48_one_way_link_to_a_voter() -> None:
    """A voter that cannot hear the leader, but is heard by all, asks for pre-votes in vain."""
    stage = QuorumStage(3)
    leader = stage.elect(1)
    epoch = leader.epoch
    stage.cut((1, 3))
    stage.run(20_000)
    assert leader.is_leader
    assert leader.epoch == epoch
    stage.heal()
    stage.run(5000)
    assert stage.nodes[3].leader_id == 1
    assert stage.nodes[3].epoch == epoch


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
def test_a9_lost_vote_is_granted_again(on_disk: bool) -> None:
    """nebula#2419: the same candidate gets the same vote again in the same epoch, after a restart too; another
    candidate does not."""
    stage = QuorumStage(3, on_disk=on_disk)
    assert vote_of(stage, 3, 1, 5).vote_granted
    assert vote_of(stage, 3, 1, 5).vote_granted
    assert not vote_of(stage, 3, 2, 5).vote_granted
    stage.restart(3)
    assert vote_of(stage, 3, 1, 5).vote_granted
    assert not vote_of(stage, 3, 2, 5).vote_granted
    if on_disk:
        stage.lose_power(3)
        stage.start(3)
        assert vote_of(stage, 3, 1, 5).vote_granted
        assert not vote_of(stage, 3, 2, 5).vote_granted


def test_a20_a_vote_for_another_directory_is_another_vote() -> None:
    """KAFKA-17426: the same node with another disk is another candidate."""
    stage = QuorumStage(3)
    assert vote_of(stage, 3, 1, 5).vote_granted
    other = ReplicaKey(1, stage.key(2).directory_id)
    assert not vote_of(stage, 3, 1, 5, key=other).vote_granted


def test_a20_a_vote_request_for_another_directory_is_refused() -> None:
    """A request that names the voter's old disk is not answered with a vote."""
    stage = QuorumStage(3)
    old = stage.key(3)
    stage.wipe(3)
    part = VotePartition(0, 5, 1, 0, 0, stage.key(1).directory_id, old.directory_id)
    stage.step(3, Request(OPERATOR, 9, VoteRequest([VoteTopic("__cluster_metadata", [part])], CLUSTER_ID, 3)))
    answer: Any = stage.answers[-1].body
    assert not answer.topics[0].partitions[0].vote_granted
    assert answer.topics[0].partitions[0].error_code


def test_pre_vote_changes_nothing() -> None:
    """A pre-vote is neither kept nor counted: the voter can vote for others in the same epoch."""
    stage = QuorumStage(3)
    before = stage.nodes[3].storage.read_state()
    assert vote_of(stage, 3, 1, 0, pre_vote=True).vote_granted
    assert stage.nodes[3].storage.read_state() == before
    assert vote_of(stage, 3, 2, 1).vote_granted


def test_pre_vote_is_refused_by_who_fetches() -> None:
    """A follower that fetched from its leader refuses; after it was told that the leader is gone it grants."""
    stage = QuorumStage(3)
    epoch = stage.elect(1).epoch
    assert not vote_of(stage, 3, 2, epoch, pre_vote=True).vote_granted
    assert not vote_of(stage, 1, 2, epoch, pre_vote=True).vote_granted
    stage.kill(1)
    assert vote_of(stage, 3, 2, epoch, pre_vote=True).vote_granted


def test_f49b_each_leader_is_announced_once() -> None:
    """KAFKA-17333: no node announces the same leader of the same epoch twice, through kills and resignations."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.take(1, stage.nodes[1].resign(stage.now_ns))
    stage.run(10_000, stop=lambda: any(node.is_leader for node in stage.nodes.values()))
    stage.run(3000)
    stage.kill(stage.leader_id)
    stage.run(10_000, stop=lambda: any(node.is_leader for node in stage.nodes.values()))
    stage.run(3000)
    for node_id, effects in stage.effects.items():
        said = [(one.leader_id, one.epoch) for one in effects if isinstance(one, LeaderChanged) and one.leader_id]
        assert len(said) == len(set(said)), f"node {node_id}: {said}"


def test_failover_needs_no_timeout() -> None:
    """Peers that are told of the leader's end elect another within the steps of their places, without a fetch
    timeout."""
    for size in (3, 5):
        stage = QuorumStage(size)
        stage.elect(1)
        stage.append(1, b"a")
        stage.settle()
        begun = stage.now_ns
        stage.kill(1)
        assert stage.run(2000, stop=stage.has_leader)
        assert stage.now_ns - begun <= 5 * stage.config.leader_gone_step_ms * 1_000_000


def test_resignation_names_a_successor() -> None:
    """A leader that resigns is followed at once by the voter that knows most."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.lost = lambda letter: letter.target == 2 and letter.kind == "FetchResponse"
    stage.append(1, b"a")
    stage.settle()
    stage.heal()
    begun = stage.now_ns
    stage.take(1, stage.nodes[1].resign(stage.now_ns))
    assert stage.run(3000, stop=lambda: any(node.is_leader for node in stage.nodes.values()))
    assert stage.leader_id == 3
    assert stage.now_ns - begun <= 100_000_000


def test_quiet_quorum_keeps_its_leader() -> None:
    """Without faults one leader stays for ten minutes, and nothing is written."""
    stage = QuorumStage(5, 1)
    leader = stage.elect(2)
    stage.run(2000)
    epoch, end = leader.epoch, leader.log_end_offset
    for _ in range(20):
        stage.run(30_000)
    assert leader.is_leader
    assert (leader.epoch, leader.log_end_offset) == (epoch, end)
    assert all(node.high_watermark == end for node in stage.nodes.values())


def test_a_restarted_leader_leads_no_more_in_its_epoch() -> None:
    """A leader that was restarted may have answered in its epoch: it begins another one, or follows."""
    for size in (1, 3):
        stage = QuorumStage(size, config=QuorumConfig())
        epoch = stage.elect(1).epoch
        stage.append(1, b"a")
        stage.settle()
        node: RaftNode = stage.restart(1)
        assert not node.is_leader or node.epoch > epoch
        stage.run(20_000)
        assert stage.leader.epoch > epoch
        assert stage.committed(stage.leader_id) == [b"a"]
