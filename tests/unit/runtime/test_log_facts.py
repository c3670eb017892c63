"""What a log tells of itself, in both modes; what goes of it by retention and deletion, through its face."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pyreplog
from pyreplog.system import SystemDisk
from pyreplog.testing.disk import SimDisk
from pyreplog.verify import Level, verify


def test_a_reader_knows_the_settings_and_sizes(tmp_path: Path) -> None:
    """durability, config and stats of a log that somebody else writes are as its files say; nothing was appended by
    the reader."""
    path = tmp_path / "events"
    with pyreplog.open_log(path, durability="os", config={"segment.bytes": 2000, "retention.bytes": 10**6}) as log:
        log.append_many([b"x" * 100] * 30)
        with pyreplog.open_log(path, "r") as reader:
            assert reader.durability == "os"
            assert reader.config == log.config
            assert reader.config.segment_bytes == 2000
            mine, its = log.stats(), reader.stats()
            assert (its.start_offset, its.end_offset, its.high_watermark) == (0, 30, 30)
            assert (its.segment_count, its.size, its.leader_epoch) == (mine.segment_count, mine.size, mine.leader_epoch)
            assert its.batches_appended == its.syncs == 0
            log.flush()
            log.append(b"one more")
            now = reader.stats()
            assert (now.flushed_offset, now.end_offset, now.size) == (30, 31, log.stats().size)
            assert reader.last_stable_offset == reader.end_offset == 31
        with pytest.raises(pyreplog.ClosedError):
            reader.stats()
        with pytest.raises(pyreplog.ClosedError):
            _ = reader.config


def test_old_segments_go_by_themselves(tmp_path: Path) -> None:
    """A log with retention.bytes stays near that size while it is appended to, and a reader goes on from its
    start."""
    path = tmp_path / "events"
    settings = {"segment.bytes": 4000, "retention.bytes": 10_000, "file.delete.delay.ms": 0}
    with pyreplog.open_log(path, durability="os", config=settings) as log:
        for _ in range(100):
            log.append_many([b"x" * 1000])
        log.apply_retention()
        stats = log.stats()
        assert 10_000 <= stats.size < 16_000
        assert stats.start_offset == log.start_offset > 80
        with pyreplog.open_log(path, "r") as reader:
            assert [record.offset for record in reader] == list(range(log.start_offset, 100))
            log.append_many([b"x" * 1000] * 3)
    with pyreplog.open_log(path) as log:
        assert log.start_offset > 80
        assert log.end_offset == 103


def test_retention_runs_when_a_log_is_opened_and_closed_shortly() -> None:
    """A program that opens, appends a little and closes does not have to ask: each opening has its turn."""
    disk = SimDisk()
    for number in range(6):
        with pyreplog.open_log(
            "events", disk=disk, config={"segment.bytes": 2000, "retention.bytes": 2000} if number == 0 else None
        ) as log:
            log.append_many([b"x" * 900])
            log.append_many([b"x" * 900])
            log.append_many([b"x" * 900])
    with pyreplog.open_log("events", disk=disk) as log:
        assert log.start_offset > 8


def test_deleted_records_are_gone_for_good(tmp_path: Path) -> None:
    """delete_records raises the start at once, for readers elsewhere too, and it stays raised; above the high
    watermark it is refused."""
    path = tmp_path / "events"
    with pyreplog.open_log(path, config={"segment.bytes": 1024, "file.delete.delay.ms": 0}) as log:
        for number in range(10):
            log.append(b"%d" % number + b"x" * 400)
        with pytest.raises(pyreplog.OffsetOutOfRangeError):
            log.delete_records(11)
        with pytest.raises(pyreplog.OffsetOutOfRangeError):
            log.delete_records(-1)
        assert log.delete_records(5) == 5
        assert log.delete_records(3) == 5
        with pyreplog.open_log(path, "r") as reader:
            assert [record.offset for record in reader] == [5, 6, 7, 8, 9]
            with pytest.raises(pyreplog.OffsetOutOfRangeError):
                reader.read(4)
            with pytest.raises(pyreplog.ClosedError, match="mode='r'"):
                reader.delete_records(6)
        assert log.position == 5
        assert log.delete_records() == 10
        assert list(log.read()) == []
        assert log.append(b"next") == 10
    with pyreplog.open_log(path) as log:
        assert (log.start_offset, log.end_offset) == (10, 11)
        assert [record.value for record in log] == [b"next"]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [1 << 30, 1024])
def test_where_everything_was_deleted_epochs_go_on(tmp_path: Path, segment_bytes: int, clean: bool) -> None:
    """What is appended behind deleted records, some openings later, is of no older leader epoch than they, so the
    log opens again."""
    epochs = []
    for number in range(7):
        path = tmp_path / str(number)
        if number:
            shutil.copytree(tmp_path / str(number - 1), path)
        with pyreplog.open_log(path, topic="events", config={"segment.bytes": segment_bytes, "segment.ms": 1}) as log:
            if number in (2, 4):
                log.delete_records()
            if number != 3:
                log.append(b"%d" % number + b"x" * 400)
            if number in (2, 3):
                log.delete_records()
            epochs.append(log.stats().leader_epoch)
            if not clean:
                log.apply_retention()  # else the background thread removes segments while the folder is copied
                shutil.copytree(path, tmp_path / "killed")
        if not clean:
            shutil.rmtree(path)
            (tmp_path / "killed").rename(path)
    assert epochs == sorted(epochs)
    assert epochs[2] < epochs[4]
    with pyreplog.open_log(tmp_path / "6", "r") as reader:
        assert [record.value and record.value[:1] for record in reader] == [b"4", b"5", b"6"]
    assert all(finding.level is Level.NOTE for finding in verify(SystemDisk(), str(tmp_path / "6")).findings)


def test_retention_below_one_segment_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The call that gives the setting gets one warning with both names and how much is kept; retention and later
    openings say nothing."""
    caplog.set_level("WARNING", "pyreplog")

    def told() -> list[str]:
        found = [record.getMessage() for record in caplog.records if "retention.bytes" in record.getMessage()]
        caplog.clear()
        return found

    small = {"retention.bytes": 1000, "segment.bytes": 4000}
    with pyreplog.open_log(tmp_path / "log", durability="os", config=small) as log:
        (text,) = told()
        assert "retention.bytes (1000) is below segment.bytes (4000)" in text
        assert "up to 5000 bytes are kept" in text
        sizes = []
        for _ in range(100):
            log.append(bytes(500))
            log.apply_retention()
            sizes.append(log.stats().size)
        assert max(sizes[50:]) <= 5000
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"x")
    assert told() == []
    with pyreplog.open_log(tmp_path / "log", config={"retention.bytes": 4000}):
        assert told() == []
    with pyreplog.Cluster(tmp_path / "cluster", nodes=1) as cluster:
        cluster.admin.create_topic("small", partitions=3, config=small)
        (text,) = told()
        assert text.startswith("topic small: retention.bytes (1000) is below segment.bytes (4000)")
        cluster.admin.create_topic("small", exist_ok=True)
        cluster.admin.create_topic("large", config={"retention.bytes": 4000, "segment.bytes": 4000})
        assert told() == []
