"""``repair_metadata``: makes the metadata of a cluster again from its nodes' folders, when no metadata log is left."""

from __future__ import annotations

import os
from random import SystemRandom

from pyreplog.config import Permissions
from pyreplog.controller import RebuiltMetadata, controller_address, rebuild_metadata
from pyreplog.errors import ConfigError
from pyreplog.log import refuse_unfinished, with_reserve
from pyreplog.ports import Clock, Disk, Random
from pyreplog.quorum import QuorumConfig
from pyreplog.runtime.folder_opening import folder_of
from pyreplog.runtime.locking import LockWait, cluster_wait
from pyreplog.runtime.quorum_folders import CLUSTER_LOCK_NAME, newest_of
from pyreplog.runtime.quorum_recovery import find_quorum
from pyreplog.system import SystemClock, SystemDisk

__all__ = ["RebuiltMetadata", "repair_metadata", "repair_metadata_on"]


def repair_metadata(
    path: str | os.PathLike[str],
    *,
    write: bool,
    permissions: Permissions = "owner",
    lock_timeout: float | None = 0,
) -> RebuiltMetadata:
    """Make the metadata of the cluster in ``path`` again from its nodes' folders, none of which has a metadata log that
    can be read. ``write`` False: change nothing, and return what would be made.

    Every partition that has a folder gets its topic, number, id and settings back. Its leader is the copy with the
    highest leader epoch and end, and the others follow it; all records of the others that it does not have are
    discarded. :data:`pyreplog.controller.UNKNOWN` says what the folders do not tell.

    Raises LockedError while the cluster is open; ConfigError if there is metadata to go on with, if ``path`` is no
    cluster with a quorum, or if its folders contradict one another; StorageError if there is no partition.
    """
    folder = os.path.abspath(folder_of(path))
    wait = cluster_wait(folder, lock_timeout)
    disk = SystemDisk(permissions=permissions)
    try:
        return repair_metadata_on(disk, folder, SystemClock(), SystemRandom(), wait if write else None)
    finally:
        disk.close()


def repair_metadata_on(disk: Disk, path: str, clock: Clock, random: Random, wait: LockWait | None) -> RebuiltMetadata:
    """As :func:`repair_metadata`, for a cluster whose folders all lie on ``disk``. ``wait`` None: write nothing."""
    _check_lost(disk, path)  # before anything is written
    if wait is None:
        return _rebuild(disk, path, clock, random, write=False)
    lock = wait.call(
        lambda: with_reserve(disk, path, lambda: disk.lock(f"{path}/{CLUSTER_LOCK_NAME}", "a repair of the metadata"))
    )
    try:
        refuse_unfinished(disk, [path])
        return _rebuild(disk, path, clock, random, write=True)
    finally:
        lock.release()


def _rebuild(disk: Disk, path: str, clock: Clock, random: Random, *, write: bool) -> RebuiltMetadata:
    roots = _check_lost(disk, path)
    address = controller_address(0).replace("0", "{}")
    return rebuild_metadata(disk, path, roots, address, clock, random, QuorumConfig(), write=write)


def _check_lost(disk: Disk, path: str) -> dict[int, str]:
    """Return the nodes' folders. Raise :class:`ConfigError` if one of them has metadata that can be read."""
    found, roots = find_quorum(disk, path)
    newest = newest_of(found)
    if newest is not None and newest.end_offset and len(newest.voters):
        numbers = [number for number, one in found.items() if one.stored is not None and one.stored.end_offset]
        raise ConfigError(
            f"the metadata of the cluster {path} is not lost: node {', '.join(map(str, numbers))} has it. Open the"
            " cluster; if that is refused because a majority of the voters is lost, `replog quorum recover` goes on"
            " with this metadata"
        )
    return roots
