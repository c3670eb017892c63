"""What do three replicas cost when each answer waits for three disks? RF 3, acks "all", durability "sync", all in
this process."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pyreplog
from benchmarks.bench_replicate import BATCH_SIZE, IN_FLIGHT, Nodes, fresh_files, one_by_one_us, payloads, per_batch
from benchmarks.conftest import Duel, Peer

BATCH_COUNT = 100
ONE_BY_ONE_COUNT = 100


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[pyreplog.Cluster]:
    """Three nodes, one topic on stable storage."""
    with pyreplog.Cluster(tmp_path / "data", nodes=3) as cluster:
        cluster.admin.create_topic("events", partitions=1, replication_factor=3, config={"durability": "sync"})
        yield cluster


def test_throughput(duel: Duel, tmp_path: Path) -> None:
    """64 KB batches of 100 B records, 16 in flight. The peer writes as much at a time to each of three files,
    synced side by side."""
    values = payloads(1000)
    count = per_batch(values, tmp_path)
    nodes = Nodes(tmp_path / "nodes", "sync", values[:count])
    files = fresh_files(tmp_path / "bare", 3)
    encoded = Random(1).randbytes(BATCH_SIZE)

    def ours() -> None:
        nodes.send(BATCH_COUNT)

    with ThreadPoolExecutor(3) as pool:

        def side_by_side() -> None:
            descriptors = files()
            for first in range(0, BATCH_COUNT, IN_FLIGHT):
                parts = [encoded] * min(IN_FLIGHT, BATCH_COUNT - first)
                for file in descriptors:
                    os.pwritev(file, parts, first * BATCH_SIZE)
                list(pool.map(os.fdatasync, descriptors))
            for file in descriptors:
                os.close(file)

        peer = Peer("the same bytes to three files, 16 batches per fdatasync, synced side by side", side_by_side, 0.7)
        what = "RF 3, acks=all, sync, 64 KB batches, 16 in flight"
        duel(what, ours, [peer], count=BATCH_COUNT * count, prepare=nodes.open, finish=nodes.close)


def test_one_at_a_time(benchmark: Any, cluster: pyreplog.Cluster, tmp_path: Path) -> None:
    """One record at a time, each on three disks before the next: the median of single times, beside three syncs
    issued at once."""
    value = payloads(1)[0]
    producer = cluster.producer()
    files = fresh_files(tmp_path / "bare", 3)
    medians: list[float] = []
    bare_medians: list[float] = []

    with ThreadPoolExecutor(3) as pool:

        def bare() -> None:
            descriptors = files()
            batch, took = bytes(170), []
            for number in range(ONE_BY_ONE_COUNT):
                for file in descriptors:
                    os.pwrite(file, batch, number * len(batch))
                started = time.perf_counter()
                list(pool.map(os.fdatasync, descriptors))
                took.append(time.perf_counter() - started)
            for file in descriptors:
                os.close(file)
            bare_medians.append(statistics.median(took) * 1e6)

        def ours() -> None:
            medians.append(one_by_one_us(producer, value, ONE_BY_ONE_COUNT))

        benchmark.pedantic(ours, setup=bare, rounds=5, iterations=1, warmup_rounds=1)
    if benchmark.stats is None:
        return
    median, bare_median = statistics.median(medians[1:]), statistics.median(bare_medians[1:])
    benchmark.extra_info["figures"] = [
        {
            "what": "RF 3, acks=all, sync, one record at a time, p50",
            "measured": f"{median:.0f} us",
            "peer": f"three fdatasync at once: {bare_median:.0f} us",
            "ratio": round(median / bare_median, 3),
            "reach": 1.5,
            "better": "lower",
        }
    ]
