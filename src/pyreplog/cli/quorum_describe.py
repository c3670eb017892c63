"""Show the voters of a cluster and how far each node has the metadata log.

It is read from the nodes' folders, whether the cluster runs or not, so it does not say which node leads; the program
that runs the cluster asks the leader, with cluster.admin.describe_quorum().

Exit code 1: there is no cluster with a quorum, or a majority of its voters is missing."""

from __future__ import annotations

import argparse
from typing import Final

from pyreplog.cli.options import EXIT_FAILED, EXIT_OK, Parser, place
from pyreplog.cli.output import counted, json_line, say
from pyreplog.cli.reading import check_path
from pyreplog.runtime import StoredQuorum, stored_quorum

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "quorum describe"
HELP: Final = "show the voters of a cluster, and the metadata in each node's folder"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog quorum describe``."""
    parser.add_argument("path", metavar="PATH", type=place, help="a cluster's folder")
    parser.add_argument("--json", action="store_true", help="one JSON object per node")


def run(arguments: argparse.Namespace) -> int:
    """Print one line for each node."""
    check_path(arguments.path)
    quorum = stored_quorum(arguments.path)
    if not arguments.json:
        there = len(quorum.voters) - len(quorum.lost)
        what = "whole" if quorum.damaged else "there"
        print(f"the metadata of {there} of {counted(len(quorum.voters), 'voter')} is {what}, by the nodes' folders:")
    for number in sorted({*quorum.voters, *quorum.ends}):
        print(_row(quorum, number) if arguments.json else _line(quorum, number))
    if quorum.has_majority:
        return EXIT_OK
    say(
        "replog quorum describe: a majority of the voters is missing or damaged: put their folders back. If these are"
        " lost for good, `replog quorum recover` goes on with what is left"
    )
    return EXIT_FAILED


def _line(quorum: StoredQuorum, number: int) -> str:
    role = "voter" if number in quorum.voters else "observer"
    head = f"node {number:<3}  {role:8} "
    if number in quorum.damaged:
        epoch, end = quorum.ends.get(number, (0, 0))
        return f"{head} damaged, sound below offset {end}, in epoch {epoch}: {quorum.damaged[number]}"
    if number not in quorum.ends:
        return f"{head} missing"
    epoch, end = quorum.ends[number]
    return f"{head} log ends at offset {end}, in epoch {epoch}"


def _row(quorum: StoredQuorum, number: int) -> str:
    epoch, end = quorum.ends.get(number, (None, None))
    return json_line(
        {
            "node": number,
            "voter": number in quorum.voters,
            "epoch": epoch,
            "log_end_offset": end,
            "damage": quorum.damaged.get(number),
        }
    )
