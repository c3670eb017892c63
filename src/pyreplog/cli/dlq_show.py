"""Print dead letters whole, one JSON object each, as `replog cat` prints records: value, key and headers of the record
that was given up, and in "dead_letter" where it is from, who gave it up, after how many attempts, and why.

Exit code 1: there are none."""

from __future__ import annotations

import argparse
from typing import Final

from pyreplog.cli.dlq import add_letters, add_offsets, find_letters, letters_in
from pyreplog.cli.options import EXIT_FAILED, EXIT_OK, Parser
from pyreplog.cli.output import json_line, put_bytes, record_fields, say
from pyreplog.readers import source_headers

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "dlq show"
HELP: Final = "print dead letters whole"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog dlq show``."""
    add_letters(parser)
    add_offsets(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one object for each."""
    count = 0
    for record, letter in letters_in(find_letters(arguments.path, arguments.topic)):
        if arguments.offset not in (None, record.offset):
            continue
        count += 1
        fields = record_fields(record)
        if letter is not None:
            headers = source_headers(record.headers)
            fields["headers"] = [
                put_bytes({"key": key}, "value", None if value is None else bytes(value))  # type: ignore[call-overload]
                for key, value in headers
            ]
            fields["dead_letter"] = letter._asdict()
        print(json_line(fields))
    if not count:
        say(f"replog dlq show: no dead letter is at offset {arguments.offset}")
        return EXIT_FAILED
    return EXIT_OK
