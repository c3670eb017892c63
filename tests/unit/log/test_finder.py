"""Which logs a path stands for: decided by content and ids, never by names or nearness."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import pyreplog
from pyreplog.errors import ConfigError, StorageError
from pyreplog.log import Finder, find_logs, find_roots, open_readers, unfinished_backups
from pyreplog.ports import Stat
from pyreplog.record import records_of
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition
from pyreplog.verify import Level, find_partitions, look_around, verify
from tests.interop.golden.cluster_0_1 import as_version_0_1
from tests.interop.golden.units import hash_of, manifest, unit


@pytest.fixture
def disk() -> Iterator[SystemDisk]:
    """The real one."""
    with_files = SystemDisk()
    yield with_files
    with_files.close()


def make(*paths: Path) -> None:
    """A log at each, each of a cluster of its own."""
    for path in paths:
        with pyreplog.open_log(path, topic="t", durability="os") as log:
            log.append(str(path).encode())


def roots(disk: SystemDisk, path: Path) -> list[str]:
    """The roots that the finder finds, relative to ``path``."""
    return [str(Path(root).relative_to(path)) for root in find_roots(disk, str(path))]


def names(disk: SystemDisk, path: Path) -> list[str]:
    """The logs that the finder finds."""
    return [log.name for log in find_logs(disk, str(path)).logs]


def test_a_folder_of_kafkas_nodes(disk: SystemDisk, tmp_path: Path) -> None:
    """Roots one deeper than the folder of a node are one cluster: read as by Kafka, and sound."""
    for number in (1, 2, 3):
        shutil.copytree(unit(f"cluster-4.1.0/n{number}") / "data", tmp_path / f"n{number}" / "data")
    assert roots(disk, tmp_path) == ["n1/data", "n2/data", "n3/data"]
    assert names(disk, tmp_path) == ["."]
    assert roots(disk, tmp_path / "n2") == ["data"]
    readers = open_readers(disk, str(tmp_path))
    for partition in manifest("cluster-4.1.0/n2")["partitions"]:
        reader = readers[TopicPartition(partition["topic"], partition["partition"])]
        if partition.get("recordsSha256") is not None:
            records = (
                record
                for batch in reader.batches(reader.start_offset, reader.end_offset)
                for record in records_of(batch, reader.topic, reader.partition, reader.start_offset, reader.end_offset)
            )
            assert hash_of(records) == (partition["records"], partition["recordsSha256"])
    for reader in readers.values():
        reader.close()
    assert [finding for finding in verify(disk, str(tmp_path)).findings if finding.level is Level.DAMAGE] == []


def test_an_older_copy_of_a_node_is_refused(disk: SystemDisk) -> None:
    """A node's folder and an older copy of it have the same node id: both are named, and neither is read."""
    parent = unit("cluster-4.1.0/n1").parent
    (log,) = find_logs(disk, str(parent)).logs
    assert log.node_ids == [1, 2, 3]
    with pytest.raises(
        ConfigError, match=r"n1/data/.* and .*n1-diverged/data/.* cannot be read together: node 1 has .* twice"
    ):
        open_readers(disk, str(parent))


def test_nearness_decides_nothing(disk: SystemDisk, tmp_path: Path) -> None:
    """Logs one and two folders deep are told alike, three folders deep is too deep, and nothing is looked for in a
    root."""
    make(tmp_path / "a" / "b" / "c")
    assert roots(disk, tmp_path / "a" / "b" / "c") == ["."]
    assert roots(disk, tmp_path / "a" / "b") == ["c"]
    assert roots(disk, tmp_path / "a") == ["b/c"]
    assert roots(disk, tmp_path) == []
    make(tmp_path / "a" / "d")
    assert names(disk, tmp_path / "a") == ["b/c", "d"]
    assert names(disk, tmp_path) == ["a/d"]
    make(tmp_path / "e")
    shutil.copytree(
        tmp_path / "e", tmp_path / "a", dirs_exist_ok=True
    )  # by hand: nothing of ours makes a root above others
    assert roots(disk, tmp_path / "a") == ["."]


def test_no_log_is_made_inside_another(tmp_path: Path) -> None:
    """No log and no cluster is made below a log's folder, however deep; one that is there is opened."""
    make(tmp_path / "app", tmp_path / "other")
    for deeper in ("tenant-1", "a/b/c"):
        (tmp_path / "app" / deeper).parent.mkdir(parents=True, exist_ok=True)
        with pytest.raises(ConfigError, match="lies in the folder of another log"):
            pyreplog.open_log(tmp_path / "app" / deeper, topic="t")
        with pytest.raises(ConfigError, match="lies in the folder of another log"):
            pyreplog.Cluster(tmp_path / "app" / deeper)
    shutil.copytree(tmp_path / "other", tmp_path / "app" / "tenant-2")
    with pyreplog.open_log(tmp_path / "app" / "tenant-2") as log:
        assert log.end_offset == 1


def test_a_new_partition_has_its_topics_id(disk: SystemDisk, tmp_path: Path) -> None:
    """A partition that is made beside others of its topic takes over their id; contradicting ids are refused for
    writing."""
    for number in (0, 1):
        with pyreplog.open_log(tmp_path / "a", topic="t", partition=number) as log:
            log.append(b"x")
    readers = open_readers(disk, str(tmp_path / "a"))
    assert len({reader.topic_id for reader in readers.values()}) == 1
    for reader in readers.values():
        reader.close()
    (tmp_path / "a" / "t-1" / "partition.metadata").write_text("version: 0\ntopic_id: AbCdEfGhIjKlMnOpQrStUw")
    for number in (0, 1, 2):
        with pytest.raises(ConfigError, match=r"a/t-0 and .*a/t-1 are of different topics called t"):
            pyreplog.open_log(tmp_path / "a", topic="t", partition=number)
    assert not (tmp_path / "a" / "t-2").exists()
    with pytest.raises(ConfigError, match=r"a/t-0 and .*a/t-1 cannot be read together"):
        pyreplog.open_log(tmp_path / "a", "r", partition=0)


def test_a_node_on_another_disk_keeps_its_whole_path(disk: SystemDisk, tmp_path: Path) -> None:
    """Listed nodes of two clusters are named by their whole folders, by the finder and by ``verify``."""
    nodes = [tmp_path / "mnt1", tmp_path / "mnt2"]
    with pyreplog.Cluster(tmp_path / "data", nodes=nodes) as cluster:
        cluster.admin.create_topic("t", replication_factor=2, config={"durability": "os"})
    file = nodes[1] / "meta.properties"
    file.write_text(re.sub("cluster.id=.*", "cluster.id=AbCdEfGhIjKlMnOpQrStUw", file.read_text()))
    assert names(disk, tmp_path / "data") == [str(node) for node in nodes]
    assert [log.name for log in look_around(disk, str(tmp_path / "data")).logs] == [str(node) for node in nodes]


def test_independent_logs_are_named_and_refused(disk: SystemDisk, tmp_path: Path) -> None:
    """Logs in sibling folders, each of its own cluster, are several logs: never replicas of one another."""
    make(*(tmp_path / f"worker-{number}" for number in range(3)))
    assert names(disk, tmp_path) == ["worker-0", "worker-1", "worker-2"]
    with pytest.raises(
        ConfigError, match=r"holds 3 independent logs \(worker-0, worker-1, worker-2\), and one log is meant"
    ):
        open_readers(disk, str(tmp_path))
    found = find_logs(disk, str(tmp_path))
    for log in found.logs:
        reader = Finder.of(disk, found, log).open(TopicPartition("t", 0))
        assert reader is not None
        assert reader.replicas == [str(tmp_path / log.name / "t-0")]
        reader.close()


def test_what_only_lies_near_is_left_alone(disk: SystemDisk, tmp_path: Path) -> None:
    """Hidden folders, files, dead links and partitions are not searched; a link and its folder are one root."""
    make(tmp_path / "one" / "n1")
    (tmp_path / "one" / "now").symlink_to("n1")
    assert roots(disk, tmp_path / "one") == ["n1"]
    make(tmp_path / "hidden" / ".saved" / "n1", tmp_path / "copied" / "t-0" / "log")
    (tmp_path / "hidden" / "file").touch()
    (tmp_path / "hidden" / "link").symlink_to("nowhere")
    assert roots(disk, tmp_path / "hidden") == []
    (tmp_path / "copied" / "t-0" / "00000000000000000000.log").touch()
    assert find_roots(disk, str(tmp_path / "copied")) == []


def test_a_folder_of_an_earlier_topic_is_left_out(disk: SystemDisk, tmp_path: Path) -> None:
    """A node that was down while a topic was deleted and created again keeps the earlier one: the metadata
    tells them apart, and without it both are refused."""
    with pyreplog.Cluster(tmp_path / "data", nodes=2) as cluster:
        cluster.admin.create_topic("t", replication_factor=2, config={"durability": "os"})
    earlier = tmp_path / "data" / "node-2" / "t-0"
    (earlier / "partition.metadata").write_text("version: 0\ntopic_id: AbCdEfGhIjKlMnOpQrStUw")
    path = str(tmp_path / "data")
    (log,) = find_logs(disk, path).logs
    assert log.partitions()[TopicPartition("t", 0)] == [f"{path}/node-1/t-0"]
    assert log.stale == [str(earlier)]
    assert find_partitions(disk, path)["t", 0] == [f"{path}/node-1/t-0"]
    as_version_0_1(tmp_path / "data").unlink()
    with pytest.raises(ConfigError, match="they are of different topics called t"):
        open_readers(disk, path)
    with pytest.raises(ConfigError, match="several topics of that name"):
        find_partitions(disk, path)


class Refusing(SystemDisk):
    """A disk that lets no process look into some folders."""

    closed: tuple[str, ...] = ()

    def _check(self, path: str, *, inside: bool) -> None:
        if any(path.startswith(f"{folder}/") or (not inside and path == folder) for folder in self.closed):
            raise StorageError(errno.EACCES, "Permission denied", path)

    def list(self, directory: str) -> Sequence[str]:
        self._check(directory, inside=False)
        return super().list(directory)

    def stat(self, path: str) -> Stat | None:
        self._check(path, inside=True)
        return super().stat(path)


def test_a_closed_folder_of_the_volume_is_passed_over_beside_nodes(tmp_path: Path) -> None:
    """A ``lost+found`` in a cluster's folder that this process may not enter is neither damage nor a backup, to no
    command."""
    path = tmp_path / "data"
    with pyreplog.Cluster(path, nodes=2) as cluster:
        cluster.admin.create_topic("events")
    (path / "lost+found").mkdir()
    disk = Refusing()
    disk.closed = (str(path / "lost+found"),)
    found = find_logs(disk, str(path))
    assert (len(found.logs), unfinished_backups(disk, found)) == (1, {})
    assert verify(disk, str(path)).worst not in (Level.WARNING, Level.DAMAGE)


def test_folders_that_may_not_be_looked_into(tmp_path: Path) -> None:
    """One whose name cannot be ours is passed over; one that may be a partition's fails that topic alone; one that
    may be a node's fails the cluster. With ``partial`` the rest is read, and it is named."""
    path = tmp_path / "data"
    for topic in ("ours", "theirs"):
        with pyreplog.open_log(path, topic=topic, durability="os") as log:
            log.append(b"x")
    (path / "lost+found").mkdir()
    disk = Refusing()
    disk.closed = (str(path / "lost+found"), str(path / "theirs-0"))
    open_readers(disk, str(path), "ours")[TopicPartition("ours", 0)].close()
    for asked in ("theirs", None):
        with pytest.raises(StorageError, match=r"it may be the folder of theirs-0"):
            open_readers(disk, str(path), asked)
    finder = Finder(disk, str(path), partial=True)
    assert list(finder.folders()) == [TopicPartition("ours", 0)]
    assert finder.left_out() == [str(path / "theirs-0")]
    book = verify(disk, str(path))
    assert (book.unseen, book.partition_count, book.worst) == ([str(path / "theirs-0")], 1, Level.WARNING)
    for number in (1, 2):
        (tmp_path / "nodes").mkdir(exist_ok=True)
        shutil.copytree(unit(f"cluster-4.1.0/n{number}") / "data", tmp_path / "nodes" / f"node-{number}")
    disk.closed = (str(tmp_path / "nodes" / "node-2"),)
    with pytest.raises(StorageError, match="this process may not look into it.*node-2"):
        open_readers(disk, str(tmp_path / "nodes"))
    with pytest.raises(StorageError, match="may not enter the folder"):
        find_partitions(disk, str(tmp_path / "nodes"))
    disk.close()
