"""A real cluster whose nodes, links and disks break on demand: what each control does, and that nothing
acknowledged is lost by any."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyreplog.config import NodeConfig
from pyreplog.errors import ConfigError, PyreplogError
from pyreplog.testing import BreakableCluster

FAST = NodeConfig(session_timeout_ms=500, heartbeat_interval_ms=50, replica_lag_time_max_ms=500)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BreakableCluster]:
    """Three nodes, and the topic "orders" on all of them."""
    with BreakableCluster(tmp_path / "cluster", nodes=3, config=FAST) as cluster:
        cluster.admin.create_topic("orders", partitions=1, replication_factor=3)
        yield cluster


def leader_of(cluster: BreakableCluster) -> int:
    """The number of the node that leads."""
    node = cluster.leader("orders", 0)
    assert node is not None
    return node.node_id


def values(cluster: BreakableCluster, last: bytes) -> list[bytes | None]:
    """What is committed, up to ``last``: a node that just came back may for a moment not know of it."""
    found: list[bytes | None] = []
    with cluster.consumer("orders") as consumer:
        for _ in range(100):
            found.extend(record.value for record in consumer.poll(timeout=0.2))
            if last in found:
                return found
    raise AssertionError(f"{last!r} is not there: {found}")


def send(cluster: BreakableCluster, *sent: bytes) -> None:
    """Send, and wait until all is acknowledged. A node that is paused does not answer: others are asked soon."""
    with cluster.producer(request_timeout_ms=1000) as producer:
        for value in sent:
            producer.send("orders", value).result(20)


def test_kill_and_restart(cluster: BreakableCluster) -> None:
    """The leader dies; others go on with all that was acknowledged; it comes back."""
    send(cluster, b"1")
    first = leader_of(cluster)
    cluster.kill(first)
    send(cluster, b"2")
    assert leader_of(cluster) != first
    cluster.restart(first)
    assert values(cluster, b"2") == [b"1", b"2"]


def test_pause_and_resume(cluster: BreakableCluster) -> None:
    """A paused leader is taken for dead after its session; when it goes on it follows, and knows nothing that was
    not acknowledged."""
    send(cluster, b"1")
    first = leader_of(cluster)
    cluster.pause(first)
    cluster.pause(first)
    send(cluster, b"2")
    cluster.resume(first)
    cluster.resume(first)
    send(cluster, b"3")
    assert values(cluster, b"3") == [b"1", b"2", b"3"]


def test_pause_after_a_paused_node_was_stopped(cluster: BreakableCluster) -> None:
    """It is another life, which goes on, and can be paused like the first."""
    first = leader_of(cluster)
    node = cluster.nodes[first - 1]
    node.pause()
    node.stop(0.1)
    node.restart()
    node.pause()
    assert cluster._driver.wait_until(lambda: cluster._controller.image.brokers[first].fenced, 10.0)
    node.resume()
    assert cluster._driver.wait_until(node._settled, 10.0)


def test_partition_and_heal(cluster: BreakableCluster) -> None:
    """A leader that is cut off from everybody commits nothing; the majority elects another; healed, all agree."""
    send(cluster, b"1")
    first = leader_of(cluster)
    others = [number for number in (1, 2, 3) if number != first]
    cluster.partition([first], [*others, "controller"])
    with cluster.producer(request_timeout_ms=500) as producer:
        assert producer.send("orders", b"2").result(20).offset == 1
    cluster.heal()
    send(cluster, b"3")
    assert values(cluster, b"3") == [b"1", b"2", b"3"]


def test_a_topic_is_not_waited_for_where_nobody_hears_of_it(cluster: BreakableCluster) -> None:
    """Who makes one waits for the nodes that the controller counts on: one that is cut off takes itself for served,
    and hears nothing."""
    first = leader_of(cluster)
    cluster.partition([first], [*(number for number in (1, 2, 3) if number != first), "controller"])
    cluster.admin.create_topic("others", partitions=2, timeout=30)
    assert cluster.nodes[first - 1].ready
    cluster.heal()


def test_one_way_cut(cluster: BreakableCluster) -> None:
    """A follower whose requests are lost leaves the in-sync set; the others go on."""
    send(cluster, b"1")
    first = leader_of(cluster)
    follower = next(number for number in (1, 2, 3) if number != first)
    cluster.cut(follower, first)
    send(cluster, b"2", b"3")
    cluster.heal()
    assert values(cluster, b"3") == [b"1", b"2", b"3"]


def test_slow_disk(cluster: BreakableCluster) -> None:
    """With one slow disk every acknowledgement waits for it, as long as it is in sync."""
    send(cluster, b"1")
    cluster.slow_disk(2, 0.05)
    send(cluster, b"2")
    cluster.heal()
    assert values(cluster, b"2") == [b"1", b"2"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_failing_disk(cluster: BreakableCluster, code: int) -> None:
    """A leader whose disk fails gives up its place, or refuses; nothing acknowledged is lost, and it can be started
    again."""
    send(cluster, b"1")
    first = leader_of(cluster)
    cluster.fail_disk(first, calls=("sync",), errno=code)
    with cluster.producer() as producer:
        try:
            producer.send("orders", b"2").result(20)
        except PyreplogError:
            producer.send("orders", b"2").result(20)
    assert leader_of(cluster) != first
    cluster.heal()
    cluster.restart(first)
    assert values(cluster, b"2")[0] == b"1"


def test_tear(tmp_path: Path) -> None:
    """The power of one machine is cut: what it had not synced is partly gone, and it takes no part in deciding
    before it caught up."""
    with BreakableCluster(tmp_path / "cluster", nodes=3, config=FAST, seed=3) as cluster:
        cluster.admin.create_topic("orders", partitions=1, replication_factor=3, config={"durability": "os"})
        sent = [b"%d" % number for number in range(200)]
        send(cluster, *sent)
        first = leader_of(cluster)
        lost = cluster.tear(first)
        assert lost > 0
        send(cluster, b"after")
        cluster.restart(first)
        assert values(cluster, b"after") == [*sent, b"after"]


def test_who_is_not_there(cluster: BreakableCluster) -> None:
    """A node by a wrong number is a ConfigError that says how they are numbered."""
    with pytest.raises(ConfigError, match="numbered from 1 to 3"):
        cluster.kill(0)
    with pytest.raises(ConfigError, match="no node '1'"):
        cluster.kill("1")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no node 4"):
        cluster.slow_disk(4, 1.0)


def test_no_fault_is_left_out_in_silence(cluster: BreakableCluster) -> None:
    """A test that breaks nothing proves nothing: what names no link and no call is refused."""
    with pytest.raises(ConfigError, match="there is no address 'the-controller'; did you mean 'controller'"):
        cluster.cut(1, "the-controller")
    with pytest.raises(ConfigError, match="no node 4"):
        cluster.partition([1, 2], [3, 4])
    with pytest.raises(ConfigError, match="node-2 is in two groups"):
        cluster.partition([1, 2], [2, 3])
    alone: list[list[list[int | str]]] = [[], [[1]], [[1, 2], []]]
    for groups in alone:
        with pytest.raises(ConfigError, match="partition takes two groups or more"):
            cluster.partition(*groups)
    for one in (1, "node-1"):
        with pytest.raises(
            ConfigError, match="cut takes two different members: there is no link from node-1 to itself"
        ):
            cluster.cut(1, one)
    for calls in (("fsync",), "sync"):
        with pytest.raises(ConfigError, match="not a disk call that can fail"):
            cluster.fail_disk(1, calls=calls)
    for seconds in ("1", -0.05, None, float("inf"), float("nan"), 1e30):
        with pytest.raises(ConfigError, match="seconds is .*; it must be a number of seconds from 0"):
            cluster.slow_disk(1, seconds)  # type: ignore[arg-type]
    with cluster.producer() as producer:
        cluster.kill(3)
        cluster.partition([1, 3], ["node-2", "controller"])
        cluster.heal()
        producer.send("orders", b"1").result(20)


def test_the_fixture(tmp_path: Path) -> None:
    """pytest finds the fixtures by the plugin; the marker sets the number of nodes, and a setting that there is not
    gets a suggestion."""
    (tmp_path / "test_it.py").write_text(
        """
import asyncio

import pyreplog
import pytest

def test_default(replog_cluster):
    assert len(replog_cluster.nodes) == 3
    replog_cluster.admin.create_topic("t", partitions=1)
    replog_cluster.kill(1)
    with replog_cluster.producer() as producer:
        assert producer.send("t", b"v").result(20).offset == 0

@pytest.mark.replog(nodes=1)
def test_marked(replog_cluster):
    assert len(replog_cluster.nodes) == 1

@pytest.mark.replog(2)
def test_marked_in_short(replog_cluster):
    assert len(replog_cluster.nodes) == 2

@pytest.mark.replog(1, permissions="group")
def test_of_a_group(replog_cluster, tmp_path):
    assert (tmp_path / "replog" / "node-1").stat().st_mode & 0o777 == 0o770

@pytest.mark.replog(node=5)
def test_misspelt(replog_cluster):
    pass

@pytest.mark.replog(nodes=2)
def test_coroutines(aio_replog_cluster):
    async def make():
        await aio_replog_cluster.admin.create_topic("t", partitions=1)
        async with aio_replog_cluster.producer() as producer:
            await (await producer.send("t", b"a"))

    async def read():
        await aio_replog_cluster.kill(1)
        assert [node.state for node in aio_replog_cluster.nodes] == ["down", "ready"]
        await aio_replog_cluster.restart(1)
        async with aio_replog_cluster.consumer("t") as consumer:
            assert [record.value for record in await consumer.poll(20)] == [b"a"]

    asyncio.run(make())  # in one loop after the other, and no plugin
    asyncio.run(read())

def test_one_log(replog_log):
    log = replog_log.open()
    log.append(b"kept")
    for number in range(20):
        log.append_nowait(bytes(100))
    replog_log.fail_disk(["sync"])
    with pytest.raises(pyreplog.PyreplogError):
        log.append(b"lost")
    replog_log.heal()
    with pytest.raises(pyreplog.PyreplogError):
        log.append(b"poisoned")
    replog_log.tear()
    again = replog_log.open()
    assert next(again.read()).value == b"kept"
    assert b"poisoned" not in [record.value for record in again]
    again.append(b"more")

@pytest.mark.replog(permissions="group", seed=1)
def test_one_log_of_a_group(replog_log, tmp_path):
    with replog_log.open() as log:
        log.append(b"x")
    assert (tmp_path / "replog").stat().st_mode & 0o777 == 0o770
"""
    )
    arguments = ["-p", "pytest_replog", "-q", "--strict-markers", "-p", "no:cacheprovider", str(tmp_path)]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # installed or not
    command = [sys.executable, "-m", "pytest", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=alone, check=False)
    assert "7 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "the marker replog has no setting 'node'; did you mean 'nodes'?" in done.stdout
