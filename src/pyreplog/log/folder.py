"""The segments of a partition folder, and the plan to finish a replacement of segments that was interrupted.

Kafka replaces segments in steps (``.cleaned`` -> ``.swap`` -> final) and renames files to ``.deleted`` before it
removes them. If a crash interrupts that, the plan names the remaining steps. A writer carries them out; a reader
reads the folder as if they were done. Rules: Kafka's ``LogLoader``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyreplog.errors import CorruptError, StorageNotFoundError
from pyreplog.log.gaps import read_gaps
from pyreplog.log.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    GAPS_SUFFIX,
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
    """The steps that finish a folder: remove ``drop``, then ``remove``, then do ``rename``, each durably before the
    next. After them the segments are ``bases``."""

    drop: list[str]
    """Files of a replacement that was not complete. The ``.cleaned`` files that show this are in ``remove``, so
    these files must go first."""
    remove: list[str]
    rename: list[tuple[str, str]]
    bases: list[int]
    """Base offsets of the segments, rising."""
    swapped: frozenset[int]
    """Base offsets of the segments whose log file still has its ``.swap`` name before the renames."""


def plan_folder(disk: Disk, directory: str, names: Sequence[str]) -> FolderPlan:
    """Return the plan for the files ``names`` of ``directory``. Changes nothing, and reads files only if a
    replacement was interrupted."""
    remove = [name for name in names if name.endswith(DELETED_SUFFIX) and not name.endswith(_KAFKA_SNAPSHOT_DELETED)]
    remove += [name for name in names if name.startswith(TORN_PREFIX) and name.endswith(TEMPORARY_SUFFIX)]
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    drop: list[str] = []
    cleaned_from = min((base for base in map(_base_of, cleaned) if base is not None), default=None)
    if cleaned_from is not None:
        # A replacement by several new segments was interrupted before all were ready. The old
        # segments are still there and stay valid.
        drop = [name for name in swaps if (base := _base_of(name)) is not None and base >= cleaned_from]
        swaps = [name for name in swaps if name not in drop]
    remove += cleaned
    bases_of_swaps = [base for name in swaps if (base := parse_base_offset(name, LOG_SUFFIX + SWAP_SUFFIX)) is not None]
    ends = {base: _end_of(disk, directory, base) for base in bases_of_swaps}
    # A swap file without a batch replaces nothing if its source segment is still there. (Kafka
    # would lose the source if the swap file was truncated.) Next to non-empty swap files it may be
    # the first part of a split segment whose batches all lie too far from its base.
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
    # An index without its segment would be taken for the index of a later segment with that base.
    for name in live:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, GAPS_SUFFIX):
            base = parse_base_offset(name, suffix)
            if base is not None and base not in bases:
                remove.append(name)
    return FolderPlan(drop, remove, rename, sorted(bases), swapped)


def apply_plan(disk: Disk, directory: str, plan: FolderPlan) -> None:
    """Carry out ``plan`` in ``directory``, durably."""
    # The renames of a killed process may be visible but not durable. Without this sync, power loss
    # could undo them and keep the removals below.
    if plan.drop or plan.remove or plan.rename:
        disk.sync_directory(directory)
    for names in (plan.drop, plan.remove):
        for name in names:
            try:
                disk.remove(join(directory, name))
            except StorageNotFoundError:
                # A pass of compaction that is given up, because its node ended, removes its own
                # files.
                if not name.endswith(CLEANED_SUFFIX):
                    raise
        # Power loss keeps an arbitrary subset of unsynced changes. An old segment must not return
        # beside its replacements.
        if names:
            disk.sync_directory(directory)
    for number, (source, target) in enumerate(plan.rename, 1):
        # Power loss may have left both names of an earlier rename. Renaming one name of a file to
        # another of its names does nothing, so a ``.swap`` file would stay and outlive its
        # segment.
        if disk.stat(join(directory, target)) is not None:
            disk.remove(join(directory, target))
        disk.rename(join(directory, source), join(directory, target))
        # A log must not get its final name durably before the logs below it, or the next plan
        # would take it for a segment that they replace.
        if target.endswith(LOG_SUFFIX) or number == len(plan.rename):
            disk.sync_directory(directory)


def _end_of(disk: Disk, directory: str, base_offset: int) -> int:
    """Return the end offset of the segment with a ``.swap`` name at ``base_offset``; its base if it has no batch.

    A gap behind its last batch counts too: it replaces segments of which nothing is left.
    """
    file = disk.open(join(directory, segment_name(base_offset, LOG_SUFFIX + SWAP_SUFFIX)))
    try:
        scan = scan_segment(file, file.size(), base_offset, check_crc=False)
    finally:
        file.close()
    end = scan.next_offset if scan.batch_count else base_offset
    try:
        gaps = read_gaps(disk, directory, base_offset, segment_name(base_offset, GAPS_SUFFIX + SWAP_SUFFIX))
    except CorruptError:
        gaps = None  # the opening reports it
    return end if gaps is None else gaps.behind(end)


def _replaced(ends: Mapping[int, int], live: Sequence[str]) -> list[str]:
    """Return the files among ``live`` that complete replacements supersede. ``ends``: base offset -> end offset of
    each replacement."""
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
    """Sort key of the renames: by rising offset, the log of each segment first.

    After an interruption, the files that already have their final names are then not taken for replaced ones.
    """
    _, target = step
    base = _base_of(target)
    return -1 if base is None else base, not target.endswith(LOG_SUFFIX), target


def _base_of(name: str) -> int | None:
    """Return the base offset before the first dot of ``name``, or None."""
    return parse_base_offset(name.partition(".")[0], "")
