"""``pyreplog.aio.open_log``: the same log for coroutines, which nothing of it holds up."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import pyreplog
from pyreplog import aio
from pyreplog.aio.calls import ThreadCalls, _LazyExecutor
from pyreplog.aio.opening import Opening
from pyreplog.record import BatchBuilder
from pyreplog.testing import SimDisk
from tests.unit.runtime.slow import FOREVER, SlowDisk

try:
    import uvloop
except ImportError:  # tested with asyncio's own alone
    uvloop = None  # type: ignore[assignment]

Main = Callable[[], Awaitable[None]]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Main], None]:
    """Runs a coroutine function in an event loop of either kind, and fails when it takes for ever."""
    if request.param == "uvloop" and uvloop is None:
        pytest.skip("SKIPPED: uvloop is not installed")

    def run(main: Main) -> None:
        async def limited() -> None:
            async with asyncio.timeout(FOREVER):
                await main()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop if request.param == "uvloop" else None) as runner:
            runner.run(limited())

    return run


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    """A disk that stands still as long as a test wants, whatever is asked of it."""
    disk = SlowDisk("sync", "write", "read")
    yield disk
    disk.gate.set()


async def listed(records: Any) -> list[Any]:
    """All values."""
    return [record.value async for record in records]


def test_an_iterator_goes_on_after_a_timeout() -> None:
    """A cancelled ``anext`` ends no iterator of a log: each record comes once, in order, and the position moves
    with those handed over."""

    async def run() -> None:
        async with await aio.open_log("/log", disk=SimDisk(), durability="os") as log:
            await log.append_many([b"%d" % number for number in range(250)])
            for records in (log.read(), aiter(log), log.follow()):
                offsets: list[int] = []
                for turn in range(2000):
                    try:
                        # Cancelled at once: most waits are cut in the middle of a read by a thread.
                        offsets.append((await asyncio.wait_for(anext(records), 0 if turn % 2 else 1)).offset)
                    except TimeoutError:
                        continue
                    except StopAsyncIteration:
                        break
                    if len(offsets) == 250:
                        break
                assert offsets == list(range(250))
            assert log.position == 250
            late = log.follow(250)
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(late), 0.001)
            await log.append(b"late")
            assert (await anext(late)).offset == 250
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(late), 0.001)
            await late.aclose()
            assert [record async for record in late] == []

    asyncio.run(run())


def test_an_iterator_that_is_dropped_while_it_waits_holds_nothing() -> None:
    """After a timeout, without ``aclose``: its task ends, and the log hears of no reader any more."""

    async def run() -> None:
        async with await aio.open_log("/log", disk=SimDisk(), durability="os") as log:
            tasks = len(asyncio.all_tasks())
            records = log.follow()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(records), 0.001)
            assert len(asyncio.all_tasks()) == tasks + 1
            del records
            gc.collect()
            while len(asyncio.all_tasks()) > tasks:
                await asyncio.sleep(0)

    asyncio.run(run())


def test_what_was_not_awaited_says_so(tmp_path: Path) -> None:
    """``aio.open_log`` opens nothing by itself, and who forgot to await it is told; the folder is not made."""
    opening: Any = aio.open_log(tmp_path / "events")
    with pytest.raises(AttributeError, match="'append' was used before the opening: .*async with.*await"):
        opening.append(b"x")
    assert not (tmp_path / "events").exists()


def test_the_same_names(tmp_path: Path, run: Callable[[Main], None]) -> None:
    """Everything that the blocking log does is there under its name, and gives the same."""

    async def main() -> None:
        pa = pytest.importorskip("pyarrow")
        async with aio.open_log(tmp_path / "log", durability="os", config={"segment.bytes": 5000}) as log:
            assert await log.append(b"zero", key=b"k", headers=[("h", b"1")], timestamp=5) == 0
            ack = await log.append(b"one", timestamp=6, wait=False)
            assert (await ack).offset == 1
            assert (await (await log.append_nowait(b"two", timestamp=7))).timestamp == 7
            assert await log.append_many([b"three", b"four"]) == range(3, 5)
            acks = await log.append_many([b"five"], wait=False)
            assert [place.offset for place in await acks] == [5]
            assert await log.append_many([]) == range(6, 6)
            assert await log.append_arrow(pa.table({"value": [b"six", b"seven"]})) == range(6, 8)
            await log.flush()
            words = [b"zero", b"one", b"two", b"three", b"four", b"five", b"six", b"seven"]
            assert await listed(log.read()) == words
            assert await listed(log.read(1, 3)) == words[1:3]
            assert await listed(log.read(start_timestamp=6, end_timestamp=8)) == words[1:3]
            assert await listed(log) == words
            assert log.position == 8
            assert await log.seek(timestamp=7) == 2
            async for record in log:
                assert record.offset == 2
                break
            assert log.position == 3
            assert await listed(log.follow(6, timeout=0)) == words[6:]
            assert (await asyncio.to_thread(pa.table, await log.scan(["value"])))["value"].to_pylist() == words
            assert (
                await log.start_offset,
                await log.end_offset,
                await log.high_watermark,
                await log.last_stable_offset,
            ) == (0, 8, 8, 8)
            assert (await log.stats()).records_appended == 8
            assert (log.topic, log.partition, log.mode, log.durability, log.closed) == ("log", 0, "a", "os", False)
            assert await log.delete_records(2) == 2
            assert await log.apply_retention() == 0
            with pytest.raises(pyreplog.OffsetOutOfRangeError):
                await listed(log.read(0))
        assert log.closed
        for use in (
            log.append(b"x"),
            log.append_many([b"x"]),
            log.flush(),
            log.stats(),
            log.seek(0),
            listed(log.read()),
            listed(log),
        ):
            with pytest.raises(pyreplog.ClosedError):
                await use
        await log.close()
        reader = await aio.open_log(tmp_path / "log", "r")
        assert await listed(reader) == words[2:]
        with pytest.raises(pyreplog.ClosedError):
            await reader.append(b"x")
        await reader.close()

    run(main)


def test_position_is_moved_within_a_loop(tmp_path: Path, run: Callable[[Main], None]) -> None:
    """``seek`` and ``delete_records`` move ``position``, and a loop that is under way, as those of the blocking log
    do."""

    async def main() -> None:
        async with aio.open_log(tmp_path / "log", durability="os") as log:
            await log.append_many([b"x"] * 30)
            offsets = []
            async for record in log:
                offsets.append(record.offset)
                if record.offset in (4, 12):
                    await log.seek(12 if record.offset == 4 else 27)
            assert offsets == [*range(5), 12, *range(27, 30)]
            await log.seek(0)
            async for record in log:
                if record.offset == 2:
                    assert await log.delete_records(8) == log.position == 8
                elif record.offset > 2:
                    assert record.offset == 8
                    break
            assert await log.delete_records() == log.position == 30
            assert await listed(log) == []

    run(main)


def test_a_crowd(tmp_path: Path, run: Callable[[Main], None]) -> None:
    """Appends begun together keep their order, and share syncs."""

    async def main() -> None:
        async with aio.open_log(tmp_path / "log") as log:
            before = (await log.stats()).syncs
            offsets = await asyncio.gather(*(log.append(b"%d" % number) for number in range(500)))
            assert offsets == list(range(500))
            assert await listed(log.read()) == [b"%d" % number for number in range(500)]
            assert (await log.stats()).syncs - before < 250

    run(main)


def test_a_slow_disk_never_blocks_the_loop(tmp_path: Path, disk: SlowDisk, run: Callable[[Main], None]) -> None:
    """While the disk stands still in a write, a sync or a read, whatever is awaited waits, and everything else in
    the loop goes on; no call ever reaches the disk from the loop's own thread."""

    async def main() -> None:
        loop_thread = threading.get_ident()
        async with aio.open_log(
            tmp_path / "log", disk=disk, config={"segment.bytes": 3000}, buffer_memory=20_000
        ) as log:
            await log.append_many([b"%d" % number * 100 for number in range(50)])
            disk.gate.clear()
            tasks: list[asyncio.Task[Any]] = [
                asyncio.create_task(coroutine)
                for coroutine in (
                    log.append(b"a"),
                    log.append_many([b"b"]),
                    listed(log.read(0, 10)),
                    listed(log),
                    listed(log.follow(10, timeout=0)),
                    log.append(bytes(2000)),
                    log.flush(),
                    log.seek(timestamp=1),
                    log.stats(),
                    *(log.append(bytes(900)) for _ in range(100)),
                )
            ]
            # The loop turns: a thousand times, and its timers come, while the disk does not move.
            for _ in range(1000):
                await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(None, disk.entered.wait, FOREVER)
            await asyncio.sleep(0.01)
            assert not any(task.done() for task in tasks[:2])
            assert disk.entered.is_set()
            disk.gate.set()
            results = await asyncio.gather(*tasks)
            assert results[2] == [b"%d" % number * 100 for number in range(10)]
            assert loop_thread not in disk.threads
            assert len(await listed(log.read())) == 50 + 2 + 1 + 100

    run(main)


NAMES = [name for name, kind in vars(aio.Log).items() if isinstance(kind, property)] + ["stats"]


async def look(log: aio.Log, *names: str) -> None:
    """At what the log says of itself; ``names``: all of it."""
    for name in names or NAMES:
        found = getattr(log, name)
        found = found() if callable(found) else found
        if inspect.isawaitable(found):
            await found


def test_nothing_asks_the_disk_from_the_loop() -> None:
    """Every call of the Disk port, from opening to closing, is made by another thread than the loop's."""
    loop_thread = threading.get_ident()
    asked: list[str] = []

    class Watched(SimDisk):
        def begin(self, kind: str, path: str, *args: Any, **kwargs: Any) -> None:
            asked.append(kind)
            assert threading.get_ident() != loop_thread, f"{kind} of {path} in the event loop"
            super().begin(kind, path, *args, **kwargs)

    async def main() -> None:
        disk = Watched()
        settings: tuple[Any, ...] = ("sync", None)
        for durability in settings:
            async with aio.open_log("/log", disk=disk, durability=durability) as log:
                for _ in range(20):
                    await asyncio.gather(log.append(b"x"), log.append(b"y"), log.append_many([b"z"] * 100))
                await log.flush()
                await listed(log)
                await listed(log.follow(timeout=0))
                await look(log)
        async with aio.open_log("/log", "r", disk=disk) as reader:
            await listed(reader)
            await listed(reader.follow(timeout=0))
            async with aio.open_log("/log", disk=disk) as log:
                for name in NAMES:  # which is news each time, and has the reader look
                    await log.append(b"more")
                    before = len(asked)
                    await look(reader, name)
                    assert len(asked) > before or name not in (
                        "end_offset",
                        "high_watermark",
                        "last_stable_offset",
                        "stats",
                    ), name

    asyncio.run(main())
    assert len(asked) > 100


def test_cancelling(tmp_path: Path, run: Callable[[Main], None]) -> None:
    """An append that is cancelled while it waits is there once: neither lost nor repeated. The log goes on."""

    async def main() -> None:
        disk = SlowDisk()
        async with aio.open_log(tmp_path / "log", disk=disk) as log:
            disk.gate.clear()
            tasks: list[asyncio.Task[Any]] = []
            for number in range(40):
                if number % 4:
                    tasks.append(asyncio.create_task(log.append(b"%d" % number)))
                else:
                    tasks.append(asyncio.create_task(log.append_many([b"%d" % number])))
            await asyncio.sleep(0)
            await asyncio.to_thread(disk.entered.wait, FOREVER)
            for task in tasks[::2]:
                task.cancel()
            disk.gate.set()
            results: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
            last = await log.append(b"last")
            values = await listed(log.read())
            assert sorted(values[:-1], key=int) == [b"%d" % number for number in range(40)]
            assert values[last] == b"last"
            kept = [result if isinstance(result, int) else result[0] for result in results[1::2]]
            assert [values[offset] for offset in kept] == [b"%d" % number for number in range(1, 40, 2)]

    run(main)


def test_cancelling_what_reads(tmp_path: Path, run: Callable[[Main], None]) -> None:
    """A follower that is cancelled releases what it held; another one goes on where it was."""

    async def main() -> None:
        async with (
            aio.open_log(tmp_path / "log", durability="os") as log,
            aio.open_log(tmp_path / "log", "r") as reader,
        ):
            await log.append(b"x")
            assert await listed(log.read()) == await listed(reader.read()) == [b"x"]
            before = len(os.listdir("/proc/self/fd"))
            for followed in (log, reader):
                for turn in range(12):
                    task = asyncio.create_task(listed(followed.follow()))
                    for _ in range(turn):
                        await asyncio.sleep(0.0005)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
            assert log._writer is not None
            while (
                log._writer._pending._tailers or len(os.listdir("/proc/self/fd")) > before
            ):  # what a thread was opening is closed by it
                await asyncio.sleep(0.001)

    run(main)


def test_leaving_what_reads(tmp_path: Path, run: Callable[[Main], None]) -> None:
    """``contextlib.aclosing`` takes what reads and follows, and a follower that it closes has released what it
    held."""

    async def main() -> None:
        async with (
            aio.open_log(tmp_path / "log", durability="os") as log,
            aio.open_log(tmp_path / "log", "r") as reader,
        ):
            await log.append(b"x")
            assert await listed(log.read()) == await listed(reader.read()) == [b"x"]
            before = len(os.listdir("/proc/self/fd"))
            for records in (reader.follow(), log.follow(), reader.read()):
                async with aclosing(records):
                    assert (await anext(records)).value == b"x"
            assert len(os.listdir("/proc/self/fd")) == before
            assert log._writer is not None
            assert not log._writer._pending._tailers

    run(main)


@pytest.mark.parametrize("who", ["writer", "reader", "blind"])
def test_following(tmp_path: Path, run: Callable[[Main], None], who: str) -> None:
    """``async for`` over ``follow`` gives what is there, then what comes, and ends when the log is closed."""

    async def main() -> None:
        async with aio.open_log(tmp_path / "log", durability="os", config={"segment.bytes": 2000}) as log:
            await log.append(b"0")
            if who == "writer":
                followed = log
            elif who == "reader":
                followed = await aio.open_log(tmp_path / "log", "r")
            else:
                blind = SlowDisk()
                blind.watch = lambda paths: None  # type: ignore[method-assign]
                followed = await aio.open_log(tmp_path / "log", "r", disk=blind)
            came: asyncio.Queue[bytes | None] = asyncio.Queue()

            async def follow() -> None:
                async for record in followed.follow():
                    await came.put(record.value)

            task = asyncio.create_task(follow())
            assert await came.get() == b"0"
            for number in range(1, 40):
                value = b"%d" % number * 50
                await log.append(value)
                assert await came.get() == value
            await followed.close()
            await task

    run(main)


def test_the_bound(tmp_path: Path, disk: SlowDisk, run: Callable[[Main], None]) -> None:
    """Back-pressure reaches the coroutine: BufferExhaustedError, while the loop goes on, and room again later."""

    async def main() -> None:
        disk.calls = ("sync",)
        async with aio.open_log(tmp_path / "log", disk=disk, buffer_memory=20_000, max_block_ms=0) as log:
            disk.gate.clear()
            acks: list[pyreplog.Ack] = []
            with pytest.raises(pyreplog.BufferExhaustedError):
                while len(acks) < 100:
                    acks.append(await log.append(bytes(1000), wait=False))
            disk.gate.set()
            for ack in acks:
                await ack
            assert await log.append(b"room") == len(acks)

    run(main)


def test_errors_come_out() -> None:
    """What the disk refuses is raised by the ``await``, in its type; opening what cannot be opened, too."""

    async def main() -> None:
        disk = SimDisk()
        async with aio.open_log("/log", disk=disk) as log:
            with pytest.raises(pyreplog.LockedError):
                await aio.open_log("/log", disk=disk)
            with pytest.raises(TypeError):
                await log.append("text")  # type: ignore[call-overload]
            with pytest.raises(pyreplog.MessageTooLargeError):
                await log.append(bytes(2 << 20))
            disk.fail("sync", "*.log", times=None)
            with pytest.raises(pyreplog.StorageError):
                await log.append(b"x")
            disk.clear_faults()
            with pytest.raises(pyreplog.ClosedError):
                await log.append(b"y")
            with pytest.raises(pyreplog.ClosedError):
                await listed(log.follow())
        with pytest.raises(pyreplog.StorageError):
            await aio.open_log("/nothing", "r", disk=disk)

    asyncio.run(main())


def test_the_bound_of_many(tmp_path: Path, disk: SlowDisk, run: Callable[[Main], None]) -> None:
    """Each waits for room as long as it may since it began, not anew when those before it have given up."""

    async def main() -> None:
        disk.calls = ("sync",)
        async with aio.open_log(tmp_path / "log", disk=disk, buffer_memory=4096, max_block_ms=500) as log:
            disk.gate.clear()
            await log.append_nowait(bytes(5000))
            calls = [log.append_nowait(b"x") for _ in range(30)] + [log.append_many([b"x"]) for _ in range(30)]
            met = await asyncio.gather(
                *calls, return_exceptions=True
            )  # 30 s where each began with its turn: longer than `run` allows
            assert {type(error) for error in met} == {pyreplog.BufferExhaustedError}
            disk.gate.set()
            assert await log.append(b"room") == 1

    run(main)


def test_a_flush_holds_up_no_append(tmp_path: Path, disk: SlowDisk, run: Callable[[Main], None]) -> None:
    """Who does not wait for the disk does not wait for somebody else's flush; and that covers what was appended
    before it."""

    async def main() -> None:
        disk.calls = ("sync",)
        async with aio.open_log(tmp_path / "log", disk=disk) as log:
            disk.gate.clear()
            before = asyncio.create_task(log.append_many([b"0", b"1"], wait=False))  # in a thread
            await asyncio.sleep(0)
            flushing = asyncio.create_task(log.flush())
            assert await asyncio.to_thread(disk.entered.wait, FOREVER)
            ack = await log.append_nowait(b"2")
            assert not flushing.done()
            disk.gate.set()
            await flushing
            assert (await before).done()
            assert (await ack).offset == 2

    run(main)


def test_a_flush_that_a_close_overtakes_is_that(tmp_path: Path, run: Callable[[Main], None]) -> None:
    """It was called before, waits for an append that is not written yet, and hears of success; one that is called
    after is refused."""

    async def main() -> None:
        log = await aio.open_log(tmp_path / "log")
        before = asyncio.create_task(log.append_many([b"0", b"1"], wait=False))  # in a thread
        await asyncio.sleep(0)
        flushing = asyncio.create_task(log.flush())
        await asyncio.sleep(0)
        await log.close()
        await flushing
        assert (await before).done()
        with pytest.raises(pyreplog.ClosedError):
            await log.flush()

    run(main)


def test_what_is_closed_is_named(run: Callable[[Main], None]) -> None:
    """By every call."""

    async def main() -> None:
        log = await aio.open_log("/events", disk=SimDisk())
        await log.close()
        for call in (
            log.append(b"x"),
            log.flush(),
            log.delete_records(),
            log.apply_retention(),
            log.scan(),
            log.seek(0),
            log.stats(),
        ):
            with pytest.raises(pyreplog.ClosedError, match="events' is closed$"):
                await call

    run(main)


def test_what_is_sound_comes_before_what_is_damaged(tmp_path: Path) -> None:
    """Every record that the blocking face gives before it raises."""
    path = tmp_path / "log"
    with pyreplog.open_log(path) as log:
        for first in range(0, 30, 10):
            log.append_many([b"%d" % number for number in range(first, first + 10)])
    (segment,) = path.glob("log-0/*.log")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)

    async def main() -> None:
        async with aio.open_log(path, "r") as log:
            for records in (log.read(5), log.follow(5), log):
                offsets: list[int] = []
                with pytest.raises(pyreplog.CorruptLogError):
                    async for record in records:
                        offsets.append(record.offset)
                assert offsets == list(range(0 if records is log else 5, 20))
            assert log.position == 20

    asyncio.run(main())


def test_cancelling_an_opening(tmp_path: Path) -> None:
    """A log whose opening was cancelled is not left open: it can be opened again."""

    async def main() -> None:
        for turn in range(5):

            async def opening() -> None:
                await aio.open_log(tmp_path / "log")

            task = asyncio.create_task(opening())
            for _ in range(turn):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            while True:
                try:
                    async with aio.open_log(tmp_path / "log") as log:
                        await log.append(b"x")
                    break
                except pyreplog.LockedError:  # the cancelled one is being closed
                    await asyncio.sleep(0.001)

    asyncio.run(main())


@pytest.mark.parametrize("at", ["opening", "acquiring"])
def test_what_nobody_waits_for_is_released_without_a_loop(at: str) -> None:
    """Where an opening, or what a reading thread makes, is cancelled because its event loop ends: a thread sees to
    it by then."""
    begun, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    class Opened:
        def close(self) -> None:
            closed.set()

    def open_it() -> Opened:
        begun.set()
        assert go_on.wait(FOREVER)
        return Opened()

    async def main() -> None:
        if at == "opening":
            opening: Opening[Any] = Opening("test", lambda opened, calls: opened, open_it)
            task = asyncio.ensure_future(opening.__aenter__())
        else:
            task = asyncio.ensure_future(ThreadCalls("test").acquire(open_it, Opened.close))
        await asyncio.sleep(0)
        while not begun.is_set():
            await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(main())
    go_on.set()
    assert closed.wait(10.0)


class Struck(BaseException):
    """Raised by a signal handler."""


@pytest.mark.parametrize("at", ["opening", "acquiring"])
def test_what_a_handler_leaves_to_nobody_is_released(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises when a thread has the call already, and who waits has not got hold of it yet: that thread sees to
    what it makes."""
    submit, closed = _LazyExecutor.submit, threading.Event()

    class Opened:
        def close(self) -> None:
            closed.set()

    def strike(crew: _LazyExecutor, call: Callable[[], Any]) -> Any:
        submit(crew, call)
        raise Struck

    async def main() -> None:
        monkeypatch.setattr(_LazyExecutor, "submit", strike)
        with pytest.raises(Struck):
            if at == "opening":
                await Opening("test", lambda opened, calls: opened, Opened)
            else:
                await ThreadCalls("test").acquire(Opened, Opened.close)
        monkeypatch.undo()

    asyncio.run(main())
    assert closed.wait(10.0)


def test_a_forked_child(tmp_path: Path) -> None:
    """In the child of a fork every use is a ForkedError at once, not a wait for threads that are not there."""
    code = """
import asyncio, os, sys, pyreplog
from pyreplog import aio
async def main():
    log = await aio.open_log(sys.argv[1])
    await log.append(b"parent")
    return log
async def child(log):
    for use in (
        lambda: log.append(b"child"), lambda: log.append_many([b"child"]),
        lambda: log.flush(), lambda: log.stats(),
    ):
        try:
            await use()
        except pyreplog.ForkedError:
            continue
        os._exit(1)
with asyncio.Runner() as runner:
    log = runner.run(main())
    pid = os.fork()
    if not pid:
        asyncio.new_event_loop().run_until_complete(child(log))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    runner.run(log.append(b"again"))
    runner.run(log.close())
with pyreplog.open_log(sys.argv[1], "r") as reader:
    assert [record.value for record in reader] == [b"parent", b"again"]
"""
    subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, str(tmp_path / "log")], check=True, timeout=60
    )


def test_appends_keep_the_order_in_which_they_were_begun(run: Callable[[Main], None]) -> None:
    """One that needs no thread stands behind those that wait for theirs."""

    async def main() -> None:
        gate = threading.Event()
        async with aio.open_log("/log", disk=SimDisk()) as log:
            blocker = asyncio.ensure_future(log._calls.write(gate.wait, FOREVER))
            await asyncio.sleep(0)
            many = asyncio.ensure_future(log.append_many([b"a", b"b"]))
            await asyncio.sleep(0)
            one = asyncio.ensure_future(log.append(b"c"))
            await asyncio.sleep(0)
            gate.set()
            await blocker
            assert await many == range(2)
            assert await one == 2

    run(main)


def test_many_that_the_disk_takes_in_part(run: Callable[[Main], None]) -> None:
    """Who waits for all hears of those that are not there, though the first are."""

    async def main() -> None:
        disk = SimDisk()
        async with aio.open_log("/log", disk=disk, config={"max.message.bytes": 200}) as log:
            disk.fail("write", "*.log", nth=2, error=28)
            with pytest.raises(pyreplog.StorageError):
                await log.append_many([bytes(100)] * 3)

    run(main)


def test_where_a_loop_goes_on(run: Callable[[Main], None]) -> None:
    """At the end, though the last offsets hold no record; and not before what retention left."""

    async def main() -> None:
        builder = BatchBuilder()
        builder.append(b"\0\0\0\0", b"\0\0\0\2", (), 1)
        config = {"segment.bytes": 16384, "retention.bytes": 32768}
        async with aio.open_log("/log", disk=SimDisk(), durability="os", config=config) as log:
            assert log._log._writer is not None
            log._log._writer._background.stop()
            await log.append_many([b"x"])
            log._log._writer.append_batch(builder.finish(control=True))
            assert await listed(log) == [b"x"]
            assert log.position == 2
            await log.seek(0)
            for _ in range(20):
                await log.append_many([bytes(10_000)])
            assert await log.apply_retention() > 0
            assert log.position == await log.start_offset > 2
        with pytest.raises(pyreplog.ClosedError):
            await log._calls.read(lambda: None)

    run(main)
