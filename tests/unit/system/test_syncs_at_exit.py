"""An interpreter that ends starts no thread any more (from Python 3.12 on): what is asked for then is done by
whoever asks."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pyreplog.errors import NoThreadError
from pyreplog.runtime.background import Background
from pyreplog.system import SyncBatcher, SystemDisk
from pyreplog.system.sync_pool import Loan, SyncPool


@pytest.fixture(autouse=True)
def _ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.parametrize("way", ["at once", "begin", "stop", "take_back", "end_lent"])
def test_a_sync_is_made_by_who_asks(tmp_path: Path, way: str) -> None:
    """Whether it was to be begun at once, was held back, or lent to somebody who gives it back or is done with
    something else."""
    held: list[SyncPool] = []
    pool = SyncPool(None if way == "at once" else held)
    file = SystemDisk().create(f"{tmp_path}/file")
    file.write_at(0, [b"x"])
    woken: list[int] = []
    token = pool.submit([file], lambda: woken.append(1))
    if way in ("begin", "stop"):
        assert not pool.take()
        getattr(pool, way)()
    elif way != "at once":
        loans: list[Loan] = []
        pool.lend(loans)
        ((_, lent),) = loans
        if way == "end_lent":
            pool.submit([file], lambda: woken.append(2))  # waits for that one to end
        held.remove(pool)
        if way == "end_lent":
            pool.end_lent(lent, [0])
        else:
            pool.take_back(lent)
    done = pool.take()
    assert done[0].token == token
    assert all(one.error is None for one in done)
    assert woken == list(range(1, 1 + len(done)))
    assert len(done) == (2 if way == "end_lent" else 1)
    file.close()


def test_an_errand_is_done_by_who_asks() -> None:
    """It may use the pool."""
    pool = SyncPool()
    done: list[int] = []
    pool.employ(lambda: done.append(pool.calls))
    assert done == [0]


def test_what_needs_a_thread_of_its_own_is_refused() -> None:
    """With the error for a thread that is not to be had."""
    with pytest.raises(NoThreadError):
        Background("nobody", lambda: None).start()


def test_a_pool_that_ends_needs_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none is to be had, as where the interpreter ends."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    pool = SyncPool(SyncBatcher().pools)
    files = [SystemDisk().create(f"{tmp_path}/{number}") for number in range(2)]
    for file in files:
        file.write_at(0, [b"x"])
        pool.submit([file], lambda: None)
    pool.stop()
    assert [one.error for one in pool.take()] == [None, None]
    for file in files:
        file.close()
