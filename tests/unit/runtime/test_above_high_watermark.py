"""Records above a stale high watermark: counted wherever a log is looked at, and read by whichever caller asks for
them."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import pyreplog
from pyreplog import aio
from pyreplog.cli.main import main
from pyreplog.errors import ConfigError
from pyreplog.log import Finder
from pyreplog.spark.batch import plan_tasks
from pyreplog.spark.options import parse_read_options
from pyreplog.spark.schema import Field
from pyreplog.spark.tasks import read_ranges
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition

COUNT, STALE = 100, 30


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A broker's folder as a copy has it: its checkpoint says offset 30, and its segment holds 100 records."""
    with pyreplog.open_log(tmp_path / "log", topic="orders", durability="os") as log:
        for number in range(COUNT):
            log.append(b"%d" % number)
    root = tmp_path / "broker"
    (root / "orders-0").mkdir(parents=True, mode=0o700)
    for file in (tmp_path / "log" / "orders-0").iterdir():
        if not file.name.startswith("replog."):
            shutil.copy2(file, root / "orders-0")
    shutil.copy2(tmp_path / "log" / "meta.properties", root)
    checkpoint(root, STALE)
    return root


def checkpoint(root: Path, offset: int) -> None:
    """Have the broker's file say that ``offset`` is the high watermark."""
    (root / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {offset}\n")


def replog(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[str, str]:
    """What the command printed, and told."""
    assert main([str(word) for word in words]) == 0
    captured = capfd.readouterr()
    return captured.out, captured.err


def test_a_reader_ends_at_the_high_watermark_unless_asked(broker: Path) -> None:
    """open_log "r" sees 30 records of 100, all with above_high_watermark, and a scan likewise."""
    with pyreplog.open_log(broker, "r") as log:
        assert [record.offset for record in log] == list(range(STALE))
    with pyreplog.open_log(broker, "r", above_high_watermark=True) as log:
        assert log.end_offset == COUNT
        assert [record.offset for record in log.read(STALE - 1)] == list(range(STALE - 1, COUNT))
        assert pa.table(log.scan()).num_rows == COUNT
        assert log.seek(timestamp=0) == 0
    with pyreplog.open_log(broker, "r", above_high_watermark=True, isolation="read_committed") as log:
        assert len(list(log)) == COUNT
    assert pa.table(pyreplog.scan([broker])).num_rows == STALE
    assert pa.table(pyreplog.scan([broker], above_high_watermark=True)).num_rows == COUNT


def test_coroutines_ask_for_the_same(broker: Path) -> None:
    """aio.open_log and aio.scan take the same argument."""

    async def count() -> tuple[int, int]:
        async with aio.open_log(broker, "r", above_high_watermark=True) as log:
            found = [record async for record in log.read()]
        return len(found), pa.table(await aio.scan([broker], above_high_watermark=True)).num_rows

    assert asyncio.run(count()) == (COUNT, COUNT)


def test_a_writer_is_not_asked(tmp_path: Path) -> None:
    """The argument belongs to readers: the opening for writing decides what becomes of such records."""
    with pytest.raises(ConfigError, match="belongs to mode='r'"):
        pyreplog.open_log(tmp_path / "log", above_high_watermark=True)
    assert not (tmp_path / "log").exists()


def test_the_command_counts_and_reads_them(broker: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """topics and describe count 70 offsets above the high watermark, cat and export tell of them, and their option
    reads them."""
    out, _ = replog(capfd, "topics", broker)
    assert out == "orders  1 partition, 30 offsets, 70 above the high watermark\n"
    assert json.loads(replog(capfd, "topics", broker, "--json")[0])["above_high_watermark"] == 70
    assert (
        "0 up to 30 (the high watermark): 30 offsets, and 70 offsets above it, up to 100"
        in replog(capfd, "describe", broker)[0]
    )
    assert json.loads(replog(capfd, "describe", broker, "--json")[0])["above_high_watermark"] == 70
    said = "70 offsets above the high watermark (orders-0 at 30) are not among these records"
    for words in (("cat", broker), ("cat", "--all", broker), ("export", broker, "-")):
        out, err = replog(capfd, *words)
        assert len(out.splitlines()) == STALE
        assert said in err
        out, err = replog(capfd, *words, "--above-high-watermark")
        assert len(out.splitlines()) == COUNT
        assert "above" not in err
    assert replog(capfd, "cat", broker, "--end", STALE)[1] == "", "none of them was asked for"
    replog(capfd, "export", broker, tmp_path / "all.parquet", "--above-high-watermark")
    assert parquet.read_table(tmp_path / "all.parquet").num_rows == COUNT


def test_nothing_is_told_of_a_log_that_ends_at_its_high_watermark(
    broker: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the high watermark at the end of the log nothing is counted, and cat is silent."""
    checkpoint(broker, COUNT)
    assert replog(capfd, "topics", broker)[0] == "orders  1 partition, 100 offsets\n"
    assert replog(capfd, "cat", broker)[1] == ""


def test_a_live_writer_is_given_the_time_of_a_sync(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a log with a stale mark cat tells what lies above it; but not if its writer moves the high watermark a
    moment later."""
    mark = tmp_path / "log" / "log-0" / "replog.mark"
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append_many([b"x"] * STALE)
    before = mark.read_bytes()
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append_many([b"y"] * (COUNT - STALE))
    now = mark.read_bytes()
    mark.write_bytes(before)
    assert "70 offsets above the high watermark (log-0 at 30)" in replog(capfd, "cat", tmp_path / "log")[1]
    monkeypatch.setattr("pyreplog.cli.reading.time.sleep", lambda _: mark.write_bytes(now))
    out, err = replog(capfd, "cat", tmp_path / "log")
    assert (len(out.splitlines()), err) == (STALE, "")


def test_torn_bytes_above_the_high_watermark_are_no_damage(broker: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A torn batch above the high watermark is not counted, and makes no damage of a log that is whole below it."""
    segment = broker / "orders-0" / f"{0:020}.log"
    segment.write_bytes(segment.read_bytes()[:-3])
    reader = Finder(SystemDisk(), str(broker)).open(TopicPartition("orders", 0))
    assert reader is not None
    assert (reader.above_high_watermark, reader.unreadable_size, reader.end_offset) == (COUNT - 1 - STALE, 0, STALE)
    out, err = replog(capfd, "cat", broker, "--above-high-watermark")
    assert len(out.splitlines()) == COUNT - 1
    assert err == ""
    reader.close()


def test_a_cluster_counts_what_the_copy_that_is_ahead_holds(tmp_path: Path) -> None:
    """Of several replicas the one that is read is counted, above the highest watermark that any of them has."""
    with pyreplog.Cluster(tmp_path / "cluster", nodes=3) as cluster:
        cluster.admin.create_topic("t", partitions=1, replication_factor=3)
        with cluster.producer() as producer:
            producer.send("t", b"1").result()
    reader = Finder(SystemDisk(), str(tmp_path / "cluster")).open(TopicPartition("t", 0))
    assert reader is not None
    assert (reader.end_offset, reader.above_high_watermark) == (1, 0)
    reader.include_above_high_watermark()
    assert reader.end_offset == 1
    reader.close()


def test_spark_reads_them_in_a_batch(broker: Path) -> None:
    """aboveHighWatermark reads all in a batch, also by a pattern, and is refused for a stream."""
    for path in (broker, broker.parent / "brok*"):
        for above, count in ((False, STALE), (True, COUNT)):
            options = parse_read_options({"path": str(path), "aboveHighWatermark": str(above)})
            ranges = [each for task in plan_tasks(options) for each in task]
            assert (
                sum(batch.num_rows for batch in read_ranges(options, [Field("offset", "bigint", True)], ranges))
                == count
            )
    with pytest.raises(ConfigError, match="aboveHighWatermark is for batch reads"):
        parse_read_options({"path": str(broker), "aboveHighWatermark": "true"}, streaming=True)
