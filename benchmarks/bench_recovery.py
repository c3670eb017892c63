"""How fast is a log opened that was not closed? Against reading the same bytes and their CRC-32C in C, in as many
threads."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pyreplog._core import crc32c
from pyreplog.config import LogConfig
from pyreplog.log import Log, NewLog, RecoveryContext
from pyreplog.record import BatchBuilder
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.values import TopicPartition

SIZE = int(os.environ.get("BENCH_RECOVERY_BYTES", str(1 << 30)))
SEGMENTS = 8
CHUNK_SIZE = 256 << 10
THREADS = min(os.cpu_count() or 1, SEGMENTS)
REACH = 0.7
TOPIC_ID = "AbCdEfGhIjKlMnOpQrStUw"


@pytest.fixture(scope="module", params=[1000, 10], ids=["1000 records a batch", "10 records a batch"])
def folder(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """A log of values of 100 bytes in several segments, left open; in memory where that is possible, so that it is
    read warm."""
    parent = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    place = tempfile.mkdtemp(dir=parent)
    config = LogConfig(durability="os", segment_bytes=SIZE // SEGMENTS)
    (log,) = Log.create(SystemDisk(), [NewLog(f"{place}/t-0", TopicPartition("t", 0), TOPIC_ID, config)], SystemClock())
    log.become_leader(0)
    log.set_tail_cache_size(0)
    builder = BatchBuilder()
    values = [Random(number).randbytes(100) for number in range(request.param)]
    while log.stats().bytes_appended < SIZE - (1 << 20):
        for _ in range(1000 if request.param < 100 else 10):
            builder.reset()
            builder.extend(values, None, None, None, 1_700_000_000_000, 0)
            log.append_as_leader(builder.finish(), 0, trusted=True)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()
    log.close(clean=False)
    yield f"{place}/t-0", log.end_offset
    shutil.rmtree(place)


def recover(place: tuple[str, int]) -> None:
    """Open it as after a kill."""
    log = Log.open(
        SystemDisk(),
        place[0],
        TopicPartition("t", 0),
        None,
        SystemClock(),
        None,
        RecoveryContext(clean=False, same_boot=True),
    )
    assert log.end_offset == place[1]
    assert log.recovery.scanned_size > SIZE * 0.9
    log.close(clean=False)


def read_and_sum(place: tuple[str, int]) -> None:
    """Every byte of its segments read into a buffer that stays in the cache, and its CRC-32C: what recovery cannot
    do without."""

    def work(path: Path) -> None:
        buffer = memoryview(bytearray(CHUNK_SIZE))
        descriptor = os.open(path, os.O_RDONLY)
        position = 0
        while count := os.preadv(descriptor, [buffer], position):
            crc32c(buffer[:count])
            position += count
        os.close(descriptor)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, sorted(Path(place[0]).glob("*.log"))))


def seconds(work: Callable[[tuple[str, int]], None], place: tuple[str, int]) -> float:
    """How long one turn takes."""
    start = time.perf_counter()
    work(place)
    return time.perf_counter() - start


def test_recover(folder: tuple[str, int], benchmark: Any, request: pytest.FixtureRequest) -> None:
    """In turns, so that a noisy machine disturbs both alike; the best of each counts."""
    rounds = [(seconds(recover, folder), seconds(read_and_sum, folder)) for _ in range(4)]
    ours, bare = (min(one[index] for one in rounds) for index in (0, 1))
    benchmark.extra_info["figures"] = [
        {
            "what": f"recovery of {SIZE / (1 << 30):.1f} GB, {request.node.callspec.id}, {THREADS} threads",
            "measured": f"{SIZE / ours / 1e9:.1f} GB/s",
            "peer": f"read + CRC in C, {SIZE / bare / 1e9:.1f} GB/s",
            "ratio": bare / ours,
            "reach": REACH,
        }
    ]
    benchmark.pedantic(lambda: None, rounds=1)
