"""A partition that lost its last in-sync copy: what a person is told, and which copy leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from pyreplog import Cluster, ConfigError, EligibleLeadersNotAvailableError, LostRange, UnknownTopicError, aio
from pyreplog.controller.election import UncleanElection
from pyreplog.runtime import ClusterNode
from pyreplog.runtime.recovered_partitions import elected
from pyreplog.wire import ElectLeadersPartitionResult, LostOffsets


def lose_the_leader(cluster: Cluster, topic: str) -> tuple[ClusterNode, list[ClusterNode]]:
    """Write a record that only the leader has, and kill all; return the leader and the other two."""
    with cluster.producer() as producer:
        producer.send(topic, b"everywhere").result()
        assert cluster._driver.wait_until(cluster._nodes.followers_know_ends, 10)
        leader = cluster.leader(topic)
        assert leader is not None
        others = [node for node in cluster.nodes[:3] if node is not leader]
        for node in others:
            node.kill()
        producer.send(topic, b"only here").result()
        leader.kill()
    return leader, others


@pytest.mark.one_voter
def test_the_best_copy_that_is_left(cluster: Cluster, create: Callable[..., str]) -> None:
    """A dry run tells the same and changes nothing; the missing nodes are named; then the partition has a leader."""
    topic = create(min_insync_replicas="1")
    leader, others = lose_the_leader(cluster, topic)
    others[0].restart()
    plan = cluster.admin.recover_partition(topic, 0, dry_run=True, timeout=0)
    assert (plan.leader, plan.is_done) == (others[0].node_id, False)
    assert set(plan.missing) == {leader.node_id, others[1].node_id}
    assert plan.lost == (LostRange(1, None, certain=False),)
    assert cluster.admin.describe(topic).partitions[0].leader == -1
    done = cluster.admin.recover_partition(topic, 0, timeout=0)
    assert (done.leader, done.leader_epoch, done.lost, done.is_done) == (
        plan.leader,
        plan.leader_epoch,
        plan.lost,
        True,
    )
    described = cluster.admin.describe(topic).partitions[0]
    assert (described.leader, described.leader_epoch) == (done.leader, done.leader_epoch)
    again = cluster.admin.recover_partition(topic, 0, timeout=0)
    assert (again.leader, again.leader_epoch, again.lost) == (done.leader, done.leader_epoch, ())


@pytest.mark.one_voter
def test_a_copy_that_comes_back_costs_nothing(cluster: Cluster, create: Callable[..., str]) -> None:
    """If the last leader returns while the call waits, it leads, and nothing is lost."""
    topic = create(min_insync_replicas="1")
    leader, others = lose_the_leader(cluster, topic)
    others[0].restart()
    leader.restart()
    done = cluster.admin.recover_partition(topic, 0)
    assert (done.leader, done.lost) == (leader.node_id, ())
    with cluster.consumer(topic) as consumer:
        assert [record.value for record in consumer.until_end()] == [b"everywhere", b"only here"]


def test_what_an_absent_copy_is_known_to_have() -> None:
    """Offsets up to the known end of an absent copy are certainly given up; behind them more may be."""
    known = UncleanElection(leader=1, leader_epoch=4, start=7, end=9)
    answer = ElectLeadersPartitionResult(3, 0, str(known), known.leader, known.leader_epoch, known.lost())
    done = elected(answer)
    assert done.lost == (LostRange(7, 9, certain=True), LostRange(9, None, certain=False))
    assert str(done) == "node 1 leads in epoch 4; offsets 7 to 8 are lost; all records from offset 9 on may be lost"
    assert known._replace(end=-1).lost() == [LostOffsets(7, -1, certain=False)]


@pytest.mark.one_voter
def test_refusals(cluster: Cluster, create: Callable[..., str]) -> None:
    """Unknown names, wrong values, and no copy at all."""
    topic = create(min_insync_replicas="1")
    admin = cluster.admin
    with pytest.raises(UnknownTopicError):
        admin.recover_partition("other", 0)
    with pytest.raises(UnknownTopicError, match="has partitions 0 to 0, not 1"):
        admin.recover_partition(topic, 1)
    with pytest.raises(ConfigError):
        admin.recover_partition(topic, 0, dry_run="yes")  # type: ignore[arg-type]
    lose_the_leader(cluster, topic)
    with pytest.raises(EligibleLeadersNotAvailableError):
        admin.recover_partition(topic, 0, timeout=0)


def test_async_twin(tmp_path: Path) -> None:
    """The same from asyncio: a partition with a leader needs nothing."""

    async def main() -> tuple[int, tuple[LostRange, ...]]:
        async with aio.Cluster(tmp_path / "data", nodes=1) as cluster:
            await cluster.admin.create_topic("orders", replication_factor=1, config={"durability": "os"})
            done = await cluster.admin.recover_partition("orders", 0)
            return done.leader, done.lost

    assert asyncio.run(main()) == (1, ())
