"""Write records to a file: NDJSON as `replog cat` prints it, or Parquet. The file appears when it is whole.

`replog import` takes both back, with keys, headers and timestamps. Parquet needs pyarrow (`pip install pyarrow`),
and has a column for each field: topic, partition, offset, timestamp, timestamp_type, key, value, headers,
leader_epoch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import IO, Any, Final

from pyreplog.cli.cat import chosen
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
    add_skipping,
    is_reversed,
)
from pyreplog.cli.output import ProgressBar, counted, json_line, printable, record_fields, say, tell
from pyreplog.cli.parquet import write_parquet
from pyreplog.cli.reading import include_above, readers, tell_above
from pyreplog.config import meant
from pyreplog.errors import ConfigError
from pyreplog.log import LogReader, check_skipping

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "export"
HELP: Final = "write records to NDJSON or Parquet"

_FORMATS: Final = ("ndjson", "parquet")
_SUFFIXES: Final = {".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson", ".parquet": "parquet", ".pq": "parquet"}


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog export``."""
    add_path(parser)
    parser.add_argument("file", metavar="FILE", help="the file to make; - is standard output (NDJSON only)")
    parser.add_argument("--format", choices=_FORMATS, help="how FILE is written (default: by its suffix; else ndjson)")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    add_selection(parser)
    add_range(parser)
    add_skipping(parser)
    add_limit(parser)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the chosen records under a temporary name, then rename the file to its own name."""
    if is_reversed(arguments):
        return EXIT_USAGE
    target: str = arguments.file
    form = _checked_form(arguments)
    if arguments.skip_damaged:
        check_skipping(arguments.isolation)
    arguments.left_out = []
    # An export of everything leaves out a topic that cannot be read; a topic that was asked for
    # must be whole.
    left_out: list[str] | None = [] if arguments.topic is None and arguments.partition is None else None
    selection = {
        "topic": arguments.topic,
        "partition": arguments.partition,
        "progress": arguments.progress,
        "left_out": left_out,
        "skips": arguments.skip_damaged,
    }
    with readers(arguments.path, **selection) as found:
        include_above(arguments, found.values())
        total = sum(
            max(0, min(reader.end_offset, arguments.end) - max(reader.start_offset, arguments.start))
            for reader in found.values()
        )
        progress = ProgressBar("exported", total=total, forced=arguments.progress, beside=target == "-")
        write = write_parquet if form == "parquet" else _ndjson
        try:
            if target == "-":
                _ndjson(sys.stdout.buffer, list(found.values()), arguments, progress)
                sys.stdout.flush()
            else:
                _replace(target, lambda file: write(file, list(found.values()), arguments, progress))
        finally:
            progress.close()
        tell_above(arguments, found.values())
    _report(arguments, form, progress.count, len(found))
    for name in left_out or ():
        say(printable(f"replog export: not among these records: {name}"))
    if arguments.left_out:
        return EXIT_DAMAGED
    return EXIT_FAILED if left_out else EXIT_OK


def _checked_form(arguments: argparse.Namespace) -> str:
    """Return the format of the file. Raises ConfigError if the file cannot be made or must not be
    replaced.
    """
    target: str = arguments.file
    if not target:
        raise ConfigError("the name of FILE is empty: name a file; - is standard output")
    form: str = arguments.format or _form_of(target)
    if target == "-":
        if form == "parquet":
            raise ConfigError("Parquet cannot be written to standard output: name a file")
        return form
    if os.path.exists(target) and not os.path.isfile(target):
        raise ConfigError(f"{target} is no plain file, and is not replaced: name another one; - is standard output")
    if os.path.exists(target) and not arguments.force:
        raise ConfigError(f"{target} is there already: name another file, or say --force to replace it")
    folder = os.path.dirname(target)
    if folder and not os.path.isdir(folder):
        raise ConfigError(f"there is no folder {folder} to make {os.path.basename(target)} in")
    return form


def _report(arguments: argparse.Namespace, form: str, count: int, partition_count: int) -> None:
    """Print the summary: on standard error if the records went to standard output."""
    target: str = arguments.file
    if arguments.json:
        text = json_line(
            {
                "file": target,
                "format": form,
                "records": count,
                "partitions": partition_count,
                "left_out": arguments.left_out,
            }
        )
    else:
        text = printable(f"exported {counted(count, 'record')} of {counted(partition_count, 'partition')} to {target}")
    (say if target == "-" else tell)(text)


def _replace(target: str, write: Callable[[IO[bytes]], None]) -> None:
    """Make the file ``target``, or change nothing: the file is written under a temporary name, and synced before it
    is renamed. A link stays a link: the file that it names is made."""
    target = os.path.realpath(target)
    part = f"{target}.{token_hex(4)}.part"
    try:
        with open(part, "xb") as file:
            try:
                write(file)
                file.flush()
                os.fsync(file.fileno())
                os.replace(part, target)
            except BaseException:
                with suppress(FileNotFoundError):  # it has its own name already
                    os.remove(part)
                raise
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, target) from error


def _form_of(name: str) -> str:
    """Return the format of the suffix of ``name``: ndjson if there is none."""
    suffix = os.path.splitext(name)[1].lower()
    if suffix == ".csv":
        raise ConfigError("CSV cannot hold every record: name the file .ndjson or .parquet, or say --format")
    if suffix and suffix not in _SUFFIXES:
        hint = meant(suffix, _SUFFIXES)
        raise ConfigError(
            f"{suffix} says no format that replog writes: name the file {', '.join(_SUFFIXES)}, or say --format{hint}"
        )
    return _SUFFIXES.get(suffix, "ndjson")


def _ndjson(file: Any, found: Sequence[LogReader], arguments: argparse.Namespace, progress: ProgressBar) -> None:
    for reader in found:
        progress.begin(max(reader.start_offset, arguments.start))
        for records in chosen(reader, arguments):
            text = "".join([json_line(record_fields(record)) + "\n" for record in records])
            file.write(text.encode("utf-8", "backslashreplace"))
            progress.add(len(records), records[-1].offset + 1)
