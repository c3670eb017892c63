"""Topics of a system itself (`__...`) are never the topic that a caller means, and are listed only if asked."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

import pyreplog
from pyreplog import Cluster, ConfigError, InvalidTopicError, aio, open_log
from pyreplog.cli.main import main
from tests.interop.golden.cluster_0_1 import as_version_0_1
from tests.interop.golden.units import copy_of

INTERNAL = ["__cluster_metadata", "__consumer_offsets", "__transaction_state"]


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A Kafka broker's folder with one user's topic of one partition, and three internal topics."""
    path = copy_of("clean-4.3.1", tmp_path / "broker")
    for folder in path.iterdir():
        if folder.is_dir() and not folder.name.startswith("__") and folder.name != "idempotent-0":
            shutil.rmtree(folder)
    return path


@pytest.fixture
def internal(broker: Path) -> Path:
    """A broker's folder with internal topics only."""
    shutil.rmtree(broker / "idempotent-0")
    return broker


def test_open_log_takes_the_only_topic_of_a_user(broker: Path) -> None:
    """The broker's own topics beside it make nothing ambiguous, neither for a reader nor for a writer."""
    with open_log(broker, mode="r") as log:
        assert (log.topic, log.partition) == ("idempotent", 0)
        end = log.end_offset
    with open_log(broker, durability="sync") as log:
        assert (log.topic, log.append(b"x")) == ("idempotent", end)


def test_a_caller_that_names_an_internal_topic_reads_it(broker: Path) -> None:
    """By its name, and by its folder."""
    with open_log(broker, mode="r", topic="__cluster_metadata") as log:
        count = len(list(log.read(start=0)))
    with open_log(broker / "__cluster_metadata-0", mode="r") as log:
        assert log.topic == "__cluster_metadata"
        assert len(list(log.read(start=0))) == count > 100


@pytest.mark.parametrize("mode", ["a", "r"])
def test_a_folder_with_internal_topics_only_has_no_topic_that_is_meant(internal: Path, mode: str) -> None:
    """The error lists them and says how to name one; nothing is made."""
    before = sorted(internal.iterdir())
    with pytest.raises(ConfigError, match=r"internal topics only; name one with topic=: __cluster_metadata, "):
        open_log(internal, mode=mode)  # type: ignore[arg-type]
    assert sorted(internal.iterdir()) == before


def test_no_caller_writes_the_metadata_log(broker: Path) -> None:
    """Only a cluster writes it."""
    with pytest.raises(InvalidTopicError, match="only the cluster writes it"):
        open_log(broker, topic="__cluster_metadata")


def test_a_log_whose_name_looks_internal_opens_by_its_folder(tmp_path: Path) -> None:
    """The folder's name is the topic that is meant, whatever it begins with."""
    with open_log(tmp_path / "__mine") as log:
        log.append(b"x")
    with open_log(tmp_path / "__mine") as log:
        assert (log.topic, log.end_offset) == ("__mine", 1)
    with open_log(tmp_path / "__mine", mode="r") as log:
        assert [record.value for record in log.read(start=0)] == [b"x"]


def test_a_cluster_reader_lists_internal_topics_only_if_asked(broker: Path) -> None:
    """The same for its admin, and for asyncio."""

    async def listed() -> list[list[str]]:
        async with aio.Cluster(broker, mode="r") as reader:
            return [await reader.topics(), await reader.topics(internal=True), await reader.admin.topics()]

    with Cluster(broker, mode="r") as reader:
        assert reader.topics() == reader.admin.topics() == ["idempotent"]
        assert reader.topics(internal=True) == reader.admin.topics(internal=True) == [*INTERNAL, "idempotent"]
    assert asyncio.run(listed()) == [["idempotent"], [*INTERNAL, "idempotent"], ["idempotent"]]


def test_a_cluster_lists_its_topics_by_the_same_rule(tmp_path: Path) -> None:
    """No user makes one with such a name."""
    with Cluster(tmp_path / "data", nodes=1) as cluster:
        cluster.admin.create_topic("orders")
        with pytest.raises(InvalidTopicError, match="internal"):
            cluster.admin.create_topic("__orders")
        assert cluster.admin.topics() == ["orders"]
        assert cluster.admin.topics(internal=True) == ["orders"]


def test_scan_of_several_logs_takes_the_topic_of_a_user(broker: Path, tmp_path: Path) -> None:
    """Each log contributes the one topic that is meant in it."""
    with open_log(tmp_path / "events") as log:
        log.append(b"x")
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(pyreplog.scan([broker, tmp_path / "events"]))
    assert set(table.column("log").to_pylist()) == {"broker", "events"}
    with open_log(broker, mode="r") as log:
        assert len(table) == 1 + len(list(log.read(start=0)))


@pytest.mark.parametrize("words", [["topics"], ["cat"], ["cat", "--all"], ["tail"], ["describe"]])
def test_the_command_leaves_internal_topics_out(
    broker: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Reading commands print them only if ``--topic`` names one; ``topics`` lists them with ``--internal``."""
    assert main([*words, str(broker)]) == 0
    assert "__" not in capfd.readouterr().out
    named = ["--internal"] if words == ["topics"] else ["--topic", "__consumer_offsets"]
    assert main([*words, str(broker), *named]) == 0
    assert "__consumer_offsets" in capfd.readouterr().out


def test_the_command_says_that_there_are_only_internal_topics(
    internal: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """``topics`` says how to list them, and a reading command how to name one."""
    assert main(["topics", str(internal)]) == 0
    out, err = capfd.readouterr()
    assert (out, err) == ("", "replog topics: 3 internal topics here; --internal lists them\n")
    assert main(["cat", str(internal)]) != 0
    assert "internal topics only; name one with --topic" in capfd.readouterr().err
    assert main(["cat", str(internal / "__cluster_metadata-0")]) == 0
    assert "__cluster_metadata" in capfd.readouterr().out


def test_a_metadata_log_on_each_node_is_no_conflict(tmp_path: Path) -> None:
    """Not even if no file in its folder names the topic's id: every voter of a cluster has such a log."""
    with Cluster(tmp_path / "data", nodes=3) as cluster:
        cluster.admin.create_topic("orders", replication_factor=3)
    as_version_0_1(tmp_path / "data")
    metadata = copy_of("clean-4.3.1", tmp_path / "broker") / "__cluster_metadata-0"
    (metadata / "partition.metadata").unlink()
    for number in (1, 2, 3):
        shutil.copytree(metadata, tmp_path / "data" / f"node-{number}" / "__cluster_metadata-0")
    with Cluster(tmp_path / "data", mode="r") as reader:
        assert reader.topics() == ["orders"]
    with open_log(tmp_path / "data", mode="r") as log:
        assert log.topic == "orders"
