"""Whoever waits for the recovery of a large log can see how far it is: by a callable, and in the log of the
application."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pyreplog
from pyreplog import Cluster, RecoveryProgress, aio
from pyreplog.errors import StorageError
from pyreplog.log import LogRoot, RecoveryOptions, loader
from pyreplog.log.layout import SCAN_CHUNK_SIZE
from pyreplog.log.scan import feed_segment
from pyreplog.ports import Disk
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.testing import SimClock, SimDisk
from pyreplog.values import TopicPartition

SEGMENTS = 3
COUNT = 8
"""Batches of 100 kB in each of them."""


@pytest.fixture(params=["system", "sim"])
def left(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """A disk, and a folder on it with a log that was not closed, of three segments and several pieces each."""
    disk: Disk = SimDisk() if request.param == "sim" else SystemDisk()
    path = str(tmp_path / "events") if request.param == "system" else "events"
    write(disk, path)
    return disk, path


def write(disk: Disk, path: str) -> None:
    """A log at ``path``, ended as by a kill."""
    with pyreplog.open_log(path, config={"segment.bytes": 810_000, "durability": "os"}, disk=disk) as log:
        for number in range(SEGMENTS * COUNT):
            log.append(bytes([number]) * 100_000)
    names = [name for name in disk.list(path) if name == ".kafka_cleanshutdown"]
    assert names
    disk.remove(f"{path}/{names[0]}")
    # As a checkpoint of long ago would have it: everything is to be looked at.
    disk.remove(f"{path}/events-0/replog.mark")


def values(log: pyreplog.Log) -> list[int]:
    """The first byte of each record."""
    return [(record.value or b"")[0] for record in log.read()]


def test_a_recovery_says_how_far_it_is(left: tuple[Disk, str]) -> None:
    """From nothing to everything, piece by piece; a clean log says nothing."""
    disk, path = left
    told: list[RecoveryProgress] = []
    with pyreplog.open_log(path, disk=disk, progress=told.append) as log:
        assert values(log) == [*range(SEGMENTS * COUNT)]
        total = log.stats().size
    assert {(one.topic, one.partition, one.total_size) for one in told} == {("events", 0, total)}
    assert {one.directory for one in told} == {f"{path}/events-0"}
    sizes = [one.scanned_size for one in told]
    assert sizes[0] == 0
    assert sizes == sorted(sizes)
    assert sizes[-1] == total
    assert total // SCAN_CHUNK_SIZE <= len(sizes) <= 3 * total // SCAN_CHUNK_SIZE
    told.clear()
    with pyreplog.open_log(path, disk=disk, progress=told.append):
        pass
    assert told == []


@pytest.mark.parametrize("kind", [RuntimeError, StorageError, KeyboardInterrupt])
@pytest.mark.parametrize("when", [0, 1, 5])
def test_what_it_raises_ends_the_opening(left: tuple[Disk, str], kind: type[BaseException], when: int) -> None:
    """The error comes out as it is, also one that could be the log's own; the folder is free again, and the log
    whole."""
    disk, path = left
    error = StorageError(5, "not the disk's", "screen") if kind is StorageError else kind("enough")
    calls = 0

    def tell(_: RecoveryProgress) -> None:
        nonlocal calls
        calls += 1
        if calls > when:
            raise error

    with pytest.raises(kind) as caught:
        pyreplog.open_log(path, disk=disk, progress=tell)
    assert caught.value is error
    assert calls == when + 1  # nobody goes on
    with pyreplog.open_log(path, disk=disk) as log:
        assert values(log) == [*range(SEGMENTS * COUNT)]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_long_recovery_is_logged(caplog: pytest.LogCaptureFixture, damaged: bool) -> None:
    """Two lines where it takes more than a second, none where it does not."""
    caplog.set_level(logging.INFO, "pyreplog")
    clock, disk = SimClock(), SimDisk()
    write(disk, "events")
    with pyreplog.open_log("events", disk=disk, clock=clock):
        pass
    assert [record for record in caplog.records if record.levelno == logging.INFO] == []
    disk = SimDisk()
    write(disk, "events")

    def slow(now: RecoveryProgress) -> None:
        clock.advance(300_000_000)
        if damaged and now.scanned_size > now.total_size // 2:
            raise RuntimeError

    try:
        pyreplog.open_log("events", disk=disk, clock=clock, progress=slow).close()
    except RuntimeError:
        assert damaged
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert len(lines) == 2, lines
    assert "was not closed cleanly and is recovered: " in lines[0]
    assert "events-0" in lines[0]
    assert ("recovery failed after " if damaged else "recovery took ") in lines[1]


def test_a_cluster_and_coroutines_have_it(tmp_path: Path) -> None:
    """``Cluster``, ``aio.open_log`` and ``aio.Cluster`` take the same callable."""
    path = tmp_path / "cluster"
    with Cluster(path, 1) as cluster:
        cluster.admin.create_topic("events", 1, 1)
        with cluster.producer() as producer:
            producer.send("events", b"x" * 300_000).result(10)
    marker = path / "node-1" / ".kafka_cleanshutdown"
    told: list[RecoveryProgress] = []
    left = marker.read_bytes()
    marker.unlink()
    with Cluster(path, progress=told.append):
        pass
    assert {(one.topic, one.directory.endswith("/node-1/events-0")) for one in told} == {("events", True)}
    assert left

    async def main() -> list[Any]:
        found = []
        marker.unlink()
        told.clear()
        async with aio.Cluster(path, progress=told.append):
            found.append(len(told))
        write(SystemDisk(), str(tmp_path / "events"))
        told.clear()
        async with aio.open_log(tmp_path / "events", progress=told.append):
            found.append(len(told))
        return found

    assert all(asyncio.run(main()))
    told.clear()
    marker.unlink()

    def refuse(_: RecoveryProgress) -> None:
        raise StorageError(5, "not the disk's", "screen")

    with pytest.raises(StorageError, match="not the disk's"):
        Cluster(path, progress=refuse)
    with Cluster(path):
        pass


class Watching:
    """Knows when something went wrong."""

    def __init__(self) -> None:
        self.noted = threading.Event()
        self.added = 0
        self._failure: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        """What went wrong."""
        return self._failure

    @failure.setter
    def failure(self, error: BaseException | None) -> None:
        self._failure = error
        self.noted.set()

    def begin(self, topic_partition: TopicPartition, directory: str, size: int) -> None:
        """A scan begins."""

    def add(self, size: int) -> None:
        """Part of it is done."""
        if self._failure is not None:
            raise self._failure
        self.added += size


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one thread scans")
def test_ctrl_c_ends_the_scan_of_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What strikes the thread that opens a log, wherever it is, ends it: nobody scans the rest before that is
    raised."""
    disk, path = SystemDisk(), str(tmp_path / "events")
    write(disk, path)
    scan, watching, another = feed_segment, Watching(), threading.Event()

    def scanning(*arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            assert another.wait(20)
            raise KeyboardInterrupt
        another.set()
        watching.noted.wait(5)
        return scan(*arguments, **options)

    monkeypatch.setattr(loader, "feed_segment", scanning)
    with pytest.raises(KeyboardInterrupt):
        LogRoot.open(disk, path, clock=SystemClock(), random=Random(1), recovery=RecoveryOptions(watching))
    assert watching.added == 0
    monkeypatch.undo()
    with pyreplog.open_log(path, disk=disk) as log:
        assert values(log) == [*range(SEGMENTS * COUNT)]
