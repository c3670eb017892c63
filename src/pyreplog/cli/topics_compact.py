"""Compact a topic of a cluster now: of each key only the newest record is kept.

For a topic with cleanup.policy compact or compact,delete. The cluster's nodes are started for that, and stopped again;
a program that runs the cluster compacts topics itself, with cluster.admin.compact, and by itself in the background.
Exit code 4: a replica was not compacted, and the output names it."""

from __future__ import annotations

import argparse
from typing import Final

from pyreplog.cli.options import EXIT_OK, EXIT_WARNED, Parser
from pyreplog.cli.output import json_line, printable
from pyreplog.cli.topic_commands import add_topic, open_cluster

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "topics compact"
HELP: Final = "keep only the newest record of each key of a cluster's topic"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog topics compact``."""
    add_topic(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compact the topic, and print the counts of each replica."""
    call = f"cluster.admin.compact({arguments.topic!r})"
    with open_cluster(arguments, call, "which log.compact() compacts") as cluster:
        done = cluster.admin.compact(arguments.topic)
    if arguments.json:
        partitions = {
            number: {node: one._asdict() for node, one in replicas.items()}
            for number, replicas in done.partitions.items()
        }
        print(json_line({"topic": done.topic, "partitions": partitions, "skipped": done.skipped}))
    else:
        for line in str(done).splitlines():
            print(printable(line))
    return EXIT_WARNED if done.skipped else EXIT_OK
