"""Partitions that get other replicas while a cluster and its clients run."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import pyreplog
from pyreplog import Cluster, ConfigError, ReadOnlyError, TopicPartition, aio

PARTITION = TopicPartition("t", 0)


def folders(path: Path) -> dict[int, list[str]]:
    """The partitions of topic t in the folder of each node."""
    return {
        int(node.name.removeprefix("node-")): sorted(one.name for one in node.iterdir() if one.name.startswith("t-"))
        for node in path.glob("node-*")
    }


def values(cluster: Cluster) -> list[int]:
    """The values of all records of the partition, as numbers."""
    with cluster.consumer(PARTITION) as consumer:
        return [int(record.value or b"") for record in consumer.until_end()]


def test_other_nodes_take_over(tmp_path: Path) -> None:
    """The new replicas have all records and lead; the folders of the old ones are gone; a reopened cluster says the
    same."""
    with Cluster(tmp_path, nodes=5) as cluster:
        cluster.admin.create_topic("t")
        with cluster.producer() as producer:
            for number in range(500):
                producer.send("t", b"%d" % number)
        handle = cluster.admin.reassign({PARTITION: [5, 4]})
        assert handle.done()
        assert handle.partitions == (PARTITION,)
        (partition,) = cluster.admin.describe("t").partitions
        assert partition.replicas == (5, 4)
        assert sorted(partition.isr) == [4, 5]
        assert partition.leader in (4, 5)
        assert cluster.admin.list_reassignments() == {}
        assert folders(tmp_path) == {1: [], 2: [], 3: [], 4: ["t-0"], 5: ["t-0"]}
    with Cluster(tmp_path) as cluster:
        assert cluster.admin.describe("t").partitions[0].replicas == (5, 4)
        assert values(cluster) == list(range(500))


def test_a_moving_partition_under_load(tmp_path: Path) -> None:
    """It moves back and forth between nodes while a program sends; the source, the target and the controller are killed
    in turn. Every record that was acknowledged is there once, in order."""
    acknowledged: list[int] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    def send(cluster: Cluster) -> None:
        try:
            with cluster.producer() as producer:
                number = 0
                while not stop.is_set():
                    sent = producer.send("t", b"%d" % number)
                    sent.result(60)
                    acknowledged.append(number)
                    number += 1
        except BaseException as error:
            failures.append(error)

    with Cluster(tmp_path, nodes=5, config={"session_timeout_ms": 500, "heartbeat_interval_ms": 50}) as cluster:
        cluster.admin.create_topic("t")
        sender = threading.Thread(target=send, args=(cluster,))
        sender.start()
        try:
            for target in ([4, 5, 1], [2, 3, 4], [5, 1, 2], [3, 4, 5]):
                before = cluster.admin.describe("t").partitions[0]
                handle = cluster.admin.reassign({PARTITION: target}, wait=False)
                for victim in (before.leader, target[0], cluster.admin.describe_cluster().controller_id):
                    assert victim is not None
                    cluster.nodes[victim - 1].kill()
                    cluster.nodes[victim - 1].restart()
                handle.wait(60)
                assert cluster.admin.describe("t").partitions[0].replicas == tuple(target)
        finally:
            stop.set()
            sender.join(60)
        assert not failures
        assert acknowledged
        assert values(cluster)[: len(acknowledged)] == acknowledged


def test_a_node_that_was_down_deletes_its_copy(tmp_path: Path) -> None:
    """It was taken out meanwhile. Its copy is gone when it serves again, and it copies anew when it is put back."""
    with Cluster(tmp_path, nodes=4) as cluster:
        cluster.admin.create_topic("t")
        with cluster.producer() as producer:
            producer.send("t", b"7").result(10)
        cluster.nodes[2].stop()
        cluster.admin.reassign({PARTITION: [1, 2, 4]})
        assert folders(tmp_path)[3] == ["t-0"]
        cluster.nodes[2].restart()
        assert folders(tmp_path)[3] == []
        cluster.admin.reassign({PARTITION: [3]})
        assert values(cluster) == [7]


def test_what_waits_is_named_and_can_be_cancelled(tmp_path: Path) -> None:
    """A replica that cannot copy holds the others back; TimeoutError says which node is down; cancelled, the partition
    keeps its replicas."""
    with Cluster(tmp_path, nodes=4) as cluster:
        cluster.admin.create_topic("t")
        cluster.nodes[3].stop()
        with pytest.raises(TimeoutError, match="t-0 is still getting its new replicas.*node 4 is down"):
            cluster.admin.reassign({PARTITION: [4, 1]}, timeout=0.2)
        going = cluster.admin.list_reassignments()
        assert going == {PARTITION: pyreplog.PartitionReassignment((4, 1, 2, 3), (4,), (2, 3))}
        cluster.admin.cancel_reassignment(PARTITION)
        assert cluster.admin.list_reassignments() == {}
        assert sorted(cluster.admin.describe("t").partitions[0].replicas) == [1, 2, 3]
        with pytest.raises(pyreplog.NoReassignmentInProgressError, match="it is complete, or none began"):
            cluster.admin.cancel_reassignment(PARTITION)


def test_arguments(cluster: Cluster) -> None:
    """What cannot be is refused before or by the controller, with the partition and the nodes that there are."""
    cluster.admin.create_topic("t")
    reassign = cluster.admin.reassign
    wrong: list[tuple[object, type[Exception], str]] = [
        ({}, ConfigError, "a dict of the nodes"),
        ([1], ConfigError, "a dict of the nodes"),
        ({"t": [1]}, ConfigError, "'t' is not a partition"),
        ({PARTITION: 1}, ConfigError, "a list of nodes"),
        ({PARTITION: [0]}, ConfigError, "a replica of t-0"),
        ({PARTITION: []}, pyreplog.InvalidReplicaAssignmentError, "at least one node"),
        ({PARTITION: [1, 1]}, pyreplog.InvalidReplicaAssignmentError, "twice"),
        ({PARTITION: [7]}, pyreplog.InvalidReplicaAssignmentError, "no node 7; the nodes are 1, 2, 3"),
        ({TopicPartition("u", 0): [1]}, pyreplog.UnknownTopicError, "u"),
        ({TopicPartition("t", 9): [1]}, pyreplog.UnknownTopicError, "partitions 0 to 0, not 9"),
    ]
    for replicas, kind, text in wrong:
        with pytest.raises(kind, match=text):
            reassign(replicas)  # type: ignore[arg-type]
    assert cluster.admin.list_reassignments() == {}


def test_a_reader_moves_nothing(tmp_path: Path) -> None:
    """It has no nodes."""
    with Cluster(tmp_path, nodes=1) as cluster:
        cluster.admin.create_topic("t")
        with Cluster(tmp_path, mode="r") as reader:
            for call in (reader.admin.reassign, reader.admin.list_reassignments, reader.admin.cancel_reassignment):
                with pytest.raises(ReadOnlyError):
                    call()  # type: ignore[call-arg]


def test_for_coroutines(tmp_path: Path) -> None:
    """The same, awaited."""

    async def act() -> None:
        async with aio.Cluster(tmp_path, nodes=3) as cluster:
            await cluster.admin.create_topic("t", replication_factor=1)
            handle = await cluster.admin.reassign({PARTITION: [3, 2]}, wait=False)
            await handle.wait(30)
            assert await handle.done()
            assert await handle.remaining() == {}
            assert handle.partitions == (PARTITION,)
            assert await cluster.admin.list_reassignments() == {}
            with pytest.raises(pyreplog.NoReassignmentInProgressError):
                await cluster.admin.cancel_reassignment(PARTITION)

    asyncio.run(act())
