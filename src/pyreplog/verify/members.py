"""The partitions that a cluster's controller names, against the folders that are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyreplog.ports import Disk
from pyreplog.verify import states
from pyreplog.verify.findings import Book
from pyreplog.verify.folder import read_file
from pyreplog.verify.logs import OneLog, look_around
from pyreplog.verify.states import Unreadable

_BRING_BACK: Final = "mount the disk of the missing node, or put its folder back; `replog repair` saves what is left into a new folder"
_ROW_MIN: Final = 4


def check_members(disk: Disk, home: str, logs: Sequence[OneLog], book: Book) -> None:
    """Report each partition that the controller's state in the folder ``home`` names and that no in-sync replica holds in ``logs``."""
    for (topic, partition), why in _absent(disk, home, logs).items():
        book.damage(f"{home}/{states.CONTROLLER}", f"{topic}-{partition} {why}", _BRING_BACK)


def absent_partitions(disk: Disk, path: str) -> dict[tuple[str, int], str]:
    """The partitions of the cluster in ``path`` that are not there whole by its controller's state, each with the reason."""
    path = path.rstrip("/") or "/"
    return _absent(disk, path, look_around(disk, path).logs)


def _absent(disk: Disk, home: str, logs: Sequence[OneLog]) -> dict[tuple[str, int], str]:
    try:
        data = read_file(disk, f"{home}/{states.CONTROLLER}")
        fields = {} if data is None else states.controller(data)
    except Unreadable:
        return {}  # the look at the controller's state reports it
    mine = [log for log in logs if log.roots[0].cluster is not None and log.roots[0].cluster == fields.get("cluster_id")]
    if not mine and any(log.roots[0].cluster for log in logs):
        return {}  # as above: it is another cluster's
    nodes = {root.path: root.node for log in mine for root in log.roots}
    earlier = {folder for log in mine for folder in log.earlier}
    found: dict[tuple[str, int], str] = {}
    for topic, partition, replicas, in_sync in _named(fields):
        folders = [folder for log in mine for folder in log.partitions.get((topic, partition), ()) if folder not in earlier]
        holders = {nodes[folder.rpartition("/")[0]] for folder in folders}
        there = sorted(node for node in holders if node is not None)
        if not folders:
            found[topic, partition] = f"has no folder: its copies are on node {_text(replicas)}"
        elif there and in_sync and holders.isdisjoint(in_sync):
            found[topic, partition] = (
                f"has no copy of an in-sync replica: the in-sync replicas are on node {_text(in_sync)}, "
                f"and the copy on node {_text(there)} may lack acknowledged records"
            )
    return found


def _named(fields: dict[str, Any]) -> list[tuple[str, int, list[int], list[int]]]:
    """(topic, partition, replicas, in-sync and eligible replicas) of each partition, as far as the state says them."""
    named = []
    for topic in fields.get("topics") or ():
        for row in (topic.get("partitions") or ()) if isinstance(topic, dict) else ():
            if isinstance(row, list) and len(row) >= _ROW_MIN and all(isinstance(one, list) for one in row[1:4]):
                named.append((str(topic.get("name")), row[0], row[1], [*row[2], *row[3]]))
    return named


def _text(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))
