"""The cost of unused partitions: many of them, with three replicas each, all in this process. Measured are the
share of one core, the memory, and the times to create them, to close them cleanly, and to start with them again.

``BENCH_PARTITIONS`` changes their number; creating them takes most of the time of this file.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pyreplog

PARTITION_COUNT = int(os.environ.get("BENCH_PARTITIONS", "10000"))
QUIET_S = 3.0
IDLE_S = 10.0


def resident_size() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_idle_partitions(benchmark: Any) -> None:
    """Create them once, then let ten seconds pass without a send or a read."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        with pyreplog.Cluster(Path(folder) / "c", nodes=3) as cluster:
            before = resident_size()
            began = time.perf_counter()
            cluster.admin.create_topic(
                "events", partitions=PARTITION_COUNT, replication_factor=3, config={"durability": "os"}
            )
            made_s = time.perf_counter() - began
            time.sleep(QUIET_S)

            def idle() -> None:
                time.sleep(IDLE_S)

            processor, wall = time.process_time(), time.perf_counter()
            benchmark.pedantic(idle, rounds=1)
            share = (time.process_time() - processor) / (time.perf_counter() - wall) * 100
            size_mb = (resident_size() - before) / 1e6
            began = time.perf_counter()
        closed_s = time.perf_counter() - began
        began = time.perf_counter()
        with pyreplog.Cluster(Path(folder) / "c", nodes=3):
            started_s = time.perf_counter() - began
    what = f"{PARTITION_COUNT} idle partitions, RF 3, one process"
    benchmark.extra_info["figures"] = [
        {
            "what": what,
            "measured": f"{share:.2f} % of a core",
            "peer": "5 %",
            "ratio": round(5 / max(share, 0.01), 3),
            "reach": 1.0,
        },
        {
            "what": what,
            "measured": f"{size_mb:.0f} MB",
            "peer": "100 MB",
            "ratio": round(100 / size_mb, 3),
            "reach": 1.0,
        },
        {"what": what, "measured": f"made in {made_s:.1f} s", "peer": "", "ratio": ""},
        {
            "what": what,
            "measured": f"closed in {closed_s:.1f} s, started again in {started_s:.1f} s",
            "peer": "",
            "ratio": "",
        },
    ]
