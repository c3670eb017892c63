"""The handle of a reassignment for asyncio."""

from __future__ import annotations

from pyreplog import runtime
from pyreplog.aio.calls import ThreadCalls
from pyreplog.runtime import PartitionReassignment
from pyreplog.values import TopicPartition

__all__ = ["ReassignmentHandle"]


class ReassignmentHandle:
    """Partitions that are getting other replicas, in the background. See :class:`pyreplog.ReassignmentHandle`."""

    def __init__(self, handle: runtime.ReassignmentHandle, calls: ThreadCalls) -> None:
        """``admin.reassign`` returns it."""
        self._handle = handle
        self._calls = calls

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions of the call."""
        return self._handle.partitions

    async def remaining(self) -> dict[TopicPartition, PartitionReassignment]:
        """Return the partitions whose new replicas do not have all records yet."""
        return await self._calls.read(self._handle.remaining)

    async def done(self) -> bool:
        """Return whether every partition has its replicas."""
        return await self._calls.read(self._handle.done)

    async def wait(self, timeout: float | None = None) -> None:
        """Return when all are done. See :meth:`pyreplog.ReassignmentHandle.wait`."""
        await self._calls.read(self._handle.wait, timeout)

    def __repr__(self) -> str:
        count = len(self.partitions)
        return f"<reassignment of {count} partition{'' if count == 1 else 's'}>"
