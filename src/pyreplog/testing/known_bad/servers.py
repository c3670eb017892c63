"""Wrong rules of a quorum's controllers, each one overridden method."""

from __future__ import annotations

from typing import Any

from pyreplog.controller import ActiveController, Decided, QuorumServer
from pyreplog.quorum import RaftNode
from pyreplog.wire import DescribeTopicPartitionsRequest

__all__ = ["AnswersUncommitted", "CommitsAlone", "LeasesUnproved", "ReadsUnproved"]


class _Hasty(ActiveController):
    def _is_committed(self, offset: int) -> bool:
        return True


class AnswersUncommitted(QuorumServer):
    """A controller answers as soon as it has decided. If its records are never committed, what it
    answered is gone."""

    active_class = _Hasty


class _Unproved(ActiveController):
    def _needs_proof(self, answer: Decided) -> bool:
        return False


class LeasesUnproved(QuorumServer):
    """A controller grants leases without a proof that it still leads. One that was cut off, and does
    not know yet that it was replaced, extends a lease that its successor takes as ended."""

    active_class = _Unproved


class _UnprovedReads(ActiveController):
    def _needs_proof(self, answer: Decided) -> bool:
        return not isinstance(answer.request.body, DescribeTopicPartitionsRequest) and super()._needs_proof(answer)


class ReadsUnproved(QuorumServer):
    """A controller describes topics without a proof that it still leads. One that was deposed and does
    not know it shows the past."""

    active_class = _UnprovedReads


class _Alone(RaftNode):
    def update_high_watermark(self, role: Any) -> bool:
        end = self.log_end_offset
        return self.may_commit(role, end) and self.raise_high_watermark(end)


class CommitsAlone(QuorumServer):
    """The leader of the quorum counts its records as committed without a majority of the voters."""

    raft_class = _Alone
