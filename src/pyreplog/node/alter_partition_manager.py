"""Proposals of this node's leaders to the controller.

One request is open at a time; the proposals made while it is open go with the next one. Each
proposal gets exactly one ``AlterPartitionAnswered``, even if no answer comes.
"""

from __future__ import annotations

from typing import Final

from pyreplog.controller import PartitionKey
from pyreplog.node.effects import Effects
from pyreplog.node.hosting import ClusterView, HostedPartition
from pyreplog.ports import Address
from pyreplog.replica import AlterPartition, AlterPartitionAnswered
from pyreplog.wire import (
    NO_ERROR,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    ErrorCode,
    Response,
)

__all__ = ["AlterPartitionManager"]

TIMEOUT_NS: Final = 1_000_000_000
_NONE: Final = -1


class AlterPartitionManager:
    """The in-sync sets that the leaders of this node propose."""

    def __init__(self, effects: Effects, standing: ClusterView, node_id: int, controller: Address) -> None:
        self._effects = effects
        self._standing = standing
        self._node_id = node_id
        self._controller = controller
        self.waiting: dict[PartitionKey, tuple[HostedPartition, AlterPartition]] = {}
        """The unsent proposals; :meth:`flush` sends them."""
        self._sent: dict[PartitionKey, tuple[HostedPartition, AlterPartition]] = {}
        self._open = _NONE

    def propose(self, hosted: HostedPartition, effect: AlterPartition) -> None:
        """Queue a leader's proposal of an in-sync set. It replaces an unsent one of the
        partition."""
        self.waiting[hosted.key] = (hosted, effect)

    def flush(self) -> None:
        """Send the queued proposals, unless a request is open."""
        if not self.waiting or self._open != _NONE or self._standing.broker_epoch < 0:
            return
        effects = self._effects
        self._sent, self.waiting = self.waiting, {}
        topics: dict[str, list[AlterPartitionData]] = {}
        for (topic_id, _), (_, effect) in self._sent.items():
            topics.setdefault(topic_id, []).append(effect.proposal)
        body = AlterPartitionRequest(
            self._node_id,
            self._standing.broker_epoch,
            [AlterPartitionTopic(topic_id, proposals) for topic_id, proposals in topics.items()],
        )
        correlation_id = self._open = effects.request(self._controller, body)
        if correlation_id == _NONE:
            self._fail(ErrorCode.REQUEST_TIMED_OUT)
        else:
            effects.timers.call_at(effects.now_ns + TIMEOUT_NS, lambda: self._expire(correlation_id))

    def answered(self, message: Response, body: AlterPartitionResponse) -> None:
        """Handle the controller's decision."""
        if message.correlation_id != self._open:
            return
        self._open = _NONE
        if body.error_code != NO_ERROR:
            self._fail(body.error_code)
            return
        sent, self._sent = self._sent, {}
        for topic in body.topics:
            for result in topic.partitions:
                found = sent.pop((topic.topic_id, result.partition_index), None)
                if found is not None:
                    hosted, effect = found
                    self._effects.run(hosted, AlterPartitionAnswered(effect.token, result.error_code, result))
        for hosted, effect in sent.values():
            self._effects.run(hosted, AlterPartitionAnswered(effect.token, ErrorCode.UNKNOWN_SERVER_ERROR))

    def disconnected(self) -> None:
        """Let the leaders propose again: the controller's process has ended without an answer."""
        if self._open != _NONE:
            self._open = _NONE
            self._fail(ErrorCode.REQUEST_TIMED_OUT)

    def forget(self, hosted: HostedPartition) -> None:
        """Drop the proposals of a partition that left this node."""
        self.waiting.pop(hosted.key, None)
        self._sent.pop(hosted.key, None)

    def _expire(self, correlation_id: int) -> None:
        if self._open == correlation_id:
            self._open = _NONE
            self._fail(ErrorCode.REQUEST_TIMED_OUT)

    def _fail(self, code: int) -> None:
        sent, self._sent = self._sent, {}
        for hosted, effect in sent.values():
            self._effects.run(hosted, AlterPartitionAnswered(effect.token, code))
