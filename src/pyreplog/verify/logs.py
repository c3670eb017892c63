"""Which independent logs lie under a path, told apart by content and ids. Written apart from ``pyreplog.log``,
after the same rule.

The rule is a table in docs/guide/folders.md.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyreplog.errors import StorageError
from pyreplog.ports import Disk
from pyreplog.verify import states
from pyreplog.verify.folder import read_file, segment_bases
from pyreplog.verify.metadata import METADATA_TOPIC, newest_metadata
from pyreplog.verify.nodes import NODES, listed
from pyreplog.verify.states import Unreadable, partition_of

LEVELS: Final = 2
"""Roots lie at most so many folders below the path."""
_SEARCHED_LEVELS: Final = 8
_SEARCHED_MAX: Final = 5_000
_OF_A_ROOT: Final = frozenset((states.META, states.INCARNATION, states.RECOVERY_POINTS))
_OF_A_PARTITION: Final = frozenset((states.IDENTITY, states.MARK))
_LEFT: Final = re.compile(r".+\.removed(-[0-9]+)?")
_GONE: Final = (errno.ENOENT, errno.ENOTDIR)
_PLAIN: Final = re.compile(r"\w[\w.-]*", re.ASCII)
_KAFKAS_OWN_BELOW: Final = 100
"""Smaller topic ids are reserved by Kafka, and the same in every cluster."""


class RootFolder(NamedTuple):
    """A folder of partitions, and the ids in its ``meta.properties``."""

    path: str
    cluster: str | None
    node: int | None
    home: str = ""
    """The folder of the cluster that lists it."""


class Clash(NamedTuple):
    """Folders of ``topic`` that no reader takes together."""

    topic: str
    folders: tuple[str, ...]
    why: str


@dataclass(slots=True)
class OneLog:
    """A lone log or a cluster."""

    name: str
    """Its folder, relative to the path that was looked at."""
    roots: list[RootFolder]
    partitions: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    clashes: list[Clash] = field(default_factory=list)
    earlier: list[str] = field(default_factory=list)
    """Folders of topics that were deleted and created again under the same name."""


@dataclass(slots=True)
class Surroundings:
    """All that lies under a path."""

    logs: list[OneLog] = field(default_factory=list)
    bare: tuple[str, int] | None = None
    """The path is the folder of this partition."""
    foreign: list[str] = field(default_factory=list)
    refused: dict[str, StorageError] = field(default_factory=dict)
    """Folders that may be a root's or a partition's, and that this process may not enter."""

    def held(self) -> list[OneLog]:
        """The logs that have a partition."""
        return [log for log in self.logs if log.partitions]


def may_not_enter(error: StorageError) -> bool:
    """Whether the system refused this process."""
    return error.errno in (errno.EACCES, errno.EPERM)


def could_be_ours(name: str) -> bool:
    """Whether a root or a partition's folder may be called ``name``: not `lost+found`, not `.git`."""
    return _PLAIN.fullmatch(name) is not None


def is_directory(disk: Disk, path: str) -> bool:
    """Whether ``path`` is a folder."""
    found = disk.stat(path)
    return found is not None and found.is_directory


def has_left(name: str) -> bool:
    """Whether a folder of this name is that of a node that left its cluster."""
    return _LEFT.fullmatch(name) is not None


def is_partition(disk: Disk, path: str) -> bool:
    """Whether ``path`` is the folder of a partition: it holds a segment, or a small file that only a partition
    has."""
    try:
        return is_directory(disk, path) and _has_partition(list(disk.list(path)))
    except StorageError as error:
        if error.errno not in _GONE:
            raise
        return False


def _has_partition(names: Sequence[str]) -> bool:
    # A replacement of segments that was interrupted may have left no other log than those that have
    # yet to get their names.
    return not _OF_A_PARTITION.isdisjoint(names) or bool(segment_bases([name.removesuffix(".swap") for name in names]))


def look_around(disk: Disk, path: str) -> Surroundings:
    """The independent logs under ``path``. Raises :class:`StorageError` if it is no folder."""
    found = Surroundings()
    names = list(disk.list(path))
    own_name = path.rpartition("/")[2]
    if segment_bases([name.removesuffix(".swap") for name in names]):
        key = found.bare = partition_of(own_name) or (own_name, 0)
        found.logs = [OneLog(".", [RootFolder(path, None, None)], {key: [path]})]
        return found
    places = listed(disk, path)
    roots = _listed_roots(disk, path, places.values(), found.refused) if places else _roots(disk, path, found)
    ours = [*(place for root in roots for place in (root.path, root.home)), *found.refused]
    tops = {
        folder[len(path.rstrip("/")) + 1 :].partition("/")[0]
        for folder in ours
        if folder.startswith(f"{path.rstrip('/')}/")
    }
    if not (len(roots) == 1 and roots[0].path == path and not _OF_A_ROOT.isdisjoint(names)):
        found.foreign = [
            f"{path}/{name}"
            for name in names
            if name not in tops and not has_left(name) and _is_foreign(disk, f"{path}/{name}")
        ]
    for group in _groups(disk, roots):
        log = OneLog("." if places and group == roots else _common(path, group, roots), group)
        for root in group:
            _fill(disk, log, root, found)
        log.partitions = dict(sorted(log.partitions.items()))
        _compare(
            disk,
            log,
            [path, *filter(None, (root.home for root in group)), *(root.path.rpartition("/")[0] for root in group)],
        )
        found.logs.append(log)
    return found


def passed_over(disk: Disk, path: str, found: Surroundings) -> list[str]:
    """The roots below ``path`` that are inside another root, or too deep, so that no reader of ``path`` takes
    them."""
    taken = {stat.identity for log in found.logs for root in log.roots if (stat := disk.stat(root.path)) is not None}
    roots: list[str] = []
    seen: set[tuple[int, int]] = set()
    waiting = deque([(0, path)])
    while waiting and len(seen) < _SEARCHED_MAX:
        level, folder = waiting.popleft()
        try:
            stat = disk.stat(folder)
            if stat is None or not stat.is_directory or stat.identity in seen:
                continue
            names = list(disk.list(folder))
        except StorageError as error:
            if not may_not_enter(error) and error.errno not in _GONE:
                raise
            continue
        seen.add(stat.identity)
        if _has_partition(names):
            continue
        if stat.identity not in taken and not _OF_A_ROOT.isdisjoint(names):
            roots.append(folder)
        elif level < _SEARCHED_LEVELS:
            below = [name for name in names if not name.startswith(".") and not has_left(name)]
            waiting.extend((level + 1, f"{folder}/{name}") for name in below)
    return roots


def _roots(disk: Disk, path: str, found: Surroundings) -> list[RootFolder]:
    """Level by level, and never below a folder with the files of a root."""
    roots: list[tuple[int, RootFolder]] = []
    refused: list[tuple[int, str, StorageError]] = []
    seen: set[tuple[int, int]] = set()
    waiting = deque([(0, path)])
    while waiting:
        level, folder = waiting.popleft()
        try:
            stat = disk.stat(folder)
            if stat is None or not stat.is_directory or stat.identity in seen:
                continue
            names = list(disk.list(folder))
            holds = [name for name in names if partition_of(name) and _entered(disk, f"{folder}/{name}")]
            is_root = not _OF_A_ROOT.isdisjoint(names)
        except StorageError as error:
            if not level or (not may_not_enter(error) and error.errno not in _GONE):
                raise
            if may_not_enter(error) and could_be_ours(folder.rpartition("/")[2]):
                refused.append((level, folder, error))
            continue
        seen.add(stat.identity)
        nodes = listed(disk, folder) if level and not is_root and NODES in names else {}
        if nodes:
            closed: dict[str, StorageError] = {}
            elsewhere = _listed_roots(disk, folder, nodes.values(), closed)
            if not elsewhere and not closed:
                closed[folder] = StorageError(errno.ENOENT, "no node of this cluster has a folder", folder)
            roots += ((level, root) for root in elsewhere)
            refused += ((min(level, 1), place, error) for place, error in closed.items())
            continue
        if is_root or holds:
            roots.append((level, _identified(disk, folder)))
        if is_root or level >= LEVELS or (level and _has_partition(names)):
            continue
        waiting.extend(
            (level + 1, f"{folder}/{name}")
            for name in names
            if not name.startswith(".") and name not in holds and not has_left(name)
        )
    deepest = max((level for level, _ in roots), default=0)
    found.refused = {folder: error for level, folder, error in refused if level <= max(deepest, 1)}
    once: dict[tuple[int, int], RootFolder] = {}
    for _, root in sorted(roots, key=lambda one: (not one[1].home, (one[1].home or one[1].path).split("/"))):
        stat = disk.stat(root.path)
        if stat is not None:
            once.setdefault(stat.identity, root)
    return sorted(once.values(), key=lambda root: (root.home or root.path).split("/"))


def _listed_roots(disk: Disk, home: str, folders: Iterable[str], refused: dict[str, StorageError]) -> list[RootFolder]:
    """The nodes' folders that a cluster's list names, wherever they are."""
    roots = []
    for folder in folders:
        try:
            if is_directory(disk, folder) and not _OF_A_ROOT.isdisjoint(disk.list(folder)):
                roots.append(_identified(disk, folder)._replace(home=home))
        except StorageError as error:
            if not may_not_enter(error):
                raise
            refused[folder] = error
    return roots


def _entered(disk: Disk, path: str) -> bool:
    """Whether ``path`` is a partition's folder, as far as this process may look into it."""
    try:
        return is_partition(disk, path)
    except StorageError as error:
        if not may_not_enter(error):
            raise
        return False


def _is_foreign(disk: Disk, path: str) -> bool:
    return is_directory(disk, path) and not (partition_of(path.rpartition("/")[2]) and _entered(disk, path))


def _identified(disk: Disk, path: str) -> RootFolder:
    try:
        values = states.properties(read_file(disk, f"{path}/{states.META}") or b"")
    except Unreadable:
        return RootFolder(path, None, None)
    try:
        node = states.number(values.get("node.id", values.get("broker.id", "")), 0, 2**31 - 1)
    except Unreadable:
        return RootFolder(path, values.get("cluster.id") or None, None)
    return RootFolder(path, values.get("cluster.id") or None, node)


def _fill(disk: Disk, log: OneLog, root: RootFolder, found: Surroundings) -> None:
    for name in disk.list(root.path):
        key = partition_of(name)
        try:
            if key is not None and is_partition(disk, f"{root.path}/{name}"):
                log.partitions.setdefault(key, []).append(f"{root.path}/{name}")
        except StorageError as error:
            if not may_not_enter(error):
                raise
            if could_be_ours(name):
                found.refused[f"{root.path}/{name}"] = error


def _groups(disk: Disk, roots: Sequence[RootFolder]) -> list[list[RootFolder]]:
    """``roots`` of one cluster id together. If none has one, roots that share a topic id are together."""
    leader = {root.path: root.path for root in roots}

    def first_of(path: str) -> str:
        while leader[path] != path:
            path = leader[path]
        return path

    tokens: dict[object, str] = {}
    anonymous = all(root.cluster is None for root in roots) and len(roots) > 1
    for root in roots:
        marks: Iterable[object] = _topics_of(disk, root) if anonymous else [root.cluster] if root.cluster else []
        for mark in marks:
            other = tokens.setdefault(mark, root.path)
            leader[first_of(root.path)] = first_of(other)
    groups: dict[str, list[RootFolder]] = {}
    for root in roots:
        groups.setdefault(first_of(root.path), []).append(root)
    return list(groups.values())


def _topics_of(disk: Disk, root: RootFolder) -> set[object]:
    found: set[object] = set()
    for name in disk.list(root.path):
        key = partition_of(name)
        if key is not None and _entered(disk, f"{root.path}/{name}"):
            topic_id = id_of_topic(disk, f"{root.path}/{name}")
            if topic_id and _proves(key[0], base64.urlsafe_b64decode(topic_id + "==")):
                found.add((key[0], topic_id))
    return found


def _proves(topic: str, topic_id: bytes) -> bool:
    """Whether a topic id belongs to one topic alone: it is not reserved by Kafka, nor made of the topic's name."""
    of_name = hashlib.sha256(b"topic " + topic.encode()).digest()[:16]
    return (
        int.from_bytes(topic_id, "big") >= _KAFKAS_OWN_BELOW and topic_id != bytes((of_name[0] & 0x7F,)) + of_name[1:]
    )


def id_of_topic(disk: Disk, folder: str) -> str:
    """The topic id in ``partition.metadata``, else in the mark; "" if neither names one."""
    try:
        data = read_file(disk, f"{folder}/{states.IDENTITY}")
        if data is not None:
            return states.identity(data)
    except Unreadable:
        pass
    try:
        data = read_file(disk, f"{folder}/{states.MARK}")
    except Unreadable:
        return ""
    slot = states.mark(data) if data is not None else None
    return slot.topic_id if slot is not None else ""


def _common(path: str, group: Sequence[RootFolder], roots: Sequence[RootFolder]) -> str:
    """The name of a log: the deepest folder that holds its roots, unless that holds others too; then its first
    root."""
    if group[0].home and group[0].home != path:
        return group[0].home[len(path.rstrip("/")) + 1 :]
    parts = [root.path.split("/") for root in group]
    shared = 0
    while all(len(one) > shared and one[shared] == parts[0][shared] for one in parts):
        shared += 1
    folder = "/".join(parts[0][:shared])
    if any(root not in group and f"{root.path}/".startswith(f"{folder}/") and root.path != folder for root in roots):
        folder = group[0].path
    if folder != path and not folder.startswith(path.rstrip("/") + "/"):
        return folder
    return folder[len(path.rstrip("/")) + 1 :] or "."


def _compare(disk: Disk, log: OneLog, homes: Iterable[str]) -> None:
    """Find folders of an earlier topic of the same name, and folders that no reader reads together."""
    node_of = {root.path: root.node for root in log.roots}
    by_topic: dict[str, list[str]] = {}
    for (topic, _), folders in log.partitions.items():
        by_topic.setdefault(topic, []).extend(folders)
    current: dict[str, str] | None = None
    for topic, folders in by_topic.items():
        if len(folders) < 2 or topic == METADATA_TOPIC:
            continue
        ids = {folder: id_of_topic(disk, folder) for folder in folders}
        if len({folder.rpartition("/")[0] for folder in folders}) == 1:
            ids = {folder: topic_id for folder, topic_id in ids.items() if topic_id}
        if len(set(ids.values())) < 2 and "" not in ids.values():
            continue
        if current is None:
            current = _current_ids(disk, homes, log.roots)
        if current.get(topic) in ids.values():
            log.earlier += [folder for folder, topic_id in ids.items() if topic_id != current[topic]]
            continue
        firsts = {topic_id: folder for folder, topic_id in reversed(ids.items())}
        chosen = (
            list(firsts.values())
            if len(firsts) > 1
            else [folders[0], next(one for one in folders if one != folders[0])]
        )
        why = "no file says that they are of one topic" if "" in firsts else "they are of several topics of that name"
        log.clashes.append(Clash(topic, tuple(sorted(chosen)), why))
    for (topic, partition), folders in log.partitions.items():
        kept = [folder for folder in folders if folder not in log.earlier]
        for folder in kept:
            node = node_of[folder.rpartition("/")[0]]
            same = tuple(one for one in kept if node is not None and node_of[one.rpartition("/")[0]] == node)
            if len(same) > 1 and folder == same[0]:
                log.clashes.append(
                    Clash(topic, same, f"node {node} has {topic}-{partition} twice: one of them is a copy")
                )


def _current_ids(disk: Disk, homes: Iterable[str], roots: Sequence[RootFolder]) -> dict[str, str]:
    """The ids of the topics by the controller's file of the cluster of ``roots``, or by its nodes' newest metadata log;
    empty if there is neither."""
    cluster = roots[0].cluster
    for home in dict.fromkeys(homes):
        try:
            data = read_file(disk, f"{home}/{states.CONTROLLER}")
            fields = {} if data is None else states.controller(data)
            if fields.get("cluster_id") == cluster is not None:
                return {str(topic["name"]): str(topic["id"]) for topic in fields["topics"]}
        except (Unreadable, KeyError, TypeError):
            continue
    metadata = newest_metadata(disk, [root.path for root in roots])
    return {} if metadata is None else {name: topic_id for topic_id, name in metadata.state.topics.items()}
