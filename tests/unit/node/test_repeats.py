"""Requests that the network doubles: the first copy is carried out, the second is nothing. In calm simulated
clusters."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from pyreplog.client import Producer
from pyreplog.client.calls import RequestTracker
from pyreplog.ports import Received
from pyreplog.record import BatchBuilder
from pyreplog.system import LocalNetwork
from pyreplog.testing import SimClock, TopicOptions, World
from pyreplog.wire import (
    ELECT_UNCLEAN,
    REMEMBERED_MIN,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ElectLeadersTopic,
    ErrorCode,
    MetadataRequest,
    PartitionProduceData,
    ProduceRequest,
    Repeats,
    Request,
    RequestBody,
    TopicProduceData,
)
from tests.replication.sim.cluster import key_of
from tests.unit.node.caller import Caller, loose, produce, quiet

ALONE = TopicOptions("t", partitions=2, replication_factor=1, min_insync_replicas=1, durability="os")


def ends(world: World) -> list[int]:
    """Where each partition's log ends."""
    logs = [world.log_of(1, (key_of(world)[0], number)) for number in (0, 1)]
    return [-1 if log is None else log.end_offset for log in logs]


def send(caller: Caller, number: int, body: RequestBody) -> None:
    """A copy of request ``number``, and time for it to arrive."""
    caller.transport.send("node-1", Request("caller", number, body))
    caller.world.run_for(20)
    caller.take()


def numbered(topic_id: str, sequence: int) -> ProduceRequest:
    """One record of an idempotent producer."""
    builder = BatchBuilder()
    builder.append(b"%d" % sequence, None, (), 1000)
    data = bytearray(builder.finish(producer_id=7, producer_epoch=0, base_sequence=sequence))
    return ProduceRequest(-1, 2000, [TopicProduceData(topic_id, [PartitionProduceData(0, data)])])


@pytest.mark.parametrize("acks", [-1, 1, 0])
@pytest.mark.parametrize("partitions", [(0,), (0, 1)])
def test_an_append_that_arrives_twice_is_done_once(partitions: tuple[int, ...], acks: int) -> None:
    """Of a producer without numbers, too, whatever it wants to hear, and although it is gone when the second copy
    comes."""
    world, caller = quiet(ALONE, nodes=1)
    topic_id = key_of(world)[0]
    done = [2 if number in partitions else 0 for number in (0, 1)]
    for _ in range(2):
        send(caller, 1, produce(topic_id, *partitions, acks=acks))
    assert ends(world) == done
    assert len(caller.answers) == (acks != 0)

    caller.transport.close()
    world.run_for(20)
    caller.transport = world.network.endpoint("caller")
    send(caller, 1, produce(topic_id, *partitions, acks=acks))
    assert ends(world) == done
    send(caller, 2, produce(topic_id, *partitions, acks=acks))
    assert ends(world) == [2 * end for end in done]


def test_a_deletion_that_arrives_twice_is_done_once() -> None:
    """-1 is the high watermark of that moment: what was appended since the first copy stays. The answer is one,
    about all partitions."""
    world, caller = quiet(ALONE, nodes=1)
    loose(world, "S21")  # it knows the deletions of the world's own clients
    topic_id = key_of(world)[0]
    send(caller, 1, produce(topic_id, 0, 1))
    parts = [DeleteRecordsPartition(0, -1), DeleteRecordsPartition(1, 1)]
    body = DeleteRecordsRequest([DeleteRecordsTopic("t", parts)], 1000)
    send(caller, 2, body)
    send(caller, 3, produce(topic_id, 0, 1))
    send(caller, 2, body)
    logs = [world.log_of(1, (topic_id, number)) for number in (0, 1)]
    assert [(log.start_offset, log.end_offset) for log in logs if log is not None] == [(2, 4), (1, 4)]
    found = [(one.partition_index, one.low_watermark, one.error_code) for one in caller.answers[2].topics[0].partitions]
    assert found == [(0, 2, 0), (1, 1, 0)]


def test_what_the_controller_decided_stays() -> None:
    """A topic that was made, or taken away, twice, with the other in between; an election that was asked for twice
    has one answer."""
    world, caller = quiet(ALONE, nodes=1)

    def ask(number: int, body: RequestBody) -> None:
        caller.transport.send(world.controller_address(world.active_node), Request("caller", number, body))
        world.run_for(20)
        caller.take()

    create = CreateTopicsRequest([CreatableTopic("u", 1, 1)], 1000)
    delete = DeleteTopicsRequest([DeleteTopicState("u")], 1000)
    ask(1, create)
    ask(2, delete)
    ask(1, create)
    assert "u" not in world.image.topic_ids
    ask(3, create)
    ask(2, delete)
    assert "u" in world.image.topic_ids
    assert caller.answers[1].topics[0].error_code == caller.answers[3].topics[0].error_code == 0
    ask(4, ElectLeadersRequest(ELECT_UNCLEAN, [ElectLeadersTopic("t", [0])]))
    ask(4, ElectLeadersRequest(ELECT_UNCLEAN, [ElectLeadersTopic("t", [0])]))
    answers = 0
    for _ in range(50):
        world.run_for(100)
        caller.take()
        answers += caller.answers.pop(4, None) is not None
    assert answers == 1


def test_what_was_refused_is_not_appended_after_all() -> None:
    """The first copy came too early and was refused; when the second comes, what was missing is there."""
    world, caller = quiet(ALONE, nodes=1)
    topic_id = key_of(world)[0]
    send(caller, 1, numbered(topic_id, 0))
    send(caller, 3, numbered(topic_id, 2))
    send(caller, 2, numbered(topic_id, 1))
    send(caller, 3, numbered(topic_id, 2))
    codes = {number: answer.responses[0].partition_responses[0].error_code for number, answer in caller.answers.items()}
    assert codes == {1: 0, 2: 0, 3: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert ends(world)[0] == 2
    send(caller, 4, numbered(topic_id, 2))
    assert ends(world)[0] == 3, "sent again, it is another request"


def test_who_comes_after_a_client_is_heard() -> None:
    """A client that is gone without a word, as one that is killed, and another at its address: its first appends
    are no repeats."""
    world, _ = quiet(ALONE, nodes=1)
    for number in range(3):
        transport = world.network.endpoint()
        producer = Producer(transport, world.clock, Random(1), ["node-1"], address="service")
        producer.want("t")
        world.join(producer, "service")
        world.run_until(partial(producer.knows, "t"), 1000)
        ack = producer.send("t", b"%d" % number, partition=0)
        producer.poll()
        world.run_until(ack.done, 1000)
        assert ack.result(0).offset == number
        world.leave("service")
        transport.close(silent=True)


def test_so_many_are_remembered() -> None:
    """The latest of all clients together; a copy that comes much later counts as new."""
    repeats = Repeats()
    for number in range(REMEMBERED_MIN):
        assert not repeats.is_repeat("ab"[number & 1], number)
    assert all(repeats.is_repeat("ab"[number & 1], number) for number in range(REMEMBERED_MIN))
    assert not repeats.is_repeat("b", 0), "another's number"
    assert repeats.is_repeat("a", 0)
    for number in range(2 * REMEMBERED_MIN):
        repeats.is_repeat("c", number)
    assert not repeats.is_repeat("a", 0)
    assert not repeats.is_repeat("c", 0)


def test_numbers_are_of_31_bits() -> None:
    """And go on at 0 behind the last of them: negative ones are a node's own, and dropped."""
    network = LocalNetwork()
    node = network.endpoint()
    node.listen("node")
    clock = SimClock()
    clock.advance_to((2**31 - 2) * 1000)
    calls = RequestTracker(network.endpoint(), clock, "client", 1000)
    for _ in range(2):
        calls.send("node", MetadataRequest([]), lambda answer: None)
        calls.send_oneway("node", MetadataRequest([]))
    numbers = [event.message.correlation_id for event in node.poll(0) if isinstance(event, Received)]  # type: ignore[attr-defined]
    assert numbers == [2**31 - 1, 0, 1, 2]
