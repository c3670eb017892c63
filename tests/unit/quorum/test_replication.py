"""Appends, the commit rule, divergence, and proofs of leadership."""

from __future__ import annotations

import pytest

from pyreplog.errors import NotControllerError
from pyreplog.quorum import CommittedUpTo, ControlEntry, NotProved, Proved, VoteResult, majority_offset, vote_result
from pyreplog.quorum.leading import confirmed_round, session_of
from pyreplog.quorum.states import Leading
from pyreplog.testing.faults import Call
from pyreplog.wire import FetchResponse, Request, Response
from tests.unit.quorum.quorum_net import QuorumNet, address_of_node


def test_majorities() -> None:
    assert majority_offset([]) == -1
    assert majority_offset([5]) == 5
    assert majority_offset([5, 3]) == 3
    assert majority_offset([5, -1, 3]) == 3
    assert majority_offset([9, 7, 5, 3]) == 5
    assert vote_result([True, None, None]) is VoteResult.PENDING
    assert vote_result([True, True, None]) is VoteResult.WON
    assert vote_result([True, False, False]) is VoteResult.LOST


def test_an_append_needs_a_majority() -> None:
    net = QuorumNet(3)
    net.advance(5)
    net.cut = {(address_of_node(one), address_of_node(1)) for one in (2, 3)}
    before = net.leader.high_watermark
    net.append(b"a")
    net.deliver()
    assert net.leader.high_watermark == before
    net.cut.clear()
    net.advance(2_100)
    assert net.values(1) == [b"a"]


def test_every_offset_is_read() -> None:
    net = QuorumNet(3)
    net.advance(5)
    net.append(b"a", b"b")
    net.append(b"c")
    net.deliver()
    found = list(net.nodes[2].read_committed(0))
    assert [offset for offset, _ in found] == [0, 1, 2, 3, 4, 5]
    assert all(isinstance(record, ControlEntry) for _, record in found[:3])
    assert list(net.nodes[2].read_committed(4)) == [(4, b"b"), (5, b"c")]


def test_only_the_leader_appends() -> None:
    net = QuorumNet(3)
    net.advance(5)
    with pytest.raises(NotControllerError):
        net.nodes[2].append([b"a"], net.now)


def test_a_leader_of_a_minority_loses_its_tail() -> None:
    net = QuorumNet(3)
    net.advance(5)
    net.append(b"a")
    net.deliver()
    net.isolate(1)
    net.append(b"lost", b"lost too")
    net.advance(10_000)
    assert net.leaders != [1]
    assert len(net.leaders) == 1
    net.append(b"b")
    net.deliver()
    net.cut.clear()
    net.advance(3_000)
    assert net.values(1) == net.values(2) == net.values(3) == [b"a", b"b"]
    assert len({node.log_end_offset for node in net.nodes.values()}) == 1


def test_nothing_is_committed_before_the_epochs_own_record() -> None:
    """Entries of an older epoch on a majority do not count: KAFKA-12619 (A1), logcabin#44 (A2), Figure 8 (F50)."""
    net = QuorumNet(3)
    net.advance(5)
    before = net.leader.high_watermark
    net.cut = {(address_of_node(one), address_of_node(1)) for one in (2, 3)}
    net.append(b"old")  # 2 and 3 get it, and 1 never hears of that
    net.deliver()
    end = net.leader.log_end_offset
    assert {node.log_end_offset for node in net.nodes.values()} == {end}
    net.kill(1)

    def has_records(source: str, target: str, message: Request | Response) -> bool:
        body = message.body
        return isinstance(body, FetchResponse) and bool(body.responses[0].partitions[0].records)

    net.lose = has_records
    net.advance(20)
    assert net.leaders == [2]
    # 3 has fetched up to the new leader's first record, so a majority has the old entry.
    role = net.leader.role
    assert isinstance(role, Leading)
    assert sorted(one.offset for one in role.progress.values()) == [-1, end]
    assert net.leader.high_watermark == before
    assert net.leader.leader_high_watermark == -1, "a new leader does not know it"
    net.lose = lambda source, target, message: False
    net.advance(3_000)
    assert net.leader.high_watermark == end + 1


def test_parked_fetches_learn_the_high_watermark_at_once() -> None:
    """KIP-1166 (A15): no follower waits for its fetch to end."""
    net = QuorumNet(3)
    net.advance(5)
    net.append(b"a")
    net.deliver()
    assert {node.high_watermark for node in net.nodes.values()} == {net.leader.log_end_offset}


def test_an_idle_quorum_writes_nothing() -> None:
    net = QuorumNet(3)
    net.advance(50)
    disks = list(net.disks.values())
    calls: list[Call] = []
    for disk in disks:
        disk.observer = calls.append
    net.advance(10_000)
    assert {call.kind for call in calls} <= {"read", "stat"}
    assert net.leaders == [1]


def test_a_proof_needs_a_round_trip_with_a_majority() -> None:
    net = QuorumNet(3)
    net.advance(50)
    net.take(1, net.leader.prove_leadership("one", net.now))
    assert not [effect for effect in net.effects[1] if isinstance(effect, Proved)]
    net.deliver()
    assert Proved("one") in net.effects[1]
    net.isolate(1)
    net.take(1, net.leader.prove_leadership("two", net.now))
    net.advance(5_000)
    assert NotProved("two") in net.effects[1]


@pytest.mark.parametrize(("voters", "others"), [(3, 1), (5, 2)])
def test_a_proof_asks_as_many_voters_as_it_needs(voters: int, others: int) -> None:
    net = QuorumNet(voters + 1, voters=voters)
    net.advance(50)
    asked: list[str] = []

    def note(source: str, target: str, message: Request | Response) -> bool:
        if isinstance(message.body, FetchResponse):
            asked.append(target)
        return False

    net.lose = note
    net.take(1, net.leader.prove_leadership("read", net.now))
    net.deliver()
    assert Proved("read") in net.effects[1]
    assert len(set(asked)) == len(asked) == others


def test_a_proof_asks_the_other_voters_if_the_first_ones_are_slow() -> None:
    net = QuorumNet(3)
    net.advance(50)
    asked: list[str] = []

    def lose_first(source: str, target: str, message: Request | Response) -> bool:
        if isinstance(message.body, FetchResponse):
            asked.append(target)
        return isinstance(message.body, FetchResponse) and target == asked[0]

    net.lose = lose_first
    net.take(1, net.leader.prove_leadership("read", net.now))
    net.deliver()
    assert Proved("read") not in net.effects[1]
    net.advance(2)
    assert Proved("read") in net.effects[1]
    assert len(set(asked)) == 2


def test_a_fetch_that_was_sent_before_proves_nothing() -> None:
    """The fetch of a follower that has voted for another leader since may arrive late."""
    net = QuorumNet(3)
    net.advance(50)
    held: list[Request | Response] = []

    def hold(source: str, target: str, message: Request | Response) -> bool:
        if target == address_of_node(1):
            held.append(message)
            return True
        return False

    net.lose = hold
    net.append(b"a")  # both answers leave, both next fetches are held
    net.deliver()
    assert held
    net.take(1, net.leader.prove_leadership("read", net.now))
    net.lose = lambda source, target, message: target != address_of_node(1)
    for message in held:
        net.step(1, message)
    net.deliver()
    assert Proved("read") not in net.effects[1]


def test_one_voter_proves_itself() -> None:
    net = QuorumNet(1)
    net.advance(0)
    net.take(1, net.leader.prove_leadership("t", net.now))
    assert Proved("t") in net.effects[1]
    assert CommittedUpTo(3) in net.effects[1]


def test_an_observer_follows_and_does_not_count() -> None:
    net = QuorumNet(4, voters=3)
    net.advance(50)
    net.append(b"a")
    net.deliver()
    assert net.values(4) == [b"a"]
    assert not net.nodes[4].is_voter
    assert net.nodes[4].voters == net.voter_set
    net.cut = {(address_of_node(one), address_of_node(1)) for one in (2, 3)}
    net.append(b"b")
    net.deliver()
    assert net.values(1) == [b"a"]


def test_an_observer_finds_the_next_leader() -> None:
    net = QuorumNet(4, voters=3)
    net.advance(50)
    net.kill(1)
    net.advance(300)
    assert net.leaders == [2]
    assert net.nodes[4].leader_id == 2


def test_rounds_of_proofs_outlive_their_number() -> None:
    for latest in (1, 5, 2**31 - 3, 2**31 - 2, 2**31 + 7, 2**33):
        assert confirmed_round(latest, session_of(latest)) == latest
        assert confirmed_round(latest, session_of(latest - 1)) == latest - 1
        assert confirmed_round(latest, 0) == 0
    assert session_of(0) == 0
    assert confirmed_round(0, 9) == 0
