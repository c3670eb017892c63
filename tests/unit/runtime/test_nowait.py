"""Appending without waiting: what is told when, and the bound on what waits for the disk."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyreplog
from pyreplog.testing import SimDisk
from tests.unit.runtime.slow import FOREVER, SlowDisk


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    """A disk whose syncs can be held up; never for longer than the test."""
    disk = SlowDisk()
    yield disk
    disk.gate.set()


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_handles_instead_of_offsets(tmp_path: Path, durability: Any) -> None:
    """``wait=False`` gives an Ack, or Acks, of the same records that waiting would have given offsets for."""
    with pyreplog.open_log(tmp_path / "log", durability=durability, config={"max.message.bytes": 500}) as log:
        one = log.append(b"one", key=b"k", timestamp=7, wait=False)
        many = log.append_many([b"%d" % number * 20 for number in range(50)], timestamps=list(range(50)), wait=False)
        empty = log.append_many([], wait=False)
        assert log.append(b"last") == 51
        assert one.result()[2:4] == (0, 7)
        assert [place[2:4] for place in many.result()] == [(1 + number, number) for number in range(50)]
        assert len(empty) == 0
        assert [record.value for record in log.read(1, 51)] == [b"%d" % number * 20 for number in range(50)]


def test_written_at_once_counted_later(tmp_path: Path, disk: SlowDisk) -> None:
    """Under ``sync`` the Acks of ``append_many`` are pending until the disk has them; under ``os`` they are settled
    at once."""
    with pyreplog.open_log(tmp_path / "log", disk=disk) as log:
        disk.gate.clear()
        acks = log.append_many([b"a", b"b"], wait=False)
        assert disk.entered.wait(FOREVER), "the background thread syncs, though nobody waits"
        assert log.end_offset == 2
        assert log.high_watermark == 0
        assert not acks.done()
        disk.gate.set()
        assert [place.offset for place in acks.result(FOREVER)] == [0, 1]
    with pyreplog.open_log(tmp_path / "os", durability="os") as log:
        assert log.append_many([b"a", b"b"], wait=False).done()


def test_what_is_refused_is_refused_at_once() -> None:
    """A value that no record can hold raises in the call and leaves nothing behind."""
    values: list[Any] = [b"fine", "text"]
    with pyreplog.open_log("/log", disk=SimDisk()) as log:
        with pytest.raises(TypeError):
            log.append_many(values, wait=False)
        with pytest.raises(pyreplog.MessageTooLargeError):
            log.append_many([b"fine", bytes(2 << 20)], wait=False)
        with pytest.raises(ValueError):
            log.append_many([b"fine"], keys=[], wait=False)
        assert log.end_offset == 0


def test_a_full_disk_is_told_by_the_handles() -> None:
    """The batch that did not fit says so; those before and behind it are there."""
    disk = SimDisk()
    with pyreplog.open_log("/log", disk=disk, config={"max.message.bytes": 200}) as log:
        disk.fail("write", "*.log", error=errno.ENOSPC, nth=2)
        acks = log.append_many([bytes(100)] * 3, wait=False)
        errors = [ack.exception() for ack in acks]
        assert errors[0] is None
        assert isinstance(errors[1], pyreplog.StorageError)
        assert errors[2] is None
        assert [acks[0].offset, acks[2].offset] == [0, 1]


@pytest.mark.parametrize("way", ["append", "append_many", "append_arrow"])
def test_the_bound(tmp_path: Path, disk: SlowDisk, way: str) -> None:
    """With ``max_block_ms=0`` an append beyond the bound is refused at once and as a whole; when the disk has
    caught up it goes on."""
    pa = pytest.importorskip("pyarrow")
    value = bytes(1000)
    with pyreplog.open_log(tmp_path / "log", disk=disk, buffer_memory=100_000, max_block_ms=0) as log:
        log.append(b"first")
        disk.gate.clear()
        handles: list[Any] = []
        with pytest.raises(pyreplog.BufferExhaustedError) as caught:
            while len(handles) < 1000:
                if way == "append":
                    handles.append(log.append(value, wait=False))
                elif way == "append_many":
                    handles.append(log.append_many([value] * 2, wait=False))
                else:
                    handles.append(log.append_arrow(pa.table({"value": [value] * 2}), wait=False))
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.waiting <= caught.value.allowed == 100_000
        count = len(handles) * (1 if way == "append" else 2)
        disk.gate.set()
        assert 50 < count < 100
        for handle in handles:
            handle.result(FOREVER)
        assert log.append(b"room") == 1 + count
        assert log.append(value, wait=False).result(FOREVER).offset == 2 + count


def test_waiting_for_room(tmp_path: Path, disk: SlowDisk) -> None:
    """Beyond the bound an append waits until the disk has caught up, or ``max_block_ms`` passed."""
    with pyreplog.open_log(tmp_path / "log", disk=disk, buffer_memory=4096) as log:
        disk.gate.clear()
        done = threading.Event()

        def work() -> None:
            for _ in range(20):
                log.append_nowait(bytes(1000))
            done.set()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert disk.entered.wait(FOREVER)
        assert not done.is_set()
        disk.gate.set()
        assert done.wait(FOREVER)
        thread.join()
        log.flush()
        assert log.end_offset == 20
    with pyreplog.open_log(tmp_path / "log", disk=disk, buffer_memory=4096, max_block_ms=50) as log:
        disk.gate.clear()
        before = time.monotonic()
        with pytest.raises(pyreplog.BufferExhaustedError):
            while True:
                log.append_nowait(bytes(1000))
        assert 0.05 <= time.monotonic() - before < FOREVER
        disk.gate.set()


def test_the_bound_holds_for_many_threads(tmp_path: Path, disk: SlowDisk) -> None:
    """However many append at once, what waits never exceeds the bound; nothing is lost or repeated."""
    with pyreplog.open_log(tmp_path / "log", disk=disk, buffer_memory=50_000, max_block_ms=0) as log:
        disk.gate.clear()
        kept: list[tuple[bytes, pyreplog.Ack]] = []

        def work(number: int) -> None:
            try:
                for turn in range(1000):
                    value = b"%d/%d/" % (number, turn) + bytes(500)
                    kept.append((value, log.append_nowait(value)))
            except pyreplog.BufferExhaustedError:
                pass

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(FOREVER)
        disk.gate.set()
        assert 20_000 < sum(len(value) for value, _ in kept) <= 50_000
        found = {ack.result(FOREVER).offset: value for value, ack in kept}
        assert found == {record.offset: record.value for record in log.read()}


@pytest.mark.parametrize("end", ["poison", "close"])
def test_who_waits_for_room_is_not_left_behind(tmp_path: Path, end: str) -> None:
    """When the log fails or is closed meanwhile, the append that waits for room raises ClosedError."""
    disk = SlowDisk()
    log = pyreplog.open_log(tmp_path / "log", disk=disk, buffer_memory=4096)
    disk.gate.clear()
    ended: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                log.append_nowait(bytes(1000))
        except pyreplog.PyreplogError as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert disk.entered.wait(FOREVER)
    if end == "poison":
        assert log._writer is not None
        log._writer._fence._sync_failure = pyreplog.StorageError(errno.EIO, "planted")
        disk.gate.set()
    else:
        closer = threading.Thread(target=log.close, daemon=True)
        closer.start()
        while not log.closed:
            time.sleep(0)
        disk.gate.set()
        closer.join(FOREVER)
    thread.join(FOREVER)
    assert not thread.is_alive()
    assert isinstance(ended[0], pyreplog.ClosedError)
    log.close()


def test_an_os_log_waits_for_nothing(tmp_path: Path, disk: SlowDisk) -> None:
    """Under ``os`` nothing waits for the disk, so nothing is bounded but a batch."""
    with pyreplog.open_log(tmp_path / "log", durability="os", disk=disk, buffer_memory=4096, max_block_ms=0) as log:
        disk.gate.clear()
        for _ in range(100):
            log.append_nowait(bytes(1000))
        disk.gate.set()
        assert log.append(b"x") == 100


@pytest.mark.parametrize(
    "setting", [{"buffer_memory": 100}, {"buffer_memory": True}, {"max_block_ms": -1}, {"max_block_ms": float("nan")}]
)
def test_absurd_bounds_are_refused(tmp_path: Path, setting: dict[str, Any]) -> None:
    """Both settings have limits, belong to writing, and nothing is made when they are refused."""
    with pytest.raises(pyreplog.ConfigError):
        pyreplog.open_log(tmp_path / "log", **setting)
    assert not (tmp_path / "log").exists()
    pyreplog.open_log(tmp_path / "log").close()
    with pytest.raises(pyreplog.ConfigError):
        pyreplog.open_log(tmp_path / "log", mode="r", buffer_memory=5000)


def test_room_is_made_by_each_sync(tmp_path: Path) -> None:
    """Whoever waits for room is told after each sync, of which nothing is left that waits; and once the log is
    poisoned it is told of that, and not that there is no room."""
    disk = SimDisk()
    log = pyreplog.open_log("/log", disk=disk, buffer_memory=4096, max_block_ms=0)
    writer = log._writer
    assert writer is not None
    writer._background.stop()
    for end in ("sync", "poison"):
        with pytest.raises(pyreplog.BufferExhaustedError):
            while True:
                log.append_many([bytes(500)], wait=False)
        turn = threading.Lock()
        turn.acquire()
        writer.nowait._budget._wanted.append(turn)
        if end == "sync":
            log.flush()
            assert writer.nowait._budget.size == 0
        else:
            disk.fail("sync", "*.log", times=None)
            with pytest.raises(pyreplog.StorageError):
                log.flush()
            with pytest.raises(pyreplog.ClosedError, match="poisoned"):
                log.append_many([bytes(500)], wait=False)
        assert not turn.locked()
        writer.nowait._budget._wanted.clear()
    log.close()


def test_what_is_written_during_a_sync_is_not_counted_with_it(tmp_path: Path, disk: SlowDisk) -> None:
    """A sync vouches for what was there when it began: a record right behind it waits for the next one."""
    with pyreplog.open_log(tmp_path / "log", disk=disk) as log:
        assert log._writer is not None
        log._writer._background.stop()
        disk.gate.clear()
        first = log.append_many([b"a", b"b"], wait=False)
        thread = threading.Thread(target=log.flush, daemon=True)
        thread.start()
        assert disk.entered.wait(FOREVER)
        second = log.append_many([b"c"], wait=False)
        disk.gate.set()
        thread.join(FOREVER)
        assert [ack.offset for ack in first] == [0, 1]
        assert not second.done()
        assert (log.high_watermark, log.end_offset) == (2, 3)
        assert second.result(FOREVER)[0].offset == 2
        assert log.high_watermark == 3


@pytest.mark.parametrize("way", ["append_nowait", "append_many", "append_arrow"])
def test_the_thread_is_told_of_what_nobody_waits_for(tmp_path: Path, way: str) -> None:
    """It does not look by itself."""
    pa = pytest.importorskip("pyarrow")
    with pyreplog.open_log(tmp_path / "log") as log:
        assert log._writer is not None
        background = log._writer._background
        background.stop()
        background.is_armed = False
        if way == "append_nowait":
            log.append_nowait(b"x")
        elif way == "append_many":
            log.append_many([b"x"], wait=False)
        else:
            log.append_arrow(pa.table({"value": [b"x"]}), wait=False)
        assert background.is_armed
