"""Published faults of the log's replication, each as a schedule that is played by hand.

The names carry the ids of the lists in ``docs/internals/simulation.md``.
"""

from __future__ import annotations

from typing import Any

import pytest

from pyreplog.quorum import CommittedUpTo, LeaderChanged, QuorumConfig, SnapshotInstalled
from pyreplog.wire import (
    METADATA_TOPIC_ID,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
    Request,
    SnapshotId,
)
from tests.replication.quorum.quorum_stage import OPERATOR, QuorumStage
from tests.replication.quorum.support import CLUSTER_ID


def fetch_of(
    stage: QuorumStage, follower: int, leader: int, offset: int, last_epoch: int, *, wait_ms: int = 0
) -> list[Any]:
    """Fetch by hand in the name of ``follower``; return the answered partitions (none if the fetch is parked)."""
    node = stage.nodes[leader]
    part = FetchPartition(0, node.epoch, offset, last_epoch, -1, 1 << 20, stage.key(follower).directory_id)
    body = FetchRequest(
        wait_ms,
        0,
        [FetchTopic(METADATA_TOPIC_ID, [part])],
        ReplicaState(follower),
        1 << 20,
        cluster_id=CLUSTER_ID,
    )
    before = len(stage.answers)
    stage.step(leader, Request(OPERATOR, 500 + before, body))
    return [answer.body.responses[0].partitions[0] for answer in stage.answers[before:]]  # type: ignore[union-attr]


def test_a1_leader_change_must_be_on_a_majority() -> None:
    """KAFKA-12619: a majority that holds everything up to the leader-change record, but not that record, commits
    nothing."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.append(1, b"a")
    stage.settle()
    assert stage.committed(2) == [b"a"]
    stage.kill(1, told=())
    stage.held = lambda letter: letter.kind == "FetchResponse"
    leader = stage.elect(2)
    first = stage.log(2)[-1]
    assert first.control
    stage.settle()
    # Node 3 fetched up to the record and got no answer yet.
    assert leader.high_watermark <= first.base_offset
    assert not [
        one for one in stage.effects[2] if isinstance(one, CommittedUpTo) and one.high_watermark > first.base_offset
    ]
    stage.heal()
    stage.run(1000)
    assert leader.high_watermark == first.last_offset + 1


def test_a2_f50_older_epoch_is_not_committed_by_counting() -> None:
    """Figure 8 of the Raft paper, logcabin#44: a record of an older epoch that is on a majority is not committed
    before one of the leader's own epoch is, and may be overwritten."""
    # A fetch answer holds one batch.
    stage = QuorumStage(3, config=QuorumConfig(fetch_max_bytes=12))
    stage.elect(1)
    stage.run(1000)
    stage.isolate(1)
    stage.append(1, b"x")
    stage.kill(1, told=())
    # The second leader's records stay with it.
    stage.lost = lambda letter: letter.kind == "FetchResponse"
    leader = stage.elect(2)
    stage.append(2, b"y")
    stage.kill(2, told=())
    stage.heal()
    # Epoch 3: node 1 leads again, and node 3 gets x, but not the first record of this epoch.
    stage.start(1)
    stage.held = lambda letter: letter.kind == "FetchResponse" and stage.nodes[1].is_leader
    leader = stage.elect(1)
    stage.heal()
    while b"x" not in stage.values(3):
        (letter,) = stage.letters("FetchResponse", 1, 3) or stage.letters("FetchRequest", 3, 1)
        stage.deliver(letter)
    # Node 3 says that it has x: a majority has it.
    (asking,) = stage.letters("FetchRequest", 3, 1)
    assert asking.body.topics[0].partitions[0].fetch_offset == stage.nodes[3].log_end_offset
    stage.deliver(asking)
    assert stage.committed(1) == []
    assert stage.committed(3) == []
    first = next(batch.base_offset for batch in stage.log(1) if batch.records)
    assert leader.high_watermark <= first
    stage.kill(1, told=())
    stage.start(2)
    stage.elect(2)
    stage.run(3000)
    assert stage.committed(3) == stage.committed(2) == [b"y"]
    stage.start(1)
    stage.run(20_000)
    assert stage.committed(1) == [b"y"]


def test_a14_divergence_is_never_parked() -> None:
    """KAFKA-15100: a fetch whose log differs is answered at once, however long it would wait."""
    stage = QuorumStage(3)
    leader = stage.elect(1)
    stage.append(1, b"a")
    stage.settle()
    (answer,) = fetch_of(stage, 2, 1, leader.log_end_offset + 5, leader.epoch, wait_ms=500)
    assert answer.diverging_epoch is not None
    assert answer.diverging_epoch.end_offset <= leader.log_end_offset
    assert leader.high_watermark == leader.log_end_offset


def test_a14_parked_fetch_after_a_step_down() -> None:
    """A fetch that waits when the leader steps down is answered, and not with records or a watermark."""
    stage = QuorumStage(3)
    leader = stage.elect(1)
    stage.run(600)
    assert fetch_of(stage, 2, 1, leader.log_end_offset, leader.epoch, wait_ms=500) == []
    before = len(stage.answers)
    stage.isolate(1)
    stage.take(1, leader.resign(stage.now_ns))
    stage.run(3000)
    for answer in stage.answers[before:]:
        part: Any = answer.body.responses[0].partitions[0]  # type: ignore[union-attr]
        assert part.error_code
        assert not part.records


def test_a15_watermark_is_pushed() -> None:
    """KAFKA-13959: parked fetches end as soon as the high watermark passes what they know; no timer is needed."""
    stage = QuorumStage(3, 1)
    leader = stage.elect(1)
    stage.run(600)
    begun = stage.now_ns
    stage.append(1, b"a")
    stage.settle()
    assert stage.now_ns == begun
    assert {node.high_watermark for node in stage.nodes.values()} == {leader.log_end_offset}
    assert stage.committed(4) == [b"a"]


def test_a16_doubled_answer_truncates_nothing() -> None:
    """redpanda#17895: a fetch answer that arrives again, late, changes nothing."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.held = lambda letter: letter.kind == "FetchResponse" and letter.target == 2
    stage.append(1, b"a")
    stage.settle()
    (letter,) = stage.letters("FetchResponse", 1, 2)
    stage.heal()
    stage.deliver(letter)
    stage.settle()
    stage.append(1, b"b")
    stage.append(1, b"c")
    stage.settle()
    before = stage.log(2)
    stage.step(2, letter.message)
    stage.step(2, letter.message)
    assert stage.log(2) == before
    stage.settle()
    assert stage.values(2) == [b"a", b"b", b"c"]


def test_a17_truncated_and_extended_to_the_same_length() -> None:
    """redpanda#16105: bytes that replaced others of the same length count only after a sync of their own; a power
    loss right after they were acknowledged keeps them."""
    stage = QuorumStage(3, on_disk=True)
    stage.elect(1)
    stage.isolate(1)
    stage.append(1, b"old")
    stage.elect(2)
    stage.append(2, b"new")
    stage.settle()
    stage.heal()
    stage.run(20_000, stop=lambda: stage.values(1) == [b"new"])
    stage.run(1000)
    assert stage.nodes[1].high_watermark == stage.nodes[2].high_watermark
    for node_id in stage.ids:
        stage.lose_power(node_id)
    for node_id in stage.ids:
        stage.start(node_id)
        assert stage.values(node_id) == [b"new"]


def test_a21_uncommitted_first_records_vanish() -> None:
    """KAFKA-20839: what the first leader wrote on an empty log and could not commit is gone after another led; no
    state machine ever saw it."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.isolate(1)
    stage.append(1, b"bootstrap")
    assert stage.committed(1) == []
    stage.elect(2)
    stage.heal()
    stage.run(10_000, stop=lambda: stage.nodes[1].leader_id == 2)
    stage.run(3000)
    assert stage.values(1) == []
    stage.kill(2)
    stage.elect(1)
    stage.run(2000)
    stage.append(1, b"bootstrap again")
    stage.run(2000)
    assert all(stage.committed(node_id) == [b"bootstrap again"] for node_id in stage.nodes)


def compacted(stage: QuorumStage) -> None:
    """Let node 1 lead, commit some records, and drop them behind a snapshot, while node 3 is away."""
    stage.elect(1)
    stage.append(1, b"a")
    stage.settle()
    stage.isolate(3)
    for value in (b"b", b"c"):
        stage.append(1, value)
    stage.settle()
    stage.run(100)
    for node_id in (1, 2):
        node = stage.nodes[node_id]
        node.write_snapshot(node.high_watermark, [b"a", b"b", b"c"])


def test_a24_f53_compacted_follower_gets_a_snapshot() -> None:
    """etcd raft 76f1249: a follower whose place was compacted away is sent to the snapshot, and never gets records
    with a hole before them."""
    stage = QuorumStage(3)
    compacted(stage)
    stage.heal()
    stage.run(10_000, stop=lambda: stage.nodes[3].high_watermark == stage.nodes[1].log_end_offset)
    found = [one for one in stage.effects[3] if isinstance(one, SnapshotInstalled)]
    assert [one.snapshot_id for one in found] == [stage.nodes[1].latest_snapshot]
    snapshot = stage.nodes[3].read_snapshot()
    assert snapshot is not None
    assert [bytes(one) for one in snapshot[1]] == [b"a", b"b", b"c"]
    assert stage.nodes[3].storage.start_offset == stage.nodes[1].storage.start_offset
    stage.append(1, b"d")
    stage.settle()
    assert stage.committed(3) == [b"d"]


def test_f53_snapshot_after_an_append_with_only_control_records() -> None:
    """A24 with an idle leader: the follower's place is compacted away although nothing was appended since."""
    stage = QuorumStage(3)
    compacted(stage)
    stage.kill(1)
    stage.start(1)
    leader = stage.elect(2)
    stage.run(1000)
    leader.write_snapshot(leader.high_watermark, [b"a", b"b", b"c"])
    stage.heal()
    stage.run(20_000, stop=lambda: stage.nodes[3].high_watermark == leader.log_end_offset)
    assert stage.nodes[3].high_watermark == leader.log_end_offset


def test_a19_restart_from_a_snapshot_alone() -> None:
    """redpanda#23835: after a restart from a snapshot and an empty log, epoch and voters are those of the
    snapshot."""
    stage = QuorumStage(3)
    compacted(stage)
    before = stage.nodes[2]
    assert before.storage.start_offset == before.log_end_offset
    voters, epoch, snapshot = before.voters, before.epoch, before.latest_snapshot
    node = stage.restart(2)
    assert node.voters == voters
    assert node.epoch >= epoch
    assert node.latest_snapshot == snapshot
    assert snapshot is not None
    assert node.storage.last_epoch == snapshot.epoch
    assert node.log_end_offset == snapshot.end_offset


def test_a12_snapshot_ends_at_the_end_of_a_batch() -> None:
    """KAFKA-14618: a snapshot inside a batch, or beyond what is committed, is refused."""
    stage = QuorumStage(3)
    leader = stage.elect(1)
    last = stage.append(1, b"a", b"b", b"c")
    stage.settle()
    with pytest.raises(Exception, match=r"batch|offset"):
        leader.write_snapshot(last, [b"a"])
    stage.isolate(1)
    stage.append(1, b"d")
    with pytest.raises(Exception, match=r"commit|watermark|offset"):
        leader.write_snapshot(leader.log_end_offset, [b"a"])
    assert leader.latest_snapshot in (None, SnapshotId(0, 0))


def test_f49_truncation_below_the_watermark_is_fatal() -> None:
    """A follower never truncates below its own high watermark: it fails loudly instead."""
    stage = QuorumStage(3)
    stage.elect(1)
    stage.append(1, b"a")
    stage.settle()
    node = stage.nodes[2]
    watermark, log = node.high_watermark, stage.log(2)
    assert watermark == node.log_end_offset
    stage.held = lambda letter: letter.kind == "FetchResponse"
    stage.append(1, b"b")
    stage.settle()
    (letter,) = stage.letters("FetchResponse", 1, 2)
    part: Any = letter.body.responses[0].partitions[0]
    part.records = None
    part.diverging_epoch = EpochEndOffset(0, 0)
    try:
        stage.step(2, letter.message)
    except Exception:
        pass
    else:
        assert node.role_name == "failed"
    assert stage.log(2) == log
    assert node.high_watermark in (watermark, -1)


def test_a4_control_batches_are_no_hole() -> None:
    """KAFKA-17608: a reader that begins again at any offset finds every later offset, those of control records
    included."""
    stage = QuorumStage(3)
    leader = stage.elect(1)
    stage.append(1, b"a")
    stage.settle()
    stage.kill(1)
    leader = stage.elect(2)
    stage.run(1000)
    stage.append(2, b"b")
    stage.settle()
    whole = [offset for offset, _ in leader.read_committed(0)]
    assert whole == list(range(leader.high_watermark))
    for begin in whole:
        assert [offset for offset, _ in leader.read_committed(begin) if offset >= begin] == whole[begin:]


def test_leader_announces_itself_behind_its_first_batch() -> None:
    """LeaderChanged of the leader itself comes once, when the log ends behind the leader-change record."""
    stage = QuorumStage(3)
    leader = stage.elect(1)
    found = [one for one in stage.effects[1] if isinstance(one, LeaderChanged) and one.leader_id == 1]
    assert found == [LeaderChanged(1, leader.epoch)]
