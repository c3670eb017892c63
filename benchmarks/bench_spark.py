"""The speed of a Spark read, beside the most that Spark's interface for Python sources can take. It runs on one
core, to Spark's ``noop`` sink.

The ceiling is a data source that does no work: it has the same Arrow batches ready in a mapped file. Spark's own
Kafka source takes part, tuned and with its defaults, if it is available: see ``spark_kafka``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import pyreplog
from benchmarks import spark_kafka
from benchmarks.conftest import Duel, Peer
from pyreplog.spark import local_session, map_arrow
from pyreplog.spark.batch import ReplogReader, plan_tasks
from pyreplog.spark.options import parse_read_options
from pyreplog.spark.schema import COLUMNS, Field, default_ddl

pytestmark = pytest.mark.timeout(600)

COUNT = 2_000_000
PER_BATCH = 1000
ROUNDS = 5
REACH = 0.9
BASE_MS = 1_717_200_000_000
PARTITIONS = 10_000
COPIES = 8


class CeilingReader(DataSourceReader):
    """Yields prepared batches."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of the file, mapped and not copied."""
        with pa.memory_map(self.path) as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)


class CeilingSource(DataSource):
    """A data source without any work of its own."""

    @classmethod
    def name(cls) -> str:
        """``ceiling``."""
        return "ceiling"

    def schema(self) -> str:
        """That of ours."""
        return default_ddl(False)

    def reader(self, schema: object) -> CeilingReader:
        """Reads the file that the path names."""
        return CeilingReader(self.options["path"])


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """One core; workers find this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        with local_session("bench", cores=1, config={"spark.driver.memory": "2g"} | spark_kafka.settings()) as session:
            session.dataSource.register(CeilingSource)
            yield session


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A log of keys of 16 B and random values of 100 B, and a file of the batches that our reader makes of it."""
    folder = tmp_path_factory.mktemp("spark")
    random = Random(1)
    keys = [random.randbytes(16) for _ in range(PER_BATCH)]
    with pyreplog.open_log(folder / "log", durability="os") as log:
        for number in range(COUNT // PER_BATCH):
            timestamps = [BASE_MS + (number * PER_BATCH + index) * 50 for index in range(PER_BATCH)]
            log.append_many([random.randbytes(100) for _ in range(PER_BATCH)], keys=keys, timestamps=timestamps)
    fields = [Field(column.name, column.type, True) for column in COLUMNS if column.default]
    reader = ReplogReader(parse_read_options({"path": str(folder / "log"), "maxBytesPerPartition": "1g"}), fields)
    (task,) = reader.partitions()
    batches = reader.read(task)
    first = next(batches)
    with pa.OSFile(str(folder / "batches.arrow"), "wb") as sink, pa.ipc.new_file(sink, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
    return str(folder / "log"), str(folder / "batches.arrow")


def drain(frame: DataFrame) -> None:
    """Every row and column to a sink that drops it."""
    frame.write.format("noop").mode("overwrite").save()


@pytest.fixture(scope="module")
def kafka(paths: tuple[str, str]) -> str | None:
    """A topic of the broker with the same records; None without a broker."""
    return spark_kafka.filled(paths[0], "bench-spark", 1) if spark_kafka.SERVERS else None


def ours(spark: SparkSession, path: str, schema: str | None = None) -> DataFrame:
    """The log in one task."""
    made = spark.read.format("replog").option("maxBytesPerPartition", "1g")
    return (made if schema is None else made.schema(schema)).load(path)


def test_full_read(spark: SparkSession, paths: tuple[str, str], kafka: str | None, duel: Duel) -> None:
    """All columns: at least 0.9 of the ceiling, 1.2 of the tuned Kafka source, twice that as it comes."""
    frame, ceiling = ours(spark, paths[0]), spark.read.format("ceiling").load(paths[1])
    assert frame.count() == ceiling.count() == COUNT
    peers = [Peer("prepared Arrow batches", lambda: drain(ceiling), REACH)]
    if kafka is not None:
        tuned, plain = spark_kafka.read(spark, kafka, tuned=True), spark_kafka.read(spark, kafka, tuned=False)
        assert tuned.count() == COUNT
        peers += [
            Peer("Kafka's source, tuned", lambda: drain(tuned), 1.2),
            Peer("Kafka's source", lambda: drain(plain), 2.0),
        ]
    duel("Spark full-row read, one core", lambda: drain(frame), peers, count=COUNT, unit="rows", rounds=ROUNDS)


def test_narrow_read(spark: SparkSession, paths: tuple[str, str], kafka: str | None, duel: Duel) -> None:
    """Offset and timestamp by ``.schema(...)``, against sources that cannot leave columns out: 3 times the tuned
    Kafka source."""
    narrow, whole = ours(spark, paths[0], "offset long, timestamp timestamp"), ours(spark, paths[0])
    assert narrow.count() == COUNT
    peers = [Peer("all columns", lambda: drain(whole.select("offset", "timestamp")))]
    if kafka is not None:
        tuned = spark_kafka.read(spark, kafka, tuned=True)
        peers.append(Peer("Kafka's source, tuned", lambda: drain(tuned.select("offset", "timestamp")), 3.0))
    duel(
        "Spark read of offset and timestamp, one core",
        lambda: drain(narrow),
        peers,
        count=COUNT,
        unit="rows",
        rounds=ROUNDS,
    )


@pytest.fixture(scope="module")
def long_path(paths: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same records in eight partitions, which share the files: so many that starting a job is little of it."""
    folder = tmp_path_factory.mktemp("long")
    shutil.copytree(paths[0], folder / "log", copy_function=os.link)
    for number in range(1, COPIES):
        shutil.copytree(folder / "log" / "log-0", folder / "log" / f"log-{number}", copy_function=os.link)
    return str(folder / "log")


def bytes_per_hour(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of one task. Rounding costs ten times as much with a time zone, so it goes without: they are all in UTC."""
    parts = []
    for batch in batches:
        hour = pc.floor_temporal(batch.column("timestamp").cast(pa.timestamp("us")), unit="hour")
        sizes = pa.table({"hour": hour, "size": pc.binary_length(batch.column("value"))})
        parts.append(sizes.group_by("hour", use_threads=False).aggregate([("size", "sum")]))
    if parts:
        whole = pa.concat_tables(parts).group_by("hour").aggregate([("size_sum", "sum")])
        hours = whole.column("hour").cast(pa.timestamp("us", "UTC"))
        yield from pa.table({"hour": hours, "bytes": whole.column("size_sum_sum")}).to_batches()


def test_map_arrow(spark: SparkSession, long_path: str, duel: Duel) -> None:
    """Counting bytes per hour inside the executors: at least 5 times as fast as the same aggregation on rows. Both
    in one task."""
    one = {"path": long_path, "maxBytesPerPartition": "64g"}

    def in_arrow() -> list[Row]:
        made = map_arrow(spark, bytes_per_hour, "hour timestamp, bytes long", columns=["timestamp", "value"], **one)
        return made.groupBy("hour").agg(sf.sum("bytes").alias("bytes")).orderBy("hour").collect()

    whole = spark.read.format("replog").options(**one).load()

    def on_rows() -> list[Row]:
        hours = whole.groupBy(sf.date_trunc("hour", "timestamp").alias("hour"))
        return hours.agg(sf.sum(sf.octet_length("value")).alias("bytes")).orderBy("hour").collect()

    assert in_arrow() == on_rows()
    peers = [Peer("the same on rows", on_rows, 5.0)]
    duel("bytes per hour by map_arrow, one core", in_arrow, peers, count=COPIES * COUNT, unit="rows", rounds=3)


def test_planning(tmp_path: Path, benchmark: Any) -> None:
    """The plan of a read of 10,000 partitions takes at most 2 s."""
    with pyreplog.open_log(tmp_path / "many", topic="t", durability="os") as log:
        log.append_many([bytes(100)] * 50)
    for number in range(1, PARTITIONS):
        shutil.copytree(tmp_path / "many" / "t-0", tmp_path / "many" / f"t-{number}")
    options = parse_read_options({"path": str(tmp_path / "many")})
    tasks = benchmark.pedantic(lambda: plan_tasks(options), rounds=3, warmup_rounds=1)
    assert sum(map(len, tasks)) == PARTITIONS
    if benchmark.stats is not None:
        took = benchmark.stats.stats.median
        figure = {
            "what": "planning 10,000 partitions",
            "measured": f"{took:.2f} s",
            "peer": "2 s",
            "ratio": round(took / 2, 3),
        }
        benchmark.extra_info["figures"] = [figure | {"reach": 1.0, "better": "lower"}]
