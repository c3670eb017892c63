"""``Cluster`` as a user meets it, on real files."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import polars
import pyarrow as pa
import pytest

import pyreplog
from pyreplog.client import Completion
from pyreplog.errors import KafkaStorageError, MessageTooLargeError, StorageError
from pyreplog.ports import Disk
from pyreplog.record import partition_for_key
from pyreplog.system import SystemDisk
from pyreplog.testing import SimDisk


def test_ten_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines that the product promises work as printed (without groups, which come later)."""
    monkeypatch.chdir(tmp_path)
    with pyreplog.Cluster("data/", nodes=3) as cluster:
        cluster.admin.create_topic("orders", partitions=4, replication_factor=3, config={"min.insync.replicas": 2})
        with cluster.producer() as producer:
            ack = producer.send("orders", b"...", key=b"k")
            assert ack.result().topic == "orders"
        with cluster.consumer("orders") as consumer:
            lines = [
                (record.topic, record.partition, record.offset, record.value) for record in consumer.poll(timeout=10.0)
            ]
        assert lines == [("orders", partition_for_key(b"k", 4), 0, b"...")]
        cluster.nodes[0].kill()
        with cluster.producer() as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number, key=b"%d" % number)
        assert polars.DataFrame(cluster.scan("orders")).height == 21
    assert sorted(os.listdir("data")) == [
        "node-1",
        "node-2",
        "node-3",
        "replog.controller.lock",
    ]


def test_what_is_sent_comes_back(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Keyed records go where murmur2 puts them, in order; all fields come back; metadata names the place."""
    topic = create(partitions=3)
    sent: dict[tuple[int, int], tuple[bytes | None, bytes | None]] = {}
    with cluster.producer() as producer:
        for number in range(200):
            key = b"%d" % (number % 7)
            place = producer.send(topic, b"%d" % number, key=key, headers=[("h", b"x")], timestamp=number).result(10)
            assert place.partition == partition_for_key(key, 3)
            assert (place.topic, place.timestamp) == (topic, number)
            sent[place.partition, place.offset] = (key, b"%d" % number)
        place = producer.send(topic, None, partition=2).result(10)
        sent[2, place.offset] = (None, None)
    with cluster.consumer(topic) as consumer:
        records = list(consumer.until_end())
    assert {(record.partition, record.offset): (record.key, record.value) for record in records} == sent
    assert records[0].headers == (("h", b"x"),)
    for partition in range(3):
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == list(range(len(offsets)))


def test_send_many(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Many at once: one Ack each, in order; keys spread as singly; results agree with what is read; wrong input is
    refused."""
    topic = create(partitions=4)
    values = [b"%d" % number for number in range(1000)]
    keys = [b"%d" % (number % 50) if number % 3 else None for number in range(1000)]
    with cluster.producer(batch_size_max=2000) as producer:
        acks = producer.send_many(topic, values, keys=keys, timestamps=list(range(1000)))
        places = acks.result(10)
        assert len(acks) == 1000
        assert acks.done()
        assert [acks[5].result(), acks[-1].result(), *[ack.result() for ack in acks[10:12]]] == [
            places[5],
            places[-1],
            *places[10:12],
        ]
        with pytest.raises(TypeError, match="a whole number or a slice, not str"):
            acks["5"]  # type: ignore[call-overload]
        assert [ack.offset for ack in acks] == [place.offset for place in places]
        for key, place in zip(keys, places, strict=True):
            assert key is None or place.partition == partition_for_key(key, 4)
        assert [place.timestamp for place in places] == list(range(1000))
        plain = producer.send_many(topic, iter(values), partition=1)
        plain.wait(10)
        assert [ack.offset for ack in plain] == list(range(plain[0].offset or 0, (plain[0].offset or 0) + 1000))
        assert len(producer.send_many(topic, [])) == 0
        for wrong in ("text", b"bytes"):
            with pytest.raises(TypeError, match="list"):
                producer.send_many(topic, wrong)
        with pytest.raises(ValueError, match="2 keys"):
            producer.send_many(topic, [b"x"], keys=[b"a", b"b"])
    with cluster.consumer(topic) as consumer:
        found = {(record.partition, record.offset): record.value for record in consumer.until_end()}
    assert [found[place.partition, place.offset] for place in places] == values


@pytest.mark.parametrize("acks", ["all", -1, 1, 0])
def test_acks(cluster: pyreplog.Cluster, create: Callable[..., str], acks: Any) -> None:
    """Every kind of acknowledgement: the record arrives; with 0 nobody says where."""
    topic = create()
    with cluster.producer(acks) as producer:
        place = producer.send(topic, b"x").result(10)
        assert place.offset == (-1 if acks == 0 else 0)
    with cluster.consumer(topic) as consumer:
        assert [record.value for record in consumer.poll(10)] == [b"x"]


def test_what_stands_for_a_number_is_one(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """What Python takes for an int is a partition and a timestamp, what can be a float is seconds; the rest is told
    what to be."""
    topic = create()

    class Number:
        def __index__(self) -> int:
            return 0

    number: Any = Number()
    seconds: Any = Fraction(30)
    with cluster.producer() as producer:
        producer.send(topic, b"v", partition=number, timestamp=number).result(seconds)
        producer.send_many(topic, [b"v"], partition=number).wait(seconds)
        producer.flush(seconds)
        wrong: Any
        for wrong in (0.0, "0"):
            with pytest.raises(pyreplog.ConfigError, match=f"partition is {wrong!r}; it must be a whole number"):
                producer.send(topic, b"v", partition=wrong)
            with pytest.raises(TypeError, match=f"in ms since 1970, not {type(wrong).__name__}"):
                producer.send(topic, b"v", timestamp=wrong)


def test_bad_input(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Each mistake is a typed error that says what is wrong, and the cluster goes on."""
    topic = create()
    with cluster.producer() as producer:
        for use, error, words in (
            (lambda: producer.send(topic, "text"), TypeError, "encode"),
            (lambda: producer.send(topic, b"x", key="text"), TypeError, "encode"),
            (lambda: producer.send("other", b"x"), pyreplog.UnknownTopicError, "other"),
            (lambda: producer.send(topic, b"x", partition=1), pyreplog.UnknownTopicError, "partitions 0 to 0"),
            (lambda: producer.send(topic, b"x", headers=5), TypeError, "pairs, not int"),  # type: ignore[arg-type]
            (lambda: producer.flush("x"), pyreplog.ConfigError, "timeout is 'x'"),  # type: ignore[arg-type]
            (lambda: producer.send_many(topic, None), TypeError, "values are a list, not NoneType"),  # type: ignore[arg-type]
            (lambda: producer.send_many(topic, [b"x"], keys=5), TypeError, "keys are a list.* not int"),  # type: ignore[arg-type]
            (lambda: producer.send_many(topic, [b"x"], keys=b"k"), TypeError, "keys are a list.* not bytes"),
            (lambda: cluster.consumer([(topic, 7)]), pyreplog.UnknownTopicError, "partitions 0 to 0, not 7"),
            (lambda: cluster.consumer([("other", 0)]), pyreplog.UnknownTopicError, "other"),
            (lambda: producer.send(topic, bytes(2_000_000)), pyreplog.MessageTooLargeError, "1048588"),
            (lambda: producer.send(5, b"x"), TypeError, "topic"),  # type: ignore[arg-type]
            (lambda: cluster.producer(2), pyreplog.ConfigError, "acks"),  # type: ignore[arg-type]
            (
                lambda: cluster.producer(max_in_flight=0),
                pyreplog.ConfigError,
                "max_in_flight is 0; it must be a whole number from 1",
            ),
            (lambda: cluster.producer(delivery_timeout_ms=0.5), pyreplog.ConfigError, "delivery_timeout_ms"),  # type: ignore[arg-type]
            (lambda: cluster.consumer(topic, max_poll_records=0), pyreplog.ConfigError, "max_poll_records"),
            (lambda: cluster.consumer(topic, fetch_max_bytes=-1), pyreplog.ConfigError, "fetch_max_bytes"),
            (lambda: cluster.consumer(topic, fetch_min_bytes=0), pyreplog.ConfigError, "fetch_min_bytes"),
            (lambda: pyreplog.NodeConfig(session_timeout_ms=-1), pyreplog.ConfigError, "session_timeout_ms"),
            (lambda: cluster.consumer("other"), pyreplog.UnknownTopicError, "'other'; admin.create_topic makes one"),
            (lambda: cluster.consumer(topic, auto_offset_reset="start"), pyreplog.ConfigError, "earliest"),  # type: ignore[call-overload]
            (lambda: cluster.scan("other"), pyreplog.UnknownTopicError, "other"),
            (lambda: cluster.leader("other"), pyreplog.UnknownTopicError, "other"),
            (lambda: cluster.admin.describe("other"), pyreplog.UnknownTopicError, "other"),
            (lambda: cluster.admin.create_topic(topic), pyreplog.TopicExistsError, topic),
            (lambda: cluster.admin.create_topic("a/b"), pyreplog.InvalidTopicError, "a/b"),
            (lambda: cluster.admin.create_topic(b"orders"), TypeError, "topic must be text, not bytes"),  # type: ignore[arg-type]
            (lambda: cluster.admin.create_topic("new", partitions=0), pyreplog.ConfigError, "partitions"),
            (
                lambda: cluster.admin.create_topic("new", replication_factor=4),
                pyreplog.ConfigError,
                "is 4; there are 3 nodes",
            ),
            (lambda: cluster.admin.create_topic("new", timeout=-1), pyreplog.ConfigError, "timeout"),
            (lambda: cluster.admin.create_topic("new", timeout="x"), pyreplog.ConfigError, "timeout"),  # type: ignore[arg-type]
            (lambda: cluster.admin.create_topic("new", config=5), pyreplog.ConfigError, "config is 5"),  # type: ignore[arg-type]
            (lambda: cluster.admin.delete_records(topic, 5), pyreplog.ConfigError, "offsets is 5"),  # type: ignore[arg-type]
            (lambda: cluster.admin.delete_records(topic, {0: "x"}), pyreplog.ConfigError, "'x'"),  # type: ignore[dict-item]
            (lambda: cluster.consumer(5), pyreplog.ConfigError, "5 is none of a topic"),  # type: ignore[call-overload]
            (lambda: cluster.consumer(cluster.consumer(topic)), pyreplog.ConfigError, "is none of a topic"),  # type: ignore[call-overload]
            (lambda: cluster.consumer([(topic, "x")]), pyreplog.ConfigError, "'x'"),  # type: ignore[list-item]
            (
                lambda: cluster.consumer((topic, "0")),
                pyreplog.ConfigError,
                f"the partition of '{topic}' is '0'; it must be a whole number",
            ),
            (lambda: cluster.consumer(("other", "0")), pyreplog.UnknownTopicError, "'other'"),
            (lambda: cluster.consumer([topic, "0"]), pyreplog.UnknownTopicError, "'0'"),
            (lambda: next(iter(cluster.consumer([]))), pyreplog.ConfigError, "nothing is assigned to this consumer"),
            (lambda: cluster.consumer([]).poll(None), pyreplog.ConfigError, "nothing is assigned to this consumer"),
            (lambda: cluster.consumer(topic).seek(topic, 0, "x"), pyreplog.ConfigError, "offset is 'x'"),  # type: ignore[call-overload]
            (lambda: cluster.consumer(topic).poll("x"), pyreplog.ConfigError, "timeout is 'x'"),  # type: ignore[arg-type]
            (
                lambda: cluster.admin.create_topic("new", config={"segment.byte": 1}),
                pyreplog.ConfigError,
                "segment.bytes",
            ),
        ):
            with pytest.raises(error, match=words):
                use()
        assert producer.send(topic, b"fine").result(10).offset == 0
    assert cluster.admin.topics() == [topic]


def test_folders_that_are_none(tmp_path: Path) -> None:
    """What names no folder, a partition's or a log's is refused before anything is made; an empty path is not the
    root of all files."""
    with pyreplog.open_log(tmp_path / "log") as log:
        log.append(b"x")
    (tmp_path / "file").touch()
    for path, words in (
        ("", "path is empty"),
        ("a\0b", "null"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "log", "is the folder of a single log or node"),
        (tmp_path / "log/log-0", "is a partition's folder"),
    ):
        with pytest.raises(pyreplog.ConfigError, match=words):
            pyreplog.Cluster(path, disk=None if path else lambda name: pytest.fail("no disk is asked"))
    with pytest.raises(TypeError, match=r"path must be text or a pathlib\.Path, not bytes"):
        pyreplog.Cluster(b"bytes")  # type: ignore[call-overload]
    for config, words in (
        (5, "config is 5; it must be a NodeConfig"),
        ({"session_timeout": 5}, "'session_timeout' of a node; did you mean 'session_timeout_ms'"),
        ({"retention.ms": 5}, "a topic's, for admin.create_topic"),
        ({"session_timeout_ms": 5, "session.timeout.ms": 5}, "given twice"),
        ({"session_timeout_ms": "soon"}, "whole number"),
    ):
        with pytest.raises(pyreplog.ConfigError, match=words):
            pyreplog.Cluster(tmp_path / "new", config=config)  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "log"]


def test_topics(cluster: pyreplog.Cluster) -> None:
    """A topic is described as it was made; ``min.insync.replicas`` is a majority unless given."""
    made = cluster.admin.create_topic("orders", partitions=2, config={"segment.bytes": 4096})
    assert made == cluster.admin.describe("orders")
    assert made.config["segment.bytes"] == "4096"
    assert made.config["min.insync.replicas"] == "2"
    assert [entry.replicas and len(entry.isr) for entry in made.partitions] == [3, 3]
    leader = cluster.leader("orders", 1)
    assert leader is not None
    assert leader.node_id == made.partitions[1].leader
    assert leader.leads("orders", 1)
    assert not cluster.nodes[leader.node_id % 3].leads("orders", 1)
    assert cluster.admin.topics() == ["orders"]


def test_positions(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Seeking by offset, time and to both ends; assignment by topic, topics and partitions; polling what is not
    there."""
    topic, other = create("one", partitions=2), create("two")
    with cluster.producer() as producer:
        producer.send_many(
            topic,
            [b"%d" % number for number in range(10)],
            partition=0,
            timestamps=[number * 100 for number in range(10)],
        )
        producer.send(other, b"x")
        producer.flush()
    with cluster.consumer([(topic, 0)]) as consumer:
        assert consumer.position(topic, 0) == 0
        assert consumer.end_offset(topic, 0) == 10
        assert len(consumer.poll(10, count_max=3)) == 3
        assert consumer.position(topic, 0) == 3
        for count in (0, -1, 1.5, "1"):
            with pytest.raises(pyreplog.ConfigError, match="count_max is .*; it must be a whole number from 1"):
                consumer.poll(count_max=count)  # type: ignore[arg-type]
        assert consumer.seek(topic, 0, timestamp=450) == 5
        assert [record.offset for record in consumer.poll(10)] == [5, 6, 7, 8, 9]
        assert consumer.seek(topic, 0, timestamp=901) == 10
        assert consumer.poll(0.01) == []
        assert consumer.poll() == []
        consumer.seek_to_beginning()
        assert next(iter(consumer)).offset == 0
        consumer.seek_to_end()
        assert list(consumer.until_end()) == []
        with pytest.raises(LookupError):
            consumer.seek(topic, 1, 0)
        consumer.assign([topic, other])
        assert len(consumer.assignment) == 3
        assert [record.topic for record in consumer.until_end()] == [other]
        consumer.assign({(topic, 0), (other, 0)})
        assert set(consumer.assignment) == {(topic, 0), (other, 0)}
    with cluster.consumer(topic, auto_offset_reset="latest") as consumer:
        assert consumer.position(topic, 0) == 10
    with cluster.consumer([(topic, 0)], auto_offset_reset="none") as consumer:
        consumer.seek(topic, 0, 50)
        with pytest.raises(pyreplog.OffsetOutOfRangeError, match="50"):
            consumer.poll(10)


def test_a_folder_that_only_looks_like_a_nodes(tmp_path: Path) -> None:
    """A digit that is none of a number, such as a superscript, names no node."""
    (tmp_path / "data" / "node-\u00b2").mkdir(parents=True)
    with pyreplog.Cluster(tmp_path / "data", nodes=1) as cluster:
        assert len(cluster.nodes) == 1


def test_a_cluster_goes_on_from_its_folder(tmp_path: Path) -> None:
    """Closed and opened again it has its topics and records; the number of nodes is remembered, may grow, and never
    shrinks."""
    for life in range(3):
        with pyreplog.Cluster(tmp_path / "data", nodes=2 if life == 0 else None) as cluster:
            if life == 0:
                cluster.admin.create_topic("events", config={"durability": "os"})
            assert len(cluster.nodes) == 2
            with cluster.producer() as producer:
                assert producer.send("events", b"x").result(20).offset == life
    with pytest.raises(pyreplog.ConfigError, match="2 nodes"):
        pyreplog.Cluster(tmp_path / "data", nodes=1)
    with pyreplog.Cluster(tmp_path / "data", nodes=3) as cluster:
        cluster.admin.create_topic("wide", replication_factor=3, config={"durability": "os"})
        assert cluster.admin.topics() == ["events", "wide"]


def test_wrong_folders(tmp_path: Path) -> None:
    """A file, a single log, nonsense for ``nodes``: refused, and nothing is left behind."""
    (tmp_path / "file").write_bytes(b"")
    with pyreplog.open_log(tmp_path / "log"):
        pass
    for name in ("file", "log"):
        with pytest.raises(pyreplog.ConfigError, match=name):
            pyreplog.Cluster(tmp_path / name)
    for nodes in (0, -1, "3", 2.0, True):
        with pytest.raises(pyreplog.ConfigError, match="nodes"):
            pyreplog.Cluster(tmp_path / "new", nodes=nodes)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_second_opening_is_refused(cluster: pyreplog.Cluster, tmp_path: Path) -> None:
    """In this process and in another, with the holder's pid; the first goes on."""
    with pytest.raises(pyreplog.LockedError, match=f"pid {os.getpid()}"):
        pyreplog.Cluster(tmp_path / "data")
    code = (
        f"import pyreplog\ntry: pyreplog.Cluster({str(tmp_path / 'data')!r})\nexcept pyreplog.LockedError as error:"
        " print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pid {os.getpid()}" in done.stdout
    assert cluster.admin.topics() == []


def test_closing(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Closing sends what producers hold; afterwards everything says ClosedError; twice is harmless."""
    topic = create()
    producer = cluster.producer()
    consumer = cluster.consumer(topic)
    ack = producer.send(topic, b"x")
    cluster.close()
    cluster.close()
    assert ack.offset == 0
    for use in (
        lambda: producer.send(topic, b"x"),
        lambda: consumer.poll(),
        lambda: cluster.producer(),
        lambda: cluster.consumer(topic),
        lambda: cluster.admin,
        lambda: cluster.scan(topic),
        lambda: cluster.__enter__(),
    ):
        with pytest.raises(pyreplog.ClosedError):
            use()
    producer.close()
    consumer.close()
    assert [repr(face) for face in (cluster, producer, consumer)] == [
        f"<pyreplog.Cluster {cluster.path!r}, 3 nodes, closed>",
        "<pyreplog.Producer acks=all with 0 bytes on their way, closed>",
        "<pyreplog.Consumer of 1 partition(s), closed>",
    ]


def test_exit_closes(tmp_path: Path) -> None:
    """A program that ends without closing loses nothing that it sent, and ends in order."""
    code = f"""
import pyreplog
cluster = pyreplog.Cluster({str(tmp_path / "data")!r})
cluster.admin.create_topic("events")
producer = cluster.producer()
producer.send("events", b"last words")
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    assert all((tmp_path / "data" / f"node-{number}" / ".kafka_cleanshutdown").exists() for number in (1, 2, 3))
    with pyreplog.Cluster(tmp_path / "data") as cluster, cluster.consumer("events") as consumer:
        assert [record.value for record in consumer.until_end()] == [b"last words"]


def test_a_block_that_a_fork_leaves_ends_quietly(tmp_path: Path) -> None:
    """A child that leaves the `with` of its parent's producer, consumer and cluster: no error, and what is queued
    stays the parent's."""
    code = f"""
import os, sys, pyreplog
with pyreplog.Cluster({str(tmp_path / "data")!r}) as cluster:
    cluster.admin.create_topic("events", config={{"durability": "os"}})
    with cluster.consumer("events") as consumer:
        with cluster.producer() as producer:
            producer.send("events", b"once")
            child = os.fork()
        if child:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print(status, [record.value.decode() for record in consumer.until_end()])
if not child:
    sys.stderr.flush()
    os._exit(7)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("7 ['once']", "")


def test_child_of_a_fork(tmp_path: Path) -> None:
    """The child gets ForkedError or ClosedError, never hangs, and the parent goes on undisturbed."""
    code = f"""
import os, pyreplog
cluster = pyreplog.Cluster({str(tmp_path / "data")!r})
cluster.admin.create_topic("events", config={{"durability": "os"}})
producer = cluster.producer()
producer.send("events", b"before").result(10)
consumer = cluster.consumer("events")
producer.send("events", b"queued")
child = os.fork()
if child == 0:
    caught = 0
    for use in (
        lambda: producer.send("events", b"x"),
        lambda: producer.send_many("events", [b"x"]),
        lambda: consumer.poll(5),
        lambda: cluster.admin.topics(),
        lambda: cluster.producer(),
        lambda: cluster.nodes[0].kill(),
    ):
        try:
            use()
        except (pyreplog.ForkedError, pyreplog.ClosedError) as error:
            caught += 1
    producer.close()
    consumer.close()
    caught += producer.closed + consumer.closed
    for one in (producer, consumer):
        one.close()
        try:
            with one:
                pass
        except pyreplog.ClosedError:
            caught += 1
    cluster.close()
    os._exit(caught)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
producer.send("events", b"after").result(10)
print(status, [record.value.decode() for record in consumer.until_end()])
cluster.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() == "10 ['before', 'queued', 'after']", done.stderr


class Number:
    """A whole number that is no int, as numpy's are."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


def test_whole_numbers_of_any_kind(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Offsets, partitions and timestamps as numpy and pandas give them are taken for what they are, and come back
    as int."""
    topic = create(partitions=2)
    zero: Any = Number(0)
    one: Any = Number(1)
    with cluster.producer() as producer:
        for _ in range(3):
            sent = producer.send(topic, b"x", partition=one, timestamp=Number(7)).result(10)  # type: ignore[arg-type]
        assert [type(part) for part in (sent.partition, sent.offset, sent.timestamp)] == [int] * 3
    with cluster.consumer([(topic, one)]) as consumer:
        assert type(consumer.seek(topic, one, one)) is int
        assert [(record.partition, record.offset) for record in consumer.poll(10)] == [(1, 1), (1, 2)]
        assert (consumer.position(topic, one), consumer.start_offset(topic, one), consumer.end_offset(topic, one)) == (
            3,
            0,
            3,
        )
        assert consumer.seek(topic, one, timestamp=one) == 0
    assert pa.table(cluster.scan(topic, start=zero, columns=["offset"])).num_rows == 3
    assert cluster.admin.delete_records(topic, {one: one}) == {1: 1}
    assert cluster.admin.elect_leaders(topic, [zero]) == {}
    for wrong in (1.0, "1", True, None, [1]):
        with pytest.raises(pyreplog.ConfigError, match="whole number"):
            cluster.admin.delete_records(topic, {1: wrong})  # type: ignore[dict-item]


def test_more_in_sync_replicas_are_asked_for_than_there_are(
    cluster: pyreplog.Cluster, create: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it takes all of them, as a producer and a scan have it, which asks the leader where the topic ends."""
    topic = create(min_insync_replicas="5")
    asked: list[int] = []
    asks = pyreplog.Consumer.end_offset

    def noted(consumer: pyreplog.Consumer, topic: str, partition: int, *, timeout: float) -> int:
        asked.append(asks(consumer, topic, partition))
        return asked[-1]

    monkeypatch.setattr(pyreplog.Consumer, "end_offset", noted)
    with cluster.producer() as producer:
        producer.send(topic, b"x").result(10)
        assert pa.table(cluster.scan(topic)).num_rows == 1
        assert asked == [1]


def test_settings_of_any_kind_of_whole_number(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Settings, too: of a topic, a node, a producer and a consumer. They are kept as int, whichever way they are
    read."""
    many: Any = Number(5000)
    assert pyreplog.LogConfig.from_mapping({"segment.bytes": many}) == pyreplog.LogConfig(segment_bytes=5000)
    assert pyreplog.LogConfig(segment_bytes=many).to_mapping() == {"segment.bytes": "5000"}
    assert type(pyreplog.NodeConfig.from_mapping({"session_timeout_ms": many}).session_timeout_ms) is int
    topic = create(segment_bytes=many)
    assert cluster.admin.describe(topic).config["segment.bytes"] == "5000"
    with cluster.producer(delivery_timeout_ms=many, max_in_flight=Number(2)) as producer:  # type: ignore[arg-type]
        producer.send(topic, b"x").result(10)
    with cluster.consumer(topic, max_poll_records=many, fetch_max_bytes=many) as consumer:
        assert [record.value for record in consumer.poll(10)] == [b"x"]


def test_no_argument_ends_a_node(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Numbers beyond what Kafka's messages hold, names that are none: refused where they are given, and no node
    hears of them."""
    topic = create()
    huge = 1 << 70
    nothing: Any = []
    with cluster.producer() as producer, cluster.consumer(topic) as consumer:
        producer.send(topic, b"x").result(10)
        uses: list[Callable[[], object]] = [
            lambda: consumer.seek(topic, 0, huge),
            lambda: consumer.seek(topic, 0, -1),
            lambda: consumer.seek(topic, huge, 0),
            lambda: consumer.seek(topic, 0, timestamp=huge),
            lambda: consumer.end_offset(topic, nothing),
            lambda: consumer.assign([(topic, huge)]),
            lambda: producer.send(topic, b"x", timestamp=huge),
            lambda: producer.send(topic, b"x", partition=huge),
            lambda: cluster.producer(batch_size_max=huge),
            lambda: cluster.producer(True),  # type: ignore[arg-type]
            lambda: cluster.producer("most"),  # type: ignore[arg-type]
            lambda: cluster.consumer(topic, fetch_max_bytes=huge),
            lambda: cluster.scan(topic, start_timestamp=huge),
            lambda: cluster.admin.describe(nothing),
            lambda: cluster.admin.delete_records(nothing, {0: 0}),
            lambda: cluster.admin.delete_records(topic, {0: huge}),
            lambda: cluster.admin.delete_records(topic, {huge: 0}),
            lambda: cluster.admin.elect_leaders(nothing),
            lambda: cluster.admin.elect_leaders(topic, [huge]),
            lambda: cluster.admin.create_topic("other", partitions=huge),
        ]
        for number, use in enumerate(uses):
            with pytest.raises((pyreplog.ConfigError, pyreplog.UnknownTopicError, TypeError, ValueError)):
                pytest.fail(f"use {number} gave {use()!r}")
        assert consumer.seek(topic, 0, timestamp=-5) == 0
        assert [record.value for record in consumer.poll(10)] == [b"x"]
        assert producer.send(topic, b"y").result(10).offset == 1
    assert all(node.alive for node in cluster.nodes)


def test_a_machine_that_fails_says_so_to_who_waits(
    cluster: pyreplog.Cluster, create: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of ours within a client is raised where its answer is waited for, once, and the next question is
    answered."""

    def broken(*values: object, **named: object) -> None:
        raise ZeroDivisionError("a bug")

    topic = create()
    with cluster.producer() as producer:
        producer.send(topic, b"x").result(10)
    with monkeypatch.context() as patch:
        patch.setattr("pyreplog.client.admin.DeleteRecordsPartition", broken)
        with pytest.raises(pyreplog.InternalError, match="the admin client failed: ZeroDivisionError: a bug") as caught:
            cluster.admin.delete_records(topic, {0: 1})
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with cluster.consumer(topic) as consumer:
        with monkeypatch.context() as patch:
            patch.setattr("pyreplog.client.consumer.FetchPartition", broken)
            with pytest.raises(
                pyreplog.InternalError, match="consumer failed, and goes on at its positions: ZeroDivisionError: a bug"
            ):
                while True:
                    assert not consumer.poll(10)
        assert [record.value for record in _polled(consumer, 1)] == [b"x"]
    assert cluster.admin.delete_records(topic, {0: 1}) == {0: 1}


def _polled(consumer: pyreplog.Consumer, count: int) -> list[pyreplog.Record]:
    found: list[pyreplog.Record] = []
    while len(found) < count:
        try:
            found += consumer.poll(10)
        except pyreplog.InternalError:  # it failed twice before it was mended
            continue
    return found


def test_acks_can_be_awaited(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """``await`` on one, many and all, with nobody else driving; the loop goes on meanwhile."""
    topic = create(partitions=2)

    async def main() -> None:
        with cluster.producer() as producer:
            assert (await producer.send(topic, b"x", partition=0)).offset == 0
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    ticks += 1
                    await asyncio.sleep(0)

            ticking = asyncio.ensure_future(tick())
            acks = [producer.send(topic, b"%d" % number, partition=1) for number in range(100)]
            assert [(await ack).offset for ack in acks] == list(range(100))
            assert len(await producer.send_many(topic, [b"y"] * 100)) == 100
            ticking.cancel()
            assert ticks > 0

    asyncio.run(main())


# ------------------------------------------------------------------------------------ failing disks


def test_a_node_whose_disk_fails_leaves() -> None:
    """When the leader's sync fails the others go on with everything acknowledged; restarted on a healed disk it
    comes back."""
    disks = defaultdict[str, SimDisk](SimDisk)
    with pyreplog.Cluster("/data", disk=disks.__getitem__) as cluster:
        cluster.admin.create_topic("events")
        with cluster.producer() as producer:
            acknowledged = {
                producer.send("events", b"%d" % number).result(20).offset: b"%d" % number for number in range(10)
            }
            leader = cluster.leader("events")
            assert leader is not None
            fault = disks[f"node-{leader.node_id}"].fail("sync", "*.log", times=None)
            for number in range(10, 20):
                try:
                    acknowledged[producer.send("events", b"%d" % number).result(20).offset] = b"%d" % number
                except pyreplog.OutcomeUnknownError:
                    pass
            assert fault.hits
            assert len(acknowledged) >= 15
            assert isinstance(leader.failure, pyreplog.StorageError)
            successor = cluster.leader("events")
            assert successor is not None
            assert successor.node_id != leader.node_id
            disks[f"node-{leader.node_id}"].clear_faults()
            leader.restart()
            assert leader.failure is None
            assert producer.send("events", b"healed").result(20).offset not in acknowledged
        with cluster.consumer("events") as consumer:
            found = {record.offset: record.value for record in consumer.until_end()}
        assert acknowledged.items() <= found.items()


def test_full_disk_of_one_node() -> None:
    """A follower without room does not stop the others, and nothing acknowledged is lost."""
    disks = defaultdict[str, SimDisk](SimDisk)
    with pyreplog.Cluster("/data", disk=disks.__getitem__) as cluster:
        cluster.admin.create_topic("events", config={"durability": "os"})
        leader = cluster.leader("events")
        assert leader is not None
        follower = cluster.nodes[leader.node_id % 3]
        disks[f"node-{follower.node_id}"].fail("write", "*.log", times=None, error=errno.ENOSPC)
        with cluster.producer() as producer:
            places = producer.send_many("events", [b"%d" % number for number in range(100)]).result(20)
        assert [place.offset for place in places] == list(range(100))


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_who_gives_up_waiting_hears_the_last_refusal(many: bool) -> None:
    """The leader's disk is full, which may pass: what was sent is sent again, and who waits no longer hears what is
    in its way."""
    disks = defaultdict[str, SimDisk](SimDisk)
    with pyreplog.Cluster("/data", nodes=1, disk=disks.__getitem__) as cluster:
        cluster.admin.create_topic("events", replication_factor=1, config={"durability": "os"})
        disks["node-1"].fail("write", "*/events-0/*.log", times=None, error=errno.ENOSPC)
        with cluster.producer() as producer:
            ack = producer.send_many("events", [b"one", b"two"]) if many else producer.send("events", b"one")
            with pytest.raises(TimeoutError, match=r"goes on in the background.*No space left on device.*0\.log"):
                ack.result(0.5)
            disks["node-1"].clear_faults()
            ack.result(20)


def test_full_disks_of_all_followers(caplog: pytest.LogCaptureFixture) -> None:
    """Too few follow: what is sent ends with an error, the log names each node and what its disk said, once, and
    with room all goes on."""
    disks = defaultdict[str, SimDisk](SimDisk)
    with pyreplog.Cluster("/data", disk=disks.__getitem__) as cluster:
        cluster.admin.create_topic("events", config={"durability": "os"})
        leader = cluster.leader("events")
        assert leader is not None
        followers = [node.node_id for node in cluster.nodes if node is not leader]
        for number in followers:
            disks[f"node-{number}"].fail("write", "*/events-0/*.log", times=None, error=errno.ENOSPC)
        with cluster.producer(delivery_timeout_ms=500, request_timeout_ms=400) as producer:
            ack = producer.send("events", b"one")
            with pytest.raises((pyreplog.ClusterError, pyreplog.OutcomeUnknownError)):
                ack.result(20)
            said = [
                record.getMessage() for record in caplog.records if "does not follow its leader" in record.getMessage()
            ]
            assert [text.partition(":")[0] for text in sorted(said)] == [f"node {number}" for number in followers]
            assert all("No space left on device" in text and "0.log" in text for text in said)
            for number in followers:
                disks[f"node-{number}"].clear_faults()
        with cluster.producer() as producer:
            assert producer.send("events", b"two").result(20).offset in (0, 1)


def test_a_topic_that_no_disk_has_room_for() -> None:
    """Who makes it hears which node's disk refused what; with room its copies are made, without anybody asking
    again."""
    disks = defaultdict[str, SimDisk](SimDisk)
    with pyreplog.Cluster("/data", disk=disks.__getitem__) as cluster:
        for number in (1, 2):
            disks[f"node-{number}"].fail("write", "*partition.metadata*", times=None, error=errno.ENOSPC)
        with pytest.raises(
            TimeoutError, match=r"node 1: .*No space left.*node-1/events-0/partition\.metadata"
        ) as caught:
            cluster.admin.create_topic("events", timeout=0.3)
        assert "node 2: " in str(caught.value)
        assert "node 3: " not in str(caught.value)
        for number in (1, 2):
            disks[f"node-{number}"].clear_faults()
        with cluster.producer() as producer:
            assert producer.send("events", b"one").result(20).offset == 0


def test_another_one_leads_where_the_leader_has_no_room_for_its_copy() -> None:
    """Each of three nodes would lead one partition. The first cannot make a copy of any: the others lead, and
    appends are acknowledged."""
    disks = defaultdict[str, SimDisk](SimDisk)
    with pyreplog.Cluster("/data", disk=disks.__getitem__, config={"replica_lag_time_max_ms": 300}) as cluster:
        disks["node-1"].fail("write", "*partition.metadata*", times=None, error=errno.ENOSPC)
        with pytest.raises(TimeoutError, match="No space left"):
            cluster.admin.create_topic("events", partitions=3, timeout=0.3)
        with cluster.producer() as producer:
            for number in range(3):
                assert producer.send("events", b"one", partition=number).result(20).offset == 0
        leaders = [cluster.leader("events", number) for number in range(3)]
        assert {leader.node_id for leader in leaders if leader is not None} == {2, 3}


def test_who_has_no_room_for_a_copy_is_not_elected_before_who_has_one() -> None:
    """A follower could not make its copy. As soon as the leader dies the other one leads, and not first the one
    that would have begun with an empty copy, had there been room by then."""
    disks = defaultdict[str, SimDisk](SimDisk)
    with pyreplog.Cluster("/data", disk=disks.__getitem__) as cluster:
        disks["node-2"].fail("write", "*partition.metadata*", times=None, error=errno.ENOSPC)
        with pytest.raises(TimeoutError, match="No space left"):
            cluster.admin.create_topic("events", partitions=3, timeout=0.3)
        cluster.nodes[0].kill()
        for number in range(3):
            leader = cluster.leader("events", number)
            assert leader is not None
            assert leader.node_id == 3


def test_whoever_needs_a_copy_that_no_disk_has_room_for_hears_of_it() -> None:
    """Where no node can lead for want of room, its disk's words are in what producers and readers are told; and of
    a batch that it was not appended."""
    disks = defaultdict[str, SimDisk](SimDisk)
    with pyreplog.Cluster("/data", disk=disks.__getitem__) as cluster:
        for number in (1, 2, 3):
            disks[f"node-{number}"].fail("write", "*partition.metadata*", times=None, error=errno.ENOSPC)
        with pytest.raises(TimeoutError):
            cluster.admin.create_topic("events", timeout=0.3)
        with cluster.producer(delivery_timeout_ms=300) as producer:
            refused = producer.send("events", b"one").exception(20)
            assert isinstance(refused, KafkaStorageError)
            assert re.search(r"No space left.*/events-0/partition\.metadata.*; nothing was appended", str(refused))
        with cluster.consumer("events") as consumer, pytest.raises(pyreplog.RequestTimedOutError) as late:
            consumer.end_offset("events", 0, timeout=0.1)
        assert re.search(
            r"known after 0\.1 s: node 1: .*No space left.*node-1/events-0/partition\.metadata", str(late.value)
        )


def test_a_full_disk_at_the_start_costs_no_copy() -> None:
    """All nodes are killed, and find no room to open their logs again. When there is some, who was in sync leads,
    with all that was acknowledged; nobody has to give up on anything."""
    disks = defaultdict[str, SimDisk](SimDisk)
    with pyreplog.Cluster("/data", disk=disks.__getitem__) as cluster:
        cluster.admin.create_topic("events")
        with cluster.producer() as producer:
            assert producer.send("events", b"one").result(20).offset == 0
        for node in cluster.nodes:
            node.kill()
            disks[f"node-{node.node_id}"].fail("write", "*/events-0/*", times=None, error=errno.ENOSPC)
            with pytest.raises(StorageError, match="No space left"):
                node.restart()
            disks[f"node-{node.node_id}"].clear_faults()
        for node in cluster.nodes:
            node.restart()
        with cluster.consumer("events") as consumer:
            assert [record.value for record in consumer.until_end()] == [b"one"]


def test_copies_that_may_not_be_opened_are_not_lost() -> None:
    """No node may open its copy. Who asks hears why; when they may again, who was in sync leads, with all that was
    acknowledged; nobody has to give up on anything."""
    disks = defaultdict[str, SimDisk](SimDisk)
    with pyreplog.Cluster("/data", disk=disks.__getitem__) as cluster:
        cluster.admin.create_topic("events")
        with cluster.producer() as producer:
            assert producer.send("events", b"one").result(20).offset == 0
    for node_id in (1, 2, 3):
        disks[f"node-{node_id}"].fail("open", "*/events-0/*", times=None, error=errno.EACCES)
    with (
        pyreplog.Cluster("/data", disk=disks.__getitem__) as cluster,
        cluster.producer(delivery_timeout_ms=500) as producer,
    ):
        refused = producer.send("events", b"two").exception(20)
        assert isinstance(refused, KafkaStorageError)
        assert "Permission denied" in str(refused)
    for node_id in (1, 2, 3):
        disks[f"node-{node_id}"].clear_faults()
    with pyreplog.Cluster("/data", disk=disks.__getitem__) as cluster, cluster.consumer("events") as consumer:
        assert [record.value for record in consumer.until_end()] == [b"one"]


def test_a_start_that_is_refused_leaves_a_clean_stop_clean() -> None:
    """Without descriptors for its logs a node does not start. That the machine is then started anew costs no record
    of an "os" log, which all had been closed in order."""
    disks = defaultdict[str, SimDisk](SimDisk)
    with pyreplog.Cluster("/data", disk=disks.__getitem__) as cluster:
        cluster.admin.create_topic("events", config={"durability": "os"})
        with cluster.producer() as producer:
            assert producer.send("events", b"one").result(20).offset == 0
    for node_id in (1, 2, 3):
        disks[f"node-{node_id}"].fail("open", "*/events-0/*", times=None, error=errno.EMFILE)
    with pytest.raises(StorageError, match="Too many open files"):
        pyreplog.Cluster("/data", disk=disks.__getitem__)
    restarted = {name: disk.crash(Random(0)) for name, disk in disks.items()}
    with pyreplog.Cluster("/data", disk=restarted.__getitem__) as cluster, cluster.consumer("events") as consumer:
        assert [record.value for record in consumer.until_end()] == [b"one"]


def test_unclean_power_loss_of_all() -> None:
    """Under "sync" all machines lose power at once, and the cluster comes back by itself with everything
    acknowledged."""
    for seed in range(5):
        chance = Random(seed)
        disks = defaultdict[str, SimDisk](SimDisk)
        cluster = pyreplog.Cluster("/data", disk=disks.__getitem__)
        cluster.admin.create_topic("events", partitions=2)
        with cluster.producer() as producer:
            places = producer.send_many("events", [b"%d" % number for number in range(chance.randrange(1, 50))]).result(
                20
            )
            producer.send_many("events", [b"not waited for"] * 10)
            crashed = {name: disk.crash(chance) for name, disk in disks.items()}
        cluster.close()
        disks.clear()
        disks.update(crashed)
        with pyreplog.Cluster("/data", disk=disks.__getitem__) as cluster, cluster.consumer("events") as consumer:
            found = {(record.partition, record.offset): record.value for record in consumer.until_end()}
        assert {
            (place.partition, place.offset): b"%d" % number for number, place in enumerate(places)
        }.items() <= found.items()


# --------------------------------------------------------------------------------------- who drives


def test_nobody_waits_behind_another(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """A thread drives while it waits for a record that does not come; others' sends are answered meanwhile; it gets
    its record at last."""
    quiet, busy = create("quiet"), create("busy")
    got: list[pyreplog.Record] = []
    consumer = cluster.consumer(quiet)
    waiting = threading.Thread(target=lambda: got.extend(consumer.poll(30)))
    waiting.start()
    with cluster.producer() as producer:
        for number in range(50):
            assert producer.send(busy, b"x").result(10).offset == number
        assert not got
        producer.send(quiet, b"at last").result(10)
        waiting.join(10)
    assert [record.value for record in got] == [b"at last"]


def test_a_record_that_another_thread_took(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Who polls and comes second waits on, for what is left of its time: it gets the next record, and not nothing
    at once."""
    topic = create()
    consumer, producer = cluster.consumer(topic), cluster.producer()
    taken: list[pyreplog.Record] = []
    patience: list[float] = []

    class Rival:
        """Drives, and takes the first record before who waited for it."""

        monotonic_ns = consumer._driver.monotonic_ns
        mark_ready = consumer._driver.mark_ready
        driver = consumer._driver

        def wait(self, pending: Completion, timeout: float) -> bool:
            patience.append(timeout)
            producer.send(topic, b"%d" % len(patience)).result(10)
            settled = self.driver.wait(pending, timeout)
            if len(patience) == 1:
                taken.extend(consumer._take()[0])
            return settled

    consumer._driver = Rival()  # type: ignore[assignment]
    assert [record.value for record in consumer.poll(30)] == [b"2"]
    assert [record.value for record in taken] == [b"1"]
    assert 30 >= patience[0] >= patience[1] > 0
    consumer._driver = Rival.driver


def test_two_topics_one_of_them_a_number(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """A pair of texts is two topics, whatever they are called, and nothing to read is read to its end."""
    topic = create()
    cluster.admin.create_topic("0", partitions=2)
    assert cluster.consumer((topic, "0")).assignment == [(topic, 0), ("0", 0), ("0", 1)]
    consumer = cluster.consumer([])
    assert consumer.poll() == list(consumer.until_end()) == []


def test_the_drive_is_handed_on(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Of many threads that wait, whoever drives may be answered first: the others are answered all the same, each
    only once."""
    topic = create(partitions=3)
    offsets: list[tuple[int, int]] = []
    with cluster.producer() as producer:

        def work(number: int) -> None:
            for turn in range(50):
                place = producer.send(topic, b"%d/%d" % (number, turn)).result(20)
                offsets.append((place.partition, place.offset))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert len(set(offsets)) == len(offsets) == 300


def test_nobody_needs_to_wait(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """What is sent and never asked after arrives by itself."""
    topic = create()
    producer = cluster.producer()
    ack = producer.send(topic, b"x")
    event = threading.Event()

    async def main() -> None:
        await ack
        event.set()

    asyncio.run(main())
    assert event.is_set()
    with pyreplog.open_log(cluster.path, mode="r", topic=topic) as reader:
        assert [record.value for record in reader] == [b"x"]


def test_a_timeout_is_no_failure(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """With too few replicas a record waits: ``result`` times out, and once a replica is back the same Ack has its
    offset."""
    topic = create()
    leader = cluster.leader(topic)
    assert leader is not None
    others = [node for node in cluster.nodes if node is not leader]
    with cluster.producer() as producer:
        producer.send(topic, b"warm").result(10)
        for node in others:
            node.kill()
        ack = producer.send(topic, b"x")
        with pytest.raises(TimeoutError):
            ack.result(0.05)
        assert not ack.done()
        others[0].restart()
        assert ack.result(20).offset == 1


def test_system_disks_are_made_for_each_node(tmp_path: Path) -> None:
    """``disk=`` is asked for each node and the controller, by name."""
    names: list[str] = []

    def make(name: str) -> Disk:
        names.append(name)
        return SystemDisk()

    with pyreplog.Cluster(tmp_path / "data", disk=make):
        pass
    assert list(dict.fromkeys(names)) == ["controller", "node-1", "node-2", "node-3"]


def test_a_topic_that_takes_too_long_says_how_far_it_is(tmp_path: Path) -> None:
    """The time that a caller has is his own; what he asked for is made all the same, and he is told how much of it
    is served."""
    with pyreplog.Cluster(tmp_path / "data", nodes=2) as cluster:
        cluster.nodes[1].pause()
        with pytest.raises(
            TimeoutError, match=r"topic 'wide' is made, but after 0 s the nodes serve only \d+ % of its 20 partitions"
        ):
            cluster.admin.create_topic("wide", partitions=20, timeout=0)
        cluster.nodes[1].resume()
        with pytest.raises(pyreplog.TopicExistsError):
            cluster.admin.create_topic("wide")
        with cluster.producer() as producer:
            assert producer.send("wide", b"x", partition=19).result(30).offset == 0


def test_a_topic_that_is_there_will_do_where_it_is_alike(tmp_path: Path) -> None:
    """A program that begins by making its topics runs again; a topic that is otherwise than asked for is no
    surprise later."""
    config = {"min.insync.replicas": 2, "retention.ms": 86_400_000, "preallocate": False}
    for again in (False, True):
        with pyreplog.Cluster(tmp_path / "data", nodes=3) as cluster:
            made = cluster.admin.create_topic("orders", 4, 3, config, exist_ok=True)
            assert (len(made.partitions), made.config["retention.ms"]) == (4, "86400000")
            with cluster.producer() as producer:
                assert producer.send("orders", b"x", partition=3).result(30).offset == int(again)
            assert (
                cluster.admin.create_topic("orders", 4, config={"compression.type": "producer"}, exist_ok=True) == made
            )
            assert cluster.admin.create_topic("orders", exist_ok=True) == made, "nothing is asked for"
            with pytest.raises(pyreplog.TopicExistsError, match="'orders'; exist_ok=True accepts it"):
                cluster.admin.create_topic("orders", 4, 3, config)
            differences = "4 partitions, not 2; 3 replicas, not 1; retention.ms=86400000, not 5"
            with pytest.raises(pyreplog.TopicExistsError, match=f"'orders', with {differences}$"):
                cluster.admin.create_topic("orders", 2, 1, {"retention.ms": 5, "min.insync.replicas": 2}, exist_ok=True)
            with pytest.raises(pyreplog.ConfigError, match="exist_ok"):
                cluster.admin.create_topic("orders", 4, exist_ok="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "config",
    [{"segment.bytes": 2000}, {"max.message.bytes": 1000}, {"segment.bytes": 65536, "compression.type": "gzip"}],
    ids=str,
)
def test_a_topic_of_small_batches_takes_many_records_at_once(tmp_path: Path, config: dict[str, object]) -> None:
    """What the topic's settings allow bounds a producer's batches; only a record that is too large by itself is
    refused."""
    values = [Random(number).randbytes(200) for number in range(1500)]
    with pyreplog.Cluster(tmp_path / "data", nodes=3) as cluster:
        cluster.admin.create_topic("small", partitions=1, config=config)
        with cluster.producer() as producer:
            producer.send_many("small", values[:1000]).wait(30)
            acks = [producer.send("small", value) for value in values[1000:]]
            assert [ack.result(30).offset for ack in acks] == list(range(1000, 1500))
            if len(config) == 1:
                with pytest.raises(
                    MessageTooLargeError,
                    match=r"^message too large: a batch of \d+ bytes; .* make that larger \(`config=` of open_log,",
                ):
                    producer.send("small", bytes(70_000)).result(30)
        with cluster.consumer("small") as consumer:
            assert [record.value for record in itertools.islice(consumer, 1500)] == values


def test_records_as_large_as_their_topic_takes(cluster: pyreplog.Cluster) -> None:
    """A topic's ``max.message.bytes`` says how large a record may be, above the default too, whatever its codec;
    what is larger is refused with words that say what to do. Followers copy it, and a consumer reads it, however
    little they fetch at a time."""
    large = 3_000_000
    cluster.admin.create_topic(
        "vast", config={"durability": "os", "max.message.bytes": 1 << 28, "compression.type": "zstd"}
    )
    with cluster.producer() as producer, pytest.raises(MessageTooLargeError, match=f"a batch of {64 << 20} bytes"):
        producer.send("vast", bytes(64 << 20))
    for name, codec in (("plain", "producer"), ("packed", "zstd")):
        config = {"durability": "os", "max.message.bytes": large, "compression.type": codec}
        cluster.admin.create_topic(name, config=config)
        value = bytes(large - 100)
        with cluster.producer() as producer:
            assert producer.send(name, value).result(30).offset == 0
            assert [place.offset for place in producer.send_many(name, [b"a", value, b"b"]).result(30)] == [1, 2, 3]
            with pytest.raises(
                MessageTooLargeError, match=rf"a record for {name}-0 does not fit a batch of {large} bytes"
            ):
                producer.send(name, bytes(large))
            assert producer.send(name, b"c").result(30).offset == 4
        with cluster.consumer(name, fetch_max_bytes=1, read_from="follower") as consumer:
            assert [len(record.value or b"") for record in consumer.until_end()] == [large - 100, 1, large - 100, 1, 1]


def test_who_leaves_a_loop_has_read_what_it_gave(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """The position is that of the next record, however many have arrived."""
    topic = create()
    with cluster.producer() as producer:
        producer.send_many(topic, [b"%d" % number for number in range(10)]).wait(20)
    with cluster.consumer(topic) as consumer:
        for record in consumer:
            assert consumer.position(topic, 0) == record.offset + 1
            if record.offset == 3:
                break
        assert consumer.position(topic, 0) == 4
        assert [record.offset for record in consumer.poll(20)] == [4, 5, 6, 7, 8, 9]
