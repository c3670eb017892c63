"""The sink in a real local session: what is written is what is read; checks; owners; and every row exactly once
whatever is killed."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import pyreplog
from pyreplog.record import partition_for_key
from pyreplog.spark import register

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
AT = datetime(2024, 6, 1, 12, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)


def numbered(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    """Keys k0 to k4 and values 0 to ``count`` - 1, in order."""
    numbers = spark.range(0, count, 1, tasks)
    return numbers.select(
        sf.concat(sf.lit("k"), (sf.col("id") % 5).cast("string")).alias("key"),
        sf.col("id").cast("string").alias("value"),
    )


def write(frame: DataFrame, path: Path, **options: str) -> None:
    """A batch write."""
    frame.write.format("replog").mode("append").options(**options).save(str(path))


def error(frame: DataFrame, path: Path, **options: str) -> str:
    """What a write fails with."""
    with pytest.raises(PySparkException) as caught:
        write(frame, path, **options)
    return str(caught.value)


def values(path: Path, topic: str | None = None) -> list[bytes]:
    """What a reader of a log sees."""
    with pyreplog.open_log(path, "r", topic=topic) as log:
        return [record.value or b"" for record in log]


def test_every_column(spark: SparkSession, tmp_path: Path) -> None:
    """Key, value, headers, timestamp and partition go in and come out; nulls too; a folder that is not there
    becomes a log."""
    for number in range(3):
        pyreplog.open_log(tmp_path / "log", topic="t", partition=number, durability="os").close()
    schema = (
        "key binary, value binary, headers array<struct<key:string,value:binary>>, timestamp timestamp, partition int"
    )
    rows = [
        (b"a", b"1", [("h", b"x"), ("n", None)], AT, None),
        (None, None, [], None, 2),
        (b"a", b"3", None, AT, 0),
        (b"b", b"", None, None, None),
    ]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    write(frame, tmp_path / "log")
    found = {}
    for number in range(3):
        with pyreplog.open_log(tmp_path / "log", "r", topic="t", partition=number) as log:
            found[number] = [(r.key, r.value, list(r.headers), r.timestamp) for r in log]
    a, b = partition_for_key(b"a", 3), partition_for_key(b"b", 3)
    now = found[2][-1][3] if b != 2 else next(row[3] for row in found[2] if row[0] is None)
    expected: dict[int, list[object]] = {0: [], 1: [], 2: []}
    expected[a].append((b"a", b"1", [("h", b"x"), ("n", None)], AT_MS))
    expected[2].append((None, None, [], now))
    expected[0].append((b"a", b"3", [], AT_MS))
    expected[b].append((b"b", b"", [], now))
    assert found == expected
    assert abs(now - datetime.now(UTC).timestamp() * 1000) < 600_000
    write(numbered(spark, 10), tmp_path / "new" / "events")
    assert sorted(values(tmp_path / "new" / "events")) == sorted(b"%d" % number for number in range(10))
    assert not [name for name in os.listdir(tmp_path / "log") if name.startswith("replog.spool.")]


def test_checks(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark's Kafka sink refuses, and what it does not notice."""
    good = numbered(spark, 4)
    path = tmp_path / "log"
    assert "column 'value' is needed" in error(good.select("key"), path)
    assert "column value is bigint; it must be string or binary" in error(
        spark.range(1).withColumnRenamed("id", "value"), path
    )
    assert "'vaule' is none that a log has; did you mean 'value'" in error(good.withColumn("vaule", sf.lit("x")), path)
    assert "unknown option 'topc'; did you mean 'topic'?" in error(good, path, topc="x")
    assert "option 'kafka.acks' means nothing here" in error(good, path, **{"kafka.acks": "all"})
    with pytest.raises(PySparkException, match=r"mode overwrite would delete a log"):
        good.write.format("replog").mode("overwrite").save(str(path))
    write(good, path)
    assert "null in column 'topic'" in error(good.withColumn("topic", sf.lit(None).cast("string")), path)
    assert "has no topic 'lgo'; did you mean 'log'" in error(good.withColumn("topic", sf.lit("lgo")), path)
    assert "asks for partition 7; the topic has partitions 0 to 0" in error(
        good.withColumn("partition", sf.lit(7)), path
    )
    write(good.withColumn("topic", sf.lit("lgo")), path, topic="log")
    write(spark.read.format("replog").load(str(path)), path)
    assert len(values(path)) == 16
    assert not [name for name in os.listdir(path) if name.startswith("replog.spool.")]


def test_into_a_running_cluster(spark: SparkSession, tmp_path: Path) -> None:
    """This process has it open; rows go to their topics, where murmur2 puts their keys, those of a key in order."""
    with pyreplog.Cluster(tmp_path) as cluster:
        cluster.admin.create_topic("even", partitions=3)
        cluster.admin.create_topic("odd", partitions=2)
        frame = numbered(spark, 3000).withColumn(
            "topic", sf.when(sf.col("value").cast("int") % 2 == 0, "even").otherwise("odd")
        )
        write(frame, tmp_path)
        for topic, count, rest in (("even", 3, 0), ("odd", 2, 1)):
            found = pa.table(cluster.scan(topic, columns=["partition", "key", "value"])).to_pylist()
            assert sorted(int(row["value"]) for row in found) == list(range(rest, 3000, 2))
            for row in found:
                assert row["partition"] == partition_for_key(row["key"], count)
            for key in {row["key"] for row in found}:
                mine = [int(row["value"]) for row in found if row["key"] == key]
                assert mine == sorted(mine)
        assert "make it by cluster.admin.create_topic" in error(frame, tmp_path, topic="nope")
        assert "names one" in error(frame.drop("topic"), tmp_path) or "name one by option" in error(
            frame.drop("topic"), tmp_path
        )


def test_a_folder_that_a_group_shares(spark: SparkSession, tmp_path: Path) -> None:
    """Option ``permissions`` lets tasks and driver write to a folder of the group, refused without it; each file is
    the group's."""
    tmp_path.chmod(0o2770)
    log = tmp_path / "log"
    write(numbered(spark, 4), log, permissions="group")
    assert "permissions='group'" in error(numbered(spark, 4), log)
    write(numbered(spark, 4), log, permissions="group")
    modes = {path.name: path.stat().st_mode & 0o7777 for path in tmp_path.rglob("*")}
    assert set(modes.values()) == {0o2770, 0o660}
    with pyreplog.open_log(log, "r", permissions="group") as reader:
        assert len(list(reader)) == 8


def test_nobody_takes_it(spark: SparkSession, tmp_path: Path) -> None:
    """A cluster that is not running: the write fails in time, says why, and leaves nothing; a log that is open and
    takes nothing, too."""
    with pyreplog.Cluster(tmp_path / "cluster") as cluster:
        cluster.admin.create_topic("t")
    text = error(numbered(spark, 4), tmp_path / "cluster", commitTimeout="500ms")
    assert "no process took batch 0" in text
    assert "start the process that has" in text
    assert not [name for name in os.listdir(tmp_path / "cluster") if name.endswith((".staged", ".manifest"))]
    pyreplog.open_log(tmp_path / "log").close()
    text = error(numbered(spark, 4), tmp_path / "log", owner="running", commitTimeout="500ms")
    assert "no process took batch 0" in text
    assert values(tmp_path / "log") == []


def test_threads_write(spark: SparkSession, tmp_path: Path) -> None:
    """A new thread of Python has no session by which Spark finds where to write: registering gives it one."""

    def job(number: int) -> None:
        register(spark)
        write(numbered(spark, 3, tasks=1), tmp_path / "log", topic=f"t{number}")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(job, range(2)))
    assert [sorted(values(tmp_path / "log", f"t{number}")) for number in range(2)] == [[b"0", b"1", b"2"]] * 2


def test_a_named_write_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    """txnAppId and txnVersion: a job that is run again, in other tasks, writes nothing; the next number does. A
    lower number, and the same number with other rows, fail and write nothing, unless appliedBatch=keep skips
    them."""
    path, job = tmp_path / "log", {"txnAppId": "nightly"}
    for version, tasks, expected in ((0, 1, 6), (0, 2, 6), (1, 2, 12), (1, 1, 12)):
        write(numbered(spark, 6, tasks), path, **job, txnVersion=str(version))
        assert len(values(path)) == expected
    for version, rows in ((0, 6), (1, 5)):
        told = error(numbered(spark, rows), path, **job, txnVersion=str(version))
        assert "appliedBatch=keep" in told
        write(numbered(spark, rows), path, **job, txnVersion=str(version), appliedBatch="keep")
    assert len(values(path)) == 12


def stream(spark: SparkSession, source: Path, target: Path, checkpoint: Path, *, tasks: int) -> None:
    """Copy what is there by a stream, in micro-batches, until the end or an error."""
    read = spark.readStream.format("replog").option("startingOffsets", "earliest")
    if VERSION >= (4, 2):
        read = read.option("maxOffsetsPerTrigger", "400")
    frame = read.option("minPartitions", str(tasks)).load(str(source))
    write = frame.select("key", "value").writeStream.format("replog").option("checkpointLocation", str(checkpoint))
    query = write.option("path", str(target)).option("batchBytes", "1k").trigger(availableNow=True).start()
    query.awaitTermination()


def filled(folder: Path) -> Path:
    """A log of 1000 numbered records with five keys."""
    with pyreplog.open_log(folder / "source", durability="os") as log:
        for first in range(0, 1000, 50):
            log.append_many(
                [b"%d" % number for number in range(first, first + 50)],
                keys=[b"k%d" % (number % 5) for number in range(50)],
            )
    return folder / "source"


def check_once(found: list[tuple[bytes | None, int]]) -> None:
    """Every row of :func:`filled` once, those of a key in order."""
    assert sorted(number for _, number in found) == list(range(1000))
    for key in (b"k0", b"k1", b"k2", b"k3", b"k4"):
        mine = [number for found_key, number in found if found_key == key]
        assert mine == sorted(mine)


@pytest.mark.skipif(VERSION < (4, 1), reason="Spark 4.0 writes no streams to Python sinks in Arrow")
def test_a_checkpoint_that_is_older_than_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """Restored from a backup, its next batches have numbers that the log has, with other rows: an error, and no row
    is lost in silence."""
    source, target, checkpoint = tmp_path / "source", tmp_path / "log", tmp_path / "checkpoint"
    for run in range(3):
        with pyreplog.open_log(source, durability="os") as log:
            log.append_many([b"%d" % run] * 3)
        stream(spark, source, target, checkpoint, tasks=1)
        if run == 0:
            shutil.copytree(checkpoint, tmp_path / "backup")
    shutil.rmtree(checkpoint)
    shutil.move(tmp_path / "backup", checkpoint)
    with pytest.raises(StreamingQueryException, match=r"checkpoint is older than the log.*appliedBatch=keep"):
        stream(spark, source, target, checkpoint, tasks=1)
    assert values(target) == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3


@pytest.mark.skipif(VERSION < (4, 1), reason="Spark 4.0 writes no streams to Python sinks in Arrow")
def test_output_modes(spark: SparkSession, tmp_path: Path) -> None:
    """Complete is refused, update is none that Spark has for Python sinks: there foreachBatch writes, once however
    often it is run."""
    source = spark.readStream.format("replog").option("startingOffsets", "earliest").load(str(filled(tmp_path)))
    counts = source.groupBy("key").count().selectExpr("key", "string(count) AS value").writeStream
    for mode, text in (
        ("complete", "output mode complete would write all rows again"),
        ("update", "does not support Update mode"),
    ):
        query = (
            counts.outputMode(mode)
            .format("replog")
            .option("checkpointLocation", str(tmp_path / mode))
            .option("path", str(tmp_path / "log"))
        )
        with pytest.raises(StreamingQueryException, match=text):
            query.trigger(availableNow=True).start().awaitTermination()

    def twice(frame: DataFrame, batch: int) -> None:
        for _ in range(2):
            write(frame, tmp_path / "log", txnAppId="counts", txnVersion=str(batch))

    query = counts.outputMode("update").foreachBatch(twice).option("checkpointLocation", str(tmp_path / "each"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert values(tmp_path / "log") == [b"200"] * 5


STEPS = ("executor after staging", "owner in the middle of the append")
MORE_STEPS = (
    "executor before staging",
    "executor while staging",
    "driver before the manifest",
    "driver after the manifest",
    "owner before the append",
    "owner after the append",
)


@pytest.mark.skipif(VERSION < (4, 1), reason="Spark 4.0 writes no streams to Python sinks in Arrow")
@pytest.mark.parametrize("step", [*STEPS, *(pytest.param(step, marks=pytest.mark.soak) for step in MORE_STEPS)])
def test_killed_at(step: str, spark: SparkSession, tmp_path: Path, kill_file: Path) -> None:
    """SIGKILL to the process at that step; the stream starts again from its checkpoint with other tasks: every row
    once, keys in order."""
    source, target, checkpoint = filled(tmp_path), tmp_path / "target", tmp_path / "checkpoint"
    kill_file.write_text(step)
    with pytest.raises(PySparkException):
        stream(spark, source, target, checkpoint, tasks=1)
    assert not kill_file.exists()
    stream(spark, source, target, checkpoint, tasks=3)
    with pyreplog.open_log(target, "r") as log:
        check_once([(record.key, int(record.value or b"-1")) for record in log])
    assert {name.rpartition(".")[2] for name in os.listdir(target) if name.startswith("replog.spool.")} == {
        "applied",
        "lock",
    }


@pytest.mark.soak
@pytest.mark.skipif(VERSION < (4, 1), reason="Spark 4.0 writes no streams to Python sinks in Arrow")
@pytest.mark.parametrize("step", [step for step in (*STEPS, *MORE_STEPS) if not step.startswith("owner")])
def test_killed_beside_a_running_cluster(step: str, spark: SparkSession, tmp_path: Path, kill_file: Path) -> None:
    """As above, where a cluster in this process appends, which goes on meanwhile."""
    source = filled(tmp_path)
    with pyreplog.Cluster(tmp_path / "cluster") as cluster:
        cluster.admin.create_topic("t", partitions=3)
        kill_file.write_text(step)
        with pytest.raises(PySparkException):
            stream(spark, source, tmp_path / "cluster", tmp_path / "checkpoint", tasks=1)
        assert not kill_file.exists()
        stream(spark, source, tmp_path / "cluster", tmp_path / "checkpoint", tasks=3)
        found = pa.table(cluster.scan("t", columns=["key", "value"])).to_pylist()
    check_once([(row["key"], int(row["value"])) for row in found])
