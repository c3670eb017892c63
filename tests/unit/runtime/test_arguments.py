"""Arguments of the wrong type or beyond their limits: a typed error that names the argument, what was given and
what is wanted."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas
import pytest

import pyreplog
from pyreplog.config import check_seconds
from pyreplog.testing import SimDisk

NAN = math.nan


def check(uses: list[tuple[Callable[[], object], str]]) -> None:
    """Each raises ConfigError with these words."""
    for use, words in uses:
        with pytest.raises(pyreplog.ConfigError, match=words):
            use()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"max_block_ms": "x"}, r"max_block_ms is 'x'; it must be milliseconds from 0"),
    ({"max_block_ms": True}, "max_block_ms is True; it must be milliseconds"),
    ({"max_block_ms": [1]}, r"max_block_ms is \[1\]; it must be milliseconds"),
    ({"max_block_ms": NAN}, "max_block_ms is nan; it must be milliseconds"),
    ({"max_block_ms": -1}, "max_block_ms is -1; it must be milliseconds"),
    ({"max_block_ms": 1 << 2000}, "max_block_ms is a int; it must be milliseconds"),
    ({"disk": 5}, "disk is 5; it must be a Disk"),
    ({"disk": SimDisk}, "disk is <class .*; it must be a Disk"),
    ({"clock": 5}, "clock is 5; it must be a Clock"),
    ({"progress": 5}, "progress is 5; it must be a function"),
    ({"buffer_memory": True}, "buffer_memory, in bytes, is True; it must be a whole number"),
    ({"partition": "0"}, "partition is '0'; it must be a whole number"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=[f"{next(iter(a))}-{n}" for n, (a, _) in enumerate(WRONG)])
def test_of_open_log(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    """And nothing is made; the same where it is awaited."""

    async def use() -> None:
        async with pyreplog.aio.open_log(tmp_path / "log", **arguments):
            pass

    for run in (lambda: pyreplog.open_log(tmp_path / "log", **arguments), lambda: asyncio.run(use())):
        with pytest.raises(pyreplog.ConfigError, match=words):
            run()
        assert list(tmp_path.iterdir()) == []


def test_of_a_reader(tmp_path: Path) -> None:
    """What is checked of who writes is checked of who reads."""
    open_log: Any = pyreplog.open_log
    with open_log(tmp_path / "log", durability="os") as log:
        check(
            [
                (lambda: log.scan(5), r"columns is 5; it must be a list of names"),
                (lambda: log.follow(timeout=True), "timeout is True"),
            ]
        )
    check(
        [
            (lambda: open_log(tmp_path / "log", "r", disk=5), "disk is 5"),
            (lambda: open_log(tmp_path / "log", "r", clock=5), "clock is 5"),
            (lambda: open_log(tmp_path / "log", "r", progress=5), "progress is 5"),
        ]
    )
    for topic in (5, [1], b"log", True):
        with pytest.raises(TypeError, match=f"topic must be text, not {type(topic).__name__}"):
            open_log(tmp_path / "log", "r", topic=topic)


def test_a_path_that_no_file_can_have() -> None:
    """Half of a surrogate pair; but those that stand for bytes of a name are a path."""
    makers: tuple[Any, ...] = (pyreplog.open_log, pyreplog.Cluster, pyreplog.aio.open_log, pyreplog.aio.Cluster)
    for make in makers:
        with pytest.raises(pyreplog.ConfigError, match=r"path holds '\\ud800' at 2, which no file's name can"):
            make("a/\ud800")


def test_a_path_of_bytes_that_are_no_text(tmp_path: Path) -> None:
    """As the system gives them to Python."""
    with pyreplog.open_log(tmp_path / "\udcff", topic="t") as log:
        log.append(b"x")
    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff"]


def test_of_what_is_opened_by_a_coroutine() -> None:
    """At the call, as it names the folder."""
    makers: tuple[Any, ...] = (pyreplog.aio.open_log, pyreplog.aio.Cluster)
    for make in makers:
        with pytest.raises(TypeError, match=r"path must be text or a pathlib\.Path, not int"):
            make(5)
        with pytest.raises(pyreplog.ConfigError, match="path is empty"):
            make("")


@pytest.mark.parametrize("way", ["append", "append_nowait", "append_many", "append_many later"])
def test_timestamps(tmp_path: Path, way: str) -> None:
    """True is no time. Below -1, which means none, beyond 64 bits and before 1970 there is none; nothing is
    appended."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as opened:
        log: Any = opened

        def append(timestamp: object) -> object:
            if way.startswith("append_many"):
                return log.append_many([b"x"], timestamps=[timestamp], wait=way == "append_many")
            return getattr(log, way)(b"x", timestamp=timestamp)

        for flag in (True, False):
            with pytest.raises(TypeError, match="a timestamp is a datetime with a time zone, or an int, .* not bool"):
                append(flag)
        check(
            [
                (lambda: append(-5), "timestamp -5 is below -1: it counts ms since 1970, and -1 means none"),
                (lambda: append(-(1 << 80)), "does not fit 64 bits"),
                (lambda: append(datetime(1960, 1, 1, tzinfo=UTC)), "before 1970"),
            ]
        )
        log.flush()
        assert log.end_offset == 0
        append(-1)
        append(7)
        assert [record.timestamp for record in log.read()] == [-1, 7]


def test_what_goes_with_the_values_may_come_from_anywhere(tmp_path: Path) -> None:
    """Keys, headers and timestamps of a generator, of what has no numbers and of what has others, as for
    append_many."""
    keys = [b"a", None, b"b"]
    made: list[Callable[[list[Any]], Any]] = [
        list,
        iter,
        lambda items: dict(enumerate(items)).values(),
        lambda items: pandas.Series(items, [7, 8, 9]),
    ]
    with pyreplog.Cluster(tmp_path / "cluster") as cluster, pyreplog.open_log(tmp_path / "log", durability="os") as log:
        cluster.admin.create_topic("t", partitions=2, config={"durability": "os"})
        with cluster.producer() as producer:
            for make in made:
                others: dict[str, list[Any]] = {
                    "keys": keys,
                    "headers": [[("h", b"1")], (), ()],
                    "timestamps": [1, 2, 3],
                }
                log.append_many([b"x", b"y", b"z"], **{name: make(items) for name, items in others.items()})
                for partition in (None, 0):
                    sent = producer.send_many(
                        "t", iter([b"x", b"y", b"z"]), partition=partition, **{n: make(i) for n, i in others.items()}
                    )
                    assert len(sent.result()) == 3
            for wrong in ("abc", b"abc", 7):
                with pytest.raises(TypeError, match="keys are a list, with one for each value, not"):
                    producer.send_many("t", [b"x", b"y", b"z"], keys=wrong)  # type: ignore[arg-type]
        with cluster.consumer("t") as consumer:
            found = [(r.value, r.key, r.headers, r.timestamp) for r in consumer.until_end()]
    expected = [(b"x", b"a", (("h", b"1"),), 1), (b"y", None, (), 2), (b"z", b"b", (), 3)]
    assert sorted(found) == sorted(expected * 8)


def test_as_many_of_each(tmp_path: Path) -> None:
    """A list that is too short, or too long."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        check([(lambda: log.append_many([b"x"], keys=[b"a", b"b"]), "2 keys for 1 values")])


def test_of_a_cluster(tmp_path: Path) -> None:
    """Before anything is made."""
    make: Any = pyreplog.Cluster
    folder = tmp_path / "data"
    check(
        [
            (lambda: make(folder, disk=5), "disk is 5; it must be a function that makes a Disk"),
            (lambda: make(folder, disk=SimDisk()), "disk is .*; it must be a function that makes a Disk"),
            (lambda: make(folder, clock=5), "clock is 5; it must be a Clock"),
            (lambda: make(folder, progress="x"), "progress is 'x'; it must be a function"),
            (lambda: make(folder, own_process="no"), "own_process is 'no'; it must be True or False"),
            (lambda: make(folder, nodes=True), "nodes is True; it must be a whole number"),
        ]
    )
    assert list(tmp_path.iterdir()) == []


def test_of_a_clusters_clients(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Of those that send, those that read, and the admin."""
    topic = create(partitions=2)
    make: Any = cluster.producer
    read: Any = cluster.consumer
    admin: Any = cluster.admin
    facts: Any = cluster
    node: Any = cluster.nodes[0]
    with make() as producer, read(topic) as consumer:
        check(
            [
                *(
                    (
                        lambda wrong=wrong: make(max_block_ms=wrong),
                        "max_block_ms is .*; it must be a whole number from 0",
                    )
                    for wrong in ("x", NAN, None, True, -1)
                ),
                *(
                    (
                        lambda wrong=wrong: make(enable_idempotence=wrong),
                        "enable_idempotence is .*; it must be True, False or None",
                    )
                    for wrong in ("x", 1)
                ),
                (lambda: make([1]), r"acks is \[1\]; it must be 'all', 1 or 0"),
                (lambda: read(topic, timeout=True), "timeout is True; it must be seconds"),
                (lambda: consumer.seek(topic, 0, 0, timeout="x"), "timeout is 'x'; it must be seconds"),
                (lambda: consumer.poll(True), "timeout is True; it must be seconds"),
                *(
                    (
                        lambda wrong=wrong: producer.send(topic, b"x", partition=wrong),
                        "partition is .*; it must be a whole number",
                    )
                    for wrong in ("1", True, 1.5, [1])
                ),
                *(
                    (lambda wrong=wrong: producer.send_many(topic, [b"x"], partition=wrong), "partition is")
                    for wrong in ("1", True)
                ),
                (lambda: producer.send(topic, b"x", timestamp=-5), "timestamp -5 is below -1"),
                (lambda: producer.send_many(topic, [b"x"], keys=[]), "1 values but 0 keys"),
                (lambda: facts.scan(topic, 5), "columns is 5; it must be a list of names"),
                (lambda: facts.leader(topic, True), "partition is True"),
                (lambda: node.leads(topic, "x"), "partition is 'x'"),
                (
                    lambda: admin.elect_leaders(topic, 0),
                    r"partitions is 0; it must be a list of numbers, such as \[0\]",
                ),
                (lambda: admin.elect_leaders(topic, unclean="no"), "unclean is 'no'; it must be True or False"),
                (lambda: admin.create_topic("new", partitions=True), "partitions is True"),
                (lambda: admin.create_topic("new", replication_factor="1"), "replication_factor is '1'"),
                (lambda: admin.create_topic("new", timeout=True), "timeout is True"),
            ]
        )
        with pytest.raises(TypeError, match="a timestamp is .* not bool"):
            producer.send(topic, b"x", timestamp=True)
        with pytest.raises(TypeError, match="a timestamp is .* not bool"):
            producer.send_many(topic, [b"x"], timestamps=[True])
        for call in (facts.leader, node.leads, admin.describe, facts.scan):
            with pytest.raises(TypeError, match="topic must be text, not int"):
                call(5)
        assert producer.send(topic, b"x", partition=1).result(20).offset == 0
    assert facts.admin.topics() == [topic]


def test_seconds_are_no_flag() -> None:
    """Nor anything else that Python counts as 1."""
    with pytest.raises(pyreplog.ConfigError, match="timeout is True"):
        check_seconds("timeout", True)
