"""Reading without a writer: one partition, of which one or several copies lie in folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from pyreplog._core import RecordBatch
from pyreplog.config import MAX_BATCH_BYTES, LogConfig
from pyreplog.errors import (
    ConfigError,
    CorruptError,
    CorruptLogError,
    OffsetOutOfRangeError,
    PyreplogError,
    StorageError,
    TopicRecreatedError,
)
from pyreplog.log.isolation import READ_COMMITTED, CommittedSource, check_isolation
from pyreplog.log.layout import MARK_NAME, join, parent_of
from pyreplog.log.replica_view import ReplicaView
from pyreplog.log.settings import read_config
from pyreplog.record import split
from pyreplog.values import EpochEntry, TopicPartition

_CHUNK_SIZE: Final = 1 << 20

T = TypeVar("T")


class LogReader:
    """A read-only view of one partition, of which one or several copies lie in folders. One thread at a time.

    Of several copies the one with the highest leader epoch is read, up to the highest watermark among all, as far
    as their epoch histories agree. The view is that of the last :meth:`refresh`. Where another log has taken the
    place of the one that was opened, whose offsets mean other records, every look raises
    :class:`TopicRecreatedError`.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        copies: Sequence[ReplicaView],
        roots: Mapping[str, int | None] | None = None,
    ) -> None:
        """``roots``: the folders that may hold replicas that are created later, with their node ids as far as they
        are known."""
        self.topic_partition = topic_partition
        self.topic, self.partition = topic_partition
        #: The most bytes that users of this reader unpack of one compressed batch, in parts.
        self.max_batch_bytes = MAX_BATCH_BYTES
        self._copies = list(copies)
        self._roots = roots or {}
        self._chosen = self._copies[0]
        #: Where the chosen copy ends although a damaged one is known to have held more.
        self._rest: tuple[int, ReplicaView] | None = None
        #: One past the last offset that a reader may see.
        self.end_offset = 0
        self._includes_above = False
        self._choose()
        #: 22 characters; "" where the folder does not say.
        self.topic_id = self._chosen.topic_id
        #: Whether the folder was asked for its log's id since a file in it was opened by its name.
        self._is_asked = False
        #: Whether that was another one's: files of it may be open, also where the former comes
        #: back.
        self._is_another = False

    @property
    def directory(self) -> str:
        """The folder that is read."""
        return self._chosen.directory

    @property
    def start_offset(self) -> int:
        """The first offset that is there."""
        return self._chosen.start_offset

    @property
    def last_stable_offset(self) -> int:
        """Where the oldest transaction begins that is open below the high watermark; :attr:`end_offset` where none
        is."""
        return self._look(lambda: self._chosen.last_stable_offset(self.end_offset))

    @property
    def above_high_watermark(self) -> int:
        """How many offsets of whole batches the copy that is read holds at or above :attr:`end_offset`. They are
        not known to be committed.

        A log has some while its writer waits for a sync or for followers, and if the high watermark on disk is
        stale: a broker writes its own every 5 seconds, and a mark may be older than the last acknowledgement after
        power loss. 0 if the bytes cannot be read.
        """
        try:
            return max(self._look(self._chosen.log_end) - self.end_offset, 0)
        except CorruptError:
            return 0

    def include_above_high_watermark(self) -> None:
        """Read up to the last whole batch of the chosen copy from now on. A leader may truncate the records above
        the high watermark."""
        self._includes_above = True
        self._choose()

    def isolated(self, isolation: str) -> LogReader | CommittedSource:
        """What to read from: this reader for ``"read_uncommitted"``, and for ``"read_committed"`` a view of it that
        ends at the last stable offset and leaves out what was aborted. Raises :class:`ConfigError` for anything
        else."""
        return CommittedSource(self) if check_isolation(isolation) == READ_COMMITTED else self

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch in the copy that is read; -1 where there is none."""
        return self._chosen.epochs.latest

    @property
    def epochs(self) -> list[EpochEntry]:
        """The leader epoch history of the copy that is read, by rising epoch."""
        return self._chosen.epochs.entries

    @property
    def durability(self) -> str | None:
        """``"sync"`` or ``"os"``; None where the folder does not say (a broker's)."""
        return self._chosen.durability

    @property
    def flushed_offset(self) -> int:
        """Below this offset the copy that is read is on stable storage, as far as its mark tells; 0 where there is
        none."""
        return self._chosen.flushed_offset

    def config(self) -> LogConfig:
        """The settings kept with the copy that is read; Kafka's defaults, as far as a folder of Kafka's does not
        say."""
        kept = self._look(lambda: read_config(self._chosen.disk, self._chosen.directory))
        return kept or LogConfig(durability=self._chosen.durability or "os")

    @property
    def replicas(self) -> list[str]:
        """The folders that hold a copy, the one that is read among them."""
        return [copy.directory for copy in self._copies]

    @property
    def marks(self) -> list[str]:
        """The files that a writer changes whenever there is more to read: one for each copy, which need not be
        there."""
        return [join(copy.directory, MARK_NAME) for copy in self._copies]

    @property
    def unreadable_size(self) -> int:
        """Bytes of a lone copy that are no whole batch and lie where records were looked for: torn or damaged, and
        not shown."""
        return self._chosen.unreadable_size if len(self._copies) == 1 else 0

    def describe_unreadable(self, *, skips: bool = False) -> str:
        """What and where they are, in words; empty if there are none. ``skips``: for a reading that skips damage
        among the records, and tells of it."""
        if skips:
            self.see_behind()
        size, start, end = self.unreadable_size, self._chosen.unreadable_start, self.end_offset
        if not size:
            return ""
        where = ", ".join(self.replicas)
        if start < end and skips:
            return ""
        if start < end:  # records were there: what is behind the damage can still be read
            return f"{where} is damaged at offset {start}, below its end at {end}; reading stops there"
        return (
            f"{size} bytes in {where} behind offset {start} are no whole record batch (torn or damaged) and are not"
            " shown"
        )

    def segments(self) -> list[tuple[int, int]]:
        """(base offset, size in bytes) of each segment of the copy that is read, in order; of the last one, what
        was there at :meth:`refresh`."""
        return self._chosen.segments()

    def refresh(self) -> None:
        """Look at the folders again: what was appended since, which copy is ahead now, and which copies there
        are."""
        chosen = self._chosen
        was_asked, self._is_asked = self._is_asked, False
        opened = self._refresh_copies()
        openings = chosen.disk.openings
        try:
            self._choose()
        except StorageError:
            if all(chosen.disk.stat(copy.directory) is not None for copy in self._copies):
                raise
            self.refresh()  # one was moved away since it was looked at
            return
        self._check_id(self._chosen.topic_id)
        self._is_asked = was_asked and chosen is self._chosen and not opened and chosen.disk.openings == openings

    def _refresh_copies(self) -> bool:
        """Whether files were opened by their names for it. A node may make its copy later than others, and one that
        is damaged may be moved away: whoever follows a log goes on with those that are there."""
        disk = self._chosen.disk
        opened = False
        there: dict[str, ReplicaView] = {}
        failure: StorageError | None = None
        for copy in self._copies:
            try:
                opened |= copy.refresh()
                there[copy.directory] = copy
            except StorageError as error:
                if disk.stat(copy.directory) is not None:
                    raise
                failure = error
        if failure is not None and not there:
            raise failure
        for root in self._roots if len(there) < len(self._roots) else ():
            folder = join(root, f"{self.topic}-{self.partition}")
            if folder not in there and disk.stat(join(folder, MARK_NAME)) is not None:
                self._check_node(folder, there)
                there[folder] = ReplicaView(disk, folder, self.topic_partition)
                opened = True
        for copy in self._copies:
            if copy.directory not in there:
                copy.close()
        self._copies = list(there.values())
        if self._chosen.directory not in there:
            self._chosen = self._copies[0]
        return opened

    def _check_node(self, folder: str, there: Iterable[str]) -> None:
        """Raise :class:`ConfigError` if a node that has ``folder``, which is new, has another one of this partition
        among ``there``."""
        node_id = self._roots[parent_of(folder)]
        for other in there if node_id is not None else ():
            if self._roots.get(parent_of(other)) == node_id:
                raise ConfigError(
                    f"{other} and {folder} cannot be read together: node {node_id} has {self.topic}-{self.partition}"
                    " twice, so one of them is a copy. Move one of them away, or open the folder that is meant"
                )

    def see_behind(self) -> None:
        """For a reader that leaves damage out: see also the whole batches behind damage at the end of a lone folder
        without a mark."""
        if len(self._copies) == 1:
            self._look(self._chosen.see_behind)
            self.end_offset = max(self.end_offset, self._chosen.high_watermark)

    def release(self) -> None:
        """Close the files until they are needed again: for whoever has many readers."""
        for copy in self._copies:
            copy.release()

    def close(self) -> None:
        """Release the files. Twice is harmless."""
        for copy in self._copies:
            copy.close()

    def read(self, offset: int, size_max: int) -> memoryview:
        """Whole, checked batches from the one that holds ``offset`` on: up to ``size_max`` bytes, at least one
        batch; empty at the end, and where ``size_max`` is 0.

        Raises :class:`OffsetOutOfRangeError`, and :class:`CorruptLogError` for damaged ones.
        """
        return self._look(lambda: self._read(offset, size_max))

    def _read(self, offset: int, size_max: int) -> memoryview:
        self._check(offset)
        return self._chosen.read(offset, size_max, self._reach(offset))

    def batches(self, start: int, end: int) -> Iterator[RecordBatch]:
        """The checked batches that hold an offset in the half-open range, as far as a reader may see. The first may
        begin below ``start``, the last end above ``end``."""
        self._check(start)
        return self._batches(start, min(end, self.end_offset))

    def _batches(self, start: int, end: int) -> Iterator[RecordBatch]:
        while start < end:
            found = split(self.read(start, _CHUNK_SIZE))
            for batch in found:
                if batch.base_offset >= end:
                    return
                start = batch.next_offset
                yield batch
            if not found:
                before, start = start, self._reach(start)  # nothing is between
                if start <= before:
                    return  # the log was cut there meanwhile

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record whose timestamp is at least ``timestamp`` (ms); None where there
        is none."""
        return self._look(lambda: self._chosen.find_timestamp(timestamp, self.end_offset, self.max_batch_bytes))

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """The error for the batch that was read for ``offset`` and turned out to be damaged, with its place."""
        return self._look(lambda: self._chosen.damage(offset, self.end_offset, reason))

    def split_points(self, start: int, end: int, size_target: int) -> list[int]:
        """Rising offsets from ``start`` to ``end`` that cut the range into pieces of about ``size_target`` bytes,
        along index entries."""
        self._check(start)
        return self._look(lambda: self._chosen.split_points(start, min(end, self.end_offset), size_target))

    def _look(self, look: Callable[[], T]) -> T:
        """What ``look`` finds in the log that was opened. What is open is of that one; what had to be opened by its
        name may be another's, as long as the folder was not asked for its log's id since. Who finds what cannot be
        may have met such a one, too."""
        self._check_id(self._chosen.topic_id)
        disk = self._chosen.disk
        openings = disk.openings
        was_asked, self._is_asked = self._is_asked, False
        try:
            found = look()
        except PyreplogError:
            self._ask()
            raise
        self._is_asked = (was_asked and disk.openings == openings) or self._ask()
        return found

    def _ask(self) -> bool:
        """Whether the folder still names the log that was opened; False where it names none."""
        try:
            found = self._chosen.topic_id_now()
        except StorageError:
            return False
        self._check_id(found)
        return found == self.topic_id

    def _check_id(self, found: str) -> None:
        if not self.topic_id:
            self.topic_id = found  # a log of before topics had ids gets one from its first writer
        elif self._is_another or (found and found != self.topic_id):
            self._is_another = True
            advice = "Open it again to read that one"
            raise TopicRecreatedError(f"another log of its name is in {self.directory} now", advice) from None

    def _reach(self, offset: int) -> int:
        """Up to where the chosen copy is read from ``offset`` on."""
        if self._rest is None or offset >= self.end_offset:
            return self.end_offset
        rest, damaged = self._rest
        if offset >= rest:
            reason = "the only copy that had this is damaged"
            place = damaged.damage(rest, self.end_offset, reason)
            raise CorruptLogError(reason, start=offset, end=self.end_offset, file=place.file, position=place.position)
        return rest

    def _check(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset, log=str(self.topic_partition))

    def _choose(self) -> None:
        self._choose_copy()
        if self._includes_above and self._rest is None:
            self.end_offset = max(self.end_offset, self._chosen.valid_end())

    def _choose_copy(self) -> None:
        if len(self._copies) == 1:
            self._rest = None
            self.end_offset = self._chosen.high_watermark
            return
        ends = [copy.valid_end() for copy in self._copies]
        best = max(range(len(ends)), key=lambda index: (self._copies[index].epochs.latest, ends[index]))
        damaged = [copy for copy, end in zip(self._copies, ends, strict=True) if end < copy.high_watermark]
        chosen = self._chosen = self._copies[best]
        end = chosen.high_watermark
        for copy in self._copies:
            # Of a topic that was deleted and made anew an older copy may be left.
            if copy is not chosen and copy.topic_id == chosen.topic_id:
                end = max(end, min(copy.high_watermark, chosen.epochs.agrees_up_to(copy.epochs)))
        # What all live copies were seen to have may lag behind what one of them was told. What is
        # damaged does not: it was there.
        self._rest = (ends[best], damaged[0]) if damaged and ends[best] < end else None
        self.end_offset = max(end if self._rest is not None else min(end, ends[best]), chosen.start_offset)
