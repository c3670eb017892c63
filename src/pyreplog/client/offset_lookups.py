"""Look-ups of offsets by time (ListOffsets), each at the leader of its partition and repeated until
that leader answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyreplog.client.calls import RequestTracker
from pyreplog.client.outcome import Completion, Owner
from pyreplog.client.router import Router, backoff_ns
from pyreplog.errors import CorruptError, PyreplogError, UnknownTopicError, cluster_error
from pyreplog.ports import Random
from pyreplog.wire import (
    NO_ERROR,
    ErrorCode,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = ["PASSING", "OffsetAnswer", "OffsetLookups"]

PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Refusals after which the consumer asks for the leader again and retries."""
BACKOFFS_REFUSED: Final = 2
"""After a refusal, the pause is as long as after this many failures."""


class OffsetAnswer(Completion):
    """An offset looked up by time.

    ``offset`` is set once settled without error; -1 if no record is that late.
    """

    __slots__ = ("forgotten", "offset", "partition", "timestamp", "topic")

    def __init__(self, owner: Owner | None, topic: str, partition: int, timestamp: int) -> None:
        super().__init__(owner)
        self.topic = topic
        self.partition = partition
        self.timestamp = timestamp
        self.offset = -1
        self.forgotten = False
        """Whether the caller gave up waiting for it."""

    def answer(self, offset: int) -> None:
        """Settle with ``offset``."""
        self.offset = offset
        self._finish()


class OffsetLookups:
    """The look-ups of one consumer. :meth:`ask` sends those that are due."""

    def __init__(
        self,
        calls: RequestTracker,
        router: Router,
        random: Random,
        now_ns: Callable[[], int],
        owner: Owner | None,
    ) -> None:
        self._calls = calls
        self._router = router
        self._random = random
        self._now_ns = now_ns
        self._owner = owner
        self.unsent: list[OffsetAnswer] = []
        self._unsettled: list[OffsetAnswer] = []
        """The unsettled look-ups, sent or not. An interrupted look-up is still in this list."""
        self._retry_ns = 0
        self.next_wake_ns: int | None = None
        """The time at which :meth:`ask` must run even if no message arrives."""
        self._closed = False

    def start(self, topic: str, partition: int, timestamp: int) -> OffsetAnswer:
        """Look up the offset of the first record at or after ``timestamp``."""
        answer = OffsetAnswer(self._owner, topic, partition, timestamp)
        if self._closed:
            answer.fail(_closed_error())
            return answer
        self._unsettled = [other for other in self._unsettled if not (other.settled or other.forgotten)]
        self._unsettled.append(answer)
        self.unsent.append(answer)
        return answer

    def forget(self, answer: OffsetAnswer) -> None:
        """Stop a look-up, because its caller gave up."""
        answer.forgotten = True
        if answer in self.unsent:
            self.unsent.remove(answer)

    def ask(self, now: int) -> bool:
        """Send the look-ups whose leader is known; return whether any was sent."""
        asked = False
        self.next_wake_ns = None
        for answer in list(self.unsent):
            if self._retry_ns > now:
                self.next_wake_ns = self._retry_ns
                break
            route = self._router.topic(answer.topic)
            refusal = self._router.refusal(answer.topic)
            if route is None and refusal is not None:
                self.unsent.remove(answer)
                answer.fail(refusal)
            elif route is not None and answer.partition >= len(route.leaders):
                self.unsent.remove(answer)
                answer.fail(
                    UnknownTopicError(
                        f"{answer.topic!r} has partitions 0 to {len(route.leaders) - 1}, not {answer.partition}"
                    )
                )
            elif route is not None and route.leaders[answer.partition] < 0:
                self._router.want(answer.topic)
            elif route is not None:
                asked |= self._send(answer, route.leaders[answer.partition])
        return asked

    def _send(self, answer: OffsetAnswer, leader: int) -> bool:
        self.unsent.remove(answer)
        peer = self._router.address(leader)
        body = ListOffsetsRequest(
            [ListOffsetsTopic(answer.topic, [ListOffsetsPartition(answer.partition, answer.timestamp)])]
        )
        if peer is None or not self._calls.send(peer, body, lambda response: self._answered(answer, leader, response)):
            self._again(answer, leader)
            return False
        return True

    def _answered(self, answer: OffsetAnswer, leader: int, response: ListOffsetsResponse | None) -> None:
        name = f"{answer.topic}-{answer.partition}"
        result = None if response is None else response.topics[0].partitions[0]
        if result is None or result.error_code in PASSING:
            self._again(answer, leader)
        elif result.error_code == NO_ERROR:
            answer.answer(result.offset)
        elif result.error_code == ErrorCode.CORRUPT_MESSAGE:
            answer.fail(CorruptError(f"{name} at node {leader} is damaged at the time that was looked up"))
        else:
            answer.fail(cluster_error(result.error_code, name))

    def _again(self, answer: OffsetAnswer, leader: int) -> None:
        self._router.stale_leader(answer.topic, answer.partition, leader)
        self._retry_ns = self._now_ns() + backoff_ns(BACKOFFS_REFUSED, self._random)
        if not answer.forgotten:
            self.unsent.append(answer)

    def close(self) -> None:
        """Fail the unanswered look-ups, and each later one."""
        self._closed = True
        for answer in self._unsettled:
            if not answer.settled:
                answer.fail(_closed_error())
        self.unsent.clear()
        self._unsettled.clear()


def _closed_error() -> PyreplogError:
    return cluster_error(ErrorCode.BROKER_NOT_AVAILABLE, "the consumer was closed")
