"""A cluster with one controller's file is opened as a quorum: nothing is lost, and ids and epochs go on growing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pyreplog
from pyreplog.controller import STATE_FILE, ControllerState, MetadataImage, encode, load
from pyreplog.errors import ConfigError, StorageNotFoundError
from pyreplog.log import CONVERTED_NAME
from pyreplog.system import SystemDisk
from tests.interop.golden import cluster_0_1
from tests.interop.golden.cluster_0_1 import as_version_0_1

CHANGES = ("make_directory", "create", "rename", "remove", "sync_directory")
"""The calls of a disk at which the conversion is interrupted."""


class Killed(BaseException):
    """The process ended."""


class MortalDisk:
    """A disk that lets so many changes through, and then no more."""

    def __init__(self, disk: SystemDisk, left: int) -> None:
        self._disk = disk
        self.left = left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._disk, name)
        if name not in CHANGES:
            return found

        def change(*arguments: Any) -> Any:
            if not self.left:
                raise Killed
            self.left -= 1
            return found(*arguments)

        return change


def state_in(path: Path) -> ControllerState:
    """The state in the controller's file."""
    disk = SystemDisk()
    try:
        state = load(disk, str(path))
    finally:
        disk.close()
    assert state is not None
    return state


def made(path: Path, nodes: int = 3) -> ControllerState:
    """A cluster with one controller's file; its state."""
    with pyreplog.Cluster(path, nodes=nodes) as cluster:
        cluster.admin.create_topic("orders", partitions=2, config={"retention.ms": "86400000"})
        with cluster.producer() as producer:
            for number in range(10):
                producer.send("orders", b"%d" % number).result()
    as_version_0_1(path)
    return state_in(path)


def values_in(cluster: pyreplog.Cluster, topic: str, count: int) -> set[bytes | None]:
    """The values of the topic."""
    found: list[bytes | None] = []
    with cluster.consumer(topic) as consumer:
        while len(found) < count:
            found += [record.value for record in consumer.poll(timeout=10)]
    return set(found)


def check(path: Path, before: ControllerState, values: set[bytes]) -> None:
    """Open the folder as a quorum: twice, so that the second opening finds no file. It has everything of before."""
    for opening in range(2):
        with pyreplog.Cluster(path) as cluster:
            assert not (path / STATE_FILE).exists()
            assert (path / CONVERTED_NAME).exists()
            assert cluster.cluster_id == before.cluster_id
            image = cluster._controller.image
            assert image.topic_ids == before.image.topic_ids
            assert all(one.epoch > before.image.offset for one in image.brokers.values() if one.active)
            for topic in before.image.topics.values():
                described = cluster.admin.describe(topic.name)
                assert len(described.partitions) == len(topic.partitions)
                assert dict(topic.config).items() <= dict(described.config).items()
                for one in described.partitions:
                    assert one.leader_epoch >= topic.partitions[one.partition].leader_epoch
            assert image.next_producer_id >= before.image.next_producer_id
            more = {b"more %d" % number for number in range(opening)}
            assert values_in(cluster, "orders", len(values | more)) == values | more
            with cluster.producer() as producer:
                producer.send("orders", b"more %d" % opening).result()


def test_the_folder_of_version_0_1(tmp_path: Path) -> None:
    path = cluster_0_1.unpack(tmp_path)
    before = state_in(path)
    assert before.image.offset == cluster_0_1.OFFSET
    check(path, before, cluster_0_1.VALUES)


@pytest.mark.parametrize(("nodes", "voters"), [(1, 1), (2, 1), (4, 3)])
def test_the_folder_of_one_controller(tmp_path: Path, nodes: int, voters: int) -> None:
    """The nodes with the lowest numbers vote: one of one or two, else three."""
    path = tmp_path / "data"
    check(path, made(path, nodes), {b"%d" % number for number in range(10)})
    with pyreplog.Cluster(path) as cluster:
        info = cluster.admin.describe_quorum()
        assert [one.node_id for one in info.voters] == list(range(1, voters + 1))
        assert [one.node_id for one in info.observers] == list(range(voters + 1, nodes + 1))


@pytest.mark.parametrize("left", [0, 1, 5, 12, 19, 26, 33])
def test_killed_in_the_conversion(tmp_path: Path, left: int) -> None:
    """Opened again, it is whole."""
    path = tmp_path / "data"
    before = made(path)
    disk = MortalDisk(SystemDisk(), left)
    with pytest.raises(Killed):
        pyreplog.Cluster(path, disk=lambda name: disk if name == "controller" else SystemDisk())
    check(path, before, {b"%d" % number for number in range(10)})


def test_a_cluster_that_no_node_ever_ran_in(tmp_path: Path) -> None:
    """Its file is moved away, and the cluster is a new one."""
    content = encode(ControllerState("y8eZxIiI6FzqjrRRbN2Wdw", MetadataImage()))
    (tmp_path / STATE_FILE).write_bytes(content)
    with pyreplog.Cluster(tmp_path, nodes=3) as cluster:
        assert cluster.controller is not None
    assert (tmp_path / CONVERTED_NAME).read_bytes() == content


def test_a_missing_majority_is_refused(tmp_path: Path) -> None:
    """The file stays, because the voters could not agree on anything."""
    path = tmp_path / "data"
    made(path)
    for number in (1, 2):
        (path / f"node-{number}").rename(tmp_path / f"away-{number}")
    with pytest.raises(StorageNotFoundError, match="Those of 1, 2 are missing"):
        pyreplog.Cluster(path)
    assert (path / STATE_FILE).exists()
    (tmp_path / "away-1").rename(path / "node-1")
    with pyreplog.Cluster(path) as cluster:
        assert len(values_in(cluster, "orders", 10)) == 10


ROLES = [
    ({4: "controller"}, {4}, ["broker", "broker", "broker", "controller"]),
    ({2: "broker,controller"}, {2}, ["broker", "broker,controller", "broker"]),
    (
        {1: "broker,controller", 4: "controller", 5: "controller"},
        {1, 4, 5},
        ["broker,controller", "broker", "broker", "controller", "controller"],
    ),
]
"""Roles that a conversion may be given, the voters, and the role of each node."""


def check_roles(path: Path, voters: set[int], roles: list[str], nodes: int, asked: dict[int, str] | None) -> None:
    """Open the folder with these roles, then without a word of them: they are kept, and nothing is lost."""
    for given in (asked, None):
        with pyreplog.Cluster(path, nodes=nodes, roles=given) as cluster:
            assert {voter.node_id for voter in cluster.admin.describe_quorum().voters} == voters
            assert [node.role for node in cluster.nodes] == roles
            assert values_in(cluster, "orders", 10) == {b"%d" % number for number in range(10)}
            assert {replica for one in cluster.admin.describe("orders").partitions for replica in one.replicas} == {
                1,
                2,
                3,
            }


@pytest.mark.parametrize(("asked", "voters", "roles"), ROLES)
def test_roles_at_the_conversion(tmp_path: Path, asked: dict[int, str], voters: set[int], roles: list[str]) -> None:
    """The nodes with a vote are the first voters; a new one gets its folder."""
    path = tmp_path / "data"
    made(path)
    check_roles(path, voters, roles, len(roles), asked)


def test_the_folder_of_version_0_1_with_roles(tmp_path: Path) -> None:
    path = cluster_0_1.unpack(tmp_path)
    count = len(state_in(path).image.brokers) + 1
    with pyreplog.Cluster(path, nodes=count, roles={count: "controller"}) as cluster:
        assert cluster.node(count).role == "controller"
        assert values_in(cluster, "orders", len(cluster_0_1.VALUES)) == cluster_0_1.VALUES
        for number in range(1, count - 1):
            cluster.node(number).kill()
        assert cluster.controller == cluster.node(count)


@pytest.mark.parametrize("left", [2, 9, 16, 23, 30, 37, 44])
def test_killed_in_the_conversion_with_roles(tmp_path: Path, left: int) -> None:
    """The next opening has these roles, also if it names none: they are kept before the file counts no more."""
    path = tmp_path / "data"
    made(path)
    disk = MortalDisk(SystemDisk(), left)
    asked, voters, roles = ROLES[0]
    with pytest.raises(Killed):
        pyreplog.Cluster(path, nodes=4, roles=asked, disk=lambda name: disk if name == "controller" else SystemDisk())
    converted = not (path / STATE_FILE).exists()
    check_roles(path, voters, roles, 4, None if converted else asked)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({1: "controller"}, "node 1 of this cluster may hold partitions, so it cannot only vote"),
        ({1: "broker"}, "roles has no voter"),
        ({4: "controller"}, "the nodes are 1 to 3: add nodes with nodes=4"),
    ],
)
def test_roles_that_the_conversion_cannot_give(tmp_path: Path, asked: dict[int, str], reason: str) -> None:
    """Each is refused with the way out, and the file and the folders stay as they are."""
    path = tmp_path / "data"
    made(path)
    before = {file: file.read_bytes() for file in path.rglob("meta.properties")}
    with pytest.raises(ConfigError, match=reason):
        pyreplog.Cluster(path, nodes=3, roles=asked)
    assert (path / STATE_FILE).exists()
    assert {file: file.read_bytes() for file in path.rglob("meta.properties")} == before
