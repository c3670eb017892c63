"""Cordon, rebalance and the replication factor of a running cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from pyreplog import Cluster, ConfigError, InvalidTopicError, TopicPartition, UnknownTopicError, aio
from pyreplog.errors import InvalidReplicaAssignmentError


def loads(cluster: Cluster, *topics: str) -> Counter[int]:
    """The number of replicas on each node."""
    described = [cluster.admin.describe(name) for name in topics]
    return Counter(node for one in described for partition in one.partitions for node in partition.replicas)


def fill(cluster: Cluster, topic: str, partitions: int) -> None:
    """One record in each partition."""
    with cluster.producer() as producer:
        for number in range(partitions):
            producer.send(topic, b"x" * 100, partition=number).result()


def read(cluster: Cluster, topic: str, count: int) -> int:
    """The number of records that a new consumer reads, up to ``count``."""
    found = 0
    with cluster.consumer(topic) as consumer:
        while found < count and (records := consumer.poll(timeout=5.0)):
            found += len(records)
    return found


def test_a_cordoned_node_gets_no_replica(tmp_path: Path) -> None:
    """A new topic leaves the cordoned node out, also after a restart of the cluster; uncordoned it is used again."""
    with Cluster(tmp_path / "c", nodes=3) as cluster:
        cluster.admin.cordon(2)
        cluster.admin.cordon(2)
        assert [node.cordoned for node in cluster.admin.describe_cluster().nodes] == [False, True, False]
        with pytest.raises(ConfigError, match="no node 9"):
            cluster.admin.cordon(9)
    with Cluster(tmp_path / "c") as cluster:
        cluster.admin.create_topic("t", partitions=4, replication_factor=2)
        assert set(loads(cluster, "t")) == {1, 3}
        with pytest.raises(Exception, match="not cordoned"):
            cluster.admin.create_topic("u", replication_factor=3)
        cluster.admin.uncordon(2)
        cluster.admin.create_topic("u", replication_factor=3)
        assert set(loads(cluster, "u")) == {1, 2, 3}


def test_new_nodes_get_their_share(tmp_path: Path) -> None:
    """The plan for a cluster that grew is shown first, then carried out; nothing is lost, and a second rebalance has
    nothing to do. A cordoned node gets nothing."""
    with Cluster(tmp_path / "c", nodes=2) as cluster:
        cluster.admin.create_topic("t", partitions=6, replication_factor=2)
        fill(cluster, "t", 6)
        cluster.admin.add_nodes([3, 4])
        cluster.admin.cordon(4)
        with pytest.raises(InvalidReplicaAssignmentError, match="node 4 is cordoned"):
            cluster.admin.reassign({TopicPartition("t", 0): [1, 4]})
        plan = cluster.admin.rebalance(dry_run=True)
        assert loads(cluster, "t") == {1: 6, 2: 6}
        assert len(plan.moves) == plan.minimum == 4
        assert {move.target for move in plan.moves} == {3}
        assert plan.bytes == sum(move.bytes for move in plan.moves) > 4 * 100
        assert str(plan).startswith(f"4 moves, {plan.bytes} bytes; the fewest possible\n  t-")
        assert cluster.admin.rebalance() == plan
        assert loads(cluster, "t") == {1: 4, 2: 4, 3: 4}
        assert cluster.admin.rebalance().moves == ()
        assert read(cluster, "t", 6) == 6


def test_the_replication_factor_changes(tmp_path: Path) -> None:
    """More replicas go to the other nodes, fewer leave those that are down first; what cannot be is refused."""
    with Cluster(tmp_path / "c", nodes=3) as cluster:
        admin = cluster.admin
        admin.create_topic("t", partitions=3, replication_factor=1)
        fill(cluster, "t", 3)
        assert len(admin.alter_replication_factor("t", 2, dry_run=True).moves) == 3
        assert set(loads(cluster, "t").values()) == {1}
        admin.alter_replication_factor("t", 3)
        assert loads(cluster, "t") == {1: 3, 2: 3, 3: 3}
        assert admin.alter_replication_factor("t", 3).moves == ()
        cluster.nodes[2].stop()
        plan = admin.alter_replication_factor("t", 2)
        assert {(move.source, move.target, move.bytes) for move in plan.moves} == {(3, None, 0)}
        assert loads(cluster, "t") == {1: 3, 2: 3}
        assert read(cluster, "t", 3) == 3
        with pytest.raises(ConfigError, match="at most 2 replicas"):
            admin.alter_replication_factor("t", 3)
        with pytest.raises(UnknownTopicError):
            admin.alter_replication_factor("u", 1)
        with pytest.raises(InvalidTopicError):
            admin.alter_replication_factor("__x", 1)


def test_a_second_rebalance_is_refused(tmp_path: Path) -> None:
    """While a partition gets other replicas, which waits for a node that is down, the error names it."""
    with Cluster(tmp_path / "c", nodes=3) as cluster:
        cluster.admin.create_topic("t", partitions=1, replication_factor=1)
        (partition,) = cluster.admin.describe("t").partitions
        other = next(node for node in (1, 2, 3) if node not in partition.replicas)
        cluster.nodes[other - 1].kill()
        cluster.admin.reassign({TopicPartition("t", 0): [other]}, wait=False)
        with pytest.raises(ConfigError, match="t-0 is getting other replicas already"):
            cluster.admin.rebalance()
        cluster.admin.cancel_reassignment(TopicPartition("t", 0))
        assert cluster.admin.rebalance(dry_run=True).moves == ()


def test_in_coroutines(tmp_path: Path) -> None:
    """The asyncio twins do the same."""

    async def main() -> None:
        async with aio.Cluster(tmp_path / "c", nodes=2) as cluster:
            admin = cluster.admin
            await admin.create_topic("t", partitions=2, replication_factor=1)
            await admin.cordon(1)
            assert (await admin.describe_cluster()).nodes[0].cordoned
            await admin.uncordon(1)
            assert (await admin.rebalance(dry_run=True)).moves == ()
            assert len((await admin.alter_replication_factor("t", 2)).moves) == 2

    asyncio.run(main())
