"""NodeDisks: one disk for each node of a cluster, looked at before the node starts and handed to it then."""

from __future__ import annotations

from collections.abc import Callable

from pyreplog.ports import Disk

__all__ = ["NodeDisks", "close_disk"]


class NodeDisks:
    """Makes the disks of the nodes by their names ("node-1", ...)."""

    def __init__(self, make: Callable[[str], Disk]) -> None:
        self._make = make
        self._looked_at: dict[str, Disk] = {}

    def look_at(self, node_id: int) -> Disk:
        """Return the disk of a node that has not started. It stays here until :meth:`take` or :meth:`close`."""
        name = f"node-{node_id}"
        if name not in self._looked_at:
            self._looked_at[name] = self._make(name)
        return self._looked_at[name]

    def take(self, name: str) -> Disk:
        """Return the disk for a start of the node ``name``, which owns it then."""
        found = self._looked_at.pop(name, None)
        return self._make(name) if found is None else found

    def close(self) -> None:
        """Close the disks that no node took."""
        while self._looked_at:
            close_disk(self._looked_at.popitem()[1])


def close_disk(disk: Disk) -> None:
    """Close ``disk`` if it has a ``close`` method: disks of tests may have none."""
    close = getattr(disk, "close", None)
    if close is not None:
        close()
