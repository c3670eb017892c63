"""How near is a Spark read to what its interface for Python sources can take? On one core, all columns, to Spark's ``noop`` sink.

The ceiling is a data source that does nothing: its Arrow batches, the very ones that ours makes, lie prepared in a mapped file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import pyreplog
from benchmarks.conftest import Duel, Peer
from pyreplog.spark import local_session
from pyreplog.spark.batch import ReplogReader
from pyreplog.spark.options import parse_read_options
from pyreplog.spark.schema import COLUMNS, Field, default_ddl

COUNT = 2_000_000
PER_BATCH = 1000
ROUNDS = 5
REACH = 0.8


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
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    with local_session("bench", cores=1, config={"spark.driver.memory": "2g"}) as session:
        session.dataSource.register(CeilingSource)
        yield session
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A log of keys of 16 B and random values of 100 B, and a file of the batches that our reader makes of it."""
    folder = tmp_path_factory.mktemp("spark")
    random = Random(1)
    keys = [random.randbytes(16) for _ in range(PER_BATCH)]
    with pyreplog.open_log(folder / "log", durability="os") as log:
        for _ in range(COUNT // PER_BATCH):
            log.append_many([random.randbytes(100) for _ in range(PER_BATCH)], keys=keys)
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


def test_full_read(spark: SparkSession, paths: tuple[str, str], duel: Duel) -> None:
    """All columns: at least 0.8 of the ceiling."""
    ours = spark.read.format("replog").option("maxBytesPerPartition", "1g").load(paths[0])
    ceiling = spark.read.format("ceiling").load(paths[1])
    assert ours.count() == ceiling.count() == COUNT
    peers = [Peer("prepared Arrow batches", lambda: drain(ceiling), REACH)]
    duel("Spark full-row read, one core", lambda: drain(ours), peers, count=COUNT, unit="rows", rounds=ROUNDS)


def test_one_column(spark: SparkSession, paths: tuple[str, str], duel: Duel) -> None:
    """Offsets alone by ``.schema("offset long")``, against reading all columns as Spark's Kafka source has to: only told."""
    narrow = spark.read.format("replog").option("maxBytesPerPartition", "1g").schema("offset long").load(paths[0])
    whole = spark.read.format("replog").option("maxBytesPerPartition", "1g").load(paths[0])
    assert narrow.count() == whole.count() == COUNT
    peers = [Peer("all columns", lambda: drain(whole.select("offset")))]
    duel("Spark read of one column, one core", lambda: drain(narrow), peers, count=COUNT, unit="rows", rounds=ROUNDS)
