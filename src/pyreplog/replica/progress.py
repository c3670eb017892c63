"""A leader's view of the other replicas and of its own proposals.

The values belong to one leader epoch and are never carried into another.
"""

from __future__ import annotations

from pyreplog.mypyc_build import mypyc_attr
from pyreplog.replica.events import DISTANT_PAST_NS, FAR_FUTURE_NS, FollowerFetch
from pyreplog.wire import AlterPartitionData

__all__ = ["Progress", "Proposal"]


@mypyc_attr(allow_interpreted_subclasses=True)
class Progress:
    """Progress of one other replica: R[r] of the rules.

    ``leo`` is -1 until the replica has fetched in this epoch.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ns",
        "committed",
        "delayed_fetch",
        "delayed_since_ns",
        "flushed_offset",
        "in_maximal_isr",
        "last_fetch_leader_leo",
        "last_fetch_ns",
        "leo",
        "not_before_ns",
        "start_offset",
        "told_bound",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.leo = -1
        self.start_offset = -1
        self.flushed_offset = -1
        """Its copy is on stable storage below; -1: unknown. Only of a compacted topic."""
        self.told_bound = 0
        """The newest bound of tombstones that it was told."""
        self.broker_epoch = -1
        self.last_fetch_leader_leo = -1
        self.last_fetch_ns = DISTANT_PAST_NS
        self.caught_up_ns = DISTANT_PAST_NS
        """The latest time at which its newest fetch offset was the leader's log end offset."""
        self.committed = False
        """Whether the replica is in the committed ISR."""
        self.in_maximal_isr = False
        """Whether the replica is in the maximal ISR."""
        self.not_before_ns = DISTANT_PAST_NS
        """The leader does not propose the replica again before this time."""
        self.delayed_fetch: FollowerFetch | None = None
        self.delayed_since_ns = DISTANT_PAST_NS

    def fetched(self, offset: int, start_offset: int, broker_epoch: int, leader_leo: int, now_ns: int) -> None:
        """Record a valid fetch from ``offset``.

        ``leader_leo`` is the leader's log end offset before it serves the fetch (2.6).
        """
        if offset >= leader_leo:
            self.caught_up_ns = now_ns
        elif offset >= self.last_fetch_leader_leo and self.last_fetch_ns > self.caught_up_ns:
            self.caught_up_ns = self.last_fetch_ns
        self.leo = offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch
        if leader_leo > self.last_fetch_leader_leo:
            self.last_fetch_leader_leo = leader_leo
        self.last_fetch_ns = now_ns


@mypyc_attr(allow_interpreted_subclasses=True)
class Proposal:
    """An ISR that the controller may or may not have accepted.

    ``joins`` is the replica that the proposal adds, or None if it only removes replicas.
    """

    __slots__ = ("data", "joins", "resend_ns", "token")

    def __init__(self, token: int, data: AlterPartitionData, joins: Progress | None) -> None:
        self.token = token
        self.data = data
        self.joins = joins
        self.resend_ns = FAR_FUTURE_NS
