"""The end of a cluster, with threads that have not heard of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import pyreplog
from pyreplog.errors import ClosedError, OutcomeUnknownError

PATIENCE_S = 30.0


def test_a_node_of_a_closed_cluster_stays_down(tmp_path: Path) -> None:
    """``restart`` after ``close`` is a ClosedError and takes no lock; ``kill`` is harmless; the folder can be opened again."""
    cluster = pyreplog.Cluster(tmp_path / "data")
    node = cluster.nodes[0]
    cluster.close()
    with pytest.raises(ClosedError):
        node.restart()
    node.kill()
    assert not node.alive
    with pyreplog.Cluster(tmp_path / "data") as again:
        assert all(node.ready for node in again.nodes)


def test_closing_under_senders_readers_and_restarts(tmp_path: Path) -> None:
    """Threads that send, wait for records, and restart nodes while the cluster is closed get an answer or ClosedError, and none hangs."""
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
