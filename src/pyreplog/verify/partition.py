"""One partition folder: every batch of every segment, compared with the others and with the small files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from pyreplog.errors import StorageError
from pyreplog.ports import Disk
from pyreplog.verify import states
from pyreplog.verify.batches import Broken, CheckedBatch, Window, batch_at, leads_on, resume
from pyreplog.verify.codecs import NAMES, TooLarge, Unavailable, Undecodable
from pyreplog.verify.findings import Level, Report
from pyreplog.verify.folder import CheckContext, Facts, FolderCheck, segment_files, snapshots, split_deleted
from pyreplog.verify.indexes import MENDED, OffsetIndexCheck, TimeIndexCheck
from pyreplog.verify.producers import Producers
from pyreplog.verify.records import Malformed, batch_records
from pyreplog.verify.states import Unreadable

ANOTHER_COPY: Final = "take it from another replica or a backup; if there is none, `replog repair` saves the rest"
DELETED: Final = (
    "these records are not readable; but after a crash the log cannot be opened for writing while they are there: "
    "if that happens, `replog repair` makes a log without them"
)
_TRIES: Final = 3
_BIG: Final = 2**63 - 1
_SPAN_MAX: Final = 2**31 - 1


def check_partition(disk: Disk, path: str, topic: str, partition: int, look: CheckContext, book: Report) -> Facts:
    """Verify the folder at ``path``. A writer may be at work in it: files that changed during the check are checked
    again, and only a finding of every check counts."""
    own: Report | None = None
    for attempt in range(_TRIES):
        before, own = own, Report(book.read)
        check = PartitionCheck(disk, path, topic, partition, look, own)
        facts = check.run()
        if before is not None:
            own.confirm(before)
        if own.worst is Level.NOTE or attempt == _TRIES - 1 or not check.changed_since():
            break
    assert own is not None
    own.byte_count = 0  # counted already
    own.partition_count = 1
    book.folders.append(path)
    book.take(own)
    return facts


class PartitionCheck(FolderCheck):
    """One look at one folder. Use once: :meth:`run`."""

    def __init__(self, disk: Disk, path: str, topic: str, partition: int, look: CheckContext, book: Report) -> None:
        super().__init__(disk, path, topic, partition, look, book)
        self._expected: int | None = None
        self._last_epoch = -1
        self._producers = Producers()
        self._snapshots: list[tuple[int, str]] = []
        # No batch is missing between this offset and the present position, so the check can go on
        # from any snapshot in between.
        self._whole_from = 0
        self._lost_from = -1
        #: Where the next writer ends the log; -1: not before its last batch.
        self._torn_from = -1
        self._unavailable = ""
        # The recorded gaps of the present segment: start -> end.
        self._gaps: Mapping[int, int] = {}
        # In a log whose gaps nobody recorded: how many there are, and how many offsets they hold.
        self._unrecorded = [0, 0]

    def run(self) -> Facts:
        """The small files, then the segments in order."""
        self.look_at_small_files()
        bases = self._without_deleted(segment_files(self._disk, self._path, self._names))
        self._snapshots = snapshots(self._names)
        self._begin(bases)
        for (base, name), following in zip(bases.items(), [*list(bases)[1:], None], strict=False):
            self._segment(base, name, following)
        self._reach_snapshots(_BIG)
        self._end(bases)
        self.look_at_history_again()
        return self.facts

    # -- segments --

    def _without_deleted(self, bases: dict[int, str]) -> dict[int, str]:
        """Without those that only wait to be removed. Power loss may bring back any of them, as their removal is
        not synced."""
        if self.facts.mark is None:
            return bases
        deleted, left = split_deleted(bases, self.facts.mark.start_offset)
        for name in deleted.values():
            advice = "nothing to do: it is removed when the log is next opened for writing"
            self._book.note(self._at(name), "all of its records are below the log's start", advice)
        return left

    def _begin(self, bases: dict[int, str]) -> None:
        mark = self.facts.mark
        first = next(iter(bases), None)
        if first is None:
            if self._promised:
                self._book.damage(
                    self._path,
                    "the log's files are gone",
                    ANOTHER_COPY,
                    start=mark.start_offset if mark else 0,
                    end=self._promised,
                )
            elif self._look.own or self._look.bare:
                self._book.note(self._path, "there is no segment yet")
            return
        start = mark.start_offset if mark else max(self._look.log_start or 0, first)
        self.facts.start, self.facts.end = max(start, first), first
        if mark is not None and mark.is_adopted:
            start = max(mark.start_offset, self._look.log_start or 0)
        if mark is not None and first > start and self._promised and start < self._promised:
            self._book.damage(self._path, "the beginning of the log is missing", ANOTHER_COPY, start=start, end=first)
        self._whole_from = first
        if first == 0:
            self._producers.load([])

    def _segment(self, base: int, name: str, following: int | None) -> None:
        """``following``: the base offset of the next one; None: it is the last."""
        book, disk, path = self._book, self._disk, self._at(name)
        stem, swap = f"{base:020}", name[24:]
        last = following is None
        if self._expected is not None and base != self._expected:
            self._between(base, path)
        self._expected = base if self._expected is None else max(base, self._expected)
        # The indexes first: the batches that they name are in the log at that moment.
        offsets, times, aborted = (
            self._read(f"{stem}{suffix}{swap}") for suffix in (".index", ".timeindex", ".txnindex")
        )
        self._gaps = self._gaps_of(base, (f"{stem}.gaps.swap", f"{stem}.gaps"), following)
        try:
            file = disk.open(path)
        except StorageError as error:
            if name not in disk.list(self._path):
                return  # retention has removed it
            book.damage(path, f"it cannot be read: {error}", "look at the disk and the file's mode; then verify again")
            return
        try:
            size = file.size()
            if size:
                for suffix, data in ((".index", offsets), (".timeindex", times)):
                    if data is None and not last and not swap:  # the next opening makes them
                        book.warn(self._at(stem + suffix), "the index is missing", MENDED)
            index = OffsetIndexCheck(book, self._at(f"{stem}.index{swap}"), offsets or b"", base)
            time_index = TimeIndexCheck(
                book, self._at(f"{stem}.timeindex{swap}"), times or b"", base, exact=self.facts.mark is not None
            )
            book.file_count += 1
            window = Window(file, size, book.read)
            damaged = self._batches(window, base, following, path, index, time_index)
        except StorageError as error:
            book.damage(
                path, f"it cannot be read: {error}", ANOTHER_COPY, start=self._expected, end=self._next_base(following)
            )
            return
        finally:
            file.close()
        behind = self._gaps.get(self._expected or 0)
        if behind is not None and not last:
            self._miss_up_to(behind)
            self._expected = behind
            self.facts.end = max(self.facts.end, behind)
        if not damaged:
            index.finish(size)
            time_index.finish(
                closed=times is not None and (not last or (self._look.clean and self.facts.mark is not None))
            )
        self._aborted(f"{stem}.txnindex{swap}", base, aborted, damaged=damaged)

    def _between(self, base: int, path: str) -> None:
        expected = self._expected or 0
        if base < expected:
            self._book.damage(path, "it overlaps the segment before it", ANOTHER_COPY, start=base, end=expected)
            return
        if not self._dense:
            self._unrecorded = [self._unrecorded[0] + 1, self._unrecorded[1] + base - expected]
        else:
            self._miss_up_to(base)
            promised = self._promised or 0
            if expected < promised:
                self._book.damage(
                    path, "a part of the log before it is missing", ANOTHER_COPY, start=expected, end=base
                )
            else:
                self._tear(expected)
                self._book.note(
                    path,
                    "a part of the log before it is missing; it lies above every synced or shown offset, so the next"
                    " writer sets it aside",
                    start=expected,
                    end=base,
                )

    def _next_base(self, following: int | None) -> int:
        return max(self._promised or 0, (self._expected or 0) + 1) if following is None else following

    def _batches(
        self,
        window: Window,
        base: int,
        following: int | None,
        path: str,
        index: OffsetIndexCheck,
        times: TimeIndexCheck,
    ) -> bool:
        """Every batch of one segment. Whether there was damage in it, or its indexes cannot say where its batches
        are."""
        position, damaged, part = 0, False, base
        while True:
            expected = self._expected or 0
            try:
                batch = batch_at(window, position)
                if batch is None:
                    return damaged
                if batch.checksum() != batch.crc:
                    text = f"checksum mismatch in the batch of offsets {batch.base_offset} to {batch.last_offset}"
                    if self._is_deleted(window, batch, expected, following):
                        where = {"position": position, "start": batch.base_offset, "end": batch.last_offset + 1}
                        self._book.warn(path, f"{text}, all of them below the log's start", DELETED, **where)
                        self._miss_up_to(batch.last_offset + 1)
                        self._expected = batch.last_offset + 1
                        damaged, position = True, position + batch.size
                        continue
                    raise Broken(position, text, batch.size)
                self._place(window, batch, part, expected, following)
                if batch.last_offset - part > _SPAN_MAX:
                    self._reach_too_far(window, batch, path, following, first=part == base)
                    damaged, part = True, batch.base_offset
            except Broken as broken:
                dense = self._dense and not self._gaps
                after = resume(window, position, expected + 1, broken.size, following=following, dense=dense)
                if after is None and following == expected and self._is_settled(expected):
                    self._behind(window, broken, path)
                    return damaged
                damaged = True
                self._broken(window, broken, after, path, following)
                if after is None:
                    return True
                self._miss_up_to(after.base_offset)
                self._expected = after.base_offset
                position = after.position
                continue
            self._good(batch, path)
            if not damaged:
                index.feed(batch)
                times.feed(batch)
            position += batch.size

    def _is_deleted(self, window: Window, batch: CheckedBatch, expected: int, following: int | None) -> bool:
        """Whether ``batch``, whose checksum is wrong, lies below the log's start and leads to the next one, so that
        it hides nothing."""
        after = batch.last_offset + 1
        if self.facts.mark is None or batch.base_offset != expected or after > self.facts.start:
            return False
        try:
            found = batch_at(window, batch.position + batch.size)
        except Broken:
            return False
        return following == after if found is None else found.base_offset == after

    def _is_settled(self, offset: int) -> bool:
        """Return whether the next writer leaves the segments below ``offset`` unchanged: it checks only the
        unsynced part."""
        mark = self.facts.mark
        return mark is not None and not mark.is_poisoned and offset <= mark.synced_end

    def _behind(self, window: Window, broken: Broken, path: str) -> None:
        """Something lies behind the last batch of a segment, and offsets go on in the next one."""
        rest = window.size - broken.position
        if self._is_zero(window, broken.position):
            self._book.note(
                path, f"{rest} bytes of zeros behind its last batch: room that was reserved", position=broken.position
            )
            return
        what = f"{rest} bytes behind its last batch are none ({broken.reason}), and offsets go on in the next segment"
        self._book.warn(
            path, what, "nothing to do: no reader reads them, and they go with the segment", position=broken.position
        )

    def _is_zero(self, window: Window, position: int) -> bool:
        return not any(any(window.take(at, 1 << 20)) for at in range(position, window.size, 1 << 20))

    def _miss_up_to(self, offset: int) -> None:
        """Forget the producers' state before ``offset``, except the state in a snapshot from there on."""
        self._producers.exact = False
        self._whole_from = offset

    def _tear(self, offset: int) -> None:
        if self._torn_from < 0:
            self._torn_from = offset

    def _place(self, window: Window, batch: CheckedBatch, base: int, expected: int, following: int | None) -> None:
        """Compare the batch's offsets, which no checksum covers, with the batches before it. Raise
        :class:`Broken`."""
        if batch.base_offset > expected and batch.base_offset == self._gaps.get(expected):
            self._miss_up_to(batch.base_offset)
            return
        if batch.base_offset < expected or (self._dense and batch.base_offset != expected):
            raise Broken(
                batch.position, f"a batch says that it begins at offset {batch.base_offset}, and {expected} is next", 0
            )
        if self.facts.mark is not None and batch.last_offset - base > _SPAN_MAX:
            raise Broken(batch.position, f"offset {batch.last_offset} is too far from the segment's base", 0)
        if batch.base_offset > expected:
            if not leads_on(window, batch, following):
                raise Broken(
                    batch.position,
                    f"a batch says that it begins at offset {batch.base_offset}, and those behind it do not",
                    0,
                )
            self._unrecorded = [self._unrecorded[0] + 1, self._unrecorded[1] + batch.base_offset - expected]
            self._producers.exact = False

    def _reach_too_far(
        self, window: Window, batch: CheckedBatch, path: str, following: int | None, *, first: bool
    ) -> None:
        """``batch`` of a broker's segment is the ``first`` whose offset does not fit an index entry, or the first
        of another part of it.

        No checksum covers the offset: raises :class:`Broken` where what follows says that it is wrong.
        """
        try:
            after = batch_at(window, batch.position + batch.size)
        except Broken:
            after = None
        bounds = [following, None if after is None else after.base_offset]
        if any(bound is not None and bound <= batch.last_offset for bound in bounds):
            raise Broken(batch.position, f"offset {batch.last_offset} is too far from the segment's base", 0)
        if first:
            self._book.warn(
                path,
                f"from here on its offsets are more than {_SPAN_MAX} above its base, which no index entry can say: old"
                " brokers left such",
                "nothing is lost: readers read all of it, and the next writer splits it into segments that fit",
                position=batch.position,
                start=batch.base_offset,
            )

    def _broken(
        self, window: Window, broken: Broken, after: CheckedBatch | None, path: str, following: int | None
    ) -> None:
        start = self._expected or 0
        rest = window.size - broken.position
        promised = self._promised
        if promised is not None and start >= promised:
            self._tear(start)
        if after is None and following is None and (promised is None or start >= promised):
            if self._is_zero(window, broken.position):
                self._book.note(
                    path,
                    f"{rest} bytes of zeros behind the last batch: room that was reserved, or a torn tail",
                    position=broken.position,
                )
                return
            what = (
                f"{rest} bytes behind the last whole batch, above the synced and shown offsets: a torn tail"
                f" ({broken.reason})"
            )
            if promised is None:
                what = (
                    f"{rest} bytes behind the last whole batch are torn or damaged, and readers stop there"
                    f" ({broken.reason})"
                )
            advice = "nothing to do: the next writer cuts it and keeps the cut bytes beside the log"
            if self.facts.mark is not None and not self._look.clean:
                self._book.note(path, what, advice, position=broken.position, start=start, end=start)
            else:
                self._book.warn(path, what, advice, position=broken.position, start=start, end=start + 1)
            return
        end = after.base_offset if after is not None else self._next_base(following)
        if promised is not None and start >= promised and self.facts.mark is not None:
            what = f"bytes above the synced and shown offsets are torn ({broken.reason})"
            advice = "nothing to do: the next writer cuts them and keeps the cut bytes beside the log"
            self._book.note(path, what, advice, position=broken.position, start=start, end=end)
            return
        self._lost_from = start
        self._book.damage(
            path, broken.reason, ANOTHER_COPY, position=broken.position, start=start, end=max(end, start + 1)
        )

    def _good(self, batch: CheckedBatch, path: str) -> None:
        book = self._book
        self._reach_snapshots(batch.base_offset)
        book.batch_count += 1
        book.record_count += batch.record_count
        if batch.magic == 2:
            self._epoch(batch, path)
            if batch.attributes >> 7:
                book.warn(
                    path,
                    f"unknown attribute bits {batch.attributes:#x}",
                    "readers ignore them",
                    position=batch.position,
                )
        if self._look.deep or batch.is_control:
            self._records(batch, path)
        if batch.producer_id >= 0 and not batch.is_control:
            self._producers.data(batch)
        self._expected = batch.last_offset + 1
        self.facts.end = max(self.facts.end, batch.last_offset + 1)
        if self._look.compare:
            self.facts.batches.append((batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc))

    def _epoch(self, batch: CheckedBatch, path: str) -> None:
        where = {"position": batch.position, "start": batch.base_offset, "end": batch.last_offset + 1}
        known = self._known_epoch(batch.base_offset)
        if known >= 0 and known == batch.leader_epoch:
            self._last_epoch = known  # whatever the batch before said
            return
        if batch.leader_epoch < self._last_epoch:
            text = f"leader epoch {batch.leader_epoch} after {self._last_epoch}: it may not fall"
            if self.facts.mark is not None and self._promised is not None and batch.base_offset >= self._promised:
                self._book.note(path, text, "nothing to do: the next writer cuts here", **where)
            elif self.facts.mark is not None and batch.last_offset < self.facts.start:
                self._book.warn(path, f"{text}; all of its offsets are below the log's start", DELETED, **where)
            else:
                self._book.damage(path, text, ANOTHER_COPY, **where)
            return
        self._last_epoch = batch.leader_epoch
        if self._history is None or (batch.leader_epoch < 0 and (known < 0 or not self._dense)):
            return
        if known == batch.leader_epoch or (known < 0 and batch.base_offset < self.facts.start):
            return
        text = (
            f"leader epoch {batch.leader_epoch} in a batch, and by {states.EPOCHS} its offsets belong to epoch {known}"
        )
        if self.facts.mark is None:
            self._book.warn(
                path, text, "the history is rebuilt from the batches when the log is next opened for writing", **where
            )
        elif batch.base_offset < (self._promised or 0):
            self._book.damage(path, text, ANOTHER_COPY, **where)
        else:
            self._book.note(
                path, text, "nothing to do: above the synced and shown offsets, the next writer decides", **where
            )

    def _known_epoch(self, offset: int) -> int:
        """Return the leader epoch by the history that the mark confirms; -1 if the history has none."""
        slot = bisect_right(self._history_starts, offset) - 1
        return -1 if self._history is None or slot < 0 else self._history[slot][0]

    def _records(self, batch: CheckedBatch, path: str) -> None:
        where = {"position": batch.position, "start": batch.base_offset, "end": batch.last_offset + 1}
        if batch.magic < 2:
            return  # checked already: the number of its records is part of its place
        try:
            before, greatest, count = batch.base_offset - 1, -1, 0
            odd: list[int] = []
            stored, limit = batch.data[61:], self._look.max_batch_bytes
            for record in batch_records(
                batch.codec, stored, batch.record_count, batch.base_offset, batch.base_timestamp, limit
            ):
                if not before < record.offset <= batch.last_offset:
                    raise Malformed(
                        f"a record has offset {record.offset}, in a batch of {batch.base_offset} to {batch.last_offset}"
                        f" after {before}"
                    )
                before = record.offset
                greatest = max(greatest, record.timestamp)
                count += 1
                if not record.is_text:
                    odd.append(record.offset)
                if batch.is_control:
                    self._producers.marker(batch, record)
        except Unavailable as error:
            self._unavailable = str(error)
            return
        except TooLarge as error:
            advice = "to look into it, raise max_batch_bytes (--max-batch-bytes)"
            self._book.note(path, f"the records of a batch were not looked into: {error}", advice, **where)
            return
        except (Malformed, Undecodable) as error:
            codec = f" ({NAMES[batch.codec]})" if 0 < batch.codec < len(NAMES) else ""
            self._book.damage(
                path, f"the checksum is right, but the records{codec} are not: {error}", "please report this", **where
            )
            return
        if odd:
            text = (
                f"{len(odd)} records from offset {odd[0]} have header names that are not UTF-8; readers show U+FFFD for"
                " the wrong bytes"
            )
            self._book.note(path, text, position=batch.position, start=odd[0], end=odd[-1] + 1)
        if count and not batch.is_log_append_time and greatest != batch.max_timestamp:
            self._book.warn(
                path,
                f"its greatest timestamp is {greatest}, and the header says {batch.max_timestamp}",
                "searches by time may miss it",
                **where,
            )

    # -- transactions and producers --

    def _aborted(self, name: str, base: int, data: bytes | None, *, damaged: bool) -> None:
        path = self._at(name)
        found = self._producers.take_aborted()
        entries: list[states.Aborted] = []
        advice = "open the log for writing: it is rebuilt from the batches"
        if data is not None:
            try:
                entries = states.aborted(data)
            except Unreadable as error:
                self._book.warn(path, str(error), advice)
                return
            if len(data) % 34:
                self._book.warn(path, f"{len(data) % 34} bytes behind its last whole entry", advice)
        if self._producers.exact and not damaged and entries != found:
            self._book.warn(
                path,
                f"it lists {len(entries)} aborted transactions that are not the {len(found)} of its segment",
                advice,
            )
            return
        before = -1
        for slot, entry in enumerate(entries):
            if (
                not 0 <= entry.first_offset <= entry.last_offset
                or entry.last_offset <= before
                or entry.last_offset < base
            ):
                self._book.warn(path, f"entry {slot} cannot be right: {entry}", advice, position=34 * slot)
            before = entry.last_offset

    def _reach_snapshots(self, offset: int) -> None:
        """Compare with every producer snapshot up to ``offset``, which is where the batches are now, unless compaction
        may have changed their timestamps."""
        if self.facts.mark is not None and self.facts.mark.is_compacted:
            self._producers.exact = False
            return
        while self._snapshots and self._snapshots[0][0] <= offset:
            at, name = self._snapshots.pop(0)
            data = self._read(name)
            if data is None:
                continue
            try:
                producers = states.snapshot(data)
            except Unreadable as error:
                self._book.warn(
                    self._at(name),
                    str(error),
                    "nothing to do: an older one, or the batches, give the same when the log is next opened",
                )
                continue
            if at < self._whole_from:
                continue  # of records that were deleted, or lost
            if not self._producers.exact:
                if offset != _BIG:
                    self._producers.load(producers)
                continue
            difference = self._producers.differs(producers)
            if difference and at <= self.facts.end:
                self._book.warn(
                    self._at(name),
                    difference,
                    "remove it with the log closed: the state of producers is then rebuilt from the batches",
                )

    def _end(self, bases: dict[int, str]) -> None:
        if self._unrecorded[0]:
            count, size = self._unrecorded
            text = f"{size} offsets are missing in {count} gaps, and no file says whether compaction removed them"
            self._book.note(self._path, f"{text} (a broker writes none): lost records would look the same")
        if self._unavailable:
            self._book.note(self._path, self._unavailable)
        if (
            bases
            and self._promised is not None
            and self.facts.end < self._promised
            and self.facts.end != self._lost_from
        ):
            end = self.facts.end
            word = "was synced or shown to readers" if self.facts.mark is not None else "its root's checkpoints say"
            last = self._at(list(bases.values())[-1])
            self._book.damage(
                last, f"the log ends at offset {end}, before what {word}", ANOTHER_COPY, start=end, end=self._promised
            )
        mark = self.facts.mark
        end = self.facts.end if self._torn_from < 0 else self._torn_from
        if bases and mark is not None and self._promised != mark.promised and end < mark.promised:
            self._book.warn(
                self._path,
                f"the records below offset {mark.promised} were shown to readers and not synced, and the log is whole"
                f" up to {end} only",
                "take the rest from another replica if there is one: the next writer goes on from there",
                start=end,
                end=mark.promised,
            )
        if mark is not None and self._look.clean and mark.synced_end != self.facts.end:
            self._book.warn(
                self._at(states.MARK),
                f"it says that the log was closed in order at offset {mark.synced_end}, and the log ends at"
                f" {self.facts.end}",
                "open the log for writing, which looks at everything",
            )
