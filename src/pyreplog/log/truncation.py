"""Truncating a log at its end: a follower drops the records that its leader does not have."""

from __future__ import annotations

from functools import partial

from pyreplog.errors import CorruptError, InternalError, StorageError
from pyreplog.log.append import LogAppender
from pyreplog.log.contiguity import ContiguityCheck
from pyreplog.log.segment_writer import INTERRUPTING, SegmentWriter


class LogTruncator(LogAppender):
    """A log that can be appended to and truncated. REQUIRES the caller's lock."""

    __slots__ = ()

    def truncate_to(self, offset: int) -> None:
        """Truncate every batch whose last offset is at or above ``offset``. The log then ends behind the last whole
        batch that is left.

        If the mark calls truncated records synced, or promised them to readers, the mark is lowered first.
        """
        self._check_writable()
        if offset < 0:
            raise InternalError(f"{self.topic_partition}: truncation to offset {offset}")
        if offset >= self.end_offset:
            self._cut_epochs()
            return
        if offset < self._segments.first.base_offset:
            self.truncate_fully(offset)
            return
        try:
            self._truncate(offset)
        except StorageError as error:
            self.poison(error)
            raise
        except (CorruptError, *INTERRUPTING) as error:
            self.fail_until_reopened(error)
            raise
        if not self._cut_epochs():
            self.write_mark()

    def truncate_fully(self, start_offset: int) -> None:
        """Drop every record, and begin again with an empty log at ``start_offset``."""
        self._check_writable()
        try:
            try:
                self._remove_all(start_offset)
            except StorageError as error:
                self.poison(error)
                raise
            self._begin_at(start_offset)
        except INTERRUPTING as error:
            self.fail_until_reopened(error)
            raise
        self._change_epochs(self._leader_epochs.write)
        self._sync_mark()

    def _cut_epochs(self) -> bool:
        """Drop the epochs that begin at or above the log's end. Return whether the mark was written with that."""
        return self._change_epochs(partial(self._leader_epochs.cut_end, self.end_offset))

    def _truncate(self, offset: int) -> None:
        self._invalidate_readers()
        self._lower_mark_first(self._segments.end_below(offset))
        self._write_to(self._segments.truncate(offset, self.clock.wall_ms()))
        # Sync before any append: otherwise a power loss could bring whole truncated batches back,
        # between the batches that were written in their place.
        self._active.file.sync()
        self.end_offset = self._active.next_offset
        self._clamp_offsets()
        self.producers.truncate(list(self._segments), self.start_offset, self.end_offset)

    def _remove_all(self, start_offset: int) -> None:
        self._invalidate_readers()
        first = self._segments.first.base_offset
        self.start_offset = first
        self.high_watermark = first
        # If the log begins again below its first segment, no mark may promise the offsets between.
        self._lower_mark_first(min(first, start_offset))
        self._segments.remove_all()
        self._pending_deletes.delete_unrenamed()
        self.producers.clear(start_offset)

    def _begin_at(self, start_offset: int) -> None:
        """Create the first segment of a log without segments."""
        try:
            interval = self.config.index_interval_bytes
            segment = SegmentWriter.create(
                self.disk, self.directory, start_offset, index_interval=interval, wall_ms=self.clock.wall_ms()
            )
            self._sync_directory()
        except StorageError as error:
            self.fail_after_refused_write(error)
            raise
        self._segments.append(segment)
        self._write_to(segment)
        self.start_offset = self.end_offset = self.flushed_offset = self.high_watermark = start_offset
        self._unsynced_since_ns = -1
        self.cleaned_end = 0
        self.epochs.clear()

    def _invalidate_readers(self) -> None:
        """Invalidate slices, the tail cache and the contiguity check before truncating."""
        self.generation += 1
        self._dropped_tombstone = None
        self._tail.clear()
        if self._contiguity is not None:
            self._contiguity = ContiguityCheck(self.epochs, compacted=self._contiguity.compacted)

    def _lower_mark_first(self, offset: int) -> None:
        """Lower the mark on the disk before truncating to ``offset``, if it promises records above."""
        if offset >= self._mark.promised_end and offset >= self.flushed_offset:
            return
        self.flushed_offset = min(self.flushed_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.start_offset = min(self.start_offset, offset)
        self._write_mark_synced()

    def _clamp_offsets(self) -> None:
        end = self.end_offset
        self.cleaned_end = min(self.cleaned_end, end)
        if end <= self.flushed_offset:
            self.flushed_offset, self._unsynced_since_ns = end, -1
        self.start_offset = min(self.start_offset, end)
        self.high_watermark = max(min(self.high_watermark, end), self.start_offset)
