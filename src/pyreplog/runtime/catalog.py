"""Catalog: the topics and partitions that a folder holds, for a process that only reads it."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Sequence
from typing import Final

from pyreplog.config import suggestion
from pyreplog.controller import STATE_FILE, ControllerState, describe_configs, describe_topics, load
from pyreplog.errors import StorageError, UnknownTopicError
from pyreplog.log import (
    METADATA_TOPIC,
    Finder,
    LogReader,
    deeper_logs,
    list_topics,
    parent_of,
    read_properties,
    untrusted,
)
from pyreplog.ports import Disk, Stat
from pyreplog.runtime.admin import PartitionDescription, TopicDescription, description_of
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    NO_LEADER,
    RESOURCE_TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeTopicPartitionsRequest,
)

__all__ = ["Catalog"]

CREATION_TIMEOUT_S: Final = 5.0
"""How long a reader waits for the folder of a partition that the controller already knows: the nodes make it a
moment later."""
LOOK_PAUSE_S: Final = 0.01


class Catalog:
    """Topics and partitions under ``path``, looked up again with every call. Any thread.

    A cluster of ours has a controller, whose file says which topics there are; then a partition without a folder is
    an error, because a topic without it would not be whole. Without that file (a broker's folder, a log root, one
    node) the folders say it.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        """Raises :class:`StorageError` if there is no such folder, or no log in it."""
        self._disk = disk
        self._path = path
        self._state: tuple[Stat, ControllerState] | None = None
        found = disk.stat(path)
        if found is None:
            raise StorageError(errno.ENOENT, "no cluster is there; Cluster(path) makes one", path)
        if not found.is_directory:
            raise StorageError(errno.ENOTDIR, "a cluster is a folder, and this is a file", path)
        if self._controller() is None and not list_topics(disk, path):
            advice = deeper_logs(disk, path) or "; Cluster(path) makes one"
            raise StorageError(errno.ENOENT, f"the folder holds no log and no cluster{advice}", path)

    @property
    def cluster_id(self) -> str:
        """The cluster's id; "" if no file says it."""
        state = self._controller()
        if state is not None:
            return state.cluster_id
        found = Finder(self._disk, self._path).claimed()
        roots = dict.fromkeys(parent_of(folder) for folders in found.values() for folder in folders)
        ids = {
            values.get("cluster.id", "") for root in roots if (values := read_properties(self._disk, root)) is not None
        }
        return ids.pop() if len(ids) == 1 else ""

    def topics(self) -> list[str]:
        """The names of all topics, sorted; a broker's own log of metadata is none."""
        state = self._controller()
        names = list_topics(self._disk, self._path) if state is None else state.image.topic_ids
        return sorted(name for name in names if name != METADATA_TOPIC)

    def numbers(self, topic: str) -> list[int]:
        """The partitions of ``topic``, rising. Raises :class:`UnknownTopicError`."""
        state = self._controller()
        if state is not None:
            found = state.image.topic(topic)
            numbers = [] if found is None else sorted(found.partitions)
        else:
            numbers = list_topics(self._disk, self._path).get(topic, [])
        if not numbers:
            known = tuple(self.topics())
            raise UnknownTopicError(
                f"{self._path} has no topic {topic!r}{suggestion(topic, known) if known else ': it holds none'}"
            )
        return numbers

    def describe(self, topic: str) -> TopicDescription:
        """What the controller wrote last; without a controller, what the folders say. Raises
        :class:`UnknownTopicError`."""
        numbers = self.numbers(topic)
        state = self._controller()
        if state is not None and state.image.topic(topic) is not None:
            answer = describe_topics(state.image, DescribeTopicPartitionsRequest([topic]))
            return description_of(answer.topics[0], describe_configs(state.image, _configs_of(topic)))
        parts: list[PartitionDescription] = []
        topic_id, settings = "", dict[str, str]()
        for reader in self.open([TopicPartition(topic, number) for number in numbers]):
            nodes = tuple(node for folder in reader.replicas if (node := self._node_of(folder)) is not None)
            parts.append(PartitionDescription(reader.partition, NO_LEADER, reader.leader_epoch, nodes, (), ()))
            topic_id = topic_id or reader.topic_id
            if reader.durability is not None and not settings:
                settings = {"durability": reader.durability, **reader.config().to_mapping()}
            reader.close()
        return TopicDescription(topic, topic_id, tuple(parts), settings)

    def open(self, partitions: Sequence[TopicPartition]) -> list[LogReader]:
        """A reader of each of these. Raises :class:`StorageError` if one of them has no folder: the others are not
        the whole then."""
        readers: list[LogReader] = []
        try:
            finder = Finder(self._disk, self._path)
            for key in partitions:
                reader = finder.open(key)
                if reader is None:  # perhaps it is being made
                    reader = self._await_folder(key)
                readers.append(reader)
        except BaseException:
            for reader in readers:
                reader.close()
            raise
        return readers

    def untrusted(self) -> str:
        """Why not to trust the files: others may write to their folders. Empty if only this user may."""
        folders = [folder for copies in Finder(self._disk, self._path).claimed().values() for folder in copies]
        return untrusted(self._disk, dict.fromkeys((*map(parent_of, folders), *folders)))

    def _await_folder(self, partition: TopicPartition) -> LogReader:
        deadline = time.monotonic() + CREATION_TIMEOUT_S
        pause = threading.Event()
        while True:
            reader = Finder(self._disk, self._path).open(partition)
            if reader is not None:
                return reader
            if self._controller() is None or time.monotonic() >= deadline:
                raise StorageError(
                    errno.ENOENT, f"no folder holds {partition}{self._replicas_of(partition)}", self._path
                )
            pause.wait(LOOK_PAUSE_S)

    def _replicas_of(self, partition: TopicPartition) -> str:
        """Where a copy should be, for an error; the controller knows it."""
        state = self._controller()
        found = None if state is None else state.image.topic(partition.topic)
        entry = None if found is None else found.partitions.get(partition.partition)
        if entry is None:
            return ""
        numbers = ", ".join(map(str, entry.replicas))
        return (
            f": its copies are on node {numbers}, whose folder is missing or not mounted, or the writer has not made"
            " them yet"
        )

    def _node_of(self, folder: str) -> int | None:
        """The node id in the root that the folder of a partition lies in."""
        properties = read_properties(self._disk, parent_of(folder)) or {}
        text = properties.get("node.id", properties.get("broker.id", ""))
        return int(text) if text.isascii() and text.isdigit() else None

    def _controller(self) -> ControllerState | None:
        """What the controller's file says, read again if the file was replaced; None if there is none."""
        found = self._disk.stat(f"{self._path}/{STATE_FILE}")
        if found is None:
            return None
        kept = self._state
        if kept is not None and kept[0] == found:
            return kept[1]
        try:
            state = load(self._disk, self._path)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return None
        if state is not None:
            self._state = found, state
        return state


def _configs_of(topic: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_TOPIC, topic)])
