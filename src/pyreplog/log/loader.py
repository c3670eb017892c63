"""Open a partition folder for writing: trust what a clean stop left, or find out what a crash left.

Rules (docs/internals/durability.md):

* bad bytes at or above the *durable end* are a torn tail: what follows the last good batch is kept beside the log
  and cut. So is what follows a gap: a later record must not be seen where an earlier one was lost;
* bad or missing bytes below the durable end are rot: nothing is cut, :class:`CorruptLogError` names the range;
* the durable end is the mark's synced end, and after a process kill (same boot, no failed sync) also its high
  watermark, for the page cache survived; without a mark it is the recovery point in the root's checkpoint, and
  everything is scanned;
* a segment of an old broker whose offsets do not fit their index entries is split, and nothing of it is cut;
* recovery is idempotent: interrupted anywhere, it ends the same when begun again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyreplog._core import LOG_OVERHEAD, SegmentScanner
from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, CorruptLogError, PyreplogError, StorageError
from pyreplog.log.epochs import EpochCache, read_epochs, write_epochs
from pyreplog.log.folder import apply_plan, plan_folder
from pyreplog.log.layout import (
    INT32_MAX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    join,
    segment_name,
)
from pyreplog.log.log_segments import LogSegments
from pyreplog.log.mark import MarkState, mark_incomplete, sync_found_mark
from pyreplog.log.names import recreate_empty_segments
from pyreplog.log.overflow import OFFSET_TOO_FAR, OFFSETS_FALL, SplitSegment, find_parts, split_segment
from pyreplog.log.recovery_listener import RecoveryListener
from pyreplog.log.recovery_report import RecoveryContext, RecoveryReport
from pyreplog.log.resumption import is_cut_off, resume_offset
from pyreplog.log.scan import feed_segment, scan_segment, why_ended
from pyreplog.log.segment_writer import SegmentWriter
from pyreplog.log.torn_tail import TornTail
from pyreplog.ports import Clock, Disk
from pyreplog.record import DELTA_POSITION, MAGIC, MAGIC_POSITION, SIZE_UP_TO_DELTA, base_offset_of, size_of
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
    """Whether mark and epoch file must be written anew."""


class Loader:
    """One opening of one folder. Use once: ``load()``."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        clock: Clock,
        state: MarkState | None,
        origin: RecoveryContext,
        onlooker: RecoveryListener | None,
    ) -> None:
        """``state``: what the mark says, if there is one that counts."""
        self.disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.clock = clock
        self.state = state
        self.origin = origin
        self.onlooker = onlooker
        self._notes: list[str] = []
        # Those of them that tell of splits.
        self._split_notes: list[str] = []
        self._torn = TornTail(disk, directory)
        self._harmed = False
        self._scanned_size = 0

    def load(self) -> Loaded:
        """The log's parts. Raises :class:`CorruptLogError` for rot, which leaves the folder as it was, mark and
        history durable (and segments that overflow split)."""
        while True:
            try:
                return self._load()
            except _Overflow as overflow:
                # Nothing was changed yet: an overflow is met before anything is cut.
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
                "the clean shutdown marker is not to be believed here: the end of the log is not where it says"
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
        """Make durable by what rot was known, the mark and the history it vouches for: power loss may bring back
        ones that promise less, and what is damaged would be taken for a tail."""
        if self.state is not None:
            sync_found_mark(self.disk, self.directory)
            epochs = self._trusted_epochs()
            if epochs is not None:
                write_epochs(self.disk, self.directory, epochs, durable=True)

    def _drop_below_start(self, bases: Sequence[int]) -> Sequence[int]:
        """Without the segments that lie wholly below the log's start, whose removal was not finished: their files
        go now.

        Only the mark is believed here: a checkpoint has no checksum. What it says is made durable first: else power
        loss may bring back one that still promises what went. So is the name of the segment behind them, which the
        last process may have made just before it died: else power loss may leave a log that ends where the mark
        says it must not.
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
        """Without a scan of everything; None where the tail is not as a clean stop leaves it."""
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
            self._notes.append("the leader epoch history was missing or not to be believed: made anew from the batches")
        first = max((index for index, segment in enumerate(segments) if segment.base_offset <= scan_from), default=0)
        if self.onlooker is not None:
            size = sum(segment.size for segment in (segments if epochs is None else segments[first:]))
            if size:
                self.onlooker.begin(self.topic_partition, self.directory, size)
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
            epochs = history  # everything was deleted, and no batch is left to tell of its epoch
        if self.state is None and segments:
            epochs = self._kept_epochs(segments, epochs) or epochs
        end = segments[-1].next_offset if segments else None
        if end is not None and end < self.durable_end:
            raise CorruptLogError(
                "the log ends before what its mark promises",
                start=end,
                end=self.durable_end,
                file=segments[-1].path,
                position=segments[-1].size,
                ends=True,
            )
        if not segments:
            segments.append(self._first_segment())
        # A name made just before a kill may not be durable yet, and nobody else will see to it.
        self.disk.sync_directory(self.directory)
        synced_end = min(self.durable_end if state is None else state.synced_end, segments[-1].next_offset)
        return self._loaded(segments, epochs, synced_end=synced_end, clean=False)

    def _scan(
        self, segments: list[SegmentWriter], first: int, last_epoch: int, history: EpochCache | None
    ) -> list[tuple[int, int]]:
        """Check ``segments`` from index ``first`` on, cut the torn tail; the epochs found. ``segments`` loses what
        was cut whole.

        ``history``: the trusted one, if any; below the durable end it knows every epoch.
        """
        found: list[tuple[int, int]] = []
        expected = segments[first - 1].end_offset() if first else None
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
                if scan.status or scan.gap or position != scan.position or index + 1 < len(segments):
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
            expected = segment.next_offset
            if index + 1 == len(segments):
                break
        return found

    def _sound_end(
        self, segment: SegmentWriter, scan: SegmentScanner, start: int, last_epoch: int, history: EpochCache | None
    ) -> tuple[int, int]:
        """The offset and the position up to which what ``scan`` found good in ``segment``, from offset ``start``
        on, may be there."""
        if scan.epochs and scan.epochs[0][0] < last_epoch:
            return start, 0
        strange = None if history is None else self._first_unknown_epoch(scan.epochs, history)
        if strange is not None:
            return strange, _position_of(segment, strange)
        return scan.next_offset if scan.batch_count else start, scan.position

    def _scan_one(self, segment: SegmentWriter, next_offset: int) -> SegmentScanner:
        scan = SegmentScanner(
            segment.base_offset,
            next_offset=next_offset,
            index_interval=self.config.index_interval_bytes,
            dense=self.state is not None and not self.state.may_have_gaps,
        )
        return feed_segment(scan, segment.file, segment.size, None if self.onlooker is None else self.onlooker.add)

    def _check_overflow(self, segments: Sequence[SegmentWriter], index: int, scan: SegmentScanner) -> None:
        """Raises :class:`_Overflow` where what ended ``scan`` is not damage. Where there is a mark it is: no log of
        ours overflows, and of what it was made of nothing did any more."""
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
        """A scan of each of ``segments`` by itself, side by side: nearly all of the work. What they are to one
        another is looked at after.

        None for one that cannot be read: perhaps nobody will have to.
        """
        if len(segments) < 2:
            return [None] * len(segments)

        def scan(segment: SegmentWriter) -> SegmentScanner | None:
            try:
                return self._scan_one(segment, segment.base_offset)
            except StorageError as error:
                if self.onlooker is not None and error is self.onlooker.failure:
                    raise
                return None
            except BaseException as error:
                if self.onlooker is not None and self.onlooker.failure is None and not isinstance(error, PyreplogError):
                    self.onlooker.failure = error
                raise

        return self.disk.map(scan, segments)

    def _check_epochs(self, segment: SegmentWriter, found: Sequence[tuple[int, int]], history: EpochCache) -> None:
        for epoch, offset in found:
            known = history.epoch_for_offset(offset)
            if offset < self.durable_end and epoch != known != NO_EPOCH:
                # The checksum of a batch does not cover its epoch, that of the mark does.
                reason = f"a batch has leader epoch {epoch}, and its offsets belong to epoch {known}"
                position = segment.position_of(offset)
                raise CorruptLogError(reason, start=offset, end=offset + 1, file=segment.path, position=position)

    def _check_last_batch_extent(self, segment: SegmentWriter, scan: SegmentScanner, position: int, end: int) -> None:
        """Where offsets may have gaps nothing but the next batch tells that the last good one claims too much, for
        no checksum covers where a batch begins: what was synced is no tail for that."""
        begins = _begins_at(segment, position) if scan.status == OFFSETS_FALL else None
        if begins is not None and _least_end(segment, position) <= begins < min(end, self.durable_end):
            reason = f"a batch reaches up to offset {end - 1}, and {begins} follows it"
            raise CorruptLogError(reason, start=begins, end=end, file=segment.path, position=position)

    def _first_unknown_epoch(self, found: Sequence[tuple[int, int]], history: EpochCache) -> int | None:
        """Where a batch begins whose epoch the trusted history does not have, although it must: an epoch is written
        down before its first batch, and after the mere end of a process all that was written is there. None where
        none does, or nobody can say."""
        if not self.origin.same_boot or self.state is None or self.state.poisoned:
            return None
        return next((offset for epoch, offset in found if epoch != history.epoch_for_offset(offset) != NO_EPOCH), None)

    def _refuse_old_format(self, segment: SegmentWriter, position: int) -> None:
        reason = segment.describe_damage(position, "")
        if reason:
            raise CorruptError(reason, file=segment.path, position=position, offset=segment.offset_at(position))

    def _record_loss(self) -> None:
        """What is to be cut is not the mere beginning of a write, which the end of a process may leave at the end
        of the last segment. An ``os`` log may have acknowledged it: the mark says first that it is incomplete, or,
        where this one dies in between, nobody would."""
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
                "this is damage, for the end of a process leaves but the beginning of a write: records may be lost"
            )
            mark_incomplete(self.disk, self.directory)

    def _may_follow(self, segment: SegmentWriter, expected: int) -> bool:
        """Whether ``segment`` may come after a log that ends at ``expected``, which is not its base. Raises where
        that is rot.

        Our own logs have no gaps between segments: there one means that something was lost. Compacted ones of
        Kafka's do.
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
        """The error for damage at ``position`` of a segment, where the log is good up to offset ``start``."""
        segment = segments[index]
        reason = why_ended(scan)
        if not scan.status and position != scan.position:
            reason = "the leader epoch falls"
        elif not scan.status and (begins := _begins_at(segment, position)) not in {None, start}:
            reason = f"a batch says that it begins at offset {begins}, and {start} is next"
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
        # In what was a broker's, one that wrote here since may have moved the start, and noted it.
        start = max(state.start_offset, self.origin.log_start_offset) if state.may_have_gaps else state.start_offset
        if first > start and start < self.durable_end:
            path = join(self.directory, segment_name(start, LOG_SUFFIX))
            raise CorruptLogError("the beginning of the log is missing", start=start, end=first, file=path, position=0)

    def _trusted_epochs(self) -> EpochCache | None:
        """The history in the file, where the mark vouches for it."""
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
        """The history in a foreign folder's file where the batches, whose own is ``found``, agree with it; None
        where they do not.

        It knows more than they: compaction removes the first batches of an epoch, and then its true beginning.
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
            # No batch of the epoch before may reach beyond where this one is said to begin.
            if mine.start_offset > seen.start_offset or (
                index and log.end_below(seen.start_offset) > mine.start_offset
            ):
                return None
        return kept

    def _walk_epochs(self, segment: SegmentWriter) -> list[tuple[int, int]]:
        tell = None if self.onlooker is None else self.onlooker.add
        scan = scan_segment(segment.file, segment.size, segment.base_offset, check_crc=False, tell=tell)
        self._scanned_size += scan.position
        return scan.epochs

    def _loaded(self, segments: list[SegmentWriter], epochs: EpochCache, *, synced_end: int, clean: bool) -> Loaded:
        end = segments[-1].next_offset
        first = segments[0].base_offset
        if self.state is not None:
            start = min(max(self.state.start_offset, first), end)
        elif self.origin.log_start_offset > end:
            # Kafka would delete everything now. A checkpoint has no checksum: it is not believed
            # against the data.
            self._notes.append(
                f"the log start checkpoint says {self.origin.log_start_offset}, behind the end {end}: not believed"
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
    """``segment`` holds offsets too far from its base, and is to be split into ``parts``."""

    def __init__(self, segment: SegmentWriter, parts: Sequence[SplitSegment]) -> None:
        super().__init__()
        self.segment = segment
        self.parts = parts


def _split_note(overflow: _Overflow) -> str:
    name = segment_name(overflow.segment.base_offset, LOG_SUFFIX)
    return (
        f"{name} held offsets more than {INT32_MAX} above its base, and was split into {len(overflow.parts)} segments"
    )


def _begins_at(segment: SegmentWriter, position: int) -> int | None:
    data = segment.file.read_at(position, 8)
    return int.from_bytes(data, "big", signed=True) if len(data) == 8 else None


def _position_of(segment: SegmentWriter, offset: int) -> int:
    """Where in ``segment`` the batch begins that has base offset ``offset``, without the index, which an unclean
    end may have left behind. REQUIRES that it is there, and whole like those before it."""
    position = 0
    while True:
        head = bytes(segment.file.read_at(position, LOG_OVERHEAD))
        if base_offset_of(head) == offset:
            return position
        position += size_of(head)


def _least_end(segment: SegmentWriter, position: int) -> int:
    """Where the last batch before ``position`` would end if it began where the one before it ends. REQUIRES that
    all of them are whole."""
    at, end = 0, segment.base_offset
    while at < position:
        head = bytes(segment.file.read_at(at, SIZE_UP_TO_DELTA))
        base = base_offset_of(head)
        above = int.from_bytes(head[DELTA_POSITION:], "big") if head[MAGIC_POSITION] == MAGIC else 0
        at += size_of(head)
        end = (base if at < position else end) + above + 1
    return end
