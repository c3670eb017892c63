"""Elections: who leads, when, and who may not."""

from __future__ import annotations

import pytest

from tests.unit.quorum.quorum_net import QuorumNet, address_of_node


def test_one_voter_leads_at_once() -> None:
    net = QuorumNet(1)
    net.advance(0)
    assert net.leaders == [1]
    assert net.leader.high_watermark == net.leader.log_end_offset == 3
    last = net.append(b"a", b"b")
    assert last == 4
    assert net.leader.high_watermark == 5
    assert net.values(1) == [b"a", b"b"]
    assert net.leader.next_wake_ns is None, "one voter has nothing to wait for"


@pytest.mark.parametrize("count", [2, 3, 5])
def test_voters_elect_the_first_within_milliseconds_and_replicate(count: int) -> None:
    net = QuorumNet(count)
    net.advance(5)
    assert net.leaders == [1]
    net.append(b"a")
    net.deliver()
    for node_id in net.nodes:
        assert net.values(node_id) == [b"a"]
        assert net.nodes[node_id].high_watermark == 4


def test_the_end_of_the_leader_is_no_matter_of_timers() -> None:
    net = QuorumNet(3)
    net.advance(5)
    net.append(b"a")
    net.deliver()
    net.kill(1)
    net.advance(10)
    assert net.leaders == [2]
    net.append(b"b")
    net.deliver()
    assert net.values(3) == [b"a", b"b"]


def test_a_silent_leader_is_replaced_after_the_fetch_timeout() -> None:
    net = QuorumNet(3)
    net.advance(5)
    net.kill(1, told=False)
    net.advance(1400)
    assert net.leaders == []
    net.advance(6000)
    assert len(net.leaders) == 1


def test_a_healthy_majority_refuses_a_node_that_was_cut_off() -> None:
    """KAFKA-17642 (A8): it comes back, and no epoch is lost."""
    net = QuorumNet(3)
    net.advance(5)
    epoch = net.leader.epoch
    net.isolate(3)
    net.advance(20_000)
    net.cut.clear()
    net.advance(5_000)
    assert net.leaders == [1]
    assert [node.epoch for node in net.nodes.values()] == [epoch] * 3


def test_a_leader_without_a_majority_resigns() -> None:
    """KAFKA-15489 (A7, F47): it sends, and hears of nobody."""
    net = QuorumNet(3)
    net.advance(5)
    net.cut = {(address_of_node(other), address_of_node(1)) for other in (2, 3)}
    net.advance(3_100)
    assert not net.nodes[1].is_leader


def test_all_restart_and_go_on() -> None:
    net = QuorumNet(3)
    net.advance(5)
    net.append(b"a")
    net.deliver()
    epoch = net.leader.epoch
    for node_id in (1, 2, 3):
        net.kill(node_id, told=False)
    for node_id in (1, 2, 3):
        net.open(node_id)
    net.advance(10)
    assert net.leaders == [1]
    assert net.leader.epoch == epoch + 1
    assert net.values(2) == [b"a"]


def test_a_resigning_leader_names_its_successor() -> None:
    net = QuorumNet(3)
    net.advance(5)
    net.take(1, net.leader.resign(net.now))
    net.deliver()
    assert net.leaders == [2]
    net.advance(3_000)
    assert net.leaders == [2]
    assert net.nodes[1].leader_id == 2


def test_a_leader_that_was_gone_once_is_followed_in_its_next_epoch() -> None:
    net = QuorumNet(4, voters=3)
    net.advance(50)
    net.kill(1)
    net.advance(300)
    net.open(1)
    net.advance(300)
    net.isolate(4)
    net.take(2, net.leader.resign(net.now))
    net.advance(5_000)
    net.cut.clear()
    net.advance(5_000)
    assert net.nodes[4].leader_id == net.leaders[0]


def test_a_leader_that_is_told_that_a_majority_is_gone_resigns_at_once() -> None:
    net = QuorumNet(3)
    net.advance(50)
    net.kill(2)
    assert net.leaders == [1]
    net.kill(3)
    assert net.leaders == []
    assert net.nodes[1].leader_id is None
    net.open(2)
    net.advance(3_000)
    assert len(net.leaders) == 1


def test_three_candidates_at_once_end_with_a_leader() -> None:
    """KAFKA-18345 (A6): each begins at the same moment, again and again."""
    for seed in range(20):
        net = QuorumNet(3, seed=seed)
        for node in net.nodes.values():
            node.begin_vote()
            net.take(node.identity.node_id, node.out)
        net.advance(200)
        assert len(net.leaders) == 1


def test_one_way_links_to_a_voter_depose_no_leader() -> None:
    """F48: it hears nobody, and all hear it."""
    net = QuorumNet(3)
    net.advance(50)
    epoch = net.leader.epoch
    net.cut = {(address_of_node(one), address_of_node(3)) for one in (1, 2)}
    net.advance(30_000)
    assert net.leaders == [1]
    assert net.leader.epoch == epoch


def test_a_leader_says_once_that_it_leads() -> None:
    """KAFKA-17333 (F49b): each (epoch, leader) once, behind the epoch's first record."""
    net = QuorumNet(3)
    net.advance(50)
    net.take(1, net.leader.resign(net.now))
    net.advance(5_000)
    changes = [change for change in net.leader_changes(1) if change.leader_id == 1]
    assert len(changes) == len(set(changes)) == 1
    assert [change.epoch for change in net.leader_changes(2) if change.leader_id == 2] == [2]
