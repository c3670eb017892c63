"""The arguments and the opening that ``replog topics create``, ``config`` and ``delete`` share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyreplog.cli.options import Parser, add_permissions, add_progress, place, seconds
from pyreplog.cli.output import counted, json_line, printable
from pyreplog.cli.reading import check_path
from pyreplog.cli.writing import ShownRecovery, is_cluster
from pyreplog.errors import ConfigError, LockedError
from pyreplog.runtime import Cluster, TopicDescription

__all__ = ["add_topic", "check_cluster", "open_cluster", "show_topic"]


def add_topic(parser: Parser) -> None:
    """Add the cluster's folder, the topic, and the options of a command that opens a cluster."""
    parser.add_argument("path", metavar="PATH", type=place, help="a cluster's folder")
    parser.add_argument("topic", metavar="TOPIC", help="the topic")
    add_permissions(parser)
    parser.add_argument(
        "--lock-timeout",
        metavar="SECONDS",
        type=seconds,
        default=0.0,
        help="wait so long for another process to close the cluster (default: 0)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add_progress(parser)


def check_cluster(path: str, in_python: str) -> None:
    """Raise the error that says what to do if ``path`` is no cluster's folder. ``in_python`` does the same to a log."""
    check_path(path)
    if not is_cluster(path):
        raise ConfigError(
            f"{path} is not a cluster's folder: only a cluster has topics to make, change and delete. A lone log is one"
            f" topic, {in_python}; Cluster(path) in Python makes a cluster"
        )


@contextmanager
def open_cluster(arguments: argparse.Namespace, call: str, in_python: str) -> Iterator[Cluster]:
    """Start the cluster, and close it after the body. ``call`` is the method that does the same in the process that
    runs the cluster; ``in_python`` does it to a lone log."""
    check_cluster(arguments.path, in_python)
    with ShownRecovery(arguments.path, forced=arguments.progress) as recovery:
        try:
            cluster = Cluster(
                arguments.path,
                progress=recovery.tell,
                permissions=arguments.permissions,
                lock_timeout=arguments.lock_timeout,
            )
        except LockedError as error:
            error.command_text = f"{error.command_text}. The program that runs the cluster can do it: {call}"
            raise
    with cluster:
        yield cluster


def show_topic(topic: TopicDescription, *, as_json: bool) -> None:
    """Print what a topic is now."""
    factor = len(topic.partitions[0].replicas)
    if as_json:
        row: dict[str, Any] = {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "partitions": len(topic.partitions),
            "replication_factor": factor,
            "config": dict(topic.config),
        }
        print(json_line(row))
        return
    settings = " ".join(f"{key}={value}" for key, value in sorted(topic.config.items()))
    replicas = counted(factor, "replica")
    print(printable(f"{topic.name}: {counted(len(topic.partitions), 'partition')}, {replicas} each, {settings}"))
