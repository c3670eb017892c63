"""Servers of the quorum with brokers that are only names, over the network of one process, each on its own simulated
disk."""

from __future__ import annotations

from random import Random
from typing import TypeVar

from pyreplog.config import NodeConfig
from pyreplog.controller import FEATURE, LEVEL_LATEST, MetadataImage, PartitionImage
from pyreplog.controller.quorum_server import QuorumServer, controller_address
from pyreplog.controller.topics import new_id
from pyreplog.ports import Disconnected, Received
from pyreplog.quorum import Identity, QuorumConfig, Voter, VoterSet, format_quorum
from pyreplog.system import LocalNetwork, LocalTransport
from pyreplog.testing import SimClock, SimDisk
from pyreplog.wire import (
    METADATA_TOPIC_ID,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    BrokerState,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    ErrorCode,
    Feature,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    Listener,
    PartitionData,
    Request,
    RequestBody,
    Response,
    ResponseBody,
)

MS = 1_000_000
CLUSTER = new_id(Random(0))
FOLDER = "__cluster_metadata-0"
Body = TypeVar("Body", bound=ResponseBody)


class Broker:
    """The broker half of a node: an endpoint that sends what it is told to, and keeps the answers."""

    def __init__(self, network: LocalNetwork, node_id: int, life: int) -> None:
        self.node_id = node_id
        self.incarnation = new_id(Random(1000 * node_id + life))
        self.transport = network.endpoint()
        self.transport.listen(f"node-{node_id}")
        self.epoch = -1
        self.number = 1000 * life
        self.answers: dict[int, ResponseBody] = {}
        self.image = MetadataImage()

    def send(self, body: RequestBody) -> int:
        """Send a request to the node's own server; its number."""
        self.number += 1
        self.transport.send(controller_address(self.node_id), Request(f"node-{self.node_id}", self.number, body))
        return self.number

    def collect(self) -> None:
        """Take the answers that arrived."""
        for event in self.transport.poll(0):
            if isinstance(event, Received) and isinstance(event.message, Response):
                self.answers[event.message.correlation_id] = event.message.body


class QuorumHarness:
    """``count`` voters, node 1 first, then ``observers``, with time moved by hand. Turns cost no time."""

    server_class: type[QuorumServer] = QuorumServer

    def __init__(
        self,
        count: int = 3,
        *,
        observers: int = 0,
        quorum: QuorumConfig | None = None,
        node: NodeConfig | None = None,
    ) -> None:
        self.clock = SimClock()
        self.network = LocalNetwork()
        self.node_config = node or NodeConfig()
        self.quorum_config = (quorum or QuorumConfig())._replace(bootstrap=(controller_address(1),))
        ids = range(1, count + observers + 1)
        self.disks = {one: SimDisk(clock=self.clock) for one in ids}
        self.identities = {one: Identity(one, new_id(Random(one)), CLUSTER) for one in ids}
        voters = VoterSet(
            Voter.at(one.key, controller_address(one.node_id)) for one in list(self.identities.values())[:count]
        )
        for one in ids:
            known = voters if one <= count else None
            format_quorum(self.disks[one], FOLDER, self.identities[one], self.clock, known, self.quorum_config)
            self.disks[one].sync_directory(".")
        self.lives = dict.fromkeys(ids, 0)
        self.servers: dict[int, QuorumServer] = {}
        self.brokers: dict[int, Broker] = {}
        self.cut: set[int] = set()
        """Nodes whose messages to and from other nodes are lost."""
        for one in ids:
            self.start(one, with_=tuple(ids))

    # -- life

    def start(self, node_id: int, *, with_: tuple[int, ...] = ()) -> None:
        """Start a node, perhaps ``with_`` others in one process."""
        self.lives[node_id] += 1
        self.servers[node_id] = self.server_class.open(
            self.disks[node_id],
            FOLDER,
            self.identities[node_id],
            self.node_config,
            self.quorum_config,
            _CutTransport(self, node_id),
            self.clock,
            Random(100 * node_id + self.lives[node_id]),
        )
        if with_:
            self.servers[node_id].note_started(with_)
        self.brokers[node_id] = Broker(self.network, node_id, self.lives[node_id])

    def kill(self, node_id: int) -> None:
        """End a node's process: both endpoints."""
        self.servers.pop(node_id).kill()
        self.brokers.pop(node_id).transport.close()
        self.disks[node_id].kill()

    # -- time

    def turn(self) -> None:
        """Let everybody work until nobody has anything to do at this moment."""
        for _ in range(10_000):
            busy = False
            for server in list(self.servers.values()):
                busy |= server.poll()
            for broker in self.brokers.values():
                broker.collect()
            if not busy:
                return
        raise AssertionError("no end")

    def run(self, ms: float, *beating: int) -> None:
        """Let time pass from event to event; these brokers send heartbeats every 100 ms."""
        end = self.clock.monotonic_ns() + int(ms * MS)
        beat = self.clock.monotonic_ns()
        while True:
            self.turn()
            now = self.clock.monotonic_ns()
            if now >= end:
                return
            if beating and now >= beat:
                for one in beating:
                    self.brokers[one].send(self.heartbeat_of(one))
                beat = now + 100 * MS
                continue
            wakes = [wake for server in self.servers.values() if (wake := server.next_wake_ns) is not None]
            following = min([end, *wakes, *([beat] if beating else [])])
            self.clock.advance_to(max(following, now + 1))

    def until(self, done: object, ms: float = 5000) -> float:
        """Let time pass until ``done()``; the milliseconds that it took."""
        assert callable(done)
        start = self.clock.monotonic_ns()
        while not done():
            assert self.clock.monotonic_ns() - start < ms * MS, "it did not happen"
            self.run(1)
        return (self.clock.monotonic_ns() - start) / MS

    # -- looking

    @property
    def active(self) -> QuorumServer:
        """The server of the active controller; there is exactly one."""
        (found,) = [server for server in self.servers.values() if server.is_active]
        return found

    def elect(self) -> QuorumServer:
        """Wait for an active controller."""
        self.until(lambda: any(server.is_active for server in self.servers.values()))
        return self.active

    def partition(self, name: str = "t", server: QuorumServer | None = None) -> PartitionImage:
        """Partition 0 of a topic as a server has it committed."""
        image = (server or self.active).image
        found = image.partition((image.topic_ids[name], 0))
        assert found is not None
        return found

    # -- asking

    def ask(self, node_id: int, body: RequestBody, kind: type[Body], ms: float = 2000) -> Body:
        """Send a request of a node; its answer."""
        broker = self.brokers[node_id]
        number = broker.send(body)
        self.until(lambda: number in broker.answers, ms)
        answer = broker.answers.pop(number)
        assert isinstance(answer, kind), answer
        return answer

    def registration_of(self, node_id: int) -> BrokerRegistrationRequest:
        """Return the request with which the broker registers."""
        return BrokerRegistrationRequest(
            node_id,
            CLUSTER,
            self.brokers[node_id].incarnation,
            listeners=[Listener("PEER", f"node-{node_id}")],
            features=[Feature(FEATURE, 0, LEVEL_LATEST)],
            log_dirs=[self.identities[node_id].directory_id],
        )

    def register(self, node_id: int) -> int:
        """Register the broker; the error code."""
        broker, body = self.brokers[node_id], self.registration_of(node_id)
        for _ in range(100):
            answer = self.ask(node_id, body, BrokerRegistrationResponse)
            if answer.error_code != ErrorCode.NOT_CONTROLLER:
                break
            self.run(10)
        broker.epoch = answer.broker_epoch
        return answer.error_code

    def heartbeat_of(self, node_id: int) -> BrokerHeartbeatRequest:
        """The heartbeat of a broker that has applied everything that its server has."""
        return BrokerHeartbeatRequest(node_id, self.brokers[node_id].epoch, self.servers[node_id].image.offset)

    def beat(self, node_id: int) -> BrokerHeartbeatResponse:
        """Send a heartbeat; its answer."""
        return self.ask(node_id, self.heartbeat_of(node_id), BrokerHeartbeatResponse)

    def join(self, *node_ids: int) -> None:
        """Register, catch up, and be unfenced."""
        for one in node_ids:
            assert self.register(one) == 0
            self.until(lambda one=one: self.servers[one].image.offset >= self.brokers[one].epoch)
            assert not self.beat(one).is_fenced

    def create(self, node_id: int, name: str = "t", partitions: int = 1) -> int:
        """Create a topic through a node; the error code."""
        body = CreateTopicsRequest([CreatableTopic(name, partitions, len(self.identities))])
        return self.ask(node_id, body, CreateTopicsResponse).topics[0].error_code

    def propose(self, *members: int, sender: int | None = None) -> int:
        """Propose an in-sync set for partition 0 of ``t`` through the leader's node; the error code."""
        image = self.active.image
        partition = self.partition()
        leader = partition.leader if sender is None else sender
        states = [BrokerState(one, image.brokers[one].epoch) for one in members]
        data = AlterPartitionData(0, partition.leader_epoch, states, partition.partition_epoch)
        topic = AlterPartitionTopic(image.topic_ids["t"], [data])
        body = AlterPartitionRequest(leader, image.brokers[leader].epoch, [topic])
        answer = self.ask(leader, body, AlterPartitionResponse)
        return answer.error_code or answer.topics[0].partitions[0].error_code

    def fetch(self, node_id: int, offset: int, wait_ms: int = 0) -> PartitionData:
        """Fetch the metadata from ``offset`` from the node's own server."""
        body = FetchRequest(wait_ms, 1, [FetchTopic(METADATA_TOPIC_ID, [FetchPartition(0, -1, offset)])])
        return self.ask(node_id, body, FetchResponse).responses[0].partitions[0]


class _CutTransport(LocalTransport):
    """An endpoint whose messages to other nodes are lost while a cut lies between them."""

    __slots__ = ("_harness", "_node_id")

    def __init__(self, harness: QuorumHarness, node_id: int) -> None:
        super().__init__(harness.network)
        self._harness = harness
        self._node_id = node_id

    def send(self, peer: str, message: object) -> bool:
        """Send, or lose it."""
        other = int(peer.rpartition("-")[2])
        cut = self._harness.cut
        if other != self._node_id and (other in cut or self._node_id in cut):
            return True
        return super().send(peer, message)


__all__ = ["CLUSTER", "FOLDER", "MS", "Broker", "Disconnected", "QuorumHarness"]
