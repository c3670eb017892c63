"""Producer: sends records to the leaders of their partitions. A polled machine over a Transport,
for which the runtime has a blocking interface.

* While batches are in flight the next records are collected, so batches grow with the load. There
  is no other lingering.
* A refusal that proves that nothing was appended is retried, with growing pauses, until the
  delivery timeout.
* An idempotent producer (the default with acks=all) also sends a batch again that may have been
  appended. Leaders recognise it by its sequence numbers, and answer with the offsets of the first
  append. The outcome is unknown only if no leader answers before the delivery timeout.
* A producer that is not idempotent never sends such a batch again: its outcome is unknown.
* In each partition the log has the records in the order of ``send``. Without sequence numbers, if
  a batch is refused and a later one already in flight is not, the refused batch fails;
  ``max_in_flight=1`` avoids this, and is required if the transport reorders messages.

Source: Kafka's ``Sender``, ``TransactionManager`` (KIP-98; KIP-360: only the partition that needs
it gets a new epoch, when none of its batches is in flight) and ``RecordAccumulator``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final, SupportsIndex

from pyreplog.client.accumulator import PartitionQueue, ProducerBatch, Sequencer, UnackedBatches
from pyreplog.client.acks import Acks, Run
from pyreplog.client.calls import RequestTracker
from pyreplog.client.failures import Failures
from pyreplog.client.outcome import BatchResult, Owner
from pyreplog.client.producer_config import ProducerConfig
from pyreplog.client.producer_id import ProducerId
from pyreplog.client.refusals import (
    NOT_APPENDED,
    UNKNOWN,
    given_up,
    no_leader,
    not_appended,
    outcome_unknown,
    refused_with,
    too_late,
)
from pyreplog.client.retries import tell_retry
from pyreplog.client.router import Router, backoff_ns
from pyreplog.client.timed_batches import TimedBatches
from pyreplog.client.topic_limits import TopicLimits
from pyreplog.client.topic_queues import TopicQueues, check_lengths
from pyreplog.errors import (
    ClosedError,
    LeaderNotAvailableError,
    PyreplogError,
    UnknownTopicError,
    cluster_error,
)
from pyreplog.ports import Address, Buffer, Clock, Headers, Random, Transport
from pyreplog.record import Ack, stamp
from pyreplog.wire import (
    NO_ERROR,
    ErrorCode,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

__all__ = ["Producer"]

_MISSING: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""Answers that prove that a batch before this one is not in the log."""
_MISLED: Final = NOT_APPENDED - {ErrorCode.NOT_ENOUGH_REPLICAS}
"""Refusals after which another node may lead."""
_NO_ANSWER: Final = "the node gave no answer"


class Producer:
    """Sends records. One owner (the runtime's interfaces lock it); ``poll`` never waits.

    For a simulation: create ``Producer(transport, clock, random, ["node-1"], address="client-1",
    config=ProducerConfig(max_in_flight=1))``, call ``want(topic)``, ``poll`` until
    ``knows(topic)``, then ``send``, and look at ``ack.done()``.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        random: Random,
        bootstrap: Sequence[Address],
        *,
        address: Address,
        config: ProducerConfig | None = None,
        owner: Owner | None = None,
        batch_limit: Callable[[str], TopicLimits] | None = None,
    ) -> None:
        """Listen at ``address`` on ``transport``; ask the ``bootstrap`` nodes first.

        ``owner`` waits for acks; None if acks are not waited for. ``batch_limit`` returns the limits of a topic, if
        they are known. They count also where the settings allow larger batches of several records, or only smaller
        single records.
        """
        self.config = ProducerConfig() if config is None else config
        self._clock = clock
        self._now_ns = clock.monotonic_ns
        self._random = random
        self._owner = owner
        self._batch_limit = batch_limit
        self._calls = RequestTracker(transport, clock, address, self.config.request_timeout_ms)
        self._router = Router(self._calls, clock, random, bootstrap)
        self._routes = self._router.topics
        self.topics: dict[str, TopicQueues] = {}
        self._active: dict[tuple[str, int], PartitionQueue] = {}  # with work to do
        self._in_flight: dict[int, int] = {}  # requests by node
        self._ledger = UnackedBatches()
        self._timed = TimedBatches()
        self.failures = Failures()
        self._retry_ns: int | None = None
        self._refresh_ns = clock.monotonic_ns() + self.config.metadata_max_age_ms * 1_000_000
        self._closed = False
        self._is_idempotent = self.config.is_idempotent
        self._producer_id = ProducerId(self._calls, self._router, random, self._now_ns)

    # --------------------------------------------------------------------------------------- topics

    def knows(self, topic: str) -> bool:
        """Return whether records can be sent to the topic.

        Raises the refusal if the cluster answered that there is no such topic.
        """
        return self._router.knows(topic)

    def has_heard_of(self, topic: str) -> bool:
        """Return the same as :meth:`knows`, without raising."""
        return self._router.topic(topic) is not None

    def want(self, topic: str) -> None:
        """Ask the cluster for the topic, unless it is known."""
        if not self.has_heard_of(topic):
            self._router.want(topic)

    def refresh(self, topic: str) -> None:
        """Ask for a topic again that changed: it may have more partitions, or other limits."""
        if self._router.topic(topic) is not None:
            self._router.want(topic)
        self.limit(topic)

    def limit(self, topic: str) -> None:
        """Build the next batches within the present limits of a topic."""
        queues = self.topics.get(topic)
        for queue in () if queues is None else queues.queues:
            queue.limit(self.limits(topic))

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic. REQUIRES :meth:`knows`."""
        return len(self._routes[topic].leaders)

    # -------------------------------------------------------------------------------------- sending

    def send(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        partition: SupportsIndex | None = None,
        headers: Headers = (),
        timestamp: SupportsIndex | datetime | None = None,
    ) -> Ack:
        """Queue one record. REQUIRES :meth:`knows`.

        The record goes to ``partition`` if given, else to the partition of its ``key`` by Kafka's
        murmur2. Records without key go to a partition that changes with every batch. ``timestamp``
        is in ms, or an aware datetime (default: now).
        """
        queues = self._queues_of(topic)
        if partition is None:
            partition = queues.sticky() if key is None else queues.partition_of(key)
        queue = queues.queue(partition)
        # First: a signal handler that interrupts here must not leave a record in an inactive queue.
        self._active[topic, queue.partition] = queue
        outcome, index = queue.append(
            value, key, headers, self._clock.wall_ms() if timestamp is None else timestamp, self._now_ns
        )
        return Ack(outcome, index)

    def send_many(
        self,
        topic: str,
        values: Sequence[Buffer | None],
        *,
        keys: Sequence[Buffer | None] | None = None,
        partition: SupportsIndex | list[int] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps: Sequence[int | datetime] | None = None,
    ) -> Acks:
        """Queue many records, each as :meth:`send` would. REQUIRES :meth:`knows`.

        ``keys``, ``headers`` and ``timestamps``, if given, must be as long as ``values``, and so
        must a list of partitions. If one record is refused, none is queued.
        """
        check_lengths(len(values), keys=keys, headers=headers, timestamps=timestamps)
        queues = self._queues_of(topic)
        queues.queues[0].check(values, keys, headers, timestamps)
        stamp_ms = self._clock.wall_ms()
        groups: dict[int, list[int]] | None = None
        if isinstance(partition, list):
            groups = queues.by_number(partition)
        elif keys is not None and partition is None:
            groups = queues.by_partition(keys)
        if groups is not None:
            return queues.spread(groups, values, keys, headers, timestamps, stamp_ms, self._now_ns, self._active)
        assert not isinstance(partition, list), "a list of partitions is spread"
        runs: list[Run] = []
        taken = 0
        while taken < len(values):
            queue = queues.queue(partition if partition is not None else queues.sticky())
            self._active[topic, queue.partition] = queue  # as in send
            run, taken = queue.extend(values, keys, headers, timestamps, stamp_ms, taken, self._now_ns())
            runs.append(run)
        return Acks(runs)

    def send_apart(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        partition: SupportsIndex | None = None,
        headers: Headers = (),
        timestamp: SupportsIndex | datetime | None = None,
        acks: int | None = None,
        timeout_ns: int | None = None,
    ) -> tuple[BatchResult, int]:
        """Queue one record as :meth:`send` does; return (its batch, its index there).

        With ``acks`` (None: the producer's) or ``timeout_ns`` (None: none of its own) the record is
        alone in its batch, behind all earlier records of its partition. When ``timeout_ns`` passes
        before its answer, it fails if it was not sent, and its outcome is unknown if it was.
        """
        queue = self._queues_of(topic).queue_for(key, partition)
        self._active[topic, queue.partition] = queue  # as in send
        stamp_ms = self._clock.wall_ms() if timestamp is None else timestamp
        if acks is None and timeout_ns is None:  # the caller needs the place alone
            return queue.append(value, key, headers, stamp_ms, self._now_ns)
        queue.seal()
        outcome, index = queue.append(value, key, headers, stamp_ms, self._now_ns)
        queue.seal()
        self._timed.set(queue, queue.ready[-1], acks, None if timeout_ns is None else self._now_ns() + timeout_ns)
        return outcome, index

    def _queues_of(self, topic: str) -> TopicQueues:
        if self._closed:
            raise ClosedError("the producer is closed")
        queues = self.topics.get(topic)
        if queues is None:
            queues = self.topics[topic] = TopicQueues(topic, self._routes, self._random)
        count = len(self._routes[topic].leaders)
        if len(queues.queues) != count:
            queues.resize(count, partial(self._new_queue, topic))
        return queues

    def limits(self, topic: str) -> TopicLimits:
        """Return the limits of batches for ``topic``."""
        return self.config.limits(None if self._batch_limit is None else self._batch_limit(topic))

    def _new_queue(self, topic: str, partition: int) -> PartitionQueue:
        limits, timeout_ms = self.limits(topic), self.config.delivery_timeout_ms
        queue = PartitionQueue(self._owner, self._ledger, topic, partition, limits, timeout_ms)
        if self._is_idempotent:
            queue.sequencer = Sequencer()
            if self._producer_id.value >= 0:
                queue.sequencer.begin(self._producer_id.value)
        return queue

    # ------------------------------------------------------------------------------------- the loop

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`poll` must run even if no message arrives."""
        wake = self._retry_ns if self._active else None
        if self._timed.entries:
            late_ns = self._timed.next_ns
            wake = late_ns if wake is None else min(wake, late_ns)
        for _, _, until_ns in self._calls.open.values():
            if wake is None or until_ns < wake:
                wake = until_ns
            break
        router = self._router
        if router.wanted or router.asking is not None:
            at = router.next_wake_ns
            if at is not None and (wake is None or at < wake):
                wake = at
        return wake

    @property
    def is_idle(self) -> bool:
        """Whether all sent records are settled."""
        return not self._ledger.outcomes()

    @property
    def buffered_size(self) -> int:
        """The bytes of sealed batches that are not settled."""
        return self._ledger.size

    def unsettled(self) -> list[BatchResult]:
        """Return the batches that are not settled, oldest first."""
        return self._ledger.outcomes()

    def abandon(self, error: PyreplogError) -> None:
        """Settle everything with ``error``, because this machine was interrupted half-way and is
        unusable."""
        self._closed = True
        for outcome in self.unsettled():
            if outcome.settled:  # the interrupted turn had settled it
                continue
            stamps = outcome.timestamps
            self.failures.note(outcome, 1 if isinstance(stamps, int) else max(len(stamps), 1))
            outcome.fail(error)

    def poll(self, timeout_ns: int = 0) -> bool:
        """Receive answers and send the batches that are ready; return whether there was work.

        It never waits; ``timeout_ns`` only makes all ``poll`` methods alike.
        """
        happened = self._calls.poll()
        if self._timed.entries:
            self._end_late()
        while self._active and self._send_ready():
            happened = True
        router = self._router
        if router.wanted or router.asking is not None:
            happened = router.poll() or happened
        return happened

    def _send_ready(self) -> bool:
        now = self._now_ns()
        if now >= self._refresh_ns:
            self._refresh_ns = now + self.config.metadata_max_age_ms * 1_000_000
            for topic in self.topics:
                self._router.want(topic)
        requests: dict[tuple[int, int], list[tuple[PartitionQueue, ProducerBatch]]] = {}
        retry: int | None = None
        for key, queue in list(self._active.items()):
            if queue.refused:
                for overtaken in queue.settle_refused():
                    assert overtaken.error is not None, "a refused batch keeps its refusal"
                    self._fail(overtaken, overtaken.error)
                if queue.in_flight:
                    continue
            leaders = self._routes[queue.topic].leaders
            if queue.partition >= len(leaders):
                self._lose(queue, len(leaders))
            if queue.open is None and not queue.ready:
                del self._active[key]
                continue
            sequencer = queue.sequencer
            node = -1
            if queue.paused_until_ns <= now and (
                sequencer is None or sequencer.producer_id >= 0 or self._producer_id.begin(queue, sequencer, now)
            ):
                node = leaders[queue.partition]
                if node < 0:
                    self._router.want(queue.topic)
            if node < 0:
                at = self._expire(queue, now)
                if at is None:  # the queue is empty
                    del self._active[key]
                else:
                    retry = at if retry is None else min(retry, at)
                continue
            if self._in_flight.get(node, 0) >= self.config.max_in_flight:
                continue
            if sequencer is not None and (queue.batches_in_flight or sequencer.broken) and not queue.may_send():
                if sequencer.producer_id < 0:
                    retry = now
                continue
            batch = queue.take()
            if batch is not None:
                queue.number(batch)
                acks = self.config.acks if batch.acks is None else batch.acks
                requests.setdefault((node, acks), []).append((queue, batch))
            if queue.open is None and not queue.ready:
                del self._active[key]
        self._retry_ns = retry
        for (node, acks), entries in requests.items():
            self._send_request(node, acks, entries)
        return bool(requests)

    def _end_late(self) -> None:
        """Fail the batches whose own timeout has passed."""
        for queue, batch in self._timed.take_late(self._now_ns()):
            self._fail(batch, too_late(queue, batch, is_in_flight=not queue.withdraw(batch)))

    def _lose(self, queue: PartitionQueue, count: int) -> None:
        """Fail the batches of a partition that no longer exists.

        Its topic was re-created with ``count`` partitions.
        """
        for batch in queue.drain():
            gone = UnknownTopicError(
                f"{queue.topic!r} has partitions 0 to {count - 1} since it was re-created, not {queue.partition}"
            )
            self._fail(batch, refused_with(queue, batch, gone))

    def _wake_at(self, at_ns: int) -> None:
        if self._retry_ns is None or at_ns < self._retry_ns:
            self._retry_ns = at_ns

    def _expire(self, queue: PartitionQueue, now: int) -> int | None:
        """Fail the batches that waited too long; return the time to look again."""
        while (until := queue.deadline_ns) is not None and until <= now:
            late = queue.take()
            if late is None:
                break
            error = late.error or self._producer_id.refusal
            if error is None or isinstance(error, LeaderNotAvailableError):
                error = no_leader(queue, error)
            else:
                error = not_appended(error)
            self._fail(late, refused_with(queue, late, error))
        if until is None:
            return None
        if self._producer_id.retry_ns > now:
            until = min(until, self._producer_id.retry_ns)
        return min(until, queue.paused_until_ns) if queue.paused_until_ns > now else until

    def _send_request(self, node: int, acks: int, entries: list[tuple[PartitionQueue, ProducerBatch]]) -> None:
        topics: dict[str, list[PartitionProduceData]] = {}
        parts: list[TopicProduceData] = []
        for queue, batch in entries:
            assert batch.data is not None, "a batch is sent by one request at a time"
            data = PartitionProduceData(queue.partition, batch.data)
            topic_id = self._routes[queue.topic].topic_id
            if topic_id in topics:
                topics[topic_id].append(data)
            else:
                topics[topic_id] = [data]
                parts.append(TopicProduceData(topic_id, topics[topic_id]))
        body = ProduceRequest(acks, self.config.request_timeout_ms, parts)
        peer = self._router.addresses.get(node)
        if acks == 0:
            sent = peer is not None and self._calls.send_oneway(peer, body)
        else:
            sent = peer is not None and self._calls.send(peer, body, partial(self._answered, node, entries))
        if not sent:
            for queue, batch in entries:
                queue.batches_in_flight.pop(batch.sequence, None)
                self._refuse(queue, batch, ErrorCode.LEADER_NOT_AVAILABLE, node)
            return
        if acks == 0:
            for queue, batch in entries:
                queue.batches_in_flight.pop(batch.sequence, None)
                queue.passed = max(queue.passed, batch.sequence)
                batch.data = None
                batch.outcome.succeed(-1, -1)
                self._ledger.close(batch.outcome)
        else:
            self._in_flight[node] = self._in_flight.get(node, 0) + 1
            for queue, _ in entries:
                queue.in_flight += 1

    # -------------------------------------------------------------------------------------- answers

    def _answered(
        self, node: int, entries: list[tuple[PartitionQueue, ProducerBatch]], answer: ProduceResponse | None
    ) -> None:
        self._in_flight[node] -= 1
        results = self._router.produced(answer)
        for queue, batch in entries:
            queue.in_flight -= 1
            queue.batches_in_flight.pop(batch.sequence, None)
            if batch.outcome.settled:  # its own timeout passed before this answer
                queue.passed = max(queue.passed, batch.sequence)
                continue
            route = self._routes[queue.topic]
            result = results.get((queue.topic, queue.partition))
            if result is not None and result.error_code == NO_ERROR:
                if batch.sequence > queue.passed:
                    queue.passed = batch.sequence
                batch.data = None
                epoch = (
                    route.epochs[queue.partition] if queue.partition < len(route.epochs) else -1
                )  # re-created with fewer
                batch.outcome.succeed(result.base_offset, epoch, result.log_append_time_ms)
                self._ledger.close(batch.outcome)
            else:
                self._not_done(queue, batch, node, result)

    def _not_done(
        self, queue: PartitionQueue, batch: ProducerBatch, node: int, result: PartitionProduceResponse | None
    ) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if result is None else result.error_code
        details = "" if result is None else result.error_message or ""
        if code in NOT_APPENDED:
            self._refuse(queue, batch, code, node, details)
            return
        if queue.sequencer is not None and self._resolve(
            queue, batch, code, node, details, answered=result is not None
        ):
            return
        if code in UNKNOWN:
            queue.passed = max(queue.passed, batch.sequence)
            reason = _NO_ANSWER if result is None else str(cluster_error(code, details))
            self._fail(batch, outcome_unknown(queue, batch, reason))
            if result is None:
                self._router.stale_leader(queue.topic, queue.partition, node)
        else:
            error = cluster_error(code, details or f"{batch.count} records for {queue.topic}-{queue.partition}")
            self._fail(batch, refused_with(queue, batch, error))

    def _resolve(
        self, queue: PartitionQueue, batch: ProducerBatch, code: int, node: int, details: str, *, answered: bool
    ) -> bool:
        """Handle the answer to a numbered batch.

        Return False if the answer means the same as for a batch without numbers.
        """
        assert queue.sequencer is not None
        if code in UNKNOWN:
            # Send it again: a leader that has the batch reports a duplicate. Send a copy, because
            # the leader that may have the batch keeps the memory.
            assert batch.data is not None
            batch.data = memoryview(bytearray(batch.data))
            batch.unsure = True
            self._refuse(queue, batch, code, node, details or ("" if answered else _NO_ANSWER))
            if not answered:
                self._router.stale_leader(queue.topic, queue.partition, node)
            return True
        if code in _MISSING:
            if queue.is_first(batch):
                if code == ErrorCode.UNKNOWN_PRODUCER_ID and batch.unsure:
                    return False  # it may have been appended and deleted
                # No earlier batch is open and the log ends before this one, so it was not appended.
                # It begins a new epoch.
                batch.unsure = False
                queue.sequencer.broken = True
            self._refuse(queue, batch, code, node, details)
            return True
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            if not batch.unsure:
                # Every sending was refused. Either a leader without state of this producer accepted
                # a later batch, or the network delivered a message twice.
                self._fail(batch, outcome_unknown(queue, batch, str(cluster_error(code, details))))
                return True
            batch.data = None
            batch.outcome.succeed(-1, -1)
            self._ledger.close(batch.outcome)
            return True
        return False

    def _refuse(self, queue: PartitionQueue, batch: ProducerBatch, code: int, node: int, details: str = "") -> None:
        """Keep the batch, to be sent again after a pause.

        REQUIRES that it was not appended, or that it has sequence numbers."""
        now = self._now_ns()
        batch.failures += 1
        batch.error = batch.outcome.refusal = cluster_error(code, details or f"{queue.topic}-{queue.partition}")
        if code in _MISLED:
            self._router.stale_leader(queue.topic, queue.partition, node)
        if now >= batch.deadline_ns:
            self._fail(batch, refused_with(queue, batch, not_appended(batch.error)))
            return
        assert batch.data is not None
        stamp(batch.data, 0, -1)  # the leader may have written offset and epoch before it refused
        queue.refused.append(batch)
        queue.paused_until_ns = now + backoff_ns(batch.failures, self._random)
        self._active[queue.topic, queue.partition] = queue
        self._wake_at(queue.paused_until_ns)
        tell_retry(
            "%s-%d: node %d refused records, which are sent again: %s", queue.topic, queue.partition, node, batch.error
        )

    def _fail(self, batch: ProducerBatch, error: BaseException) -> None:
        batch.data = None
        self.failures.note(batch.outcome, batch.count)
        batch.outcome.fail(error)
        self._ledger.close(batch.outcome)

    # -------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        """Give up all unsettled batches.

        Unsent ones fail with ClosedError; the outcome of those in flight is unknown.
        """
        if self._closed:
            return
        self._closed = True
        for queue in list(self._active.values()):
            for batch in queue.drain():
                self._give_up(queue, batch, "the producer was closed before this was sent; nothing was appended")
        self._calls.close()
        for queue in list(self._active.values()):
            for batch in queue.drain():
                self._give_up(queue, batch, "the producer was closed; nothing was appended")
        self._active.clear()

    def _give_up(self, queue: PartitionQueue, batch: ProducerBatch, text: str) -> None:
        self._fail(batch, given_up(queue, batch, text))
