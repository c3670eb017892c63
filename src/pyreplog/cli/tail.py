"""Print the last records of each partition, and with --follow each new one as soon as it may be read.

One JSON object per record, as `replog cat` prints it. The writer is not disturbed. Ctrl-C ends the command, and so
does the end of the program that reads its output (`| head -1`)."""

from __future__ import annotations

import argparse
import errno
import select
import sys
import time
from collections.abc import Iterable
from typing import Final

from pyreplog.cli.cat import write_records
from pyreplog.cli.options import (
    EXIT_OK,
    EXIT_USAGE,
    Parser,
    add_limit,
    add_path,
    add_progress,
    add_selection,
    add_shape,
    number,
    seconds,
)
from pyreplog.cli.output import ProgressBar, say
from pyreplog.cli.reading import reading_disk
from pyreplog.errors import OffsetOutOfRangeError
from pyreplog.log import LogReader, placed_lists
from pyreplog.ports import Watch
from pyreplog.record import Record
from pyreplog.system import SystemDisk

__all__ = ["HELP", "NAME", "add_arguments", "last_records", "run"]

NAME: Final = "tail"
HELP: Final = "print the last records, and follow new ones"

_LINES: Final = 10
_WATCHED_PAUSE_S: Final = 0.25
_PAUSE_S: Final = 0.05
_GONE: Final = select.POLLERR | select.POLLHUP


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog tail``."""
    add_path(parser)
    add_selection(parser)
    parser.add_argument(
        "-n",
        "--lines",
        metavar="N",
        type=number,
        default=_LINES,
        help=f"so many records of each partition (default: {_LINES})",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on with each new record, until Ctrl-C")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, help="with --follow: stop when nothing came for so long"
    )
    add_shape(parser)
    add_limit(parser)
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the last records, then wait for more where asked to."""
    if arguments.timeout is not None and not arguments.follow:
        say("replog tail: --timeout says how long --follow waits: give both, or neither")
        return EXIT_USAGE
    with reading_disk(
        arguments.path, topic=arguments.topic, partition=arguments.partition, progress=arguments.progress
    ) as (disk, found):
        readers = list(found.values())
        for reader in readers:
            reader.max_batch_bytes = arguments.max_batch_bytes
        total = sum(min(reader.end_offset - reader.start_offset, arguments.lines) for reader in readers)
        progress = ProgressBar("read", total=total, forced=arguments.progress, beside=True)
        try:
            for reader in readers:
                write_records(last_records(reader, arguments.lines, progress), values=arguments.values)
        finally:
            progress.close()
        sys.stdout.flush()
        if arguments.follow:
            _follow(disk, readers, arguments)
    return EXIT_OK


def last_records(reader: LogReader, count: int, progress: ProgressBar) -> list[Record]:
    """Return the last ``count`` records below the high watermark, in order; fewer if the log has fewer."""
    found: list[Record] = []
    end = reader.end_offset
    span = max(count, 1)
    while len(found) < count and end > reader.start_offset:
        # Where offsets are missing (compaction, markers) it takes more of them.
        start = max(reader.start_offset, end - span)
        found = [*_records(reader, start, end, progress), *found]
        end, span = start, 4 * span
    return found[-count:] if count else []


def _records(reader: LogReader, start: int, end: int, progress: ProgressBar) -> Iterable[Record]:
    for batch in reader.batches(start, end):
        for records in placed_lists(reader, batch, reader.topic, reader.partition, start, end):
            yield from records
            progress.add(len(records))


def _follow(disk: SystemDisk, readers: list[LogReader], arguments: argparse.Namespace) -> None:
    """Print new records of all partitions, each partition's in order. Changes that the disk reports are read at
    once, others every 50 ms."""
    positions = [reader.end_offset for reader in readers]
    watch = disk.watch([f"{reader.directory}/replog.mark" for reader in readers])
    quiet_since = time.monotonic()
    try:
        while True:
            came = False
            for index, reader in enumerate(readers):
                reader.refresh()
                positions[index] = max(positions[index], reader.start_offset)
                if reader.end_offset > positions[index]:
                    positions[index] = _write_new(reader, positions[index], values=arguments.values)
                    came = True
            if came:
                sys.stdout.flush()
                quiet_since = time.monotonic()
            elif arguments.timeout is not None and time.monotonic() - quiet_since >= arguments.timeout:
                return
            else:
                _wait(watch)
    finally:
        if watch is not None:
            watch.close()


def _write_new(reader: LogReader, start: int, *, values: bool) -> int:
    """Print the records from ``start`` on, and return the end of these. It may be below the log's end if the writer
    has removed records."""
    end = reader.end_offset
    try:
        for batch in reader.batches(start, end):
            for records in placed_lists(reader, batch, reader.topic, reader.partition, start, end):
                write_records(records, values=values)
            start = batch.next_offset
    except OffsetOutOfRangeError:
        reader.refresh()
        if reader.start_offset <= start:
            raise
        return start
    return end


def _wait(watch: Watch | None) -> None:
    """Wait until there may be new records. Raise BrokenPipeError when the reader of the output has ended: without
    new records there is no write that would raise it."""
    poll = select.poll()
    output = sys.stdout.fileno()
    poll.register(output, 0)  # poll reports a closed pipe in any case
    if watch is not None:
        poll.register(watch, select.POLLIN)
    for fd, events in poll.poll(1000 * (_PAUSE_S if watch is None else _WATCHED_PAUSE_S)):
        if fd != output:
            assert watch is not None, "nothing else was registered"
            watch.clear()
        elif events & _GONE:
            raise BrokenPipeError(errno.EPIPE, "the reader of the output has ended")
