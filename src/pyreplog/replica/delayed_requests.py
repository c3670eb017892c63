"""Requests at a leader that wait for other replicas or for a sync, each with a deadline.

They belong to one leader epoch. When it ends, each of them is answered with an error (W1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyreplog.mypyc_build import mypyc_attr
from pyreplog.replica.context import ReplicaContext
from pyreplog.replica.effects import Reply
from pyreplog.replica.events import (
    FAR_FUTURE_NS,
    DeleteRecords,
    Produce,
)
from pyreplog.wire import DeleteRecordsPartitionResult, ErrorCode, PartitionProduceResponse

if TYPE_CHECKING:
    from pyreplog.ports import Address

__all__ = ["DelayedAppend", "DelayedAppends", "DelayedDeletes"]


@mypyc_attr(acyclic=True)
class DelayedAppend:
    """An unanswered append.

    It is answered with ``code`` when the end that its ``acks`` names reaches ``required``.
    """

    __slots__ = ("append_time", "base_offset", "code", "correlation_id", "deadline_ns", "required", "source")

    def __init__(
        self,
        event: Produce,
        required: int,
        base_offset: int,
        append_time: int,
        now_ns: int,
        code: int = 0,
    ) -> None:
        self.required = required
        self.source: Address = event.source
        self.correlation_id: int = event.correlation_id
        self.deadline_ns: int = now_ns + event.timeout_ms * 1_000_000
        self.base_offset = base_offset
        self.append_time = append_time
        self.code = code


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedAppends:
    """The appends of one leader epoch that are in the log and not acknowledged yet."""

    __slots__ = ("acks_all", "acks_one", "context", "expiry_ns")

    def __init__(self, context: ReplicaContext) -> None:
        self.context = context
        self.acks_all: list[DelayedAppend] = []
        """Appends with acks=all, by rising offset."""
        self.acks_one: list[DelayedAppend] = []
        """Appends with acks=1 to a ``sync`` log, by rising offset."""
        self.expiry_ns = FAR_FUTURE_NS
        """The time at which :meth:`expire` must be called next."""

    def add(self, append: DelayedAppend, acks: int) -> None:
        """Keep the append until its condition holds.

        It goes to the end of its list, unless its producer sent it again.
        """
        appends = self.acks_all if acks == -1 else self.acks_one
        place = len(appends)
        while place and appends[place - 1].required > append.required:
            place -= 1
        appends.insert(place, append)
        if append.deadline_ns < self.expiry_ns:
            self.expiry_ns = append.deadline_ns
            self.context.wake_by(append.deadline_ns)

    def acknowledge_committed(self, high_watermark: int, code: int) -> None:
        """Answer the appends with acks=all below ``high_watermark``: 0 is success."""
        appends = self.acks_all
        while appends and appends[0].required <= high_watermark:
            self.answer(appends.pop(0), code)

    def acknowledge_flushed(self, end: int) -> None:
        """Acknowledge the appends with acks=1 below ``end``, the end on stable storage."""
        appends = self.acks_one
        while appends and appends[0].required <= end:
            self.answer(appends.pop(0), 0)

    def expire(self, now_ns: int) -> None:
        """Answer the expired appends with REQUEST_TIMED_OUT; they may still be committed."""
        self.acks_all = self._unexpired(self.acks_all, now_ns)
        self.acks_one = self._unexpired(self.acks_one, now_ns)
        self.expiry_ns = min([one.deadline_ns for one in (*self.acks_all, *self.acks_one)], default=FAR_FUTURE_NS)

    def _unexpired(self, appends: list[DelayedAppend], now_ns: int) -> list[DelayedAppend]:
        """Answer the expired ``appends`` and return the others."""
        kept: list[DelayedAppend] = []
        for append in appends:
            if append.deadline_ns <= now_ns:
                self.answer(append, ErrorCode.REQUEST_TIMED_OUT)
            else:
                kept.append(append)
        return kept

    def exit(self) -> None:
        """Answer all with NOT_ENOUGH_REPLICAS_AFTER_APPEND. They may still be committed under the
        next leader, so no append is reported as failed (W1)."""
        for append in (*self.acks_one, *self.acks_all):
            self.answer(append, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self.acks_one.clear()
        self.acks_all.clear()

    def answer(self, append: DelayedAppend, code: int) -> None:
        """Answer the append: with ``code``, or with its own code if that is 0."""
        context = self.context
        if code:
            result = PartitionProduceResponse(context.partition, code, current_leader=context.current_leader_hint())
        elif append.code:
            result = PartitionProduceResponse(context.partition, append.code)
        else:
            result = PartitionProduceResponse(
                context.partition, 0, append.base_offset, append.append_time, context.log.start_offset
            )
        context.out.append(Reply(append.source, append.correlation_id, result))


class _DelayedDelete:
    """A deletion below ``offset`` that at least one live replica has not made yet."""

    __slots__ = ("deadline_ns", "event", "offset")

    def __init__(self, event: DeleteRecords, offset: int, deadline_ns: int) -> None:
        self.event = event
        self.offset = offset
        self.deadline_ns = deadline_ns


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedDeletes:
    """The deletions of one leader epoch that at least one live replica has not made yet."""

    __slots__ = ("context", "deletes", "expiry_ns")

    def __init__(self, context: ReplicaContext) -> None:
        self.context = context
        self.deletes: list[_DelayedDelete] = []
        self.expiry_ns = FAR_FUTURE_NS
        """The time at which :meth:`expire` must be called next."""

    def add(self, event: DeleteRecords, offset: int, now_ns: int) -> None:
        """Keep the deletion below ``offset`` until every live replica has made it."""
        deadline = now_ns + event.timeout_ms * 1_000_000
        self.deletes.append(_DelayedDelete(event, offset, deadline))
        if deadline < self.expiry_ns:
            self.expiry_ns = deadline
            self.context.wake_by(deadline)

    def acknowledge(self, low_watermark: int) -> None:
        """Answer the deletions that every live replica has made: up to ``low_watermark``."""
        kept = []
        for delete in self.deletes:
            if delete.offset <= low_watermark:
                self._answer(delete, low_watermark, 0)
            else:
                kept.append(delete)
        self.deletes = kept

    def expire(self, now_ns: int) -> None:
        """Answer the expired deletions with REQUEST_TIMED_OUT; they still go on."""
        soonest, kept = FAR_FUTURE_NS, []
        for delete in self.deletes:
            if delete.deadline_ns <= now_ns:
                self._answer(delete, -1, ErrorCode.REQUEST_TIMED_OUT)
            else:
                kept.append(delete)
                soonest = min(soonest, delete.deadline_ns)
        self.deletes, self.expiry_ns = kept, soonest

    def exit(self, code: int) -> None:
        """Answer all with ``code``, because the role ends."""
        for delete in self.deletes:
            self._answer(delete, -1, code)
        self.deletes = []

    def _answer(self, delete: _DelayedDelete, low_watermark: int, code: int) -> None:
        result = DeleteRecordsPartitionResult(self.context.partition, low_watermark, code)
        self.context.out.append(Reply(delete.event.source, delete.event.correlation_id, result))
