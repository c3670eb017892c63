"""Records drawn from a seed, and clients that keep their history. Simulations and benchmarks share them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from pyreplog.client import Consumer, ConsumerConfig, Producer, ProducerConfig
from pyreplog.errors import OffsetOutOfRangeError, OutcomeUnknownError, PyreplogError
from pyreplog.ports import Address, Clock, Transport
from pyreplog.record import Ack, Record
from pyreplog.testing.options import TopicOptions
from pyreplog.values import TopicPartition

__all__ = ["Attempt", "SimConsumer", "SimProducer", "identity", "values"]

_MS: Final = 1_000_000
_ID: Final = "id"
BATCH_SIZE_MAX: Final = ProducerConfig().batch_size_max


def values(random: Random, count: int, size: int) -> Iterator[bytes]:
    """Yield ``count`` values of ``size`` random bytes each; the same seed gives the same values."""
    for _ in range(count):
        yield random.randbytes(size)


def identity(record: Record) -> bytes:
    """Return the bytes that tell a record of a simulated producer from all others: its value, or a header of a
    tombstone."""
    if record.value is not None:
        return record.value
    return next((value for name, value in record.headers if name == _ID and value is not None), b"")


@dataclass(slots=True, eq=False)
class Attempt:
    """One record that a producer tried to append. ``value`` is its :func:`identity`.

    ``outcome`` is "pending", "ok", "refused" (the record was certainly not appended) or "unknown".
    """

    producer: int
    number: int
    """Counts the records of a producer per partition, in the order of sending."""
    topic_partition: TopicPartition
    acks: int
    value: bytes
    ack: Ack
    outcome: str = "pending"
    offset: int = -1
    key: bytes | None = None
    is_tombstone: bool = False


class SimProducer:
    """A producer that sends bursts of unique records at random moments, and keeps every attempt.

    Its records go to random partitions of its topics, which must all have the same ``acks``. ``max_in_flight`` is 0
    for a producer without idempotence.
    """

    def __init__(
        self,
        number: int,
        transport: Transport,
        clock: Clock,
        random: Random,
        nodes: Sequence[Address],
        topics: Sequence[TopicOptions],
        *,
        interval_ms: int,
        burst_max: int,
        size_max: int,
        max_in_flight: int = 0,
    ) -> None:
        self.number = number
        self.address = f"producer-{number}"
        self.attempts: list[Attempt] = []
        self.sending = True
        self.settled: list[Attempt] = []
        """The attempts whose outcome became known in the last turn."""
        self._clock = clock
        self._random = random
        self._topics = topics
        self._interval_ns = interval_ms * _MS
        self._burst_max = burst_max
        self._size_max = size_max
        self._counts: dict[TopicPartition, int] = {}
        self._open: deque[Attempt] = deque()
        self._wanted: dict[TopicPartition, int] = {}
        self._next_ns = clock.monotonic_ns()
        self._acks = topics[0].acks
        # Without idempotence only one request may be in flight: with more, a network that reorders
        # messages may reorder records, which is no bug.
        idempotent = self._acks == -1 and max_in_flight > 0
        config = ProducerConfig(
            acks=self._acks,
            batch_size_max=min([BATCH_SIZE_MAX, *(one.segment_bytes // 2 for one in topics if one.compacts)]),
            max_in_flight=max_in_flight if idempotent else 1,
            enable_idempotence=idempotent,
            request_timeout_ms=1500,
            delivery_timeout_ms=4000,
        )
        self._machine = Producer(transport, clock, random, nodes, address=self.address, config=config)

    @property
    def next_wake_ns(self) -> int | None:
        """When :meth:`poll` must be called next."""
        wake = self._machine.next_wake_ns
        if not self.sending:
            return wake
        return self._next_ns if wake is None else min(wake, self._next_ns)

    @property
    def is_idle(self) -> bool:
        """Whether the outcome of every attempt is known."""
        return not self._open

    def refresh(self, topic: str) -> None:
        """Ask for a topic again, which may have more partitions."""
        self._machine.refresh(topic)

    def begin_again(self) -> None:
        """Send again, and let :meth:`wants_success` wait until a later append to each partition succeeds."""
        self.sending = True
        everywhere = [
            TopicPartition(topic.name, number) for topic in self._topics for number in range(topic.partitions)
        ]
        self._wanted = {topic_partition: self._counts.get(topic_partition, 0) for topic_partition in everywhere}

    def wants_success(self) -> TopicPartition | None:
        """Return a partition with no acknowledged append sent since :meth:`begin_again`; None if there is none."""
        return next(iter(self._wanted), None)

    def poll(self) -> None:
        """Take one turn: send a burst if it is due, then note the outcomes of earlier records."""
        machine = self._machine
        if self.sending and self._clock.monotonic_ns() >= self._next_ns:
            self._next_ns += 1 + int(self._random.random() * 2 * self._interval_ns)
            for topic in self._topics:
                try:
                    if machine.knows(topic.name):
                        self._burst(topic)
                    else:
                        machine.want(topic.name)
                except PyreplogError:
                    machine.want(topic.name)  # the topic is not created yet
        while machine.poll():
            pass
        self.settled = []
        unsettled: deque[Attempt] = deque()
        for attempt in self._open:
            if not attempt.ack.done():
                unsettled.append(attempt)
                continue
            self._settle(attempt)
            self.settled.append(attempt)
        self._open = unsettled

    def _burst(self, topic: TopicOptions) -> None:
        random = self._random
        for _ in range(random.randint(1, self._burst_max)):
            count = max(topic.partitions, self._machine.partition_count(topic.name))
            topic_partition = TopicPartition(topic.name, random.randrange(count))
            number = self._counts[topic_partition] = self._counts.get(topic_partition, 0) + 1
            padding = b"." * random.randint(0, self._size_max)
            value = b"%d:%s:%d:%s" % (self.number, str(topic_partition).encode(), number, padding)
            attempt = self._send(topic, topic_partition, number, value)
            self.attempts.append(attempt)
            self._open.append(attempt)

    def _send(self, topic: TopicOptions, topic_partition: TopicPartition, number: int, value: bytes) -> Attempt:
        """Send one record: for a topic with keys under one of them, and sometimes a tombstone."""
        random, send, partition = self._random, self._machine.send, topic_partition.partition
        if not topic.keys:
            ack = send(topic.name, value, partition=partition)
            return Attempt(self.number, number, topic_partition, self._acks, value, ack)
        key = b"k%d" % random.randrange(topic.keys)
        if random.random() < topic.tombstones:
            ack = send(topic.name, None, key=key, partition=partition, headers=[(_ID, value)])
            return Attempt(self.number, number, topic_partition, self._acks, value, ack, key=key, is_tombstone=True)
        ack = send(topic.name, value, key=key, partition=partition)
        return Attempt(self.number, number, topic_partition, self._acks, value, ack, key=key)

    def _settle(self, attempt: Attempt) -> None:
        error = attempt.ack.exception()
        if error is None:
            attempt.outcome = "ok"
            if attempt.number > self._wanted.get(attempt.topic_partition, attempt.number):
                del self._wanted[attempt.topic_partition]
            offset = attempt.ack.offset
            attempt.offset = -1 if offset is None else offset
        elif isinstance(error, OutcomeUnknownError):
            attempt.outcome = "unknown"
        else:
            attempt.outcome = "refused"


class SimConsumer:
    """A consumer that reads every partition from its beginning and keeps all records.

    ``machine_class`` is the class of its state machine.
    """

    def __init__(
        self,
        number: int,
        transport: Transport,
        clock: Clock,
        random: Random,
        nodes: Sequence[Address],
        topics: Sequence[TopicOptions],
        machine_class: type[Consumer] = Consumer,
    ) -> None:
        self.address = f"consumer-{number}"
        self.read: dict[TopicPartition, list[tuple[int, bytes]]] = defaultdict(list)
        self.fresh: list[Record] = []
        """The records that the last turn returned."""
        self.lost_position: list[OffsetOutOfRangeError] = []
        config = ConsumerConfig(auto_offset_reset="none", fetch_max_wait_ms=100, request_timeout_ms=1000)
        self._machine = machine_class(transport, clock, random, nodes, address=self.address, config=config)
        self._wanted = [
            TopicPartition(topic.name, partition) for topic in topics for partition in range(topic.partitions)
        ]
        for topic_partition in self._wanted:
            self.read[topic_partition] = []
        self._assigned = False
        self._topics = topics
        self._clock = clock
        self._retry_ns = 0

    @property
    def next_wake_ns(self) -> int | None:
        """When :meth:`poll` must be called next."""
        wake = self._machine.next_wake_ns
        if self._assigned:
            return wake
        return self._retry_ns if wake is None else min(wake, self._retry_ns)

    def refresh(self, topic: str) -> None:
        """Ask for a topic again, which may have more partitions."""
        self._machine.refresh(topic)

    def position(self, topic_partition: TopicPartition) -> int:
        """Return the offset that is read next; -1 if the consumer has not begun to read."""
        if topic_partition not in self._machine.assignment:
            return -1
        return self._machine.position(*topic_partition)

    def poll(self) -> None:
        """Take one turn: read all records that are there."""
        machine = self._machine
        self.fresh = []
        if not self._assigned:
            self._assign()
        while machine.poll():
            pass
        while machine.has_records:
            try:
                records = machine.take(1000)
            except OffsetOutOfRangeError as error:
                self.lost_position.append(error)
                continue
            except PyreplogError:
                machine.poll()  # the consumer fetches again
                continue
            for record in records:
                self.read[TopicPartition(record.topic, record.partition)].append((record.offset, identity(record)))
            self.fresh.extend(records)
            machine.poll()

    def _assign(self) -> None:
        """Once every topic exists, begin to read all partitions at offset 0."""
        machine = self._machine
        known = True
        for topic in self._topics:
            try:
                if not machine.knows(topic.name):
                    known = False
                    machine.want(topic.name)
            except PyreplogError:
                known = False
                machine.want(topic.name)
        self._retry_ns = self._clock.monotonic_ns() + 50 * _MS
        if known:
            machine.assign(self._wanted, [topic.name for topic in self._topics])
            for topic_partition in self._wanted:
                machine.seek(*topic_partition, 0)
            self._assigned = True
