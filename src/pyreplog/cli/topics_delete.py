"""Delete a topic of a cluster, with all its records. There is no way back: `replog backup` makes a copy before.

The cluster's nodes are started for that, and stopped again; a program that runs the cluster deletes topics itself,
with cluster.admin.delete_topic."""

from __future__ import annotations

import argparse
from typing import Final

from pyreplog.cli.options import EXIT_OK, Parser
from pyreplog.cli.output import json_line, printable
from pyreplog.cli.topic_commands import add_topic, open_cluster

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "topics delete"
HELP: Final = "delete a topic of a cluster, with all its records"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog topics delete``."""
    add_topic(parser)


def run(arguments: argparse.Namespace) -> int:
    """Delete the topic, and say so."""
    with open_cluster(
        arguments, f"cluster.admin.delete_topic({arguments.topic!r})", "and its folder can be removed as a whole"
    ) as cluster:
        cluster.admin.delete_topic(arguments.topic)
    print(json_line({"deleted": arguments.topic}) if arguments.json else printable(f"{arguments.topic}: deleted"))
    return EXIT_OK
