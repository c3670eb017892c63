"""What a cluster is put through by somebody who means it ill: many threads, nodes killed in turn, a process killed
whole, long runs."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import pyreplog
from pyreplog.errors import OutcomeUnknownError
from pyreplog.log import open_readers
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition

Place = tuple[int, int]
SENDERS = 8
PATIENCE_S = 60.0


class Sender:
    """A thread that sends until told to stop, and keeps the book: where what was acknowledged is, and of what
    nobody knows."""

    def __init__(self, cluster: pyreplog.Cluster, number: int, enough: threading.Semaphore) -> None:
        self.acknowledged: dict[bytes, Place] = {}
        self.unknown: set[bytes] = set()
        self.failure: BaseException | None = None
        self.stopping = False
        self._cluster = cluster
        self._number = number
        self._enough = enough
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._cluster.producer() as producer:
                begun = 0
                while not self.stopping:
                    values = [b"%d-%d" % (self._number, begun + index) for index in range(1 + begun % 23)]
                    begun += len(values)
                    acks = [producer.send("events", value, key=value) for value in values]
                    for value, ack in zip(values, acks, strict=True):
                        self._book(value, ack)
        except BaseException as error:
            self.failure = error

    def _book(self, value: bytes, ack: pyreplog.Ack) -> None:
        try:
            place = ack.result(PATIENCE_S)
        except OutcomeUnknownError:
            self.unknown.add(value)
            return
        self.acknowledged[value] = (place.partition, place.offset)
        self._enough.release()

    def stop(self) -> None:
        """Send no more; raises what went wrong."""
        self.stopping = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a sender hangs"
        if self.failure is not None:
            raise self.failure


def wait_for(enough: threading.Semaphore, count: int) -> None:
    """Until ``count`` more acknowledgements came."""
    while enough.acquire(blocking=False):
        pass
    for _ in range(count):
        assert enough.acquire(timeout=PATIENCE_S), "nothing is acknowledged any more"


def check(cluster: pyreplog.Cluster, senders: list[Sender]) -> None:
    """Every acknowledged record is there once, where it was said to be; nothing is there that was never sent,
    nothing twice."""
    with cluster.consumer("events") as consumer:
        records = list(consumer.until_end())
    found: dict[bytes, Place] = {}
    ends: dict[int, int] = {}
    for record in records:
        assert record.value is not None
        assert record.value not in found, "a record is there twice"
        assert record.offset == ends.get(record.partition, 0), "offsets have no gaps"
        ends[record.partition] = record.offset + 1
        found[record.value] = (record.partition, record.offset)
    for sender in senders:
        assert sender.acknowledged.items() <= found.items()
    assert found.keys() <= {value for sender in senders for value in (*sender.acknowledged, *sender.unknown)}
    for number in range(SENDERS):
        for partition in ends:
            values = [
                value for value, place in found.items() if place[0] == partition and value.startswith(b"%d-" % number)
            ]
            order = [int(value.partition(b"-")[2]) for value in values]
            assert order == sorted(order), "the records of one sender are out of order"
    for node in cluster.nodes:
        assert node._node is not None
        assert not node._node.broken_rules


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_leaders_die_under_eight_senders(
    cluster: pyreplog.Cluster, create: Callable[..., str], durability: str
) -> None:
    """Leaders are killed and restarted in a loop under eight senders: every acknowledged record is there once, at
    its offset, in order."""
    create("events", 2, durability=durability, segment_bytes="65536")
    enough = threading.Semaphore(0)
    senders = [Sender(cluster, number, enough) for number in range(SENDERS)]
    for round_number in range(12):
        wait_for(enough, 100)
        leader = cluster.leader("events", round_number % 2)
        assert leader is not None
        if round_number % 3 == 2:
            leader.restart()
        else:
            leader.kill()
            wait_for(enough, 50)
            leader.restart()
    for sender in senders:
        sender.stopping = True
    for sender in senders:
        sender.stop()
    check(cluster, senders)


def holds(node: pyreplog.ClusterNode, ends: list[int]) -> bool:
    """Whether the node knows every partition as committed up to its end."""
    if node._node is None:
        return False
    hosted = [node._node.find(TopicPartition("events", partition)) for partition in range(len(ends))]
    return all(entry is not None and entry.log.high_watermark == end for entry, end in zip(hosted, ends, strict=True))


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_each_node_dies_in_turn(cluster: pyreplog.Cluster, create: Callable[..., str], durability: str) -> None:
    """With any one node dead, sending, reading and looking up go on; when it is back, all three hold the same
    records."""
    create("events", 3, durability=durability)
    expected: dict[Place, bytes] = {}
    with cluster.producer() as producer, cluster.consumer("events") as consumer:
        seen: dict[Place, bytes] = {}
        for victim in (*cluster.nodes, *cluster.nodes):
            victim.kill()
            for number in range(60):
                value = b"%d-%d-%d" % (victim.node_id, len(expected), number)
                place = producer.send("events", value, key=value).result(PATIENCE_S)
                expected[place.partition, place.offset] = value
            assert sum(consumer.end_offset("events", partition) for partition in range(3)) == len(expected)
            victim.restart()
        while len(seen) < len(expected):
            records = consumer.poll(PATIENCE_S)
            assert records
            for record in records:
                assert (record.partition, record.offset) not in seen
                assert record.value is not None
                seen[record.partition, record.offset] = record.value
        assert seen == expected
        ends = [consumer.end_offset("events", partition) for partition in range(3)]
    # The last to come back serves before it has caught up.
    assert cluster._driver.wait_until(lambda: all(holds(node, ends) for node in cluster.nodes), PATIENCE_S)
    path = cluster.path
    cluster.close()
    for node in range(1, 4):
        readers = open_readers(SystemDisk(), f"{path}/node-{node}", "events")
        for (_, partition), reader in readers.items():
            held = {
                (partition, record.offset): record.value
                for batch in reader.batches(0, reader.end_offset)
                for record in pyreplog.record.records_of(batch, "events", partition, 0)
            }
            assert held == {place: value for place, value in expected.items() if place[0] == partition}


def test_stopping_with_a_node_down(tmp_path: Path) -> None:
    """A cluster that was closed while a node was dead, and opened again twice, has everything, and the node catches
    up."""
    expected: list[Place] = []
    for life in range(3):
        with pyreplog.Cluster(tmp_path / "data") as cluster:
            if life == 0:
                cluster.admin.create_topic("events", config={"durability": "os"})
            with cluster.producer() as producer:
                places = producer.send_many("events", [b"%d" % number for number in range(100)]).result(PATIENCE_S)
                cluster.nodes[life].kill()
                places += producer.send_many("events", [b"%d" % number for number in range(100)]).result(PATIENCE_S)
            expected += [(place.partition, place.offset) for place in places]
            with cluster.consumer("events") as consumer:
                assert [(record.partition, record.offset) for record in consumer.until_end()] == expected


def test_a_long_run_needs_no_more_memory(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Sending 50,000 records, and making and closing clients, leaves no objects behind."""
    create("events", 1, durability="os", segment_bytes="1048576")

    def send(rounds: int) -> None:
        with cluster.producer() as producer:
            for _ in range(rounds):
                producer.send_many("events", [b"v" * 20] * 50).wait(PATIENCE_S)
                producer.send("events", b"v" * 20).result(PATIENCE_S)

    def count() -> int:
        gc.collect()
        return len(gc.get_objects())

    def cached() -> int:
        """Views of what was appended last: bounded by their bytes."""
        nodes = [node._node for node in cluster.nodes if node._node is not None]
        logs = [hosted.replica.load_log() for node in nodes for hosted in node.hosted.values()]
        return 4 * sum(len(log._tail) for log in logs) // 3

    send(200)
    before = count() - cached()
    send(800)
    grown = count() - cached() - before
    assert grown < 2_000, f"{grown} objects more"
    for _ in range(20):
        cluster.producer().close()
        cluster.consumer("events").close()
    before = count()
    for _ in range(100):
        cluster.producer().close()
        cluster.consumer("events").close()
    assert count() - before < 60


def test_restarts_leak_nothing(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """After 30 rounds of kill and restart there are as many descriptors and threads as before."""
    create("events", 2, durability="sync")

    def open_files() -> dict[str, str]:
        found = {}
        for name in os.listdir("/proc/self/fd"):
            try:
                found[name] = os.readlink(f"/proc/self/fd/{name}")
            except OSError:
                continue
        return found

    with cluster.producer() as producer:

        def rounds(count: int) -> None:
            for number in range(count):
                node = cluster.nodes[number % 3]
                node.kill()
                producer.send("events", b"v", partition=number % 2).result(PATIENCE_S)
                node.restart()

        rounds(3)
        gc.collect()
        before = open_files(), threading.active_count()
        rounds(30)
        gc.collect()
        after = open_files(), threading.active_count()
    assert len(after[0]) <= len(before[0]) + 2, sorted(after[0].values())
    assert after[1] <= before[1] + 8, [
        thread.name for thread in threading.enumerate()
    ]  # a node's threads that sync end a little later
