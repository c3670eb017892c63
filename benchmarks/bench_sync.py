"""How fast is appending that waits for the disk? Against writing and syncing the same bytes bare, a synced LMDB,
and one thread alone."""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import lmdb
import pytest

import pyreplog
from benchmarks.bench_log import BATCH_COUNT, Bare, Ours, WithLmdb, batch_size, payloads
from benchmarks.conftest import Duel, Peer
from pyreplog.system.file import SystemFile

CALLS = 20
THREADS = 16
APPENDS = 40
"""Per thread."""
SLOW_DISK_S = 0.0005
"""From here on, sixteen threads that share their syncs should be eight times as fast as one."""


class OursSynced(Ours):
    """A log with durability "sync"."""

    def open(self) -> None:
        """A new log."""
        self.log = pyreplog.open_log(self.next() / "events")


class BareSynced(Bare):
    """As :class:`Bare`, and each write waits for the disk."""

    def run(self) -> None:
        """Write and sync."""
        size = len(self.data)
        for position in range(0, self.calls * size, size):
            os.pwrite(self.file, self.data, position)
            os.fdatasync(self.file)


class WithLmdbSynced(WithLmdb):
    """As :class:`WithLmdb`, with the sync of its own at each commit."""

    def open(self) -> None:
        """A new environment."""
        self.environment = lmdb.open(str(self.next()), map_size=1 << 32)


@pytest.mark.parametrize("size", [100, 1000], ids=["100B", "1KB"])
def test_append_many_synced(duel: Duel, tmp_path: Path, size: int) -> None:
    """append_many of 1000 records a call, durability "sync": each call returns when the disk has it."""
    values = payloads(size, BATCH_COUNT)
    ours = OursSynced(tmp_path / "log")
    bare = BareSynced(tmp_path / "file", memoryview(bytearray(batch_size(tmp_path, values))), CALLS)
    with_lmdb = WithLmdbSynced(tmp_path / "lmdb", values, CALLS)

    def append() -> None:
        for _ in range(CALLS):
            ours.log.append_many(values)

    peers = [
        Peer("pwrite + fdatasync of the same bytes", bare.run, 0.85, bare.open, bare.close, is_limit=True),
        Peer("LMDB, append, synced", with_lmdb.run, 2.0, with_lmdb.open, with_lmdb.close),
    ]
    duel(
        f"append_many, {size} B x 1000, sync",
        append,
        peers,
        count=CALLS * BATCH_COUNT,
        prepare=ours.open,
        finish=ours.close,
    )


def test_group_commit(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """append from 16 threads, each waiting for its own record: how many share one sync, and how much faster than
    one thread that is."""
    value = payloads(100, 1)[0]
    took: list[float] = []
    alone: list[float] = []
    synced: list[float] = []
    sync = SystemFile.sync
    syncs: list[float] = []

    def counted(file: SystemFile) -> None:
        started = time.perf_counter()
        sync(file)
        syncs.append(time.perf_counter() - started)

    monkeypatch.setattr(SystemFile, "sync", counted)
    ours = OursSynced(tmp_path / "log")

    def one_thread() -> None:
        ours.open()
        started = time.perf_counter()
        for _ in range(APPENDS):
            ours.log.append(value)
        alone.append((time.perf_counter() - started) / APPENDS)
        ours.close()
        ours.open()

    def many_threads() -> None:
        def work() -> None:
            for _ in range(APPENDS):
                ours.log.append(value)

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        before = len(syncs)
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took.append((time.perf_counter() - started) / (THREADS * APPENDS))
        synced.append((len(syncs) - before) / (THREADS * APPENDS))
        assert ours.log.end_offset == THREADS * APPENDS

    benchmark.pedantic(many_threads, setup=one_thread, teardown=ours.close, rounds=5, iterations=1, warmup_rounds=1)
    if benchmark.stats is None:
        return
    shared, speedup, sync_s = (
        statistics.median(synced[1:]),
        statistics.median(alone[1:]) / statistics.median(took[1:]),
        statistics.median(syncs),
    )
    benchmark.extra_info["figures"] = [
        {
            "what": "append, 16 threads, sync",
            "measured": f"{shared:.3f} fsyncs per append",
            "peer": "one fsync each",
            "ratio": round(1 / shared, 3),
            "reach": 8.0,
        },
        {
            "what": "append, 16 threads, sync",
            "measured": f"{1 / statistics.median(took[1:]):.0f} records/s",
            "peer": (
                f"one thread: {1 / statistics.median(alone[1:]):.0f} records/s (one sync here: {sync_s * 1e3:.2f} ms)"
            ),
            "ratio": round(speedup, 3),
            "reach": 8.0 if sync_s >= SLOW_DISK_S else None,
        },
    ]
