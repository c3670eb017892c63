"""A voter votes and counts only with everything that it vouched for."""

from __future__ import annotations

import errno
import json
from random import Random

import pytest

from pyreplog.errors import StorageError
from pyreplog.quorum import Identity, QuorumFailed, RaftNode, ReplicaKey
from pyreplog.quorum.state_file import STATE_NAME, VOUCHER_NAME, StateFile
from pyreplog.quorum.storage import HardState
from pyreplog.testing import SimClock, SimDisk
from pyreplog.testing.faults import Call
from pyreplog.wire import METADATA_TOPIC, Request, VotePartition, VoteRequest, VoteResponse, VoteTopic
from tests.unit.quorum.quorum_net import CLUSTER, FOLDER, QuorumNet, address_of_node, directory_of

LOG = f"{FOLDER}/{0:020d}.log"


def vote(voter_id: int, candidate_id: int, epoch: int, *, end: int = 100, pre_vote: bool = False) -> VoteRequest:
    """Return the request of a candidate whose log is longer than any other."""
    part = VotePartition(
        0,
        epoch,
        candidate_id,
        epoch - (not pre_vote),
        end,
        directory_of(candidate_id),
        directory_of(voter_id),
        pre_vote,
    )
    return VoteRequest([VoteTopic(METADATA_TOPIC, [part])], CLUSTER, voter_id)


def granted(net: QuorumNet) -> bool:
    """Return whether the last answer grants a vote."""
    answer = net.answers[-1]
    assert isinstance(answer, VoteResponse)
    return answer.topics[0].partitions[0].vote_granted


def content(disk: SimDisk, path: str) -> bytes:
    """Return the content of a file."""
    file = disk.open(path)
    try:
        return bytes(file.read_at(0, file.size()))
    finally:
        file.close()


def put(disk: SimDisk, path: str, data: bytes) -> None:
    """Replace a file."""
    disk.remove(path)
    file = disk.create(path)
    file.write_at(0, [data])
    file.sync()
    file.close()
    disk.sync_directory(FOLDER)


def alone() -> QuorumNet:
    """Return a voter of three, without the others."""
    net = QuorumNet(3)
    for node_id in (1, 2):
        net.kill(node_id, told=False)
    return net


def test_a_vote_is_durable_before_its_answer_and_is_given_again() -> None:
    """nebula#2419 (A9)."""
    net = alone()
    net.ask(3, vote(3, 1, 5))
    net.deliver()
    assert granted(net)
    for _ in range(2):
        net.ask(3, vote(3, 2, 5))
        net.deliver()
        assert not granted(net)
        net.ask(3, vote(3, 1, 5))
        net.deliver()
        assert granted(net)
        net.nodes.pop(3)
        net.disks[3] = net.disks[3].crash(Random(1))
        net.open(3)
    assert net.nodes[3].storage.read_state() == HardState(5, -1, ReplicaKey(1, directory_of(1)))
    assert json.loads(content(net.disks[3], f"{FOLDER}/{STATE_NAME}")) == {
        "leaderId": -1,
        "leaderEpoch": 5,
        "votedId": 1,
        "votedDirectoryId": directory_of(1),
        "data_version": 1,
    }


def test_a_pre_vote_writes_nothing() -> None:
    net = alone()
    before = net.disks[3].fingerprint()
    net.ask(3, vote(3, 1, 0, pre_vote=True))
    net.deliver()
    assert granted(net)
    assert net.disks[3].fingerprint() == before


def test_a_vote_for_another_disk_or_cluster_is_refused() -> None:
    net = alone()
    request = vote(3, 1, 5)
    request.topics[0].partitions[0].voter_directory_id = directory_of(3, 1)
    net.ask(3, request)
    net.deliver()
    assert not granted(net)
    request = vote(3, 1, 5)
    request.cluster_id = "other"
    net.ask(3, request)
    net.deliver()
    assert not granted(net)
    assert net.nodes[3].epoch == 0


def harmed(net: QuorumNet, name: str, how: str) -> None:
    """Harm one file of node 3, which is down."""
    disk, path = net.disks[3], f"{FOLDER}/{name}"
    data = content(disk, path)
    if how == "missing":
        disk.remove(path)
    elif how == "empty":
        put(disk, path, b"")
    elif how == "flip":
        place = data.index(b"rId") if name == STATE_NAME else 30
        put(disk, path, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


@pytest.mark.parametrize("name", [STATE_NAME, VOUCHER_NAME])
@pytest.mark.parametrize("how", ["missing", "empty", "flip"])
def test_a_voter_with_a_harmed_state_is_an_observer(name: str, how: str) -> None:
    net = QuorumNet(3)
    net.advance(50)
    net.kill(3)
    if name == VOUCHER_NAME and how == "flip":
        data = content(net.disks[3], f"{FOLDER}/{name}")
        put(net.disks[3], f"{FOLDER}/{name}", data[:30] + bytes([data[30] ^ 1]) + data[31:1060] + b"\1" + data[1061:])
    else:
        harmed(net, name, how)
    node = net.open(3)
    assert node.voter_failure is not None
    assert not node.is_voter
    net.advance(100)
    net.kill(2)
    net.append(b"a")
    net.advance(1_000)
    assert net.values(1) == [], "a voter that is not whole counted"
    assert node.log_end_offset == net.nodes[1].log_end_offset, "it follows as an observer"
    net.ask(3, vote(3, 2, 9))
    net.deliver()
    assert not granted(net)


@pytest.mark.parametrize("name", [STATE_NAME, VOUCHER_NAME])
def test_an_older_copy_of_the_state_is_noticed(name: str) -> None:
    net = alone()
    path = f"{FOLDER}/{name}"
    older = []
    for epoch in (5, 6, 7):
        older.append(content(net.disks[3], path))
        net.ask(3, vote(3, 1, epoch))
        net.deliver()
    for data in older:
        disk = net.disks[3].snapshot()
        put(disk, path, data)
        node = opened(net, disk)
        # The voucher has the newest state beside the checksum before it: the last copy is harmless.
        whole = node.voter_failure is None
        assert not whole or node.storage.read_state() == HardState(7, -1, ReplicaKey(1, directory_of(1)))
        assert not whole or data is older[-1]


def opened(net: QuorumNet, disk: SimDisk) -> RaftNode:
    """Open node 3 on another disk."""
    return RaftNode.open(
        disk,
        FOLDER,
        net.identities[3],
        net.config,
        net.clock,
        Random(1),
        endpoint=address_of_node(3),
        now_ns=net.now,
    )


def test_a_crash_at_any_call_leaves_a_whole_voter() -> None:
    """The voucher and the state are two files; no crash between their writes looks like damage."""
    identity = Identity(3, directory_of(3), CLUSTER)
    old, new = HardState(4, -1, ReplicaKey(1)), HardState(5, -1, ReplicaKey(2))
    for power in (False, True):
        for last in range(1, 30):
            disk = SimDisk(Random(last), clock=SimClock())
            disk.make_directory("n/d")
            file = StateFile.create(disk, "n/d", identity, was_voter=True)
            disk.sync_directory("n/d")
            disk.sync_directory("n")
            file.write(old)
            disk.fail(nth=last, times=None)
            done = False
            try:
                file.write(new)
                done = True
            except StorageError:
                pass
            disk.clear_faults()
            left = disk.crash(Random(last)) if power else disk.snapshot()
            again = StateFile.open(left, "n/d", identity)
            assert again.state in ((new,) if done else (old, new))
            for seed in range(5):  # the power fails after the opening that finished the change
                assert StateFile.open(left.crash(Random(seed)), "n/d", identity).state == again.state
            again.write(HardState(9))
            again.close()
            assert StateFile.open(left, "n/d", identity).state == HardState(9)
            for seed in range(5):
                assert StateFile.open(left.crash(Random(seed)), "n/d", identity).state == HardState(9)


def test_epoch_and_vote_are_one_change_of_the_files() -> None:
    """A vote in a new epoch needs two syncs, and one more of the folder if a change came before."""
    net = alone()
    for epoch, most in ((5, 2), (6, 3)):
        calls: list[Call] = []
        net.disks[3].observer = calls.append
        net.ask(3, vote(3, 1, epoch))
        net.deliver()
        net.disks[3].observer = None
        assert granted(net)
        assert len([call for call in calls if "sync" in call.kind]) <= most


def test_a_leader_alone_is_not_written() -> None:
    """The votes of its majority are durable, so no other candidate can win its epoch."""
    net = QuorumNet(3)
    net.advance(50)
    states = [node.storage.read_state() for node in net.nodes.values()]
    assert states == [HardState(1, -1, ReplicaKey(1, directory_of(1)))] * 3
    net.kill(3)
    net.open(3)
    net.ask(3, vote(3, 2, 1))
    net.deliver()
    assert not granted(net)


def test_a_log_below_its_synced_end_ends_the_voter() -> None:
    net = QuorumNet(3)
    net.advance(50)
    net.append(b"a")
    net.deliver()
    net.kill(3)
    data = content(net.disks[3], LOG)
    put(net.disks[3], LOG, data[:-10])
    node = net.open(3)
    assert node.voter_failure is not None
    assert node.role_name == "failed"
    net.advance(3_000)
    assert net.leaders == [1]


@pytest.mark.parametrize("position", [5, 70, 200, 300])
def test_a_flipped_bit_in_the_log_ends_the_voter(position: int) -> None:
    net = QuorumNet(3)
    net.advance(50)
    net.append(b"a" * 300)
    net.deliver()
    net.kill(3)
    net.disks[3].flip(LOG, position)
    assert net.open(3).voter_failure is not None


def test_a_missing_mark_ends_the_voter() -> None:
    net = QuorumNet(3)
    net.advance(50)
    net.kill(3)
    net.disks[3].remove(f"{FOLDER}/replog.mark")
    assert net.open(3).voter_failure is not None


def test_a_rolled_back_voter_is_told_by_its_leader() -> None:
    """A whole older copy of the folder: the leader remembers more than it has."""
    net = QuorumNet(3)
    net.advance(50)
    older = net.disks[3].snapshot()
    net.append(b"a")
    net.deliver()
    net.kill(3)
    net.disks[3] = older
    net.open(3)
    net.kill(2)
    net.advance(1_000)
    node = net.nodes[3]
    assert node.voter_failure is not None
    before = net.nodes[1].high_watermark
    net.append(b"b")
    net.advance(500)
    assert net.nodes[1].high_watermark == before
    net.kill(3)
    assert net.open(3).voter_failure is not None, "it is remembered"


def test_no_room_refuses_the_append_and_the_leader_stays() -> None:
    net = QuorumNet(3)
    net.advance(50)
    end = net.leader.log_end_offset
    disk = net.disks[1]
    disk.fail("write", "*.log", error=errno.ENOSPC, partial=7)
    with pytest.raises(StorageError):
        net.append(b"a")
    assert net.leaders == [1]
    assert net.leader.log_end_offset == end
    net.append(b"b")
    net.deliver()
    assert net.values(2) == [b"b"]


def test_a_follower_without_room_goes_on_when_there_is_room() -> None:
    net = QuorumNet(3)
    net.advance(50)
    fault = net.disks[3].fail("write", "*.log", error=errno.ENOSPC, times=None)
    net.append(b"a")
    net.advance(100)
    assert net.values(1) == [b"a"]
    net.advance(10_000)
    assert net.leaders == [1]
    assert fault is not None
    net.disks[3].clear_faults()
    net.advance(2_000)
    assert net.values(3) == [b"a"]


@pytest.mark.parametrize("node_id", [1, 3])
def test_a_failed_sync_ends_the_voter_until_it_is_opened_again(node_id: int) -> None:
    net = QuorumNet(3)
    net.advance(50)
    net.disks[node_id].fail("sync", "*.log", error=errno.EIO)
    if node_id == 1:
        with pytest.raises(StorageError):
            net.append(b"a")
    else:
        net.append(b"a")
    net.advance(50)
    node = net.nodes[node_id]
    assert node.role_name == "failed"
    assert [effect for effect in net.effects[node_id] if isinstance(effect, QuorumFailed)]
    net.step(node_id, Request("client", 1, vote(node_id, 2, 9)))
    assert not net.queue
    net.advance(3_000)
    assert len(net.leaders) == 1
    assert net.leaders != [node_id] if node_id == 1 else net.leaders == [1]
    node.close()
    net.kill(node_id)
    node = net.open(node_id)
    assert node.voter_failure is None
    net.advance(100)
    net.append(b"b")
    net.deliver()
    assert net.values(node_id)[-1] == b"b"


def test_an_epoch_that_could_not_begin_stands_in_no_ones_way() -> None:
    """The winner has no room for its first record, and the next leader's records are of an older epoch."""
    net = QuorumNet(3)
    net.advance(50)
    net.cut = {(address_of_node(1), address_of_node(3))}
    net.append(b"a")
    net.deliver()
    storage = net.nodes[3].storage
    net.disks[3].fail("write", "*.log", error=errno.ENOSPC)
    with pytest.raises(StorageError):
        storage.append_control([(b"\0\0\0\2", b"\0\0")], 5, 0)
    assert storage.last_epoch == 1
    net.cut.clear()
    net.advance(5_000)
    assert net.values(3) == [b"a"]


def test_a_winner_without_room_lets_another_lead() -> None:
    net = QuorumNet(3)
    net.disks[1].fail("write", "*.log", error=errno.ENOSPC, times=None)
    net.advance(2_500)
    assert net.leaders == [2]
    net.disks[1].clear_faults()
    net.append(b"a")
    net.advance(2_000)
    assert net.values(1) == [b"a"]
