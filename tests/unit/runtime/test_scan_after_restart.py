"""What a scan finds is the end of the matter: a record it does not show never turns up later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyreplog
from pyreplog.log import LogReader
from pyreplog.runtime.cluster_node import ClusterNode
from pyreplog.runtime.driver import Driver

PATIENCE_S = 30.0


def in_sync(node: ClusterNode) -> int:
    """How many replicas of the only partition are in sync, as far as ``node`` has heard: with too few a scan waits
    for nothing."""
    assert node._node is not None
    return min(
        len(partition.isr) for topic in node._node.image.topics.values() for partition in topic.partitions.values()
    )


def test_a_scan_waits_for_what_a_new_leader_began_with(tmp_path: Path) -> None:
    """A record that was appended but not committed is shown as soon as its leader is back, because it then becomes
    committed."""
    with pyreplog.Cluster(tmp_path / "data", nodes=3) as cluster:
        cluster.admin.create_topic("orders", partitions=1, replication_factor=3)
        leader = cluster.leader("orders", 0)
        assert leader is not None
        for node in cluster.nodes:
            if node.node_id != leader.node_id:
                node.kill()
        with cluster.producer(acks=1) as producer:
            assert producer.send("orders", b"alone", partition=0).result().offset == 0
        leader.kill()
        for node in cluster.nodes:
            node.restart()
        assert cluster._driver.wait_until(lambda: all(in_sync(node) >= 2 for node in cluster.nodes), PATIENCE_S)
        assert pa.table(cluster.scan("orders"))["value"].to_pylist() == [b"alone"]


def test_a_scan_waits_for_all_partitions_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds, not ten for each partition whose leader cannot say where it ends."""
    now_ns = 0
    given: list[float] = []

    def end_offset(self: pyreplog.Consumer, topic: str, partition: int, *, timeout: float) -> int:
        nonlocal now_ns
        given.append(timeout)
        now_ns += 4_000_000_000
        raise TimeoutError

    with pyreplog.Cluster(tmp_path / "data", nodes=1) as cluster:
        cluster.admin.create_topic("orders", partitions=4)
        with monkeypatch.context() as patched:
            patched.setattr(pyreplog.Consumer, "end_offset", end_offset)
            patched.setattr(Driver, "monotonic_ns", lambda driver: now_ns)
            cluster._clients.await_ends("orders")
    assert given == [10.0, 6.0, 2.0, 0.0]


def test_a_scan_reads_on_with_too_few_nodes(tmp_path: Path) -> None:
    """What was committed is read while a partition has no majority."""
    with pyreplog.Cluster(tmp_path / "data", nodes=3) as cluster:
        cluster.admin.create_topic("orders", partitions=1, replication_factor=3)
        with cluster.producer() as producer:
            producer.send("orders", b"one", partition=0).result()
        cluster.nodes[0].kill()
        cluster.nodes[1].kill()
        assert pa.table(cluster.scan("orders"))["value"].to_pylist() == [b"one"]


def test_threads_share_a_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass has all that was there when it began, also while segments are begun; in the files' reader is one
    thread at a time."""
    inside = threading.Lock()

    def alone(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            assert inside.acquire(blocking=False), "a second thread is inside"
            try:
                return method(*arguments)
            finally:
                inside.release()

        return call

    with (
        pyreplog.Cluster(tmp_path / "data", nodes=1) as cluster,
        cluster.producer() as producer,
        ThreadPoolExecutor(4) as pool,
    ):
        cluster.admin.create_topic("orders", config={"segment.bytes": 20_000})
        scan = cluster.scan("orders", ["offset"])
        for name in ("refresh", "read"):
            monkeypatch.setattr(LogReader, name, alone(getattr(LogReader, name)))
        for _ in range(10):
            producer.send_many("orders", [bytes(1000)] * 50)
            producer.flush()
            for found in pool.map(lambda _: pa.table(scan)["offset"].to_pylist(), range(20)):
                assert found == list(range(len(found)))
        assert len(found) == 500
