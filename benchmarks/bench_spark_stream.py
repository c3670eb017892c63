"""What does a micro-batch cost that has next to nothing to do? Against a Python source that does nothing, and
Spark's own Kafka source."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import pyreplog
from benchmarks import spark_kafka
from pyreplog.spark import local_session

datasource = pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="PySpark before 4.2 has no limits per trigger"
)

pytestmark = pytest.mark.timeout(600)

BATCHES = 30
WARM = 8
ROUNDS = 3
REACH = 1.2


class IdleReader(DataSourceStreamReader, datasource.SupportsTriggerAvailableNow):  # type: ignore[misc, name-defined]
    """One task with one row in each of so many micro-batches."""

    def initialOffset(self) -> dict[str, int]:
        """Before all."""
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
        """One further."""
        return {"n": min(start["n"] + 1, BATCHES)}

    def prepareForTriggerAvailableNow(self) -> None:
        """There is an end anyway."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One task."""
        return [InputPartition(end["n"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One row."""
        yield pa.RecordBatch.from_arrays(
            [pa.array([partition.value], pa.int64())], schema=pa.schema([("offset", pa.int64())])
        )


class IdleSource(DataSource):
    """A stream without any work of its own."""

    @classmethod
    def name(cls) -> str:
        """``idle``."""
        return "idle"

    def schema(self) -> str:
        """One column."""
        return "offset long"

    def streamReader(self, schema: object) -> IdleReader:
        """The only one."""
        return IdleReader()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Two cores, for all that take part, with what ``local_session`` sets; workers find this file."""
    config = {"spark.sql.streaming.numRecentProgressUpdates": "1000"} | spark_kafka.settings()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        with local_session("bench", cores=2, config=config) as session:
            session.dataSource.register(IdleSource)
            yield session


def floor_ms(frame: DataFrame, checkpoint: Path) -> float:
    """Median time of a micro-batch, in ms, of those after the first ones."""
    sink = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    took = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress if progress["numInputRows"]]
    assert len(took) >= BATCHES - 1
    return float(statistics.median(took[WARM:]))


@pytest.mark.parametrize("partitions", [1, 4])
def test_floor(spark: SparkSession, tmp_path: Path, partitions: int, benchmark: Any) -> None:
    """A micro-batch of one record per partition: at most 1.2 times an idle Python source of as many tasks, and the
    tuned Kafka source."""
    for number in range(partitions):
        with pyreplog.open_log(tmp_path / "log", topic="t", partition=number, durability="os") as log:
            for index in range(BATCHES):
                log.append(b"%d" % index)
    ours = (
        spark.readStream.format("replog")
        .option("maxOffsetsPerTrigger", partitions)
        .option("startingOffsets", "earliest")
    )
    frames = {"ours": ours.schema("offset long").load(str(tmp_path / "log"))}
    frames["an idle Python source"] = spark.readStream.format("idle").load()
    if spark_kafka.SERVERS:
        topic = spark_kafka.filled(str(tmp_path / "log"), f"bench-spark-{partitions}", partitions)
        frames["Kafka's source, tuned"] = spark_kafka.read_stream(spark, topic, partitions).select("offset")
    took: dict[str, list[float]] = {name: [] for name in frames}

    def once() -> None:
        for name, frame in frames.items():
            took[name].append(floor_ms(frame, tmp_path / f"{name}-{len(took[name])}"))

    benchmark.pedantic(once, rounds=ROUNDS)
    if benchmark.stats is not None:
        medians = {name: statistics.median(times) for name, times in took.items()}
        own = medians.pop("ours")
        benchmark.extra_info["figures"] = [
            {
                "what": f"micro-batch floor, {partitions} partition{'s' if partitions > 1 else ''}",
                "measured": f"{own:.0f} ms",
                "peer": f"{name}: {peer:.0f} ms",
                "ratio": round(own / peer, 3),
                "reach": REACH,
                "better": "lower",
            }
            for name, peer in medians.items()
        ]
