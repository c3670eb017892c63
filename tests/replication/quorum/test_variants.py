"""Planted bugs of the quorum: each known-bad rule is caught within a budget, by random faults, by a search over states
(``test_explore.py``) or by a schedule; the true rules pass all three."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyreplog.quorum import Proved, RaftNode, SnapshotInstalled
from pyreplog.testing.known_bad.quorum import QUORUM_VARIANTS
from pyreplog.testing.quorum import QuorumWorld
from tests.replication.quorum.quorum_stage import QuorumStage

SEEDS_MAX = 20


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        "CommitsByCounting",
        "VoteNotPersisted",
        "VotesTwice",
        "LeaderCountsUnflushed",
        "LeadsOnInItsEpoch",
        "WipedVoterCounts",
    ],
)
def test_caught_by_seeds(name: str) -> None:
    """Random faults find the bug within a bounded number of seeds (V24, V25; planted bugs 38 to 41)."""
    for seed in range(SEEDS_MAX):
        try:
            QuorumWorld(seed, node_class=QUORUM_VARIANTS[name]).run()
        except AssertionError:
            return
    pytest.fail(f"not caught within {SEEDS_MAX} seeds")


def cut_off_leader(node_class: type[RaftNode]) -> None:
    """A leader that hears from no majority must give up within 1.5 fetch timeouts (KAFKA-15489)."""
    stage = QuorumStage(3, node_class=node_class)
    leader = stage.elect(1)
    stage.isolate(1)
    stage.run(10_000)
    assert not leader.is_leader


def returning_node(node_class: type[RaftNode]) -> None:
    """A node that was cut off must not raise the epoch of the others (KAFKA-17642)."""
    stage = QuorumStage(3, node_class=node_class)
    epoch = stage.elect(1).epoch
    stage.isolate(3)
    stage.run(10_000)
    stage.heal()
    stage.run(5000)
    assert stage.leader.epoch == epoch


def read_of_a_deposed_leader(node_class: type[RaftNode]) -> None:
    """A leader that is cut off must not answer a read as if it still led."""
    stage = QuorumStage(3, node_class=node_class)
    leader = stage.elect(1)
    stage.append(1, b"a")
    stage.run(1000)
    stage.isolate(1)
    effects = leader.prove_leadership("read", stage.now_ns)
    assert not [one for one in effects if isinstance(one, Proved)]


def early_change(node_class: type[RaftNode]) -> None:
    """A new leader must not change the voters before a record of its own epoch is committed (V26)."""
    stage = QuorumStage(3, node_class=node_class)
    stage.elect(1)
    stage.run(2000)
    stage.kill(1, told=())
    stage.lost = lambda letter: letter.kind == "FetchResponse"
    leader = stage.elect(2)
    assert not leader.may_change_voters(leader.role)  # type: ignore[arg-type]


def older_snapshot(node_class: type[RaftNode]) -> None:
    """A leader names a snapshot that ends below what a follower has acknowledged: the follower keeps its log (43)."""
    stage = QuorumStage(3, node_class=node_class)
    leader = stage.elect(1)
    stage.append(1, b"a")
    stage.settle()
    leader.write_snapshot(leader.high_watermark, [b"a"])
    older = leader.latest_snapshot
    stage.append(1, b"b")
    stage.settle()
    stage.held = lambda letter: letter.kind == "FetchResponse" and letter.target == 2
    stage.append(1, b"c")
    stage.settle()
    (letter,) = stage.letters("FetchResponse", 1, 2)
    part = letter.body.responses[0].partitions[0]
    part.snapshot_id, part.records = older, None
    stage.heal()
    stage.run(1000)
    assert stage.values(2)[-2:] == [b"b", b"c"]
    assert not [one for one in stage.effects[2] if isinstance(one, SnapshotInstalled)]


SCHEDULES: dict[str, Callable[[type[RaftNode]], None]] = {
    "NeverResigns": cut_off_leader,
    "NoPreVote": returning_node,
    "ProvesAlone": read_of_a_deposed_leader,
    "ChangesBeforeOwnCommit": early_change,
    "InstallsOverNewer": older_snapshot,
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_caught_by_a_schedule(name: str) -> None:
    """The schedule passes with the true rules and fails with the known-bad one."""
    SCHEDULES[name](RaftNode)
    with pytest.raises(AssertionError):
        SCHEDULES[name](QUORUM_VARIANTS[name])
