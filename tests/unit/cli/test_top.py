"""``replog top``, ``describe --html`` and ``topics --under-replicated``: a cluster as its folders say it is."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

import pyreplog
from pyreplog.cli import top
from pyreplog.cli.cluster_page import page_of
from pyreplog.cli.cluster_text import node_lines, partition_lines, trouble_lines
from pyreplog.cli.options import Parser
from pyreplog.runtime import StoredCluster, StoredNode, StoredPartition, StoredReplica, StoredState
from tests.unit.cli.support import Replog, Terminal


class Page(HTMLParser):
    """Collects the cells of a page, and checks that its tags are closed in order and name nothing outside."""

    VOID = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[tuple[str, str]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        assert tag not in ("script", "link", "img", "iframe")
        assert not {"src", "href", "onload"} & {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append((dict(attrs).get("class") or "", ""))

    def handle_endtag(self, tag: str) -> None:
        """Close the element that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Add to the present cell."""
        if {"td", "th"} & set(self.open):
            kind, text = self.rows[-1][-1]
            self.rows[-1][-1] = (kind, text + data)


@pytest.fixture
def lame(tmp_path: Path) -> Iterator[pyreplog.Cluster]:
    """A running cluster of four nodes, the last of which only votes; node 3 is down and lacks two records of orders."""
    with pyreplog.Cluster(tmp_path / "data", nodes=4, roles={4: "controller"}) as cluster:
        for name in ("orders", "whole"):
            replicas = 3 if name == "orders" else 1
            cluster.admin.create_topic(name, replication_factor=replicas, config={"durability": "os"})
        with cluster.producer() as producer:
            producer.send("orders", b"first").result()
            cluster._driver.wait_until(cluster._nodes.followers_know_ends, 10)
            number = next(number for number in (3, 2) if not cluster.node(number).leads("orders"))
            cluster.node(number).kill()
            producer.send("orders", b"second").result()
            producer.send("orders", b"third").result()
        cluster._driver.wait_until(
            lambda: all(
                hosted.log.high_watermark == hosted.log.end_offset
                for node in cluster.nodes
                if node._node is not None
                for hosted in node._node.hosted.values()
            ),
            10,
        )
        yield cluster


def test_top_once(lame: pyreplog.Cluster, replog: Replog) -> None:
    """One picture beside the running cluster: nodes, then partitions, those that lack something first."""
    done = replog("top", "--once", lame.path)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith(f"{lame.path}  cluster id {lame.cluster_id}")
    assert "2 of 3 nodes online, 1 of 1 voter whole" in lines[1]
    assert lines[2] == "0 partitions without a leader, 0 below min.insync.replicas, 1 under-replicated, 1 whole"
    assert lines[4].split() == ["node", "state", "votes", "leads", "in", "sync", "replicas", "metadata"]
    states = [line.split()[1] for line in lines[5:9]]
    assert sorted(states) == ["fenced", "online", "online", "voter"]
    assert lines[10].split()[:3] == ["partition", "leader", "epoch"]
    assert "node 4" not in lines[10]
    assert lines[11].startswith("orders-0")
    assert "* 3/3" in lines[11]
    assert "= 3/3" in lines[11]
    assert "- 1/1 behind 2 down" in lines[11]
    assert lines[12].startswith("whole-0")


def test_under_replicated(lame: pyreplog.Cluster, replog: Replog) -> None:
    """The partitions that lack a replica, with the node and how far it is behind; a whole cluster has none."""
    done = replog("topics", "--under-replicated", lame.path)
    down = next(node.node_id for node in lame.nodes if not node.alive)
    first, second = done.out.splitlines()
    assert first.startswith("orders-0 is under-replicated: 3 replicas, in sync on node ")
    assert second == f"  node {down}: down, 2 offsets behind"
    (row,) = replog("topics", "--under-replicated", "--json", lame.path).objects()
    assert (row["kind"], row["topic"], row["min_isr"]) == ("under_replicated", "orders", 2)
    assert [one["lag"] for one in row["replicas"] if one["trouble"] == "down"] == [2]
    lame.node(down).restart()
    assert lame._driver.wait_until(lambda: lame._controller.counts.isr_expansions > 0, 10)
    assert replog("topics", "--under-replicated", lame.path).out == ""


def test_a_page(lame: pyreplog.Cluster, replog: Replog, tmp_path: Path) -> None:
    """The page has a column for each node with partitions, a row for each partition, and a colour for each state."""
    file = tmp_path / "page.html"
    done = replog("describe", "--html", file, lame.path)
    assert (done.code, done.out) == (0, "")
    assert "2 partitions on 4 nodes" in done.err
    page = Page(file.read_text())
    head, orders, whole = page.rows[:3]
    assert [text[:6] for _, text in head[2:]] == ["node 1", "node 2", "node 3"]
    assert orders[0][0] == "under_replicated"
    assert sorted(kind for kind, _ in orders[2:]) == ["gone", "insync", "leader"]
    assert whole[0] == ("", "whole-0")
    assert sorted(kind for kind, _ in whole[2:]) == ["leader", "none", "none"]
    assert replog("describe", "--html", file, "--topic", "orders", lame.path).code == 2
    assert replog("describe", "--html", file, "--json", lame.path).code == 2
    refused = replog("describe", "--html", tmp_path / "none" / "page.html", lame.path)
    assert (refused.code, refused.err.count("\n")) == (1, 1)


def test_refresh(lame: pyreplog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal each picture takes the place of the last one, within the screen; elections are counted."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((60, 13)))
    looks = 0

    def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            leader = lame.leader("orders")
            assert leader is not None
            leader.kill()
            assert lame._driver.wait_until(lambda: lame._controller.counts.elections > 0, 10)
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    parser = Parser()
    top.add_arguments(parser)
    with pytest.raises(KeyboardInterrupt):
        top.run(parser.parse_args([lame.path]))
    _, first, second = screen.getvalue().split("\x1b[H")
    for picture in (first, second):
        lines = picture.splitlines()
        assert len(lines) <= 13
        assert all(len(line.removesuffix("\x1b[K").removesuffix("\x1b[J")) < 60 for line in lines)
        assert "and 2 partitions more" in picture
    shown = StoredCluster(lame.path)
    try:
        found = shown.look()
    finally:
        shown.close()
    assert found.count("offline") + found.count("under_min_isr") >= 1


def test_without_a_terminal_pictures_follow_one_another(
    lame: pyreplog.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written to a file, each picture is complete, and no control code is among them."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    pauses: list[float] = []

    def sleep(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    parser = Parser()
    top.add_arguments(parser)
    with pytest.raises(KeyboardInterrupt):
        top.run(parser.parse_args([lame.path, "--interval", "0"]))
    assert out.getvalue().count("0 elections since the start") == 2
    assert "\x1b" not in out.getvalue()
    assert min(pauses) > 0


def test_folders_that_are_none(replog: Replog, events: Path, tmp_path: Path) -> None:
    """A log, an empty folder or none at all is refused in one line, by each of the three."""
    (tmp_path / "empty").mkdir()
    for path in (events, tmp_path / "empty", tmp_path / "none"):
        for words in (("top", "--once"), ("topics", "--under-replicated"), ("describe", "--html", tmp_path / "p")):
            done = replog(*words, path)
            assert (done.code, done.out) == (1, ""), words
            assert done.err.count("\n") == 1


def test_after_the_end(lame: pyreplog.Cluster, replog: Replog) -> None:
    """A closed cluster is shown as its folders are, also with a node's folder gone or a copy's files damaged."""
    path = Path(lame.path)
    lame.close()
    (path / "node-1").rename(path.parent / "aside")
    (path / "node-2" / "orders-0" / "00000000000000000000.log").write_bytes(b"\xff" * 40)
    done = replog("top", "--once", path)
    assert done.code == 0
    lines = done.out.splitlines()
    assert any(line.split()[:2] == ["1", "missing"] for line in lines)
    (orders,) = [line for line in lines if line.startswith("orders-0")]
    assert "! the node's folder is missing" in orders


def _state() -> StoredState:
    copies = (
        StoredReplica(1, is_leader=True, in_sync=True, log_end=9, high_watermark=8, lag=0, trouble=""),
        StoredReplica(2, is_leader=False, in_sync=False, log_end=4, high_watermark=4, lag=5, trouble=""),
        StoredReplica(
            3, is_leader=False, in_sync=False, log_end=None, high_watermark=None, lag=None, trouble="<i>gone"
        ),
    )
    nodes = tuple(StoredNode(number, "online", "<r>", True, 1, 1, 1, 7 - number) for number in (1, 2, 3))
    return StoredState(
        "/<data>", "id", 1, 6, 3, 0, nodes, (StoredPartition("a&b", 0, 1, 4, 2, "under_min_isr", copies),)
    )


def test_texts_are_safe() -> None:
    """Names that are markup are shown as text; racks and missing metadata have their place."""
    text = page_of(_state(), datetime(2026, 1, 1, tzinfo=UTC))
    assert "<i>gone" not in text.replace("&lt;i&gt;", "")
    assert "<r>" not in text
    assert "/<data>" not in text
    page = Page(text)
    assert page.rows[1][0] == ("under_min_isr", "a&b-0under min isr")
    assert [kind for kind, _ in page.rows[1][2:]] == ["leader", "behind", "gone"]
    assert "rack <r>" in page.rows[0][2][1]
    cells = partition_lines(_state(), _state().partitions)[1]
    assert cells.split("  ")[-1] == "! <i>gone"
    assert "* 8/9 " in cells
    assert "- 4/4 behind 5" in cells
    assert node_lines(_state())[2].endswith("5 (-1)")
    assert trouble_lines(_state().partitions[0]) == [
        "a&b-0 is below min.insync.replicas, which is 2: 3 replicas, in sync on node 1",
        "  node 2: 5 offsets behind",
        "  node 3: <i>gone",
    ]
