"""Which logs lie under a path: one log, the folders of one cluster, several independent logs, or one bare
partition.

Content and ids decide, never names or nearness (docs/guide/folders.md states the rule as a table). ``verify``,
which shares no code with this module, implements the same rule.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pyreplog.errors import ConfigError, StorageError, UnfinishedBackupError
from pyreplog.log.absent import absent_error, absent_reason, foreign_controller
from pyreplog.log.controller_file import ControllerBody, controller_body
from pyreplog.log.identity import id_for_name
from pyreplog.log.layout import directory_name, join, name_of, parent_of, parse_directory_name
from pyreplog.log.places import (
    DEPTH_MAX,
    FoundRoot,
    Places,
    find_places,
    foreign_in,
    has_root_file,
    hidden_roots,
    is_partition,
    is_refusal,
    may_be_partition,
    proves_topic,
    topic_id_of,
)
from pyreplog.log.reader import LogReader
from pyreplog.log.replica_view import ReplicaView
from pyreplog.log.root_view import RootView
from pyreplog.log.unfinished import refuse_unfinished
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition

_NAMED_MAX: Final = 5


class Conflict(NamedTuple):
    """Folders that cannot be read together, and why."""

    topic: str
    folders: list[str]
    why: str


class FoundLog:
    """One log or cluster under a path: its roots, and the partitions in them, looked up when first asked for.

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
        #: Its folder relative to the path that was looked at; "." for that path itself. Absolute if
        #: it lies elsewhere.
        self.name = name
        self.roots = list(roots)
        #: The one partition, if the path is its folder; the root is that folder then.
        self.bare = bare
        #: Partitions' folders that this process may not look into; complete after
        #: :meth:`partitions`.
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
        """Its folder; ``path`` is the path that was looked at."""
        return path if self.name == "." else self.name if self.name.startswith("/") else join(path, self.name)

    def partitions(self) -> dict[TopicPartition, list[str]]:
        """The folders of each partition, sorted by partition; conflicting ones too."""
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
        """The folders of one partition, without a look at other topics. Raises :class:`ConfigError` if the folders
        of its topic cannot be read together, and :class:`StorageError` if one of the partition's may not be looked
        into."""
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
        """Whether it holds a partition, or a folder that may be one."""
        return bool(self.partitions() or self.unreadable)

    def conflicts(self) -> list[Conflict]:
        """For each topic that cannot be read, a reason: one partition twice under one node id, or folders of
        different topics."""
        self.partitions()
        return list(self._conflicts.values())

    def check(self, topic: str | None = None, *, partial: bool = False, whole: bool = True) -> None:
        """Raise :class:`ConfigError` for a conflict of ``topic`` (None: any topic), and :class:`StorageError`,
        unless ``partial``, for a folder that may hold a part of it and may not be looked into, and if ``whole``,
        for an :meth:`absent` partition."""
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
        """The partitions of ``topic`` (None: of all topics) that are not here whole by the controller's file, each
        with the reason.

        Raises :class:`CorruptError` if the only controller's file is that of another cluster.
        """
        return self._absent(self._wanted(topic))

    def refuse_absent(self, topic: str | None = None) -> None:
        """Raise :class:`StorageError` if a partition of ``topic`` (None: of any topic) is :meth:`absent`."""
        self._refuse_absent(self._wanted(topic))

    def _wanted(self, topic: str | None) -> dict[TopicPartition, list[str]]:
        """The folders of each partition that the controller's file or a folder names."""
        known = self._state()
        named = {} if known is None else known[1].partitions
        wanted: dict[TopicPartition, list[str]] = {key: [] for key in sorted(named) if topic in (None, key.topic)}
        wanted.update({key: folders for key, folders in self.partitions().items() if topic in (None, key.topic)})
        return wanted

    def _absent(self, wanted: Mapping[TopicPartition, Sequence[str]]) -> dict[TopicPartition, str]:
        known = self._state()
        if known is None or not self._is_inside(known[0]):
            return {}  # one node of a cluster is read as it is
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
        """Whether ``home`` is the path that was looked at, or lies in it."""
        return bool(self._homes) and (home == self._homes[0] or home.startswith(join(self._homes[0], "")))

    def _state(self) -> tuple[str, ControllerBody] | None:
        """The controller's file of this cluster, with its folder; else the one that lies in the path; None if there
        is neither."""
        if not self._has_asked:
            bodies = [(home, body) for home in self._homes if (body := controller_body(self._disk, home)) is not None]
            mine = [one for one in bodies if not self.roots or one[1].cluster_id == self.cluster_id]
            foreign = [one for one in bodies if self._is_inside(one[0])]
            self._controller = next(iter(mine or foreign), None)
            self._has_asked = True
        return self._controller

    def _compare(self, found: dict[TopicPartition, list[str]]) -> dict[str, Conflict]:
        """Take the folders of earlier topics out of ``found``, and note which of the others cannot be read
        together."""
        topics: dict[str, list[str]] = {}
        for key, folders in found.items():
            topics.setdefault(key.topic, []).extend(folders)
        for topic, folders in topics.items():
            if len(folders) > 1 and (conflict := self._of_several_topics(topic, folders)) is not None:
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
            by_id.pop("", None)  # side by side in one root they need no id, but two ids contradict one another
        if len(by_id) < 2 and "" not in by_id:
            return None
        current = self._current_id(topic)
        if current in by_id:  # a node that was down while the topic was deleted and created again
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
        """The folders in its roots that are no partitions'."""
        return [folder for root in self.roots if self.bare is None for folder in foreign_in(self._disk, root.path)]


class Found:
    """What lies under a path: independent logs (in the order of their paths), foreign folders, and folders that may
    be roots and may not be looked into."""

    __slots__ = ("foreign", "logs", "path", "unreadable")

    def __init__(self, path: str, *, foreign: list[str], unreadable: dict[str, StorageError]) -> None:
        self.path = path
        self.logs: list[FoundLog] = []
        self.foreign = foreign
        self.unreadable = unreadable

    def hidden(self, disk: Disk) -> list[str]:
        """The folders of logs that lie inside another log's folder, or too deep: a reader of the path passes over
        them."""
        if any(log.bare is not None for log in self.logs):
            return []
        return hidden_roots(disk, self.path, [root.path for log in self.logs for root in log.roots])


def deeper_logs(disk: Disk, path: str) -> str:
    """The end of an error about a missing log: the logs that lie deeper below ``path``. "" if there are none."""
    hidden = find_logs(disk, path).hidden(disk)
    if not hidden:
        return ""
    named = ", ".join(hidden[:_NAMED_MAX]) + (
        f" and {len(hidden) - _NAMED_MAX} more" if len(hidden) > _NAMED_MAX else ""
    )
    return f": pyreplog looks {DEPTH_MAX} folders deep, and there are logs deeper ({named}). Name one of these folders"


def find_logs(disk: Disk, path: str) -> Found:
    """The independent logs and clusters under ``path``, which may be a root, a cluster's folder, a bare partition,
    or a folder of many.

    Raises :class:`StorageError` if there is no such folder.
    """
    return _group(disk, find_places(disk, path))


def _group(disk: Disk, places: Places) -> Found:
    found = Found(places.path, foreign=places.foreign, unreadable=places.unreadable)
    if places.bare is not None:
        found.logs.append(FoundLog(disk, ".", [FoundRoot(places.path, has_files=False)], places.bare))
        return found
    groups = _of_one_cluster(places.roots)
    if not any(root.cluster_id for root in places.roots) and len(groups) > 1:
        groups = _of_shared_topics(disk, groups)
    for group in groups:
        homes = dict.fromkeys(
            [places.path, *filter(None, (root.home for root in group)), *(parent_of(root.path) for root in group)]
        )
        found.logs.append(FoundLog(disk, _name_of(places, group), group, homes=list(homes)))
    return found


def _of_one_cluster(roots: Sequence[FoundRoot]) -> list[list[FoundRoot]]:
    """``roots`` by their cluster ids; each of those without one by itself."""
    groups: dict[str, list[FoundRoot]] = {}
    for root in roots:
        groups.setdefault(root.cluster_id or join(root.path, ""), []).append(root)
    return list(groups.values())


def _of_shared_topics(disk: Disk, groups: Sequence[list[FoundRoot]]) -> list[list[FoundRoot]]:
    """``groups`` of which no root names its cluster, united if they hold partitions of one topic id."""
    united: list[tuple[set[tuple[str, str]], list[FoundRoot]]] = []
    for group in groups:
        partitions = FoundLog(disk, "", group).partitions()
        ids = {(key.topic, topic_id_of(disk, folder)) for key, folders in partitions.items() for folder in folders}
        ids = {
            (topic, topic_id) for topic, topic_id in ids if proves_topic(topic_id) and topic_id != id_for_name(topic)
        }
        roots = list(group)
        apart = []
        for others, other_roots in united:
            if ids.isdisjoint(others):
                apart.append((others, other_roots))
            else:
                ids, roots = ids | others, other_roots + roots
        united = [*apart, (ids, roots)]
    order = {root: number for number, group in enumerate(groups) for root in group}
    return sorted((sorted(roots, key=order.__getitem__) for _, roots in united), key=lambda roots: order[roots[0]])


def _name_of(places: Places, group: Sequence[FoundRoot]) -> str:
    """The folder that holds the roots of ``group`` and no other, relative to the path; else the first of those
    roots."""
    if places.is_listed and len({root.cluster_id for root in places.roots}) == 1:
        return "."
    if group[0].home and group[0].home != places.path:
        return group[0].home.removeprefix(places.path).strip("/")
    common = group[0].path
    while any(root.path != common and not root.path.startswith(join(common, "")) for root in group):
        common = parent_of(common)
    if any(root not in group and root.path.startswith(join(common, "")) for root in places.roots):
        common = group[0].path
    if common != places.path and not common.startswith(join(places.path, "")):
        return common  # a node on another disk
    return common.removeprefix(places.path).strip("/") or "."


def find_roots(disk: Disk, path: str, depth: int = DEPTH_MAX) -> list[str]:
    """The folders under ``path``, itself among them, that have the files of a root, sorted: of one log, one
    cluster, or several.

    ``depth``: look so many folders deep at most. Raises :class:`StorageError` if there is no such folder.
    """
    return [root.path for root in find_places(disk, path, depth).roots if root.has_files]


class Finder:
    """The partitions of the one log under ``path``, as they were when it was made. Short-lived: make another one
    for a fresh look.

    Every question raises :class:`ConfigError` if several independent logs are there, or one partition twice under
    one node id, because one log is meant; and :class:`StorageError` if a folder that may belong to the log may not
    be looked into. ``partial``: leave out folders that may not be looked into; the caller names them.
    """

    def __init__(self, disk: Disk, path: str, *, partial: bool = False) -> None:
        """Raises :class:`StorageError` if there is no such folder."""
        self._disk = disk
        self._partial = partial
        self._views: dict[str, RootView] = {}
        self._log: FoundLog | None = None
        self._is_finished = False
        #: All that lies under the path.
        self.found = find_logs(disk, path)

    @classmethod
    def of(cls, disk: Disk, found: Found, log: FoundLog, *, partial: bool = False) -> Finder:
        """A finder of ``log``, one of several in ``found``."""
        finder = cls.__new__(cls)
        finder._disk, finder._partial, finder._views, finder._log, finder._is_finished = disk, partial, {}, log, False
        finder.found = found
        return finder

    @property
    def log(self) -> FoundLog | None:
        """The one log that is meant; None if there is none."""
        if self._log is None:
            found = self.found
            if not self._partial:
                for folder, error in found.unreadable.items():
                    raise unreadable(folder, error)
            logs = found.logs if len(found.logs) < 2 else [log for log in found.logs if log.has_partitions()]
            if len(logs) > 1:
                raise several_logs(found.path, logs)
            self._log = logs[0] if logs else None
        return self._log

    def _finished(self) -> FoundLog | None:
        """The one log that is meant. Raises :class:`UnfinishedBackupError` if it is a backup that was not
        finished."""
        if not self._is_finished:
            refuse_unfinished(self._disk, [self.found.path])
            log = self.log
            if log is not None:
                roots = [root.path if log.bare is None else parent_of(root.path) for root in log.roots]
                refuse_unfinished(self._disk, dict.fromkeys([log.folder(self.found.path), *roots]))
            self._is_finished = True
        return self.log

    def folders(self, topic: str | None = None, *, whole: bool = True) -> dict[TopicPartition, list[str]]:
        """The folders of each partition (of ``topic``), sorted by partition: one, or in a cluster one for each node
        that has it.

        ``whole``: raise :class:`StorageError` if the topic has an :meth:`absent` partition.
        """
        log = self._finished()
        if log is None:
            # Every node of a cluster may be away; the controller's file names the topics then.
            FoundLog(self._disk, ".", (), homes=[self.found.path]).check(topic, partial=self._partial, whole=whole)
            return {}
        log.check(topic, partial=self._partial, whole=whole)
        return {key: folders for key, folders in log.partitions().items() if topic in (None, key.topic)}

    def claimed(self) -> dict[TopicPartition, list[str]]:
        """As :meth:`folders`, with the partitions that cannot be read: :meth:`open` raises the reason for these
        alone."""
        log = self._finished()
        if log is None:
            return {}
        found = dict(log.partitions())
        for folder in log.unreadable:
            parsed = parse_directory_name(name_of(folder))
            if parsed is not None:
                found.setdefault(parsed.topic_partition, []).append(folder)
        return {key: found[key] for key in sorted(found)}

    def left_out(self, topic: str | None = None) -> list[str]:
        """The folders that may hold a part of ``topic``, or of any topic, and that may not be looked into."""
        inside = [] if self.log is None else list(self.log.unreadable)
        parsed = {folder: parse_directory_name(name_of(folder)) for folder in inside}
        mine = [
            folder
            for folder, name in parsed.items()
            if name is not None and topic in (None, name.topic_partition.topic)
        ]
        return [*self.found.unreadable, *mine]

    def absent(self, topic: str | None = None) -> dict[TopicPartition, str]:
        """The partitions that the present folders do not hold whole, each with the reason: see
        :meth:`FoundLog.absent`."""
        log = self.log or FoundLog(self._disk, ".", (), homes=[self.found.path])
        return log.absent(topic)

    def check_whole(self) -> None:
        """Raise :class:`StorageError` if a partition of the cluster is :meth:`absent`."""
        (self.log or FoundLog(self._disk, ".", (), homes=[self.found.path])).refuse_absent()

    def open(self, partition: TopicPartition) -> LogReader | None:
        """A reader of one partition, without a look at the others; None if it has no folder."""
        log = self._finished()
        if log is None:
            return None
        if self._partial:
            log.check(partition.topic, partial=True)
            folders = log.partitions().get(partition, [])
        else:
            folders = log.folders_of(partition)
        roots = {} if log.bare is not None else {root.path: root.node_id for root in log.roots}
        return LogReader(partition, [self._copy(folder, partition) for folder in folders], roots) if folders else None

    def _copy(self, folder: str, partition: TopicPartition) -> ReplicaView:
        root = parent_of(folder)
        if root not in self._views:
            self._views[root] = RootView(self._disk, root)
        return ReplicaView(self._disk, folder, partition, self._views[root])


def several_logs(path: str, logs: Sequence[FoundLog]) -> ConfigError:
    """The refusal to take one of several independent ``logs`` for the one that is meant."""
    listed = any(log.name.startswith("/") for log in logs)  # on another disk, which may hold another cluster's node
    names = [
        f"{log.name} of cluster {log.cluster_id or 'unknown'}" if listed else log.name for log in logs[:_NAMED_MAX]
    ]
    named = ", ".join(names) + (f" and {len(logs) - _NAMED_MAX} more" if len(logs) > _NAMED_MAX else "")
    return ConfigError(
        f"{path} holds {len(logs)} independent logs ({named}), and one log is meant: open one of them. To read several"
        " together, name the folder of each log to pyreplog.scan, or use `replog cat --all`, or a pattern as Spark's"
        " path"
    )


def _refused(conflict: Conflict) -> ConfigError:
    named = " and ".join(conflict.folders)
    return ConfigError(
        f"{named} cannot be read together: {conflict.why}. Move one of them away, or open the folder that is meant"
    )


def unreadable(folder: str, error: StorageError) -> StorageError:
    """The refusal to go on without ``folder``, which may not be looked into."""
    parsed = parse_directory_name(name_of(folder))
    what = "a node or a log" if parsed is None else f"{parsed.topic_partition}, a node or a log"
    text = (
        f"this process may not look into it, and it may be the folder of {what}: give it access, or move the folder"
        " away"
    )
    return StorageError(error.errno or errno.EACCES, text, folder)


def unfinished_backups(disk: Disk, found: Found) -> dict[str, UnfinishedBackupError]:
    """The backups in ``found`` that were not finished, by their folders, each with the refusal to open it."""
    errors: dict[str, UnfinishedBackupError] = {}
    places = {log.folder(found.path): [root.path for root in log.roots if log.bare is None] for log in found.logs}
    places |= {folder: [] for folder in found.foreign}  # a run that was interrupted before it had copied a file
    for folder, roots in places.items():
        try:
            refuse_unfinished(disk, dict.fromkeys([folder, *roots]))
        except UnfinishedBackupError as error:
            errors[folder] = error
        except StorageError as error:
            # A foreign folder that this process may not enter, such as `lost+found`, is passed
            # over.
            if folder not in found.foreign or error.errno not in (errno.EACCES, errno.EPERM):
                raise
    return errors


def open_readers(disk: Disk, path: str, topic: str | None = None) -> dict[TopicPartition, LogReader]:
    """A reader for every partition of the one log under ``path``, or for those of ``topic``; sorted. Nothing is
    locked or written.

    Raises as :class:`Finder` does, and :class:`CorruptError` for a message format that is not read.
    """
    readers: dict[TopicPartition, LogReader] = {}
    try:
        finder = Finder(disk, path)
        for key in finder.folders(topic):
            if (reader := finder.open(key)) is not None:
                readers[key] = reader
    except BaseException:
        for reader in readers.values():
            reader.close()
        raise
    return readers


def unsafe_permissions(disk: Disk, readers: Iterable[LogReader]) -> str:
    """As :func:`untrusted`, of the folders that ``readers`` read, and the roots that these are in."""
    folders = dict.fromkeys(directory for reader in readers for directory in reader.replicas)
    roots = [
        root for root in dict.fromkeys(map(parent_of, folders)) if root not in folders and has_root_file(disk, root)
    ]
    return untrusted(disk, (*roots, *folders))


def untrusted(disk: Disk, folders: Iterable[str]) -> str:
    """Why not to trust the content of ``folders``: the first one that others may write to, and how many more there
    are; empty if there is none. One text for all, because the folders of one log mostly have one mode."""
    found: list[StorageError] = []
    for folder in folders:
        try:
            disk.check_directory(folder, write=False)
        except StorageError as error:
            if error.errno == errno.EPERM:
                found.append(error)
    if not found:
        return ""
    count = len(found) - 1
    return str(found[0]) + (f", and so it is with {count:,} more folder{'s' if count > 1 else ''}" if count else "")


def list_topics(disk: Disk, path: str) -> dict[str, list[int]]:
    """The topics of all logs under ``path`` and their partitions that have a folder there, both sorted. Folders
    that may not be looked into are left out."""
    topics: dict[str, set[int]] = {}
    for log in find_logs(disk, path).logs:
        for topic, partition in log.partitions():
            topics.setdefault(topic, set()).add(partition)
    return {topic: sorted(topics[topic]) for topic in sorted(topics)}
