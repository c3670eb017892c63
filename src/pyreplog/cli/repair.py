"""Show which records of a damaged folder can be saved; with --to and --yes, save them into a new folder. The
damaged folder is never changed.

Whole batches keep their offsets. Header fields that no checksum covers are corrected if only one value fits. In a
cluster's folder, records that one replica lost are taken from another. The other records are lost, and are named
with their offsets; the repaired log has a gap there. The gaps of a compacted log stay. Where its file of gaps is
damaged or missing, records that compaction removed and records that are lost look the same: these offsets are named as
unknown. The new folder is a log like any other: open it, read it, or verify it.

With --metadata: make the metadata of a closed cluster again from its nodes' folders, if none of them has a metadata log
that can be read any more. It shows what it would make; --yes makes it, in the cluster's folder. No folder of a
partition is changed. The leader of each partition is the copy with the highest leader epoch and end, and the others
follow it.

Exit code 0: no record is lost; 3: records are lost, or may be."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from random import SystemRandom
from typing import Any, Final

from pyreplog.cli import repair_metadata
from pyreplog.cli.options import (
    EXIT_DAMAGED,
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    Parser,
    add_path,
    add_permissions,
    add_progress,
    place,
)
from pyreplog.cli.output import ProgressBar, amount, counted, json_line, printable, say, tell
from pyreplog.cli.reading import check_path
from pyreplog.cli.verify import lines_of, summary
from pyreplog.errors import ConfigError
from pyreplog.log import read_backup_note
from pyreplog.ports import Disk
from pyreplog.repair import PartitionPlan, Range, apply_repair, check_target, plan_repair
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.verify import Level, absent_partitions, total_size, verify

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "repair"
HELP: Final = "show which records of a damaged folder can be saved, and save them into a new one"

_LISTED_MAX: Final = 20


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog repair``."""
    add_path(parser)
    parser.add_argument(
        "--to", metavar="NEW", type=place, help="the folder to make; without --yes it is only shown what would be in it"
    )
    parser.add_argument(
        "--metadata", action="store_true", help="make the lost metadata of a cluster again from its nodes' folders"
    )
    parser.add_argument("--yes", action="store_true", help="write it (default: only show)")
    add_permissions(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per partition")
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the plan, carry it out where that is asked for, and verify the result."""
    source = os.path.abspath(arguments.path)
    target = None if arguments.to is None else os.path.abspath(arguments.to)
    if arguments.metadata:
        return repair_metadata.run(arguments)
    if arguments.yes and target is None:
        say("replog repair: --yes needs --to NEW: name the folder to make")
        return EXIT_USAGE
    check_path(source)
    disk = SystemDisk(permissions=arguments.permissions)
    try:
        if target is not None:
            check_target(disk, source, target)
        progress = ProgressBar("read", total=total_size(disk, source), forced=arguments.progress, sized=True)
        try:
            plans = plan_repair(disk, source, progress.add)
        finally:
            progress.close()
        for plan in plans:
            if arguments.json:
                tell(json_line(fields_of(plan)))
            else:
                for line in describe(plan):
                    tell(printable(line))
        absent = absent_partitions(disk, source)
        for (topic, partition), why in absent.items():
            if arguments.json:
                tell(json_line({"topic": topic, "partition": partition, "absent": why}))
            else:
                tell(printable(f"{topic}-{partition}"))
                tell(printable(f"  {'LOST':14} the partition {why}"))
        lost = bool(absent) or any(plan.lost or plan.unknown for plan in plans)
        note = read_backup_note(disk, source)
        if note is not None and not note.whole:
            lost = True
            say(
                f"replog repair: {source} is an unfinished backup: records of {note.source or 'its source'} that it had"
                " not copied are lost"
            )
        if target is not None and arguments.yes:
            if not _save(arguments, disk, source, target, plans):
                return EXIT_FAILED
        elif not arguments.json:
            where = shlex.quote(arguments.to) if target is not None else "NEW"
            tell(
                printable(
                    f"nothing was written; `replog repair {shlex.quote(arguments.path)} --to {where} --yes` saves what"
                    " is kept"
                )
            )
    finally:
        disk.close()
    return EXIT_DAMAGED if lost else EXIT_OK


def _save(arguments: argparse.Namespace, disk: Disk, source: str, target: str, plans: Sequence[PartitionPlan]) -> bool:
    """Carry the plan out and verify the new folder. Return whether that is whole."""
    size = sum(piece.size for plan in plans for piece in plan.pieces)
    progress = ProgressBar("saved", total=size, forced=arguments.progress, sized=True)
    try:
        apply_repair(disk, source, target, plans, clock=SystemClock(), random=SystemRandom(), progress=progress.add)
    except ConfigError:
        raise  # before anything was made
    except BaseException:
        if os.path.isdir(target):  # it opens, and looks sound
            say(f"replog repair: {arguments.to} is not whole: remove it before you repair again")
        raise
    finally:
        progress.close()
    progress = ProgressBar("verified", total=total_size(disk, target), forced=arguments.progress, sized=True)
    try:
        book = verify(disk, target, progress=progress.add)
    finally:
        progress.close()
    if not arguments.json:
        tell(printable(f"saved to {arguments.to}; verified: {summary(book)}"))
    if book.worst is not Level.DAMAGE:
        return True
    for finding in book.findings:
        for line in lines_of(finding):
            say(line)
    return False


def describe(plan: PartitionPlan) -> list[str]:
    """A plan for people."""
    lines = [f"{plan.topic}-{plan.partition} ({plan.source})"]
    saved = plan.saved_ranges()
    size = sum(piece.size for piece in plan.pieces)
    lines += _listed("keep", saved, f"{counted(plan.offset_count, 'offset')}, {amount(size)}")
    for word, ranges in (
        ("mend", plan.mended),
        ("from a replica", plan.borrowed),
        ("LOST", plan.lost),
        ("unknown", plan.unknown),
        ("leave out", plan.dropped),
    ):
        if ranges:
            lines += _listed(word, ranges, "")
    if plan.state.gaps:
        count = sum(end - start for start, end in plan.state.gaps.items())
        lines.append(f"  {'compacted':14} {counted(count, 'offset')} that compaction removed; they stay gaps")
    promised = plan.state.promised
    if not plan.lost and not plan.unknown:
        lines.append("  nothing is lost")
    elif not plan.lost:
        lines.append("  nothing is known to be lost")
    elif promised is not None:
        count = sum(max(min(one.end, promised) - one.start, 0) for one in plan.lost)
        lines.append(
            f"  {'promised':14} offsets up to {promised - 1}; {counted(count, 'offset')} of these {_be(count)} lost"
        )
    return lines


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _listed(word: str, ranges: list[Range], total: str) -> list[str]:
    lines = [f"  {word:14} {total}"] if total else []
    for one in ranges[:_LISTED_MAX]:
        span = f"offsets {one.start} to {one.end - 1}" if one.end > one.start else f"behind offset {one.start}"
        lines.append(f"  {'' if lines else word:14} {span}{': ' + one.about if one.about else ''}")
    if len(ranges) > _LISTED_MAX:
        lines.append(f"  {'':14} and {len(ranges) - _LISTED_MAX:,} more ranges")
    return lines


def fields_of(plan: PartitionPlan) -> dict[str, Any]:
    """A plan for JSON."""

    def spans(ranges: list[Range]) -> list[dict[str, Any]]:
        return [
            {"start_offset": one.start, "end_offset": one.end, **({"about": one.about} if one.about else {})}
            for one in ranges
        ]

    return {
        "topic": plan.topic,
        "partition": plan.partition,
        "source": plan.source,
        "kept": spans(plan.saved_ranges()),
        "mended": spans(plan.mended),
        "from_replicas": spans(plan.borrowed),
        "lost": spans(plan.lost),
        "unknown": spans(plan.unknown),
        "compacted_offsets": sum(end - start for start, end in plan.state.gaps.items()),
        "left_out": spans(plan.dropped),
        "promised_offset": plan.state.promised,
        "size": sum(piece.size for piece in plan.pieces),
    }
