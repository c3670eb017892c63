"""A pipeline that is killed in the middle and does not show it. ``make pipeline`` runs it; ``make demo`` does, too.

Three processes: ``pipeline_feed.py`` holds the cluster and sends a year of flights, ``pipeline_stream.py`` is the
Spark query that writes the delays of each airport and day back, and this one watches. When half of the flights are
in, the query gets SIGKILL, at the very moment when a batch of it is published and not yet acknowledged; then it is
started again. In the end a batch query over the whole log must return the records of the topic ``delays``, record for
record.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
from flights import FLIGHT_COUNT
from pipeline_feed import DELAYS, FLIGHTS
from pipeline_page import Run, write_page
from pipeline_stream import daily, records
from quiet import QUIET
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import pyreplog
from pyreplog.spark import local_session

HERE = Path(__file__).parent
KILL_AT = FLIGHT_COUNT // 2
AIRPORT_DAYS = 3 * 366
"""Three airports, from which flights leave every day; in UTC the last ones leave in 2014."""
PAUSE_S = 1.0
COMMIT_S = 60.0
PATIENCE_S = 600.0
DAY = pl.Struct(
    {"day": pl.String, "airport": pl.String, "flights": pl.Int64, "departed": pl.Int64, "minutes": pl.Int64}
)
Line = tuple[str, float, dict[str, Any]]
"""Which child said it, when, and what."""
console = Console(soft_wrap=True)


class Child:
    """A process that says JSON lines, in a group of its own, so that all of it can be killed at once."""

    def __init__(self, lines: queue.Queue[Line], log: Path, name: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / name), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("a"),
            text=True,
            start_new_session=True,
        )
        self._name = name
        self._lines = lines
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self._lines.put((self._name, time.monotonic(), json.loads(line)))
        self._lines.put((self._name, time.monotonic(), {"kind": "ended"}))

    def tell(self, text: str) -> None:
        """One line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL to all of it."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Watcher:
    """What happened when, and how far both topics are."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.cluster = folder / "cluster"
        self.seconds = seconds
        self.run = Run()
        self.lines: queue.Queue[Line] = queue.Queue()
        self.began = time.monotonic()
        self.sent = 0
        self.stream: Child | None = None
        self._delays: list[pyreplog.Log] = []

    def at(self) -> float:
        """Seconds since the flights began."""
        return time.monotonic() - self.began

    def start_stream(self) -> None:
        """Start the query, for the first time or again."""
        self.stream = Child(
            self.lines,
            self.folder / "stream.log",
            "pipeline_stream.py",
            str(self.cluster),
            str(self.folder / "checkpoint"),
        )

    def delays(self) -> int:
        """Return the number of records that readers of ``delays`` see, beside the process that writes."""
        if not self._delays:
            self._delays = [pyreplog.open_log(self.cluster, "r", topic=DELAYS, partition=number) for number in (0, 1)]
        return sum(log.high_watermark for log in self._delays)

    def take(self, timeout: float) -> str:
        """Take one line of a child process, if there is one, and return its kind."""
        try:
            name, said_at, line = self.lines.get(timeout=timeout)
        except queue.Empty:
            return ""
        kind, at = str(line["kind"]), said_at - self.began
        if kind == "sent":
            self.sent = line["count"]
            self.run.sent.append((at, datetime.fromtimestamp(line["timestamp"] / 1000, UTC)))
        elif kind == "batch":
            self.run.batches.append((at, line["batch"], line["rows"], line["ms"]))
        elif kind == "ended" and not (
            name == "pipeline_stream.py" and self.run.killed_at is not None and self.run.running_at is None
        ):
            raise SystemExit(f"{name} ended by itself; its last output is in {self.folder}")
        return kind

    def look(self) -> int:
        """Note how far ``delays`` is."""
        count = self.delays()
        if not self.run.written or self.run.written[-1][1] != count:
            self.run.written.append((self.at(), count))
        return count

    def kill_in_a_commit(self) -> None:
        """SIGKILL to the query while a batch of it waits in the spool, published and not acknowledged."""
        assert self.stream is not None
        deadline = time.monotonic() + COMMIT_S
        waiting: list[str] = []
        while not waiting and time.monotonic() < deadline:
            time.sleep(0.0005)
            waiting = [name for name in os.listdir(self.cluster) if name.endswith((".manifest", ".begun"))]
        self.stream.kill()
        left = [name for name in os.listdir(self.cluster) if name.startswith("replog.spool.")]
        self.run.killed_at = self.at()
        self.run.killed_batch = int(waiting[0].split(".")[3]) if waiting else -1
        self.run.killed_step = "published, not yet acknowledged" if waiting else "between two batches"
        console.print(
            f"  [red]SIGKILL to the whole Spark process[/] while batch {self.run.killed_batch} was"
            f" {self.run.killed_step}"
        )
        console.print(f"  left in the cluster's folder at that moment: {len(left)} files of a batch on its way")


def flow(watcher: Watcher) -> None:
    """From the first flight to the last day in ``delays``."""
    feed = Child(
        watcher.lines,
        watcher.folder / "feed.log",
        "pipeline_feed.py",
        str(watcher.cluster),
        f"--seconds={watcher.seconds}",
    )
    try:
        while watcher.take(60) != "open":
            pass
        watcher.start_stream()
        while watcher.take(120) != "batch":
            pass
        watcher.run.batches.clear()
        console.print("  the cluster is open, the query runs; here come the flights")
        watcher.began = time.monotonic()
        feed.tell("go")
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console) as bars:
            flights = bars.add_task("flights acknowledged      ", total=FLIGHT_COUNT)
            days = bars.add_task("airport days in `delays`  ", total=AIRPORT_DAYS)
            restart_at = 0.0
            while (written := watcher.look()) < AIRPORT_DAYS:
                kind = watcher.take(0.02)
                bars.update(flights, completed=watcher.sent)
                bars.update(days, completed=written)
                if watcher.run.killed_at is None and watcher.sent >= KILL_AT:
                    watcher.kill_in_a_commit()
                    restart_at = time.monotonic() + PAUSE_S
                elif restart_at and time.monotonic() >= restart_at:
                    restart_at = 0.0
                    watcher.start_stream()
                    watcher.run.restarted_at = watcher.at()
                    console.print("  started again, on the same checkpoint")
                elif kind == "running":
                    watcher.run.running_at = watcher.at()
                if watcher.at() > PATIENCE_S:
                    raise SystemExit(f"FAILED: {written} of {AIRPORT_DAYS} airport days after {PATIENCE_S:.0f} s")
            bars.update(flights, completed=watcher.sent)
            bars.update(days, completed=written)
        watcher.run.ended_at = watcher.at()
        time.sleep(0.5)
        watcher.look()  # one too many would be here by now
    finally:
        if watcher.stream is not None:
            watcher.stream.kill()
        if feed.process.poll() is None:
            try:
                feed.tell("stop")
                feed.process.wait(30)
            except (OSError, subprocess.TimeoutExpired):
                pass
        feed.kill()


def truth(watcher: Watcher) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the result of a batch query over all flights, and the records of ``delays``, both by Spark."""
    with local_session("replog pipeline, at the end", cores=2, config=QUIET) as spark:
        reader = spark.read.format("replog").option("path", str(watcher.cluster))
        flights = reader.option("topic", FLIGHTS).load()
        expected = records(daily(flights).where("origin IS NOT NULL")).select("key", "value").collect()
        written = reader.option("topic", DELAYS).load().select("key", "value").collect()
    return _frame(expected), _frame(written)


def _frame(rows: list[Any]) -> pl.DataFrame:
    values = pl.Series(
        "value", [bytes(row["value"]).decode() if not isinstance(row["value"], str) else row["value"] for row in rows]
    )
    return (
        pl.DataFrame({"value": values, "facts": values.str.json_decode(dtype=DAY)})
        .unnest("facts")
        .sort("day", "airport")
    )


def check(expected: pl.DataFrame, written: pl.DataFrame) -> None:
    """Record for record, and none twice."""
    twice = written.height - written.select("day", "airport").unique().height
    missing = expected.join(written, on="value", how="anti").height
    wrong = written.join(expected, on="value", how="anti").height
    if twice or missing or wrong or expected.height != written.height:
        raise SystemExit(f"FAILED: {twice} records there twice, {missing} missing, {wrong} that the log does not say")
    console.print(
        f"  a batch query over the whole log finds {expected.height:,} airport days; `{DELAYS}` holds"
        f" {written.height:,} records"
    )
    console.print("  they are equal, record for record: [bold green]none missing, none twice[/]")


def main() -> None:
    """Run it; exit non-zero where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("build/pipeline"), help="where everything goes; emptied first"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the year takes")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that its children end with it, as after Ctrl-C
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    watcher = Watcher(options.folder, options.seconds)

    console.rule("[bold]1. A year of flights in, delays by airport and day out", align="left")
    flow(watcher)
    run = watcher.run
    assert run.killed_at is not None
    assert run.restarted_at is not None
    console.print(
        f"  {FLIGHT_COUNT:,} flights in {run.sent[-1][0]:.0f} s, {len(run.batches)} micro-batches; the query was down"
        f" for {(run.running_at or run.restarted_at) - run.killed_at:.1f} s, and went on after its last batch"
    )
    console.rule("[bold]2. Hold `delays` against the whole log", align="left")
    expected, written = truth(watcher)
    check(expected, written)
    page = write_page(options.folder, run, written)
    console.print(f"\n[bold]Page of the run:[/] {page.resolve()}")


if __name__ == "__main__":
    main()
