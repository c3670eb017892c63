"""A cluster is known by the metadata logs of its nodes when it has no controller's file."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from pyreplog import Cluster, ConfigError, StorageError, open_log
from pyreplog.cli.main import main
from pyreplog.log import (
    METADATA_FOLDER,
    Finder,
    FoundLog,
    MetadataEnd,
    MetadataFolder,
    cluster_of,
    find_logs,
    has_metadata,
    holds_cluster,
    newest_metadata,
)
from pyreplog.log.cluster_metadata import metadata_body
from pyreplog.spark.sink_target import find_target
from pyreplog.system import SystemDisk
from pyreplog.testing import SimDisk
from pyreplog.values import TopicPartition
from pyreplog.verify import Report
from pyreplog.verify.metadata import check_metadata
from pyreplog.wire import MetadataRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from pyreplog.wire.metadata_codec import encode_record
from tests.interop.golden.cluster_0_1 import as_version_0_1
from tests.interop.golden.units import unit
from tests.oracle import metadata_folder as made
from tests.unit.verify.support import flip
from tests.unit.verify.test_metadata import WITH_METADATA

DISK = SystemDisk()
TOPIC_ID = "x8eZxIiI6FzqjrRRbN2Wdw"
OTHER_ID = "y8eZxIiI6FzqjrRRbN2Wdw"


@pytest.mark.parametrize("name", WITH_METADATA)
def test_a_brokers_metadata_reads_as_the_checker_reads_it(name: str) -> None:
    """Topics, ids and members are those that `verify` finds with its own decoder; so is the end."""
    root = unit(name) / "data"
    facts = check_metadata(DISK, str(root / made.NAME), Report())
    body = metadata_body(DISK, str(root), "")
    assert body.topic_ids == {name: topic_id for topic_id, name in facts.state.topics.items()}
    assert {
        (body.topic_ids[key.topic], key.partition): (one.replicas, one.in_sync) for key, one in body.partitions.items()
    } == {key: (tuple(one.replicas), (*one.isr, *one.elr)) for key, one in facts.state.partitions.items()}
    assert MetadataFolder(DISK, str(root / made.NAME)).end() == MetadataEnd(facts.last_epoch, facts.end)
    assert not has_metadata(DISK, str(root)), "it is a broker's"


def test_changes_and_removed_topics(tmp_path: Path) -> None:
    """The members follow every record; a list that a change leaves out stays."""
    records: list[MetadataRecord] = [
        TopicRecord("orders", TOPIC_ID),
        PartitionRecord(0, TOPIC_ID, [1, 2, 3], [1, 2], leader=1, leader_epoch=0, eligible_leader_replicas=[3]),
        TopicRecord("gone", OTHER_ID),
        PartitionRecord(0, OTHER_ID, [1], [1], leader=1, leader_epoch=0),
        PartitionChangeRecord(0, TOPIC_ID, isr=[2], leader=2),
        RemoveTopicRecord(OTHER_ID),
        PartitionChangeRecord(0, TOPIC_ID, replicas=[2, 3], eligible_leader_replicas=[]),
    ]
    made.write(tmp_path, records)
    body = metadata_body(DISK, str(tmp_path), "c")
    assert body.topic_ids == {"orders": TOPIC_ID}
    assert body.partitions == {TopicPartition("orders", 0): ((2, 3), (2,))}
    assert MetadataFolder(DISK, str(tmp_path / made.NAME)).end() == (1, 8)


def test_records_of_an_aborted_transaction_are_left_out(tmp_path: Path) -> None:
    """A metadata transaction counts at its end only."""
    begin, end, abort = bytes([1, 23, 0, 0]), bytes([1, 24, 0, 0]), bytes([1, 25, 0, 0])
    topic, other = (encode_record(TopicRecord(name, topic_id)) for name, topic_id in (("a", TOPIC_ID), ("b", OTHER_ID)))
    made.write(tmp_path, [begin, topic, abort, begin, other, end, begin, topic])
    assert metadata_body(DISK, str(tmp_path), "c").topic_ids == {"b": OTHER_ID}


def test_a_snapshot_and_the_log_behind_it(tmp_path: Path) -> None:
    """Records below the snapshot's end are not applied twice; without a whole snapshot an older one counts."""
    orders: list[MetadataRecord] = [
        TopicRecord("orders", TOPIC_ID),
        PartitionRecord(0, TOPIC_ID, [1, 2], [1], leader=1, leader_epoch=0),
    ]
    folder = made.write(
        tmp_path,
        [PartitionChangeRecord(0, TOPIC_ID, isr=[2]), PartitionChangeRecord(0, TOPIC_ID, isr=[1, 2])],
        start=3,
        epoch=4,
        snapshots=[(3, 4, orders), (4, 4, [orders[0], PartitionRecord(0, TOPIC_ID, [1, 2], [2])])],
    )
    key = TopicPartition("orders", 0)
    assert metadata_body(DISK, str(tmp_path), "c").partitions[key].in_sync == (1, 2)
    assert MetadataFolder(DISK, str(folder)).end() == (4, 5)
    flip(folder / made.snapshot_name(4, 4), 90)
    assert metadata_body(DISK, str(tmp_path), "c").partitions[key].in_sync == (1, 2)
    flip(folder / f"{3:020}.log", 80)
    assert metadata_body(DISK, str(tmp_path), "c").partitions[key].in_sync == (1,), "it ends at the damage"


def test_the_newest_log_is_the_one_that_an_election_prefers(tmp_path: Path) -> None:
    """The epoch counts before the end; a snapshot counts like the log that it restates."""
    roots = [str(tmp_path / f"node-{number}") for number in range(1, 6)]
    topics = [TopicRecord("orders", TOPIC_ID)] * 4
    made.write(Path(roots[0]), topics, epoch=1)
    made.write(Path(roots[1]), topics[:2], epoch=2)
    made.write(Path(roots[2]), topics[:1], epoch=2)
    made.write(Path(roots[3]), [], epoch=2, snapshots=[(4, 2, topics[:1])])
    assert newest_metadata(DISK, roots) == roots[3]
    assert newest_metadata(DISK, roots[:3]) == roots[1]
    assert newest_metadata(DISK, roots[4:]) is None


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A closed cluster of three nodes without a controller's file. All hold the topic ``orders``, one of them
    ``single``."""
    path = tmp_path / "data"
    with Cluster(path, nodes=3) as running:
        records: list[MetadataRecord] = []
        for name, factor in (("orders", 3), ("single", 1)):
            found = running.admin.create_topic(name, replication_factor=factor)
            (one,) = found.partitions
            record = PartitionRecord(0, found.topic_id, one.replicas, one.isr, leader=one.leader, leader_epoch=9)
            records += [TopicRecord(name, found.topic_id), record]
        with running.producer() as producer:
            producer.send("orders", b"x").result()
    as_version_0_1(path).unlink()
    for number in (1, 2, 3):
        made.write(path / f"node-{number}", records)
    return path


def test_the_folders_of_a_cluster_are_told_by_its_metadata(cluster: Path, tmp_path: Path) -> None:
    """A node, the cluster's folder, and a folder beside the nodes belong to it; a folder elsewhere does not."""
    assert holds_cluster(DISK, str(cluster))
    for folder in (cluster, cluster / "node-1", cluster / "node-3", cluster / "new"):
        assert cluster_of(DISK, str(folder)) == str(cluster)
    (tmp_path / "events").mkdir()
    for folder in (tmp_path, tmp_path / "events", tmp_path / "missing"):
        assert cluster_of(DISK, str(folder)) is None


def test_no_log_is_opened_for_writing_in_a_cluster(cluster: Path) -> None:
    """The error names the cluster's folder, as with a controller's file."""
    for folder in (cluster, cluster / "node-2", cluster / "new"):
        with pytest.raises(ConfigError, match=rf"belongs to a cluster: .*Cluster\('{cluster}'\)"):
            open_log(folder)
    with pytest.raises(ConfigError, match="is one node of a cluster"):
        find_target(DISK, str(cluster / "node-1"), None, by_column=False)
    assert find_target(DISK, str(cluster), "orders", by_column=False).is_cluster


def test_a_partition_whose_node_is_away_is_refused(cluster: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The metadata of another node names it; a topic that is whole can be read."""
    finder = Finder(DISK, str(cluster))
    assert finder.absent() == {}
    (holder,) = finder.folders("single")[TopicPartition("single", 0)]
    shutil.rmtree(Path(holder).parent)
    with open_log(cluster, mode="r", topic="orders") as log:
        assert [record.value for record in log.read(start=0)] == [b"x"]
    with pytest.raises(StorageError, match="single-0 has no folder: its copies are on node"):
        open_log(cluster, mode="r", topic="single")
    assert main(["topics", str(cluster)]) == 1
    assert "single-0 has no folder" in capfd.readouterr().err


def test_a_copy_outside_the_in_sync_set_is_not_read_as_the_whole(cluster: Path) -> None:
    """If only such a copy is there, the error names the in-sync nodes."""
    (log,) = find_logs(DISK, str(cluster)).logs
    assert isinstance(log, FoundLog)
    topic_id = metadata_body(DISK, str(cluster / "node-1"), "").topic_ids["orders"]
    for number in (1, 2, 3):
        folder = cluster / f"node-{number}" / METADATA_FOLDER
        with open(folder / f"{0:020}.log", "ab") as file:
            file.write(made.batch(5, 1, [PartitionChangeRecord(0, topic_id, isr=[3])]))
    (cluster / "node-3").rename(cluster.parent / "away")
    with pytest.raises(StorageError, match="no copy of an in-sync replica: the in-sync replicas are on node 3"):
        open_log(cluster, mode="r", topic="orders")


def test_an_earlier_topic_is_told_by_the_metadata(cluster: Path) -> None:
    """A node that was down while a topic was made again holds the folder of the earlier one."""
    identity = cluster / "node-3" / "orders-0" / "partition.metadata"
    (cluster / "node-3" / "orders-0" / "replog.mark").unlink()
    identity.write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    (log,) = find_logs(DISK, str(cluster)).logs
    assert len(log.partitions()[TopicPartition("orders", 0)]) == 2
    assert (log.conflicts(), log.stale) == ([], [str(identity.parent)])


def test_a_simulated_disk(tmp_path: Path) -> None:
    """The port is the only door."""
    disk = SimDisk(Random(1))
    folder = made.write(tmp_path, [TopicRecord("orders", TOPIC_ID)])
    for name in ("data", "data/node-1", f"data/node-1/{METADATA_FOLDER}"):
        disk.make_directory(name)
    for file in folder.iterdir():
        copy = disk.create(f"data/node-1/{METADATA_FOLDER}/{file.name}")
        copy.write_at(0, [file.read_bytes()])
        copy.close()
    assert holds_cluster(disk, "data")
    assert metadata_body(disk, "data/node-1", "c").topic_ids == {"orders": TOPIC_ID}
