"""The in-sync set of one leader epoch: which replicas count, which may join, which must leave.

The rules are those of ``docs/internals/replication.md``, in its order: the high watermark (2.5),
joining and leaving (2.6, E1), proposals to the controller (2.7, P1-P3). Nothing here is carried
into another leader epoch (R0). A known-bad variant overrides one of the methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyreplog.config import INT64_MAX
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.replica.context import ReplicaContext
from pyreplog.replica.effects import AlterPartition
from pyreplog.replica.events import (
    FAR_FUTURE_NS,
    AlterPartitionAnswered,
)
from pyreplog.replica.progress import Progress, Proposal
from pyreplog.wire import AlterPartitionData, BrokerState, ErrorCode

__all__ = ["InSyncSet"]

PROPOSAL_RETRY_NS: Final = 50_000_000
INELIGIBLE_RETRY_NS: Final = 500_000_000
"""How long a replica that the controller refused is not proposed again, unless the brokers change.
"""

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
class InSyncSet:
    """The ISR of a partition as its leader knows it, and the progress of the other replicas."""

    __slots__ = (
        "committed",
        "context",
        "followers",
        "hw_frozen_offset",
        "is_sole_isr_member",
        "join_at",
        "lag_max_ns",
        "maximal",
        "min_isr",
        "pending",
        "remotes",
        "shrink_at",
        "start_of_epoch",
    )

    def __init__(self, context: ReplicaContext, isr: Sequence[int]) -> None:
        self.context = context
        self.committed: Sequence[int] = tuple(isr)
        """The ISR that the controller is known to have decided."""
        self.maximal: Sequence[int] = self.committed
        """The committed ISR and the replica that is proposed for it."""
        self.is_sole_isr_member = True
        """Whether no other replica is in the maximal ISR."""
        self.min_isr = 1
        self.pending: Proposal | None = None
        self.followers: dict[int, Progress] = {}
        """The other assigned replicas by broker id."""
        self.remotes: list[Progress] = []
        """The values of ``followers``, because compiled loops over lists are faster."""
        self.start_of_epoch = context.log.end_offset
        """LESO: the log end offset at the start of this leader epoch."""
        self.hw_frozen_offset = 0
        """The log end offset when the committed ISR fell below the minimum (E1)."""
        self.lag_max_ns = context.config.replica_lag_time_max_ms * 1_000_000
        # Times of the next check for laggards and for joiners.
        self.shrink_at = FAR_FUTURE_NS
        self.join_at = FAR_FUTURE_NS

    @property
    def is_below_minimum(self) -> bool:
        """Whether the committed ISR is smaller than ``min.insync.replicas``."""
        return len(self.committed) < self.min_isr

    # ------------------------------------------------------------- which records are committed: 2.5

    def high_watermark_candidate(self, leader_end: int, now_ns: int) -> int:
        """Return the offset below which every replica that counts, or may come to count, has all
        records. Return -1 while the ISR is too small. ``leader_end``: the leader's own end that
        counts.
        """
        if len(self.committed) < self.min_isr:
            return -1
        candidate = leader_end
        for follower in self.remotes:
            if follower.leo < candidate and (
                follower.in_maximal_isr or (self.eligible(follower) and self.caught_up(follower, now_ns))
            ):
                candidate = follower.leo
        return candidate

    def tombstone_bound(self) -> int:
        """Return the offset below which every assigned replica, also one that is down, has all
        records on stable storage.

        A replica that has not fetched in this epoch, in its present incarnation, is not known to
        have any. Without other replicas only the high watermark counts (``Log.droppable_end``).
        """
        if not self.remotes:
            return INT64_MAX
        bound = self.context.log.flushed_offset
        for follower in self.remotes:
            bound = min(bound, follower.flushed_offset)
        return max(bound, 0)

    # -------------------------------------------------- which replicas may join and must leave: 2.6

    def caught_up(self, follower: Progress, now_ns: int) -> bool:
        """Return whether the follower has all records, or had them at most
        ``replica.lag.time.max.ms`` ago."""
        return follower.leo == self.context.log.end_offset or now_ns - follower.caught_up_ns <= self.lag_max_ns

    def eligible(self, follower: Progress) -> bool:
        """Return whether the controller would accept the follower into the ISR. Its broker must be
        alive, and the incarnation that fetches must be the registered one."""
        status = self.context.brokers.get(follower.broker_id)
        return status is not None and status.eligible and follower.broker_epoch == status.epoch

    def may_join(self, follower: Progress, now_ns: int) -> bool:
        """Return whether the leader may propose the follower for the ISR. The follower must be
        eligible, have fetched in this epoch, have every record that was or may have been exposed
        (2.6, E1), and have made all deletions."""
        leo, log = follower.leo, self.context.log
        if leo < 0 or leo < log.high_watermark or leo < self.start_of_epoch or not self.eligible(follower):
            return False
        if follower.start_offset < log.start_offset:
            return False
        return not self.is_below_minimum or leo >= self.hw_frozen_offset or self.caught_up(follower, now_ns)

    def propose_join(self, follower: Progress, now_ns: int) -> None:
        """Propose the follower for the ISR, if it may join and no proposal is pending."""
        if (
            self.pending is None
            and not follower.in_maximal_isr
            and now_ns >= follower.not_before_ns
            and self.may_join(follower, now_ns)
        ):
            self._propose([*self.committed, follower.broker_id], follower)

    def look_for_joiners(self, now_ns: int) -> None:
        """Propose a follower that waits at the log end, if one may join."""
        for follower in self.remotes:
            if follower.delayed_fetch is not None:
                self.propose_join(follower, now_ns)

    def propose_shrink(self, now_ns: int) -> None:
        """Propose to remove all laggards in one step; check again later if a replica can still lag."""
        self.shrink_at = FAR_FUTURE_NS
        if self.pending is None:
            late = [f.broker_id for f in self.remotes if f.committed and not self.caught_up(f, now_ns)]
            if late:
                self._propose([b for b in self.committed if b not in late], None)
        self.arm_shrink(now_ns)

    def arm_shrink(self, now_ns: int) -> None:
        """Check for laggards later, unless no replica that counts lacks records."""
        if self.shrink_at != FAR_FUTURE_NS:
            return
        end = self.context.log.end_offset
        for follower in self.remotes:
            if follower.leo != end and (follower.committed or now_ns - follower.caught_up_ns <= self.lag_max_ns):
                self.shrink_at = now_ns + self.lag_max_ns // 2
                self.context.wake_by(self.shrink_at)
                return

    # ------------------------------------------------------------- proposals to the controller: 2.7

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

    def proposal_answered(self, event: AlterPartitionAnswered, now_ns: int) -> bool:
        """Handle the answer to the pending proposal; answers to earlier ones say nothing (P2).

        Return whether the proposal ended, so that the high watermark may move.
        """
        pending = self.pending
        if pending is None or event.token != pending.token:
            return False
        result = event.result
        code = event.error_code if result is None or event.error_code else result.error_code
        context = self.context
        if code == 0 and result is not None:
            if result.leader_epoch != context.leader_epoch or result.partition_epoch < context.partition_epoch:
                return False
            context.partition_epoch = result.partition_epoch
            self._end_proposal(result.isr, now_ns)
            return True
        if code in _BACK_TO_COMMITTED:
            if pending.joins is not None:
                self.join_at = pending.joins.not_before_ns = now_ns + INELIGIBLE_RETRY_NS
                context.wake_by(self.join_at)
            self._end_proposal(self.committed, now_ns)
            return True
        if code not in _UNTIL_METADATA:
            pending.resend_ns = now_ns + PROPOSAL_RETRY_NS
            context.wake_by(pending.resend_ns)
        return False

    def _end_proposal(self, isr: Sequence[int], now_ns: int) -> None:
        self.pending = None
        self._set_committed(isr)
        self.arm_shrink(now_ns)
        self.look_for_joiners(now_ns)

    # ------------------------------------------------------------------------- metadata and brokers

    def enter(self, now_ns: int) -> None:
        """Begin with the ISR of the metadata; its members count as caught up now."""
        self.set_replicas()
        for follower in self.remotes:
            if follower.broker_id in self.committed:
                follower.caught_up_ns = now_ns
        self._set_committed(self.committed)
        self.arm_shrink(now_ns)

    def set_replicas(self) -> list[Progress]:
        """Set the followers to the other assigned replicas; those that stay keep their progress.

        Return the followers that were removed.
        """
        context, before = self.context, self.followers
        others = [broker_id for broker_id in context.replicas if broker_id != context.broker_id]
        self.followers = {broker_id: before.get(broker_id) or Progress(broker_id) for broker_id in others}
        self.remotes = list(self.followers.values())
        self.set_minimum()
        return [follower for broker_id, follower in before.items() if broker_id not in self.followers]

    def set_minimum(self) -> None:
        """Take ``min.insync.replicas`` from the log's settings."""
        was_below = self.is_below_minimum
        self.min_isr = min(self.context.log.config.min_insync_replicas, max(1, len(self.context.replicas)))
        if self.is_below_minimum and not was_below:
            self.hw_frozen_offset = self.context.log.end_offset

    def metadata_applied(self, isr: Sequence[int], now_ns: int, *, newer: bool) -> None:
        """Take the ISR of newer metadata of this epoch. A replay does not change the ISR (P3)."""
        if newer:
            self.pending = None
            self._set_committed(isr)
            self.arm_shrink(now_ns)
        else:
            self._set_committed(self.committed)
        self.look_for_joiners(now_ns)

    def brokers_applied(self, now_ns: int) -> None:
        """Look for replicas that may join now that brokers registered, left or changed."""
        for follower in self.remotes:
            follower.not_before_ns = now_ns
            status = self.context.brokers.get(follower.broker_id)
            if status is not None and status.epoch != follower.broker_epoch:
                follower.flushed_offset = -1  # another life, perhaps with an older copy
        self.look_for_joiners(now_ns)

    def _set_committed(self, isr: Sequence[int]) -> None:
        """Set the committed ISR; a pending proposal still counts in the maximal one."""
        below_before = self.is_below_minimum
        self.committed = tuple(isr)
        if self.is_below_minimum and (not below_before or not self.hw_frozen_offset):
            self.hw_frozen_offset = self.context.log.end_offset
        for follower in self.remotes:
            follower.committed = follower.broker_id in self.committed
        joins = None if self.pending is None else self.pending.joins
        self._set_maximal(self.committed if joins is None else [*self.committed, joins.broker_id])

    def _set_maximal(self, maximal: Iterable[int]) -> None:
        self.maximal = tuple(maximal)
        self.is_sole_isr_member = True
        for follower in self.remotes:
            follower.in_maximal_isr = follower.broker_id in self.maximal
            if follower.in_maximal_isr:
                self.is_sole_isr_member = False

    # ----------------------------------------------------------------------------------------- time

    def tick(self, now_ns: int) -> int:
        """Look for joiners and repeat the pending proposal, each if it is due.

        Return the time of the next check. :meth:`propose_shrink` is the caller's.
        """
        if now_ns >= self.join_at:
            self.join_at = FAR_FUTURE_NS
            self.look_for_joiners(now_ns)
        pending, resend_ns = self.pending, FAR_FUTURE_NS
        if pending is not None:
            if now_ns >= pending.resend_ns:
                pending.resend_ns = FAR_FUTURE_NS
                self.context.out.append(AlterPartition(pending.token, pending.data))
            resend_ns = pending.resend_ns
        return min(self.shrink_at, self.join_at, resend_ns)
