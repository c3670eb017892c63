"""The leader: append, serve reads, and decide which records are committed.

The rules have their names from ``docs/internals/replication.md``: the high watermark (2.5),
follower progress (2.6), the ISR and its proposals (2.7, P1-P5), waiters (W1), expansion below the
minimum (E1). The decisions are made here:

* which records are committed: :meth:`Leader.high_watermark_candidate`
* which replicas are in sync: :meth:`Leader.caught_up`, :meth:`Leader.eligible`,
  :meth:`Leader.may_join`
* when a waiting append is answered: :meth:`Leader.appends_acknowledged` and
  :meth:`Leader.flushes_acknowledged`

A known-bad variant overrides one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from pyreplog.config import INT64_MAX
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
from pyreplog.replica.events import (
    FAR_FUTURE_NS,
    AlterPartition,
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
    Reply,
    Synced,
    Tick,
    Unexpected,
)
from pyreplog.replica.progress import Deletion, Progress, Proposal, Waiter
from pyreplog.replica.readers import Readers
from pyreplog.replica.role import ReplicaRole
from pyreplog.wire import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    AlterPartitionData,
    BrokerState,
    DeleteRecordsPartitionResult,
    ErrorCode,
    ListOffsetsPartitionResponse,
    OffsetForLeaderEpochResult,
    PartitionProduceResponse,
)

if TYPE_CHECKING:
    from pyreplog.log import Appended, LogSlice

__all__ = ["Leader"]

HIGH_WATERMARK_PUSH_NS: Final = 1_000_000
"""How long a new high watermark waits for records to carry it, before it is pushed to idle
followers.
"""
PROPOSAL_RETRY_NS: Final = 50_000_000
EPOCH_RETRY_NS: Final = 500_000_000
INELIGIBLE_RETRY_NS: Final = 500_000_000
"""How long a replica that the controller refused is not proposed again, unless the brokers change.
"""

_PASSING: Final = NO_SPACE_ERRNOS | RESOURCES_EXHAUSTED_ERRNOS
"""Disk errors after which the same call may succeed later."""
_BACK_TO_COMMITTED: Final = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
_UNTIL_METADATA: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)


@mypyc_attr(allow_interpreted_subclasses=True)
class Leader(ReplicaRole):
    """The role of a replica that leads, for one leader epoch.

    It lasts from the metadata that names this broker with a new leader epoch to the next change of
    that epoch.
    """

    __slots__ = (
        "alone",
        "committed",
        "deletions",
        "expiry_at",
        "flush_waiters",
        "followers",
        "hw_frozen_at",
        "join_at",
        "lag_max_ns",
        "maximal",
        "min_isr",
        "pending",
        "push_at",
        "readers",
        "record_at",
        "remotes",
        "shrink_at",
        "start_of_epoch",
        "waiters",
    )

    name: ClassVar[str] = "leader"
    is_leader: ClassVar[bool] = True

    def __init__(self, context: ReplicaContext, isr: Sequence[int]) -> None:
        super().__init__(context)
        self.committed: Sequence[int] = tuple(isr)
        self.maximal: Sequence[int] = self.committed
        self.min_isr = 1
        self.start_of_epoch = self.log.end_offset
        """LESO: the log end offset at the start of this leader epoch."""
        self.hw_frozen_at = 0
        """The log end offset when the committed ISR fell below the minimum (E1)."""
        self.pending: Proposal | None = None
        self.followers: dict[int, Progress] = {}
        self.remotes: list[Progress] = []
        self.alone = True
        """Whether no other replica is in the maximal ISR."""
        self.waiters: list[Waiter] = []
        """Unanswered appends with acks=all, by rising offset."""
        self.flush_waiters: list[Waiter] = []
        """Unanswered appends with acks=1 to a ``sync`` log, by rising offset."""
        self.readers = Readers(self)
        self.deletions: list[Deletion] = []
        """Deletions that at least one live replica has not made yet."""
        self.lag_max_ns = context.config.replica_lag_time_max_ms * 1_000_000
        # Times of the next: waiter deadline, push of the high watermark, check for laggards, check
        # for joiners, retry of recording the epoch or of waking the log.
        self.expiry_at = FAR_FUTURE_NS
        self.push_at = FAR_FUTURE_NS
        self.shrink_at = FAR_FUTURE_NS
        self.join_at = FAR_FUTURE_NS
        self.record_at = FAR_FUTURE_NS

    # ------------------------------------------------------------------------------------ the reign

    def enter(self, now_ns: int) -> None:
        """Record the leader epoch, and start with no progress of any follower (R0). The epoch is
        written but not synced, because a leader that comes back leads in a new epoch."""
        self._record_epoch(now_ns)
        # A former follower's mark may lag behind the high watermark that readers now see.
        self.log.write_mark()
        self._set_replicas()
        for follower in self.remotes:
            if follower.broker_id in self.committed:
                follower.caught_up_ns = now_ns
        self._set_committed(self.committed)
        self._arm_shrink(now_ns)
        self.advance(now_ns)

    def _record_epoch(self, now_ns: int) -> None:
        """Record the leader epoch in the log; on a full disk retry later, or with the first append.
        Until then the log has no record of this epoch. A follower that knows an epoch unknown to
        this log has to wait (F5)."""
        self.record_at = FAR_FUTURE_NS
        log, epoch = self.log, self.context.leader_epoch
        if log.epochs.latest == epoch:
            return
        try:
            log.become_leader(epoch)
        except StorageError as error:
            if error.errno not in _PASSING or log.failure is not None:
                raise
            self.record_at = now_ns + EPOCH_RETRY_NS
            self.context.wake_by(self.record_at)

    def registered(self, event: MetadataApplied, now_ns: int, *, newer: bool) -> None:
        """Apply newer metadata of this epoch. A replay does not change the ISR (P3)."""
        self._set_replicas()
        if newer:
            self.pending = None
            self._set_committed(event.isr)
            self._arm_shrink(now_ns)
        else:
            self._set_committed(self.committed, keep_pending=True)
        self._look_for_joiners(now_ns)
        self.deletions_made()
        self.advance(now_ns)

    def brokers_applied(self, event: BrokersApplied, now_ns: int) -> None:
        """Look for replicas that may join the ISR now."""
        for follower in self.remotes:
            follower.not_before_ns = now_ns
        self._look_for_joiners(now_ns)
        self.deletions_made()
        self.advance(now_ns)

    def exit(self, code: int) -> None:
        """End the role; unanswered appends get NOT_ENOUGH_REPLICAS_AFTER_APPEND. They may still be
        committed under the next leader, so no append is reported as failed (W1)."""
        for waiter in (*self.flush_waiters, *self.waiters):
            self._answer(waiter, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self.flush_waiters.clear()
        self.waiters.clear()
        self.readers.exit(code)
        for deletion in self.deletions:
            self._deleted(deletion, code)
        self.deletions = []
        for follower in self.remotes:
            if follower.parked is not None:
                self.refuse_fetch(follower.parked, code)
                follower.parked = None

    # --------------------------------------------------------------------------------------- append

    def produce(self, event: Produce, now_ns: int) -> None:
        """Append one batch (2.3), and answer as ``acks`` demands (2.4)."""
        if event.leader_epoch >= 0 or event.acks != -1 or len(self.committed) < self.min_isr:
            code = self._produce_refusal(event)
            if code:
                self.refuse_produce(event, code)
                return
        try:
            appended = self.log.append_as_leader(event.records, self.context.leader_epoch, trusted=event.trusted)
        except (ClusterError, CorruptError, ClosedError, StorageError, OutcomeUnknownError) as error:
            self._not_appended(event, error, now_ns)
            return
        if appended.duplicate:
            self._appended_before(event, appended, now_ns)
            return
        self._serve_parked(now_ns)
        if event.acks:
            self._await(event, appended, now_ns)
        if self.alone:
            self.advance(now_ns)
        elif self.shrink_at == FAR_FUTURE_NS:
            self._arm_shrink(now_ns)

    def produce_many(self, event: ProduceMany, now_ns: int) -> None:
        """Append several batches with as few writes as possible, and notify the followers once."""
        events: list[Produce] = []
        for one in event.batches:
            code = self._produce_refusal(one)
            if code:
                self.refuse_produce(one, code)
            else:
                events.append(one)
        at, end = 0, self.log.end_offset
        unknown: OutcomeUnknownError | None = None
        while at < len(events):
            one = events[at]
            try:
                places = self.log.append_many_as_leader(
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
                    self._appended_before(one, appended, now_ns)
                elif one.acks:
                    self._await(one, appended, now_ns)
            at += len(places)
        if self.log.end_offset == end:
            return
        self._serve_parked(now_ns)
        if self.alone:
            self.advance(now_ns)
        elif self.shrink_at == FAR_FUTURE_NS:
            self._arm_shrink(now_ns)

    def _produce_refusal(self, event: Produce) -> int:
        """Return the error code that refuses the batch before it is appended; 0 if there is none."""
        code = self.epoch_error(event.leader_epoch)
        if not code:
            if event.acks == -1:
                if len(self.committed) < self.min_isr:
                    code = ErrorCode.NOT_ENOUGH_REPLICAS
            elif event.acks not in (0, 1):
                code = ErrorCode.INVALID_REQUIRED_ACKS
        return code

    def _not_appended(self, event: Produce, error: Exception, now_ns: int) -> bool:
        """Answer a batch that the log refused; return whether the replica went offline."""
        log, context = self.log, self.context
        failure: Exception | None = log.failure
        if isinstance(error, DuplicateSequenceError):
            # The batch's offset is forgotten, but it is below the log end. So it is committed at
            # the latest when the log end is.
            self._on_duplicate(
                event, Waiter(log.end_offset, event.source, event.correlation_id, 0, -1, -1, error.code), now_ns
            )
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

    def _appended_before(self, event: Produce, appended: Appended, now_ns: int) -> None:
        """Answer a batch that was already in the log."""
        waiter = Waiter(
            appended.last_offset + 1, event.source, event.correlation_id, 0, appended.base_offset, appended.timestamp
        )
        self._on_duplicate(event, waiter, now_ns)

    def _await(self, event: Produce, appended: Appended, now_ns: int) -> None:
        """Answer an appended batch, now or when the condition of its ``acks`` holds."""
        required = appended.last_offset + 1
        if event.acks == 1 and self.local_ack_offset() >= required:
            self._appended(event, appended.base_offset, appended.timestamp)
            return
        deadline = now_ns + event.timeout_ms * 1_000_000
        waiter = Waiter(
            required, event.source, event.correlation_id, deadline, appended.base_offset, appended.timestamp
        )
        (self.waiters if event.acks == -1 else self.flush_waiters).append(waiter)
        if deadline < self.expiry_at:
            self.expiry_at = deadline
            self.context.wake_by(deadline)

    def _on_duplicate(self, event: Produce, waiter: Waiter, now_ns: int) -> None:
        """Answer a batch that an idempotent producer sent again and the log already has. The answer
        has the offsets of the first append, and comes as soon as ``acks`` is satisfied for them. If
        the offsets are forgotten the answer is DUPLICATE_SEQUENCE_NUMBER."""
        required = waiter.required
        end, waiters = (
            (self.log.high_watermark, self.waiters)
            if event.acks == -1
            else (self.local_ack_offset(), self.flush_waiters)
        )
        if event.acks == 0:
            return
        if end >= required and (event.acks == 1 or len(self.maximal) >= self.min_isr):
            # The first append may have had no waiter, so its mark may not be written.
            self.log.write_mark()
            self._answer(waiter, 0)
            return
        deadline = waiter.deadline_ns = now_ns + event.timeout_ms * 1_000_000
        place = sum(one.required <= required for one in waiters)
        waiters.insert(place, waiter)
        if deadline < self.expiry_at:
            self.expiry_at = deadline
            self.context.wake_by(deadline)
        self.appends_acknowledged()

    def synced(self, event: Synced, now_ns: int) -> None:
        """Answer acks=1 appends now, because no later event may answer them. Appends with acks=all
        are answered when the high watermark has moved; one write of the mark then covers both."""
        if self.flush_waiters or not self.waiters or not self.context.needs_sync:
            self.log.write_mark()
            self.flushes_acknowledged()
        self.advance(now_ns)

    def appends_acknowledged(self) -> None:
        """Answer acks=all appends below the high watermark; fail them if the ISR is too small."""
        waiters, high_watermark = self.waiters, self.log.high_watermark
        if waiters and waiters[0].required <= high_watermark:
            code = 0 if len(self.maximal) >= self.min_isr else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            while waiters and waiters[0].required <= high_watermark:
                self._answer(waiters.pop(0), code)

    def flushes_acknowledged(self) -> None:
        """Answer acks=1 appends that are on this leader's stable storage."""
        waiters, end = self.flush_waiters, self.local_ack_offset()
        while waiters and waiters[0].required <= end:
            self._answer(waiters.pop(0), 0)

    # --------------------------------------------------------------------------- the high watermark

    def high_watermark_candidate(self, now_ns: int) -> int:
        """Return the offset below which every replica that counts, or may come to count, has all
        records. Return -1 while the ISR is too small (2.5)."""
        if len(self.committed) < self.min_isr:
            return -1
        candidate = self.local_ack_offset()
        for follower in self.remotes:
            if follower.leo < candidate and (
                follower.in_maximal_isr or (self.eligible(follower) and self.caught_up(follower, now_ns))
            ):
                candidate = follower.leo
        return candidate

    def local_ack_offset(self) -> int:
        """Return this replica's end that counts: flushed (``sync`` log) or written (``os`` log)."""
        return self.log.flushed_offset if self.context.needs_sync else self.log.end_offset

    def advance(self, now_ns: int) -> None:
        """Move the high watermark if it can move, then write the mark, then answer the waiting
        requests. If the log cannot wake, retry later."""
        log = self.log
        try:
            before = log.high_watermark
            if log.end_offset <= before:
                return
            candidate = self.high_watermark_candidate(now_ns)
            if candidate <= before or not log.advance_high_watermark(candidate):
                return
        except StorageError:
            if not self.context.still_unloaded():
                raise
            self.record_at = now_ns + EPOCH_RETRY_NS
            self.context.wake_by(self.record_at)
            return
        if self.context.deferred_log_start:
            self.hide_deleted()
        log.write_mark()
        if self.waiters:
            self.appends_acknowledged()
        if self.readers.waiting:
            self.readers.serve()
        if self.push_at == FAR_FUTURE_NS and self.remotes:
            self.push_at = now_ns + HIGH_WATERMARK_PUSH_NS
            self.context.wake_by(self.push_at)

    def caught_up(self, follower: Progress, now_ns: int) -> bool:
        """Return whether the follower has all records, or had them at most
        ``replica.lag.time.max.ms`` ago."""
        return follower.leo == self.log.end_offset or now_ns - follower.caught_up_ns <= self.lag_max_ns

    def eligible(self, follower: Progress) -> bool:
        """Return whether the controller would accept the follower into the ISR. Its broker must be
        alive, and the incarnation that fetches must be the registered one."""
        status = self.context.brokers.get(follower.broker_id)
        return status is not None and status.eligible and follower.broker_epoch == status.epoch

    # ------------------------------------------------------------------------------------ followers

    def follower_fetch(self, event: FollowerFetch, now_ns: int) -> None:
        """Check the fetch (2.8), read, record progress (2.6); an error or divergence records none."""
        request = event.request
        context, log = self.context, self.log
        if request.current_leader_epoch != context.leader_epoch:
            self.refuse_fetch(event, self.refusal(request.current_leader_epoch))
            return
        follower = self.followers.get(event.replica_id)
        if follower is None:
            self.refuse_fetch(event, ErrorCode.UNKNOWN_LEADER_EPOCH)
            return
        status = context.brokers.get(event.replica_id)
        if status is not None and status.epoch > event.replica_epoch:
            self.refuse_fetch(event, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        offset, end = request.fetch_offset, log.end_offset
        follower.parked = None
        records: LogSlice | None = None
        if request.last_fetched_epoch != context.leader_epoch or offset > end or offset < log.start_offset:
            refusal = self.diverging(request, end)
            if refusal is not None:
                self.reply(event, refusal)
                return
        if offset < end:
            try:
                # At least one batch, or the follower would never progress.
                records = log.read(offset, max(request.partition_max_bytes, 1), end, checked=True)
            except (OffsetOutOfRangeError, CorruptError, StorageError) as error:
                self.refuse_read(event, error)
                return
        follower.fetched(offset, request.log_start_offset, event.replica_epoch, end, now_ns)
        if self.deletions:
            self.deletions_made()
        if not follower.in_maximal_isr and self.pending is None:
            self._propose_join(follower, now_ns)
        if log.high_watermark < end:
            self.advance(now_ns)
        if records is not None and records.size:
            self.reply(event, self.data(records))
            return
        follower.parked = event
        follower.parked_ns = now_ns
        if (
            request.high_watermark < log.high_watermark or request.log_start_offset < log.start_offset
        ) and self.push_at == FAR_FUTURE_NS:
            self.push_at = now_ns + HIGH_WATERMARK_PUSH_NS
            context.wake_by(self.push_at)

    def _serve_parked(self, now_ns: int) -> None:
        """Answer the parked fetches with the new records. Their followers had all records until
        now. Fetches from the same offset share one read."""
        log, data, at = self.log, None, None
        for follower in self.remotes:
            parked = follower.parked
            if parked is None:
                continue
            follower.caught_up_ns = now_ns
            request = parked.request
            here = (request.fetch_offset, max(request.partition_max_bytes, 1))
            if data is None or here != at:
                try:
                    data, at = self.data(log.read(*here, log.end_offset, checked=True)), here
                except (OffsetOutOfRangeError, CorruptError, StorageError) as error:
                    self.refuse_read(parked, error)
                    follower.parked = None
                    continue
            follower.parked = None
            self.context.out.append(Reply(parked.source, parked.correlation_id, data))

    def _push_high_watermark(self, now_ns: int) -> None:
        """Answer fetches that were parked for a while and have an old high watermark or log start
        offset. Followers that fetched just now are likely to get records soon, so they wait."""
        self.push_at = FAR_FUTURE_NS
        high_watermark, start = self.log.high_watermark, self.log.start_offset
        for follower in self.remotes:
            parked = follower.parked
            if parked is None or (
                parked.request.high_watermark >= high_watermark and parked.request.log_start_offset >= start
            ):
                continue
            due = follower.parked_ns + HIGH_WATERMARK_PUSH_NS
            if due <= now_ns:
                follower.parked = None
                self.reply(parked, self.data(None))
            else:
                self.push_at = min(self.push_at, due)

    # ---------------------------------------------------------------------------------- in-sync set

    @property
    def is_only_member(self) -> bool:
        """Whether the committed ISR has no other member."""
        return len(self.committed) <= 1

    def may_join(self, follower: Progress, now_ns: int) -> bool:
        """Return whether the leader may propose the follower for the ISR. The follower must be
        eligible, have fetched in this epoch, have every record that was or may have been exposed
        (2.6, E1), and have made all deletions."""
        leo = follower.leo
        if leo < 0 or leo < self.log.high_watermark or leo < self.start_of_epoch or not self.eligible(follower):
            return False
        if follower.start_offset < self.log.start_offset:
            return False
        return len(self.committed) >= self.min_isr or leo >= self.hw_frozen_at or self.caught_up(follower, now_ns)

    def alter_partition_answered(self, event: AlterPartitionAnswered, now_ns: int) -> None:
        """Handle the answer to the outstanding proposal; answers to earlier ones say nothing (P2)."""
        pending = self.pending
        if pending is None or event.token != pending.token:
            return
        result = event.result
        code = event.error_code if result is None or event.error_code else result.error_code
        context = self.context
        if code == 0 and result is not None:
            if result.leader_epoch == context.leader_epoch and result.partition_epoch >= context.partition_epoch:
                context.partition_epoch = result.partition_epoch
                self.pending = None
                self._set_committed(result.isr)
                self._arm_shrink(now_ns)
                self._look_for_joiners(now_ns)
                self.advance(now_ns)
        elif code in _BACK_TO_COMMITTED:
            if pending.joins is not None:
                self.join_at = pending.joins.not_before_ns = now_ns + INELIGIBLE_RETRY_NS
                context.wake_by(self.join_at)
            self.pending = None
            self._set_committed(self.committed)
            self._arm_shrink(now_ns)
            self._look_for_joiners(now_ns)
            self.advance(now_ns)
        elif code not in _UNTIL_METADATA:
            pending.resend_ns = now_ns + PROPOSAL_RETRY_NS
            context.wake_by(pending.resend_ns)

    def _look_for_joiners(self, now_ns: int) -> None:
        for follower in self.remotes:
            if self.pending is None and not follower.in_maximal_isr and follower.parked is not None:
                self._propose_join(follower, now_ns)

    def _propose_join(self, follower: Progress, now_ns: int) -> None:
        if now_ns >= follower.not_before_ns and self.may_join(follower, now_ns):
            self._propose([*self.committed, follower.broker_id], follower)

    def _propose_shrink(self, now_ns: int) -> None:
        """Propose to remove all laggards in one step; check again later if a replica can still lag."""
        self.shrink_at = FAR_FUTURE_NS
        if self.pending is None:
            late = [f.broker_id for f in self.remotes if f.committed and not self.caught_up(f, now_ns)]
            if late:
                self._propose([b for b in self.committed if b not in late], None)
        self._arm_shrink(now_ns)
        self.advance(now_ns)

    def _propose(self, members: Sequence[int], joins: Progress | None) -> None:
        """Propose ``members``; until the answer the maximal ISR has all that may be counted (P1)."""
        context, states = self.context, []
        for broker_id in members:
            follower, status = self.followers.get(broker_id), context.brokers.get(broker_id)
            epoch = (
                follower.broker_epoch
                if follower is not None and follower.broker_epoch >= 0
                else status.epoch
                if status
                else -1
            )
            if epoch < 0:
                return
            states.append(BrokerState(broker_id, epoch))
        data = AlterPartitionData(context.partition, context.leader_epoch, states, context.partition_epoch)
        self.pending = Proposal(context.next_token, data, joins)
        context.next_token += 1
        if joins is not None:
            self._set_maximal([*self.committed, joins.broker_id])
        context.out.append(AlterPartition(self.pending.token, data))

    def _set_replicas(self) -> None:
        """Set the followers to the other assigned replicas; those that stay keep their progress."""
        context = self.context
        others = [broker_id for broker_id in context.replicas if broker_id != context.broker_id]
        for broker_id, follower in self.followers.items():
            if broker_id not in others and follower.parked is not None:
                self.refuse_fetch(follower.parked, ErrorCode.UNKNOWN_LEADER_EPOCH)
        self.followers = {broker_id: self.followers.get(broker_id) or Progress(broker_id) for broker_id in others}
        self.remotes = list(self.followers.values())
        self.min_isr = min(self.log.config.min_insync_replicas, max(1, len(context.replicas)))

    def _set_committed(self, isr: Sequence[int], *, keep_pending: bool = False) -> None:
        below_before = len(self.committed) < self.min_isr
        self.committed = tuple(isr)
        if len(self.committed) < self.min_isr and (not below_before or not self.hw_frozen_at):
            self.hw_frozen_at = self.log.end_offset
        for follower in self.remotes:
            follower.committed = follower.broker_id in self.committed
        joins = self.pending.joins if keep_pending and self.pending is not None else None
        self._set_maximal(self.committed if joins is None else [*self.committed, joins.broker_id])

    def _set_maximal(self, maximal: Iterable[int]) -> None:
        self.maximal = tuple(maximal)
        self.alone = True
        for follower in self.remotes:
            follower.in_maximal_isr = follower.broker_id in self.maximal
            if follower.in_maximal_isr:
                self.alone = False

    def _arm_shrink(self, now_ns: int) -> None:
        """Check for laggards later, unless no replica that counts lacks records."""
        if self.shrink_at != FAR_FUTURE_NS:
            return
        end = self.log.end_offset
        for follower in self.remotes:
            if follower.leo != end and (follower.committed or now_ns - follower.caught_up_ns <= self.lag_max_ns):
                self.shrink_at = now_ns + self.lag_max_ns // 2
                self.context.wake_by(self.shrink_at)
                return

    # -------------------------------------------------------------------------------------- readers

    def consumer_fetch(self, event: ConsumerFetch, now_ns: int) -> None:
        """Serve records below the high watermark."""
        request, log = event.request, self.log
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
            self.readers.fetch(event, now_ns)

    def cancel_fetch(self, event: CancelFetch, now_ns: int) -> None:
        """Drop the fetch of a reader that no longer waits."""
        self.readers.cancel(event.source, event.correlation_id)

    def list_offsets(self, event: ListOffsets, now_ns: int) -> None:
        """Look up an offset by timestamp. While the high watermark is below the start of this
        leader epoch, readers cannot know the end (KIP-207)."""
        request, log = event.request, self.log
        answer = ListOffsetsPartitionResponse(request.partition_index, self.epoch_error(request.current_leader_epoch))
        end = log.end_offset if event.replica_id >= 0 else log.high_watermark
        unknown = event.replica_id < 0 and end < self.start_of_epoch
        if answer.error_code:
            pass
        elif request.timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            answer.offset = log.start_offset
            answer.leader_epoch = log.epochs.epoch_for_offset(log.start_offset)
        elif request.timestamp == LATEST_TIMESTAMP:
            if unknown:
                answer.error_code = ErrorCode.OFFSET_NOT_AVAILABLE
            else:
                answer.offset = end
                answer.leader_epoch = self.context.leader_epoch
        elif request.timestamp == LATEST_TIERED_TIMESTAMP:
            pass  # nothing is stored elsewhere
        elif request.timestamp == MAX_TIMESTAMP and not unknown:
            self._find_greatest(answer, end)
        elif request.timestamp < 0:
            answer.error_code = (
                ErrorCode.OFFSET_NOT_AVAILABLE if request.timestamp == MAX_TIMESTAMP else ErrorCode.INVALID_REQUEST
            )
        else:
            self._find_timestamp(answer, request.timestamp, end, unknown=unknown)
        self.reply(event, answer)

    def _find_timestamp(self, answer: ListOffsetsPartitionResponse, timestamp: int, end: int, *, unknown: bool) -> None:
        try:
            found = self.log.find_timestamp(timestamp, end)
        except (CorruptError, StorageError) as error:
            answer.error_code = self.read_code(error)
            return
        if found is not None:
            answer.offset, answer.timestamp = found
            answer.leader_epoch = self.log.epochs.epoch_for_offset(answer.offset)
        elif unknown:
            answer.error_code = ErrorCode.OFFSET_NOT_AVAILABLE

    def _find_greatest(self, answer: ListOffsetsPartitionResponse, end: int) -> None:
        """Binary-search the first record with the greatest timestamp below ``end``."""
        probe, low, high, step = 0, 0, INT64_MAX, 1
        try:
            while low <= high:
                found = self.log.find_timestamp(probe, end)
                if found is None:
                    if answer.offset < 0:
                        return  # no records
                    high = probe - 1
                else:
                    answer.offset, answer.timestamp = found
                    low = found[1] + 1
                    step *= 2
                probe = (low + high + 1) // 2 if high < INT64_MAX else min(low + step - 2, INT64_MAX)
        except (CorruptError, StorageError) as error:
            answer.error_code = self.read_code(error)
            return
        answer.leader_epoch = self.log.epochs.epoch_for_offset(answer.offset)

    def offset_for_leader_epoch(self, event: OffsetForLeaderEpoch, now_ns: int) -> None:
        """Answer with the end offset of a leader epoch in this log."""
        request = event.request
        code = self.epoch_error(request.current_leader_epoch)
        epoch, end = (-1, -1) if code else self.end_of_epoch(request.leader_epoch)
        self.reply(event, OffsetForLeaderEpochResult(request.partition, code, epoch, end))

    # ------------------------------------------------------------------------------------- deletion

    def delete_records(self, event: DeleteRecords, now_ns: int) -> None:
        """Move the log start up to at most the high watermark; notify the followers (2.12)."""
        log, context = self.log, self.context
        offset = log.high_watermark if event.offset == -1 else event.offset
        if not 0 <= offset <= log.high_watermark:
            self.reply(event, DeleteRecordsPartitionResult(context.partition, -1, ErrorCode.OFFSET_OUT_OF_RANGE))
            return
        if offset > log.start_offset:
            try:
                # Durable: a power loss must not bring deleted records back.
                log.delete_records(offset)
            except StorageError:
                if not context.still_unloaded():
                    raise
                self.reply(event, DeleteRecordsPartitionResult(context.partition, -1, ErrorCode.KAFKA_STORAGE_ERROR))
                return
            for follower in self.remotes:
                if follower.parked is not None:
                    parked, follower.parked = follower.parked, None
                    self.reply(parked, self.data(None))
        deadline = now_ns + event.timeout_ms * 1_000_000
        self.deletions.append(Deletion(offset, event.source, event.correlation_id, deadline))
        if deadline < self.expiry_at:
            self.expiry_at = deadline
            context.wake_by(deadline)
        self.deletions_made()

    def low_watermark(self) -> int:
        """Return the lowest log start offset of the live replicas and of the ISR; -1 if one is
        unknown. ISR members count even if they are fenced, because each may lead next. No record
        below the result can be read anywhere."""
        low = self.log.start_offset
        for follower in self.remotes:
            status = self.context.brokers.get(follower.broker_id)
            if (follower.in_maximal_isr or (status is not None and status.eligible)) and follower.start_offset < low:
                low = follower.start_offset
        return low

    def deletions_made(self) -> None:
        """Answer the deletions that every live replica has made."""
        if not self.deletions:
            return
        low, kept = self.low_watermark(), []
        for deletion in self.deletions:
            if deletion.offset <= low:
                self._deleted(deletion, 0)
            else:
                kept.append(deletion)
        self.deletions = kept

    def _deleted(self, deletion: Deletion, code: int) -> None:
        result = DeleteRecordsPartitionResult(self.context.partition, -1 if code else self.low_watermark(), code)
        self.context.out.append(Reply(deletion.source, deletion.correlation_id, result))

    # ----------------------------------------------------------------------------------------- time

    def tick(self, event: Tick, now_ns: int) -> None:
        """Do all work that is due, then ask for the next tick."""
        pending = self.pending
        if now_ns >= self.expiry_at:
            self._expire(now_ns)
        if now_ns >= self.readers.expiry_ns:
            self.readers.expire(now_ns)
        if now_ns >= self.push_at:
            self._push_high_watermark(now_ns)
        if now_ns >= self.shrink_at:
            self._propose_shrink(now_ns)
        if now_ns >= self.join_at:
            self.join_at = FAR_FUTURE_NS
            self._look_for_joiners(now_ns)
        if pending is not None and now_ns >= pending.resend_ns:
            pending.resend_ns = FAR_FUTURE_NS
            self.context.out.append(AlterPartition(pending.token, pending.data))
        resend_at = FAR_FUTURE_NS if pending is None else pending.resend_ns
        if now_ns >= self.record_at:
            self._record_epoch(now_ns)
            self.advance(now_ns)
        soonest = min(
            self.expiry_at,
            self.readers.expiry_ns,
            self.push_at,
            self.shrink_at,
            self.join_at,
            self.record_at,
            resend_at,
        )
        if soonest < FAR_FUTURE_NS:
            self.context.wake_by(soonest)

    def _expire(self, now_ns: int) -> None:
        """Answer expired requests with REQUEST_TIMED_OUT; their work still goes on."""
        # The write of the mark may have been left to the next high-watermark move.
        self.log.write_mark()
        self.waiters = self._unexpired(self.waiters, now_ns)
        self.flush_waiters = self._unexpired(self.flush_waiters, now_ns)
        soonest = min([waiter.deadline_ns for waiter in (*self.waiters, *self.flush_waiters)], default=FAR_FUTURE_NS)
        kept_deletions = []
        for deletion in self.deletions:
            if deletion.deadline_ns <= now_ns:
                self._deleted(deletion, ErrorCode.REQUEST_TIMED_OUT)
            else:
                kept_deletions.append(deletion)
                soonest = min(soonest, deletion.deadline_ns)
        self.deletions = kept_deletions
        self.expiry_at = soonest

    def _unexpired(self, waiters: list[Waiter], now_ns: int) -> list[Waiter]:
        """Answer the expired ``waiters`` and return the others."""
        kept: list[Waiter] = []
        for waiter in waiters:
            if waiter.deadline_ns <= now_ns:
                self._answer(waiter, ErrorCode.REQUEST_TIMED_OUT)
            else:
                kept.append(waiter)
        return kept

    # ----------------------------------------------------------------------------------------- help

    def _appended(self, event: Produce, base_offset: int, append_time: int) -> None:
        self.reply(
            event, PartitionProduceResponse(self.context.partition, 0, base_offset, append_time, self.log.start_offset)
        )

    def _answer(self, waiter: Waiter, code: int) -> None:
        context = self.context
        if code:
            result = PartitionProduceResponse(context.partition, code, current_leader=context.current_leader_hint())
        elif waiter.code:
            result = PartitionProduceResponse(context.partition, waiter.code)
        else:
            result = PartitionProduceResponse(
                context.partition, 0, waiter.base_offset, waiter.append_time, self.log.start_offset
            )
        context.out.append(Reply(waiter.source, waiter.correlation_id, result))


def _append_code(error: Exception) -> int:
    if isinstance(error, ClusterError):
        return error.code
    return ErrorCode.CORRUPT_MESSAGE if isinstance(error, CorruptError) else ErrorCode.KAFKA_STORAGE_ERROR
