"""The controller's state of a cluster's folder, against the nodes whose folders lie beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyreplog.errors import StorageError
from pyreplog.ports import Disk
from pyreplog.verify import states
from pyreplog.verify.findings import Report
from pyreplog.verify.folder import read_file
from pyreplog.verify.metadata import has_metadata
from pyreplog.verify.nodes import home_of, listed
from pyreplog.verify.states import Unreadable

_NODE: Final = "node-"
_PUT_BACK: Final = (
    "restore the file of this cluster, from the backup that these folders come from or from the folder that they were"
    " copied from; the records are in the nodes' folders, and each of these can be read without it"
)


def check_controller(disk: Disk, path: str, names: Iterable[str], roots: Sequence[str], book: Report) -> None:
    """Verify that the controller's state in the folder ``path``, which holds ``names``, is whole and belongs to the
    nodes in ``roots``.

    Folders that no node of ours wrote, such as a broker's several ``log.dirs``, have no such file and need none, nor
    does a cluster in which a node has a metadata log.
    """
    clusters = _clusters(disk, path, roots)
    file = f"{path}/{states.CONTROLLER}"
    if states.CONTROLLER not in names:
        without = _clusters(disk, path, [root for root in roots if not has_metadata(disk, root)])
        lacking = {cluster: nodes for cluster, nodes in clusters.items() if without.get(cluster) == nodes}
        if lacking:
            text = (
                f"the controller's state {states.CONTROLLER} is missing beside {in_words(lacking)}: the cluster cannot"
                " be opened"
            )
            book.damage(file, text, _PUT_BACK)
        if len(clusters) > 1:
            _report_strangers(disk, path, roots, book)
        return
    try:
        named = states.controller(read_file(disk, file, book) or b"").get("cluster_id")
    except (Unreadable, ValueError) as error:
        book.damage(file, f"the controller's state {states.CONTROLLER} is damaged: {error}", _PUT_BACK)
        return
    foreign = {cluster: nodes for cluster, nodes in clusters.items() if cluster != named}
    if named in clusters:
        # The state is that of the other nodes: a listed disk holds a node of another cluster.
        strangers = _listed_strangers(disk, path, roots, str(named))
        foreign = {
            cluster: nodes for cluster, nodes in foreign.items() if len(nodes) > list(strangers.values()).count(cluster)
        }
        _report(strangers, path, str(named), book)
    if foreign:
        text = (
            f"the controller's state {states.CONTROLLER} is that of cluster {str(named)[:64]}, beside"
            f" {in_words(clusters)}: the cluster cannot be opened"
        )
        book.damage(file, text, _PUT_BACK)


def _report_strangers(disk: Disk, path: str, roots: Sequence[str], book: Report) -> None:
    """Report each listed folder of another cluster than the one in ``path``: the cluster whose nodes name ``path`` as
    its folder. Without such nodes, none is reported."""
    own = [folder for folder in listed(disk, path).values() if folder in roots and home_of(disk, folder) == path]
    named = list(_clusters(disk, path, own))
    if len(named) == 1:
        _report(_listed_strangers(disk, path, roots, named[0]), path, named[0], book)


def _report(strangers: Mapping[str, str], path: str, named: str, book: Report) -> None:
    for folder, cluster in strangers.items():
        what = f"the cluster in {path} is {named[:64]}, and this folder in its list belongs to cluster {cluster[:64]}"
        book.damage(folder, what, "mount the disk that holds this cluster's node there")


def _listed_strangers(disk: Disk, path: str, roots: Sequence[str], named: str) -> dict[str, str]:
    """The listed folders outside ``path`` that belong to another cluster than ``named``, with its id."""
    outside = [folder for folder in listed(disk, path).values() if not folder.startswith(f"{path}/")]
    found = {folder: list(_clusters(disk, path, [folder])) for folder in outside if folder in roots}
    return {folder: clusters[0] for folder, clusters in found.items() if clusters and clusters[0] != named}


def in_words(clusters: Mapping[str, Sequence[str]]) -> str:
    """``node-1, node-2 of cluster A and node-3 of cluster B``."""
    return " and ".join(f"{', '.join(nodes)} of cluster {cluster[:64]}" for cluster, nodes in clusters.items())


def _clusters(disk: Disk, path: str, roots: Sequence[str]) -> dict[str, list[str]]:
    """The names of the nodes of a cluster of ours in ``path``, by the id of their cluster."""
    found: dict[str, list[str]] = {}
    elsewhere = {folder: f"{_NODE}{number}" for number, folder in listed(disk, path).items()}
    for root in roots:
        parent, _, name = root.rpartition("/")
        name = elsewhere.get(root, name if parent == path else "")
        if not name.startswith(_NODE) or disk.stat(f"{root}/{states.INCARNATION}") is None:
            continue
        try:
            values = states.properties(read_file(disk, f"{root}/{states.META}") or b"")
        except (Unreadable, StorageError):
            continue  # the look at the root tells of it
        if values.get("cluster.id") and values.get("node.id") == name.removeprefix(_NODE):
            found.setdefault(values["cluster.id"], []).append(name)
    return found
