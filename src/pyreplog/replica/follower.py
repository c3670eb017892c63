"""The follower: fetches from the leader, cuts off what the leader does not have, appends the rest as it is.

Rules (``docs/internals/replication.md``): truncation only on the leader's evidence, inside the fetch, and only under the leader epoch in
which the answer was given (2.8, T1); never below the own high watermark without saying so (T2). A ``sync`` follower fetches only from its
flushed end, so that the fetch itself says what is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyreplog.compiled import mypyc_attr
from pyreplog.errors import ClosedError, CorruptError, OffsetOutOfRangeError, OutcomeUnknownError, StorageError
from pyreplog.interruptions import is_interruption
from pyreplog.ports import OUT_OF_MEANS, OUT_OF_ROOM
from pyreplog.record import RecordBatch
from pyreplog.replica.events import CancelFetch, ConsumerFetch, Fetch, FetchAnswered, Lost, Stalled, StopFetching, Synced, Tick
from pyreplog.replica.readers import Readers
from pyreplog.replica.seat import FAR, Seat
from pyreplog.wire import NO_ID, ErrorCode, FetchPartition, PartitionData

if TYPE_CHECKING:
    from pyreplog.replica.replica import Replica

__all__ = ["Follower"]

BACKOFF_MAX_NS: Final = 1_000_000_000
FIRST_PAUSES: Final = 16
"""The first pause is ``replica_fetch_backoff_ms`` divided by this; it doubles."""
MARK_INTERVAL_NS: Final = 1_000_000
"""While records stream in, the mark follows the high watermark this often: nothing is acknowledged on the strength of a follower's mark."""

_PASSING: Final = OUT_OF_ROOM | OUT_OF_MEANS


@mypyc_attr(allow_interpreted_subclasses=True)
class Follower(Seat):
    """One reign of one leader, seen from below."""

    __slots__ = (
        "asked",
        "backoff_ns",
        "leader_high_watermark",
        "leader_id",
        "marked_ns",
        "max_bytes",
        "readers",
        "retry_at",
        "stalled",
        "stopped",
    )

    name: ClassVar[str] = "follower"

    def __init__(self, machine: Replica) -> None:
        super().__init__(machine)
        self.leader_id = machine.leader_id
        self.asked: FetchPartition | None = None
        """The fetch that is not answered yet."""
        self.stopped = False
        """The leader says that its epoch is over: nothing more until newer metadata."""
        self.leader_high_watermark = 0
        self.retry_at = FAR
        self.backoff_ns = 0
        self.stalled = False
        """Whether the last records did not go onto the disk."""
        self.marked_ns = 0
        self.max_bytes = machine.config.replica_fetch_max_bytes
        self.readers = Readers(self)

    def take(self, now_ns: int) -> None:
        """Begin to fetch; a ``sync`` replica syncs first what is not yet (the machine does that at the end of every step)."""
        self.log.write_mark()  # a leader's may lag behind its syncs, and the fetch tells of those
        self.ask()

    def leave(self, code: int) -> None:
        """Forget the leader."""
        self.readers.leave(code)
        if self.asked is not None:
            self.machine.out.append(StopFetching())

    # ---------------------------------------------------------------------------------------------------------------- asking

    def ask(self) -> None:
        """Fetch from where the log ends, unless a fetch is out, or the flushed end of a ``sync`` log is not there yet."""
        log = self.log
        end = log.end_offset
        if self.asked is not None or self.stopped or self.retry_at != FAR or not self.may_ask(end):
            return
        last_epoch = log.epochs.latest
        if last_epoch < 0 and end > log.start_offset:
            self.machine.go_offline(CorruptError(f"{log.topic_partition}: records without any leader epoch"))
            return
        self.asked = request = FetchPartition(
            self.machine.partition,
            self.machine.leader_epoch,
            end,
            last_epoch,
            log.start_offset,
            self.max_bytes,
            NO_ID,
            log.high_watermark,
        )
        self.machine.out.append(Fetch(self.leader_id, request))

    def may_ask(self, end: int) -> bool:
        """Whether a fetch from ``end`` says the truth about what counts here: the flushed end of a ``sync`` log must have reached it."""
        return not self.machine.sync_only or self.log.flushed_offset == end

    def synced(self, event: Synced, now_ns: int) -> None:
        """What counts here moved. The mark says so before the leader hears of it."""
        self._advance(now_ns, streaming=True)  # which may leave the mark to what follows
        self.log.write_mark()
        self.ask()

    def tick(self, event: Tick, now_ns: int) -> None:
        """A pause, or a reader's wait, is over."""
        if now_ns >= self.readers.expiry_ns:
            self.readers.expire(now_ns)
        if now_ns >= self.retry_at:
            self.retry_at = FAR
            self.ask()
        soonest = min(self.retry_at, self.readers.expiry_ns)
        if soonest < FAR:
            self.machine.wake_by(soonest)

    def back_off(self, now_ns: int, *, longest: bool = False) -> None:
        """Pause before the next fetch: twice as long as the last time, up to a second. The first pauses are short, because most causes (the
        leader hears of its epoch a moment later than we do) are over at once."""
        first = self.machine.config.replica_fetch_backoff_ms * 1_000_000 // FIRST_PAUSES
        self.backoff_ns = BACKOFF_MAX_NS if longest else min(max(first, 2 * self.backoff_ns), BACKOFF_MAX_NS)
        self.retry_at = now_ns + self.backoff_ns
        self.machine.wake_by(self.retry_at)

    # ---------------------------------------------------------------------------------------------------------------- answers

    def fetch_answered(self, event: FetchAnswered, now_ns: int) -> None:
        """Take the leader's answer: only to the fetch that is out, under this leader epoch (T1), and while the log still ends there."""
        request, data = event.request, event.data
        if request is not self.asked:
            return
        self.asked = None
        if request.current_leader_epoch != self.machine.leader_epoch or request.fetch_offset != self.log.end_offset:
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
            if data.records is not None and not self._append(data, now_ns):
                return
            self.backoff_ns = 0
            if data.records is not None:
                self.stalled = False
            self._hear(data, now_ns)
            self.ask()
        except StorageError:
            if not self.machine.sleeps_on():
                raise
            self.back_off(now_ns, longest=True)  # the leader is asked again when there may be means to open the log

    def _append(self, data: PartitionData, now_ns: int) -> bool:
        """Append the records as they are; False (and a pause) when that cannot be."""
        records: Any = data.records
        log = self.log
        end = log.end_offset
        try:
            parts = records.parts() if hasattr(records, "parts") else (records,)
            if parts:
                if (end <= data.log_start_offset or end == log.start_offset) and (begin := RecordBatch(parts[0]).base_offset) < end:
                    # The leader's log begins inside this batch, and all that this one has, if anything, is deleted there (and may be of
                    # another branch: the leader's history begins at its start, too). Or this one is empty, and begins where a former
                    # leader's did. Begin anew where the batch does, and delete what was deleted here already.
                    self.machine.kept_start = max(self.machine.kept_start, log.start_offset)
                    log.truncate_fully(begin)
                elif 0 < end == log.start_offset and log.epochs.latest < self.machine.unclean_epoch:
                    # The first records after an unclean election, and of ours only deleted ones are left. Those may be of a later epoch
                    # than what comes, and must not lie before it.
                    log.truncate_fully(end)
                log.append_as_follower(parts, at_end=True)
        except (CorruptError, ClosedError, OffsetOutOfRangeError, OutcomeUnknownError) as error:
            # Damaged on the way, or cut at the leader since.
            if log.failure is not None or is_interruption(error):
                raise
            self._begin_where_kept()
            self.back_off(now_ns)
            return False
        except StorageError as error:
            if error.errno not in _PASSING or log.failure is not None:
                raise
            self._begin_where_kept()
            if not self.stalled:
                self.stalled = True
                self.machine.out.append(Stalled(error))
            self.back_off(now_ns, longest=True)
            if error.errno in OUT_OF_ROOM and self.log.end_offset == end:
                self._hear_at_least(data, now_ns)
            return False
        return True

    def _hear(self, data: PartitionData, now_ns: int) -> None:
        """What the leader says of the log besides its records: the high watermark, and where it begins. REQUIRES that this one's records
        are the leader's."""
        self.leader_high_watermark = data.high_watermark
        self._advance(now_ns, streaming=data.records is not None)
        log = self.log
        if data.log_start_offset > log.start_offset:
            start = min(data.log_start_offset, log.high_watermark)
            if start > log.start_offset:
                log.delete_records(start)

    def _hear_at_least(self, data: PartitionData, now_ns: int) -> None:
        """Where there is no room for records there mostly is for the news that some are deleted, which makes room."""
        try:
            self._hear(data, now_ns)
        except StorageError as error:
            if error.errno not in _PASSING or self.log.failure is not None:
                raise

    def _begin_where_kept(self) -> None:
        """The batch that the log began anew for did not come: what may come in its place, from another leader, is not what was deleted."""
        if self.log.end_offset < self.machine.kept_start:
            self.log.truncate_fully(self.machine.kept_start)

    def _advance(self, now_ns: int, *, streaming: bool) -> None:
        """The high watermark is the leader's as far as this replica has it (what counts of it), after the append."""
        log = self.log
        high_watermark = log.flushed_offset if self.machine.sync_only else log.end_offset
        if self.leader_high_watermark < high_watermark:
            high_watermark = self.leader_high_watermark
        if high_watermark > log.high_watermark and log.advance_high_watermark(high_watermark):
            if self.machine.kept_start:
                self.hide_deleted()
            if self.readers.waiting:
                self.readers.serve()
            if streaming and now_ns - self.marked_ns < MARK_INTERVAL_NS:
                return
            if self.machine.sync_only and log.flushed_offset < log.end_offset:
                return  # it is written when what came just now is synced
            self.marked_ns = now_ns
            log.write_mark()

    def divergence_target(self, epoch: int, end_offset: int) -> int:
        """Where to cut, given that the leader's greatest epoch not above ours is ``epoch`` and ends at ``end_offset`` there (2.8)."""
        log = self.log
        end = log.end_offset
        own_epoch, own_end = log.epochs.end_offset_for(epoch, end)
        if own_end < 0:
            return min(end_offset, end)
        if own_epoch != epoch:
            return min(own_end, end)
        return min(own_end, end_offset, end)

    def _truncate(self, target: int) -> None:
        """Cut the log and its epochs at ``target``, also where only epochs go; the high watermark comes down with it."""
        log = self.log
        if target < log.high_watermark and log.epochs.latest < self.machine.unclean_epoch:
            self.machine.out.append(Lost(target, log.high_watermark, self.machine.unclean_epoch))
        elif target < log.high_watermark:
            self.machine.broken_rule("T2", f"truncating to {target}, below its own high watermark {log.high_watermark}")
        # Below our start, too: a leader that was elected uncleanly may end below what was deleted here.
        self.machine.kept_start = min(self.machine.kept_start, target)
        log.truncate_to(target)

    def _refused(self, data: PartitionData, now_ns: int) -> None:
        code = data.error_code
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            self.stopped = True
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE and data.log_start_offset >= 0 and data.diverging_epoch is not None:
            self._out_of_range(data.log_start_offset, data.diverging_epoch.end_offset, now_ns)
        else:
            self.back_off(now_ns)

    def _out_of_range(self, leader_start: int, leader_end: int, now_ns: int) -> None:
        """The leader has nothing at our end: it is shorter, or it begins later (then everything starts again there)."""
        log = self.log
        if leader_end < log.end_offset:
            self._truncate(leader_end)
        elif leader_start > log.end_offset:
            log.truncate_fully(leader_start)
        else:
            self.back_off(now_ns)
            return
        self.ask()

    # ---------------------------------------------------------------------------------------------------------------- readers

    def consumer_fetch(self, event: ConsumerFetch, now_ns: int) -> None:
        """Records below this replica's own high watermark (KIP-392), for who wants them from anywhere. Only while in sync: a replica that
        is far behind would keep its readers there."""
        request, log = event.request, self.log
        code = self.epoch_error(request.current_leader_epoch)
        if not code and (not event.anywhere or not self.machine.in_sync or log.incomplete):
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
            self.readers.fetch(event, now_ns)

    def cancel_fetch(self, event: CancelFetch, now_ns: int) -> None:
        """The reader went away."""
        self.readers.cancel(event.source, event.correlation_id)
