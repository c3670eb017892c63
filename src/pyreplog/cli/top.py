"""Show how a cluster is, again and again: its nodes, and the leader and the copies of each partition with their high
watermarks and log end offsets. It reads the folders, beside the process that runs the cluster, and takes no lock.

In a copy's column: * leads, = in sync, - out of sync, ! not there; then its high watermark / its log end offset.
Partitions that lack a leader or replicas come first. Ctrl-C ends it."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Final

from pyreplog.cli.cluster_text import node_lines, partition_lines, summary_lines
from pyreplog.cli.options import EXIT_OK, Parser, place, seconds
from pyreplog.cli.output import counted
from pyreplog.cli.reading import check_path
from pyreplog.runtime import StoredCluster, StoredState

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "top"
HELP: Final = "show the nodes, leaders and replicas of a cluster, again and again"
PAUSE_MIN_S: Final = 0.05
_HOME: Final = "\x1b[H"
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"
_CLEAR: Final = "\x1b[2J"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog top``."""
    parser.add_argument("path", metavar="PATH", type=place, help="a cluster's folder")
    parser.add_argument("--once", action="store_true", help="print one picture with all partitions, and end")
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="SECONDS", help="the pause between two looks (default: 1)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print one picture, or a new one at each interval."""
    check_path(arguments.path)
    cluster = StoredCluster(arguments.path)
    try:
        state = cluster.look()
        if arguments.once:
            print("\n".join(_picture(state, None)))
            return EXIT_OK
        is_terminal = sys.stdout.isatty()
        if is_terminal:
            sys.stdout.write(_CLEAR)
        counter = _Elections()
        while True:
            elections = counter.note(state)
            if is_terminal:
                width, height = shutil.get_terminal_size()
                lines = [line[: width - 1] for line in _picture(state, elections, height - 1)]
                sys.stdout.write(_HOME + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_BELOW)
            else:
                print("\n".join([*_picture(state, elections), ""]))
            sys.stdout.flush()
            time.sleep(max(PAUSE_MIN_S, arguments.interval))
            state = cluster.look()
    finally:
        cluster.close()


class _Elections:
    """Counts elections since the first look, by the leader epochs."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._count = 0

    def note(self, state: StoredState) -> int:
        """Note the next state, and return the number of elections since the first."""
        epochs = {one.name: one.leader_epoch for one in state.partitions}
        self._count += sum(max(0, epoch - self._epochs.get(name, epoch)) for name, epoch in epochs.items())
        self._epochs = epochs
        return self._count


def _picture(state: StoredState, elections: int | None, height: int | None = None) -> list[str]:
    """Return the lines of one picture, at most ``height``."""
    lines = [*summary_lines(state, elections), "", *node_lines(state), ""]
    found: Sequence[str] = partition_lines(state, state.worst_first)
    room = len(found) if height is None else max(2, height - len(lines))
    if len(found) <= room:
        return [*lines, *found]
    left = len(found) - room + 1
    return [*lines, *found[: room - 1], f"... and {counted(left, 'partition')} more: --once shows all"]
