"""The producers of one log and what of them is on the disk: snapshots where segments begin, aborted transactions
beside the segments.

Everything here can be had again from the batches, and recovery does: the newest snapshot that is whole and lies
where nothing was lost, then the batches behind it. So a snapshot that cannot be written is no failure of the log;
but where it is missing nobody may take the log for one that was left in order, and begin without its producers. A
sync that fails is a failure like that of any other file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyreplog._core import UNKNOWN_POSITION, RecordBatch, find_producers
from pyreplog.errors import CorruptError, CorruptLogError
from pyreplog.log.layout import INT64_MAX, SCAN_CHUNK_SIZE
from pyreplog.log.producer_snapshot import read_snapshot, remove_snapshots, snapshot_offsets, write_snapshot
from pyreplog.log.producers import CompletedTransaction, ProducerTable
from pyreplog.log.scan import scan_segment
from pyreplog.log.segment_reader import SegmentReader
from pyreplog.log.transaction_index import AbortedRange
from pyreplog.ports import Buffer, Disk
from pyreplog.record import end_of


class ProducerState:
    """Belongs to the log's owner. ``table`` is what it knows; the log tells it what happens."""

    __slots__ = ("_directory", "_disk", "_ever", "_refused", "_snapshot_offset", "kept", "table")

    def __init__(self, disk: Disk, directory: str, table: ProducerTable) -> None:
        self._disk = disk
        self._directory = directory
        self.table = table
        #: Producer ids that do not expire: what they began is not finished. Set by whoever knows,
        #: from any thread.
        self.kept: frozenset[int] = frozenset()
        # Of the newest snapshot that is known to be good; -1 where none is.
        self._snapshot_offset = -1
        # Whether the last one that was to be written is missing.
        self._refused = False
        # Whether there ever was a producer here: then older snapshots may tell of some that are
        # forgotten by now.
        self._ever = False

    @classmethod
    def load(
        cls,
        disk: Disk,
        directory: str,
        segments: Sequence[SegmentReader],
        start_offset: int,
        trusted_end: int,
        *,
        lenient: bool,
        now_ms: int,
    ) -> ProducerState:
        """The state of a log just opened. Below ``trusted_end`` its snapshots and transaction indexes are as they
        were left in order; above it they are made anew where they are wrong."""
        state = cls(disk, directory, ProducerTable(start_offset, lenient=lenient))
        state._rebuild(segments, start_offset, trusted_end)
        state._ever = state._ever or len(state.table) > 0
        state.table.expire(now_ms)
        return state

    # -- on append --

    def note(self, batch: RecordBatch, base_offset: int, segment: SegmentReader) -> None:
        """``batch`` is in the log, in ``segment``. Raises :class:`StorageError` where the transaction it ends could
        not be written down; it is in memory all the same, and written with the next."""
        segment.first_producer = UNKNOWN_POSITION
        completed = self.table.note(batch, base_offset)
        if completed is not None and completed.aborted:
            self._note_aborted(completed, segment)

    def note_bytes(self, batch: Buffer, base_offset: int, segment: SegmentReader) -> None:
        """As :meth:`note`, of a batch's bytes: what an append does not note itself, a producer's first batch or one
        of a transaction."""
        self.note(RecordBatch(batch), base_offset, segment)

    def _note_aborted(self, completed: CompletedTransaction, segment: SegmentReader) -> None:
        index = segment.transactions
        index.append(_entry(completed))
        index.write()

    def aborted(self, segments: Sequence[SegmentReader], start_offset: int, end_offset: int) -> list[AbortedRange]:
        """The aborted transactions of which a record may lie in the half-open range: Kafka's
        ``collectAbortedTransactions``."""
        found: list[AbortedRange] = []
        for slot, segment in enumerate(segments):
            if slot + 1 < len(segments) and segments[slot + 1].base_offset <= start_offset:
                continue
            try:
                entries = segment.transactions.entries
            except CorruptError:
                self.recover_index(segments, slot)
                entries = segment.transactions.entries
            for entry in entries:
                if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                    found.append(entry)
                if entry.last_stable_offset >= end_offset:
                    return found
        return found

    # -- snapshots --

    def recovery_point(self, flushed_offset: int) -> int:
        """How far a checkpoint may call a log recovered that is on stable storage below ``flushed_offset``: not
        beyond the newest snapshot, 0 without one, where there were producers and the last snapshot is missing."""
        if not self._refused or not (self._ever or len(self.table)):
            return flushed_offset
        return min(flushed_offset, max(self._snapshot_offset, 0))

    def take_snapshot(self, offset: int) -> None:
        """Keep the table as that of everything below ``offset``, the log's end. Where the disk refuses, it can be
        had again from the batches: see :meth:`recovery_point`. Raises :class:`StorageError` where a sync fails."""
        self._ever = self._ever or len(self.table) > 0
        self._refused = True
        if write_snapshot(self._disk, self._directory, offset, self.table, sync=self._ever):
            self._snapshot_offset = offset
            self._refused = False

    def roll(self, base_offset: int, now_ms: int) -> None:
        """A segment begins at ``base_offset``, the log's end: keep what is known there, and forget who was silent
        for long. Raises as :meth:`take_snapshot`."""
        self._ever = self._ever or len(self.table) > 0
        self.table.expire(now_ms, kept=self.kept)
        self.take_snapshot(base_offset)

    def close(self, start_offset: int, end_offset: int) -> None:
        """Keep the table for the next start. Nothing to do where its snapshot is there, or where nothing was ever
        written. Raises as :meth:`take_snapshot`."""
        if self._snapshot_offset != end_offset and (end_offset > start_offset or len(self.table)):
            self.take_snapshot(end_offset)

    # -- cutting --

    def truncate(self, segments: Sequence[SegmentReader], start_offset: int, end_offset: int) -> None:
        """The log now ends at ``end_offset``: what lay above is forgotten, for good."""
        names = self._disk.list(self._directory)
        above = [offset for offset in snapshot_offsets(names) if offset > end_offset]
        if above:
            remove_snapshots(self._disk, self._directory, above)
            # One of another history must not come back after power loss.
            self._disk.sync_directory(self._directory)
        if self._snapshot_offset > end_offset:
            self._snapshot_offset = -1
        if len(self.table):
            self.table = ProducerTable(start_offset, lenient=self.table.lenient)
            self._rebuild(segments, start_offset, end_offset)
        else:
            self.table.forget_expired()

    def clear(self, start_offset: int) -> None:
        """The log is empty, and begins anew at ``start_offset``."""
        remove_snapshots(self._disk, self._directory, snapshot_offsets(self._disk.list(self._directory)))
        self._disk.sync_directory(self._directory)
        self._snapshot_offset = -1
        self.table = ProducerTable(start_offset, lenient=self.table.lenient)

    # -- rebuilding --

    def _rebuild(self, segments: Sequence[SegmentReader], start_offset: int, trusted_end: int) -> None:
        end = segments[-1].end_offset()
        first = segments[0].base_offset
        bases = {segment.base_offset for segment in segments}
        offsets = snapshot_offsets(self._disk.list(self._directory))
        # As Kafka: those that a segment begins at, and the newest one; none beyond what is there.
        stray = [
            offset
            for offset in offsets
            if not first <= offset <= end or (offset not in bases and offset != offsets[-1])
        ]
        begin = self._load_snapshot(
            [offset for offset in offsets if offset not in stray and offset <= trusted_end], stray
        )
        remove_snapshots(self._disk, self._directory, stray)
        if any(offset > end for offset in stray):
            self._disk.sync_directory(self._directory)
        offsets = [offset for offset in offsets if offset not in stray]
        position = max(begin, first)
        try:
            self._note_from(segments, position, offsets)
        except CorruptError:
            if position >= min(start_offset, end):
                raise
            # Damage in what was deleted is nobody's any more: only what is left tells then.
            self.table = ProducerTable(start_offset, lenient=self.table.lenient)
            self._load_snapshot([begin] if begin >= 0 else [], [])
            self._note_from(segments, min(start_offset, end), offsets)
        self.table.end_offset = end

    def _note_from(self, segments: Sequence[SegmentReader], position: int, offsets: Sequence[int]) -> None:
        """Take in the batches from ``position`` on. Those of deleted records are among them: what they were sent
        again must be known by. ``offsets``: where snapshots are."""
        end = segments[-1].end_offset()
        broken = []
        noted = False
        for slot, segment in enumerate(segments):
            following = segments[slot + 1].base_offset if slot + 1 < len(segments) else end
            if following <= position:
                continue
            if noted and segment.base_offset > position and segment.base_offset not in offsets:
                self.take_snapshot(segment.base_offset)
            try:
                noted = self._note_segment(segment, position, following) or noted
            except _IndexLost:
                broken.append(slot)
                noted = self._note_segment(segment, position, following, keep=False) or noted
        for slot in broken:
            self.recover_index(segments, slot)

    def recover_index(self, segments: Sequence[SegmentReader], slot: int) -> None:
        """Make the transaction index of one segment anew, from the batches of it and of those before it that say
        what was open."""
        base = segments[slot].base_offset
        table = newest_table(self._disk, self._directory, segments, base)
        aborted: list[AbortedRange] = []
        for batch in producer_batches(segments[: slot + 1], table.end_offset, INT64_MAX):
            completed = table.note(batch, batch.base_offset)
            if completed is not None and completed.aborted and completed.last_offset >= base:
                aborted.append(_entry(completed))
        segments[slot].transactions.replace(aborted)

    def _load_snapshot(self, offsets: Sequence[int], stray: list[int]) -> int:
        """Take over the newest believable snapshot of ``offsets`` (rising); where it stands, -1 without one. Bad
        ones go to ``stray``."""
        for offset in reversed(offsets):
            entries = read_snapshot(self._disk, self._directory, offset)
            if entries is not None:
                self.table = ProducerTable(offset, entries, lenient=self.table.lenient)
                self._snapshot_offset = offset
                return offset
            stray.append(offset)
        return -1

    def _note_segment(self, segment: SegmentReader, start_offset: int, end_offset: int, *, keep: bool = True) -> bool:
        """Take in the batches of ``segment``, which ends at ``end_offset``, from ``start_offset`` on, and put its
        transaction index right; whether there were any. Raises :class:`CorruptLogError`.

        ``keep``: of what ended below ``start_offset`` the index knows; :class:`_IndexLost` where it cannot be
        right.
        """
        if segment.first_producer == -1 and segment.base_offset >= start_offset:
            segment.transactions.replace(())
            return False
        aborted: list[AbortedRange] = []
        if keep and segment.base_offset < start_offset:
            try:
                aborted = [entry for entry in segment.transactions.entries if entry.last_offset < start_offset]
            except CorruptError:
                raise _IndexLost from None
        noted, size = False, segment.size
        while True:
            try:
                for batch in producer_batches((segment,), start_offset, INT64_MAX, size_max=size):
                    noted, start_offset = True, batch.last_offset + 1
                    completed = self.table.note(batch, batch.base_offset)
                    if completed is not None and completed.aborted:
                        aborted.append(_entry(completed))
                break
            except CorruptError as error:
                damage, walked = _located(error, segment, end_offset)
                if damage is not None or size == walked:
                    raise damage or error from None
                if start_offset >= end_offset:
                    break
                size = walked  # what lies behind its last batch is nobody's
        segment.transactions.replace(aborted)
        return noted


class _IndexLost(Exception):
    """A transaction index cannot be right."""


def newest_table(disk: Disk, directory: str, segments: Sequence[SegmentReader], end_offset: int) -> ProducerTable:
    """The producers as the newest believable snapshot has them that is not beyond ``end_offset``; none, from the
    first segment on, where there is no such."""
    first = segments[0].base_offset
    for offset in reversed(snapshot_offsets(disk.list(directory))):
        if first <= offset <= end_offset and (entries := read_snapshot(disk, directory, offset)) is not None:
            return ProducerTable(offset, entries)
    return ProducerTable(min(first, end_offset))


def producer_batches(
    segments: Iterable[SegmentReader],
    start_offset: int,
    end_offset: int,
    *,
    straddling: bool = False,
    size_max: int = INT64_MAX,
) -> Iterator[RecordBatch]:
    """The batches that bear a producer id, from the one that holds ``start_offset`` on, below ``end_offset``.
    ``straddling``: and then the one of a transaction that begins below it and ends above. ``size_max``: of each
    segment so many bytes are looked at."""
    segments = list(segments)
    for slot, segment in enumerate(segments):
        if slot + 1 < len(segments) and segments[slot + 1].base_offset <= start_offset:
            continue
        position = segment.position_of(start_offset) if start_offset > segment.base_offset else 0
        if position is None or segment.first_producer == -1:
            continue
        legacy = segment.legacy
        position = max(position, segment.first_producer, 0 if legacy is None else legacy.end)
        size = min(segment.size, size_max)
        while position < size and segment.base_offset < end_offset:
            data = segment.read_at(position, min(SCAN_CHUNK_SIZE, size - position))
            found, walked = find_producers(data)
            for at in found:
                batch = RecordBatch(data, at)
                if batch.last_offset >= end_offset:
                    if straddling and batch.is_transactional and batch.base_offset < end_offset:
                        yield batch
                    return
                yield batch
            position += walked
            if end_offset != INT64_MAX and end_of(data) >= end_offset:
                return  # what lies behind may not even be batches


def _located(error: CorruptError, segment: SegmentReader, end_offset: int) -> tuple[CorruptLogError | None, int]:
    """``error`` of a walk through ``segment``, which ends at ``end_offset``, with its offsets: from the first
    damaged batch on. None where all of its batches are whole. And where these end, in bytes."""
    first = 0 if segment.legacy is None else segment.legacy.end
    scan = scan_segment(segment.file, segment.size, segment.base_offset, position=first)
    start = scan.next_offset if scan.batch_count else segment.base_offset
    if start == end_offset:
        return None, scan.position
    damage = CorruptLogError(
        error.reason, start=start, end=max(end_offset, start + 1), file=segment.path, position=scan.position
    )
    return damage, scan.position


def _entry(completed: CompletedTransaction) -> AbortedRange:
    return AbortedRange(
        completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
    )
