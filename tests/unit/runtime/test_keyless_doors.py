"""Every way into a compacted topic of a cluster refuses records without a key, before anything is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyreplog
from pyreplog import Cluster, InvalidRecordError, aio
from pyreplog.client import TopicLimits
from pyreplog.runtime.metadata_view import MetadataView
from pyreplog.spool import BatchId, Spool
from pyreplog.system import SystemDisk
from tests.unit.spool.support import stage

TEXT = r"record {} has no key, and topic 't' is compacted"


@pytest.fixture
def compacted(cluster: Cluster) -> Cluster:
    """A cluster with a compacted topic of two partitions."""
    cluster.admin.create_topic("t", partitions=2, config={"cleanup.policy": "compact", "durability": "os"})
    return cluster


def keys(cluster: Cluster, topic: str = "t") -> list[bytes | None]:
    """Of all records, sorted."""
    with cluster.consumer(topic) as consumer:
        return sorted((record.key for record in consumer.until_end()), key=lambda key: key or b"")


SENDS: dict[str, Callable[[pyreplog.Producer], Any]] = {
    "send": lambda producer: producer.send("t", b"x"),
    "to a partition": lambda producer: producer.send("t", b"x", partition=1),
    "apart": lambda producer: producer.send("t", b"x", timeout=5),
    "a tombstone of nothing": lambda producer: producer.send("t", None),
}


@pytest.mark.parametrize("name", SENDS)
def test_send_refuses_one_record(compacted: Cluster, name: str) -> None:
    """And the records with keys before and after it, which would have shared its batch, are sent."""
    with compacted.producer() as producer:
        first = producer.send("t", b"a", key=b"1")
        with pytest.raises(InvalidRecordError, match=TEXT.format(0)):
            SENDS[name](producer)
        producer.send("t", b"b", key=b"2").result()
        first.result()
    assert keys(compacted) == [b"1", b"2"]


def test_send_many_and_arrow_send_none(compacted: Cluster) -> None:
    """The first record without a key is named; an empty key is one."""
    with compacted.producer() as producer:
        for wrong in ([b"1", None, None], None):
            index = 0 if wrong is None else 1
            with pytest.raises(InvalidRecordError, match=TEXT.format(index)):
                producer.send_many("t", [b"a", b"b", b"c"], keys=wrong)
            table = {"value": [b"a", b"b", b"c"], **({} if wrong is None else {"key": pa.array(wrong, pa.binary())})}
            with pytest.raises(InvalidRecordError, match=TEXT.format(index)):
                producer.send_arrow("t", pa.table(table))
        producer.send_many("t", [b"a", b"b"], keys=[b"", b"1"])
        producer.send_arrow("t", pa.table({"value": [b"a"], "key": [b"2"]}))
        producer.flush()
    assert keys(compacted) == [b"", b"1", b"2"]


def test_a_coroutine_is_refused_too(tmp_path: Path) -> None:
    """Also on the way that does not leave the loop."""

    async def run() -> None:
        async with aio.Cluster(tmp_path / "data") as cluster:
            await cluster.admin.create_topic("t", config={"cleanup.policy": "compact"})
            async with await cluster.producer() as producer:
                for _ in range(2):
                    with pytest.raises(InvalidRecordError, match=TEXT.format(0)):
                        await producer.send("t", b"x")
                    await producer.send("t", b"x", key=b"1")

    asyncio.run(run())


@pytest.mark.parametrize("acks", ["all", 1])
def test_the_leader_refuses_what_a_producer_lets_pass(
    compacted: Cluster, monkeypatch: pytest.MonkeyPatch, acks: Any
) -> None:
    """A producer that knows nothing of the settings gets Kafka's INVALID_RECORD for the batch."""
    monkeypatch.setattr(MetadataView, "batch_limit", lambda *_: TopicLimits(1 << 20, 1 << 20))
    compacted._clients._batch_limit = lambda _: TopicLimits(1 << 20, 1 << 20)
    with compacted.producer(acks) as producer:
        acknowledged = producer.send_many("t", [b"a", b"b"], keys=[b"1", None], partition=0)
        with pytest.raises(InvalidRecordError, match="record 1 has no key, and t-0 is compacted") as refused:
            acknowledged.result()
        assert refused.value.code == 87
        producer.send("t", b"c", key=b"2").result()
    assert keys(compacted) == [b"2"]


def test_a_producer_learns_of_the_policy(cluster: Cluster, create: Callable[..., str]) -> None:
    """When it changes, and when a topic is created again under the same name with another one."""
    create("t")
    with cluster.producer() as producer:
        producer.send("t", b"x", key=b"0").result()
        cluster.admin.alter_config("t", {"cleanup.policy": "compact"})
        with pytest.raises(InvalidRecordError):
            producer.send("t", b"x")
        cluster.admin.alter_config("t", {"cleanup.policy": None})
        producer.send("t", b"x").result()
        cluster.admin.delete_topic("t")
        create("t", cleanup_policy="compact")
        with pytest.raises(InvalidRecordError):
            producer.send("t", b"x").result()
        cluster.admin.delete_topic("t")
        create("t")
        producer.send("t", b"y").result()
    assert keys(cluster) == [None]


def test_staged_batches_are_refused(compacted: Cluster) -> None:
    """Those of other processes, as Spark's sink leaves them: the spool answers with the reason."""
    spool = Spool(SystemDisk(), compacted.path)
    batch_id = BatchId("query", 0)
    spool.publish(batch_id, [stage(spool, batch_id, ("t", 0, [b"a"]))])
    with pytest.raises(pyreplog.errors.SpoolRefusedError, match="InvalidRecordError: .*record 0 has no key"):
        compacted._driver.wait_until(lambda: spool.answered(batch_id), 20)
    assert keys(compacted) == []


def test_dead_letters_are_never_compacted(compacted: Cluster) -> None:
    """Also if the cluster's default says so: letters of one key would replace one another."""
    compacted.admin.alter_cluster_config({"cleanup.policy": "compact"})
    with compacted.producer() as producer:
        for number in range(2):
            producer.send("t", b"%d" % number, key=b"k").result()
    with compacted.consumer("t", name="reader") as reader:
        for record in reader.poll(timeout=5):
            reader.dead_letter(record, ValueError("no"))
    assert "cleanup.policy" not in compacted.admin.describe("dlq.t").config or (
        compacted.admin.describe("dlq.t").config["cleanup.policy"] == "delete"
    )
    assert keys(compacted, "dlq.t") == [b"k", b"k"]
