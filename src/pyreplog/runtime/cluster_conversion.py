"""Conversion of a cluster with one controller's file to a quorum, before its nodes open."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pyreplog.controller import STATE_FILE, ControllerState, controller_address, convert_cluster, load
from pyreplog.log import CONVERTED_NAME, read_properties
from pyreplog.ports import Clock, Disk
from pyreplog.quorum import QuorumConfig, ReplicaKey, Voter, VoterSet
from pyreplog.runtime.node_folders import NodeFolders
from pyreplog.runtime.state_check import check_state

__all__ = ["convert", "voter_count"]

VOTERS_MAX: Final = 3
"""The number of voters of a cluster that has as many nodes."""

_log = logging.getLogger("pyreplog")


def voter_count(nodes: int) -> int:
    """Return how many of so many nodes vote."""
    return VOTERS_MAX if nodes >= VOTERS_MAX else 1


def convert(disk: Disk, home: str, folders: NodeFolders, clock: Clock, config: QuorumConfig) -> None:
    """Give the metadata in the controller's file to the voters of a quorum, if the cluster in ``home`` has the file.

    REQUIRES the cluster's lock, that no node is open, and that ``disk`` reaches the nodes' folders. An interrupted
    conversion is finished by the next call. Raises :class:`StorageError` if the folders of a majority of the voters are
    not there, and :class:`CorruptError` if the file is damaged or does not fit the nodes' folders.
    """
    state = load(disk, home)
    if state is None:
        return
    check_state(disk, home, folders)
    roots: dict[int, str] = {}
    directories: dict[int, str] = {}
    for number in range(1, max(folders.count, *state.image.brokers, 1) + 1):
        properties = read_properties(disk, folders.of(number))
        if properties is not None and properties.get("directory.id"):
            roots[number] = folders.of(number)
            directories[number] = properties["directory.id"]
    if not roots and not state.image.brokers and not state.image.topics:
        # No node ever ran, so nothing depends on the file.
        disk.rename(f"{home}/{STATE_FILE}", f"{home}/{CONVERTED_NAME}")
        disk.sync_directory(home)
        return
    converted = convert_cluster(disk, home, _voters(state, directories), roots, clock, config)
    if converted is not None:
        _log.info("the cluster %r has a quorum now, whose metadata begins at offset %d", home, converted.end_offset)


def _voters(state: ControllerState, directories: Mapping[int, str]) -> VoterSet:
    """Return the first voters: the nodes with the lowest numbers. A node whose folder is away votes with the last
    directory that the controller knows of it."""
    known = {number: broker.log_dirs[0] for number, broker in state.image.brokers.items() if broker.log_dirs}
    known.update(directories)
    return VoterSet(
        Voter.at(ReplicaKey(number, directory_id), controller_address(number))
        for number, directory_id in sorted(known.items())[: voter_count(len(known))]
    )
