"""The totals of a set of simulated quorums."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyreplog.testing.quorum.world import QuorumWorld

__all__ = ["QuorumTotals"]


@dataclass(slots=True)
class QuorumTotals:
    """Sums over simulated quorums."""

    seeds: int = 0
    events: int = 0
    message_faults: int = 0
    appends: int = 0
    acknowledged: int = 0
    elections: int = 0
    changes: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    on_leader: dict[str, int] = field(default_factory=dict)

    def add(self, world: QuorumWorld) -> None:
        """Add a finished run."""
        self.seeds += 1
        self.events += world.turns
        self.message_faults += world.network.lost + world.network.doubled + world.network.reordered
        self.appends += world.appends
        self.acknowledged += len(world.model.acknowledged)
        self.elections += len(world.model.leaders)
        self.changes += world.operator.changes
        for counts, found in ((self.faults, world.faults), (self.on_leader, world.on_leader)):
            for kind, times in found.items():
                counts[kind] = counts.get(kind, 0) + times

    def text(self, seconds: float) -> str:
        """Return the totals as one line. ``seconds`` is the processor time of the runs."""
        rate = f", {self.events / seconds:,.0f} events/s" if seconds > 0 else ""
        return (
            f"quorum: {self.seeds:,} seeds, {self.events:,} events{rate}, {sum(self.faults.values()):,} faults and"
            f" {self.message_faults:,} of messages, {self.appends:,} appends, {self.acknowledged:,} records"
            f" acknowledged, {self.elections:,} leaders, {self.changes:,} changes of voters: no invariant broke"
        )
