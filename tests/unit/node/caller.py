"""What the tests of nodes share: a client that speaks the messages themselves, in a calm cluster."""

from __future__ import annotations

from typing import Any

from pyreplog.node import Node
from pyreplog.record import BatchBuilder
from pyreplog.testing import SimTransport, TopicOptions, World
from pyreplog.wire import PartitionProduceData, ProduceRequest, Request, RequestBody, Response, TopicProduceData
from tests.replication.sim.cluster import calm, in_sync, partition, until

OS = TopicOptions("t", durability="os")
SYNC = TopicOptions("t")


class Caller:
    """A client that speaks the messages themselves."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.transport: SimTransport = world.network.endpoint("caller")
        self.number = 0
        self.answers: dict[int, Any] = {}

    def send(self, node_id: int | str, body: RequestBody) -> int:
        """Its number. The node "controller" is the active controller."""
        self.number += 1
        peer = node_id if isinstance(node_id, str) else f"node-{node_id}"
        if peer == "controller":
            peer = self.world.controller_address(self.world.active_node)
        self.transport.send(peer, Request("caller", self.number, body))
        return self.number

    def take(self) -> None:
        """What arrived."""
        for event in self.transport.poll():
            message = getattr(event, "message", None)
            if isinstance(message, Response):
                self.answers[message.correlation_id] = message.body

    def ask(self, node_id: int | str, body: RequestBody, within_ms: int = 3000) -> Any:
        """The answer; None where none comes in time."""
        number = self.send(node_id, body)

        def answered() -> bool:
            self.take()
            return number in self.answers

        self.world.run_until(answered, within_ms)
        return self.answers.pop(number, None)


def batch(*values: bytes) -> bytearray:
    """One batch, to be handed over."""
    builder = BatchBuilder()
    for value in values:
        builder.append(value, None, (), 1000)
    return bytearray(builder.finish())


def loose(world: World, *numbers: str) -> World:
    """The same world without the checkers of what a test does on purpose, and of histories: they know only the
    world's own clients."""
    world.watch_with(
        [one for one in world.checkers if not any(number in ("history", "S13", *numbers) for number in one.numbers)]
    )
    return world


def quiet(topic: TopicOptions = OS, **more: Any) -> tuple[World, Caller]:
    """A cluster in sync, whose producer stays silent."""
    world = loose(calm(topic, **more))
    for producer in world.producers:
        producer.sending = False
    until(world, in_sync(world, *partition(world).replicas), "in sync")
    world.run_for(500)
    return world, Caller(world)


def node_of(world: World, node_id: int) -> Node:
    """The node; it is up."""
    node = world.machines[node_id].node
    assert node is not None
    return node


def produce(topic_id: str, *numbers: int, acks: int = -1) -> ProduceRequest:
    """Two records for each partition."""
    parts = [PartitionProduceData(number, batch(b"%d-a" % number, b"%d-b" % number)) for number in numbers]
    return ProduceRequest(acks, 2000, [TopicProduceData(topic_id, parts)])
