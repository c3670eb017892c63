"""Calls that threads carry out for an event loop, where threads are not to be had, or nobody waits any more; and
news that wake a loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path

import pytest

import pyreplog
from pyreplog.aio.calls import READERS_MAX, OwnedResult, ThreadCalls, _LazyExecutor
from pyreplog.aio.follow import LoopNews, follow
from pyreplog.runtime import FileWatchSignal
from pyreplog.runtime.follow import WriterSignal
from pyreplog.system import SystemDisk
from tests.unit.runtime.unread_results import UnreadResults

PATIENCE_S = 20.0


def test_one_thread_more_is_not_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that there are carry it out: nobody is told that it never will be."""
    crew = _LazyExecutor(2, "test")
    assert crew.submit(lambda: 1).result(PATIENCE_S) == 1

    def refused() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(crew._pool, "_adjust_thread_count", refused)
    assert crew.submit(lambda: 2).result(PATIENCE_S) == 2
    crew.stop()


def test_what_is_carried_out_is_not_waited_for() -> None:
    """Who comes later goes the short way again."""

    async def main() -> None:
        calls = ThreadCalls("test")
        assert await calls.write(lambda: 1) == 1
        assert calls.waiting_count == 0
        gate = threading.Event()
        begun = calls.begin(gate.wait)
        assert calls.waiting_count == 1
        gate.set()
        assert await begun
        await asyncio.sleep(0)
        assert calls.waiting_count == 0
        calls.stop()

    asyncio.run(main())


def test_what_is_carried_out_at_once_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even until the loop comes round: Python 3.14 gives a future that is done where the thread was quick."""

    async def main() -> None:
        calls = ThreadCalls("test")
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.set_result(1)
        monkeypatch.setattr(calls, "_submit", lambda *_: done)
        assert await calls.write(lambda: 1) == 1
        assert calls.waiting_count == 0
        calls.stop()

    asyncio.run(main())


def test_what_a_cancelled_read_meets_concerns_nobody() -> None:
    """What fails once nobody waits for it is no "exception that was never retrieved"; what was not begun never
    is."""
    told: list[dict[str, object]] = []
    gate, started = threading.Event(), threading.Semaphore(0)
    begun: list[int] = []

    def fail(number: int) -> None:
        begun.append(number)
        started.release()
        assert gate.wait(PATIENCE_S)
        raise pyreplog.ClosedError("closed meanwhile")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        calls = ThreadCalls("test")
        reads = [asyncio.create_task(calls.read(fail, number)) for number in range(READERS_MAX + 1)]
        for _ in range(READERS_MAX):
            assert await asyncio.to_thread(started.acquire, timeout=PATIENCE_S)
        for read in reads:
            read.cancel()
        assert {type(met) for met in await asyncio.gather(*reads, return_exceptions=True)} == {asyncio.CancelledError}
        gate.set()
        with pytest.raises(pyreplog.ClosedError):  # behind them, as they end
            await calls.read(fail, -1)
        calls.stop()
        await asyncio.get_running_loop().run_in_executor(None, calls._reading._pool.shutdown)

    asyncio.run(main())
    gc.collect()
    assert not told
    assert sorted(begun) == [-1, *range(READERS_MAX)]


def test_what_a_cancelled_write_meets_concerns_nobody() -> None:
    """It is carried out; that it fails is no "exception that was never retrieved"."""
    told: list[dict[str, object]] = []
    gate, begun = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        assert gate.wait(PATIENCE_S)
        raise pyreplog.ClosedError("closed meanwhile")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        calls = ThreadCalls("test")
        write = asyncio.create_task(calls.write(fail))
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        write.cancel()
        assert {type(met) for met in await asyncio.gather(write, return_exceptions=True)} == {asyncio.CancelledError}
        gate.set()
        assert await calls.write(lambda: 1) == 1
        calls.stop()

    asyncio.run(main())
    gc.collect()
    assert not told


def test_what_nobody_wants_is_released_after_the_end() -> None:
    """No thread takes it any more, nor anything else."""
    released: list[str] = []

    async def main() -> None:
        calls = ThreadCalls("test")
        gift = OwnedResult(lambda: "made", released.append)
        gift()
        calls.stop()
        calls.drop(asyncio.get_running_loop().create_future(), gift)
        assert released == ["made"]
        calls.dispatch(lambda: released.append("dispatched"))
        assert released == ["made"]

    asyncio.run(main())


def test_a_loop_waits_for_no_file_that_is_closed(tmp_path: Path) -> None:
    """Its number may be another one's by then."""

    async def main() -> None:
        plain = FileWatchSignal(SystemDisk(), [str(tmp_path)])
        assert plain.watch is not None
        number = plain.watch.fileno()
        news = LoopNews(plain)
        news.close()
        assert plain.watch is None
        assert not asyncio.get_running_loop().remove_reader(number)

    asyncio.run(main())


class Script(UnreadResults):
    """It tells of something once."""

    def __init__(self) -> None:
        self.forgotten: list[WriterSignal] = []
        super().__init__(WriterSignal(self.forgotten.append))

    def look(self) -> None:
        """Nothing new; tells of something while the first one looks, as a writer may."""
        if self.looks == 1:
            self._news.wake()


def test_offsets_without_records_are_passed() -> None:
    """They are nothing new; what was told once is looked at once; and the news are given back."""

    async def main() -> None:
        view = Script()
        calls = ThreadCalls("test")
        assert [record async for record in follow(calls, view, 0, 0.1, lambda: False)] == []
        assert 1 < view.looks < 10
        assert view.forgotten == [view._news]
        calls.stop()

    asyncio.run(main())
