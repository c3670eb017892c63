"""``replog topics create``, ``config``, ``compact`` and ``delete``, beside ``replog topics PATH``."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyreplog
from tests.unit.cli.support import Replog


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a cluster of three nodes that does not run."""
    with pyreplog.Cluster(tmp_path / "data", nodes=3):
        pass
    return tmp_path / "data"


def test_a_topic_is_made_changed_and_deleted(replog: Replog, data: Path) -> None:
    """Each command starts the cluster, does one thing, and stops it."""
    made = replog(
        "topics", "create", data, "orders", "--partitions", 4, "--replication-factor", 2, "--config", "retention.ms=5"
    )
    assert made.code == 0
    assert made.out == "orders: 4 partitions, 2 replicas each, durability=sync min.insync.replicas=2 retention.ms=5\n"
    assert "orders  4 partitions" in replog("topics", data).out
    changed = replog("topics", "config", data, "orders", "retention.ms=", "segment.bytes=2048")
    assert changed.out == "durability=sync\nmin.insync.replicas=2\nsegment.bytes=2048\n"
    (all_of_them,) = replog("topics", "config", data, "orders", "--all", "--json").objects()
    assert (all_of_them["segment.bytes"], all_of_them["retention.ms"]) == ("2048", "-1")
    assert replog("topics", "delete", data, "orders").out == "orders: deleted\n"
    assert "orders" not in replog("topics", data).out


def test_json(replog: Replog, data: Path) -> None:
    """One object each."""
    (made,) = replog("topics", "create", "--json", data, "orders").objects()
    assert (made["topic"], made["partitions"], made["replication_factor"]) == ("orders", 1, 3)
    (config,) = replog("topics", "config", data, "orders", "--json").objects()
    assert config == made["config"]
    assert replog("topics", "delete", data, "orders", "--json").objects() == [{"deleted": "orders"}]


def test_creation_may_be_repeated(replog: Replog, data: Path) -> None:
    """With --exist-ok, which the refusal names."""
    words = ("topics", "create", data, "orders", "--partitions", 2)
    assert replog(*words).code == 0
    again = replog(*words)
    assert (again.code, again.out) == (1, "")
    assert "--exist-ok accepts it" in again.err
    assert replog(*words, "--exist-ok").code == 0


def test_a_topic_is_compacted(replog: Replog, data: Path) -> None:
    """A line or an object for each replica; 4 if one is damaged."""
    with pyreplog.Cluster(data) as cluster:
        cluster.admin.create_topic("orders", config={"cleanup.policy": "compact"})
        with cluster.producer() as producer:
            for number in range(30):
                producer.send("orders", b"%d" % number, key=b"k%d" % (number % 2))
    done = replog("topics", "compact", data, "orders")
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["topic", "orders"]
    assert [line[:4] for line in lines[2:]] == [["0", str(node), "30", "2"] for node in (1, 2, 3)]
    (again,) = replog("topics", "compact", data, "orders", "--json").objects()
    assert again["skipped"] == {}
    assert {one["records_kept"] for one in again["partitions"]["0"].values()} == {2}
    (first, *_) = sorted((data / "node-2" / "orders-0").glob("*.log"))
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    damaged = replog("topics", "compact", data, "orders")
    assert damaged.code == 4
    assert "partition 0 on node 2 was not compacted: " in damaged.out


def test_a_folder_with_the_name_of_a_command_is_listed(
    replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a second word that is no option makes it a command."""
    monkeypatch.chdir(tmp_path)
    for name in ("create", "config", "compact", "delete"):
        with pyreplog.open_log(name) as log:
            log.append(b"x")
        for words in ((name,), (name, "--json"), ("--json", name), (f"./{name}",)):
            assert name in replog("topics", *words).out
    assert "required: TOPIC" in replog("topics", "create", "data").err
    assert "usage: replog topics create" in replog("topics", "create", "--help").out
    assert "usage: replog topics create" in replog("help", "topics", "create").out
    assert "usage: replog topics " in replog("topics", "--help").out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("config", "order"), "did you mean 'orders'"),
        (("config", "orders", "retention=1"), "did you mean 'retention.ms'"),
        (("config", "orders", "durability=os"), "create another topic"),
        (("config", "orders", "retention.ms"), "write KEY=VALUE, or KEY= to reset it"),
        (("config", "orders", "retention.ms=1", "retention.ms=2"), "given twice"),
        (("create", "new", "--config", "retention.ms="), "write KEY=VALUE"),
        (("create", "new", "--replication-factor", "5"), "there are 3 nodes"),
        (("create", "new", "--partitions", "0"), "from 1"),
        (("create", "__new"), "internal"),
        (("delete", "order"), "did you mean 'orders'"),
        (("delete", "__orders"), "internal"),
        (("compact", "order"), "did you mean 'orders'"),
        (("compact", "orders"), "alter_config('orders', {'cleanup.policy': 'compact'})"),
    ],
)
def test_refusals(replog: Replog, data: Path, words: tuple[str, ...], hint: str) -> None:
    """With the way out, and nothing changes."""
    replog("topics", "create", data, "orders")
    before = replog("topics", "config", data, "orders").out
    verb, *rest = words
    done = replog("topics", verb, data, *rest)
    assert (done.code, done.out) == (1, "")
    assert hint in done.err
    assert replog("topics", "config", data, "orders").out == before
    assert replog("topics", data).out.count("orders") == 1


@pytest.mark.parametrize("verb", ["create", "config", "compact", "delete"])
def test_only_a_cluster_has_topics(replog: Replog, tmp_path: Path, verb: str) -> None:
    """A lone log, an empty folder and a missing one are refused with what helps there; none becomes a cluster."""
    with pyreplog.open_log(tmp_path / "lone") as log:
        log.append(b"x")
    (tmp_path / "empty").mkdir()
    for name, hint in (
        ("lone", "A lone log is one topic"),
        ("empty", "makes a cluster"),
        ("missing", "no such folder"),
    ):
        done = replog("topics", verb, tmp_path / name, "t")
        assert done.code == 1
        assert hint in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "lone"]
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_cluster_that_runs_is_changed_by_its_program(replog: Replog, data: Path) -> None:
    """The refusal names the holder, and the call; settings are shown all the same."""
    with pyreplog.Cluster(data) as cluster:
        cluster.admin.create_topic("orders")
        for words, call in (
            (("create", data, "new"), "cluster.admin.create_topic('new')"),
            (("config", data, "orders", "retention.ms=1"), "cluster.admin.alter_config('orders', "),
            (("compact", data, "orders"), "cluster.admin.compact('orders')"),
            (("delete", data, "orders"), "cluster.admin.delete_topic('orders')"),
        ):
            done = replog("topics", *words)
            assert done.code == 1
            assert "is already open for writing by this process, pid " in done.err
            assert call in done.err
        assert "durability=sync" in replog("topics", "config", data, "orders").out
