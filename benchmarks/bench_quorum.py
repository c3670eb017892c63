"""How soon does a cluster that governs itself serve, describe, and decide again? Against times, beside the machine's
fdatasync in the same run.

The times allowed are those at an fdatasync of 0.13 ms. On a slower disk they grow with it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

import pyreplog
from benchmarks.bench_failover import in_memory
from benchmarks.conftest import BENCH_ROUNDS
from pyreplog.controller.active_controller import ActiveController
from pyreplog.controller.quorum_server import QuorumServer

SYNC_S: Final = 0.00013
"""The fdatasync at which the times allowed were set."""
SYNCS: Final = 100
DESCRIPTIONS: Final = 300
PARTITIONS: Final = 3000
LED: Final = PARTITIONS // 3
"""The partitions that each of three nodes leads."""
KILLED: Final = """
import os, sys
import pyreplog
cluster = pyreplog.Cluster(sys.argv[1], nodes=int(sys.argv[2]))
cluster.admin.create_topic("events")
cluster.producer().send("events", b"first").result()
os._exit(0)
"""


def fdatasync_s(folder: Path) -> float:
    """Return the median time of an fdatasync after a write of 200 bytes in ``folder``, in seconds."""
    times = []
    with (folder / "sync").open("wb") as file:
        for _ in range(SYNCS):
            file.write(b"x" * 200)
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    (folder / "sync").unlink()
    return statistics.median(times)


def figure(what: str, seconds: Sequence[float], allowed_s: float, sync_s: float) -> dict[str, Any]:
    """One line of the table; a ratio of 1 and above is reached."""
    median, best, worst = statistics.median(seconds), min(seconds), max(seconds)
    return {
        "what": what,
        "measured": f"{shown(median)} (worst {shown(worst)})",
        "peer": f"allowed: {shown(allowed_s)}, at an fdatasync of {shown(sync_s)}",
        "ratio": round(allowed_s / median, 3),
        "best_ratio": round(allowed_s / best, 3),
        "reach": 1.0,
    }


def shown(seconds: float) -> str:
    """Return a time in ms, or in us below one."""
    return f"{seconds * 1e3:.1f} ms" if seconds >= 0.001 else f"{seconds * 1e6:.0f} us"


def slower(allowed_s: float, syncs: int, sync_s: float) -> float:
    """Return the time allowed on this disk, for work that waits for so many syncs."""
    return allowed_s + syncs * max(0.0, sync_s - SYNC_S)


def timed(benchmark: Any, once: Callable[[], float]) -> list[float]:
    """Call ``once`` several times, and once before to warm up. Return the times of the counted calls, in seconds."""
    times: list[float] = []
    benchmark.pedantic(lambda: times.append(once()), rounds=BENCH_ROUNDS, warmup_rounds=1)
    return times[1:] or times


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """New folders on the disk."""
    return (tmp_path / f"c{number}" for number in range(10**6))


@pytest.mark.parametrize(("nodes", "allowed_s", "syncs"), [(1, 0.0189, 28), (3, 0.0394, 75)])
def test_first_record(
    folders: Iterator[Path], tmp_path: Path, benchmark: Any, nodes: int, allowed_s: float, syncs: int
) -> None:
    """A new cluster on the disk, a topic, one record acknowledged by all: everything durable."""

    def once() -> float:
        began = time.perf_counter()
        with pyreplog.Cluster(next(folders), nodes=nodes) as cluster:
            cluster.admin.create_topic("events")
            with cluster.producer() as producer:
                producer.send("events", b"first").result()
                return time.perf_counter() - began

    sync_s = fdatasync_s(tmp_path)
    what = f"a new cluster of {nodes}, a topic, the first durable record"
    benchmark.extra_info["figures"] = [
        figure(what, timed(benchmark, once), slower(allowed_s, syncs, sync_s), sync_s),
    ]


def test_first_record_after_a_kill(folders: Iterator[Path], tmp_path: Path, benchmark: Any) -> None:
    """A cluster of three whose process was killed is opened again; one record."""

    def once() -> float:
        folder = next(folders)
        subprocess.run([sys.executable, "-c", KILLED, str(folder), "3"], check=True)
        began = time.perf_counter()
        with pyreplog.Cluster(folder) as cluster, cluster.producer() as producer:
            producer.send("events", b"second").result()
            return time.perf_counter() - began

    sync_s = fdatasync_s(tmp_path)
    times = timed(benchmark, once)
    what = "a cluster of three after kill -9: open, the next durable record"
    benchmark.extra_info["figures"] = [figure(what, times, slower(0.0495, 60, sync_s), sync_s)]


@pytest.mark.parametrize("nodes", [1, 3])
def test_description(tmp_path: Path, benchmark: Any, nodes: int) -> None:
    """describe(topic), which the controller answers after it has proved that it still leads."""
    sync_s = fdatasync_s(tmp_path)
    with pyreplog.Cluster(tmp_path / "c", nodes=nodes) as cluster:
        cluster.admin.create_topic("events")

        def once() -> float:
            times = []
            for _ in range(DESCRIPTIONS):
                began = time.perf_counter()
                cluster.admin.describe("events")
                times.append(time.perf_counter() - began)
            return statistics.median(times)

        times = timed(benchmark, once)
    what = f"admin.describe of one topic, {nodes} node{'' if nodes == 1 else 's'}, median"
    benchmark.extra_info["figures"] = [figure(what, times, 0.00015, sync_s)]


def test_next_change_after_the_controller_died(tmp_path: Path, benchmark: Any) -> None:
    """The node of the active controller is killed; the next topic is made by its successor."""
    sync_s = fdatasync_s(tmp_path)
    names = (f"topic-{number}" for number in range(10**6))
    with pyreplog.Cluster(tmp_path / "c", nodes=3) as cluster:

        def once() -> float:
            controller = cluster.controller
            assert controller is not None
            name = next(names)
            began = time.perf_counter()
            controller.kill()
            cluster.admin.create_topic(name)
            took = time.perf_counter() - began
            controller.restart()
            return took

        times = timed(benchmark, once)
    what = "controller killed to the next topic made and served"
    benchmark.extra_info["figures"] = [figure(what, times, max(0.05, 60 * sync_s), sync_s)]


class Watched(ActiveController):
    """Notes when it knows that a broker's fencing is committed."""

    broker_id: ClassVar[int] = -1
    committed_s: ClassVar[float] = 0.0

    def committed(self) -> None:
        """Note the time of the first commit after which the broker is fenced."""
        super().committed()
        broker = self._committed.image.brokers.get(self.broker_id)
        if broker is not None and broker.fenced and not Watched.committed_s:
            Watched.committed_s = time.perf_counter()


def test_a_node_with_many_partitions_is_fenced(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three nodes on tmpfs share the partitions; one is killed, and the others lead all of them."""
    monkeypatch.setattr(QuorumServer, "active_class", Watched)
    committed: list[float] = []
    with in_memory() as folder:
        sync_s = fdatasync_s(folder)
        with pyreplog.Cluster(folder / "c", nodes=3) as cluster:
            cluster.admin.create_topic("events", partitions=PARTITIONS, config={"durability": "os"})
            driver = cluster._driver

            def led(number: int) -> list[int]:
                """The partitions that node ``number`` leads, as each running node knows it."""
                images = [node._node.image for node in cluster.nodes if node._node is not None]
                return [len(list(image.index.leads(number))) for image in images]

            def once() -> float:
                node = next(node for node in cluster.nodes if node is not cluster.controller)
                assert driver.wait_until(lambda: min(led(node.node_id)) >= LED, 60)
                Watched.broker_id, Watched.committed_s = node.node_id, 0.0
                began = time.perf_counter()
                node.kill()
                assert driver.wait_until(lambda: max(led(node.node_id)) == 0, 60)
                took = time.perf_counter() - began
                committed.append(Watched.committed_s - began)
                node.restart()
                cluster.admin.elect_leaders("events", range(PARTITIONS))
                return took

            served = timed(benchmark, once)
    what = f"a node that led {LED:,} of {PARTITIONS:,} partitions killed"
    benchmark.extra_info["figures"] = [
        figure(f"{what}: committed", committed[1:] or committed, 0.06, sync_s),
        figure(f"{what}: led by the others", served, 0.2, sync_s),
    ]
