"""What users hold in their hands, beside what it does: how it reads, whether it is closed, that it is not copied,
and how it is named."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import pyreplog
from pyreplog import TopicPartition
from pyreplog.client import BatchResult
from pyreplog.testing import SimDisk


def test_what_belongs_to_this_process_is_neither_copied_nor_pickled(
    cluster: pyreplog.Cluster, create: Callable[..., str]
) -> None:
    """And says so, and where to get another, instead of naming a lock or a descriptor inside."""
    topic = create()
    with cluster.producer() as producer, cluster.consumer(topic) as consumer:
        for thing in (cluster, producer, consumer, cluster.admin, cluster.nodes[0], cluster.scan(topic)):
            name = type(thing).__name__
            for make in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match=f"^an? {name} cannot be copied or pickled: "):
                    make(thing)
        acks = producer.send_many(topic, [b"x"])
        acks.wait()
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="^Acks cannot be copied or pickled: "):
                make(acks)


def test_what_coroutines_hold_is_neither_copied_nor_pickled(tmp_path: Path) -> None:
    """The same; and each says what it is, opened or not."""

    async def use() -> None:
        opening = pyreplog.aio.Cluster(tmp_path / "data", nodes=1)
        assert repr(opening) == "<pyreplog.aio.Cluster 'data', not open yet>"
        assert not opening.closed
        async with opening as cluster:
            await cluster.admin.create_topic("events", config={"durability": "os"})
            made = cluster.producer()
            assert "opening of 'producer': await it" in repr(made)
            async with made as producer, cluster.consumer("events") as consumer:
                for thing in (cluster, producer, consumer, cluster.admin, cluster.nodes[0]):
                    name = type(thing).__name__
                    assert repr(thing).startswith(f"<pyreplog.aio.{name} ")
                    with pytest.raises(TypeError, match=f"^an? {name} cannot be copied or pickled: "):
                        copy.deepcopy(thing)
                place = TopicPartition("events", 0)
                await (await producer.send("events", b"x"))
                assert (
                    await consumer.seek(place, 1)
                    == await consumer.position(place)
                    == await consumer.end_offset(place)
                    == 1
                )
                assert await consumer.seek(place, timestamp=0) == await consumer.start_offset(place) == 0
                assert await consumer.seek("events", 0, 1) == await consumer.position("events", 0) == 1
                await consumer.assign(place)
                assert [cluster.closed, producer.closed, consumer.closed] == [False] * 3
            assert producer.closed
            assert consumer.closed
        assert cluster.closed
        async with pyreplog.aio.open_log(tmp_path / "log") as log:
            with pytest.raises(TypeError, match="^a Log cannot be copied or pickled: "):
                pickle.dumps(log)

    asyncio.run(use())


def test_whether_it_is_closed(tmp_path: Path) -> None:
    """As a Log says it: by its own close, and by that of the cluster."""
    with pyreplog.Cluster(tmp_path / "data", nodes=1) as cluster:
        cluster.admin.create_topic("events", config={"durability": "os"})
        producer, consumer, early = cluster.producer(), cluster.consumer("events"), cluster.producer()
        early.close()
        assert early.closed
        assert [cluster.closed, producer.closed, consumer.closed] == [False] * 3
    assert cluster.closed
    assert producer.closed
    assert consumer.closed


def test_each_names_its_module(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """No default repr, and no mixture of names."""
    topic = create()
    with cluster.producer() as producer, cluster.consumer(topic) as consumer:
        ack = producer.send(topic, b"x")
        acks = producer.send_many(topic, [b"x"])
        acks.wait(10)
        scan = cluster.scan(topic, ["offset", "value"])
        for thing in (cluster, cluster.admin, cluster.nodes[0], producer, consumer, ack, acks, scan):
            assert repr(thing).startswith(f"<pyreplog.{type(thing).__name__} ")
        ack.result(10)
        assert [repr(batch) for batch in scan.batches()] == ["<pyreplog.arrow.ArrowBatch of 2 rows: offset, value>"]


def test_a_cluster_that_was_not_opened_has_a_repr(tmp_path: Path) -> None:
    """A debugger or a log shows it where ``__init__`` raised."""
    half = pyreplog.Cluster.__new__(pyreplog.Cluster)
    assert repr(half) == "<pyreplog.Cluster, not opened>"
    (tmp_path / "file").touch()
    with pytest.raises(pyreplog.ConfigError):
        half.__init__(tmp_path / "file")  # type: ignore[misc]
    assert repr(half) == "<pyreplog.Cluster, not opened>"


def test_a_partition_is_named_by_a_pair(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """A TopicPartition, or a plain pair, wherever a consumer takes a topic and a partition; two topics stay two
    topics."""
    one, other = create("one", 3), create("other", 1)
    place = TopicPartition(one, 2)
    with cluster.producer() as producer:
        producer.send(one, b"a", partition=2).result(10)
        producer.send(one, b"b", partition=2).result(10)
    for subject, wanted in (
        (place, [place]),
        ((one, 2), [place]),
        ([place, (other, 0)], [place, (other, 0)]),
        ((place,), [place]),
        ((other, other), [(other, 0)]),
        ([other, place], [(other, 0), place]),
    ):
        with cluster.consumer(subject) as consumer:  # type: ignore[arg-type]
            assert consumer.assignment == wanted
    with cluster.consumer(place) as consumer:
        assert consumer.end_offset(place) == consumer.end_offset(one, 2) == consumer.end_offset((one, 2)) == 2
        assert consumer.start_offset(place) == consumer.start_offset(one, partition=2) == 0
        assert consumer.seek(place, 1) == consumer.position(place) == 1
        assert consumer.seek(place, offset=2) == consumer.position((one, 2)) == 2
        assert consumer.seek(place, timestamp=0) == 0
        assert consumer.seek(one, 2, 1) == consumer.position(one, 2) == 1
        assert [record.value for record in consumer.until_end()] == [b"b"]
        for use in (
            lambda: consumer.seek(place),
            lambda: consumer.seek(one, 2),
            lambda: consumer.seek(place, 1, 2),  # type: ignore[call-overload]
            lambda: consumer.position(one),  # type: ignore[call-overload]
            lambda: consumer.position(place, 2),  # type: ignore[call-overload]
            lambda: consumer.end_offset(5),  # type: ignore[call-overload]
        ):
            with pytest.raises(TypeError, match="takes a topic"):
                use()


def test_acks_tell_of_the_first_error(tmp_path: Path) -> None:
    """As an Ack does, without raising it."""
    with pyreplog.open_log(tmp_path / "log") as log:
        acks = log.append_many([b"a", b"b"], wait=False)
        assert acks.exception(10) is None
        assert len(acks.result()) == 2
    outcome = BatchResult(None, "t", 0)
    settled = BatchResult(None, "t", 0)
    settled.succeed(0, 0)
    error = pyreplog.StorageError(28, "no room")
    outcome.fail(error)
    failed = pyreplog.Acks([(settled, 0, 1), (outcome, 0, 2)])
    assert failed.exception() is error
    with pytest.raises(pyreplog.StorageError, match="no room"):
        failed.result()


def test_headers_are_read_again(tmp_path: Path) -> None:
    """A dict and its items are taken; an iterator is refused, because a second reading, when a batch is full, would
    find nothing in it."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        for append in (log.append, log.append_nowait):
            append(b"x", headers={"a": b"1"}.items())
            append(b"x", headers={"a": b"1"})
            with pytest.raises(TypeError, match="a header key is a str, not int"):
                append(b"x", headers={1: b"1"})  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="such as a list, not a tuple_iterator"):
                append(b"x", headers=iter((("a", b"1"),)))  # type: ignore[arg-type, call-overload]
        log.append_many([b"x", b"y"], headers=[{"a": b"1"}.items(), {"a": b"1"}])
        assert [record.headers for record in log.read()] == [(("a", b"1"),)] * 6


def test_settings_of_another_log(tmp_path: Path) -> None:
    """A LogConfig is taken as it is, with its defaults; ``durability`` beside it counts."""
    with pyreplog.open_log(tmp_path / "one", config={"segment.bytes": 2000, "retention.ms": 5}) as one:
        config = one.config
    with pyreplog.open_log(tmp_path / "two", config=config) as two:
        assert two.config == config
    with pyreplog.open_log(tmp_path / "two", config=pyreplog.LogConfig(segment_bytes=3000)) as two:
        assert two.config == pyreplog.LogConfig(segment_bytes=3000)
    with pyreplog.open_log(tmp_path / "three", durability="os", config=config) as three:
        assert (three.durability, three.config.segment_bytes) == ("os", 2000)
    with pytest.raises(pyreplog.ConfigError, match="made with durability='os'"):
        pyreplog.open_log(tmp_path / "three", config=config)
    with pytest.raises(pyreplog.ConfigError) as caught:
        pyreplog.open_log(tmp_path / "four", config=[config, config])  # type: ignore[arg-type]
    assert len(str(caught.value)) < 150


def test_a_refused_opening_leaves_a_clean_log_clean(tmp_path: Path) -> None:
    """A wrong argument does not make the next opening one after a crash."""
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        log.append(b"x")
    for arguments in ({"durability": "sync"}, {"config": {"durability": "sync"}}):
        with pytest.raises(pyreplog.ConfigError, match="made with durability='os'"):
            pyreplog.open_log(tmp_path / "log", **arguments)
        assert (tmp_path / "log" / ".kafka_cleanshutdown").exists()
    with pyreplog.open_log(tmp_path / "log") as log:
        assert log.append(b"y") == 1


def test_a_clusters_settings_come_as_a_dict_or_a_config(tmp_path: Path) -> None:
    """A node's by its fields' names or Kafka's, a topic's as a LogConfig, of which the majority stays the
    default."""
    with pyreplog.Cluster(
        tmp_path / "data", config={"session_timeout_ms": 4000, "replica.fetch.wait.max.ms": "300"}
    ) as cluster:
        assert cluster._options.config == pyreplog.NodeConfig(session_timeout_ms=4000, replica_fetch_wait_max_ms=300)
        made = cluster.admin.create_topic("events", config=pyreplog.LogConfig(durability="os", segment_bytes=2000))
        assert made.config == {"durability": "os", "segment.bytes": "2000", "min.insync.replicas": "2"}


def test_what_the_disk_refuses_is_pythons_own_kind_too() -> None:
    """``except FileNotFoundError`` catches what its name says, on any disk."""
    disk = SimDisk()
    with pytest.raises(FileNotFoundError) as caught:
        pyreplog.open_log("nope", "r", disk=disk)
    assert isinstance(caught.value, pyreplog.StorageNotFoundError)
    assert (caught.value.errno, caught.value.filename) == (2, "nope")
    disk.make_directory("empty")
    with pytest.raises(FileNotFoundError, match="holds no log"):
        pyreplog.open_log("empty", "r", disk=disk)


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    """On the real disk."""
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as caught:
        pyreplog.open_log(tmp_path / "file")
    assert isinstance(caught.value, pyreplog.StorageError)
    with pytest.raises(FileNotFoundError):
        pyreplog.open_log(tmp_path / "nope", "r")


def test_a_reader_is_not_closed(tmp_path: Path) -> None:
    """Writing to it raises what a file that is open for reading does, and still a ClosedError."""
    pyreplog.open_log(tmp_path / "log").close()
    with pyreplog.open_log(tmp_path / "log", "r") as log:
        for use in (lambda: log.append(b"x"), lambda: log.append_nowait(b"x"), log.flush, log.delete_records):
            with pytest.raises(pyreplog.ReadOnlyError, match="mode='r'") as caught:
                use()
            assert isinstance(caught.value, pyreplog.ClosedError)
            assert isinstance(caught.value, OSError)
            assert isinstance(caught.value, ValueError)
        assert not log.closed
    with pytest.raises(pyreplog.ClosedError) as closed:
        log.read()
    assert type(closed.value) is pyreplog.ClosedError


def test_a_record_takes_a_datetime(cluster: pyreplog.Cluster, create: Callable[..., str], tmp_path: Path) -> None:
    """Whatever appends or sends it, alone or among many, waits or does not: whole ms since 1970; a naive one is
    refused, as where one seeks."""
    at, ms = datetime(2024, 6, 1, 12, 0, 0, 123_987, tzinfo=UTC), 1717243200123
    naive = datetime(2024, 6, 1, 12)
    with pyreplog.open_log(tmp_path / "log", durability="os") as log:
        assert log.append(b"0", timestamp=at) == 0
        assert log.append(b"1", timestamp=at, wait=False).result(20).timestamp == ms
        assert log.append_nowait(b"2", timestamp=at).result(20).timestamp == ms
        assert log.append_many([b"3", b"4"], timestamps=[at, 5]) == range(3, 5)
        assert [one.timestamp for one in log.append_many([b"5", b"6"], timestamps=[at, 5], wait=False).result(20)] == [
            ms,
            5,
        ]
        for refused in (
            lambda: log.append(b"x", timestamp=naive),
            lambda: log.append_nowait(b"x", timestamp=naive),
            lambda: log.append_many([b"x", b"y"], timestamps=[at, naive]),
            lambda: log.append_many([b"x", b"y"], timestamps=[at, naive], wait=False),
            lambda: log.seek(timestamp=naive),
        ):
            with pytest.raises(
                pyreplog.ConfigError, match="timestamp is the naive datetime 2024-06-01T12:00:00; give it a time zone"
            ):
                refused()
        assert [record.timestamp for record in log] == [ms, ms, ms, ms, 5, ms, 5]
        assert log.seek(timestamp=at.replace(microsecond=123_000)) == 0
    topic = create(partitions=2)
    with cluster.producer() as producer:
        sent = [producer.send(topic, b"v", timestamp=at), producer.send(topic, b"v", key=b"k", timestamp=at)]
        sent += producer.send_many(topic, [b"a", b"b"], timestamps=[at, at])
        sent += producer.send_many(topic, [b"a", b"b"], keys=[b"a", b"b"], timestamps=[at, at])
        assert [ack.result(20).timestamp for ack in sent] == [ms] * 6
        large = (
            producer.send(topic, bytes(300_000), timestamp=at),
            *producer.send_many(topic, [bytes(300_000)], timestamps=[at]),
        )
        assert [ack.result(20).timestamp for ack in large] == [ms] * 2
        with pytest.raises(pyreplog.ConfigError, match="naive datetime"):
            producer.send(topic, b"v", timestamp=naive)
        with pytest.raises(pyreplog.ConfigError, match="naive datetime"):
            producer.send_many(topic, [b"v"], timestamps=[naive])
    with cluster.consumer(topic) as consumer:
        assert {record.timestamp for record in consumer.until_end()} == {ms}


def test_a_record_of_a_coroutine_takes_a_datetime(tmp_path: Path) -> None:
    """The same, awaited."""
    at, ms = datetime(2024, 6, 1, 12, 0, 0, 123_987, tzinfo=UTC), 1717243200123

    async def use() -> None:
        async with pyreplog.aio.open_log(tmp_path / "log", durability="os") as log:
            assert await log.append(b"0", timestamp=at) == 0
            assert (await (await log.append_nowait(b"1", timestamp=at))).timestamp == ms
            assert await log.append_many([b"2"], timestamps=[at]) == range(2, 3)
            with pytest.raises(pyreplog.ConfigError, match="naive datetime"):
                await log.append(b"x", timestamp=at.replace(tzinfo=None))
            assert [record.timestamp async for record in log] == [ms] * 3
        async with pyreplog.aio.Cluster(tmp_path / "data", nodes=1) as cluster:
            await cluster.admin.create_topic("events", config={"durability": "os"})
            async with cluster.producer() as producer:
                assert (await (await producer.send("events", b"v", timestamp=at))).timestamp == ms
                assert [
                    one.timestamp for one in await (await producer.send_many("events", [b"v"], timestamps=[at]))
                ] == [ms]

    asyncio.run(use())


def test_a_loop_that_is_left_has_read_what_it_gave(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Behind the last record of a loop everything goes on, whatever had arrived: another loop, poll, position,
    seek."""
    topic = create()
    place = TopicPartition(topic, 0)
    with cluster.producer() as producer:
        producer.send_many(topic, [b"%d" % number for number in range(20)]).wait()
    with cluster.consumer(topic) as consumer:
        for record in consumer:
            assert consumer.position(place) == record.offset + 1
            if record.offset == 4:
                break
        assert next(iter(consumer)).offset == 5
        assert [record.offset for record in consumer.poll(10, count_max=2)] == [6, 7]
        loop = iter(consumer)
        assert next(loop).offset == 8
        assert consumer.seek(place, 2) == consumer.position(place) == 2
        assert next(loop).offset == 2
        assert [record.offset for record in consumer.until_end()] == list(range(3, 20))


def test_what_lies_behind_the_end_is_there_for_the_next(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """``until_end`` gives what was there when it began, and takes nothing else away."""
    topic, other = create(partitions=2), create("other")
    with cluster.producer() as producer, cluster.consumer(topic) as consumer:
        producer.send_many(topic, [b"before"] * 10, partition=0).wait()
        producer.send_many(topic, [b"before"] * 600, partition=1).wait()
        records = consumer.until_end()
        found = [next(records)]
        for partition in (0, 1):
            producer.send_many(topic, [b"after"] * 700, partition=partition).wait()
        found += records
        assert [record.value for record in found] == [b"before"] * 610
        assert (consumer.position(topic, 0), consumer.position(topic, 1)) == (10, 600)
        rest: list[bytes | None] = []
        while len(rest) < 1400:
            rest += [record.value for record in consumer.poll(10)]
        assert rest == [b"after"] * 1400
        consumer.seek_to_beginning()
        records = consumer.until_end()
        next(records)
        consumer.assign(other)
        assert list(records) == [], "what is not read any more is not waited for"
