"""A reader of a cluster that has metadata logs in place of the controller's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyreplog import Cluster, StorageError, TopicDescription
from pyreplog.controller import convert_cluster, load
from pyreplog.log import METADATA_FOLDER
from pyreplog.quorum import QuorumConfig, ReplicaKey, Voter, VoterSet
from pyreplog.system import SystemClock, SystemDisk
from pyreplog.wire import MetadataRecord, PartitionRecord, TopicRecord
from tests.interop.golden import cluster_0_1
from tests.oracle import metadata_folder as made

NEW = "z8eZxIiI6FzqjrRRbN2Wdw"


@pytest.fixture
def converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[TopicDescription]]:
    """The golden folder of version 0.1 after its conversion, and the descriptions of its topics before."""
    monkeypatch.setattr("pyreplog.runtime.catalog.CREATION_TIMEOUT_S", 0.0)
    home = cluster_0_1.unpack(tmp_path)
    with Cluster(home, mode="r") as reader:
        before = [reader.describe(name) for name in reader.topics()]
    disk = SystemDisk()
    state = load(disk, str(home))
    assert state is not None
    roots = {number: str(home / f"node-{number}") for number in (1, 2, 3)}
    voters = VoterSet(
        Voter.at(ReplicaKey(number, state.image.brokers[number].log_dirs[0]), f"controller-{number}")
        for number in roots
    )
    convert_cluster(disk, str(home), voters, roots, SystemClock(), QuorumConfig())
    return home, before


def test_it_describes_as_before(converted: tuple[Path, list[TopicDescription]]) -> None:
    """Leaders, epochs, in-sync replicas and settings come from the metadata log, as from the file."""
    home, before = converted
    with Cluster(home, mode="r") as reader:
        assert reader.cluster_id == cluster_0_1.CLUSTER_ID
        assert [reader.describe(name) for name in reader.topics()] == before
        assert before[0].config["retention.ms"] == "1000000000000000"
        assert reader.topics(internal=True) == ["__cluster_metadata", "orders", "single"]


def test_it_follows_the_newest_log(converted: tuple[Path, list[TopicDescription]]) -> None:
    """A topic that one node has come to know is seen without opening again; until its folder is there, it is not
    read."""
    home, _ = converted
    with Cluster(home, mode="r") as reader:
        assert "new" not in reader.topics()
        folder = home / "node-2" / METADATA_FOLDER
        (log,) = folder.glob("*.log")
        records: list[MetadataRecord] = [
            TopicRecord("new", NEW),
            PartitionRecord(0, NEW, [2], [2], leader=2, leader_epoch=0),
        ]
        first = cluster_0_1.OFFSET + 1
        (folder / f"{first:020}.log").write_bytes(
            made.batch(first, 1, [made.leader_change(2)]) + made.batch(first + 1, 1, records)
        )
        assert reader.topics() == ["new", "orders", "single"]
        assert reader.describe("new").partitions[0].leader == 2
        with pytest.raises(StorageError, match="no folder holds new-0: its copies are on node 2"):
            reader.consumer("new")
        assert log.stat().st_size == 0


def test_a_topic_whose_node_is_away_is_refused(converted: tuple[Path, list[TopicDescription]]) -> None:
    """The other nodes' metadata still names it."""
    home, _ = converted
    (home / "node-3").rename(home.parent / "away")
    with Cluster(home, mode="r") as reader:
        assert reader.topics() == ["orders", "single"]
        with pytest.raises(StorageError, match="single-0 has no folder: its copies are on node 3"):
            reader.consumer("single")
