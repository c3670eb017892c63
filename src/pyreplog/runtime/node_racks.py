"""The racks of a cluster's nodes: a name for each node, or none at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyreplog.errors import ConfigError

__all__ = ["NO_RACK", "RacksAsked", "checked_rack", "checked_racks", "settled_racks"]

RacksAsked = Sequence[str | None] | None
"""The rack of each node, in the order of their numbers; all None: no racks. None: as before."""
NO_RACK: Final = ""
"""A node registers with this name to be in no rack any more."""
NAME_MAX: Final = 249


def checked_racks(racks: object) -> tuple[str | None, ...] | None:
    """Return the racks as they were given. Raises ConfigError for anything but names for all nodes, or for none."""
    if racks is None:
        return None
    if isinstance(racks, (str, bytes)) or not isinstance(racks, Iterable):
        raise ConfigError(f"racks is {racks!r}; it must be a list of the rack of each node, such as ['a', 'b', 'c']")
    names: list[str | None] = []
    for number, name in enumerate(racks, 1):
        if name is not None and not (isinstance(name, str) and 0 < len(name) <= NAME_MAX and name.isprintable()):
            raise ConfigError(
                f"the rack of node {number} is {name!r}; it must be a name of 1 to {NAME_MAX} printable characters"
            )
        names.append(name)
    without = [str(number) for number, name in enumerate(names, 1) if name is None]
    if 0 < len(without) < len(names):
        raise ConfigError(
            f"racks names no rack for node {', '.join(without)}: give one to every node, or to none, because copies"
            " are spread over racks only if all are known"
        )
    return tuple(names)


def checked_rack(rack: object, read_from: str) -> str:
    """Return the rack of a consumer; "" if it has none. Raises ConfigError for a wrong one."""
    if rack is None:
        return ""
    if not isinstance(rack, str) or not rack:
        raise ConfigError(f"rack is {rack!r}; it must be the name of a rack, or None")
    if read_from != "follower":
        raise ConfigError(f"rack is {rack!r}, and read_from is {read_from!r}: only read_from='follower' has a choice")
    return rack


def settled_racks(
    asked: Sequence[str | None] | None, known: Mapping[int, str | None], count: int
) -> dict[int, str | None]:
    """Return the rack with which each of ``count`` nodes registers: :data:`NO_RACK`: in none; None: in that of its
    last registration.

    ``known``: the racks of the nodes that hold partitions, as far as the controller knows them. Raises ConfigError
    for a list of another length, and if a node without a rack would be added to a cluster with racks.
    """
    numbers = range(1, count + 1)
    if asked is None:
        without = [str(number) for number, rack in sorted(known.items()) if rack is None]
        if without and any(known.values()):
            raise ConfigError(
                f"the nodes of this cluster have racks, and node {', '.join(without)} has none:"
                f" open it with the racks of all {count} nodes, racks=[...]"
            )
        return dict.fromkeys(numbers)
    if len(asked) != count:
        raise ConfigError(
            f"racks has {len(asked)} names, and the cluster has {count} nodes: give the rack of each node, in the order"
            " of their numbers"
        )
    return {number: asked[number - 1] or NO_RACK for number in numbers}
