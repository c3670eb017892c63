"""Where partitions lie under a path, and what the small files of one say: for those who want to save or show it, not to judge it."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

from pyreplog.errors import StorageError
from pyreplog.ports import Disk
from pyreplog.verify import states
from pyreplog.verify.folder import read_file, segment_bases
from pyreplog.verify.nodes import listed
from pyreplog.verify.states import Slot, Unreadable


@dataclass(slots=True)
class PartitionState:
    """What is known of a partition besides its batches. What cannot be believed is left out."""

    start_offset: int = 0
    promised: int | None = None
    """Below this offset everything was synced or shown to readers; None where nothing says."""
    marked: bool = False
    """There is a mark, which says where it begins."""
    dense: bool = False
    """Its offsets have no gaps."""
    durability: str | None = None
    topic_id: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    history: list[tuple[int, int]] | None = None
    """The leader epochs, where the mark vouches for them."""

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch of ``offset``; None where that is not known."""
        if self.history is None:
            return None
        slot = bisect_right(self.history, offset, key=lambda entry: entry[1]) - 1
        return self.history[slot][0] if slot >= 0 else None


def is_root(names: Sequence[str]) -> bool:
    """Whether the files ``names`` are those of a root."""
    return states.META in names or states.INCARNATION in names or states.RECOVERY_POINTS in names


def is_directory(disk: Disk, path: str) -> bool:
    """Whether ``path`` is a folder."""
    found = disk.stat(path)
    return found is not None and found.is_directory


def is_partition(disk: Disk, path: str) -> bool:
    """Whether ``path`` is the folder of a partition."""
    if not is_directory(disk, path):
        return False
    names = list(disk.list(path))
    # A replacement of segments that was interrupted may have left no other log than those that are still to get their names.
    logs = segment_bases([name.removesuffix(".swap") for name in names])
    return bool(logs) or states.MARK in names or (states.IDENTITY in names and states.META not in names)


def find_roots(disk: Disk, path: str) -> list[str]:
    """The roots that the folder ``path`` stands for: itself, those that a file in it lists, those in it, or, if there are none, those one
    folder deeper if all are of one cluster. Empty if there are none."""
    if is_root(list(disk.list(path))):
        return [path]
    if folders := listed(disk, path):
        return [folder for folder in folders.values() if is_directory(disk, folder) and is_root(_names(disk, folder))]
    below = [f"{path}/{name}" for name in disk.list(path) if is_directory(disk, f"{path}/{name}")]
    roots = [folder for folder in below if is_root(_names(disk, folder))]
    if roots or any(states.partition_of(folder.rpartition("/")[2]) and is_partition(disk, folder) for folder in below):
        return roots
    seen = [folder for folder in below if not folder.rpartition("/")[2].startswith(".")]
    deeper = [f"{folder}/{name}" for folder in seen for name in _names(disk, folder)]
    roots = [folder for folder in deeper if is_directory(disk, folder) and is_root(_names(disk, folder))]
    return roots if len(_clusters(disk, roots)) <= 1 else []


def _names(disk: Disk, path: str) -> list[str]:
    """What is in a folder; nothing where it is gone. What may not be looked into is an error: it may be a replica."""
    try:
        return list(disk.list(path))
    except StorageError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return []


def _clusters(disk: Disk, roots: Iterable[str]) -> set[str]:
    """The ids of the clusters that ``roots`` are of."""
    ids = set()
    for root in roots:
        try:
            ids.add(states.properties(_read(disk, f"{root}/{states.META}") or b"").get("cluster.id", ""))
        except Unreadable:
            continue
    return ids - {""}


def find_partitions(disk: Disk, path: str) -> dict[tuple[str, int], list[str]]:
    """The folders of each (topic, partition) under ``path``: a root, a cluster's folder, or one partition folder."""
    path = path.rstrip("/") or "/"
    name = path.rpartition("/")[2]
    if is_partition(disk, path):
        return {states.partition_of(name) or (name, 0): [path]}
    roots = find_roots(disk, path) or [path]
    found: dict[tuple[str, int], list[str]] = {}
    for root in roots:
        for one in disk.list(root):
            key = states.partition_of(one)
            if key is not None and is_partition(disk, f"{root}/{one}"):
                found.setdefault(key, []).append(f"{root}/{one}")
    return found


def read_partition_state(disk: Disk, directory: str) -> PartitionState:
    """What the small files in ``directory`` and its root say."""
    found = PartitionState()
    data = _read(disk, f"{directory}/{states.MARK}")
    mark = states.mark(data) if data is not None else None
    try:
        found.topic_id = states.identity(_read(disk, f"{directory}/{states.IDENTITY}") or b"")
    except Unreadable:
        found.topic_id = mark.topic_id if mark is not None else ""
    try:
        values = states.state(_read(disk, f"{directory}/{states.CONFIG}") or b"")
        found.settings = {name: value for name, value in values.items() if name != "version"}
        found.durability = values.get("durability")
    except Unreadable:
        found.settings = {}
    if mark is not None:
        _from_mark(found, mark, _read(disk, f"{directory}/{states.EPOCHS}"))
        return found
    root, _, name = directory.rpartition("/")
    key = states.partition_of(name)
    known = [
        value
        for checkpoint in (states.WATERMARKS, states.RECOVERY_POINTS)
        if key is not None and (value := _offsets(disk, f"{root}/{checkpoint}").get(key)) is not None
    ]
    found.promised = max(known) if known else None
    found.start_offset = _offsets(disk, f"{root}/{states.LOG_STARTS}").get(key, 0) if key is not None else 0
    return found


def _from_mark(found: PartitionState, mark: Slot, history: bytes | None) -> None:
    found.marked = True
    found.start_offset, found.promised, found.dense = mark.start_offset, mark.promised, not mark.is_adopted
    found.durability = "sync" if mark.is_sync else "os"
    if found.settings:
        found.settings["durability"] = found.durability
    if history is not None and crc32c(history) == mark.epochs_crc:
        found.history = states.epochs(history)


def _read(disk: Disk, path: str) -> bytes | None:
    try:
        return read_file(disk, path)
    except Unreadable:
        return None


def _offsets(disk: Disk, path: str) -> dict[tuple[str, int], int]:
    try:
        return states.offsets(_read(disk, path) or b"")
    except Unreadable:
        return {}


def read_identity(disk: Disk, found: Mapping[tuple[str, int], Sequence[str]]) -> tuple[int | None, str | None]:
    """(node id, cluster id) of the one root that the folders ``found`` of partitions lie in; None for what is unknown. Of several roots
    only the cluster is one."""
    roots = sorted({folder.rpartition("/")[0] for folders in found.values() for folder in folders})
    ids: set[str] = set()
    nodes: set[int] = set()
    for root in roots:
        try:
            values = states.properties(_read(disk, f"{root}/{states.META}") or b"")
            if "cluster.id" in values:
                ids.add(states.check_uuid(values["cluster.id"]))
            if "node.id" in values:
                nodes.add(states.number(values["node.id"], 0, 2**31 - 1))
        except Unreadable:
            continue
    return (nodes.pop() if len(nodes) == 1 and len(roots) == 1 else None), (ids.pop() if len(ids) == 1 else None)
