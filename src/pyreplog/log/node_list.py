"""``replog.nodes``: where a cluster's nodes keep their logs, if the caller said so.

A state file of ours, docs/internals/format/state_files.md. In the cluster's folder it lists the folders of the
nodes; those inside the cluster's own are kept relative to it, so that the cluster can be moved. In the folder of a
node outside it names the cluster's folder. On disk: the layout of version 1 never changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pyreplog.errors import CorruptError, excerpt
from pyreplog.log.layout import NODES_NAME, join
from pyreplog.log.snapshot import read_state, write_state
from pyreplog.ports import Disk

_VERSION: Final = "1"
_NODE: Final = re.compile(r"node\.([0-9]{9})")
_CLUSTER: Final = "cluster"


def format_nodes(folders: Mapping[int, str], cluster: str = "") -> dict[str, str]:
    """The names and values of the state file: ``folders`` by their nodes' numbers from 1 on, or the folder of the
    ``cluster``."""
    import json  # noqa: PLC0415  (rarely needed, and slow to load)

    values = {f"node.{number:09d}": json.dumps(folder) for number, folder in folders.items()}
    return {"version": _VERSION, **values, **({_CLUSTER: json.dumps(cluster)} if cluster else {})}


def parse_nodes(values: Mapping[str, str], path: str) -> tuple[dict[int, str], str]:
    """The folder of each node by its number, and the cluster's folder: one of both is empty. :class:`CorruptError`
    if that is not what the file says."""
    if values.get("version") != _VERSION:
        raise CorruptError(
            f"a list of nodes of version {excerpt(values.get('version', ''))}, and only {_VERSION} is known", file=path
        )
    folders: dict[int, str] = {}
    cluster = ""
    try:
        for name, value in values.items():
            if name == _CLUSTER:
                cluster = _folder_of(name, value)
            elif name != "version":
                match = _NODE.fullmatch(name)
                if match is None:
                    raise ValueError(f"an unknown name {excerpt(name)}")
                folders[int(match[1])] = _folder_of(name, value)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"a list of nodes: {error}", file=path) from None
    if bool(folders) == bool(cluster) or sorted(folders) != list(range(1, len(folders) + 1)):
        raise CorruptError("a list of nodes that leaves one out", file=path)
    return {number: folders[number] for number in sorted(folders)}, cluster


def _folder_of(name: str, value: str) -> str:
    import json  # noqa: PLC0415  (as above)

    folder = json.loads(value)
    if not isinstance(folder, str) or not folder or "\0" in folder or ".." in folder.split("/"):
        raise ValueError(f"{excerpt(name)} names no folder")
    return folder


def _read(disk: Disk, path: str) -> tuple[dict[int, str], str]:
    file = join(path, NODES_NAME)
    values = read_state(disk, file)
    return ({}, "") if values is None else parse_nodes(values, file)


def read_nodes(disk: Disk, path: str) -> dict[int, str]:
    """The folder of each node of the cluster in ``path``; empty if no list was kept, so that they are ``node-1``,
    ``node-2``, ... in it."""
    folders, _ = _read(disk, path)
    return {number: folder if folder.startswith("/") else join(path, folder) for number, folder in folders.items()}


def read_cluster(disk: Disk, path: str) -> str:
    """The folder of the cluster whose node keeps its log in ``path``; "" if no file there names one."""
    return _read(disk, path)[1]


def write_nodes(disk: Disk, path: str, folders: Mapping[int, str]) -> None:
    """Keep these folders, durably. They are absolute, or lie in ``path``."""
    inside = join(path, "")
    kept = {number: folder.removeprefix(inside) for number, folder in folders.items()}
    write_state(disk, join(path, NODES_NAME), format_nodes(kept), reserve_in=path)


def write_cluster(disk: Disk, path: str, cluster: str) -> None:
    """Keep in the node's folder ``path`` which folder is its cluster's, durably."""
    write_state(disk, join(path, NODES_NAME), format_nodes({}, cluster), reserve_in=path)
