"""What a caller is told to whom a cluster cannot answer, or who names what it does not have; and what a timeout may
be, everywhere."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pyreplog
from pyreplog import aio
from pyreplog.runtime.error_advice import Advice

NOBODY = r"no node of the cluster answers\. cluster\.nodes\[0\]\.restart\(\)"


def test_nobody_answers(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """With every node dead, each question ends after the time that was asked for, with a typed error that says who
    and what to do."""
    topic = create()
    with cluster.producer() as producer:
        producer.send(topic, b"x").result(10)
    reader = cluster.consumer(topic)
    for node in cluster.nodes:
        node.kill()
    for ask, words in (
        (lambda: cluster.consumer(topic, timeout=0.05), "topic 'events' not known after 0.05 s"),
        (lambda: reader.assign([topic, "other"], timeout=0.05), "topic 'other' not known after 0.05 s"),
        (lambda: reader.position(topic, 0, timeout=0.05), "the position in events-0 not known"),
        (lambda: reader.start_offset(topic, 0, timeout=0.05), "the first offset of events-0 not known"),
        (lambda: reader.end_offset(topic, 0, timeout=0.05), "the end of events-0 not known"),
        (lambda: reader.seek(topic, 0, timestamp=0, timeout=0.05), "an offset by time of events-0 not known"),
    ):
        with pytest.raises(pyreplog.RequestTimedOutError, match=f"{words}.*{NOBODY}") as late:
            ask()
        assert isinstance(late.value, TimeoutError)
    assert len(reader._machine._lookups.unsent) == 1, (
        "what finds out where to begin; nobody waits for the others any more"
    )
    assert reader.assignment == [(topic, 0)]


def test_nobody_leads(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """What is sent to a partition whose replicas are all dead is refused, in the end, with an error that has a name
    and may pass."""
    topic = create()
    with cluster.producer(delivery_timeout_ms=300) as producer:
        producer.send(topic, b"x").result(10)
        for node in cluster.nodes:
            node.kill()
        with pytest.raises(pyreplog.LeaderNotAvailableError, match=rf"no leader: {topic}-0") as refused:
            producer.send(topic, b"y").result(10)
    assert refused.value.retriable


@pytest.mark.one_voter
def test_nobody_may_lead(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Who alone has what was acknowledged is away, or has lost it: who waits hears who that is, and what a person
    may do."""
    topic = create(min_insync_replicas="1", durability="sync")
    leader = cluster.leader(topic)
    assert leader is not None
    others = [node for node in cluster.nodes[:3] if node is not leader]
    with cluster.producer() as producer:
        for node in others:
            node.kill()
        producer.send(topic, b"x").result(30)
        leader.kill()
        for node in others:
            node.restart()
    elect = (
        rf"cluster\.admin\.elect_leaders\('{topic}', \[0\], unclean=True\) has another lead, and says what that loses"
    )
    reader = cluster.consumer(topic)
    number = leader.node_id

    def awaited(*eligible: int) -> bool:
        image = cluster._controller.image
        partition = image.topics[image.topic_ids[topic]].partitions[0]
        return partition.leader == -1 and (*partition.isr, *partition.elr) == eligible

    assert cluster._driver.wait_until(lambda: awaited(number), 30)
    with pytest.raises(pyreplog.RequestTimedOutError) as late:
        reader.end_offset(topic, 0, timeout=0.05)
    alone = (
        f"it has no leader: only node {number} is known to have all that was acknowledged, and node {number} is"
        " down\\. "
    )
    restart = rf"cluster\.nodes\[{number - 1}\]\.restart\(\) starts node {number}; if that is in vain, "
    assert re.search(alone + restart + elect, str(late.value))

    (segment,) = Path(leader.path).glob(f"{topic}-0/*.log")
    segment.write_bytes(bytes(segment.stat().st_size))
    leader.restart()
    assert cluster._driver.wait_until(awaited, 30)
    with pytest.raises(pyreplog.RequestTimedOutError) as late:
        reader.end_offset(topic, 0, timeout=0.05)
    nobody = f"it has no leader, and no node is known to have all that was acknowledged: {elect}"
    assert re.search(nobody, str(late.value))
    with pytest.raises(pyreplog.RequestTimedOutError) as late:
        reader.position(topic, 0, timeout=0.05)
    assert re.search(nobody, str(late.value))
    with cluster.producer(delivery_timeout_ms=300) as producer:
        refused = producer.send(topic, b"y").exception(30)
        assert isinstance(refused, pyreplog.RequestTimedOutError | pyreplog.LeaderNotAvailableError)
        assert (
            f"admin.describe('{topic}') says in isr and elr which nodes may lead it; if none of them comes back"
            in str(refused)
        )
        assert cluster.admin.elect_leaders(topic, unclean=True)[0].lost
    with cluster.producer() as producer:
        assert producer.send(topic, b"y").result(30).offset == 0


def test_a_first_send_waits_as_long_as_it_was_told(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """No longer than ``delivery_timeout_ms``, nor than ``max_block_ms``."""
    topic = create()
    for node in cluster.nodes:
        node.kill()
    for delivery_ms, block_ms in ((60, 10_000), (30_000, 60), (30_000, 0)):
        with cluster.producer(delivery_timeout_ms=delivery_ms, max_block_ms=block_ms) as producer:
            started = time.monotonic()
            with pytest.raises(
                pyreplog.RequestTimedOutError, match=f"nothing was sent: topic 'events' not known after 0.*{NOBODY}"
            ):
                producer.send(topic, b"x")
            assert time.monotonic() - started < 5
    with pytest.raises(pyreplog.ConfigError, match="max_block_ms is -1"):
        cluster.producer(max_block_ms=-1)


def test_some_are_down(cluster: pyreplog.Cluster) -> None:
    """The text names the nodes that are, and how to start one."""
    cluster.admin.create_topic("narrow", replication_factor=1, config={"durability": "os"})
    leader = cluster.leader("narrow")
    assert leader is not None
    leader.kill()
    with cluster.consumer("narrow") as consumer:
        restart = (
            rf".*node {leader.node_id} is down.*cluster\.nodes\[{leader.node_id - 1}\]\.restart\(\) starts node"
            rf" {leader.node_id}"
        )
        with pytest.raises(
            pyreplog.RequestTimedOutError, match=f"the end of narrow-0 not known after 0.1 s: {restart}"
        ):
            consumer.end_offset("narrow", 0, timeout=0.1)
        leader.restart()
        assert consumer.end_offset("narrow", 0) == 0


def test_what_a_disk_said_is_heard() -> None:
    """Where the controller cannot write either, nobody is fenced: the text is not that every node is up."""
    nodes: Any = [
        SimpleNamespace(node_id=1, ready=True, failure=None, _is_broker=True),
        SimpleNamespace(
            node_id=2,
            ready=True,
            _is_broker=True,
            failure=pyreplog.StorageError(errno.EROFS, "Read-only file system while writing", "x"),
        ),
    ]
    late = Advice(nodes, tuple, lambda of: None, lambda topic: {}).late(
        "the end of events-0", 1.0, pyreplog.TopicPartition("events", 0)
    )
    assert (
        "node 2: [Errno 30] Read-only file system while writing: 'x'. restart() has a node try its disk again"
        in str(late)
    )


def test_names_that_are_nearly_right(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Whoever names a topic that is not there hears of the one that was meant, or of those that are there."""
    create("orders")
    with cluster.producer() as producer, cluster.consumer("orders") as consumer:
        for use in (
            lambda: producer.send("ordres", b"x"),
            lambda: producer.send_many("ordres", [b"x"]),
            lambda: producer.partitions("ordres"),
            lambda: cluster.consumer("ordres"),
            lambda: cluster.consumer([("ordres", 0)]),
            lambda: consumer.end_offset("ordres", 0),
            lambda: cluster.leader("ordres"),
            lambda: cluster.scan("ordres"),
            lambda: cluster.admin.describe("ordres"),
            lambda: cluster.admin.delete_records("ordres", {0: 1}),
            lambda: cluster.admin.delete_records("ordres", {}),
            lambda: cluster.admin.elect_leaders("ordres"),
        ):
            with pytest.raises(
                pyreplog.UnknownTopicError, match="'ordres'; admin.create_topic makes one; did you mean 'orders'"
            ):
                use()
        with pytest.raises(pyreplog.UnknownTopicError, match="'xyz'; admin.create_topic makes one; known are orders"):
            cluster.leader("xyz")
        for use in (
            lambda: cluster.leader("orders", 9),
            lambda: consumer.end_offset("orders", 9),
            lambda: cluster.consumer([("orders", 9)]),
            lambda: cluster.admin.delete_records("orders", {9: 0}),
            lambda: cluster.admin.elect_leaders("orders", [9]),
        ):
            with pytest.raises(pyreplog.UnknownTopicError, match="'orders' has partitions 0 to 0, not 9"):
                use()
        with pytest.raises(pyreplog.UnknownTopicError, match="orders-9 is not assigned to this consumer"):
            consumer.position("orders", 9)
        with pytest.raises(pyreplog.TopicExistsError, match=r"^topic exists already: 'orders'; exist_ok=True accepts"):
            cluster.admin.create_topic("orders")


@pytest.mark.one_voter
def test_no_partitions(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Who names none is answered at once, with nothing, and no leader is looked for."""
    topic = create()
    for node in cluster.nodes[:3]:
        node.kill()
    assert cluster.admin.delete_records(topic, {}) == {}
    assert cluster.admin.elect_leaders(topic, []) == {}


@pytest.mark.one_voter
def test_elections_that_cannot_be(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Typed errors with words, where they were Kafka's numbers."""
    create()
    for node in cluster.nodes[:3]:
        node.kill()
    with pytest.raises(
        pyreplog.PreferredLeaderNotAvailableError, match="the preferred leader is down or not in sync: events-0"
    ) as refused:
        cluster.admin.elect_leaders("events")
    assert refused.value.code == 80
    with pytest.raises(pyreplog.EligibleLeadersNotAvailableError, match="no replica that could lead is up: events-0"):
        cluster.admin.elect_leaders("events", unclean=True)


BAD_TIMES = (-1, -0.5, math.nan, -math.inf, "1", b"1", [1.0], 1j)


@pytest.mark.parametrize("bad", BAD_TIMES, ids=repr)
def test_timeouts_that_are_none(
    bad: Any, cluster: pyreplog.Cluster, create: Callable[..., str], tmp_path: Path
) -> None:
    """Below 0, nan, and what is no number are a ConfigError wherever seconds are asked for; nothing is closed by
    it."""
    topic = create()
    with (
        pyreplog.open_log(tmp_path / "log", durability="os") as log,
        cluster.producer() as producer,
        cluster.consumer(topic) as consumer,
    ):
        ack = producer.send(topic, b"x")
        ack.result(10)
        acks = producer.send_many(topic, [b"x"])
        for use in (
            lambda: ack.result(bad),
            lambda: ack.exception(bad),
            lambda: acks.wait(bad),
            lambda: acks.result(bad),
            lambda: log.append_many([], wait=False).wait(bad),
            lambda: log.append_nowait(b"x").result(bad),
            lambda: log.follow(timeout=bad),
            lambda: producer.flush(bad),
            lambda: producer.close(bad),
            lambda: consumer.poll(bad),
            lambda: consumer.position(topic, 0, timeout=bad),
            lambda: consumer.end_offset(topic, 0, timeout=bad),
            lambda: consumer.seek(topic, 0, timestamp=0, timeout=bad),
            lambda: cluster.consumer(topic, timeout=bad),
            lambda: cluster.admin.create_topic("new", timeout=bad),
            lambda: cluster.nodes[0].stop(bad),
            lambda: cluster.nodes[0].restart(bad),
            lambda: cluster.close(bad),
        ):
            with pytest.raises(pyreplog.ConfigError, match="timeout is .*; it must be seconds from 0, or None"):
                use()
        assert producer.send(topic, b"fine").result(10).offset == 2
        assert all(node.ready for node in cluster.nodes)


def test_timeouts_that_never_pass_and_those_that_do_not_wait(
    cluster: pyreplog.Cluster, create: Callable[..., str], tmp_path: Path
) -> None:
    """None and infinity wait for ever, as does what is longer than any clock; 0 does not wait."""
    topic = create()
    for forever in (None, math.inf, 1e300, 10**9):
        with (
            pyreplog.open_log(tmp_path / "log") as log,
            cluster.producer() as producer,
            cluster.consumer(topic) as consumer,
        ):
            assert producer.send(topic, b"x").result(forever).topic == topic
            assert producer.send_many(topic, [b"x"]).result(forever)[0].topic == topic
            producer.flush(forever)
            assert consumer.poll(forever)
            assert consumer.end_offset(topic, 0, timeout=forever) >= 2
            assert log.append_nowait(b"x").result(forever).topic == "log"
            assert next(log.follow(timeout=forever)).value == b"x"
            producer.close(forever)
    with pyreplog.open_log(tmp_path / "log") as log, cluster.consumer(topic) as consumer:
        ack = log.append_nowait(b"x")
        with pytest.raises(TimeoutError, match="not on stable storage yet"):
            ack.result(0)
        assert ack.result(10).offset == 4
        consumer.seek_to_end()
        assert consumer.poll(0) == []


def test_timeouts_in_an_event_loop(tmp_path: Path) -> None:
    """The same rule."""

    async def main() -> None:
        async with (
            aio.Cluster(tmp_path / "data", nodes=1) as cluster,
            aio.open_log(tmp_path / "log", durability="os") as log,
        ):
            await cluster.admin.create_topic("events", config={"durability": "os"})
            async with cluster.producer() as producer, cluster.consumer("events") as consumer:
                await (await producer.send("events", b"x"))
                assert len(await consumer.poll(math.inf)) == 1
                assert await consumer.poll(0) == []
                assert await consumer.position("events", 0, timeout=5) == 1
                for bad in (-1, math.nan, "x"):
                    for use in (
                        lambda bad=bad: consumer.poll(bad),
                        lambda bad=bad: consumer.end_offset("events", 0, timeout=bad),
                        lambda bad=bad: producer.flush(bad),
                        lambda bad=bad: producer.close(bad),
                        lambda bad=bad: cluster.close(bad),
                        lambda bad=bad: anext(log.follow(timeout=bad)),
                    ):
                        with pytest.raises(pyreplog.ConfigError, match="timeout is"):
                            await use()
                assert (await (await producer.send("events", b"y"))).offset == 1

    asyncio.run(main())


def in_child(act: Callable[[], None]) -> bool:
    """Whether ``act`` raises ForkedError in a fork of this process."""
    pid = os.fork()
    if not pid:
        try:
            act()
        except pyreplog.ForkedError as error:
            os._exit(0 if "belongs to the parent process" in str(error) and "of its own" in str(error) else 3)
        except BaseException:
            os._exit(2)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_child_is_told_that_it_is_one(cluster: pyreplog.Cluster, create: Callable[..., str]) -> None:
    """Whatever of its parent's cluster it uses."""
    topic = create()
    admin, consumer = cluster.admin, cluster.consumer(topic)
    for act in (
        lambda: admin.topics(),
        lambda: cluster.admin.topics(),
        lambda: cluster.scan(topic),
        lambda: cluster.leader(topic),
        lambda: cluster.producer(),
        lambda: cluster.consumer(topic),
        lambda: consumer.poll(1),
        lambda: consumer.end_offset(topic, 0),
        lambda: cluster.nodes[0].kill(),
    ):
        assert in_child(act)  # type: ignore[arg-type]
    assert cluster.admin.topics() == [topic]
