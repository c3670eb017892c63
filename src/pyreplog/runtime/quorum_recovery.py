"""``recover_quorum``: lets a cluster go on that has lost a majority of its voters for good."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import NamedTuple

from pyreplog import controller
from pyreplog.config import Permissions
from pyreplog.controller import STATE_FILE, PossibleLoss, QuorumRecovery, controller_address
from pyreplog.errors import ConfigError, StorageError
from pyreplog.log import refuse_unfinished, with_reserve
from pyreplog.ports import Clock, Disk
from pyreplog.quorum import QuorumConfig, VoterSet
from pyreplog.runtime.folder_opening import folder_of
from pyreplog.runtime.locking import LockWait, cluster_wait
from pyreplog.runtime.node_folders import NodeFolders
from pyreplog.runtime.quorum_folders import (
    CLUSTER_LOCK_NAME,
    FolderMetadata,
    has_majority,
    lost_voters,
    newest_of,
    older_voters,
    read_folder,
)
from pyreplog.system import SystemClock, SystemDisk

__all__ = ["PossibleLoss", "QuorumRecovery", "StoredQuorum", "recover_on", "recover_quorum", "stored_quorum"]


class StoredQuorum(NamedTuple):
    """The quorum by its nodes' folders. ``voters``: by the newest metadata; ``lost``: those whose metadata is not
    there or damaged; ``ends``: the (epoch of the last record, offset behind it) of the sound beginning of each metadata
    log that is there; ``damaged``: what is damaged in those that are there, by node."""

    voters: tuple[int, ...]
    lost: tuple[int, ...]
    ends: Mapping[int, tuple[int, int]]
    damaged: Mapping[int, str]

    @property
    def has_majority(self) -> bool:
        """Whether the metadata of a majority of the voters is there and whole."""
        return len(self.voters) - len(self.lost) > len(self.voters) // 2


def stored_quorum(path: str | os.PathLike[str]) -> StoredQuorum:
    """Read the quorum of the cluster in ``path`` from its nodes' folders, without locks.

    Raises as :func:`recover_quorum`, but for LockedError.
    """
    folder = os.path.abspath(folder_of(path))
    disk = SystemDisk()
    try:
        found, _ = find_quorum(disk, folder)
    finally:
        disk.close()
    newest = newest_of(found)
    if newest is None:
        raise StorageError(errno.ENOENT, "no node's folder has the metadata of the cluster", folder)
    ends = {number: (one.stored.epoch, one.stored.end_offset) for number, one in found.items() if one.stored}
    voters = tuple(voter.node_id for voter in newest.voters)
    damaged = {number: one.damage for number, one in found.items() if one.damage is not None}
    damaged.update(older_voters(newest.voters, found))
    return StoredQuorum(voters, tuple(lost_voters(newest.voters, found)), ends, damaged)


def recover_quorum(
    path: str | os.PathLike[str], *, permissions: Permissions = "owner", lock_timeout: float | None = 0
) -> QuorumRecovery:
    """Let the cluster in ``path`` go on with the nodes whose folders are left, after the metadata of a majority of its
    voters was lost or damaged for good. **Acknowledged records and topics may be lost**; the result says which.

    The surviving metadata log with the highest epoch and end counts from here on, and its node is the only voter. A
    damaged log counts up to its first damage.
    Every surviving copy of a partition is in doubt, so the longest of the latest leader epoch leads. Opening the
    cluster makes the lost nodes again, empty, inside the cluster's folder. Before the call, put back every folder that
    can be found: after it, a folder that comes back is an old copy.

    Raises LockedError (with the holder) while the cluster is open; ConfigError if ``path`` is no cluster with a
    quorum, or if the metadata of a majority of the voters is whole, so that it opens as it is; StorageNotFoundError if
    no metadata log survives.
    """
    folder = os.path.abspath(folder_of(path))
    wait = cluster_wait(folder, lock_timeout)
    disk = SystemDisk(permissions=permissions)
    try:
        return recover_on(disk, folder, SystemClock(), wait)
    finally:
        disk.close()


def recover_on(disk: Disk, path: str, clock: Clock, wait: LockWait) -> QuorumRecovery:
    """As :func:`recover_quorum`, for a cluster whose folders all lie on ``disk``."""
    find_quorum(disk, path)  # before anything is written
    lock = wait.call(
        lambda: with_reserve(disk, path, lambda: disk.lock(f"{path}/{CLUSTER_LOCK_NAME}", "a recovery of the quorum"))
    )
    try:
        refuse_unfinished(disk, [path])
        found, roots = find_quorum(disk, path)
        _check_lost(path, found)
        return controller.recover_quorum(
            disk, path, roots, controller_address(0).replace("0", "{}"), clock, QuorumConfig()
        )
    finally:
        lock.release()


def find_quorum(disk: Disk, path: str) -> tuple[dict[int, FolderMetadata], dict[int, str]]:
    """Return the metadata of the nodes' folders that are there, and these folders, by node.

    Raises :class:`StorageError` if there is no such folder, and :class:`ConfigError` if it is no
    cluster's, or that of a cluster without a quorum.
    """
    if disk.stat(path) is None:
        raise StorageError(errno.ENOENT, "no such folder, so there is no cluster", path)
    folders = NodeFolders(disk, path, None, anchor=True)
    if disk.stat(f"{path}/{STATE_FILE}") is not None:
        raise ConfigError(
            f"{path} has no quorum: it is a cluster of version 0.1, and {STATE_FILE} holds its metadata. Open it with"
            " Cluster(path), which gives it to the nodes"
        )
    found: dict[int, FolderMetadata] = {}
    for number in range(1, folders.count + 1):
        one = read_folder(disk, folders.of(number), number)
        if one is not None:
            found[number] = one
    if not found and disk.stat(folders.of(1)) is None:
        raise ConfigError(f"{path} holds no cluster: none of its nodes' folders is there")
    return found, {number: folders.of(number) for number in found}


def _check_lost(path: str, found: Mapping[int, FolderMetadata]) -> None:
    """Raise :class:`ConfigError` if a majority of the voters is whole, and :class:`StorageError` if there is no
    metadata."""
    newest = newest_of(found)
    if newest is None or not newest.end_offset or not len(newest.voters):
        raise StorageError(
            errno.ENOENT,
            f"no node's folder has the metadata of the cluster: `replog repair {path} --metadata` makes it again from"
            " the partitions' folders, and says what these do not tell",
            path,
        )
    voters = newest.voters
    if has_majority(voters, found) and not _is_half_done(voters, found):
        there = len(voters) - len(lost_voters(voters, found))
        raise ConfigError(
            f"nothing has to be recovered: the metadata of {there} of {len(voters)} voters of {path} is whole, which is"
            " a majority. Open it with Cluster(path)"
        )


def _is_half_done(voters: VoterSet, found: Mapping[int, FolderMetadata]) -> bool:
    """Return whether an earlier recovery made the only voter, and ended before the other folders followed."""
    others = [one.stored.voters for one in found.values() if one.stored is not None]
    return len(voters) == 1 and any(len(other) and not has_majority(other, found) for other in others)
