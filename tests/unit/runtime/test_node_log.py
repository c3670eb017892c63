"""What nodes tell the application's log, and what a node says of itself."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from pyreplog import NodeConfig
from pyreplog.testing import BreakableCluster

PAGE = Path(__file__).parents[3] / "docs/guide/logging.md"
QUICK = NodeConfig(session_timeout_ms=600, heartbeat_interval_ms=50, replica_lag_time_max_ms=400)


NAMES = {"TOPIC-P": r"[\w-]+-\d+", "NODES": r"\[[\d, ]*\]", "NODE": r"\d+", "EPOCH": r"\d+", "REASON": r".+"}


def told() -> dict[tuple[str, str], re.Pattern[str]]:
    """The rows of the guide's table of events, (level, message), and a pattern of the message."""
    rows = re.findall(r"^\| (INFO|DEBUG) \| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    split = re.compile(f"({'|'.join(NAMES)})")
    return {
        row: re.compile("".join(NAMES.get(part) or re.escape(part) for part in split.split(row[1]))) for row in rows
    }


def test_the_table_of_the_guide_is_what_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each row is logged when a node is killed, fenced and comes back, and nothing else is at INFO and DEBUG."""
    caplog.set_level(logging.DEBUG, "pyreplog.node")
    patterns = told()
    assert len(patterns) == 8
    with BreakableCluster(tmp_path, nodes=2, config=QUICK) as cluster:
        cluster.admin.create_topic("t", partitions=1, replication_factor=2, config={"min.insync.replicas": 2})
        with cluster.producer() as producer, cluster.consumer("t") as consumer:
            producer.send("t", b"a").result(20)
            assert len(consumer.poll(20)) == 1
            found = cluster.leader("t", 0)
            assert found is not None
            leader = found.node_id
            cluster.kill(leader)
            ack = producer.send("t", b"b")
            consumer.poll(0.2)
            cluster.kill(3 - leader)
            cluster.restart(leader)
            cluster.restart(3 - leader)
            ack.result(20)
            assert len(consumer.poll(20)) == 1
    seen = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "pyreplog.node"]
    seen = [entry for entry in seen if entry[0] in ("INFO", "DEBUG")]
    for level, message in seen:
        assert any(row[0] == level and pattern.fullmatch(message) for row, pattern in patterns.items()), (
            level,
            message,
        )
    for row, pattern in patterns.items():
        assert any(row[0] == level and pattern.fullmatch(message) for level, message in seen), (row, seen)


def test_a_node_says_how_it_is(tmp_path: Path) -> None:
    """``state`` and ``repr`` name a node that is down, paused, fenced or offline, not only one that is ready."""
    with BreakableCluster(tmp_path, nodes=3, config=QUICK) as cluster:
        node = cluster.nodes[1]

        def state() -> str:
            return node.state

        assert (state(), node.ready) == ("ready", True)
        cluster.pause(2)
        assert state() == "paused"
        assert repr(node).endswith(", paused>")
        cluster.resume(2)
        cluster.admin.create_topic("t")
        cluster.partition([2], [1, 3, "controller"])
        assert cluster._driver.wait_until(lambda: state() == "fenced", 20)
        assert repr(node).endswith(", fenced>")
        cluster.heal()
        assert cluster._driver.wait_until(lambda: state() == "ready", 20)
        cluster.kill(2)
        assert repr(node).endswith(", down>")
        cluster.restart(2)
        assert state() == "ready"
