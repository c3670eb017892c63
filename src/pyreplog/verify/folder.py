"""The small files of one partition folder: mark, ids, settings, epochs, and what interrupted work left behind."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from pyreplog.errors import StorageError
from pyreplog.ports import Disk
from pyreplog.verify import states
from pyreplog.verify.batches import Broken, Window, batch_at
from pyreplog.verify.codecs import SIZE_MAX
from pyreplog.verify.findings import Level, Report
from pyreplog.verify.gaps import recorded_gaps
from pyreplog.verify.states import Slot, Unreadable

STATE_SIZE_MAX: Final = 64 << 20
GAPS_SIZE_MAX: Final = 512 << 20
PUT_BACK: Final = "nothing to do: the next opening for writing restores it from the mark, which has a checksum"
MADE_ANEW: Final = "nothing to do: it is rebuilt from the batches when the log is next opened for writing"
_SMALL_TRIES: Final = 10
_OFFSET_DIGITS: Final = 20
_OFFSET_MAX: Final = 2**63 - 1
_SEGMENT: Final = re.compile(r"([0-9]{20})\.log")
_SNAPSHOT: Final = re.compile(r"([0-9]{20})\.snapshot")
_UNREADY: Final = re.compile(r"[0-9]{20}\..*\.cleaned")
_FILE_OF_SEGMENT: Final = re.compile(r"(.*)\.(log|index|timeindex|txnindex|snapshot|gaps)", re.DOTALL)


@dataclass(slots=True)
class CheckContext:
    """The settings of a folder's check, and the root's checkpoints for it. ``recovery_point`` and ``watermark`` are
    None if the root has none."""

    deep: bool = True
    """Decode every record, not only headers and checksums."""
    max_batch_bytes: int = SIZE_MAX
    """Bytes that a compressed batch may take unpacked; the records of a larger one are not looked into."""
    clean: bool = False
    """The root was closed in order."""
    own: bool = False
    """The root is one of ours: a mark belongs into each folder."""
    identified: bool = False
    """The root is of a time when every folder has a topic id."""
    bare: bool = True
    """There is no root: only the files in the folder count."""
    rebooted: bool = False
    """The machine was restarted since the root's last life: data that only its memory had is lost."""
    recovery_point: int | None = None
    watermark: int | None = None
    log_start: int | None = None
    compare: bool = False
    """Keep each batch's offsets and checksum, to compare replicas."""


@dataclass(slots=True)
class Facts:
    """The state of a partition, as found on disk."""

    path: str
    topic: str
    partition: int
    start: int = 0
    end: int = 0
    mark: Slot | None = None
    watermark: int | None = None
    """The value in the checkpoint of its root; None if there is none."""
    topic_id: str = ""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    batches: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(base offset, last offset, leader epoch, CRC) of each good batch, where asked for."""


def read_file(disk: Disk, path: str, book: Report | None = None) -> bytes | None:
    """Return a small file's content; None if there is no such file. Raise :class:`Unreadable` if it is too large,
    or cannot be read."""
    try:
        file = disk.open(path)  # not looked at before: a link that leads nowhere is something, too
        try:
            size = file.size()
            if size > (GAPS_SIZE_MAX if ".gaps" in path[-len(".gaps.swap") :] else STATE_SIZE_MAX):
                raise Unreadable(f"{size} bytes are too many for such a file")
            data = bytes(file.read_at(0, size))
        finally:
            file.close()
    except StorageError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise Unreadable(f"it cannot be read: {error}") from None
    if book is not None:
        book.read(len(data))
        book.file_count += 1
    return data


def segment_bases(names: list[str]) -> dict[int, str]:
    """Base offset -> name of each log file, rising."""
    found = {int(match[1]): name for name in names if (match := _SEGMENT.fullmatch(name)) is not None}
    return {base: name for base, name in sorted(found.items()) if base <= _OFFSET_MAX}


def segment_files(disk: Disk, path: str, names: list[str]) -> dict[int, str]:
    """Return base offset -> name of each log file that counts in the folder at ``path``, rising. If a replacement
    of segments was interrupted, the new files (``.swap``) count instead of the files that they cover, unless some
    of them were not ready yet (``.cleaned``)."""
    found = segment_bases(names)
    unready = min((int(name[:_OFFSET_DIGITS]) for name in names if _UNREADY.fullmatch(name) is not None), default=None)
    swaps = {
        base: f"{name}.swap"
        for base, name in segment_bases(
            [name.removesuffix(".swap") for name in names if name.endswith(".swap")]
        ).items()
        if unready is None or base < unready
    }
    ends = {base: _end_of(disk, f"{path}/{name}", base) for base, name in swaps.items()}
    for base, end in ends.items():  # a gap behind the last batch replaces segments of which nothing is left
        with suppress(Unreadable):
            data = read_file(disk, f"{path}/{base:020}.gaps.swap")
            ends[base] = end if data is None else recorded_gaps(data, base).get(end, end)
    if all(end == base for base, end in ends.items()):
        # No new file has a batch, so they do not replace the existing files. Beside other files, an
        # empty one may be the first part of a split.
        swaps = {base: name for base, name in swaps.items() if base not in found}
    if not swaps:
        return found
    end = max(max(ends[base], base + 1) for base in swaps)
    left = {base: name for base, name in found.items() if not min(swaps) <= base < end}
    return dict(sorted({**left, **swaps}.items()))


def _end_of(disk: Disk, path: str, base: int) -> int:
    """Return the offset behind the last batch of a segment, as far as its headers can be followed; ``base`` if they
    cannot."""
    end, position = base, 0
    try:
        file = disk.open(path)
    except StorageError:
        return end
    try:
        window = Window(file, file.size())
        while (batch := batch_at(window, position)) is not None:
            end, position = max(end, batch.last_offset + 1), position + batch.size
    except (Broken, StorageError):
        pass
    finally:
        file.close()
    return end


def split_deleted(bases: dict[int, str], start: int) -> tuple[dict[int, str], dict[int, str]]:
    """The segments that lie wholly below ``start``, where the log begins, which the next opening for writing
    removes; and the others."""
    order = list(bases)
    below = sum(following <= start for following in order[1:])
    return {base: bases[base] for base in order[:below]}, {base: bases[base] for base in order[below:]}


def snapshots(names: list[str]) -> list[tuple[int, str]]:
    """(offset, name) of each snapshot of producers, rising."""
    return sorted((int(match[1]), name) for name in names if (match := _SNAPSHOT.fullmatch(name)) is not None)


class FolderCheck:
    """One check of the small files of one folder; their values are kept for the check of its segments."""

    def __init__(self, disk: Disk, path: str, topic: str, partition: int, look: CheckContext, book: Report) -> None:
        self._disk, self._path, self._look, self._book = disk, path, look, book
        self.facts = Facts(path, topic, partition, watermark=look.watermark)
        self._names: list[str] = []
        self._slots: list[Slot | Unreadable | None] = []
        #: Everything below this offset must be there; None where nothing says.
        self._promised: int | None = None
        self._dense = False
        #: The leader epochs that the mark vouches for.
        self._history: list[tuple[int, int]] | None = None
        self._history_starts: list[int] = []
        self._unvouched: bytes | None = None

    def look_at_small_files(self) -> None:
        """Read the mark first: the offsets that it promises are in the files at that moment, and the files only
        grow. Read again if a writer is between two of them."""
        book = self._book
        for _ in range(_SMALL_TRIES):
            self._book = own = Report(book.read)
            self._mark()
            self._names = list(self._disk.list(self._path))
            self._identity()
            self._settings()
            vouched_for = self._epochs()
            self._leftovers()
            if vouched_for and (own.worst is Level.NOTE or not self.changed_since()):
                break
        own.byte_count = 0  # counted already
        self._book = book
        book.take(own)

    def changed_since(self) -> bool:
        """Whether a writer changed the folder since the look at its mark."""
        if self._names != list(self._disk.list(self._path)):
            return True
        before, now = states.newest_slot(self._slots), self._newest_mark()
        return now is not None and (before is None or now.sequence != before.sequence)

    def _newest_mark(self) -> Slot | None:
        """As it is now."""
        data = self._read(states.MARK, quiet=True)
        return states.mark(data) if data else None

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _read(self, name: str, *, quiet: bool = False) -> bytes | None:
        try:
            return read_file(self._disk, self._at(name), None if quiet else self._book)
        except Unreadable as error:
            if not quiet:
                advice = (
                    "neither readers nor the next writer get by it: look at the disk and the file's mode; then verify"
                    " again"
                )
                self._book.damage(self._at(name), str(error), advice)
            return None

    def _gaps_of(self, base: int, names: Sequence[str], following: int | None) -> Mapping[int, int]:
        """Return the gaps that compaction left in the segment at ``base``, from the first of ``names`` that exists:
        start -> end. Only if the mark says that the log was compacted. ``following``: the next segment's base."""
        mark = self.facts.mark
        if mark is None or not mark.is_compacted:
            return {}
        name = next((name for name in names if name in self._names), "")
        data = self._read(name) if name else None
        try:
            # A follower adds to it while it writes, so its end may be torn above the durable end.
            torn = following is None or following > mark.promised
            gaps = {} if data is None else recorded_gaps(data, base, torn=torn)
            return {} if mark.is_adopted else gaps
        except Unreadable as error:
            hides = "which tombstones compaction dropped is not known"
            if not mark.is_adopted:
                hides = "gaps that compaction left in its segment look like lost records"
            text = f"not to be read: {error}; {hides}"
            advice = "take it, with its segment, from another replica or a backup; `replog repair` saves all batches"
            self._book.damage(self._at(name), text, advice)
            return {}

    def _mark(self) -> None:
        data = self._read(states.MARK)
        path = self._at(states.MARK)
        if data is None:
            if self._look.own:
                self._book.warn(
                    path,
                    "the durable mark is missing",
                    "open the log for writing: everything is scanned, and a new one is made",
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
            if any(holes) or len(data) > states.MARK_SIZE:
                self._book.warn(
                    path,
                    "there are bytes between or behind its slots, where pyreplog never writes",
                    "check the disk, and find the program that wrote them",
                )
            mark = self.facts.mark = states.mark(data)
            if len(data) < states.MARK_SIZE:
                advice = "open the log for writing: everything is scanned, and a new one is made"
                text = (
                    f"it has {len(data)} bytes where {states.MARK_SIZE} belong: none of it is believed, for the newest"
                    " may be missing"
                )
                self._book.warn(path, text, advice)
            elif mark is None:
                advice = "open the log for writing: everything is scanned, and a new one is made"
                self._book.warn(path, "none of its slots is whole: nothing says up to where the log was synced", advice)
            if mark is not None:
                self._mark_content(mark, path)
        mark = self.facts.mark
        if mark is not None:
            # As at an opening: records that were shown to readers and not synced are promised only
            # while the memory that had them lasts.
            self._promised = mark.synced_end if self._look.rebooted or mark.is_poisoned else mark.promised
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
                path,
                "a sync of this log failed: its last records may not be on the disk",
                "check the disk, then open the log for writing",
            )
        if mark.is_incomplete:
            self._book.note(
                path, "this replica may miss acknowledged records: it neither leads nor counts until it has caught up"
            )

    def _identity(self) -> None:
        data = self._read(states.IDENTITY)
        path = self._at(states.IDENTITY)
        mark = self.facts.mark
        if data is None:
            if self._look.identified or mark is not None:
                advice = "put it back: Kafka takes the folder for a stray one without it"
                self._book.warn(path, "the file with the topic's id is missing", advice if mark is None else PUT_BACK)
            return
        try:
            topic_id = states.identity(data)
        except Unreadable as error:
            advice = "write it again, with the topic id that the other replicas have"
            self._book.warn(path, f"not to be read: {error}", advice if mark is None else PUT_BACK)
            return
        if mark is not None and sum(one != other for one, other in zip(mark.topic_id, topic_id, strict=True)) == 1:
            self._book.warn(
                path, f"one letter of its topic id {topic_id} is another than in the mark's, {mark.topic_id}", PUT_BACK
            )
        elif mark is not None and mark.topic_id != topic_id:
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
                    path,
                    "the log's settings are missing",
                    "open the log with the settings that it had; defaults hold otherwise",
                )
            return
        try:
            values = states.state(data)
        except Unreadable as error:
            self._book.warn(path, f"damaged: {error}", "remove it and open the log with the settings that it had")
            return
        mark, durability = self.facts.mark, values.get("durability")
        if mark is not None and durability is not None and (durability == "sync") != mark.is_sync:
            self._book.warn(
                path,
                f"durability is {durability} here, and another in the mark",
                "remove it and open the log with the settings that it had",
            )

    def look_at_history_again(self) -> None:
        """Return whether, at the end of the check, the mark still does not confirm the epoch history."""
        data, newest = self._read(states.EPOCHS, quiet=True), self._newest_mark()
        if data is not None and data == self._unvouched and newest is not None and newest.epochs_crc != crc32c(data):
            self._book.warn(
                self._at(states.EPOCHS),
                "it is not the leader epoch history that the mark vouches for",
                MADE_ANEW,
            )

    def _epochs(self) -> bool:
        """Whether the mark vouches for the history, as far as both are there."""
        self._unvouched = None
        data = self._read(states.EPOCHS)
        path = self._at(states.EPOCHS)
        mark = self.facts.mark
        if data is None:
            if mark is not None:
                self._book.warn(path, "the leader epoch history is missing", MADE_ANEW)
            return True
        try:
            history = states.epochs(data)
        except Unreadable as error:
            self._book.warn(path, f"not to be read: {error}", MADE_ANEW)
            return True
        self.facts.epochs = history
        if mark is not None and crc32c(data) != mark.epochs_crc:
            self._unvouched = data  # a live writer may have come to the one and not yet to the other
            return False
        self._history = history
        self._history_starts = [start for _, start in history]
        return True

    def _leftovers(self) -> None:
        names = frozenset(self._names)  # a log of many segments has many indexes to look up
        for name in self._names:
            path = self._at(name)
            if name.endswith((".swap", ".cleaned")):
                self._book.warn(
                    path,
                    "replacing segments was interrupted",
                    "open the log for writing, which ends it; then verify again",
                )
            elif name.startswith("replog.torn-"):
                self._book.note(
                    path,
                    "bytes that an earlier recovery cut off the log's end were kept here",
                    "remove it when it is no longer needed",
                )
            elif (match := _FILE_OF_SEGMENT.fullmatch(name)) is None:
                continue
            elif not (match[1].isascii() and match[1].isdigit() and int(match[1]) <= _OFFSET_MAX):
                self._book.warn(
                    path,
                    "a file that Kafka would refuse to start with: its name should begin with an offset",
                    "move it away",
                )
            elif len(match[1]) != _OFFSET_DIGITS:
                self._book.warn(
                    path,
                    f"this file is never read: the offset in its name should have {_OFFSET_DIGITS} digits",
                    "move it away",
                )
            elif match[2] not in ("log", "snapshot") and f"{match[1]}.log" not in names:
                mark, base = self.facts.mark, int(match[1])
                if mark is not None and not mark.start_offset <= base < mark.promised:
                    # Between the files of one segment: its first or its last moment, as a kill may
                    # leave it or a live writer show it.
                    self._book.note(
                        path,
                        "a file of a segment that is being begun or removed",
                        "nothing to do: the next writer ends it",
                    )
                else:
                    self._book.warn(
                        path,
                        "a file without its segment",
                        "nothing to do: it is removed when the log is next opened for writing",
                    )
