"""Streaming queries in a real session: beside a writer, restarted, killed; limits, lag, new partitions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pyreplog
from pyreplog.spark import lag
from pyreplog.spark.stream import LIMITS
from pyreplog.values import TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
limits = pytest.mark.skipif(not LIMITS, reason="PySpark before 4.2 has no limits per trigger")


def append(root: Path, count: int, partition: int = 0) -> None:
    """So many more records of topic t."""
    with pyreplog.open_log(root / "log", topic="t", partition=partition, durability="os") as log:
        log.append_many([b"%d" % number for number in range(count)])


def load(spark: SparkSession, root: Path, **options: object) -> DataFrame:
    """The stream of topic t."""
    made = spark.readStream.format("replog").option("path", str(root / "log")).option("topic", "t")
    for name, value in options.items():
        made = made.option(name, str(value))
    return made.schema("partition int, offset long").load()


def start(frame: DataFrame, root: Path, name: str = "query") -> StreamingQuery:
    """A query that writes what it reads to parquet, as far as there is now."""
    sink = frame.writeStream.format("parquet").option("checkpointLocation", str(root / f"{name}-checkpoint"))
    return sink.option("path", str(root / name)).trigger(availableNow=True).start()


def run(frame: DataFrame, root: Path, name: str = "query") -> StreamingQuery:
    """:func:`start`, to its end."""
    query = start(frame, root, name)
    assert query.awaitTermination(120)
    return query


def rows(spark: SparkSession, root: Path, name: str = "query") -> list[tuple[int, int]]:
    """(partition, offset) of all that a query wrote, sorted."""
    schema = "partition int, offset long"
    return sorted(
        (row["partition"], row["offset"]) for row in spark.read.schema(schema).parquet(str(root / name)).collect()
    )


def span(*ranges: tuple[int, int, int]) -> list[tuple[int, int]]:
    """(partition, offset) of the half-open ranges."""
    return [(partition, offset) for partition, start, end in ranges for offset in range(start, end)]


@limits
def test_available_now(spark: SparkSession, tmp_path: Path) -> None:
    """Micro-batches of at most maxOffsetsPerTrigger up to what was there; the next start goes on behind it, with a
    new partition; the progress says how far it is behind."""
    append(tmp_path, 1000)
    frame = load(spark, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=300)
    query = run(frame, tmp_path)
    assert [progress["numInputRows"] for progress in query.recentProgress] == [300, 300, 300, 100]
    assert rows(spark, tmp_path) == span((0, 0, 1000))
    append(tmp_path, 50)
    append(tmp_path, 20, partition=1)
    query = run(frame, tmp_path)
    assert rows(spark, tmp_path) == span((0, 0, 1050), (1, 0, 20))
    behind = lag(query)
    assert behind is not None
    assert behind.partitions == {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0}


@limits
def test_lag(spark: SparkSession, tmp_path: Path) -> None:
    """A query that may take 100 of 1000 records is 900 behind."""
    append(tmp_path, 1000)
    frame = load(spark, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    seen = []

    def note(batch: DataFrame, number: int) -> None:
        if number == 1:
            seen.append(lag(query))

    query = frame.writeStream.foreachBatch(note).trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    (behind,) = seen
    assert behind is not None
    assert (
        behind.total,
        behind.min_offsets_behind_latest,
        behind.max_offsets_behind_latest,
        behind.avg_offsets_behind_latest,
    ) == (
        900,
        900,
        900,
        900.0,
    )


def test_beside_a_writer(spark: SparkSession, tmp_path: Path) -> None:
    """A running query sees what is appended, from the latest offset on unless told otherwise, once; a partition
    made meanwhile whole; and there are no micro-batches without rows."""
    append(tmp_path, 10)
    query = (
        load(spark, tmp_path)
        .writeStream.format("memory")
        .queryName("beside")
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        query.processAllAvailable()
        with pyreplog.open_log(tmp_path / "log", topic="t", durability="os") as log:
            for _ in range(5):
                log.append_many([b"x"] * 4)
                query.processAllAvailable()
        batches = [progress["batchId"] for progress in query.recentProgress if progress["numInputRows"]]
        assert batches == list(range(batches[0], batches[0] + 5))
        append(tmp_path, 3, partition=1)
        query.processAllAvailable()
    finally:
        query.stop()
    found = sorted((row["partition"], row["offset"]) for row in spark.table("beside").collect())
    assert found == span((0, 10, 30), (1, 0, 3))


def test_what_a_stream_refuses(spark: SparkSession, tmp_path: Path) -> None:
    """An option of a batch reaches the user in our words."""
    append(tmp_path, 10)
    with pytest.raises(StreamingQueryException, match="endingOffsets is for batch reads"):
        run(load(spark, tmp_path, endingOffsets="latest"), tmp_path)


PROGRAM = """
import sys
from pyreplog.spark import local_session

root = sys.argv[1]
with local_session("killed", cores=2) as spark:
    frame = spark.readStream.format("replog").option("path", root + "/log").option("maxOffsetsPerTrigger", 500)
    frame = frame.option("startingOffsets", sys.argv[2]).schema("partition int, offset long").load()
    query = frame.writeStream.format("parquet").option("checkpointLocation", root + "/query-checkpoint")
    query = query.option("path", root + "/query").trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    print("first", flush=True)
    query.awaitTermination(200)
"""


def killed(root: Path, starting: str, until: Callable[[], object]) -> None:
    """Run the query in a process group of its own, and kill all of it (driver, JVM, workers) when ``until``
    returns."""
    command = [sys.executable, "-c", PROGRAM, str(root), starting]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"first\n"
            until()
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def killed_and_restarted(spark: SparkSession, root: Path, rounds: int, seed: int) -> None:
    """Kill a query ``rounds`` times while records come, let it end in peace, and see that it wrote every record
    once."""
    random = Random(seed)
    append(root, 100)
    total = [100]

    def work() -> None:
        for _ in range(random.randrange(20, 60)):
            append(root, 100)
            total[0] += 100

    for _ in range(rounds):
        killed(root, "earliest", work)
    run(load(spark, root, startingOffsets="earliest"), root)
    assert rows(spark, root) == span((0, 0, total[0]))


@limits
@pytest.mark.slow
def test_killed_amid_micro_batches(spark: SparkSession, tmp_path: Path) -> None:
    """kill -9 of driver, JVM and workers while records come: after a restart every record was read once."""
    killed_and_restarted(spark, tmp_path, rounds=1, seed=1)


@limits
@pytest.mark.soak
def test_killed_again_and_again(spark: SparkSession, tmp_path: Path) -> None:
    """As above, six times over one checkpoint."""
    killed_and_restarted(spark, tmp_path, rounds=6, seed=2)
