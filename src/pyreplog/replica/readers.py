"""What consumers read at one replica, whether it leads or follows: fetches below the high watermark, and those that wait for it.

A waiting fetch belongs to one reign: when the role ends, everybody is told to ask elsewhere, and nobody is answered out of another epoch.
The high watermark is read once per operation (KAFKA-9807).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyreplog.compiled import mypyc_attr
from pyreplog.errors import CorruptError, OffsetOutOfRangeError, StorageError
from pyreplog.interruptions import is_interruption
from pyreplog.record import RecordBatch
from pyreplog.replica.seat import FAR

if TYPE_CHECKING:
    from pyreplog.log import LogSlice
    from pyreplog.replica.events import ConsumerFetch
    from pyreplog.replica.seat import Seat

__all__ = ["Readers"]


class _Waiting:
    """A consumer's fetch that waits for the high watermark."""

    __slots__ = ("deadline_ns", "event")

    def __init__(self, event: ConsumerFetch, deadline_ns: int) -> None:
        self.event = event
        self.deadline_ns = deadline_ns


_NOBODY: Final[dict[tuple[str, int], _Waiting]] = {}
"""What stays empty: there may be very many partitions that nobody reads."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Readers:
    """The consumers of one seat."""

    __slots__ = ("_seat", "expiry_ns", "waiting")

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.waiting = _NOBODY
        """By (source, correlation id)."""
        self.expiry_ns = FAR
        """When :meth:`expire` is due."""

    def fetch(self, event: ConsumerFetch, now_ns: int) -> None:
        """Answer, or wait for the high watermark (2.11). REQUIRES an offset that is not below the log's start, nor above its end, and that
        the reader's history is this log's."""
        seat = self._seat
        if self._serve(event, seat.log.high_watermark, patient=event.max_wait_ms > 0):
            return
        deadline = now_ns + event.max_wait_ms * 1_000_000
        if self.waiting is _NOBODY:
            self.waiting = {}
        self.waiting[event.source, event.correlation_id] = _Waiting(event, deadline)
        if deadline < self.expiry_ns:
            self.expiry_ns = deadline
            seat.machine.wake_by(deadline)

    def _serve(self, event: ConsumerFetch, high_watermark: int, *, patient: bool) -> bool:
        """Answer with what lies below ``high_watermark``; False where that is too little and the reader is ``patient``."""
        seat, request = self._seat, event.request
        records: LogSlice | None = None
        if request.fetch_offset < high_watermark:
            try:
                records = seat.log.read(request.fetch_offset, max(request.partition_max_bytes, 1), high_watermark, checked=True)
            except (OffsetOutOfRangeError, CorruptError, StorageError) as error:
                if is_interruption(error):
                    raise
                seat.refuse_read(event, error)
                return True
            if not records.size:
                records = None
        if patient and event.min_bytes > 0:
            size = 0 if records is None else records.size
            if size < min(event.min_bytes, request.partition_max_bytes) and (records is None or _end(records) >= high_watermark):
                return False
        seat.reply(event, seat.data(records))
        return True

    def serve(self) -> None:
        """The high watermark moved: answer those for whom that is enough."""
        high_watermark = self._seat.log.high_watermark
        for key, reader in list(self.waiting.items()):
            if reader.event.request.fetch_offset < high_watermark and self._serve(reader.event, high_watermark, patient=True):
                del self.waiting[key]

    def cancel(self, source: str, correlation_id: int) -> None:
        """The reader went away."""
        self.waiting.pop((source, correlation_id), None)

    def expire(self, now_ns: int) -> None:
        """Answer whose time is up with what there is."""
        soonest = FAR
        high_watermark = self._seat.log.high_watermark
        for key, reader in list(self.waiting.items()):
            if reader.deadline_ns <= now_ns:
                self._serve(reader.event, high_watermark, patient=False)
                del self.waiting[key]
            else:
                soonest = min(soonest, reader.deadline_ns)
        self.expiry_ns = soonest

    def leave(self, code: int) -> None:
        """The role ends: everybody asks elsewhere."""
        for reader in self.waiting.values():
            self._seat.refuse_fetch(reader.event, code)
        self.waiting.clear()


def _end(records: LogSlice) -> int:
    """The offset behind the last whole batch."""
    end = -1
    for part in records.parts():
        position, size = 0, part.nbytes
        while position < size:
            batch = RecordBatch(part, position)
            end = batch.next_offset
            position += batch.size
    return end
