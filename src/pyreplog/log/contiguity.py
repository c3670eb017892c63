"""Base offset and leader epoch, which the checksum of a batch does not cover, checked against what lies around the
batch.

In a log without gaps each batch begins where the one before it ends, and has the epoch that the history says. So a
batch that is about to be served is reached from a place that is known: the segment's beginning, an index entry that
names its batch exactly, or where the last reading ended. Without this one flipped bit could give records other
offsets, or hide them, and every checksum would agree.
"""

from __future__ import annotations

from typing import Final

from pyreplog._core import HEADER_SIZE, LOG_OVERHEAD, SegmentScanner, TimeSearch
from pyreplog.errors import CorruptLogError
from pyreplog.log.epochs import EpochCache
from pyreplog.log.layout import INT64_MAX, LOOKUP_CHUNK_SIZE
from pyreplog.log.scan import scan_segment
from pyreplog.log.segment_reader import SegmentReader
from pyreplog.record import DELTA_POSITION, SEQUENCE_FIELDS, SIZE_UP_TO_DELTA
from pyreplog.values import NO_EPOCH

_MANY_SIZE: Final = 2048


class ContiguityCheck:
    """Of one log without gaps. Belongs to the log's owner. Where the log is truncated, make a new one: the place it
    remembers is void."""

    __slots__ = ("_epochs", "_next_offset", "_position", "_segment")

    def __init__(self, epochs: EpochCache) -> None:
        self._epochs = epochs
        # Where the last checked batch ended, and the offset that follows it.
        self._segment: SegmentReader | None = None
        self._position = 0
        self._next_offset = 0

    def known_position(self, segment: SegmentReader, offset: int) -> int:
        """Where in ``segment`` the batch begins that has ``offset`` for its first, when the one before it was
        checked last; else -1."""
        return self._position if segment is self._segment and offset == self._next_offset else -1

    def begin_at(self, segment: SegmentReader, position: int, offset: int) -> None:
        """The batch at byte ``position`` of ``segment`` is known to begin at ``offset``."""
        self._segment, self._position, self._next_offset = segment, position, offset

    def check(self, segment: SegmentReader, position: int, data: memoryview, offset: int, end_offset: int) -> int:
        """How much of ``data``, whole batches at byte ``position`` of ``segment``, is what follows there below
        ``end_offset``.

        Its first batch holds ``offset``. What is behind ``end_offset`` may be torn and is not looked at.
        Raises :class:`CorruptLogError` with the offsets of the first batch that is not what follows.
        """
        if segment is self._segment and position == self._position:
            expected = self._next_offset
        else:
            expected = self._expected_offset(segment, position, offset)
        if expected > offset:
            raise _broken(segment, position, offset, expected, "the batch of this offset is not where it belongs")
        size, next_offset = self._check_batches(segment, position, data, expected, end_offset)
        self._segment, self._position, self._next_offset = segment, position + size, next_offset
        return size

    def seek(
        self, segment: SegmentReader, timestamp: int, start_offset: int, end_offset: int
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record in the half-open range that is not older than ``timestamp``,
        where ``segment`` holds it and nothing is out of the ordinary; None where only a thorough search can say."""
        if segment.legacy is not None:
            return None
        indexes = segment.indexes
        search = TimeSearch(indexes.times, indexes.offsets, timestamp, start_offset, end_offset, segment.size)
        search.expect(*self._epochs.span_of(search.anchor))
        return search.run(segment.file.read_at)

    def check_one(self, segment: SegmentReader, position: int, data: memoryview, offset: int) -> None:
        """``data`` is the batch that follows at ``position``, and begins at ``offset``."""
        self.check(segment, position, data, offset, INT64_MAX)

    def check_range(self, segment: SegmentReader, offset: int, end_offset: int) -> None:
        """Every batch from the one of ``offset`` to that below ``end_offset`` is where it belongs."""
        if offset >= end_offset:
            return
        position = segment.position_of(offset)
        if position is None:
            raise _broken(segment, segment.size, offset, end_offset, "the batch of this offset is not in its segment")
        expected = self._expected_offset(segment, position, offset)
        while expected < end_offset:
            data = segment.file.read_at(position, max(min(LOOKUP_CHUNK_SIZE, segment.size - position), 0))
            walked, expected = self._check_batches(segment, position, data, expected, end_offset)
            if walked <= 0:
                raise _broken(segment, position, expected, end_offset, "the batch of this offset is not in its segment")
            if position + walked > segment.size:
                scan = scan_segment(segment.file, segment.size, segment.base_offset, position=position, check_crc=False)
                start = scan.next_offset if scan.batch_count else offset
                raise _broken(segment, scan.position, start, start + 1, "a batch's length contradicts the file")
            position += walked

    def _expected_offset(self, segment: SegmentReader, position: int, offset: int) -> int:
        """The offset at which the batch at ``position`` must begin."""
        at, expected = segment.anchor(offset)
        if at > position:
            at, expected = 0, segment.base_offset
        while at < position:
            data = segment.file.read_at(at, min(LOOKUP_CHUNK_SIZE, position - at))
            walked, expected = self._check_batches(segment, at, data, expected, INT64_MAX)
            if walked <= 0:
                break
            at += walked
        if at != position:
            raise _broken(segment, at, expected, expected + 1, "a batch is not where the one before it ends")
        return expected

    def _check_batches(
        self, segment: SegmentReader, position: int, data: memoryview, expected: int, end_offset: int
    ) -> tuple[int, int]:
        """Check every batch below ``end_offset`` whose header is in ``data``, up to one that is not what follows:
        raised where it is the first, so that what lies before it can be read.

        How far that goes (it may be behind ``data``), and the offset that follows.
        """
        epoch, change = self._epochs.span_of(expected)
        if len(data) >= _MANY_SIZE and data[DELTA_POSITION:SIZE_UP_TO_DELTA] == bytes(4) and epoch != NO_EPOCH:
            # A batch for each record, it seems: the scanner knows without looking at each from
            # here.
            scan = SegmentScanner(expected, next_offset=expected, check_crc=False)
            whole = scan.feed(data) == len(data) and scan.epochs == [(epoch, expected)]
            if (
                whole
                and scan.next_offset - expected == scan.batch_count
                and scan.next_offset <= min(end_offset, change)
            ):
                return len(data), scan.next_offset
        at, last = 0, len(data) - HEADER_SIZE
        while at <= last and expected < end_offset:
            base, length, leader_epoch, delta = SEQUENCE_FIELDS.unpack_from(data, at)
            if base != expected or length < HEADER_SIZE - LOG_OVERHEAD:
                if at:
                    break
                reason = f"a batch says that it begins at offset {base}, and {expected} is next"
                if base == expected:
                    reason = f"a batch says that it is {length} bytes long"
                raise _broken(segment, position + at, expected, expected + delta + 1, reason)
            if base >= change:
                epoch, change = self._epochs.span_of(base)
            if leader_epoch != epoch != NO_EPOCH:
                if at:
                    break
                reason = f"a batch has leader epoch {leader_epoch}, and its offsets belong to epoch {epoch}"
                raise _broken(segment, position + at, expected, expected + delta + 1, reason)
            expected = base + delta + 1
            at += LOG_OVERHEAD + length
        return at, expected


def _broken(segment: SegmentReader, position: int, start: int, end: int, reason: str) -> CorruptLogError:
    return CorruptLogError(reason, start=start, end=max(end, start + 1), file=segment.path, position=position)
