"""The partitions that a cluster's metadata names, against the folders that are there.

The metadata is in the controller's file of version 0.1 in the cluster's folder, or in the metadata logs of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyreplog.ports import Disk
from pyreplog.verify import states
from pyreplog.verify.findings import Report
from pyreplog.verify.folder import read_file
from pyreplog.verify.logs import OneLog, id_of_topic, look_around
from pyreplog.verify.metadata import METADATA_TOPIC, newest_metadata
from pyreplog.verify.states import Unreadable

_BRING_BACK: Final = (
    "mount the disk of the missing node, or restore its folder; `replog repair` saves the rest into a new folder"
)
_OLD: Final = "put back the latest metadata of this cluster: this one is older than the folders"
_ROW_MIN: Final = 4
_EPOCH: Final = 6
"""Where the leader epoch stands in the row of a partition."""


def check_members(disk: Disk, home: str, logs: Sequence[OneLog], book: Report) -> None:
    """Report each partition that the metadata of the cluster in the folder ``home`` names and that no in-sync replica
    holds in ``logs``."""
    for file, fields in _known(disk, home, logs):
        for (topic, partition), why in _absent(fields, logs).items():
            book.damage(file, f"{topic}-{partition} {why}", _BRING_BACK)


def check_known(disk: Disk, home: str, logs: Sequence[OneLog], book: Report) -> None:
    """Report each folder in ``logs`` that the metadata of the cluster in ``home`` is too old to know: its topic or its
    leader epoch.

    A folder of an earlier topic is one only if the state names another id and a folder has that id; ``logs`` set it
    apart then.
    """
    for _, fields in _known(disk, home, logs):
        _check_known(disk, fields, logs, book)


def _check_known(disk: Disk, fields: dict[str, Any], logs: Sequence[OneLog], book: Report) -> None:
    ids = {
        str(topic.get("name")): str(topic.get("id")) for topic in fields.get("topics") or () if isinstance(topic, dict)
    }
    epochs = {(topic, row[0]): row[_EPOCH] for topic, row in _rows(fields) if len(row) > _EPOCH}
    for log in logs:
        if log.roots[0].cluster is None or log.roots[0].cluster != fields.get("cluster_id"):
            continue
        for (topic, partition), folders in log.partitions.items():
            for folder in folders if topic != METADATA_TOPIC else ():
                if folder in log.earlier:
                    continue
                if ids.get(topic) != id_of_topic(disk, folder):
                    book.damage(
                        folder, "the cluster's metadata does not know this topic: opening sets the folder aside", _OLD
                    )
                elif (latest := _latest_epoch(disk, folder)) > epochs.get((topic, partition), latest):
                    what = (
                        f"leader epoch {latest} is above {epochs[topic, partition]}, the latest that the cluster's"
                        " metadata knows"
                    )
                    book.damage(folder, what, _OLD)


def _latest_epoch(disk: Disk, folder: str) -> int:
    """The latest leader epoch that the folder of a partition names; -1 if none does."""
    try:
        data = read_file(disk, f"{folder}/{states.EPOCHS}")
        return max((epoch for epoch, _ in states.epochs(data)), default=-1) if data is not None else -1
    except Unreadable:
        return -1  # the look at the partition reports it


def absent_partitions(disk: Disk, path: str) -> dict[tuple[str, int], str]:
    """The partitions of the cluster in ``path`` that are not there whole by its metadata, each with the reason."""
    path = path.rstrip("/") or "/"
    logs = look_around(disk, path).logs
    found: dict[tuple[str, int], str] = {}
    for _, fields in _known(disk, path, logs):
        found.update(_absent(fields, logs))
    return found


def _absent(fields: dict[str, Any], logs: Sequence[OneLog]) -> dict[tuple[str, int], str]:
    mine = [
        log for log in logs if log.roots[0].cluster is not None and log.roots[0].cluster == fields.get("cluster_id")
    ]
    if not mine and any(log.roots[0].cluster for log in logs):
        return {}  # as above: it is another cluster's
    nodes = {root.path: root.node for log in mine for root in log.roots}
    earlier = {folder for log in mine for folder in log.earlier}
    found: dict[tuple[str, int], str] = {}
    for topic, partition, replicas, in_sync in _named(fields):
        folders = [
            folder for log in mine for folder in log.partitions.get((topic, partition), ()) if folder not in earlier
        ]
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


def _known(disk: Disk, home: str, logs: Sequence[OneLog]) -> list[tuple[str, dict[str, Any]]]:
    """Return what the cluster's metadata says, and the file or folder that says it: the controller's file in ``home``,
    or for each log the newest metadata log in the folders of the nodes of ``home``.

    Nothing for a damaged file, which the check of that file reports.
    """
    file = f"{home}/{states.CONTROLLER}"
    try:
        data = read_file(disk, file)
        if data is not None:
            return [(file, states.controller(data))]
    except Unreadable:
        return []
    found = []
    for log in logs:
        nodes = [root.path for root in log.roots if home in (root.home, root.path.rpartition("/")[0])]
        metadata = newest_metadata(disk, nodes)
        if metadata is not None and log.roots[0].cluster is not None:
            found.append((metadata.path, metadata.state.as_controller(log.roots[0].cluster)))
    return found


def _rows(fields: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The topic and the row of each partition in the controller's state, as far as it says them."""
    for topic in fields.get("topics") or ():
        for row in (topic.get("partitions") or ()) if isinstance(topic, dict) else ():
            if isinstance(row, list) and len(row) >= _ROW_MIN and all(isinstance(one, list) for one in row[1:4]):
                yield str(topic.get("name")), row


def _named(fields: dict[str, Any]) -> list[tuple[str, int, list[int], list[int]]]:
    """(topic, partition, replicas, in-sync and eligible replicas) of each partition."""
    return [(topic, row[0], row[1], [*row[2], *row[3]]) for topic, row in _rows(fields)]


def _text(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))
