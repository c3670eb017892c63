"""A cluster's folder that is not as it was left: state gone, damaged or old, a node's folder gone, somebody else in
it."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyreplog
from pyreplog.errors import ClusterError, ConfigError, CorruptError, LockedError, OutcomeUnknownError, StorageError
from pyreplog.log import METADATA_FOLDER
from pyreplog.log.partition_opening import Parts, open_parts
from pyreplog.ports import Disk, File
from pyreplog.system import SystemDisk
from pyreplog.testing import BreakableCluster
from pyreplog.values import TopicPartition
from tests.interop.golden.cluster_0_1 import as_version_0_1
from tests.unit.runtime.frozen_driver import still

PATIENCE_S = 30.0
STATE = "replog.controller"


def write(path: Path, topic: str, count: int = 10) -> dict[tuple[int, int], bytes]:
    """A new topic with records; what is where."""
    with pyreplog.Cluster(path) as cluster:
        cluster.admin.create_topic(topic, config={"durability": "os"})
        with cluster.producer() as producer:
            values = [b"%d" % number for number in range(count)]
            places = producer.send_many(topic, values).result(PATIENCE_S)
    return {(place.partition, place.offset): value for place, value in zip(places, values, strict=True)}


def read(path: Path, topic: str) -> dict[tuple[int, int], bytes | None]:
    """What a cluster that is opened now has."""
    with pyreplog.Cluster(path) as cluster, cluster.consumer(topic) as consumer:
        return {(record.partition, record.offset): record.value for record in consumer.until_end()}


def test_a_cluster_without_its_state_is_refused(tmp_path: Path) -> None:
    """Where nodes' folders of version 0.1 are but no controller state, no new cluster is begun over them; with the
    file back everything is there."""
    path = tmp_path / "data"
    written = write(path, "events")
    as_version_0_1(path)
    shutil.move(path / STATE, tmp_path / "kept")
    for _ in range(2):
        with pytest.raises(CorruptError, match=STATE):
            pyreplog.Cluster(path)
        assert not (path / STATE).exists()
    shutil.move(tmp_path / "kept", path / STATE)
    assert read(path, "events") == written


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_damaged_state_is_reported_and_left_alone(tmp_path: Path, damage: str) -> None:
    """A damaged state file is a CorruptError that names it, and not a byte of the folder's state or records
    changes."""
    path = tmp_path / "data"
    written = write(path, "events")
    whole = as_version_0_1(path).read_bytes()
    half = len(whole) // 2
    damaged = {"flip": whole[:half] + bytes([whole[half] ^ 4]) + whole[half + 1 :], "cut": whole[:half], "empty": b""}[
        damage
    ]
    (path / STATE).write_bytes(damaged)
    with pytest.raises(CorruptError, match=STATE):
        pyreplog.Cluster(path)
    assert (path / STATE).read_bytes() == damaged
    (path / STATE).write_bytes(whole)
    assert read(path, "events") == written


def test_old_state_costs_no_records(tmp_path: Path) -> None:
    """A state from before a topic was created is refused before any folder is set aside; with the latest state all
    is read again."""
    path = tmp_path / "data"
    first = write(path, "first")
    before = shutil.copytree(path, tmp_path / "before")
    second = write(path, "second")
    old = as_version_0_1(before).read_bytes()
    latest = as_version_0_1(path).read_bytes()
    (path / STATE).write_bytes(old)
    with pytest.raises(CorruptError, match="older than the nodes' folders"):
        pyreplog.Cluster(path)
    assert len(list(path.glob("node-*/second-0"))) == 3
    (path / STATE).write_bytes(latest)
    assert (read(path, "first"), read(path, "second")) == (first, second)


def test_a_node_whose_folder_is_gone_is_still_one_of_the_cluster(tmp_path: Path) -> None:
    """How many nodes there are is what the controller knows: a replaced disk is filled again, and fewer nodes are
    refused."""
    path = tmp_path / "data"
    written = write(path, "events")
    shutil.rmtree(path / "node-3")
    with pytest.raises(ConfigError, match="3 nodes"):
        pyreplog.Cluster(path, nodes=2)
    with pyreplog.Cluster(path) as cluster:
        assert len(cluster.nodes) == 3
        assert cluster._driver.wait_until(
            lambda: (
                len(cluster._controller.image.topics) == 1
                and all(
                    len(partition.isr) == 3
                    for topic in cluster._controller.image.topics.values()
                    for partition in topic.partitions.values()
                )
            ),
            PATIENCE_S,
        )
    assert read(path, "events") == written


ACKNOWLEDGED = """
import os, sys, pyreplog
cluster = pyreplog.Cluster(sys.argv[1], nodes=3)
cluster.admin.create_topic("orders", partitions=3, config={"durability": sys.argv[2]})
producer = cluster.producer()
for ack in [producer.send("orders", b"%d" % number) for number in range(30)]:
    ack.result()
os._exit(0)
"""


@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("left", [1, 2, 3])
def test_all_but_one_copy_may_be_lost_while_all_are_in_sync(tmp_path: Path, left: int, durability: str) -> None:
    """The cluster dies at once, and of its three folders one comes back: every acknowledged record is there, and
    more are taken."""
    subprocess.run([sys.executable, "-c", ACKNOWLEDGED, str(tmp_path / "data"), durability], check=True)
    for number in {1, 2, 3} - {left}:
        shutil.rmtree(tmp_path / "data" / f"node-{number}")
    with pytest.raises(pyreplog.QuorumLostError, match="1 of 3 voters is there.*replog quorum recover"):
        pyreplog.Cluster(tmp_path / "data")
    pyreplog.recover_quorum(tmp_path / "data")
    with pyreplog.Cluster(tmp_path / "data") as cluster:
        with cluster.producer() as producer:
            producer.send("orders", b"30").result(PATIENCE_S)
        with cluster.consumer("orders") as consumer:
            assert sorted(int(record.value or b"") for record in consumer.until_end()) == [*range(31)]


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_close_keeps_what_only_the_leader_has(tmp_path: Path, durability: str) -> None:
    """With acks=1 a record is acknowledged that no follower has fetched. The cluster is closed and opened again: it
    is there, whoever of the nodes led."""
    with BreakableCluster(tmp_path / "data") as cluster:
        cluster.admin.create_topic("orders", partitions=3, config={"durability": durability})
        leaders = [cluster.leader("orders", partition) for partition in range(3)]
        for one, other in itertools.permutations([1, 2, 3], 2):
            cluster.cut(one, other)
        with cluster.producer(acks=1) as producer:
            for partition in range(3):
                producer.send("orders", b"%d" % partition, partition=partition).result(PATIENCE_S)
    assert len({leader.node_id for leader in leaders if leader is not None}) == 3
    assert read(tmp_path / "data", "orders") == {(partition, 0): b"%d" % partition for partition in range(3)}


def test_a_torn_tail_of_a_node_is_told_in_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Which node cut how much off which partition after a kill, and where it is kept; the others say nothing."""
    with pyreplog.Cluster(tmp_path) as cluster:
        cluster.admin.create_topic("orders")
        with cluster.producer() as producer:
            producer.send("orders", b"x").result()
        for node in cluster.nodes:
            node.kill()
    segment = next((tmp_path / "node-2" / "orders-0").glob("*.log"))
    with segment.open("ab") as file:
        file.write(b"torn")
    with pyreplog.Cluster(tmp_path):
        pass
    (said,) = [record.getMessage() for record in caplog.records if "not closed cleanly" in record.getMessage()]
    assert said.startswith("node 2: orders-0 was not closed cleanly: recovered up to offset 1: ")
    (kept,) = segment.parent.glob("replog.torn-*")
    assert f"cut off; kept beside it in {kept}" in said


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    """While one process has the folder open another gets LockedError with its pid, and disturbs nothing."""
    path = tmp_path / "data"
    written = write(path, "events")
    code = (
        "import sys, pyreplog\ntry:\n    pyreplog.Cluster(sys.argv[1])\nexcept pyreplog.LockedError as error:\n   "
        " print(error)\n"
    )
    with pyreplog.Cluster(path) as cluster:
        said = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        assert f"pid {os.getpid()}" in said
        with pytest.raises(LockedError):
            pyreplog.Cluster(path)
        with cluster.producer() as producer:
            place = producer.send("events", b"more").result(PATIENCE_S)
    assert read(path, "events") == {**written, (place.partition, place.offset): b"more"}


class Narrow(SystemDisk):
    """Makes no file while ``error`` says why not."""

    error = 0

    def create(self, path: str, size: int = 0) -> File:
        """As the disk allows."""
        if self.error:
            raise StorageError(self.error, os.strerror(self.error), path)
        return super().create(path, size)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC], ids=["descriptors", "room"])
def test_a_voter_that_could_not_start_again_goes_on_when_it_can(tmp_path: Path, error: int) -> None:
    """The only voter's turn is cut short while its disk makes no file. Until then each change is refused with its
    number. It starts as soon as it can, with all that was answered, and the cluster serves as before."""
    disk = Narrow()
    with pyreplog.Cluster(
        tmp_path / "data",
        nodes=4,
        roles={4: "controller"},
        disk=lambda name: disk if name == "node-4" else SystemDisk(),
    ) as cluster:
        cluster.admin.create_topic("a")
        disk.error = error
        with still(cluster._driver):
            cluster.nodes[3]._interrupted(None)
        with pytest.raises((ClusterError, OutcomeUnknownError), match="0 of 1 voters is up: restart node 4"):
            cluster.admin.create_topic("b", timeout=0.5)
        disk.error = 0
        assert cluster._driver.wait_until(lambda: cluster._controller.active_id == 4, PATIENCE_S)
        assert cluster.nodes[3].failure is None
        with cluster.producer() as producer:
            producer.send("a", b"1").result(PATIENCE_S)
        cluster.admin.create_topic("c")
        cluster.nodes[0].kill()
        cluster.nodes[0].restart()
        with cluster.producer() as producer:
            assert producer.send("a", b"2").result(PATIENCE_S).offset == 1
            producer.send("c", b"3").result(PATIENCE_S)


@pytest.mark.parametrize("act", ["kill", "stop", "restart", "close"])
def test_a_node_that_waits_for_room_is_ended_or_restarted(tmp_path: Path, act: str) -> None:
    """Nothing starts it behind the caller's back, and a close leaves nothing."""
    disk = Narrow()
    with pyreplog.Cluster(
        tmp_path / "data", nodes=2, disk=lambda name: disk if name == "node-2" else SystemDisk()
    ) as cluster:
        node = cluster.nodes[1]
        before = len(cluster._driver._machines)
        disk.error = errno.ENOSPC
        with still(cluster._driver):
            node._interrupted(None)
        assert node._retry is not None
        disk.error = 0
        if act == "close":
            cluster.close()
            assert not cluster._driver._machines
            return
        getattr(node, act)()
        assert node._retry is None
        assert node.alive == (act == "restart")
        assert len(cluster._driver._machines) == before - 2 * (act != "restart")


def test_a_cluster_closed_in_order_opens_no_log_when_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many partitions only those that somebody uses are opened, and everything is there; a process that dies
    leaves all to be opened."""
    opened: list[str] = []

    def counted(disk: Disk, directory: str, *rest: object) -> Parts:
        if Path(directory).name != METADATA_FOLDER:
            opened.append(Path(directory).name)
        return open_parts(disk, directory, *rest)  # type: ignore[arg-type]

    for place in ("log_opener", "log"):
        monkeypatch.setattr(f"pyreplog.log.{place}.open_parts", counted)
    path = tmp_path / "data"
    with pyreplog.Cluster(path) as cluster:
        cluster.admin.create_topic("events", partitions=20, config={"durability": "os"})
        with cluster.producer() as producer:
            for number in range(40):
                producer.send("events", b"%d" % number, partition=number % 20)
            producer.flush()
        nodes = [node._node for node in cluster.nodes]
        names = [TopicPartition("events", number) for number in range(20)]
        heard = lambda: all(node.find(name).log.high_watermark == 2 for node in nodes for name in names)  # type: ignore[union-attr]  # noqa: E731
        assert cluster._driver.wait_until(heard, PATIENCE_S)
    assert opened == []
    cluster = pyreplog.Cluster(path)
    assert opened == []
    with cluster.producer() as producer:
        assert producer.send("events", b"more", partition=7).result(PATIENCE_S).offset == 2
    with cluster.consumer("events") as consumer:
        found = [(record.partition, record.offset, record.value) for record in consumer.until_end()]
    assert sorted(found) == sorted(
        [(number % 20, number // 20, b"%d" % number) for number in range(40)] + [(7, 2, b"more")]
    )
    for node in cluster.nodes:
        node.kill()
    opened.clear()
    for node in cluster.nodes:
        node._start()
    assert len(opened) == 60
    cluster.close()


def test_no_cluster_is_made_above_others(tmp_path: Path) -> None:
    """Among logs, or the nodes of brokers, it would hide them from whoever reads the folder. Nothing is made."""
    for inner in ("events", "n1/data"):
        above = tmp_path / inner[:2]
        with pyreplog.open_log(above / inner, topic="t", durability="os") as log:
            log.append(b"x")
        before = sorted(above.rglob("*"))
        with pytest.raises(
            ConfigError, match=rf"of other logs, or of nodes \({inner}\), and a cluster made in it would hide them"
        ):
            pyreplog.Cluster(above)
        assert sorted(above.rglob("*")) == before
        with pyreplog.open_log(above, "r", topic="t") as reader:
            assert [record.value for record in reader] == [b"x"]
