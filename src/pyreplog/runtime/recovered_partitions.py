"""What an election of a leader returns: the leader, and the offsets that it gave up."""

from __future__ import annotations

from dataclasses import dataclass

from pyreplog.wire import ElectLeadersPartitionResult

__all__ = ["ElectedLeader", "LostRange", "RecoveredPartition", "elected"]


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets that are given up: from ``start`` to ``end`` (exclusive; None: without an end). ``certain``: a copy that
    is away is known to have records there. If not, records there may have been acknowledged, and no copy that is up
    can tell."""

    start: int
    end: int | None
    certain: bool

    def __str__(self) -> str:
        if self.end is None:
            return f"all records from offset {self.start} on may be lost"
        return f"offsets {self.start} to {self.end - 1} are lost"


@dataclass(frozen=True, slots=True)
class ElectedLeader:
    """The outcome of one election. ``lost`` is empty after an election that loses nothing."""

    partition: int
    leader: int
    leader_epoch: int
    lost: tuple[LostRange, ...]

    def __str__(self) -> str:
        lost = "".join(f"; {one}" for one in self.lost)
        return f"node {self.leader} leads in epoch {self.leader_epoch}{lost}"


@dataclass(frozen=True, slots=True)
class RecoveredPartition(ElectedLeader):
    """The outcome of ``recover_partition``. ``missing``: the nodes with a copy that were not up, in whose absence it
    was decided. ``is_done`` False: after ``dry_run``, nothing was changed."""

    missing: tuple[int, ...]
    is_done: bool


def elected(part: ElectLeadersPartitionResult) -> ElectedLeader:
    """Return the outcome in a controller's answer."""
    lost = tuple(LostRange(one.start, None if one.end < 0 else one.end, one.certain) for one in part.lost)
    return ElectedLeader(part.partition_id, part.leader_id, part.leader_epoch, lost)
