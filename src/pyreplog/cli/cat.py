"""Print records, one JSON object per line, partition after partition in the order of their offsets.

A key, value or header that is not UTF-8 stands under key_base64 or value_base64. `replog append` takes the lines back.
Only records below the high watermark are shown."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Final

from pyreplog.cli.options import (
    EXIT_OK,
    EXIT_USAGE,
    Parser,
    add_path,
    add_progress,
    add_range,
    add_selection,
    add_shape,
    is_reversed,
    number,
)
from pyreplog.cli.output import Progress, json_line, printable, record_fields, say
from pyreplog.cli.reading import readers
from pyreplog.config import INT64_MAX
from pyreplog.log import LogReader
from pyreplog.record import Record, records_of

__all__ = ["HELP", "NAME", "add_arguments", "chosen", "run", "write_records"]

NAME: Final = "cat"
HELP: Final = "print records as NDJSON"


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog cat``."""
    add_path(parser)
    add_selection(parser)
    add_range(parser)
    parser.add_argument("-n", "--count", metavar="N", type=number, help="stop after N records in all")
    add_shape(parser)
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the chosen records."""
    if is_reversed(arguments):
        return EXIT_USAGE
    with readers(arguments.path, topic=arguments.topic, partition=arguments.partition, progress=arguments.progress) as found:
        total = sum(max(0, min(reader.end_offset, arguments.end) - max(reader.start_offset, arguments.start)) for reader in found.values())
        if arguments.count is not None:
            total = min(total, arguments.count)
        progress = Progress("read", total=total, forced=arguments.progress, beside=True)
        if found and arguments.start > (end := max(reader.end_offset for reader in found.values())):
            say(f"replog cat: nothing is there yet at offset {arguments.start}: readers see what lies below {end}")
        left = INT64_MAX if arguments.count is None else arguments.count
        try:
            for reader in found.values():
                for records in chosen(reader, arguments):
                    if left <= 0:
                        return EXIT_OK
                    records = records[:left]  # noqa: PLW2901
                    left -= len(records)
                    write_records(records, values=arguments.values)
                    progress.add(len(records))
        finally:
            progress.close()
    return EXIT_OK


def chosen(reader: LogReader, arguments: argparse.Namespace) -> Iterator[list[Record]]:
    """The records of one partition that the arguments select, batch by batch. Indexes only skip: each record is checked."""
    source = reader.isolated(arguments.isolation)
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
        records = records_of(batch, reader.topic, reader.partition, start, end)
        if since is not None or until is not None:
            # A record without a time, -1, is in no range of times.
            low, high = max(since or 0, 0), INT64_MAX + 1 if until is None else until
            records = [record for record in records if low <= record.timestamp < high]
        if records:
            yield records


def write_records(records: list[Record], *, values: bool) -> None:
    """As one JSON object each, or as the values alone, on standard output."""
    if not values:
        text = "".join([json_line(record_fields(record)) + "\n" for record in records])
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    elif sys.stdout.isatty():
        for record in records:
            print(printable((record.value or b"").decode("utf-8", "backslashreplace")))
    else:
        sys.stdout.buffer.write(b"".join([(record.value or b"") + b"\n" for record in records]))
