"""Metadata that no node has any more is made again from the folders of the partitions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pyreplog
from pyreplog import ConfigError, CorruptError, LockedError, StorageError
from pyreplog.log import read_topic_id
from pyreplog.runtime import repair_metadata
from pyreplog.system import SystemDisk
from pyreplog.values import TopicPartition
from tests.interop.golden.cluster_0_1 import as_version_0_1
from tests.unit.cli.support import Replog
from tests.unit.runtime.test_voters import host

RECORDS = [b"%d" % number for number in range(20)]
METADATA = "__cluster_metadata-0"


@pytest.fixture
def replog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Replog:
    """The command."""
    return Replog(capfd, monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A closed cluster of three nodes, with records and settings."""
    path = tmp_path / "data"
    with pyreplog.Cluster(path, nodes=3) as cluster:
        cluster.admin.create_topic("orders", partitions=2, config={"retention.ms": "12345678"})
        cluster.admin.create_topic("single", replication_factor=1, config={"durability": "os"})
        with cluster.producer() as producer:
            for value in RECORDS:
                producer.send("orders", value, partition=1).result()
            producer.send("single", b"alone").result()
    return path


def lose(path: Path, *, damaged: bool = False) -> None:
    """Remove the metadata of every node, or make it unreadable."""
    for number in (1, 2, 3):
        folder = path / f"node-{number}" / METADATA
        if not damaged:
            shutil.rmtree(folder)
            continue
        for file in folder.iterdir():
            file.write_bytes(b"\xff" * file.stat().st_size)


def values_in(cluster: pyreplog.Cluster, topic: str, count: int) -> list[bytes | None]:
    """The values of a topic."""
    found: list[bytes | None] = []
    with cluster.consumer(topic) as consumer:
        while len(found) < count:
            found += [record.value for record in consumer.poll(timeout=10)]
    return found


def topic_id(path: Path, topic: str) -> str | None:
    """The id of a topic by the folders."""
    folder = next(path.glob(f"node-*/{topic}-0"))
    return read_topic_id(SystemDisk(), str(folder))


@pytest.mark.parametrize("damaged", [False, True])
def test_the_cluster_goes_on(data: Path, damaged: bool) -> None:
    """Topics, ids, settings and records are there; ids of producers are new; the voters come to the rule."""
    lose(data, damaged=damaged)
    ids = {topic: topic_id(data, topic) for topic in ("orders", "single")}
    with pytest.raises(pyreplog.PyreplogError, match="quorum recover" if damaged else "replog repair .* --metadata"):
        pyreplog.Cluster(data)
    with pytest.raises(StorageError, match="replog repair .* --metadata"):
        pyreplog.recover_quorum(data)
    plan = repair_metadata(data, write=False)
    made = repair_metadata(data, write=True)
    assert plan == made
    assert made.losses == ()
    assert made.partitions[TopicPartition("orders", 1)][0] == (1, 2, 3)
    with pyreplog.Cluster(data) as cluster:
        assert cluster.admin.topics() == ["orders", "single"]
        for topic, known in ids.items():
            assert cluster.admin.describe(topic).topic_id == known
        assert cluster.admin.describe("orders").config["retention.ms"] == "12345678"
        assert cluster.admin.describe("single").config["durability"] == "os"
        assert values_in(cluster, "orders", 20) == RECORDS
        with cluster.producer() as producer:
            producer.send("orders", b"more", partition=1).result()
        assert values_in(cluster, "single", 1) == [b"alone"]
        cluster.admin.create_topic("new", replication_factor=3)
        assert cluster._driver.wait_until(lambda: len(host(cluster).newest_voters()) == 3, 20)
    with pyreplog.Cluster(data) as cluster:
        assert values_in(cluster, "orders", 21) == [*RECORDS, b"more"]


def test_the_longest_copy_of_the_latest_epoch_leads(data: Path) -> None:
    """The others truncate and copy."""
    with pyreplog.Cluster(data) as cluster:
        cluster.node(1).kill()
        with cluster.producer() as producer:
            producer.send("orders", b"later", partition=1).result()
    lose(data)
    made = repair_metadata(data, write=True)
    leader = made.partitions[TopicPartition("orders", 1)][1]
    assert leader in (2, 3)
    with pyreplog.Cluster(data) as cluster:
        assert cluster.leader("orders", 1) == cluster.node(leader)
        assert values_in(cluster, "orders", 21) == [*RECORDS, b"later"]


def test_a_partition_without_a_folder(data: Path) -> None:
    """It is named, and a person may accept the loss."""
    lose(data)
    for folder in data.glob("node-*/orders-0"):
        shutil.rmtree(folder)
    made = repair_metadata(data, write=True)
    assert [(loss.topic, loss.partition, loss.node_id) for loss in made.losses] == [("orders", 0, None)]
    with pyreplog.Cluster(data) as cluster:
        assert values_in(cluster, "orders", 20) == RECORDS
        assert cluster.leader("orders", 0) is None
        cluster.admin.elect_leaders("orders", [0], unclean=True)
        with cluster.producer() as producer:
            producer.send("orders", b"first", partition=0).result()


def test_metadata_that_is_left_counts(data: Path) -> None:
    """One node that has it is enough to refuse: nothing is changed."""
    for number in (1, 3):
        shutil.rmtree(data / f"node-{number}" / METADATA)
    with pytest.raises(ConfigError, match="is not lost: node 2 has it.*replog quorum recover"):
        repair_metadata(data, write=True)
    pyreplog.recover_quorum(data)
    with pyreplog.Cluster(data) as cluster, pytest.raises(ConfigError, match="is not lost"):
        repair_metadata(cluster.path, write=True)


def test_folders_that_contradict_one_another(data: Path, tmp_path: Path) -> None:
    """Two topics of one name, nodes of two clusters, no partition: named, and nothing is written."""
    lose(data)
    other = tmp_path / "other"
    with pyreplog.Cluster(other, nodes=3) as cluster:
        cluster.admin.create_topic("orders", replication_factor=3)
    lose(other)
    shutil.move(data / "node-3", tmp_path / "away")
    shutil.copytree(other / "node-3", data / "node-3")
    with pytest.raises(ConfigError, match="nodes of several clusters"):
        repair_metadata(data, write=True)
    shutil.rmtree(data / "node-3")
    shutil.move(tmp_path / "away", data / "node-3")
    shutil.rmtree(data / "node-3" / "orders-0")
    shutil.copytree(other / "node-3" / "orders-0", data / "node-3" / "orders-0")
    with pytest.raises(ConfigError, match="two topics are called 'orders'"):
        repair_metadata(data, write=True)
    for folder in [*other.glob("node-*/orders-0")]:
        shutil.rmtree(folder)
    with pytest.raises(StorageError, match="there is nothing to make"):
        repair_metadata(other, write=True)
    assert not list(tmp_path.glob(f"*/node-*/{METADATA}"))


def test_the_command(replog: Replog, data: Path) -> None:
    """It shows first, then makes, and says what it does not know."""
    lose(data)
    shown = replog("repair", data, "--metadata")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[1].startswith("orders-1: on node 1, 2, 3; the copy of node ")
    assert "the replication factor that was meant" in shown.out
    assert lines[-1] == f"nothing was written; `replog repair {data} --metadata --yes` makes it"
    assert not list(data.glob(f"node-*/{METADATA}"))
    assert replog("repair", data, "--metadata", "--to", data / "x").code == 2
    done = replog("repair", data, "--metadata", "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (
        0,
        "node 1 is the only voter now; open the cluster as always",
    )
    assert replog("verify", data).code == 0
    again = replog("repair", data, "--metadata", "--yes")
    assert (again.code, "is not lost" in again.err) == (1, True)


def test_the_command_in_json(replog: Replog, data: Path) -> None:
    """A row for each partition, and one with the voter."""
    lose(data)
    *rows, last = replog("repair", data, "--metadata", "--json").objects()
    assert [(row["topic"], row["partition"], row["replicas"]) for row in rows[:2]] == [
        ("orders", 0, [1, 2, 3]),
        ("orders", 1, [1, 2, 3]),
    ]
    assert (last["voter"], len(last["unknown"])) == (1, 4)


def test_an_open_cluster_is_refused(data: Path) -> None:
    with pyreplog.Cluster(data), pytest.raises((LockedError, ConfigError)):
        repair_metadata(data, write=True)


def test_a_lost_controllers_file(tmp_path: Path) -> None:
    """A cluster of version 0.1 without its file gets the metadata too, and a quorum with it."""
    with pyreplog.Cluster(tmp_path / "old", nodes=2) as cluster:
        cluster.admin.create_topic("t", replication_factor=2)
        with cluster.producer() as producer:
            producer.send("t", b"value").result()
    as_version_0_1(tmp_path / "old").unlink()
    with pytest.raises(CorruptError, match="replog repair .* --metadata"):
        pyreplog.Cluster(tmp_path / "old")
    repair_metadata(tmp_path / "old", write=True)
    with pyreplog.Cluster(tmp_path / "old") as cluster:
        assert values_in(cluster, "t", 1) == [b"value"]
