"""Appends that the network doubles: the first copy is carried out, the second is nothing. In calm simulated clusters."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from pyreplog.client import Producer
from pyreplog.node.repeats import REMEMBERED_MAX, Repeats
from pyreplog.record import BatchBuilder
from pyreplog.testing import TopicOptions, World
from pyreplog.wire import ErrorCode, PartitionProduceData, ProduceRequest, Request, TopicProduceData
from tests.node.test_node import Caller, produce, quiet
from tests.sim.cluster import key_of

ALONE = TopicOptions("t", partitions=2, replication_factor=1, min_insync_replicas=1, durability="os")


def ends(world: World) -> list[int]:
    """Where each partition's log ends."""
    logs = [world.log_of(1, (key_of(world)[0], number)) for number in (0, 1)]
    return [-1 if log is None else log.end_offset for log in logs]


def send(caller: Caller, number: int, body: ProduceRequest) -> None:
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
    """Of a producer without numbers, too, whatever it wants to hear; until its client is gone, and another one numbers anew."""
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
    assert ends(world) == [2 * end for end in done]


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
    """A client that is gone without a word, as one that is killed, and another at its address: its first appends are no repeats."""
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
    """The latest of each client, however many others there are."""
    repeats = Repeats()
    for number in range(REMEMBERED_MAX):
        assert not repeats.is_repeat("a", number)
    assert not repeats.is_repeat("b", 0)
    assert all(repeats.is_repeat("a", number) for number in range(REMEMBERED_MAX))
    assert not repeats.is_repeat("a", REMEMBERED_MAX)
    assert repeats.is_repeat("a", 1)
    assert not repeats.is_repeat("a", 0), "as the port says it may: the oldest is forgotten"
    assert repeats.is_repeat("b", 0)
    repeats.forget("b")
    assert not repeats.is_repeat("b", 0)
