"""Node 1 as the tests of the clients play it, on a clock moved by hand."""

from __future__ import annotations

from typing import Protocol

from pyreplog.ports import Received
from pyreplog.system import LocalNetwork
from pyreplog.testing import SimClock
from pyreplog.wire import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    Request,
    Response,
    ResponseBody,
)

TOPIC, TOPIC_ID = "events", "BBBBBBBBBBBBBBBBBBBBBA"
MS = 1_000_000


class Machine(Protocol):
    """A client."""

    def poll(self, timeout_ns: int = 0) -> bool:
        """Whether anything happened."""
        ...


class NodeOne:
    """It answers metadata by itself, and keeps other requests in ``requests`` until a test takes them in hand."""

    machine: Machine

    def __init__(self, partitions: int = 1) -> None:
        self.clock = SimClock()
        self.network = LocalNetwork()
        self.node = self.network.endpoint()
        self.node.listen("node-1")
        self.leaders = [1] * partitions
        self.topic_id = TOPIC_ID
        self.refusal = 0
        self.requests: list[Request] = []
        self.metadata_asked = 0

    def turn(self) -> None:
        """Let both do what there is to do now."""
        for _ in range(30):
            moved = self.machine.poll()
            for event in self.node.poll(0):
                assert isinstance(event, Received)
                assert isinstance(event.message, Request)
                moved = True
                self.hear(event.message)
            if not moved:
                return

    def hear(self, message: Request) -> None:
        """A request arrived."""
        if isinstance(message.body, MetadataRequest):
            self.metadata_asked += 1
            self.say(message, self.metadata())
        else:
            self.requests.append(message)

    def metadata(self) -> MetadataResponse:
        """What the node knows now: who leads, with node 1 in sync. Whoever it is can be reached here."""
        partitions = [
            MetadataResponsePartition(number, leader, leader_epoch=3, isr_nodes=[1, leader])
            for number, leader in enumerate(self.leaders)
        ]
        brokers = [MetadataResponseBroker(node, "node-1") for node in sorted({1, *self.leaders}) if node > 0]
        return MetadataResponse(
            brokers, [MetadataResponseTopic(TOPIC, self.topic_id, partitions, error_code=self.refusal)]
        )

    def say(self, message: Request, body: ResponseBody) -> None:
        """Answer."""
        self.node.send(message.source, Response("node-1", message.correlation_id, body))

    def advance(self, ms: int) -> None:
        """Time passes."""
        self.clock.advance(ms * MS)
        self.turn()
