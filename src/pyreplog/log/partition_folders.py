"""The folders of partitions in a log root: find them, reuse them, and remove them."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from pyreplog.errors import ConfigError, StorageError
from pyreplog.log.layout import (
    CLEANED_SUFFIX,
    CONFIG_NAME,
    DELETED_SUFFIX,
    EPOCHS_NAME,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MARK_NAME,
    META_PROPERTIES_NAME,
    METADATA_TOPIC,
    OWN_PREFIX,
    PARTITION_METADATA_NAME,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    directory_name,
    join,
    outgoing_name,
    parse_base_offset,
    parse_directory_name,
    segment_name,
)
from pyreplog.log.mark import find_mark
from pyreplog.log.root_discovery import is_partition, is_refusal, may_be_partition
from pyreplog.ports import Disk, RandomBytes
from pyreplog.values import TopicPartition

_EMPTY: Final = frozenset(
    segment_name(0, suffix) for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
)
_STATES: Final = (PARTITION_METADATA_NAME, CONFIG_NAME)
_PARTITION_FILES: Final = (EPOCHS_NAME, PARTITION_METADATA_NAME)
_DELETED_NAME: Final = re.compile(r".+\.[0-9a-f]{32}-delete")
_BEGUN: Final = _EMPTY | {
    MARK_NAME,
    *_STATES,
    *(name + TEMPORARY_SUFFIX for name in (*_STATES, segment_name(0, LOG_SUFFIX))),
}
"""Files that an interrupted creation of a partition, and the recovery after it, may leave in its
folder."""


class FoundPartition(NamedTuple):
    """A partition with a folder in the root. ``refusal``: the error if the folder cannot be read, else None."""

    topic_partition: TopicPartition
    refusal: StorageError | None = None


class PartitionFolders:
    """The partition folders of the root at ``path``. REQUIRES the root's lock.

    ``notes`` gets a line for each folder that should be removed and cannot be.
    """

    def __init__(self, disk: Disk, path: str, random: RandomBytes, notes: list[str]) -> None:
        self._disk = disk
        self._path = path
        self._random = random
        self._notes = notes

    def path_of(self, key: TopicPartition) -> str:
        """Return the path of the folder of the partition ``key``."""
        return join(self._path, directory_name(*key))

    def exists(self, directory: str) -> bool:
        """Return whether ``directory`` is a folder."""
        found = self._disk.stat(directory)
        return found is not None and found.is_directory

    # -- opening --

    def find(self, name: str, named: Container[TopicPartition], *, ours: bool) -> FoundPartition | None:
        """Return the partition whose log is in the folder ``name``; None if there is none.

        Finish an interrupted removal or creation. ``named``: the partitions that a checkpoint
        names; ``ours``: only pyreplog created partitions in this root. Raise :class:`ConfigError`
        if the folder is a root itself.
        """
        parsed = parse_directory_name(name)
        directory = join(self._path, name)
        if parsed is None or not self.exists(directory):
            return None
        key = parsed.topic_partition
        try:
            if self._disk.stat(join(directory, META_PROPERTIES_NAME)) is not None:
                raise ConfigError(
                    f"{self._path} holds the roots of several nodes, such as {name}: open one of them, or the cluster"
                )
            is_content = is_partition(self._disk, directory)
        except StorageError as error:
            if not is_refusal(error):
                raise
            return FoundPartition(key, error) if may_be_partition(name) and not parsed.kind else None
        if parsed.kind == "delete":
            self._finish_removal(name, directory)
        if parsed.kind or key.topic == METADATA_TOPIC:
            return None
        if not is_content and key not in named:
            return None  # another program's folder, or an empty one
        try:
            self._disk.check_directory(directory)
        except StorageError as error:
            return FoundPartition(key, error)
        # A partition that a checkpoint names was complete once. If it is empty now, its end must
        # not be forgotten.
        if ours and key not in named and self.is_half_made(directory):
            self.remove([directory])
            return None
        return FoundPartition(key)

    def _finish_removal(self, name: str, directory: str) -> None:
        if not self.is_leftover(name, directory):
            self._notes.append(f"{name} is left as it is: it holds files that are not a partition's")
            return
        try:
            self.remove([directory])
        except StorageError as error:  # no partition needs this name
            self._notes.append(f"{name} is left as it is: {error}")

    def is_leftover(self, name: str, directory: str) -> bool:
        """Return whether the folder ``name`` of a partition that was being deleted holds only files of
        a partition.

        An empty folder was a partition's if its name has an id as Kafka and pyreplog write it.
        """
        names = self._disk.list(directory)
        return all(map(_of_partition, names)) if names else _DELETED_NAME.fullmatch(name) is not None

    # -- creating --

    def is_half_made(self, directory: str) -> bool:
        """Return whether the creation of this partition was interrupted.

        Then there is no mark, and only files that are written before the mark. Any other file proves
        that there were records: a segment that begins above 0, an epoch, a producer snapshot.
        """
        names = self._disk.list(directory)
        if not _BEGUN.issuperset(names) or find_mark(self._disk, directory) is not None:
            return False
        log = self._disk.stat(join(directory, segment_name(0, LOG_SUFFIX)))
        return log is None or not log.size

    def reuse(self, key: TopicPartition, directory: str) -> str | None:
        """Empty the existing folder of an interrupted creation, so that it can be used again.

        The folder itself stays, because it may be a mount point or have another owner. Return why
        the folder cannot be used; None if it can.
        """
        self._disk.check_directory(directory)
        if self.is_half_made(directory):
            self.empty(directory)
            return None
        if is_partition(self._disk, directory):
            return f"the partition {key} is there already"
        return (
            f"another program's folder has the name of the partition {key}, and is left alone: move it away, or name"
            " the topic differently"
        )

    def empty(self, directory: str) -> None:
        """Remove the files in ``directory``, durably."""
        names = self._disk.list(directory)
        for name in names:
            self._disk.remove(join(directory, name))
        if names:
            self._disk.sync_directory(directory)

    # -- removing --

    def rename_to_deleted(self, key: TopicPartition) -> str:
        """Rename the folder of ``key`` to Kafka's name for a partition that is being deleted.

        Under this name the next opening finishes an interrupted removal, and never opens a log.
        Return the new path. The caller syncs the root's folder.
        """
        return self._rename(key, "delete")

    def move_to_stray(self, key: TopicPartition) -> str:
        """Rename the folder of ``key`` to Kafka's name for a stray one, durably; return the new
        path."""
        stray = self._rename(key, "stray")
        self.sync()
        return stray

    def _rename(self, key: TopicPartition, kind: str) -> str:
        path = join(self._path, outgoing_name(key, self._random.randbytes(16).hex(), kind))
        self._disk.rename(self.path_of(key), path)
        return path

    def remove(self, directories: Sequence[str]) -> None:
        """Remove these folders with their files, durably. They must hold no folder."""
        for directory in directories:
            self._disk.check_directory(directory)
            for name in self._disk.list(directory):
                self._disk.remove(join(directory, name))
            self._disk.remove_directory(directory)
        self.sync()

    def sync(self) -> None:
        """Make the names of the folders durable."""
        self._disk.sync_directory(self._path)


def _of_partition(name: str) -> bool:
    """Return whether a file called ``name`` belongs to a partition."""
    for suffix in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX):
        name = name.removesuffix(suffix)
    is_of_segment = any(parse_base_offset(name, suffix) is not None for suffix in SEGMENT_SUFFIXES)
    return is_of_segment or name in _PARTITION_FILES or name.startswith(OWN_PREFIX)
