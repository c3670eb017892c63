"""The authority: durable before it answers, whole after any crash, and telling the nodes by records at offsets."""

from __future__ import annotations

import errno
from random import Random

import pytest

from pyreplog._core import crc32c
from pyreplog.config import NodeConfig
from pyreplog.controller import (
    FEATURE,
    LEVEL_LATEST,
    STATE_FILE,
    ImageRecords,
    LocalController,
    MetadataImage,
    decode,
    encode,
    load,
)
from pyreplog.errors import ClosedError, CorruptError, StorageError
from pyreplog.testing import SimDisk
from pyreplog.wire import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerHeartbeatRequest,
    BrokerState,
    CreatableTopic,
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeClusterResponse,
    ErrorCode,
    FeatureLevelRecord,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    Request,
)
from tests.unit.controller.controller_harness import MS, ControllerHarness


def same(one: MetadataImage, other: MetadataImage) -> bool:
    """Whether two images say the same."""
    return [(one.brokers, one.records())] == [(other.brokers, other.records())]


def test_state_comes_back() -> None:
    """What was answered is there after a power loss; brokers are fenced and partitions leaderless, with higher
    epochs."""
    for seed in range(30):
        harness = ControllerHarness()
        harness.join(1, 2, 3)
        assert harness.create("a") == 0
        before = harness.authority.image
        again = ControllerHarness(harness.disk.crash(Random(seed)))
        after = again.authority.image
        assert again.authority.cluster_id == harness.authority.cluster_id
        assert list(after.topic_ids) == ["a"]
        for number, partition in after.topics[after.topic_ids["a"]].partitions.items():
            old = before.topics[before.topic_ids["a"]].partitions[number]
            assert (partition.leader, partition.isr, partition.leader_epoch) == (-1, old.isr, old.leader_epoch + 1)
        assert all(broker.fenced for broker in after.brokers.values())
        assert again.create("a") == ErrorCode.TOPIC_ALREADY_EXISTS, "F57: exactly one topic"


def test_a_proposal_is_newer_though_its_sender_numbers_from_0_again() -> None:
    """Nodes number requests in 31 bits, and one that runs for long comes to the last: what follows is decided, what
    was doubled is not."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    assert harness.create("a") == 0
    authority = harness.authority
    topic_id = authority.image.topic_ids["a"]
    key = (topic_id, 0)

    def propose(number: int, *members: int) -> bool:
        partition = authority.image.partition(key)
        assert partition is not None
        states = [BrokerState(member, authority.image.brokers[member].epoch) for member in members]
        data = AlterPartitionData(0, partition.leader_epoch, states, partition.partition_epoch)
        sender = partition.leader
        body = AlterPartitionRequest(
            sender, authority.image.brokers[sender].epoch, [AlterPartitionTopic(topic_id, [data])]
        )
        authority.step([Request(f"node-{sender}", number, body)], harness.clock.monotonic_ns())
        partition = authority.image.partition(key)
        assert partition is not None
        return sorted(partition.isr) == sorted(members)

    partition = authority.image.partition(key)
    assert partition is not None
    first, second, third = (partition.leader, *(one for one in partition.replicas if one != partition.leader))
    assert propose(0x7FFFFFFE, first, second)
    assert propose(3, first, second, third)
    assert propose(4, first, second)
    assert not propose(0x7FFFFFFF, first, second, third), "sent before those"
    assert not propose(4, first, second, third)


def test_every_crash_point_leaves_a_whole_state() -> None:
    """Power lost after any number of operations on the disk leaves the state before or after, never none and never
    a mixture."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    for count in range(200):
        disk = harness.disk.snapshot()
        trial = ControllerHarness(disk)
        trial.join(1, 2, 3)
        disk.fail(nth=count + 1, times=None)
        try:
            trial.create("a")
            done = True
        except (StorageError, ClosedError):
            done = False
        state = load(disk.crash(Random(count)), "data")
        assert state is not None
        if done:
            assert "a" in state.image.topic_ids
            break
    else:
        pytest.fail("the workload never ended")


def test_nothing_is_answered_before_it_is_durable() -> None:
    """A failed sync or rename ends the authority instead of answering."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    harness.disk.fail("sync")
    with pytest.raises(StorageError):
        harness.create("a")
    harness.disk.clear_faults()
    with pytest.raises(ClosedError):
        harness.create("a")
    again = ControllerHarness(harness.disk.crash(Random(1)))
    assert not again.authority.image.topic_ids


def test_the_name_of_its_folder_is_durable_before_it_answers() -> None:
    """Also where whoever made the folder was killed before that."""
    disk = SimDisk(Random(1))
    disk.make_directory("top")
    disk.sync_directory("")
    killed: list[SimDisk] = []
    disk.observer = lambda call: killed.append(disk.snapshot(call)) if call.kind == "sync_directory" else None
    LocalController.open(disk, "top/data", NodeConfig(), Random(1), now_ns=0)
    left = killed[0]
    assert left.list("top") == ["data"]
    LocalController.open(left, "top/data", NodeConfig(), Random(2), now_ns=0)
    for seed in range(50):
        assert load(left.crash(Random(seed)), "top/data") is not None


def test_a_folder_whose_name_could_not_be_made_durable_is_not_there() -> None:
    """A second sync would be believed: the folder is taken back, and made anew at the next try."""
    for seed in range(8):
        disk = SimDisk(Random(seed))
        disk.make_directory("top")
        disk.sync_directory("")
        disk.fail("sync_directory", "top")
        with pytest.raises(StorageError):
            LocalController.open(disk, "top/data", NodeConfig(), Random(1), now_ns=0)
        LocalController.open(disk, "top/data", NodeConfig(), Random(2), now_ns=0)
        assert load(disk.crash(Random(seed)), "top/data") is not None


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_sync_that_fails_for_lack_of_room_is_no_refusal(error: int) -> None:
    """The state is in its place by then: a kill would bring about what was refused."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    harness.disk.fail("sync_directory", "data", error=error)
    with pytest.raises(StorageError):
        harness.create("a")
    with pytest.raises(ClosedError):
        harness.create("b")
    assert ControllerHarness(harness.disk.snapshot()).authority.image.topic_ids.keys() == {"a"}


def test_an_election_that_cannot_be_written_down_did_not_happen() -> None:
    """Whoever asked for it is told, and it can be asked for again."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    harness.create("a")
    topic = harness.authority.image.topics[harness.authority.image.topic_ids["a"]]
    for broker in topic.partitions[0].replicas:
        harness.authority.fence(broker, harness.clock.monotonic_ns())
    harness.join(topic.partitions[0].replicas[1])
    harness.disk.fail("write", times=None, error=errno.ENOSPC)
    before = harness.authority.image.offset
    with pytest.raises(StorageError, match="No space"):
        harness.authority.elect_uncleanly("a", 0, harness.clock.monotonic_ns())
    harness.disk.clear_faults()
    assert harness.authority.image.offset == before
    done, _ = harness.authority.elect_uncleanly("a", 0, harness.clock.monotonic_ns())
    assert done is not None


def test_a_full_disk_refuses_and_changes_nothing() -> None:
    """ENOSPC refuses what was asked; when there is room again everything works."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    before = harness.authority.image.offset
    harness.disk.fail("write", times=None, error=errno.ENOSPC)
    assert harness.create("a") == ErrorCode.KAFKA_STORAGE_ERROR
    assert (harness.authority.image.offset, dict(harness.authority.image.topic_ids)) == (before, {})
    harness.disk.clear_faults()
    assert harness.create("a") == 0


def test_state_file_cut_or_flipped_anywhere_is_reported() -> None:
    """The state file cut at every byte, with a tail, and with every bit flipped is a CorruptError that names it:
    never an empty state."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    harness.create("a")
    path = f"data/{STATE_FILE}"
    file = harness.disk.open(path)
    data = bytes(file.read_at(0, file.size()))
    whole = decode(data, path)
    assert encode(whole) == data
    for cut in range(len(data)):
        with pytest.raises(CorruptError, match=path):
            decode(data[:cut], path)
    with pytest.raises(CorruptError):
        decode(data + b"\n", path)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(CorruptError, match=path):
                decode(bytes(flipped), path)
    for line in (b"[" * 100_000, b"[]", b"1", b'{"offset":1}', b"\xff"):
        with pytest.raises(CorruptError, match=path):
            decode(b"pyreplog-controller 1 %08x\n%s\n" % (crc32c(line), line), path)
    harness.disk.flip(path, len(data) // 2)
    with pytest.raises(CorruptError, match=path):
        ControllerHarness(harness.disk)


def test_records_and_images() -> None:
    """A node gets the records it lacks, waits where it lacks none, and gets the whole image when it is too far
    behind; either way its image equals the authority's."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    harness.create("a")
    authority = harness.authority
    follower = MetadataImage()
    follower.apply(0, FeatureLevelRecord(FEATURE, LEVEL_LATEST))
    data = harness.news(1)
    assert data is not None
    assert data.snapshot_id is None
    assert isinstance(data.records, list)
    for offset, record in data.records:
        follower.apply(offset, record)
    assert same(follower, authority.image)
    assert harness.news(follower.offset + 1) is None
    replies = authority.step(
        [Request("client", 999, CreateTopicsRequest([CreatableTopic("b")]))], harness.clock.monotonic_ns()
    )
    assert [reply.peer for reply in replies] == ["client", "node-1"]

    again = ControllerHarness(harness.disk)
    for offset in (0, 10_000):
        data = again.news(offset)
        assert data is not None
        assert data.snapshot_id is not None
        fresh = MetadataImage()
        assert isinstance(data.records, ImageRecords)
        for at, record in data.records:
            fresh.apply(at, record)
        fresh.offset = data.snapshot_id.end_offset - 1
        assert same(fresh, again.authority.image)
        assert fresh.offset == again.authority.image.offset


def test_a_parked_fetch_ends_after_its_wait() -> None:
    """With nothing new the answer is empty, and comes when the wait is over."""
    harness = ControllerHarness()
    end = harness.authority.image.offset + 1
    assert harness.news(end, wait_ms=300) is None
    due = harness.authority.next_wake_ns
    assert due == harness.clock.monotonic_ns() + 300 * MS
    harness.clock.advance(300 * MS)
    (reply,) = harness.authority.step([], harness.clock.monotonic_ns())
    assert isinstance(reply.body, FetchResponse)
    assert reply.body.responses[0].partitions[0].records == []


def test_a_stall_fences_nobody() -> None:
    """Where the process stood still for a minute, nobody was silent."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    harness.create("a")
    harness.clock.advance(60_000 * MS)
    harness.authority.step([], harness.clock.monotonic_ns())
    answer = harness.ask(DescribeClusterRequest())
    assert isinstance(answer, DescribeClusterResponse)
    assert [broker.is_fenced for broker in answer.brokers] == [False, False, False]
    harness.clock.advance(3_001 * MS)
    for _ in range(40):
        harness.clock.advance(100 * MS)
        harness.authority.step([], harness.clock.monotonic_ns())
    answer = harness.ask(DescribeClusterRequest())
    assert isinstance(answer, DescribeClusterResponse)
    assert [broker.is_fenced for broker in answer.brokers] == [True, True, True]


def test_foreign_requests_get_no_answer() -> None:
    """A fetch of anything but the metadata is not for the controller."""
    harness = ControllerHarness()
    assert harness.ask(FetchRequest(0, 1, [FetchTopic("other", [FetchPartition(0, -1, 0)])])) is None


def test_a_proposal_that_arrives_twice_is_decided_once() -> None:
    """A leader whose proposal was refused goes on without the member it proposed: the same request, arriving again
    when that member could be accepted, must not put it into the in-sync set behind the leader's back."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    harness.create("t")
    image = harness.authority.image
    key = (image.topic_ids["t"], 0)
    partition = image.partition(key)
    assert partition is not None
    leader = partition.leader
    (late, *_) = [one for one in partition.replicas if one != leader]
    epochs = {one.broker_id: one.epoch for one in image.brokers.values()}
    harness.ask(BrokerHeartbeatRequest(late, epochs[late], image.offset, want_fence=True))
    partition = image.partition(key)
    assert partition is not None
    assert late not in partition.isr
    members = [BrokerState(one, epochs[one]) for one in partition.replicas]
    proposal = AlterPartitionData(0, partition.leader_epoch, members, partition.partition_epoch)
    body = AlterPartitionRequest(leader, epochs[leader], [AlterPartitionTopic(key[0], [proposal])])
    answer = harness.ask(body, "leader")
    assert isinstance(answer, AlterPartitionResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
    twice = Request("leader", harness.number, body)
    harness.ask(BrokerHeartbeatRequest(late, epochs[late], image.offset))
    harness.authority.step([twice], harness.clock.monotonic_ns())
    partition = image.partition(key)
    assert partition is not None
    assert late not in partition.isr
    harness.ask(body, "leader")
    partition = image.partition(key)
    assert partition is not None
    assert late in partition.isr, "asked anew it is accepted"
