"""One log or cluster that was found under a path: its roots, its partitions, and why a topic cannot be read.

Its content and ids decide which folders are replicas of one partition (docs/guide/folders.md).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyreplog.errors import ConfigError, StorageError
from pyreplog.log.cluster_metadata import metadata_body, newest_metadata
from pyreplog.log.controller_file import ControllerBody, controller_body
from pyreplog.log.layout import METADATA_TOPIC, directory_name, join, name_of, parent_of, parse_directory_name
from pyreplog.log.missing_partitions import absent_error, absent_reason, foreign_controller
from pyreplog.log.root_discovery import (
    FoundRoot,
    foreign_in,
    is_partition,
    is_refusal,
    may_be_partition,
    topic_id_of,
)
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition


class Conflict(NamedTuple):
    """Folders that cannot be read together, and the reason."""

    topic: str
    folders: list[str]
    why: str


class FoundLog:
    """One log or cluster under a path: its roots, and the partitions in them, looked up at the first use.

    Of one partition, folders under different node ids are replicas. Different partitions are parts, whatever the
    node id.
    """

    def __init__(
        self,
        disk: Disk,
        name: str,
        roots: Sequence[FoundRoot],
        bare: TopicPartition | None = None,
        homes: Sequence[str] = (),
    ) -> None:
        """``homes``: folders in which the controller's file of this cluster may lie."""
        #: Its folder relative to the path that was searched; "." for that path itself. Absolute if
        #: it lies elsewhere.
        self.name = name
        self.roots = list(roots)
        #: The one partition, if the path is its folder; the root is that folder then.
        self.bare = bare
        #: Partitions' folders that this process may not read; complete after :meth:`partitions`.
        self.unreadable: dict[str, StorageError] = {}
        #: Folders of earlier topics: the controller's file names another id for that topic.
        #: Complete after :meth:`partitions`.
        self.stale: list[str] = []
        self._disk = disk
        self._homes = homes
        self._nodes = {root.path: root.node_id for root in self.roots}
        self._controller: tuple[str, ControllerBody] | None = None
        self._has_asked = False
        self._partitions: dict[TopicPartition, list[str]] | None = None
        self._topics: dict[str, dict[TopicPartition, list[str]]] = {}
        self._conflicts: dict[str, Conflict] = {}

    def __repr__(self) -> str:
        return f"<FoundLog {self.name!r}, cluster id {self.cluster_id or 'unknown'}, {len(self.roots)} root(s)>"

    @property
    def cluster_id(self) -> str:
        """The cluster id of its roots; "" if no file names one."""
        return self.roots[0].cluster_id if self.roots else ""

    @property
    def node_ids(self) -> list[int]:
        """The node ids that its roots name, sorted."""
        return sorted({root.node_id for root in self.roots if root.node_id is not None})

    def folder(self, path: str) -> str:
        """Return its folder. ``path`` is the path that was searched."""
        return path if self.name == "." else self.name if self.name.startswith("/") else join(path, self.name)

    def partitions(self) -> dict[TopicPartition, list[str]]:
        """Return the folders of each partition, sorted by partition; conflicting ones too."""
        if self._partitions is None:
            found: dict[TopicPartition, list[str]] = {} if self.bare is None else {self.bare: [self.roots[0].path]}
            for root in self.roots if self.bare is None else ():
                for key, folder in self._in_root(root.path):
                    found.setdefault(key, []).append(folder)
            self._partitions = {key: found[key] for key in sorted(found)}
            if self.bare is None:
                self._compare(self._partitions)
        return self._partitions

    def folders_of(self, partition: TopicPartition) -> list[str]:
        """Return the folders of one partition. Folders of other topics are not read.

        Raise :class:`ConfigError` if the folders of its topic cannot be read together, and
        :class:`StorageError` if this process may not read a folder of the partition.
        """
        if self.bare is not None:
            return [self.roots[0].path] if partition == self.bare else []
        folders = self._folders_of(partition)
        self._refuse_absent({partition: folders})
        return folders

    def _folders_of(self, partition: TopicPartition) -> list[str]:
        if self._partitions is not None:
            self.check(partition.topic, whole=False)
            return self._partitions.get(partition, [])
        found = self._topics.get(partition.topic)
        if found is None:
            found = self._topics[partition.topic] = {}
            for root in self.roots:
                for key, folder in self._in_root(root.path, partition.topic):
                    found.setdefault(key, []).append(folder)
            self._compare(found)
        for root in self.roots:
            folder = join(root.path, directory_name(*partition))
            if folder in self.unreadable:
                raise unreadable(folder, self.unreadable[folder])
        if partition.topic in self._conflicts:
            raise _refused(self._conflicts[partition.topic])
        return found.get(partition, [])

    def _in_root(self, root: str, topic: str | None = None) -> list[tuple[TopicPartition, str]]:
        found = []
        for name in self._disk.list(root):
            parsed = parse_directory_name(name)
            if parsed is None or parsed.kind or topic not in (None, parsed.topic_partition.topic):
                continue
            folder = join(root, name)
            try:
                if is_partition(self._disk, folder):
                    found.append((parsed.topic_partition, folder))
            except StorageError as error:
                if not is_refusal(error):
                    raise
                if may_be_partition(name):
                    self.unreadable[folder] = error
        return found

    def has_partitions(self) -> bool:
        """Return whether it holds a partition, or a folder that may be one."""
        return bool(self.partitions() or self.unreadable)

    def conflicts(self) -> list[Conflict]:
        """Return the reason for each topic that cannot be read: one partition twice under one node id, or
        folders of different topics."""
        self.partitions()
        return list(self._conflicts.values())

    def check(self, topic: str | None = None, *, partial: bool = False, whole: bool = True) -> None:
        """Raise the error that forbids to read ``topic`` (None: any topic), if there is one.

        :class:`ConfigError`: its folders conflict. :class:`StorageError`: this process may not read a folder that
        may hold a part of it (unless ``partial``), or if ``whole``, a partition is :meth:`absent`.
        """
        self.partitions()
        for folder, error in self.unreadable.items() if not partial else ():
            parsed = parse_directory_name(name_of(folder))
            if parsed is not None and topic in (None, parsed.topic_partition.topic):
                raise unreadable(folder, error)
        conflicts = self._conflicts.values() if topic is None else filter(None, [self._conflicts.get(topic)])
        for conflict in conflicts:
            raise _refused(conflict)
        if whole and not partial:
            self.refuse_absent(topic)

    def absent(self, topic: str | None = None) -> dict[TopicPartition, str]:
        """Return the partitions of ``topic`` (None: of all topics) that these folders do not hold
        completely according to the cluster's metadata, each with the reason.

        Raise :class:`CorruptError` if the only controller's file is that of another cluster.
        """
        return self._absent(self._wanted(topic))

    def refuse_absent(self, topic: str | None = None) -> None:
        """Raise :class:`StorageError` if a partition of ``topic`` (None: of any topic) is :meth:`absent`."""
        self._refuse_absent(self._wanted(topic))

    def _wanted(self, topic: str | None) -> dict[TopicPartition, list[str]]:
        """Return the folders of each partition that the cluster's metadata or a folder names."""
        known = self._state()
        named = {} if known is None else known[1].partitions
        wanted: dict[TopicPartition, list[str]] = {key: [] for key in sorted(named) if topic in (None, key.topic)}
        wanted.update({key: folders for key, folders in self.partitions().items() if topic in (None, key.topic)})
        return wanted

    def _absent(self, wanted: Mapping[TopicPartition, Sequence[str]]) -> dict[TopicPartition, str]:
        known = self._state()
        if known is None or not self._is_inside(known[0]):
            return {}  # the path is one node of a cluster, which may be read alone
        home, body = known
        if self.cluster_id and body.cluster_id != self.cluster_id:
            raise foreign_controller(home, body, self.cluster_id, [root.path for root in self.roots])
        present = self.node_ids
        found: dict[TopicPartition, str] = {}
        for key, folders in wanted.items():
            if (members := body.partitions.get(key)) is not None:
                holders = [node for folder in folders if (node := self._nodes[parent_of(folder)]) is not None]
                if why := absent_reason(key, members, present, holders if holders or not folders else None):
                    found[key] = why
        return found

    def _refuse_absent(self, wanted: Mapping[TopicPartition, Sequence[str]]) -> None:
        if (found := self._absent(wanted)) and (known := self._state()) is not None:
            raise absent_error(self._disk, *known, found, self.node_ids)

    def _is_inside(self, home: str) -> bool:
        """Return whether ``home`` is the path that was searched, or lies in it."""
        return bool(self._homes) and (home == self._homes[0] or home.startswith(join(self._homes[0], "")))

    def _state(self) -> tuple[str, ControllerBody] | None:
        """Return the cluster's folder, and the topics by the controller's file in it, or else by the
        nodes' metadata logs; else by another controller's file in the path. None if there is none."""
        if not self._has_asked:
            bodies = [(home, body) for home in self._homes if (body := controller_body(self._disk, home)) is not None]
            mine = [one for one in bodies if not self.roots or one[1].cluster_id == self.cluster_id]
            foreign = [one for one in bodies if self._is_inside(one[0])]
            self._controller = next(iter(mine), None) or self._metadata() or next(iter(foreign), None)
            self._has_asked = True
        return self._controller

    def _metadata(self) -> tuple[str, ControllerBody] | None:
        """Return the cluster's folder and the topics by the newest metadata log of its nodes; None if no
        node has one."""
        if self.bare is not None or not self.cluster_id:
            return None
        homes = {root.path: root.home or parent_of(root.path) for root in self.roots}
        newest = newest_metadata(self._disk, list(homes))
        return None if newest is None else (homes[newest], metadata_body(self._disk, newest, self.cluster_id))

    def _compare(self, found: dict[TopicPartition, list[str]]) -> dict[str, Conflict]:
        """Remove the folders of earlier topics from ``found``, and record which of the others conflict."""
        topics: dict[str, list[str]] = {}
        for key, folders in found.items():
            topics.setdefault(key.topic, []).extend(folders)
        for topic, folders in topics.items():
            # The metadata log has the same id in every cluster, and is read on behalf of one node.
            if (
                topic != METADATA_TOPIC
                and len(folders) > 1
                and (conflict := self._of_several_topics(topic, folders)) is not None
            ):
                self._conflicts[topic] = conflict
        for key in list(found):
            found[key] = [folder for folder in found[key] if folder not in self.stale] if self.stale else found[key]
            if not found[key]:
                del found[key]
        for (topic, partition), folders in found.items():
            by_node: dict[int, list[str]] = {}
            for folder in folders if len(folders) > 1 else ():
                node_id = self._nodes[parent_of(folder)]
                if node_id is not None:
                    by_node.setdefault(node_id, []).append(folder)
            for node_id, copies in by_node.items():
                if len(copies) > 1:
                    why = f"node {node_id} has {directory_name(topic, partition)} twice, so one of them is a copy"
                    self._conflicts[topic] = Conflict(topic, copies, why)
        return self._conflicts

    def _of_several_topics(self, topic: str, folders: Sequence[str]) -> Conflict | None:
        by_id: dict[str, list[str]] = {}
        for folder in folders:
            by_id.setdefault(topic_id_of(self._disk, folder), []).append(folder)
        if "" in by_id:  # also of a folder that was removed since it was seen
            by_id[""] = [folder for folder in by_id[""] if is_partition(self._disk, folder)]
        by_id = {topic_id: there for topic_id, there in by_id.items() if there}
        if len({parent_of(folder) for folder in folders}) == 1:
            by_id.pop("", None)  # folders in one root need no id, but two different ids conflict
        if len(by_id) < 2 and "" not in by_id:
            return None
        current = self._current_id(topic)
        if current in by_id:  # a node was down while the topic was deleted and created again
            earlier = [folder for topic_id, there in by_id.items() if topic_id != current for folder in there]
            self.stale += [folder for folder in earlier if folder not in self.stale]
            return None
        if "" in by_id:
            nameless = by_id[""][0]
            others = [folder for folder in folders if parent_of(folder) != parent_of(nameless)]
            return Conflict(topic, [nameless, others[0]], f"no file in {nameless} names the id of its topic")
        ids = " and ".join(sorted(by_id))
        return Conflict(
            topic,
            [there[0] for there in by_id.values()],
            f"they are of different topics called {topic}, with the ids {ids}",
        )

    def _current_id(self, topic: str) -> str | None:
        known = self._state()
        return None if known is None or known[1].cluster_id != self.cluster_id else known[1].topic_ids.get(topic)

    def foreign(self) -> list[str]:
        """Return the folders in its roots that are no partitions'."""
        return [folder for root in self.roots if self.bare is None for folder in foreign_in(self._disk, root.path)]


def unreadable(folder: str, error: StorageError) -> StorageError:
    """Return the error for ``folder``, which this process may not read."""
    parsed = parse_directory_name(name_of(folder))
    what = "a node or a log" if parsed is None else f"{parsed.topic_partition}, a node or a log"
    text = (
        f"this process may not look into it, and it may be the folder of {what}: give it access, or move the folder"
        " away"
    )
    return StorageError(error.errno or errno.EACCES, text, folder)


def _refused(conflict: Conflict) -> ConfigError:
    named = " and ".join(conflict.folders)
    return ConfigError(
        f"{named} cannot be read together: {conflict.why}. Move one of them away, or open the folder that is meant"
    )
