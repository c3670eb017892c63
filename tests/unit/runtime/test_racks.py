"""Racks of a cluster's nodes: checked, kept, changed, used by placement and by consumers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pyreplog import Cluster, ConfigError, aio
from pyreplog.runtime.node_racks import NO_RACK, checked_racks, settled_racks

NAMES = ["a", "b", "a", "b"]


def racks_of(cluster: Cluster) -> list[str | None]:
    """The rack of each node, as the controller knows it."""
    return [node.rack for node in cluster.admin.describe_cluster().nodes]


@pytest.mark.parametrize("racks", ["ab", 3, ["a", None, "b"], ["a", ""], ["a", 7], ["a\n"], ["a" * 250], {"a"} | {1}])
def test_wrong_racks_are_refused(racks: Any, tmp_path: Path) -> None:
    """Not a list of names, a mix of some and none, and names that cannot be printed."""
    with pytest.raises(ConfigError, match="rack"):
        Cluster(tmp_path / "c", nodes=2, racks=racks)
    assert not (tmp_path / "c").exists()


def test_settled_racks() -> None:
    """A list must be as long as there are nodes; without one the racks stay; a new node needs a list."""
    assert checked_racks(None) is None
    assert settled_racks(None, {1: "a", 2: "b"}, 2) == {1: None, 2: None}
    assert settled_racks(None, {1: None, 2: None}, 2) == {1: None, 2: None}
    assert settled_racks(("x", "y"), {1: "a", 2: "b"}, 2) == {1: "x", 2: "y"}
    assert settled_racks((None, None), {1: "a", 2: "b"}, 2) == {1: NO_RACK, 2: NO_RACK}
    with pytest.raises(ConfigError, match="racks has 2 names, and the cluster has 3 nodes"):
        settled_racks(("x", "y"), {}, 3)
    with pytest.raises(ConfigError, match=r"node 3 has none.*all 3 nodes"):
        settled_racks(None, {1: "a", 2: "b", 3: None}, 3)


def test_racks_are_kept_changed_and_used(tmp_path: Path) -> None:
    """A topic's replicas are in both racks. A consumer with a rack reads there. Reopening keeps the racks, another
    list changes them, and a list of None ends them."""
    with Cluster(tmp_path / "c", nodes=4, racks=NAMES) as cluster:
        assert racks_of(cluster) == NAMES
        topic = cluster.admin.create_topic("t", partitions=4, replication_factor=2)
        for partition in topic.partitions:
            assert {NAMES[number - 1] for number in partition.replicas} == {"a", "b"}
        with cluster.producer() as producer:
            for number in range(4):
                producer.send("t", b"%d" % number, partition=number).result()
        for rack in ("a", "b", "elsewhere"):
            with cluster.consumer("t", read_from="follower", rack=rack) as consumer:
                found: list[bytes | None] = []
                while len(found) < 4:
                    found += [record.value for record in consumer.poll(timeout=5.0)]
                assert sorted(one for one in found if one is not None) == [b"0", b"1", b"2", b"3"]
        cluster.nodes[0].kill()
        cluster.nodes[0].restart()
        assert racks_of(cluster) == NAMES
        with pytest.raises(ConfigError, match="read_from"):
            cluster.consumer("t", rack="a")
        with pytest.raises(ConfigError, match="rack is 7"):
            cluster.consumer("t", read_from="follower", rack=7)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="node 5 has none"):
        Cluster(tmp_path / "c", nodes=5)
    with Cluster(tmp_path / "c") as cluster:
        assert racks_of(cluster) == NAMES
    with Cluster(tmp_path / "c", racks=["x", "x", "y", "y"]) as cluster:
        assert racks_of(cluster) == ["x", "x", "y", "y"]
    with Cluster(tmp_path / "c", racks=[None] * 4) as cluster:
        assert racks_of(cluster) == [None] * 4


def test_racks_in_coroutines(tmp_path: Path) -> None:
    """The asyncio twin takes racks and the rack of a consumer."""

    async def main() -> None:
        async with aio.Cluster(tmp_path / "c", nodes=2, racks=["a", "b"]) as cluster:
            assert [node.rack for node in (await cluster.admin.describe_cluster()).nodes] == ["a", "b"]
            await cluster.admin.create_topic("t", placement="shifted")
            async with await cluster.consumer("t", read_from="follower", rack="b") as consumer:
                assert list(await consumer.poll(timeout=0)) == []

    asyncio.run(main())
