"""Nodes on several disks: ``Cluster(path, nodes=[folders])``, links, and folders that are not there."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import pyreplog
from pyreplog import Cluster
from pyreplog.cli.reading import readers
from pyreplog.spark.access import FileAccess
from pyreplog.system import SystemDisk
from pyreplog.verify import verify
from tests.interop.golden.cluster_0_1 import as_version_0_1


@pytest.fixture
def disks(tmp_path: Path) -> list[str]:
    """Folders for two nodes, on what stands for two disks."""
    for name in ("disk1", "disk2"):
        (tmp_path / name).mkdir(mode=0o700)
    return [str(tmp_path / "disk1/n1"), str(tmp_path / "disk2/n2")]


def _spread(tmp_path: Path, disks: list[str]) -> Path:
    """A closed cluster whose two nodes lie on them, with one record in the topic ``orders``."""
    path = tmp_path / "data"
    with Cluster(path, nodes=disks) as cluster:
        cluster.admin.create_topic("orders")
        with cluster.producer() as producer:
            producer.send("orders", b"x").result()
    return path


def test_each_node_is_where_the_list_says(tmp_path: Path, disks: list[str]) -> None:
    """The listed folders are the nodes' roots; the cluster's own holds no log, and every reader finds them through
    it."""
    path = _spread(tmp_path, disks)
    assert all(os.path.isdir(f"{folder}/orders-0") for folder in disks)
    assert not [name for name in os.listdir(path) if name.startswith("node-")]
    with Cluster(path) as cluster:
        assert [(node.path, node.failure) for node in cluster.nodes] == [(folder, None) for folder in disks]
        assert pa.table(cluster.scan("orders")).num_rows == 1
        with Cluster(path, mode="r") as reader, reader.consumer("orders") as consumer:
            assert [record.value for record in consumer.poll()] == [b"x"]
    with pyreplog.open_log(path, "r") as log:
        assert [record.value for record in log] == [b"x"]
    with Cluster(path, nodes=disks) as cluster, Cluster(path, mode="r") as reader:
        assert reader.describe("orders") == cluster.admin.describe("orders")


def test_the_list_grows_and_moves_with_its_folders(tmp_path: Path, disks: list[str]) -> None:
    """A longer list adds nodes, a node's folder is moved while the cluster is closed, and the cluster's own folder
    may be moved."""
    path = tmp_path / "data"
    inside = str(path / "near")
    with Cluster(path, nodes=[*disks, inside]) as cluster:
        cluster.admin.create_topic("orders")
    moved = str(tmp_path / "disk1/moved")
    shutil.move(disks[1], moved)
    with Cluster(path, nodes=[disks[0], moved, inside, str(tmp_path / "disk1/n4")]) as cluster:
        assert [node.ready for node in cluster.nodes] == [True] * 4
    shutil.move(path, tmp_path / "elsewhere")
    with Cluster(tmp_path / "elsewhere") as cluster:
        assert [node.failure for node in cluster.nodes] == [None] * 4
        assert cluster.nodes[2].path == str(tmp_path / "elsewhere/near")
    with Cluster(tmp_path / "elsewhere", 5) as cluster:
        assert cluster.nodes[4].path == str(tmp_path / "elsewhere/node-5")
    with pytest.raises(pyreplog.ConfigError, match="has 5 nodes"):
        Cluster(tmp_path / "elsewhere", nodes=disks)


@pytest.mark.parametrize("kind", ["missing", "empty"])
def test_a_disk_that_is_not_mounted_is_a_node_that_is_down(
    tmp_path: Path, disks: list[str], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A listed folder that is missing or empty gets no new node: it is down, the warning says why, and it serves
    when it is back."""
    path = _spread(tmp_path, disks)
    shutil.move(disks[1], tmp_path / "unmounted")
    if kind == "empty":
        os.mkdir(disks[1], 0o700)
    with caplog.at_level(logging.WARNING, "pyreplog"), Cluster(path) as cluster:
        assert [node.ready for node in cluster.nodes] == [True, False]
        assert isinstance(cluster.nodes[1].failure, pyreplog.StorageNotFoundError)
        assert "node 2 is missing or empty" in caplog.text
        assert "not mounted" in caplog.text
        with pytest.raises(pyreplog.StorageNotFoundError, match="not mounted"):
            cluster.nodes[1].restart()
        assert not os.path.exists(disks[1]) or not os.listdir(disks[1])
        if kind == "empty":
            os.rmdir(disks[1])
        shutil.move(tmp_path / "unmounted", disks[1])
        cluster.nodes[1].restart()
        assert cluster.nodes[1].ready


def test_what_is_left_of_a_topic_is_not_the_topic(tmp_path: Path, disks: list[str]) -> None:
    """While the only copy of a partition lies on a disk that is not mounted, every reader of the topic says so;
    others are read."""
    path = tmp_path / "data"
    with Cluster(path, nodes=disks) as cluster:
        cluster.admin.create_topic("split", partitions=2, replication_factor=1)
        cluster.admin.create_topic("whole", replication_factor=2)
    shutil.move(disks[1], tmp_path / "unmounted")
    with Cluster(path, mode="r") as reader, Cluster(path) as cluster, FileAccess(str(path)) as spark:
        gone = cluster._controller.image.brokers[2]
        assert gone.fenced, "no session of a node that could not start is waited for"
        reads: list[Callable[[], object]] = [
            lambda: pyreplog.open_log(path, "r", topic="split"),
            lambda: list(cluster.scan("split").batches()),
            lambda: spark.partitions(),
            lambda: readers(str(path), topic="split").__enter__(),
        ]
        for read in reads:
            with pytest.raises(
                pyreplog.StorageNotFoundError, match=r"split-[01] has no folder.* node 2.*disk2/n2 is missing"
            ):
                read()
        assert reader.scan("whole") is not None
        assert cluster.scan("whole") is not None
    with pyreplog.open_log(path, "r", topic="whole") as log:
        assert list(log) == []


def test_a_node_inside_the_clusters_folder_is_filled_again(tmp_path: Path) -> None:
    """A missing or empty ``node-N`` in the cluster's own folder becomes a new copy, as ever."""
    path = tmp_path / "data"
    with Cluster(path, nodes=2) as cluster:
        cluster.admin.create_topic("orders")
    shutil.rmtree(path / "node-2")
    with Cluster(path) as cluster:
        assert [node.failure for node in cluster.nodes] == [None, None]


def test_a_lost_disk_is_replaced(tmp_path: Path, disks: list[str]) -> None:
    """Listed in the cluster's own folder, a node whose disk is lost is filled from the others; then its folder may
    be moved."""
    path = _spread(tmp_path, disks)
    shutil.rmtree(disks[1])
    inside = str(path / "node-2")
    with Cluster(path, nodes=[disks[0], inside]) as cluster:
        assert [node.failure for node in cluster.nodes] == [None, None]
        with cluster.producer() as producer:
            while len(cluster.admin.describe("orders").partitions[0].isr) < 2:
                producer.send("orders", b"y").result()
    with pyreplog.open_log(f"{inside}/orders-0", "r") as log:
        assert next(iter(log)).value == b"x"
    shutil.move(inside, disks[1])
    with Cluster(path, nodes=disks) as cluster:
        assert [node.ready for node in cluster.nodes] == [True, True]


def test_the_folder_of_another_node_is_refused(tmp_path: Path, disks: list[str]) -> None:
    """Folders in the wrong order, of another cluster, of an earlier life, or without the node are refused, and both
    are named."""
    path = _spread(tmp_path, disks)
    with pytest.raises(pyreplog.ConfigError, match="disk2/n2 belongs to node 2, not to node 1"):
        Cluster(path, nodes=disks[::-1])
    other = tmp_path / "other"
    with Cluster(other, nodes=1) as cluster:
        other_id = cluster.cluster_id
    with pytest.raises(pyreplog.ConfigError, match=f"other/node-1 belongs to cluster {other_id}, not to cluster"):
        Cluster(path, nodes=[str(other / "node-1"), disks[1]])
    with pytest.raises(
        pyreplog.ConfigError, match=r"node 2 keeps its log in .*disk2/n2, and .*disk2/new does not hold it"
    ):
        Cluster(path, nodes=[disks[0], str(tmp_path / "disk2/new")])
    properties = Path(disks[1]) / "meta.properties"
    lines = [line for line in properties.read_text().splitlines() if not line.startswith("directory.id")]
    properties.write_text("\n".join([*lines, "directory.id=AAAAAAAAAAAAAAAAAAAAAQ", ""]))
    with Cluster(path) as cluster:
        assert "directory.id" in str(cluster.nodes[1].failure)
        assert cluster.nodes[0].ready


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([], "whole number from 1 to 100"),
        (["a", "a"], "named twice"),
        (["a", "a/b"], "lie in one another"),
        (["."], "lie in one another"),
        ("a", "list of folders"),
        ([""], "empty"),
        (0, "whole number"),
        (True, "whole number"),
        (1.5, "list of folders"),
    ],
)
def test_lists_that_cannot_be_meant(tmp_path: Path, nodes: object, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made for a list that names a folder twice, one in another, the cluster's own or none."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pyreplog.ConfigError, match=said):
        Cluster(tmp_path / "data", nodes=nodes)  # type: ignore[call-overload]
    assert os.listdir(tmp_path) == []


def test_a_nodes_folder_is_no_log_of_its_own(tmp_path: Path, disks: list[str]) -> None:
    """``open_log`` reads a node's folder on another disk, and refuses to write to it: it names the cluster."""
    path = _spread(tmp_path, disks)
    with pytest.raises(pyreplog.ConfigError, match=f"belongs to a cluster: write to it with Cluster\\('{path}'\\)"):
        pyreplog.open_log(disks[0])
    with pyreplog.open_log(disks[0], "r") as log:
        assert len(list(log)) == 1


def test_a_copy_of_the_clusters_folder_takes_no_nodes(tmp_path: Path, disks: list[str]) -> None:
    """A copy of the cluster's folder lists the same nodes, and its controller may be older: it is refused while the
    original is there."""
    path = _spread(tmp_path, disks)
    shutil.copytree(path, tmp_path / "copy")
    with pytest.raises(pyreplog.ConfigError, match=rf"disk1/n1 belongs to the cluster in {path}, which is still there"):
        Cluster(tmp_path / "copy")
    Cluster(path).close()
    shutil.move(path, tmp_path / "away")
    with Cluster(tmp_path / "copy") as cluster:
        assert [node.failure for node in cluster.nodes] == [None, None]


def test_a_damaged_list_is_told_and_written_again(tmp_path: Path, disks: list[str]) -> None:
    """A list that lost a bit is an error that says what to do, and is replaced by the one that the caller gives."""
    path = _spread(tmp_path, disks)
    file = path / "replog.nodes"
    data = bytearray(file.read_bytes())
    data[12] ^= 1
    file.write_bytes(data)
    with pytest.raises(pyreplog.CorruptError, match=r"checksum mismatch: put the file back .* nodes=\["):
        Cluster(path)
    with pytest.raises(pyreplog.CorruptError, match="checksum mismatch"):
        pyreplog.open_log(path, "r")
    Cluster(path, nodes=disks).close()
    Cluster(path).close()


def test_nodes_without_their_controller_are_refused(tmp_path: Path, disks: list[str]) -> None:
    """No new cluster is begun over nodes on other disks whose controller's state is gone; the error names their
    cluster."""
    path = _spread(tmp_path, disks)
    as_version_0_1(path).unlink()
    for nodes in (None, disks):
        with pytest.raises(pyreplog.CorruptError, match=r"replog.controller .*disk1/n1"):
            Cluster(path, nodes=nodes)


def test_links_of_this_user_are_followed_once(tmp_path: Path) -> None:
    """The folder that the caller names, and a node's, may be a link of this user in a folder that only this user
    may write to."""
    with Cluster(tmp_path / "data", nodes=2) as cluster:
        cluster.admin.create_topic("orders")
    shutil.move(tmp_path / "data/node-2", tmp_path / "moved")
    (tmp_path / "data/node-2").symlink_to(tmp_path / "moved")
    (tmp_path / "linked").symlink_to(tmp_path / "data")
    with Cluster(tmp_path / "linked") as cluster:
        assert [node.failure for node in cluster.nodes] == [None, None]
    os.rename(tmp_path / "moved", tmp_path / "away")
    (tmp_path / "moved").mkdir(mode=0o700)  # where a disk was mounted
    with Cluster(tmp_path / "data") as cluster:
        assert isinstance(cluster.nodes[1].failure, pyreplog.StorageNotFoundError)
    assert os.listdir(tmp_path / "moved") == []


def test_verify_looks_at_every_listed_disk(tmp_path: Path, disks: list[str]) -> None:
    """``verify`` of the cluster's folder looks at the listed folders, and warns of one that is missing, and of a
    damaged list."""
    path = _spread(tmp_path, disks)
    book = verify(SystemDisk(), str(path))
    logs = 2  # of each node: the partition's, and the metadata log
    assert (book.findings, book.partition_count) == ([], 2 * logs)
    shutil.move(disks[1], tmp_path / "unmounted")
    book = verify(SystemDisk(), str(path))
    assert book.partition_count == logs
    assert any("not mounted" in one.what for one in book.findings)
    (path / "replog.nodes").write_bytes(b"x")
    assert any("replog.nodes" in one.path for one in verify(SystemDisk(), str(path)).findings)
