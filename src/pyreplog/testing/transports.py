"""Conformance tests for transports, as a class to derive from.

    from pyreplog.testing import TransportConformance

    class TestMine(TransportConformance):
        def setup_method(self) -> None: ...        # set up a network
        def endpoint(self) -> Transport: ...       # a new endpoint on it, which does not listen yet
        def teardown_method(self) -> None: ...

pytest finds the tests by their names; the module does not import pytest. The tests send messages of the real
protocol, so a transport between processes may encode them with :class:`pyreplog.wire.Conversation`. The guide
"Writing a transport" describes the encoding, and the guarantees that the protocol needs from a transport.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, Final

from pyreplog.client import Admin, Consumer, Producer, ProducerConfig
from pyreplog.config import NodeConfig
from pyreplog.controller import QuorumServer, controller_address, new_id
from pyreplog.errors import ClosedError, LocalProtocolError
from pyreplog.log import METADATA_FOLDER, LogRoot
from pyreplog.node import Node
from pyreplog.ports import Clock, Disconnected, Received, Transport
from pyreplog.quorum import Identity, QuorumConfig, ReplicaKey, Voter, VoterSet, format_quorum
from pyreplog.record import BatchBuilder, RecordBatch
from pyreplog.system import SystemClock
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    PartitionProduceData,
    ProduceRequest,
    Request,
    Response,
    TopicProduceData,
    materialised,
)

__all__ = ["TransportConformance"]

TURNS_MAX: Final = 200_000
_TOPIC_ID: Final = "b" * 22


class _Server(QuorumServer):
    """A member of a quorum whose transport may report the end of a connection, and not that of a process."""

    exact_ends = False


class TransportConformance:
    """The tests that every transport must pass. Derive from this class and override ``endpoint``."""

    in_order: ClassVar[bool] = True
    """Whether messages from one endpoint to another arrive in the order of sending, if they arrive."""
    waits: ClassVar[bool] = True
    """Whether ``poll`` with a timeout waits for the first event. Set it to False for a transport whose ``poll``
    returns at once, because its caller waits by other means."""

    # -- methods to override -----------------------------------------------------------------------

    def endpoint(self) -> Transport:
        """Return a new endpoint of the network under test, which does not listen yet."""
        raise AssertionError("override endpoint()")

    def progress(self) -> None:
        """Let time pass, if the network moves only on request. Called repeatedly while a test waits."""

    def clock(self) -> Clock:
        """Return the clock for nodes on this network."""
        return SystemClock()

    # -- help --------------------------------------------------------------------------------------

    _mail: dict[Transport, list[Any]]

    def at(self, address: str) -> Transport:
        """Return an endpoint that listens at ``address``.

        From now on the test polls it during every wait, because a transport may make progress only while it is
        polled.
        """
        transport = self.endpoint()
        assert transport.listen(address) == address
        if not hasattr(self, "_mail"):
            self._mail = {}
        self._mail[transport] = []
        return transport

    def turn(self) -> None:
        """Poll every endpoint once."""
        for transport, events in self._mail.items():
            events.extend(transport.poll(0))
        self.progress()

    def received(self, transport: Transport, count: int) -> list[Received]:
        """Wait for ``count`` messages at an endpoint; return all that have arrived there."""
        events = self._mail[transport]
        for _ in range(TURNS_MAX):
            if sum(type(event) is Received for event in events) >= count:
                break
            self.turn()
        else:
            raise AssertionError(f"{count} messages did not arrive")
        found = [event for event in events if type(event) is Received]
        events.clear()
        return found

    def nothing_for(self, transport: Transport) -> None:
        """Check that no message arrives at the endpoint, although every endpoint is polled many times."""
        for _ in range(100):
            self.turn()
        assert not [event for event in self._mail[transport] if type(event) is Received]

    def heard_after(self, sender: Transport, peer: str, message: Request, receiver: Transport) -> None:
        """Send ``message`` repeatedly until one copy arrives."""
        for _ in range(TURNS_MAX):
            sender.connect(peer)
            sender.send(peer, materialised(message))
            self.turn()
            if any(type(event) is Received and event.message == message for event in self._mail[receiver]):
                return
        raise AssertionError("nothing arrives any more")

    @staticmethod
    def request(source: str, number: int) -> Request:
        """Return a small request."""
        return Request(source, number, MetadataRequest([MetadataRequestTopic(f"topic-{number}")]))

    # -- the tests ---------------------------------------------------------------------------------

    def test_a_request_arrives(self) -> None:
        """A request arrives once, complete and equal to the one sent, with the address of its sender."""
        one, two = self.at("one"), self.at("two")
        sent = self.request("one", 5)
        assert one.send("two", materialised(sent))
        (event,) = self.received(two, 1)
        assert event.peer == "one"
        assert event.message == sent
        self.nothing_for(two)

    def test_an_answer_arrives(self) -> None:
        """The response to a request arrives at the endpoint that sent the request."""
        one, two = self.at("one"), self.at("two")
        assert one.send("two", self.request("one", 7))
        self.received(two, 1)
        answer = Response("two", 7, MetadataResponse([MetadataResponseBroker(1, "node-1")], [], cluster_id="c"))
        assert two.send("one", materialised(answer))
        (event,) = self.received(one, 1)
        assert event.peer == "two"
        assert event.message == answer

    def test_order(self) -> None:
        """Messages from one endpoint to another keep their order, in both directions at once."""
        one, two = self.at("one"), self.at("two")
        for number in range(200):
            assert one.send("two", self.request("one", number))
            assert two.send("one", self.request("two", number))
        for transport in (two, one):
            numbers = [event.message.correlation_id for event in self.received(transport, 200)]  # type: ignore[attr-defined]
            assert sorted(numbers) == [*range(200)]
            assert numbers == [*range(200)] or not self.in_order

    def test_many_peers(self) -> None:
        """An endpoint receives messages from many peers, and each message has the address of its sender."""
        hub = self.at("hub")
        others = {f"peer-{number}": self.at(f"peer-{number}") for number in range(8)}
        for address, transport in others.items():
            assert transport.send("hub", self.request(address, 1))
        events = self.received(hub, len(others))
        assert sorted(event.peer for event in events) == sorted(others)
        assert all(event.peer == event.message.source for event in events)  # type: ignore[attr-defined]

    def test_large_messages(self) -> None:
        """Megabytes of records arrive unchanged, in memory that the receiver of the request may write to."""
        one, two = self.at("one"), self.at("two")
        builder = BatchBuilder(4 << 20)
        builder.append(Random(1).randbytes(3 << 20), None, (), 0)
        records = bytes(builder.finish())
        assert one.send(
            "two",
            Request(
                "one",
                1,
                ProduceRequest(-1, 1, [TopicProduceData(_TOPIC_ID, [PartitionProduceData(0, bytearray(records))])]),
            ),
        )
        assert one.send("two", self.request("one", 2))
        first, second = self.received(two, 2)
        arrived = first.message.body.topic_data[0].partition_data[0].records  # type: ignore[attr-defined]
        assert bytes(arrived) == records
        RecordBatch(arrived).check_crc()
        memoryview(arrived)[0] = 1
        assert second.message == self.request("one", 2)

    def test_nobody_there(self) -> None:
        """A message to an address without an endpoint is refused, reported as a disconnection, or lost.

        The sending endpoint keeps working.
        """
        one, two = self.at("one"), self.at("two")
        one.send("nobody", self.request("one", 1))
        assert one.send("two", self.request("one", 2))
        assert self.received(two, 1)[0].message == self.request("one", 2)
        self.nothing_for(one)
        assert all(type(event) is Disconnected and event.peer == "nobody" for event in self._mail[one])

    def test_listening_twice(self) -> None:
        """A second call of ``listen`` on an endpoint raises LocalProtocolError."""
        one = self.at("one")
        try:
            one.listen("again")
        except LocalProtocolError:
            return
        raise AssertionError("an endpoint listened at two addresses")

    def test_pause_and_resume(self) -> None:
        """Messages of a paused peer are received only after it is resumed; those of other peers arrive."""
        one, two, three = self.at("one"), self.at("two"), self.at("three")
        two.pause("one")
        for number in range(3):
            assert one.send("two", self.request("one", number))
        assert three.send("two", self.request("three", 9))
        assert [event.peer for event in self.received(two, 1)] == ["three"]
        self.nothing_for(two)
        two.resume("one")
        assert sorted(event.message.correlation_id for event in self.received(two, 3)) == [0, 1, 2]  # type: ignore[attr-defined]

    def test_disconnect(self) -> None:
        """After a disconnection the peers can connect again at once."""
        one, two = self.at("one"), self.at("two")
        assert one.send("two", self.request("one", 1))
        self.received(two, 1)
        two.disconnect("one")
        self.heard_after(one, "two", self.request("one", 2), two)

    def test_close(self) -> None:
        """A closed endpoint receives and sends nothing. Closing twice is harmless.

        Another endpoint can listen at its address afterwards.
        """
        one, two = self.at("one"), self.at("two")
        two.close()
        two.close()
        try:
            assert not list(two.poll(0))
            assert not two.send("one", self.request("two", 1))
        except ClosedError:
            pass  # raising is allowed too
        del self._mail[two]
        self.heard_after(one, "two", self.request("one", 3), self.at("two"))

    def test_polling_without_events(self) -> None:
        """``poll(0)`` never waits, and ``poll`` with a timeout waits no longer than that."""
        one = self.at("one")
        assert not list(one.poll(0))
        assert not list(one.poll(1_000_000))

    def test_wake(self) -> None:
        """``wake`` from another thread ends a long wait, also if it is called before the wait begins."""
        one = self.at("one")
        long_ns = 60_000_000_000 if self.waits else 0
        one.wake()
        assert not list(one.poll(long_ns))
        thread = threading.Thread(target=one.wake)
        thread.start()
        assert not list(one.poll(long_ns))
        thread.join()

    def test_a_message_ends_a_wait(self) -> None:
        """An arriving message ends a wait."""
        one, two = self.at("one"), self.at("two")
        assert one.send("two", self.request("one", 1))
        one.poll(0)
        for _ in range(TURNS_MAX):
            self.progress()
            if any(type(event) is Received for event in two.poll(60_000_000_000 if self.waits else 0)):
                return
        raise AssertionError("the message did not arrive")

    def _cluster(self, clock: Clock) -> tuple[list[QuorumServer], list[Node]]:
        """Return three members of a new quorum, and the nodes that they belong to."""
        cluster_id = new_id(Random(0))
        disks = {number: SimDisk(clock=clock) for number in (1, 2, 3)}
        roots = {
            number: LogRoot.open(
                disk, f"node-{number}", clock=clock, random=Random(number), node_id=number, cluster_id=cluster_id
            )
            for number, disk in disks.items()
        }
        addresses = [controller_address(number) for number in disks]
        voters = VoterSet(
            Voter.at(ReplicaKey(number, root.directory_id), controller_address(number))
            for number, root in roots.items()
        )
        config = QuorumConfig(bootstrap=tuple(addresses))
        servers, nodes = [], []
        for number, root in roots.items():
            disk, folder = disks[number], f"{root.path}/{METADATA_FOLDER}"
            identity = Identity(number, root.directory_id, cluster_id)
            format_quorum(disk, folder, identity, clock, voters, config)
            servers.append(
                _Server.open(disk, folder, identity, NodeConfig(), config, self.endpoint(), clock, Random(10 + number))
            )
            nodes.append(
                Node(root, disk, self.endpoint(), clock, NodeConfig(), controller_address(number), Random(number))
            )
        return servers, nodes

    def test_a_cluster_replicates(self) -> None:
        """A cluster of three nodes, which elect their controller, and clients work on this network.

        All replicas acknowledge the records, and a consumer reads them in order.
        """
        clock = self.clock()
        servers, nodes = self._cluster(clock)
        machines: list[Any] = [*servers, *nodes]
        bootstrap = [f"node-{number}" for number in (1, 2, 3)]
        admin = Admin(self.endpoint(), clock, Random(4), address="admin-1", controllers=[machines[0].address])
        producer = Producer(
            self.endpoint(), clock, Random(5), bootstrap, address="client-1", config=ProducerConfig(max_in_flight=1)
        )
        consumer = Consumer(self.endpoint(), clock, Random(6), bootstrap, address="client-2")
        machines += [admin, producer, consumer]

        def run(condition: Callable[[], bool]) -> None:
            for _ in range(TURNS_MAX):
                for machine in machines:
                    machine.poll(0)
                if condition():
                    return
                self.progress()
            raise AssertionError("the cluster makes no progress")

        run(lambda: all(node.broker_epoch >= 0 and not node.fenced for node in nodes))
        created = admin.create_topic("events", 1, 3, {"min.insync.replicas": "3", "durability": "os"})
        run(lambda: created.settled)
        producer.want("events")
        run(lambda: producer.knows("events"))
        acks = [producer.send("events", b"%d" % number, partition=0) for number in range(300)]
        run(lambda: all(ack.done() for ack in acks))
        assert [ack.offset for ack in acks] == [*range(300)]
        consumer.want("events")
        run(lambda: consumer.knows("events"))
        consumer.assign([TopicPartition("events", 0)])
        values: list[bytes | None] = []

        def read() -> bool:
            values.extend(record.value for record in consumer.take())
            return len(values) >= 300

        run(read)
        assert values == [b"%d" % number for number in range(300)]
