"""The leader: append, serve reads, and answer when records are committed.

The rules have their names from ``docs/internals/replication.md``. The parts of a leader:

* which replicas are in sync, and which records are committed: :mod:`pyreplog.replica.in_sync_set`
* which requests wait, and when they are answered: :mod:`pyreplog.replica.delayed_requests`
* fetches that wait: of followers :mod:`pyreplog.replica.delayed_follower_fetches`, of consumers
  :mod:`pyreplog.replica.delayed_consumer_fetches`

A known-bad variant overrides a method of the leader or of its in-sync set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from pyreplog.errors import (
    ClosedError,
    ClusterError,
    CorruptError,
    DuplicateSequenceError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    StorageError,
    UnknownServerError,
)
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.ports import NO_SPACE_ERRNOS, RESOURCES_EXHAUSTED_ERRNOS
from pyreplog.replica.context import ReplicaContext
from pyreplog.replica.delayed_consumer_fetches import DelayedConsumerFetches
from pyreplog.replica.delayed_follower_fetches import DelayedFollowerFetches
from pyreplog.replica.delayed_requests import DelayedAppend, DelayedAppends, DelayedDeletes
from pyreplog.replica.effects import Unexpected
from pyreplog.replica.events import (
    FAR_FUTURE_NS,
    AlterPartitionAnswered,
    BrokersApplied,
    CancelFetch,
    ConsumerFetch,
    DeleteRecords,
    FollowerFetch,
    ListOffsets,
    MetadataApplied,
    OffsetForLeaderEpoch,
    Produce,
    ProduceMany,
    Synced,
    Tick,
)
from pyreplog.replica.in_sync_set import InSyncSet
from pyreplog.replica.list_offsets import look_up_offset
from pyreplog.replica.role import ReplicaRole
from pyreplog.wire import (
    DeleteRecordsPartitionResult,
    ErrorCode,
    ListOffsetsPartitionResponse,
    OffsetForLeaderEpochResult,
    PartitionProduceResponse,
)

if TYPE_CHECKING:
    from pyreplog.log import Appended, LogSlice

__all__ = ["Leader"]

EPOCH_RETRY_NS: Final = 500_000_000
FLUSH_CHECK_NS: Final = 5_000_000_000
"""How often an idle leader of a compacted topic looks whether its records were synced."""

_PASSING: Final = NO_SPACE_ERRNOS | RESOURCES_EXHAUSTED_ERRNOS
"""Disk errors after which the same call may succeed later."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Leader(ReplicaRole):
    """The role of a replica that leads, for one leader epoch.

    It lasts from the metadata that names this broker with a new leader epoch to the next change of
    that epoch.
    """

    __slots__ = (
        "consumer_fetches",
        "delayed_appends",
        "delayed_deletes",
        "flush_check_at",
        "follower_fetches",
        "in_sync_set",
        "record_at",
    )

    name: ClassVar[str] = "leader"
    is_leader: ClassVar[bool] = True

    #: The class of the in-sync set; the known-bad variants of ``pyreplog.testing`` replace it.
    in_sync_set_class: ClassVar[type[InSyncSet]] = InSyncSet

    def __init__(self, context: ReplicaContext, isr: Sequence[int]) -> None:
        super().__init__(context)
        self.in_sync_set: InSyncSet = self.in_sync_set_class(context, isr)
        self.delayed_appends = DelayedAppends(context)
        self.delayed_deletes = DelayedDeletes(context)
        self.follower_fetches: DelayedFollowerFetches = DelayedFollowerFetches(self, self.in_sync_set)
        self.consumer_fetches = DelayedConsumerFetches(self)
        self.flush_check_at = FAR_FUTURE_NS
        """The time to look whether more of a compacted log is on stable storage."""
        self.record_at = FAR_FUTURE_NS
        """The time to retry to record the leader epoch, or to load the log."""

    # ------------------------------------------------------------------------------------ the reign

    def enter(self, now_ns: int) -> None:
        """Record the leader epoch, and start with no progress of any follower (R0). The epoch is
        written but not synced, because a leader that comes back leads in a new epoch."""
        self._record_epoch(now_ns)
        # A former follower's mark may lag behind the high watermark that readers now see.
        self.context.log.write_mark()
        self.in_sync_set.enter(now_ns)
        self.note_tombstones(now_ns)
        self.advance_high_watermark(now_ns)

    def _record_epoch(self, now_ns: int) -> None:
        """Record the leader epoch in the log; on a full disk retry later, or with the first append.
        Until then the log has no record of this epoch. A follower that knows an epoch unknown to
        this log has to wait (F5)."""
        self.record_at = FAR_FUTURE_NS
        log, epoch = self.context.log, self.context.leader_epoch
        if log.epochs.latest == epoch:
            return
        try:
            log.become_leader(epoch)
        except StorageError as error:
            if error.errno not in _PASSING or log.failure is not None:
                raise
            self.record_at = now_ns + EPOCH_RETRY_NS
            self.context.wake_by(self.record_at)

    def metadata_applied(self, event: MetadataApplied, now_ns: int, *, newer: bool) -> None:
        """Apply newer metadata of this epoch. A replay does not change the ISR (P3)."""
        for follower in self.in_sync_set.set_replicas():
            self.follower_fetches.refuse(follower, ErrorCode.UNKNOWN_LEADER_EPOCH)
        self.in_sync_set.metadata_applied(event.isr, now_ns, newer=newer)
        self.note_tombstones(now_ns)
        self.acknowledge_deletes()
        self.advance_high_watermark(now_ns)

    def brokers_applied(self, event: BrokersApplied, now_ns: int) -> None:
        """Look for replicas that may join the ISR now."""
        self.in_sync_set.brokers_applied(now_ns)
        self.note_tombstones(now_ns)
        self.acknowledge_deletes()
        self.advance_high_watermark(now_ns)

    def config_applied(self, now_ns: int) -> None:
        """Count by the new minimum of in-sync replicas."""
        self.in_sync_set.set_minimum()
        self.note_tombstones(now_ns)
        self.advance_high_watermark(now_ns)

    def exit(self, code: int) -> None:
        """End the role: answer all waiting requests."""
        self.delayed_appends.exit()
        self.consumer_fetches.exit(code)
        self.delayed_deletes.exit(code)
        self.follower_fetches.exit(code)

    def alter_partition_answered(self, event: AlterPartitionAnswered, now_ns: int) -> None:
        """Handle the controller's answer to a proposed ISR."""
        if self.in_sync_set.proposal_answered(event, now_ns):
            self.advance_high_watermark(now_ns)

    # --------------------------------------------------------------------------------------- append

    def produce(self, event: Produce, now_ns: int) -> None:
        """Append one batch (2.3), and answer as ``acks`` demands (2.4)."""
        in_sync = self.in_sync_set
        if event.leader_epoch >= 0 or event.acks != -1 or len(in_sync.committed) < in_sync.min_isr:
            code = self._produce_refusal(event)
            if code:
                self.refuse_produce(event, code)
                return
        try:
            log = self.context.load_log()
            appended = log.append_as_leader(event.records, self.context.leader_epoch, trusted=event.trusted)
        except (ClusterError, CorruptError, ClosedError, StorageError, OutcomeUnknownError) as error:
            self._not_appended(event, error, now_ns)
            return
        if appended.duplicate:
            self._on_duplicate(event, self._delay(event, appended, now_ns))
            return
        self.follower_fetches.serve(now_ns)
        if event.acks:
            self._await(event, appended, now_ns)
        if in_sync.is_sole_isr_member:
            self.advance_high_watermark(now_ns)
        elif in_sync.shrink_at == FAR_FUTURE_NS:
            in_sync.arm_shrink(now_ns)

    def produce_many(self, event: ProduceMany, now_ns: int) -> None:
        """Append several batches with as few writes as possible, and notify the followers once."""
        events: list[Produce] = []
        for one in event.batches:
            code = self._produce_refusal(one)
            if code:
                self.refuse_produce(one, code)
            else:
                events.append(one)
        at, end = 0, self.context.log.end_offset
        unknown: OutcomeUnknownError | None = None
        while at < len(events):
            one = events[at]
            try:
                places = self.context.load_log().append_many_as_leader(
                    [(e.records, e.trusted) for e in events[at:]], self.context.leader_epoch
                )
            except (ClusterError, CorruptError, ClosedError, StorageError, OutcomeUnknownError) as error:
                if isinstance(error, OutcomeUnknownError):
                    # Later batches have an unknown outcome too, unless they are in the log already.
                    unknown = error
                at += 1
                if self._not_appended(
                    one, unknown if isinstance(error, StorageError) and unknown is not None else error, now_ns
                ):
                    for one in events[at:]:
                        if unknown is None:
                            self.refuse_produce(one, ErrorCode.KAFKA_STORAGE_ERROR)
                        else:
                            self.refuse_produce(one, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, str(unknown))
                    return
                continue
            for one, appended in zip(events[at:], places, strict=False):
                if appended.duplicate:
                    self._on_duplicate(one, self._delay(one, appended, now_ns))
                elif one.acks:
                    self._await(one, appended, now_ns)
            at += len(places)
        if self.context.log.end_offset == end:
            return
        in_sync = self.in_sync_set
        self.follower_fetches.serve(now_ns)
        if in_sync.is_sole_isr_member:
            self.advance_high_watermark(now_ns)
        elif in_sync.shrink_at == FAR_FUTURE_NS:
            in_sync.arm_shrink(now_ns)

    def _produce_refusal(self, event: Produce) -> int:
        """Return the error code that refuses the batch before it is appended; 0 if there is none."""
        code = self.epoch_error(event.leader_epoch)
        if not code:
            if event.acks == -1:
                if self.in_sync_set.is_below_minimum:
                    code = ErrorCode.NOT_ENOUGH_REPLICAS
            elif event.acks not in (0, 1):
                code = ErrorCode.INVALID_REQUIRED_ACKS
        return code

    def _not_appended(self, event: Produce, error: Exception, now_ns: int) -> bool:
        """Answer a batch that the log refused; return whether the replica went offline."""
        log, context = self.context.log, self.context
        failure: Exception | None = log.failure
        if isinstance(error, DuplicateSequenceError):
            # The batch's offset is forgotten, but it is below the log end. So it is committed at
            # the latest when the log end is.
            self._on_duplicate(event, DelayedAppend(event, log.end_offset, -1, -1, now_ns, error.code))
            return False
        if isinstance(error, StorageError):
            self.refuse_produce(event, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            is_passing = error.errno in _PASSING and failure is None
            failure = None if is_passing or context.still_unloaded() else error
        elif isinstance(error, OutcomeUnknownError):
            # The batch may be in the log after the next start, and that log may lead.
            self.refuse_produce(event, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, str(error))
        else:
            if isinstance(error, UnknownServerError):
                cause = error.__cause__
                context.out.append(Unexpected(cause if isinstance(cause, Exception) else error))
            # An error that ends the log, or keeps it from opening, is not the batch's fault.
            code = _append_code(error) if failure is None else ErrorCode.KAFKA_STORAGE_ERROR
            self.refuse_produce(event, code, str(error))
        if failure is not None:
            context.go_offline(failure)
        return failure is not None

    def _delay(self, event: Produce, appended: Appended, now_ns: int) -> DelayedAppend:
        """Return the appended batch as a delayed append."""
        return DelayedAppend(event, appended.last_offset + 1, appended.base_offset, appended.timestamp, now_ns)

    def _await(self, event: Produce, appended: Appended, now_ns: int) -> None:
        """Answer an appended batch, now or when the condition of its ``acks`` holds."""
        if event.acks == 1 and self.local_ack_offset() > appended.last_offset:
            self.reply(
                event,
                PartitionProduceResponse(
                    self.context.partition, 0, appended.base_offset, appended.timestamp, self.context.log.start_offset
                ),
            )
            return
        self.delayed_appends.add(self._delay(event, appended, now_ns), event.acks)

    def _on_duplicate(self, event: Produce, append: DelayedAppend) -> None:
        """Answer a batch that an idempotent producer sent again and the log already has. The answer
        has the offsets of the first append, and comes as soon as ``acks`` is satisfied for them. If
        the offsets are forgotten the answer is DUPLICATE_SEQUENCE_NUMBER."""
        if event.acks == 0:
            return
        end = self.context.log.high_watermark if event.acks == -1 else self.local_ack_offset()
        in_sync = self.in_sync_set
        if end >= append.required and (event.acks == 1 or len(in_sync.maximal) >= in_sync.min_isr):
            # The first append may not have waited, so its mark may not be written.
            self.context.log.write_mark()
            self.delayed_appends.answer(append, 0)
            return
        self.delayed_appends.add(append, event.acks)
        self.acknowledge_appends()

    def synced(self, event: Synced, now_ns: int) -> None:
        """Answer acks=1 appends now, because no later event may answer them. Appends with acks=all
        are answered when the high watermark has moved; one write of the mark then covers both."""
        self.note_tombstones(now_ns)
        delayed = self.delayed_appends
        if delayed.acks_one or not delayed.acks_all or not self.context.needs_sync:
            self.context.log.write_mark()
            delayed.acknowledge_flushed(self.local_ack_offset())
        self.advance_high_watermark(now_ns)

    def acknowledge_appends(self) -> None:
        """Answer acks=all appends below the high watermark; fail them if the ISR is too small."""
        in_sync = self.in_sync_set
        code = 0 if len(in_sync.maximal) >= in_sync.min_isr else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        self.delayed_appends.acknowledge_committed(self.context.log.high_watermark, code)

    # --------------------------------------------------------------------------- the high watermark

    @property
    def is_only_member(self) -> bool:
        """Whether the committed ISR has no other member."""
        return len(self.in_sync_set.committed) <= 1

    def local_ack_offset(self) -> int:
        """Return this replica's end that counts: flushed (``sync`` log) or written (``os`` log)."""
        return self.context.log.flushed_offset if self.context.needs_sync else self.context.log.end_offset

    def advance_high_watermark(self, now_ns: int) -> None:
        """Move the high watermark if it can move, then write the mark, then answer the waiting
        requests. If the log cannot be opened, retry later."""
        try:
            before = self.context.log.high_watermark
            if self.context.log.end_offset <= before:
                return
            candidate = self.in_sync_set.high_watermark_candidate(self.local_ack_offset(), now_ns)
            if candidate <= before or not self.context.load_log().advance_high_watermark(candidate):
                return
        except StorageError:
            if not self.context.still_unloaded():
                raise
            self.record_at = now_ns + EPOCH_RETRY_NS
            self.context.wake_by(self.record_at)
            return
        if self.context.deferred_log_start:
            self.hide_deleted()
        self.context.log.write_mark()
        if self.delayed_appends.acks_all:
            self.acknowledge_appends()
        if self.consumer_fetches.waiting:
            self.consumer_fetches.serve()
        self.follower_fetches.push_later(now_ns)

    # ------------------------------------------------------------------------------------ followers

    def follower_fetch(self, event: FollowerFetch, now_ns: int) -> None:
        """Check the fetch (2.8), read, record progress (2.6); an error or divergence records none."""
        request = event.request
        context, log, in_sync = self.context, self.context.log, self.in_sync_set
        if request.current_leader_epoch != context.leader_epoch:
            self.refuse_fetch(event, self.refusal(request.current_leader_epoch))
            return
        follower = in_sync.followers.get(event.replica_id)
        if follower is None:
            self.refuse_fetch(event, ErrorCode.UNKNOWN_LEADER_EPOCH)
            return
        status = context.brokers.get(event.replica_id)
        if status is not None and status.epoch > event.replica_epoch:
            self.refuse_fetch(event, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        offset, end = request.fetch_offset, log.end_offset
        follower.delayed_fetch = None
        records: LogSlice | None = None
        if request.last_fetched_epoch != context.leader_epoch or offset > end or offset < log.start_offset:
            refusal = self.diverging(request, end)
            if refusal is not None:
                self.reply(event, refusal)
                return
        if offset < end:
            try:
                # At least one batch, or the follower would never progress.
                records = context.load_log().read(offset, max(request.partition_max_bytes, 1), end, checked=True)
            except (OffsetOutOfRangeError, CorruptError, StorageError) as error:
                self.refuse_read(event, error)
                return
        follower.fetched(offset, request.log_start_offset, event.replica_epoch, end, now_ns)
        if context.takes_gaps:
            follower.flushed_offset = min(request.flushed_offset, offset)
            self.note_tombstones(now_ns)
        if self.delayed_deletes.deletes:
            self.acknowledge_deletes()
        if not follower.in_maximal_isr:
            in_sync.propose_join(follower, now_ns)
        if self.context.log.high_watermark < end:
            self.advance_high_watermark(now_ns)
        if records is not None and records.size:
            follower.told_bound = context.tombstone_bound
            self.reply(event, self.follower_data(records))
        else:
            self.follower_fetches.park(follower, event, now_ns)

    def note_tombstones(self, now_ns: int) -> None:
        """Compute below which offset compaction may drop tombstones, and tell the followers soon."""
        context = self.context
        if not context.takes_gaps:
            return
        log = context.log
        if log.flushed_offset < log.end_offset and self.flush_check_at == FAR_FUTURE_NS:
            self.flush_check_at = now_ns + FLUSH_CHECK_NS
            context.wake_by(self.flush_check_at)
        bound = self.in_sync_set.tombstone_bound()
        if bound != context.tombstone_bound:
            context.note_tombstone_bound(bound)
            self.follower_fetches.push_later(now_ns)

    # -------------------------------------------------------------------------------------- readers

    def consumer_fetch(self, event: ConsumerFetch, now_ns: int) -> None:
        """Serve records below the high watermark."""
        request, log = event.request, self.context.log
        code = self.epoch_error(request.current_leader_epoch)
        if not code and request.last_fetched_epoch > self.context.leader_epoch:
            # The reader has read from a later leader than this one.
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        if not code and request.last_fetched_epoch >= 0:
            refusal = self.diverging(request, log.end_offset)
            if refusal is not None:
                self.reply(event, refusal)
                return
        if not code and not log.start_offset <= request.fetch_offset <= log.end_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        if code:
            self.refuse_fetch(event, code)
        else:
            self.consumer_fetches.fetch(event, now_ns)

    def cancel_fetch(self, event: CancelFetch, now_ns: int) -> None:
        """Drop the fetch of a reader that no longer waits."""
        self.consumer_fetches.cancel(event.source, event.correlation_id)

    def list_offsets(self, event: ListOffsets, now_ns: int) -> None:
        """Look up an offset by timestamp. While the high watermark is below the start of this
        leader epoch, readers cannot know the end (KIP-207)."""
        request, log = event.request, self.context.log
        code = self.epoch_error(request.current_leader_epoch)
        if code:
            self.reply(event, ListOffsetsPartitionResponse(request.partition_index, code))
            return
        is_follower = event.replica_id >= 0
        end = log.end_offset if is_follower else log.high_watermark
        is_end_known = is_follower or end >= self.in_sync_set.start_of_epoch
        try:
            answer = look_up_offset(self.context, request, end, is_end_known=is_end_known)
        except (CorruptError, StorageError) as error:
            answer = ListOffsetsPartitionResponse(request.partition_index, self.read_code(error))
        self.reply(event, answer)

    def offset_for_leader_epoch(self, event: OffsetForLeaderEpoch, now_ns: int) -> None:
        """Answer with the end offset of a leader epoch in this log."""
        request = event.request
        code = self.epoch_error(request.current_leader_epoch)
        epoch, end = (-1, -1) if code else self.end_of_epoch(request.leader_epoch)
        self.reply(event, OffsetForLeaderEpochResult(request.partition, code, epoch, end))

    # ------------------------------------------------------------------------------------- deletion

    def delete_records(self, event: DeleteRecords, now_ns: int) -> None:
        """Move the log start up to at most the high watermark; notify the followers (2.12)."""
        log, context = self.context.log, self.context
        offset = log.high_watermark if event.offset == -1 else event.offset
        if not 0 <= offset <= log.high_watermark:
            self.reply(event, DeleteRecordsPartitionResult(context.partition, -1, ErrorCode.OFFSET_OUT_OF_RANGE))
            return
        if offset > log.start_offset:
            try:
                # Durable: a power loss must not bring deleted records back.
                context.load_log().delete_records(offset)
            except StorageError:
                if not context.still_unloaded():
                    raise
                self.reply(event, DeleteRecordsPartitionResult(context.partition, -1, ErrorCode.KAFKA_STORAGE_ERROR))
                return
            self.follower_fetches.push_now()
        self.delayed_deletes.add(event, offset, now_ns)
        self.acknowledge_deletes()

    def low_watermark(self) -> int:
        """Return the lowest log start offset of the live replicas and of the ISR; -1 if one is
        unknown. ISR members count even if they are fenced, because each may lead next. No record
        below the result can be read anywhere."""
        low = self.context.log.start_offset
        for follower in self.in_sync_set.remotes:
            status = self.context.brokers.get(follower.broker_id)
            if (follower.in_maximal_isr or (status is not None and status.eligible)) and follower.start_offset < low:
                low = follower.start_offset
        return low

    def acknowledge_deletes(self) -> None:
        """Answer the deletions that every live replica has made."""
        if self.delayed_deletes.deletes:
            self.delayed_deletes.acknowledge(self.low_watermark())

    # ----------------------------------------------------------------------------------------- time

    def tick(self, event: Tick, now_ns: int) -> None:
        """Do all work that is due, then ask for the next tick."""
        in_sync, followers, consumers = self.in_sync_set, self.follower_fetches, self.consumer_fetches
        appends, deletes = self.delayed_appends, self.delayed_deletes
        if now_ns >= appends.expiry_ns or now_ns >= deletes.expiry_ns:
            # The write of the mark may have been left to the next high-watermark move.
            self.context.log.write_mark()
            appends.expire(now_ns)
            deletes.expire(now_ns)
        if now_ns >= consumers.expiry_ns:
            consumers.expire(now_ns)
        if now_ns >= followers.push_at:
            followers.push(now_ns)
        if now_ns >= in_sync.shrink_at:
            in_sync.propose_shrink(now_ns)
            self.advance_high_watermark(now_ns)
        in_sync_at = in_sync.tick(now_ns)
        if now_ns >= self.record_at:
            self._record_epoch(now_ns)
            self.advance_high_watermark(now_ns)
        if now_ns >= self.flush_check_at:
            self.flush_check_at = FAR_FUTURE_NS
            self.note_tombstones(now_ns)
        waiting_at = min(appends.expiry_ns, deletes.expiry_ns, consumers.expiry_ns, followers.push_at)
        soonest = min(waiting_at, in_sync_at, self.record_at, self.flush_check_at)
        if soonest < FAR_FUTURE_NS:
            self.context.wake_by(soonest)


def _append_code(error: Exception) -> int:
    if isinstance(error, ClusterError):
        return error.code
    return ErrorCode.CORRUPT_MESSAGE if isinstance(error, CorruptError) else ErrorCode.KAFKA_STORAGE_ERROR
