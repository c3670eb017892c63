"""Listings of partitions that lack replicas or a leader, and the JSON of descriptions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pyreplog import Cluster, ConfigError, ListedPartition, aio


def until(cluster: Cluster, state: str, holds: Callable[[list[ListedPartition]], bool]) -> list[ListedPartition]:
    """List the partitions in a state until the list is as expected."""
    found: list[ListedPartition] = []

    def look() -> bool:
        found[:] = cluster.admin.list_partitions(state)  # type: ignore[arg-type]
        return holds(found)

    for _ in range(200):
        if look():
            return found
        cluster._driver.wait_until(lambda: False, 0.05)
    raise AssertionError(found)


@pytest.mark.one_voter
def test_from_the_first_loss_to_the_last(cluster: Cluster, create: Callable[..., str]) -> None:
    """Replica after replica is lost: the listings say so, with the reason, and how far the lost ones reach."""
    create("orders", min_insync_replicas="2")
    states = ("under_replicated", "under_min_isr", "at_min_isr", "offline")
    assert [cluster.admin.list_partitions(state) for state in states] == [[], [], [], []]  # type: ignore[arg-type]
    producer = cluster.producer()
    producer.send("orders", b"first").result()
    leader = cluster.leader("orders")
    assert leader is not None
    others = [node for node in cluster.nodes[:3] if node is not leader]
    others[0].kill()
    producer.send("orders", b"second").result()
    (lost,) = until(
        cluster, "under_replicated", lambda found: len(found) == 1 and found[0].out_of_sync[0].lag is not None
    )
    assert (lost.topic, lost.partition, lost.leader, lost.min_isr) == ("orders", 0, leader.node_id, 2)
    (replica,) = lost.out_of_sync
    assert (replica.node, replica.reason, replica.estimate_ms) == (others[0].node_id, "gone", None)
    assert replica.out_for_ms is not None
    assert json.loads(lost.to_json())["out_of_sync"][0]["reason"] == "gone"
    assert len(cluster.admin.list_partitions("at_min_isr")) == 1
    others[1].kill()
    assert len(until(cluster, "under_min_isr", bool)) == 1
    assert cluster.admin.list_partitions("at_min_isr") == []
    leader.kill()
    (offline,) = until(cluster, "offline", bool)
    assert offline.leader == -1
    assert {one.node for one in offline.out_of_sync} == {1, 2, 3}
    assert {one.reason for one in offline.out_of_sync} == {"gone"}
    for node in (leader, *others):
        node.restart()
    assert until(cluster, "under_replicated", lambda found: not found) == []
    assert cluster.admin.list_partitions("offline") == []


def test_wrong_states_are_named(cluster: Cluster) -> None:
    """An unknown state is a ConfigError with the near one, or all of them."""
    with pytest.raises(ConfigError, match="did you mean 'under_replicated'"):
        cluster.admin.list_partitions("under-replicated")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="state is None"):
        cluster.admin.list_partitions(None)  # type: ignore[arg-type]


def test_a_description_as_json(cluster: Cluster, create: Callable[..., str]) -> None:
    """It has the leader and all epochs, the sets, and the offset of the metadata."""
    create("orders", 2)
    found = json.loads(cluster.admin.describe("orders").to_json())
    assert found["name"] == "orders"
    assert found["controller_epoch"] >= 1
    assert found["metadata_offset"] > 0
    assert found["config"]["durability"] == "os"
    for number, partition in enumerate(found["partitions"]):
        assert partition["partition"] == number
        assert partition["leader"] in partition["replicas"]
        assert partition["leader_epoch"] == partition["partition_epoch"] == 0
        assert sorted(partition["isr"]) == [1, 2, 3]
        assert partition["elr"] == partition["adding"] == partition["removing"] == []


def test_async_twin(tmp_path: Path) -> None:
    """The same from asyncio."""

    async def main() -> list[ListedPartition]:
        async with aio.Cluster(tmp_path / "data", nodes=1) as cluster:
            await cluster.admin.create_topic("orders", replication_factor=1, config={"durability": "os"})
            return await cluster.admin.list_partitions("at_min_isr")

    (found,) = asyncio.run(main())
    assert (found.topic, found.isr, found.min_isr, found.out_of_sync) == ("orders", (1,), 1, ())


def test_asked_while_the_controller_changes(cluster: Cluster, create: Callable[..., str]) -> None:
    """A question about all topics that reaches a node without a controller is refused at once and asked again: it does
    not wait for its timeout."""
    create("orders", min_insync_replicas="1")
    for _ in range(2):
        active = cluster.controller
        assert active is not None
        active.kill()
        assert cluster.admin.topics() == ["orders"]
        assert [one.topic for one in cluster.admin.list_partitions("under_replicated")] == ["orders"]
        active.restart()
