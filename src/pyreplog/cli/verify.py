"""Check every file of a folder with a reader that shares no code with the writer, and print each error, its place,
and the next step.

Batches, records, indexes, checkpoints, marks and ids are decoded and compared with one another; in a cluster's
folder also the replicas. Nothing is changed and no lock is taken, so it may run beside a live writer; records that
the writer has not promised yet are then ignored.

Damage: records are lost, altered or in doubt. A warning: a file changed, but no promise is broken. Exit code 0:
sound; 3: damage; 4: warnings, no damage; 1: a folder cannot be read, and the rest holds no damage.

Several independent logs in one folder are verified one by one. Folders of other programs are named and left
alone."""

from __future__ import annotations

import argparse
from typing import Final

from pyreplog.cli.options import (
    EXIT_DAMAGED,
    EXIT_FAILED,
    EXIT_OK,
    EXIT_WARNED,
    Parser,
    add_limit,
    add_path,
    add_progress,
)
from pyreplog.cli.output import ProgressBar, amount, counted, json_line, printable, say, tell
from pyreplog.cli.reading import check_path
from pyreplog.log import untrusted
from pyreplog.system import SystemDisk
from pyreplog.verify import Finding, Level, Report, total_size, verify

__all__ = ["HELP", "NAME", "add_arguments", "exit_code", "lines_of", "run", "summary"]

NAME: Final = "verify"
HELP: Final = "look for damage in every file, independently of what wrote it"

_EXIT_CODES: Final = {Level.NOTE: EXIT_OK, Level.WARNING: EXIT_WARNED, Level.DAMAGE: EXIT_DAMAGED}


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog verify``."""
    add_path(parser)
    parser.add_argument(
        "--quick", action="store_true", help="check headers and checksums, and do not decode each record"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per finding, then one with the totals")
    add_limit(parser)
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings, the worst first, then one line with the result."""
    check_path(arguments.path)
    disk = SystemDisk()
    try:
        progress = ProgressBar(
            "verified", total=total_size(disk, arguments.path.rstrip("/") or "/"), forced=arguments.progress, sized=True
        )
        try:
            book = verify(
                disk,
                arguments.path,
                deep=not arguments.quick,
                progress=progress.add,
                max_batch_bytes=arguments.max_batch_bytes,
            )
        finally:
            progress.close()
        if refusal := untrusted(disk, book.folders):
            say(f"replog: {refusal}; it is looked at all the same")
    finally:
        disk.close()
    if arguments.json:
        for finding in book.findings:
            tell(json_line(finding.fields()))
        tell(json_line(totals(book)))
        return exit_code(book)
    for finding in sorted(book.findings, key=lambda finding: -finding.level):
        for line in lines_of(finding):
            tell(printable(line))
    for level, path, count in book.unlisted():
        tell(printable(f"{path}: and {count:,} more like these ({level.name.lower()})"))
    tell(summary(book))
    return exit_code(book)


def exit_code(book: Report) -> int:
    """The code of the worst finding; 1 if a folder could not be looked into, and nothing is damaged."""
    if book.unseen and book.worst is not Level.DAMAGE:
        return EXIT_FAILED
    return _EXIT_CODES[book.worst]


def totals(book: Report) -> dict[str, object]:
    """The numbers, for JSON."""
    return {
        "result": ("sound", "warnings", "damage")[book.worst],
        "damage": book.count(Level.DAMAGE),
        "warnings": book.count(Level.WARNING),
        "notes": book.count(Level.NOTE),
        "partitions": book.partition_count,
        "files": book.file_count,
        "bytes": book.byte_count,
        "batches": book.batch_count,
        "records": book.record_count,
    }


def lines_of(finding: Finding) -> list[str]:
    """Return a finding for people: level and place, the error, the next step."""
    where = finding.path
    if finding.position >= 0:
        where += f", byte {finding.position}"
    if finding.start >= 0 and finding.end > finding.start:
        where += (
            f", offsets {finding.start} to {finding.end - 1}"
            if finding.end > finding.start + 1
            else f", offset {finding.start}"
        )
    lines = [f"{finding.level.name.lower()}: {where}", f"    {finding.what}"]
    return [*lines, f"    -> {finding.advice}"] if finding.advice else lines


def summary(book: Report) -> str:
    """Return one line with the numbers of files, batches and records, and the result."""
    looked = ", ".join(
        (
            counted(book.partition_count, "partition"),
            counted(book.file_count, "file"),
            amount(book.byte_count),
            f"{book.batch_count:,} batch{'' if book.batch_count == 1 else 'es'}",
            counted(book.record_count, "record"),
        )
    )
    if book.worst is Level.NOTE:
        return f"sound: {looked}"
    return f"{book.count(Level.DAMAGE)} damaged, {counted(book.count(Level.WARNING), 'warning')}: {looked}"
