"""How near is a Spark write to what its interface for Python sinks can take? On one core, rows that lie in Spark's
memory.

The ceiling is an Arrow writer that takes its batches and does nothing with them. Ours encodes them into record
batches, stages those in a file that it syncs, and has the log append them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import pyreplog
from benchmarks.conftest import Duel, Peer
from pyreplog.spark import local_session

pytestmark = pytest.mark.timeout(600)

COUNT = 1_000_000
ROUNDS = 4
REACH = 0.6


class DiscardWriter(DataSourceArrowWriter):
    """Takes batches and drops them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Look at each."""
        for batch in iterator:
            assert batch.num_rows
        return WriterCommitMessage()


class DiscardSource(DataSource):
    """A sink without any work of its own."""

    @classmethod
    def name(cls) -> str:
        """``discard``."""
        return "discard"

    def writer(self, schema: object, overwrite: bool) -> DiscardWriter:
        """Drops everything."""
        return DiscardWriter()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """One core; workers find this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        with local_session("bench", cores=1, config={"spark.driver.memory": "2g"}) as session:
            session.dataSource.register(DiscardSource)
            yield session


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Keys of 16 B and values of 100 B, in memory."""
    digest = sf.md5(sf.col("id").cast("string"))
    value = sf.concat(digest, sf.reverse(digest), digest, sf.lit("half"))
    frame = spark.range(0, COUNT, 1, 1).select(
        sf.substring(digest, 1, 16).cast("binary").alias("key"), value.cast("binary").alias("value")
    )
    frame = frame.cache()
    assert frame.count() == COUNT
    return frame


@pytest.mark.parametrize("partitions", [1, 8])
def test_write(rows: DataFrame, tmp_path: Path, duel: Duel, partitions: int) -> None:
    """At least 0.6 of the writer that discards, into a log of durability ``os`` that no process has open."""
    folder = tmp_path / "log"

    def begin() -> None:
        for number in range(partitions):
            pyreplog.open_log(folder, topic="t", partition=number, durability="os").close()

    def write() -> None:
        rows.write.format("replog").mode("append").save(str(folder))

    def finish() -> None:
        found = 0
        for number in range(partitions):
            with pyreplog.open_log(folder, "r", topic="t", partition=number) as log:
                found += log.end_offset
        assert found == COUNT
        shutil.rmtree(folder)

    peers = [Peer("an Arrow writer that discards", lambda: rows.write.format("discard").mode("append").save(), REACH)]
    name = f"Spark write, one core, {partitions} partition{'s' if partitions > 1 else ''}"
    duel(name, write, peers, count=COUNT, unit="rows", rounds=ROUNDS, prepare=begin, finish=finish)
