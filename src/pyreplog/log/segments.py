"""The segments of one log, in order: finding the one with an offset, and reading across them.

Of the closed segments, only those used last keep their files open and their indexes in memory
(:mod:`pyreplog.log.index_cache`). :mod:`pyreplog.log.log_segments` has the segments of an open log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

from pyreplog._core import HEADER_SIZE, RecordBatch, SegmentScanner
from pyreplog.config import MAX_BATCH_BYTES
from pyreplog.errors import CorruptError, CorruptLogError
from pyreplog.log.contiguity import ContiguityCheck
from pyreplog.log.index_cache import IndexCache
from pyreplog.log.layout import FIRST_LOOK_SIZE, INT64_MAX
from pyreplog.log.resumption import is_cut_off, resume, seek_behind
from pyreplog.log.scan import scan_segment, why_ended
from pyreplog.log.segment_reader import SegmentReader
from pyreplog.record import base_offset_of

AnySegment = TypeVar("AnySegment", bound=SegmentReader)


class Segments(Generic[AnySegment]):
    """The segments of one log: at least one, by rising base offset. Belongs to one owner."""

    __slots__ = ("_bases", "_cache", "_dense", "_latest", "_latest_from", "_place", "_read_at", "_segments", "last")

    def __init__(self, segments: Sequence[AnySegment], cache: IndexCache | None = None) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in self._segments]
        self._cache = IndexCache() if cache is None else cache
        # The greatest timestamp from slot `_latest_from` up to each closed segment, as far as
        # searches have looked.
        self._latest: list[int] = []
        self._latest_from = 0
        # (segment, offset, position of its batch): `_place` is the place behind damage at which the
        # next read goes on, `_read_at` the place of the last read from there.
        self._place: tuple[AnySegment, int, int] | None = None
        self._read_at: tuple[AnySegment, int, int] | None = None
        self._dense = False
        #: The newest segment; in an open log the one being written.
        self.last = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[AnySegment]:
        return iter(self._segments)

    @property
    def first(self) -> AnySegment:
        """The oldest segment."""
        return self._segments[0]

    def size(self) -> int:
        """Return the number of bytes of all batches."""
        return sum(segment.size for segment in self._segments)

    def share(self, cache: IndexCache) -> None:
        """Use ``cache``, which other logs of the same owner share, instead of a cache of its own."""
        for segment in self._segments:
            self._cache.forget(segment)
        self._cache = cache

    def close(self) -> None:
        """Release all files."""
        for segment in self._segments:
            segment.release()
            self._cache.forget(segment)

    # -- reading --

    def read(
        self, offset: int, size_max: int, end_offset: int, chain: ContiguityCheck | None = None
    ) -> memoryview | None:
        """Return batches as :meth:`SegmentReader.locate` does, of the segment that holds ``offset`` or the next one
        with a batch. Never of two segments.

        ``chain`` checks the batches of a log without gaps; it is None if the log may have gaps.

        Raises :class:`CorruptLogError` if the batch of ``offset`` is damaged. Reads on behind damage before it.
        """
        self._dense = chain is not None and not chain.compacted
        self._read_at = None
        index, place = self._slot(offset), self._place
        try:
            if place is not None and place[0] is self._segments[index] and place[1] == offset:
                data = self._read_place(index, place[2], offset, size_max, end_offset, chain)
                if data is not None:
                    return data
            return self._read(offset, size_max, end_offset, chain)
        except CorruptError as error:
            return self._read_behind(error, offset, size_max, end_offset, chain)

    def _read(self, offset: int, size_max: int, end_offset: int, chain: ContiguityCheck | None) -> memoryview | None:
        if chain is not None:
            return self._read_checked(offset, size_max, end_offset, chain)
        for index in range(self._slot(offset), len(self._segments)):
            segment = self._segments[index]
            if segment.base_offset >= end_offset:
                return None
            try:
                found = self._use(segment).locate(offset, size_max, end_offset)
            except CorruptError as error:
                named = self._read_named(index, offset, size_max, end_offset, None)
                if named is None:
                    raise self._damaged(index, offset, end_offset, error.reason, _within(segment, error)) from None
                return named
            if found is None:
                self._check_end(index, offset)
                continue
            if base_offset_of(found[1]) > offset:
                self._check_passed(index, offset, found[0])
            return self._own_batches(index, offset, *found)
        return None

    def _read_behind(
        self, error: CorruptError, offset: int, size_max: int, end_offset: int, chain: ContiguityCheck | None
    ) -> memoryview:
        """Return the batches of ``offset`` if they lie behind the damage that ``error`` reports. Otherwise raises an
        error for the damage at ``offset``; its ``end`` is the offset from which reading can go on."""
        slots = range(self._slot(offset), len(self._segments))
        index = next((slot for slot in slots if self._segments[slot].holds(error)), -1)
        at = None if index < 0 else _within(self._segments[index], error)
        if at is None:
            raise error
        segment = self._segments[index]
        position, is_there = seek_behind(segment, offset, self._following_or_none(index), dense=self._dense)
        if is_there:
            try:
                data = self._read_place(index, position, offset, size_max, end_offset, chain)
                if data is not None:
                    return data
            except CorruptLogError as other:
                error, at = other, position
        elif position != at and position < segment.size:
            error, at = (
                CorruptError("a batch is damaged", file=segment.path, position=segment.file_position(position)),
                position,
            )
        end = self._resume(index, at, offset)
        if end is None:
            raise (
                error
                if isinstance(error, CorruptLogError)
                else self._damaged(index, offset, end_offset, error.reason, at)
            )
        start = error.start if isinstance(error, CorruptLogError) and error.start < offset < error.end else offset
        raise CorruptLogError(error.reason, start=start, end=end, file=segment.path, position=segment.file_position(at))

    def _read_place(
        self, index: int, position: int, offset: int, size_max: int, end_offset: int, chain: ContiguityCheck | None
    ) -> memoryview | None:
        """Return the batches at byte ``position`` of segment ``index``. A search behind damage found there the batch
        of ``offset``."""
        segment = self._use(self._segments[index])
        header = segment.header_at(position)
        if header is None or header[1] < offset:
            return None
        if header[0] > offset and chain is not None and chain.behind_gap(segment, offset) < header[0]:
            return None
        try:
            found = segment.locate_at(position, memoryview(b""), size_max, end_offset)
        except CorruptError as error:
            raise self._damaged(index, offset, end_offset, error.reason, position) from None
        if found is None:
            return None
        if chain is None:
            data = self._own_batches(index, offset, *found)
        else:
            chain.begin_at(segment, position, header[0])
            data = found[1][: chain.check(segment, position, found[1], header[0], end_offset)]
        self._read_at = (segment, offset, position)
        scan = SegmentScanner(header[0], check_crc=False)
        if scan.feed(data) == len(data):
            self._place = (segment, scan.next_offset, position + len(data))
        return data

    def _resume(self, index: int, position: int, offset: int) -> int | None:
        """Return the offset from which reading goes on in segment ``index`` behind the damage at ``position``, or
        None if the segment has no sound batch there."""
        segment = self._segments[index]
        found = resume(segment, position, offset, self._following_or_none(index), dense=self._dense)
        if found is None:
            return None
        self._place = (segment, *found)
        return found[0]

    def _own_batches(self, index: int, offset: int, position: int, data: memoryview) -> memoryview:
        """Return the batches of ``data`` before the first one whose offsets cannot belong at byte ``position`` of
        segment ``index``. For a log with gaps. Raises :class:`CorruptLogError` if that is the batch that was found
        for ``offset``."""
        base = base_offset_of(data)
        if base < self._bases[index]:
            reason = f"batch has base offset {base}, below the base offset {self._bases[index]} of its segment"
            path, at = self._segments[index].path, self._segments[index].file_position(position)
            raise CorruptLogError(
                reason, start=offset, end=max(RecordBatch(data).next_offset, offset + 1), file=path, position=at
            )
        scan = SegmentScanner(base, check_crc=False)
        size = scan.feed(data)
        following = self._bound(index, position, size)
        if scan.next_offset <= following:
            return data[:size] if size else data
        size = 0
        while (batch := RecordBatch(data, size)).next_offset <= following:
            size += batch.size
        if not size:
            raise self._overlap(index, offset, position, batch.last_offset, following)
        return data[:size]

    def _bound(self, index: int, position: int, size: int) -> int:
        """Return the base offset behind the ``size`` bytes at ``position`` of segment ``index``; if those are messages
        of an old format, behind all such messages. No checksum covers it. 2**63 - 1 if nothing follows."""
        segment = self._segments[index]
        following = self._following(index, INT64_MAX)
        legacy = segment.legacy
        behind = position + size if legacy is None or position >= legacy.end else legacy.end
        header = segment.header_at(behind)
        return following if header is None else min(header[0], following)

    def _overlap(self, index: int, offset: int, position: int, last_offset: int, following: int) -> CorruptLogError:
        reason = f"batch has last offset {last_offset}, but the next batch begins at {following}"
        segment = self._segments[index]
        end = max(following, offset + 1)
        return CorruptLogError(
            reason, start=offset, end=end, file=segment.path, position=segment.file_position(position)
        )

    def _check_end(self, index: int, offset: int) -> None:
        """Check that segment ``index`` really has no batch from ``offset`` up to the end of the read. For a log with
        gaps. Raises :class:`CorruptLogError` if a damaged last offset, or bytes that are no batch, only make it look
        so."""
        segment = self._segments[index]
        position = segment.position_of(offset)
        if position is None:
            if index + 1 < len(self._bases):
                self._check_passed(index, offset, segment.size)
            return
        legacy = segment.legacy
        if legacy is not None and position < legacy.end:
            size, next_offset = 0, legacy.next_offset
        else:
            try:
                batch = RecordBatch(segment.read_at(position, HEADER_SIZE))
                batch.check_crc()
            except CorruptError as error:
                at = segment.file_position(position)
                raise CorruptLogError(
                    error.reason, start=offset, end=offset + 1, file=segment.path, position=at
                ) from None
            size, next_offset = batch.size, batch.next_offset
        following = self._bound(index, position, size)
        if next_offset > following:
            raise self._overlap(index, offset, position, next_offset - 1, following)

    def _check_passed(self, index: int, offset: int, position: int) -> None:
        """Check that the batches that a search for ``offset`` passed on its way to ``position`` are intact, and so do
        not hold the offset. For a log with gaps."""
        segment = self._segments[index]
        legacy = segment.legacy
        if legacy is not None and offset < legacy.next_offset and legacy.end <= position:
            following = self._bound(index, 0, 0)
            if legacy.next_offset > following:
                raise self._overlap(index, offset, 0, legacy.next_offset - 1, following)
        start = max(segment.anchor(offset)[0], 0 if legacy is None else legacy.end)
        if start >= position:
            return
        scan = scan_segment(segment.file, position, segment.base_offset, position=start)
        if scan.position != position:
            raise CorruptLogError(
                why_ended(scan),
                start=offset,
                end=offset + 1,
                file=segment.path,
                position=segment.file_position(scan.position),
            )

    def _read_named(
        self, index: int, offset: int, size_max: int, end_offset: int, chain: ContiguityCheck | None
    ) -> memoryview | None:
        """Return the batch of ``offset`` and the following ones if the index of segment ``index`` leads to it behind
        damage; otherwise None.

        The index may name the batch itself or the one before it, because an index that was built of a damaged log
        takes the offsets of a batch from its unprotected header.
        """
        segment, dense = self._segments[index], self._dense
        position = segment.named(offset)
        if position is None:
            return None
        try:
            if not self._leads_on(index, position, dense=dense):
                position += RecordBatch(segment.read_at(position, HEADER_SIZE)).size
                if not self._leads_on(index, position, dense=dense):
                    return None
            header = segment.header_at(position)
            if header is None or not header[0] <= offset <= header[1]:
                return None
            found = segment.locate_at(position, memoryview(b""), size_max, end_offset)
            if found is None:
                return None
            if chain is None:
                return self._own_batches(index, offset, *found)
            chain.begin_at(segment, position, header[0])
            return found[1][: chain.check(segment, position, found[1], header[0], end_offset)]
        except CorruptError:
            return None  # this batch is damaged too; the caller raises the first error

    def _leads_on(self, index: int, position: int, *, dense: bool) -> bool:
        """Return whether the next batch agrees with the offsets of the batch at byte ``position`` of segment
        ``index``. No checksum covers them."""
        segment = self._segments[index]
        batch = RecordBatch(segment.read_at(position, HEADER_SIZE))
        behind = position + batch.size
        if behind < segment.size:
            header = segment.header_at(behind)
            following = -1 if header is None else header[0]
        else:
            following = self._following(index, segment.next_offset)
        return following == batch.next_offset or (not dense and following > batch.next_offset)

    def _read_checked(self, offset: int, size_max: int, end_offset: int, chain: ContiguityCheck) -> memoryview | None:
        index = self._slot(offset)
        while True:
            # A gap that compaction left may reach over the ends of segments.
            behind = chain.behind_gap(self._segments[index], offset)
            if index + 1 >= len(self._bases) or behind < self._bases[index + 1]:
                break
            index, offset = index + 1, behind
        if offset >= end_offset:
            return None
        try:
            return self._read_walked(index, offset, size_max, end_offset, chain)
        except CorruptLogError:
            named = self._read_named(index, offset, size_max, end_offset, chain)
            if named is None:
                raise
            return named

    def _read_walked(
        self, index: int, offset: int, size_max: int, end_offset: int, chain: ContiguityCheck
    ) -> memoryview | None:
        segment = self._use(self._segments[index])
        place = chain.known_position(segment, offset)
        try:
            if 0 < place < segment.size:
                # This read continues the last one.
                data = segment.file.read_at(place, min(max(size_max, FIRST_LOOK_SIZE), segment.size - place))
                found = segment.locate_at(place, data, size_max, end_offset)
            else:
                found = segment.locate(offset, size_max, end_offset)
        except CorruptError as error:
            raise self._damaged(index, offset, end_offset, error.reason, _within(segment, error)) from None
        if found is not None:
            return found[1][: self._check(index, chain, *found, offset, end_offset, end_offset)]
        # The batch of `offset` may end above `end_offset`, but it must exist.
        position = segment.position_of(offset)
        if position is None:
            raise self._damaged(
                index, offset, end_offset, "the batch of this offset is not in its segment", segment.size
            )
        data = segment.read_at(position, HEADER_SIZE)
        self._check(index, chain, position, data, offset, INT64_MAX, end_offset)
        try:
            RecordBatch(data).check_crc()
        except CorruptError as error:
            raise self._damaged(index, offset, end_offset, error.reason, position) from None
        return None

    def _check(
        self,
        index: int,
        chain: ContiguityCheck,
        position: int,
        data: memoryview,
        offset: int,
        checked_end: int,
        end_offset: int,
    ) -> int:
        """Call :meth:`ContiguityCheck.check` up to ``checked_end``, for a read from ``offset`` on below
        ``end_offset``."""
        try:
            return chain.check(self._segments[index], position, data, offset, checked_end)
        except CorruptLogError as error:
            if error.end > offset:
                raise
            # The damage lies before `offset`, so the place of its batch is unknown.
            raise self._damaged(
                index, offset, end_offset, error.reason, _within(self._segments[index], error)
            ) from None

    def damage(self, offset: int, end_offset: int, reason: str) -> CorruptLogError:
        """Return the error for the damaged batch that was read for ``offset``, with its position and the offsets that
        a reader must skip."""
        read_at = self._read_at
        if read_at is not None and read_at[1] == offset and read_at[0] in self._segments:
            return self._damaged(self._segments.index(read_at[0]), offset, end_offset, reason, read_at[2])
        for index in range(self._slot(offset), len(self._segments)):
            segment = self._segments[index]
            try:
                position = segment.position_of(offset)
            except CorruptError as error:
                position = _within(segment, error)
            if position is not None or index + 1 == len(self._segments):
                return self._damaged(index, offset, end_offset, reason, position)
        raise AssertionError("there is at least one segment")

    def _damaged(self, index: int, offset: int, end_offset: int, reason: str, position: int | None) -> CorruptLogError:
        """Return the error for damage at ``position`` of segment ``index``, met by a read of ``offset``. It ends at the
        offset from which reading can go on."""
        segment = self._segments[index]
        at = segment.size if position is None else position
        end = self._resume(index, at, offset)
        ends = end is None and index + 1 == len(self._segments) and is_cut_off(segment, at)
        if end is None:
            end = self._following(index, end_offset)
        end = max(end, offset + 1)
        return CorruptLogError(
            reason, start=offset, end=end, file=segment.path, position=segment.file_position(at), ends=ends
        )

    def find_timestamp(
        self,
        timestamp: int,
        start_offset: int,
        end_offset: int,
        chain: ContiguityCheck | None = None,
        size_max: int = MAX_BATCH_BYTES,
    ) -> tuple[int, int] | None:
        """Search all segments as :meth:`SegmentReader.find_timestamp` does. ``chain`` is as for :meth:`read`. Raises
        :class:`CorruptLogError` for damage."""
        try:
            return self._find_timestamp(timestamp, start_offset, end_offset, chain, size_max)
        except CorruptLogError:
            raise
        except CorruptError as error:
            index = next((slot for slot, segment in enumerate(self._segments) if segment.holds(error)), None)
            if index is None:
                raise
            segment = self._segments[index]
            position = _within(segment, error) or 0
            raise self._damaged(index, segment.offset_at(position), end_offset, error.reason, position) from None

    def _find_timestamp(
        self, timestamp: int, start_offset: int, end_offset: int, chain: ContiguityCheck | None, size_max: int
    ) -> tuple[int, int] | None:
        first = self._first_reaching(timestamp, self._slot(start_offset), end_offset)
        for index in range(first, len(self._segments)):
            if self._bases[index] >= end_offset:
                return None
            segment = self._use(self._segments[index])
            # The index of the last segment may be incomplete, so search that segment in any case.
            if index > first and segment is not self.last and segment.largest_timestamp() < timestamp:
                continue
            if chain is not None:
                found = chain.seek(segment, timestamp, start_offset, end_offset)
                if found is not None:
                    return found
            check = None if chain is None else partial(chain.check_one, segment)
            found = segment.find_timestamp(timestamp, start_offset, end_offset, check, size_max)
            if chain is not None and segment.size:
                # Check every batch that the search passed: a damaged one might hold the record.
                behind = min(end_offset, self._following(index, end_offset))
                searched = max(segment.search_start(timestamp, start_offset), segment.base_offset)
                chain.check_range(segment, searched, behind if found is None else found[0] + 1)
            if found is not None:
                return found
        return None

    def _first_reaching(self, timestamp: int, slot: int, end_offset: int) -> int:
        """Return the first slot from ``slot`` on whose segment may hold a record not older than ``timestamp``, of the
        segments that begin below ``end_offset``."""
        latest = self._latest
        if self._latest_from != slot:
            self._latest_from = slot
            latest.clear()
        last = len(self._segments) - 1
        while not latest or latest[-1] < timestamp:
            index = slot + len(latest)
            if index >= last or self._bases[index] >= end_offset:
                return index
            largest = self._use(self._segments[index]).largest_timestamp()
            latest.append(max(largest, latest[-1]) if latest else largest)
        return slot + bisect_left(latest, timestamp)

    # -- inside --

    def _slot(self, offset: int) -> int:
        return max(bisect_right(self._bases, offset) - 1, 0)

    def _following(self, index: int, at_end: int) -> int:
        """Return the base offset of the segment behind segment ``index``, or ``at_end`` if it is the last."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else at_end

    def _following_or_none(self, index: int) -> int | None:
        return self._bases[index + 1] if index + 1 < len(self._bases) else None

    def _use(self, segment: AnySegment) -> AnySegment:
        """Note the use of ``segment``, so that the cache can close the files of the least recently used one."""
        if segment is self.last:
            return segment
        self._cache.use(segment)
        return segment


def _within(segment: SegmentReader, error: CorruptError) -> int | None:
    """Return the position within ``segment`` of an error that names a byte of its file, or None."""
    return None if error.position is None else error.position - segment.file_position(0)
