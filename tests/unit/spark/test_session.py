"""The data source in a real local session: schema, columns, every option, beside a live writer, and a broker's
folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType, TimestampType

import pyreplog
from pyreplog.errors import ConfigError
from pyreplog.log import open_readers
from pyreplog.record import records_of
from pyreplog.spark import map_arrow, register
from pyreplog.spark.arrow_map import read_ahead
from pyreplog.spark.arrow_types import spark_schema
from pyreplog.spark.batch import ReplogReader
from pyreplog.spark.options import parse_read_options
from pyreplog.spark.pushdown import SAFE_FROM
from pyreplog.spark.schema import COLUMNS, Field
from pyreplog.spark.session import SOCKETS, SOCKETS_FROM, socket_settings
from pyreplog.system import SystemDisk
from tests.interop.golden.units import unit
from tests.unit.log.support import write_times

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BASE = 1_717_200_000_000
PER_PARTITION = 100
VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
PLANS_ARE_KEPT = PUSHES = VERSION >= (4, 1)
PUSHING = "spark.sql.python.filterPushdown.enabled"


class Stored(NamedTuple):
    """One record as it went in."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]]


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Stored]]:
    """A root with the topic ``orders``: two partitions of 100 records in batches of ten; a minute between
    records."""
    root = tmp_path_factory.mktemp("spark") / "root"
    stored = []
    for partition in (0, 1):
        with pyreplog.open_log(root, topic="orders", partition=partition, durability="os") as log:
            for first in range(0, PER_PARTITION, 10):
                rows = [
                    Stored(
                        partition,
                        i,
                        None if i % 3 == 0 else b"k%d" % (i % 5),
                        None if i % 7 == 0 else b"value-%d-%d" % (partition, i),
                        -1 if i % 11 == 0 else BASE + i * 60_000,
                        [("h", b"%d" % i), ("n", None)] if i % 2 else [],
                    )
                    for i in range(first, first + 10)
                ]
                log.append_many(
                    [row.value for row in rows],
                    keys=[row.key for row in rows],
                    headers=[row.headers for row in rows],
                    timestamps=[row.timestamp for row in rows],
                )
                stored += rows
    return root, stored


def reader(spark: SparkSession, path: Path, **options: object) -> DataFrameReader:
    """A reader of ``path`` with options."""
    made = spark.read.format("replog").option("path", str(path))
    for name, value in options.items():
        made = made.option(name, value if isinstance(value, str | int | bool) else json.dumps(value))
    return made


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    """(partition, offset) of every row, sorted."""
    return sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect())


def span(*ranges: tuple[int, int, int]) -> list[tuple[int, int]]:
    """(partition, offset) of the half-open ranges."""
    return [(partition, offset) for partition, start, end in ranges for offset in range(start, end)]


def error(frame: DataFrame | DataFrameReader) -> str:
    """What loading or reading it fails with."""
    with pytest.raises(PySparkException) as caught:
        (frame.load() if isinstance(frame, DataFrameReader) else frame).count()
    return str(caught.value)


def test_rows_and_schema(spark: SparkSession, orders: tuple[Path, list[Stored]]) -> None:
    """Without any registration: Kafka's columns with Kafka's types, and every record once with all its fields."""
    root, stored = orders
    frame = reader(spark, root, topic="orders", includeHeaders=True).load()
    assert (
        frame.schema.simpleString()
        == "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in frame.schema)
    rows = frame.orderBy("partition", "offset").toArrow().to_pylist()
    assert rows == [
        {
            "key": row.key,
            "value": row.value,
            "topic": "orders",
            "partition": row.partition,
            "offset": row.offset,
            "timestamp": None if row.timestamp == -1 else EPOCH + timedelta(milliseconds=row.timestamp),
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in row.headers] or None,
        }
        for row in stored
    ]
    assert reader(spark, root).load().columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]


def test_timestamps_in_a_session_whose_timestamps_have_no_zone(
    spark: SparkSession, orders: tuple[Path, list[Stored]]
) -> None:
    """They have one all the same, as in Kafka's source, and nobody has to give a schema."""
    root, stored = orders
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        frame = reader(spark, root).load()
        assert frame.schema["timestamp"].dataType == TimestampType()
        assert frame.count() == len(stored)
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_batches_are_arrow_in_spark_types(orders: tuple[Path, list[Stored]]) -> None:
    """What the reader hands to Spark are Arrow batches, not rows, of exactly the plain types it compares with."""
    fields = [Field(column.name, column.type, True) for column in COLUMNS]
    source = ReplogReader(parse_read_options({"path": str(orders[0])}), fields)
    batches = [batch for task in source.partitions() for batch in source.read(task)]
    assert sum(batch.num_rows for batch in batches) == 2 * PER_PARTITION
    for batch in batches:
        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema.equals(spark_schema(COLUMNS, [True] * len(COLUMNS)), check_metadata=True)
        batch.validate(full=True)


def test_a_schema_chooses_columns(spark: SparkSession, orders: tuple[Path, list[Stored]]) -> None:
    """Any columns in any order, also none that is decoded; NOT NULL where it is true; a wrong one is refused."""
    root, stored = orders
    frame = (
        reader(spark, root).schema("offset long NOT NULL, timestamp timestamp, leaderEpoch int, topic string").load()
    )
    assert frame.columns == ["offset", "timestamp", "leaderEpoch", "topic"]
    assert [row["offset"] for row in frame.orderBy("topic", "offset").collect()] == sorted(row.offset for row in stored)
    assert reader(spark, root).schema("topic string").load().distinct().collect() == [("orders",)]
    assert reader(spark, root).schema("timestamp timestamp").load().where("timestamp is null").count() == 20
    assert "did you mean 'offset'" in error(reader(spark, root).schema("ofset long"))
    assert "it is bigint" in error(reader(spark, root).schema("offset int"))
    item = StructType([StructField("key", StringType(), nullable=False), StructField("value", BinaryType())])
    for strict in (ArrayType(item), ArrayType(item.toNullable(), containsNull=False)):
        assert "parts of headers are NOT NULL" in error(
            reader(spark, root).schema(StructType([StructField("headers", strict)]))
        )


def test_a_schema_without_columns(spark: SparkSession, orders: tuple[Path, list[Stored]]) -> None:
    """It has the rows all the same, or is refused where Spark would count none."""
    root, stored = orders
    frame = reader(spark, root).schema(StructType([]))
    if VERSION < (4, 1):
        assert "the schema names no column" in error(frame)
    else:
        assert frame.load().count() == len(stored)


def test_where_to_begin_and_end(spark: SparkSession, orders: tuple[Path, list[Stored]]) -> None:
    """Offsets with -1 and -2, one time, times by partition, and the strategy for a time that nothing reaches."""
    root, _ = orders
    half = BASE + 50 * 60_000
    cases: list[tuple[dict[str, Any], list[tuple[int, int]]]] = [
        (
            {"startingOffsets": {"orders": {"0": 90, "1": -2}}, "endingOffsets": {"orders": {"0": -1, "1": 5}}},
            span((0, 90, 100), (1, 0, 5)),
        ),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, span((0, 0, 100), (1, 0, 100))),
        ({"startingTimestamp": half}, span((0, 50, 100), (1, 50, 100))),
        (
            {"startingTimestamp": "2024-06-01T00:50:00Z", "endingTimestamp": half + 120_000},
            span((0, 50, 52), (1, 50, 52)),
        ),
        ({"endingOffsetsByTimestamp": {"orders": {"0": half, "1": half + 1}}}, span((0, 0, 50), (1, 0, 51))),
        (
            {
                "startingOffsetsByTimestamp": {"orders": {"0": 2 * half, "1": half}},
                "startingOffsetsByTimestampStrategy": "latest",
            },
            span((1, 50, 100)),
        ),
        ({"assign": {"orders": [1]}, "startingTimestamp": half + 1}, span((1, 51, 100))),
        ({"subscribe": "orders", "partitions": "1"}, span((1, 0, 100))),
        ({"subscribePattern": "ord.*", "endingOffsets": {"orders": {"0": 1, "1": 1}}}, span((0, 0, 1), (1, 0, 1))),
    ]
    for options, wanted in cases:
        assert offsets(reader(spark, root, **options).load()) == wanted, options


def test_time_keeps_kafkas_meaning(spark: SparkSession, tmp_path: Path) -> None:
    """A starting time finds an offset; rows behind it that are older, or have no time, are read, as in Kafka's
    source."""
    with pyreplog.open_log(tmp_path / "events", durability="os") as log:
        log.append_many([b"a", b"b", b"c", b"d"], timestamps=[10, 30, 20, -1])
    assert offsets(reader(spark, tmp_path / "events", startingTimestamp=25).load()) == span((0, 1, 4))


def test_tasks_follow_the_limits(spark: SparkSession, orders: tuple[Path, list[Stored]]) -> None:
    """minPartitions and maxRecordsPerPartition decide how many tasks there are, never which rows."""
    root, _ = orders
    for options, tasks in (({}, 1), ({"minPartitions": 5}, 5), ({"maxRecordsPerPartition": 30}, 8)):
        frame = reader(spark, root, **options).load()
        assert frame.rdd.getNumPartitions() == tasks, options
        assert offsets(frame) == span((0, 0, 100), (1, 0, 100))


def test_splits_follow_the_index(spark: SparkSession, tmp_path: Path) -> None:
    """A large partition is cut along its index entries into tasks of about the asked size."""
    with pyreplog.open_log(tmp_path / "big", durability="os", config={"segment.bytes": 200_000}) as log:
        for _ in range(100):
            log.append_many([bytes(100)] * 100)
    frame = reader(spark, tmp_path / "big", maxBytesPerPartition="256k").schema("offset long").load()
    counts = [row[1] for row in frame.groupBy(sf.spark_partition_id()).count().collect()]
    assert 4 <= len(counts) <= 6
    assert sum(counts) == 10_000
    assert max(counts) <= 3_000


def test_readers_see_the_high_watermark(spark: SparkSession, tmp_path: Path) -> None:
    """Beside a live writer a load sees what was acknowledged, and keeps seeing just that; a new load sees more."""
    path = tmp_path / "live"
    with pyreplog.open_log(path, durability="os") as log:
        log.append_many([b"x"] * 10)
        first = reader(spark, path).load()
        assert first.count() == 10
        log.append_many([b"y"] * 5)
        assert first.count() == (10 if PLANS_ARE_KEPT else 15)
        assert reader(spark, path).load().count() == 15
        assert log.high_watermark == 15


def test_what_lies_above_the_high_watermark_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """Bytes in the log file that no mark covers yet, as a writer amid an append leaves them, are not read."""
    path = tmp_path / "above"
    with pyreplog.open_log(path, durability="os") as log:
        log.append_many([b"x"] * 10)
        file = path / "above-0" / "00000000000000000000.log"
        before = file.read_bytes()
        log.append_many([b"y"] * 5)
        tail = file.read_bytes()[len(before) :]
        assert tail
        later = bytearray(tail)
        later[0:8] = (15).to_bytes(8, "big")
        with file.open("ab") as raw:
            raw.write(later)
        assert reader(spark, path).load().count() == 15
        with file.open("r+b") as raw:
            raw.truncate(len(before) + len(tail))


def test_data_loss(spark: SparkSession, orders: tuple[Path, list[Stored]]) -> None:
    """Offsets that are not there fail with a DataLossError that names them, or are left out when the option says
    so."""
    root, _ = orders
    options = {"assign": {"orders": [0]}, "endingOffsets": {"orders": {"0": 500}}}
    text = error(reader(spark, root, **options))
    assert "LogTruncatedError" in text
    assert "offsets 0 up to 500 of orders-0 were asked for, but offsets 0 up to 100 are there" in text
    assert reader(spark, root, failOnDataLoss="false", **options).load().count() == 100


@pytest.mark.skipif(not PLANS_ARE_KEPT, reason="Spark 4.0 plans each action anew")
def test_data_that_vanishes_after_planning(spark: SparkSession, tmp_path: Path) -> None:
    """A plan is kept; when its offsets are gone by the time a task reads, that is a loss and no shorter result."""
    path = tmp_path / "gone"
    with pyreplog.open_log(path, durability="os") as log:
        log.append_many([b"x"] * 10)
    frame = reader(spark, path).load()
    lenient = reader(spark, path, failOnDataLoss="false").load()
    assert frame.count() == lenient.count() == 10
    for file in (path / "gone-0").iterdir():
        file.unlink()
    (path / "gone-0").rmdir()
    assert "RecordsDeletedError" in error(frame)
    assert "the partition is gone" in error(frame)
    assert lenient.count() == 0
    with pyreplog.open_log(path, durability="os") as log:
        log.append_many([b"y"] * 12)
    assert "TopicRecreatedError" in error(frame)
    assert lenient.count() == 0


def test_a_timestamp_beyond_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A timestamp that does not fit Spark's microseconds is an error naming the offset; without that column the
    rows are read."""
    path = tmp_path / "future"
    write_times(path, "future", [BASE, (2**63 - 1) // 1000, 2**62])
    assert "the record at offset 2 of future-0 has timestamp 4611686018427387904 ms" in error(
        reader(spark, path).load().select("timestamp")
    )
    assert reader(spark, path).schema("value binary").load().count() == 3
    last = (
        reader(spark, path, endingOffsets={"future": {"0": 2}})
        .load()
        .agg(sf.max(sf.unix_micros("timestamp")))
        .collect()
    )
    assert last == [((2**63 - 1) // 1000 * 1000,)]


def test_a_brokers_folder(spark: SparkSession, tmp_path: Path) -> None:
    """Topics written by Kafka, in each codec, are read as our record reader reads them; one of its partition
    folders; a folder of nodes."""
    data = unit("clean-4.1.0") / "data"
    codecs = ["codec-gzip-java", "codec-snappy-librdkafka", "codec-lz4-aiokafka", "codec-zstd-kafkapython"]
    topics = ["plain", *codecs, "compact-gzip", "start-mid-segment"]
    wanted = {}
    for topic in topics:
        for (_, partition), log in open_readers(SystemDisk(), str(data), topic).items():
            for batch in log.batches(log.start_offset, log.end_offset):
                for record in records_of(batch, topic, partition, log.start_offset, log.end_offset):
                    wanted[topic, partition, record.offset] = (record.key, record.value, list(record.headers) or None)
            log.close()
    found = {}
    for row in reader(spark, data, subscribe=",".join(topics), includeHeaders="true").load().toArrow().to_pylist():
        headers = None if row["headers"] is None else [(header["key"], header["value"]) for header in row["headers"]]
        found[row["topic"], row["partition"], row["offset"]] = (row["key"], row["value"], headers)
    assert found == wanted
    assert offsets(reader(spark, data / "plain-0").load()) == [
        place[1:] for place in sorted(wanted) if place[:2] == ("plain", 0)
    ]
    for node in ("n1", "n2", "n3"):  # beside them lies a copy of n1, with which they cannot be read
        shutil.copytree(unit(f"cluster-4.1.0/{node}") / "data", tmp_path / node / "data")
    assert offsets(reader(spark, tmp_path, topic="epochs").load()) == span((0, 0, 96))


def test_a_clusters_folder(spark: SparkSession, tmp_path: Path) -> None:
    """The folder of a running cluster: every acknowledged record once, whichever replica it is read from, also when
    a node is dead."""
    with pyreplog.Cluster(tmp_path / "cluster", nodes=3) as cluster:
        cluster.admin.create_topic("orders", partitions=3, replication_factor=3)
        with cluster.producer() as producer:
            acks = [producer.send("orders", b"%d" % i, key=b"k%d" % (i % 7)) for i in range(300)]
            wanted = sorted((ack.result().partition, ack.result().offset) for ack in acks)
        frame = reader(spark, tmp_path / "cluster", topic="orders").load()
        assert offsets(frame) == wanted
        assert {bytes(row["value"]) for row in frame.select("value").collect()} == {b"%d" % i for i in range(300)}
        cluster.nodes[0].kill()
        assert offsets(reader(spark, tmp_path / "cluster").load()) == wanted


def test_errors_say_what_to_do(spark: SparkSession, orders: tuple[Path, list[Stored]], tmp_path: Path) -> None:
    """Wrong option, topic and path reach the user in our words."""
    root, _ = orders
    assert "did you mean 'startingOffsets'" in error(reader(spark, root, startingOffset="earliest"))
    assert "no topic 'order' in" in error(reader(spark, root, topic="order"))
    assert "does not exist on this machine; it" in error(reader(spark, tmp_path / "nowhere"))
    assert "does not exist on this machine (did you mean 'root'?)" in error(reader(spark, root.with_name("roott")))
    assert "there is no topic in" in error(reader(spark, tmp_path))
    assert "'path' is missing" in error(spark.read.format("replog"))


def test_an_empty_topic(spark: SparkSession, tmp_path: Path) -> None:
    """A log without records is a DataFrame without rows."""
    with pyreplog.open_log(tmp_path / "empty", durability="os"):
        pass
    assert reader(spark, tmp_path / "empty").load().collect() == []


def test_sql_and_relative_paths(spark: SparkSession, orders: tuple[Path, list[Stored]]) -> None:
    """A temporary view in SQL reads it; the same DataFrame can be used twice; registering by hand works too."""
    root, _ = orders
    register(spark)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW events USING replog OPTIONS (path '{root}', topic 'orders')")
    ((count, total),) = spark.sql("SELECT count(*), sum(offset) FROM events WHERE partition = 1").collect()
    assert (count, total) == (100, 4950)
    frame = reader(spark, Path(os.path.relpath(root))).load()
    assert frame.where("offset < 10").union(frame.where("offset >= 90")).count() == 40
    assert frame.count() == 200


def test_a_function_on_arrow_batches(spark: SparkSession, orders: tuple[Path, list[Stored]], tmp_path: Path) -> None:
    """map_arrow runs in the workers, once in each task, on the columns and rows asked for; an empty log gives an
    empty DataFrame."""
    root, stored = orders

    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total: dict[int, int] = {}
        for batch in batches:
            assert batch.schema.names == ["partition", "value"]
            for partition, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                total[partition] = total.get(partition, 0) + len(value or b"")
        yield pa.RecordBatch.from_pydict({"partition": list(total), "size": list(total.values())})

    frame = map_arrow(
        spark, sizes, "partition long, size long", columns=["partition", "value"], path=root, maxRecordsPerPartition=40
    )
    rows = frame.collect()
    assert len(rows) == 6
    found = {
        row["partition"]: row["total"]
        for row in frame.groupBy("partition").agg(sf.sum("size").alias("total")).collect()
    }
    assert found == {
        partition: sum(len(row.value or b"") for row in stored if row.partition == partition) for partition in (0, 1)
    }
    with pyreplog.open_log(tmp_path / "empty", durability="os"):
        pass
    assert map_arrow(spark, sizes, "partition long, size long", path=tmp_path / "empty").collect() == []
    swapped = map_arrow(
        spark, sizes, "size long, partition long", columns=["partition", "value"], path=root, maxRecordsPerPartition=40
    )
    assert swapped.select("partition", "size").collect() == rows
    for schema, fn, text in (
        ("partition long, width long", sizes, "gave columns partition, size; the schema has partition, width"),
        (
            "partition int, size long",
            sizes,
            (
                "gave column partition as int64; the schema says int, which is int32 in Arrow: cast the column, or"
                " change the schema"
            ),
        ),
        (
            "n long",
            lambda _: pa.RecordBatch.from_pydict({"n": [1]}),
            "must give an iterator of pyarrow.RecordBatch; it gave Int64Array",
        ),
    ):
        with pytest.raises(PySparkException, match=text):
            map_arrow(spark, fn, schema, columns=["partition", "value"], path=root).collect()
    with pytest.raises(ConfigError, match="schema is 'long'; it must name columns"):
        map_arrow(spark, sizes, "long", path=root)
    with pytest.raises(ConfigError, match="there is no column 'vaule'; did you mean 'value'"):
        map_arrow(spark, sizes, "size long", columns=["vaule"], path=root)
    with pytest.raises(ConfigError, match="unknown option 'pth'"):
        map_arrow(spark, sizes, "size long", pth=root, path=root)


@pytest.mark.parametrize("taken", [0, 1, 5, 6])
def test_batches_are_read_ahead(taken: int) -> None:
    """In their order; who stops early lets go of the files, and an error comes where it happened."""
    ended = []

    def numbers() -> Generator[pa.RecordBatch]:
        try:
            for number in range(5):
                yield pa.RecordBatch.from_pydict({"number": [number]})
            raise ConfigError("behind the last")
        finally:
            ended.append(True)

    batches = read_ahead(numbers())
    assert [next(batches)["number"][0].as_py() for _ in range(min(taken, 5))] == list(range(min(taken, 5)))
    if taken > 5:
        with pytest.raises(ConfigError, match="behind the last"):
            next(batches)
    batches.close()
    assert ended == [True] * bool(taken)  # before the first there is nothing to let go of


def test_filters_are_pushed_only_where_that_is_safe(spark: SparkSession, orders: tuple[Path, list[Stored]]) -> None:
    """By default Spark filters alone and a DataFrame can be used twice; ``pushdown`` is refused with the reason
    before Spark 5, and does what it says with ``unsafe``."""
    root, _ = orders
    frame = reader(spark, root).load()
    assert frame.where("offset < 10").count() == 20
    assert frame.count() == 200
    if int(pyspark.__version__.partition(".")[0]) < SAFE_FROM:
        assert "keeps a pushed filter with the DataFrame" in error(reader(spark, root, pushdown="true"))
    spark.conf.set(PUSHING, "true")
    try:
        assert frame.count() == reader(spark, root).load().where("offset >= 0").count() == 200
        unsafe = (
            reader(spark, root, pushdown="unsafe", maxRecordsPerPartition=10)
            .load()
            .where("offset >= 90 and partition = 1")
        )
        assert offsets(unsafe) == span((1, 90, 100))
        assert unsafe.rdd.getNumPartitions() == (1 if PUSHES else 20)
        later = reader(spark, root, pushdown="unsafe", maxRecordsPerPartition=10).load()
        assert offsets(later.where(f"timestamp >= timestamp_millis({BASE + 95 * 60_000}L)")) == span(
            (0, 95, 99), (1, 95, 99)
        )
    finally:
        spark.conf.unset(PUSHING)


def test_tables_lose_their_options(spark: SparkSession) -> None:
    """Spark drops the options of CREATE TABLE for such sources: it is refused with what to do instead."""
    with pytest.raises(
        PySparkException, match="does not hand a table's options back when it is read; use CREATE TEMPORARY VIEW"
    ):
        spark.sql("CREATE TABLE lost USING replog OPTIONS (path '/nowhere')")


def test_workers_are_talked_to_by_unix_sockets(spark: SparkSession) -> None:
    """A local session has Spark do that from the PySpark on that can, without being asked."""
    answer = (
        spark.sparkContext.parallelize([0], 1)
        .map(lambda _: os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false"))
        .collect()
    )
    assert [text.lower() for text in answer] == ["true" if VERSION >= SOCKETS_FROM else "false"]


def test_what_the_user_says_of_sockets_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own environment variable, arguments for spark-submit and spark-defaults.conf; a system without Unix
    sockets has none."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for name in ("PYSPARK_UDS_MODE", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    assert socket_settings() == ({SOCKETS: "true"} if VERSION >= SOCKETS_FROM else {})
    for name, value in (
        ("PYSPARK_UDS_MODE", "false"),
        ("PYSPARK_SUBMIT_ARGS", f"--conf {SOCKETS}=false pyspark-shell"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert socket_settings() == {}
    with monkeypatch.context() as patch:
        patch.delattr("socket.AF_UNIX")
        assert socket_settings() == {}
    (tmp_path / "spark-defaults.conf").write_text(f"# ours\n{SOCKETS} false\n")
    assert socket_settings() == {}
