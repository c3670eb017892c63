"""How fast does a root with ten thousand partitions open? After a clean stop, against reading every partition's
folder."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pyreplog.config import LogConfig
from pyreplog.log import LogRoot
from pyreplog.record import BatchBuilder
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.values import TopicPartition

COUNT = int(os.environ.get("BENCH_PARTITIONS", "10000"))
SECONDS_REACH = 1.0
RATIO_REACH = 10.0
TOPIC_ID = "AbCdEfGhIjKlMnOpQrStUw"


@pytest.fixture(scope="module")
def root() -> Iterator[str]:
    """A root of many partitions with a few records each, closed in order; in memory where that is possible."""
    parent = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    folder = tempfile.mkdtemp(dir=parent)
    path = f"{folder}/root"
    made = LogRoot.open(SystemDisk(), path, clock=SystemClock(), random=Random(1))
    for number in range(COUNT):
        log = made.create_log(f"topic-{number // 100}", number % 100, TOPIC_ID, LogConfig(durability="os"))
        log.set_tail_cache_size(0)
        log.become_leader(0)
        builder = BatchBuilder()
        for _ in range(5):
            builder.append(b"x" * 100, None, (), 1_700_000_000_000)
        log.append_as_leader(builder.finish(), 0, trusted=True)
        log.advance_high_watermark(5)
    made.close()
    yield path
    shutil.rmtree(folder)


def opened(path: str, *, lazy: bool) -> tuple[float, int, int]:
    """Seconds until every partition is there; the sum of their ends, which both ways must give; how many were
    opened for it."""
    start = time.perf_counter()
    found = LogRoot.open(SystemDisk(), path, clock=SystemClock(), random=Random(2), lazy=lazy)
    seconds = time.perf_counter() - start
    assert len(found.logs) == COUNT
    count = len(found.logs.opened())
    ends = 0
    for key in found.logs:
        summary = found.logs.summary(key)
        ends += found.logs[key].end_offset if summary is None else summary.end_offset
    found.close()
    return seconds, ends, count


def test_open_a_root(root: str, benchmark: Any) -> None:
    """Clean open by the summary, and by the folders."""
    by_folder = opened(root, lazy=False)
    by_summary = min(opened(root, lazy=True) for _ in range(3))
    assert by_folder[1] == by_summary[1] == 5 * COUNT
    assert (by_folder[2], by_summary[2]) == (COUNT, 0)
    found = LogRoot.open(SystemDisk(), root, clock=SystemClock(), random=Random(3), lazy=True)
    start = time.perf_counter()
    assert found.logs[TopicPartition("topic-7", 7)].end_offset == 5
    first_use = time.perf_counter() - start
    found.close()
    benchmark.extra_info["figures"] = [
        {
            "what": f"clean open of a root with {COUNT:,} partitions",
            "measured": f"{by_summary[0]:.2f} s (first use of one: {first_use * 1e3:.1f} ms)",
            "peer": "seconds allowed",
            "ratio": SECONDS_REACH / by_summary[0],
            "reach": 1.0,
        },
        {
            "what": f"clean open of a root with {COUNT:,} partitions",
            "measured": f"{by_summary[0]:.2f} s",
            "peer": f"reading every folder, {by_folder[0]:.1f} s",
            "ratio": by_folder[0] / by_summary[0],
            "reach": RATIO_REACH,
        },
    ]
    benchmark.pedantic(lambda: None, rounds=1)
