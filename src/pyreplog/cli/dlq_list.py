"""List the dead letters of a log or a cluster: the records that a reader or a queue gave up, where they are from, who
gave them up, after how many attempts, and why.

A log's dead letters are in a log of their own, in the folder with .dlq behind the log's name; a cluster's are in its
topics dlq.TOPIC.

Exit code 1: there are none."""

from __future__ import annotations

import argparse
from typing import Final

from pyreplog.cli.dlq import add_letters, find_letters, letters_in
from pyreplog.cli.options import EXIT_OK, Parser
from pyreplog.cli.output import counted, json_line, printable

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "dlq list"
HELP: Final = "list the records that a reader or a queue gave up"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog dlq list``."""
    add_letters(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per dead letter")


def run(arguments: argparse.Namespace) -> int:
    """Print one line for each."""
    for record, letter in letters_in(find_letters(arguments.path, arguments.topic)):
        at = f"{record.topic}-{record.partition} @ {record.offset}"
        if arguments.json:
            place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            print(json_line({**place, "dead_letter": None if letter is None else letter._asdict()}))
        elif letter is None:
            print(printable(f"{at}: no dead letter"))
        else:
            print(
                printable(
                    f"{at}: {letter.topic}-{letter.partition} @ {letter.offset}, given up by {letter.group} after"
                    f" {counted(letter.delivery_count, 'attempt')}: {letter.message}"
                )
            )
    return EXIT_OK
