"""Readers of a cluster whose nodes' folders are partly away: they refuse, because the rest would look like the
whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import pyreplog
from pyreplog import Cluster, CorruptError, StorageNotFoundError, UnknownTopicError
from pyreplog.cli.main import main
from pyreplog.system import SystemDisk
from pyreplog.verify import Level, verify
from tests.interop.golden.cluster_0_1 import as_version_0_1


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed cluster of two nodes; ``t`` has a partition with three records on each, without replicas."""
    return _written(tmp_path_factory.mktemp("halves") / "data")


def _written(path: Path) -> Path:
    with Cluster(path, nodes=2) as cluster:
        cluster.admin.create_topic("t", partitions=2, replication_factor=1)
        with cluster.producer() as producer:
            for partition in (0, 1):
                producer.send_many("t", [b"x"] * 3, partition=partition).wait()
    return path


def _read_log(path: Path) -> None:
    with pyreplog.open_log(path, topic="t", partition=0, mode="r") as log:
        list(log)


def _read_cluster(path: Path) -> None:
    with Cluster(path, mode="r") as cluster, cluster.consumer("t") as consumer:
        list(consumer.until_end())


def _back_up(path: Path) -> None:
    pyreplog.backup(path, path.parent / "copy")


READERS = pytest.mark.parametrize("read", [_read_log, _read_cluster, _back_up])


def _without(halves: Path, tmp_path: Path, *nodes: int) -> Path:
    path = tmp_path / "data"
    shutil.copytree(halves, path)
    for node in nodes:
        shutil.rmtree(path / f"node-{node}")
    return path


@READERS
@pytest.mark.parametrize("nodes", [(1,), (2,), (1, 2)])
def test_a_part_of_a_cluster_is_not_read_as_the_whole(
    halves: Path, tmp_path: Path, read: Callable[[Path], None], nodes: tuple[int, ...]
) -> None:
    """Each way to read names the partition, its node and the missing folder."""
    path = _without(halves, tmp_path, *nodes)
    # Without any node nothing may be left that names the topics.
    with pytest.raises((StorageNotFoundError, UnknownTopicError) if nodes == (1, 2) else StorageNotFoundError):
        read(path)


@pytest.mark.parametrize("command", ["cat", "export", "topics", "verify", "repair"])
def test_no_command_takes_a_part_for_the_whole(
    halves: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command names the absent partition and does not end with 0; ``topics`` and ``export`` do the rest."""
    path = _without(halves, tmp_path, 2)
    target = tmp_path / "out.ndjson"
    status = main([command, str(path), *([str(target)] if command == "export" else [])])
    out, err = capsys.readouterr()
    assert status == (1 if command in ("cat", "export", "topics") else 3)
    absent = next(f"t-{number}" for number in (0, 1) if not (path / "node-1" / f"t-{number}").exists())
    assert absent in out + err
    assert command not in ("cat",) or not out
    assert command != "export" or target.read_text().count("\n") == 3


def test_one_node_alone_is_read_as_it_is(halves: Path) -> None:
    """The folder of one node is a log of its own; the controller's file beside it is not asked."""
    with pyreplog.open_log(halves / "node-1", topic="t", mode="r") as log:
        assert len(list(log)) == 3


@pytest.fixture(scope="module")
def lagging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed cluster of two nodes, of which the leader alone has the second ten of twenty records."""
    path = tmp_path_factory.mktemp("lagging") / "data"
    with Cluster(path, nodes=2) as cluster:
        cluster.admin.create_topic("t", replication_factor=2, config={"min.insync.replicas": "1"})
        with cluster.producer() as producer:
            producer.send_many("t", [b"x"] * 10).wait()
            leader = cluster.admin.describe("t").partitions[0].leader
            cluster.nodes[2 - leader].stop()
            producer.send_many("t", [b"y"] * 10).wait()
    os.rename(path / f"node-{leader}", path.parent / "away")
    return path


@READERS
def test_a_copy_outside_the_in_sync_set_is_not_read_as_the_whole(lagging: Path, read: Callable[[Path], None]) -> None:
    """The leader's folder is away, and the follower's copy lacks acknowledged records: the refusal names both and
    the way out."""
    with pytest.raises(StorageNotFoundError, match=r"t-0 has no copy of an in-sync replica.*node-\d.*repair"):
        read(lagging)


@READERS
def test_a_foreign_controller_file_is_refused(tmp_path: Path, read: Callable[[Path], None]) -> None:
    """Its topics and partitions are not those of the nodes beside it."""
    path = _written(tmp_path / "data")
    with Cluster(tmp_path / "other", nodes=1) as cluster:
        cluster.admin.create_topic("t", replication_factor=1)
    shutil.copy2(as_version_0_1(tmp_path / "other"), as_version_0_1(path))
    with pytest.raises(CorruptError, match="is that of cluster"):
        read(path)


def test_a_clean_close_lets_every_replica_end_with_the_high_watermark(tmp_path: Path) -> None:
    """After an orderly close each in-sync copy alone shows every record that was acknowledged, also the last
    one."""
    path = tmp_path / "data"
    with Cluster(path, nodes=3) as cluster:
        cluster.admin.create_topic("t", replication_factor=3)
        with cluster.producer() as producer:
            for _ in range(5):
                producer.send("t", b"x").result()
    for node in (1, 2, 3):
        with pyreplog.open_log(path / f"node-{node}", topic="t", mode="r") as log:
            assert len(list(log)) == 5


@pytest.fixture(scope="module")
def overtaken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed cluster of two nodes beside the controller's file of an earlier session, in which the topic ``new``
    did not exist."""
    path = tmp_path_factory.mktemp("overtaken") / "data"
    for topic in ("t", "new"):
        with Cluster(path, nodes=2) as cluster:
            cluster.admin.create_topic(topic, replication_factor=2)
            with cluster.producer() as producer:
                producer.send("t", b"x").result()
                producer.send(topic, b"x").result()
        if topic == "t":
            shutil.copytree(path, path.parent / "older")
    shutil.copy2(as_version_0_1(path.parent / "older"), as_version_0_1(path))
    return path


def test_verify_reports_folders_that_an_older_controller_file_does_not_know(overtaken: Path) -> None:
    """A topic that the file does not name, and a leader epoch above its own, are damage."""
    found = [one for one in verify(SystemDisk(), str(overtaken)).findings if one.level is Level.DAMAGE]
    assert {one.path.rpartition("/")[2] for one in found} == {"t-0", "new-0"}
    assert any("leader epoch" in one.what for one in found)


def test_opening_refuses_an_older_controller_file_before_it_renames_a_folder(overtaken: Path) -> None:
    """The error names the file and a folder of a later leader epoch; every folder keeps its name."""
    before = sorted(str(one) for one in overtaken.glob("node-*/*"))
    with pytest.raises(CorruptError, match=r"replog\.controller.*older.*t-0.*leader epoch"):
        Cluster(overtaken)
    assert sorted(str(one) for one in overtaken.glob("node-*/*")) == before


def test_a_listed_disk_with_the_node_of_another_cluster_is_named(tmp_path: Path) -> None:
    """`verify` blames that folder, not the controller; a reader says which folder belongs to which cluster."""
    ids = {}
    for name in ("ours", "other"):
        with Cluster(tmp_path / name, nodes=[tmp_path / f"{name}-{node}" for node in (1, 2)]) as cluster:
            cluster.admin.create_topic("t", replication_factor=2)
            ids[name] = cluster.cluster_id
    disk = tmp_path / "ours-2"
    shutil.rmtree(disk)
    shutil.copytree(tmp_path / "other-2", disk)
    found = [one for one in verify(SystemDisk(), str(tmp_path / "ours")).findings if one.level is Level.DAMAGE]
    assert [one.path for one in found] == [str(disk)]
    assert ids["ours"] in found[0].what
    assert ids["other"] in found[0].what
    with (
        pytest.raises(pyreplog.ConfigError, match=f"{tmp_path}/ours-2 of cluster {ids['other']}"),
        pyreplog.open_log(tmp_path / "ours", topic="t", mode="r"),
    ):
        pass
