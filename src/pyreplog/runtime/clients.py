"""Clients: makes the clients of a cluster over the addresses of its nodes, and closes them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from random import Random, SystemRandom
from typing import Final

from pyreplog.client import Admin as AdminMachine
from pyreplog.client import BatchForwarder, ConsumerConfig, ProducerConfig, TopicLimits
from pyreplog.client import Consumer as ConsumerMachine
from pyreplog.client import Producer as ProducerMachine
from pyreplog.config import default_min_insync_replicas
from pyreplog.errors import ClosedError, ClusterError
from pyreplog.ports import Address, Clock
from pyreplog.runtime.admin import Admin
from pyreplog.runtime.cluster_appender import ClusterAppender
from pyreplog.runtime.consumer import Consumer, Subject
from pyreplog.runtime.deserializers import NO_DESERIALIZERS, Deserializers
from pyreplog.runtime.driver import DrivenMachine, Driver
from pyreplog.runtime.error_advice import Advice
from pyreplog.runtime.node_group import NodeGroup
from pyreplog.runtime.producer import Producer
from pyreplog.runtime.send_functions import NO_FUNCTIONS, SendFunctions
from pyreplog.runtime.topic_compactor import TopicCompactor
from pyreplog.system import SystemClock, is_interruption

__all__ = ["Clients"]

REFRESH_TIMEOUT_S: Final = 5.0
"""How long a change of a topic waits until the open producers and consumers know its partitions."""
ENDS_TIMEOUT_S: Final = 10.0
"""How long a scan waits for leaders to know the ends of their partitions."""

_log = logging.getLogger("pyreplog")


class Clients:
    """The producers, consumers and the admin client of one cluster. Any thread."""

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        bootstrap: Callable[[], list[Address]],
        controllers: Callable[[], list[Address]],
        batch_limit: Callable[[str], TopicLimits],
        advice: Advice,
        path: str,
    ) -> None:
        """``bootstrap`` returns the addresses that a new client asks first, ``controllers`` those of
        the controllers. ``batch_limit`` returns the largest batch sizes of a topic. ``path`` names
        the cluster in log lines.
        """
        self._driver = driver
        self._clock = clock
        self._bootstrap = bootstrap
        self._controllers = controllers
        self._batch_limit = batch_limit
        self._advice = advice
        self._path = path
        self._random = Random(SystemRandom().getrandbits(64))
        self._numbers = itertools.count(1)
        self._producers: dict[Producer, None] = {}
        self._consumers: dict[Consumer, None] = {}
        self._admin: Admin | None = None
        #: Addresses of clients in this process whose batches were made by our own encoder.
        self.trusted: dict[Address, None] = {}

    def _address(self, kind: str) -> Address:
        return f"{kind}-{next(self._numbers)}"

    # ---------------------------------------------------------------------------------------- admin

    @property
    def admin(self) -> Admin:
        """The admin client, once :meth:`open_admin` has made it."""
        assert self._admin is not None, "opened with the cluster"
        return self._admin

    def open_admin(self, nodes: NodeGroup, compactor: TopicCompactor) -> None:
        """Make the admin client of a cluster with these nodes."""
        self._admin = Admin(
            self._driver, self._advice, self._make_admin, nodes, self._refresh, self._limit_anew, compactor
        )

    def _limit_anew(self, topic: str) -> None:
        """Let the producers build batches within the limits of a topic that was made, or deleted, just now."""

        def limit() -> None:
            for producer in self._producers:
                machine, driven = producer._current  # no thread replaces them now
                with driven.lock:
                    machine.limit(topic)

        if self._producers:
            self._driver.run_exclusively(limit)

    def _refresh(self, topic: str | None) -> None:
        """Let the producers and consumers learn that a topic (None: any) has other partitions or settings."""
        names = self._advice.topics() if topic is None else (topic,)
        faces: list[Producer | Consumer] = [*self._producers, *self._consumers]

        def ask() -> None:
            for face in faces:
                machine, driven = face._current  # no thread replaces them now
                with driven.lock:
                    for name in names:
                        machine.refresh(name)
                self._driver.mark_ready(driven)

        self._driver.run_exclusively(ask)
        if topic is None:
            return
        count = len(self.admin.describe(topic).partitions)
        self._driver.wait_until(
            lambda: all(
                not face._machine.has_heard_of(topic) or face._machine.partition_count(topic) >= count
                for face in faces
                if not face.closed
            ),
            REFRESH_TIMEOUT_S,
        )

    def waiting_bytes(self) -> int:
        """Return the bytes of the producers' batches that are not acknowledged yet. Any thread."""
        return sum(producer._machine.buffered_size for producer in list(self._producers) if not producer.closed)

    def _make_admin(self) -> tuple[AdminMachine, DrivenMachine]:
        transport = self._driver.network.endpoint()
        machine = AdminMachine(
            transport,
            self._clock,
            self._random,
            address=self._address("admin"),
            controllers=self._controllers(),
            owner=self._driver,
        )
        return machine, self._driver.add(machine, transport, lambda error: self.admin._interrupted(error))

    # ------------------------------------------------------------------------------------ producers

    def producer(self, config: ProducerConfig, functions: SendFunctions = NO_FUNCTIONS) -> Producer:
        """Open a producer."""

        def make(interrupted: Callable[[Exception | None], None]) -> tuple[ProducerMachine, DrivenMachine]:
            transport = self._driver.network.endpoint()
            address = self._address("producer")
            self.trusted[address] = None
            machine = ProducerMachine(
                transport,
                self._clock,
                self._random,
                self._bootstrap(),
                address=address,
                config=config,
                owner=self._driver,
                batch_limit=self._batch_limit,
            )

            def broken(error: Exception | None) -> None:
                self.trusted.pop(address, None)
                interrupted(error)

            return machine, self._driver.add(machine, transport, broken)

        now_ms = None if isinstance(self._clock, SystemClock) else self._clock.wall_ms
        producer = Producer(self._driver, self._advice, make, self._end_producer, self._path, functions, now_ms)
        self._producers[producer] = None
        return producer

    def _end_producer(self, producer: Producer) -> None:
        def end() -> None:
            machine, driven = producer._current  # no thread replaces them now
            with driven.lock:  # another thread may be sending
                self._driver.remove(driven)
                self.trusted.pop(driven.transport.address or "", None)
                if driven.busy:  # its last turn was interrupted
                    producer._interrupted(None)
                else:
                    machine.close()

        self._driver.run_exclusively(end)
        self._producers.pop(producer, None)

    # ------------------------------------------------------------------------------------ consumers

    def consumer(
        self,
        config: ConsumerConfig,
        topics: Subject,
        timeout: float | None,
        deserializers: Deserializers = NO_DESERIALIZERS,
    ) -> Consumer:
        """Open a consumer of ``topics``; wait up to ``timeout`` seconds for their metadata."""

        def make(interrupted: Callable[[Exception | None], None]) -> tuple[ConsumerMachine, DrivenMachine]:
            transport = self._driver.network.endpoint()
            machine = ConsumerMachine(
                transport,
                self._clock,
                self._random,
                self._bootstrap(),
                address=self._address("consumer"),
                config=config,
                owner=self._driver,
            )
            return machine, self._driver.add(machine, transport, interrupted)

        consumer = Consumer(self._driver, self._advice, make, self._end_consumer, topics, timeout, deserializers)
        self._consumers[consumer] = None
        return consumer

    def _end_consumer(self, consumer: Consumer) -> None:
        def end() -> None:
            machine, driven = consumer._current  # no thread replaces them now
            with driven.lock:  # another thread may be about to wait
                self._driver.remove(driven)
                machine.close()

        self._driver.run_exclusively(end)
        self._consumers.pop(consumer, None)

    def await_ends(self, topic: str) -> None:
        """Wait until the leaders of ``topic`` know where its partitions end.

        A new leader knows that only after its high watermark has reached its first own offset
        (KIP-207). Partitions without a leader, or with too few in-sync replicas, are skipped,
        because nothing new is committed there. While no majority of the voters is up, no controller
        answers, and nothing is waited for.
        """
        lack = self._driver.lack()
        if lack is not None:
            _log.warning("scan of %r: %s; reading the records that were committed before", topic, lack)
            return
        description = self.admin.describe(topic)
        minimum = description.config.get("min.insync.replicas")
        left_s = _countdown(self._driver.monotonic_ns, ENDS_TIMEOUT_S)
        with self.consumer(ConsumerConfig(), (), ENDS_TIMEOUT_S) as consumer:
            for part in description.partitions:
                needed = int(minimum or default_min_insync_replicas(len(part.replicas)))
                if part.leader < 0 or len(part.isr) < min(needed, len(part.replicas)):
                    continue
                try:
                    consumer.end_offset(topic, part.partition, timeout=left_s())
                except (ClusterError, TimeoutError) as error:
                    if is_interruption(error):
                        raise
                    _log.warning(
                        "scan of %s-%d: its end is not known yet (%s); reading the records that were committed before",
                        topic,
                        part.partition,
                        error,
                    )

    # ------------------------------------------------------------------------------- staged batches

    def appender(self, stopping: Callable[[], bool]) -> ClusterAppender:
        """Return an appender of batches that other processes staged. ``stopping`` says when to give
        up.
        """
        return ClusterAppender(self.admin, self._driver, self._make_forwarder, stopping, self._clock)

    def _make_forwarder(self, broken: Callable[[Exception | None], None]) -> tuple[BatchForwarder, DrivenMachine]:
        def make() -> tuple[BatchForwarder, DrivenMachine]:
            transport = self._driver.network.endpoint()
            machine = BatchForwarder(
                transport,
                self._clock,
                self._random,
                self._bootstrap(),
                address=self._address("relay"),
                owner=self._driver,
            )
            return machine, self._driver.add(machine, transport, broken)

        return self._driver.run_exclusively(make)

    # -------------------------------------------------------------------------------------- the end

    def close(self, timeout: float | None) -> None:
        """Send the producers' buffered records, for up to ``timeout`` seconds in all (None: no
        limit), and close all clients.
        """
        left_s = None if timeout is None else _countdown(self._driver.monotonic_ns, timeout)
        for producer in list(self._producers):
            try:
                producer.close(None if left_s is None else left_s())
            except (TimeoutError, ClosedError) as error:  # ClosedError: an earlier close was interrupted
                if is_interruption(error):
                    raise
                _log.warning("closing the cluster with records that were not acknowledged")
        for consumer in list(self._consumers):
            consumer.close()


def _countdown(monotonic_ns: Callable[[], int], seconds: float) -> Callable[[], float]:
    """Return a function that returns how many of ``seconds`` from now are left."""
    began_ns = monotonic_ns()
    return lambda: max(seconds - (monotonic_ns() - began_ns) / 1e9, 0.0)
