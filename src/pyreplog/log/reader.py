"""LogReader: read one partition from the folders of its copies, without a writer."""

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
from pyreplog.log.layout import CLEANER_NAME, MARK_NAME, join, parent_of
from pyreplog.log.read_committed import READ_COMMITTED, CommittedSource, check_isolation
from pyreplog.log.replica_view import ReplicaView
from pyreplog.log.settings import read_config
from pyreplog.log.snapshot import read_offsets
from pyreplog.record import split
from pyreplog.values import EpochEntry, TopicPartition

_CHUNK_SIZE: Final = 1 << 20

T = TypeVar("T")


class LogReader:
    """A read-only view of one partition that has one or several copies in folders. One thread at a time may use it.

    Of several copies, the one with the highest leader epoch is read, up to the highest high watermark of all copies,
    as far as their epoch histories agree. The view is that of the last :meth:`refresh`. If the folder holds another
    log now, whose offsets mean other records, every method that reads raises :class:`TopicRecreatedError`.
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
        #: The end of the chosen copy and a damaged copy that held records behind it, if there is
        #: such a copy.
        self._rest: tuple[int, ReplicaView] | None = None
        #: One past the last offset that a reader may see.
        self.end_offset = 0
        self._includes_above = False
        self._choose()
        #: 22 characters; "" if the folder does not name it.
        self.topic_id = self._chosen.topic_id
        #: Whether the folder's topic id was read after the last open of one of its files by name.
        self._is_asked = False
        #: Whether that id was another log's. Then files of that log may be open, even if the
        #: folder holds the first log again later.
        self._is_another = False

    @property
    def directory(self) -> str:
        """The folder of the copy that is read."""
        return self._chosen.directory

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return self._chosen.start_offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest transaction that is open below the high watermark; :attr:`end_offset` if
        none is open."""
        return self._look(lambda: self._chosen.last_stable_offset(self.end_offset))

    @property
    def above_high_watermark(self) -> int:
        """Number of offsets in whole batches at or above :attr:`end_offset` in the copy that is read. These records
        are not known to be committed.

        A log has such records while its writer waits for a sync or for followers, and if the high watermark on disk
        is stale: a broker writes it every 5 seconds, and after power loss a mark may be older than the last
        acknowledgement. 0 if the bytes cannot be read.
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
        """Return the source for an isolation level: this reader for ``"read_uncommitted"``, and for
        ``"read_committed"`` a view that ends at the last stable offset and leaves out aborted records.

        Raises :class:`ConfigError` for any other value.
        """
        return CommittedSource(self) if check_isolation(isolation) == READ_COMMITTED else self

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch in the copy that is read; -1 if there is none."""
        return self._chosen.epochs.latest

    @property
    def epochs(self) -> list[EpochEntry]:
        """The leader epoch history of the copy that is read, by rising epoch."""
        return self._chosen.epochs.entries

    @property
    def dropped_tombstone(self) -> int:
        """The highest offset of a tombstone that compaction dropped from the copy that is read; -1 if it dropped none.

        A broker keeps no such offset. There it is the last one below its ``cleaner-offset-checkpoint``, up to which it
        may have dropped some.
        """
        if self._chosen.durability is not None:
            return self._look(self._chosen.dropped_tombstone)
        path = join(parent_of(self._chosen.directory), CLEANER_NAME)
        return read_offsets(self._chosen.disk, path).get(self.topic_partition, 0) - 1

    @property
    def durability(self) -> str | None:
        """``"sync"`` or ``"os"``; None if the folder has no mark, as one of a broker."""
        return self._chosen.durability

    @property
    def flushed_offset(self) -> int:
        """The offset below which the copy that is read is on stable storage according to its mark; 0 without a
        mark."""
        return self._chosen.flushed_offset

    def config(self) -> LogConfig:
        """Return the settings kept with the copy that is read. A folder of a broker has none; then Kafka's
        defaults."""
        kept = self._look(lambda: read_config(self._chosen.disk, self._chosen.directory))
        return kept or LogConfig(durability=self._chosen.durability or "os")

    @property
    def replicas(self) -> list[str]:
        """The folders of all copies, including the copy that is read."""
        return [copy.directory for copy in self._copies]

    @property
    def marks(self) -> list[str]:
        """The paths of the marks, which a writer changes whenever there are new records to read: one for each copy.
        A file may be missing."""
        return [join(copy.directory, MARK_NAME) for copy in self._copies]

    @property
    def unreadable_size(self) -> int:
        """Number of torn or damaged bytes at the end of a single copy, which are not returned; 0 if there are
        several copies."""
        return self._chosen.unreadable_size if len(self._copies) == 1 else 0

    def describe_unreadable(self, *, skips: bool = False) -> str:
        """Return a sentence about the unreadable bytes; "" if there are none. ``skips``: the caller skips damage
        among the records and reports it itself."""
        if skips:
            self.see_behind()
        size, start, end = self.unreadable_size, self._chosen.unreadable_start, self.end_offset
        if not size:
            return ""
        where = ", ".join(self.replicas)
        if start < end and skips:
            return ""
        if start < end:  # there are readable records behind the damage
            return f"{where} is damaged at offset {start}, below its end at {end}; reading stops there"
        return (
            f"{size} bytes in {where} behind offset {start} are no whole record batch (torn or damaged) and are not"
            " shown"
        )

    def segments(self) -> list[tuple[int, int]]:
        """Return (base offset, size in bytes) of each segment of the copy that is read, in order. The last segment
        has the size that it had at the last :meth:`refresh`."""
        return self._chosen.segments()

    def refresh(self) -> None:
        """Read the folders again, to find appended records, new and removed copies, and the copy that is ahead."""
        chosen = self._chosen
        was_asked, self._is_asked = self._is_asked, False
        opened = self._refresh_copies()
        openings = chosen.disk.openings
        try:
            self._choose()
        except StorageError:
            if all(chosen.disk.stat(copy.directory) is not None for copy in self._copies):
                raise
            self.refresh()  # a copy was moved away since its refresh
            return
        self._check_id(self._chosen.topic_id)
        self._is_asked = was_asked and chosen is self._chosen and not opened and chosen.disk.openings == openings

    def _refresh_copies(self) -> bool:
        """Refresh each copy, add new copies and drop removed ones. Return whether files were opened by their names.

        A node may create its copy later than others, and a user may move a damaged copy away; the reader goes on
        with the copies that exist.
        """
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
        """Raise :class:`ConfigError` if the node of the new ``folder`` has another copy of this partition among
        ``there``."""
        node_id = self._roots[parent_of(folder)]
        for other in there if node_id is not None else ():
            if self._roots.get(parent_of(other)) == node_id:
                raise ConfigError(
                    f"{other} and {folder} cannot be read together: node {node_id} has {self.topic}-{self.partition}"
                    " twice, so one of them is a copy. Move one of them away, or open the folder that is meant"
                )

    def see_behind(self) -> None:
        """Raise :attr:`end_offset` to include whole batches behind damage at the end of a single folder without a
        mark. For a reader that skips damage."""
        if len(self._copies) == 1:
            self._look(self._chosen.see_behind)
            self.end_offset = max(self.end_offset, self._chosen.high_watermark)

    def release(self) -> None:
        """Close the files; the next read opens them again. For a caller with many readers."""
        for copy in self._copies:
            copy.release()

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        for copy in self._copies:
            copy.close()

    def read(self, offset: int, size_max: int) -> memoryview:
        """Return whole, checked batches from the one that holds ``offset`` on: up to ``size_max`` bytes, but at
        least one batch. Empty at the end, or if ``size_max`` is 0.

        Raises :class:`OffsetOutOfRangeError`, and :class:`CorruptLogError` for a damaged batch.
        """
        return self._look(lambda: self._read(offset, size_max))

    def _read(self, offset: int, size_max: int) -> memoryview:
        self._check(offset)
        return self._chosen.read(offset, size_max, self._reach(offset))

    def batches(self, start: int, end: int) -> Iterator[RecordBatch]:
        """Iterate over the checked batches that hold an offset in the half-open range, below :attr:`end_offset`. The
        first batch may begin below ``start``, and the last may end above ``end``."""
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
                before, start = start, self._reach(start)  # there is no batch in between
                if start <= before:
                    return  # the log was truncated to this offset

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record whose timestamp is at least ``timestamp`` (ms), or None."""
        return self._look(lambda: self._chosen.find_timestamp(timestamp, self.end_offset, self.max_batch_bytes))

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error for a damaged batch that was read for ``offset``, with its file and position."""
        return self._look(lambda: self._chosen.damage(offset, self.end_offset, reason))

    def missing(self, start: int, end: int) -> int:
        """Return how many offsets of the half-open range have no batch because compaction removed it. 0 if that is
        not recorded, as in a folder that a broker compacted."""
        return self._look(lambda: self._chosen.missing(start, end))

    def split_points(self, start: int, end: int, size_target: int) -> list[int]:
        """Return rising offsets from ``start`` to ``end`` that divide the range into pieces of about ``size_target``
        bytes, at index entries."""
        self._check(start)
        return self._look(lambda: self._chosen.split_points(start, min(end, self.end_offset), size_target))

    def _look(self, look: Callable[[], T]) -> T:
        """Return ``look()``. Raises :class:`TopicRecreatedError` if its result may come from another log.

        Files that were open belong to the log that was opened. A file that ``look`` opened by its name may belong to
        another log that took the folder, so the folder's topic id is read afterwards. It is also read after an
        error, which may come from such a file.
        """
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
        """Return whether the folder names the topic id of the log that was opened; False if it names none."""
        try:
            found = self._chosen.topic_id_now()
        except StorageError:
            return False
        self._check_id(found)
        return found == self.topic_id

    def _check_id(self, found: str) -> None:
        if not self.topic_id:
            self.topic_id = found  # a log from before Kafka 2.8 gets its id from its first newer writer
        elif self._is_another or (found and found != self.topic_id):
            self._is_another = True
            advice = "Open it again to read that one"
            raise TopicRecreatedError(f"another log of its name is in {self.directory} now", advice) from None

    def _reach(self, offset: int) -> int:
        """Return the offset up to which the chosen copy can be read from ``offset`` on."""
        if self._rest is None or offset >= self.end_offset:
            return self.end_offset
        rest, damaged = self._rest
        if offset >= rest:
            reason = "the only copy that held these records is damaged"
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
            # A copy of an earlier topic of this name may be left.
            if copy is not chosen and copy.topic_id == chosen.topic_id:
                end = max(end, min(copy.high_watermark, chosen.epochs.agrees_up_to(copy.epochs)))
        # A copy may have received a high watermark above the end of all copies that were read just
        # now; that is no loss. A damaged copy held the records up to its high watermark.
        self._rest = (ends[best], damaged[0]) if damaged and ends[best] < end else None
        self.end_offset = max(end if self._rest is not None else min(end, ends[best]), chosen.start_offset)
