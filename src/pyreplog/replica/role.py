"""The base class of all roles, and the roles that only refuse requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyreplog.errors import CorruptError, CorruptLogError, OffsetOutOfRangeError
from pyreplog.log import UnloadedLog
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.replica.context import ReplicaContext
from pyreplog.replica.effects import Reply
from pyreplog.replica.events import (
    AlterPartitionAnswered,
    BrokersApplied,
    CancelFetch,
    ConsumerFetch,
    DeleteRecords,
    FetchAnswered,
    FollowerFetch,
    ListOffsets,
    OffsetForLeaderEpoch,
    Produce,
    ProduceMany,
    Synced,
    Tick,
)
from pyreplog.wire import (
    NO_ERROR,
    DeleteRecordsPartitionResult,
    EpochEndOffset,
    ErrorCode,
    FetchPartition,
    ListOffsetsPartitionResponse,
    OffsetForLeaderEpochResult,
    PartitionData,
    PartitionProduceResponse,
)

if TYPE_CHECKING:
    from pyreplog.log import LogSlice

__all__ = ["NoLeaderRole", "OfflineRole", "ReplicaRole"]


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplicaRole:
    """One role of a replica, from the time the replica takes it until it leaves it.

    Each leader epoch gets a new object: progress learnt under one leader epoch cannot be used under
    another (rule R0). This base class refuses every request.
    """

    __slots__ = ("context",)

    name: ClassVar[str]
    """``none``, ``leader``, ``follower`` or ``offline``."""
    is_leader: ClassVar[bool] = False

    def __init__(self, context: ReplicaContext) -> None:
        self.context = context

    # -- taking and leaving the role

    def enter(self, now_ns: int) -> None:
        """Begin the role."""

    def exit(self, code: int) -> None:
        """End the role; answer every waiting request with ``code``.

        Waiting appends get NOT_ENOUGH_REPLICAS_AFTER_APPEND (rule W1).
        """

    # -- events

    def tick(self, event: Tick, now_ns: int) -> None:
        """Handle the passing of time."""

    def synced(self, event: Synced, now_ns: int) -> None:
        """Write the mark after the flushed end moved, before any request is answered.

        ``Log.synced`` is done already.
        """
        self.context.log.write_mark()

    def brokers_applied(self, event: BrokersApplied, now_ns: int) -> None:
        """Handle a new ``context.brokers``."""

    def config_applied(self, now_ns: int) -> None:
        """Handle new settings of ``context.log``."""

    def fetch_answered(self, event: FetchAnswered, now_ns: int) -> None:
        """Ignore the leader's answer: it is too late."""

    def alter_partition_answered(self, event: AlterPartitionAnswered, now_ns: int) -> None:
        """Ignore the controller's answer: it is too late."""

    def cancel_fetch(self, event: CancelFetch, now_ns: int) -> None:
        """Drop the fetch of a reader that no longer waits."""

    def produce(self, event: Produce, now_ns: int) -> None:
        """Append a batch."""
        self.refuse_produce(event, self.refusal(event.leader_epoch))

    def produce_many(self, event: ProduceMany, now_ns: int) -> None:
        """Append several batches."""
        for one in event.batches:
            self.produce(one, now_ns)

    def follower_fetch(self, event: FollowerFetch, now_ns: int) -> None:
        """Serve a follower's fetch."""
        self.refuse_fetch(event, self.refusal(event.request.current_leader_epoch))

    def consumer_fetch(self, event: ConsumerFetch, now_ns: int) -> None:
        """Serve a consumer's fetch."""
        self.refuse_fetch(event, self.refusal(event.request.current_leader_epoch))

    def list_offsets(self, event: ListOffsets, now_ns: int) -> None:
        """Look up an offset by timestamp."""
        request = event.request
        code = self.refusal(request.current_leader_epoch)
        self.reply(event, ListOffsetsPartitionResponse(request.partition_index, code))

    def offset_for_leader_epoch(self, event: OffsetForLeaderEpoch, now_ns: int) -> None:
        """Look up the end offset of a leader epoch."""
        request = event.request
        code = self.refusal(request.current_leader_epoch)
        self.reply(event, OffsetForLeaderEpochResult(request.partition, code))

    def delete_records(self, event: DeleteRecords, now_ns: int) -> None:
        """Move the log start offset up."""
        self.reply(event, DeleteRecordsPartitionResult(self.context.partition, -1, self.refusal(-1)))

    # -- help

    def hide_deleted(self) -> None:
        """Raise the log start towards its place before the log restarted inside a batch.

        It rises with the high watermark.
        """
        deferred_log_start, log = self.context.deferred_log_start, self.context.log
        if deferred_log_start > log.start_offset:
            self.context.load_log().delete_records(min(deferred_log_start, log.high_watermark))

    def diverging(self, request: FetchPartition, end: int) -> PartitionData | None:
        """Return an error or a divergence instead of records, by rules 3-6 of 2.8.

        Return None if the requester's log is a prefix of this one. With OFFSET_OUT_OF_RANGE,
        ``log_start_offset`` is this log's start, and ``diverging_epoch`` has its latest epoch and
        its end, so that a follower need not ask again.
        """
        log, offset, asked = self.context.log, request.fetch_offset, request.last_fetched_epoch
        epoch, epoch_end = self.end_of_epoch(asked) if asked >= 0 else (asked, end)
        high_watermark = log.high_watermark
        answer = PartitionData(self.context.partition, 0, high_watermark, high_watermark, log.start_offset)
        if (asked >= 0 and epoch_end < 0) or offset < log.start_offset:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif asked >= 0 and (epoch < asked or epoch_end < offset):
            answer.diverging_epoch = EpochEndOffset(epoch, epoch_end)
            return answer
        elif offset > end:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            return None
        answer.diverging_epoch = EpochEndOffset(log.epochs.latest, end)
        return answer

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the greatest epoch not above ``epoch``, and its end; (-1, -1) if undefined."""
        return self.context.log.epochs.end_offset_for(epoch, self.context.log.end_offset)

    def data(self, records: LogSlice | None) -> PartitionData:
        """Return an answer with these records and the current high watermark and log start."""
        log = self.context.log
        high_watermark = log.high_watermark
        return PartitionData(
            self.context.partition, 0, high_watermark, high_watermark, log.start_offset, None, None, -1, records
        )

    def follower_data(self, records: LogSlice | None) -> PartitionData:
        """Return an answer for a follower. In a compacted topic it has the bound of tombstones and the highest dropped
        one."""
        data, context = self.data(records), self.context
        if context.takes_gaps:
            data.tombstone_bound = context.tombstone_bound
            if not isinstance(context.log, UnloadedLog):
                data.dropped_tombstone = context.log.dropped_tombstone
        return data

    def refusal(self, epoch: int) -> int:
        """Return why a request made under leader ``epoch`` (-1: not given) is refused."""
        return self.epoch_error(epoch) or ErrorCode.NOT_LEADER_OR_FOLLOWER

    def epoch_error(self, epoch: int) -> int:
        """Return FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, or 0 if ``epoch`` is ours or not given."""
        mine = self.context.leader_epoch
        if epoch == mine or epoch < 0:
            return NO_ERROR
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < mine else ErrorCode.UNKNOWN_LEADER_EPOCH

    def reply(self, event: Any, result: Any) -> None:
        """Answer the request of ``event``."""
        self.context.out.append(Reply(event.source, event.correlation_id, result))

    def refuse_produce(self, event: Produce, code: int, message: str | None = None) -> None:
        """Answer with an error: nothing was appended."""
        if event.acks != 0:
            context = self.context
            hint = self.context.current_leader_hint() if code in _ABOUT_LEADER else None
            self.reply(
                event, PartitionProduceResponse(context.partition, code, error_message=message, current_leader=hint)
            )

    def refuse_fetch(self, event: FollowerFetch | ConsumerFetch, code: int, damage_end: int = -1) -> None:
        """Answer with an error and no records.

        ``damage_end`` is the end of the records that cannot be read, if damage is the reason.
        """
        log = self.context.log
        hint = self.context.current_leader_hint() if code in _ABOUT_LEADER else None
        self.reply(
            event,
            PartitionData(
                self.context.partition,
                code,
                log.high_watermark,
                log.high_watermark,
                log.start_offset,
                None if damage_end < 0 else EpochEndOffset(-1, damage_end),
                hint,
            ),
        )

    def refuse_read(self, event: FollowerFetch | ConsumerFetch, error: Exception) -> None:
        """Answer a fetch whose read of the log raised ``error``."""
        code = self.read_code(error)
        end = error.end if code == ErrorCode.CORRUPT_MESSAGE and isinstance(error, CorruptLogError) else -1
        self.refuse_fetch(event, code, end)

    def read_code(self, error: Exception) -> int:
        """Return the error code for an error that a read of the log raised."""
        if isinstance(error, OffsetOutOfRangeError):
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if (
            isinstance(error, CorruptError)
            # Otherwise the log could not be opened, and that error is reported.
            and self.context.log.failure is None
            and self.context.on_corrupt_read(error, is_leader=self.is_leader, is_only_member=self.is_only_member)
        ):
            return ErrorCode.CORRUPT_MESSAGE
        return ErrorCode.KAFKA_STORAGE_ERROR

    @property
    def is_only_member(self) -> bool:
        """Whether this replica leads, and no other replica is in sync."""
        return False


@mypyc_attr(allow_interpreted_subclasses=True)
class NoLeaderRole(ReplicaRole):
    """The role of a replica that knows no leader: it refuses every request until one is named."""

    __slots__ = ()

    name: ClassVar[str] = "none"


@mypyc_attr(allow_interpreted_subclasses=True)
class OfflineRole(ReplicaRole):
    """The role of a replica whose disk failed: it refuses every request, for good."""

    __slots__ = ()

    name: ClassVar[str] = "offline"

    def refusal(self, epoch: int) -> int:
        """Return KAFKA_STORAGE_ERROR."""
        return ErrorCode.KAFKA_STORAGE_ERROR


_ABOUT_LEADER: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
