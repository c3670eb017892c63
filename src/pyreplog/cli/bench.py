"""Measure this machine with this library, in a few seconds: raw writes and syncs of the same bytes beside appends, and reading.

Everything is written into a new folder inside PATH, which is removed at the end. The figures are of one run on a machine that may be busy:
what counts are the ratios, for both sides of one are measured right after one another."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

from pyreplog.cli.options import EXIT_OK, Parser
from pyreplog.cli.output import amount, json_line, printable, say
from pyreplog.errors import ConfigError
from pyreplog.runtime import Log, open_log

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME: Final = "bench"
HELP: Final = "measure this machine: raw writes and syncs beside appends and scans"

_VALUE_SIZE: Final = 100
_BATCH: Final = 1000
_ROUNDS: Final = 3

Row = tuple[str, float, str, float | None]
"""What, how much per second, in which unit, and as a share of what raw writing does."""


def add_arguments(parser: Parser) -> None:
    """The arguments of ``replog bench``."""
    parser.add_argument("path", metavar="PATH", nargs="?", default=".", help="a folder on the disk to measure (default: this one)")
    parser.add_argument("--seconds", metavar="N", type=int, default=1, help="about so long for each figure (default: 1)")
    parser.add_argument("--json", action="store_true", help="one JSON object per figure")


def run(arguments: argparse.Namespace) -> int:
    """Print a table of figures."""
    if not os.path.isdir(arguments.path):
        raise ConfigError(f"{arguments.path} is no folder: name one on the disk to measure")
    if arguments.seconds < 1:
        raise ConfigError("--seconds is a whole number from 1")
    folder = tempfile.mkdtemp(prefix="replog-bench-", dir=arguments.path)
    try:
        rows = _measure(folder, arguments.seconds)
    finally:
        shutil.rmtree(folder)
    width = max(len(row[0]) for row in rows)
    for about, value, unit, share in rows:
        if arguments.json:
            print(json_line({"what": about, "value": round(value, 1), "unit": unit, "ratio": None if share is None else round(share, 3)}))
        else:
            shown = f"{amount(int(value))}/s" if unit == "bytes/s" else f"{value:,.0f} {unit}"
            print(printable(f"{about:{width}}  {shown:>22}{f'   {share:.2f} of raw' if share is not None else ''}"))
    return EXIT_OK


def _measure(folder: str, seconds: int) -> list[Row]:
    values = [b"%0*d" % (_VALUE_SIZE, number) for number in range(_BATCH)]
    size = len(b"".join(values)) + 11 * _BATCH + 61
    block = os.urandom(size)
    count = _calls(folder, block, seconds)
    rows: list[Row] = []
    raw = best = 0.0
    say(f"measuring with {count} batches of {_BATCH} records of {_VALUE_SIZE} bytes ...")
    for number in range(_ROUNDS):
        raw = max(raw, _raw(folder, block, count, sync=False))
        with open_log(os.path.join(folder, f"os-{number}"), durability="os") as log:
            best = max(best, _per_second(lambda log=log: _append(log, values, count), count))  # type: ignore[misc]
    rows.append(("raw pwrite", raw * size, "bytes/s", None))
    rows.append(("append_many, durability os", best * _BATCH, "records/s", best / raw))
    synced = max(count // 20, 5)
    raw_sync = _raw(folder, block, synced, sync=True)
    with open_log(os.path.join(folder, "sync"), durability="sync") as log:
        best = _per_second(lambda: _append(log, values, synced), synced)
    rows.append(("raw pwrite + fdatasync", raw_sync, "calls/s", None))
    rows.append(("append_many, durability sync", best * _BATCH, "records/s", best / raw_sync))
    singles = max(min(synced, 500), 5)
    raw_one = _raw(folder, block[: _VALUE_SIZE + 72], singles, sync=True)
    with open_log(os.path.join(folder, "one"), durability="sync") as log:
        best = _per_second(lambda: [log.append(values[0]) for _ in range(singles)], singles)
    rows.append(("append one by one, durability sync", best, "records/s", best / raw_one))
    with open_log(os.path.join(folder, "os-0"), mode="r") as log:
        total = log.end_offset
        best = _per_second(lambda: sum(batch.row_count for batch in log.scan().batches()), total)
        rows.append(("scan into Arrow, all columns", best, "records/s", None))
        best = _per_second(lambda: sum(1 for _ in log.read(start=0)), total)
        rows.append(("read as Record objects", best, "records/s", None))
    return rows


def _calls(folder: str, block: bytes, seconds: int) -> int:
    """How many blocks raw writing does in about ``seconds``, within reason."""
    rate = _raw(folder, block, 50, sync=False)
    return int(min(max(rate * seconds / 8, 50), 4000))


def _raw(folder: str, block: bytes, count: int, *, sync: bool) -> float:
    """Blocks per second written to a new file."""
    path = os.path.join(folder, "raw")
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:

        def write() -> None:
            for number in range(count):
                os.pwrite(file, block, number * len(block))
                if sync:
                    os.fdatasync(file)

        return _per_second(write, count)
    finally:
        os.close(file)
        os.remove(path)


def _append(log: Log, values: list[bytes], count: int) -> None:
    for _ in range(count):
        log.append_many(values)


def _per_second(work: Callable[[], Any], count: int) -> float:
    started = time.perf_counter()
    work()
    return count / max(time.perf_counter() - started, 1e-9)
