"""The queue for coroutines: the same records, without a blocked loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from pyreplog import aio
from pyreplog.errors import ClosedError, InvalidRecordStateError
from pyreplog.runtime import follow, queue


def running(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """Run a test in an event loop."""

    @wraps(test)
    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    return run


@running
async def test_tasks_share_a_queue(tmp_path: Path) -> None:
    """Each record goes to one of the tasks of two workers, and is accepted once."""
    async with aio.open_log(tmp_path / "log", durability="sync") as log:
        await log.append_many([b"%d" % number for number in range(60)])
        done: list[int] = []

        async def work(queue: aio.Queue) -> None:
            while (record := await queue.receive()) is not None:
                await queue.accept(record)
                done.append(record.offset)

        async with log.queue("work") as first, log.queue("work") as second:
            await asyncio.gather(*[work(queue) for queue in (first, second) for _ in range(3)])
            assert sorted(done) == list(range(60))
            assert (await first.stats()).accepted == 60
            assert first.name == "work"


@running
async def test_a_waiting_task_gets_a_record_of_this_process_and_of_a_release(tmp_path: Path) -> None:
    """The wait blocks neither the loop nor the other calls; a renewed and rejected record is a dead letter."""
    async with aio.open_log(tmp_path / "log", durability="os") as log:
        queue = await log.queue("work")
        assert await queue.receive(timeout=0.01) is None
        waiting = asyncio.create_task(queue.receive(timeout=30))
        while not queue._queue._waiting:
            await asyncio.sleep(0)
        await log.append(b"a")
        record = await waiting
        assert record is not None
        await queue.renew(record)
        await queue.release(record)
        (again,) = await queue.receive_many(5, timeout=None)
        assert again.delivery_count == 2
        with pytest.raises(InvalidRecordStateError):
            await queue.accept(record)
        await queue.reject(again, "enough")
        assert (await queue.stats()).dead_letters == 1
        await queue.close()
        await queue.close()
        assert queue.closed
        with pytest.raises(ClosedError):
            await queue.receive()


def test_a_release_by_another_worker_wakes_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of another opening, as of another process; the task does not look from time to time here."""
    monkeypatch.setattr(queue, "PAUSE_S", 1000.0)
    monkeypatch.setattr(follow, "WATCHED_PAUSE_S", 1000.0)

    async def main(mode: Any) -> None:
        async with aio.open_log(tmp_path / mode, durability="os") as log:
            await log.append(b"a")
            async with await aio.open_log(tmp_path / mode, "r") as beside, beside.queue("work") as other:
                record = await other.receive()
                assert record is not None
                async with (log if mode == "a" else beside).queue("work") as waiting:
                    task = asyncio.create_task(waiting.receive(timeout=100))
                    while not waiting._queue._waiting:
                        await asyncio.sleep(0.001)
                    await other.release(record)
                    again = await asyncio.wait_for(task, 20)
                    assert again is not None
                    assert again.delivery_count == 2

    for mode in ("a", "r"):
        asyncio.run(main(mode))


@running
async def test_a_cancelled_receive_loses_no_record(tmp_path: Path) -> None:
    """Whatever it had acquired is available again, for this worker and for others."""
    async with aio.open_log(tmp_path / "log", durability="os") as log, log.queue("work") as queue:
        for number in range(20):
            task = asyncio.create_task(queue.receive(timeout=30))
            for _ in range(number):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await log.append(b"a")
        taken = []
        for number in (0, 1, 3):
            task = asyncio.create_task(queue.receive(timeout=30))
            for _ in range(number):
                await asyncio.sleep(0)
            task.cancel()
            try:
                taken.append(await task)
            except asyncio.CancelledError:
                continue
            break
        record = taken[0] if taken else await queue.receive(timeout=30)
        assert record is not None
        await queue.accept(record)
        assert (await queue.stats())[:4] == (1, 0, 0, 1)


@running
async def test_accepts_at_the_same_time_are_one_write_and_each_has_its_own_answer(tmp_path: Path) -> None:
    """A record that is not the worker's any more fails its own call, and no other; a cancelled wait undoes nothing."""
    async with aio.open_log(tmp_path / "log", durability="sync") as log, log.queue("work") as queue:
        await log.append_many([b"%d" % number for number in range(50)])
        records = await queue.receive_many(50)
        before = queue._queue._worker._journal.append_count
        await queue.accept(records[0])
        await asyncio.gather(*[queue.accept(record) for record in records[1:41]])
        assert queue._queue._worker._journal.append_count - before < 10
        calls = [queue.accept(records[number]) for number in (0, 41, 42, 42, 43)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer) for answer in answers] == [
            InvalidRecordStateError, type(None), type(None), InvalidRecordStateError, type(None),
        ]  # fmt: skip
        with pytest.raises(TypeError):
            await queue.accept([b"bytes"])  # type: ignore[list-item]
        waiting = [asyncio.create_task(queue.accept(record)) for record in records[44:46]]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await queue.accept(records[46:])
        assert (await queue.stats()).accepted == 50


@running
async def test_closing_the_log_closes_its_queues(tmp_path: Path) -> None:
    """Each call of theirs says so then."""
    log = await aio.open_log(tmp_path / "log", durability="os")
    queue = await log.queue("work")
    await log.close()
    assert queue.closed
    with pytest.raises(ClosedError):
        await queue.receive()
    with pytest.raises(ClosedError):
        log.queue("work")
    await queue.close()
