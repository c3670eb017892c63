"""The follower: fetch from the leader, truncate diverging records, and append the rest unchanged.

Rules (``docs/internals/replication.md``): a follower truncates only on the leader's evidence,
inside the fetch, and only under the leader epoch in which the answer was given (2.8, T1). It never
truncates below its own high watermark without reporting it (T2). A follower with a ``sync`` log
fetches only from its flushed end, so that the fetch offset itself states what is durable.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from pyreplog.errors import ClosedError, CorruptError, OffsetOutOfRangeError, OutcomeUnknownError, StorageError
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.ports import NO_SPACE_ERRNOS, RESOURCES_EXHAUSTED_ERRNOS
from pyreplog.record import RecordBatch
from pyreplog.replica.context import ReplicaContext
from pyreplog.replica.delayed_consumer_fetches import DelayedConsumerFetches
from pyreplog.replica.effects import (
    Fetch,
    Lost,
    Stalled,
    StopFetching,
)
from pyreplog.replica.events import (
    FAR_FUTURE_NS,
    CancelFetch,
    ConsumerFetch,
    FetchAnswered,
    Synced,
    Tick,
)
from pyreplog.replica.role import ReplicaRole
from pyreplog.wire import NO_ID, ErrorCode, FetchPartition, PartitionData

__all__ = ["Follower"]

BACKOFF_MAX_NS: Final = 1_000_000_000
FIRST_PAUSES: Final = 16
"""The first pause is ``replica_fetch_backoff_ms`` divided by this. Each later pause is twice as
long.
"""
FLUSH_CHECK_NS: Final = 5_000_000_000
"""How often an idle follower of a compacted topic looks whether its records were synced."""
MARK_INTERVAL_NS: Final = 1_000_000
"""Shortest time between two writes of the mark while records stream in.

The mark follows the high watermark late, because no acknowledgement relies on a follower's mark.
"""

_PASSING: Final = NO_SPACE_ERRNOS | RESOURCES_EXHAUSTED_ERRNOS


@mypyc_attr(allow_interpreted_subclasses=True)
class Follower(ReplicaRole):
    """The role of a replica that follows one leader, for one leader epoch."""

    __slots__ = (
        "asked",
        "backoff_ns",
        "consumer_fetches",
        "flush_check_at",
        "known_dropped",
        "leader_high_watermark",
        "leader_id",
        "marked_ns",
        "max_bytes",
        "retry_at",
        "stalled",
        "stopped",
    )

    name: ClassVar[str] = "follower"

    def __init__(self, context: ReplicaContext) -> None:
        super().__init__(context)
        self.leader_id = context.leader_id
        self.asked: FetchPartition | None = None
        """The outstanding fetch."""
        self.known_dropped = -1
        """This log was empty when the leader had dropped no tombstone above this offset."""
        self.stopped = False
        """The leader reported that its epoch is over: do not fetch until newer metadata arrives."""
        self.leader_high_watermark = 0
        self.retry_at = FAR_FUTURE_NS
        self.flush_check_at = FAR_FUTURE_NS
        """The time to look whether more is on stable storage than the leader was told."""
        self.backoff_ns = 0
        self.stalled = False
        """Whether the newest records could not be written to the disk."""
        self.marked_ns = 0
        self.max_bytes = context.config.replica_fetch_max_bytes
        self.consumer_fetches = DelayedConsumerFetches(self)

    def enter(self, now_ns: int) -> None:
        """Start to fetch.

        A replica with a ``sync`` log first syncs its unsynced batches; ``Replica.step`` does that
        at the end of every step.
        """
        # A former leader's mark may lag behind its syncs, and the fetch states the synced end.
        self.context.log.write_mark()
        self.ask()

    def exit(self, code: int) -> None:
        """Stop following this leader."""
        self.consumer_fetches.exit(code)
        if self.asked is not None:
            self.context.out.append(StopFetching())

    # --------------------------------------------------------------------------------------- asking

    def ask(self) -> None:
        """Fetch from the log end, unless a fetch is outstanding or the end is not durable yet.

        Only a ``sync`` log waits for its flushed end.
        """
        log = self.context.log
        end = log.end_offset
        if self.asked is not None or self.stopped or self.retry_at != FAR_FUTURE_NS or not self.may_ask(end):
            return
        last_epoch = log.epochs.latest
        if last_epoch < 0 and end > log.start_offset:
            self.context.go_offline(CorruptError(f"{log.topic_partition}: records without any leader epoch"))
            return
        self.asked = request = FetchPartition(
            self.context.partition,
            self.context.leader_epoch,
            end,
            last_epoch,
            log.start_offset,
            self.max_bytes,
            NO_ID,
            log.high_watermark,
            log.flushed_offset if self.context.takes_gaps else -1,
        )
        if self.context.takes_gaps and log.flushed_offset < end:
            self.flush_check_at = self.context.now_ns + FLUSH_CHECK_NS
            self.context.wake_by(self.flush_check_at)
        self.context.out.append(Fetch(self.leader_id, request))

    def may_ask(self, end: int) -> bool:
        """Return whether a fetch from ``end`` states a durable offset.

        A ``sync`` log must be flushed up to ``end``; an ``os`` log always qualifies.
        """
        return not self.context.needs_sync or self.context.log.flushed_offset == end

    def synced(self, event: Synced, now_ns: int) -> None:
        """Move the high watermark after a sync, write the mark, then fetch again.

        The mark is written before the leader learns of the new flushed end.
        """
        self._advance(now_ns, streaming=True)  # may leave the mark to the next line
        self.context.log.write_mark()
        self._tell_flushed()
        self.ask()

    def _tell_flushed(self) -> None:
        """Fetch again if more is on stable storage than the outstanding fetch says. By that the leader
        counts which tombstones may be dropped."""
        asked = self.asked
        if asked is not None and self.context.takes_gaps and asked.flushed_offset < self.context.log.flushed_offset:
            self.asked = None
            self.ask()

    def tick(self, event: Tick, now_ns: int) -> None:
        """Handle the end of a pause, or of a reader's wait."""
        if now_ns >= self.consumer_fetches.expiry_ns:
            self.consumer_fetches.expire(now_ns)
        if now_ns >= self.retry_at:
            self.retry_at = FAR_FUTURE_NS
            self.ask()
        if now_ns >= self.flush_check_at:
            self.flush_check_at = FAR_FUTURE_NS
            self._tell_flushed()
            log = self.context.log
            if self.flush_check_at == FAR_FUTURE_NS and log.flushed_offset < log.end_offset:
                self.flush_check_at = now_ns + FLUSH_CHECK_NS
        soonest = min(self.retry_at, self.consumer_fetches.expiry_ns, self.flush_check_at)
        if soonest < FAR_FUTURE_NS:
            self.context.wake_by(soonest)

    def back_off(self, now_ns: int, *, longest: bool = False) -> None:
        """Pause before the next fetch: twice as long as the last time, up to a second.

        The first pauses are short, because most causes end at once (the leader learns its epoch a
        moment later than this follower).
        """
        first = self.context.config.replica_fetch_backoff_ms * 1_000_000 // FIRST_PAUSES
        self.backoff_ns = BACKOFF_MAX_NS if longest else min(max(first, 2 * self.backoff_ns), BACKOFF_MAX_NS)
        self.retry_at = now_ns + self.backoff_ns
        self.context.wake_by(self.retry_at)

    # -------------------------------------------------------------------------------------- answers

    def fetch_answered(self, event: FetchAnswered, now_ns: int) -> None:
        """Handle the leader's answer to the outstanding fetch.

        The answer is used only under the leader epoch of the fetch (T1), and only if the log still
        ends at the fetch offset.
        """
        request, data = event.request, event.data
        if request is not self.asked:
            return
        self.asked = None
        context = self.context
        if request.current_leader_epoch != context.leader_epoch or request.fetch_offset != context.log.end_offset:
            self.ask()
            return
        try:
            if data.error_code:
                self._refused(data, now_ns)
                return
            if data.diverging_epoch is not None:
                self.backoff_ns = 0
                self._truncate(self.divergence_target(data.diverging_epoch.epoch, data.diverging_epoch.end_offset))
                self.ask()
                return
            if self._missed_tombstones(data):
                self._begin_anew(data)
                self.ask()
                return
            self.context.note_tombstone_bound(max(data.tombstone_bound, 0))
            if data.records is not None and not self._append(data, now_ns):
                return
            self.backoff_ns = 0
            if data.records is not None:
                self.stalled = False
            self._hear(data, now_ns)
            self.ask()
        except StorageError:
            if not self.context.still_unloaded():
                raise
            # Ask the leader again when the log can perhaps be opened.
            self.back_off(now_ns, longest=True)

    def _append(self, data: PartitionData, now_ns: int) -> bool:
        """Append the records unchanged; if that fails, pause and return False."""
        records: Any = data.records
        end = self.context.log.end_offset
        try:
            parts = records.parts() if hasattr(records, "parts") else (records,)
            if parts:
                log = self.context.load_log()
                if (end <= data.log_start_offset or end == log.start_offset) and (
                    begin := RecordBatch(parts[0]).base_offset
                ) < end:
                    # The leader's log starts inside this batch. Either all records of this log are
                    # deleted at the leader (and may be of another branch, because the leader's
                    # history begins at its log start), or this log is empty and starts at a former
                    # leader's log start. Restart the log at the batch's base offset, and later
                    # delete the records that were already deleted here (``deferred_log_start``).
                    self.context.deferred_log_start = max(self.context.deferred_log_start, log.start_offset)
                    log.truncate_fully(begin)
                elif 0 < end == log.start_offset and log.epochs.latest < self.context.unclean_epoch:
                    # The first records after an unclean election, and this log has only deleted
                    # ones. Those may have a later epoch than the new records, which must not come
                    # after them.
                    log.truncate_fully(end)
                log.append_as_follower(parts, at_end=True, dropped_tombstone=data.dropped_tombstone)
        except (CorruptError, ClosedError, OffsetOutOfRangeError, OutcomeUnknownError):
            # The records were damaged on the way, or the leader has truncated them since.
            if self.context.log.failure is not None:
                raise
            self._begin_where_kept()
            self.back_off(now_ns)
            return False
        except StorageError as error:
            if error.errno not in _PASSING or self.context.log.failure is not None:
                raise
            self._begin_where_kept()
            if not self.stalled:
                self.stalled = True
                self.context.out.append(Stalled(error))
            self.back_off(now_ns, longest=True)
            if error.errno in NO_SPACE_ERRNOS and self.context.log.end_offset == end:
                self._hear_at_least(data, now_ns)
            return False
        return True

    def _missed_tombstones(self, data: PartitionData) -> bool:
        """Return whether the leader has dropped tombstones above this log's end that this log has not
        had. It may hold a record that one of them deleted, and would keep it.

        A leader drops none above what this replica has told it in this epoch, so a log that was empty
        since misses none.
        """
        dropped, log = data.dropped_tombstone, self.context.log
        if dropped < log.end_offset or dropped <= self.known_dropped:
            return False
        if log.end_offset > log.start_offset:
            return True
        self.known_dropped = dropped
        return False

    def _begin_anew(self, data: PartitionData) -> None:
        """Drop all records and fetch them again, as the leader has them now."""
        log = self.context.load_log()
        log.set_incomplete(True)
        log.truncate_fully(max(data.log_start_offset, log.start_offset))
        self.known_dropped = data.dropped_tombstone

    def _hear(self, data: PartitionData, now_ns: int) -> None:
        """Adopt the leader's high watermark and log start offset.

        REQUIRES that this log's records are the leader's.
        """
        self.leader_high_watermark = data.high_watermark
        self._advance(now_ns, streaming=data.records is not None)
        log = self.context.log
        if data.log_start_offset > log.start_offset:
            start = min(data.log_start_offset, log.high_watermark)
            if start > log.start_offset:
                self.context.load_log().delete_records(start)

    def _hear_at_least(self, data: PartitionData, now_ns: int) -> None:
        """Adopt the leader's high watermark and log start offset on a full disk.

        There mostly is room for that, and deleting old records makes room for new ones.
        """
        try:
            self._hear(data, now_ns)
        except StorageError as error:
            if error.errno not in _PASSING or self.context.log.failure is not None:
                raise

    def _begin_where_kept(self) -> None:
        """Go back to the old log start if the batch for which the log restarted did not arrive.

        Another leader may send other records in its place, which are not the deleted ones.
        """
        if self.context.log.end_offset < self.context.deferred_log_start:
            self.context.load_log().truncate_fully(self.context.deferred_log_start)

    def _advance(self, now_ns: int, *, streaming: bool) -> None:
        """Set the high watermark to the leader's, but not above this log's end.

        Call it after the append. The end of a ``sync`` log is its flushed end.
        """
        high_watermark = self.context.log.flushed_offset if self.context.needs_sync else self.context.log.end_offset
        if self.leader_high_watermark < high_watermark:
            high_watermark = self.leader_high_watermark
        if high_watermark <= self.context.log.high_watermark:
            return
        log = self.context.load_log()
        if log.advance_high_watermark(high_watermark):
            if self.context.deferred_log_start:
                self.hide_deleted()
            if self.consumer_fetches.waiting:
                self.consumer_fetches.serve()
            if streaming and now_ns - self.marked_ns < MARK_INTERVAL_NS:
                return
            if self.context.needs_sync and log.flushed_offset < log.end_offset:
                return  # the sync of the new records writes it
            self.marked_ns = now_ns
            log.write_mark()

    def divergence_target(self, epoch: int, end_offset: int) -> int:
        """Return the offset to truncate to (2.8).

        ``epoch`` is the leader's greatest epoch that is not above ours, and ``end_offset`` is its
        end at the leader.
        """
        log = self.context.log
        end = log.end_offset
        own_epoch, local_ack_offset = log.epochs.end_offset_for(epoch, end)
        if local_ack_offset < 0:
            return min(end_offset, end)
        if own_epoch != epoch:
            return min(local_ack_offset, end)
        return min(local_ack_offset, end_offset, end)

    def _truncate(self, target: int) -> None:
        """Truncate the log and its epochs to ``target``, also if only epochs go.

        The high watermark goes down with the log end.
        """
        log = self.context.log
        if target < log.high_watermark and log.epochs.latest < self.context.unclean_epoch:
            self.context.out.append(Lost(target, log.high_watermark, self.context.unclean_epoch))
        elif target < log.high_watermark:
            self.context.broken_rule("T2", f"truncating to {target}, below its own high watermark {log.high_watermark}")
        # The target may lie below this log's start: the log of an uncleanly elected leader may end
        # there.
        self.context.deferred_log_start = min(self.context.deferred_log_start, target)
        self.context.load_log().truncate_to(target)

    def _refused(self, data: PartitionData, now_ns: int) -> None:
        code = data.error_code
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            self.stopped = True
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE and data.log_start_offset >= 0 and data.diverging_epoch is not None:
            self._out_of_range(data.log_start_offset, data.diverging_epoch.end_offset, now_ns)
        else:
            self.back_off(now_ns)

    def _out_of_range(self, leader_start: int, leader_end: int, now_ns: int) -> None:
        """Handle a fetch offset that the leader does not have.

        Its log either ends below this one, or starts above it; then this log restarts at the
        leader's start.
        """
        log = self.context.log
        if leader_end < log.end_offset:
            self._truncate(leader_end)
        elif leader_start > log.end_offset:
            self.context.load_log().truncate_fully(leader_start)
        else:
            self.back_off(now_ns)
            return
        self.ask()

    # -------------------------------------------------------------------------------------- readers

    def consumer_fetch(self, event: ConsumerFetch, now_ns: int) -> None:
        """Serve records below this replica's own high watermark (KIP-392).

        The reader must accept any replica. Only an in-sync replica serves, because a replica that
        is far behind would hold its readers back.
        """
        request, log = event.request, self.context.log
        code = self.epoch_error(request.current_leader_epoch)
        if not code and (not event.anywhere or not self.context.in_sync or log.incomplete):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not code and request.fetch_offset < log.start_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        if not code and (request.fetch_offset > log.high_watermark or request.last_fetched_epoch > log.epochs.latest):
            code = ErrorCode.OFFSET_NOT_AVAILABLE
        if code:
            self.refuse_fetch(event, code)
            return
        refusal = self.diverging(request, log.end_offset) if request.last_fetched_epoch >= 0 else None
        if refusal is not None:
            self.reply(event, refusal)
        else:
            self.consumer_fetches.fetch(event, now_ns)

    def cancel_fetch(self, event: CancelFetch, now_ns: int) -> None:
        """Drop the fetch of a reader that no longer waits."""
        self.consumer_fetches.cancel(event.source, event.correlation_id)
