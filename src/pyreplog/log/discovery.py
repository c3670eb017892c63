"""Find the logs under a path: one log, the folders of one cluster, several independent logs, or one bare partition.

Files and ids decide which folders belong together, never names or their places (docs/guide/folders.md states the
rule as a table). ``verify`` implements the same rule and shares no code with this module.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import Final

from pyreplog.errors import ConfigError, StorageError, UnfinishedBackupError
from pyreplog.log.backup_note import refuse_unfinished
from pyreplog.log.found_log import FoundLog, unreadable
from pyreplog.log.identity import id_for_name
from pyreplog.log.layout import join, name_of, parent_of, parse_directory_name
from pyreplog.log.reader import LogReader
from pyreplog.log.replica_view import ReplicaView
from pyreplog.log.root_discovery import (
    DEPTH_MAX,
    FoundRoot,
    Places,
    find_places,
    has_root_file,
    hidden_roots,
    proves_topic,
    topic_id_of,
)
from pyreplog.log.root_view import RootView
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition

_NAMED_MAX: Final = 5


class Found:
    """The findings under a path: independent logs (in the order of their paths), foreign folders, and folders that
    may be roots but that this process may not read."""

    __slots__ = ("foreign", "logs", "path", "unreadable")

    def __init__(self, path: str, *, foreign: list[str], unreadable: dict[str, StorageError]) -> None:
        self.path = path
        self.logs: list[FoundLog] = []
        self.foreign = foreign
        self.unreadable = unreadable

    def hidden(self, disk: Disk) -> list[str]:
        """Return the folders of logs that a reader of the path ignores, because they lie inside another log's folder
        or too deep."""
        if any(log.bare is not None for log in self.logs):
            return []
        return hidden_roots(disk, self.path, [root.path for log in self.logs for root in log.roots])


def deeper_logs(disk: Disk, path: str) -> str:
    """Return the end of an error about a missing log: the logs that lie deeper below ``path``. "" if there are
    none."""
    hidden = find_logs(disk, path).hidden(disk)
    if not hidden:
        return ""
    named = ", ".join(hidden[:_NAMED_MAX]) + (
        f" and {len(hidden) - _NAMED_MAX} more" if len(hidden) > _NAMED_MAX else ""
    )
    return f": pyreplog looks {DEPTH_MAX} folders deep, and there are logs deeper ({named}). Name one of these folders"


def find_logs(disk: Disk, path: str) -> Found:
    """Find the independent logs and clusters under ``path``, which may be a root, a cluster's folder, a bare
    partition, or a folder of many logs.

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
    """Group ``roots`` by their cluster ids. A root without a cluster id is a group of its own."""
    groups: dict[str, list[FoundRoot]] = {}
    for root in roots:
        groups.setdefault(root.cluster_id or join(root.path, ""), []).append(root)
    return list(groups.values())


def _of_shared_topics(disk: Disk, groups: Sequence[list[FoundRoot]]) -> list[list[FoundRoot]]:
    """Unite those ``groups`` that hold partitions of the same topic id. REQUIRES that no root has a cluster id."""
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
    """Return the folder that holds the roots of ``group`` and no others, relative to the path; else the first of
    those roots."""
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
    """Return the folders that have the files of a root, ``path`` or below it, sorted. They may belong to one log,
    one cluster, or several.

    ``depth``: the number of folder levels to search. Raises :class:`StorageError` if there is no such folder.
    """
    return [root.path for root in find_places(disk, path, depth).roots if root.has_files]


class Finder:
    """The partitions of the one log under ``path`` at the time of construction. Create another finder to see
    changes.

    Every method raises :class:`ConfigError` if there are several independent logs, or one partition twice under one
    node id; and :class:`StorageError` if this process may not read a folder that may belong to the log. ``partial``:
    leave such folders out; the caller reports them.
    """

    def __init__(self, disk: Disk, path: str, *, partial: bool = False) -> None:
        """Raises :class:`StorageError` if there is no such folder."""
        self._disk = disk
        self._partial = partial
        self._views: dict[str, RootView] = {}
        self._log: FoundLog | None = None
        self._is_finished = False
        #: All findings under the path.
        self.found = find_logs(disk, path)

    @classmethod
    def of(cls, disk: Disk, found: Found, log: FoundLog, *, partial: bool = False) -> Finder:
        """Return a finder for ``log``, one of several in ``found``."""
        finder = cls.__new__(cls)
        finder._disk, finder._partial, finder._views, finder._log, finder._is_finished = disk, partial, {}, log, False
        finder.found = found
        return finder

    @property
    def log(self) -> FoundLog | None:
        """The one log under the path; None if there is none."""
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
        """Return :attr:`log`. Raises :class:`UnfinishedBackupError` if it is an unfinished backup."""
        if not self._is_finished:
            refuse_unfinished(self._disk, [self.found.path])
            log = self.log
            if log is not None:
                roots = [root.path if log.bare is None else parent_of(root.path) for root in log.roots]
                refuse_unfinished(self._disk, dict.fromkeys([log.folder(self.found.path), *roots]))
            self._is_finished = True
        return self.log

    def folders(self, topic: str | None = None, *, whole: bool = True) -> dict[TopicPartition, list[str]]:
        """Return the folders of each partition (of ``topic``), sorted by partition: one folder, or in a cluster one
        for each node that has the partition.

        ``whole``: raise :class:`StorageError` if the topic has an :meth:`absent` partition.
        """
        log = self._finished()
        if log is None:
            # The folders of all nodes of a cluster may be missing. Then the controller's file names
            # the topics.
            FoundLog(self._disk, ".", (), homes=[self.found.path]).check(topic, partial=self._partial, whole=whole)
            return {}
        log.check(topic, partial=self._partial, whole=whole)
        return {key: folders for key, folders in log.partitions().items() if topic in (None, key.topic)}

    def claimed(self) -> dict[TopicPartition, list[str]]:
        """Return the folders of each partition, including partitions that cannot be read. For those, :meth:`open`
        raises the reason."""
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
        """Return the folders that this process may not read and that may hold a part of ``topic`` (None: of any
        topic)."""
        inside = [] if self.log is None else list(self.log.unreadable)
        parsed = {folder: parse_directory_name(name_of(folder)) for folder in inside}
        mine = [
            folder
            for folder, name in parsed.items()
            if name is not None and topic in (None, name.topic_partition.topic)
        ]
        return [*self.found.unreadable, *mine]

    def absent(self, topic: str | None = None) -> dict[TopicPartition, str]:
        """Return the partitions that the present folders do not hold completely, each with the reason: see
        :meth:`FoundLog.absent`."""
        log = self.log or FoundLog(self._disk, ".", (), homes=[self.found.path])
        return log.absent(topic)

    def check_whole(self) -> None:
        """Raise :class:`StorageError` if a partition of the cluster is :meth:`absent`."""
        (self.log or FoundLog(self._disk, ".", (), homes=[self.found.path])).refuse_absent()

    def open(self, partition: TopicPartition) -> LogReader | None:
        """Return a reader of one partition, or None if it has no folder. Other partitions are not read."""
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
    """Return the error for a path that must hold one log but holds several independent ``logs``."""
    listed = any(log.name.startswith("/") for log in logs)  # a listed node elsewhere: its path does not say its cluster
    names = [
        f"{log.name} of cluster {log.cluster_id or 'unknown'}" if listed else log.name for log in logs[:_NAMED_MAX]
    ]
    named = ", ".join(names) + (f" and {len(logs) - _NAMED_MAX} more" if len(logs) > _NAMED_MAX else "")
    return ConfigError(
        f"{path} holds {len(logs)} independent logs ({named}), and one log is meant: open one of them. To read several"
        " together, name the folder of each log to pyreplog.scan, or use `replog cat --all`, or a pattern as Spark's"
        " path"
    )


def unfinished_backups(disk: Disk, found: Found) -> dict[str, UnfinishedBackupError]:
    """Return the unfinished backups in ``found`` by their folders, each with the error that opening it raises."""
    errors: dict[str, UnfinishedBackupError] = {}
    places = {log.folder(found.path): [root.path for root in log.roots if log.bare is None] for log in found.logs}
    places |= {folder: [] for folder in found.foreign}  # a backup run may have ended before it copied a file
    for folder, roots in places.items():
        try:
            refuse_unfinished(disk, dict.fromkeys([folder, *roots]))
        except UnfinishedBackupError as error:
            errors[folder] = error
        except StorageError as error:
            # A foreign folder that this process may not enter, such as `lost+found`, is ignored.
            if folder not in found.foreign or error.errno not in (errno.EACCES, errno.EPERM):
                raise
    return errors


def open_readers(disk: Disk, path: str, topic: str | None = None) -> dict[TopicPartition, LogReader]:
    """Return a reader for every partition of the one log under ``path`` (or of ``topic``), sorted. Nothing is locked
    or written.

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
    """Return :func:`untrusted` for the folders that ``readers`` read, and for their roots."""
    folders = dict.fromkeys(directory for reader in readers for directory in reader.replicas)
    roots = [
        root for root in dict.fromkeys(map(parent_of, folders)) if root not in folders and has_root_file(disk, root)
    ]
    return untrusted(disk, (*roots, *folders))


def untrusted(disk: Disk, folders: Iterable[str]) -> str:
    """Return why ``folders`` cannot be trusted: the first one that other users may write to, and the number of
    others; "" if there is none. The folders of one log mostly have one mode, so one text is enough."""
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
    """Return the topics of all logs under ``path`` and their partitions that have a folder there, both sorted.
    Folders that this process may not read are left out."""
    topics: dict[str, set[int]] = {}
    for log in find_logs(disk, path).logs:
        for topic, partition in log.partitions():
            topics.setdefault(topic, set()).add(partition)
    return {topic: sorted(topics[topic]) for topic in sorted(topics)}
