"""Show how replication goes wrong, step by step, with each replica's log drawn; and how leader epochs prevent it.

Without a name: the lessons there are. The names of the museum of known bugs are understood, too (--all lists them)."""

from __future__ import annotations

import argparse
from typing import Final

from pyreplog.cli.options import EXIT_OK, EXIT_USAGE, Parser
from pyreplog.cli.output import say
from pyreplog.config import suggestion

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "lesson"
HELP: Final = "show step by step how replicated logs lose records, and what prevents it"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog lesson``."""
    parser.add_argument("lesson", metavar="NAME", nargs="?", help="which one (default: list them)")
    parser.add_argument("--all", action="store_true", help="list the museum of known bugs as well")


def run(arguments: argparse.Namespace) -> int:
    """Print the list, or one lesson."""
    from pyreplog.testing.lessons import LESSONS, exhibit  # noqa: PLC0415  (the simulation is loaded only to be shown)
    from pyreplog.testing.variants import MUSEUM  # noqa: PLC0415  (the same)

    name = arguments.lesson
    if name is None:
        width = max(len(one) for one in (*LESSONS, *(MUSEUM if arguments.all else ())))
        for lesson in LESSONS.values():
            print(f"{lesson.name:{width}}  {lesson.title}")
        for variant in MUSEUM.values() if arguments.all else ():
            print(f"{variant.name:{width}}  {', '.join(variant.numbers)}: breaks {', '.join(variant.caught_by) or 'nothing'}")
        return EXIT_OK
    if name in LESSONS:
        for line in LESSONS[name].lines():
            print(line)
        return EXIT_OK
    if name in MUSEUM:
        for line in exhibit(name):
            print(line)
        return EXIT_OK
    say(f"replog lesson: unknown lesson {name!r}{suggestion(name, (*LESSONS, *MUSEUM))}")
    return EXIT_USAGE
