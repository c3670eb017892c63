"""The quorum's storage on a disk: the metadata log, ``quorum-state``, and snapshots, in one folder."""

from __future__ import annotations

from pyreplog.errors import InternalError
from pyreplog.ports import Clock, Disk
from pyreplog.quorum.voters import Identity, VoterSet

__all__ = ["format_quorum"]


def format_quorum(disk: Disk, folder: str, identity: Identity, clock: Clock, voters: VoterSet | None) -> None:
    """Make the folder of a new node, with the bootstrap snapshot: KRaftVersion 1 and ``voters``.

    ``voters`` None: the node is an observer that learns the voters from the leader.
    """
    raise InternalError("the machine is not here")
