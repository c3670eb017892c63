"""The partitions under a path, and the values of a partition's small files, for code that repairs or shows it."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from pyreplog.errors import ConfigError, StorageError
from pyreplog.ports import Disk
from pyreplog.verify import states
from pyreplog.verify.folder import read_file, segment_files
from pyreplog.verify.gaps import dropped_tombstone, recorded_gaps
from pyreplog.verify.logs import look_around
from pyreplog.verify.states import Slot, Unreadable

REFUSED: Final = "this process may not enter the folder, which may hold a log or a part of one"
LET_IN: Final = "give it access, or move the folder away"
_BASE_DIGITS: Final = 20
APART: Final = "Move one of them away, or name the folder that is meant"


@dataclass(slots=True)
class PartitionState:
    """The state of a partition besides its batches. Values that cannot be trusted are left out."""

    start_offset: int = 0
    promised: int | None = None
    """Below this offset everything was synced or shown to readers; None where nothing says."""
    marked: bool = False
    """Whether there is a mark, which has the start of the log."""
    dense: bool = False
    """No offset is missing, except in ``gaps`` and where records were lost."""
    compacted: bool = False
    """Whether this library compacted it."""
    gaps: dict[int, int] = field(default_factory=dict)
    """The gaps that compaction left: start -> end, rising."""
    gap_files: dict[int, bool] = field(default_factory=dict)
    """Whether the file of gaps of a segment can be read, by base offset. A segment without such a file is missing."""
    dropped_tombstone: int = -1
    """The highest offset of a tombstone that compaction dropped, as far as the files of gaps say; -1 for none."""
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

    def behind(self, offset: int) -> int:
        """Return the end of the gap that begins at ``offset``; ``offset`` itself if none does."""
        return self.gaps.get(offset, offset)

    def outside_gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of the half-open range that are in no gap."""
        parts: list[tuple[int, int]] = []
        for begin, stop in self.gaps.items():
            if begin >= end:
                break
            if stop > start:
                if begin > start:
                    parts.append((start, begin))
                start = stop
        return [*parts, (start, end)] if start < end else parts


def find_partitions(disk: Disk, path: str) -> dict[tuple[str, int], list[str]]:
    """The folders of each (topic, partition) of the one log under ``path``, sorted: a root, a cluster's folder, or
    one partition's.

    Raises :class:`ConfigError` if several independent logs are there, or folders that no reader takes together; and
    :class:`StorageError` if a folder that may be a part of the log may not be entered.
    """
    path = path.rstrip("/") or "/"
    found = look_around(disk, path)
    for folder, error in found.refused.items():
        raise StorageError(error.errno or errno.EACCES, f"{REFUSED}: {LET_IN}", folder)
    logs = found.held()
    if len(logs) > 1:
        raise ConfigError(
            f"{path} holds {len(logs)} independent logs ({', '.join(log.name for log in logs)}): name one of them"
        )
    for clash in logs[0].clashes if logs else ():
        raise ConfigError(f"{' and '.join(clash.folders)} cannot be taken together: {clash.why}. {APART}")
    earlier = set(logs[0].earlier) if logs else set()
    held = logs[0].partitions.items() if logs else ()
    return {key: kept for key, folders in held if (kept := [folder for folder in folders if folder not in earlier])}


def read_partition_state(disk: Disk, directory: str) -> PartitionState:
    """Return the values of the small files in ``directory`` and its root."""
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
        if mark.is_compacted:
            found.compacted = True
            _read_gaps(found, disk, directory)
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


def _read_gaps(found: PartitionState, disk: Disk, directory: str) -> None:
    """Read the files of gaps of all segments, also of those whose log is missing."""
    names = disk.list(directory)
    logs = segment_files(disk, directory, list(names))
    others = (name[:_BASE_DIGITS] for name in names if name[_BASE_DIGITS:] == ".gaps")
    bases = sorted({*logs, *(int(digits) for digits in others if digits.isascii() and digits.isdecimal())})
    for base, following in zip(bases, [*bases[1:], None], strict=False):
        name = f"{base:020}.gaps"
        if logs.get(base, "").endswith(".swap") or (f"{base:020}.log.swap" not in names and f"{name}.swap" in names):
            name += ".swap"  # the log gets its final name before the other files
        if name not in names:
            continue
        try:
            data = _read(disk, f"{directory}/{name}") or b""
            # A follower adds to it while it writes, so its end may be torn above the durable end.
            gaps = recorded_gaps(data, base, torn=following is None or following > (found.promised or 0))
        except Unreadable:
            found.gap_files[base] = False
            continue
        found.gap_files[base] = True
        if found.dense:
            found.gaps.update(gaps)
        found.dropped_tombstone = max(found.dropped_tombstone, dropped_tombstone(data))


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
    """Return (node id, cluster id) of the one root that holds the partitions' folders ``found``; None for an
    unknown value. With several roots there is only a cluster id."""
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
