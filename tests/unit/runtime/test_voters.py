"""The voters of a cluster follow its nodes: folders that were emptied, nodes that were added or are replaced."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pyreplog
from pyreplog.errors import ConfigError, NotControllerError, StorageError
from pyreplog.runtime.quorum_host import QuorumHost
from tests.unit.runtime.test_roles import remove


def test_an_emptied_folder_gets_its_vote_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By itself, with a warning, while the others are a majority; then any one of the others may die."""
    with pyreplog.Cluster(tmp_path / "c", nodes=3) as cluster:
        cluster.admin.create_topic("t")
        before = voters(cluster)
        cluster.node(2).kill()
        remove(tmp_path / "c" / "node-2")
        with caplog.at_level(logging.WARNING, "pyreplog"):
            cluster.node(2).restart()
        assert "node 2 has a new folder" in caplog.text
        wait(cluster, lambda: host(cluster).is_voter(2))
        after = voters(cluster)
        assert set(after) == {1, 2, 3}
        assert after[2] != before[2]
        cluster.node(1).kill()
        cluster.admin.create_topic("u", replication_factor=1)
    with pyreplog.Cluster(tmp_path / "c") as cluster:  # the folders know it, too
        assert voters(cluster) == after
        assert cluster.admin.topics() == ["t", "u"]


def test_a_folder_that_was_emptied_while_the_cluster_was_closed(tmp_path: Path) -> None:
    """The opening does not wait for the vote."""
    with pyreplog.Cluster(tmp_path / "c", nodes=3) as cluster:
        cluster.admin.create_topic("t")
    remove(tmp_path / "c" / "node-3")
    with pyreplog.Cluster(tmp_path / "c", nodes=3) as cluster:
        wait(cluster, lambda: host(cluster).is_voter(3))
        assert cluster.admin.topics() == ["t"]


@pytest.mark.parametrize(
    ("first", "then", "expected"), [(1, 2, {1}), (1, 3, {1, 2, 3}), (2, 4, {1, 2, 3}), (3, 5, {1, 2, 3})]
)
def test_more_nodes_bring_the_voters_to_the_rule(tmp_path: Path, first: int, then: int, expected: set[int]) -> None:
    """One voter for one or two nodes, three for three and more."""
    with pyreplog.Cluster(tmp_path / "c", nodes=first) as cluster:
        cluster.admin.create_topic("t")
    with pyreplog.Cluster(tmp_path / "c", nodes=then) as cluster:
        wait(cluster, lambda: set(voters(cluster)) == expected and all(map(host(cluster).is_voter, expected)))
        roles = {node.node_id for node in cluster.nodes if "controller" in node.role}
        assert roles == expected
        if len(expected) == 3:
            cluster.node(1).kill()
        cluster.admin.create_topic("u", replication_factor=1)


def test_a_new_node_votes_by_its_role(tmp_path: Path) -> None:
    """From one voter to two."""
    with pyreplog.Cluster(tmp_path / "c", nodes=2, roles={2: "controller"}):
        pass
    with pyreplog.Cluster(tmp_path / "c", nodes=3, roles={3: "controller"}) as cluster:
        wait(cluster, lambda: set(voters(cluster)) == {2, 3} and host(cluster).is_voter(3))
        assert [node.role for node in cluster.nodes] == ["broker", "controller", "controller"]


def test_voters_beyond_the_roles_lose_their_vote(tmp_path: Path) -> None:
    """After a recovery with a broker's metadata the broker votes, until the node with the role does. The opening that
    finds it so, this one or the next, takes the broker's vote."""
    path = tmp_path / "c"
    with pyreplog.Cluster(path, nodes=4, roles={4: "controller"}) as cluster:
        cluster.admin.create_topic("t")
    for file in (path / "node-4" / "__cluster_metadata-0").iterdir():
        if file.is_file():
            file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(pyreplog.QuorumLostError, match="0 of 1 voters is whole: that of node 4 is damaged"):
        pyreplog.Cluster(path)
    first = pyreplog.recover_quorum(path).node_id
    assert first != 4
    with pyreplog.Cluster(path) as cluster:
        wait(cluster, lambda: host(cluster).is_voter(4))
    with pyreplog.Cluster(path) as cluster:
        wait(cluster, lambda: set(voters(cluster)) == {4})
        for number in (1, 2):
            cluster.node(number).kill()
        assert cluster.controller == cluster.node(4)
        cluster.admin.create_topic("u", replication_factor=1)
    with pyreplog.Cluster(path) as cluster:
        assert set(voters(cluster)) == {4}
        assert cluster.admin.topics() == ["t", "u"]


def test_a_folder_outside_is_replaced_on_request(tmp_path: Path) -> None:
    """It may be a disk that is not mounted, so the node stays down until then."""
    folders = [tmp_path / f"disk{number}" / "n" for number in (1, 2, 3)]
    with pyreplog.Cluster(tmp_path / "c", nodes=folders) as cluster:
        cluster.admin.create_topic("t")
        with cluster.producer() as producer:
            producer.send("t", b"value").result(10)
        before = voters(cluster)
        cluster.node(3).kill()
        remove(folders[2])
        with pytest.raises(StorageError, match="perhaps its disk is not mounted"):
            cluster.node(3).restart()
        cluster.admin.replace_node(3)
        assert host(cluster).is_voter(3)
        assert voters(cluster)[3] != before[3]
        cluster.node(1).kill()
        cluster.admin.create_topic("u", replication_factor=1)
    with pyreplog.Cluster(tmp_path / "c") as cluster:
        assert cluster.admin.topics() == ["t", "u"]
        assert all(node.ready for node in cluster.nodes)


def test_damaged_metadata_is_replaced_on_request(tmp_path: Path) -> None:
    """The voter that cannot vouch for its files loses its vote, copies the metadata, and votes again."""
    with pyreplog.Cluster(tmp_path / "c", nodes=3) as cluster:
        cluster.admin.create_topic("t")
        cluster.node(2).kill()
        state = tmp_path / "c" / "node-2" / "__cluster_metadata-0" / "quorum-state"
        state.write_bytes(state.read_bytes().replace(b"leaderEpoch", b"leaderEpocj"))
        cluster.node(2).restart()
        assert not host(cluster).is_voter(2)
        cluster.admin.replace_node(2)
        assert host(cluster).is_voter(2)
        cluster.node(1).kill()
        cluster.admin.create_topic("u", replication_factor=1)


def test_a_whole_node_is_left_alone(tmp_path: Path) -> None:
    """One that is down is started; a number that no node has is named."""
    with pyreplog.Cluster(tmp_path / "c", nodes=3) as cluster:
        before = voters(cluster)
        cluster.admin.replace_node(2)
        cluster.node(2).kill()
        cluster.admin.replace_node(2)
        assert cluster.node(2).ready
        assert voters(cluster) == before
        with pytest.raises(ConfigError, match="there is no node 4: the nodes are 1 to 3"):
            cluster.admin.replace_node(4)


def host(cluster: pyreplog.Cluster) -> QuorumHost:
    """Return the quorum of the cluster."""
    assert isinstance(cluster._controller, QuorumHost)
    return cluster._controller


def voters(cluster: pyreplog.Cluster) -> dict[int, str]:
    """Return the voters' folders by node."""
    return {voter.node_id: voter.directory_id for voter in host(cluster).newest_voters()}


def wait(cluster: pyreplog.Cluster, done: Callable[[], bool]) -> None:
    """Wait until ``done``."""
    began = time.monotonic()
    assert cluster._driver.wait_until(done, 20), (voters(cluster), time.monotonic() - began)


def test_a_call_without_a_majority_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits no longer than its timeout, nor than a node needs to start, and goes on when one has."""
    monkeypatch.setattr("pyreplog.runtime.admin.LACK_PATIENCE_S", 0.1)
    with pyreplog.Cluster(tmp_path / "c", nodes=3) as cluster:
        admin = cluster.admin
        admin.create_topic("t")
        cluster.node(2).kill()
        cluster.node(3).kill()
        calls: list[Callable[[], object]] = [
            admin.topics,
            admin.describe_cluster,
            admin.describe_quorum,
            lambda: admin.describe("t"),
            lambda: admin.create_topic("u"),
            lambda: admin.create_topics(["u"]),
            lambda: admin.delete_topic("t", timeout=0.05),
            lambda: admin.create_partitions("t", 2, timeout=0.05),
            lambda: admin.alter_config("t", {"retention.ms": 1000}, timeout=0.05),
            lambda: admin.alter_cluster_config({"retention.ms": 1000}, timeout=0.05),
            lambda: admin.elect_leaders("t"),
            lambda: admin.delete_records("t", {0: -1}),
        ]
        for call in calls:
            with pytest.raises(NotControllerError, match="1 of 3 voters is up: restart node 2 or 3"):
                call()
        cluster.node(2).restart()
        assert admin.topics() == ["t"]
        assert admin.describe("t").config.get("retention.ms") is None
