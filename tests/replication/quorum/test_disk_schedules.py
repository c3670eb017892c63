"""Published faults of a voter's disk, each as a schedule: crashes at every call, snapshots half written, full disks.

The names carry the ids of the lists in ``docs/internals/simulation.md``.
"""

from __future__ import annotations

import errno
from random import Random

import pytest

from pyreplog.errors import CorruptError, PyreplogError, StorageError
from pyreplog.quorum import QuorumFailed
from pyreplog.testing import Call, SimDisk
from tests.replication.quorum.quorum_stage import QuorumStage

FOLDER = "node-{}/__cluster_metadata-0"


def snapshots(disk: SimDisk, node_id: int) -> list[str]:
    """Return the names of the snapshots in a node's folder."""
    return [name for name in disk.list(FOLDER.format(node_id)) if name.endswith(".checkpoint")]


def with_snapshot(*, keep_log: bool = False) -> QuorumStage:
    """Return a single voter with committed records and a snapshot of them, and one more record behind it."""
    stage = QuorumStage(1, on_disk=True)
    node = stage.elect(1)
    stage.append(1, b"a")
    stage.append(1, b"b")
    if not keep_log:
        node.write_snapshot(node.high_watermark, [b"a", b"b"])
    stage.append(1, b"c")
    return stage


def content(stage: QuorumStage) -> list[bytes]:
    """Return the state of the single voter: its snapshot's records, then those of its log."""
    node = stage.nodes[1]
    found = node.read_snapshot()
    if found is None or found[0].end_offset == 0:
        return stage.values(1)
    end = found[0].end_offset
    log = [bytes(value) for batch in stage.log(1) if batch.base_offset >= end for value in batch.records]
    return [*(bytes(one) for one in found[1]), *log]


def test_single_voter_starts_from_snapshot_and_log() -> None:
    """After a power loss the state is that of the snapshot and the log behind it."""
    stage = with_snapshot()
    stage.lose_power(1)
    stage.start(1)
    assert content(stage) == [b"a", b"b", b"c"]
    stage.elect(1)
    assert content(stage) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("size", [0, 10, 70])
def test_a10_short_snapshot_is_not_taken_for_a_state(size: int) -> None:
    """KAFKA-15312: a snapshot that is empty or cut short is ignored in favour of an older one, or the voter does not
    vouch for anything; it is never an empty cluster."""
    stage = with_snapshot()
    stage.kill(1)
    disk = stage.disks[1]
    newest = snapshots(disk, 1)[-1]
    file = disk.open(f"{FOLDER.format(1)}/{newest}", write=True)
    file.truncate(size)
    file.sync()
    file.close()
    try:
        node = stage.start(1)
    except (CorruptError, StorageError):
        return
    if node.voter_failure is not None:
        assert not node.is_voter
        stage.run(30_000)
        assert not node.is_leader
        return
    assert content(stage) == [b"a", b"b", b"c"]


def test_a11_log_without_its_snapshot_is_refused() -> None:
    """KAFKA-14240: a log that begins at s > 0 without a snapshot that ends there or later is not believed."""
    stage = with_snapshot()
    node = stage.nodes[1]
    node.write_snapshot(node.high_watermark, [b"a", b"b", b"c"])  # now the log begins where the first one ends
    assert node.storage.start_offset > 0
    stage.kill(1)
    disk = stage.disks[1]
    for name in snapshots(disk, 1):
        disk.remove(f"{FOLDER.format(1)}/{name}")
    try:
        node = stage.start(1)
    except (CorruptError, StorageError):
        return
    assert node.voter_failure is not None
    stage.run(30_000)
    assert not node.is_leader


def test_f54_crash_while_a_snapshot_is_written() -> None:
    """A kill or a power loss at any call while a snapshot is written loses nothing, and half a snapshot counts for
    nothing."""
    stage = with_snapshot(keep_log=True)
    node, disk = stage.nodes[1], stage.disks[1]
    states: list[SimDisk] = []

    def take(call: Call) -> None:
        states.append(disk.snapshot())
        states.append(disk.crash(Random(call.number)))

    disk.observer = take
    node.write_snapshot(node.high_watermark, [b"a", b"b", b"c"])
    disk.observer = None
    stage.kill(1)
    assert len(states) > 10
    for state in states:
        state.observer = None
        stage.disks[1] = state
        stage.start(1)
        assert stage.nodes[1].voter_failure is None
        assert content(stage) == [b"a", b"b", b"c"]
        stage.kill(1)


def test_crash_at_every_call_keeps_vote_and_records() -> None:
    """Elections, votes and appends of three voters: a power loss at any disk call of node 3 leaves it with every
    epoch and record of which its messages spoke."""
    stage = QuorumStage(3, on_disk=True)
    disk = stage.disks[3]
    promised: list[tuple[SimDisk, int, int]] = []

    def take(call: Call) -> None:
        sent = [letter for letter in stage.sent if letter.source == 3]
        granted = [
            letter.body.topics[0].partitions[0]
            for letter in sent
            if letter.kind == "VoteResponse" and letter.body.topics[0].partitions[0].vote_granted
        ]
        fetched = [letter.body.topics[0].partitions[0] for letter in sent if letter.kind == "FetchRequest"]
        epoch = max([one.leader_epoch for one in granted] + [one.current_leader_epoch for one in fetched], default=0)
        end = max((one.fetch_offset for one in fetched), default=0)
        promised.append((disk.crash(Random(call.number)), epoch, end))

    disk.observer = take
    stage.elect(1)
    for value in (b"a", b"b", b"c"):
        stage.append(1, value)
        stage.settle()
    disk.observer = None
    newest = stage.nodes[3].epoch
    stage.kill(3, told=())
    assert len(promised) > 10
    for state, epoch, end in promised:
        stage.disks[3] = state
        node = stage.start(3)
        assert node.voter_failure is None
        assert node.log_end_offset >= end
        assert epoch <= node.epoch <= newest
        stage.kill(3, told=())


def test_full_disk_refuses_an_append_and_the_leader_stays() -> None:
    """Without room the append is refused, nothing was appended, and the leader goes on by itself when there is
    room."""
    stage = QuorumStage(3, on_disk=True)
    leader = stage.elect(1)
    stage.append(1, b"a")
    stage.run(1000)
    end = leader.log_end_offset
    stage.disks[1].capacity = stage.disks[1].used + 100
    with pytest.raises(StorageError):
        stage.append(1, b"x" * 5000)
    assert leader.log_end_offset == end
    assert leader.is_leader
    stage.run(5000)
    assert leader.is_leader
    stage.disks[1].capacity = None
    stage.append(1, b"b")
    stage.run(1000)
    assert all(stage.committed(node_id) == [b"a", b"b"] for node_id in stage.ids)


def test_follower_without_room_catches_up_later() -> None:
    """A follower whose disk is full holds back, and catches up when there is room; the others go on."""
    stage = QuorumStage(3, on_disk=True)
    leader = stage.elect(1)
    stage.run(1000)
    stage.disks[3].capacity = stage.disks[3].used + 100
    stage.append(1, b"x" * 5000)
    stage.run(5000)
    assert leader.is_leader
    assert leader.high_watermark == leader.log_end_offset
    stage.disks[3].capacity = None
    stage.run(10_000)
    assert stage.committed(3) == [b"x" * 5000]


@pytest.mark.parametrize("victim", [1, 3], ids=["leader", "follower"])
def test_failed_sync_ends_a_voter(victim: int) -> None:
    """After a failed sync the voter takes no part until it is opened again; then it has every acknowledged record."""
    stage = QuorumStage(3, on_disk=True)
    stage.elect(1)
    stage.append(1, b"a")
    stage.run(1000)
    stage.disks[victim].fail("sync", "*", error=errno.EIO)
    try:
        stage.append(1, b"b")
        stage.settle()
    except PyreplogError:
        assert victim == 1
    node = stage.nodes[victim]
    failed = [one for one in stage.effects[victim] if isinstance(one, QuorumFailed)]
    assert failed or node.voter_failure is not None or not node.is_leader
    sent = len([letter for letter in stage.sent if letter.source == victim])
    stage.run(20_000)
    assert not node.is_leader
    voting = ("VoteResponse", "FetchRequest", "VoteRequest")
    later = [letter for letter in stage.sent if letter.source == victim][sent:]
    assert not [letter for letter in later if letter.kind in voting]
    others = [one for one in stage.ids if one != victim]
    assert any(stage.nodes[one].is_leader for one in others)
    stage.disks[victim].clear_faults()
    stage.restart(victim)
    stage.run(20_000)
    stage.append(stage.leader_id, b"c")
    stage.run(2000)
    assert b"a" in stage.committed(victim)
    assert stage.committed(victim) == stage.committed(others[0])


@pytest.mark.parametrize("count", [1, 2], ids=["one of three", "two of three"])
def test_voter_without_its_state_file_does_not_vote(count: int) -> None:
    """A voter whose quorum-state is gone could vote twice, so it neither votes nor counts; two of three such voters
    are no majority."""
    stage = QuorumStage(3, on_disk=True)
    stage.elect(1)
    stage.append(1, b"a")
    stage.run(1000)
    for node_id in range(4 - count, 4):
        stage.kill(node_id, told=())
        folder = FOLDER.format(node_id)
        stage.disks[node_id].remove(f"{folder}/quorum-state")
        stage.disks[node_id].sync_directory(folder)
        try:
            node = stage.start(node_id)
        except (CorruptError, StorageError):
            continue
        assert not node.is_voter
        assert node.voter_failure is not None
    stage.kill(1)
    stage.run(60_000)
    leaders = [node for node in stage.nodes.values() if node.is_leader]
    assert not leaders, "one whole voter of three is no majority"
