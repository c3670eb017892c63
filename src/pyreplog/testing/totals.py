"""The totals of a set of simulated runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyreplog.testing.world import World

__all__ = ["Totals"]


@dataclass(slots=True)
class Totals:
    """Sums over simulated runs.

    ``faults`` counts the faults of the nemesis by kind, ``hits`` those that struck the active controller of a quorum or
    a majority of its voters. ``message_faults`` counts messages that were lost, doubled or overtaken.
    """

    seeds: int = 0
    events: int = 0
    message_faults: int = 0
    appends: int = 0
    simulated_ns: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=dict)

    def add(self, world: World) -> None:
        """Add a finished run to the sums."""
        self.seeds += 1
        self.events += world.turns
        self.message_faults += world.network.lost + world.network.doubled + world.network.reordered
        self.appends += sum(len(producer.attempts) for producer in world.producers)
        self.simulated_ns += world.clock.monotonic_ns()
        for counts, found in ((self.faults, world.faults), (self.seen, world.seen), (self.hits, world.hits)):
            for what, times in found.items():
                counts[what] = counts.get(what, 0) + times

    @property
    def fault_count(self) -> int:
        """The number of faults of both kinds."""
        return sum(self.faults.values()) + self.message_faults

    def text(self, seconds: float) -> str:
        """Return the totals as one line. ``seconds`` is the processor time of the runs."""
        rate = f", {self.events / seconds:,.0f} events/s" if seconds > 0 else ""
        return (
            f"{self.seeds:,} seeds, {self.events:,} events{rate}, {sum(self.faults.values()):,} faults and"
            f" {self.message_faults:,} of messages, {self.appends:,} appends, {self.simulated_ns / 1e9:,.0f} s of"
            " simulated time: no invariant broke"
        )
