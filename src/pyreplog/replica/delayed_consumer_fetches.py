"""Consumer fetches at one replica, whether it leads or follows.

A fetch reads records below the high watermark, or waits for them. A waiting fetch belongs to one
leader epoch: when the role ends, every waiting reader is refused and asks elsewhere, and no fetch
is answered in another epoch. The high watermark is read once per operation (KAFKA-9807).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyreplog.errors import CorruptError, OffsetOutOfRangeError, StorageError
from pyreplog.mypyc_build import mypyc_attr
from pyreplog.record import RecordBatch
from pyreplog.replica.events import FAR_FUTURE_NS, ConsumerFetch
from pyreplog.replica.role import ReplicaRole

if TYPE_CHECKING:
    from pyreplog.log import LogSlice

__all__ = ["DelayedConsumerFetches"]


class _Waiting:
    """A consumer's fetch that waits for the high watermark."""

    __slots__ = ("deadline_ns", "event")

    def __init__(self, event: ConsumerFetch, deadline_ns: int) -> None:
        self.event = event
        self.deadline_ns = deadline_ns


_NOBODY: Final[dict[tuple[str, int], _Waiting]] = {}
"""Shared empty dict, never filled: a node may have very many partitions without readers."""


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedConsumerFetches:
    """The consumer fetches of one role."""

    __slots__ = ("_role", "expiry_ns", "waiting")

    def __init__(self, role: ReplicaRole) -> None:
        self._role = role
        self.waiting = _NOBODY
        """Waiting fetches by (source, correlation id)."""
        self.expiry_ns = FAR_FUTURE_NS
        """The time at which :meth:`expire` must be called next."""

    def fetch(self, event: ConsumerFetch, now_ns: int) -> None:
        """Answer the fetch, or let it wait for the high watermark (2.11).

        REQUIRES an offset between the log's start and its end, and a reader whose history is this
        log's.
        """
        role = self._role
        if self._serve(event, role.context.log.high_watermark, patient=event.max_wait_ms > 0):
            return
        deadline = now_ns + event.max_wait_ms * 1_000_000
        if self.waiting is _NOBODY:
            self.waiting = {}
        self.waiting[event.source, event.correlation_id] = _Waiting(event, deadline)
        if deadline < self.expiry_ns:
            self.expiry_ns = deadline
            role.context.wake_by(deadline)

    def _serve(self, event: ConsumerFetch, high_watermark: int, *, patient: bool) -> bool:
        """Answer with the records below ``high_watermark``.

        Return False without an answer if the records are too few and the reader is ``patient``.
        """
        role, request = self._role, event.request
        records: LogSlice | None = None
        if request.fetch_offset < high_watermark:
            try:
                records = role.context.load_log().read(
                    request.fetch_offset, max(request.partition_max_bytes, 1), high_watermark, checked=True
                )
            except (OffsetOutOfRangeError, CorruptError, StorageError) as error:
                role.refuse_read(event, error)
                return True
            if not records.size:
                records = None
        if patient and event.min_bytes > 0:
            size = 0 if records is None else records.size
            if size < min(event.min_bytes, request.partition_max_bytes) and (
                records is None or _end(records) >= high_watermark
            ):
                return False
        role.reply(event, role.data(records))
        return True

    def serve(self) -> None:
        """Answer the waiting fetches that the new high watermark satisfies."""
        high_watermark = self._role.context.log.high_watermark
        for key, reader in list(self.waiting.items()):
            if reader.event.request.fetch_offset < high_watermark and self._serve(
                reader.event, high_watermark, patient=True
            ):
                del self.waiting[key]

    def cancel(self, source: str, correlation_id: int) -> None:
        """Drop the fetch of a reader that no longer waits."""
        self.waiting.pop((source, correlation_id), None)

    def expire(self, now_ns: int) -> None:
        """Answer the expired fetches with the records available now."""
        soonest = FAR_FUTURE_NS
        high_watermark = self._role.context.log.high_watermark
        for key, reader in list(self.waiting.items()):
            if reader.deadline_ns <= now_ns:
                self._serve(reader.event, high_watermark, patient=False)
                del self.waiting[key]
            else:
                soonest = min(soonest, reader.deadline_ns)
        self.expiry_ns = soonest

    def exit(self, code: int) -> None:
        """Refuse all waiting fetches with ``code``, because the role ends."""
        for reader in self.waiting.values():
            self._role.refuse_fetch(reader.event, code)
        self.waiting.clear()


def _end(records: LogSlice) -> int:
    """Return the offset after the last whole batch."""
    end = -1
    for part in records.parts():
        position, size = 0, part.nbytes
        while position < size:
            batch = RecordBatch(part, position)
            end = batch.next_offset
            position += batch.size
    return end
