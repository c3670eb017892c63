"""The producers of one log and their files: snapshots at segment starts, and a transaction index for each segment.

Recovery rebuilds all of it from the batches: it loads the newest whole snapshot below the trusted end and then reads
the batches behind it. So a snapshot that cannot be written does not fail the log. But as long as it is missing, no
checkpoint may call the log recovered, because the next start would then begin without its producers. A failed sync
is an error, as for any other file.
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
    """The producer table of one log, its snapshots and its transaction indexes.

    The log calls it for each append, roll, truncation and close. Not thread-safe: call it under the log's lock.
    """

    __slots__ = ("_directory", "_disk", "_ever", "_refused", "_snapshot_offset", "pinned_ids", "table")

    def __init__(self, disk: Disk, directory: str, table: ProducerTable) -> None:
        self._disk = disk
        self._directory = directory
        self.table = table
        #: Ids of producers that must not expire because their transactions are not finished. Any
        #: thread may replace this set.
        self.pinned_ids: frozenset[int] = frozenset()
        # Offset of the newest snapshot that is known to be good; -1 if none is.
        self._snapshot_offset = -1
        # Whether the last snapshot could not be written.
        self._refused = False
        # Whether the table ever had a producer. If so, older snapshots may hold producers that
        # have expired since.
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
        """Return the state of a log that was just opened.

        Snapshots and transaction indexes below ``trusted_end`` are taken as they are; above it they are rebuilt
        from the batches if they are wrong.
        """
        state = cls(disk, directory, ProducerTable(start_offset, lenient=lenient))
        state._rebuild(segments, start_offset, trusted_end)
        state._ever = state._ever or len(state.table) > 0
        state.table.expire(now_ms)
        return state

    # -- on append --

    def note(self, batch: RecordBatch, base_offset: int, segment: SegmentReader) -> None:
        """Record ``batch``, which was appended to ``segment``.

        Raises :class:`StorageError` if the batch aborts a transaction and the transaction index cannot be written.
        The entry stays in memory and is written with the next one.
        """
        segment.first_producer = UNKNOWN_POSITION
        completed = self.table.note(batch, base_offset)
        if completed is not None and completed.aborted:
            self._note_aborted(completed, segment)

    def note_bytes(self, batch: Buffer, base_offset: int, segment: SegmentReader) -> None:
        """Do as :meth:`note` for the bytes of a batch that the append path does not record itself: a producer's
        first batch, or a transactional batch."""
        self.note(RecordBatch(batch), base_offset, segment)

    def _note_aborted(self, completed: CompletedTransaction, segment: SegmentReader) -> None:
        index = segment.transactions
        index.append(_entry(completed))
        index.write()

    def aborted(self, segments: Sequence[SegmentReader], start_offset: int, end_offset: int) -> list[AbortedRange]:
        """Return the aborted transactions that may have a record in the half-open range of offsets.

        Source: Kafka's ``collectAbortedTransactions``.
        """
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
        """Return the recovery point that a checkpoint may name for a log that is durable below ``flushed_offset``.

        If the log had producers and its last snapshot could not be written, it is at most the offset of the newest
        good snapshot, or 0 without one.
        """
        if not self._refused or not (self._ever or len(self.table)):
            return flushed_offset
        return min(flushed_offset, max(self._snapshot_offset, 0))

    def take_snapshot(self, offset: int) -> None:
        """Write the table as the snapshot at ``offset``, the log's end.

        If the disk refuses, the next start rebuilds the table from the batches: see :meth:`recovery_point`. Raises
        :class:`StorageError` if a sync fails.
        """
        self._ever = self._ever or len(self.table) > 0
        self._refused = True
        if write_snapshot(self._disk, self._directory, offset, self.table, sync=self._ever):
            self._snapshot_offset = offset
            self._refused = False

    def roll(self, base_offset: int, now_ms: int) -> None:
        """Expire silent producers and write a snapshot, because a segment begins at ``base_offset``, the log's end.

        Raises as :meth:`take_snapshot`.
        """
        self._ever = self._ever or len(self.table) > 0
        self.table.expire(now_ms, kept=self.pinned_ids)
        self.take_snapshot(base_offset)

    def close(self, start_offset: int, end_offset: int) -> None:
        """Write the snapshot for the next start, unless it exists or the log and the table are empty.

        Raises as :meth:`take_snapshot`.
        """
        if self._snapshot_offset != end_offset and (end_offset > start_offset or len(self.table)):
            self.take_snapshot(end_offset)

    # -- cutting --

    def truncate(self, segments: Sequence[SegmentReader], start_offset: int, end_offset: int) -> None:
        """Drop the snapshots and producers above ``end_offset``, the new end of the log, durably."""
        names = self._disk.list(self._directory)
        above = [offset for offset in snapshot_offsets(names) if offset > end_offset]
        if above:
            remove_snapshots(self._disk, self._directory, above)
            # A snapshot of the truncated history must not return after power loss.
            self._disk.sync_directory(self._directory)
        if self._snapshot_offset > end_offset:
            self._snapshot_offset = -1
        if len(self.table):
            self.table = ProducerTable(start_offset, lenient=self.table.lenient)
            self._rebuild(segments, start_offset, end_offset)
        else:
            self.table.forget_expired()

    def clear(self, start_offset: int) -> None:
        """Remove all snapshots and producers, because the log was emptied and begins at ``start_offset``."""
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
        # As Kafka: keep the snapshots at the base of a segment and the newest one, within the log.
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
            # The damage lies below the log's start, in deleted records: read only the batches that
            # are left.
            self.table = ProducerTable(start_offset, lenient=self.table.lenient)
            self._load_snapshot([begin] if begin >= 0 else [], [])
            self._note_from(segments, min(start_offset, end), offsets)
        self.table.end_offset = end

    def _note_from(self, segments: Sequence[SegmentReader], position: int, offsets: Sequence[int]) -> None:
        """Add the batches from offset ``position`` on to the table. ``offsets``: those of the snapshots.

        Batches of deleted records count too, because a producer may send them again as duplicates.
        """
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
        """Rebuild the transaction index of one segment from its batches.

        The batches of earlier segments are read too, because they tell which transactions were open at its start.
        """
        base = segments[slot].base_offset
        table = newest_table(self._disk, self._directory, segments, base)
        aborted: list[AbortedRange] = []
        for batch in producer_batches(segments[: slot + 1], table.end_offset, INT64_MAX):
            completed = table.note(batch, batch.base_offset)
            if completed is not None and completed.aborted and completed.last_offset >= base:
                aborted.append(_entry(completed))
        segments[slot].transactions.replace(aborted)

    def _load_snapshot(self, offsets: Sequence[int], stray: list[int]) -> int:
        """Load the newest whole snapshot among ``offsets`` (rising) and return its offset, or -1 if none is whole.

        The offsets of damaged snapshots are added to ``stray``.
        """
        for offset in reversed(offsets):
            entries = read_snapshot(self._disk, self._directory, offset)
            if entries is not None:
                self.table = ProducerTable(offset, entries, lenient=self.table.lenient)
                self._snapshot_offset = offset
                return offset
            stray.append(offset)
        return -1

    def _note_segment(self, segment: SegmentReader, start_offset: int, end_offset: int, *, keep: bool = True) -> bool:
        """Add the batches of ``segment``, which ends at ``end_offset``, from ``start_offset`` on, and correct its
        transaction index. Return whether there were any. Raises :class:`CorruptLogError`.

        ``keep``: take the transactions that ended below ``start_offset`` from the index file. Raises
        :class:`_IndexLost` if that file is damaged.
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
                size = walked  # the bytes behind the last batch belong to no batch
        segment.transactions.replace(aborted)
        return noted


class _IndexLost(Exception):
    """The file of a transaction index is damaged."""


def newest_table(disk: Disk, directory: str, segments: Sequence[SegmentReader], end_offset: int) -> ProducerTable:
    """Return the producer table of the newest whole snapshot at or below ``end_offset``.

    Without one, the table is empty and begins at the first segment.
    """
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
    """Yield the batches with a producer id below ``end_offset``, beginning with the batch that holds
    ``start_offset``.

    ``straddling``: yield last a transactional batch that begins below ``end_offset`` and ends above it, if there is
    one. ``size_max``: the number of bytes to read of each segment.
    """
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
                return  # the bytes behind may not even be batches


def _located(error: CorruptError, segment: SegmentReader, end_offset: int) -> tuple[CorruptLogError | None, int]:
    """Return ``error``, raised while reading ``segment``, with the offsets from the first damaged batch to
    ``end_offset``, the segment's end; and the position in bytes where its whole batches end.

    The error is None if all batches are whole.
    """
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
