"""The metadata of a quorum in its nodes' folders, read without locks, and whether a majority of the voters is whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyreplog.controller import StoredMetadata, read_stored
from pyreplog.errors import CorruptError, QuorumLostError, StorageError
from pyreplog.log import METADATA_FOLDER, ROLES_PROPERTY, read_mark, read_properties
from pyreplog.ports import Disk
from pyreplog.quorum import Identity, VoterSet, find_voter_damage

__all__ = [
    "CLUSTER_LOCK_NAME",
    "FolderMetadata",
    "damaged_voters",
    "describe_damage",
    "folders_missing",
    "has_majority",
    "lost_voters",
    "newest_of",
    "older_voters",
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
    damage: str | None = None
    """The reason for which the node would not vote; None if it is whole, or has no metadata."""
    committed: int = 0
    """An offset below which the node knows that the metadata log is committed."""


def read_folder(disk: Disk, folder: str, node_id: int) -> FolderMetadata | None:
    """Return the metadata in the folder of node ``node_id``; None if the folder is missing, is no node's, or cannot be
    read. Of a damaged metadata log it returns the sound beginning."""
    try:
        properties = read_properties(disk, folder)
    except (CorruptError, StorageError):
        return None  # the start of the node reports it
    if properties is None:
        return None
    metadata = f"{folder}/{METADATA_FOLDER}"
    identity = Identity(node_id, properties.get("directory.id", ""), properties.get("cluster.id", ""))
    stored, damage, committed = None, None, 0
    try:
        if disk.stat(metadata) is not None:
            mark = read_mark(disk, metadata)
            committed = 0 if mark is None else mark.high_watermark
            damage = _damage_in(disk, metadata, identity)
            stored = read_stored(disk, metadata)
    except (CorruptError, StorageError) as error:
        damage = str(error)
    roles = properties.get(ROLES_PROPERTY, "")
    return FolderMetadata(identity.directory_id, identity.cluster_id, stored, roles, damage, committed)


def _damage_in(disk: Disk, folder: str, identity: Identity) -> str | None:
    """Return the damage that a look at the folder finds. A second look must find it too, because the first one may have
    met a writer."""
    return find_voter_damage(disk, folder, identity) and find_voter_damage(disk, folder, identity)


def newest_of(found: Mapping[int, FolderMetadata]) -> StoredMetadata | None:
    """Return the metadata with the highest (epoch, end); None if no folder has any."""
    stored = [one.stored for one in found.values() if one.stored is not None]
    return max(stored, key=lambda one: (one.epoch, one.end_offset), default=None)


def lost_voters(voters: VoterSet, found: Mapping[int, FolderMetadata]) -> list[int]:
    """Return the voters whose folders are not there or are other ones, or whose metadata is not there, damaged or
    older."""
    older = older_voters(voters, found)
    return [
        voter.node_id
        for voter in voters
        if voter.node_id in older or not _is_whole(found.get(voter.node_id), voter.directory_id)
    ]


def damaged_voters(voters: VoterSet, found: Mapping[int, FolderMetadata]) -> dict[int, str]:
    """Return the voters whose folders are there and hold damaged or older metadata, and the damage of each."""
    return older_voters(voters, found) | {
        voter.node_id: one.damage
        for voter in voters
        if (one := found.get(voter.node_id)) is not None
        and one.directory_id == voter.directory_id
        and one.damage is not None
    }


def older_voters(voters: VoterSet, found: Mapping[int, FolderMetadata]) -> dict[int, str]:
    """Return the whole voters among which an older copy of a folder must be, and the reason for each: a majority once
    had all that is known as committed, and too few have it now. A few voters that are behind are no reason."""
    newest = newest_of(found)
    committed = max((one.committed for one in found.values()), default=0)
    if newest is None or newest.voters != voters or newest.voters_offset >= committed:
        return {}  # another set of voters had the majority
    ends = {
        voter.node_id: one.stored.end_offset
        for voter in voters
        if (one := found.get(voter.node_id)) is not None
        and one.stored is not None
        and _is_whole(one, voter.directory_id)
    }
    behind = {number: end for number, end in ends.items() if end < committed}
    if len(voters) - len(behind) >= voters.majority:
        return {}  # those that are not here or not whole may have been among the majority
    return {
        number: f"its log ends at offset {end}, and a majority had all below {committed}: this may be an older copy"
        for number, end in behind.items()
    }


def _is_whole(folder: FolderMetadata | None, directory_id: str) -> bool:
    return (
        folder is not None
        and folder.stored is not None
        and folder.damage is None
        and folder.directory_id == directory_id
    )


def has_majority(voters: VoterSet, found: Mapping[int, FolderMetadata]) -> bool:
    """Return whether the metadata of a majority of the voters is there and whole."""
    return len(voters) - len(lost_voters(voters, found)) >= voters.majority


def folders_missing(voters: VoterSet, found: Mapping[int, FolderMetadata]) -> str:
    """Return which of the voters' folders are not there or damaged, and what to do."""
    lost, damaged = lost_voters(voters, found), damaged_voters(voters, found)
    missing = " or ".join(str(number) for number in lost if number not in damaged)
    there = f"the metadata of {len(voters) - len(lost)} of {len(voters)} voters is {'whole' if damaged else 'there'}"
    put_back = [f"put back the folder of node {missing}"] if missing else []
    return f"{there}: {'; '.join([*describe_damage(damaged), *put_back])}"


def describe_damage(damaged: Mapping[int, str]) -> list[str]:
    """Return one clause for each damaged voter."""
    return [f"that of node {number} is damaged ({reason})" for number, reason in damaged.items()]


def quorum_lost(path: str, lack: str) -> QuorumLostError:
    """Return the error for a cluster in which no majority of the voters can start. ``lack`` says which are missing or
    damaged."""
    return QuorumLostError(
        f"the cluster {path!r} cannot start: {lack}. If nothing can be put back from their disks or from a copy,"
        f" `replog quorum recover {path}` goes on with what is left, and says what that may lose"
    )
