"""The refusals of a batch by a leader, the facts that each proves, and the errors that report
them."""

from __future__ import annotations

from typing import Final

from pyreplog.client.accumulator import PartitionQueue, ProducerBatch
from pyreplog.errors import (
    ClosedError,
    ClusterError,
    LeaderNotAvailableError,
    OutcomeUnknownError,
    PyreplogError,
    RequestTimedOutError,
    cluster_error,
)
from pyreplog.wire import ErrorCode

__all__ = [
    "NOT_APPENDED",
    "UNKNOWN",
    "given_up",
    "no_leader",
    "not_appended",
    "outcome_unknown",
    "refused_with",
    "too_late",
]

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


def outcome_unknown(queue: PartitionQueue, batch: ProducerBatch, reason: str) -> OutcomeUnknownError:
    """Return the error of a batch that may have been appended."""
    if batch.failures > 1:
        # The last refusal may say that nothing was appended, which is true only of that sending.
        reason = f"sent {batch.failures} times, and not known to be refused each time; the last time: {reason}"
    tried = f"append of {batch.count} record{'' if batch.count == 1 else 's'} to {queue.topic}-{queue.partition}"
    return OutcomeUnknownError(tried, reason)


def refused_with(queue: PartitionQueue, batch: ProducerBatch, error: PyreplogError) -> PyreplogError:
    """Return the error of a batch whose last sending ended with ``error``: its outcome is unknown if an earlier sending
    may have succeeded."""
    return outcome_unknown(queue, batch, str(error)) if batch.unsure else error


def not_appended(refusal: ClusterError) -> ClusterError:
    """Return the error of a batch that was refused each time until its delivery timeout."""
    said = str(refusal)
    return refusal if "nothing was appended" in said else cluster_error(refusal.code, f"{said}; nothing was appended")


def too_late(queue: PartitionQueue, batch: ProducerBatch, *, is_in_flight: bool) -> PyreplogError:
    """Return the error of a batch that was not acknowledged within the timeout of its own send."""
    if is_in_flight:
        return outcome_unknown(queue, batch, "no answer came within the timeout of this send")
    if batch.error is not None:
        return refused_with(queue, batch, not_appended(batch.error))
    return RequestTimedOutError(
        "nothing was sent within the timeout of this send: no leader was known, or earlier records were on their way"
    )


def given_up(queue: PartitionQueue, batch: ProducerBatch, text: str) -> PyreplogError:
    """Return the error of a batch that will not be sent (again), because its producer was closed."""
    if batch.unsure:
        return outcome_unknown(queue, batch, str(batch.error))
    if batch.error is None:
        return ClosedError(text)
    closed = ClosedError(f"{text}; before, it was refused: {batch.error}")
    closed.__cause__ = batch.error
    return closed


def no_leader(queue: PartitionQueue, refusal: ClusterError | None) -> ClusterError:
    """Return the error of a batch whose partition had no leader until its delivery timeout."""
    name = f"{queue.topic}-{queue.partition}"
    advice = (
        f"admin.describe({queue.topic!r}) says in isr and elr which nodes may lead it; if none of them comes back, "
        "admin.elect_leaders can elect another"
    )
    if refusal is not None:
        return LeaderNotAvailableError(f"{name}; nothing was appended. {advice}")
    return RequestTimedOutError(f"{name} had no leader in time; nothing was sent. {advice}")
