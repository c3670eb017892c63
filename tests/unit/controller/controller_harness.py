"""A controller that is the only voter, on a simulated disk, and what the tests ask of it."""

from __future__ import annotations

from random import Random

from pyreplog.config import NodeConfig
from pyreplog.controller import FEATURE, LEVEL_LATEST, MetadataImage, QuorumServer, controller_address, new_id
from pyreplog.ports import Received
from pyreplog.quorum import Identity, QuorumConfig, Voter, VoterSet, format_quorum, is_formatted
from pyreplog.system import LocalNetwork, LocalTransport
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
    Response,
    ResponseBody,
)

MS = 1_000_000
CLUSTER = new_id(Random(0))
FOLDER = "__cluster_metadata-0"


class ControllerHarness:
    """The only voter of a cluster, on a simulated disk: it commits whatever it writes."""

    def __init__(self, disk: SimDisk | None = None) -> None:
        self.clock = SimClock()
        self.disk = disk if disk is not None else SimDisk(clock=self.clock)
        self.network = LocalNetwork()
        self.senders: dict[str, LocalTransport] = {}
        self.number = 0
        self.epochs: dict[int, int] = {}
        identity = Identity(9, new_id(Random(9)), CLUSTER)
        if not is_formatted(self.disk, FOLDER):
            voters = VoterSet([Voter.at(identity.key, controller_address(9))])
            format_quorum(self.disk, FOLDER, identity, self.clock, voters, QuorumConfig())
            self.disk.sync_directory(".")
        self._identity = identity
        self._server: QuorumServer | None = None
        self.open()

    def open(self) -> None:
        """Start it, perhaps again: no broker of before is alive."""
        if self._server is not None:
            self._server.kill()
        config, transport = NodeConfig(), self.network.endpoint()
        self._server = self.server = QuorumServer.open(
            self.disk, FOLDER, self._identity, config, QuorumConfig(), transport, self.clock, Random(1)
        )
        self.server.note_started([1, 2, 3])
        for _ in range(20):
            self.turn()

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self.server.image

    def turn(self) -> None:
        """Let it work until it has nothing to do now."""
        while self.server.poll():
            pass

    def post(self, request: Request) -> None:
        """Send a request as it is, and let it be decided."""
        source = request.source
        if source not in self.senders:
            self.senders[source] = self.network.endpoint()
            self.senders[source].listen(source)
        self.senders[source].send(self.server.address, request)
        self.turn()

    def answers(self, source: str) -> dict[int, ResponseBody]:
        """Take the answers that arrived at ``source``, by the number of the request."""
        received = (event.message for event in self.senders[source].poll(0) if isinstance(event, Received))
        return {message.correlation_id: message.body for message in received if isinstance(message, Response)}

    def ask(self, body: RequestBody, source: str = "client") -> ResponseBody | None:
        """The answer to one request, or None where it waits."""
        self.number += 1
        self.post(Request(source, self.number, body))
        return self.answers(source).get(self.number)

    def gone(self, broker: int) -> None:
        """Tell it that the present incarnation of a broker has ended."""
        self.server.note_ended(self.image.brokers[broker].incarnation_id)
        self.turn()

    def join(self, *brokers: int) -> None:
        """Register and unfence."""
        for broker in brokers:
            self.register(broker)
            self.beat(broker)

    def register(self, broker: int, *ends: PartitionEnd) -> None:
        """A new incarnation."""
        incarnation = new_id(Random(f"{broker} {self.number}"))
        body = BrokerRegistrationRequest(
            broker,
            CLUSTER,
            incarnation,
            features=[Feature(FEATURE, 0, LEVEL_LATEST)],
            log_dirs=[new_id(Random(broker))],
            partition_ends=list(ends),
        )
        answer = self.ask(body)
        assert isinstance(answer, BrokerRegistrationResponse)
        self.epochs[broker] = answer.broker_epoch

    def beat(self, *brokers: int) -> None:
        """They are alive."""
        for broker in brokers:
            self.ask(BrokerHeartbeatRequest(broker, self.epochs[broker], self.image.offset))

    def pass_time(self, ms: int, *brokers: int) -> None:
        """Step by step, with these alive."""
        for _ in range(ms // 100):
            self.clock.advance(100 * MS)
            self.turn()
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
