"""Unexpected failures of one client's request, which its node survives.

The rule is in ``docs/internals/replication.md``. A failure while a request is parsed, looked up or
answered, or while a replica is only asked, fails that request. A failure in a step that may have
changed a replica ends the node, and so do disk errors and broken invariants.
The caller that catches the error decides (:class:`~pyreplog.node.effects.Effects`); this module
logs it, keeps it and answers.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from pyreplog.errors import excerpt
from pyreplog.node.effects import Effects
from pyreplog.node.hosting import HostedPartition
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

__all__ = ["RequestErrorHandler"]

KEPT_MAX: Final = 64

_log = logging.getLogger("pyreplog.node")


class RequestErrorHandler:
    """Answers in place of the failed code."""

    def __init__(self, effects: Effects, node_id: int) -> None:
        self._effects = effects
        self._node_id = node_id
        self.failed: deque[str] = deque(maxlen=KEPT_MAX)
        """The texts of the latest failures."""

    def request_failed(self, message: Request, error: Exception) -> None:
        """Handle ``error``, raised while ``message`` was handled.

        No part of the request waits any longer, and its client is answered if possible.
        """
        text = self.note(f"{type(message.body).__name__} {message.correlation_id} of {message.source}", error)
        self._effects.forget(message.source, message.correlation_id)
        try:
            body = refusal(message.body, ErrorCode.UNKNOWN_SERVER_ERROR, text)
        except (AttributeError, TypeError, ValueError):  # malformed: the client times out
            return
        if body is not None:
            self._effects.respond(message.source, message.correlation_id, body)

    def answer_failed(self, hosted: HostedPartition, effect: Reply, error: Exception) -> None:
        """Answer a client whose answer from ``hosted`` failed with ``error``.

        The replica may have done the requested work.
        """
        source, correlation_id = effect.source, effect.correlation_id
        text = self.note(f"the answer of {hosted.topic_partition} to request {correlation_id} of {source}", error)
        self._effects.forget(source, correlation_id)
        body = _refused(hosted, effect.result, text)
        if body is not None:
            self._effects.respond(source, correlation_id, body)

    def note(self, what: str, error: Exception) -> str:
        """Log that ``what`` failed with ``error``, with its traceback; return the text for the
        client."""
        text = f"{type(error).__name__}: {excerpt(str(error))}" if str(error) else type(error).__name__
        _log.error("node %d: %s failed; the node goes on", self._node_id, what, exc_info=error)
        self.failed.append(f"{what}: {text}")
        return f"node {self._node_id} met {text}"


def _refused(hosted: HostedPartition, result: Result, message: str) -> ResponseBody | None:
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
