"""Conversion: move the metadata of a version-0.1 cluster from the controller's file to the voters' metadata logs.

The state of the file becomes a snapshot that ends at its offset + 1, so that offsets and broker
epochs go on growing. Each voter whose folder is there gets it, durably. Then the file gets another
name, at which version 0.1 refuses the folder. Until that rename the file counts: a voter's folder
that no election has used yet is made again if it is half made or of an older state. So a crash at
any call leaves a cluster that the next call converts.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyreplog.controller.layout import STATE_FILE
from pyreplog.controller.state import ControllerState, load
from pyreplog.errors import CorruptError, StorageError
from pyreplog.log import CONVERTED_NAME, METADATA_FOLDER, MetadataFolder, join, read_properties, read_whole
from pyreplog.ports import Clock, Disk
from pyreplog.quorum import Identity, QuorumConfig, VoterSet, format_quorum, is_formatted
from pyreplog.wire import SnapshotId, encode_record

__all__ = ["Converted", "convert_cluster"]

_EPOCH: Final = 0
"""The epoch of the snapshot: no leader of a quorum wrote it."""


class Converted(NamedTuple):
    """The state that was moved, and the offset at which the voters' logs begin."""

    state: ControllerState
    end_offset: int


def convert_cluster(
    disk: Disk, home: str, voters: VoterSet, roots: Mapping[int, str], clock: Clock, config: QuorumConfig
) -> Converted | None:
    """Convert the cluster in the folder ``home``; return None if it has no controller's file.

    ``roots``: the folder of each node that is there, by its id; REQUIRES their locks, or that of
    the cluster. ``voters``: the first voters, with the directory ids of their folders.

    Raises :class:`StorageError` if fewer than a majority of the voters' folders are there, and
    :class:`CorruptError` if the file is damaged or a node's metadata log disagrees with it.
    """
    state = load(disk, home)
    if state is None:
        return None
    old, kept = join(home, STATE_FILE), join(home, CONVERTED_NAME)
    has_both = disk.stat(kept) is not None  # a power cut during the rename may leave both names of the one file
    if has_both and read_whole(disk, kept) != read_whole(disk, old):
        raise _disagree(old, kept, "the cluster was converted already")
    mine = [voter for voter in voters if _holds(disk, roots.get(voter.node_id), voter.directory_id)]
    _check_majority(voters, [voter.node_id for voter in mine], home)
    snapshot_id = SnapshotId(state.image.offset + 1, _EPOCH)
    records = [encode_record(record) for record in state.image.records()]
    for root in roots.values():
        _check_unused(disk, old, join(root, METADATA_FOLDER), snapshot_id, records)
    for voter in mine:
        root = roots[voter.node_id]
        folder = join(root, METADATA_FOLDER)
        disk.make_directory(folder)
        identity = Identity(voter.node_id, voter.directory_id, state.cluster_id)
        format_quorum(disk, folder, identity, clock, voters, config, snapshot_id, records)
        disk.sync_directory(root)
    if has_both:
        disk.sync_directory(home)  # the name that stays must be durable first
        disk.remove(old)  # to rename one name of a file to another one changes nothing
    else:
        disk.rename(old, kept)
    disk.sync_directory(home)
    return Converted(state, snapshot_id.end_offset)


def _check_majority(voters: VoterSet, present: Sequence[int], home: str) -> None:
    """Raise :class:`StorageError` unless the folders of a majority of the voters are ``present``."""
    if len(present) >= voters.majority:
        return
    numbers = [voter.node_id for voter in voters]
    missing = [number for number in numbers if number not in present]
    raise StorageError(
        errno.ENOENT,
        f"a cluster of version 0.1 is converted while the folders of {voters.majority} of its voters,"
        f" {_numbers(numbers)}, are there. Those of {_numbers(missing)} are missing, or are not the ones in which these"
        " nodes last ran: mount their disks, and open the cluster again",
        home,
    )


def _holds(disk: Disk, root: str | None, directory_id: str) -> bool:
    properties = None if root is None else read_properties(disk, root)
    return properties is not None and properties.get("directory.id") == directory_id


def _check_unused(disk: Disk, old: str, folder: str, snapshot_id: SnapshotId, records: list[bytes]) -> None:
    """Raise :class:`CorruptError` if the metadata log in ``folder`` is another state than that of the file ``old``, and
    not one of an earlier conversion that was cut short and that version 0.1 has gone on from."""
    if not is_formatted(disk, folder):
        return
    found = MetadataFolder(disk, folder)
    end = found.end()
    if end.epoch > _EPOCH:
        raise _disagree(old, folder, f"the log has epoch {end.epoch}, and ends at offset {end.end_offset}")
    if end.end_offset > snapshot_id.end_offset:
        why = f"the log ends at offset {end.end_offset}, and the file at offset {snapshot_id.end_offset}"
        raise _disagree(old, folder, why)
    if end.end_offset == snapshot_id.end_offset and list(found.records()) != records:
        raise _disagree(old, folder, f"both end at offset {end.end_offset}, with other records")


def _disagree(old: str, other: str, why: str) -> CorruptError:
    return CorruptError(
        f"{old} and {other} are two states of one cluster: {why}. Move the one away that is not the cluster's latest",
        file=old,
    )


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
