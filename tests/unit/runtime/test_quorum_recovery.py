"""A cluster that lost a majority of its voters for good is refused, recovered, and goes on with a survivor."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

import pyreplog
from pyreplog import (
    ConfigError,
    CorruptError,
    LockedError,
    QuorumLostError,
    StorageNotFoundError,
    recover_quorum,
)
from tests.interop.golden.cluster_0_1 import as_version_0_1
from tests.unit.cli.support import Replog
from tests.unit.runtime.test_voters import host

METADATA = "__cluster_metadata-0"
RECORDS = [b"%d" % number for number in range(20)]


@pytest.fixture
def replog(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Replog:
    """The command."""
    return Replog(capfd, monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A closed cluster of three voters with acknowledged records on all of them."""
    path = tmp_path / "data"
    with pyreplog.Cluster(path, nodes=3) as cluster:
        cluster.admin.create_topic("orders", replication_factor=3)
        with cluster.producer() as producer:
            for value in RECORDS:
                producer.send("orders", value).result()
    return path


def lose(path: Path, survivors: set[int]) -> None:
    """Delete the folders of all nodes but the survivors."""
    for number in {1, 2, 3} - survivors:
        shutil.rmtree(path / f"node-{number}")


def values_in(cluster: pyreplog.Cluster, count: int) -> list[bytes | None]:
    """The values of the topic."""
    found: list[bytes | None] = []
    with cluster.consumer("orders") as consumer:
        while len(found) < count:
            found += [record.value for record in consumer.poll(timeout=10)]
    return found


@pytest.mark.parametrize("survivor", [1, 2, 3])
def test_all_but_one_copy_may_be_lost_while_all_are_in_sync(data: Path, survivor: int) -> None:
    """Opening names the command and makes no folder; after it the survivor leads with all records, and takes more."""
    lose(data, {survivor})
    with pytest.raises(QuorumLostError, match=f"1 of 3 voters.*replog quorum recover {data}"):
        pyreplog.Cluster(data)
    assert sorted(path.name for path in data.glob("node-*")) == [f"node-{survivor}"]
    done = recover_quorum(data)
    assert done.node_id == survivor
    assert done.epoch >= 1
    assert done.known_offset > 0
    (loss,) = done.losses
    assert (loss.topic, loss.partition, loss.node_id, loss.start, loss.end) == ("orders", 0, survivor, 20, -1)
    with pyreplog.Cluster(data) as cluster:
        assert cluster.controller == cluster.node(survivor)
        assert cluster.leader("orders") == cluster.node(survivor)
        assert values_in(cluster, 20) == RECORDS
        with cluster.producer() as producer:
            producer.send("orders", b"more").result()
    with pyreplog.Cluster(data) as cluster:
        assert values_in(cluster, 21) == [*RECORDS, b"more"]


def test_a_majority_is_refused(data: Path) -> None:
    """With two of three voters there is nothing to recover, nor after a recovery."""
    lose(data, {1, 3})
    with pytest.raises(ConfigError, match=r"nothing has to be recovered: the metadata of 2 of 3 voters"):
        recover_quorum(data)
    with pyreplog.Cluster(data) as cluster:
        assert values_in(cluster, 20) == RECORDS
    lose(data, {3})
    assert recover_quorum(data).node_id == 3
    with pytest.raises(ConfigError, match=r"the metadata of 1 of 1 voters"):
        recover_quorum(data)


def damage(path: Path, harms: dict[int, str]) -> None:
    """Damage the metadata of some nodes: ``log``, in the middle; ``state``: garbage in quorum-state; ``mark``: gone."""
    for number, how in harms.items():
        folder = path / f"node-{number}" / METADATA
        if how == "log":
            (segment,) = folder.glob("*.log")
            data = bytearray(segment.read_bytes())
            data[len(data) // 2] ^= 1
            segment.write_bytes(data)
        elif how == "state":
            (folder / "quorum-state").write_bytes(b"garbage")
        else:
            (folder / "replog.mark").unlink()


def contents(path: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("harms", [{1: "state", 2: "log"}, {2: "log", 3: "log"}, {1: "mark", 3: "state"}])
def test_a_damaged_majority_is_refused_at_once_and_recovered(data: Path, harms: dict[int, str], replog: Replog) -> None:
    """The error names the damaged voters and the command, and no file changes. Then the longest sound log goes on."""
    damage(data, harms)
    before = contents(data)
    first, second = harms
    named = f"1 of 3 voters is whole: that of node {first} is damaged .*; that of node {second} is damaged .*"
    with pytest.raises(QuorumLostError, match=f"{named}replog quorum recover {data}"):
        pyreplog.Cluster(data)
    assert {name: data for name, data in contents(data).items() if "lock" not in name} == {
        name: data for name, data in before.items() if "lock" not in name
    }
    described = replog("quorum", "describe", data)
    assert (described.code, described.out.count("damaged, sound below offset")) == (1, 2)
    done = recover_quorum(data)
    assert done.losses == (), "every copy of the partitions is there"
    assert harms.get(done.node_id) != "log", "a longer log is there"
    with pyreplog.Cluster(data) as cluster:
        assert values_in(cluster, 20) == RECORDS
        with cluster.producer() as producer:
            producer.send("orders", b"more").result()
        assert {voter.node_id for voter in cluster.admin.describe_quorum().voters} >= {done.node_id}
    with pyreplog.Cluster(data) as cluster:
        assert values_in(cluster, 21) == [*RECORDS, b"more"]


def test_all_logs_are_damaged(data: Path) -> None:
    """The recovery goes on from the longest sound beginning, and says up to which offset it knows the metadata."""
    sound = {}
    for number in (1, 2, 3):
        (segment,) = (data / f"node-{number}" / METADATA).glob("*.log")
        content = bytearray(segment.read_bytes())
        content[len(content) - 40 * number] ^= 1  # node 1 is sound the longest
        segment.write_bytes(content)
        sound[number] = len(content) - 40 * number
    with pytest.raises(QuorumLostError, match="0 of 3 voters is whole"):
        pyreplog.Cluster(data)
    done = recover_quorum(data)
    with pyreplog.Cluster(data) as cluster:
        assert cluster.admin.topics() == ["orders"]
        assert values_in(cluster, 20) == RECORDS
    assert done.known_offset > 0


def test_topics_that_only_the_damaged_part_knew(data: Path, replog: Replog) -> None:
    """Their folders are named, and kept when the cluster opens."""
    ends = {number: (data / f"node-{number}" / METADATA / f"{0:020}.log").stat().st_size for number in (1, 2, 3)}
    with pyreplog.Cluster(data) as cluster:
        cluster.admin.create_topic("late", replication_factor=1)
        with cluster.producer() as producer:
            producer.send("late", b"value").result()
    for number, end in ends.items():
        segment = data / f"node-{number}" / METADATA / f"{0:020}.log"
        content = bytearray(segment.read_bytes())
        content[end + 70] ^= 1  # the first batch of the second opening
        segment.write_bytes(content)
    (folder,) = data.glob("node-*/late-0")
    done = replog("quorum", "recover", data)
    assert (done.code, f"{folder}: not in the metadata; its node will keep it as -stray" in done.out) == (0, True)
    with pyreplog.Cluster(data) as cluster:
        assert cluster.admin.topics() == ["orders"]
        assert values_in(cluster, 20) == RECORDS
    assert list(data.glob("node-*/late-0.*-stray"))


@pytest.mark.parametrize("older", [{1, 2}, {1}, {3}])
def test_older_copies_of_whole_folders(data: Path, tmp_path: Path, older: set[int]) -> None:
    """Two older voters would elect one another, and discard what the third one has: opening is refused, and the
    recovery goes on from the third one. One older voter follows the others."""
    for number in older:
        shutil.copytree(data / f"node-{number}" / METADATA, tmp_path / str(number))
    with pyreplog.Cluster(data) as cluster:
        cluster.admin.create_topic("late", replication_factor=1)
    for number in older:
        shutil.rmtree(data / f"node-{number}" / METADATA)
        shutil.copytree(tmp_path / str(number), data / f"node-{number}" / METADATA)
    if len(older) > 1:
        named = r"1 of 3 voters is whole: that of node 1 .* older copy\); that of node 2"
        with pytest.raises(QuorumLostError, match=named):
            pyreplog.Cluster(data)
        assert recover_quorum(data).node_id == 3
    with pyreplog.Cluster(data) as cluster:
        assert cluster.admin.topics() == ["late", "orders"]
        assert values_in(cluster, 20) == RECORDS


def test_one_damaged_and_one_lost_voter(data: Path) -> None:
    """The error names both, and makes no folder for the lost one."""
    damage(data, {1: "log"})
    lose(data, {1, 3})
    with pytest.raises(
        QuorumLostError, match=r"1 of 3 voters is whole: that of node 1 is .*; put back the folder of node 2"
    ):
        pyreplog.Cluster(data)
    assert not (data / "node-2").exists()


@pytest.mark.parametrize("how", ["log", "state", "mark"])
def test_one_damaged_voter_is_no_loss(data: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to recover: the voter copies the metadata from the other two by itself, and votes again."""
    damage(data, {2: how})
    with pytest.raises(ConfigError, match="nothing has to be recovered: the metadata of 2 of 3 voters"):
        recover_quorum(data)
    with pyreplog.Cluster(data) as cluster:
        assert "node 2 does not vote, because its metadata is damaged" in caplog.text
        assert "node 2 removes its damaged metadata" in caplog.text
        assert cluster.node(2).ready
        assert values_in(cluster, 20) == RECORDS
        assert cluster._driver.wait_until(lambda: host(cluster).is_voter(2), 20)
        cluster.node(3).kill()
        cluster.admin.create_topic("more", replication_factor=1)


def test_a_damaged_voter_outside_is_replaced_on_request(tmp_path: Path) -> None:
    """Its disk may be the one that fails, so the cluster opens without it."""
    folders = [tmp_path / f"disk{number}" / "n" for number in (1, 2, 3)]
    with pyreplog.Cluster(tmp_path / "data", nodes=folders) as cluster:
        cluster.admin.create_topic("t", replication_factor=3)
    (segment,) = (folders[1] / METADATA).glob("*.log")
    segment.write_bytes(b"\0" * segment.stat().st_size)
    with pyreplog.Cluster(tmp_path / "data") as cluster:
        assert cluster.node(2).state == "offline"
        assert isinstance(cluster.node(2).failure, CorruptError)
        cluster.node(3).kill()
        assert cluster._controller.lack() == "1 of 3 voters is up: restart node 3"
        cluster.node(3).restart()
        cluster.admin.replace_node(2)
        cluster.node(3).kill()
        cluster.admin.create_topic("more", replication_factor=1)


def test_paused_voters_are_not_up(data: Path) -> None:
    """An error says which voters must go on."""
    with pyreplog.Cluster(data) as cluster:
        cluster.node(1).pause()
        assert cluster._controller.lack() is None
        cluster.node(2).pause()
        assert cluster._controller.lack() == "1 of 3 voters is up: resume node 1 or 2"
        cluster.node(1).kill()
        assert cluster._controller.lack() == "1 of 3 voters is up: restart node 1 or resume node 2"
        cluster.node(2).resume()
        cluster.admin.create_topic("more")


def test_an_open_cluster_is_refused(data: Path) -> None:
    """It holds the lock, and the error names the holder."""
    with pyreplog.Cluster(data), pytest.raises(LockedError, match="this process"):
        recover_quorum(data)


def test_no_quorum(tmp_path: Path) -> None:
    """A missing folder, an empty one, a log, and a cluster with one controller are refused unchanged."""
    with pytest.raises(StorageNotFoundError):
        recover_quorum(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no cluster"):
        recover_quorum(tmp_path / "empty")
    assert not list((tmp_path / "empty").iterdir())
    with pyreplog.open_log(tmp_path / "log"):
        pass
    with pytest.raises(ConfigError, match="single log"):
        recover_quorum(tmp_path / "log")
    with pyreplog.Cluster(tmp_path / "old"):
        pass
    as_version_0_1(tmp_path / "old")
    with pytest.raises(ConfigError, match="has no quorum"):
        recover_quorum(tmp_path / "old")


def test_no_metadata(data: Path) -> None:
    """Without any metadata log nothing says what the cluster was."""
    lose(data, {2})
    shutil.rmtree(data / "node-2" / METADATA)
    with pytest.raises(StorageNotFoundError, match="replog repair"):
        recover_quorum(data)


def test_the_command(replog: Replog, data: Path) -> None:
    """It says what is known, who votes, and what may be lost; asked again it refuses."""
    lose(data, {2})
    done = replog("quorum", "recover", data)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("the metadata is known up to offset ")
    assert lines[1:] == [
        "node 2 is the only voter now",
        "orders-0: all records from offset 20 on may be lost; the copy of node 2 goes on",
    ]
    again = replog("quorum", "recover", data)
    assert (again.code, again.out) == (1, "")
    assert "nothing has to be recovered" in again.err
    assert replog("quorum", "recover").code == 2


def test_the_command_in_json(replog: Replog, data: Path) -> None:
    """One object for the recovery, then one for each loss."""
    lose(data, {3})
    recovery, loss = replog("quorum", "recover", data, "--json").objects()
    assert (recovery["voter"], recovery["epoch"] >= 1, recovery["known_offset"] > 0) == (3, True, True)
    assert loss == {"topic": "orders", "partition": 0, "node": 3, "start_offset": 20, "end_offset": None}


def test_describe_quorum(data: Path) -> None:
    """The active controller knows every voter; also while one is down, and beside coroutines."""
    with pyreplog.Cluster(data) as cluster:
        info = cluster.admin.describe_quorum()
        assert cluster.controller is not None
        assert (info.leader_id, [one.node_id for one in info.voters]) == (cluster.controller.node_id, [1, 2, 3])
        assert (info.observers, info.epoch >= 2, info.high_watermark > 0) == ((), True, True)
        cluster.controller.kill()
        after = cluster.admin.describe_quorum()
        assert after.epoch > info.epoch
        assert after.leader_id != info.leader_id


def test_describe_quorum_in_a_coroutine(data: Path) -> None:
    async def describe() -> pyreplog.QuorumInfo:
        async with pyreplog.aio.Cluster(data) as cluster:
            return await cluster.admin.describe_quorum()

    assert len(asyncio.run(describe()).voters) == 3


def test_recovery_in_a_coroutine(data: Path) -> None:
    """The same result and the same errors."""
    lose(data, {2})
    assert asyncio.run(pyreplog.aio.recover_quorum(data)).node_id == 2
    with pytest.raises(ConfigError, match="nothing has to be recovered"):
        asyncio.run(pyreplog.aio.recover_quorum(data))


def test_describe_without_a_quorum(tmp_path: Path, replog: Replog) -> None:
    """A cluster of version 0.1 has none, and says so."""
    with pyreplog.Cluster(tmp_path / "old"):
        pass
    as_version_0_1(tmp_path / "old")
    assert "has no quorum" in replog("quorum", "describe", tmp_path / "old").err


def test_the_command_describes_the_folders(replog: Replog, data: Path) -> None:
    """Beside a running cluster and after it; a missing majority ends with 1."""
    with pyreplog.Cluster(data):
        assert replog("quorum", "describe", data).code == 0
    lines = replog("quorum", "describe", data).out.splitlines()
    assert lines[0] == "the metadata of 3 of 3 voters is there, by the nodes' folders:"
    assert [line[:16] for line in lines[1:]] == ["node 1    voter ", "node 2    voter ", "node 3    voter "]
    lose(data, {2})
    described = replog("quorum", "describe", data, "--json")
    assert (described.code, "replog quorum recover" in described.err) == (1, True)
    first, second, third = described.objects()
    absent = {"node": 1, "voter": True, "epoch": None, "log_end_offset": None, "damage": None}
    assert first == absent == {**third, "node": 1}
    assert second["log_end_offset"] > 0
