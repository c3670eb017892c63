"""What one client's request meets that nobody had foreseen: that client hears of it, the node and everybody else go
on. In calm simulated clusters."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pyreplog.errors import InternalError
from pyreplog.log import Log
from pyreplog.testing import InvariantBroken, SimTransport, TopicOptions, World
from pyreplog.wire import (
    EARLIEST_TIMESTAMP,
    RESOURCE_TOPIC,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeTopicPartitionsRequest,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataRequestTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    PartitionProduceData,
    ProduceRequest,
    RequestBody,
    Response,
    TopicProduceData,
)
from tests.replication.sim.cluster import key_of, log_of, partition
from tests.unit.node.caller import Caller, batch, loose, node_of, produce, quiet

ALONE = TopicOptions("t", partitions=2, replication_factor=1, min_insync_replicas=1, durability="os")


class Odd(str):
    """The name of a topic that breaks whoever looks it up."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise RuntimeError("a bug")


ODD = Odd("odd")


def led(topic: TopicOptions = ALONE) -> tuple[World, Caller, int]:
    """A quiet cluster that forgives failed requests, and who leads partition 0."""
    world, caller = quiet(topic)
    loose(world, "S11", "S21")
    return world, caller, partition(world).leader


def codes(found: Any) -> list[tuple[int, str]]:
    """Every error number in an answer, and the text beside it."""
    if isinstance(found, (list, tuple)):
        return [code for one in found for code in codes(one)]
    fields = [
        getattr(found, name)
        for name in ("topics", "responses", "results", "partitions", "partition_responses")
        if hasattr(found, name)
    ]
    inner = [code for one in fields for code in codes(one)]
    return inner or [(found.error_code, getattr(found, "error_message", None) or "")]


def fetch(topic_id: str, *others: str, max_wait_ms: int = 0) -> FetchRequest:
    """From the start of partition 0 of each topic."""
    return FetchRequest(max_wait_ms, 1, [FetchTopic(one, [FetchPartition(0, -1, 0)]) for one in (topic_id, *others)])


def list_offsets(name: str, timestamp: int) -> ListOffsetsRequest:
    """Of partition 0."""
    return ListOffsetsRequest([ListOffsetsTopic(name, [ListOffsetsPartition(0, timestamp)])])


def epoch_end(name: str) -> OffsetForLeaderEpochRequest:
    """Of partition 0, epoch 0."""
    return OffsetForLeaderEpochRequest([OffsetForLeaderTopic(name, [OffsetForLeaderPartition(0, 0)])])


def requests(topic_id: str) -> dict[str, RequestBody]:
    """One of each kind, about a topic that breaks the tables, and where there is room for it about one that does
    not."""
    return {
        "produce": ProduceRequest(
            -1, 1000, [TopicProduceData(one, [PartitionProduceData(0, batch(b"never"))]) for one in (topic_id, ODD)]
        ),
        "fetch": fetch(topic_id, ODD, max_wait_ms=1000),
        "list offsets": list_offsets(ODD, EARLIEST_TIMESTAMP),
        "end of an epoch": epoch_end(ODD),
        "delete records": DeleteRecordsRequest([DeleteRecordsTopic(ODD, [DeleteRecordsPartition(0, 1)])], 1000),
        "metadata": MetadataRequest([MetadataRequestTopic(ODD)]),
        "topics": DescribeTopicPartitionsRequest([ODD]),
        "settings": DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_TOPIC, ODD)]),
    }


@pytest.mark.parametrize("kind", requests(""))
def test_a_request_that_breaks_is_answered_and_nothing_else_ends(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Looked up, it raises. Its parts all say UNKNOWN_SERVER_ERROR, nothing of it is done or waits, the log has the
    traceback, and the next request is served."""
    world, caller, leader = led()
    topic_id = key_of(world)[0]
    node = node_of(world, leader)
    body = requests(topic_id)[kind]
    with caplog.at_level(logging.ERROR, "pyreplog"):
        answer = caller.ask(leader, body, within_ms=500)
    found = codes(answer)
    assert [code for code, _ in found] == [ErrorCode.UNKNOWN_SERVER_ERROR] * len(found)
    if kind in ("produce", "settings"):
        assert all("RuntimeError: 'a bug'" in text for _, text in found)
    assert len(found) == (2 if kind in ("produce", "fetch") else 1)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "RuntimeError: a bug" in (record.exc_text or "")
    assert type(body).__name__ in record.getMessage()
    assert len(node.failed_requests) == 1
    assert not node._effects.assemblers
    world.run_for(50)
    assert log_of(world, leader).end_offset == 0
    assert codes(caller.ask(leader, produce(topic_id, 0))) == [(0, "")]
    world.run_for(1500)
    caller.take()
    assert not caller.answers, "one answer each"
    assert node_of(world, leader) is node


@pytest.mark.parametrize("kind", ["read", "find", "epochs"])
def test_a_question_that_breaks_in_the_replica(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that only reads changes nothing: it, too, goes on."""
    world, caller, leader = led()
    topic_id = key_of(world)[0]
    caller.ask(leader, produce(topic_id, 0))
    bodies: dict[str, RequestBody] = {"read": fetch(topic_id), "find": list_offsets("t", 0), "epochs": epoch_end("t")}
    assert codes(caller.ask(leader, bodies[kind])) == [(0, "")]
    with monkeypatch.context() as patch:
        log = log_of(world, leader)
        where: Any = type(log.epochs) if kind == "epochs" else Log
        name = {"read": "read", "find": "find_timestamp", "epochs": "end_offset_for"}[kind]

        def broken(*arguments: object) -> None:
            raise KeyError("a bug")

        patch.setattr(where, name, broken)
        found = codes(caller.ask(leader, bodies[kind], within_ms=500))
    assert found == [(ErrorCode.UNKNOWN_SERVER_ERROR, "")]
    assert codes(caller.ask(leader, bodies[kind])) == [(0, "")]
    assert codes(caller.ask(leader, produce(topic_id, 0))) == [(0, "")]


def test_a_fetch_of_several_that_breaks_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited, and is asked again when one of its partitions has something: what that meets is the fetch's, not
    the append's."""
    options = TopicOptions("t", partitions=4, replication_factor=1, min_insync_replicas=1, durability="os")
    world, caller, _ = led(options)
    topic_id = key_of(world)[0]
    by_leader: dict[int, list[int]] = {}
    for number, one in world.image.topics[topic_id].partitions.items():
        by_leader.setdefault(one.leader, []).append(number)
    leader, (first, second) = next((leader, mine) for leader, mine in by_leader.items() if len(mine) == 2)
    parts = [FetchPartition(one, -1, 0) for one in (first, second)]
    for consumer in world.consumers:
        world.leave(consumer.address)
    world.run_for(2000)  # no fetch of theirs waits any more
    number = caller.send(leader, FetchRequest(2000, 1 << 20, [FetchTopic(topic_id, parts)]))
    world.run_for(50)
    read, calls = Log.read, 0

    def reading(self: Log, offset: int, size_max: int, end_offset: int, **how: bool) -> Any:
        nonlocal calls
        calls += self.topic_partition.topic == "t"  # the metadata are a log, too
        if (
            calls == 2 and self.topic_partition.topic == "t"
        ):  # the first is for the answer that says there is too little
            raise KeyError("a bug")
        return read(self, offset, size_max, end_offset, **how)

    monkeypatch.setattr(Log, "read", reading)
    assert codes(caller.ask(leader, produce(topic_id, first))) == [(0, "")]
    world.run_for(20)
    caller.take()
    assert codes(caller.answers[number]) == [(ErrorCode.UNKNOWN_SERVER_ERROR, "")]
    node = node_of(world, leader)
    assert not node._effects.assemblers
    waiting = [source for hosted in node.hosted.values() for source, _ in hosted.replica.role.consumer_fetches.waiting]  # type: ignore[attr-defined]
    assert "caller" not in waiting
    assert calls >= 2
    assert len(node.failed_requests) == 1


@pytest.mark.parametrize("together", [False, True])
def test_a_batch_that_cannot_be_looked_at(together: bool, caplog: pytest.LogCaptureFixture) -> None:
    """It is no buffer at all. Nothing was written for it, so it alone is refused, also where others came in the
    same turn."""
    world, caller, leader = led()
    topic_id = key_of(world)[0]
    node = node_of(world, leader)
    odd = ProduceRequest(-1, 1000, [TopicProduceData(topic_id, [PartitionProduceData(0, None)])])  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR, "pyreplog"):
        before = caller.send(leader, produce(topic_id, 0)) if together else None
        number = caller.send(leader, odd)
        after = caller.send(leader, produce(topic_id, 0))
        world.run_for(500)
    caller.take()
    ((code, text),) = codes(caller.answers[number])
    assert code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "TypeError" in text
    assert "nothing was appended" in text
    assert [codes(caller.answers[one]) for one in (before, after) if one is not None] == [[(0, "")]] * (1 + together)
    assert log_of(world, leader).end_offset == 2 * (1 + together)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert node_of(world, leader) is node
    assert len(node.failed_requests) == 1


def test_an_answer_that_cannot_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The append is done, and stays: its client hears that nobody can say. What else the replica asked for is
    carried out."""
    send = SimTransport.send
    broken = False

    def sending(self: SimTransport, peer: str, message: object) -> bool:
        nonlocal broken
        if broken and isinstance(message, Response) and peer == "caller":
            broken = False
            raise ValueError("a bug")
        return send(self, peer, message)

    monkeypatch.setattr(SimTransport, "send", sending)
    world, caller, leader = led(TopicOptions("t"))
    topic_id = key_of(world)[0]
    node = node_of(world, leader)
    broken = True
    ((code, text),) = codes(caller.ask(leader, produce(topic_id, 0)))
    assert code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ValueError: 'a bug'" in text
    assert not broken
    assert codes(caller.ask(leader, produce(topic_id, 0))) == [(0, "")]
    world.run_for(100)
    assert [log_of(world, one).high_watermark for one in world.node_ids] == [4, 4, 4]
    broken = True
    assert codes(caller.ask(leader, fetch(topic_id))) == [(ErrorCode.UNKNOWN_SERVER_ERROR, "")]
    broken = True
    deletion = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 1)])], 1000)
    assert codes(caller.ask(leader, deletion)) == [(ErrorCode.UNKNOWN_SERVER_ERROR, "")]
    assert codes(caller.ask(leader, deletion)) == [(0, "")]
    assert node_of(world, leader) is node
    assert len(node.failed_requests) == 3


def test_a_replica_that_breaks_half_way_ends_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is in the log, and what belongs to it is not done: nobody knows what this node's memory is worth,
    its files are."""
    world, caller, leader = led()

    def broken(self: Log) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Log, "write_mark", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        caller.ask(leader, produce(key_of(world)[0], 0))


def test_a_broken_invariant_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only a reader meets it."""
    world, caller, leader = led()
    caller.ask(leader, produce(key_of(world)[0], 0))

    def broken(*arguments: object) -> None:
        raise InternalError("an invariant")

    monkeypatch.setattr(Log, "find_timestamp", broken)
    with pytest.raises(InternalError, match="an invariant"):
        caller.ask(leader, list_offsets("t", 0))


def test_a_simulation_fails_where_a_request_did() -> None:
    """What a node survives is a bug all the same."""
    world, caller = quiet(ALONE)
    leader = partition(world).leader
    odd = ProduceRequest(-1, 1000, [TopicProduceData(key_of(world)[0], [PartitionProduceData(0, None)])])  # type: ignore[arg-type]
    with pytest.raises(InvariantBroken, match="S11"):
        caller.ask(leader, odd)
