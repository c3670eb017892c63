"""How long until a record is acknowledged: by a new cluster, and after its leader died. Against a time: nothing
else does this in one process."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyreplog
from benchmarks.conftest import BENCH_ROUNDS


@contextmanager
def in_memory() -> Iterator[Path]:
    """A folder on tmpfs."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def report(benchmark: Any, what: str, seconds: Sequence[float], reach_ms: float) -> None:
    """One line of the table."""
    median, best, worst = (number * 1e3 for number in (statistics.median(seconds), min(seconds), max(seconds)))
    benchmark.extra_info["figures"] = [
        {
            "what": what,
            "measured": f"{median:.1f} ms (worst {worst:.1f})",
            "peer": f"{reach_ms:.0f} ms",
            "ratio": round(reach_ms / median, 3),
            "best_ratio": round(reach_ms / best, 3),
            "reach": 1.0,
        }
    ]


def test_first_record_of_a_new_cluster(benchmark: Any) -> None:
    """Three nodes started on tmpfs, a topic made, one record acknowledged by all."""
    times = []

    def once() -> None:
        with in_memory() as folder:
            began = time.perf_counter()
            with pyreplog.Cluster(folder / "c", nodes=3) as cluster:
                cluster.admin.create_topic("events", config={"durability": "os"})
                with cluster.producer() as producer:
                    producer.send("events", b"first").result()
                    times.append(time.perf_counter() - began)

    benchmark.pedantic(once, rounds=BENCH_ROUNDS, warmup_rounds=1)
    report(benchmark, "three nodes up on tmpfs, a topic, the first acknowledged record", times[1:] or times, 50)


def test_next_record_after_the_leader_died(benchmark: Any) -> None:
    """The time from the kill of the leader, which the controller notices at once, to the next acknowledged
    record."""
    times = []
    with in_memory() as folder, pyreplog.Cluster(folder / "c", nodes=3) as cluster:
        cluster.admin.create_topic("events", config={"durability": "os"})
        with cluster.producer() as producer:

            def once() -> None:
                producer.send("events", b"before").result()
                leader = cluster.leader("events")
                assert leader is not None
                began = time.perf_counter()
                leader.kill()
                producer.send("events", b"after").result()
                times.append(time.perf_counter() - began)
                leader.restart()
                while len(cluster.admin.describe("events").partitions[0].isr) < 3:
                    time.sleep(0.005)

            benchmark.pedantic(once, rounds=BENCH_ROUNDS, warmup_rounds=1)
    report(benchmark, "leader killed to the next acknowledged record", times[1:] or times, 10)
