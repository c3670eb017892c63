"""Spark reads compacted logs: a gap is no loss and costs no task and no micro-batch; a deleted head and a cut end
are losses. Only the last test needs a session."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

import pyreplog
from pyreplog.errors import LogTruncatedError, RecordsDeletedError
from pyreplog.log.gaps import Gaps
from pyreplog.spark.batch import ReplogReader
from pyreplog.spark.options import ReadOptions, parse_read_options
from pyreplog.spark.planner import OffsetRange, plan
from pyreplog.spark.progress import limit_offsets
from pyreplog.spark.schema import COLUMNS, Field
from pyreplog.values import TopicPartition
from tests.interop.golden.units import unit

FIELDS: Final = [Field(column.name, column.type, True) for column in COLUMNS if column.default]
CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": 4096,
    "file.delete.delay.ms": 0,
    "delete.retention.ms": 0,
}
BASE_MS: Final = 1_717_200_000_000


def writer(path: Path, **config: Any) -> pyreplog.Log:
    """The log, opened to write."""
    return pyreplog.open_log(path, topic="t", config={**CONFIG, **config}, durability="os")


def put(log: pyreplog.Log, numbers: range, keys: int, tombstone: bool = False) -> None:
    """One record for each of ``numbers``, in a batch of its own, of ``keys`` keys."""
    for number in numbers:
        value = None if tombstone else b"v%d" % number
        log.append(value, key=b"k%d" % (number % keys), timestamp=BASE_MS + 1000 * number)


@pytest.fixture(scope="module", params=["head", "end", "nothing", "many"])
def compacted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A log, and the offsets of its records: a gap at its head, one before its end, no record at all, many gaps."""
    path = tmp_path_factory.mktemp("log") / "log"
    with writer(path) as log:
        match request.param:
            case "head":
                put(log, range(300), 10)
            case "end":
                put(log, range(20), 20)
                put(log, range(20, 40), 20, tombstone=True)
                log.append(b"stays", key=b"a", timestamp=BASE_MS)
                put(log, range(41, 60), 19)
                put(log, range(60, 79), 19, tombstone=True)
            case "nothing":
                put(log, range(50), 5)
                put(log, range(50, 55), 5, tombstone=True)
            case "many":
                for number in range(200):
                    key = b"u%d" % number if number % 7 == 0 else b"k%d" % (number % 3)
                    log.append(b"x" * 50, key=key, timestamp=BASE_MS + 1000 * number)
        log.compact()
        log.compact()
        if request.param == "many":
            put(log, range(200, 230), 3)
        return path, [record.offset for record in log.read()]


def options_of(path: Path, *, streaming: bool = False, **options: object) -> ReadOptions:
    """As Spark hands them over."""
    given = {"path": str(path)} | {
        name.lower(): value if isinstance(value, str) else json.dumps(value) for name, value in options.items()
    }
    return parse_read_options(given, streaming=streaming)


def tasks_of(path: Path, **options: Any) -> tuple[ReplogReader, Sequence[InputPartition]]:
    """A batch read, planned."""
    reader = ReplogReader(options_of(path, **options), FIELDS)
    return reader, reader.partitions()


def rows(reader: Any, tasks: Sequence[InputPartition]) -> list[int]:
    """The offsets that the tasks read."""
    return [offset for task in tasks for batch in reader.read(task) for offset in batch.column("offset").to_pylist()]


def test_every_range_reads_the_records_in_it(compacted: tuple[Path, list[int]]) -> None:
    """With a start and an end at any offset, in gaps too, and at any time."""
    path, there = compacted
    end = pyreplog.open_log(path, "r").end_offset
    for start in {0, 1, end // 3, end // 2, end - 1, *there[:2], *(one + 1 for one in there[:2])}:
        for stop in {start, end // 2, end - 1, end, *there[:2]}:
            if start <= stop:
                read = tasks_of(path, startingOffsets={"t": {"0": start}}, endingOffsets={"t": {"0": stop}})
                assert rows(*read) == [one for one in there if start <= one < stop]
    for second in (0, 5, 150, 1000):
        read = tasks_of(path, startingTimestamp=BASE_MS + 1000 * second, startingOffsetsByTimestampStrategy="latest")
        with pyreplog.open_log(path, "r") as log:
            log.seek(timestamp=BASE_MS + 1000 * second)
            assert rows(*read) == [record.offset for record in log]


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_tasks_count_records(compacted: tuple[Path, list[int]], limit: int) -> None:
    """maxRecordsPerPartition and minPartitions make tasks of records, not of gaps."""
    path, there = compacted
    reader, tasks = tasks_of(path, maxRecordsPerPartition=str(limit))
    assert rows(reader, tasks) == there
    assert all(len(rows(reader, [task])) <= limit for task in tasks)
    # The last batch of a pass may be without records.
    assert len(tasks) <= -(-(len(there) + 2) // limit) + 1
    reader, tasks = tasks_of(path, minPartitions=str(limit))
    assert rows(reader, tasks) == there
    assert len(tasks) >= min(limit, len(there))
    assert sum(not rows(reader, [task]) for task in tasks) <= 2


def run(reader: Any) -> Iterator[list[int]]:
    """The micro-batches of a query, until there is nothing more."""
    start = json.loads(json.dumps(reader.initialOffset()))
    while True:
        end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
        if end == start:
            return
        yield rows(reader, reader.partitions(start, end))
        start = end


def stream(path: Path, **options: object) -> Any:
    """A streaming read."""
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark before 4.2 has no limits per trigger")
    from pyreplog.spark.stream import ReplogStreamReader  # noqa: PLC0415  (only here)

    return ReplogStreamReader(options_of(path, streaming=True, startingOffsets="earliest", **options), FIELDS)


@pytest.mark.parametrize("limit", [1, 5, 1000])
def test_micro_batches_count_records(compacted: tuple[Path, list[int]], limit: int) -> None:
    """maxOffsetsPerTrigger does not walk through gaps."""
    path, there = compacted
    batches = list(run(stream(path, maxOffsetsPerTrigger=str(limit))))
    assert [offset for batch in batches for offset in batch] == there
    assert all(len(batch) <= limit for batch in batches)
    assert len(batches) <= -(-(len(there) + 2) // limit)
    batches = list(run(stream(path, maxBytesPerTrigger="500")))
    assert [offset for batch in batches for offset in batch] == there
    assert sum(not batch for batch in batches) <= 1


@pytest.mark.parametrize("topic", ["compact-basic", "compact-txn", "compact-nothing-left", "compact-delete"])
def test_a_brokers_compacted_folder(topic: str, tmp_path: Path) -> None:
    """Its gaps are recorded nowhere. No micro-batch is empty because of a gap, and every record comes once."""
    for name in (f"{topic}-0", "meta.properties", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        source = unit("clean-4.1.0") / "data" / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    for isolation in ("read_uncommitted", "read_committed"):
        with pyreplog.open_log(tmp_path, "r", topic=topic, isolation=isolation) as log:
            there = [record.offset for record in log.read(log.start_offset)]
        choice: dict[str, Any] = {"topic": topic, "isolation": isolation}
        assert rows(*tasks_of(tmp_path, **choice)) == there
        assert rows(*tasks_of(tmp_path, minPartitions="5", maxRecordsPerPartition="9", **choice)) == there
        batches = list(run(stream(tmp_path, maxOffsetsPerTrigger="5", **choice)))
        assert [offset for batch in batches for offset in batch] == there
        assert sum(not batch for batch in batches) <= (1 if "txn" not in topic else len(batches))


def test_compaction_between_and_during_micro_batches(tmp_path: Path) -> None:
    """Before a trigger, between its plan and its tasks, and while a task reads: no loss is reported, nothing comes
    twice, and of each key the newest comes."""
    path = tmp_path / "log"
    with writer(path) as log:
        put(log, range(200), 10)
        reader = stream(path, maxOffsetsPerTrigger="60")
        start = reader.initialOffset()
        seen: list[int] = []
        for number in range(8):
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            tasks = reader.partitions(start, end)
            if number % 3 == 0:
                log.compact()
            for task in tasks:
                for batch in reader.read(task):
                    seen += batch.column("offset").to_pylist()
                    if number % 3 == 1:
                        log.compact()
            put(log, range(log.end_offset, log.end_offset + 40), 10)
            if number % 3 == 2:
                log.compact()
            start = end
        for batch in run_from(reader, start):
            seen += batch
        log.compact()
        assert seen == sorted(set(seen))
        assert {record.offset for record in log.read()} <= set(seen)


def run_from(reader: Any, start: Any) -> Iterator[list[int]]:
    """The rest of the micro-batches."""
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        yield rows(reader, reader.partitions(start, end))
        start = end


def test_a_batch_whose_segments_are_replaced_while_it_is_read(tmp_path: Path) -> None:
    """Planned, begun, compacted: the tasks read what is left, without an error."""
    path = tmp_path / "log"
    with writer(path) as log:
        put(log, range(300), 10)
        reader, tasks = tasks_of(path, maxRecordsPerPartition="50")
        seen = rows(reader, tasks[:2])
        begun = reader.read(tasks[2])
        seen += next(begun).column("offset").to_pylist()
        log.compact()
        for batch in begun:
            seen += batch.column("offset").to_pylist()
        seen += rows(reader, tasks[3:])
        assert seen == sorted(set(seen))
        assert {record.offset for record in log.read()} == set(seen[-10:])


def test_deleted_records_and_a_cut_end_are_losses(tmp_path: Path) -> None:
    """Also in a compacted log."""
    path = tmp_path / "log"
    with writer(path, **{"cleanup.policy": "compact,delete"}) as log:
        put(log, range(300), 10)
        log.compact()
        reader, tasks = tasks_of(path)
        assert len(rows(reader, tasks)) == 10
        log.delete_records(295)
        with pytest.raises(RecordsDeletedError):
            rows(reader, tasks)
        with pytest.raises(RecordsDeletedError):
            tasks_of(path, startingOffsets={"t": {"0": 100}})
        wanted = options_of(path, startingOffsets={"t": {"0": 100}}, failOnDataLoss="false")
        lenient = ReplogReader(wanted, FIELDS)
        assert rows(lenient, lenient.partitions()) == [295, 296, 297, 298, 299]
        with pytest.raises(LogTruncatedError):
            tasks_of(path, endingOffsets={"t": {"0": 301}})


gaps = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 200)), max_size=8)


@given(gaps, st.integers(1, 400), st.none() | st.integers(1, 20), st.none() | st.integers(1, 50))
def test_plans_with_gaps(lengths: list[tuple[int, int]], rest: int, least: int | None, most: int | None) -> None:
    """Every offset is in one task, and limits count only those that are not in a gap."""
    bounds: list[int] = []
    for distance, length in lengths:
        start = (bounds[-1] if bounds else 0) + distance
        bounds += [start, start + length]
    known, end = Gaps(bounds), (bounds[-1] if bounds else 0) + rest
    missing = {offset for slot in range(0, len(bounds), 2) for offset in range(bounds[slot], bounds[slot + 1])}
    for start in range(0, end, 37):
        assert known.within(start, end) == len([one for one in missing if start <= one])

    def count(part: OffsetRange) -> int:
        return known.within(part.start, part.end)

    options = ReadOptions("/d", min_partitions=least, max_records_per_partition=most)
    tasks = plan(options, [OffsetRange("t", 0, 0, end)], lambda *_: [], lambda _: 100, missing=count)
    assert [offset for task in tasks for part in task for offset in range(part.start, part.end)] == list(range(end))
    present = end - len(missing)
    for task in tasks:
        inside = sum(part.end - part.start - count(part) for part in task)
        assert most is None or inside <= most
    if least is not None:
        assert len(tasks) >= min(least, present)
    place = TopicPartition("t", 0)
    for limit in (1, 10, present):
        ends = limit_offsets({place: 0}, {place: end}, limit, lambda _, low, high: known.within(low, high))
        assert ends[place] - known.within(0, ends[place]) == min(limit, present)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_in_a_session(spark: SparkSession, tmp_path: Path) -> None:
    """As many rows as the log has records, in a batch and in a stream with limits, beside compaction."""
    path = tmp_path / "log"
    with writer(path) as log:
        put(log, range(500), 10)
        log.compact()
        frame = spark.read.format("replog").option("topic", "t").load(str(path))
        assert frame.count() == 10
        query = (
            spark.readStream.format("replog")
            .options(topic="t", startingOffsets="earliest", maxOffsetsPerTrigger="4")
            .load(str(path))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(120)
        assert query.exception() is None
        assert sorted(row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [*range(490, 500)]
