"""How fast is reading single records, and finding a place? Against a Kafka client's record parser, an LMDB cursor,
and bare reading."""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import crc32c as reference
import lmdb
import pyarrow as pa
import pytest
from aiokafka.record.memory_records import MemoryRecords

import pyreplog
from benchmarks.bench_log import payloads
from benchmarks.conftest import Duel, Peer

PER_BATCH = 1000
BATCH_COUNT = 200
SEEK_COUNT = 2000
SMALL_SIZE = 1 << 20
LARGE_SIZE = int(os.environ.get("BENCH_SEEK_SIZE", str(1 << 30)))
"""Bytes of the large log; ``BENCH_SEEK_SIZE=10000000000`` for the 10 GB of the target."""
STAMP_MS = 1_700_000_000_000
GAP_MS = 10
"""Between two records: so close that a segment is full before ``segment.ms`` is over."""


def log_file(folder: Path) -> Path:
    """The only segment of the only partition."""
    (path,) = folder.glob("*/*.log")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 200,000 records of 100 random bytes in batches of 1000."""
    folder = tmp_path_factory.mktemp("read")
    random = Random(1)
    with pyreplog.open_log(folder, durability="os") as log:
        for _ in range(BATCH_COUNT):
            log.append_many([random.randbytes(100) for _ in range(PER_BATCH)])
    return folder


@pytest.mark.parametrize("look", [False, True], ids=["records", "values"])
def test_iterate_records(duel: Duel, folder: Path, tmp_path: Path, look: bool) -> None:
    """Every record as a Python object, and with its value looked at (ours is made then): checksums checked, as the
    Kafka client does."""
    count = BATCH_COUNT * PER_BATCH
    data = log_file(folder).read_bytes()
    environment = lmdb.open(str(tmp_path / "lmdb"), map_size=1 << 30, sync=False)
    with pyreplog.open_log(folder, "r") as log, environment.begin(write=True) as transaction:
        for record in log:
            transaction.put(record.offset.to_bytes(8, "big"), record.value or b"", append=True)

    with pyreplog.open_log(folder, "r") as log:

        def use(records: Iterable[Any]) -> None:
            if look:
                for record in records:
                    record.value  # noqa: B018
            else:
                deque(records, maxlen=0)

        def ours() -> None:
            log.seek(0)
            use(log)
            assert log.position == count

        def with_client() -> None:
            records = MemoryRecords(data)
            while (batch := records.next_batch()) is not None:
                assert batch.validate_crc()
                use(batch)

        def with_lmdb() -> None:
            with environment.begin() as transaction:
                if look:
                    for _, value in transaction.cursor():
                        value  # noqa: B018
                else:
                    deque(transaction.cursor(), maxlen=0)

        peers = [
            Peer("aiokafka's record parser (compiled)", with_client, None if look else 2.0),
            Peer("an LMDB cursor", with_lmdb, None if look else 1.0),
        ]
        duel(f"iterate Record objects, 100 B{', and their values' if look else ''}", ours, peers, count=count)
    environment.close()


def test_scan_of_two_columns(duel: Duel, folder: Path) -> None:
    """Offsets and timestamps only, into one table: the bytes have to be read and checked all the same."""
    path = log_file(folder)
    with pyreplog.open_log(folder, "r") as log:

        def scan() -> None:
            assert pa.table(log.scan(["offset", "timestamp"])).num_rows == BATCH_COUNT * PER_BATCH

        def bare() -> None:
            with path.open("rb", buffering=0) as file:
                while data := file.read(1 << 20):
                    reference.crc32c(data)

        duel(
            "scan to Arrow, offset and timestamp",
            scan,
            [Peer("read + CRC-32C of the same bytes", bare, 0.7)],
            count=BATCH_COUNT * PER_BATCH,
        )


def fill(folder: Path, size: int) -> int:
    """A log of about ``size`` bytes in batches of 16 KB (Kafka's usual size), records 10 ms apart; how many records
    it has."""
    values = payloads(1000, 16)
    count = 0
    with pyreplog.open_log(folder, durability="os") as log:
        while log.stats().size < size:
            log.append_many(values, timestamps=[STAMP_MS + (count + index) * GAP_MS for index in range(len(values))])
            count += len(values)
    return count


def p50_us(seek: Callable[[int], object], places: list[int]) -> float:
    """The median of single calls."""
    took = []
    for place in places:
        started = time.perf_counter_ns()
        seek(place)
        took.append(time.perf_counter_ns() - started)
    return statistics.median(took) / 1000


def test_seek(benchmark: Any, tmp_path: Path) -> None:
    """The offset of the first record at or after an offset or a time, at random places of a warm log, small and
    large."""
    random = Random(3)
    found: dict[tuple[str, str], float] = {}

    def run() -> None:
        for name, size in (("small", SMALL_SIZE), ("large", LARGE_SIZE)):
            folder = tmp_path / name
            count = fill(folder, size)
            with pyreplog.open_log(folder, "r") as log:
                places = [random.randrange(count) for _ in range(SEEK_COUNT)]
                times = [STAMP_MS + place * GAP_MS - 1 for place in places]
                assert [log.seek(timestamp=at) for at in times[:100]] == places[:100]
                found[name, "offset"] = p50_us(lambda place: log.seek(place), places)
                p50_us(lambda at: log.seek(timestamp=at), times)
                found[name, "time"] = p50_us(lambda at: log.seek(timestamp=at), times)

    benchmark.pedantic(run, rounds=1, iterations=1)
    if benchmark.stats is None:
        return
    benchmark.extra_info["figures"] = [
        figure
        for what in ("offset", "time")
        for figure in (
            {
                "what": f"seek by {what}, p50",
                "measured": f"{found['large', what]:.1f} us",
                "peer": "10 us",
                "ratio": round(found["large", what] / 10, 3),
                "reach": 1.0,
                "better": "lower",
            },
            {
                "what": f"seek by {what}, p50, {LARGE_SIZE / 1e9:.1f} GB",
                "measured": f"{found['large', what]:.1f} us",
                "peer": f"1 MB: {found['small', what]:.1f} us",
                "ratio": round(found["large", what] / found["small", what], 3),
                "reach": 1.5,
                "better": "lower",
            },
        )
    ]
