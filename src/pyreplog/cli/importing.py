"""Append every row of files: NDJSON, CSV, Parquet, or lines of text. With --resume it can be stopped at any moment
and started again.

Rows are mapped as by `replog append`: a row with a field "value" is a record as `replog cat` and
`replog export` write it, any other row becomes the value as a whole, as JSON. --key-field, --timestamp-field,
--headers-field, --partition-field name the other fields that are taken from it.

--resume keeps a small file in the log's folder, replog.import, with the number of rows of each file that are in the
log. Rows that were appended after the file was written are recognised by their content. So no row is imported twice
or left out, in whatever way the import ended, as long as no other program appends to the log before it is finished.
The file remembers a file that was imported as a whole: the same command then has nothing to do, or imports the
lines that were added since. Without --resume, or after replog.import was removed, every import is a new one."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Final

from pyreplog.cli.append import report
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
from pyreplog.cli.output import ProgressBar, counted, in_options, say, tell
from pyreplog.cli.resuming import Resume
from pyreplog.cli.rows import FORMATS, PARQUET, Row, RowError, line_size_max
from pyreplog.cli.source import Source, check_sources
from pyreplog.cli.writing import RowTarget, append_whole, check_first, makes_log, open_target
from pyreplog.config import DURABILITIES
from pyreplog.errors import ConfigError, PyreplogError
from pyreplog.system import SystemDisk

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "import"
HELP: Final = "append every row of NDJSON, CSV or Parquet files, and continue a stopped import"

_BATCH_COUNT: Final = 1000
_BATCH_SIZE: Final = 512 << 10


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog import``."""
    add_path(parser, written=True)
    parser.add_argument("files", metavar="FILE", nargs="+", help="what to import, in this order; - is standard input")
    parser.add_argument(
        "--topic", metavar="NAME", help="the topic (default: the folder's only one, or the folder's name)"
    )
    parser.add_argument(
        "--format", choices=(*FORMATS, PARQUET), help="how FILE is written (default: by its suffix; else ndjson)"
    )
    add_mapping(parser)
    add_text(parser)
    parser.add_argument(
        "--durability",
        choices=DURABILITIES,
        help="for a new log: sync (default) or os; for an existing one it must agree",
    )
    add_opening(parser)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue an earlier import of the same files; import no row twice",
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add_progress(parser)


def run(arguments: argparse.Namespace) -> int:
    """Append the rows of every file, and report their number and place. After a failure the rows before it are kept
    and reported."""
    progress = ProgressBar(
        "imported", total=check_sources(arguments.files, again=arguments.resume), forced=arguments.progress, sized=True
    )
    with contextlib.ExitStack() as opened:
        begun = _begin(arguments, progress, opened) if makes_log(arguments.path, arguments.topic) else {}
        return _import(arguments, progress, begun)


def _begin(arguments: argparse.Namespace, progress: ProgressBar, opened: contextlib.ExitStack) -> dict[str, Source]:
    """Refuse the first row before the new log is made, if that log would refuse it. Return the files that were
    ``opened`` for this, because a pipe can be read only once."""
    begun: dict[str, Source] = {}
    for name in arguments.files:
        if name not in begun:
            source = begun[name] = opened.enter_context(Source(name, arguments, progress.add))
            first = source.peek()
            if first is not None:
                try:
                    check_first(first, arguments.partition)
                except RowError as error:
                    raise source.named(error) from None
                break
    return begun


def _import(arguments: argparse.Namespace, progress: ProgressBar, begun: dict[str, Source]) -> int:
    failure: BaseException | None = None
    names: list[str] = arguments.files
    with open_target(
        arguments.path,
        topic=arguments.topic,
        partition=arguments.partition,
        durability=arguments.durability,
        permissions=arguments.permissions,
        lock_timeout=arguments.lock_timeout,
        progress=arguments.progress,
    ) as target:
        resume = _resume(arguments, target)
        if resume is not None:
            names = resume.in_order(names)
        skipped = whole = 0
        try:
            for name in names:
                with begun.pop(name, None) or Source(name, arguments, progress.add) as source:
                    source.line_size_max = line_size_max(target.record_size_max)
                    rows = source.rows()
                    if resume is not None:
                        count, done = resume.begin(source, rows)
                        skipped += count
                        whole += done
                        if done:
                            progress.add(source.size)
                            continue
                    _append(rows, source, target, resume)
        except (PyreplogError, RowError, OSError, MemoryError, KeyboardInterrupt) as error:
            failure = error
        finally:
            progress.close()
        _report(target, skipped, nothing=whole == len(names), as_json=arguments.json)
    if isinstance(failure, KeyboardInterrupt):
        raise failure
    if failure is not None:
        say(f"replog import: {in_options(failure)}")
        return EXIT_FAILED
    return EXIT_OK


def _resume(arguments: argparse.Namespace, target: RowTarget) -> Resume | None:
    if not arguments.resume:
        return None
    log = getattr(target, "log", None)
    if log is None:
        raise ConfigError("--resume is for a log in one folder; rows of a cluster's topic are spread over partitions")
    return Resume(log, arguments.files, SystemDisk(permissions=arguments.permissions))


def _append(rows: Iterator[Row], source: Source, target: RowTarget, resume: Resume | None) -> None:
    batch: list[Row] = []
    size = 0
    try:
        for row in rows:
            batch.append(row)
            size += len(row.value or b"") + len(row.key or b"")
            if len(batch) >= _BATCH_COUNT or size >= _BATCH_SIZE:
                full, batch, size = batch, [], 0
                _write(full, source, target, resume)
    except RowError:
        if batch:
            _write(batch, source, target, resume)  # the rows before an unreadable one
        raise
    if batch:
        _write(batch, source, target, resume)
    if resume is not None:
        resume.finish(source)


def _write(batch: list[Row], source: Source, target: RowTarget, resume: Resume | None) -> None:
    try:
        append_whole(target, batch)
    except RowError as error:
        raise source.named(error) from None
    if resume is not None:
        resume.note(source, len(batch))


def _report(target: RowTarget, skipped: int, *, nothing: bool, as_json: bool) -> None:
    """``nothing``: there was no row to import."""
    if nothing and not as_json:
        tell(f"already imported: {counted(skipped, 'record')}, nothing to do")
        return
    if nothing:
        say(f"replog import: already imported: {counted(skipped, 'record')}, nothing to do")
    elif skipped:
        say(f"replog import: {counted(skipped, 'row')} {'was' if skipped == 1 else 'were'} in the log already")
    report(target, as_json=as_json)
