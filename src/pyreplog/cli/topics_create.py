"""Make a topic in a cluster. The cluster's nodes are started for that, and stopped again; a program that runs the
cluster makes topics itself, with cluster.admin.create_topic.

Exit code 1: the topic exists already, or cannot be made."""

from __future__ import annotations

import argparse
from typing import Final

from pyreplog.cli.options import EXIT_OK, Parser, number
from pyreplog.cli.topic_commands import add_topic, open_cluster, show_topic
from pyreplog.cli.topics_config import settings_of_words

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "topics create"
HELP: Final = "make a topic in a cluster"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog topics create``."""
    add_topic(parser)
    parser.add_argument("--partitions", metavar="N", type=number, help="how many partitions (default: 1)")
    parser.add_argument(
        "--replication-factor",
        metavar="N",
        type=number,
        help="how many nodes have a copy (default: 3, or as many as there are nodes)",
    )
    parser.add_argument(
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting, by Kafka's key, such as retention.ms=86400000; may be given several times",
    )
    parser.add_argument(
        "--placement",
        choices=("striped", "shifted", "modular"),
        default="striped",
        help="the rule by which the copies are put on nodes (default: striped)",
    )
    parser.add_argument("--exist-ok", action="store_true", help="accept a topic that exists, if it is as it is wanted")


def run(arguments: argparse.Namespace) -> int:
    """Make the topic, and print it."""
    config = {key: value for key, value in settings_of_words(arguments.config, may_reset=False).items() if value}
    with open_cluster(
        arguments, f"cluster.admin.create_topic({arguments.topic!r})", "which `replog append` makes"
    ) as cluster:
        topic = cluster.admin.create_topic(
            arguments.topic,
            arguments.partitions,
            arguments.replication_factor,
            config,
            placement=arguments.placement,
            exist_ok=arguments.exist_ok,
        )
        show_topic(topic, as_json=arguments.json)
    return EXIT_OK
