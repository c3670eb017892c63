"""The blocking face of the producer: the bound on what is on its way, the time of a flush, and what the next
machine takes over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import pyreplog
from pyreplog.client import BatchResult, ProducerConfig
from pyreplog.errors import ClosedError, ConfigError
from tests.unit.runtime.frozen_driver import still

NOW_S = 1_790_000_000


@pytest.mark.parametrize("config", [{}, {"cleanup.policy": "compact"}])
def test_every_way_into_the_open_batch_is_the_same(cluster: pyreplog.Cluster, config: dict[str, str]) -> None:
    """Records with and without partition, key, headers and time, alone and many at once, over many batches: each Ack
    tells where the record is, and it is there with all that was sent. Several producers do not disturb one another."""
    chance = Random(1)
    cluster.admin.create_topic("events", partitions=2, replication_factor=3, config={"durability": "os", **config})
    sent: list[tuple[Any, dict[str, Any]]] = []
    with cluster.producer(batch_size_max=500) as one, cluster.producer(batch_size_max=2000) as other:
        for number in range(600):
            producer = chance.choice((one, one, other))
            record: dict[str, Any] = {
                "value": chance.choice((b"%d" % number, bytearray(b"%d" % number), None, bytes(200))),
                "key": b"k%d" % chance.randrange(5) if config or chance.random() < 0.3 else None,
                "headers": chance.choice(((), (), [("h", b"%d" % number)])),
                "timestamp": chance.choice((None, NOW_S * 1000 + number, datetime.fromtimestamp(NOW_S - number, UTC))),
            }
            partition = chance.choice((0, 0, 1, None))
            if chance.random() < 0.1:
                names = [name for name in ("key", "timestamp") if record[name] is not None]
                lists: dict[str, Any] = {f"{name}s": [record[name]] * 2 for name in names}
                values = [record["value"]] * 2
                many = producer.send_many(
                    "events", values, partition=partition, headers=[record["headers"]] * 2, **lists
                )
                sent += [(many[0], record), (many[1], record)]
            else:
                sent.append((producer.send("events", partition=partition, **record), record))
            if chance.random() < 0.05:
                producer.flush(20)
        with pytest.raises(ConfigError):
            one.send("events", b"x", key=b"k", partition=True)
    with pytest.raises(ClosedError):
        one.send("events", b"x", key=b"k", partition=0)
    with cluster.consumer("events") as consumer:
        found: dict[tuple[int, int], pyreplog.Record] = {}
        while len(found) < len(sent):
            polled = consumer.poll(20)
            assert polled
            found |= {(record.partition, record.offset): record for record in polled}
    for ack, record in sent:
        metadata = ack.result(0)
        there = found[metadata.partition, metadata.offset]
        value, key, timestamp = record["value"], record["key"], record["timestamp"]
        assert (there.value, there.key) == (None if value is None else bytes(value), key)
        assert list(there.headers) == list(record["headers"])
        assert there.timestamp == metadata.timestamp
        if timestamp is not None:
            assert there.timestamp == (timestamp if isinstance(timestamp, int) else timestamp.timestamp() * 1000)


@pytest.mark.parametrize("way", ["send", "send_many"])
def test_the_bound(cluster: pyreplog.Cluster, create: Callable[..., str], way: str) -> None:
    """Who sent more than may be on its way goes on when there is room again."""
    topic = create()
    limit = 100_000
    with cluster.producer() as producer:
        producer._machine.config = ProducerConfig(buffer_size_max=limit)
        for _ in range(5):
            if way == "send":
                producer.send(topic, bytes(600_000))
            else:
                producer.send_many(topic, [bytes(200_000)] * 5)
            assert producer._machine.buffered_size <= limit


def test_nothing_is_offered_beyond_the_bound(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Where :meth:`send` would wait nothing is taken."""
    topic = create()
    with cluster.producer() as producer:
        producer.send(topic, b"first").result(20)
        ledger = producer._machine._ledger
        ledger.size += producer._machine.config.buffer_size_max + 1
        assert producer._offer(topic, b"x", None, None, (), None) is None
        ledger.size -= producer._machine.config.buffer_size_max + 1
        ack = producer._offer(topic, b"x", None, None, (), None)
        assert ack is not None
        assert ack.result(20).offset == 1


def test_a_flush_has_one_time_for_all(cluster: pyreplog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one batch took is not there for the next."""
    with cluster.producer() as producer:
        now = [0.0]
        given: list[float] = []

        def settles(outcome: BatchResult, timeout: float) -> bool:
            given.append(timeout)
            now[0] += 4.0
            return True

        with monkeypatch.context() as patch:
            patch.setattr("pyreplog.runtime.producer.time.monotonic", lambda: now[0])
            patch.setattr(producer, "_driver", SimpleNamespace(wait=settles))
            patch.setattr(producer, "_unsettled", lambda: [BatchResult(None, "events", 0)] * 4)
            producer.flush(10.0)
        assert given == [10.0, 6.0, 2.0, 0.0]


def test_what_failed_is_remembered_by_the_next_machine(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Whoever closes hears of it, however often it was replaced. One that is closed is replaced no more."""
    topic = create()
    with cluster.producer() as producer:
        producer.send(topic, b"fine").result(20)
        with still(cluster._driver):
            ack = producer._machine.send(topic, b"lost")
            producer._interrupted(None)
        error = ack.exception(20)
        assert isinstance(error, pyreplog.OutcomeUnknownError)
        assert len(producer._machine.failures._recent) == 1
        producer.close()
        place = producer._current
        producer._interrupted(None)
        assert producer._current is place


@pytest.mark.parametrize("refused", [b"x" * (2 << 20), "text"], ids=["too large", "text"])
@pytest.mark.parametrize("keyed", [False, True], ids=["spread", "keyed"])
def test_many_of_which_one_is_refused_are_not_sent(
    cluster: pyreplog.Cluster, create: Callable[..., str], refused: Any, keyed: bool
) -> None:
    """However many batches and partitions came before it; and what was on its way already is sent, and what comes
    behind."""
    topic = create(partitions=3)
    values = [*(b"%07d" % number * 100 for number in range(4000)), refused, b"behind"]
    with cluster.producer() as producer:
        before = producer.send(topic, b"before")
        with pytest.raises((pyreplog.MessageTooLargeError, TypeError), match="nothing was sent|encode"):
            producer.send_many(topic, values, keys=[b"%d" % number for number in range(len(values))] if keyed else None)
        after = producer.send(topic, b"after")
        before.result(20)
        after.result(20)
    with cluster.consumer(topic) as consumer:
        assert sorted(str(record.value) for record in consumer.until_end()) == ["b'after'", "b'before'"]
