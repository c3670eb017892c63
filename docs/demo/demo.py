"""The main job, end to end: events in, replicas killed, nothing lost, Arrow and Spark out. ``make demo`` runs it.

This process holds the acknowledgements. Another one, ``sender.py``, holds the three-node cluster and sends; it
loses a leader at one third and gets SIGKILL at two thirds. Every acknowledged flight must be in the
log, each flight exactly once.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from flights import FLIGHT_COUNT
from picture import BAD, GOOD, Moment, draw
from pyspark.sql import functions as sf
from quiet import QUIET
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sender import PARTITION_COUNT, TOPIC, TOPIC_UNPACED

import pyreplog
from pyreplog.spark import local_session

KILL_LEADER_AT = FLIGHT_COUNT // 3
KILL_PROCESS_AT = FLIGHT_COUNT * 2 // 3
KILL_DELAY_S = 0.02  # so that it hits the next batch on its way
DAY = datetime(2013, 7, 10, tzinfo=UTC)
FACTS = pl.Struct({"id": pl.Int64, "dep_delay": pl.Int64})
console = Console(soft_wrap=True)


class Ledger:
    """The acknowledgements of the sender: partition and offset of each flight. It lives in this process, so
    the kill does not reach it."""

    def __init__(self) -> None:
        self.places: dict[int, tuple[int, int]] = {}
        self.progress: list[tuple[float, int]] = [(0.0, 0)]
        self.moments: list[Moment] = []
        self.unpaced: dict[str, float] = {}
        self.leader_killed = False
        self.began = time.monotonic()

    def take(self, line: dict[str, object]) -> None:
        """Note one line of the sender."""
        at = time.monotonic() - self.began
        match line:
            case {"kind": "acked", "acks": list(acks)}:
                self.places.update((number, (partition, offset)) for number, partition, offset in acks)
                self.progress.append((at, len(self.places)))
            case {"kind": "loaded"} if not self.places:
                self.began = time.monotonic()
            case {"kind": "leader-killed", "node": node}:
                self.leader_killed = True
                self.note(
                    at,
                    f"leader on node {node} killed",
                    BAD,
                    f"[red]killed node {node}, the leader of {TOPIC}-0[/]; the others go on",
                )
            case {"kind": "leader-restarted", "node": node}:
                self.note(at, f"node {node} back", GOOD, f"node {node} restarted, catches up")
            case {"kind": "opened", "seconds": float(seconds)} if self.places:
                said = (
                    f"a new process: the cluster is open again after {seconds:.2f} s; the flights are loaded once more"
                )
                self.note(at, f"open again in {seconds:.2f} s", GOOD, said)
            case {"kind": "settled", "unknown": unknown, "found": found}:
                console.print(
                    f"  {unknown} sends had an unknown outcome; the log holds {found} of them, the rest is sent again"
                )
            case {"kind": "resumed", "held": held} if held:
                self.note(
                    at,
                    "resumed",
                    GOOD,
                    f"resumed: the log holds {held:,} flights, {FLIGHT_COUNT - int(str(held)):,} are still to send",
                )
            case {"kind": "unpaced"}:
                self.unpaced = {name: float(str(value)) for name, value in line.items() if name != "kind"}
            case _:
                pass

    def note(self, at: float, text: str, colour: str, said: str) -> None:
        """Say it now and mark it on the picture."""
        self.moments.append(Moment(at, text, colour))
        console.print(f"  {said}")


def lines_of(process: subprocess.Popen[str]) -> Iterator[dict[str, object]]:
    """The sender's lines while it lives; a last line cut by the kill is no line."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith("\n"):
            yield json.loads(line)


def send(folder: Path, ledger: Ledger, *, seconds: float) -> None:
    """Run the sender twice: once until it is killed, once to the end."""
    command = [sys.executable, str(Path(__file__).with_name("sender.py")), str(folder), f"--seconds={seconds}"]
    columns = (TextColumn("  {task.description}"), BarColumn(bar_width=48), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        bar = bars.add_task("acknowledged", total=FLIGHT_COUNT)
        for extra in ([f"--kill-leader-at={KILL_LEADER_AT}"], ["--unpaced"]):
            with subprocess.Popen(command + extra, stdout=subprocess.PIPE, text=True) as process:
                for line in lines_of(process):
                    ledger.take(line)
                    bars.update(bar, completed=len(ledger.places))
                    if "--unpaced" not in extra and len(ledger.places) >= KILL_PROCESS_AT:
                        time.sleep(KILL_DELAY_S)
                        process.send_signal(signal.SIGKILL)
                        at = time.monotonic() - ledger.began
                        ledger.note(
                            at,
                            "whole process killed",
                            BAD,
                            "[red]SIGKILL to the whole process: three nodes gone at once[/]",
                        )
                        # Lines that the sender wrote before the kill are acknowledgements too.
                        for late in lines_of(process):
                            ledger.take(late)
                        break
            # Without its accidents the demo would show nothing.
            wanted = 0 if "--unpaced" in extra else -signal.SIGKILL
            if process.returncode != wanted:
                raise SystemExit(f"the sender ended with exit code {process.returncode}, not {wanted}")
    if not ledger.leader_killed:
        raise SystemExit("no leader was killed")


def check(cluster: pyreplog.Cluster, ledger: Ledger) -> pl.DataFrame:
    """Check that every acknowledged flight is at its partition and offset, and that every flight is in the
    log exactly once. Return the topic as a frame."""
    log = pl.DataFrame(cluster.scan(TOPIC, columns=["partition", "offset", "timestamp", "key", "value"]))
    log = log.with_columns(
        pl.col("value").cast(pl.String).str.json_decode(dtype=FACTS).alias("facts"), pl.col("key").cast(pl.String)
    ).unnest("facts")
    found = {
        (partition, offset): number for partition, offset, number in log.select("partition", "offset", "id").iter_rows()
    }
    lost = [number for number, place in ledger.places.items() if found.get(place) != number]
    counts = log["id"].value_counts()
    missing, twice = FLIGHT_COUNT - len(counts), counts.filter(pl.col("count") > 1).height
    if lost or missing or twice:
        raise SystemExit(
            f"FAILED: {len(lost)} acknowledged flights lost, {missing} never arrived, {twice} there more than once"
        )
    per_partition = ", ".join(f"{count:,}" for count in log["partition"].value_counts().sort("partition")["count"])
    console.print(
        f"  {len(ledger.places):,} acknowledgements checked: each flight is at the partition and offset it was promised"
    )
    if unheard := FLIGHT_COUNT - len(ledger.places):
        console.print(
            f"  {unheard:,} more are in the log, whose acknowledgement never arrived: found there, and not sent again"
        )
    console.print(
        f"  all {FLIGHT_COUNT:,} flights are there [bold green]exactly once[/], in {PARTITION_COUNT} partitions:"
        f" {per_partition}"
    )
    return log


def one_day(cluster: pyreplog.Cluster, log: pl.DataFrame) -> pl.DataFrame:
    """One day, found through the time index; must equal the same day filtered from everything."""
    began = time.monotonic()
    end = DAY + timedelta(days=1)
    day = pl.DataFrame(cluster.scan(TOPIC, columns=["timestamp", "value"], start_timestamp=DAY, end_timestamp=end))
    elapsed_ms = (time.monotonic() - began) * 1000
    expected = log.filter(pl.col("timestamp").is_between(DAY, end, closed="left")).height
    if day.height != expected:
        raise SystemExit(f"FAILED: the time index found {day.height} flights on {DAY:%d %B %Y}, a full scan {expected}")
    console.print(
        f"  {DAY:%d %B %Y}: {day.height} departures in {elapsed_ms:.1f} ms through the time index, the same as a full"
        " scan finds"
    )
    facts = day.with_columns(pl.col("value").cast(pl.String).str.json_decode(dtype=FACTS)).unnest("value")
    by_hour = facts.group_by(pl.col("timestamp").dt.hour().cast(pl.Int64).alias("hour")).agg(
        pl.len().alias("flights"), pl.col("dep_delay").mean().alias("delay")
    )
    return (
        pl.DataFrame({"hour": range(24)})
        .join(by_hour, on="hour", how="left")
        .with_columns(pl.col("flights").fill_null(0))
        .sort("hour")
    )


def delays_by_spark(folder: Path) -> pl.DataFrame:
    """Mean departure delay per carrier, computed by Spark from the log's files."""
    with local_session("replog demo", cores=2, config=QUIET) as spark:
        flights = spark.read.format("replog").option("path", str(folder)).option("topic", TOPIC).load()
        result = (
            flights.select(
                sf.col("key").cast("string").alias("carrier"),
                sf.get_json_object(sf.col("value").cast("string"), "$.dep_delay").cast("long").alias("dep_delay"),
            )
            .groupBy("carrier")
            .agg(sf.count("*").alias("flights"), sf.avg("dep_delay").alias("delay"))
            .collect()
        )
    return pl.DataFrame([row.asDict() for row in result]).sort("carrier")


def delays_by_polars(log: pl.DataFrame) -> pl.DataFrame:
    """The same by Polars, from the Arrow scan."""
    return (
        log.group_by(pl.col("key").alias("carrier"))
        .agg(pl.len().alias("flights"), pl.col("dep_delay").mean().alias("delay"))
        .sort("carrier")
    )


def agree(spark: pl.DataFrame, polars: pl.DataFrame) -> bool:
    """Same carriers, same counts, means equal but for the order of the additions."""
    both = spark.join(polars, on="carrier", how="full", suffix="_polars")
    same = (pl.col("flights") == pl.col("flights_polars")) & ((pl.col("delay") - pl.col("delay_polars")).abs() < 1e-9)
    return both.height == spark.height == polars.height and bool(both.select(same.all()).item())


def main() -> None:
    """Run every step; exit non-zero as soon as one does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("build/demo"), help="where the cluster and the picture go; emptied first"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="pace of the first run")
    options = parser.parse_args()
    data, picture = options.folder / "data", options.folder / "flights.png"
    shutil.rmtree(data, ignore_errors=True)
    data.parent.mkdir(parents=True, exist_ok=True)

    console.rule("[bold]1. Send a year of flights, with two accidents", align="left")
    ledger = Ledger()
    send(data, ledger, seconds=options.seconds)

    console.rule("[bold]2. Hold the acknowledgements against the log", align="left")
    with pyreplog.Cluster(data, nodes=3) as cluster:
        log = check(cluster, ledger)
        console.rule("[bold]3. Once more, unpaced", align="left")
        speed = ledger.unpaced
        again = pl.DataFrame(cluster.scan(TOPIC_UNPACED, columns=["offset"])).height
        if again != FLIGHT_COUNT:
            raise SystemExit(f"FAILED: {TOPIC_UNPACED} holds {again} flights")
        console.print(
            f"  {speed['count']:,.0f} flights in {speed['seconds']:.2f} s:"
            f" [bold]{speed['count'] / speed['seconds']:,.0f} records/s[/],"
            f" {speed['bytes'] / speed['seconds'] / 1e6:.0f} MB/s, each fsynced on three replicas before it was"
            " acknowledged"
        )
        console.rule("[bold]4. One day, through the time index", align="left")
        day = one_day(cluster, log)

    console.rule("[bold]5. Spark and Polars read the same log", align="left")
    polars = delays_by_polars(log)
    spark = delays_by_spark(data)
    if not agree(spark, polars):
        raise SystemExit(f"FAILED: Spark and Polars disagree:\n{spark}\n{polars}")
    worst, best = polars.sort("delay", descending=True).row(0, named=True), polars.sort("delay").row(0, named=True)
    console.print(
        f"  they agree on all {polars.height} carriers: most late {worst['carrier']} ({worst['delay']:.1f} minutes on"
        f" average), least {best['carrier']} ({best['delay']:.1f})"
    )
    ledger.moments.sort()
    day_name = f"{DAY:%d %B %Y}"
    draw(picture, progress=ledger.progress, moments=ledger.moments, delays=polars, day=day, day_name=day_name)
    console.print(f"\n[bold]Picture:[/] {picture.resolve()}")


if __name__ == "__main__":
    main()
