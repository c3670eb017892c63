"""Catalog: the topics and partitions that a folder holds, for a process that only reads it."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Sequence
from typing import Final

from pyreplog.config import suggestion
from pyreplog.controller import STATE_FILE, ControllerState, describe_configs, describe_topics, image_in, load
from pyreplog.errors import StorageError, UnknownTopicError
from pyreplog.log import (
    LOG_SUFFIX,
    METADATA_FOLDER,
    Finder,
    LogReader,
    MetadataFolder,
    deeper_logs,
    find_logs,
    has_metadata,
    has_root_file,
    is_internal,
    join,
    list_topics,
    newest_metadata,
    parent_of,
    read_properties,
    untrusted,
)
from pyreplog.ports import Disk
from pyreplog.runtime.descriptions import PartitionDescription, TopicDescription, description_of
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
"""A reader waits this long for the folder of a partition that the controller knows, because the nodes make it a moment
after the controller."""
LOOK_PAUSE_S: Final = 0.01


class Catalog:
    """The topics and partitions under ``path``. Every call looks them up again. Any thread.

    If ``path`` is a pyreplog cluster, its controller's file, or else the newest metadata log of its nodes, lists the
    topics. A partition without a folder is then an error, because the topic would be incomplete. Without these (a
    broker's folder, a log root, one node) the folders are the list.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        """Raises :class:`StorageError` if there is no such folder, or no log in it."""
        self._disk = disk
        self._path = path
        self._state: tuple[object, ControllerState] | None = None
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
        """The cluster's id; "" if no file holds it."""
        state = self._controller()
        if state is not None:
            return state.cluster_id
        found = Finder(self._disk, self._path).claimed()
        roots = dict.fromkeys(parent_of(folder) for folders in found.values() for folder in folders)
        ids = {
            values.get("cluster.id", "") for root in roots if (values := read_properties(self._disk, root)) is not None
        }
        return ids.pop() if len(ids) == 1 else ""

    def topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted. ``internal``: with a broker's own topics, ``__...``, and a cluster's
        metadata log."""
        state = self._controller()
        folders = list_topics(self._disk, self._path) if state is None or internal else {}
        names = {*folders} if state is None else {*state.image.topic_ids, *filter(is_internal, folders)}
        return sorted(name for name in names if internal or not is_internal(name))

    def numbers(self, topic: str) -> list[int]:
        """Return the partition numbers of ``topic``, sorted. Raises :class:`UnknownTopicError`."""
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
        """Return the description of ``topic`` that the controller wrote last; without a controller, make it from the
        folders. Raises :class:`UnknownTopicError`."""
        numbers = self.numbers(topic)
        state = self._controller()
        if state is not None and state.image.topic(topic) is not None:
            answer = describe_topics(state.image, DescribeTopicPartitionsRequest([topic]))
            return description_of(answer, describe_configs(state.image, _configs_of(topic)))
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
        """Return a reader of each of these partitions. Raises :class:`StorageError` if one has no folder, because the
        others would be incomplete."""
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
        """Return why the files cannot be trusted: other users may write to their folders. "" if only this user
        may."""
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
        """Return the nodes that should have a copy, as the end of an error text; "" if the controller does not know the
        partition."""
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
        """Return the node id in the root that holds the partition's ``folder``; None if there is none."""
        properties = read_properties(self._disk, parent_of(folder)) or {}
        text = properties.get("node.id", properties.get("broker.id", ""))
        return int(text) if text.isascii() and text.isdigit() else None

    def _controller(self) -> ControllerState | None:
        """Return the state in the controller's file, or else in the newest metadata log of the nodes, read again if it
        was changed; None if there is neither."""
        found = self._disk.stat(f"{self._path}/{STATE_FILE}")
        if found is None:
            return self._metadata()
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

    def _metadata(self) -> ControllerState | None:
        """Return the state in the newest metadata log of the nodes in the path; None if the path is no cluster's
        folder."""
        if has_root_file(self._disk, self._path):
            return None
        logs = [log for log in find_logs(self._disk, self._path).logs if log.cluster_id]
        roots = [root.path for root in logs[0].roots if has_metadata(self._disk, root.path)] if len(logs) == 1 else []
        if not roots:
            return None
        folders = [join(root, METADATA_FOLDER) for root in roots]
        found = [
            (folder, name, self._disk.stat(join(folder, name))) for folder in folders for name in self._files(folder)
        ]
        kept = self._state
        if kept is not None and kept[0] == found:
            return kept[1]
        newest = newest_metadata(self._disk, roots)
        if newest is None:
            return None
        folder = join(newest, METADATA_FOLDER)
        image = image_in(self._disk, folder, MetadataFolder(self._disk, folder).end())
        state = ControllerState(logs[0].cluster_id, image)
        self._state = found, state
        return state

    def _files(self, folder: str) -> list[str]:
        """Return the names of the segments and snapshots in a metadata folder."""
        return [name for name in self._disk.list(folder) if name.endswith((LOG_SUFFIX, ".checkpoint"))]


def _configs_of(topic: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_TOPIC, topic)])
