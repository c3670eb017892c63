"""Reading without a writer: a log root, a cluster's folder with several roots, a broker's folder, or one bare partition folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyreplog._core import RecordBatch
from pyreplog.errors import OffsetOutOfRangeError
from pyreplog.log.copy import PartitionCopy
from pyreplog.log.layout import (
    INCARNATION_NAME,
    LOG_SUFFIX,
    MARK_NAME,
    META_PROPERTIES_NAME,
    PARTITION_METADATA_NAME,
    join,
    name_of,
    parse_base_offset,
    parse_directory_name,
)
from pyreplog.ports import Disk
from pyreplog.values import EpochEntry, TopicPartition

_ROOT_FILES: Final = (META_PROPERTIES_NAME, INCARNATION_NAME)


class LogReader:
    """A read-only view of one partition, of which one or several copies lie in folders. One thread at a time.

    Of several copies the one with the highest leader epoch is read, up to the highest watermark among all, as far as their epoch
    histories agree. The view is that of the last :meth:`refresh`.
    """

    def __init__(self, topic_partition: TopicPartition, copies: Sequence[PartitionCopy]) -> None:
        self.topic_partition = topic_partition
        self.topic, self.partition = topic_partition
        self._copies = list(copies)
        self._chosen = self._copies[0]
        #: One past the last offset that a reader may see.
        self.end_offset = 0
        self._choose()

    @property
    def topic_id(self) -> str:
        """22 characters; "" where the folder does not say."""
        return self._chosen.topic_id

    @property
    def directory(self) -> str:
        """The folder that is read."""
        return self._chosen.directory

    @property
    def start_offset(self) -> int:
        """The first offset that is there."""
        return self._chosen.start_offset

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
    def replicas(self) -> list[str]:
        """The folders that hold a copy, the one that is read among them."""
        return [copy.directory for copy in self._copies]

    @property
    def marks(self) -> list[str]:
        """The files that a writer changes whenever there is more to read: one for each copy, which need not be there."""
        return [join(copy.directory, MARK_NAME) for copy in self._copies]

    @property
    def unreadable_size(self) -> int:
        """Bytes of a lone copy that are no whole batch and lie where records were looked for: torn or damaged, and not shown."""
        return self._chosen.unreadable_size if len(self._copies) == 1 else 0

    def segments(self) -> list[tuple[int, int]]:
        """(base offset, size in bytes) of each segment of the copy that is read, in order; of the last one, what was there at
        :meth:`refresh`."""
        return self._chosen.segments()

    def refresh(self) -> None:
        """Look at the folders again: what was appended since, and which copy is ahead now."""
        for copy in self._copies:
            copy.refresh()
        self._choose()

    def close(self) -> None:
        """Release the files. Twice is harmless."""
        for copy in self._copies:
            copy.close()

    def read(self, offset: int, size_max: int) -> memoryview:
        """Whole, checked batches from the one that holds ``offset`` on: up to ``size_max`` bytes, at least one batch; empty at the end.

        Raises :class:`OffsetOutOfRangeError`, and :class:`CorruptLogError` for damaged ones.
        """
        self._check(offset)
        return self._chosen.read(offset, size_max, self.end_offset)

    def batches(self, start: int, end: int) -> Iterator[RecordBatch]:
        """The checked batches that hold an offset in the half-open range, as far as a reader may see. The first may begin
        below ``start``, the last end above ``end``."""
        self._check(start)
        return self._chosen.batches(start, min(end, self.end_offset), self.end_offset)

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record whose timestamp is at least ``timestamp`` (ms); None where there is none."""
        return self._chosen.find_timestamp(timestamp, self.start_offset, self.end_offset)

    def split_points(self, start: int, end: int, size_target: int) -> list[int]:
        """Rising offsets from ``start`` to ``end`` that cut the range into pieces of about ``size_target`` bytes, along index entries."""
        self._check(start)
        return self._chosen.split_points(start, min(end, self.end_offset), size_target)

    def _check(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset, log=str(self.topic_partition))

    def _choose(self) -> None:
        if len(self._copies) == 1:
            self.end_offset = self._chosen.high_watermark
            return
        ends = [copy.valid_end() for copy in self._copies]
        best = max(range(len(ends)), key=lambda index: (self._copies[index].epochs.latest, ends[index]))
        chosen = self._chosen = self._copies[best]
        end = chosen.high_watermark
        for copy in self._copies:
            # Of a topic that was deleted and made anew an older copy may be left.
            if copy is not chosen and copy.topic_id == chosen.topic_id:
                end = max(end, min(copy.high_watermark, chosen.epochs.agrees_up_to(copy.epochs)))
        self.end_offset = max(min(end, ends[best]), chosen.start_offset)


def open_readers(disk: Disk, path: str, topic: str | None = None) -> dict[TopicPartition, LogReader]:
    """A reader for every partition under ``path``, or for those of ``topic``; sorted. Nothing is locked or written.

    Raises :class:`StorageError` where there is no such folder, :class:`CorruptError` for a message format that is not read.
    """
    found = _find_partitions(disk, path)
    readers: dict[TopicPartition, LogReader] = {}
    try:
        for key in sorted(found):
            if topic is None or key.topic == topic:
                readers[key] = LogReader(key, [PartitionCopy(disk, directory, key) for directory in found[key]])
    except BaseException:
        for reader in readers.values():
            reader.close()
        raise
    return readers


def list_topics(disk: Disk, path: str) -> dict[str, list[int]]:
    """The topics under ``path`` and their partitions that have a folder there, both sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(_find_partitions(disk, path)):
        topics.setdefault(topic, []).append(partition)
    return topics


def _find_partitions(disk: Disk, path: str) -> dict[TopicPartition, list[str]]:
    """The folders of each partition under ``path``: one, or in a cluster's folder one for each node that has it."""
    names = disk.list(path)
    if any(parse_base_offset(name, LOG_SUFFIX) is not None for name in names):
        parsed = parse_directory_name(name_of(path))
        return {parsed.topic_partition if parsed is not None else TopicPartition(name_of(path), 0): [path]}
    folders = [name for name in names if (found := disk.stat(join(path, name))) is not None and found.is_directory]
    # A node's root may be called `node-1`, which would also be the name of a partition: what is in it decides.
    roots = [name for name in folders if any(disk.stat(join(join(path, name), file)) is not None for file in _ROOT_FILES)]
    found_folders: dict[TopicPartition, list[str]] = {}
    for root in [join(path, name) for name in roots] or [path]:
        for name in folders if root == path else disk.list(root):
            parsed = parse_directory_name(name)
            if parsed is not None and not parsed.kind and _is_partition(disk, join(root, name)):
                found_folders.setdefault(parsed.topic_partition, []).append(join(root, name))
    return found_folders


def _is_partition(disk: Disk, directory: str) -> bool:
    found = disk.stat(directory)
    if found is None or not found.is_directory:
        return False
    return any(name == PARTITION_METADATA_NAME or parse_base_offset(name, LOG_SUFFIX) is not None for name in disk.list(directory))
