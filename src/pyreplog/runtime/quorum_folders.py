"""The metadata of a quorum in its nodes' folders, read without locks, and whether a majority of the voters is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyreplog.controller import StoredMetadata, read_stored
from pyreplog.errors import CorruptError, QuorumLostError, StorageError
from pyreplog.log import METADATA_FOLDER, ROLES_PROPERTY, read_properties
from pyreplog.ports import Disk
from pyreplog.quorum import VoterSet

__all__ = [
    "CLUSTER_LOCK_NAME",
    "FolderMetadata",
    "folders_missing",
    "has_majority",
    "lost_voters",
    "newest_of",
    "quorum_lost",
    "read_folder",
]

CLUSTER_LOCK_NAME: Final = "replog.controller.lock"
"""In a cluster's folder: locked by the process that has the cluster open."""


class FolderMetadata(NamedTuple):
    """The ids of one node's folder, and the metadata in it; None if it holds none that can be read."""

    directory_id: str
    cluster_id: str
    stored: StoredMetadata | None
    roles: str = ""
    """The ``process.roles`` of the node; "" if it keeps none."""


def read_folder(disk: Disk, folder: str) -> FolderMetadata | None:
    """Return the metadata in a node's folder; None if the folder is missing, is no node's, or cannot be read."""
    try:
        properties = read_properties(disk, folder)
    except (CorruptError, StorageError):
        return None  # the start of the node reports it
    if properties is None:
        return None
    try:
        stored = read_stored(disk, f"{folder}/{METADATA_FOLDER}")
    except (CorruptError, StorageError):
        stored = None  # the start of the node reports it
    return FolderMetadata(
        properties.get("directory.id", ""),
        properties.get("cluster.id", ""),
        stored,
        properties.get(ROLES_PROPERTY, ""),
    )


def newest_of(found: Mapping[int, FolderMetadata]) -> StoredMetadata | None:
    """Return the metadata with the highest (epoch, end); None if no folder has any."""
    stored = [one.stored for one in found.values() if one.stored is not None]
    return max(stored, key=lambda one: (one.epoch, one.end_offset), default=None)


def lost_voters(voters: VoterSet, found: Mapping[int, FolderMetadata]) -> list[int]:
    """Return the voters whose folders are not there, are other ones, or have no metadata."""
    return [voter.node_id for voter in voters if not _holds(found.get(voter.node_id), voter.directory_id)]


def _holds(folder: FolderMetadata | None, directory_id: str) -> bool:
    return folder is not None and folder.stored is not None and folder.directory_id == directory_id


def has_majority(voters: VoterSet, found: Mapping[int, FolderMetadata]) -> bool:
    """Return whether the metadata of a majority of the voters is there."""
    return len(voters) - len(lost_voters(voters, found)) >= voters.majority


def folders_missing(voters: VoterSet, found: Mapping[int, FolderMetadata]) -> str:
    """Return which of the voters' folders are not there, and what to do."""
    lost = lost_voters(voters, found)
    return (
        f"the metadata of {len(voters) - len(lost)} of {len(voters)} voters is there: put back the folder of node"
        f" {' or '.join(map(str, lost))}"
    )


def quorum_lost(path: str, lack: str) -> QuorumLostError:
    """Return the error for a cluster in which no majority of the voters can start. ``lack`` says which are missing."""
    return QuorumLostError(
        f"the cluster {path!r} cannot start: {lack}. If their disks are lost for good, `replog quorum recover {path}`"
        " goes on with what is left, and says what that may lose"
    )
