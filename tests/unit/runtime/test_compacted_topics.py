"""Readers, time look-ups and producers of a compacted topic of a cluster: a gap is never a loss."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from pyreplog import Cluster, PyreplogError, RecordMetadata, UnknownTopicError
from pyreplog.runtime import repair_metadata
from pyreplog.values import TopicPartition
from tests.unit.runtime.test_metadata_repair import lose

CONFIG: Final[dict[str, Any]] = {
    "cleanup.policy": "compact",
    "segment.bytes": 4096,
    "file.delete.delay.ms": 0,
    "delete.retention.ms": 0,
    "durability": "os",
}
T: Final = TopicPartition("t", 0)
KEYS: Final = 20


@pytest.fixture
def holed(cluster: Cluster) -> Cluster:
    """A cluster with a compacted topic whose offsets have gaps at the beginning, in the middle and at the end: at
    its end only half of a batch is left."""
    cluster._compactor._look_at_ns = 1 << 62  # the background does nothing
    cluster.admin.create_topic("t", config=CONFIG)
    with cluster.producer() as producer:
        for number in range(500):
            producer.send("t", b"%d" % number, key=b"k%d" % (number % KEYS), timestamp=1000 + number)
            if number % 50 == 49:
                producer.flush()
        for number in range(KEYS // 2):
            producer.send("t", None, key=b"k%d" % number, timestamp=1500 + number)
        producer.flush()
    compact_twice(cluster)
    return cluster


def compact_twice(cluster: Cluster) -> None:
    """The second pass drops the tombstones; before it, every replica knows that all have them on disk."""
    cluster.admin.compact("t")
    end = cluster.admin.compact("t").partitions[0][1].end_offset

    def all_know() -> bool:
        hosted = [node._node.find(T) for node in cluster.nodes if node._node is not None]
        logs = [one.replica.log for one in hosted if one is not None]
        return len(logs) == 3 and all(getattr(log, "droppable_end", -1) >= end for log in logs)

    assert cluster._driver.wait_until(all_know, 20)
    cluster.admin.compact("t")


NEWEST: Final = {b"k%d" % number: b"%d" % (480 + number) for number in range(KEYS // 2, KEYS)}


def test_a_consumer_reads_over_gaps(holed: Cluster) -> None:
    """To the end, from any offset, forwards, and from a follower; polling ends at the end too."""
    for read_from in ("leader", "follower"):
        with holed.consumer("t", read_from=read_from) as consumer:
            assert {record.key: record.value for record in consumer.until_end()} == NEWEST
            assert consumer.position("t", 0) == consumer.end_offset("t", 0) == 510
            for start in (0, 250, 495, 505, 509):
                consumer.seek("t", 0, start)
                found = list(consumer.until_end())
                assert [record.offset for record in found] == [at for at in range(490, 500) if at >= start]
                assert consumer.position("t", 0) == 510
    with holed.producer() as producer:
        producer.send("t", b"more", key=b"k").result()
    with holed.consumer("t") as consumer:
        assert [record.offset for record in consumer.until_end()] == [*range(490, 500), 510]
    assert pa.table(holed.scan("t"))["offset"].to_pylist() == [*range(490, 500), 510]


def test_a_named_reader_passes_gaps(holed: Cluster) -> None:
    """No gap is a loss, lag is 0 at the end, and a commit in front of a gap goes on behind it."""
    with holed.consumer("t", name="billing") as reader:
        first = reader.poll(timeout=5, count_max=1)
        reader.commit(first[-1])
        assert first[0].offset == 490
    with holed.consumer("t", name="billing") as reader:
        assert [record.offset for record in reader.until_end()] == list(range(491, 500))
        assert reader.lag() == {T: 0}
        reader.commit()
        assert reader.poll() == []
    with Cluster(holed.path, mode="r") as other, other.consumer("t", name="audit") as reader:
        assert len(list(reader.until_end())) == 10
        assert reader.lag() == {T: 0}


def test_a_reader_of_the_folder_passes_gaps(holed: Cluster) -> None:
    """Beside the writer: to the end, and no further."""
    with Cluster(holed.path, mode="r") as reader, reader.consumer("t") as consumer:
        assert {record.key: record.value for record in consumer.until_end()} == NEWEST


def test_a_table_below_a_dropped_tombstone_begins_again(cluster: Cluster) -> None:
    """It has keys whose deletion it can no longer read; one that saw the tombstones goes on."""
    cluster._compactor._look_at_ns = 1 << 62
    cluster.admin.create_topic("t", config=CONFIG)
    with cluster.producer() as producer:
        for key in (b"a", b"b", b"c"):
            producer.send("t", b"1", key=key)
        producer.flush()
        with cluster.table("t") as table:
            assert len(table) == 3
        producer.send("t", None, key=b"a").result()
        producer.send("t", b"2", key=b"b").result()
    compact_twice(cluster)
    for _ in range(2):
        with cluster.table("t") as table:
            assert dict(table) == {b"b": b"2", b"c": b"1"}


def test_a_time_is_never_found_below_the_start(holed: Cluster) -> None:
    """C12, redpanda#18112: also after records were deleted in the middle of a compacted segment."""
    with holed.producer() as producer:
        for number in range(100):
            producer.send("t", b"x", key=b"n%d" % number, timestamp=2000 + number)
        producer.flush()
    starts = holed.admin.delete_records("t", {0: 530})
    assert starts == {0: 530}
    holed.admin.compact("t")
    for read_from in ("leader", "follower"):
        with holed.consumer("t", read_from=read_from) as consumer:
            for time_ms, place in ((0, 530), (1495, 530), (2000, 530), (2020, 530), (2050, 560), (9999, 610)):
                assert consumer.seek("t", 0, timestamp=time_ms) == place, (read_from, time_ms)
                assert [record.offset for record in consumer.until_end()][:1] == [place][: place < 610]
    with Cluster(holed.path, mode="r") as reader, reader.consumer("t") as consumer:
        for time_ms, place in ((0, 530), (1495, 530), (2050, 560)):
            assert consumer.seek("t", 0, timestamp=time_ms) == place


def test_a_producer_goes_on_when_its_topic_is_created_again(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    """C13, KAFKA-13488: the topic is deleted and created again, under another leader, while records come. Records
    that are acknowledged later are in the new topic, in its epochs, and no node names the old leader."""
    cluster.admin.create_topic("t", config=CONFIG, replication_factor=1)
    old = cluster.admin.describe("t")
    stop = threading.Event()
    request.addfinalizer(stop.set)
    acknowledged: list[tuple[int, RecordMetadata]] = []
    refused: list[PyreplogError] = []

    def send() -> None:
        with cluster.producer() as producer:
            number = 0
            while not stop.is_set():
                number += 1
                try:
                    acknowledged.append((number, producer.send("t", b"%d" % number, key=b"%d" % number).result(20)))
                except PyreplogError as error:
                    refused.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    wait_for(lambda: len(acknowledged) > 20)
    cluster.admin.delete_topic("t")
    leader = old.partitions[0].leader
    for number in range(6):  # the place of a new topic's only replica is the controller's choice
        new = cluster.admin.create_topic("t", config=CONFIG, replication_factor=1)
        if new.partitions[0].leader != leader:
            break
        cluster.admin.delete_topic("t")
        cluster.admin.create_topic(f"other-{number}", replication_factor=1)
    before = len(acknowledged)
    wait_for(lambda: len(acknowledged) > before + 50)
    stop.set()
    thread.join()
    assert new.topic_id != old.topic_id
    assert cluster.admin.describe("t").topic_id == new.topic_id
    assert all(isinstance(error, UnknownTopicError) for error in refused), refused
    with cluster.consumer("t") as consumer:
        there = {record.value: record for record in consumer.until_end()}
    for number, place in acknowledged[before + 1 :]:
        assert there[b"%d" % number].offset == place.offset
    for node in cluster.nodes:
        topic = node._node.image.topic("t") if node._node is not None else None
        assert topic is not None
        assert topic.partitions[0].leader == new.partitions[0].leader != leader


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it holds, at most 30 s."""
    event = threading.Event()
    for _ in range(30_000):
        if condition():
            return
        event.wait(0.001)
    raise AssertionError("it does not come to that")


def test_lost_metadata_is_made_again_with_the_note(tmp_path: Path) -> None:
    """The folders say that a topic is or was compacted, also if its policy is delete now."""
    with Cluster(tmp_path) as cluster:
        for name in ("is", "was"):
            cluster.admin.create_topic(name, config=CONFIG)
            with cluster.producer() as producer:
                for number in range(100):
                    producer.send(name, b"%d" % number, key=b"k%d" % (number % 3))
        cluster.admin.compact("was")
        cluster.admin.alter_config("was", {"cleanup.policy": "delete"})
        cluster.admin.create_topic("plain")
    lose(tmp_path)
    repair_metadata(tmp_path, write=True)
    with Cluster(tmp_path) as cluster:
        noted = {name: cluster.admin.describe(name).config.get("was.compacted") for name in ("is", "was", "plain")}
        assert noted == {"is": "true", "was": "true", "plain": None}
        assert cluster.admin.describe("is").config["cleanup.policy"] == "compact"
        with cluster.consumer("was") as consumer:
            assert len(list(consumer.until_end())) == 3
