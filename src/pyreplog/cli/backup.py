"""Copy a log, a cluster's folder or a broker's folder, while programs append to it.

The backup holds the records that readers see: those of each partition from its start to one offset, the same for
all replicas. Nothing is locked. TARGET is a new folder, an empty one, or an earlier backup of SOURCE: then only new
segments and the last one are copied. The backup is verified before the command ends. An interrupted backup cannot
be opened: run the command again to finish it. To restore, back up in the opposite direction into a new folder; the
command prints how.

Exit code 0: the backup is whole; 3: SOURCE is damaged, and the backup is not whole."""

from __future__ import annotations

import argparse
import os
from typing import Final

from pyreplog.cli.options import EXIT_OK, Parser, add_path, add_permissions, add_progress, place
from pyreplog.cli.output import ProgressBar, amount, counted, json_line, printable, say, tell
from pyreplog.cli.reading import check_path
from pyreplog.runtime import backup
from pyreplog.values import BackupProgress

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "backup"
HELP: Final = "copy a log or a cluster that is in use, and new data into an earlier copy"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog backup``."""
    add_path(parser)
    parser.add_argument(
        "target", metavar="TARGET", type=place, help="a new folder, or an earlier backup of the same folder"
    )
    add_permissions(parser)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the backup and report its content."""
    source = os.path.abspath(arguments.path)
    check_path(source)
    shown = _Shown(forced=arguments.progress)
    try:
        report = backup(source, arguments.target, progress=shown.tell, permissions=arguments.permissions)
    finally:
        shown.close()
    for note in report.notes:
        say(f"replog backup: {note}")
    if arguments.json:
        tell(json_line(report._asdict()))
        return EXIT_OK
    what = (
        f"{counted(report.partition_count, 'partition')}, {counted(report.record_count, 'record')},"
        f" {amount(report.total_size)}"
    )
    tell(printable(f"{report.target}: {what}, of which {amount(report.copied_size)} were copied now; verified"))
    tell(printable(f"to restore, move the rest of {report.source} away, then: {report.restore}"))
    return EXIT_OK


class _Shown:
    """The progress of both stages, each with a line of its own."""

    def __init__(self, *, forced: bool) -> None:
        self._forced = forced
        self._stage = ""
        self._done = 0
        self._progress: ProgressBar | None = None

    def tell(self, news: BackupProgress) -> None:
        """More is done."""
        if self._progress is None or news.stage != self._stage:
            self.close()
            self._stage, self._done = news.stage, 0
            self._progress = ProgressBar(news.stage, total=news.total_size, forced=self._forced, sized=True)
        self._progress.add(news.done_size - self._done)
        self._done = news.done_size

    def close(self) -> None:
        """End the line."""
        if self._progress is not None:
            self._progress.close()
            self._progress = None
