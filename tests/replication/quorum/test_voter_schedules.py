"""Published faults of voter changes and of lost disks, each as a schedule that is played by hand.

The names carry the ids of the lists in ``docs/internals/simulation.md``.
"""

from __future__ import annotations

from typing import Any

import pytest

from pyreplog.quorum import QuorumConfig
from pyreplog.wire import ErrorCode
from tests.replication.quorum.quorum_stage import QuorumStage
from tests.replication.quorum.support import add_request, remove_request


def codes(stage: QuorumStage) -> list[int]:
    """Return the error codes of the answers to the operator."""
    return [int(answer.body.error_code) for answer in stage.answers]  # type: ignore[union-attr]


def ids(stage: QuorumStage, node_id: int) -> list[int]:
    """Return the voters that a node acts on."""
    return [voter.node_id for voter in stage.nodes[node_id].voters]


def test_add_and_remove() -> None:
    """An observer that caught up becomes a voter, on all nodes; removed, it is an observer again."""
    stage = QuorumStage(3, 1)
    stage.elect(1)
    stage.append(1, b"a")
    stage.run(2000)
    stage.ask(1, add_request(stage.key(4)))
    stage.run(5000, stop=lambda: bool(stage.answers))
    stage.run(1000)
    assert codes(stage) == [0]
    assert all(ids(stage, one) == [1, 2, 3, 4] for one in stage.ids)
    stage.ask(1, remove_request(stage.key(2)))
    stage.run(5000)
    assert codes(stage) == [0, 0]
    assert all(ids(stage, one) == [1, 3, 4] for one in stage.ids)
    assert not stage.nodes[2].is_voter
    stage.append(1, b"b")
    stage.run(1000)
    assert stage.committed(2) == [b"a", b"b"]


def test_a3_leader_removes_itself() -> None:
    """KAFKA-16530: the leader that is removed leads until the change is committed, without counting itself; its
    watermark never falls; then it resigns."""
    stage = QuorumStage(3)
    leader = stage.elect(1)
    stage.append(1, b"a")
    stage.settle()
    before = leader.high_watermark
    stage.held = lambda letter: letter.kind == "FetchRequest" and letter.source == 3
    stage.run(100)
    stage.ask(1, remove_request(stage.key(1)))
    stage.append(1, b"b")
    stage.settle()
    # Of the voters 2 and 3, only 2 has the change.
    assert ids(stage, 1) == [2, 3]
    assert leader.is_leader
    assert leader.high_watermark == before
    assert not stage.answers
    stage.heal()
    seen = [leader.high_watermark]
    for _ in range(40):
        stage.run(50)
        seen.append(leader.high_watermark)
    known = [one for one in seen if one >= 0]
    assert known == sorted(known)
    assert codes(stage) == [0]
    stage.run(20_000, stop=lambda: any(node.is_leader for one, node in stage.nodes.items() if one != 1))
    assert not leader.is_leader
    assert stage.leader_id in (2, 3)
    stage.run(2000)
    assert stage.committed(2) == [b"a", b"b"]


def test_v26_no_change_before_an_own_record_is_committed() -> None:
    """The single-server bug: a new leader refuses a change until a record of its own epoch is committed."""
    stage = QuorumStage(3, 1)
    stage.elect(1)
    stage.run(2000)
    stage.kill(1, told=())
    stage.lost = lambda letter: letter.kind == "FetchResponse"
    leader = stage.elect(2)
    stage.ask(2, remove_request(stage.key(3)))
    stage.settle()
    assert ids(stage, 2) == [1, 2, 3]
    assert stage.answers == [] or codes(stage)[0] != 0
    assert leader.is_leader


def test_v26_no_two_changes_at_once() -> None:
    """A second change is refused, or waits, until the first is committed."""
    stage = QuorumStage(5)
    stage.elect(1)
    stage.run(2000)
    stage.lost = lambda letter: letter.kind == "FetchResponse"
    stage.ask(1, remove_request(stage.key(5)))
    stage.settle()
    assert ids(stage, 1) == [1, 2, 3, 4]
    stage.ask(1, remove_request(stage.key(4)))
    stage.settle()
    assert ids(stage, 1) == [1, 2, 3, 4]
    stage.heal()
    stage.run(10_000)
    assert len(ids(stage, stage.leader_id)) in (3, 4)
    assert 0 in codes(stage)


def test_f52_leader_dies_before_the_change_commits() -> None:
    """A change that only the dead leader had is gone: voters that never saw it go on as before, and the old leader
    takes it back."""
    stage = QuorumStage(3, 1)
    stage.elect(1)
    stage.run(2000)
    stage.lost = lambda letter: letter.kind == "FetchResponse"
    stage.ask(1, add_request(stage.key(4)))
    stage.settle()
    changed = ids(stage, 1) == [1, 2, 3, 4]
    stage.kill(1, told=())
    stage.heal()
    stage.elect(2)
    stage.run(3000)
    assert ids(stage, 2) == ids(stage, 3) == [1, 2, 3]
    stage.start(1)
    assert ids(stage, 1) == ([1, 2, 3, 4] if changed else [1, 2, 3])
    stage.run(20_000)
    assert ids(stage, 1) == [1, 2, 3]
    assert ids(stage, 4) == [1, 2, 3]


def test_a25_a_change_keeps_the_known_progress() -> None:
    """openraft#584: after a change the leader still knows how far its followers are: an append commits at the next
    fetch, and the watermark is not lost."""
    stage = QuorumStage(3, 1)
    leader = stage.elect(1)
    stage.append(1, b"a")
    stage.run(2000)
    before = leader.high_watermark
    stage.ask(1, add_request(stage.key(4)))
    stage.settle()
    assert leader.high_watermark >= before
    stage.run(2000)
    assert leader.high_watermark == leader.log_end_offset
    begun = stage.now_ns
    stage.append(1, b"b")
    stage.settle()
    assert stage.now_ns == begun
    assert leader.high_watermark == leader.log_end_offset


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
def test_f51_wiped_voter_does_not_count(on_disk: bool) -> None:
    """A voter that comes back with an empty disk is another voter: it neither votes nor counts, until it is added."""
    stage = QuorumStage(3, on_disk=on_disk)
    leader = stage.elect(1)
    stage.append(1, b"a")
    stage.run(1000)
    stage.wipe(3)
    stage.isolate(2)
    begun = leader.high_watermark
    stage.append(1, b"b")
    stage.run(1000)
    # Node 3 may have fetched it all, and a majority of the voters' disks does not have b.
    assert leader.high_watermark == begun
    stage.run(60_000)
    assert not any(node.is_leader for node in stage.nodes.values()), "two disks of three are no majority here"
    stage.heal()
    stage.run(60_000, stop=lambda: any(node.is_leader for node in stage.nodes.values()))
    assert stage.leader_id in (1, 2)
    stage.run(3000)
    new_leader = stage.leader_id
    assert not stage.nodes[3].is_voter
    stage.ask(new_leader, remove_request(stage.voters.get(3).key))  # type: ignore[union-attr]
    stage.run(3000)
    stage.ask(new_leader, add_request(stage.key(3)))
    stage.run(5000)
    assert codes(stage) == [0, 0]
    assert stage.nodes[3].is_voter
    assert stage.committed(3) == stage.committed(new_leader)


def test_a22_removed_voter_does_not_join_again() -> None:
    """apache/kafka#21025: a removed voter does not come back by auto-join, after snapshots and restarts either."""
    stage = QuorumStage(3, config=QuorumConfig(auto_join=True))
    stage.elect(1)
    stage.run(1000)
    stage.ask(1, remove_request(stage.key(3)))
    stage.run(3000)
    assert codes(stage) == [0]
    for node_id in stage.ids:
        node = stage.nodes[node_id]
        node.write_snapshot(node.high_watermark, [b"state"])
    stage.restart(1)
    stage.run(20_000, stop=lambda: any(node.is_leader for node in stage.nodes.values()))
    stage.restart(3)
    stage.run(30_000)
    assert ids(stage, stage.leader_id) == [1, 2]
    assert not stage.nodes[3].is_voter


def test_auto_join_once() -> None:
    """An observer that was never a voter becomes one by itself."""
    stage = QuorumStage(3, 1, config=QuorumConfig(auto_join=True))
    stage.elect(1)
    stage.run(30_000)
    assert ids(stage, 1) == [1, 2, 3, 4]


def test_the_last_voter_stays() -> None:
    """The only voter cannot be removed."""
    stage = QuorumStage(1, 1)
    stage.elect(1)
    stage.run(1000)
    stage.ask(1, remove_request(stage.key(1)))
    stage.run(1000)
    assert codes(stage)[0] != 0
    assert ids(stage, 1) == [1]


@pytest.mark.parametrize("size", [3, 5])
def test_who_does_not_lead_refuses_changes(size: int) -> None:
    """A follower answers NOT_LEADER_OR_FOLLOWER, and nothing changes."""
    stage = QuorumStage(size, 1)
    stage.elect(1)
    stage.run(1000)
    stage.ask(2, remove_request(stage.key(3)))
    stage.settle()
    assert codes(stage) == [int(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert len(ids(stage, 1)) == size


def test_unknown_keys_are_refused() -> None:
    """Adding a voter that is there, and removing one that is not, are refused by name."""
    stage = QuorumStage(3, 1)
    stage.elect(1)
    stage.run(1000)
    stage.ask(1, add_request(stage.key(2)))
    stage.run(3000)
    stage.ask(1, remove_request(stage.key(4)))
    stage.run(3000)
    assert codes(stage) == [int(ErrorCode.DUPLICATE_VOTER), int(ErrorCode.VOTER_NOT_FOUND)]


def test_adding_a_voter_that_does_not_catch_up_ends() -> None:
    """A reconfiguration is never stuck: the observer is dead, the request ends with an error, and another change is
    possible."""
    stage = QuorumStage(3, 1)
    stage.elect(1)
    stage.run(1000)
    stage.kill(4, told=())
    stage.append(1, b"a")
    stage.ask(1, add_request(stage.key(4), timeout_ms=1000))
    stage.run(5000)
    assert len(stage.answers) == 1
    assert codes(stage)[0] != 0
    stage.ask(1, remove_request(stage.key(3)))
    stage.run(5000)
    assert codes(stage)[1] == 0


def test_removed_node_disturbs_nobody() -> None:
    """A node that was cut off while it was removed asks for votes when it comes back, and bumps no epoch."""
    stage = QuorumStage(5)
    leader = stage.elect(1)
    stage.run(1000)
    stage.isolate(5)
    stage.ask(1, remove_request(stage.key(5)))
    stage.run(20_000)
    epoch = leader.epoch
    assert ids(stage, 1) == [1, 2, 3, 4]
    stage.heal()
    stage.run(20_000)
    assert leader.is_leader
    assert leader.epoch == epoch
    answer: Any = stage.answers[-1].body
    assert answer.error_code == 0
