"""Find the log roots under a path, their ids, and the other folders there.

A folder is a root if it has a file that only roots have, or a partition's folder in it. A folder is a partition's if
it has a segment, or a small file that only partitions have. Names decide only for a folder that this process may not
read.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pyreplog.errors import CorruptError, StorageError
from pyreplog.log.identity import decode_uuid, read_properties, read_topic_id
from pyreplog.log.layout import (
    INCARNATION_NAME,
    INT32_MAX,
    MARK_NAME,
    META_PROPERTIES_NAME,
    METADATA_FOLDER,
    NODES_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    is_log_file,
    join,
    name_of,
    parent_of,
    parse_directory_name,
)
from pyreplog.log.mark import read_mark
from pyreplog.log.node_list import read_nodes
from pyreplog.log.snapshot import parse_number
from pyreplog.ports import Disk
from pyreplog.values import TopicPartition

DEPTH_MAX: Final = 2
"""How many folders deep below a path its roots may lie: in it (`node-1`), or in a folder in it (`n1/data`)."""

_SEARCH_DEPTH_MAX: Final = 8
_SEARCHED_MAX: Final = 5_000
"""Number of folders after which the search for ignored logs ends."""
_ROOT_FILES: Final = (META_PROPERTIES_NAME, INCARNATION_NAME, RECOVERY_POINT_NAME)
_PARTITION_FILES: Final = (PARTITION_METADATA_NAME, MARK_NAME)
_REFUSED: Final = (errno.EACCES, errno.EPERM)
_GONE: Final = (errno.ENOENT, errno.ENOTDIR)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
"""Names that a root or a partition's folder may have: not `lost+found`, not `.git`."""
_REMOVED: Final = re.compile(r".+\.removed(-[0-9]+)?")
_RESERVED_BELOW: Final = 100


class FoundRoot(NamedTuple):
    """A folder that holds partitions' folders, and its ids as far as its ``meta.properties`` names them."""

    path: str
    cluster_id: str = ""
    """"" if no file names it."""
    node_id: int | None = None
    has_files: bool = True
    """True: the folder has a root's files. False: it only holds partitions' folders."""
    home: str = ""
    """The folder of the cluster that lists this root among its nodes; "" if no list does."""


class Places:
    """The roots and the other folders under a path."""

    __slots__ = ("bare", "foreign", "is_listed", "path", "roots", "unreadable")

    def __init__(self, path: str) -> None:
        self.path = path
        self.bare: TopicPartition | None = None
        """The one partition, if the path is its folder."""
        self.roots: list[FoundRoot] = []
        """In the order of the names on their paths."""
        self.foreign: list[str] = []
        """Folders directly in the path that hold no root and are no partition's."""
        self.unreadable: dict[str, StorageError] = {}
        """Folders that may be roots and that this process may not read."""
        self.is_listed = False
        """Whether a file in the path lists the roots, which then may be anywhere."""


def find_places(disk: Disk, path: str, depth: int = DEPTH_MAX) -> Places:
    """Find the roots in ``path`` and at most ``depth`` folders below it.

    The search does not enter a folder with a root's files or a folder whose name begins with a dot. A link and its
    target count as one folder. Raises :class:`StorageError` if ``path`` is no folder that can be listed.
    """
    places = Places(path)
    names = disk.list(path)
    if any(map(is_log_file, names)):
        parsed = parse_directory_name(name_of(path))
        places.bare = parsed.topic_partition if parsed is not None else TopicPartition(name_of(path), 0)
        return places
    listed = read_nodes(disk, path) if NODES_NAME in names else {}
    if listed:
        places.is_listed = True
        places.roots += _listed(disk, path, list(listed.values()), places.unreadable)
        places.foreign = list(_foreign(disk, places, names))
        return places
    seen: dict[tuple[int, int], int] = {}
    deepest = 0
    refused: list[tuple[int, str, StorageError]] = []
    for level, found in _walk(disk, path, names, depth, 0, refused):
        stat = disk.stat(found.path)
        if stat is None:
            continue
        place = seen.setdefault(stat.identity, len(places.roots))
        if place < len(places.roots):
            if found.home and not places.roots[place].home:
                places.roots[place] = found
            continue
        places.roots.append(found)
        deepest = max(deepest, level)
    # A folder deeper than every root is no node's folder, so that an unreadable folder of another
    # program does not stop the readers of a cluster.
    places.unreadable = {folder: error for level, folder, error in refused if level <= max(deepest, 1)}
    if not any(root.path == path and root.has_files for root in places.roots):
        places.foreign = list(_foreign(disk, places, names))
    return places


def _listed(disk: Disk, home: str, folders: Sequence[str], unreadable: dict[str, StorageError]) -> list[FoundRoot]:
    """Return the roots among ``folders``, the nodes of the cluster in ``home``.

    A missing or empty folder is skipped, because its disk may not be mounted. Folders that this process may not read
    are added to ``unreadable``.
    """
    roots = []
    for folder in folders:
        try:
            if has_root_file(disk, folder):
                roots.append(_identified(disk, folder)._replace(home=home))
        except StorageError as error:
            if error.errno not in _REFUSED:
                raise
            unreadable[folder] = error
    return roots


def _of_cluster(
    disk: Disk, home: str, folders: Sequence[str], level: int, refused: list[tuple[int, str, StorageError]]
) -> list[FoundRoot]:
    """Return the roots of a cluster below the searched path as :func:`_listed` does. ``home`` is added to
    ``refused`` if no node has a folder."""
    unreadable: dict[str, StorageError] = {}
    roots = _listed(disk, home, folders, unreadable)
    if not roots and not unreadable:
        text = f"no node of this cluster has a folder ({', '.join(folders)}): perhaps the disks are not mounted"
        unreadable[home] = StorageError(errno.ENOENT, text, home)
    refused += ((min(level, 1), folder, error) for folder, error in unreadable.items())
    return roots


def _walk(
    disk: Disk, path: str, names: Sequence[str], depth: int, level: int, refused: list[tuple[int, str, StorageError]]
) -> Iterator[tuple[int, FoundRoot]]:
    """Iterate over the roots at ``path``, whose content is ``names``, and below, each with its depth."""
    if any(name in names for name in _ROOT_FILES):
        yield level, _identified(disk, path)
        return
    listed = read_nodes(disk, path) if level and NODES_NAME in names else {}
    if listed:
        yield from ((level, root) for root in _of_cluster(disk, path, list(listed.values()), level, refused))
        return
    partitions = {
        name
        for name in names
        if parse_directory_name(name) is not None and _is_partition_if_readable(disk, join(path, name))
    }
    if any(not parsed.kind for name in partitions if (parsed := parse_directory_name(name)) is not None):
        yield level, FoundRoot(path, has_files=False)
    for name in names if depth > 0 else ():
        if name.startswith(".") or name in partitions or is_removed_node(name):
            continue
        folder = join(path, name)
        try:
            if has_root_file(disk, folder):
                yield level + 1, _identified(disk, folder)
                continue
            stat = disk.stat(folder)
            below = disk.list(folder) if stat is not None and stat.is_directory else ()
        except StorageError as error:
            if error.errno in _REFUSED:
                if _PLAIN.fullmatch(name):
                    refused.append((level + 1, folder, error))
            elif error.errno not in _GONE:
                raise
            continue
        if not any(map(is_log_file, below)):
            yield from _walk(disk, folder, below, depth - 1, level + 1, refused)


def hidden_roots(disk: Disk, path: str, known: Sequence[str]) -> list[str]:
    """Return the roots below ``path`` that a reader of ``path`` ignores, because they lie in another root or too
    deep. Sorted by depth, then by name.

    ``known``: the roots that a reader of ``path`` reads. The search ends eight folders deep, or after 5,000 folders.
    """
    seen: set[tuple[int, int]] = set()
    readers = {stat.identity for root in known if (stat := disk.stat(root)) is not None}
    found: list[str] = []
    level = [path]
    for _ in range(_SEARCH_DEPTH_MAX + 1):
        below: list[str] = []
        for folder in level:
            try:
                stat = disk.stat(folder)
                if stat is None or not stat.is_directory or stat.identity in seen or len(seen) >= _SEARCHED_MAX:
                    continue
                seen.add(stat.identity)
                names = disk.list(folder)
            except StorageError as error:
                if error.errno not in (*_REFUSED, *_GONE):
                    raise
                continue
            if any(map(is_log_file, names)) or any(name in names for name in _PARTITION_FILES):
                continue
            if stat.identity not in readers and any(name in names for name in _ROOT_FILES):
                found.append(folder)
                continue
            below += [join(folder, name) for name in names if not name.startswith(".") and not is_removed_node(name)]
        level = below
    return found


def is_removed_node(name: str) -> bool:
    """Return whether a folder of this name is that of a node that left its cluster. Nothing reads it."""
    return _REMOVED.fullmatch(name) is not None


def root_above(disk: Disk, path: str) -> str | None:
    """Return the nearest folder above the absolute ``path`` that has the files of a root, or None."""
    while (parent := parent_of(path) or "/") != path:
        path = parent
        try:
            if has_root_file(disk, path):
                return path
        except StorageError as error:
            if error.errno not in (*_REFUSED, *_GONE):
                raise
    return None


def has_root_file(disk: Disk, path: str) -> bool:
    """Return whether the folder ``path`` has a file that only roots have."""
    return any(disk.stat(join(path, file)) is not None for file in _ROOT_FILES)


def _identified(disk: Disk, path: str) -> FoundRoot:
    properties = read_properties(disk, path) or {}
    try:
        node_id = parse_number(properties.get("node.id", properties.get("broker.id", "")), 0, INT32_MAX)
    except ValueError:
        return FoundRoot(path, properties.get("cluster.id", ""))
    return FoundRoot(path, properties.get("cluster.id", ""), node_id)


def _foreign(disk: Disk, places: Places, names: Sequence[str]) -> Iterator[str]:
    """Iterate over the folders directly in the path that hold no root and are no partition's."""
    roots = [found for root in places.roots for found in (root.path, root.home)]
    for name in names:
        folder = join(places.path, name)
        if (
            is_removed_node(name)
            or folder in places.unreadable
            or any(root == folder or root.startswith(folder + "/") for root in roots)
        ):
            continue
        try:
            stat = disk.stat(folder)
            ours = parse_directory_name(name) is not None and is_partition(disk, folder)
        except StorageError as error:
            if error.errno not in _REFUSED:
                raise
            ours = False
            stat = None
        if stat is not None and stat.is_directory and not ours:
            yield folder


def foreign_in(disk: Disk, root: str) -> list[str]:
    """Return the folders in ``root`` that are not a partition's, nor of a partition that is being deleted or moved or
    was set aside. A node's metadata folder, which may hold no segment yet, is not one of them."""
    found = []
    for name in disk.list(root):
        if name == METADATA_FOLDER:
            continue
        folder = join(root, name)
        try:
            stat = disk.stat(folder)
            if (
                stat is not None
                and stat.is_directory
                and (parse_directory_name(name) is None or not is_partition(disk, folder))
            ):
                found.append(folder)
        except StorageError as error:
            if error.errno not in _REFUSED:
                raise
            if not may_be_partition(name):
                found.append(folder)
    return found


def is_refusal(error: StorageError) -> bool:
    """Return whether ``error`` is a lack of permission."""
    return error.errno in _REFUSED


def may_be_partition(name: str) -> bool:
    """Return whether an unreadable folder called ``name`` may be a partition's."""
    return _PLAIN.fullmatch(name) is not None and parse_directory_name(name) is not None


def is_partition(disk: Disk, path: str) -> bool:
    """Return whether ``path`` is a partition's folder: it has a segment, or a small file that only partitions
    have."""
    if any(disk.stat(join(path, file)) is not None for file in _PARTITION_FILES):
        return True
    found = disk.stat(path)
    if found is None or not found.is_directory:
        return False
    try:
        return any(map(is_log_file, disk.list(path)))
    except StorageError as error:
        if error.errno not in _GONE:
            raise
        return False


def _is_partition_if_readable(disk: Disk, path: str) -> bool:
    try:
        return is_partition(disk, path)
    except StorageError as error:
        if error.errno not in _REFUSED:
            raise
        return False


def topic_id_of(disk: Disk, directory: str) -> str:
    """Return the topic id in the ``partition.metadata`` of a partition's folder, or else in its mark; "" if neither
    has one."""
    try:
        topic_id = read_topic_id(disk, directory)
    except CorruptError:
        topic_id = None
    if topic_id is not None:
        return topic_id
    mark = read_mark(disk, directory)
    return "" if mark is None else mark.topic_id


def proves_topic(topic_id: str) -> bool:
    """Return whether two folders with the same ``topic_id`` belong to one topic even if no file names their cluster.

    Kafka's reserved ids do not prove that: the id of ``__cluster_metadata`` is the same in every cluster.
    """
    try:
        return int.from_bytes(decode_uuid(topic_id), "big") >= _RESERVED_BELOW
    except ValueError:
        return False
