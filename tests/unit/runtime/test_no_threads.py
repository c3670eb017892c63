"""No thread is to be had (RLIMIT_NPROC, a container's limit): a typed error with advice, nothing half-done, and the
next call works."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

import pyreplog
from pyreplog import aio
from pyreplog.aio.calls import ThreadCalls
from pyreplog.system import SystemDisk, sync_batcher

Refuse = Callable[[int], None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """``refuse(n)``: the n-th thread from now on and all after it cannot be started; a negative number ends
    that."""
    left = -1
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        nonlocal left
        if left > 0:
            left -= 1
        if left == 0:
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)

    def set_left(count: int) -> None:
        nonlocal left
        left = count

    return set_left


@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("way", ["append", "append_many", "append_nowait", "append_many later"])
def test_an_append_that_would_need_one(
    tmp_path: Path, refuse: Refuse, durability: Literal["sync", "os"], way: str
) -> None:
    """On a disk of its own, whose log has no thread before there is something to do: the append leaves nothing, and
    later succeeds."""
    path = tmp_path / "log"
    refuse(1)
    with pyreplog.open_log(path, durability=durability, disk=SystemDisk()) as log:
        ways: dict[str, Callable[[], object]] = {
            "append": lambda: log.append(b"x"),
            "append_many": lambda: log.append_many([b"x"]),
            "append_nowait": lambda: log.append_nowait(b"x").result(10),
            "append_many later": lambda: log.append_many([b"x"], wait=False).result(10),
        }
        for _ in range(2):
            with pytest.raises(pyreplog.NoThreadError, match="ulimit -u"):
                ways[way]()
            assert log.end_offset == 0
        refuse(-1)
        ways[way]()
        assert [record.value for record in log] == [b"x"]
    with pyreplog.open_log(path, "r") as reader:
        assert reader.end_offset == 1


def test_an_opening_that_would_need_one(tmp_path: Path, refuse: Refuse) -> None:
    """It is refused and leaves nothing locked. A log has one thread, begun when it is opened: no append needs
    another."""
    path = tmp_path / "log"
    refuse(1)
    with pytest.raises(pyreplog.NoThreadError, match=r"no thread can be started for pyreplog log-0.* raise the limit"):
        pyreplog.open_log(path)
    refuse(2)
    with pyreplog.open_log(path) as log:
        assert log.append(b"x") == 0
        assert log.append_nowait(b"x").result(10).offset == 1
        assert log.append_many([b"x"], wait=False).result(10)[0].offset == 2
        assert [record.value for record in log] == [b"x"] * 3


@pytest.mark.parametrize("count", range(1, 4))
def test_a_cluster_that_would_need_one(tmp_path: Path, refuse: Refuse, count: int) -> None:
    """A cluster that cannot start leaves its folder to who comes next."""
    refuse(count)
    try:
        pyreplog.Cluster(tmp_path / "cluster", 1).close()
    except pyreplog.NoThreadError as error:
        assert "ulimit -u" in str(error)
    refuse(-1)
    with pyreplog.Cluster(tmp_path / "cluster", 1) as cluster:
        cluster.admin.create_topic("t")
        with cluster.producer() as producer:
            assert producer.send("t", b"x").result(10).offset == 0


def test_side_by_side_becomes_one_by_one(refuse: Refuse) -> None:
    """``map`` works in as many threads as there are, this one at least, each item once; a failure is raised."""
    disk = SystemDisk()
    done: list[int] = []

    def work(item: int) -> int:
        done.append(item)
        if item < 0 and item % 7 == 3:
            raise ValueError(item)
        return -item

    for count in (1, 2, -1):
        refuse(count)
        done.clear()
        assert disk.map(work, range(40), waits=True) == [-item for item in range(40)]
        assert sorted(done) == list(range(40))
        done.clear()
        with pytest.raises(ValueError, match="^-"):
            disk.map(work, [-item for item in range(40)], waits=True)
        assert len(done) == len(set(done))
    disk.close()


@pytest.mark.parametrize("loaded", ["", "import concurrent.futures.thread"])
def test_side_by_side_becomes_one_by_one_while_the_interpreter_ends(loaded: str) -> None:
    """Whether what starts the threads was loaded before or not."""
    program = f"""
import atexit
{loaded}
from pyreplog.system import SystemDisk
atexit.register(lambda: print(sum(SystemDisk().map(abs, range(40), waits=True))))
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "780\n"


def test_a_sync_that_would_need_one(tmp_path: Path, refuse: Refuse) -> None:
    """The calling thread syncs the files itself, and the next sync is done as well."""
    disk = SystemDisk()
    file = disk.create(str(tmp_path / "file"))
    file.write_at(0, [b"x"])
    refuse(1)
    syncing: list[threading.Thread] = []
    token = disk.submit_sync([file], lambda: syncing.append(threading.current_thread()))
    assert syncing == [threading.current_thread()]
    assert [(done.token, done.error) for done in disk.poll()] == [(token, None)]
    refuse(-1)
    news = threading.Event()
    token = disk.submit_sync([file], news.set)
    assert news.wait(10)
    assert [done.token for done in disk.poll()] == [token]
    file.close()
    disk.close()


def test_a_cluster_works_and_is_closed_without_one(
    tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a cluster has to sync while no thread is to be had, of C's neither, is synced by whoever drives it;
    closed, its folder is free at once."""
    cluster = pyreplog.Cluster(tmp_path / "data", nodes=3)
    cluster.admin.create_topic("t", partitions=2)
    refuse(1)
    monkeypatch.setattr(sync_batcher._SyncBatch, "begin", lambda group: False)
    producer = cluster.producer()
    assert producer.send("t", b"x", partition=0).result(timeout=10).offset == 0
    producer.send("t", b"y", partition=1)
    cluster.close()
    refuse(-1)
    with pyreplog.Cluster(tmp_path / "data") as cluster, cluster.consumer("t") as consumer:
        assert sorted(record.value or b"" for record in consumer.until_end()) == [b"x", b"y"]


def test_awaiting_what_would_need_one(tmp_path: Path, refuse: Refuse) -> None:
    """An opening, an append and a read are refused by the same error, and not carried out later; one reading thread
    is enough for all."""

    async def main() -> None:
        refuse(1)
        with pytest.raises(pyreplog.NoThreadError, match="ulimit -u"):
            await aio.open_log(tmp_path / "log")
        refuse(-1)
        async with aio.open_log(tmp_path / "log") as log:
            refuse(1)
            with pytest.raises(pyreplog.NoThreadError):
                await log.end_offset
            refuse(2)
            ends = await asyncio.gather(*(log.end_offset for _ in range(8)))
            assert ends == [0] * 8
        calls = ThreadCalls("test")
        done: list[int] = []
        refuse(1)
        for number in range(2):
            with pytest.raises(pyreplog.NoThreadError):
                await calls.write(done.append, number)
            with pytest.raises(pyreplog.NoThreadError):
                await calls.acquire(lambda number=number: done.append(number), lambda made: None)  # type: ignore[misc]
        assert calls.waiting_count == 0
        refuse(-1)
        await calls.write(done.append, 2)
        await calls.read(done.append, 3)
        assert done == [2, 3]
        calls.stop()

    asyncio.run(main())
