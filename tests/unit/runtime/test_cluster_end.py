"""The end of a cluster, with threads that have not heard of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import pyreplog
from pyreplog.errors import ClosedError, OutcomeUnknownError
from pyreplog.runtime.at_exit import remembered
from pyreplog.runtime.driver import Driver
from tests.unit.runtime.interrupt_injection import Strike, Struck, struck

PATIENCE_S = 30.0


def test_a_node_of_a_closed_cluster_stays_down(tmp_path: Path) -> None:
    """``restart`` after ``close`` is a ClosedError and takes no lock; ``kill`` is harmless; the folder can be
    opened again."""
    cluster = pyreplog.Cluster(tmp_path / "data")
    node = cluster.nodes[0]
    cluster.close()
    with pytest.raises(ClosedError):
        node.restart()
    node.kill()
    assert not node.alive
    with pyreplog.Cluster(tmp_path / "data") as again:
        assert all(node.ready for node in again.nodes)


def test_producers_share_what_a_close_may_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, who closes the cluster waits for all of them no longer than it said."""
    cluster = pyreplog.Cluster(tmp_path / "data", nodes=1)
    producers = [cluster.producer() for _ in range(4)]
    now_ns = 0
    given: list[float | None] = []

    def close(self: pyreplog.Producer, timeout: float | None = None) -> None:
        nonlocal now_ns
        given.append(timeout)
        now_ns += 400_000_000
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(pyreplog.Producer, "close", close)
        patched.setattr(Driver, "monotonic_ns", lambda driver: now_ns)
        cluster._clients.close(1.0)
        cluster._clients.close(None)
    assert given == [pytest.approx(1.0), pytest.approx(0.6), pytest.approx(0.2), 0.0] + [None] * 4
    del producers
    cluster.close()


def test_closing_under_senders_readers_and_restarts(tmp_path: Path) -> None:
    """Threads that send, wait for records, and restart nodes while the cluster is closed get an answer or
    ClosedError, and none hangs."""
    acknowledged: dict[int, bytes] = {}
    failures: list[BaseException] = []
    begun = threading.Semaphore(0)
    cluster = pyreplog.Cluster(tmp_path / "data")
    cluster.admin.create_topic("events", config={"durability": "os"})

    def send() -> None:
        producer = cluster.producer()
        for number in range(1_000_000):
            value = b"%d-%d" % (threading.get_ident(), number)
            try:
                acknowledged[producer.send("events", value).result(PATIENCE_S).offset] = value
            except OutcomeUnknownError:
                continue
            begun.release()

    def read() -> None:
        consumer = cluster.consumer("events")
        while True:
            consumer.poll(None)
            begun.release()

    def restart() -> None:
        for number in range(1_000_000):
            cluster.nodes[number % 3].restart()
            begun.release()

    def run(act: object) -> None:
        try:
            assert callable(act)
            act()
        except ClosedError:
            pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(act,), daemon=True) for act in (send, send, send, read, restart)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        assert begun.acquire(timeout=PATIENCE_S)
    cluster.close()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert not failures
    with pyreplog.Cluster(tmp_path / "data") as again, again.consumer("events") as consumer:
        found = {record.offset: record.value for record in consumer.until_end()}
    assert acknowledged.items() <= found.items()


# ------------------------------------------------------------------------------------ interruptions


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged: a handler of the tests must not be struck."""
    caplog.set_level(logging.CRITICAL + 1, "pyreplog")


def moments(use: Callable[[], object], count: int) -> list[int]:
    """Some points of ``use`` at which to strike, from the first to the last."""
    never = Strike(1 << 60)
    assert not struck(never, use)
    total = (1 << 60) - never.left
    return sorted(Random(1).sample(range(1, total), min(count, total - 1)))


@pytest.mark.usefixtures("quiet")
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # where the interpreter closes a generator it cannot raise
@pytest.mark.parametrize("again", [0, 2])
def test_an_interrupted_close_leaves_nothing_locked(tmp_path: Path, again: int) -> None:
    """Wherever a handler raises while a cluster is closed, its folder is released; where it raises again and again,
    by the next call."""
    path = tmp_path / "data"
    with pyreplog.Cluster(path, 1) as cluster:
        cluster.admin.create_topic("events", config={"durability": "os"})

    def opened() -> pyreplog.Cluster:
        cluster = pyreplog.Cluster(path)
        cluster.producer().send("events", b"v").result(PATIENCE_S)
        cluster.consumer("events")
        return cluster

    sent = 0
    for moment in moments(opened().close, 30):
        sent += 1
        cluster = opened()
        struck(Strike(moment, again, 40), cluster.close)
        if again or not cluster.closed:  # it may strike before anything is done
            cluster.close()
        assert cluster not in remembered()
    with pyreplog.Cluster(path) as cluster, cluster.consumer("events") as consumer:
        assert [record.offset for record in consumer.until_end()] == list(range(sent + 1))


@pytest.mark.usefixtures("quiet")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as above
def test_an_interrupted_opening_leaves_nothing_locked(tmp_path: Path) -> None:
    """Wherever a handler raises while a cluster is opened, its folder and its threads are given up."""
    path = tmp_path / "data"
    before = len(remembered())

    def opened() -> pyreplog.Cluster:
        cluster = pyreplog.Cluster(path, 1)
        opened_by.append(cluster)
        return cluster

    opened_by: list[pyreplog.Cluster] = []
    with opened() as cluster:
        cluster.admin.create_topic("events", config={"durability": "os"})
    points = moments(opened, 30)
    opened_by.pop().close()
    for moment in points:
        opened_by.clear()
        struck(Strike(moment), opened)
        for cluster in opened_by:
            cluster.close()
        assert len(remembered()) == before
        # One whose start was interrupted is listed by Python, and does not run.
        assert not [thread for thread in threading.enumerate() if str(path) in thread.name and thread.is_alive()]
        pyreplog.Cluster(path).close()


@pytest.mark.parametrize("step", ["cluster.refuse_unfinished", "clients.Admin", "cluster.remember"])
def test_an_opening_interrupted_at_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """From the lock on, to the last step: the folder is free again."""

    def strike(*_: object) -> None:
        raise Struck

    monkeypatch.setattr(f"pyreplog.runtime.{step}", strike)
    with pytest.raises(Struck):
        pyreplog.Cluster(tmp_path / "data", 1)
    monkeypatch.undo()
    pyreplog.Cluster(tmp_path / "data").close()


def test_who_closes_second_waits_for_the_first(tmp_path: Path) -> None:
    """A cluster that is being closed by another thread is closed when ``close`` returns."""
    cluster = pyreplog.Cluster(tmp_path / "data", 1)
    node = cluster.nodes[0]
    begun, go_on = threading.Event(), threading.Event()
    end = node._close

    def close_slowly() -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        end()

    node._close = close_slowly  # type: ignore[method-assign]
    first = threading.Thread(target=cluster.close, daemon=True)
    first.start()
    assert begun.wait(PATIENCE_S)
    found: list[bool] = []

    def close_too() -> None:
        cluster.close()
        found.append(node.alive)

    second = threading.Thread(target=close_too, daemon=True)
    second.start()
    second.join(0.1)  # it would be through by now
    go_on.set()
    for thread in (first, second):
        thread.join(PATIENCE_S)
    assert found == [False]


def test_a_handler_may_close_what_its_thread_is_closing(tmp_path: Path) -> None:
    """A signal handler that calls ``close`` within ``close`` comes back, and the closing goes on."""
    cluster = pyreplog.Cluster(tmp_path / "data", 1)
    node = cluster.nodes[0]
    end = node._close

    def close_within() -> None:
        cluster.close()
        end()

    node._close = close_within  # type: ignore[method-assign]
    cluster.close()
    pyreplog.Cluster(tmp_path / "data").close()
