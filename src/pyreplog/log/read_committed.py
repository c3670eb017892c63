"""Reading only committed records: up to the last stable offset, without aborted transactions.

The first marker of a producer behind a batch ends the batch's transaction, and tells whether it was aborted. So for a
chunk with transactional batches the reader walks the log behind the chunk until it has found their markers. Other
chunks cost nothing. Transaction indexes are not used, because they have no checksum.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, Protocol

from pyreplog._core import RecordBatch, find_producers, whole_batches
from pyreplog.config import suggestion
from pyreplog.errors import ConfigError, CorruptLogError
from pyreplog.ports import Buffer
from pyreplog.record import ABORT, end_marker, end_of, split

READ_UNCOMMITTED: Final = "read_uncommitted"
READ_COMMITTED: Final = "read_committed"
ISOLATIONS: Final = (READ_UNCOMMITTED, READ_COMMITTED)
_WALK_SIZE: Final = 4 << 20


def check_isolation(isolation: object) -> str:
    """Return ``isolation`` if it is one of the two levels. Raises :class:`ConfigError`."""
    if isolation not in ISOLATIONS:
        raise ConfigError(f"isolation is {isolation!r}{suggestion(str(isolation), ISOLATIONS)}")
    return str(isolation)


class StableSource(Protocol):
    """A source of batches below a high watermark that knows its last stable offset."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        ...

    @property
    def end_offset(self) -> int:
        """The high watermark."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no open transaction begins; at most the high watermark."""
        ...

    @property
    def max_batch_bytes(self) -> int:
        """The number of bytes up to which readers unpack one compressed batch, in parts."""
        ...

    def refresh(self) -> None:
        """Look for batches that were appended since the last call."""
        ...

    def read(self, offset: int, size_max: int) -> Buffer:
        """Return whole batches below the high watermark, beginning with the batch that holds ``offset``; none at the
        end."""
        ...

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record whose timestamp is at least ``timestamp`` (ms), or None."""
        ...

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error, with file and position, for the damaged batch that was read for ``offset``."""
        ...


class CommittedSource:
    """The committed records of ``source``. As thread-safe as ``source``."""

    def __init__(self, source: StableSource) -> None:
        self._source = source
        # The markers that earlier reads found. Each read takes one entry, so that threads do not
        # share it.
        self._pool: list[_Fates] = []

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._source.start_offset

    @property
    def end_offset(self) -> int:
        """The last stable offset."""
        return self._source.last_stable_offset

    @property
    def max_batch_bytes(self) -> int:
        """The number of bytes up to which readers unpack one compressed batch, in parts."""
        return self._source.max_batch_bytes

    def refresh(self) -> None:
        """Look for batches that were appended since the last call."""
        self._source.refresh()

    def read(self, offset: int, size_max: int) -> memoryview:
        """Return whole batches below the last stable offset, beginning with the batch that holds ``offset`` or the
        next that was not aborted. Empty if there are none. Passes on the errors of ``source``."""
        end = self.end_offset
        fates = self._pool.pop() if self._pool else _Fates()
        try:
            while offset < end:
                data = memoryview(self._source.read(offset, size_max))
                data = data[: whole_batches(data, end, data.nbytes)]
                if not data.nbytes:
                    break
                kept, offset = fates.keep(self._source, data)
                if kept:
                    return kept[0] if len(kept) == 1 else memoryview(b"".join(kept))
        finally:
            self._pool.append(fates)
        return memoryview(b"")

    def batches(self, start: int, end: int) -> Iterator[RecordBatch]:
        """Yield the batches that hold an offset in the half-open range. The first may begin below ``start``, the last
        may end above ``end``."""
        end = min(end, self.end_offset)
        while start < end:
            found = split(self.read(start, _WALK_SIZE))
            for batch in found:
                if batch.base_offset >= end:
                    return
                yield batch
                start = batch.next_offset
            if not found:
                return

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record below the last stable offset whose timestamp is at least
        ``timestamp`` (ms), or None. As in Kafka, it may be an aborted record or a marker."""
        found = self._source.find_timestamp(timestamp)
        return found if found is not None and found[0] < self.end_offset else None

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error, with file and position, for the damaged batch that was read for ``offset``."""
        return self._source.damage(offset, reason)


class _Fates:
    """The transaction markers in [start, end) of one log: producer id -> (offsets, whether each aborts)."""

    __slots__ = ("_markers", "end", "start")

    def __init__(self) -> None:
        self.start = self.end = 0
        self._markers: dict[int, tuple[list[int], list[bool]]] = {}

    def keep(self, source: StableSource, data: memoryview) -> tuple[list[memoryview], int]:
        """Return the parts of ``data`` (whole batches) that were not aborted, and the next offset if there are none."""
        found = find_producers(data, True)[0]
        if not found:
            return [data], 0
        batches = [RecordBatch(data, position) for position in found]
        # The first batch may begin below the start offset, if some of its records were deleted.
        self._begin(max(RecordBatch(data).base_offset, source.start_offset))
        parts: list[memoryview] = []
        begin = 0
        for position, batch in zip(found, batches, strict=True):
            if not batch.is_control and self._aborted(source, batch):
                if position > begin:
                    parts.append(data[begin:position])
                begin = position + batch.size
        if begin < data.nbytes:
            parts.append(data[begin:])
        return parts, 0 if parts else end_of(data)

    def _begin(self, offset: int) -> None:
        """Forget the markers below ``offset``; all of them if the reader went back or ahead."""
        if not self.start <= offset <= self.end:
            self._markers = {}
            self.end = offset
        elif self.start < offset:
            for producer_id in [known for known, (offsets, _) in self._markers.items() if offsets[-1] < offset]:
                del self._markers[producer_id]
        self.start = offset

    def _aborted(self, source: StableSource, batch: RecordBatch) -> bool:
        offset, producer_id = batch.base_offset, batch.producer_id
        while True:
            known = self._markers.get(producer_id)
            if known is not None and (slot := bisect_right(known[0], offset)) < len(known[0]):
                return known[1][slot]
            data = source.read(self.end, _WALK_SIZE)
            positions, size = find_producers(data, True)
            if not size:
                return False  # there is no marker: compaction keeps an abort marker as long as its batches
            for position in positions:
                marker = RecordBatch(data, position)
                if marker.is_control and (record := end_marker(marker)) is not None:
                    offsets, aborts = self._markers.setdefault(marker.producer_id, ([], []))
                    if not offsets or offsets[-1] < marker.base_offset:
                        offsets.append(marker.base_offset)
                        aborts.append(record.type == ABORT)
            self.end = end_of(memoryview(data)[:size])
