"""A producer's functions (serializers, partitioner, on_delivery), acks and timeout of one send, send_arrow, and a
consumer's deserializers."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyreplog
from pyreplog import aio


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pyreplog.Cluster]:
    """One node for all tests of this file."""
    with pyreplog.Cluster(tmp_path_factory.mktemp("functions") / "data", nodes=1) as cluster:
        yield cluster


@pytest.fixture
def topic(shared: pyreplog.Cluster, request: pytest.FixtureRequest) -> str:
    """A topic of this test with three partitions."""
    name = f"{request.node.name.split('[')[0]}-{len(shared.admin.topics())}"
    shared.admin.create_topic(name, partitions=3, replication_factor=1, config={"durability": "os"})
    return name


def encode(value: Any) -> bytes:
    """Return JSON."""
    return json.dumps(value).encode()


def test_serializers_and_deserializers(shared: pyreplog.Cluster, topic: str) -> None:
    """send and send_many serialize, poll and loops deserialize; None is left alone; attributes stay."""
    with shared.producer(key_serializer=str.encode, value_serializer=encode) as producer:
        producer.send(topic, {"a": 1}, key="k", headers={"h": b"1"}, partition=0).result(20)
        producer.send(topic, None, key="k", partition=0).result(20)
        producer.send_many(topic, [[1], None], keys=["x", None], partition=0).result(20)
        with pytest.raises(TypeError, match="JSON serializable"):
            producer.send(topic, object())
        with pytest.raises(TypeError, match="JSON serializable"):
            producer.send_many(topic, [1, object()])
        with pytest.raises(TypeError):
            producer.send(topic, 1, key=b"not text")
    expected = [("k", {"a": 1}), ("k", None), ("x", [1]), (None, None)]
    with shared.consumer(topic, key_deserializer=bytes.decode, value_deserializer=json.loads) as consumer:
        assert [(record.key, record.value) for record in consumer.until_end()] == expected
        consumer.seek_to_beginning()
        records = consumer.poll(20)
        assert [(record.key, record.value) for record in records] == expected
        first = records[0]
        assert isinstance(first, pyreplog.DecodedRecord)
        assert (first.topic, first.partition, first.offset, first.headers) == (topic, 0, 0, (("h", b"1"),))
        assert (first.record.value, first.timestamp > 0) == (b'{"a": 1}', True)
        assert first.timestamp_type == first.record.timestamp_type
        assert first.leader_epoch == first.record.leader_epoch
        assert "offset=0" in repr(first)


def read_with(way: str, cluster: pyreplog.Cluster, path: Path, topic: str) -> Any:
    """Open a consumer of either kind that reads JSON."""
    if way == "a":
        return cluster.consumer(topic, value_deserializer=json.loads)
    return pyreplog.ClusterReader(path).consumer(topic, value_deserializer=json.loads)


@pytest.mark.parametrize("way", ["a", "r"])
def test_a_poison_record_is_named_and_passed_by_seek(shared: pyreplog.Cluster, topic: str, way: str) -> None:
    """The records before it come first; then every read raises the error, until a seek goes on behind it."""
    with shared.producer() as producer:
        for value in (b"0", b"1", b"{", b"3"):
            producer.send(topic, value, partition=0).result(20)
    with read_with(way, shared, Path(shared.path), topic) as consumer:
        assert [record.value for record in consumer.poll(20)] == [0, 1]
        for _ in range(2):
            with pytest.raises(pyreplog.DeserializationError, match=rf"value .* offset 2 of {topic}-0.*seek") as raised:
                consumer.poll(20)
            error = raised.value
            assert (error.topic, error.partition, error.offset, error.field) == (topic, 0, 2, "value")
            assert isinstance(error.__cause__, json.JSONDecodeError)
            with pytest.raises(pyreplog.DeserializationError):
                next(iter(consumer))
            assert consumer.position(topic, 0) == 2
        consumer.seek(error.topic, error.partition, error.offset + 1)
        assert [record.value for record in consumer.until_end()] == [3]
        consumer.seek(topic, 0, 0)
        seen = []
        with pytest.raises(pyreplog.DeserializationError):
            for record in consumer.until_end():
                seen.append(record.value)
        assert seen == [0, 1]


def test_functions_must_be_callable(shared: pyreplog.Cluster, topic: str) -> None:
    """Anything else is a ConfigError at once."""
    for name in ("key_serializer", "value_serializer", "partitioner", "on_delivery"):
        with pytest.raises(pyreplog.ConfigError, match=name):
            shared.producer(**{name: 1})  # type: ignore[arg-type]
    for name in ("key_deserializer", "value_deserializer"):
        with pytest.raises(pyreplog.ConfigError, match=name):
            shared.consumer(topic, **{name: 1})  # type: ignore[call-overload]
    with shared.producer() as producer:
        for arguments in ({"on_delivery": 1}, {"acks": 2}, {"acks": True}, {"timeout": -1}, {"timeout": "1"}):
            with pytest.raises(pyreplog.ConfigError):
                producer.send(topic, b"x", **arguments)
        assert shared.consumer(topic).poll(0) == []


def test_the_partitioner_places_every_record(shared: pyreplog.Cluster, topic: str) -> None:
    """It gets the serialized key, or None, and the number of partitions; partition= comes before it."""
    asked: list[tuple[object, int]] = []

    def partitioner(key: Any, partitions: int) -> int:
        asked.append((key, partitions))
        return 0 if key is None else len(key) % partitions

    with shared.producer(partitioner=partitioner, key_serializer=str.encode) as producer:
        assert producer.send(topic, b"x", key="ab").result(20).partition == 2
        assert producer.send(topic, b"x").result(20).partition == 0
        assert producer.send(topic, b"x", key="ab", partition=1).result(20).partition == 1
        many = producer.send_many(topic, [b"1", b"2", b"3"], keys=["a", "ab", "abc"]).result(20)
        assert [one.partition for one in many] == [1, 2, 0]
        assert [one.partition for one in producer.send_many(topic, [b"4", b"5"]).result(20)] == [0, 0]
    assert asked == [(b"ab", 3), (None, 3), (b"a", 3), (b"ab", 3), (b"abc", 3), (None, 3), (None, 3)]


@pytest.mark.parametrize("answer", [3, -1, "0", None, True, 1.0])
def test_a_wrong_partition_is_refused(shared: pyreplog.Cluster, topic: str, answer: Any) -> None:
    """Nothing is sent, and the error names the answer, the key and the partitions."""
    with shared.producer(partitioner=lambda key, partitions: answer) as producer:
        with pytest.raises(pyreplog.ConfigError, match=rf"answered {answer!r} for the key b'k'.*partitions 0 to 2"):
            producer.send(topic, b"x", key=b"k")
        with pytest.raises(pyreplog.ConfigError, match="nothing was sent"):
            producer.send_many(topic, [b"x"], keys=[b"k"])
        assert producer.send(topic, b"x", partition=0).result(20).offset == 0
    with shared.producer(partitioner=lambda key, partitions: 1 // 0) as producer, pytest.raises(ZeroDivisionError):
        producer.send(topic, b"x")


def test_on_delivery_is_called_once_for_each_record(
    shared: pyreplog.Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the place of the record, in a thread of the producer; what it raises is logged and does no harm."""
    told: list[tuple[Any, Any]] = []
    threads = set()

    def tell(metadata: Any, error: Any) -> None:
        threads.add(threading.current_thread())
        told.append((metadata, error))
        raise SystemExit("from on_delivery")

    with caplog.at_level(logging.ERROR), shared.producer() as producer:
        acks = [producer.send(topic, b"%d" % number, partition=0, on_delivery=tell) for number in range(100)]
        acks += producer.send_many(topic, [b"x"] * 10, partition=1, on_delivery=tell)
        producer.flush(20)
        assert sorted(told) == sorted((ack.result(20), None) for ack in acks)
        assert threading.current_thread() not in threads
        assert len(threads) == 1
        producer.send(topic, b"y").result(20)
    assert len(told) == 110
    assert "on_delivery" in caplog.text


def test_on_delivery_of_a_producer_may_use_it(shared: pyreplog.Cluster, topic: str) -> None:
    """A function for all records; another one for one send replaces it; it may send, flush and close."""
    offsets: list[int] = []
    others: list[Any] = []

    def tell(metadata: Any, error: Any) -> None:
        offsets.append(metadata.offset)
        if metadata.offset == 0:
            producer.send(topic, b"second", partition=0, on_delivery=lambda *told: others.append(told))
            producer.flush(20)
        elif metadata.offset == 2:
            producer.close()

    producer = shared.producer(on_delivery=tell)
    producer.send(topic, b"first", partition=0).result(20)
    producer.flush(20)
    producer.send(topic, b"third", partition=0)
    producer.close()
    assert offsets == [0, 2]
    assert len(others) == 1


def test_on_delivery_hears_of_failures(tmp_path: Path) -> None:
    """A record that is refused for good, and one that is given up, have their error told."""
    told: list[tuple[Any, Any]] = []
    with pyreplog.Cluster(tmp_path / "data", nodes=3) as cluster:
        cluster.admin.create_topic("t", partitions=1, replication_factor=3, config={"min.insync.replicas": 3})
        cluster.node(2).kill()
        producer = cluster.producer(delivery_timeout_ms=600)
        producer.send("t", b"x", on_delivery=lambda *given: told.append(given))
        producer.close()
    ((metadata, error),) = told
    assert metadata is None
    assert isinstance(error, pyreplog.PyreplogError)


def test_acks_and_timeout_of_one_send(tmp_path: Path) -> None:
    """acks=1 and 0 do not wait for a member that is away; a timeout ends in refused or unknown; the order stays."""
    with pyreplog.Cluster(tmp_path / "data", nodes=3) as cluster:
        cluster.admin.create_topic("t", partitions=1, replication_factor=3, config={"min.insync.replicas": 2})
        with cluster.producer() as producer:
            acks = [producer.send("t", b"0"), producer.send("t", b"1", acks=1), producer.send("t", b"2")]
            acks += [producer.send("t", b"3", acks="all", timeout=20), producer.send("t", b"4", acks=0)]
            acks.append(producer.send("t", b"5", timeout=20))
            assert [ack.result(20).offset for ack in acks] == [0, 1, 2, 3, -1, 5]
            for node in (2, 3):
                cluster.node(node).kill()
            refused = producer.send("t", b"6", timeout=0.3)
            error = refused.exception(20)
            assert isinstance(
                error,
                pyreplog.OutcomeUnknownError
                | pyreplog.RequestTimedOutError
                | pyreplog.NotEnoughReplicasError
                | pyreplog.LeaderNotAvailableError
                | pyreplog.NotLeaderError,
            )
            for node in (2, 3):
                cluster.node(node).restart()
            assert producer.send("t", b"7").result(30).offset >= 6
        with cluster.consumer("t") as consumer:
            values = [record.value for record in consumer.until_end()]
            assert values[:6] == [b"%d" % number for number in range(6)]
            assert values[-1] == b"7"


def test_rows_of_a_table_are_sent(shared: pyreplog.Cluster, topic: str) -> None:
    """send_arrow sends all columns of all rows, by key, by partition= or by the partitioner; none if one is refused."""
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(
        {
            "key": [b"a", None, b"b"],
            "value": [b"1", None, b"3" * 1000],
            "timestamp": pyarrow.array([1, 2, None], pyarrow.timestamp("ms", "UTC")),
            "headers": [[{"key": "h", "value": b"1"}], [], []],
        }
    )
    called: list[Any] = []
    with shared.producer(value_serializer=encode, on_delivery=lambda *told: called.append(told)) as producer:
        acks = producer.send_arrow(topic, table, partition=1)
        assert [one.offset for one in acks.result(20)] == [0, 1, 2]
        by_key = producer.send_arrow(topic, table).result(20)
        assert by_key[0].partition == producer.send(topic, 1, key=b"a").result(20).partition
        with pytest.raises(pyreplog.MessageTooLargeError, match="row 1 of 2"):
            producer.send_arrow(topic, pyarrow.table({"value": [b"", bytes(2 << 20)]}))
        with pytest.raises(pyreplog.UnknownTopicError):
            producer.send_arrow("no-such-topic", table)
        assert len(producer.send_arrow(topic, table.slice(0, 0)).result(20)) == 0
    assert len(called) == 7
    with shared.consumer((topic, 1)) as consumer:
        records = list(consumer.until_end())[:3]
    assert [(record.key, record.value) for record in records] == [
        (b"a", b"1"),
        (None, None),
        (b"b", b"3" * 1000),
    ]
    assert [record.timestamp for record in records] == [1, 2, -1]
    assert records[0].headers == (("h", b"1"),)


def test_the_same_for_coroutines(tmp_path: Path) -> None:
    """Functions run on the event loop; an error of on_delivery goes to the loop's handler; poison is told alike."""
    pyarrow = pytest.importorskip("pyarrow")
    handled: list[Any] = []
    told: list[Any] = []

    def tell(metadata: Any, error: Any) -> None:
        asyncio.get_running_loop()
        told.append(metadata.offset)
        raise RuntimeError("from on_delivery")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: handled.append(context))
        async with aio.Cluster(tmp_path / "data", nodes=1) as cluster:
            await cluster.admin.create_topic("t", partitions=2, replication_factor=1)
            async with cluster.producer(
                value_serializer=encode, partitioner=lambda key, partitions: partitions - 1, on_delivery=tell
            ) as producer:
                first = await (await producer.send("t", [0]))
                second = await (await producer.send("t", [1], acks=1))
                assert (first.offset, second.offset) == (0, 1)
                acks = await producer.send_many("t", [[2], [3]])
                assert [one.partition for one in await acks] == [1, 1]
                await (await producer.send_arrow("t", pyarrow.table({"value": [b"{"]})))
                await producer.flush(20)
                assert told == [0, 1, 2, 3, 4]
                last = await (await producer.send("t", [5], timeout=20, on_delivery=lambda *given: None))
                assert (last.offset, last.partition) == (5, 1)
            async with cluster.consumer("t", value_deserializer=json.loads) as consumer:
                values: list[Any] = [record.value for record in await consumer.poll(20)]
                assert values == [[0], [1], [2], [3]]
                with pytest.raises(pyreplog.DeserializationError):
                    await consumer.poll(20)
                await consumer.seek("t", 1, 5)
                values = [record.value async for record in consumer.until_end()]
                assert values == [[5]]

    asyncio.run(main())
    assert len(handled) == 5
    assert all("from on_delivery" in str(context["exception"]) for context in handled)


def test_a_fast_send_is_as_before(shared: pyreplog.Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A send without any of this takes the path without functions."""
    with shared.producer() as producer:
        monkeypatch.setattr(producer, "_send_apart", None)
        assert producer.send(topic, b"x", partition=0).result(20).offset == 0
