"""Planned ranges read beside writers that roll, delete, are killed and fail over; committed reads. No session
needed."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import pyreplog
from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, LogTruncatedError, RecordsDeletedError, TopicRecreatedError
from pyreplog.log import LogRoot
from pyreplog.spark import planned_range
from pyreplog.spark.access import FileAccess
from pyreplog.spark.batch import ReplogReader, plan_tasks
from pyreplog.spark.options import parse_read_options
from pyreplog.spark.planner import REACH_UNKNOWN, OffsetRange
from pyreplog.spark.schema import Field
from pyreplog.spark.stream import ReplogStreamReader
from pyreplog.spark.tasks import Task, read_ranges
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.values import TopicPartition
from tests.interop.golden.units import manifest, unit
from tests.unit.log import support
from tests.unit.log.producing import marker, produced

FIELDS = [Field("partition", "int", True), Field("offset", "bigint", True), Field("value", "binary", True)]


def options(path: Path, **given: object) -> dict[str, str]:
    """As Spark hands them over."""
    return {"path": str(path)} | {name.lower(): str(value) for name, value in given.items()}


def planned(path: Path, **given: object) -> tuple[ReplogReader, list[Task]]:
    """A reader and its tasks."""
    reader = ReplogReader(parse_read_options(options(path, **given)), FIELDS)
    return reader, [task for task in reader.partitions() if isinstance(task, Task)]


def offsets(batches: object) -> list[int]:
    """Of all rows."""
    found: list[int] = []
    for batch in batches:  # type: ignore[attr-defined]
        assert isinstance(batch, pa.RecordBatch)
        found += batch.column("offset").to_pylist()
    return found


def fill(log: pyreplog.Log, start: int, count: int) -> None:
    """Records of 1000 bytes, each a batch."""
    for number in range(start, start + count):
        log.append(b"%d" % number + bytes(1000))


SMALL = {"segment.bytes": 100_000}


def test_a_batch_says_that_limits_of_triggers_mean_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As Kafka's source does; without them nothing is said."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        log.append_many([b"x"] * 5)
    for given, said in (({}, 0), ({"maxoffsetspertrigger": "1"}, 1)):
        caplog.clear()
        tasks = plan_tasks(parse_read_options({"path": str(tmp_path / "log")} | given))
        assert [(one.start, one.end) for task in tasks for one in task] == [(0, 5)]
        assert len(caplog.records) == said


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_records_deleted_after_planning(tmp_path: Path, isolation: str) -> None:
    """What was deleted is not read because its batch holds others that are left."""
    with pyreplog.open_log(tmp_path / "events", durability="os") as log:
        log.append_many([b"x"] * 100)
        log.append_many([b"y"] * 100)
        lenient, (task,) = planned(tmp_path / "events", failOnDataLoss=False, isolation=isolation)
        strict, _ = planned(tmp_path / "events", isolation=isolation)
        for start in (50, 130):
            log.delete_records(start)
            assert offsets(lenient.read(task)) == [*range(start, 200)]
            with pytest.raises(RecordsDeletedError, match=f"offsets {start} up to 200 are there"):
                list(strict.read(task))


def test_segments_deleted_after_planning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What retention took before a task came to it is an error, or what is left is read with a warning."""
    with pyreplog.open_log(tmp_path / "events", durability="os", config=SMALL) as log:
        fill(log, 0, 500)
        reader, (task,) = planned(tmp_path / "events")
        lenient, _ = planned(tmp_path / "events", failOnDataLoss=False)
        log.delete_records(250)
        with pytest.raises(
            RecordsDeletedError, match="of events-0 were planned, but now offsets 250 up to 500 are there"
        ):
            offsets(reader.read(task))
        with caplog.at_level(logging.WARNING, logger="pyreplog"):
            assert offsets(lenient.read(task)) == list(range(250, 500))
        assert "the older ones were deleted" in caplog.text


@pytest.mark.parametrize(
    ("setting", "heard"),
    [
        ("pass", 1),
        ("logging.basicConfig()", 1),
        ("logging.getLogger('pyreplog.spark').addHandler(logging.StreamHandler())", 1),
        ("logging.disable()", 0),
    ],
)
def test_a_loss_that_is_let_pass_is_heard_where_nobody_set_up_logging(setting: str, heard: int, tmp_path: Path) -> None:
    """Spark's Python processes do not: there it stands on standard error. Where somebody does, it is told there,
    once."""
    with pyreplog.open_log(tmp_path / "log", topic="t") as log:
        log.append_many([b"x"] * 5)
        log.delete_records(3)
    program = f"""
import logging
{setting}
from pyreplog.spark.batch import plan_tasks
from pyreplog.spark.options import parse_read_options
options = {{"path": {str(tmp_path / "log")!r}, "startingoffsets": '{{"t": {{"0": 1}}}}', "failondataloss": "false"}}
assert len(plan_tasks(parse_read_options(options))) == 1
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.count("the older ones were deleted") == heard, done.stderr


def test_segments_deleted_while_they_are_read(tmp_path: Path) -> None:
    """A reader amid its range that finds the rest gone says so, or goes on behind the gap."""
    with pyreplog.open_log(tmp_path / "events", durability="os", config=SMALL) as log:
        fill(log, 0, 4000)
        reader, (task,) = planned(tmp_path / "events")
        lenient, _ = planned(tmp_path / "events", failOnDataLoss=False)
        strictly, leniently = reader.read(task), lenient.read(task)
        first = offsets([next(strictly)])
        assert offsets([next(leniently)]) == first == list(range(len(first)))
        log.delete_records(3900)
        with pytest.raises(RecordsDeletedError, match="offsets 3900 up to 4000 are there"):
            offsets(strictly)
        rest = offsets(leniently)
        assert rest[-100:] == list(range(3900, 4000))
        assert rest == sorted(set(rest))
        assert len(rest) < 4000 - len(first)


def test_a_topic_made_anew(tmp_path: Path) -> None:
    """The plan of one topic does not read another one of that name."""
    with pyreplog.open_log(tmp_path / "events", durability="os") as log:
        fill(log, 0, 10)
    reader, (task,) = planned(tmp_path / "events")
    shutil.rmtree(tmp_path / "events")
    with pyreplog.open_log(tmp_path / "events", durability="os") as log:
        fill(log, 0, 20)
    with pytest.raises(TopicRecreatedError, match="deleted and created again"):
        offsets(reader.read(task))


def test_a_topic_made_anew_while_it_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A reader amid its range gives no row of the other topic, whose offsets are there, too."""
    path = tmp_path / "events"
    with pyreplog.open_log(path, durability="os", config=SMALL) as log:
        fill(log, 0, 4000)
    reader, (task,) = planned(path)
    lenient, _ = planned(path, failOnDataLoss=False)
    strictly, leniently = reader.read(task), lenient.read(task)
    first = offsets([next(strictly)])
    assert offsets([next(leniently)]) == first
    path.rename(tmp_path / "gone")
    with pyreplog.open_log(path, durability="os", config=SMALL) as log:
        fill(log, 0, 4000)
    with pytest.raises(TopicRecreatedError, match="deleted and created again"):
        offsets(strictly)
    with caplog.at_level(logging.WARNING, logger="pyreplog"):
        rest = offsets(leniently)
    assert len(first) + len(rest) < 4000
    assert "deleted and created again" in caplog.text


def test_a_log_that_was_cut(tmp_path: Path) -> None:
    """A range that a lone copy no longer reaches is an error at once."""
    with pyreplog.open_log(tmp_path / "events", durability="os") as log:
        fill(log, 0, 10)
        log.flush()
    shutil.copytree(tmp_path / "events", tmp_path / "before")
    with pyreplog.open_log(tmp_path / "events", durability="os") as log:
        fill(log, 10, 10)
    reader, (task,) = planned(tmp_path / "events")
    shutil.rmtree(tmp_path / "events")
    shutil.move(tmp_path / "before", tmp_path / "events")
    with pytest.raises(
        LogTruncatedError, match="offsets 0 up to 20 of events-0 were planned, but now offsets 0 up to 10 are there"
    ):
        offsets(reader.read(task))


def test_damage_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that stay wrong are reported as such, after another look."""
    monkeypatch.setattr(planned_range, "PAUSE_S", 0.0)
    with pyreplog.open_log(tmp_path / "events", durability="os") as log:
        fill(log, 0, 100)
    reader, (task,) = planned(tmp_path / "events", failOnDataLoss=False)
    file = tmp_path / "events" / "events-0" / "00000000000000000000.log"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptError):
        offsets(reader.read(task))


def test_a_replica_that_goes_away(tmp_path: Path) -> None:
    """Amid a range the replica that is read is removed: another one gives the rest."""
    with pyreplog.Cluster(tmp_path / "cluster", nodes=3) as cluster:
        cluster.admin.create_topic("orders", partitions=1, replication_factor=3, config={"segment.bytes": "400000"})
        with cluster.producer() as producer:
            acks = [producer.send("orders", b"%d" % number + bytes(1000)) for number in range(4000)]
            assert [ack.result().offset for ack in acks] == list(range(4000))
            # With the next record followers hear what is committed of those before.
            producer.send("orders", b"last").result()
    reader, (task,) = planned(tmp_path / "cluster", endingOffsets='{"orders": {"0": 4000}}')
    batches = reader.read(task)
    found = offsets([next(batches)])
    with FileAccess(str(tmp_path / "cluster")) as access:
        chosen = access.reader(TopicPartition("orders", 0))
        assert chosen is not None
        assert len(chosen.replicas) == 3
        shutil.rmtree(chosen.directory)
    assert found + offsets(batches) == list(range(4000))


def test_a_view_that_is_out_of_date(tmp_path: Path) -> None:
    """A segment that a view knows and nobody opened yet is gone: the task looks again, and the next replica has
    it."""
    with pyreplog.Cluster(tmp_path / "cluster", nodes=2) as cluster:
        cluster.admin.create_topic("orders", partitions=1, replication_factor=2)
        with cluster.producer() as producer:
            producer.send("orders", b"x").result()
            producer.send("orders", b"last").result()
    wanted = OffsetRange("orders", 0, 0, 1)
    with FileAccess(str(tmp_path / "cluster")) as access:
        chosen = access.reader(TopicPartition("orders", 0))
        assert chosen is not None
        chosen.release()
        shutil.rmtree(chosen.directory)
        source = planned_range.PlannedRange(access, wanted, fail_on_data_loss=True, warn=lambda text: None)
        assert source.read(0, 1 << 20).nbytes


def test_many_partitions_with_few_files(tmp_path: Path) -> None:
    """A task with more partitions than may keep their files open reads them all."""
    with pyreplog.open_log(tmp_path / "root", topic="t", durability="os") as log:
        log.append_many([b"x"] * 3)
    for number in range(1, 100):
        shutil.copytree(tmp_path / "root" / "t-0", tmp_path / "root" / f"t-{number}")
    reader, tasks = planned(tmp_path / "root", minPartitions=1)
    assert [len(task.ranges) for task in tasks] == [100]
    assert offsets(reader.read(tasks[0])) == [0, 1, 2] * 100


def transactional() -> list[tuple[str, str]]:
    """(unit, topic) with transactions, listed record by record."""
    found = []
    for name in ("clean-4.1.0", "cluster-4.1.0/n1"):
        for partition in manifest(name)["partitions"]:
            if partition.get("committedRecords") is not None and partition.get("records") != partition.get(
                "committedRecords"
            ):
                found.append((name, partition["topic"]))
    return sorted(set(found))


@pytest.mark.parametrize(("name", "topic"), transactional())
@pytest.mark.parametrize("records_max", [None, 1, 7])
def test_committed_reads(name: str, topic: str, records_max: int | None) -> None:
    """With ``isolation`` read_committed: up to the last stable offset and without what was aborted, however the
    range is cut."""
    limit = {} if records_max is None else {"maxRecordsPerPartition": records_max}
    data = unit(name) / "data"
    for isolation, count in (("read_committed", "committedRecords"), ("read_uncommitted", "records")):
        read = parse_read_options(options(data, topic=topic, isolation=isolation, **limit))
        found = [row for ranges in plan_tasks(read) for row in offsets(read_ranges(read, FIELDS, ranges))]
        partitions = [partition for partition in manifest(name)["partitions"] if partition["topic"] == topic]
        assert len(found) == sum(partition[count] for partition in partitions)


def two_copies(folder: Path) -> None:
    """Replicas ``n1`` and ``n2``, one behind the other: offset 0 is plain, 1 to 3 are of a transaction that is
    aborted at 5, which only the second one knows."""
    disk, key = SystemDisk(), TopicPartition("t", 0)
    for name, ends in (("n1", False), ("n2", True)):
        root = LogRoot.open(disk, str(folder / name), clock=SystemClock(), random=Random(1))
        log = root.create_log("t", 0, "AAAAAAAAAAAAAAAAAAAAAQ", LogConfig()) if key not in root.logs else root.logs[key]
        if not ends:
            plain = [support.batch(base_offset=0, leader_epoch=0), produced(0, 3, base=1, leader=0, transactional=True)]
            log.append_as_follower([*plain, support.batch(base_offset=4, leader_epoch=0)])
        else:
            log.append_as_follower([marker(commit=False, base=5), support.batch(base_offset=6, leader_epoch=0)])
        log.set_high_watermark(log.end_offset)
        root.close()
        if not ends:
            shutil.copytree(folder / "n1", folder / "n2")
            ids = folder / "n2" / "meta.properties"
            ids.write_text(ids.read_text().replace("node.id=0", "node.id=2"))


def stream_reach(folder: Path) -> int:
    """How far a stream's micro-batch up to offset 5 says that a copy must be."""
    read = parse_read_options(options(folder, isolation="read_committed"), streaming=True)
    (task,) = ReplogStreamReader(read, FIELDS).partitions(
        {"v": 1, "t": {"t": {"0": 0}}}, {"v": 1, "t": {"t": {"0": 5}}}
    )
    assert isinstance(task, Task)
    return task.ranges[0].reach


@pytest.mark.parametrize("asked", [False, True])
def test_a_copy_that_lags_knows_no_transactions_end(
    asked: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The replica that told of an abort is gone before a task comes to it: what the other one shows was aborted,
    and is not read. ``asked``: the one who planned did not know either how far a copy must be."""
    for fail in (True, False):
        folder = tmp_path / str(fail)
        two_copies(folder)
        read = parse_read_options(
            options(folder, isolation="read_committed", endingOffsets='{"t":{"0":5}}', failOnDataLoss=fail)
        )
        ((planned_range,),) = plan_tasks(read)
        assert (planned_range.end, planned_range.reach) == (5, 7)
        wanted = replace(planned_range, reach=REACH_UNKNOWN) if asked else planned_range
        assert offsets(read_ranges(read, FIELDS, [wanted])) == [0, 4]
        assert stream_reach(folder) == 7
        shutil.rmtree(folder / "n2")
        assert stream_reach(folder) == REACH_UNKNOWN
        if fail:
            with pytest.raises(LogTruncatedError, match=r"whether they were committed stands behind offset 5"):
                offsets(read_ranges(read, FIELDS, [wanted]))
        else:
            assert offsets(read_ranges(read, FIELDS, [wanted])) == [0]
            assert "whether they were committed" in caplog.text
