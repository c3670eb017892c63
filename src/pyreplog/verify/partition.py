"""One partition folder: its mark, ids, epochs and settings, then every batch of every segment, and all of them against each other."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from pyreplog.errors import StorageError
from pyreplog.ports import Disk
from pyreplog.verify import states
from pyreplog.verify.batches import Batch, Broken, Window, batch_at, resume
from pyreplog.verify.codecs import NAMES, Unavailable, Undecodable, decompress
from pyreplog.verify.findings import Book, Level
from pyreplog.verify.indexes import REBUILT, OffsetIndexCheck, TimeIndexCheck
from pyreplog.verify.producers import Producers
from pyreplog.verify.records import Malformed, old_records_of, records_of
from pyreplog.verify.states import Slot, Unreadable

ANOTHER_COPY: Final = "take it from another replica or a backup; where there is none, `replog repair` saves the rest"
STATE_SIZE_MAX: Final = 64 << 20
_SEGMENT: Final = re.compile(r"([0-9]{1,20})\.log")
_TRIES: Final = 3
_BIG: Final = 2**63 - 1


@dataclass(slots=True)
class Look:
    """How a folder is to be looked at, and what its root says of it. ``recovery_point`` and ``watermark``: None where nothing says."""

    deep: bool = True
    """Decode every record, not only headers and checksums."""
    clean: bool = False
    """The root was closed in order."""
    own: bool = False
    """The root is one of ours: a mark belongs into each folder."""
    identified: bool = False
    """The root is of a time when every folder has a topic id."""
    bare: bool = True
    """There is no root: only what lies in the folder counts."""
    recovery_point: int | None = None
    watermark: int | None = None
    log_start: int | None = None
    compare: bool = False
    """Keep each batch's offsets and checksum, to compare replicas."""


@dataclass(slots=True)
class Facts:
    """What was found of a partition."""

    path: str
    topic: str
    partition: int
    start: int = 0
    end: int = 0
    mark: Slot | None = None
    topic_id: str = ""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    batches: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(base offset, last offset, leader epoch, CRC) of each good batch, where asked for."""


def read_file(disk: Disk, path: str, book: Book | None = None) -> bytes | None:
    """A small file; None where there is none. Raises :class:`Unreadable` where it is too large, or cannot be read."""
    try:
        if disk.stat(path) is None:
            return None
        file = disk.open(path)
        try:
            size = file.size()
            if size > STATE_SIZE_MAX:
                raise Unreadable(f"{size} bytes are too many for such a file")
            data = bytes(file.read_at(0, size))
        finally:
            file.close()
    except StorageError as error:
        raise Unreadable(f"it cannot be read: {error}") from None
    if book is not None:
        book.read(len(data))
        book.file_count += 1
    return data


def segment_bases(names: list[str]) -> dict[int, str]:
    """Base offset -> name of each log file, rising."""
    found = {int(match[1]): name for name in names if (match := _SEGMENT.fullmatch(name)) is not None}
    return dict(sorted(found.items()))


def check_partition(disk: Disk, path: str, topic: str, partition: int, look: Look, book: Book) -> Facts:
    """Verify the folder at ``path``. A writer may be at work in it: what changed while it was looked at is looked at again."""
    for attempt in range(_TRIES):
        own = Book(book.read)
        check = PartitionCheck(disk, path, topic, partition, look, own)
        facts = check.run()
        if own.worst is Level.NOTE or attempt == _TRIES - 1 or not check.changed_since():
            break
    own.byte_count = 0  # counted already
    own.partition_count = 1
    book.take(own)
    return facts


class PartitionCheck:
    """One look at one folder. Use once: :meth:`run`."""

    def __init__(self, disk: Disk, path: str, topic: str, partition: int, look: Look, book: Book) -> None:
        self._disk, self._path, self._look, self._book = disk, path, look, book
        self.facts = Facts(path, topic, partition)
        self._names: list[str] = []
        self._slots: list[Slot | Unreadable | None] = []
        #: Everything below this offset must be there; None where nothing says.
        self._promised: int | None = None
        self._dense = False
        self._history: list[tuple[int, int]] | None = None
        self._history_starts: list[int] = []
        self._expected: int | None = None
        self._last_epoch = -1
        self._producers = Producers()
        self._snapshots: list[tuple[int, str]] = []
        self._lost_from = -1
        self._unavailable = ""

    def run(self) -> Facts:
        """Everything, in order: the mark first, for what it promises is in the files by then, and they only grow."""
        self._mark()
        self._names = list(self._disk.list(self._path))
        self._identity()
        self._settings()
        self._epochs()
        self._leftovers()
        bases = segment_bases(self._names)
        self._snapshots = sorted((int(name[:-9]), name) for name in self._names if name.endswith(".snapshot") and name[:-9].isdigit())
        self._begin(bases)
        for base, name in bases.items():
            self._segment(base, name, list(bases))
        self._reach_snapshots(_BIG)
        self._end(bases)
        return self.facts

    def changed_since(self) -> bool:
        """Whether a writer changed the folder since :meth:`run` began."""
        data = self._read(states.MARK, quiet=True)
        before = states.newest_slot(self._slots)
        now = states.newest_slot(states.mark_slots(data)) if data else None
        return now is not None and (before is None or now.sequence != before.sequence)

    # -- small files --

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _read(self, name: str, *, quiet: bool = False) -> bytes | None:
        try:
            return read_file(self._disk, self._at(name), None if quiet else self._book)
        except Unreadable as error:
            if not quiet:
                self._book.warn(self._at(name), str(error), "look at the disk and the file's mode; then verify again")
            return None

    def _mark(self) -> None:
        data = self._read(states.MARK)
        path = self._at(states.MARK)
        if data is None:
            if self._look.own:
                self._book.warn(
                    path, "the durable mark is missing", "open the log for writing: everything is scanned, and a new one is made"
                )
        else:
            self._slots = states.mark_slots(data)
            for number, slot in enumerate(self._slots):
                if isinstance(slot, Unreadable):
                    self._book.warn(
                        path,
                        f"slot {number} is damaged: {slot}",
                        "open the log for writing; until then readers may see an older end of the log",
                        position=states.MARK_SLOTS[number],
                    )
            holes = b"".join(data[position + states.SLOT_SIZE : position + 512] for position in states.MARK_SLOTS[:2])
            if any(holes) or len(data) > states.MARK_SLOTS[-1] + states.SLOT_SIZE:
                self._book.warn(
                    path, "there are bytes between or behind its slots, where nothing is written", "look at the disk: who wrote them?"
                )
            whole = states.MARK_SLOTS[-1] + states.SLOT_SIZE
            if len(data) < whole:
                advice = "open the log for writing; until then readers may see an older end of the log"
                self._book.warn(path, f"it has {len(data)} bytes where {whole} belong", advice)
            mark = self.facts.mark = states.newest_slot(self._slots)
            if mark is None:
                advice = "open the log for writing: everything is scanned, and a new one is made"
                self._book.warn(path, "none of its slots is whole: nothing says up to where the log was synced", advice)
            else:
                self._mark_content(mark, path)
        mark = self.facts.mark
        if mark is not None:
            self._promised = mark.promised
            self._dense = not mark.is_adopted
            return
        known = [value for value in (self._look.watermark, self._look.recovery_point) if value is not None]
        self._promised = max(known) if known else None

    def _mark_content(self, mark: Slot, path: str) -> None:
        self.facts.topic_id = mark.topic_id
        if min(mark.start_offset, mark.synced_end, mark.high_watermark) < 0:
            self._book.warn(path, f"it holds an offset below 0: {mark}", "please report this")
        if mark.partition != self.facts.partition and not self._look.bare:
            self._book.damage(
                path,
                f"it belongs to partition {mark.partition}, and the folder is that of {self.facts.partition}",
                "the folder, or this file, was moved: put back what belongs here",
            )
        if mark.is_poisoned:
            self._book.warn(
                path, "a sync of this log failed: what is in memory may not be on the disk", "check the disk, then open the log for writing"
            )
        if mark.is_incomplete:
            self._book.note(path, "this replica may miss acknowledged records: it neither leads nor counts until it has caught up")

    def _identity(self) -> None:
        data = self._read(states.IDENTITY)
        path = self._at(states.IDENTITY)
        if data is None:
            if self._look.identified or self.facts.mark is not None:
                self._book.warn(
                    path, "the file with the topic's id is missing", "put it back: Kafka takes the folder for a stray one without it"
                )
            return
        try:
            topic_id = states.identity(data)
        except Unreadable as error:
            self._book.warn(path, f"not to be read: {error}", "write it anew, with the topic id that the other replicas have")
            return
        mark = self.facts.mark
        if mark is not None and mark.topic_id != topic_id:
            self._book.damage(
                path,
                f"it says topic id {topic_id}, and the mark says {mark.topic_id}",
                "one of the two was moved here from another topic, or its bytes changed: compare with other replicas",
            )
        self.facts.topic_id = self.facts.topic_id or topic_id

    def _settings(self) -> None:
        data = self._read(states.CONFIG)
        path = self._at(states.CONFIG)
        if data is None:
            if self.facts.mark is not None:
                self._book.warn(
                    path, "the log's settings are missing", "open the log with the settings that it had; defaults hold otherwise"
                )
            return
        try:
            values = states.state(data)
        except Unreadable as error:
            self._book.warn(path, f"not to be believed: {error}", "remove it and open the log with the settings that it had")
            return
        mark, durability = self.facts.mark, values.get("durability")
        if mark is not None and durability is not None and (durability == "sync") != mark.is_sync:
            self._book.warn(
                path,
                f"durability is {durability} here, and another in the mark",
                "remove it and open the log with the settings that it had",
            )

    def _epochs(self) -> None:
        data = self._read(states.EPOCHS)
        path = self._at(states.EPOCHS)
        mark = self.facts.mark
        if data is None:
            if mark is not None:
                self._book.warn(path, "the leader epoch history is missing", REBUILT)
            return
        try:
            history = states.epochs(data)
        except Unreadable as error:
            self._book.warn(path, f"not to be read: {error}", "nothing to do: it is made anew from the batches when the log is next opened")
            return
        self.facts.epochs = history
        if mark is not None and crc32c(data) != mark.epochs_crc:
            self._book.warn(
                path,
                "it is not the leader epoch history that the mark vouches for",
                "nothing to do: it is made anew from the batches when the log is next opened for writing",
            )
            return
        self._history = history
        self._history_starts = [start for _, start in history]

    def _leftovers(self) -> None:
        for name in self._names:
            path = self._at(name)
            if name.endswith((".swap", ".cleaned")):
                self._book.warn(path, "replacing segments was interrupted", "open the log for writing, which ends it; then verify again")
            elif name.startswith("replog.torn-"):
                self._book.note(path, "what an earlier recovery cut off the log's end was kept here", "remove it when nobody misses it")
            elif name.endswith((".log", ".index", ".timeindex", ".txnindex", ".snapshot")) and not name.partition(".")[0].isdigit():
                self._book.warn(path, "a file that Kafka would refuse to start with: its name should begin with an offset", "move it away")
            elif re.fullmatch(r"[0-9]{1,20}\.(index|timeindex|txnindex)", name) and f"{name.partition('.')[0]}.log" not in self._names:
                self._book.warn(path, "an index without its segment", REBUILT)

    # -- segments --

    def _begin(self, bases: dict[int, str]) -> None:
        mark = self.facts.mark
        first = next(iter(bases), None)
        if first is None:
            if self._promised:
                self._book.damage(
                    self._path, "the log's files are gone", ANOTHER_COPY, start=mark.start_offset if mark else 0, end=self._promised
                )
            elif self._look.own or self._look.bare:
                self._book.note(self._path, "there is no segment yet")
            return
        start = mark.start_offset if mark else max(self._look.log_start or 0, first)
        self.facts.start, self.facts.end = max(start, first), first
        if self._dense and mark is not None and first > mark.start_offset and self._promised and mark.start_offset < self._promised:
            self._book.damage(self._path, "the beginning of the log is missing", ANOTHER_COPY, start=mark.start_offset, end=first)
        if first == 0:
            self._producers.load([])

    def _segment(self, base: int, name: str, bases: list[int]) -> None:
        book, disk, path = self._book, self._disk, self._at(name)
        stem = name[:-4]
        last = base == bases[-1]
        if self._expected is not None and base != self._expected:
            self._between(base, path)
        self._expected = base if self._expected is None else max(base, self._expected)
        # The indexes first: what they name is in the log by then.
        offsets, times, aborted = (self._read(f"{stem}{suffix}") for suffix in (".index", ".timeindex", ".txnindex"))
        try:
            file = disk.open(path)
        except StorageError as error:
            if disk.stat(path) is None:
                return  # removed by retention meanwhile
            book.damage(path, f"it cannot be read: {error}", "look at the disk and the file's mode; then verify again")
            return
        try:
            size = file.size()
            if size:
                for suffix, data in ((".index", offsets), (".timeindex", times)):
                    if data is None and not last:
                        book.warn(self._at(stem + suffix), "the index is missing", REBUILT)
            index = OffsetIndexCheck(book, self._at(stem + ".index"), offsets or b"", base)
            time_index = TimeIndexCheck(book, self._at(stem + ".timeindex"), times or b"", base, exact=self.facts.mark is not None)
            book.file_count += 1
            window = Window(file, size, book.read)
            damaged = self._batches(window, base, path, index, time_index, bases)
        except StorageError as error:
            book.damage(path, f"it cannot be read: {error}", ANOTHER_COPY, start=self._expected, end=self._next_base(base, bases))
            return
        finally:
            file.close()
        if not damaged:
            index.finish(size)
            time_index.finish(closed=times is not None and (not last or (self._look.clean and self.facts.mark is not None)))
        self._aborted(stem, base, aborted, damaged=damaged)

    def _between(self, base: int, path: str) -> None:
        expected = self._expected or 0
        if base < expected:
            self._book.damage(path, "it overlaps the segment before it", ANOTHER_COPY, start=base, end=expected)
        elif self._dense:
            promised = self._promised or 0
            if expected < promised:
                self._book.damage(path, "a part of the log before it is missing", ANOTHER_COPY, start=expected, end=base)
            else:
                self._book.note(
                    path,
                    "a part of the log before it is missing: above what was ever synced or shown, so the next writer sets it aside",
                    start=expected,
                    end=base,
                )

    def _next_base(self, base: int, bases: list[int]) -> int:
        later = [other for other in bases if other > base]
        return later[0] if later else max(self._promised or 0, (self._expected or 0) + 1)

    def _batches(self, window: Window, base: int, path: str, index: OffsetIndexCheck, times: TimeIndexCheck, bases: list[int]) -> bool:
        """Every batch of one segment. Whether there was damage in it."""
        position, damaged = 0, False
        while True:
            expected = self._expected or 0
            try:
                batch = batch_at(window, position)
                if batch is None:
                    return damaged
                if batch.checksum() != batch.crc:
                    text = f"checksum mismatch in the batch of offsets {batch.base_offset} to {batch.last_offset}"
                    raise Broken(position, text, batch.size)
                self._place(batch, base, expected)
            except Broken as broken:
                damaged = True
                after = resume(window, position, expected + 1, broken.size)
                self._broken(window, broken, after, path, base, bases)
                if after is None:
                    return True
                self._producers.exact = False
                self._expected = after.base_offset
                position = after.position
                continue
            self._good(batch, path)
            if not damaged:
                index.feed(batch)
                times.feed(batch)
            position += batch.size

    def _place(self, batch: Batch, base: int, expected: int) -> None:
        """Offsets, which no checksum covers, against what lies before. Raises :class:`Broken`."""
        if batch.base_offset < expected or (self._dense and batch.base_offset != expected):
            raise Broken(batch.position, f"a batch says that it begins at offset {batch.base_offset}, and {expected} is next", 0)
        if batch.last_offset - base > 2**31 - 1:
            raise Broken(batch.position, f"offset {batch.last_offset} is too far from the segment's base", 0)
        if batch.base_offset > expected:
            self._producers.exact = False

    def _broken(self, window: Window, broken: Broken, after: Batch | None, path: str, base: int, bases: list[int]) -> None:
        start = self._expected or 0
        rest = window.size - broken.position
        promised = self._promised
        if after is None and base == bases[-1] and (promised is None or start >= promised):
            zeros = not any(any(window.take(at, 1 << 20)) for at in range(broken.position, window.size, 1 << 20))
            if zeros:
                self._book.note(
                    path, f"{rest} bytes of zeros behind the last batch: room that was reserved, or a torn tail", position=broken.position
                )
                return
            what = f"{rest} bytes behind the last whole batch, above what was synced or shown: a torn tail ({broken.reason})"
            if promised is None:
                what = f"{rest} bytes behind the last whole batch are torn or damaged, and readers stop there ({broken.reason})"
            advice = "nothing to do: the next writer cuts it and keeps what it cut beside the log"
            if self.facts.mark is not None and not self._look.clean:
                self._book.note(path, what, advice, position=broken.position, start=start, end=start)
            else:
                self._book.warn(path, what, advice, position=broken.position, start=start, end=start + 1)
            return
        end = after.base_offset if after is not None else self._next_base(base, bases)
        if promised is not None and start >= promised and self.facts.mark is not None:
            what = f"bytes above what was synced or shown are torn ({broken.reason})"
            advice = "nothing to do: the next writer cuts them and keeps what it cut beside the log"
            self._book.note(path, what, advice, position=broken.position, start=start, end=end)
            return
        self._lost_from = start
        self._book.damage(path, broken.reason, ANOTHER_COPY, position=broken.position, start=start, end=max(end, start + 1))

    def _good(self, batch: Batch, path: str) -> None:
        book = self._book
        self._reach_snapshots(batch.base_offset)
        book.batch_count += 1
        book.record_count += batch.record_count
        if batch.magic == 2:
            self._epoch(batch, path)
            if batch.attributes >> 7:
                book.warn(path, f"unknown attribute bits {batch.attributes:#x}", "readers ignore them", position=batch.position)
        if self._look.deep or batch.is_control:
            self._records(batch, path)
        if batch.producer_id >= 0 and not batch.is_control:
            self._producers.data(batch)
        self._expected = batch.last_offset + 1
        self.facts.end = max(self.facts.end, batch.last_offset + 1)
        if self._look.compare:
            self.facts.batches.append((batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc))

    def _epoch(self, batch: Batch, path: str) -> None:
        where = {"position": batch.position, "start": batch.base_offset, "end": batch.last_offset + 1}
        if batch.leader_epoch < self._last_epoch:
            text = f"leader epoch {batch.leader_epoch} after {self._last_epoch}: it may not fall"
            if self.facts.mark is not None and self._promised is not None and batch.base_offset >= self._promised:
                self._book.note(path, text, "nothing to do: the next writer cuts here", **where)
            else:
                self._book.damage(path, text, ANOTHER_COPY, **where)
            return
        self._last_epoch = batch.leader_epoch
        if self._history is None or batch.leader_epoch < 0:
            return
        slot = bisect_right(self._history_starts, batch.base_offset) - 1
        known = self._history[slot][0] if slot >= 0 else -1
        if known == batch.leader_epoch or (known < 0 and batch.base_offset < self.facts.start):
            return
        text = f"leader epoch {batch.leader_epoch} in a batch, and by {states.EPOCHS} its offsets belong to epoch {known}"
        if self.facts.mark is None:
            self._book.warn(path, text, "the history is made anew from the batches when the log is next opened for writing", **where)
        elif batch.base_offset < (self._promised or 0):
            self._book.damage(path, text, ANOTHER_COPY, **where)
        else:
            self._book.note(path, text, "nothing to do: above what was synced or shown, the next writer decides", **where)

    def _records(self, batch: Batch, path: str) -> None:
        where = {"position": batch.position, "start": batch.base_offset, "end": batch.last_offset + 1}
        try:
            if batch.magic < 2:
                old_records_of(batch.data)
                return
            payload = decompress(batch.codec, batch.data[61:])
            before, greatest, count = batch.base_offset - 1, -1, 0
            for record in records_of(payload, batch.record_count, batch.base_offset, batch.base_timestamp):
                if not before < record.offset <= batch.last_offset:
                    raise Malformed(
                        f"a record has offset {record.offset}, in a batch of {batch.base_offset} to {batch.last_offset} after {before}"
                    )
                before = record.offset
                greatest = max(greatest, record.timestamp)
                count += 1
                if batch.is_control:
                    self._producers.marker(batch, record)
        except Unavailable as error:
            self._unavailable = str(error)
            return
        except (Malformed, Undecodable) as error:
            codec = f" ({NAMES[batch.codec]})" if 0 < batch.codec < len(NAMES) else ""
            self._book.damage(path, f"the checksum is right, but the records{codec} are not: {error}", "please report this", **where)
            return
        if self._dense and count != batch.last_offset - batch.base_offset + 1:
            self._book.damage(
                path, f"{count} records in a batch of offsets {batch.base_offset} to {batch.last_offset}", "please report this", **where
            )
        if count and not batch.is_log_append_time and greatest != batch.max_timestamp:
            self._book.warn(
                path,
                f"its greatest timestamp is {greatest}, and the header says {batch.max_timestamp}",
                "searches by time may miss it",
                **where,
            )

    # -- transactions and producers --

    def _aborted(self, stem: str, base: int, data: bytes | None, *, damaged: bool) -> None:
        path = self._at(f"{stem}.txnindex")
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
            self._book.warn(path, f"it lists {len(entries)} aborted transactions that are not the {len(found)} of its segment", advice)
            return
        before = -1
        for slot, entry in enumerate(entries):
            if not 0 <= entry.first_offset <= entry.last_offset or entry.last_offset <= before or entry.last_offset < base:
                self._book.warn(path, f"entry {slot} cannot be right: {entry}", advice, position=34 * slot)
            before = entry.last_offset

    def _reach_snapshots(self, offset: int) -> None:
        """Compare with every producer snapshot up to ``offset``, which is where the batches are now."""
        while self._snapshots and self._snapshots[0][0] <= offset:
            at, name = self._snapshots.pop(0)
            data = self._read(name)
            if data is None:
                continue
            try:
                producers = states.snapshot(data)
            except Unreadable as error:
                self._book.warn(
                    self._at(name), str(error), "nothing to do: an older one, or the batches, give the same when the log is next opened"
                )
                continue
            if not self._producers.exact:
                if offset != _BIG:
                    self._producers.load(producers)
                continue
            difference = self._producers.differs(producers)
            if difference and at <= self.facts.end:
                self._book.warn(
                    self._at(name), difference, "remove it with the log closed: the state of producers is then rebuilt from the batches"
                )

    def _end(self, bases: dict[int, str]) -> None:
        if self._unavailable:
            self._book.note(self._path, self._unavailable)
        if bases and self._promised is not None and self.facts.end < self._promised and self.facts.end != self._lost_from:
            end = self.facts.end
            word = "was synced or shown to readers" if self.facts.mark is not None else "its root's checkpoints say"
            last = self._at(list(bases.values())[-1])
            self._book.damage(last, f"the log ends at offset {end}, before what {word}", ANOTHER_COPY, start=end, end=self._promised)
        mark = self.facts.mark
        if mark is not None and self._look.clean and mark.synced_end != self.facts.end:
            self._book.warn(
                self._at(states.MARK),
                f"its root was closed in order, yet it says that the log ends at {mark.synced_end}, and it ends at {self.facts.end}",
                "open the log for writing, which looks at everything",
            )
