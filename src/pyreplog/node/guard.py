"""What one client's request meets that nobody had foreseen, and its node survives.

The rule stands in ``docs/internals/replication.md``, "What a node survives": a failure while a request is parsed, looked up or answered,
or while a replica is only asked, is that request's; one in a step that may have changed a replica is the node's, and so are the disk's
refusals and broken invariants. Who catches decides that (:class:`~pyreplog.node.effects.Effects`); here it is said and kept.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from pyreplog.errors import excerpt
from pyreplog.node.effects import Effects
from pyreplog.node.hosting import Hosted
from pyreplog.replica import Reply, Result
from pyreplog.wire import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    ErrorCode,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    PartitionProduceResponse,
    ProduceResponse,
    Request,
    ResponseBody,
    TopicProduceResponse,
    refusal,
)

__all__ = ["Guard"]

KEPT_MAX: Final = 64

_log = logging.getLogger("pyreplog.node")


class Guard:
    """Answers in place of who failed."""

    def __init__(self, effects: Effects, node_id: int) -> None:
        self._effects = effects
        self._node_id = node_id
        self.failed: deque[str] = deque(maxlen=KEPT_MAX)
        """What was said of each failure."""

    def request_failed(self, message: Request, error: Exception) -> None:
        """Handling ``message`` raised ``error``. Nothing of it waits any longer, and its client is told, as far as it can be."""
        text = self.note(f"{type(message.body).__name__} {message.correlation_id} of {message.source}", error)
        self._effects.forget(message.source, message.correlation_id)
        try:
            body = refusal(message.body, ErrorCode.UNKNOWN_SERVER_ERROR, text)
        except (AttributeError, TypeError, ValueError):  # so odd that it cannot even be refused: whoever asked will time out
            return
        if body is not None:
            self._effects.respond(message.source, message.correlation_id, body)

    def answer_failed(self, hosted: Hosted, effect: Reply, error: Exception) -> None:
        """What ``hosted`` said to a client could not be answered because of ``error``; it may have done what it was asked."""
        source, correlation_id = effect.source, effect.correlation_id
        text = self.note(f"the answer of {hosted.topic_partition} to request {correlation_id} of {source}", error)
        self._effects.forget(source, correlation_id)
        body = _refused(hosted, effect.result, text)
        if body is not None:
            self._effects.respond(source, correlation_id, body)

    def note(self, what: str, error: Exception) -> str:
        """Log that ``what`` met ``error``, with where that was raised; what the client is told of it."""
        text = f"{type(error).__name__}: {excerpt(str(error))}" if str(error) else type(error).__name__
        _log.error("node %d: %s failed; the node goes on", self._node_id, what, exc_info=error)
        self.failed.append(f"{what}: {text}")
        return f"node {self._node_id} met {text}"


def _refused(hosted: Hosted, result: Result, message: str) -> ResponseBody | None:
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(result, PartitionProduceResponse):
        refused = PartitionProduceResponse(result.index, code, error_message=message)
        return ProduceResponse([TopicProduceResponse(hosted.topic_id, [refused])])
    if isinstance(result, PartitionData):
        return FetchResponse([FetchableTopicResponse(hosted.topic_id, [PartitionData(result.partition_index, code)])])
    if isinstance(result, DeleteRecordsPartitionResult):
        part = DeleteRecordsPartitionResult(result.partition_index, -1, code)
        return DeleteRecordsResponse([DeleteRecordsTopicResult(hosted.topic_partition.topic, [part])])
    return None
