"""A read-only view of one copy of a partition, without locks, with or without a live writer beside it.

A reader sees records below the high watermark: that of the mark if there is one, else that of the root's checkpoint,
else the end of the valid log. Bytes are checked before they are returned.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from pyreplog._core import LOG_OVERHEAD, OffsetIndex, SegmentScanner
from pyreplog.config import MAX_BATCH_BYTES, Durability
from pyreplog.errors import ClosedError, CorruptError, CorruptLogError, OffsetOutOfRangeError, StorageError
from pyreplog.log.contiguity import ContiguityCheck
from pyreplog.log.epochs import EpochCache, read_epochs
from pyreplog.log.folder_view import FolderView, LogFilePart, LogFileView
from pyreplog.log.gaps import read_gaps
from pyreplog.log.identity import read_topic_id
from pyreplog.log.layout import (
    HIGH_WATERMARK_NAME,
    INT64_MAX,
    LOG_START_NAME,
    LOG_SUFFIX,
    RECOVERY_POINT_NAME,
    join,
    parent_of,
)
from pyreplog.log.mark import MarkReader, MarkState, read_mark
from pyreplog.log.producer_state import newest_table, producer_batches
from pyreplog.log.producers import ProducerTable
from pyreplog.log.resumption import resume
from pyreplog.log.root_view import RootView
from pyreplog.log.scan import scan_segment, sound_batches
from pyreplog.log.segment_reader import SegmentNames, SegmentReader
from pyreplog.log.segments import Segments
from pyreplog.ports import Disk
from pyreplog.record import base_offset_of, size_of
from pyreplog.values import TopicPartition

_SAME_TRIES: Final = 10

T = TypeVar("T")


def _scan_end(segment: SegmentReader) -> SegmentScanner:
    """Scan the last batches of ``segment`` from its last index entry on.

    If the batch at that entry is damaged, the scan begins at an earlier entry, and at last at the beginning.
    """
    offsets = segment.indexes.offsets
    back = 1
    while True:
        position = offsets.entry(offsets.count - back)[1] if back <= offsets.count else 0
        scan = scan_segment(segment.file, segment.size, segment.base_offset, position=position)
        if scan.batch_count or position == 0:
            return scan
        back *= 2


def _first_above(offsets: OffsetIndex, offset: int) -> int:
    """Return the first slot of the index whose entry has an offset above ``offset``."""
    return bisect_right(range(offsets.count), offset, key=lambda slot: offsets.entry(slot)[0])


_REPLACED_TRIES: Final = 20
"""A read is repeated so often at most because compaction replaced segments."""


class _ConcurrentDeletes:
    """Counts failures to open a segment that the writer removed or replaced after the reader listed the folder.

    As long as each failure is about another file, the writer makes progress and the reader tries again. The log
    counts as unreadable only after the same file failed several times in a row.
    """

    def __init__(self) -> None:
        self._path: object = None
        self._left = 0

    def explain(self, error: StorageError) -> bool:
        """Return whether ``error`` may have that cause, so that the reader should try again."""
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            return False
        if error.filename != self._path:
            self._path, self._left = error.filename, _SAME_TRIES
        self._left -= 1
        return self._left >= 0


class ReplicaView:
    """A view of the copy of a partition in ``directory``. One thread at a time may use it.

    ``high_watermark``: the offset below which this copy knows its records to be committed. ``epochs``: its leader
    epoch history.
    """

    def __init__(
        self, disk: Disk, directory: str, topic_partition: TopicPartition, root: RootView | None = None
    ) -> None:
        """``root``: a view of the copy's root. Records that were written after it was made may be missed."""
        self.disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = ""
        self.start_offset = 0
        self.high_watermark = 0
        self._unreadable_size: int | None = None
        self._unreadable_start = 0
        self.epochs = EpochCache()
        self._folder = FolderView(disk, directory)
        self._mark: MarkState | None = None
        self._marks = MarkReader(disk, directory)
        self._closed = False
        #: The high watermark in the root's checkpoint, if it is used.
        self._promised_end = INT64_MAX
        self._contiguity: ContiguityCheck | None = None
        self._producers: ProducerTable | None = None
        self._root = root
        self._load()

    # -- state --

    @property
    def unreadable_size(self) -> int:
        """Number of bytes behind the last whole batch, if that batch ends below the high watermark or no watermark
        is known; else 0."""
        if self._unreadable_size is None:
            self._retry(lambda: self._valid_end(self.high_watermark))
        return self._unreadable_size or 0

    @property
    def unreadable_start(self) -> int:
        """The offset at which the bytes of :attr:`unreadable_size` begin, if there are any."""
        return self._unreadable_start if self.unreadable_size else self.high_watermark

    @property
    def durability(self) -> Durability | None:
        """The durability in the mark, ``"sync"`` or ``"os"``; None without a mark."""
        return None if self._mark is None else self._mark.durability

    @property
    def flushed_offset(self) -> int:
        """The synced end in the mark; 0 without a mark."""
        return 0 if self._mark is None else self._mark.synced_end

    def segments(self) -> list[tuple[int, int]]:
        """Return (base offset, size in bytes) of each segment, in order."""
        return [(segment.base_offset, segment.size) for segment in self._folder.segments or ()]

    @property
    def mark(self) -> MarkState | None:
        """The mark at the last :meth:`refresh`; None if there is none."""
        return self._mark

    def log_files_below(self, end_offset: int) -> list[LogFilePart]:
        """Return the parts of the log files that hold the records from the start to below ``end_offset``, in order.

        REQUIRES a :meth:`refresh` since the writer's last truncation. Raises :class:`CorruptLogError` if a part of
        the records is missing.
        """
        if self._lost_end > self.start_offset:
            raise CorruptLogError(
                "segments are missing", start=self.start_offset, end=self._lost_end, file=self.directory
            )
        bases = [base for base in sorted(self._folder.files) if base <= end_offset]
        while len(bases) > 1 and bases[1] <= self.start_offset:
            del bases[0]
        if not bases and end_offset > self.start_offset:
            raise CorruptLogError(
                "the log's files are gone", start=self.start_offset, end=end_offset, file=self.directory, ends=True
            )
        parts = []
        for base, following in zip(bases, [*bases[1:], None], strict=False):
            file = self._folder.files[base]
            size = (
                file.found.size if following is not None else self._retry(partial(self._size_below, file, end_offset))
            )
            suffix = file.path.rpartition(LOG_SUFFIX)[2]
            parts.append(LogFilePart(file.path, base, size, suffix, following is None))
        return parts

    def _size_below(self, file: LogFileView, end_offset: int) -> int:
        """Return the position in ``file`` at which the batches below ``end_offset`` end. The writer may be writing
        the bytes behind it."""
        for segment in file.segments:
            position = segment.position_of(end_offset - 1) if end_offset > segment.base_offset else 0
            if position is None:
                continue
            head = bytes(segment.file.read_at(position, LOG_OVERHEAD))
            if end_offset == segment.base_offset or base_offset_of(head) >= end_offset:
                return segment.file_position(position)
            return segment.file_position(position + size_of(head))
        last = file.segments[-1]
        if self._mark is not None and not self._mark.may_have_gaps:
            start = max(last.end_offset(), self.start_offset)
            reason = "the log ends below the end recorded in its mark"
            raise CorruptLogError(reason, start=start, end=end_offset, file=file.path, position=last.size, ends=True)
        return last.file_position(_scan_end(last).position)

    def refresh(self) -> bool:
        """Read the mark again and, if it changed, the segments and the epochs. Return whether files were opened by
        their names after the mark was read."""
        if self._closed:
            raise ClosedError(f"the reader of {self.topic_partition} is closed")
        mark = self._marks.read()
        if mark is not None and mark == self._mark:
            return False
        openings = self.disk.openings
        self._load(mark)
        return self.disk.openings != openings

    def dropped_tombstone(self) -> int:
        """Return the highest offset of a tombstone that compaction dropped, from the files of gaps; -1 if there is
        none."""
        if self._mark is None or not self._mark.compacted:
            return -1
        found = [read_gaps(self.disk, self.directory, base) for base, _ in self.segments()]
        return max((gaps.dropped_tombstone for gaps in found if gaps is not None), default=-1)

    def missing(self, start: int, end: int) -> int:
        """Return how many offsets of the half-open range are in gaps that compaction left and recorded."""
        if self._contiguity is None or not self._contiguity.compacted:
            return 0
        return self._retry(lambda: sum(one.gaps.within(start, end) for one in self._open_segments or ()))

    def topic_id_now(self) -> str:
        """Return the topic id of the log that the folder holds now, which may be another log than this view saw.
        "" if no file names the id."""
        return self._id_beside(read_mark(self.disk, self.directory))

    def _id_beside(self, mark: MarkState | None) -> str:
        if mark is not None:
            return mark.topic_id
        try:
            return read_topic_id(self.disk, self.directory) or ""
        except CorruptError:
            return ""

    def release(self) -> None:
        """Close the files; they are opened again when they are needed."""
        self._folder.release()

    def close(self) -> None:
        """Release the files. A second call is harmless."""
        self._closed = True
        self._folder.release()

    def _load(self, mark: MarkState | None = None) -> None:
        """Read the copy. ``mark``: the mark, if the caller has just read it."""
        removals = _ConcurrentDeletes()
        while True:
            try:
                return self._load_once(mark or read_mark(self.disk, self.directory))
            except StorageError as error:
                if not removals.explain(error) or self.disk.stat(self.directory) is None:
                    raise
            mark = None

    def _load_once(self, mark: MarkState | None) -> None:
        disk, directory = self.disk, self.directory
        before = self._mark
        root, self._root = self._root or RootView(disk, parent_of(directory)), None
        if before is not None and mark is not None and mark.topic_id != before.topic_id:
            # The topic was deleted and created again: nothing that was read before is valid.
            self._forget()
            before = None
        while True:
            # The mark must be read before the folder: the files hold all that the mark promised
            # when it was read, and they only grow. After a newer mark the folder is read again.
            self._folder.look(
                0 if mark is not None and mark.compacted else self._settled_end(mark), foreign=mark is None
            )
            segments = self._folder.segments
            if segments is not None:
                first = segments.first.base_offset
            else:
                first = 0 if mark is None else mark.high_watermark
            if mark is None or mark.start_offset >= first:
                break
            # The writer may have raised the start, and then removed a segment, since the mark was
            # read.
            looked_at, mark = mark, read_mark(disk, directory)
            if mark is not None and mark.sequence == looked_at.sequence:
                break
        #: One past the last offset that is missing at the start, because another program removed
        #: segments; 0 if none are missing.
        self._lost_end = first if mark is not None and mark.start_offset < first else 0
        self.topic_id = self._id_beside(mark)
        if mark is None or before is None or mark.epochs_crc != before.epochs_crc:
            self.epochs = self._find_epochs(mark)
            self._producers = None  # the log may have been truncated
        self._contiguity = (
            ContiguityCheck(self.epochs, compacted=mark.compacted)
            if mark is not None and not mark.may_have_gaps
            else None
        )
        if mark is not None:
            self._take_offsets(mark, before, root)
        else:
            self._guess_offsets(root, first)
        self.start_offset = min(self.start_offset, max(self.high_watermark, 0 if self._lost_end else first))
        self.high_watermark = max(self.high_watermark, self.start_offset)
        # Set only now, so that a load which failed halfway does not count as complete.
        self._mark = mark

    def _take_offsets(self, mark: MarkState, before: MarkState | None, root: RootView) -> None:
        """Set the start offset and the high watermark from ``mark``. ``before``: the mark of the last load."""
        self.start_offset = mark.start_offset
        self.high_watermark = mark.high_watermark
        if before is not None or mark.high_watermark <= mark.synced_end:
            return
        # This holds for `sync` logs too: the leader may send a follower a high watermark above the
        # follower's own flushed end.
        if root.lost_power:
            self.high_watermark = mark.synced_end
        elif root.lost_power is None:
            self.high_watermark = max(self._valid_end(mark.high_watermark), mark.synced_end)

    def _guess_offsets(self, root: RootView, first: int) -> None:
        """Set the start offset and the high watermark without a mark, from the root's checkpoints and the segments,
        which begin at ``first``."""
        self.start_offset = max(root.offset(LOG_START_NAME, self.topic_partition) or 0, first)
        promised_end = root.offset(HIGH_WATERMARK_NAME, self.topic_partition)
        self._promised_end = INT64_MAX if promised_end is None else promised_end
        self.high_watermark = self._valid_end(INT64_MAX if promised_end is None else promised_end)
        if self._unreadable_size and self._folder.segments is not None:
            self._look_behind(
                self._folder.segments.last
            )  # so that a reader meets the damage instead of ending before it
        if promised_end is not None:
            # Flushed records survive a kill and power loss. If they are gone, the reader must
            # notice that.
            flushed = min(promised_end, root.offset(RECOVERY_POINT_NAME, self.topic_partition) or 0)
            self.high_watermark = max(self.high_watermark, flushed)
        if self.start_offset > self.high_watermark and promised_end is None:
            self.start_offset = first  # a checkpoint above the end of the data is ignored

    def _forget(self) -> None:
        """Drop all that was read, because it belongs to another log."""
        self._folder.forget()
        self._mark = self._producers = self._unreadable_size = None

    def _settled_end(self, mark: MarkState | None) -> int:
        """Return the offset below which the log has the same records as at the last load: those that were committed
        then, unless the epoch history contradicts it."""
        before = self._mark
        if mark is None or before is None:
            return 0
        settled = min(self.high_watermark, mark.high_watermark)
        if mark.epochs_crc == before.epochs_crc:
            return settled
        # An unclean election may truncate even committed records, but none below the offset up to
        # which both histories agree.
        epochs = self._kept_epochs(mark)
        return 0 if epochs is None else min(settled, self.epochs.agrees_up_to(epochs))

    def _find_epochs(self, mark: MarkState | None) -> EpochCache:
        """Return the epoch history in the file. If it is missing or does not fit the mark, return that of the
        batches."""
        kept = self._kept_epochs(mark)
        if kept is not None:
            return kept
        epochs = EpochCache()
        for segment in self._folder.segments or ():
            for epoch, offset in scan_segment(segment.file, segment.size, segment.base_offset, check_crc=False).epochs:
                if epoch > epochs.latest:
                    epochs.assign(epoch, offset)
        return epochs

    def _kept_epochs(self, mark: MarkState | None) -> EpochCache | None:
        try:
            kept = read_epochs(self.disk, self.directory)
        except CorruptError:
            return None
        return kept if kept is not None and (mark is None or kept.checksum() == mark.epochs_crc) else None

    def _valid_end(self, limit: int) -> int:
        """Return the end offset of the good batches behind the last index entry of the last segment, at most
        ``limit``."""
        if self._folder.segments is None:
            return 0
        segments = list(self._folder.segments)
        while segments:
            segment = segments.pop()
            if segment.base_offset >= limit and segments:
                continue
            scan = _scan_end(segment)
            end = scan.next_offset if scan.batch_count else segment.base_offset
            self._unreadable_size = max(segment.size - scan.position, 0) if end < limit else 0
            self._unreadable_start = end
            if scan.position < segment.size:
                reason = segment.describe_damage(scan.position, "")
                if reason:
                    raise CorruptError(
                        reason, file=segment.path, position=segment.file_position(scan.position), offset=end
                    )
            return min(end, limit)
        return 0

    def see_behind(self) -> None:
        """Raise the high watermark of a folder without a mark to the last whole batch that the checkpoint allows, if
        there are whole batches behind damage."""
        self._retry(self._see_behind)

    def _see_behind(self) -> None:
        last = None if self._folder.segments is None else self._folder.segments.last
        if self._mark is not None or last is None or not self.unreadable_size:
            return
        self._look_behind(last)

    def _look_behind(self, last: SegmentReader) -> None:
        scan = _scan_end(last)
        while (found := resume(last, scan.position, scan.next_offset)) is not None:
            scan = scan_segment(last.file, last.size, last.base_offset, position=found[1])
            self.high_watermark = max(self.high_watermark, min(scan.next_offset, self._promised_end))

    # -- reading --

    def valid_end(self) -> int:
        """Return the end offset of this copy's good batches, also above the high watermark."""
        return self._retry(lambda: max(self._valid_end(INT64_MAX), self.start_offset))

    def log_end(self) -> int:
        """Return :meth:`valid_end` without changing :attr:`unreadable_size`, because torn bytes above the high
        watermark are no damage."""
        kept = self._unreadable_size, self._unreadable_start
        try:
            return self.valid_end()
        finally:
            self._unreadable_size, self._unreadable_start = kept

    def last_stable_offset(self, end_offset: int) -> int:
        """Return the first offset of the oldest transaction that is open at ``end_offset``, the high watermark, or
        ``end_offset`` if none is open.

        The first call reads the batches behind the newest producer snapshot; later calls read the new batches.
        """
        return self._retry(lambda: self._last_stable_offset(end_offset))

    def _last_stable_offset(self, end_offset: int) -> int:
        segments = self._open_segments
        if segments is None:
            return end_offset
        table = self._producers
        if table is None or table.end_offset > end_offset:
            table = newest_table(self.disk, self.directory, list(segments), end_offset)
        stable = end_offset
        if table.end_offset < end_offset:
            for batch in producer_batches(segments, table.end_offset, end_offset, straddling=True):
                if batch.last_offset >= end_offset:
                    stable = batch.base_offset  # its transaction counts as open, because no marker was read
                    break
                table.note(batch, batch.base_offset)
            table.end_offset = stable
        self._producers = table
        return max(min([*table.open_transactions.values(), stable]), self.start_offset)

    def read(self, offset: int, size_max: int, end_offset: int) -> memoryview:
        """Return whole, checked batches from the one that holds ``offset`` on, below ``end_offset``: at least one if
        there is one, none if ``size_max`` is 0."""
        if offset >= end_offset or size_max <= 0:
            return memoryview(b"")
        if offset < self._lost_end:
            raise self._missing(offset, min(self._lost_end, end_offset), "segments are missing")
        return self._retry(lambda: self._read_sound(offset, size_max, end_offset))

    def _read_sound(self, offset: int, size_max: int, end_offset: int) -> memoryview:
        data = self._read(offset, size_max, end_offset)
        if data is None:
            self._check_missing(offset, end_offset)
            return memoryview(b"")
        return sound_batches(data, partial(self._damage, offset, end_offset))

    def damage(self, offset: int, end_offset: int, reason: str) -> CorruptLogError:
        """Return the error for a damaged batch that was read for ``offset`` below ``end_offset``, with its file and
        position."""
        return self._retry(lambda: self._damage(offset, end_offset, reason))

    def _damage(self, offset: int, end_offset: int, reason: str) -> CorruptLogError:
        segments = self._open_segments
        return (
            self._missing(offset, end_offset, reason)
            if segments is None
            else segments.damage(offset, end_offset, reason)
        )

    def _missing(self, start: int, end: int, reason: str, *, ends: bool = False) -> CorruptLogError:
        """Return the error for records below the first segment or of a folder without segments. It names the file
        that would hold them."""
        path = join(self.directory, SegmentNames(start).log)
        return CorruptLogError(reason, start=start, end=end, file=path, position=0, ends=ends)

    def _check_missing(self, offset: int, end_offset: int) -> None:
        """Raise :class:`CorruptLogError` if the empty range from ``offset`` to below ``end_offset`` lies at the end
        of the log. Elsewhere it may be a gap that compaction left."""
        segments = self._open_segments
        last = None if segments is None else segments.last
        if last is None or (last.base_offset < end_offset and last.position_of(offset) is None):
            reason = "the log ends below the end recorded in its mark: its last records are missing"
            if last is None:
                raise self._missing(offset, end_offset, reason, ends=True)
            raise CorruptLogError(reason, start=offset, end=end_offset, file=last.path, position=last.size, ends=True)

    def _read(self, offset: int, size_max: int, end_offset: int) -> memoryview | None:
        if offset < self.start_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.high_watermark, log=str(self.topic_partition))
        return (
            None
            if self._open_segments is None
            else self._open_segments.read(offset, size_max, end_offset, self._contiguity)
        )

    def find_timestamp(
        self, timestamp: int, end_offset: int, size_max: int = MAX_BATCH_BYTES
    ) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record from the start to below ``end_offset`` whose timestamp is
        at least ``timestamp`` (ms), or None."""
        return self._retry(lambda: self._find_timestamp(timestamp, end_offset, size_max))

    def _find_timestamp(self, timestamp: int, end_offset: int, size_max: int) -> tuple[int, int] | None:
        segments = self._open_segments
        return (
            None
            if segments is None
            else segments.find_timestamp(timestamp, self.start_offset, end_offset, self._contiguity, size_max)
        )

    def split_points(self, start: int, end: int, size_target: int) -> list[int]:
        """Return rising offsets that divide the range into pieces of about ``size_target`` bytes, at index entries:
        ``start`` first, ``end`` last."""
        return self._retry(lambda: self._split_points(start, end, size_target))

    def _split_points(self, start: int, end: int, size_target: int) -> list[int]:
        points = [start]
        gathered = 0
        segments = list(self._open_segments or ())
        for number, segment in enumerate(segments):
            if segment.base_offset >= end:
                break
            if number + 1 < len(segments) and segments[number + 1].base_offset <= start:
                continue
            offsets = segment.indexes.offsets
            first = _first_above(offsets, start)
            last_position = offsets.entry(first - 1)[1] if first else 0
            for slot in range(first, offsets.count):
                offset, position = offsets.entry(slot)
                if offset + 1 >= end:
                    break
                gathered += position - last_position
                last_position = position
                if gathered >= size_target:
                    points.append(offset + 1)
                    gathered = 0
            gathered += segment.size - last_position
        if end > start:
            points.append(end)
        return points

    def _retry(self, look: Callable[[], T]) -> T:
        """Return ``look()``. If the writer removed or replaced a segment since the folder was listed, load again and
        repeat it."""
        removals = _ConcurrentDeletes()
        replaced_left = _REPLACED_TRIES
        while True:
            try:
                return look()
            except StorageError as error:
                if not removals.explain(error) or self._closed:
                    raise
            except CorruptError:
                # Compaction put another file in the place of one that this view opened by its name.
                replaced_left -= 1
                if self._closed or not replaced_left or not self.was_compacted():
                    raise
            self._folder.distrust()
            self._load()

    def was_compacted(self) -> bool:
        """Return whether compaction replaced a segment since the last load."""
        mark = read_mark(self.disk, self.directory)
        is_first = mark is not None and mark.compacted and self._mark is not None and not self._mark.compacted
        return is_first or self._folder.is_replaced()

    @property
    def _open_segments(self) -> Segments[SegmentReader] | None:
        if self._closed:
            raise ClosedError(f"the reader of {self.topic_partition} is closed")
        return self._folder.segments
