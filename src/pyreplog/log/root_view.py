"""The root's files for readers of its partitions: the checkpoints, and whether the machine lost power."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from pyreplog.errors import CorruptError
from pyreplog.log.clean_shutdown import read_farewell, read_incarnation
from pyreplog.log.layout import join
from pyreplog.log.snapshot import read_offsets
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition


class RootView:
    """The files of the root at ``path``, each read at its first use and kept.

    A caller that opens many partitions at once shares one view.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._offsets: dict[str, Mapping[TopicPartition, int]] = {}

    @cached_property
    def lost_power(self) -> bool | None:
        """Whether the machine restarted since the last write to the root and no writer has recovered the
        logs since. None if no file tells it."""
        if read_farewell(self._disk, self._path) is not None:
            return False
        incarnation = read_incarnation(self._disk, self._path)
        return None if incarnation is None else not incarnation.boot_id == self._disk.boot_id(self._path) != ""

    def offset(self, name: str, topic_partition: TopicPartition) -> int | None:
        """Return the entry of a partition in the checkpoint ``name``; None if it has none."""
        if name not in self._offsets:
            try:
                self._offsets[name] = read_offsets(self._disk, join(self._path, name))
            except CorruptError:
                self._offsets[name] = {}
        return self._offsets[name].get(topic_partition)
