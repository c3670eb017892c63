"""Topics that are made together, grown, changed and deleted while a cluster and its clients run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import pyreplog
from pyreplog import (
    BrokerNotAvailableError,
    Cluster,
    ConfigError,
    InvalidPartitionsError,
    InvalidTopicError,
    MessageTooLargeError,
    NewTopic,
    ReadOnlyError,
    TopicDescription,
    TopicExistsError,
    UnknownTopicError,
    aio,
)

Create = Callable[..., str]


def test_create_topics_decides_each(cluster: Cluster) -> None:
    """A name, a NewTopic, a tuple or a dict each; what is wrong with one is its own result."""
    admin = cluster.admin
    admin.create_topic("there")
    found = admin.create_topics(
        [
            "a",
            NewTopic("b", 3, 2),
            ("c", 2),
            {"name": "d", "config": {"retention.ms": 1000}},
            NewTopic("e", replication_factor=4),
            NewTopic("f", config={"retention.mss": 1}),
            "__g",
            "there",
        ]
    )
    assert list(found) == ["a", "b", "c", "d", "e", "f", "__g", "there"]
    made = {name: one for name, one in found.items() if isinstance(one, TopicDescription)}
    assert {name: len(one.partitions) for name, one in made.items()} == {"a": 1, "b": 3, "c": 2, "d": 1}
    assert len(made["b"].partitions[0].replicas) == 2
    assert made["d"].config["retention.ms"] == "1000"
    kinds = {name: type(one) for name, one in found.items() if name not in made}
    assert kinds == {"e": ConfigError, "f": ConfigError, "__g": InvalidTopicError, "there": TopicExistsError}
    assert admin.topics() == ["a", "b", "c", "d", "there"]


def test_create_topics_may_be_repeated(cluster: Cluster) -> None:
    """With exist_ok, if the topics are as they are wanted."""
    admin = cluster.admin
    topics = [NewTopic("a", 2), NewTopic("b")]
    first = admin.create_topics(topics)
    assert admin.create_topics(topics, exist_ok=True) == first
    again = admin.create_topics([NewTopic("a", 3), NewTopic("b")], exist_ok=True)
    assert isinstance(again["a"], TopicExistsError)
    assert again["b"] == first["b"]


@pytest.mark.parametrize(
    "topics", ["a", None, [1], [{"id": "a"}], [("a", 1, 1, None, "striped", 1)], ["a", "a"], NewTopic("a")]
)
def test_create_topics_refuses_what_is_no_list_of_topics(cluster: Cluster, topics: object) -> None:
    """At once, and nothing is made."""
    with pytest.raises((ConfigError, TypeError)):
        cluster.admin.create_topics(topics)  # type: ignore[arg-type]
    assert cluster.admin.topics() == []


def test_new_partitions_are_picked_up_by_open_clients(cluster: Cluster, create: Create) -> None:
    """A producer sends to them as soon as the call returns; consumers of the whole topic read them from their first
    record, also those that began at the end; a consumer of one partition does not."""
    create("t", 1)
    producer = cluster.producer()
    producer.send("t", b"old").result()
    latest = cluster.consumer("t", auto_offset_reset="latest")
    earliest = cluster.consumer("t")
    single = cluster.consumer(("t", 0))
    assert latest.end_offset("t", 0) == latest.position("t", 0) == 1
    grown = cluster.admin.create_partitions("t", 3)
    assert (grown.added, len(grown.partitions)) == (2, 3)
    assert "map to another partition" in grown.note
    for number in (1, 2):
        producer.send("t", b"new-%d" % number, partition=number).result()
    assert sorted(record.value or b"" for record in latest.until_end()) == [b"new-1", b"new-2"]
    assert sorted(record.value or b"" for record in earliest.until_end()) == [b"new-1", b"new-2", b"old"]
    assert [record.value for record in single.until_end()] == [b"old"]
    assert len(latest.assignment) == 3
    assert single.assignment == [("t", 0)]


def test_records_with_keys_go_to_their_new_partition(cluster: Cluster, create: Create) -> None:
    """An open producer maps keys as a new one does."""
    create("t", 2)
    with cluster.producer() as producer:
        keys = [b"%d" % number for number in range(20)]
        before = {key: producer.send("t", b"", key=key).result().partition for key in keys}
        cluster.admin.create_partitions("t", 5)
        after = {key: producer.send("t", b"", key=key).result().partition for key in keys}
    with cluster.producer() as other:
        assert {key: other.send("t", b"", key=key).result().partition for key in keys} == after
    assert before != after
    assert max(after.values()) > 1


def test_growth_under_load_loses_no_record(cluster: Cluster, create: Create) -> None:
    """While a thread sends and a consumer reads, whatever partition each record goes to."""
    create("t", 1)
    consumer = cluster.consumer("t", auto_offset_reset="latest")
    assert consumer.position("t", 0) <= 0
    consumer.end_offset("t", 0)
    consumer.poll(0.05)
    sent: list[bytes] = []
    done = threading.Event()

    def send() -> None:
        with cluster.producer() as producer:
            number = 0
            while not done.is_set():
                acks = [producer.send("t", b"%d" % (number + one), key=b"%d" % (number + one)) for one in range(20)]
                for ack in acks:
                    ack.result()
                sent.extend(b"%d" % (number + one) for one in range(20))
                number += 20

    thread = threading.Thread(target=send)
    thread.start()
    try:
        for total in (2, 5, 9):
            cluster.admin.create_partitions("t", total)
    finally:
        done.set()
        thread.join()
    read = sorted(record.value or b"" for record in consumer.until_end())
    assert read == sorted(sent)


def test_create_partitions_refusals(cluster: Cluster, create: Create) -> None:
    """Fewer, an unknown topic, an internal one, nonsense; as many as there are is no error."""
    create("events", 3)
    admin = cluster.admin
    same = admin.create_partitions("events", 3)
    assert (same.added, same.note, len(same.partitions)) == (0, "", 3)
    with pytest.raises(InvalidPartitionsError, match="create another topic"):
        admin.create_partitions("events", 2)
    with pytest.raises(UnknownTopicError, match="did you mean 'events'"):
        admin.create_partitions("event", 4)
    with pytest.raises(InvalidTopicError, match="internal"):
        admin.create_partitions("__events", 4)
    for wrong in (0, -1, "four", 1.5, None):
        with pytest.raises(ConfigError, match="total"):
            admin.create_partitions("events", wrong)  # type: ignore[arg-type]
    for node in cluster.nodes:
        node.kill()
    with pytest.raises(BrokerNotAvailableError):
        admin.create_partitions("events", 4)


def test_a_topic_is_deleted_with_its_files(cluster: Cluster, create: Create) -> None:
    """On every node when the call returns; a new topic of that name begins empty."""
    create("t", 2)
    with cluster.producer() as producer:
        producer.send("t", b"old", partition=0).result()
    folders = [Path(node.path) / f"t-{number}" for node in cluster.nodes for number in (0, 1)]
    assert all(folder.is_dir() for folder in folders)
    cluster.admin.delete_topic("t")
    assert not any(folder.exists() for folder in folders)
    assert cluster.admin.topics() == []
    with pytest.raises(UnknownTopicError):
        cluster.admin.describe("t")
    create("t", 1)
    with cluster.consumer("t") as consumer:
        assert list(consumer.until_end()) == []


def test_delete_topic_refusals(cluster: Cluster, create: Create) -> None:
    """An unknown topic with what may be meant, an internal one."""
    create("events")
    with pytest.raises(UnknownTopicError, match="did you mean 'events'"):
        cluster.admin.delete_topic("event")
    with pytest.raises(InvalidTopicError, match="internal"):
        cluster.admin.delete_topic("__consumer_offsets")


def test_settings_apply_when_the_call_returns(cluster: Cluster, create: Create) -> None:
    """Also to open producers, whose batches follow the topic's limit."""
    create("t", 1, max_message_bytes="1000")
    with cluster.producer() as producer:
        producer.send("t", b"x").result()
        with pytest.raises(MessageTooLargeError):
            producer.send("t", b"x" * 2_000_000).result()
        changed = cluster.admin.alter_config("t", {"max.message.bytes": 3_000_000, "retention.ms": "5000"})
        assert (changed.config["max.message.bytes"], changed.config["retention.ms"]) == ("3000000", "5000")
        producer.send("t", b"x" * 2_000_000).result()
        reset = cluster.admin.alter_config("t", {"max.message.bytes": None})
        assert "max.message.bytes" not in reset.config
        with pytest.raises(MessageTooLargeError):
            producer.send("t", b"x" * 2_000_000).result()
        producer.send("t", b"x").result()


def test_cluster_defaults(tmp_path: Path) -> None:
    """A topic's own setting wins; the defaults are kept, and count for topics that are made later."""
    with Cluster(tmp_path / "c", nodes=3) as cluster:
        admin = cluster.admin
        admin.create_topic("own", config={"retention.ms": 7})
        admin.create_topic("other")
        assert admin.describe("other").config["min.insync.replicas"] == "2"
        given = admin.alter_cluster_config({"retention.ms": 5, "min.insync.replicas": 1})
        assert given == {"retention.ms": "5", "min.insync.replicas": "1"} == dict(admin.describe_cluster().config)
        assert admin.describe("own").config["retention.ms"] == "7"
        assert admin.describe("other").config["retention.ms"] == "5"
        assert admin.describe("other").config["min.insync.replicas"] == "1"
    with Cluster(tmp_path / "c") as cluster:
        admin = cluster.admin
        assert admin.create_topic("later").config["retention.ms"] == "5"
        assert admin.alter_cluster_config({"retention.ms": None, "min.insync.replicas": None}) == {}
        assert "retention.ms" not in admin.describe("later").config
        assert admin.describe("later").config["min.insync.replicas"] == "2"


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"durability": "sync"}, "create another topic|no default for the cluster"),
        ({"retention.mss": 1}, "did you mean 'retention.ms'"),
        ({"retention.mss": None}, "did you mean 'retention.ms'"),
        ({"retention.ms": "soon"}, "whole number"),
        ({"retention.ms": 1.5}, "whole number"),
        ({"cleanup.policy": "compacted"}, "did you mean 'compact'"),
        ({"was.compacted": True}, "only the controller writes it"),
        (None, "must be a dict"),
        ([("retention.ms", 1)], "must be a dict"),
    ],
)
def test_wrong_settings(cluster: Cluster, create: Create, config: object, hint: str) -> None:
    """Refused with the way out, for a topic and for the cluster."""
    create("t")
    with pytest.raises(ConfigError, match=hint):
        cluster.admin.alter_config("t", config)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=hint):
        cluster.admin.alter_cluster_config(config)  # type: ignore[arg-type]
    assert cluster.admin.describe_cluster().config == {}


def test_alter_config_of_no_topic(cluster: Cluster, create: Create) -> None:
    """An unknown topic, also without any change, and an internal one."""
    create("events")
    with pytest.raises(UnknownTopicError, match="did you mean 'events'"):
        cluster.admin.alter_config("event", {"retention.ms": 1})
    with pytest.raises(UnknownTopicError):
        cluster.admin.alter_config("event", {})
    with pytest.raises(InvalidTopicError, match="internal"):
        cluster.admin.alter_config("__events", {"retention.ms": 1})


def test_describe_cluster_names_states(cluster: Cluster) -> None:
    """By KIP-500's names."""
    described = cluster.admin.describe_cluster()
    assert described.cluster_id == cluster.cluster_id
    assert [(one.node_id, one.state) for one in described.nodes] == [(1, "online"), (2, "online"), (3, "online")]
    cluster.nodes[0].kill()
    assert [one.state for one in cluster.admin.describe_cluster().nodes] == ["offline", "online", "online"]
    cluster.nodes[0].restart()
    cluster.nodes[1].stop()
    assert [one.state for one in cluster.admin.describe_cluster().nodes] == ["online", "offline", "online"]


def test_a_description_names_the_metadata_that_it_reflects(tmp_path: Path) -> None:
    """A later one has a higher offset, below the end of what is committed; the files say the same."""
    with Cluster(tmp_path / "c", nodes=2) as cluster:
        admin = cluster.admin
        made = [admin.create_topic("a"), admin.create_topic("b"), admin.create_partitions("a", 2)]
        offsets = [*(one.metadata_offset for one in made), admin.describe_cluster().metadata_offset]
        assert offsets == sorted(offsets)
        assert 0 < offsets[0] < offsets[1] < offsets[2]
        assert offsets[-1] < admin.describe_quorum().high_watermark
    with Cluster(tmp_path / "c", mode="r") as reader:
        assert reader.describe("a").metadata_offset >= offsets[2]


def test_a_node_that_was_away_learns_of_all_changes(cluster: Cluster, create: Create) -> None:
    """Growth, settings, and a topic that was deleted and made again."""
    create("t", 1)
    create("gone", 1)
    cluster.nodes[2].kill()
    cluster.admin.create_partitions("t", 2)
    cluster.admin.alter_config("t", {"segment.bytes": 2048})
    cluster.admin.delete_topic("gone")
    create("gone", 1)
    cluster.nodes[2].restart()
    with cluster.producer() as producer:
        for number in (0, 1):
            producer.send("t", b"x", partition=number).result()
        producer.send("gone", b"x").result()
    folder = Path(cluster.nodes[2].path)
    assert (folder / "t-1").is_dir()
    assert "segment.bytes" in (folder / "t-0" / "replog.config").read_text()


def test_a_reader_refuses_changes(tmp_path: Path) -> None:
    """It describes topics, and nothing else."""
    with Cluster(tmp_path / "c", nodes=1) as cluster:
        cluster.admin.create_topic("t")
    with Cluster(tmp_path / "c", mode="r") as reader:
        admin = reader.admin
        for call in (
            lambda: admin.create_topics(["a"]),
            lambda: admin.delete_topic("t"),
            lambda: admin.create_partitions("t", 2),
            lambda: admin.alter_config("t", {}),
            lambda: admin.alter_cluster_config({}),
            admin.describe_cluster,
        ):
            with pytest.raises(ReadOnlyError):
                call()


def test_the_same_for_coroutines(tmp_path: Path) -> None:
    """Every call has its twin."""

    async def run() -> None:
        async with aio.Cluster(tmp_path / "c", nodes=1) as cluster:
            admin = cluster.admin
            made = await admin.create_topics(["a", pyreplog.NewTopic("b", 2)])
            assert list(made) == ["a", "b"]
            consumer = await cluster.consumer("a")
            assert (await admin.create_partitions("a", 2)).added == 1
            async with cluster.producer() as producer:
                await producer.send("a", b"x", partition=1)
            assert [record.partition for record in await consumer.poll(timeout=5)] == [1]
            assert (await admin.alter_config("a", {"retention.ms": 5})).config["retention.ms"] == "5"
            assert await admin.alter_cluster_config({"retention.bytes": 5}) == {"retention.bytes": "5"}
            assert [one.state for one in (await admin.describe_cluster()).nodes] == ["online"]
            await admin.delete_topic("b")
            assert await admin.topics() == ["a"]

    asyncio.run(run())
