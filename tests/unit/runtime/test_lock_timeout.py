"""``lock_timeout``: an opening that waits until another one closes the log, and the error if that does not
happen."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyreplog
import pyreplog.aio

HOLD = """
import pyreplog, sys
held = pyreplog.{face}(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
held.close()
"""
LOG_AND_CLUSTER = pytest.mark.parametrize("face", ["open_log", "Cluster"])


def hold(face: str, path: Path) -> subprocess.Popen[str]:
    """Another process that has ``path`` open until its standard input ends."""
    command = [sys.executable, "-c", HOLD.format(face=face), str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    return holder


def opened(face: str, path: Path, **options: Any) -> Any:
    """A log or a cluster."""
    return getattr(pyreplog, face)(path, **options)


@LOG_AND_CLUSTER
@pytest.mark.parametrize("end", ["close", "kill"])
def test_an_opening_waits_for_another_process(tmp_path: Path, face: str, end: str) -> None:
    """The default is refused at once, with the holder; ``lock_timeout`` waits until the holder closes it, or is
    killed."""
    holder = hold(face, tmp_path / "log")
    try:
        with pytest.raises(pyreplog.LockedError) as caught:
            opened(face, tmp_path / "log")
        assert caught.value.__cause__ is caught.value.__context__ is None
        name = "log" if face == "open_log" else "cluster"
        assert f"the {name} {str(tmp_path / 'log')!r} is already open for writing by pid {holder.pid} on " in str(
            caught.value
        )
        assert "wait for it with lock_timeout=SECONDS" in str(caught.value)
        timer = threading.Timer(0.2, holder.kill if end == "kill" else holder.stdin.close)  # type: ignore[union-attr]
        timer.start()
        opened(face, tmp_path / "log", lock_timeout=60).close()
        timer.join()
    finally:
        holder.kill()
        holder.wait()
        for pipe in (holder.stdin, holder.stdout):
            assert pipe is not None
            pipe.close()


@pytest.mark.parametrize("lock_timeout", [0, 0.01])
def test_a_refusal_leaves_nothing_behind(tmp_path: Path, lock_timeout: float) -> None:
    """The error and the frames that raised it are freed when the caller drops it, without a garbage collection."""
    with pyreplog.open_log(tmp_path / "log"):
        gc.collect()
        gc.disable()
        try:
            try:
                pyreplog.open_log(tmp_path / "log", lock_timeout=lock_timeout)
            except pyreplog.LockedError as error:
                kept = weakref.ref(error)
            assert kept() is None
        finally:
            gc.enable()


@LOG_AND_CLUSTER
def test_the_time_is_over(tmp_path: Path, face: str) -> None:
    """After ``lock_timeout`` the error says how long was waited, has no chained exception, and leaves the holder as
    it was."""
    with opened(face, tmp_path / "log") as first:
        begun = time.monotonic()
        with pytest.raises(
            pyreplog.LockedError, match=r"also after 0\.2 s; .*close the object that has it open"
        ) as caught:
            opened(face, tmp_path / "log", lock_timeout=0.2)
        assert time.monotonic() - begun >= 0.2
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert not first.closed


def test_two_that_wait_both_get_it(tmp_path: Path) -> None:
    """Openings that wait for one log get it one after another, and each appends."""
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"first")
        offsets: list[int] = []

        def wait() -> None:
            with pyreplog.open_log(tmp_path / "log", lock_timeout=None) as mine:
                offsets.append(mine.append(b"next"))

        threads = [threading.Thread(target=wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        log.append(b"second")
    for thread in threads:
        thread.join()
    assert sorted(offsets) == [2, 3]


class Stopped(Exception):
    """Raised by a signal handler."""


@LOG_AND_CLUSTER
def test_a_signal_handler_ends_the_wait(tmp_path: Path, face: str) -> None:
    """What a signal handler raises, as that of Ctrl-C does, ends a wait without an end, and nothing is left
    locked."""

    def stop(number: int, frame: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with opened(face, tmp_path / "log"):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Stopped):
                opened(face, tmp_path / "log", lock_timeout=None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    opened(face, tmp_path / "log").close()


@pytest.mark.parametrize("wrong", [-1, "5", float("nan"), True])
def test_wrong_values(tmp_path: Path, wrong: Any) -> None:
    """What is no number of seconds is refused before anything is made; so is a wait of a reader, which takes no
    lock."""
    for make in (pyreplog.open_log, pyreplog.Cluster):
        with pytest.raises(pyreplog.ConfigError, match="lock_timeout is"):
            make(tmp_path / "log", lock_timeout=wrong)
    with pytest.raises(pyreplog.ConfigError, match="a reader takes the log as it is"):
        pyreplog.open_log(tmp_path / "log", "r", lock_timeout=1)
    with pytest.raises(pyreplog.ConfigError, match="lock_timeout belongs to mode='a'"):
        pyreplog.Cluster(tmp_path / "log", mode="r", lock_timeout=None)  # type: ignore[call-overload]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("face", [pyreplog.aio.open_log, pyreplog.aio.Cluster], ids=["open_log", "Cluster"])
def test_the_loop_goes_on(tmp_path: Path, face: Callable[..., Any]) -> None:
    """While a coroutine waits for a lock the event loop runs; a wait that is cancelled, or over, takes nothing, and
    one that goes on gets it."""

    async def main() -> None:
        first = await face(tmp_path / "log")
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.005)
                turns += 1

        counting = asyncio.create_task(count())
        with pytest.raises(pyreplog.LockedError, match=r"also after 0\.2 s") as caught:
            await face(tmp_path / "log", lock_timeout=0.2)
        assert caught.value.__cause__ is caught.value.__context__ is None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(face(tmp_path / "log", lock_timeout=None), 0.1)
        assert turns >= 10
        waiting = asyncio.ensure_future(face(tmp_path / "log", lock_timeout=None))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await first.close()
        await (await waiting).close()
        counting.cancel()

    asyncio.run(main())


def test_wrong_values_of_coroutines(tmp_path: Path) -> None:
    """They are refused as those of the other face are."""

    async def main() -> None:
        for make in (pyreplog.aio.open_log, pyreplog.aio.Cluster):
            with pytest.raises(pyreplog.ConfigError, match="lock_timeout is"):
                await make(tmp_path / "log", lock_timeout=-1)
        with pytest.raises(pyreplog.ConfigError, match="a reader takes the log as it is"):
            await pyreplog.aio.open_log(tmp_path / "log", "r", lock_timeout=1)

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []
