"""Which files of a partition folder are its segments, and what an interrupted clean-up left to be finished.

Kafka replaces segments in steps that may be interrupted (``.cleaned`` -> ``.swap`` -> final) and removes files
under ``.deleted``. The plan says how to end that; a writer carries it out, a reader looks through it. Rules:
Kafka's ``LogLoader``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyreplog.log.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TORN_PREFIX,
    TRANSACTION_INDEX_SUFFIX,
    join,
    parse_base_offset,
    segment_name,
)
from pyreplog.log.scan import scan_segment
from pyreplog.ports import Disk

_KAFKA_SNAPSHOT_DELETED = ".checkpoint.deleted"


class FolderPlan(NamedTuple):
    """What to do with the files of a folder, in this order: ``drop``, then ``remove``, then ``rename``, each
    durably before the next. Then the segments are ``bases``."""

    drop: list[str]
    """Of a replacement that was not ready. What shows that it was not is among those to ``remove``, and must not go
    first."""
    remove: list[str]
    rename: list[tuple[str, str]]
    bases: list[int]
    """Base offsets of the segments, rising."""
    swapped: frozenset[int]
    """Bases whose log file is (before the renaming) still under its ``.swap`` name."""


def plan_folder(disk: Disk, directory: str, names: Sequence[str]) -> FolderPlan:
    """What the files ``names`` of ``directory`` make. Reads only, and only where a replacement was interrupted."""
    remove = [name for name in names if name.endswith(DELETED_SUFFIX) and not name.endswith(_KAFKA_SNAPSHOT_DELETED)]
    remove += [name for name in names if name.startswith(TORN_PREFIX) and name.endswith(TEMPORARY_SUFFIX)]
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    drop: list[str] = []
    cleaned_from = min((base for base in map(_base_of, cleaned) if base is not None), default=None)
    if cleaned_from is not None:
        # A switch to several new segments was interrupted before all were ready: the old ones are
        # still there and count.
        drop = [name for name in swaps if (base := _base_of(name)) is not None and base >= cleaned_from]
        swaps = [name for name in swaps if name not in drop]
    remove += cleaned
    bases_of_swaps = [base for name in swaps if (base := parse_base_offset(name, LOG_SUFFIX + SWAP_SUFFIX)) is not None]
    ends = {base: _end_of(disk, directory, base) for base in bases_of_swaps}
    # One without any batch replaces nothing, where what it was made of is still there: Kafka would
    # lose that to a file that was cut short. Beside others it may be the first part of a segment
    # that was split, whose batches all lie too far from its base.
    alone = all(end == base for base, end in ends.items())
    empty = [base for base in ends if alone and segment_name(base, LOG_SUFFIX) in names]
    for base in empty:
        del ends[base]
    drop += [name for name in swaps if _base_of(name) in empty]
    swaps = [name for name in swaps if name not in drop]
    others = {*remove, *drop, *swaps}
    live = [name for name in names if name not in others]
    replaced = _replaced(ends, live)
    remove += replaced
    others = set(replaced)
    live = [name for name in live if name not in others]
    rename = sorted(((name, name[: -len(SWAP_SUFFIX)]) for name in swaps), key=_order_of)
    bases = {base for name in [*live, *(final for _, final in rename)] if (base := parse_base_offset(name)) is not None}
    swapped = frozenset(base for _, final in rename if (base := parse_base_offset(final)) is not None)
    # Indexes of segments that are not there would be taken for those of a later segment of the same
    # base.
    for name in live:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            base = parse_base_offset(name, suffix)
            if base is not None and base not in bases:
                remove.append(name)
    return FolderPlan(drop, remove, rename, sorted(bases), swapped)


def apply_plan(disk: Disk, directory: str, plan: FolderPlan) -> None:
    """Carry it out, durably."""
    # Names that a killed process gave may be seen and not be durable yet: power loss would take
    # back the new segments, not the removals.
    if plan.drop or plan.remove or plan.rename:
        disk.sync_directory(directory)
    for names in (plan.drop, plan.remove):
        for name in names:
            disk.remove(join(directory, name))
        # Power loss keeps any of several changes: an old segment must not come back beside those
        # that replaced it.
        if names:
            disk.sync_directory(directory)
    for number, (source, target) in enumerate(plan.rename, 1):
        disk.rename(join(directory, source), join(directory, target))
        # Nor may a log have its name before those below it: it would be taken for one that they
        # replace.
        if target.endswith(LOG_SUFFIX) or number == len(plan.rename):
            disk.sync_directory(directory)


def _end_of(disk: Disk, directory: str, base_offset: int) -> int:
    """The offset behind the last batch of a segment that is still to get its name; its base where it has none."""
    file = disk.open(join(directory, segment_name(base_offset, LOG_SUFFIX + SWAP_SUFFIX)))
    try:
        scan = scan_segment(file, file.size(), base_offset, check_crc=False)
    finally:
        file.close()
    return scan.next_offset if scan.batch_count else base_offset


def _replaced(ends: Mapping[int, int], live: Sequence[str]) -> list[str]:
    """Files of the segments that finished replacements stand for, which reach from their bases to ``ends``."""
    if not ends:
        return []
    start = min(ends)
    end = max(max(base + 1, end) for base, end in ends.items())
    replaced = []
    for name in live:
        base = _base_of(name) if name.endswith(SEGMENT_SUFFIXES) else None
        if base is not None and start <= base < end:
            replaced.append(name)
    return replaced


def _order_of(step: tuple[str, str]) -> tuple[int, bool, str]:
    """By rising offsets, of each segment the log first: what has its name by then is no longer looked at as
    something to be replaced."""
    _, target = step
    base = _base_of(target)
    return -1 if base is None else base, not target.endswith(LOG_SUFFIX), target


def _base_of(name: str) -> int | None:
    """The number before the first dot."""
    return parse_base_offset(name.partition(".")[0], "")
