"""NodeFolders: the folders in which a cluster's nodes keep their logs, and checks that each belongs to its node."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from pyreplog.controller import STATE_FILE
from pyreplog.errors import ConfigError, CorruptError, StorageError
from pyreplog.log import (
    CONVERTED_NAME,
    NODES_NAME,
    has_root_file,
    holds_cluster,
    is_partition,
    read_cluster,
    read_nodes,
    read_properties,
    write_cluster,
    write_nodes,
)
from pyreplog.ports import Disk
from pyreplog.runtime.folder_opening import check_alone, folder_of
from pyreplog.system import anchored

__all__ = ["NodeFolders", "NodesAsked", "left_nodes"]

NODES_MAX: Final = 100
REMOVED_SUFFIX: Final = ".removed"
"""Behind the name of the folder of a node that left the cluster. It is never opened again."""
_LEFT: Final = re.compile(r"node-([0-9]{1,3})" + re.escape(REMOVED_SUFFIX))

NodesAsked = int | Sequence[str | os.PathLike[str]] | None
"""The number of nodes, or the folder of each; None: the nodes that the cluster has."""


class NodeFolders:
    """The folder of each node: from the caller's list, or from the list that the cluster's folder keeps, or ``node-N``
    in the cluster's folder.

    A folder outside the cluster's folder may be on a disk of its own, and a disk that is not mounted looks like a
    missing or an empty folder. So such a node stays down until its folder holds the node's identity. A new folder is
    made only for a node that the controller does not know.
    """

    def __init__(self, disk: Disk, path: str, nodes: NodesAsked, *, anchor: bool) -> None:
        """Read the stored list. Nothing is written before :meth:`settle`. ``anchor``: relative folders start at the
        working directory.

        Raises :class:`ConfigError` if ``path`` is something other than a cluster's folder, or if ``nodes`` is invalid.
        """
        self._disk = disk
        self._path = path
        given = _given_folders(nodes, path, anchor=anchor)
        self._stored: dict[int, str] = {}
        try:
            self._stored = _read_stored(disk, path)
        except CorruptError:
            if given is None:
                raise
            # The caller lists the folders again, so the damaged list is not needed.
        names = _names(disk, path, is_known=bool(self._stored))
        numbers = [
            int(name[5:]) for name in names if name.startswith("node-") and name.isascii() and name[5:].isdigit()
        ]
        # Only a folder with a root file holds a node. An empty folder does not count.
        inside = max((number for number in numbers if has_root_file(disk, f"{path}/node-{number}")), default=0)
        known = max(self._stored, default=inside)
        asked = known or 3 if nodes is None else len(given) if given is not None else nodes
        if type(asked) is not int or not 1 <= asked <= NODES_MAX:
            raise ConfigError(
                f"nodes is {nodes!r}; it must be a whole number from 1 to {NODES_MAX}, or a list of as many folders"
            )
        #: How many nodes were asked for.
        self.count = asked
        if asked < known:
            raise self.too_few(known)
        self._given = given
        #: The nodes that left the cluster: their numbers are free.
        self.removed = {number for number in {*range(1, asked + 1), *left_nodes(names)} if self._has_left(number)}

    def too_few(self, known: int) -> ConfigError:
        """Return the error for fewer nodes than the ``known`` ones of the cluster."""
        return ConfigError(
            f"{self._path} has {known} nodes, and each may hold partitions: nodes={self.count} would leave some out"
        )

    @property
    def disk(self) -> Disk:
        """The disk on which the cluster's folder lies."""
        return self._disk

    @property
    def home(self) -> str:
        """The cluster's folder."""
        return self._path

    def of(self, number: int) -> str:
        """Return the folder of node ``number``."""
        given = None if self._given is None else self._given.get(number)
        return given or self._stored.get(number) or f"{self._path}/node-{number}"

    def _has_left(self, number: int) -> bool:
        folder = self.of(number)
        return self._disk.stat(folder + REMOVED_SUFFIX) is not None and not has_root_file(self._disk, folder)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the nodes that the cluster has."""
        return [number for number in range(1, self.count + 1) if number not in self.removed]

    def add(self, number: int) -> None:
        """Take a node into the cluster: a new one, behind the others, or one in the place of a node that left. Its
        folder begins empty."""
        self.count = max(self.count, number)
        self.removed.discard(number)

    def put_away(self, number: int) -> None:
        """Give the folder of a node that left a name under which nothing opens it. REQUIRES that it is closed. Raises
        :class:`StorageError`."""
        folder = self.of(number)
        target = folder + REMOVED_SUFFIX
        count = 1
        while self._disk.stat(target) is not None:  # the number was used, and given up, before
            count += 1
            target = f"{folder}{REMOVED_SUFFIX}-{count}"
        if self._disk.stat(folder) is not None:
            self._disk.rename(folder, target)
            self._disk.sync_directory(os.path.dirname(folder))
        self.removed.add(number)

    @property
    def has_list(self) -> bool:
        """Whether the cluster's folder keeps a list of the nodes' folders."""
        return self._given is not None or bool(self._stored)

    def check_nodes(self, cluster_id: str) -> None:
        """Raise :class:`ConfigError` if a node's folder belongs to another node or cluster."""
        for number in self.numbers:
            self._identify(number, self.of(number), cluster_id)

    def before(self, number: int) -> str:
        """Return the folder that node ``number`` had when the cluster was last open."""
        return self._stored.get(number) or f"{self._path}/node-{number}"

    def outside(self) -> list[str]:
        """Return the nodes' folders that lie outside the cluster's folder."""
        return [folder for number in self.numbers if self._is_outside(folder := self.of(number))]

    def settle(self, count: int, known: Container[int], cluster_id: str) -> None:
        """Check each node's folder, then store the list of the ``count`` nodes, if there is a list. The controller
        knows the nodes ``known``.

        Raises :class:`ConfigError` if a folder belongs to another node or cluster, or if a folder outside is new for a
        node that the controller knows and does not hold that node. A new folder inside the cluster's folder may be
        empty: the node copies its records from the other nodes.
        """
        if not self.has_list:
            return
        folders = {number: self.of(number) for number in range(1, count + 1)}
        for number, folder in folders.items():
            before = self._stored.get(number, f"{self._path}/node-{number}")
            found = self._identify(number, folder, cluster_id)
            self._check_owner(folder)
            if folder != before and number in known and found is None and self._is_outside(folder):
                raise ConfigError(
                    f"node {number} keeps its log in {before}, and {folder} does not hold it: move the node's folder"
                    " there first, while the cluster is closed"
                )
        if folders != self._stored:
            write_nodes(self._disk, self._path, folders)
            self._stored = folders

    def check(self, number: int, directories: Sequence[str] | None, cluster_id: str) -> None:
        """Raise :class:`StorageError` if the folder of node ``number`` is outside or a link, and does not hold the node
        that the controller knows by the ids of its ``directories`` (None: it does not know the node). Called before
        the node starts."""
        folder = self.of(number)
        if directories is None or not (self._is_outside(folder) or self._disk.is_link(folder)):
            return
        found = self._identify(number, folder, cluster_id)
        if found is None:
            raise StorageError(
                errno.ENOENT,
                f"the folder of node {number} is missing or empty, and the cluster has that node: perhaps its disk is"
                " not mounted. The node stays down until the folder is back; mount it, then"
                f" cluster.nodes[{number - 1}].restart()",
                folder,
            )
        directory_id = found.get("directory.id", "")
        if directories and directory_id not in directories:
            raise StorageError(
                errno.ESTALE,
                f"the folder is not the one in which node {number} last ran: its directory.id is {directory_id[:64]},"
                f" and the controller knows {', '.join(directories)}. Mount the disk that holds that one",
                folder,
            )

    def tell(self, number: int) -> None:
        """Write this cluster's path into the folder of node ``number``, which runs, if the folder is outside. No other
        file near the folder names the cluster."""
        folder = self.of(number)
        if self._is_outside(folder) and _cluster_in(self._disk, folder) != self._path:
            # If it fails, the node runs without it, and the next start tries again: only the
            # refusal of open_log(folder) depends on it.
            with suppress(StorageError):
                write_cluster(self._disk, folder, self._path)

    def _check_owner(self, folder: str) -> None:
        """Raise :class:`ConfigError` if a folder outside names a cluster in another folder that still exists. This
        cluster may be a copy of that one, and its controller may know less than the node."""
        owner = _cluster_in(self._disk, folder) if self._is_outside(folder) else ""
        theirs = self._disk.stat(owner) if owner not in ("", self._path) and holds_cluster(self._disk, owner) else None
        mine = self._disk.stat(self._path)
        if theirs is not None and (mine is None or theirs.identity != mine.identity):
            raise ConfigError(
                f"{folder} belongs to the cluster in {owner}, which is still there, and {self._path} may be a copy of"
                f" it: open that one, or, if this one takes its place, move {owner} away first"
            )

    def _is_outside(self, folder: str) -> bool:
        return not f"{folder}/".startswith(f"{self._path}/")

    def _identify(self, number: int, folder: str, cluster_id: str) -> Mapping[str, str] | None:
        """Return the ids in ``folder``; None if it holds no node. Raises :class:`ConfigError` if it belongs to another
        node or cluster."""
        found = read_properties(self._disk, folder)
        if found is None:
            return None
        node, cluster = found.get("node.id", found.get("broker.id", "")), found.get("cluster.id", "")
        if node != str(number):
            raise ConfigError(
                f"{folder} belongs to node {node[:64]}, not to node {number}: list the folders in the order of their"
                " nodes"
            )
        if cluster != cluster_id:
            raise ConfigError(
                f"{folder} belongs to cluster {cluster[:64]}, not to cluster {cluster_id} in {self._path}"
            )
        return found


def _names(disk: Disk, path: str, *, is_known: bool) -> Sequence[str]:
    """Return the names in the cluster's folder. Raise ConfigError if it is something else. ``is_known``: it is a
    cluster's folder, because it keeps a list of nodes."""
    stat = disk.stat(path)
    if stat is not None and not stat.is_directory:
        raise ConfigError(f"{path} is a file; a cluster is a folder")
    if is_partition(disk, path):
        raise ConfigError(f"{path} is a partition's folder; a cluster is a folder of its own")
    names = disk.list(path) if stat is not None else ()
    if "meta.properties" in names:
        raise ConfigError(f"{path} is the folder of a single log or node; a cluster's folder holds node-1, node-2, ...")
    is_cluster = any(name in (STATE_FILE, CONVERTED_NAME, NODES_NAME) or name.startswith("node-") for name in names)
    if not is_known and not is_cluster:
        check_alone(disk, path, "cluster")
    return names


def left_nodes(names: Sequence[str]) -> Iterator[int]:
    """Iterate over the numbers of the nodes whose folders have the name of a node that left."""
    for name in names:
        found = _LEFT.fullmatch(name)
        if found is not None:
            yield int(found[1])


def _read_stored(disk: Disk, path: str) -> dict[int, str]:
    try:
        return read_nodes(disk, path)
    except CorruptError as error:
        reason = (
            f"{error.reason}: put the file back from a copy, or open the cluster with nodes=[the folder of each node,"
            " in order]"
        )
        raise CorruptError(reason, file=error.file) from error


def _cluster_in(disk: Disk, folder: str) -> str:
    try:
        return read_cluster(disk, folder)
    except CorruptError:
        return ""  # tell() writes the file again


def _given_folders(nodes: NodesAsked, path: str, *, anchor: bool) -> dict[int, str] | None:
    """Return the caller's list of folders by node number; None if ``nodes`` is no list."""
    if nodes is None or isinstance(nodes, int):
        return None
    if isinstance(nodes, (str, bytes, os.PathLike)) or not isinstance(nodes, Iterable):
        raise ConfigError(
            f"nodes is {nodes!r}; it must be a whole number, or a list of folders such as ['/disk1/n1', '/disk2/n2']"
        )
    folders = [folder_of(one) for one in nodes]
    if anchor:
        folders = [os.path.normpath(anchored(one)) for one in folders]
    for position, folder in enumerate(folders):
        if folder in folders[:position]:
            raise ConfigError(f"{folder} is named twice in nodes: each node needs a folder of its own")
        for other in (path, *folders[:position]):
            if f"{other}/".startswith(f"{folder}/") or (other != path and f"{folder}/".startswith(f"{other}/")):
                raise ConfigError(f"the node's folder {folder} and {other} must not lie in one another")
    return dict(enumerate(folders, 1))
