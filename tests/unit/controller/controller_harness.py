"""An authority on a simulated disk, and what the tests ask of it."""

from __future__ import annotations

from random import Random

from pyreplog.config import NodeConfig
from pyreplog.controller import FEATURE, LEVEL_LATEST, LocalController
from pyreplog.testing import SimClock, SimDisk
from pyreplog.wire import (
    METADATA_TOPIC_ID,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    Feature,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    PartitionEnd,
    Request,
    RequestBody,
    ResponseBody,
)

MS = 1_000_000


class ControllerHarness:
    """An authority on a simulated disk."""

    def __init__(self, disk: SimDisk | None = None) -> None:
        self.clock = SimClock()
        self.disk = disk if disk is not None else SimDisk(clock=self.clock)
        self.open()
        self.number = 0
        self.epochs: dict[int, int] = {}

    def open(self) -> None:
        """Start the authority, perhaps again."""
        self.authority = LocalController.open(
            self.disk, "data", NodeConfig(), Random(1), now_ns=self.clock.monotonic_ns()
        )

    def ask(self, body: RequestBody, source: str = "client") -> ResponseBody | None:
        """The answer to one request, or None where it waits."""
        self.number += 1
        for reply in self.authority.step([Request(source, self.number, body)], self.clock.monotonic_ns()):
            if reply.peer == source and reply.correlation_id == self.number:
                return reply.body
        return None

    def join(self, *brokers: int) -> None:
        """Register and unfence."""
        for broker in brokers:
            self.register(broker)
            self.beat(broker)

    def register(self, broker: int, *ends: PartitionEnd) -> None:
        """A new incarnation."""
        incarnation = f"i-{broker}-{self.number}"
        body = BrokerRegistrationRequest(
            broker,
            self.authority.cluster_id,
            incarnation,
            features=[Feature(FEATURE, 0, LEVEL_LATEST)],
            log_dirs=["d"],
            partition_ends=list(ends),
        )
        answer = self.ask(body)
        assert isinstance(answer, BrokerRegistrationResponse)
        self.epochs[broker] = answer.broker_epoch

    def beat(self, *brokers: int) -> None:
        """They are alive."""
        for broker in brokers:
            self.ask(BrokerHeartbeatRequest(broker, self.epochs[broker], self.authority.image.offset))

    def pass_time(self, ms: int, *brokers: int) -> None:
        """Step by step, with these alive."""
        for _ in range(ms // 100):
            self.clock.advance(100 * MS)
            self.beat(*brokers)

    def create(self, name: str, partitions: int = 2) -> int:
        """The error code of creating a topic."""
        answer = self.ask(CreateTopicsRequest([CreatableTopic(name, partitions, 3)]))
        assert isinstance(answer, CreateTopicsResponse)
        return answer.topics[0].error_code

    def news(self, offset: int, source: str = "node-1", wait_ms: int = 500) -> PartitionData | None:
        """What a fetch of the metadata from ``offset`` gets at once."""
        body = FetchRequest(wait_ms, 1, [FetchTopic(METADATA_TOPIC_ID, [FetchPartition(0, -1, offset)])])
        answer = self.ask(body, source)
        if answer is None:
            return None
        assert isinstance(answer, FetchResponse)
        return answer.responses[0].partitions[0]
