"""Show how replication goes wrong, step by step, with each replica's log drawn; and how leader epochs prevent it.

Without a name: the lessons there are. --all lists besides each known bug that the tests must find; their names are
understood, too."""

from __future__ import annotations

import argparse
from typing import Final

from pyreplog.cli.options import EXIT_OK, EXIT_USAGE, Parser
from pyreplog.cli.output import json_line, say
from pyreplog.config import suggestion

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "lesson"
HELP: Final = "show step by step how replicated logs lose records, and what prevents it"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog lesson``."""
    parser.add_argument("lesson", metavar="NAME", nargs="?", help="which one (default: list them)")
    parser.add_argument("--all", action="store_true", help="list the known bugs as well")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per lesson of the list, or the one lesson with its lines"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the list, or one lesson."""
    from pyreplog.testing.known_bad import CLUSTERS, KNOWN_BAD  # noqa: PLC0415  (the same)
    from pyreplog.testing.lessons import LESSONS, about, exhibit  # noqa: PLC0415  (the simulation is loaded only to be shown)

    name = arguments.lesson
    if name is None:
        listed = {told.name: told.title for told in LESSONS.values()}
        if arguments.all:
            listed |= {exhibit_name: about(exhibit_name) for exhibit_name in (*KNOWN_BAD, *CLUSTERS)}
        width = max(len(lesson) for lesson in listed)
        for lesson, title in listed.items():
            print(json_line({"lesson": lesson, "title": title}) if arguments.json else f"{lesson:{width}}  {title}")
        return EXIT_OK
    names = (*LESSONS, *KNOWN_BAD, *CLUSTERS)
    if name not in names:
        say(f"replog lesson: unknown lesson {name!r}{suggestion(name, names)}")
        return EXIT_USAGE
    lines = LESSONS[name].lines() if name in LESSONS else exhibit(name)
    if arguments.json:
        print(json_line({"lesson": name, "lines": list(lines)}))
        return EXIT_OK
    for line in lines:
        print(line)
    return EXIT_OK
