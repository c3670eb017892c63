"""``replog.nodes``: the folders of a cluster's nodes, if the caller chose them.

The file is a state file (docs/internals/format/state_files.md). In the cluster's folder it lists the folders of the
nodes. Folders inside the cluster's own are relative to it, so that the cluster can be moved. In the folder of a node
outside the cluster's, it names the cluster's folder. On disk: the layout of version 1 never changes.
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
    """Return the names and values of the state file for ``folders``, by their nodes' numbers from 1 on, or for the
    folder of the ``cluster``."""
    import json  # noqa: PLC0415  (rarely needed, and slow to load)

    values = {f"node.{number:09d}": json.dumps(folder) for number, folder in folders.items()}
    return {"version": _VERSION, **values, **({_CLUSTER: json.dumps(cluster)} if cluster else {})}


def parse_nodes(values: Mapping[str, str], path: str) -> tuple[dict[int, str], str]:
    """Return the folder of each node by its number, and the cluster's folder; one of the two is empty.

    Raises :class:`CorruptError` if ``values`` are no list of nodes.
    """
    if values.get("version") != _VERSION:
        raise CorruptError(
            f"list of nodes has version {excerpt(values.get('version', ''))}, expected {_VERSION}", file=path
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
        raise CorruptError("the list of nodes is incomplete", file=path)
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
    """Return the folder of each node of the cluster in ``path``.

    Empty if there is no list; then the folders are ``node-1``, ``node-2``, ... in ``path``.
    """
    folders, _ = _read(disk, path)
    return {number: folder if folder.startswith("/") else join(path, folder) for number, folder in folders.items()}


def read_cluster(disk: Disk, path: str) -> str:
    """Return the folder of the cluster whose node has its log in ``path``, or "" if no file there names one."""
    return _read(disk, path)[1]


def write_nodes(disk: Disk, path: str, folders: Mapping[int, str]) -> None:
    """Write the list of ``folders`` in the cluster's folder ``path``, durably. REQUIRES absolute folders or folders
    in ``path``."""
    inside = join(path, "")
    kept = {number: folder.removeprefix(inside) for number, folder in folders.items()}
    write_state(disk, join(path, NODES_NAME), format_nodes(kept), reserve_in=path)


def write_cluster(disk: Disk, path: str, cluster: str) -> None:
    """Write the name of the cluster's folder in the node's folder ``path``, durably."""
    write_state(disk, join(path, NODES_NAME), format_nodes({}, cluster), reserve_in=path)
