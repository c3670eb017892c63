"""Wrong rules of a follower, each one overridden method."""

from __future__ import annotations

from pyreplog.replica import FetchAnswered, Follower, Replica
from pyreplog.wire import ErrorCode, PartitionData

__all__ = [
    "FirstDesign",
    "NonDurableFollower",
    "StopsAtUnknownEpoch",
    "TruncateAfterFirstAnswer",
    "TruncateToHighWatermark",
]


class _EarlyFollower(Follower):
    def may_ask(self, end: int) -> bool:
        """Fetch at any time: the fetch then claims unsynced records."""
        return True


class NonDurableFollower(Replica):
    """A ``sync`` follower fetches before it has synced, so the high watermark covers records
    that it may lose. Breaks S14; lost by power loss."""

    follower_class = _EarlyFollower


class _TruncatingFollower(Follower):
    def enter(self, now_ns: int) -> None:
        """Truncate to the own high watermark first, as Kafka did before KIP-101."""
        self.context.load_log().truncate_to(max(self.context.log.start_offset, self.context.log.high_watermark))
        super().enter(now_ns)


class TruncateToHighWatermark(Replica):
    """A new follower truncates to its own high watermark (V1). Breaks S2: a second failure then loses
    acknowledged records."""

    follower_class = _TruncatingFollower


class _UnquestioningFollower(Follower):
    def ask(self) -> None:
        """Fetch without the last epoch of the log, so that the leader cannot compare."""
        super().ask()
        if self.asked is not None:
            self.asked.last_fetched_epoch = -1


class _FirstFollower(_UnquestioningFollower):
    def enter(self, now_ns: int) -> None:
        """Truncate to the own high watermark first."""
        self.context.load_log().truncate_to(max(self.context.log.start_offset, self.context.log.high_watermark))
        super().enter(now_ns)


class FirstDesign(Replica):
    """Kafka before 0.11: a new follower truncates to its own high watermark, and there are no
    leader epochs to ask about."""

    follower_class = _FirstFollower


class _WaitingFollower(_UnquestioningFollower):
    def fetch_answered(self, event: FetchAnswered, now_ns: int) -> None:
        """Truncate to the own high watermark after the first answer, which shows that a leader is up."""
        if event.request is self.asked and not vars(self).setdefault("answered", False):
            vars(self)["answered"] = True
            if self.context.log.high_watermark < self.context.log.end_offset:
                self.context.load_log().truncate_to(max(self.context.log.start_offset, self.context.log.high_watermark))
        super().fetch_answered(event, now_ns)


class TruncateAfterFirstAnswer(Replica):
    """As in the first design, but a follower keeps its log until the leader has answered once. This
    was the second proposed fix, and was rejected because two logs may still diverge below their high
    watermarks."""

    follower_class = _WaitingFollower


class _ObedientFollower(Follower):
    def _refused(self, data: PartitionData, now_ns: int) -> None:
        """Treat both errors about epochs as the end of this leader epoch."""
        if data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH:
            self.stopped = True
        else:
            super()._refused(data, now_ns)


class StopsAtUnknownEpoch(Replica):
    """A follower that knows a new leader before that node itself does gets UNKNOWN_LEADER_EPOCH. It
    then waits for newer metadata instead of asking again."""

    follower_class = _ObedientFollower
