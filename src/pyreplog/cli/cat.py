"""Print records, one JSON object per line, partition after partition in the order of their offsets.

A key, value or header that is not UTF-8 stands under key_base64 or value_base64. `replog append` takes the lines
back. Only records below the high watermark are shown. With --all the independent logs in all PATHs are read: log
after log, in the order of the paths and of the folders' names, each partition in the order of its offsets. Each
line then begins with the field log: the log's folder, relative to the deepest folder that holds all of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyreplog.cli.options import (
    EXIT_DAMAGED,
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    Parser,
    add_limit,
    add_path,
    add_progress,
    add_range,
    add_selection,
    add_shape,
    add_skipping,
    is_reversed,
    number,
)
from pyreplog.cli.output import ProgressBar, json_line, printable, record_fields, say
from pyreplog.cli.reading import include_above, readers, source_of, tell_above
from pyreplog.cli.several import Named, SeveralLogs, readers_of_several
from pyreplog.config import INT64_MAX
from pyreplog.log import LogReader, check_skipping, placed_lists
from pyreplog.record import Record

__all__ = ["HELP", "NAME", "add_arguments", "chosen", "run", "write_records"]

NAME: Final = "cat"
HELP: Final = "print records as NDJSON"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog cat``."""
    add_path(parser, several=True)
    parser.add_argument(
        "--all",
        action="store_true",
        help="every log in the folders PATH (a folder for each worker, day or tenant), with the field log",
    )
    add_selection(parser)
    add_range(parser)
    parser.add_argument("-n", "--count", metavar="N", type=number, help="stop after N records in all")
    add_shape(parser)
    add_skipping(parser)
    add_limit(parser)
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the chosen records."""
    if is_reversed(arguments):
        return EXIT_USAGE
    if len(arguments.path) > 1 and not arguments.all:
        say("replog cat: several folders are read by --all: add it, or name one folder")
        return EXIT_USAGE
    if arguments.skip_damaged:
        check_skipping(arguments.isolation)
    arguments.left_out = []
    with _opened(arguments) as logs:
        found = [reader for _, reader in logs.named]
        include_above(arguments, found)
        total = sum(
            max(0, min(reader.end_offset, arguments.end) - max(reader.start_offset, arguments.start))
            for reader in found
        )
        if arguments.count is not None:
            total = min(total, arguments.count)
        progress = ProgressBar("read", total=total, forced=arguments.progress, beside=True)
        if found and arguments.start > (end := max(reader.end_offset for reader in found)):
            say(f"replog cat: there is no record yet at offset {arguments.start}: readers see records below {end}")
        left = INT64_MAX if arguments.count is None else arguments.count
        try:
            for log, reader in logs.named:
                progress.begin(max(reader.start_offset, arguments.start))
                for records in chosen(reader, arguments):
                    if left <= 0:
                        return EXIT_DAMAGED if arguments.left_out else EXIT_OK
                    records = records[:left]  # noqa: PLW2901
                    left -= len(records)
                    write_records(records, values=arguments.values, log=log)
                    progress.add(len(records), None if arguments.count is not None else records[-1].offset + 1)
        finally:
            progress.close()
        tell_above(arguments, found)
    if arguments.left_out:
        return EXIT_DAMAGED
    return EXIT_FAILED if logs.is_partial else EXIT_OK


@contextmanager
def _opened(arguments: argparse.Namespace) -> Iterator[SeveralLogs]:
    """The readers of the one log, or with ``--all`` of every log."""
    selection = {
        "topic": arguments.topic,
        "partition": arguments.partition,
        "progress": arguments.progress,
        "skips": arguments.skip_damaged,
    }
    if arguments.all:
        with readers_of_several(arguments.path, **selection) as logs:
            yield logs
    else:
        with readers(arguments.path[0], **selection) as found:
            yield SeveralLogs([Named("", reader) for reader in found.values()])


def chosen(reader: LogReader, arguments: argparse.Namespace) -> Iterator[list[Record]]:
    """The records of one partition that the arguments select, batch by batch. Indexes only skip: each record is
    checked."""
    source = source_of(reader, arguments)
    start, end = max(arguments.start, reader.start_offset), min(arguments.end, source.end_offset)
    since, until = arguments.start_timestamp, arguments.end_timestamp
    if since is not None:
        first = source.find_timestamp(since)
        if first is None:
            return
        start = max(start, first[0])
    if start >= end:
        return
    for batch in source.batches(start, end):
        for records in placed_lists(source, batch, reader.topic, reader.partition, start, end):
            if since is not None or until is not None:
                # A record without a time, -1, is in no range of times.
                low, high = max(since or 0, 0), INT64_MAX + 1 if until is None else until
                records = [record for record in records if low <= record.timestamp < high]  # noqa: PLW2901
            if records:
                yield records


def write_records(records: list[Record], *, values: bool, log: str = "") -> None:
    """As one JSON object each, or as the values alone, on standard output. ``log``: the log's name, if several are
    read."""
    if not values:
        named = {"log": log} if log else {}
        text = "".join([json_line(named | record_fields(record)) + "\n" for record in records])
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    elif sys.stdout.isatty():
        for record in records:
            print(printable((record.value or b"").decode("utf-8", "backslashreplace")))
    else:
        sys.stdout.buffer.write(b"".join([(record.value or b"") + b"\n" for record in records]))
