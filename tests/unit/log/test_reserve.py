"""Room reserved ahead of appends, on this machine's disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pyreplog
from pyreplog.system.file import SystemFile

SEGMENT = "events/events-0/00000000000000000000.log"


def used(path: Path) -> int:
    """Bytes that a file takes on the disk."""
    return os.stat(path).st_blocks * 512


def test_reserved_room_is_given_back(tmp_path: Path) -> None:
    """A segment that grows reserves ahead without getting longer; when it is closed it takes what it holds, and
    after a kill so does the next writer's close."""
    value = [bytes(1000)] * 500
    path = tmp_path / SEGMENT
    with pyreplog.open_log(tmp_path / "events", durability="os") as log:
        for _ in range(10):
            log.append_many(value)
        size = log.stats().size
        assert path.stat().st_size == size
        at_work = used(path)
    assert path.stat().st_size == size
    assert used(path) <= size + (64 << 10)
    assert at_work == 0 or at_work >= used(path)
    if os.fork() == 0:
        log = pyreplog.open_log(tmp_path / "events", durability="os")
        log.append_many(value)
        os._exit(0)
    os.wait()
    with pyreplog.open_log(tmp_path / "events") as log:
        log.append(b"x")
        size = log.stats().size
    assert path.stat().st_size == size
    assert used(path) <= size + (64 << 10)


def test_small_logs_reserve_nothing(tmp_path: Path) -> None:
    """A log of a few records takes a few blocks."""
    with pyreplog.open_log(tmp_path / "events") as log:
        log.append(b"x")
        assert used(tmp_path / SEGMENT) <= 64 << 10


def test_a_log_that_is_synced_with_each_append_reserves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under ``sync`` no room is asked for ahead, not after a start either: each sync of such room costs more."""
    asked: list[tuple[int, int]] = []
    reserve = SystemFile.reserve

    def noted(file: SystemFile, position: int, size: int) -> None:
        asked.append((position, size))
        reserve(file, position, size)

    monkeypatch.setattr(SystemFile, "reserve", noted)
    value = [bytes(1000)] * 500
    for _ in range(2):
        with pyreplog.open_log(tmp_path / "events", durability="sync") as log:
            for _ in range(4):
                log.append_many(value)
    assert asked == []
    with pyreplog.open_log(tmp_path / "others", durability="os") as log:
        for _ in range(4):
            log.append_many(value)
    assert asked
