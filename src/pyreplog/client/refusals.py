"""The refusals of a batch by a leader, and the facts that each proves."""

from __future__ import annotations

from typing import Final

from pyreplog.wire import ErrorCode

__all__ = ["NOT_APPENDED", "UNKNOWN"]

NOT_APPENDED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Refusals that prove that nothing was appended and that may pass: the batch is sent again."""
UNKNOWN: Final = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.UNKNOWN_SERVER_ERROR}
)
"""Answers that do not prove whether the batch was appended."""
