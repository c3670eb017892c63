"""Measure this machine with this library, in a few seconds: raw writes and syncs of the same bytes beside appends,
and reading.

Everything is written into a new folder inside PATH, which is removed at the end. The figures are of one run on a
machine that may be busy: what counts are the ratios, for both sides of one are measured right after one another."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from pyreplog.cli.options import EXIT_OK, Parser, add_progress
from pyreplog.cli.output import ProgressBar, amount, json_line, printable, say
from pyreplog.errors import ConfigError
from pyreplog.runtime import Log, open_log

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "bench"
HELP: Final = "measure this machine: raw writes and syncs beside appends and scans"

_VALUE_SIZE: Final = 100
_BATCH: Final = 1000
_ROUNDS: Final = 3
_TOLD: Final = 16
"""So many calls go by between two looks at the clock: on both sides of a ratio, and too few to be noticed in it."""

Row = tuple[str, float, str, float | None]
"""What, how much per second, in which unit, and as a share of what raw writing does."""


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog bench``."""
    parser.add_argument(
        "path", metavar="PATH", nargs="?", default=".", help="a folder on the disk to measure (default: this one)"
    )
    parser.add_argument(
        "--seconds", metavar="N", type=_seconds, default=1, help="about so long for each figure (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per figure")
    add_progress(parser)


def _seconds(text: str) -> int:
    """So long for each figure."""
    if not (text.isascii() and text.isdecimal() and int(text[:10]) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of seconds from 1")
    return int(text[:10])


def run(arguments: argparse.Namespace) -> int:
    """Print a table of figures."""
    if not os.path.isdir(arguments.path):
        raise ConfigError(f"{arguments.path} is no folder: name one on the disk to measure")
    folder = tempfile.mkdtemp(prefix="replog-bench-", dir=arguments.path)
    try:
        rows = _measure(folder, arguments.seconds, forced=arguments.progress)
    finally:
        shutil.rmtree(folder)
    width = max(len(row[0]) for row in rows)
    for about, value, unit, share in rows:
        if arguments.json:
            print(
                json_line(
                    {
                        "what": about,
                        "value": round(value, 1),
                        "unit": unit,
                        "ratio": None if share is None else round(share, 3),
                    }
                )
            )
        else:
            shown = f"{amount(int(value))}/s" if unit == "bytes/s" else f"{value:,.0f} {unit}"
            print(printable(f"{about:{width}}  {shown:>22}{f'   {share:.2f} of raw' if share is not None else ''}"))
    return EXIT_OK


def _measure(folder: str, seconds: int, *, forced: bool) -> list[Row]:
    values = [b"%0*d" % (_VALUE_SIZE, number) for number in range(_BATCH)]
    size = len(b"".join(values)) + 11 * _BATCH + 61
    block = os.urandom(size)
    count = _calls(folder, block, seconds)
    synced = max(count // 20, 5)
    singles = max(min(synced, 500), 5)
    say(f"measuring with {count} batches of {_BATCH} records of {_VALUE_SIZE} bytes ...")
    progress = ProgressBar(
        "measured", total=2 * (_ROUNDS * count + synced + singles + count), forced=forced, noun="batches"
    )
    try:
        return [
            *_unsynced(folder, block, values, count, progress),
            *_synced(folder, block, values, synced, singles, progress),
            *_read(folder, count, progress),
        ]
    finally:
        progress.close()


def _unsynced(folder: str, block: bytes, values: list[bytes], count: int, progress: ProgressBar) -> list[Row]:
    raw = best = 0.0
    for number in range(_ROUNDS):
        raw = max(raw, _raw(folder, block, count, progress, sync=False))
        with open_log(os.path.join(folder, f"os-{number}"), durability="os") as log:
            best = max(best, _per_second(lambda log=log: _append(log, values, count, progress), count))  # type: ignore[misc]
    return [
        ("raw pwrite", raw * len(block), "bytes/s", None),
        ("append_many, durability os", best * _BATCH, "records/s", best / raw),
    ]


def _synced(
    folder: str, block: bytes, values: list[bytes], synced: int, singles: int, progress: ProgressBar
) -> list[Row]:
    raw = _raw(folder, block, synced, progress, sync=True)
    with open_log(os.path.join(folder, "sync"), durability="sync") as log:
        best = _per_second(lambda: _append(log, values, synced, progress), synced)
    raw_one = _raw(folder, block[: _VALUE_SIZE + 72], singles, progress, sync=True)
    with open_log(os.path.join(folder, "one"), durability="sync") as log:
        one = _per_second(lambda: [log.append(values[0]) for _ in _told(singles, progress)], singles)
    return [
        ("raw pwrite + fdatasync", raw, "calls/s", None),
        ("append_many, durability sync", best * _BATCH, "records/s", best / raw),
        ("append one by one, durability sync", one, "records/s", one / raw_one),
    ]


def _read(folder: str, count: int, progress: ProgressBar) -> list[Row]:
    with open_log(os.path.join(folder, "os-0"), mode="r") as log:
        total = log.end_offset
        scanned = _per_second(lambda: sum(batch.row_count for batch in log.scan().batches()), total)
        progress.add(count)

        def read() -> None:
            records = log.read(start=0)
            while found := sum(1 for _ in islice(records, _TOLD * _BATCH)):
                progress.add(found // _BATCH)

        return [
            ("scan into Arrow, all columns", scanned, "records/s", None),
            ("read as Record objects", _per_second(read, total), "records/s", None),
        ]


def _calls(folder: str, block: bytes, seconds: int) -> int:
    """How many blocks raw writing does in about ``seconds``, within reason."""
    rate = _raw(folder, block, 50, None, sync=False)
    return int(min(max(rate * seconds / 8, 50), 4000))


def _raw(folder: str, block: bytes, count: int, progress: ProgressBar | None, *, sync: bool) -> float:
    """Blocks per second written to a new file."""
    path = os.path.join(folder, "raw")
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:

        def write() -> None:
            for number in _told(count, progress):
                os.pwrite(file, block, number * len(block))
                if sync:
                    _sync(file)

        return _per_second(write, count)
    finally:
        os.close(file)
        os.remove(path)


def _sync(file: int) -> None:
    """As the library has it: macOS has no fdatasync, and its fsync ends in the drive's cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fdatasync(file)
    else:
        fcntl.fcntl(file, full)


def _append(log: Log, values: list[bytes], count: int, progress: ProgressBar) -> None:
    for _ in _told(count, progress):
        log.append_many(values)


def _told(count: int, progress: ProgressBar | None) -> Iterator[int]:
    """Yield the numbers below ``count``, and report the progress to ``progress`` after some of them."""
    for start in range(0, count, _TOLD):
        end = min(start + _TOLD, count)
        yield from range(start, end)
        if progress is not None:
            progress.add(end - start)


def _per_second(work: Callable[[], Any], count: int) -> float:
    started = time.perf_counter()
    work()
    return count / max(time.perf_counter() - started, 1e-9)
