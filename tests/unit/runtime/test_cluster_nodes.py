"""One node after the other: stopped in order, killed half-way into the cluster, its records deleted, its leaders
elected by a person."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pyreplog
from pyreplog.errors import ConfigError, OffsetOutOfRangeError, UnknownTopicError
from pyreplog.node import Node
from pyreplog.runtime.cluster_node import ClusterNode
from tests.unit.runtime.frozen_driver import still


def test_nodes_stop_in_order_under_load(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Rolling: what is sent meanwhile is acknowledged, each record once; a stopped node starts cleanly."""
    topic = create(partitions=6)
    with cluster.producer() as producer:
        acks = []
        for node in cluster.nodes:
            acks += [producer.send(topic, b"%d" % number) for number in range(100)]
            node.stop()
            assert not node.alive
            acks += [producer.send(topic, b"%d" % number) for number in range(100)]
            node.restart()
        places = [ack.result(20) for ack in acks]
    assert len(dict.fromkeys((place.partition, place.offset) for place in places)) == 600
    with cluster.consumer(topic) as consumer:
        assert len(list(consumer.until_end())) == 600
    cluster.nodes[0].kill()
    cluster.nodes[0].stop()


def test_stop_waits_until_leadership_has_moved(
    cluster: pyreplog.Cluster, create: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``stop()`` ends a node only after the controller has moved every leadership away from it: no partition is
    without a leader."""
    topic = create(partitions=6)
    leaders: list[set[int]] = []
    end = ClusterNode._end_stopped

    def observed(node: ClusterNode, machine: Node) -> None:
        found = cluster._controller.image.topic(topic)
        assert found is not None
        leaders.append({partition.leader for partition in found.partitions.values()})
        end(node, machine)

    monkeypatch.setattr(ClusterNode, "_end_stopped", observed)
    cluster.nodes[0].stop()
    assert leaders == [{2, 3}], "the leaders at the moment when node 1 ends"


def test_a_node_killed_while_it_registers_may_come_back_at_once(cluster: pyreplog.Cluster) -> None:
    """What it had sent to the controller dies with it: the next life need not wait for a session to end."""
    node = cluster.nodes[0]
    for _ in range(20):
        with still(cluster._driver):  # the registration lies in the controller's inbox, and nobody has taken it
            node._kill()
            node._start()
            assert node._node is not None
            node._node.poll()
            node._kill()
        before = time.monotonic()
        node.restart()
        assert time.monotonic() - before < 2.0, "a session takes three seconds"


def test_a_node_whose_end_fails_has_ended(cluster: pyreplog.Cluster) -> None:
    """The disk refuses the last write: it is down all the same, and may be started again."""
    node = cluster.nodes[0]
    assert node._node is not None
    kill = node._node.kill

    def end() -> None:
        kill()
        raise pyreplog.StorageError(5, "told to", "x")

    with still(cluster._driver):
        assert node._driven is not None
        cluster._driver.remove(node._driven)
        with pytest.raises(pyreplog.StorageError):
            node._end(end)
    assert not node.alive
    node.restart()
    assert node.ready


def test_deleting_records(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Below the offsets given nothing can be read any more, on any node; above the high watermark nothing goes."""
    topic = create(partitions=2)
    with cluster.producer() as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=number % 2)
    assert cluster.admin.delete_records(topic, {0: 4, 1: -1}) == {0: 4, 1: 10}
    with cluster.consumer(topic) as consumer:
        assert [(record.partition, record.offset) for record in consumer.until_end()] == [
            (0, offset) for offset in range(4, 10)
        ]
    with cluster.consumer([(topic, 0)], auto_offset_reset="none") as consumer:
        consumer.seek(topic, 0, 2)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll(5.0)
    for offset in (11, -2):
        with pytest.raises(
            OffsetOutOfRangeError, match=f"offset {offset} is outside {topic}-0, which holds offsets 4 up to .* 10"
        ) as refused:
            cluster.admin.delete_records(topic, {0: offset})
        assert (refused.value.asked, refused.value.start, refused.value.end) == (offset, 4, 10)
    with pytest.raises(UnknownTopicError):
        cluster.admin.delete_records(topic, {7: 1})
    with pytest.raises(UnknownTopicError):
        cluster.admin.delete_records("none", {0: 1})
    cluster.leader(topic, 0).restart()  # type: ignore[union-attr]
    assert cluster.admin.delete_records(topic, {0: 5}) == {0: 5}


def test_reading_up_to_an_end_whose_records_are_deleted(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """It ends where the positions are behind the end, though no record brought them there."""
    topic = create(partitions=1)
    with cluster.producer() as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number).result(10)
    found: list[int] = []
    with cluster.consumer(topic, fetch_max_bytes=1, max_poll_records=1) as consumer:
        records = consumer.until_end()
        assert next(records).offset == 0
        cluster.admin.delete_records(topic, {0: -1})
        thread = threading.Thread(target=lambda: found.extend(record.offset for record in records), daemon=True)
        thread.start()
        thread.join(5)
        assert not thread.is_alive()
        assert consumer.position(topic, 0) == 10
    assert found in ([], [1]), "what had come already"


def test_an_election_that_a_person_asks_for(tmp_path: Path) -> None:
    """The only node with the newest record is gone: the others wait, until somebody accepts the loss and is told of
    it."""
    with pyreplog.Cluster(tmp_path / "c", nodes=4, roles={4: "controller"}) as cluster:
        cluster.admin.create_topic("t", config={"durability": "os", "min.insync.replicas": 1})
        with cluster.producer() as producer:
            producer.send("t", b"kept").result(10)
            leader = cluster.leader("t")
            assert leader is not None
            others = [node for node in cluster.nodes[:3] if node is not leader]
            for node in others:
                node.kill()
            producer.send("t", b"lost").result(10)
        reader = cluster.consumer("t")
        assert [record.value for record in reader.until_end()] == [b"kept", b"lost"]
        leader.kill()
        others[0].restart()
        assert cluster.admin.describe("t").partitions[0].leader == -1
        done = cluster.admin.elect_leaders("t", unclean=True)[0]
        assert str(done).endswith("; all records from offset 1 on may be lost")
        assert cluster.admin.elect_leaders("t", unclean=True) == {}, "not needed"
        with cluster.producer() as producer:
            assert producer.send("t", b"new").result(10).offset == 1
        with pytest.raises(OffsetOutOfRangeError, match="truncated at 1 after that was read"):
            reader.poll(10.0)
        assert [record.value for record in reader.poll(10.0)] == [b"new"]
        leader.restart()
        deadline = time.monotonic() + 10
        while not leader.losses and time.monotonic() < deadline:
            time.sleep(0.01)
        assert leader.losses == [(("t", 0), 1, 2)]
        with cluster.consumer("t") as consumer:
            assert [record.value for record in consumer.until_end()] == [b"kept", b"new"]


SERVER = """
import sys, time, pyreplog
with pyreplog.Cluster(sys.argv[1], nodes=3, own_process=True) as cluster:
    cluster.admin.create_topic("t", config={"durability": "os"})
    with cluster.producer() as producer:
        producer.send("t", b"x").result(10)
        print("ready", flush=True)
        for _ in range(600):  # a signal that comes just before a sleep does not cut that one short
            time.sleep(0.1)
"""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_ends_a_process_of_its_own_in_order(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    """The signals that ask a process to end: its exit code says so, and every node starts cleanly after it."""
    command = [sys.executable, "-c", SERVER, str(tmp_path / "c")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        server.send_signal(sent)
        assert server.wait(20) == code
    with pyreplog.Cluster(tmp_path / "c") as cluster:
        for node in cluster.nodes:
            assert node._node is not None
            assert node._node.root.clean
        with cluster.consumer("t") as consumer:
            assert [record.value for record in consumer.until_end()] == [b"x"]


def test_reading_from_followers(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Everything that is committed comes, in order, also while it is being written and while nodes die and come
    back."""
    topic = create(partitions=3)
    with pytest.raises(ConfigError):
        cluster.consumer(topic, read_from="anybody")  # type: ignore[call-overload]
    with cluster.producer() as producer, cluster.consumer(topic, read_from="follower", fetch_min_bytes=1) as consumer:
        sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        found: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}
        for number in range(300):
            value = b"%d" % number
            producer.send(topic, value, partition=number % 3).result(10)
            sent[number % 3].append(value)
            if number in (100, 200):
                node = cluster.nodes[number // 100 - 1]
                node.kill()
                node.restart()
            for record in consumer.poll(0.0):
                found[record.partition].append(record.value)
        deadline = time.monotonic() + 20
        while found != sent and time.monotonic() < deadline:
            for record in consumer.poll(0.5):
                found[record.partition].append(record.value)
        assert found == sent


@pytest.mark.parametrize("number", [3, -4, 10**30])
def test_a_node_that_is_not_there_is_named(cluster: pyreplog.Cluster, number: int) -> None:
    """Nodes count from 1 and places from 0, so the error of a wrong one says which there are; before and after the
    end."""
    said = f"there is no nodes[{number}]: nodes[0] to nodes[2] are the nodes 1 to 3"
    with pytest.raises(IndexError) as caught:
        cluster.nodes[number]
    assert str(caught.value) == said
    cluster.close()
    with pytest.raises(IndexError, match="the nodes 1 to 3"):
        cluster.nodes[number]


def test_nodes_are_a_tuple_in_all_else(cluster: pyreplog.Cluster) -> None:
    """Slices, places from the end, and what no place can be."""
    nodes = cluster.nodes
    assert isinstance(nodes, tuple)
    assert [node.node_id for node in (*nodes, nodes[-1], *nodes[1:], *nodes[7:])] == [1, 2, 3, 3, 2, 3]
    assert nodes == cluster.nodes
    with pytest.raises(TypeError, match="not str"):
        nodes["1"]  # type: ignore[call-overload]


def test_an_empty_folder_is_no_node(tmp_path: Path) -> None:
    """A folder node-9 that holds no node does not make a cluster of nine, and stays empty."""
    with pyreplog.Cluster(tmp_path / "data", nodes=1):
        pass
    (tmp_path / "data" / "node-9").mkdir()
    with pyreplog.Cluster(tmp_path / "data") as cluster:
        assert len(cluster.nodes) == 1
    assert list((tmp_path / "data" / "node-9").iterdir()) == []
