"""Records that failed while nobody asked their Acks: told by a warning when the producer, or the log, is closed."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import pyreplog
from pyreplog import aio
from pyreplog.client import BatchResult, Failures
from pyreplog.testing import SimDisk


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Takes the warnings about records that nobody asked after."""
    caplog.set_level(logging.WARNING, "pyreplog")

    def take() -> list[str]:
        found = [entry.getMessage() for entry in caplog.records if "no caller read why" in entry.getMessage()]
        caplog.clear()
        return found

    return take


def without_followers(cluster: pyreplog.Cluster, topic: str) -> None:
    """Of the nodes with a copy only the leader of ``topic`` is up."""
    leader = cluster.leader(topic)
    for node in cluster.nodes[:3]:
        if node is not leader:
            node.kill()


@pytest.mark.one_voter
def test_a_producer_that_nobody_asks(
    cluster: pyreplog.Cluster, create: Callable[..., str], said: Callable[[], list[str]]
) -> None:
    """How many records were not acknowledged, and why the first was not. Who was told by an Ack is not told
    again."""
    topic = create(min_insync_replicas="2")
    with cluster.producer() as producer:
        producer.send(topic, b"fine")
    assert said() == []
    without_followers(cluster, topic)
    with cluster.producer(delivery_timeout_ms=100) as producer:
        producer.send_many(topic, [b"lost"] * 3)
    told = said()
    assert len(told) == 1
    assert (
        f"a producer of the cluster {cluster.path!r}: 3 records were not acknowledged, and no caller read why:"
        " NotEnoughReplicas" in told[0]
    )
    with cluster.producer(delivery_timeout_ms=100) as producer:
        with pytest.raises(pyreplog.NotEnoughReplicasError):
            producer.send(topic, b"lost").result(10)
        with pytest.raises(pyreplog.NotEnoughReplicasError):
            producer.send_many(topic, [b"lost"]).result(10)
        assert isinstance(producer.send(topic, b"lost").exception(10), pyreplog.NotEnoughReplicasError)
        assert said() == []
        shown = producer.send(topic, b"lost")
        producer.flush()
        assert "Ack failed" in repr(shown)
        assert shown.offset is None
        producer.close()
        assert "1 record was not acknowledged" in said()[0], "to look is not to ask"
        producer.close()
    assert said() == []


def test_a_producer_of_an_event_loop(tmp_path: Path, said: Callable[[], list[str]]) -> None:
    """The same; awaiting an Ack is asking it, before and after it fails."""

    async def main() -> None:
        async with aio.Cluster(tmp_path / "data", nodes=4, roles={4: "controller"}) as cluster:
            await cluster.admin.create_topic("t", config={"durability": "os", "min.insync.replicas": 2})
            leader = await cluster.leader("t")
            for node in cluster.nodes[:3]:
                if node is not leader:
                    await node.kill()
            async with cluster.producer(delivery_timeout_ms=100) as producer:
                await producer.send("t", b"lost")
            assert "1 record was not acknowledged" in said()[0]
            async with cluster.producer(delivery_timeout_ms=100) as producer:
                ack = await producer.send("t", b"lost")
                with pytest.raises(pyreplog.NotEnoughReplicasError):
                    await ack
                ack = await producer.send("t", b"lost")
                await producer.flush()
                with pytest.raises(pyreplog.NotEnoughReplicasError):
                    await ack
            assert said() == []

    asyncio.run(main())


def opened(disk: SimDisk) -> pyreplog.Log:
    """The log ``events`` there. No thread of its own writes what was gathered: who waits does."""
    log = pyreplog.open_log("/data/events", disk=disk)
    assert log._writer is not None
    log._writer._background.stop()
    return log


def test_a_log_that_nobody_asks(said: Callable[[], list[str]]) -> None:
    """What ``append_nowait`` and ``wait=False`` took and the disk did not."""
    disk = SimDisk()
    with opened(disk) as log:
        disk.fail("write", "*.log", error=errno.ENOSPC)
        log.append_nowait(b"lost")
        log.append_nowait(b"lost")
        log.append(b"kept")
    told = said()
    assert len(told) == 1
    assert told[0].startswith(
        "the log '/data/events': 2 records were not acknowledged, and no caller read why: StorageError: [Errno 28]"
    )
    with opened(disk) as log:
        disk.fail("write", "*.log", error=errno.ENOSPC)
        acks = log.append_many([b"lost"], wait=False)
        with pytest.raises(pyreplog.StorageError):
            acks.result(10)
        disk.fail("write", "*.log", error=errno.ENOSPC)
        log.append_nowait(b"lost")
        with pytest.raises(pyreplog.StorageError):
            log.flush()
    assert said() == []
    log = opened(disk)
    disk.fail("sync", "*.log", times=None)
    log.append_nowait(b"lost?")
    with pytest.raises(pyreplog.StorageError):
        log.append(b"lost?")
    log.close()
    assert "1 record was not acknowledged, and no caller read why: UnsyncedError" in said()[0]


def test_very_many_failures_are_counted() -> None:
    """One by one only so many are remembered; of those that were asked for none is counted."""
    failures = Failures()
    outcomes = [BatchResult(None, "t", 0) for _ in range(500)]
    for number, outcome in enumerate(outcomes):
        outcome.asked = number % 2 == 1
        failures.note(outcome, 2)
        outcome.fail(ValueError(number))
    count, first = failures.unheard()
    assert count == 500
    assert isinstance(first, ValueError)
    assert first.args == (0,)
    assert len(failures._recent) <= 64
    outcomes[-2].asked = True
    assert failures.unheard()[0] == 498
    assert Failures().unheard() == (0, None)
