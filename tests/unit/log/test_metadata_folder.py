"""A node's root holds `__cluster_metadata-0`: it belongs to the quorum's server of that node, and all else pass over
it."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from pyreplog import Cluster, ConfigError, StorageError, backup, open_log
from pyreplog.config import LogConfig
from pyreplog.controller import convert_cluster, load
from pyreplog.log import LogRoot, find_logs
from pyreplog.log.clean_shutdown import read_farewell, read_incarnation
from pyreplog.quorum import QuorumConfig, ReplicaKey, Voter, VoterSet
from pyreplog.repair import plan_repair
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.verify import Level, verify
from pyreplog.wire import TopicRecord
from tests.interop.golden import cluster_0_1
from tests.oracle import metadata_folder as made

DISK = SystemDisk()
TOPIC_ID = "x8eZxIiI6FzqjrRRbN2Wdw"


def opened(path: Path) -> LogRoot:
    """The root at ``path``, opened for writing."""
    return LogRoot.open(DISK, str(path), clock=SystemClock(), random=Random(1), node_id=1)


def content(folder: Path) -> dict[str, bytes]:
    """Every file in ``folder``."""
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.mark.parametrize("first", ["the quorum", "the root"])
def test_a_root_leaves_the_metadata_folder_alone(tmp_path: Path, first: str) -> None:
    """It is neither hosted nor damaged, whichever of the two was made first; no checkpoint names it, and no file in it
    changes."""
    root = tmp_path / "node-1"
    if first == "the root":
        opened(root).close()
    folder = made.write(root, [TopicRecord("orders", TOPIC_ID)])
    before = content(folder)
    for _ in range(2):
        log_root = opened(root)
        if ("orders", 0) not in log_root.logs:
            log_root.create_log("orders", 0, TOPIC_ID, LogConfig())
        assert [key.topic for key in log_root.logs] == ["orders"]
        assert (log_root.damaged, log_root.notes) == ({}, [])
        log_root.close()
    assert content(folder) == before
    assert not any(b"__cluster" in file.read_bytes() for file in root.iterdir() if file.is_file())
    assert find_logs(DISK, str(root)).logs[0].foreign() == []


def test_a_metadata_folder_makes_a_root_no_other_programs(tmp_path: Path) -> None:
    """A root in which the quorum was formatted first adopts nothing."""
    made.write(tmp_path / "node-1", [])
    root = opened(tmp_path / "node-1")
    incarnation = read_incarnation(DISK, str(tmp_path / "node-1"))
    root.close(clean=False)
    assert incarnation is not None
    assert incarnation.adopting == ""


def test_a_root_without_other_partitions_is_found(tmp_path: Path) -> None:
    """The folder of a node that only votes is a root like any other."""
    folder = made.write(tmp_path / "data" / "node-1", [], snapshots=[(0, 0, [])])
    for name in (f"{0:020}.log", "leader-epoch-checkpoint", "partition.metadata"):
        (folder / name).unlink()
    opened(tmp_path / "data" / "node-1").close()
    (log,) = find_logs(DISK, str(tmp_path / "data")).logs
    assert (log.node_ids, log.foreign(), log.conflicts()) == ([1], [], [])


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A closed cluster of two nodes with one topic, and a metadata log on each node."""
    path = tmp_path / "data"
    with Cluster(path, nodes=2) as running:
        running.admin.create_topic("orders", replication_factor=2)
        with running.producer() as producer:
            producer.send("orders", b"x").result()
    return path


def test_the_metadata_log_is_no_topic(cluster: Path) -> None:
    """Not even an internal one, and nothing is wrong with it."""
    with Cluster(cluster) as running:
        assert len(running.nodes) == 2
        assert running.admin.topics(internal=True) == ["orders"]
    assert [one for one in verify(DISK, str(cluster)).findings if one.level is not Level.NOTE] == []


def test_a_backup_takes_each_nodes_metadata_as_it_is(cluster: Path, tmp_path: Path) -> None:
    """Log, snapshots and vote of a node belong together: nothing of one node's replaces another's."""
    target = tmp_path / "backups" / "data"
    backup(cluster, target)
    for number in (1, 2):
        copied, source = (content(path / f"node-{number}" / made.NAME) for path in (target, cluster))
        del source["replog.mark"]  # a copy has a mark of its own
        assert {name: copied.get(name) for name in source} == source


def test_a_backup_follows_a_metadata_log_whose_end_was_replaced(cluster: Path, tmp_path: Path) -> None:
    """An election may cut uncommitted records off. The earlier copy is set aside, and is not 'another history'."""
    target = tmp_path / "backups" / "data"
    backup(cluster, target)
    shutil.rmtree(cluster / "node-1" / made.NAME)
    folder = made.write(cluster / "node-1", [TopicRecord("orders", TOPIC_ID)] * 3, epoch=2)
    backup(cluster, target)
    copied = content(target / "node-1" / made.NAME)
    assert {name: copied.get(name) for name in content(folder)} == content(folder)


def test_a_backup_of_a_converted_cluster_is_restored_in_order(tmp_path: Path) -> None:
    """Each node counts as stopped in order, in the broker epoch that the metadata knows; a partition whose node is away
    is no part of a whole backup."""
    home = cluster_0_1.unpack(tmp_path)
    state = load(DISK, str(home))
    assert state is not None
    roots = {number: str(home / f"node-{number}") for number in (1, 2, 3)}
    brokers = state.image.brokers
    voters = VoterSet(
        Voter.at(ReplicaKey(number, brokers[number].log_dirs[0]), f"controller-{number}") for number in roots
    )
    convert_cluster(DISK, str(home), voters, roots, SystemClock(), QuorumConfig())
    target = tmp_path / "backups" / "data"
    backup(home, target)
    for number in roots:
        farewell = read_farewell(DISK, str(target / f"node-{number}"))
        assert farewell is not None
        assert farewell.broker_epoch == brokers[number].epoch
        assert content(target / f"node-{number}" / made.NAME).keys() >= {"quorum-state", "replog.quorum"}
    assert [one for one in verify(DISK, str(target)).findings if one.level is Level.DAMAGE] == []
    with Cluster(target, mode="r") as reader:
        assert reader.topics() == ["orders", "single"]
    (home / "node-3").rename(tmp_path / "away")
    with pytest.raises(StorageError, match="single-0"):
        backup(home, target)


def test_repair_leaves_the_metadata_log_out(cluster: Path) -> None:
    """It makes logs of records, and only a cluster writes its metadata."""
    assert [plan.topic for plan in plan_repair(DISK, str(cluster))] == ["orders"]
    with pytest.raises(StorageError):
        plan_repair(DISK, str(cluster / "node-1" / made.NAME))


def test_a_node_of_a_cluster_is_not_written_as_a_log(cluster: Path) -> None:
    """Nor by its metadata folder."""
    for folder in (cluster / "node-1", cluster / "node-1" / made.NAME):
        with pytest.raises(ConfigError):
            open_log(folder)
