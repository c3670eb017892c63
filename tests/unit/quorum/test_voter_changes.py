"""Voters are added, removed and updated, one at a time."""

from __future__ import annotations

from pyreplog.quorum import QuorumConfig, ReplicaKey, Voter
from pyreplog.wire import (
    METADATA_TOPIC,
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    ErrorCode,
    QuorumEndpoint,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from tests.unit.quorum.quorum_net import CLUSTER, QuorumNet, address_of_node, directory_of


def add(node_id: int, number: int = 0) -> AddRaftVoterRequest:
    """Return the request for a new voter."""
    listeners = [QuorumEndpoint("CONTROLLER", address_of_node(node_id))]
    return AddRaftVoterRequest(node_id, directory_of(node_id, number), listeners, CLUSTER, 5_000)


def remove(node_id: int, number: int = 0) -> RemoveRaftVoterRequest:
    """Return the request for the removal of a voter."""
    return RemoveRaftVoterRequest(node_id, directory_of(node_id, number), CLUSTER)


def ids(net: QuorumNet, node_id: int) -> list[int]:
    """Return the voters that a node knows."""
    return [voter.node_id for voter in net.nodes[node_id].voters]


def test_an_observer_becomes_a_voter() -> None:
    net = QuorumNet(3, voters=2)
    net.advance(50)
    net.ask(1, add(3))
    net.deliver()
    assert net.answers == [AddRaftVoterResponse(0, None)]
    assert ids(net, 1) == ids(net, 2) == ids(net, 3) == [1, 2, 3]
    assert net.nodes[3].is_voter
    net.kill(2)
    net.append(b"a")
    net.deliver()
    assert net.values(3) == [b"a"]


def test_one_voter_grows_to_three() -> None:
    net = QuorumNet(3, voters=1)
    net.advance(300)
    for node_id in (2, 3):
        net.ask(1, add(node_id))
        net.advance(10)
    assert [answer.error_code for answer in net.answers] == [0, 0]
    assert ids(net, 3) == [1, 2, 3]
    net.kill(1)
    net.advance(100)
    assert net.leaders in ([2], [3])


def test_a_new_voter_catches_up_first() -> None:
    net = QuorumNet(3, voters=2)
    net.advance(50)
    net.isolate(3)
    net.append(b"a")
    net.deliver()
    net.ask(1, add(3))
    net.deliver()
    assert net.answers == []
    assert ids(net, 1) == [1, 2]
    net.ask(1, remove(2))
    net.deliver()
    assert [answer.error_code for answer in net.answers] == [ErrorCode.REQUEST_TIMED_OUT]
    net.advance(5_000)
    assert [answer.error_code for answer in net.answers] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert ids(net, 1) == [1, 2]


def test_a_removed_leader_leads_until_it_is_committed() -> None:
    """KAFKA-16530 (A3): it does not count, and resigns after the commit."""
    net = QuorumNet(3)
    net.advance(50)
    before = net.leader.high_watermark
    net.ask(1, remove(1))
    assert net.nodes[1].is_leader
    assert net.nodes[1].high_watermark == before
    net.deliver()
    assert net.answers == [RemoveRaftVoterResponse(0, None)]
    assert net.leaders == [2]
    assert ids(net, 2) == ids(net, 3) == [2, 3]
    net.advance(3_000)
    assert net.leaders == [2]
    assert net.nodes[1].leader_id == 2
    assert not net.nodes[1].is_voter


def test_a_change_is_refused() -> None:
    net = QuorumNet(3)
    net.advance(50)
    net.ask(2, add(4))
    net.ask(1, add(3))
    net.ask(1, add(3, 1))
    net.ask(1, remove(3, 1))
    net.ask(1, remove(4))
    net.deliver()
    assert [answer.error_code for answer in net.answers] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.VOTER_NOT_FOUND,
        ErrorCode.VOTER_NOT_FOUND,
    ]


def test_a_removal_must_leave_a_living_majority() -> None:
    net = QuorumNet(3)
    net.advance(50)
    net.kill(3)
    net.ask(1, remove(2))
    net.deliver()
    assert [answer.error_code for answer in net.answers] == [ErrorCode.INVALID_REQUEST]
    net.ask(1, remove(3))
    net.deliver()
    assert [answer.error_code for answer in net.answers][1:] == [0]
    assert ids(net, 2) == [1, 2]


def test_the_last_voter_stays() -> None:
    net = QuorumNet(1)
    net.advance(0)
    net.ask(1, remove(1))
    net.deliver()
    assert [answer.error_code for answer in net.answers] == [ErrorCode.INVALID_REQUEST]


def test_an_uncommitted_set_is_reverted() -> None:
    """F52: the leader dies after its append, before the commit."""
    net = QuorumNet(4, voters=3)
    net.advance(50)
    net.isolate(1)
    net.ask(1, add(4))  # it has caught up already, so the set is in force at once
    net.deliver()
    assert ids(net, 1) == [1, 2, 3, 4]
    net.advance(10_000)
    net.append(b"b")
    net.cut.clear()
    net.advance(3_000)
    assert ids(net, 1) == ids(net, 2) == [1, 2, 3]


def test_a_disk_that_was_replaced_is_another_voter() -> None:
    """F51, KAFKA-17426 (A20): it neither votes nor counts until it is added."""
    net = QuorumNet(3)
    net.advance(50)
    net.kill(3)
    net.voter_set = net.voter_set.remove(ReplicaKey(3, directory_of(3)))
    net.format(3, 1)
    net.open(3)
    net.advance(500)
    assert not net.nodes[3].is_voter
    assert net.nodes[3].leader_id == 1
    net.kill(2)
    net.append(b"a")
    net.deliver()
    assert net.values(1) == []
    net.open(2)
    net.advance(100)
    assert net.values(2) == [b"a"]
    net.ask(net.leaders[0], remove(3))
    net.deliver()
    net.ask(net.leaders[0], add(3, 1))
    net.deliver()
    assert [answer.error_code for answer in net.answers] == [0, 0]
    assert net.nodes[3].is_voter


def test_an_observer_joins_by_itself_once() -> None:
    """apache/kafka#21025 (A22): after its removal it does not come back."""
    config = QuorumConfig(bootstrap=(address_of_node(1),), auto_join=True)
    net = QuorumNet(3, voters=2, config=config)
    net.advance(300)
    assert ids(net, 1) == [1, 2, 3]
    net.ask(1, remove(3))
    net.deliver()
    net.leader.write_snapshot(net.leader.high_watermark, [b"state"])
    for _ in range(3):
        net.kill(3)
        net.open(3)
        net.advance(3_000)
    assert ids(net, 1) == ids(net, 3) == [1, 2]


def test_a_voter_reports_its_new_endpoint() -> None:
    net = QuorumNet(3)
    net.advance(50)
    for node_id in (1, 3):
        net.nodes[node_id].endpoint = f"other-{node_id}"
    net.append(b"a")
    net.advance(2_500)
    voters = net.nodes[2].voters
    assert voters.get(3) == Voter.at(ReplicaKey(3, directory_of(3)), "other-3")
    assert voters.get(1) == Voter.at(ReplicaKey(1, directory_of(1)), "other-1")


def test_the_leader_describes_the_quorum() -> None:
    net = QuorumNet(4, voters=3)
    net.advance(50)
    net.append(b"a")
    net.deliver()
    net.ask(1, DescribeQuorumRequest([DescribeQuorumTopic(METADATA_TOPIC, [DescribeQuorumPartition(0)])]))
    net.deliver()
    (answer,) = net.answers
    assert isinstance(answer, DescribeQuorumResponse)
    part = answer.topics[0].partitions[0]
    assert (part.error_code, part.leader_id, part.high_watermark) == (0, 1, 4)
    assert [(one.replica_id, one.log_end_offset) for one in part.current_voters] == [(1, 4), (2, 4), (3, 4)]
    assert [(one.replica_id, one.log_end_offset) for one in part.observers] == [(4, 4)]


def test_a_removal_that_only_the_removed_leader_has_is_finished() -> None:
    """With two voters neither could win: one log is too short, and the other names its node no voter."""
    net = QuorumNet(2)
    net.advance(50)
    net.cut = {(address_of_node(1), address_of_node(2))}
    net.ask(1, remove(1))
    net.deliver()
    for node_id in (1, 2):
        net.kill(node_id, told=False)
    net.cut.clear()
    for node_id in (1, 2):
        net.open(node_id)
    net.advance(3_000)
    assert net.leaders == [2]
    assert ids(net, 1) == ids(net, 2) == [2]
    assert net.nodes[1].leader_id == 2
