"""One pass of compaction over the closed segments of a log: reads them, and writes the segments that take their place.

A pass first notes the newest offset of each key in the dirty segments (:class:`~pyreplog._core.KeyMap`), as many as
the map has room for. Then it copies all segments up to there, without the records that a newer one of their key
replaces. The rules are those of Kafka's ``Cleaner`` and ``MemoryRecords.filterTo``; the record loops are kernels.

A pass changes nothing of the log: it writes files with the suffix ``.cleaned``, which the log puts in place
(:mod:`pyreplog.log.compaction`). So it needs no lock. Each source is checked as it is read, checksums and offsets, so
that compaction never hides damage.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from pyreplog._core import (
    CLEAN_FULL,
    CLEAN_GAP,
    CLEAN_OTHER,
    CLEAN_ROOM,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchCleaner,
    BatchWalk,
    KeyMap,
    RecordBatch,
    SegmentScanner,
    find_gaps,
    write_header,
)
from pyreplog.errors import ConfigError, CorruptError, CorruptLogError, StorageError
from pyreplog.log.cleaned_transactions import CleanedTransactions
from pyreplog.log.cleaning_plan import CleaningPlan, CleanSource
from pyreplog.log.gaps import Gaps, format_gaps
from pyreplog.log.index_files import IndexFiles
from pyreplog.log.layout import (
    CLEANED_SUFFIX,
    GAPS_SUFFIX,
    INDEX_SUFFIX,
    INT32_MAX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    join,
    segment_name,
)
from pyreplog.log.legacy import LegacyPrefix
from pyreplog.log.transaction_index import AbortedRange, format_aborted
from pyreplog.ports import Disk, File
from pyreplog.record import MAGIC_POSITION, compress, decompress, size_of
from pyreplog.values import Compaction

_CHUNK_SIZE: Final = 1 << 19  # all that is done with a chunk finds it in the processor's cache
_KEY_SIZE: Final = 24  # of a key in the map
_KEPT_ATTRIBUTES: Final = 0x38  # timestamp type, transactional, control
_HORIZON_BIT: Final = 0x40
_LOG_APPEND_TIME_BIT: Final = 0x08
_NO_TIMESTAMP: Final = -1


class CleanedSegment(NamedTuple):
    """A segment that is ready to take the place of ``sources``: all its files are durable."""

    base_offset: int
    next_offset: int
    """One past its last record; the base offset if it has none."""
    size: int
    suffixes: Sequence[str]
    """Its files, the log first. Their names end in ``.cleaned``."""
    sources: Sequence[CleanSource]
    newly_dropped: int
    """The highest offset of a tombstone or transaction marker that this pass dropped; -1 if it dropped none."""
    generation: int
    """Of the log that the sources are of."""


class Cleaner:
    """One pass over the segments of ``plan``. Call :meth:`map_keys`, then :meth:`clean` for each group in turn.

    ``secret``: 16 random bytes, so that no writer can make keys whose hashes are equal. ``go_on`` is called between
    chunks, and may raise to end the pass.
    """

    def __init__(self, disk: Disk, plan: CleaningPlan, secret: bytes, go_on: Callable[[], None]) -> None:
        self._disk = disk
        self.plan = plan
        self._go_on = go_on
        # No more keys than offsets, so a small log needs a small map; half of it stays empty.
        offsets = plan.dirty[-1].end_offset - plan.first_dirty if plan.dirty else 0
        self._map = KeyMap(min(plan.config.log_cleaner_dedupe_buffer_size, 2 * _KEY_SIZE * (offsets + 1)), secret)
        self._end_offset = plan.first_dirty
        self._cleaner: BatchCleaner | None = None
        self._transactions = CleanedTransactions()
        self._done: list[CleanedSegment] = []
        self._bytes_read = 0
        self._dropped_marker = -1

    # -- the map --

    def map_keys(self) -> int:
        """Note the keys of the dirty segments, and return the end of the records that the pass compacts."""
        transactions = CleanedTransactions()
        for source in self.plan.dirty:
            transactions.add_aborted(source.aborted)
            if not self._map_segment(source, transactions):
                break
            self._map.seen(source.end_offset - 1)
        self._end_offset = max(self._map.latest + 1, self.plan.first_dirty)
        plan = self.plan
        self._cleaner = BatchCleaner(
            self._map,
            self._end_offset,
            self._end_offset,
            plan.now_ms,
            plan.config.compact_unkeyed == "drop",
            _CHUNK_SIZE,
            plan.droppable_end,
        )
        return self._end_offset

    def _map_segment(self, source: CleanSource, transactions: CleanedTransactions) -> bool:
        """Return whether the map had room for all keys of ``source``."""
        start, keys = self.plan.first_dirty, self._map
        has_room = True

        def note(walk: BatchWalk, data: memoryview) -> int:
            return keys.note(walk, data, start)

        def note_other(batch: RecordBatch, data: memoryview) -> bool:
            nonlocal has_room
            if batch.is_control:
                transactions.read_control(batch)
            elif not transactions.read_data(batch) and batch.last_offset >= start:
                has_room = keys.note_records(data[:HEADER_SIZE], decompress(batch), start)
            if has_room and batch.last_offset >= start:
                keys.seen(batch.last_offset)
            return has_room

        return self._walk(source, note, note_other)

    # -- the copy --

    def clean(self, sources: Sequence[CleanSource]) -> CleanedSegment:
        """Write the segment that takes the place of ``sources``, durably. REQUIRES :meth:`map_keys`, and all
        segments before it in order.

        Raises :class:`CorruptLogError` for damage in a source, :class:`StorageError`; its files are removed then.
        """
        writer = _SegmentFiles(self._disk, self.plan, sources)
        try:
            for source in sources:
                self._transactions.add_aborted(source.aborted)
                self._copy(source, writer)
            before = max((one.dropped_tombstone for one in sources), default=-1)
            dropped = self._made.dropped_tombstone
            cleaned = writer.finish(max(before, dropped), self._transactions.take_index())
            cleaned = cleaned._replace(newly_dropped=max(dropped, self._dropped_marker))
        except BaseException:
            writer.remove()
            raise
        self._done.append(cleaned)
        return cleaned

    @property
    def _made(self) -> BatchCleaner:
        assert self._cleaner is not None, "map_keys comes first"
        return self._cleaner

    def _copy(self, source: CleanSource, writer: _SegmentFiles) -> None:
        cleaner = self._made

        def clean(walk: BatchWalk, data: memoryview) -> int:
            why = cleaner.clean(walk, data)
            if why == CLEAN_ROOM:
                writer.write(cleaner.take())
                cleaner.make_room(size_of(data[walk.position :]) + LOG_OVERHEAD)
                why = cleaner.clean(walk, data)
            return why

        def clean_other(batch: RecordBatch, data: memoryview) -> bool:
            writer.write(cleaner.take())
            writer.write(self._clean_batch(batch, data))
            return True

        self._walk(source, clean, clean_other)
        writer.write(cleaner.take())

    def _clean_batch(self, batch: RecordBatch, data: memoryview) -> bytes | memoryview:
        """Return the bytes that stay of ``batch``, whose bytes are ``data``: none, an empty batch, all, or others."""
        horizon = batch.delete_horizon_ms
        marks_nothing = False
        if batch.is_control:
            marks_nothing = self._transactions.read_control(batch)
            is_over = horizon is not None and horizon <= self.plan.now_ms
            discards = marks_nothing and is_over and batch.last_offset < self.plan.droppable_end
            if discards:
                self._dropped_marker = batch.last_offset
        else:
            discards = self._transactions.read_data(batch)
        if discards or not batch.record_count:
            return _emptied(data, batch) if self._stays_empty(batch) else b""
        records = decompress(batch)
        cleaner, head = self._made, data[:HEADER_SIZE]
        if batch.is_control:
            kept, tombstones, first_ms, newest_ms = batch.record_count, 0, batch.max_timestamp, batch.max_timestamp
            cleaner.keep_all(records)
        else:
            kept, tombstones, first_ms, newest_ms = cleaner.judge(head, records)
        if not kept:
            return _emptied(data, batch) if self._stays_empty(batch) else b""
        needs_horizon = (tombstones > 0 or marks_nothing) and horizon is None
        if kept == batch.record_count and not needs_horizon:
            return data
        attributes = batch.attributes
        if needs_horizon:
            horizon = self.plan.now_ms + self.plan.config.delete_retention_ms
            attributes |= _HORIZON_BIT
        base_ms = first_ms if horizon is None else horizon
        left = cleaner.rewrite(head, records, base_ms)
        if attributes & _LOG_APPEND_TIME_BIT:
            newest_ms = batch.max_timestamp
        rest = bytearray(head) + (left if batch.codec == 0 else compress(batch.codec, left))
        write_header(rest, kept, attributes, base_ms, newest_ms)
        return bytes(rest)

    def _stays_empty(self, batch: RecordBatch) -> bool:
        """Return whether ``batch`` stays without records: it has the last sequence or epoch of an active producer,
        the end of the pass, or the start of a leader epoch, which would be lost otherwise."""
        if batch.next_offset == self._end_offset or batch.base_offset in self.plan.epoch_starts:
            return True
        known = None if batch.producer_id < 0 else self.plan.producers.get(batch.producer_id)
        if known is None:
            return False
        last_offset, epoch = known
        if last_offset >= 0:
            return batch.last_offset == last_offset
        return batch.is_control and batch.producer_epoch == epoch

    # -- both --

    def _walk(
        self,
        source: CleanSource,
        plain: Callable[[BatchWalk, memoryview], int],
        other: Callable[[RecordBatch, memoryview], bool],
    ) -> bool:
        """Walk the batches of ``source``: those that need no special treatment with ``plain``, any other with
        ``other``. Return False if the map is full.

        Raises :class:`CorruptLogError` for a damaged batch, and for one that does not continue the log.
        """
        walk = BatchWalk(source.base_offset, None if source.gaps is None else source.gaps.bounds)
        position, size = 0, _CHUNK_SIZE
        file = self._disk.open(source.path)
        try:
            if source.old:
                position = self._walk_old(source, file, walk, other)
                if position < 0:
                    return False
            while position < source.size:
                self._go_on()
                data = file.read_at(position, min(size, source.size - position))
                walk.begin()
                try:
                    if not self._walk_chunk(walk, data, plain, other):
                        return False
                except CorruptError as error:
                    raise _damaged(source, walk, position, error.reason) from None
                size = _CHUNK_SIZE
                if not walk.position:
                    size = size_of(data) if len(data) >= LOG_OVERHEAD else _CHUNK_SIZE
                    if size <= len(data) or position + size > source.size:
                        raise _damaged(source, walk, position, "a batch is cut off")
                position += walk.position
                self._bytes_read += walk.position
        finally:
            file.close()
        end = walk.next_offset if source.gaps is None else source.gaps.behind(walk.next_offset)
        if end > source.end_offset or (source.gaps is not None and end < source.end_offset):
            raise _damaged(source, walk, position, f"the segment ends at offset {end}, not at {source.end_offset}")
        return True

    def _walk_old(
        self, source: CleanSource, file: File, walk: BatchWalk, other: Callable[[RecordBatch, memoryview], bool]
    ) -> int:
        """Walk the messages of Kafka before 0.11 at the begin of ``source``, as batches of today's format. Return
        their size in bytes; -1 if the map is full. Raises :class:`CorruptLogError`."""
        try:
            prefix = LegacyPrefix(lambda: file, source.size, source.base_offset)
            for data in prefix.batches():
                self._go_on()
                batch = RecordBatch(data)
                if not other(batch, memoryview(data)):
                    return -1
                walk.step(0, batch.next_offset, -1)
        except CorruptLogError:
            raise
        except CorruptError as error:
            raise _damaged(source, walk, 0, error.reason) from None
        self._bytes_read += prefix.end
        return prefix.end

    def _walk_chunk(
        self,
        walk: BatchWalk,
        data: memoryview,
        plain: Callable[[BatchWalk, memoryview], int],
        other: Callable[[RecordBatch, memoryview], bool],
    ) -> bool:
        while True:
            why = plain(walk, data)
            if why == CLEAN_FULL:
                return False
            if why == CLEAN_GAP:
                base = RecordBatch(data, walk.position).base_offset
                raise CorruptError(f"batch has base offset {base}, expected {walk.next_offset}")
            if why != CLEAN_OTHER:
                return True
            at = walk.position
            if data[at + MAGIC_POSITION] < 2:
                raise CorruptError(
                    f"magic {data[at + MAGIC_POSITION]}: a message in the format of Kafka before 0.11 that is damaged,"
                    " or behind newer batches"
                )
            batch = RecordBatch(data, at)
            if not other(batch, data[at : at + batch.size]):
                return False
            walk.step(batch.size, batch.next_offset, batch.leader_epoch)

    def result(self) -> Compaction:
        """Return the counts of the pass so far."""
        cleaner = self._made
        return Compaction(
            start_offset=self.plan.first_dirty,
            end_offset=self._end_offset,
            bytes_read=sum(source.size for one in self._done for source in one.sources),
            bytes_written=sum(one.size for one in self._done),
            records_read=cleaner.records_read,
            records_kept=cleaner.records_kept,
            unkeyed_dropped=cleaner.unkeyed,
            dropped_tombstone=cleaner.dropped_tombstone,
            segments_read=sum(len(one.sources) for one in self._done),
            segments_written=len(self._done),
        )


class _SegmentFiles:
    """The files of one new segment while they are written, with the suffix ``.cleaned``."""

    def __init__(self, disk: Disk, plan: CleaningPlan, sources: Sequence[CleanSource]) -> None:
        self._disk = disk
        self._directory = plan.directory
        self._sources = sources
        self._generation = plan.generation
        self._base = base = sources[0].base_offset
        self._end = sources[-1].end_offset
        self._is_dense = sources[0].gaps is not None
        self._scan = SegmentScanner(base, index_interval=plan.config.index_interval_bytes, check_crc=False)
        self._bounds = array("q")
        self._next_offset = base
        self._position = 0
        self._suffixes = [LOG_SUFFIX]
        self._files = [self._create(LOG_SUFFIX)]

    def _create(self, suffix: str) -> File:
        path = join(self._directory, segment_name(self._base, suffix) + CLEANED_SUFFIX)
        if self._disk.stat(path) is not None:
            self._disk.remove(path)
        return self._disk.create(path)

    def write(self, batches: bytes | memoryview) -> None:
        """Append whole batches."""
        if not batches:
            return
        if self._position + len(batches) > INT32_MAX:  # old messages grow
            raise ConfigError(
                f"segment {self._base} of {self._directory} has messages of Kafka before 0.11, and would be larger than"
                " 2 GiB in today's format: import it into a new log"
            )
        self._files[0].write_at(self._position, [batches])
        self._position += len(batches)
        pairs, self._next_offset = find_gaps(batches, self._next_offset)
        self._bounds.frombytes(pairs)
        if self._scan.feed(batches) != len(batches):
            raise CorruptError(
                "the compacted batches do not follow one another", file=self._files[0].path, position=self._position
            )

    def finish(self, dropped_tombstone: int, aborted: Sequence[AbortedRange]) -> CleanedSegment:
        """Write the other files, sync all, and return the segment."""
        size = self._position
        indexes = IndexFiles.of_scan(self._disk, self._directory, self._scan, self._base, closed=True)
        self._put(INDEX_SUFFIX, bytes(indexes.offsets.data(0)))
        self._put(TIME_INDEX_SUFFIX, bytes(indexes.times.data(0)))
        if aborted:
            self._put(TRANSACTION_INDEX_SUFFIX, format_aborted(aborted))
        next_offset = self._next_offset if size else self._base
        if next_offset < self._end:
            self._bounds.extend((next_offset, self._end))
        gaps = Gaps(self._bounds if self._is_dense else (), dropped_tombstone)
        if len(gaps) or dropped_tombstone >= 0:
            self._put(GAPS_SUFFIX, format_gaps(self._base, gaps))
        for file in self._files:
            file.sync()
            file.close()
        self._disk.sync_directory(self._directory)
        return CleanedSegment(self._base, next_offset, size, tuple(self._suffixes), self._sources, -1, self._generation)

    def _put(self, suffix: str, content: bytes) -> None:
        self._files.append(self._create(suffix))
        self._suffixes.append(suffix)
        if content:
            self._files[-1].write_at(0, [content])

    def remove(self) -> None:
        """Close and remove the files; the next opening removes those that this cannot."""
        for file in self._files:
            with suppress(StorageError):
                file.close()
            with suppress(StorageError):
                self._disk.remove(file.path)


def _emptied(data: memoryview, batch: RecordBatch) -> bytes:
    """Return ``batch`` without records, as Kafka keeps it."""
    rest = bytearray(data[:HEADER_SIZE])
    write_header(rest, 0, batch.attributes & _KEPT_ATTRIBUTES, _NO_TIMESTAMP, batch.max_timestamp)
    return bytes(rest)


def _damaged(source: CleanSource, walk: BatchWalk, position: int, reason: str) -> CorruptLogError:
    start = walk.next_offset
    end = max(source.end_offset, start + 1)
    return CorruptLogError(reason, start=start, end=end, file=source.path, position=position + walk.position)
