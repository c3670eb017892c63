"""What an open log does by the clock: syncs that ``flush.*`` ask for, and the checkpoint files. The clock is moved
by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import pyreplog
from pyreplog.runtime.log_writer import LogWriter
from pyreplog.runtime.maintenance import CHECKPOINT_INTERVAL_NS, HIGH_WATERMARK_CHECKPOINT_INTERVAL_NS
from pyreplog.testing import SimClock, SimDisk
from tests.unit.log.support import bytes_of

PATH = "/events"


def content(disk: SimDisk, name: str) -> str:
    """A file of the root."""
    return bytes_of(disk, f"{PATH}/{name}").decode()


@contextmanager
def opened(disk: SimDisk | None = None, **settings: Any) -> Iterator[tuple[pyreplog.Log, LogWriter]]:
    """A log whose background thread stands still, and its writer: the test takes the turns of the thread."""
    with pyreplog.open_log(PATH, disk=disk or SimDisk(), **settings) as log:
        assert log._writer is not None
        log._writer._background.stop()
        yield log, log._writer


def test_flush_messages() -> None:
    """An ``os`` log with ``flush.messages`` is synced whenever so many records are not."""
    with pyreplog.open_log(PATH, disk=SimDisk(), durability="os", config={"flush.messages": 10}) as log:
        for count in range(1, 35):
            log.append(b"x")
            assert log.stats().flushed_offset == count // 10 * 10
        log.append_many([b"x"] * 30)
        assert log.stats().flushed_offset == 64


def test_flush_ms() -> None:
    """With ``flush.ms`` the background thread syncs what has been waiting for so long, and is told when to look."""
    clock = SimClock()
    with opened(clock=clock, durability="os", config={"flush.ms": 1000}) as (log, writer):
        log.append(b"x")
        assert writer._work() == 1.0
        assert log.stats().flushed_offset == 0
        clock.advance(1_000_000_000)
        writer._work()
        assert log.stats().flushed_offset == 1


def test_flush_ms_counts_from_the_first_record_that_waits() -> None:
    """What comes later, and each look of the thread, puts nothing off."""
    clock = SimClock()
    with opened(clock=clock, durability="os", config={"flush.ms": 1000}) as (log, writer):
        log.append(b"x")
        clock.advance(900_000_000)
        log.append(b"x")
        assert writer._work() == 0.1
        assert log.stats().flushed_offset == 0
        clock.advance(100_000_000)
        writer._work()
        assert log.stats().flushed_offset == 2


def test_checkpoints_are_written_on_their_schedule() -> None:
    """The high watermark every 5 seconds where it moved, recovery point and log start every minute; all three on
    close."""
    disk, clock = SimDisk(), SimClock()
    with opened(disk, clock=clock) as (log, writer):
        log.append_many([b"x"] * 7)
        writer._work()
        assert disk.stat(f"{PATH}/replication-offset-checkpoint") is None
        clock.advance(HIGH_WATERMARK_CHECKPOINT_INTERVAL_NS)
        writer._work()
        assert "events 0 7" in content(disk, "replication-offset-checkpoint")
        assert disk.stat(f"{PATH}/recovery-point-offset-checkpoint") is None
        clock.advance(CHECKPOINT_INTERVAL_NS)
        writer._work()
        assert "events 0 7" in content(disk, "recovery-point-offset-checkpoint")
        assert "0" in content(disk, "log-start-offset-checkpoint")
        log.append(b"x")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        assert "events 0 8" in content(disk, name)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_what_is_due_is_done_beside_a_writer_that_never_rests(durability: str) -> None:
    """Retention after each roll, checkpoints and ``flush.ms`` have their turn though each look finds another batch
    begun."""
    disk, clock = SimDisk(), SimClock()
    config = {"segment.bytes": 16384, "retention.bytes": 32768, **({"flush.ms": 1000} if durability == "os" else {})}
    with pyreplog.open_log(
        PATH,
        disk=disk,
        clock=clock,
        durability=durability,  # type: ignore[arg-type]
        config=config,
        buffer_memory=1 << 16,
    ) as log:
        assert log._writer is not None
        writer = log._writer
        seen: list[object] = []
        writer._background.stop()
        for _ in range(20):
            for _ in range(200):
                log.append(b"x" * 100, wait=False)
                if writer.nowait._budget.size + (2 << 14) > 1 << 16:
                    log.flush()
            assert all(writer.nowait.result is not one for one in seen)
            seen.append(writer.nowait.result)
            clock.advance(2_000_000_000)
            writer._work()
            assert log.stats().segment_count <= 4
        if durability == "os":
            assert log.stats().flushed_offset > 3000
        assert "events 0 " in content(disk, "replication-offset-checkpoint")


def test_a_full_segment_wakes_the_thread() -> None:
    """Retention follows at once where nothing else would call it: under ``os`` nobody syncs."""
    with pyreplog.open_log(PATH, disk=SimDisk(), durability="os", config={"segment.bytes": 16384}) as log:
        assert log._writer is not None
        background = log._writer._background
        background.stop()
        background.is_armed = False
        log.append(bytes(10_000))
        assert not background.is_armed
        log.append(bytes(10_000))
        assert background.is_armed


def test_a_full_segment_is_synced() -> None:
    """An ``os`` log without ``flush.*`` is synced when a segment is full: an opening after a kill reads no more
    than what came since."""
    with opened(durability="os", config={"segment.bytes": 16384}) as (log, writer):
        log.append(bytes(10_000))
        writer._work()
        assert log.stats().flushed_offset == 0
        log.append(bytes(10_000))
        writer._work()
        assert log.stats().flushed_offset == 2
        log.append(b"x")
        writer._work()
        assert log.stats().flushed_offset == 2


@pytest.mark.parametrize("way", ["delete_records", "apply_retention", "by itself"])
def test_files_of_what_went_stay_no_longer_than_they_are_to(way: str) -> None:
    """Their room comes back when ``file.delete.delay.ms`` is over, though retention is not due for minutes."""
    disk, clock = SimDisk(), SimClock()
    config = {
        "segment.bytes": 16384,
        "file.delete.delay.ms": 2000,
        **({} if way == "delete_records" else {"retention.bytes": 1}),
    }
    with opened(disk, clock=clock, config=config) as (log, writer):
        writer._work()
        for _ in range(3):
            log.append(bytes(10_000))
        if way != "by itself":
            getattr(log, way)()
        writer._work()
        assert log.start_offset == 2 or way == "delete_records"
        assert any(name.endswith(".deleted") for name in disk.list(f"{PATH}/events-0"))
        assert writer._work() == 2.0
        clock.advance(2_000_000_000)
        writer._work()
        assert not any(name.endswith(".deleted") for name in disk.list(f"{PATH}/events-0"))


def test_retention_when_it_is_closed() -> None:
    """Who opens, appends and closes may never have had a turn of the thread."""
    disk, clock = SimDisk(), SimClock()
    config = {"segment.bytes": 16384, "retention.bytes": 32768}
    log = pyreplog.open_log(PATH, disk=disk, clock=clock, config=config)
    assert log._writer is not None
    log._writer._background.stop()
    for _ in range(20):
        log.append(bytes(10_000))
    assert log.start_offset == 0
    log.close()
    with pyreplog.open_log(PATH, disk=disk, clock=clock, mode="r") as reader:
        assert reader.start_offset > 10
