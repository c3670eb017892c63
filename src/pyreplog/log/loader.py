"""Open a partition folder for writing: check the tail after a clean stop, recover the log after a crash.

Rules (docs/internals/durability.md):

* damaged bytes at or above the *durable end* are a torn tail: the bytes behind the last good batch are kept beside
  the log and truncated. So are the batches behind a gap, because a later record must not be visible if an earlier
  one was lost;
* damaged or missing bytes below the durable end are rot: nothing is truncated, and :class:`CorruptLogError` names
  the range;
* the durable end is the mark's synced end. After a process kill (same boot, no failed sync) it is also the mark's
  high watermark, because the page cache survived. Without a mark it is the recovery point in the root's checkpoint,
  and all segments are scanned;
* a segment of an old broker whose offsets do not fit their index entries is split, and none of it is truncated;
* recovery is idempotent: if it is interrupted anywhere, the next run ends with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyreplog._core import SegmentScanner
from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, CorruptLogError, PyreplogError, StorageError
from pyreplog.log.epochs import EpochCache, read_epochs, write_epochs
from pyreplog.log.folder import apply_plan, plan_folder
from pyreplog.log.gaps import Gaps, unrecorded_gap
from pyreplog.log.layout import (
    INT32_MAX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    join,
    segment_name,
)
from pyreplog.log.log_segments import LogSegments, settle_gaps
from pyreplog.log.mark import MarkState, mark_incomplete, sync_found_mark
from pyreplog.log.names import recreate_empty_segments
from pyreplog.log.overflow import OFFSET_TOO_FAR, OFFSETS_FALL, SplitSegment, find_parts, split_segment
from pyreplog.log.recovery_listener import RecoveryListener
from pyreplog.log.recovery_report import RecoveryContext, RecoveryReport
from pyreplog.log.resumption import begins_at, is_cut_off, least_end, position_of, resume_offset
from pyreplog.log.scan import feed_segment, scan_segment, why_ended
from pyreplog.log.segment_writer import SegmentWriter
from pyreplog.log.torn_tail import TornTail
from pyreplog.ports import Clock, Disk
from pyreplog.values import NO_EPOCH, TopicPartition


class Loaded(NamedTuple):
    """The parts of an opened log."""

    segments: list[SegmentWriter]
    epochs: EpochCache
    start_offset: int
    end_offset: int
    synced_end: int
    report: RecoveryReport
    changed: bool
    """Whether the mark and the epoch file must be written again."""


class Loader:
    """The open of one partition folder. Call :meth:`load` once."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        clock: Clock,
        state: MarkState | None,
        origin: RecoveryContext,
        listener: RecoveryListener | None,
    ) -> None:
        """``state``: the state in the mark, or None if there is no valid mark."""
        self.disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.clock = clock
        self.state = state
        self.origin = origin
        self.listener = listener
        self._notes: list[str] = []
        self._split_notes: list[str] = []  # about split segments
        self._torn = TornTail(disk, directory)
        self._harmed = False
        self._cut_at_gap: set[int] = set()  # base offsets of segments with a gap that is not recorded
        self._scanned_size = 0

    def load(self) -> Loaded:
        """Return the parts of the log.

        Raises :class:`CorruptLogError` for rot. Then the folder is unchanged, except that the mark and the epoch
        history are durable and overflowing segments are split.
        """
        while True:
            try:
                return self._load()
            except _Overflow as overflow:
                # Nothing was truncated yet, because overflows are found before any truncation.
                split_segment(self.disk, self.directory, overflow.segment.base_offset, overflow.parts)
                self._split_notes.append(_split_note(overflow))
                self._notes = list(self._split_notes)

    def _load(self) -> Loaded:
        plan = plan_folder(self.disk, self.directory, self.disk.list(self.directory))
        apply_plan(self.disk, self.directory, plan)
        if not self.origin.clean:
            recreate_empty_segments(self.disk, self.directory, plan.bases)
        segments = [self._segment(base) for base in self._drop_below_start(plan.bases)]
        self._check_start(segments)
        if self.origin.clean and self.state is not None and segments:
            loaded = self._load_clean(segments, self.state)
            if loaded is not None:
                return loaded
            self._notes.append(
                "the clean shutdown marker was ignored, because the log does not end at its mark's synced end"
            )
        try:
            return self._load_unclean(segments)
        except CorruptLogError as rot:
            try:
                self._persist_evidence()
            except StorageError as failure:
                raise rot from failure
            raise

    def _persist_evidence(self) -> None:
        """Make the mark and the epoch history durable, which prove the rot.

        Otherwise power loss may bring back an older mark with a lower durable end, and the next recovery would take
        the rot for a torn tail.
        """
        if self.state is not None:
            sync_found_mark(self.disk, self.directory)
            epochs = self._trusted_epochs()
            if epochs is not None:
                write_epochs(self.disk, self.directory, epochs, durable=True)

    def _drop_below_start(self, bases: Sequence[int]) -> Sequence[int]:
        """Finish the removal of segments that lie wholly below the log's start, and return the other ``bases``.

        Only the mark is trusted here, because a checkpoint has no checksum. The mark is made durable before the
        files are removed, or power loss may bring back an older mark that needs them. So is the name of the segment
        after them, which the last process may have created just before it died; otherwise power loss may leave a log
        that ends below its durable end.
        """
        start = -1 if self.state is None else self.state.start_offset
        count = 0
        while count + 1 < len(bases) and bases[count + 1] <= start:
            if not count:
                sync_found_mark(self.disk, self.directory)
                self.disk.sync_directory(self.directory)
            for suffix in SEGMENT_SUFFIXES:
                path = join(self.directory, segment_name(bases[count], suffix))
                if self.disk.stat(path) is not None:
                    self.disk.remove(path)
            count += 1
        if count:
            self.disk.sync_directory(self.directory)
            self._notes.append(f"{count} segments below the log's start were removed")
        return bases[count:]

    # -- clean --

    def _load_clean(self, segments: list[SegmentWriter], state: MarkState) -> Loaded | None:
        """Load the log with a scan of its last batches only. Return None if they are not as a clean stop leaves
        them."""
        active = segments[-1]
        scan = active.open_tail(self.clock.wall_ms(), check_crc=True)
        self._scanned_size += scan.position
        if scan.position != active.size or active.next_offset != state.synced_end:
            return None
        epochs = self._trusted_epochs()
        if epochs is None:
            return None
        for segment in segments:
            segment.synced = True
        return self._loaded(segments, epochs, synced_end=state.synced_end, clean=True)

    # -- unclean --

    @property
    def durable_end(self) -> int:
        """Damage below this offset is rot, at or above it a torn tail."""
        state = self.state
        if state is None:
            return self.origin.recovery_point
        if self.origin.same_boot and not state.poisoned:
            return max(state.synced_end, state.high_watermark)
        return state.synced_end

    def _load_unclean(self, segments: list[SegmentWriter]) -> Loaded:
        state = self.state
        scan_from = 0 if state is None or state.poisoned else state.synced_end
        epochs = self._trusted_epochs()
        history = None if epochs is None else EpochCache(epochs.entries)
        if epochs is None:
            self._notes.append("the leader epoch history was missing or damaged and was rebuilt from the batches")
        first = max((index for index, segment in enumerate(segments) if segment.base_offset <= scan_from), default=0)
        if self.listener is not None:
            size = sum(segment.size for segment in (segments if epochs is None else segments[first:]))
            if size:
                self.listener.begin(self.topic_partition, self.directory, size)
        found: list[tuple[int, int]] = []
        if epochs is None:
            for segment in segments[:first]:
                found += self._walk_epochs(segment)
            epochs = EpochCache()
        elif segments:
            epochs.truncate_from_end(segments[first].base_offset)
        found += self._scan(segments, first, epochs.latest, history)
        for epoch, offset in found:
            if epoch > epochs.latest and epoch != NO_EPOCH:
                epochs.assign(epoch, offset)
        if history is not None and not len(epochs) and not found:
            epochs = history  # all records were deleted, so no batch is left that has an epoch
        if self.state is None and segments:
            epochs = self._kept_epochs(segments, epochs) or epochs
        end = segments[-1].next_offset if segments else None
        if end is not None and end < self.durable_end:
            raise CorruptLogError(
                "the log ends below the end recorded in its mark",
                start=end,
                end=self.durable_end,
                file=segments[-1].path,
                position=segments[-1].size,
                ends=True,
            )
        if not segments:
            segments.append(self._first_segment())
        # The name of a file that was created just before a kill may not be durable yet.
        self.disk.sync_directory(self.directory)
        if self._is_dense and state is not None and state.compacted:
            settle_gaps(segments, state.synced_end)
        synced_end = min(self.durable_end if state is None else state.synced_end, segments[-1].next_offset)
        return self._loaded(segments, epochs, synced_end=synced_end, clean=False)

    def _scan(
        self, segments: list[SegmentWriter], first: int, last_epoch: int, history: EpochCache | None
    ) -> list[tuple[int, int]]:
        """Check ``segments`` from index ``first`` on, truncate the torn tail, and return the epochs found.

        Segments that lie wholly behind the truncation are removed from ``segments``. ``history``: the trusted epoch
        history, if any; it has every epoch below the durable end.
        """
        found: list[tuple[int, int]] = []
        expected = self._end_of(segments[first - 1]) if first else None
        ahead = self._scan_ahead(segments[first:])
        for index in range(first, len(segments)):
            segment = segments[index]
            if expected is not None and segment.base_offset != expected and not self._may_follow(segment, expected):
                self._record_loss()
                self._torn.remove_from(segments, index)
                break
            start = segment.base_offset if expected is None else max(expected, segment.base_offset)
            scanned = ahead[index - first] if start == segment.base_offset else None
            scan = self._scan_one(segment, start) if scanned is None else scanned
            self._scanned_size += scan.position
            self._check_overflow(segments, index, scan)
            if history is not None:
                self._check_epochs(segment, scan.epochs, history)
            end, position = self._sound_end(segment, scan, start, last_epoch, history)
            if position < segment.size:
                self._refuse_old_format(segment, position)
                self._check_last_batch_extent(segment, scan, position, end)
                if end < self.durable_end:
                    raise self._corruption(segments, index, scan, position, end)
                is_harm = scan.status or scan.gap or segment.base_offset in self._cut_at_gap
                if is_harm or position != scan.position or index + 1 < len(segments):
                    self._record_loss()
                self._torn.remove_from(segments, index + 1)
                self._torn.cut(segment, position)
                if position != scan.position:
                    scan = scan_segment(
                        segment.file, position, segment.base_offset, index_interval=self.config.index_interval_bytes
                    )
            segment.set_scanned(scan, closed=index + 1 < len(segments))
            segment.created_ms = self.clock.wall_ms()
            found += scan.epochs
            last_epoch = max(last_epoch, scan.last_epoch)
            expected = self._end_of(segment)
            if index + 1 == len(segments):
                break
        return found

    def _sound_end(
        self, segment: SegmentWriter, scan: SegmentScanner, start: int, last_epoch: int, history: EpochCache | None
    ) -> tuple[int, int]:
        """Return the offset and the position up to which the batches that ``scan`` found in ``segment``, from offset
        ``start`` on, can be kept. A batch with a falling or an unknown leader epoch cannot."""
        if scan.epochs and scan.epochs[0][0] < last_epoch:
            return start, 0
        strange = None if history is None else self._first_unknown_epoch(scan.epochs, history)
        if strange is not None:
            return strange, position_of(segment, strange)
        return scan.next_offset if scan.batch_count else start, scan.position

    def _scan_one(self, segment: SegmentWriter, next_offset: int) -> SegmentScanner:
        scan = SegmentScanner(
            segment.base_offset,
            next_offset=next_offset,
            index_interval=self.config.index_interval_bytes,
            dense=self._is_dense and not len(self._gaps_of(segment)),
        )
        feed_segment(scan, segment.file, segment.size, None if self.listener is None else self.listener.add)
        end = self._first_unrecorded(segment, scan.position)
        if end is None:
            return scan
        self._cut_at_gap.add(segment.base_offset)
        interval = self.config.index_interval_bytes
        return scan_segment(segment.file, end, segment.base_offset, index_interval=interval, check_crc=False)

    @property
    def _is_dense(self) -> bool:
        """Whether each offset has a batch or is in a recorded gap."""
        return self.state is not None and not self.state.may_have_gaps

    def _gaps_of(self, segment: SegmentWriter) -> Gaps:
        """Return the recorded gaps of ``segment``; none if the mark does not say that they count."""
        return segment.gaps if self._is_dense and self.state is not None and self.state.compacted else Gaps()

    def _end_of(self, segment: SegmentWriter) -> int:
        """Return the offset at which the segment after ``segment`` must begin."""
        return self._gaps_of(segment).behind(segment.end_offset())

    def _first_unrecorded(self, segment: SegmentWriter, size: int) -> int | None:
        """Return the position of the first batch in ``segment`` behind a gap that is not recorded, which is torn;
        None if there is none. Raises :class:`CorruptLogError` below the durable end."""
        gaps = self._gaps_of(segment)
        found = unrecorded_gap(segment.file, size, segment.base_offset, gaps) if len(gaps) else None
        if found is None:
            return None
        position, start, end = found
        if start >= self.durable_end:
            return position
        reason = f"batch has base offset {end}, expected {gaps.behind(start)}"
        raise CorruptLogError(reason, start=start, end=end, file=segment.path, position=position)

    def _check_overflow(self, segments: Sequence[SegmentWriter], index: int, scan: SegmentScanner) -> None:
        """Raise :class:`_Overflow` if ``scan`` ended at an offset too far from the segment's base, not at damage.

        With a mark it is damage: pyreplog never writes such a segment, and an adopted one was split before the log
        got its mark.
        """
        if scan.status != OFFSET_TOO_FAR or self.state is not None:
            return
        segment = segments[index]
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        parts = find_parts(segment.file, segment.size, segment.base_offset, following)
        if len(parts) > 1:
            for one in segments:
                one.release()
            raise _Overflow(segment, parts)

    def _scan_ahead(self, segments: Sequence[SegmentWriter]) -> Sequence[SegmentScanner | None]:
        """Scan each of ``segments`` by itself, side by side, which is nearly all of the work. The caller checks
        later how they follow one another.

        The result of a segment that cannot be read is None, because the caller may not need it.
        """
        if len(segments) < 2:
            return [None] * len(segments)

        def scan(segment: SegmentWriter) -> SegmentScanner | None:
            try:
                return self._scan_one(segment, segment.base_offset)
            except StorageError as error:
                if self.listener is not None and error is self.listener.failure:
                    raise
                return None
            except BaseException as error:
                if self.listener is not None and self.listener.failure is None and not isinstance(error, PyreplogError):
                    self.listener.failure = error
                raise

        return self.disk.map(scan, segments)

    def _check_epochs(self, segment: SegmentWriter, found: Sequence[tuple[int, int]], history: EpochCache) -> None:
        for epoch, offset in found:
            known = history.epoch_for_offset(offset)
            if offset < self.durable_end and epoch != known != NO_EPOCH:
                # The checksum of a batch does not cover its epoch; the mark's checksum covers the
                # history.
                reason = f"batch has leader epoch {epoch}, but its offsets belong to epoch {known}"
                position = segment.position_of(offset)
                raise CorruptLogError(reason, start=offset, end=offset + 1, file=segment.path, position=position)

    def _check_last_batch_extent(self, segment: SegmentWriter, scan: SegmentScanner, position: int, end: int) -> None:
        """Raise :class:`CorruptLogError` if the last good batch claims offsets of the next batch below the durable
        end.

        No checksum covers the base offset of a batch. In a log that may have gaps, only the next batch shows that
        the last one reaches too far. Then the next batch is not a torn tail.
        """
        begins = begins_at(segment, position) if scan.status == OFFSETS_FALL else None
        if begins is not None and least_end(segment, position) <= begins < min(end, self.durable_end):
            reason = f"batch has last offset {end - 1}, but the next batch begins at {begins}"
            raise CorruptLogError(reason, start=begins, end=end, file=segment.path, position=position)

    def _first_unknown_epoch(self, found: Sequence[tuple[int, int]], history: EpochCache) -> int | None:
        """Return the base offset of the first batch whose epoch contradicts the trusted history, or None.

        An epoch is written to the history before its first batch, and after a process kill all writes are there. So
        such a batch is damage. After a restart of the machine or a failed sync it may be a torn tail; then None.
        """
        if not self.origin.same_boot or self.state is None or self.state.poisoned:
            return None
        return next((offset for epoch, offset in found if epoch != history.epoch_for_offset(offset) != NO_EPOCH), None)

    def _refuse_old_format(self, segment: SegmentWriter, position: int) -> None:
        reason = segment.describe_damage(position, "")
        if reason:
            raise CorruptError(reason, file=segment.path, position=position, offset=segment.offset_at(position))

    def _record_loss(self) -> None:
        """Record that the truncation may remove whole records, not only the beginning of an interrupted write.

        After a process kill an ``os`` log may have acknowledged those records. The mark is set to incomplete before
        the truncation, so that the loss is known even if this process dies in between.
        """
        state = self.state
        if (
            state is not None
            and self.origin.same_boot
            and not state.poisoned
            and state.durability == "os"
            and not self._harmed
        ):
            self._harmed = True
            self._notes.append(
                "this is damage and records may be lost, because a killed process leaves at most an incomplete write"
            )
            mark_incomplete(self.disk, self.directory)

    def _may_follow(self, segment: SegmentWriter, expected: int) -> bool:
        """Return whether ``segment`` may follow a log that ends at ``expected``, which is not its base offset.

        Raises :class:`CorruptLogError` if that is rot. Logs of pyreplog have no gaps between segments, so a gap
        means lost records. Compacted logs of Kafka have gaps.
        """
        torn = min(expected, segment.base_offset) >= self.durable_end
        if segment.base_offset < expected:
            if not torn:
                raise CorruptLogError(
                    "two segments overlap", start=segment.base_offset, end=expected, file=segment.path, position=0
                )
            return False
        if self.state is None or (self.state.may_have_gaps and not torn):
            return True
        if not torn:
            raise CorruptLogError(
                "a part of the log is missing", start=expected, end=segment.base_offset, file=segment.path, position=0
            )
        return False

    def _corruption(
        self, segments: Sequence[SegmentWriter], index: int, scan: SegmentScanner, position: int, start: int
    ) -> CorruptLogError:
        """Return the error for damage at ``position`` of a segment, behind the last good offset before ``start``."""
        segment = segments[index]
        reason = why_ended(scan)
        if not scan.status and position != scan.position:
            reason = "the leader epoch falls"
        elif not scan.status and (begins := begins_at(segment, position)) not in {None, start}:
            reason = f"batch has base offset {begins}, expected {start}"
        reason = segment.describe_damage(position, reason)
        end = resume_offset(segment, position, start)
        last = index + 1 == len(segments)
        ends = end is None and last and is_cut_off(segment, position)
        if end is None:
            end = self.durable_end if last else segments[index + 1].base_offset
        return CorruptLogError(
            reason, start=start, end=max(end, start + 1), file=segment.path, position=position, ends=ends
        )

    # -- both --

    def _segment(self, base: int) -> SegmentWriter:
        path = join(self.directory, segment_name(base, LOG_SUFFIX))
        found = self.disk.stat(path)
        size = 0 if found is None else found.size
        return SegmentWriter(
            self.disk, self.directory, base, size=size, index_interval=self.config.index_interval_bytes
        )

    def _first_segment(self) -> SegmentWriter:
        base = self.state.start_offset if self.state is not None else max(self.origin.log_start_offset, 0)
        if base < self.durable_end:
            path = join(self.directory, segment_name(base, LOG_SUFFIX))
            raise CorruptLogError("the log's files are gone", start=base, end=self.durable_end, file=path, position=0)
        segment = SegmentWriter.create(
            self.disk,
            self.directory,
            base,
            index_interval=self.config.index_interval_bytes,
            wall_ms=self.clock.wall_ms(),
        )
        self.disk.sync_directory(self.directory)
        return segment

    def _check_start(self, segments: Sequence[SegmentWriter]) -> None:
        state = self.state
        if state is None or not segments:
            return
        first = segments[0].base_offset
        # A broker that wrote to an adopted log since may have raised the start in its checkpoint.
        start = max(state.start_offset, self.origin.log_start_offset) if state.may_have_gaps else state.start_offset
        if first > start and start < self.durable_end:
            path = join(self.directory, segment_name(start, LOG_SUFFIX))
            raise CorruptLogError("the beginning of the log is missing", start=start, end=first, file=path, position=0)

    def _trusted_epochs(self) -> EpochCache | None:
        """Return the epoch history in the file if it has the checksum in the mark, else None."""
        if self.state is None:
            return None
        try:
            epochs = read_epochs(self.disk, self.directory)
        except CorruptError:
            return None
        if epochs is None:
            epochs = EpochCache()
        return epochs if epochs.checksum() == self.state.epochs_crc else None

    def _kept_epochs(self, segments: Sequence[SegmentWriter], found: EpochCache) -> EpochCache | None:
        """Return the epoch history in a foreign folder's file if it agrees with ``found``, the history of the
        batches; else None.

        The file may know more than the batches: if compaction removed the first batches of an epoch, only the file
        has its true start.
        """
        try:
            kept = read_epochs(self.disk, self.directory)
        except CorruptError:
            return None
        if kept is None:
            return None
        kept.truncate_from_end(segments[-1].next_offset)
        cut = EpochCache(found.entries)
        cut.truncate_from_start(max(self.origin.log_start_offset, segments[0].base_offset))
        if [entry.epoch for entry in kept.entries] != [entry.epoch for entry in cut.entries]:
            return None
        log = LogSegments(segments)
        for index, (mine, seen) in enumerate(zip(kept.entries, cut.entries, strict=True)):
            # The batches of the epoch before must end at or below the start of this epoch.
            if mine.start_offset > seen.start_offset or (
                index and log.end_below(seen.start_offset) > mine.start_offset
            ):
                return None
        return kept

    def _walk_epochs(self, segment: SegmentWriter) -> list[tuple[int, int]]:
        tell = None if self.listener is None else self.listener.add
        scan = scan_segment(segment.file, segment.size, segment.base_offset, check_crc=False, tell=tell)
        self._scanned_size += scan.position
        return scan.epochs

    def _loaded(self, segments: list[SegmentWriter], epochs: EpochCache, *, synced_end: int, clean: bool) -> Loaded:
        end = segments[-1].next_offset
        first = segments[0].base_offset
        if self.state is not None:
            start = min(max(self.state.start_offset, first), end)
        elif self.origin.log_start_offset > end:
            # Kafka would delete all records now. A checkpoint has no checksum, so it does not count
            # against the data.
            self._notes.append(
                f"the log start checkpoint ({self.origin.log_start_offset}) is above the end {end} and was ignored"
            )
            start = first
        else:
            start = max(self.origin.log_start_offset, first)
        changed = epochs.keep_those_of(start, end)
        report = RecoveryReport(
            clean=clean,
            mark_found=self.state is not None,
            durable_end=self.durable_end,
            poisoned=self.state is not None and self.state.poisoned,
            scanned_size=self._scanned_size,
            torn_size=self._torn.size,
            records_may_be_lost=self._harmed,
            kept=tuple(self._torn.kept),
            notes=tuple(self._notes),
        )
        return Loaded(segments, epochs, start, end, synced_end, report, changed or not clean)


class _Overflow(Exception):
    """``segment`` holds offsets too far from its base and must be split into ``parts``."""

    def __init__(self, segment: SegmentWriter, parts: Sequence[SplitSegment]) -> None:
        super().__init__()
        self.segment = segment
        self.parts = parts


def _split_note(overflow: _Overflow) -> str:
    name = segment_name(overflow.segment.base_offset, LOG_SUFFIX)
    return f"{name} held offsets more than {INT32_MAX} above its base and was split into {len(overflow.parts)} segments"
