"""The list of a cluster's nodes that lie on other disks, and whether each of these folders is its node's."""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from pyreplog.errors import StorageError
from pyreplog.ports import Disk
from pyreplog.verify import states
from pyreplog.verify.findings import Report
from pyreplog.verify.folder import read_file
from pyreplog.verify.states import Unreadable

NODES: Final = "replog.nodes"
_NODE: Final = re.compile(r"node\.([0-9]{9})")


class ListedNodes(NamedTuple):
    """What ``replog.nodes`` says: in a cluster's folder the node's folders, by their numbers; in a node's folder
    the cluster's."""

    folders: dict[int, str]
    cluster: str


def node_list(data: bytes) -> ListedNodes:
    """Parse ``replog.nodes``."""
    found = states.state(data)
    if found.pop("version", "") != "1":
        raise Unreadable("it is not of version 1")
    texts: dict[str, str] = {}
    for name, value in found.items():
        try:
            text = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"it is no JSON: {error}") from None
        if not isinstance(text, str) or not text or "\0" in text or ".." in text.split("/"):
            raise Unreadable(f"{name[:64]!r} names no folder")
        texts[name] = text
    cluster = texts.pop("cluster", "")
    if any(_NODE.fullmatch(name) is None for name in texts):
        raise Unreadable("it has a name that is not a node")
    folders = {int(name[5:]): text for name, text in sorted(texts.items())}
    if bool(cluster) == bool(folders) or list(folders) != list(range(1, len(folders) + 1)):
        raise Unreadable("it leaves a node out")
    return ListedNodes(folders, cluster)


def listed(disk: Disk, path: str) -> dict[int, str]:
    """The folders that the cluster in ``path`` lists for its nodes; none if there is no list, or if it cannot be
    believed."""
    try:
        data = read_file(disk, f"{path}/{NODES}")
        folders = {} if data is None else node_list(data).folders
    except Unreadable:
        return {}
    return {number: folder if folder.startswith("/") else f"{path}/{folder}" for number, folder in folders.items()}


def home_of(disk: Disk, folder: str) -> str:
    """The folder of the cluster that a node's ``folder`` names as its own; "" if it names none that can be
    believed."""
    try:
        data = read_file(disk, f"{folder}/{NODES}")
        return "" if data is None else node_list(data).cluster
    except (Unreadable, StorageError):
        return ""


def check_nodes(disk: Disk, path: str, book: Report) -> None:
    """Verify the list in the folder ``path``, and that each listed folder is there and is its node's."""
    file = f"{path}/{NODES}"
    try:
        data = read_file(disk, file, book)
        if data is not None:
            node_list(data)
    except Unreadable as error:
        advice = "open the cluster with nodes=[the folder of each node, in order]: that writes it again"
        book.damage(file, f"the list of the nodes' folders is damaged: {error}", advice)
    for number, folder in listed(disk, path).items():
        _check_node(disk, number, folder, book)


def _check_node(disk: Disk, number: int, folder: str, book: Report) -> None:
    try:
        data = read_file(disk, f"{folder}/{states.META}")
    except (Unreadable, StorageError) as error:
        book.warn(folder, f"the folder of node {number} cannot be looked into: {error}", "give this user access to it")
        return
    if data is None:
        what = (
            f"the folder of node {number} is missing or empty: perhaps its disk is not mounted. Its copies were not"
            " looked at"
        )
        book.warn(folder, what, "mount the disk, and verify again")
        return
    try:
        found = states.properties(data).get("node.id", "")
    except Unreadable:
        return  # the look at that root tells it
    if found != str(number):
        book.damage(
            folder, f"the list says node {number}, and the folder belongs to node {found[:64]}", "put the list in order"
        )
