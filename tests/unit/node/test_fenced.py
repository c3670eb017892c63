"""A node without a lease: it answers no client, and it looks at its lease again before an answer leaves (F58, F59)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyreplog.testing import TopicOptions, World
from pyreplog.wire import (
    EARLIEST_TIMESTAMP,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeTopicPartitionsRequest,
    ErrorCode,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    InitProducerIdRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataRequestTopic,
    RequestBody,
)
from tests.replication.sim.cluster import acknowledged, key_of, log_of, partition, until
from tests.unit.node.caller import Caller, node_of, produce, quiet

ONE = TopicOptions("t", durability="os", acks=1)


def cut_off(world: World, node_id: int) -> None:
    """The node reaches no other node and not the controller; clients still reach it."""
    for other in (*(f"node-{one}" for one in world.node_ids if one != node_id), world.controller_address(node_id)):
        world.network.cut_both(f"node-{node_id}", other)
    until(world, lambda: partition(world).leader not in (node_id, -1), "another leads")


def test_a_fenced_node_describes_nothing() -> None:
    """Metadata, descriptions and producer ids: a node that is cut off refuses, and names no broker and no topic."""
    world, caller = quiet(ONE)
    old = partition(world).leader
    cut_off(world, old)
    elsewhere = ErrorCode.BROKER_NOT_AVAILABLE
    answer = caller.ask(old, MetadataRequest([MetadataRequestTopic(name="t")]))
    assert (answer.error_code, list(answer.brokers)) == (elsewhere, [])
    assert [(topic.error_code, list(topic.partitions)) for topic in answer.topics] == [(elsewhere, [])]
    assert caller.ask(old, MetadataRequest(None)).error_code == elsewhere
    for names in ([], ["t"]):
        (topic,) = caller.ask(old, DescribeTopicPartitionsRequest(names)).topics
        assert (topic.error_code, list(topic.partitions)) == (elsewhere, [])
    assert caller.ask(old, DescribeClusterRequest()).error_code == elsewhere
    configs = caller.ask(old, DescribeConfigsRequest([DescribeConfigsResource(2, "t")]))
    assert configs.results[0].error_code == elsewhere
    assert caller.ask(old, InitProducerIdRequest()).error_code == elsewhere
    world.network.heal()
    until(world, lambda: not node_of(world, old).fenced, "healed")
    world.run_for(200)
    assert caller.ask(old, MetadataRequest([MetadataRequestTopic(name="t")])).error_code == 0


def stalled(world: World, node_id: int, request: Callable[[], RequestBody], caller: Caller, path: str) -> Any:
    """Return the answer to a request in whose middle the node's process stands still until another node leads."""
    machine = world.machines[node_id]

    def stall(call: object) -> None:
        if path not in str(call) or machine.paused:
            return
        machine.disk.observer = None
        machine.paused = True
        until(world, lambda: partition(world).leader not in (node_id, -1), "another leads")
        machine.paused = False

    number = caller.send(node_id, request())
    machine.disk.observer = stall
    for _ in range(2):  # the time of the stall counts
        world.run_for(100)
    machine.disk.observer = None
    assert partition(world).leader != node_id
    caller.take()
    return caller.answers.pop(number)


def test_an_append_is_not_acknowledged_after_the_lease() -> None:
    """F59: the process of the leader stands still in the middle of an append for longer than its session. The records
    are in its log, and nothing is said about them: the client may have to send them again."""
    world, caller = quiet(ONE)
    old = partition(world).leader
    topic_id = key_of(world)[0]
    answer = stalled(world, old, lambda: produce(topic_id, 0, acks=1), caller, "write")
    (part,) = answer.responses[0].partition_responses
    assert part.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "another node may lead" in part.error_message
    assert part.base_offset == -1


class Jumping:
    """The time of a world for one machine; in a turn with a request of the caller it jumps behind the lease as soon
    as the turn has looked at it once."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node = node_of(world, node_id)
        self.looks = -1
        world.network.observer = self.arrived
        world.machines[node_id].clock._time = self  # type: ignore[assignment]

    def arrived(self, source: str, target: str, message: object) -> None:
        """The next turn of the node begins with a request of the caller."""
        if source == "caller":
            self.looks = 0

    def monotonic_ns(self) -> int:
        """The first look of such a turn is in time, all others are late."""
        if self.looks >= 0:
            self.looks += 1
        return self.node._standing.leased_until_ns + 1 if self.looks > 1 else self.world.clock.monotonic_ns()

    def wall_ms(self) -> int:
        """The wall clock does not jump."""
        return self.world.clock.wall_ms()


@pytest.mark.parametrize("kind", ["fetch", "offsets", "deletion"])
def test_no_answer_of_a_leader_leaves_after_its_lease(kind: str) -> None:
    """F59 for the other requests: the clock of the node jumps while it handles one."""
    world, caller = quiet(ONE)
    old = partition(world).leader
    topic_id = key_of(world)[0]
    assert caller.ask(old, produce(topic_id, 0, acks=1)).responses[0].partition_responses[0].error_code == 0
    world.run_for(100)
    requests: dict[str, RequestBody] = {
        "fetch": FetchRequest(0, 1, [FetchTopic(topic_id, [FetchPartition(0, -1, 0)])]),
        "offsets": ListOffsetsRequest([ListOffsetsTopic("t", [ListOffsetsPartition(0, EARLIEST_TIMESTAMP)])]),
        "deletion": DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 0)])], 2000),
    }
    Jumping(world, old)
    number = caller.send(old, requests[kind])
    world.run_for(30)
    caller.take()
    answer = caller.answers.pop(number)
    (part,) = answer.responses[0].partitions if kind == "fetch" else answer.topics[0].partitions
    assert part.error_code == (ErrorCode.REQUEST_TIMED_OUT if kind == "deletion" else ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not getattr(part, "records", None)


def test_clients_go_on_elsewhere() -> None:
    """A client whose first node is fenced asks the next one at once: appends go on within the session of the old
    leader, and a client that starts then needs no time-out."""
    world, _ = quiet(ONE)
    first = partition(world).leader
    count = acknowledged(world)
    cut_off(world, first)
    for producer in world.producers:
        producer.sending = True
        world.touch(producer.address)
    until(world, lambda: acknowledged(world) > count + 3, "appends go on", 1500)
    assert log_of(world, partition(world).leader).end_offset > 3


def test_a_leader_that_stops_refuses_at_once() -> None:
    """A31 (KAFKA-14296): a leader in a controlled shutdown answers NOT_LEADER as soon as it knows that another one
    leads, and fails the appends that wait then, although it may not stop yet: one node has not seen the moves (F46)."""
    world, caller = quiet(TopicOptions("t", durability="os", min_insync_replicas=3))
    old = partition(world).leader
    topic_id = key_of(world)[0]
    deaf, other = (one for one in world.node_ids if one != old)
    world.network.cut_both(f"node-{old}", f"node-{other}")
    world.network.cut(world.controller_address(deaf), f"node-{deaf}")
    waiting = caller.send(old, produce(topic_id, 0, acks=-1))
    world.run_for(20)
    node = node_of(world, old)
    node.begin_shutdown()
    world.touch(f"node-{old}")
    until(world, lambda: partition(world).leader != old, "another leads")
    world.run_for(60)
    assert not node.may_stop
    assert node.failure is None
    caller.take()
    (part,) = caller.answers.pop(waiting).responses[0].partition_responses
    assert part.error_code != 0
    (part,) = caller.ask(old, produce(topic_id, 0, acks=1)).responses[0].partition_responses
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not node.may_stop
    world.network.heal()
    until(world, lambda: node.may_stop, "all have seen the moves")
