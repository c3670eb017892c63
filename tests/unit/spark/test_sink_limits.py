"""The sink's batches keep the limits of the topic they go to. Without Spark's JVM: the writer is what Spark calls,
in one process."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import pyreplog
from pyreplog.errors import InvalidRecordError, InvalidRequestError, SpoolRefusedError
from pyreplog.record import RecordBatch
from pyreplog.spark.schema import Field
from pyreplog.spark.sink import ReplogWriter, Staged
from pyreplog.spark.sink_options import parse_write_options
from pyreplog.spool import StagedFile, read_staged
from pyreplog.system import SystemDisk

CONFIGS: list[dict[str, object]] = [
    {"segment.bytes": 2000},
    {"max.message.bytes": 1000},
    {"segment.bytes": 65536, "compression.type": "gzip"},
]
ROWS = [Random(number).randbytes(200) for number in range(1500)]


def write(path: Path, rows: dict[str, list[object]], **options: str) -> list[int]:
    """One task's rows, staged and committed; the sizes of its batches."""
    schema = {"value": pa.binary(), "key": pa.binary(), "topic": pa.string()}
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, schema[name]) for name, column in rows.items()], names=list(rows)
    )
    fields = [Field(name, str(schema[name]), nullable=True) for name in rows]
    writer = ReplogWriter(parse_write_options({"path": str(path), **options}), fields)
    staged = writer.write(iter([batch]))
    assert isinstance(staged, Staged)
    assert staged.file is not None
    sizes = [RecordBatch(one.data).size for one in read_staged(SystemDisk(), str(path), StagedFile(*staged.file))]
    writer.commit([staged])
    return sizes


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_log_of_small_batches_takes_what_is_written(tmp_path: Path, config: dict[str, object]) -> None:
    """Every row fits, so none is refused; batches are as large as the log allows, or as they are asked to be."""
    pyreplog.open_log(tmp_path, topic="t", config=config).close()
    sizes = write(tmp_path, {"value": list(ROWS)})
    assert max(sizes) > min(int(str(size)) for size in config.values() if size != "gzip") * 3 // 4
    assert max(write(tmp_path, {"value": list(ROWS)}, batchBytes="1k")) <= 1024
    with pyreplog.open_log(tmp_path, "r", topic="t") as log:
        assert [record.value for record in log] == ROWS * 2


def test_a_write_of_nothing_makes_the_log(tmp_path: Path) -> None:
    """It reads as 0 records; a log that is there, or whose topic rows would name, stays as it is; one that is open
    is left alone."""
    for columns, options, topics in (
        (["value"], {}, ["events"]),
        (["value", "topic"], {}, []),
        (["value"], {"topic": "other"}, ["other"]),
    ):
        path = tmp_path / "-".join([*columns, *options]) / "events"
        fields = [Field(name, "string", nullable=True) for name in columns]
        writer = ReplogWriter(parse_write_options({"path": str(path), **options}), fields)
        for _ in range(2):
            writer.commit([writer.write(iter([]))])
        found = [name.rpartition("-")[0] for name in os.listdir(path) if (path / name).is_dir()]
        assert found == topics
        for topic in topics:
            with pyreplog.open_log(path, topic=topic) as log:
                writer.commit([writer.write(iter([]))])
                assert log.end_offset == 0


def test_headers_of_other_types(tmp_path: Path) -> None:
    """The fields of a header in the other order, and lists without a type, which have no header; a null in such a
    list is none either."""
    turned = pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())]))
    pair = [{"key": "h", "value": b"x"}]
    for number, (ddl, kind, headers, right) in enumerate(
        (
            ("array<struct<value:binary,key:string>>", turned, [pair, []], [[("h", b"x")], []]),
            ("array<void>", pa.list_(pa.null()), [[], None], [[], []]),
        )
    ):
        path = tmp_path / str(number) / "t"
        fields = [Field("value", "binary", nullable=True), Field("headers", ddl, nullable=True)]
        writer = ReplogWriter(parse_write_options({"path": str(path)}), fields)
        writer.commit(
            [
                writer.write(
                    iter([pa.record_batch({"value": pa.array([b"a", b"b"]), "headers": pa.array(headers, kind)})])
                )
            ]
        )
        with pyreplog.open_log(path, "r") as log:
            assert [list(record.headers) for record in log] == right
    with pytest.raises(InvalidRequestError, match="column headers is array<void>"):
        writer.write(
            iter([pa.record_batch({"value": pa.array([b"a"]), "headers": pa.array([[None]], pa.list_(pa.null()))})])
        )


def test_a_row_that_is_too_large_alone_is_told(tmp_path: Path) -> None:
    """And nothing of the write is appended."""
    pyreplog.open_log(tmp_path, topic="t", config={"max.message.bytes": 1000}).close()
    with pytest.raises(SpoolRefusedError, match=r"max\.message\.bytes of t-0 is 1000"):
        write(tmp_path, {"value": [b"a", bytes(1000)]})
    with pyreplog.open_log(tmp_path, "r", topic="t") as log:
        assert list(log) == []


@pytest.mark.parametrize("config", [{"max.message.bytes": 4_000_000}, {"compression.type": "zstd"}], ids=str)
def test_a_row_is_as_large_as_the_topic_takes(tmp_path: Path, config: dict[str, object]) -> None:
    """Not as Kafka's default says; and where the topic compresses, what it comes to then counts."""
    pyreplog.open_log(tmp_path, topic="t", config=config).close()
    write(tmp_path, {"value": [b"a", bytes(3_000_000), b"b"]})
    with pyreplog.open_log(tmp_path, "r", topic="t") as log:
        assert [len(record.value or b"") for record in log] == [1, 3_000_000, 1]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_topics_of_a_running_cluster(tmp_path: Path, config: dict[str, object]) -> None:
    """Each topic by its own settings, also where rows name theirs."""
    with pyreplog.Cluster(tmp_path / "data", nodes=3) as cluster:
        cluster.admin.create_topic("small", partitions=2, config=config)
        cluster.admin.create_topic("large", partitions=1)
        topics = ["small" if number % 2 else "large" for number in range(len(ROWS))]
        sizes = write(tmp_path / "data", {"value": list(ROWS), "topic": list(topics)})
        assert max(sizes) > 100_000
        for topic, start in (("large", 0), ("small", 1)):
            with cluster.consumer(topic) as consumer:
                assert {record.value for record in itertools.islice(consumer, 750)} == set(ROWS[start::2])


@pytest.mark.parametrize("kind", ["log", "cluster"])
def test_a_compacted_topic_takes_no_row_without_a_key(tmp_path: Path, kind: str) -> None:
    """The task fails before its rows are published, so nothing of the write is appended."""
    config = {"cleanup.policy": "compact"}
    if kind == "cluster":
        with pyreplog.Cluster(tmp_path) as cluster:
            cluster.admin.create_topic("t", config=config)
            kinds: list[dict[str, list[object]]] = [{}, {"key": [b"1", None]}]
            for keys in kinds:
                with pytest.raises(InvalidRecordError, match="a row has no key, and topic 't' is compacted"):
                    write(tmp_path, {"value": [b"a", b"b"], "topic": ["t", "t"], **keys})
            write(tmp_path, {"value": [b"a", b"b"], "key": [b"1", b"2"], "topic": ["t", "t"]})
            with cluster.consumer("t") as consumer:
                assert len(list(consumer.until_end())) == 2
        return
    pyreplog.open_log(tmp_path, topic="t", config=config).close()
    with pytest.raises(InvalidRecordError, match="a row has no key, and topic 't' is compacted"):
        write(tmp_path, {"value": [b"a", b"b"], "key": [b"1", None]})
    write(tmp_path, {"value": [b"a", b"b"], "key": [b"1", b"2"]})
    with pyreplog.open_log(tmp_path, "r", topic="t") as log:
        assert [record.key for record in log] == [b"1", b"2"]


def test_partitions_of_a_log_have_settings_of_their_own(tmp_path: Path) -> None:
    """The smallest counts: which partition a row goes to is the encoder's to say."""
    pyreplog.open_log(tmp_path, topic="t").close()
    pyreplog.open_log(tmp_path, topic="t", partition=1, config={"max.message.bytes": 1000}).close()
    assert max(write(tmp_path, {"value": list(ROWS)})) <= 1000
