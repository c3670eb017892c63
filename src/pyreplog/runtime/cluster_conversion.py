"""Conversion of a cluster with one controller's file to a quorum, before its nodes open."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from random import Random, SystemRandom
from typing import Final

from pyreplog.controller import STATE_FILE, ControllerState, controller_address, convert_cluster, load
from pyreplog.errors import ConfigError
from pyreplog.log import CONVERTED_NAME, ROLES_PROPERTY, LogRoot, keep_roles, read_properties
from pyreplog.ports import Clock, Disk
from pyreplog.quorum import QuorumConfig, ReplicaKey, Voter, VoterSet
from pyreplog.runtime.node_folders import NodeFolders
from pyreplog.runtime.node_roles import NodeRole, parsed_role, settled_roles, voters_of
from pyreplog.runtime.state_check import check_state

__all__ = ["convert", "voter_count"]

VOTERS_MAX: Final = 3
"""The number of voters of a cluster that has as many nodes."""

_log = logging.getLogger("pyreplog")


def voter_count(nodes: int) -> int:
    """Return how many of so many nodes vote."""
    return VOTERS_MAX if nodes >= VOTERS_MAX else 1


def convert(
    disk: Disk,
    home: str,
    folders: NodeFolders,
    clock: Clock,
    config: QuorumConfig,
    asked: Mapping[int, NodeRole] | None = None,
) -> None:
    """Give the metadata in the controller's file to the voters of a quorum, if the cluster in ``home`` has the file.

    ``asked``: the roles that the caller wants; None: those that an interrupted conversion kept, or else the nodes with
    the lowest numbers vote. A new node that votes gets its folder here. REQUIRES the cluster's lock, that no node is
    open, and that ``disk`` reaches the nodes' folders. An interrupted conversion is finished by the next call.

    Raises :class:`ConfigError` if the roles cannot be had, :class:`StorageError` if the folders of a majority of the
    voters are not there, and :class:`CorruptError` if the file is damaged or does not fit the nodes' folders.
    """
    state = load(disk, home)
    if state is None:
        return
    check_state(disk, home, folders)
    roles = _settled_roles(disk, state, folders, asked)
    for number in roles:
        _prepare(disk, number, roles, state, folders, clock)
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
    voters = _voters(state, directories, set(voters_of(roles)))
    converted = convert_cluster(disk, home, voters, roots, clock, config)
    if converted is not None:
        _log.info("the cluster %r has a quorum now, whose metadata begins at offset %d", home, converted.end_offset)


def _settled_roles(
    disk: Disk, state: ControllerState, folders: NodeFolders, asked: Mapping[int, NodeRole] | None
) -> dict[int, NodeRole]:
    """Return the role of each node; an empty dict if neither the caller nor a folder names one."""
    count = max(folders.count, *state.image.brokers, 1)
    kept: dict[int, NodeRole] = dict(asked or {})
    for number in range(1, count + 1):
        role = parsed_role((read_properties(disk, folders.of(number)) or {}).get(ROLES_PROPERTY, ""))
        if role is not None:
            kept.setdefault(number, role)
    roles = settled_roles(asked, kept, (), (), count)
    for number, role in roles.items():
        if number in state.image.brokers and role == "controller":
            raise ConfigError(
                f"node {number} of this cluster may hold partitions, so it cannot only vote: give it the role"
                f" 'broker,controller', or give 'controller' to a new node, roles={{{count + 1}: 'controller'}} with"
                f" nodes={count + 1}"
            )
    return roles


def _prepare(
    disk: Disk,
    number: int,
    roles: Mapping[int, NodeRole],
    state: ControllerState,
    folders: NodeFolders,
    clock: Clock,
) -> None:
    """Keep the role of a node in its folder, durably, before the conversion: an opening that names no roles follows
    it. Make the folder of a new node that votes."""
    path = folders.of(number)
    if read_properties(disk, path) is None:
        if number in state.image.brokers or number not in voters_of(roles):
            return  # its folder is away, or its first start makes it
        random = Random(SystemRandom().getrandbits(64))
        LogRoot.open(disk, path, clock=clock, random=random, node_id=number, cluster_id=state.cluster_id).close()
    keep_roles(disk, path, roles[number], clock.wall_ms())


def _voters(state: ControllerState, directories: Mapping[int, str], named: Container[int]) -> VoterSet:
    """Return the first voters: the ``named`` nodes, or else those with the lowest numbers. A node whose folder is away
    votes with the last directory that the controller knows of it."""
    known = {number: broker.log_dirs[0] for number, broker in state.image.brokers.items() if broker.log_dirs}
    known.update(directories)
    numbers = [number for number in sorted(known) if number in named] or sorted(known)[: voter_count(len(known))]
    return VoterSet(Voter.at(ReplicaKey(number, known[number]), controller_address(number)) for number in numbers)
