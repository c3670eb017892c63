"""Append records from files or standard input.

A row of NDJSON or CSV is either a record as `replog cat` prints it (it has a field "value", and may have "key",
"timestamp", "headers" and "partition"), or an event that becomes the value as a whole; the first row decides, and
--value-field '*' says that it is an event. With --format lines each line is a value, without fields. The records
that the command reports are on disk by the log's durability."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from typing import Any, Final

from pyreplog.cli.options import (
    EXIT_FAILED,
    EXIT_OK,
    Parser,
    add_mapping,
    add_opening,
    add_path,
    add_progress,
    add_text,
)
from pyreplog.cli.output import ProgressBar, counted, in_options, json_line, printable, say, tell
from pyreplog.cli.rows import (
    FORMATS,
    PARQUET,
    Lines,
    Row,
    RowError,
    fields_of,
    form_of,
    guessed,
    is_gzip,
    read_rows,
    style_of,
)
from pyreplog.cli.source import check_sources
from pyreplog.cli.unpacked import Unpacked
from pyreplog.cli.writing import RowTarget, append_whole, check_first, makes_log, open_target
from pyreplog.config import DURABILITIES
from pyreplog.errors import PyreplogError

__all__ = ["HELP", "NAME", "add_arguments", "report", "run"]

NAME: Final = "append"
HELP: Final = "append records from NDJSON, CSV or lines of text"

_BATCH_COUNT_MAX: Final = 1000
_BATCH_SIZE_MAX: Final = 512 << 10


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog append``."""
    add_path(parser, written=True)
    parser.add_argument("files", metavar="FILE", nargs="*", help="what to append; - or nothing is standard input")
    parser.add_argument(
        "--topic", metavar="NAME", help="the topic (default: the folder's only one, or the folder's name)"
    )
    parser.add_argument("--format", choices=FORMATS, help="how FILE is written (default: by its suffix; else ndjson)")
    add_mapping(parser)
    add_text(parser)
    parser.add_argument(
        "--durability",
        choices=DURABILITIES,
        help="for a new log: sync (default) or os; for an existing one it must agree",
    )
    add_opening(parser)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Append every row, and report their number and place. After a failure the rows before it are kept and
    reported."""
    check_sources(arguments.files)
    for name in arguments.files or ["-"]:
        if (arguments.format or form_of(name)) == PARQUET:
            raise RowError(f"{name} is Parquet: `replog import` takes it")
    batches: Iterator[list[Row]] = (batch for name in arguments.files or ["-"] for batch in _batches(name, arguments))
    if makes_log(arguments.path, arguments.topic):  # not for a first row that is refused
        first = next(batches, None)
        if first is not None:
            check_first(first[0], arguments.partition)
            batches = itertools.chain([first], batches)
    failure: BaseException | None = None
    with open_target(
        arguments.path,
        topic=arguments.topic,
        partition=arguments.partition,
        durability=arguments.durability,
        permissions=arguments.permissions,
        lock_timeout=arguments.lock_timeout,
        progress=arguments.progress,
    ) as target:
        progress = ProgressBar("appended", forced=arguments.progress)
        try:
            for batch in batches:
                append_whole(target, batch)
                progress.add(len(batch))
        except (PyreplogError, RowError, OSError, MemoryError, KeyboardInterrupt) as error:
            failure = error
        finally:
            progress.close()
        report(target, as_json=arguments.json)
    if isinstance(failure, KeyboardInterrupt):
        raise failure
    if failure is not None:
        say(f"replog append: {in_options(failure)}")
        return EXIT_FAILED
    return EXIT_OK


def _batches(name: str, arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """The rows of one file, in lists of up to 1000 that never wait for input while something is at hand."""
    stream: Any = sys.stdin.buffer if name == "-" else open(name, "rb")  # noqa: SIM115  (closed below)
    try:
        lines = Lines(Unpacked(stream) if is_gzip(name) else stream)
        form = arguments.format or form_of(name)
        fields = fields_of(arguments)
        batch: list[Row] = []
        size = 0
        rows = read_rows(lines, form, fields, style_of(arguments))
        while True:
            try:
                row = next(rows, None)
            except RowError as error:
                if batch:
                    yield batch
                raise RowError(
                    f"{'standard input' if name == '-' else name}: {error}{guessed(name, arguments.format)}"
                ) from None
            if row is None:
                break
            batch.append(row)
            size += len(row.value or b"") + len(row.key or b"")
            if lines.waiting or len(batch) >= _BATCH_COUNT_MAX or size >= _BATCH_SIZE_MAX:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch
    finally:
        if stream is not sys.stdin.buffer:
            stream.close()


def report(target: RowTarget, *, as_json: bool) -> None:
    """Print how many records went where."""
    if as_json:
        ranges = [
            {"partition": partition, "start": start, "end": end}
            for partition, (start, end) in sorted(target.ranges.items())
        ]
        tell(json_line({"topic": target.topic, "count": target.count, "ranges": ranges}))
        return
    where = ", ".join(
        f"{target.topic}-{partition} offsets {start} to {end - 1}"
        for partition, (start, end) in sorted(target.ranges.items())
    )
    tell(printable(f"appended {counted(target.count, 'record')}{': ' + where if where else ''}"))
