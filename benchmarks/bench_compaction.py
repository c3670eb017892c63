"""How fast is a pass of compaction? Against reading the same bytes and writing those that are left, with bare system
calls."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.conftest import Peer
from pyreplog.config import LogConfig
from pyreplog.log import Cleaner, Log, NewLog
from pyreplog.record import BatchBuilder
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.values import TopicPartition

SIZE = int(os.environ.get("BENCH_COMPACTION_BYTES", str(128 << 20)))
SEGMENTS = 4
CHUNK_SIZE = 1 << 20
REACH = 0.5
TOPIC_ID = "AbCdEfGhIjKlMnOpQrStUw"


@pytest.fixture(scope="module", params=[100, 1], ids=["100 records a batch", "1 record a batch"])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    """A log of values of 1 KB, of which every other one is replaced later; in memory where that is possible."""
    parent = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    place = tempfile.mkdtemp(dir=parent)
    config = LogConfig(durability="os", segment_bytes=SIZE // SEGMENTS, cleanup_policy="compact")
    (made,) = Log.create(
        SystemDisk(), [NewLog(f"{place}/t-0", TopicPartition("t", 0), TOPIC_ID, config)], SystemClock()
    )
    made.become_leader(0)
    made.set_tail_cache_size(0)
    builder, number = BatchBuilder(), 0
    values = [Random(one).randbytes(1000) for one in range(request.param)]
    while made.stats().bytes_appended < SIZE:
        builder.reset()
        keys = [b"key %d" % (one if one % 2 else one % 1000) for one in range(number, number + request.param)]
        builder.extend(values, keys, None, None, 1_700_000_000_000, 0)
        made.append_as_leader(builder.finish(), 0)
        number += request.param
    made.advance_high_watermark(made.end_offset)
    made.close_active_segment()
    yield made
    made.close(clean=False)
    shutil.rmtree(place)


def clean(log: Log) -> int:
    """One pass, whose new segments are thrown away. Returns their size."""
    cleaner = Cleaner(log.disk, log.cleaning_plan(1_700_000_000_000), bytes(16), lambda: None)
    for group in cleaner.plan.groups(cleaner.map_keys()):
        log.discard(cleaner.clean(group))
    return cleaner.result().bytes_written


def copy(log: Log, left: int) -> None:
    """Read every segment and write ``left`` bytes."""
    buffer = memoryview(bytearray(CHUNK_SIZE))
    target = Path(log.directory, "copy")
    written = 0
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for path in sorted(Path(log.directory).glob("*.log")):
        source = os.open(path, os.O_RDONLY)
        while size := os.readv(source, [buffer]):
            take = min(size, left - written)
            os.write(out, buffer[:take])
            written += take
        os.close(source)
    os.close(out)
    target.unlink()


def test_cleaner(duel: Any, log: Log) -> None:
    """Map, copy, indexes, gaps and checks of all segments."""
    left = clean(log)
    count = sum(size for _, size in log.segments())
    duel(
        "a pass of compaction",
        lambda: clean(log),
        [Peer("read and write of the same bytes", lambda: copy(log, left), reach=REACH)],
        count=count,
        unit="bytes",
        rounds=5,
    )
