"""The segments of an open log: the one being written, those that a sync must cover, and removal at both ends."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pyreplog.errors import StorageError
from pyreplog.log.layout import INT64_MAX, SEGMENT_SUFFIXES, join, segment_name
from pyreplog.log.scan import scan_segment
from pyreplog.log.segment_writer import SegmentWriter
from pyreplog.log.segments import Segments
from pyreplog.ports import NO_DESCRIPTORS_ERRNOS


class LogSegments(Segments[SegmentWriter]):
    """At least one segment, by rising base offset; the last is being written. Belongs to the log's owner."""

    __slots__ = ()

    def append(self, segment: SegmentWriter) -> None:
        """Make ``segment`` the one being written."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.last = segment

    # -- durability --

    @property
    def closed_unsynced(self) -> bool:
        """Whether :meth:`unsynced` has any."""
        return len(self._segments) > 1 and not self._segments[-2].synced

    def unsynced(self) -> list[SegmentWriter]:
        """Return the closed segments whose files are not known to be on stable storage."""
        # These are the newest ones, because everything older was synced before.
        found: list[SegmentWriter] = []
        for segment in reversed(self._segments[:-1]):
            if segment.synced:
                break
            found.append(segment)
        found.reverse()
        return found

    def note_synced(self, upto: int) -> None:
        """Note that everything below offset ``upto`` is on stable storage."""
        for segment in self.unsynced():
            if segment.next_offset <= upto:
                segment.synced = True

    # -- cutting --

    def end_below(self, offset: int) -> int:
        """Return where the log ends after :meth:`truncate` at ``offset``. REQUIRES ``offset`` >= the first base."""
        segment = self._segments[self._slot(offset)]
        position = segment.position_of(offset)
        if position is None:
            return segment.end_offset()
        if position == 0:
            return segment.base_offset
        offsets = segment.indexes.offsets
        start = 0
        for slot in range(offsets.count - 1, -1, -1):
            entry = offsets.entry(slot)[1]
            if entry < position:
                start = entry
                break
        return scan_segment(segment.file, position, segment.base_offset, position=start, check_crc=False).next_offset

    def truncate(self, offset: int, wall_ms: int) -> SegmentWriter:
        """Cut every batch whose last offset is at or above ``offset``; return the segment being written then.

        Later segments are removed, newest first, and durably.
        """
        keep = self._slot(offset) + 1
        self._place = self._read_at = None
        self._remove_from(keep)
        segment = self._segments[-1]
        self._cache.forget(segment)
        segment.truncate(offset, wall_ms)
        segment.cut_gaps(segment.next_offset)
        segment.synced = False
        self.last = segment
        return segment

    def base_of(self, slot: int) -> int:
        """Return the base offset of the segment in ``slot``, counted from the oldest."""
        return self._bases[slot]

    def replace(self, sources: Sequence[SegmentWriter], segment: SegmentWriter) -> None:
        """Put ``segment`` in the place of ``sources``, which follow one another and are not the last."""
        start = self._bases.index(sources[0].base_offset)
        for one in sources:
            self._cache.forget(one)
        self._latest.clear()
        self._place = self._read_at = None
        self._segments[start : start + len(sources)] = [segment]
        self._bases[start : start + len(sources)] = [segment.base_offset]

    def remove_first(self, count: int) -> list[SegmentWriter]:
        """Take the ``count`` oldest out of the list and return them. REQUIRES that one is left."""
        gone = self._segments[:count]
        self._latest.clear()
        for segment in gone:
            self._cache.forget(segment)
        del self._segments[:count]
        del self._bases[:count]
        return gone

    def drop(self, segment: SegmentWriter) -> None:
        """Remove an empty segment. REQUIRES that it is neither the oldest nor the one being written.

        The removal is not durable; an empty segment may come back. If :class:`StorageError` is raised
        the segment stays.
        """
        self._cache.forget(segment)
        segment.forget()
        try:
            _remove_files(segment)
        except StorageError:
            if segment.disk.stat(segment.path) is not None:
                raise
        slot = self._bases.index(segment.base_offset)
        self._latest.clear()
        del self._segments[slot]
        del self._bases[slot]

    def remove_all(self) -> None:
        """Remove every segment, newest first. REQUIRES that one is appended before anything else."""
        self._remove_from(0)

    def _remove_from(self, slot: int) -> None:
        gone = self._segments[slot:]
        self._latest.clear()
        for segment in reversed(gone):
            self._cache.forget(segment)
            segment.release()
            _remove_files(segment)
        if gone:
            disk = gone[0].disk
            try:
                # Otherwise a removed segment could come back after power loss, behind later
                # batches.
                disk.sync_directory(gone[0].directory)
            except StorageError as error:
                # After a failed sync a second one would be believed: leave files that the next
                # opening finds and removes. A sync without a descriptor never started, so the
                # next one makes the removals durable; empty files would look like lost records.
                for segment in gone if error.errno not in NO_DESCRIPTORS_ERRNOS else ():
                    with suppress(StorageError):
                        disk.create(segment.path).close()
                raise
            del self._segments[slot:]
            del self._bases[slot:]


def settle_gaps(segments: Sequence[SegmentWriter], synced_end: int) -> None:
    """After a crash, forget the gaps behind the log's end, because other batches may be there, and write those of
    the records from ``synced_end`` on anew: they may be only in the page cache."""
    for segment in segments:
        if segment is segments[-1]:
            segment.cut_gaps(segment.next_offset, rewrite=True)
        elif segment.gaps.behind(segment.end_offset()) > synced_end:
            segment.cut_gaps(INT64_MAX, rewrite=True)


def _remove_files(segment: SegmentWriter) -> None:
    """Remove all files of ``segment`` that exist."""
    for suffix in SEGMENT_SUFFIXES:
        path = join(segment.directory, segment_name(segment.base_offset, suffix))
        if segment.disk.stat(path) is not None:
            segment.disk.remove(path)
