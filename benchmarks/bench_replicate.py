"""What do three replicas cost? RF 3, acks "all", durability "os", all in this process: against bare ``pwrite``, and
a recorded Kafka."""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import pyreplog
from benchmarks.conftest import Duel, Peer, speed
from pyreplog.record import crc32c

BATCH_SIZE = 64 << 10
BATCH_COUNT = 300
IN_FLIGHT = 16
ONE_BY_ONE_COUNT = 3000
SENDS = 100_000

# Recorded, not run here: three brokers (Kafka 4.1, RF 3, acks=all, page cache) on one machine of
# this kind, confluent-kafka as the client.
KAFKA_RECORDS_PER_S = 330_000
KAFKA_P50_US = 820.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[pyreplog.Cluster]:
    """Three nodes, one topic in the page cache."""
    with pyreplog.Cluster(tmp_path / "data", nodes=3) as cluster:
        cluster.admin.create_topic("events", partitions=1, replication_factor=3, config={"durability": "os"})
        yield cluster


class Nodes:
    """Three nodes with one topic, new in each round, like the files of the peers. In a virtual machine, a write
    into memory that was just freed is several times as fast as a write into memory that the host must find
    first."""

    def __init__(self, parent: Path, durability: str, values: list[bytes]) -> None:
        self._parent = parent
        self._durability = durability
        self._values = values
        self._numbers = itertools.count()

    def open(self) -> None:
        """New nodes, which have met these values before."""
        self._folder = self._parent / str(next(self._numbers))
        self.cluster = pyreplog.Cluster(self._folder, nodes=3)
        self.cluster.admin.create_topic(
            "events", partitions=1, replication_factor=3, config={"durability": self._durability}
        )
        self.producer = self.cluster.producer(batch_size_max=BATCH_SIZE, max_in_flight=IN_FLIGHT)
        self.send(4 * IN_FLIGHT)

    def send(self, batch_count: int) -> None:
        """So many batches, a few in flight, until each is acknowledged."""
        producer, values = self.producer, self._values
        waiting: deque[pyreplog.Acks] = deque()
        for _ in range(batch_count):
            waiting.append(producer.send_many("events", values, partition=0))
            if len(waiting) == IN_FLIGHT:
                waiting.popleft().wait()
        while waiting:
            waiting.popleft().wait()

    def close(self) -> None:
        """Close and remove them. Each batch must be there, whole."""
        self.producer.close()
        with self.cluster.consumer("events") as consumer:
            assert consumer.end_offset("events", 0) % len(self._values) == 0
        self.cluster.close()
        shutil.rmtree(self._folder)


def payloads(count: int) -> list[bytes]:
    """``count`` values of 100 random bytes, the same every time."""
    random = Random(100)
    return [random.randbytes(100) for _ in range(count)]


def per_batch(values: list[bytes], folder: Path) -> int:
    """How many of ``values`` a batch of 64 KB holds."""
    with pyreplog.open_log(folder / "check", durability="os") as log:
        log.append_many(values[:100])
        size = log.stats().size
    return (BATCH_SIZE - 61) * 100 // (size - 61) - 1


def fresh_files(folder: Path, count: int) -> Callable[[], list[int]]:
    """Return a function that opens new files at each call, and removes the files of the call before the last
    one."""
    numbers = itertools.count()

    def files() -> list[int]:
        number = next(numbers)
        shutil.rmtree(folder / f"{number - 2}", ignore_errors=True)
        (folder / f"{number}").mkdir(parents=True)
        return [os.open(folder / f"{number}" / f"{file}", os.O_CREAT | os.O_WRONLY, 0o600) for file in range(count)]

    return files


def one_by_one_us(producer: pyreplog.Producer, value: bytes, count: int) -> float:
    """The median time from sending one record to its acknowledgement, each sent after the one before it was
    acknowledged."""
    took = []
    for _ in range(count):
        started = time.perf_counter()
        producer.send("events", value, partition=0).result()
        took.append(time.perf_counter() - started)
    return statistics.median(took) * 1e6


def test_throughput(duel: Duel, benchmark: Any, tmp_path: Path) -> None:
    """64 KB batches of 100 B records, 16 in flight, until each is on all three replicas; encoding included."""
    values = payloads(1000)
    count = per_batch(values, tmp_path)
    nodes = Nodes(tmp_path / "nodes", "os", values[:count])
    files = fresh_files(tmp_path / "bare", 3)
    encoded = Random(1).randbytes(BATCH_SIZE)

    def ours() -> None:
        nodes.send(BATCH_COUNT)

    def bare() -> None:
        descriptors = files()
        for position in range(0, BATCH_COUNT * BATCH_SIZE, BATCH_SIZE):
            for file in descriptors:
                os.pwrite(file, encoded, position)
        for file in descriptors:
            os.close(file)

    def with_checksums() -> None:
        descriptors = files()
        for position in range(0, BATCH_COUNT * BATCH_SIZE, BATCH_SIZE):
            for file in descriptors:
                crc32c(encoded)
                os.pwrite(file, encoded, position)
        for file in descriptors:
            os.close(file)

    peers = [
        Peer("a third of pwrite: the same bytes to three files", bare, 0.8),
        Peer("the same with a CRC-32C each", with_checksums),
    ]
    what = "RF 3, acks=all, os, 64 KB batches, 16 in flight"
    duel(what, ours, peers, count=BATCH_COUNT * count, prepare=nodes.open, finish=nodes.close)
    if benchmark.stats is None:
        return
    rate = BATCH_COUNT * count / benchmark.stats.stats.median
    benchmark.extra_info["figures"].append(
        {
            "what": what,
            "measured": f"{speed(rate)} records/s",
            "peer": f"recorded, not run here: three Kafka brokers: {speed(KAFKA_RECORDS_PER_S)} records/s",
            "ratio": round(rate / KAFKA_RECORDS_PER_S, 3),
            "best_ratio": round(BATCH_COUNT * count / benchmark.stats.stats.min / KAFKA_RECORDS_PER_S, 3),
            "reach": 25.0,
        }
    )


def produce(values: list[bytes]) -> list[Peer]:
    """confluent-kafka's produce() of the same records: into the brokers of SPARK_KAFKA_SERVERS, whose topics must have
    three replicas, else into three of its own mock brokers, which keep nothing. None if it is not installed."""
    try:
        import confluent_kafka  # noqa: PLC0415
    except ImportError:
        return []
    servers = os.environ.get("SPARK_KAFKA_SERVERS", "")
    settings: dict[str, Any] = {
        "acks": "all",
        "queue.buffering.max.messages": 2 * SENDS,
        "queue.buffering.max.kbytes": 1 << 20,
        "log_level": 0,
    }
    producer = confluent_kafka.Producer(
        settings | ({"bootstrap.servers": servers} if servers else {"test.mock.num.brokers": 3})
    )
    topic = f"bench-send-{os.getpid()}"
    producer.produce(topic, b"warm")
    assert producer.flush(30) == 0

    def run() -> None:
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(60) == 0

    where = "brokers" if servers else "mock brokers"
    return [Peer(f"confluent-kafka produce(), acks=all, {where}", run, 5.0 if servers else None)]


def test_send_one_by_one(duel: Duel, tmp_path: Path) -> None:
    """Records of 100 B, one call each, one thread, until all are acknowledged."""
    values = payloads(SENDS)
    nodes = Nodes(tmp_path / "nodes", "os", values[:10])
    files = fresh_files(tmp_path / "bare", 3)

    def ours() -> None:
        producer = nodes.producer
        for value in values:
            ack = producer.send("events", value, partition=0)
        ack.result()

    def bare() -> None:
        descriptors = files()
        whole = b"".join(values)
        for position in range(0, len(whole), BATCH_SIZE):
            for file in descriptors:
                os.pwrite(file, whole[position : position + BATCH_SIZE], position)
        for file in descriptors:
            os.close(file)

    def alone() -> None:
        with pyreplog.open_log(tmp_path / "alone" / str(next(numbers)), topic="events", durability="os") as log:
            for value in values:
                ack = log.append_nowait(value)
            ack.result()

    numbers = itertools.count()
    peers = [
        Peer("b''.join(values) and pwrite, to three files", bare, 0.0, is_limit=True),
        Peer("append_nowait of one log", alone),
        *produce(values),
    ]
    what = "RF 3, acks=all, os, send one by one, 100 B"
    duel(what, ours, peers, count=SENDS, prepare=nodes.open, finish=nodes.close)


def test_one_at_a_time(benchmark: Any, cluster: pyreplog.Cluster, tmp_path: Path) -> None:
    """One record of 100 B at a time, each on all three replicas before the next: the median of single times."""
    value = payloads(1)[0]
    producer = cluster.producer()
    files = fresh_files(tmp_path / "bare", 6)
    medians: list[float] = []
    bare_medians: list[float] = []

    def bare() -> None:
        """The same system calls: a batch into three logs, and their marks."""
        descriptors = files()
        batch, mark, took = bytes(170), bytes(64), []
        for number in range(ONE_BY_ONE_COUNT):
            started = time.perf_counter()
            for file in descriptors[:3]:
                os.pwrite(file, batch, number * len(batch))
            for file in descriptors[3:]:
                os.pwrite(file, mark, 0)
            took.append(time.perf_counter() - started)
        for file in descriptors:
            os.close(file)
        bare_medians.append(statistics.median(took) * 1e6)

    def ours() -> None:
        medians.append(one_by_one_us(producer, value, ONE_BY_ONE_COUNT))

    benchmark.pedantic(ours, setup=bare, rounds=7, iterations=1, warmup_rounds=1)
    if benchmark.stats is None:
        return
    median, bare_median = statistics.median(medians[1:]), statistics.median(bare_medians[1:])
    best = min(medians[1:])
    what = "RF 3, acks=all, os, one record at a time, p50"
    measured = f"{median:.1f} us"
    benchmark.extra_info["figures"] = [
        {
            "what": what,
            "measured": measured,
            "peer": "40 us",
            "ratio": round(40 / median, 3),
            "best_ratio": round(40 / best, 3),
            "reach": 1.0,
        },
        {
            "what": what,
            "measured": measured,
            "peer": f"the same system calls in a bare loop: {bare_median:.1f} us",
            "ratio": round(bare_median / median, 3),
            "best_ratio": round(min(bare_medians[1:]) / best, 3),
            "reach": None,
        },
        {
            "what": what,
            "measured": measured,
            "peer": f"recorded, not run here: three Kafka brokers: {KAFKA_P50_US:.0f} us",
            "ratio": round(KAFKA_P50_US / median, 3),
            "best_ratio": round(KAFKA_P50_US / best, 3),
            "reach": None,
        },
    ]
