"""Nodes that join a running cluster, and nodes that leave it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pyreplog import Cluster, ConfigError, ReadOnlyError, TopicPartition, aio

PATIENCE_S = 30.0


def voters(cluster: Cluster) -> list[int]:
    """The nodes that vote."""
    return [one.node_id for one in cluster.admin.describe_quorum().voters]


def test_new_nodes_serve_at_once(tmp_path: Path) -> None:
    """They get replicas of new topics, and lead; a reopened cluster has them."""
    with Cluster(tmp_path, nodes=3) as cluster:
        description = cluster.admin.add_nodes([4, 5])
        assert [(one.node_id, one.state) for one in description.nodes] == [(number, "online") for number in range(1, 6)]
        topic = cluster.admin.create_topic("t", partitions=5)
        assert sorted(one.leader for one in topic.partitions) == [1, 2, 3, 4, 5]
        with cluster.producer() as producer:
            for number in range(5):
                producer.send("t", b"v", partition=number).result(PATIENCE_S)
        assert cluster.node(5).state == "ready"
    with Cluster(tmp_path) as cluster:
        assert len(cluster.nodes) == 5
        assert voters(cluster) == [1, 2, 3]


def test_the_factor_may_grow_with_the_nodes(tmp_path: Path) -> None:
    """One node becomes three: the voters too, and a topic of one replica gets three."""
    with Cluster(tmp_path, nodes=1) as cluster:
        cluster.admin.create_topic("t")
        with pytest.raises(ConfigError, match="there are 1 nodes"):
            cluster.admin.create_topic("u", replication_factor=3)
        cluster.admin.add_nodes([2, 3])
        assert cluster._driver.wait_until(lambda: all(map(cluster._controller.is_voter, (1, 2, 3))), PATIENCE_S)
        assert voters(cluster) == [1, 2, 3]
        cluster.admin.create_topic("u", replication_factor=3)
        cluster.admin.reassign({TopicPartition("t", 0): [1, 2, 3]})
        cluster.nodes[0].kill()
        with cluster.producer() as producer:
            producer.send("t", b"v").result(PATIENCE_S)


def test_racks(tmp_path: Path) -> None:
    """All nodes have one, or none has."""
    with Cluster(tmp_path / "with", nodes=2, racks=["a", "b"]) as cluster:
        with pytest.raises(ConfigError, match="give racks= with one for each new node"):
            cluster.admin.add_nodes([3])
        with pytest.raises(ConfigError, match="2 names for 1 nodes"):
            cluster.admin.add_nodes([3], racks=["a", "b"])
        description = cluster.admin.add_nodes([3], racks=["c"])
        assert [one.rack for one in description.nodes] == ["a", "b", "c"]
    with Cluster(tmp_path / "without", nodes=1) as cluster, pytest.raises(ConfigError, match="have no racks"):
        cluster.admin.add_nodes([2], racks=["a"])


def test_numbers_that_cannot_be(cluster: Cluster) -> None:
    """Nothing starts."""
    wrong: list[tuple[object, str]] = [
        ([], "is empty"),
        (4, "a list of numbers"),
        ("45", "a list of numbers"),
        ([3], "there is a node 3 already: the nodes are 1, 2, 3"),
        ([4, 4], "named twice"),
        ([5], "number new nodes from 4 on"),
        ([4, 6], "number new nodes from 4 on"),
        ([0], "a node of node_ids"),
    ]
    for numbers, text in wrong:
        with pytest.raises(ConfigError, match=text):
            cluster.admin.add_nodes(numbers)  # type: ignore[arg-type]
    assert len(cluster.nodes) == 3


def test_for_coroutines_and_readers(tmp_path: Path) -> None:
    """Awaited it does the same; a reader has no nodes."""

    async def act() -> None:
        async with aio.Cluster(tmp_path, nodes=1) as cluster:
            description = await cluster.admin.add_nodes([2])
            assert len(description.nodes) == 2

    asyncio.run(act())
    with Cluster(tmp_path, mode="r") as reader, pytest.raises(ReadOnlyError):
        reader.admin.add_nodes([3])
