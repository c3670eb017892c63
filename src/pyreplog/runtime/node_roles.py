"""The roles of a cluster's nodes: which of them hold partitions, and which vote for the controller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal, cast

from pyreplog.config import suggestion, whole
from pyreplog.errors import ConfigError

__all__ = ["NodeRole", "RolesAsked", "brokers_of", "checked_roles", "parsed_role", "settled_roles", "voters_of"]

NodeRole = Literal["broker", "controller", "broker,controller"]
"""A value of Kafka's ``process.roles``."""
RolesAsked = Mapping[int, str] | None
"""The role of each node that the caller named; None: none was named."""
_ROLES: Final = ("broker", "controller", "broker,controller")
_EXAMPLE: Final = "such as {4: 'controller'}"


def parsed_role(text: str) -> NodeRole | None:
    """Return the role in a text of ``process.roles``; None for any other text."""
    parts = {part.strip() for part in text.split(",")}
    if not parts or not parts <= {"broker", "controller"}:
        return None
    return cast("NodeRole", ",".join(sorted(parts)))


def checked_roles(roles: object) -> dict[int, NodeRole] | None:
    """Return the roles by node number. Raises ConfigError for anything but a dict of known roles."""
    if roles is None:
        return None
    if not isinstance(roles, Mapping):
        raise ConfigError(f"roles is {roles!r}; it must be a dict of roles by node number, {_EXAMPLE}")
    checked: dict[int, NodeRole] = {}
    for key, text in roles.items():
        number = whole("a node number of roles", key, 1)
        role = parsed_role(text) if isinstance(text, str) else None
        if role is None:
            hint = suggestion(text, _ROLES) if isinstance(text, str) else f"; it must be one of {', '.join(_ROLES)}"
            raise ConfigError(f"the role of node {number} is {text!r}{hint}")
        checked[number] = role
    return checked


def settled_roles(
    asked: Mapping[int, NodeRole] | None,
    kept: Mapping[int, NodeRole],
    voters: Collection[int],
    brokers: Collection[int],
    count: int,
) -> dict[int, NodeRole]:
    """Return the role of each of ``count`` nodes; an empty dict if there were never roles.

    ``kept``: the roles that the nodes' folders hold. A node keeps its role. A new node
    without one is a broker. Raises ConfigError for other roles than before, for nodes that do
    not exist, and if there is no voter or no broker.
    """
    if asked is None and not kept:
        return {}
    named = asked or {}
    for number in named:
        if number > count:
            raise ConfigError(f"roles names node {number}; the nodes are 1 to {count}: add nodes with nodes={number}")
    roles: dict[int, NodeRole] = {}
    for number in range(1, count + 1):
        before = kept.get(number) or _inferred(number, voters, brokers)
        wanted = named.get(number)
        if before is not None and wanted is not None and wanted != before:
            raise ConfigError(
                f"the role of node {number} is {before!r} in this cluster, and roles says {wanted!r}; a node keeps its"
                f" role: leave node {number} out of roles, and add a node with the other role"
            )
        roles[number] = before or wanted or "broker"
    if not voters_of(roles):
        raise ConfigError(
            f"roles has no voter: give a node the role 'controller' or 'broker,controller', {_EXAMPLE}"
            if asked is not None
            else "no node of the cluster has a vote: perhaps it was not made completely. Open it with the roles= that"
            " it was made with"
        )
    if not brokers_of(roles):
        raise ConfigError(
            "roles has no broker, so no node could hold a partition: leave a node out, or give one the role"
            " 'broker' or 'broker,controller'"
        )
    return roles


def _inferred(number: int, voters: Collection[int], brokers: Collection[int]) -> NodeRole | None:
    """Return the role of a node that the metadata knows, but whose folder does not hold it."""
    if number in voters:
        return "broker,controller" if number in brokers else "controller"
    return "broker" if number in brokers else None


def voters_of(roles: Mapping[int, NodeRole]) -> list[int]:
    """Return the nodes that vote."""
    return _with("controller", roles.items())


def brokers_of(roles: Mapping[int, NodeRole]) -> list[int]:
    """Return the nodes that hold partitions."""
    return _with("broker", roles.items())


def _with(part: str, roles: Iterable[tuple[int, NodeRole]]) -> list[int]:
    return [number for number, role in roles if part in role.split(",")]
