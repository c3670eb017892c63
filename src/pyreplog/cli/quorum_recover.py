"""Let a cluster go on after a majority of its voters was lost for good, with the nodes whose folders are left.

Acknowledged records and topics may be lost, and the command says which. It asks nothing: before you run it, put back
every node's folder that can be found, because a folder that comes back later is an old copy. The surviving metadata
log with the highest epoch and end counts from here on, and its node is the only voter. The cluster must be closed;
open it afterwards as always.

Exit code 1: the cluster is open, has no quorum, has a majority of its voters, or no metadata survives."""

from __future__ import annotations

import argparse
from typing import Final

from pyreplog.cli.options import EXIT_OK, Parser, add_permissions, place, seconds
from pyreplog.cli.output import json_line, printable
from pyreplog.cli.reading import check_path
from pyreplog.runtime import PossibleLoss, QuorumRecovery, recover_quorum

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "quorum recover"
HELP: Final = "let a cluster go on that lost a majority of its voters for good"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog quorum recover``."""
    parser.add_argument("path", metavar="PATH", type=place, help="a cluster's folder")
    add_permissions(parser)
    parser.add_argument(
        "--lock-timeout",
        metavar="SECONDS",
        type=seconds,
        default=0.0,
        help="wait so long for another process to close the cluster (default: 0)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, then one for each possible loss")


def run(arguments: argparse.Namespace) -> int:
    """Recover the quorum; print the last known offset and the records that may be lost."""
    check_path(arguments.path)
    done = recover_quorum(arguments.path, permissions=arguments.permissions, lock_timeout=arguments.lock_timeout)
    for line in _rows_of(done) if arguments.json else _lines_of(done):
        print(line)
    return EXIT_OK


def _lines_of(done: QuorumRecovery) -> list[str]:
    lines = [
        f"the metadata is known up to offset {done.known_offset} of epoch {done.epoch}: topics and changes above it are"
        " lost",
        f"node {done.node_id} is the only voter now",
        *(printable(str(loss)) for loss in done.losses),
        *(printable(f"{folder}: not in the metadata; its node will keep it as -stray") for folder in done.unknown),
    ]
    if not done.losses:
        lines.append("of the topics that the metadata knows, no committed record is lost")
    return lines


def _rows_of(done: QuorumRecovery) -> list[str]:
    recovery = {
        "voter": done.node_id,
        "epoch": done.epoch,
        "known_offset": done.known_offset,
        "unknown": list(done.unknown),
    }
    return [json_line(recovery), *(json_line(_row_of(loss)) for loss in done.losses)]


def _row_of(loss: PossibleLoss) -> dict[str, object]:
    """Return a possible loss for JSON. ``end_offset`` is None if no surviving file names the end."""
    return {
        "topic": loss.topic,
        "partition": loss.partition,
        "node": loss.node_id,
        "start_offset": loss.start,
        "end_offset": loss.end if loss.end >= 0 else None,
    }
