"""``roles=``: nodes that only vote, nodes without a vote, and a cluster in which all but one node die."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import pyreplog
from pyreplog.errors import ConfigError, PyreplogError
from pyreplog.runtime.cluster_node import ClusterNode
from pyreplog.runtime.node_roles import parsed_role, settled_roles

ONE_VOTER = {4: "controller"}
LACK = "0 of 1 voters is up: restart node 4"


def test_all_but_one_broker_die(tmp_path: Path) -> None:
    """The third broker goes on as min ISR allows, because the node that only votes decides."""
    with pyreplog.Cluster(tmp_path / "c", nodes=4, roles=ONE_VOTER) as cluster:
        assert [node.role for node in cluster.nodes] == ["broker", "broker", "broker", "controller"]
        cluster.admin.create_topic("alone", config={"min.insync.replicas": 1})
        cluster.admin.create_topic("together")
        with cluster.producer(delivery_timeout_ms=1500) as producer:
            producer.send("alone", b"0").result(10)
            producer.send("together", b"0").result(10)
            cluster.nodes[0].kill()
            cluster.nodes[1].kill()
            assert producer.send("alone", b"1").result(10).offset == 1
            with pytest.raises(PyreplogError):
                producer.send("together", b"1").result(10)
            cluster.nodes[0].restart()
            assert producer.send("together", b"2").result(10).offset >= 1
        assert cluster.controller is cluster.node(4)


def test_without_a_voter_calls_say_which_node_to_restart(tmp_path: Path) -> None:
    """The cluster goes on when the node is back."""
    with pyreplog.Cluster(tmp_path / "c", nodes=4, roles=ONE_VOTER) as cluster:
        cluster.admin.create_topic("t", config={"min.insync.replicas": 1})
        voter = cluster.node(4)
        voter.kill()
        assert cluster.controller is None
        assert (voter.alive, voter.ready, voter.state) == (False, False, "down")
        cluster.admin._machine._timeout_ms = 500
        with pytest.raises(PyreplogError, match=LACK):
            cluster.admin.create_topic("u")
        with pytest.raises(PyreplogError, match=LACK):
            cluster.admin.describe("t")
        voter.restart()
        assert cluster.controller is voter
        cluster.admin.create_topic("u")
        with cluster.producer() as producer:
            producer.send("u", b"value").result(10)


def test_a_node_that_only_votes_has_the_face_of_a_node(tmp_path: Path) -> None:
    """State, kill, stop, pause, repr; it leads nothing, and no client asks it."""
    with pyreplog.Cluster(tmp_path / "c", nodes=4, roles=ONE_VOTER) as cluster:
        cluster.admin.create_topic("t", partitions=4)
        voter = cluster.node(4)
        assert (voter.alive, voter.ready, voter.state, voter.failure, voter.losses) == (True, True, "ready", None, [])
        assert not voter.leads("t")
        assert repr(voter).endswith("node-4', ready>")
        assert "node-4" not in cluster._nodes.addresses()
        states = [(node.node_id, node.state) for node in cluster.admin.describe_cluster().nodes]
        assert states == [(number, "online") for number in (1, 2, 3, 4)]
        assert {number for part in cluster.admin.describe("t").partitions for number in part.replicas} == {1, 2, 3}
        voter.pause()
        assert voter.state == "paused"
        voter.resume()
        assert repr(voter).endswith(", ready>")
        voter.stop()
        voter.stop()
        voter.kill()
        assert repr(voter).endswith(", down>")
        voter.restart()
        voter.restart()  # kills it first
        with pytest.raises(ConfigError, match="there are 3 brokers"):
            cluster.admin.create_topic("wide", replication_factor=4)


def test_the_folders_keep_the_roles(tmp_path: Path) -> None:
    """The next opening needs none; another role is refused, with what to do."""
    path = tmp_path / "c"
    with pyreplog.Cluster(path, nodes=4, roles={4: "controller", 1: "controller,broker"}) as cluster:
        cluster.admin.create_topic("t")
        roles = [node.role for node in cluster.nodes]
    assert roles == ["broker,controller", "broker", "broker", "controller"]
    assert "process.roles=controller\n" in (path / "node-4" / "meta.properties").read_text()
    with pyreplog.Cluster(path) as cluster:
        assert [node.role for node in cluster.nodes] == roles
        assert cluster.admin.topics() == ["t"]
    with pytest.raises(ConfigError, match="role of node 4 is 'controller'.*leave node 4 out of roles, and add a node"):
        pyreplog.Cluster(path, roles={4: "broker"})
    with pyreplog.Cluster(path, roles={4: "controller"}) as cluster:  # the others keep theirs
        assert [node.role for node in cluster.nodes] == roles


@pytest.mark.parametrize(
    ("roles", "reason"),
    [
        ({1: "controlle"}, "role of node 1 is 'controlle'; did you mean 'controller'"),
        ({1: 3}, "it must be one of broker, controller, broker,controller"),
        ({0: "broker"}, "whole number from 1"),
        ({"4": "controller"}, "whole number"),
        ({5: "controller"}, "the nodes are 1 to 4: add nodes with nodes=5"),
        ({1: "broker"}, "roles has no voter"),
        ({}, "roles has no voter"),
        (dict.fromkeys(range(1, 5), "controller"), "roles has no broker"),
        (["controller"], "it must be a dict of roles by node number"),
    ],
)
def test_roles_that_cannot_be_meant(tmp_path: Path, roles: dict[int, str], reason: str) -> None:
    """Each is refused with the way out, before anything is written."""
    with pytest.raises(ConfigError, match=reason):
        pyreplog.Cluster(tmp_path / "c", nodes=4, roles=roles)
    assert not list(tmp_path.rglob("meta.properties"))


def test_a_reader_takes_no_roles(tmp_path: Path) -> None:
    """It takes the cluster as it is, and reads one with a node that only votes."""
    with pyreplog.Cluster(tmp_path / "c", nodes=2, roles={2: "controller"}) as cluster:
        cluster.admin.create_topic("t")
        with cluster.producer() as producer:
            producer.send("t", b"value").result(10)
    with pytest.raises(ConfigError, match="roles belongs to mode='a'"):
        pyreplog.Cluster(tmp_path / "c", mode="r", roles={2: "controller"})  # type: ignore[call-overload]
    with pyreplog.Cluster(tmp_path / "c", mode="r") as reader:
        assert reader.topics() == ["t"]


def test_a_half_made_cluster_is_finished_with_its_roles(tmp_path: Path) -> None:
    """A crash may leave a folder with a role and no voter."""
    path = tmp_path / "c"
    with pyreplog.Cluster(path, nodes=2, roles={2: "controller"}):
        pass
    for name in ("node-1/__cluster_metadata-0", "node-2"):
        remove(path / name)
    with pytest.raises(ConfigError, match="Open it with the roles= that it was made with"):
        settled_roles(None, {1: "broker"}, (), (), 2)
    with pyreplog.Cluster(path, nodes=2, roles={2: "controller"}) as cluster:
        assert cluster.controller is cluster.node(2)


def test_failover_among_five_voters_waits_for_no_timer(tmp_path: Path) -> None:
    """The active controller is killed again and again; the next change needs far less than the fetch timeout."""
    roles = dict.fromkeys(range(3, 8), "controller")
    with pyreplog.Cluster(tmp_path / "c", nodes=7, roles=roles) as cluster:
        cluster.admin.create_topic("t0")
        for number in (1, 2):
            active = cluster.controller
            assert active is not None
            assert active.node_id >= 3
            active.kill()
            began = time.monotonic()
            cluster.admin.create_topic(f"t{number}")
            assert time.monotonic() - began < 1.0  # the fetch timeout is 2 s; on a quiet machine some 30 ms
        assert sum(isinstance(node, ClusterNode) and node.alive for node in cluster.nodes) == 5
        third = cluster.controller
        assert third is not None
        third.kill()
        cluster.admin._machine._timeout_ms = 500
        with pytest.raises(PyreplogError, match="2 of 5 voters are up: restart node"):
            cluster.admin.create_topic("t3")


def test_roles_of_the_awaitable_cluster(tmp_path: Path) -> None:
    """It takes the same setting."""

    async def run() -> list[str]:
        async with pyreplog.aio.Cluster(tmp_path / "c", nodes=2, roles={2: "controller"}) as cluster:
            await cluster.admin.create_topic("t")
            return [node.role for node in cluster.nodes]

    assert asyncio.run(run()) == ["broker", "controller"]


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("broker", "broker"),
        ("controller", "controller"),
        ("controller, broker", "broker,controller"),
        ("", None),
        ("voter", None),
    ],
)
def test_texts_of_roles(text: str, role: str | None) -> None:
    """Kafka takes both orders."""
    assert parsed_role(text) == role


def remove(path: Path) -> None:
    """Remove a folder with all in it."""
    for inside in sorted(path.rglob("*"), reverse=True):
        inside.rmdir() if inside.is_dir() else inside.unlink()
    path.rmdir()
