"""Relay: sends encoded batches, which carry their own producer id and sequence, to the leaders of
their partitions, each until it is in the log.

It serves batches from another encoder (:mod:`pyreplog.spool`). One batch of a partition is in
flight at a time, so they stay in order. A batch with an unknown outcome is sent again, and the
leader recognises it. A leader remembers only the last five batches of a producer. OUT_OF_ORDER may
therefore mean "older, and already in the log". It does if a later batch is then accepted or
reported as a duplicate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from pyreplog.client.calls import RequestTracker
from pyreplog.client.outcome import Completion, Owner
from pyreplog.client.refusals import NOT_APPENDED, UNKNOWN
from pyreplog.client.router import Router, backoff_ns
from pyreplog.errors import ClosedError, PyreplogError, RequestTimedOutError, cluster_error
from pyreplog.ports import Address, Clock, Random, Transport
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    NO_ERROR,
    ErrorCode,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

__all__ = ["BatchForwarder"]

ACKS_ALL: Final = -1
REQUEST_TIMEOUT_MS: Final = 10_000
DELIVERY_TIMEOUT_NS: Final = 60_000_000_000
"""If no node accepts a batch for this long, it fails, and with it the whole relay."""

_AGAIN: Final = NOT_APPENDED | UNKNOWN
_OLDER: Final = frozenset({ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})
"""The batch is older than the remembered ones; or, if no later batch is accepted, an earlier one is
lost."""
_STAY: Final = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""Answers after which the same node still leads."""


class _Queue:
    """The batches of one partition. ``passed``: the last one was out of order."""

    __slots__ = ("batches", "failures", "in_flight", "key", "passed", "paused_until_ns", "since_ns")

    def __init__(self, key: TopicPartition) -> None:
        self.key = key
        self.batches: deque[bytes] = deque()
        self.in_flight = False
        self.passed: PyreplogError | None = None
        self.failures = 0
        self.paused_until_ns = 0
        self.since_ns = 0


class BatchForwarder:
    """Sends batches. One owner (the runtime locks it); ``poll`` never waits."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        random: Random,
        bootstrap: Sequence[Address],
        *,
        address: Address,
        owner: Owner | None = None,
    ) -> None:
        """Listen at ``address`` on ``transport``; ask the ``bootstrap`` nodes first.

        ``owner`` waits for the results of :meth:`below`.
        """
        self._now_ns = clock.monotonic_ns
        self._random = random
        self._owner = owner
        self._calls = RequestTracker(transport, clock, address, REQUEST_TIMEOUT_MS)
        self._router = Router(self._calls, clock, random, bootstrap)
        self._queues: dict[TopicPartition, _Queue] = {}
        self._waiting: list[tuple[int, Completion]] = []
        self._failure: PyreplogError | None = None
        self._retry_ns: int | None = None
        self.size = 0
        """The bytes that are not known to be in the log."""

    # -------------------------------------------------------------------------------------- sending

    def send(self, key: TopicPartition, data: bytes) -> None:
        """Queue one batch. It is never changed, because a leader makes its own copy."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(key)
        if not queue.batches:
            queue.since_ns = self._now_ns()
        queue.batches.append(data)
        self.size += len(data)

    def below(self, size: int) -> Completion:
        """Return a Pending that settles once at most ``size`` bytes are unacknowledged.

        It fails with the first failure; with ``size`` 0 also if the log lost batches.
        """
        pending = Completion(self._owner)
        if self._failure is not None:
            pending.fail(self._failure)  # a closed relay is no longer polled
        else:
            self._waiting.append((size, pending))
        return pending

    # ------------------------------------------------------------------------------------- the loop

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which :meth:`poll` must run even if no message arrives."""
        wakes = [at for at in (self._calls.next_wake_ns, self._router.next_wake_ns, self._retry_ns) if at is not None]
        return min(wakes, default=None)

    def poll(self, timeout_ns: int = 0) -> bool:
        """Receive answers, send ready batches and release waiters; return whether there was work.

        It never waits; ``timeout_ns`` only makes all ``poll`` methods alike.
        """
        happened = self._calls.poll()
        if self._failure is None and self.size:
            happened = self._send_ready() or happened
        if self._waiting:
            self._tell()
        return self._router.poll() or happened

    def _send_ready(self) -> bool:
        now = self._now_ns()
        requests: dict[int, list[_Queue]] = {}
        self._retry_ns = None
        for queue in self._queues.values():
            if not queue.batches or queue.in_flight:
                continue
            if now - queue.since_ns > DELIVERY_TIMEOUT_NS:
                self._failure = RequestTimedOutError(f"{queue.key} accepted no batch in time")
                return True
            if queue.paused_until_ns > now:
                self._wake_at(queue.paused_until_ns)
                continue
            node = self._leader(queue.key)
            if node < 0:
                self._wake_at(queue.since_ns + DELIVERY_TIMEOUT_NS + 1)
                if self._failure is not None:
                    return True
            else:
                requests.setdefault(node, []).append(queue)
        for node, queues in requests.items():
            self._send_request(node, queues)
        return bool(requests)

    def _leader(self, key: TopicPartition) -> int:
        """Return the node that leads ``key``; -1: not known now, and asked for."""
        refusal = self._router.refusal(key.topic)
        if refusal is not None:
            self._failure = refusal
            return -1
        route = self._router.topic(key.topic)
        if route is None or key.partition >= len(route.leaders) or route.leaders[key.partition] < 0:
            self._router.want(key.topic)
            return -1
        return route.leaders[key.partition]

    def _wake_at(self, at_ns: int) -> None:
        self._retry_ns = at_ns if self._retry_ns is None else min(self._retry_ns, at_ns)

    def _send_request(self, node: int, queues: list[_Queue]) -> None:
        topics: dict[str, list[PartitionProduceData]] = {}
        for queue in queues:
            topics.setdefault(self._topic_id(queue.key.topic), []).append(
                PartitionProduceData(queue.key.partition, queue.batches[0])
            )
        parts = [TopicProduceData(topic_id, data) for topic_id, data in topics.items()]
        peer = self._router.address(node)
        body = ProduceRequest(ACKS_ALL, REQUEST_TIMEOUT_MS, parts)
        if peer is not None and self._calls.send(peer, body, lambda answer: self._answered(node, queues, answer)):
            for queue in queues:
                queue.in_flight = True
        else:
            for queue in queues:
                self._again(queue, node, ErrorCode.LEADER_NOT_AVAILABLE)

    def _topic_id(self, topic: str) -> str:
        return self._router.topics[topic].topic_id

    # -------------------------------------------------------------------------------------- answers

    def _answered(self, node: int, queues: list[_Queue], answer: ProduceResponse | None) -> None:
        results = self._router.produced(answer)
        for queue in queues:
            queue.in_flight = False
            if self._failure is not None:
                continue
            result = results.get((queue.key.topic, queue.key.partition))
            code = ErrorCode.REQUEST_TIMED_OUT if result is None else result.error_code
            if code == NO_ERROR:
                self._done(queue, None)
            elif code in _OLDER:
                self._done(queue, cluster_error(code, str(queue.key)))
            elif code in _AGAIN:
                self._again(queue, node, code)
            else:
                details = "" if result is None else result.error_message or ""
                self._failure = cluster_error(code, details or str(queue.key))

    def _done(self, queue: _Queue, passed: PyreplogError | None) -> None:
        self.size -= len(queue.batches.popleft())
        queue.passed = passed
        queue.failures = 0
        queue.since_ns = self._now_ns()

    def _again(self, queue: _Queue, node: int, code: int) -> None:
        queue.failures += 1
        queue.paused_until_ns = self._now_ns() + backoff_ns(queue.failures, self._random)
        self._wake_at(queue.paused_until_ns)
        if code not in _STAY:
            self._router.stale_leader(queue.key.topic, queue.key.partition, node)

    def _tell(self) -> None:
        still: list[tuple[int, Completion]] = []
        for size, pending in self._waiting:
            error = self._failure
            if error is None and size == 0 and self.size == 0:
                error = next((queue.passed for queue in self._queues.values() if queue.passed is not None), None)
            if error is not None:
                pending.fail(error)
            elif self.size <= size:
                pending.settle()
            else:
                still.append((size, pending))
        self._waiting = still

    # -------------------------------------------------------------------------------------- the end

    def close(self, error: PyreplogError | None = None) -> None:
        """End the relay. Waiters get an error: the batches in flight may be in the log or not."""
        self._failure = self._failure or error or ClosedError("the relay was closed")
        self._calls.close()
        self._tell()
