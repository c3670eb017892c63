"""Nodes that join a running cluster, and nodes that leave it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pyreplog import Cluster, ClusterReader, ConfigError, ReadOnlyError, TopicPartition, aio
from pyreplog.log.root_discovery import find_places
from pyreplog.system import SystemDisk
from pyreplog.verify import Level, verify

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


def states(cluster: Cluster) -> list[str]:
    """The state of each node."""
    return [node.state for node in cluster.nodes]


def holders(cluster: Cluster, topic: str = "t") -> set[int]:
    """The nodes that have a replica of the topic."""
    return {node for one in cluster.admin.describe(topic).partitions for node in one.replicas}


def filled(cluster: Cluster, count: int = 100) -> None:
    """A topic with four partitions and ``count`` records."""
    cluster.admin.create_topic("t", partitions=4)
    send(cluster, count)


def send(cluster: Cluster, count: int) -> None:
    """Send records, and wait until they are acknowledged."""
    with cluster.producer() as producer:
        for number in range(count):
            producer.send("t", b"%d" % number)


def record_count(cluster: Cluster | ClusterReader) -> int:
    """The records of the topic."""
    with cluster.consumer("t") as consumer:
        return len(list(consumer.until_end()))


def test_a_node_leaves(tmp_path: Path) -> None:
    """Its replicas and its vote are elsewhere, its folder has another name, and no reader looks into it. A reopened
    cluster has the same nodes, and the number comes back with an empty folder only."""
    with Cluster(tmp_path, nodes=5) as cluster:
        filled(cluster)
        description = cluster.admin.remove_nodes([2])
        assert [one.node_id for one in description.nodes] == [1, 3, 4, 5]
        assert states(cluster) == ["ready", "removed", "ready", "ready", "ready"]
        assert 2 not in holders(cluster)
        assert voters(cluster) == [1, 3, 4]
        assert not (tmp_path / "node-2").exists()
        send(cluster, 100)
        with pytest.raises(ConfigError, match=r"node 2 left the cluster: admin.add_nodes\(\[2\]\)"):
            cluster.nodes[1].restart()
    with Cluster(tmp_path) as cluster:
        assert states(cluster) == ["ready", "removed", "ready", "ready", "ready"]
        assert record_count(cluster) == 200
        cluster.admin.add_nodes([2])
        assert states(cluster) == ["ready"] * 5
        assert not list((tmp_path / "node-2").glob("t-*"))
        assert not cluster.admin.describe_cluster().nodes[1].cordoned
        cluster.admin.remove_nodes([2])
        assert sorted(one.name for one in tmp_path.glob("node-2*")) == ["node-2.removed", "node-2.removed-2"]


def test_the_active_controller_leaves(tmp_path: Path) -> None:
    """Another voter takes over first."""
    with Cluster(tmp_path, nodes=4) as cluster:
        filled(cluster)
        assert cluster.controller is not None
        leaving = cluster.controller.node_id
        cluster.admin.remove_nodes([leaving])
        assert cluster.controller is not None
        assert cluster.controller.node_id != leaving
        assert voters(cluster) == [one for one in (1, 2, 3, 4) if one != leaving]
        send(cluster, 100)
        assert record_count(cluster) == 200


def test_a_dead_node_leaves(tmp_path: Path) -> None:
    """Its replicas are copied from the others. What its folder still has is not read."""
    with Cluster(tmp_path, nodes=4) as cluster:
        filled(cluster)
        cluster.nodes[2].kill()
        cluster.admin.remove_nodes([3])
        assert holders(cluster) == {1, 2, 4}
        assert all(len(one.isr) == 3 for one in cluster.admin.describe("t").partitions)
    assert list((tmp_path / "node-3.removed").glob("t-*"))
    with Cluster(tmp_path, mode="r") as reader:
        assert record_count(reader) == 100
    findings = verify(SystemDisk(), str(tmp_path)).findings
    assert [one.level for one in findings if "node-3.removed" in one.path] == [Level.NOTE]
    assert {one.level for one in findings} <= {Level.NOTE}
    assert "node-3.removed" not in {Path(one.path).name for one in find_places(SystemDisk(), str(tmp_path)).roots}


def test_until_one_is_left(tmp_path: Path) -> None:
    """Three nodes become two and one; the votes follow."""
    with Cluster(tmp_path, nodes=3) as cluster:
        cluster.admin.create_topic("t", replication_factor=1)
        send(cluster, 10)
        cluster.admin.remove_nodes([1])
        assert voters(cluster) in ([2], [3])
        cluster.admin.remove_nodes([2])
        assert voters(cluster) == [3]
        assert record_count(cluster) == 10
        with pytest.raises(ConfigError, match="no node that holds partitions would stay"):
            cluster.admin.remove_nodes([3])
    with Cluster(tmp_path) as cluster:
        assert states(cluster) == ["removed", "removed", "ready"]
        assert record_count(cluster) == 10


def test_what_cannot_leave(tmp_path: Path) -> None:
    """Nothing changes: unknown nodes, one named twice, the last voter, and topics that have too many replicas."""
    with Cluster(tmp_path, nodes=4, roles={4: "controller"}) as cluster:
        cluster.admin.create_topic("t")
        for numbers, text in (
            ([], "is empty"),
            ([9], "there is no node 9: the nodes are 1, 2, 3, 4"),
            ([1, 1], "named twice"),
            ([4], "no voter would stay"),
            ([1, 2, 3], "no node that holds partitions would stay"),
            ([3], r"2 nodes would stay.*'t' \(3\).*alter_replication_factor\('t', 2\)"),
        ):
            with pytest.raises(ConfigError, match=text):
                cluster.admin.remove_nodes(numbers)
        assert states(cluster) == ["ready"] * 4
        assert not any(one.cordoned for one in cluster.admin.describe_cluster().nodes)


def test_an_end_before_the_controller_forgets(tmp_path: Path) -> None:
    """The folder has its name already; the next opening tells the controller."""
    with Cluster(tmp_path, nodes=4) as cluster:
        filled(cluster)
        admin = cluster.admin
        admin.cordon(4)
        admin._drain([4], None)
        admin._move_votes([4])
        cluster.nodes[3].stop()
        cluster._driver.run_exclusively(lambda: cluster._nodes.put_away(4))
        assert 4 in cluster._controller.image.brokers
    with Cluster(tmp_path) as cluster:
        assert states(cluster) == ["ready", "ready", "ready"]
        assert 4 not in cluster._controller.image.brokers
        assert [one.node_id for one in cluster.admin.describe_cluster().nodes] == [1, 2, 3]
