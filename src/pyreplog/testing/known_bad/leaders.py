"""Wrong rules of a leader. Each overrides one method of the leader or of one of its parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pyreplog.replica import (
    AlterPartitionAnswered,
    ConsumerFetch,
    DelayedFollowerFetches,
    FollowerFetch,
    InSyncSet,
    Leader,
    ListOffsets,
    Produce,
    ProduceMany,
    Progress,
    Replica,
    ReplicaContext,
    Synced,
    SyncFailed,
)
from pyreplog.testing.copies import shallow_copy
from pyreplog.wire import EpochEndOffset, ErrorCode, FetchPartition, PartitionData

__all__ = [
    "AckBeforeFsync",
    "AnswersLeft",
    "AnyEpochFetches",
    "CommittedIsrOnly",
    "DeletesAlone",
    "DivergenceCounts",
    "EmptyEpochForgotten",
    "EndOutOfRange",
    "EpochEndOffByOne",
    "FsyncFailureIgnored",
    "JoinBelowStartOfEpoch",
    "KeepsProgress",
    "MetadataReplayCounts",
    "NoMinimum",
    "OldEndTold",
    "OneQuestion",
    "OneQuestionAndEmptyEpoch",
    "ProposesOnce",
    "PushesNothing",
    "ReadsToTheEnd",
    "ReadsTwice",
    "RefusesTheAppended",
    "RefusesWhoWaits",
    "ReplyUnmatched",
    "ShrinksBySilence",
    "ShrinksEarly",
    "StepsDownLater",
    "UnknownEpochToHighWatermark",
    "WaitersByOffset",
    "WaitsForFollowersToKnow",
    "WatermarkRecomputed",
]


class _HastyLeader(Leader):
    def produce(self, event: Produce, now_ns: int) -> None:
        """Answer the append when it is written, before it is durable."""
        super().produce(event, now_ns)
        self.delayed_appends.acknowledge_flushed(self.local_ack_offset())

    def produce_many(self, event: ProduceMany, now_ns: int) -> None:
        """Answer the appends when they are written, before they are durable."""
        super().produce_many(event, now_ns)
        self.delayed_appends.acknowledge_flushed(self.local_ack_offset())

    def local_ack_offset(self) -> int:
        """Return the written end."""
        return self.context.log.end_offset


class AckBeforeFsync(Replica):
    """A ``sync`` leader acknowledges records before its fsync.

    Breaks S14; a power loss loses them.
    """

    leader_class = _HastyLeader


class _OffByOneLeader(Leader):
    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return one more than the true end, for every epoch but the latest."""
        found, end = super().end_of_epoch(epoch)
        return (found, end + 1) if 0 <= found < self.context.log.epochs.latest else (found, end)


class EpochEndOffByOne(Replica):
    """The leader reports the end of an older epoch one too high, so a diverging follower keeps one
    record that the leader does not have. Breaks S4."""

    leader_class = _OffByOneLeader


class _CommittedSet(InSyncSet):
    def high_watermark_candidate(self, leader_end: int, now_ns: int) -> int:
        """Count the committed ISR only, not the member that the controller may have accepted
        already."""
        if len(self.committed) < self.min_isr:
            return -1
        return min([leader_end, *(f.leo for f in self.remotes if f.committed)])


class _CommittedSetLeader(Leader):
    in_sync_set_class = _CommittedSet


class CommittedIsrOnly(Replica):
    """The high watermark ignores a proposed member (V7). Breaks S7."""

    leader_class = _CommittedSetLeader


class _LaxSet(InSyncSet):
    def high_watermark_candidate(self, leader_end: int, now_ns: int) -> int:
        """Ignore ``min.insync.replicas``."""
        minimum, self.min_isr = self.min_isr, 0
        try:
            return super().high_watermark_candidate(leader_end, now_ns)
        finally:
            self.min_isr = minimum


class _LaxLeader(Leader):
    in_sync_set_class = _LaxSet


class NoMinimum(Replica):
    """The high watermark moves below ``min.insync.replicas`` (V15).

    Breaks S2 with eligible leader replicas.
    """

    leader_class = _LaxLeader


class _OpenSet(InSyncSet):
    def may_join(self, follower: Progress, now_ns: int) -> bool:
        """Do not compare with the start of the epoch."""
        high_watermark = self.context.log.high_watermark
        return follower.leo >= high_watermark and follower.leo >= 0 and self.eligible(follower)


class _OpenLeader(Leader):
    in_sync_set_class = _OpenSet


class JoinBelowStartOfEpoch(Replica):
    """A replica joins when it reached the new leader's (older) high watermark (V5, KAFKA-7128).

    Breaks S2.
    """

    leader_class = _OpenLeader


class _OneQuestionLeader(Leader):
    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return KIP-101's answer: the start of the first later epoch, even if this log never had
        the requested epoch."""
        entries = [entry for entry in self.context.log.epochs.entries if entry.epoch > epoch]
        return (epoch, entries[0].start_offset if entries else self.context.log.end_offset)


class OneQuestion(Replica):
    """The follower asks one question about its latest epoch, as before KIP-279.

    After two elections in a row a record of another history stays in the middle of its log.
    """

    leader_class = _OneQuestionLeader


class _AnyEpochLeader(Leader):
    def follower_fetch(self, event: FollowerFetch, now_ns: int) -> None:
        """Serve a fetch of any leader epoch."""
        request = dataclasses.replace(event.request, current_leader_epoch=self.context.leader_epoch)
        super().follower_fetch(dataclasses.replace(event, request=request), now_ns)


class AnyEpochFetches(Replica):
    """Fetches are not fenced by epoch: a follower's progress in an older epoch moves the high
    watermark of this one."""

    leader_class = _AnyEpochLeader


class _EarlyShrinkingSet(InSyncSet):
    def _propose(self, members: Any, joins: Progress | None) -> None:
        """Stop counting a member as soon as its removal is proposed."""
        super()._propose(members, joins)
        if joins is None and self.pending is not None:
            self._set_committed(members)


class _EarlyShrinker(Leader):
    in_sync_set_class = _EarlyShrinkingSet


class ShrinksEarly(Replica):
    """A smaller in-sync set is used before the controller has confirmed it."""

    leader_class = _EarlyShrinker


class _ForgetfulSet(InSyncSet):
    def metadata_applied(self, isr: Sequence[int], now_ns: int, *, newer: bool) -> None:
        """Take the ISR of already known metadata too."""
        super().metadata_applied(isr, now_ns, newer=True)


class _ForgetfulLeader(Leader):
    in_sync_set_class = _ForgetfulSet


class MetadataReplayCounts(Replica):
    """Metadata of an already known partition epoch ends a pending proposal, as in Kafka's code."""

    leader_class = _ForgetfulLeader


class _GullibleSet(InSyncSet):
    def proposal_answered(self, event: AlterPartitionAnswered, now_ns: int) -> bool:
        """Take any answer for the answer to the pending proposal."""
        token = event.token if self.pending is None else self.pending.token
        return super().proposal_answered(dataclasses.replace(event, token=token), now_ns)


class _GullibleLeader(Leader):
    in_sync_set_class = _GullibleSet


class ReplyUnmatched(Replica):
    """The answer to an earlier proposal settles a later one."""

    leader_class = _GullibleLeader


class KeepsProgress(Replica):
    """A leader that is elected again trusts the progress of its followers from its former epoch, as
    Kafka's code does. A replica may have been removed and have come back empty since."""

    def _change(self, role: Any, now_ns: int) -> None:
        """Begin the new epoch with the followers of the old one."""
        if isinstance(self.role, Leader) and isinstance(role, Leader):
            before = self.role.in_sync_set.followers
            role.in_sync_set.followers = {broker_id: shallow_copy(follower) for broker_id, follower in before.items()}
            super()._change(role, now_ns)
            role.in_sync_set.look_for_joiners(now_ns)
        else:
            super()._change(role, now_ns)


class _CountingLeader(Leader):
    def diverging(self, request: FetchPartition, end: int) -> PartitionData | None:
        """Count a diverging fetch as progress up to its offset."""
        found = super().diverging(request, end)
        if found is not None and found.diverging_epoch is not None and not found.error_code:
            for follower in self.in_sync_set.remotes:
                follower.leo = max(follower.leo, request.fetch_offset)
            self.advance_high_watermark(0)
        return found


class DivergenceCounts(Replica):
    """A fetch that is answered with a divergence is taken as progress (KAFKA-13141)."""

    leader_class = _CountingLeader


class _SilentLeader(Leader):
    def enter(self, now_ns: int) -> None:
        """Record the epoch only with its first batch."""
        before = self.context.log.epochs.entries
        super().enter(now_ns)
        self.context.log.epochs.restore(before)


class EmptyEpochForgotten(Replica):
    """A leader that writes nothing leaves no trace of its epoch (KAFKA-7415)."""

    leader_class = _SilentLeader


class _OneQuestionSilentLeader(_SilentLeader, _OneQuestionLeader):
    """A leader with both wrong rules."""


class OneQuestionAndEmptyEpoch(Replica):
    """The follower asks one question about its latest epoch, and a new leader that writes nothing
    does not record its own: KIP-101 as it was first built."""

    leader_class = _OneQuestionSilentLeader


class _HighWatermarkAnswer(_SilentLeader):
    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the high watermark as the end of an unknown epoch."""
        found, end = super().end_of_epoch(epoch)
        return (found, end) if end >= 0 else (epoch, self.context.log.high_watermark)


class UnknownEpochToHighWatermark(Replica):
    """A follower that asks about an unknown epoch is sent to the high watermark, which is old on a
    new leader. A leader that has written nothing does not know its own epoch."""

    leader_class = _HighWatermarkAnswer


class WaitersByOffset(Replica):
    """An append that waits for an offset keeps waiting when the leader steps down.

    Any record that comes to that offset answers it (KAFKA-20634).
    """

    def _change(self, role: Any, now_ns: int) -> None:
        """Keep the waiting appends with the replica, in every role."""
        kept = vars(self).setdefault("kept", [])
        if isinstance(self.role, Leader):
            kept.extend(self.role.delayed_appends.acks_all)
            self.role.delayed_appends.acks_all.clear()
        if isinstance(role, Leader):
            role.delayed_appends.acks_all.extend(sorted(kept, key=lambda append: append.required))
            kept.clear()
        super()._change(role, now_ns)


class _LonelyDeleter(Leader):
    def low_watermark(self) -> int:
        """Return the start of the leader's own log."""
        return self.context.log.start_offset


class DeletesAlone(Replica):
    """DeleteRecords is answered when the leader has made the deletion, and the deleted records can
    be read from other replicas."""

    leader_class = _LonelyDeleter


class _TwiceReadingLeader(Leader):
    def consumer_fetch(self, event: ConsumerFetch, now_ns: int) -> None:
        """Let other events happen between reading the high watermark and reading the log."""
        high_watermark = self.context.log.high_watermark
        between = getattr(self.context, "between", None)
        if between is not None:
            between()
        if event.request.fetch_offset < high_watermark:
            log = self.context.load_log()
            self.reply(event, self.data(log.read(event.request.fetch_offset, 1 << 20, log.end_offset)))
        else:
            super().consumer_fetch(event, now_ns)


class ReadsTwice(Replica):
    """The read path reads the high watermark twice with a yield between (KAFKA-9807). At the second
    read the log may have changed."""

    leader_class = _TwiceReadingLeader


class FsyncFailureIgnored(Replica):
    """A failed sync is repeated, succeeds, and is believed."""

    def _sync_failed(self, event: SyncFailed, now_ns: int) -> None:
        """Go on as after a successful sync."""
        self.syncing = False
        self.load_log().synced(self.log.end_offset, self.log.generation, mark=False)
        self.role.synced(Synced(self.log.end_offset, self.log.generation), now_ns)


class _GenerousLeader(Leader):
    def exit(self, code: int) -> None:
        """Answer all waiting appends with success."""
        for append in self.delayed_appends.acks_all:
            self.delayed_appends.answer(append, 0)
        self.delayed_appends.acks_all.clear()
        super().exit(code)


class AnswersLeft(Replica):
    """A leader that steps down answers the waiting appends with success."""

    leader_class = _GenerousLeader


class _FrankLeader(Leader):
    def list_offsets(self, event: ListOffsets, now_ns: int) -> None:
        """Report the high watermark as the end, even below the start of the epoch."""
        in_sync = self.in_sync_set
        start, in_sync.start_of_epoch = in_sync.start_of_epoch, 0
        super().list_offsets(event, now_ns)
        in_sync.start_of_epoch = start


class OldEndTold(Replica):
    """A new leader reports its own, older high watermark to readers, so the end that they know goes
    back (KIP-207)."""

    leader_class = _FrankLeader


class _PatientLeader(Leader):
    def acknowledge_appends(self) -> None:
        """Wait until every follower has fetched with that high watermark, which takes another
        round."""
        members = [follower for follower in self.in_sync_set.remotes if follower.in_maximal_isr]
        known = [follower.delayed_fetch.request.high_watermark for follower in members if follower.delayed_fetch]
        if len(known) == len(members):
            self.delayed_appends.acknowledge_committed(min(known, default=self.context.log.high_watermark), 0)

    def follower_fetch(self, event: FollowerFetch, now_ns: int) -> None:
        """Check the waiting appends after each fetch, because it may complete them."""
        super().follower_fetch(event, now_ns)
        self.acknowledge_appends()


class WaitsForFollowersToKnow(Replica):
    """An append is acknowledged only when the followers know its high watermark.

    This was the first proposed fix for the truncation to the high watermark, and was rejected
    because it costs a round trip.
    """

    leader_class = _PatientLeader


class StepsDownLater(Replica):
    """A leader that is replaced goes on until its appends are answered, although it has noted the
    new leader epoch already."""

    def _change(self, role: Any, now_ns: int) -> None:
        """Stay in the role while an append waits."""
        if isinstance(self.role, Leader) and self.role.delayed_appends.acks_all and not isinstance(role, Leader):
            return
        super()._change(role, now_ns)


class _RecomputingLeader(Leader):
    def advance_high_watermark(self, now_ns: int) -> None:
        """Set the high watermark to the lowest end among the present members, even if it was higher
        before."""
        candidate = self.in_sync_set.high_watermark_candidate(self.local_ack_offset(), now_ns)
        if 0 <= candidate < self.context.log.high_watermark:
            self.context.load_log().set_high_watermark(candidate)
        super().advance_high_watermark(now_ns)


class WatermarkRecomputed(Replica):
    """The high watermark is computed without regard to its old value, so a follower that comes back
    lowers it."""

    leader_class = _RecomputingLeader


class _HurriedLeader(Leader):
    def advance_high_watermark(self, now_ns: int) -> None:
        """Refuse the waiting appends like new ones when the ISR falls below the minimum."""
        if self.in_sync_set.is_below_minimum:
            for append in self.delayed_appends.acks_all:
                self.delayed_appends.answer(append, ErrorCode.NOT_ENOUGH_REPLICAS)
            self.delayed_appends.acks_all.clear()
        super().advance_high_watermark(now_ns)


class RefusesTheAppended(Replica):
    """Appends that wait when the ISR falls below the minimum are refused like new ones, although
    they are in the log."""

    leader_class = _HurriedLeader


class _CurtLeader(Leader):
    def exit(self, code: int) -> None:
        """Answer the waiting appends with the code that all other requests get."""
        for append in self.delayed_appends.acks_all:
            self.delayed_appends.answer(append, code)
        self.delayed_appends.acks_all.clear()
        super().exit(code)


class RefusesWhoWaits(Replica):
    """A leader that steps down answers the waiting appends with NOT_LEADER_OR_FOLLOWER, as Kafka's
    does, and the producer sends them again. Here that answer proves that nothing was appended."""

    leader_class = _CurtLeader


class _OpenHandedLeader(Leader):
    def consumer_fetch(self, event: ConsumerFetch, now_ns: int) -> None:
        """Read up to the end of the log if no committed records are left to read."""
        log, request = self.context.log, event.request
        if log.high_watermark <= request.fetch_offset < log.end_offset:
            records = self.context.load_log().read(request.fetch_offset, request.partition_max_bytes, log.end_offset)
            self.reply(event, self.data(records))
        else:
            super().consumer_fetch(event, now_ns)


class ReadsToTheEnd(Replica):
    """Readers are served up to the end of the log, as followers are."""

    leader_class = _OpenHandedLeader


class _TaciturnFetches(DelayedFollowerFetches):
    def push(self, now_ns: int) -> None:
        """Push nothing: the next records carry the high watermark."""
        self.push_at = now_ns + (1 << 62)


class _TaciturnLeader(Leader):
    def __init__(self, context: ReplicaContext, isr: Sequence[int]) -> None:
        super().__init__(context, isr)
        self.follower_fetches = _TaciturnFetches(self, self.in_sync_set)


class PushesNothing(Replica):
    """Followers learn the high watermark only with records, so the last written records never count
    as committed on them."""

    leader_class = _TaciturnLeader


class _ResignedSet(InSyncSet):
    def proposal_answered(self, event: AlterPartitionAnswered, now_ns: int) -> bool:
        """Ignore the end of a request without a decision."""
        return event.result is not None and super().proposal_answered(event, now_ns)


class _ResignedLeader(Leader):
    in_sync_set_class = _ResignedSet


class ProposesOnce(Replica):
    """A proposal that got no answer is not repeated, and stays undecided for the rest of the leader
    epoch."""

    leader_class = _ResignedLeader


class _WatchfulSet(InSyncSet):
    def propose_shrink(self, now_ns: int) -> None:
        """Remove every member that has not fetched for that long, and check all the time."""
        self.shrink_at = now_ns + self.lag_max_ns // 2
        self.context.wake_by(self.shrink_at)
        late = [f.broker_id for f in self.remotes if f.committed and now_ns - f.last_fetch_ns > self.lag_max_ns]
        if late and self.pending is None:
            self._propose([one for one in self.committed if one not in late], None)


class _WatchfulLeader(Leader):
    in_sync_set_class = _WatchfulSet


class ShrinksBySilence(Replica):
    """A member leaves the ISR because of the time of its last fetch, and joins because of its
    offset. Followers that wait for records fulfil both, so they leave and join in turns for ever.
    """

    leader_class = _WatchfulLeader


class _StrictLeader(Leader):
    def follower_fetch(self, event: FollowerFetch, now_ns: int) -> None:
        """Refuse a fetch at the end of the log while this leader has written nothing."""
        log, request = self.context.log, event.request
        if (
            request.current_leader_epoch == self.context.leader_epoch
            and request.fetch_offset == log.end_offset == self.in_sync_set.start_of_epoch
        ):
            answer = self.data(None)
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            answer.diverging_epoch = EpochEndOffset(log.epochs.latest, log.end_offset)
            self.reply(event, answer)
        else:
            super().follower_fetch(event, now_ns)


class EndOutOfRange(Replica):
    """A leader that has written nothing yet takes a fetch at its end as out of range, so its
    followers fetch in vain until it writes something."""

    leader_class = _StrictLeader
