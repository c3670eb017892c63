"""The relay against a node that loses requests and answers, refuses, and hears things twice, with a real log behind
it."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.client import BatchForwarder
from pyreplog.client.batch_forwarder import DELIVERY_TIMEOUT_NS
from pyreplog.config import LogConfig
from pyreplog.errors import (
    InvalidRequestError,
    OutcomeUnknownError,
    OutOfOrderSequenceError,
    PyreplogError,
    RequestTimedOutError,
    UnknownProducerIdError,
    UnknownTopicError,
)
from pyreplog.log import Log, LogRoot
from pyreplog.ports import Received
from pyreplog.record import BatchBuilder, records_of, set_producer, split
from pyreplog.system import LocalNetwork
from pyreplog.testing import SimClock, SimDisk
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    ErrorCode,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    Request,
    Response,
    TopicProduceResponse,
)
from tests.unit.client.node_one import MS, TOPIC, TOPIC_ID

PRODUCER_ID, EPOCH = 2**62 + 5, 3
PARTITIONS = 3
COUNT = 12  # batches of a partition: more than a log remembers


def batch(partition: int, number: int) -> bytes:
    """Two records, with the sequence they have in their partition."""
    builder = BatchBuilder()
    builder.extend([b"%d-%d" % (partition, 2 * number), b"%d-%d" % (partition, 2 * number + 1)], None, None, None, 5, 0)
    data = builder.finish()
    set_producer(data, PRODUCER_ID, EPOCH, 2 * number)
    return bytes(data)


class Faulty:
    """Node 1 with a log for each partition. What becomes of a request stands in ``script``, or is drawn from
    ``weights``: a test may change them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = SimClock()
        self.network = LocalNetwork()
        self.node = self.network.endpoint()
        self.node.listen("node-1")
        root = LogRoot.open(SimDisk(Random(1)), "/log", clock=self.clock, random=Random(1))
        self.logs = [root.create_log(TOPIC, number, TOPIC_ID, LogConfig()) for number in range(PARTITIONS)]
        self.weights = {
            "good": 4,
            "request lost": 1,
            "answer lost": 2,
            "refused": 1,
            "too few have it": 1,
            "heard twice": 1,
        }
        self.script: list[str] = []
        self.late: list[ProduceRequest] = []
        self.refusal = 0
        self.count = 0
        self.metadata_asked = 0

    def relay(self) -> BatchForwarder:
        """A new one."""
        self.count += 1
        return BatchForwarder(self.network.endpoint(), self.clock, Random(1), ["node-1"], address=f"relay-{self.count}")

    def turn(self, relay: BatchForwarder) -> None:
        """Let both do what there is to do, then let time pass until the relay has something to do again."""
        for _ in range(50):
            moved = relay.poll()
            for event in self.node.poll(0):
                moved = True
                if isinstance(event, Received):  # else a relay that was closed
                    assert isinstance(event.message, Request)
                    self._take(event.message)
            if not moved:
                break
        wake = relay.next_wake_ns
        if wake is not None:
            self.clock.advance(max(wake - self.clock.monotonic_ns(), 0) + MS)

    def _take(self, message: Request) -> None:
        body = message.body
        if isinstance(body, MetadataRequest):
            self.metadata_asked += 1
            known = [MetadataResponsePartition(number, 1, leader_epoch=3) for number in range(PARTITIONS)]
            topic = MetadataResponseTopic(TOPIC, TOPIC_ID, known, error_code=self.refusal)
            self._answer(message, MetadataResponse([MetadataResponseBroker(1, "node-1")], [topic]))
            return
        assert isinstance(body, ProduceRequest)
        what = (
            self.script.pop(0)
            if self.script
            else self.random.choices(list(self.weights), list(self.weights.values()))[0]
        )
        if self.late and self.random.random() < 0.3:
            self._append(self.late.pop())
        if what == "request lost":
            return
        indexes = [part.index for topic in body.topic_data for part in topic.partition_data]
        if what == "refused":
            parts = [PartitionProduceResponse(index, ErrorCode.NOT_LEADER_OR_FOLLOWER) for index in indexes]
        else:
            parts = self._append(body)
        if what == "heard twice":
            self.late.append(body)
        if what == "too few have it":
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            parts = [PartitionProduceResponse(part.index, part.error_code or code) for part in parts]
        if what != "answer lost":
            self._answer(message, ProduceResponse([TopicProduceResponse(TOPIC_ID, parts)]))

    def _answer(self, message: Request, body: MetadataResponse | ProduceResponse) -> None:
        self.node.send(message.source, Response("node-1", message.correlation_id, body))

    def _append(self, body: ProduceRequest) -> list[PartitionProduceResponse]:
        parts = []
        for topic in body.topic_data:
            for part in topic.partition_data:
                try:
                    appended = self.logs[part.index].append_as_leader(part.records, 3)
                    parts.append(PartitionProduceResponse(part.index, 0, appended.base_offset))
                except (OutOfOrderSequenceError, UnknownProducerIdError, InvalidRequestError) as error:
                    parts.append(PartitionProduceResponse(part.index, error.code))
        return parts


def values(log: Log) -> list[bytes | None]:
    """What is in it."""
    parts = log.read(0, 1 << 20, log.end_offset).parts() if log.end_offset else ()
    return [record.value for part in parts for one in split(part) for record in records_of(one)]


def send_all(faulty: Faulty, relay: BatchForwarder, *, steps: int = 10_000) -> PyreplogError | bool:
    """Every batch, in the order of a manifest; whether all are known to be there within ``steps``, or what
    failed."""
    for number in range(COUNT):
        for partition in range(PARTITIONS):
            relay.send(TopicPartition(TOPIC, partition), batch(partition, number))
    pending = relay.below(0)
    while not pending.settled and steps:
        faulty.turn(relay)
        steps -= 1
    if pending.error is not None:
        assert isinstance(pending.error, PyreplogError)
        return pending.error
    return pending.settled


@pytest.mark.parametrize("seed", range(30))
def test_each_batch_once_and_in_order(seed: int) -> None:
    """Whatever is lost or said twice; also where a relay is cut short anywhere and another one sends everything
    again from the start."""
    faulty = Faulty(seed)
    for _ in range(seed % 3):
        relay = faulty.relay()
        send_all(faulty, relay, steps=faulty.random.randrange(40))
        relay.close()
    relay = faulty.relay()
    while (outcome := send_all(faulty, relay)) is not True:
        assert isinstance(outcome, RequestTimedOutError)  # much was lost in a row: the owner begins again
        relay.close()
        relay = faulty.relay()
    assert relay.size == 0
    for late in faulty.late:
        faulty._append(late)
    for partition, log in enumerate(faulty.logs):
        assert values(log) == [b"%d-%d" % (partition, number) for number in range(2 * COUNT)]


def test_a_log_that_lost_batches_is_told_of() -> None:
    """Where all that come are out of order, nothing is said to be there."""
    faulty = Faulty(1)
    faulty.weights = {"good": 1}
    relay = faulty.relay()
    assert send_all(faulty, relay) is True
    key = TopicPartition(TOPIC, 0)
    relay.send(key, batch(0, COUNT + 5))
    pending = relay.below(0)
    while not pending.settled:
        faulty.turn(relay)
    assert isinstance(pending.error, OutOfOrderSequenceError)


def test_who_asks_after_the_end_hears_of_it() -> None:
    """At once: nobody polls a relay that is closed."""
    faulty = Faulty(1)
    relay = faulty.relay()
    relay.send(TopicPartition(TOPIC, 0), batch(0, 0))
    before = relay.below(0)
    relay.close(OutcomeUnknownError("append", "it was interrupted"))
    assert before.settled
    assert isinstance(before.error, OutcomeUnknownError)
    for size in (0, 1 << 30):
        pending = relay.below(size)
        assert pending.settled
        assert isinstance(pending.error, OutcomeUnknownError)


def test_what_cannot_pass_ends_it() -> None:
    """A topic that is not there; a leader that never takes anything."""
    faulty = Faulty(1)
    faulty.refusal = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert isinstance(send_all(faulty, faulty.relay()), UnknownTopicError)
    faulty = Faulty(1)
    faulty.weights = {"refused": 1}
    assert isinstance(send_all(faulty, faulty.relay()), RequestTimedOutError)
    assert [log.end_offset for log in faulty.logs] == [0, 0, 0]


def test_one_batch_of_a_partition_on_its_way() -> None:
    """However often it is polled, until the answer is there."""
    faulty = Faulty(1)
    faulty.weights = {"good": 1}
    relay = faulty.relay()
    assert send_all(faulty, relay) is True
    for number in (COUNT, COUNT + 1):
        relay.send(TopicPartition(TOPIC, 0), batch(0, number))
    for _ in range(3):
        relay.poll()
    (event,) = faulty.node.poll(0)
    assert isinstance(event, Received)
    assert isinstance(event.message, Request)
    faulty._take(event.message)
    pending = relay.below(0)
    while not pending.settled:
        faulty.turn(relay)
    assert pending.error is None
    assert values(faulty.logs[0]) == [b"0-%d" % number for number in range(2 * COUNT + 4)]


def test_each_batch_has_its_own_time() -> None:
    """A stream of which each batch is lost once takes long, and does not fail; one that nobody takes does, however
    much comes after it."""
    faulty = Faulty(1)
    relay = faulty.relay()
    for number in range(COUNT):
        relay.send(TopicPartition(TOPIC, 0), batch(0, number))
    pending = relay.below(0)
    began = faulty.clock.monotonic_ns()
    faulty.script = ["request lost", "good"] * COUNT
    while not pending.settled:
        faulty.turn(relay)
    assert pending.error is None
    assert faulty.clock.monotonic_ns() - began > 1.5 * DELIVERY_TIMEOUT_NS
    faulty.weights = {"refused": 1}
    began = faulty.clock.monotonic_ns()
    pending = relay.below(0)
    while not pending.settled and faulty.clock.monotonic_ns() - began < 1.1 * DELIVERY_TIMEOUT_NS:
        relay.send(TopicPartition(TOPIC, 0), batch(0, COUNT))
        faulty.turn(relay)
    assert isinstance(pending.error, RequestTimedOutError)


def test_pauses_begin_anew() -> None:
    """With each batch that was taken. Who has too few replicas leads still, and is not asked about."""
    faulty = Faulty(1)
    faulty.weights = {"too few have it": 1}
    relay = faulty.relay()
    relay.send(TopicPartition(TOPIC, 0), batch(0, 0))
    faulty.turn(relay)
    asked = faulty.metadata_asked
    for _ in range(9):
        faulty.turn(relay)
    assert faulty.metadata_asked == asked
    faulty.weights = {"good": 1}
    while relay.size:
        faulty.turn(relay)
    faulty.weights = {"too few have it": 1}
    relay.send(TopicPartition(TOPIC, 0), batch(0, 1))
    began = faulty.clock.monotonic_ns()
    faulty.turn(relay)
    assert faulty.clock.monotonic_ns() - began < 5 * MS
