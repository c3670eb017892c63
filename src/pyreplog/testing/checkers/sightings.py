"""Counts the rare states that a run reaches."""

from __future__ import annotations

from pyreplog.controller import MetadataImage, PartitionImage, PartitionKey
from pyreplog.testing.checkers.base import Checker
from pyreplog.testing.observed import ObservedNode, ObservedWorld
from pyreplog.testing.workload import Attempt

__all__ = ["Sightings"]


class Sightings(Checker):
    """Counts the rare states of a run in ``world.seen``, and checks nothing.

    A set of runs must reach all of them together; otherwise the checkers were not put to the test.
    """

    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, PartitionImage] = {}
        self._logs: dict[tuple[int, int, PartitionKey], tuple[int, bool]] = {}

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """Count the elections and the changes of ISR and ELR."""
        for _, key, now in world.partitions():
            before = self._partitions.get(key)
            if before is now:
                continue
            self._partitions[key] = now
            if before is None:
                continue
            if now.leader >= 0 and now.leader != before.leader:
                self._count(world, "a leader of the elr" if now.leader in before.elr else "a leader of the isr")
                self._count(world, "a preferred leader again", now.leader == now.replicas[0] and before.leader >= 0)
            if now.leader < 0 <= before.leader:
                self._count(world, "no leader")
            if now.elr and not before.elr:
                self._count(world, "below the minimum")
            if now.leader == before.leader and len(now.isr) < len(before.isr):
                self._count(world, "a shrink")
            if now.leader == before.leader and len(now.isr) > len(before.isr):
                self._count(world, "a join")

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Count torn tails, incomplete copies and truncations of the node's logs."""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            log = hosted.replica.load_log()
            before = self._logs.get((machine.node_id, machine.starts, key))
            if before is None:
                self._count(world, "a torn tail", log.recovery.torn_size > 0)
                self._count(world, "an incomplete copy", log.incomplete)
                self._count(world, "an unclean complete copy", not log.recovery.clean and not log.incomplete)
            else:
                self._count(world, "a divergent tail", log.generation > before[0])
                self._count(world, "complete again", before[1] and not log.incomplete)
            self._logs[machine.node_id, machine.starts, key] = (log.generation, log.incomplete)

    def settled(self, world: ObservedWorld, attempt: Attempt) -> None:
        """Count the outcomes of appends."""
        self._count(world, f"an append that is {attempt.outcome}")

    def _count(self, world: ObservedWorld, what: str, happened: bool = True) -> None:
        if happened:
            world.seen[what] = world.seen.get(what, 0) + 1
