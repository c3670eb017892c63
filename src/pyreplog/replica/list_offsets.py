"""Look up an offset by timestamp in a leader's log (ListOffsets)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyreplog.config import INT64_MAX
from pyreplog.replica.context import ReplicaContext
from pyreplog.wire import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ErrorCode,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
)

if TYPE_CHECKING:
    from pyreplog.log import Log

__all__ = ["look_up_offset"]


def look_up_offset(
    context: ReplicaContext, request: ListOffsetsPartition, end: int, *, is_end_known: bool
) -> ListOffsetsPartitionResponse:
    """Return the answer to ``request`` over the records below ``end``.

    ``is_end_known``: the caller may learn ``end``. If not, a question that only ``end`` answers
    gets OFFSET_NOT_AVAILABLE. Only a question about a timestamp opens the log. Raises CorruptError
    and StorageError of the log.
    """
    log = context.log
    answer = ListOffsetsPartitionResponse(request.partition_index, 0)
    timestamp = request.timestamp
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        answer.offset = log.start_offset
        answer.leader_epoch = log.epochs.epoch_for_offset(log.start_offset)
    elif timestamp == LATEST_TIERED_TIMESTAMP:
        pass  # nothing is stored elsewhere
    elif timestamp < 0 and timestamp not in (LATEST_TIMESTAMP, MAX_TIMESTAMP):
        answer.error_code = ErrorCode.INVALID_REQUEST
    elif timestamp < 0 and not is_end_known:
        answer.error_code = ErrorCode.OFFSET_NOT_AVAILABLE
    elif timestamp == LATEST_TIMESTAMP:
        answer.offset = end
        answer.leader_epoch = context.leader_epoch
    else:
        log = context.load_log()
        found = _find_greatest(log, end) if timestamp == MAX_TIMESTAMP else log.find_timestamp(timestamp, end)
        if found is not None:
            answer.offset, answer.timestamp = found
            answer.leader_epoch = log.epochs.epoch_for_offset(answer.offset)
        elif not is_end_known:
            answer.error_code = ErrorCode.OFFSET_NOT_AVAILABLE
    return answer


def _find_greatest(log: Log, end: int) -> tuple[int, int] | None:
    """Return the offset and timestamp of the first record with the greatest timestamp below ``end``.

    A binary search over timestamps; None if there are no records.
    """
    greatest: tuple[int, int] | None = None
    probe, low, high, step = 0, 0, INT64_MAX, 1
    while low <= high:
        found = log.find_timestamp(probe, end)
        if found is None:
            if greatest is None:
                return None
            high = probe - 1
        else:
            greatest = found
            low = found[1] + 1
            step *= 2
        probe = (low + high + 1) // 2 if high < INT64_MAX else min(low + step - 2, INT64_MAX)
    return greatest
