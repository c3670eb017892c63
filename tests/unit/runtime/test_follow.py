"""``follow``: what is there, then what comes, in this process and from another one."""

from __future__ import annotations

import gc
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import pyreplog
from pyreplog.ports import File
from pyreplog.runtime.background import Background
from pyreplog.runtime.follow import PAUSE_MAX_S, PAUSE_MIN_S, FileWatchSignal, WriterSignal, _wait, follow
from pyreplog.system import SystemDisk
from pyreplog.system.descriptor_cache import DESCRIPTORS
from pyreplog.testing import SimDisk
from tests.unit.runtime.unread_results import UnreadResults

FOREVER = 60.0


class BlindDisk(SystemDisk):
    """A disk that cannot tell of changes."""

    def watch(self, paths: Sequence[str]) -> None:
        """None."""
        return


class Follower:
    """Follows in a thread of its own, and hands over what came."""

    def __init__(self, records: Iterator[pyreplog.Record]) -> None:
        self._came: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(records,), daemon=True)
        self._thread.start()

    def _run(self, records: Iterator[pyreplog.Record]) -> None:
        try:
            for record in records:
                self._came.put((record.offset, record.value))
        except Exception as error:
            self._came.put(error)
        else:
            self._came.put("end")

    def next(self) -> Any:
        """What comes next: (offset, value), an error, or "end"."""
        return self._came.get(timeout=FOREVER)

    def quiet(self) -> bool:
        """Whether nothing came so far."""
        return self._came.empty()


OPEN: dict[str, Callable[[Path], pyreplog.Log]] = {
    "told": lambda path: pyreplog.open_log(path, mode="r"),
    "blind": lambda path: pyreplog.open_log(path, mode="r", disk=BlindDisk()),
}


@pytest.fixture(params=["own", "told", "blind"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[pyreplog.Log, pyreplog.Log]]:
    """A log that is written, and the one to follow: itself, or a reader, with and without news from the disk."""
    with pyreplog.open_log(tmp_path / "log", durability="os", config={"segment.bytes": 2000}) as log:
        log.append(b"first")
        if request.param == "own":
            yield log, log
        else:
            with OPEN[request.param](tmp_path / "log") as reader:
                yield log, reader


def test_what_is_there_and_then_what_comes(pair: tuple[pyreplog.Log, pyreplog.Log]) -> None:
    """Records come in order, without gap or repetition, over many segments, whichever way they are appended."""
    log, followed = pair
    follower = Follower(followed.follow())
    assert follower.next() == (0, b"first")
    for number in range(1, 60):
        value = b"%d" % number * 50
        if number % 3 == 0:
            log.append(value)
        elif number % 3 == 1:
            log.append_many([value])
        else:
            log.append_nowait(value)
        assert follower.next() == (number, value)
    followed.close()
    assert follower.next() == "end"


def test_it_ends_when_nothing_comes(pair: tuple[pyreplog.Log, pyreplog.Log]) -> None:
    """After ``timeout`` seconds without a record the loop is over; 0 takes what is there."""
    log, followed = pair
    log.append(b"second")
    assert [record.value for record in followed.follow(timeout=0)] == [b"first", b"second"]
    assert [record.value for record in followed.follow(1, timeout=0.01)] == [b"second"]
    assert list(followed.follow(2, timeout=0)) == []


def test_where_it_begins_is_checked_at_once(pair: tuple[pyreplog.Log, pyreplog.Log]) -> None:
    """An offset outside the log is refused by the call itself; so is a timeout that is none, and a closed log."""
    _, followed = pair
    with pytest.raises(pyreplog.OffsetOutOfRangeError):
        followed.follow(2)
    with pytest.raises(pyreplog.ConfigError):
        followed.follow(timeout=-1)
    with pytest.raises(pyreplog.ConfigError):
        followed.follow(timeout=float("nan"))
    followed.close()
    with pytest.raises(pyreplog.ClosedError):
        followed.follow()


def test_it_may_begin_at_the_end_while_appends_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """``end_offset`` is a place to begin also where what lies before it is not on disk yet, and nobody may see it:
    only what comes is seen."""
    monkeypatch.setattr(Background, "start", lambda _: None)
    with pyreplog.open_log("log", disk=SimDisk()) as log:
        log.append(b"first")
        ack = log.append(b"second", wait=False)
        assert (log.high_watermark, log.end_offset) == (1, 2)
        assert list(log.read(log.end_offset)) == list(log.follow(log.end_offset, timeout=0)) == []
        follower = log.follow(log.end_offset)
        assert log.seek(log.end_offset) == 2
        assert list(log) == []
        with pytest.raises(pyreplog.OffsetOutOfRangeError):
            log.read(3)
        log.append(b"third")
        assert ack.result().offset == 1
        assert [record.value for record in log] == [b"third"]
        assert next(follower).value == b"third"


def test_nothing_is_left_open(pair: tuple[pyreplog.Log, pyreplog.Log]) -> None:
    """A loop that was left releases what it held: no descriptor stays behind."""
    _, followed = pair
    list(followed.follow(timeout=0))
    gc.collect()  # what other tests left behind is not to go in between
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        for _ in followed.follow():
            break
        list(followed.follow(timeout=0))
    assert len(os.listdir("/proc/self/fd")) <= before  # fewer: what other tests left went meanwhile


def test_many_follow_many(tmp_path: Path) -> None:
    """Three followers see what four threads append, all of it, in the order of the log."""
    with (
        pyreplog.open_log(tmp_path / "log", durability="os") as log,
        pyreplog.open_log(tmp_path / "log", mode="r") as reader,
    ):
        followers = [Follower(log.follow()), Follower(log.follow()), Follower(reader.follow())]
        threads = [threading.Thread(target=lambda: [log.append(b"x") for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for follower in followers:
            assert [follower.next()[0] for _ in range(200)] == list(range(200))
        for thread in threads:
            thread.join()


def test_only_what_counts_is_seen(tmp_path: Path) -> None:
    """Under ``sync`` a follower sees a record once it is on the disk, not when it is written."""
    gate, entered = threading.Event(), threading.Event()
    disk = SystemDisk()
    create = disk.create

    def gated(path: str, size: int = 0) -> Any:
        file = create(path, size)
        if path.endswith(".log"):

            class Gated(type(file)):  # type: ignore[misc]
                __slots__ = ()

                def sync(self) -> None:
                    entered.set()
                    assert gate.wait(FOREVER)
                    super().sync()

            file.__class__ = Gated
        return file

    disk.create = gated  # type: ignore[method-assign]
    with pyreplog.open_log(tmp_path / "log", disk=disk) as log:
        follower = Follower(log.follow())
        ack = log.append_nowait(b"x")
        assert entered.wait(FOREVER)
        assert follower.quiet()
        gate.set()
        assert follower.next() == (0, b"x")
        ack.result()


@pytest.mark.parametrize("call", ["sync", "write"])
def test_a_poisoned_log_is_followed_no_more(call: str) -> None:
    """When nothing can come any more because the disk failed, who follows hears of it instead of waiting for
    ever."""
    disk = SimDisk()
    log = pyreplog.open_log("/log", disk=disk)
    log.append(b"x")
    follower = Follower(log.follow())
    assert follower.next() == (0, b"x")
    disk.fail(call, "*.log", times=None)
    with pytest.raises(pyreplog.StorageError):
        log.append(b"y")
    assert isinstance(follower.next(), pyreplog.ClosedError)
    disk.clear_faults()
    log.close()


@pytest.mark.parametrize("way", ["follow", "read", "seek", "stats", "scan"])
def test_a_log_that_was_made_anew_is_another(way: str, tmp_path: Path) -> None:
    """Who reads the former one is told: the same offsets mean other records. Opened again, it is read."""
    path = tmp_path / "events"
    with pyreplog.open_log(path) as log:
        log.append_many([b"former"] * 6)
    reader = pyreplog.open_log(path, "r")
    following = reader.follow()
    assert [next(following).offset for _ in range(6)] == [*range(6)]
    path.rename(tmp_path / "gone")
    with pyreplog.open_log(path) as log:
        log.append_many([b"new"] * 9)
    uses: dict[str, Callable[[], object]] = {
        "follow": lambda: next(following),
        "read": lambda: list(reader.read(0)),
        "seek": lambda: reader.seek(timestamp=2**50),
        "stats": reader.stats,
        "scan": lambda: list(reader.scan().batches()),
    }
    for _ in range(2):
        with pytest.raises(pyreplog.TopicRecreatedError, match="Open it again"):
            uses[way]()
        if way == "follow":
            break
    reader.close()
    with pyreplog.open_log(path, "r") as reader:
        assert [record.value for record in reader] == [b"new"] * 9


@pytest.mark.parametrize("count", [0, 1, 2000])
def test_a_log_that_was_made_anew_while_it_is_read(count: int, tmp_path: Path) -> None:
    """Who has begun to read gives no record of the new one, and takes what is not in it for no damage."""
    path = tmp_path / "events"

    def write(value: bytes, count: int) -> None:
        with pyreplog.open_log(path, durability="os", config={"segment.bytes": 100_000}) as log:
            for _ in range(0, count, 20):
                log.append_many([value * 3000] * 20)

    write(b"o", 2000)
    with pyreplog.open_log(path, "r") as reader:
        records = iter(reader)
        assert next(records).value == b"o" * 3000
        path.rename(tmp_path / "gone")
        write(b"n", count)
        with pytest.raises(pyreplog.TopicRecreatedError, match="Open it again"):
            for record in records:
                assert record.value == b"o" * 3000


def test_a_log_that_was_made_anew_stays_another(tmp_path: Path) -> None:
    """What one look opened and refused gives its records to no later one, nor to an earlier one that goes on; nor
    where the former log comes back, in whose place it is open still."""
    path = tmp_path / "events"

    def write(value: bytes) -> None:
        with pyreplog.open_log(path, durability="os", config={"segment.bytes": 100_000}) as log:
            for _ in range(10):
                log.append_many([value * 9000] * 10, timestamps=[10**12 + log.end_offset] * 10)

    write(b"o")
    with pyreplog.open_log(path, "r") as reader:
        earlier = [reader.read(offset) for offset in (30, 30, 50)]
        path.rename(tmp_path / "gone")
        write(b"n")
        looks: list[Callable[[], object]] = [
            *[lambda records=records: next(records) for records in earlier],
            lambda: reader.seek(timestamp=10**12 + 30),
            lambda: reader.config,
        ]
        for look in (*looks, *looks[-2:]):
            with pytest.raises(pyreplog.TopicRecreatedError, match="Open it again"):
                look()
        path.rename(tmp_path / "new")
        (tmp_path / "gone").rename(path)
        with pytest.raises(pyreplog.TopicRecreatedError, match="Open it again"):
            list(reader.read(30))


def test_a_file_that_gave_its_descriptor_up_may_come_back_as_another_logs(tmp_path: Path) -> None:
    """It is opened again by its name, and a file system gives the number of a file that is gone to another one."""
    path = tmp_path / "events"

    def write(value: bytes) -> Path:
        with pyreplog.open_log(path, durability="os") as log:
            for _ in range(0, 1000, 20):
                log.append_many([value * 3000] * 20)
        return next(path.glob("*/*.log"))

    former = write(b"o")
    with pyreplog.open_log(path, "r") as reader:
        records = iter(reader)
        assert next(records).value == b"o" * 3000
        DESCRIPTORS.clear()
        os.link(former, tmp_path / "number")
        path.rename(tmp_path / "gone")
        new = write(b"n")
        (tmp_path / "number").write_bytes(new.read_bytes())
        (tmp_path / "number").replace(new)
        with pytest.raises(pyreplog.TopicRecreatedError):
            for record in records:
                assert record.value == b"o" * 3000


def test_what_is_open_is_not_asked_for_its_log(tmp_path: Path) -> None:
    """A file that stays open is of the log that was opened: who reads on in it, or seeks in it, opens nothing, the
    mark neither."""
    with pyreplog.open_log(tmp_path, durability="os") as log:
        for _ in range(80):
            log.append_many([bytes(10_000)] * 10, timestamps=[10**12 + log.end_offset] * 10)
    disk = SystemDisk()
    with pyreplog.open_log(tmp_path, "r", disk=disk) as reader:
        records = iter(reader.read(0))
        next(records)
        reader.seek(timestamp=10**12 + 5)
        before = disk.openings
        assert sum(1 for _ in records) == 799  # eight pieces of a megabyte
        assert [reader.seek(timestamp=10**12 + offset) for offset in range(0, 800, 10)] == [*range(0, 800, 10)]
        assert disk.openings == before


class MarkCounter(SystemDisk):
    """Counts how often it opens a mark."""

    marks = 0

    def open(self, path: str, *, write: bool = False) -> File:
        """A file."""
        self.marks += path.endswith("replog.mark")
        return super().open(path, write=write)


def test_news_take_two_looks_at_the_mark(tmp_path: Path) -> None:
    """One says how far the log goes, and one, once the file that was written to is open again, that it is still the
    same log's. Where there are no news one look says so."""
    disk = MarkCounter()
    with pyreplog.open_log(tmp_path, durability="os") as log, pyreplog.open_log(tmp_path, "r", disk=disk) as reader:
        for offset in range(10):
            log.append(b"x")
            before = disk.marks
            assert [record.offset for record in reader.read(offset)] == [offset]
            assert disk.marks == before + 2
            assert [record.offset for record in reader.read(offset)] == [offset]
            assert disk.marks == before + 3


def test_closing_ends_a_loop_in_another_thread(pair: tuple[pyreplog.Log, pyreplog.Log]) -> None:
    """A follower that waits ends when the log is closed, without an error."""
    _, followed = pair
    followers = [Follower(followed.follow()) for _ in range(3)]
    for follower in followers:
        assert follower.next() == (0, b"first")
    followed.close()
    assert [follower.next() for follower in followers] == ["end"] * 3


OTHER_PROCESS = """
import sys, pyreplog
with pyreplog.open_log(sys.argv[1], mode="r") as log:
    print("ready", flush=True)
    for record in log.follow(timeout=60):
        print(record.offset, record.value.decode(), flush=True)
        if record.value == b"last":
            break
"""


def test_another_process_follows(tmp_path: Path) -> None:
    """A process that only reads is told each record before the next one is appended."""
    with pyreplog.open_log(tmp_path / "log") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in range(20):
            value = "last" if number == 19 else f"v{number}"
            log.append(value.encode())
            assert process.stdout.readline() == f"{number} {value}\n"
        assert process.wait(FOREVER) == 0
        process.stdout.close()


def test_offsets_without_records_are_passed() -> None:
    """What a leader's marks, or compaction, leave behind is nothing new; and the news are given back."""
    forgotten: list[WriterSignal] = []
    news = WriterSignal(forgotten.append)
    assert list(follow(UnreadResults(news), 0, 0.0)) == []
    assert forgotten == [news]


def test_who_is_not_told_looks_less_and_less_often() -> None:
    """From a millisecond up to a bound; and soon again once something came."""
    news = FileWatchSignal(BlindDisk(), [])
    pauses = [news.pause() for _ in range(10)]
    assert pauses[:3] == [PAUSE_MIN_S, 2 * PAUSE_MIN_S, 4 * PAUSE_MIN_S]
    assert pauses[-1] == PAUSE_MAX_S
    assert _wait(UnreadResults(news), news, 0, 0.0)
    assert news.pause() == PAUSE_MIN_S


def test_closing_wakes_who_waits(pair: tuple[pyreplog.Log, pyreplog.Log]) -> None:
    """In the moment of the closing."""
    _, followed = pair
    told: list[str] = []
    news = followed._view.news()
    news.told = lambda: told.append("woken")
    followed.close()
    assert told
    news.close()
