"""A controller that is the only voter: durable before it answers, whole after any crash, and telling the nodes by
records at offsets."""

from __future__ import annotations

import errno
from random import Random

import pytest

from pyreplog.controller import (
    ImageRecords,
    MetadataImage,
)
from pyreplog.wire import (
    ELECT_UNCLEAN,
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
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    Request,
    encode_record,
)
from tests.unit.controller.controller_harness import MS, ControllerHarness


def same(one: MetadataImage, other: MetadataImage) -> bool:
    """Whether two images say the same."""
    return [(one.brokers, one.records())] == [(other.brokers, other.records())]


def test_state_comes_back() -> None:
    """What was answered is there after a power loss. The brokers ended with it: they are fenced, and the partitions
    leaderless, with higher epochs."""
    for seed in range(10):
        harness = ControllerHarness()
        harness.join(1, 2, 3)
        assert harness.create("a") == 0
        before = harness.image
        again = ControllerHarness(harness.disk.crash(Random(seed)))
        after = again.image
        assert list(after.topic_ids) == ["a"]
        for number, partition in after.topics[after.topic_ids["a"]].partitions.items():
            old = before.topics[before.topic_ids["a"]].partitions[number]
            assert (partition.leader, partition.isr, partition.leader_epoch) == (-1, old.isr, old.leader_epoch + 1)
        assert all(broker.fenced for broker in after.brokers.values())
        assert again.create("a") == ErrorCode.TOPIC_ALREADY_EXISTS, "F57: exactly one topic"


def test_every_crash_point_leaves_a_whole_state() -> None:
    """Power lost after any number of operations on the disk leaves the topic as a whole, or nothing of it. An answer
    is never undone."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    for count in range(200):
        disk = harness.disk.snapshot()
        trial = ControllerHarness(disk)
        trial.join(1, 2, 3)
        disk.fail(nth=count + 1, times=None)
        answered = trial.create("a") == 0
        found = ControllerHarness(disk.crash(Random(count))).image
        assert [len(topic.partitions) for topic in found.topics.values()] in ([], [2])
        if answered:
            assert "a" in found.topic_ids
            break
        assert trial.server.failure is not None
    else:
        pytest.fail("the workload never ended")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_sync_that_fails_is_no_refusal(error: int) -> None:
    """Not even for lack of room: the records are in the file, and may be found there. So the controller ends, and says
    neither that the topic exists nor that it does not."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    harness.disk.fail("sync", error=error)
    assert harness.create("a") == ErrorCode.NOT_CONTROLLER
    assert harness.server.failure is not None
    assert harness.create("b") == ErrorCode.NOT_CONTROLLER
    assert "b" not in ControllerHarness(harness.disk.snapshot()).image.topic_ids


def test_an_election_that_cannot_be_written_down_did_not_happen() -> None:
    """Whoever asked for it is told, and it can be asked for again."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    harness.create("a")
    topic = harness.image.topics[harness.image.topic_ids["a"]]
    replicas = topic.partitions[0].replicas
    for broker in replicas:
        harness.gone(broker)
    harness.join(replicas[1])
    question = ElectLeadersRequest(ELECT_UNCLEAN, [ElectLeadersTopic("a", [0])])

    def elect() -> int:
        answer, number = harness.ask(question, "person"), harness.number
        for _ in range(20):  # it waits for the reports of the live replicas
            if isinstance(answer, ElectLeadersResponse):
                return answer.error_code or answer.replica_election_results[0].partition_result[0].error_code
            harness.pass_time(100, replicas[1])
            answer = harness.answers("person").get(number)
        raise AssertionError("no answer")

    harness.disk.fail("write", times=None, error=errno.ENOSPC)
    before = harness.image.offset
    assert elect() == ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.image.offset == before
    harness.disk.clear_faults()
    assert elect() == 0


def test_records_and_images() -> None:
    """A node gets the records it lacks, waits where it lacks none, and gets the whole image when it is too far
    behind; either way its image equals the controller's."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    harness.create("a")
    follower = MetadataImage()
    data = harness.news(0)
    assert data is not None
    assert data.snapshot_id is None
    assert isinstance(data.records, list)
    for offset, record in data.records:
        follower.apply(offset, record)
    assert same(follower, harness.image)
    assert harness.news(follower.offset + 1) is None
    harness.post(Request("client", 999, CreateTopicsRequest([CreatableTopic("b")])))
    assert list(harness.answers("client")) == [999]
    assert len(harness.answers("node-1")) == 1
    server = harness.server
    server.raft.write_snapshot(server.image.offset + 1, [encode_record(one) for one in server.image.records()])
    again = ControllerHarness(harness.disk)
    data = again.news(0)
    assert data is not None
    assert data.snapshot_id is not None
    fresh = MetadataImage()
    assert isinstance(data.records, ImageRecords)
    for at, record in data.records:
        fresh.apply(at, record)
    fresh.offset = data.snapshot_id.end_offset - 1
    assert same(fresh, again.image)
    assert fresh.offset == again.image.offset


def test_a_proposal_is_newer_though_its_sender_numbers_from_0_again() -> None:
    """Nodes number requests in 31 bits, and one that runs for long comes to the last: what follows is decided, what
    was doubled is not."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    assert harness.create("a") == 0
    topic_id = harness.image.topic_ids["a"]
    key = (topic_id, 0)

    def propose(number: int, *members: int) -> bool:
        partition = harness.image.partition(key)
        assert partition is not None
        states = [BrokerState(member, harness.image.brokers[member].epoch) for member in members]
        data = AlterPartitionData(0, partition.leader_epoch, states, partition.partition_epoch)
        sender = partition.leader
        body = AlterPartitionRequest(
            sender, harness.image.brokers[sender].epoch, [AlterPartitionTopic(topic_id, [data])]
        )
        harness.post(Request(f"node-{sender}", number, body))
        partition = harness.image.partition(key)
        assert partition is not None
        return sorted(partition.isr) == sorted(members)

    partition = harness.image.partition(key)
    assert partition is not None
    first, second, third = (partition.leader, *(one for one in partition.replicas if one != partition.leader))
    assert propose(0x7FFFFFFE, first, second)
    assert propose(3, first, second, third)
    assert propose(4, first, second)
    assert not propose(0x7FFFFFFF, first, second, third), "sent before those"
    assert not propose(4, first, second, third)


def test_a_full_disk_refuses_and_changes_nothing() -> None:
    """ENOSPC refuses what was asked; when there is room again everything works."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    before = harness.image.offset
    harness.disk.fail("write", times=None, error=errno.ENOSPC)
    assert harness.create("a") == ErrorCode.KAFKA_STORAGE_ERROR
    assert (harness.image.offset, dict(harness.image.topic_ids)) == (before, {})
    harness.disk.clear_faults()
    assert harness.create("a") == 0


def test_a_parked_fetch_ends_after_its_wait() -> None:
    """With nothing new the answer is empty, and comes when the wait is over."""
    harness = ControllerHarness()
    end = harness.image.offset + 1
    assert harness.news(end, wait_ms=300) is None
    due = harness.server.next_wake_ns
    assert due is not None
    assert due <= harness.clock.monotonic_ns() + 300 * MS
    harness.clock.advance(300 * MS)
    harness.turn()
    (answer,) = harness.answers("node-1").values()
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].records == []


def test_a_stall_fences_nobody() -> None:
    """Where the process stood still for a minute, nobody was silent."""
    harness = ControllerHarness()
    harness.join(1, 2, 3)
    harness.create("a")
    harness.clock.advance(60_000 * MS)
    harness.turn()
    answer = harness.ask(DescribeClusterRequest())
    assert isinstance(answer, DescribeClusterResponse)
    assert [broker.is_fenced for broker in answer.brokers] == [False, False, False]
    harness.clock.advance(3_001 * MS)
    for _ in range(40):
        harness.clock.advance(100 * MS)
        harness.turn()
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
    image = harness.image
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
    harness.post(twice)
    partition = image.partition(key)
    assert partition is not None
    assert late not in partition.isr
    harness.ask(body, "leader")
    partition = image.partition(key)
    assert partition is not None
    assert late in partition.isr, "asked anew it is accepted"
