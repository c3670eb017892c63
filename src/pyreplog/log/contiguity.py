"""Checks a batch's base offset and leader epoch, which its checksum does not cover, against the batches around it.

In a log without gaps each batch begins at the offset where the one before it ends, and has the epoch that the history
gives for it. So before a batch is served, the check walks to it from a trusted place: the begin of the segment, an
index entry that names its batch exactly, or the end of the last read. Without this check one flipped bit could give
records other offsets, or hide them, although every checksum is right.
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
    """Checks the batches of one log without gaps. Belongs to the log's owner. After a truncation make a new check,
    because the place that it remembers may be gone."""

    __slots__ = ("_epochs", "_next_offset", "_position", "_segment", "compacted")

    def __init__(self, epochs: EpochCache, *, compacted: bool = False) -> None:
        """``compacted``: offsets may be missing if the file of gaps of their segment says so."""
        self._epochs = epochs
        self.compacted = compacted
        # The end of the last checked batch, and the offset behind it.
        self._segment: SegmentReader | None = None
        self._position = 0
        self._next_offset = 0

    def behind_gap(self, segment: SegmentReader, offset: int) -> int:
        """Return the end of the recorded gap of ``segment`` that holds ``offset``; ``offset`` if none does."""
        return segment.gaps.behind(offset) if self.compacted else offset

    def known_position(self, segment: SegmentReader, offset: int) -> int:
        """Return the position in ``segment`` of the batch with base offset ``offset`` if the last check ended there;
        otherwise -1."""
        return self._position if segment is self._segment and offset == self._next_offset else -1

    def begin_at(self, segment: SegmentReader, position: int, offset: int) -> None:
        """Note that the batch at byte ``position`` of ``segment`` is known to begin at ``offset``."""
        self._segment, self._position, self._next_offset = segment, position, offset

    def check(self, segment: SegmentReader, position: int, data: memoryview, offset: int, end_offset: int) -> int:
        """Return the size of the batches below ``end_offset`` in ``data`` that continue the log. ``data`` holds whole
        batches at byte ``position`` of ``segment``, and the first of them holds ``offset``.

        Bytes behind ``end_offset`` may be torn and are not read. Raises :class:`CorruptLogError` for the offsets of
        the first batch if that does not continue the log.
        """
        if segment is self._segment and position == self._position:
            expected = self._next_offset
        else:
            expected = self._expected_offset(segment, position, offset)
        if expected > offset:
            raise _broken(segment, position, offset, expected, "the batch of this offset is not at its place")
        size, next_offset = self._check_batches(segment, position, data, expected, end_offset)
        self._segment, self._position, self._next_offset = segment, position + size, next_offset
        return size

    def seek(
        self, segment: SegmentReader, timestamp: int, start_offset: int, end_offset: int
    ) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record in the half-open range that is not older than ``timestamp``,
        found by the indexes of ``segment``. None if only a thorough search can tell."""
        if segment.legacy is not None:
            return None
        indexes = segment.indexes
        search = TimeSearch(indexes.times, indexes.offsets, timestamp, start_offset, end_offset, segment.size)
        search.expect(*self._epochs.span_of(search.anchor))
        return search.run(segment.file.read_at)

    def check_one(self, segment: SegmentReader, position: int, data: memoryview, offset: int) -> None:
        """Check that the batch ``data`` at ``position`` begins at ``offset`` and continues the log."""
        self.check(segment, position, data, offset, INT64_MAX)

    def check_range(self, segment: SegmentReader, offset: int, end_offset: int) -> None:
        """Check that every batch from the batch of ``offset`` up to ``end_offset`` continues the log."""
        if offset >= end_offset:
            return
        position = segment.position_of(offset)
        if position is None:
            if self.behind_gap(segment, offset) >= end_offset:
                return
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
            if position == segment.size:
                expected = self.behind_gap(segment, expected)

    def _expected_offset(self, segment: SegmentReader, position: int, offset: int) -> int:
        """Return the offset at which the batch at ``position`` must begin."""
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
        """Check every batch below ``end_offset`` whose header is in ``data``. Return the size of those that continue
        the log (which may exceed ``data``), and the offset behind them.

        Raises :class:`CorruptLogError` only if the first batch does not continue the log, so that the batches before
        a damaged one can be read.
        """
        epoch, change = self._epochs.span_of(expected)
        if len(data) >= _MANY_SIZE and data[DELTA_POSITION:SIZE_UP_TO_DELTA] == bytes(4) and epoch != NO_EPOCH:
            # The first batch has a single record, so the data may hold very many small batches. The
            # compiled scanner checks them all at once.
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
            if base > expected and self.compacted:
                behind = self.behind_gap(segment, expected)
                if behind == expected and segment.refresh_gaps():
                    behind = self.behind_gap(segment, expected)
                if at and behind >= end_offset:
                    break
                expected = behind
            if base != expected or length < HEADER_SIZE - LOG_OVERHEAD:
                if at:
                    break
                reason = f"batch has base offset {base}, expected {expected}"
                if base == expected:
                    reason = f"batch has length {length}, which is less than a header"
                raise _broken(segment, position + at, expected, expected + delta + 1, reason)
            if base >= change:
                epoch, change = self._epochs.span_of(base)
            if leader_epoch != epoch != NO_EPOCH:
                if at:
                    break
                reason = f"batch has leader epoch {leader_epoch}, but its offsets belong to epoch {epoch}"
                raise _broken(segment, position + at, expected, expected + delta + 1, reason)
            expected = base + delta + 1
            at += LOG_OVERHEAD + length
        return at, expected


def _broken(segment: SegmentReader, position: int, start: int, end: int, reason: str) -> CorruptLogError:
    return CorruptLogError(reason, start=start, end=max(end, start + 1), file=segment.path, position=position)
