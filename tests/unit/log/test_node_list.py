"""``replog.nodes``: which roots a cluster's folder stands for if it lists them."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.errors import CorruptError
from pyreplog.log import LogRoot, find_logs, read_cluster, read_nodes, write_cluster, write_nodes
from pyreplog.log.node_list import format_nodes, parse_nodes
from pyreplog.testing import SimClock, SimDisk
from pyreplog.verify.nodes import listed

CLUSTER_ID = "Vkeo9ZaN7jZN1l8YEOqZQA"


def _node(disk: SimDisk, path: str, number: int) -> None:
    """A root of node ``number``, without a partition."""
    LogRoot.open(disk, path, clock=SimClock(), random=Random(number), node_id=number, cluster_id=CLUSTER_ID).close()


def test_only_the_listed_roots_count() -> None:
    """The list decides, wherever its folders are: a node beside it is foreign, and one that is missing is told."""
    disk = SimDisk(Random(1))
    for path, number in (("/disk1/n1", 1), ("/data/near", 2), ("/data/node-3", 3)):
        _node(disk, path, number)
    write_nodes(disk, "/data", {1: "/disk1/n1", 2: "/data/near", 3: "/disk3/n3"})
    found = find_logs(disk, "/data")
    assert [[root.path for root in log.roots] for log in found.logs] == [["/disk1/n1", "/data/near"]]
    assert (found.logs[0].name, found.foreign) == (".", ["/data/node-3"])
    assert listed(disk, "/data") == read_nodes(disk, "/data")


def test_a_node_names_its_cluster() -> None:
    """In a node's folder the file names the cluster's, and the folder stays a root of its own for its readers."""
    disk = SimDisk(Random(1))
    _node(disk, "/disk1/n1", 1)
    assert read_cluster(disk, "/disk1/n1") == ""
    write_cluster(disk, "/disk1/n1", "/data")
    assert (read_cluster(disk, "/disk1/n1"), read_nodes(disk, "/disk1/n1")) == ("/data", {})
    assert [root.path for root in find_logs(disk, "/disk1/n1").logs[0].roots] == ["/disk1/n1"]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"version": "2", "node.000000001": '"a"'},
        {"version": "1"},
        {"version": "1", "node.000000002": '"a"'},
        {"version": "1", "node.1": '"a"'},
        {"version": "1", "node.000000001": '"a"', "cluster": '"/b"'},
        {"version": "1", "node.000000001": "1"},
        {"version": "1", "node.000000001": '"a'},
        {"version": "1", "node.000000001": '"../a"'},
        {"version": "1", "node.000000001": '""'},
        {"version": "1", "other": '"a"'},
    ],
)
def test_lists_that_cannot_be(values: dict[str, str]) -> None:
    """A list of another version, with a gap, another name or what is no folder is damaged."""
    with pytest.raises(CorruptError, match="list of nodes"):
        parse_nodes(values, "x")
    assert parse_nodes(format_nodes({1: "a"}), "x") == ({1: "a"}, "")
