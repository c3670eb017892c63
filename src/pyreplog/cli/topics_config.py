"""Show or change the settings of a topic of a cluster.

KEY=VALUE changes a setting, KEY= resets it to the cluster's default or else to pyreplog's; without one the settings
are shown, also beside the process that runs the cluster. For a change the cluster's nodes are started and stopped
again; a program that runs the cluster changes settings itself, with cluster.admin.alter_config."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Final

from pyreplog.cli.options import EXIT_OK, Parser
from pyreplog.cli.output import json_line, printable
from pyreplog.cli.topic_commands import add_topic, check_cluster, open_cluster
from pyreplog.config import LogConfig
from pyreplog.errors import ConfigError
from pyreplog.runtime import ClusterReader, TopicDescription

__all__ = ["HELP", "NAME", "add_arguments", "run", "settings_of_words"]

NAME: Final = "topics config"
HELP: Final = "show or change the settings of a cluster's topic"
_OF_A_LOG: Final = "whose settings open_log(path, config={...}) changes"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog topics config``."""
    add_topic(parser)
    parser.add_argument("settings", metavar="KEY=VALUE", nargs="*", help="a change; KEY= resets")
    parser.add_argument("--all", action="store_true", help="show every setting, those at their defaults too")


def run(arguments: argparse.Namespace) -> int:
    """Print the settings, changed or not."""
    changes = settings_of_words(arguments.settings, may_reset=True)
    if not changes:
        check_cluster(arguments.path, _OF_A_LOG)
        with ClusterReader(arguments.path, mode="r") as reader:
            _show(reader.describe(arguments.topic), arguments)
        return EXIT_OK
    call = f"cluster.admin.alter_config({arguments.topic!r}, {changes!r})"
    with open_cluster(arguments, call, _OF_A_LOG) as cluster:
        _show(cluster.admin.alter_config(arguments.topic, changes), arguments)
    return EXIT_OK


def _show(topic: TopicDescription, arguments: argparse.Namespace) -> None:
    config = dict(topic.config)
    if arguments.all:
        config = LogConfig.from_mapping(config).to_mapping(whole=True)
    if arguments.json:
        print(json_line(config))
        return
    for key, value in sorted(config.items()):
        print(printable(f"{key}={value}"))


def settings_of_words(words: Iterable[str], *, may_reset: bool) -> dict[str, str | None]:
    """Return the settings that words such as ``retention.ms=5`` name. ``retention.ms=`` resets one, which is None."""
    found: dict[str, str | None] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals or (not value and not may_reset):
            reset = ", or KEY= to reset it" if may_reset else ""
            raise ConfigError(f"{word!r} is not a setting: write KEY=VALUE{reset}")
        if key in found:
            raise ConfigError(f"{key} is given twice")
        found[key] = value or None
    return found
