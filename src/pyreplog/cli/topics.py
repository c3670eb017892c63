"""List the topics in a folder, with their partitions and how many offsets each spans, up to the high watermark and above it."""

from __future__ import annotations

import argparse
from typing import Final

from pyreplog.cli.options import EXIT_OK, Parser, add_path, add_progress
from pyreplog.cli.output import counted, json_line, printable
from pyreplog.cli.reading import readers

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "topics"
HELP: Final = "list the topics in a folder"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog topics``."""
    add_path(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object per topic")
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one line per topic."""
    with readers(arguments.path, progress=arguments.progress) as found:
        topics: dict[str, list[int]] = {}
        for key, reader in found.items():
            entry = topics.setdefault(key.topic, [0, 0, 0])
            entry[0] += 1
            entry[1] += reader.end_offset - reader.start_offset
            entry[2] += reader.above_high_watermark
    width = max((len(printable(name)) for name in topics), default=0)
    for name, (partitions, count, above) in topics.items():
        if arguments.json:
            print(json_line({"topic": name, "partitions": partitions, "offsets": count, "above_high_watermark": above}))
        else:
            more = f", {above:,} above the high watermark" if above else ""
            print(f"{printable(name):{width}}  {counted(partitions, 'partition')}, {counted(count, 'offset')}{more}")
    return EXIT_OK
