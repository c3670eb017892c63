"""What the controller may decide, and what holds between its decisions and the logs: S1, S2, S5, S7, S18, S19."""

from __future__ import annotations

from pyreplog.controller import MetadataImage, PartitionKey, effective_min_isr
from pyreplog.testing.checkers.base import Checker
from pyreplog.testing.checkers.logs import CommittedIdentical
from pyreplog.testing.observed import ObservedNode, ObservedWorld

__all__ = [
    "CandidatesComplete",
    "LeaderComplete",
    "MaximalSuperset",
    "MetadataWellFormed",
    "OneLeaderPerEpoch",
    "SomewhereKept",
]


class LeaderComplete(Checker):
    """Whoever begins to lead in the newest leader epoch has everything that was ever exposed."""

    numbers = ("S1",)
    says = "the leader has everything that was committed"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed
        self._seen: dict[PartitionKey, int] = {}
        self._unclean: dict[PartitionKey, None] = {}

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """Unclean elections: from then on nothing is promised."""
        for _, key, partition in world.partitions():
            if partition.recovering:
                self._unclean[key] = None

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """New reigns."""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            replica = hosted.replica
            if replica.leader_epoch <= self._seen.get(key, -1) or not replica.is_leader:
                continue
            partition = world.image.partition(key)
            if partition is None or partition.leader_epoch != replica.leader_epoch or key in self._unclean:
                continue  # not the newest any more; or somebody asked for an unclean election
            self._seen[key] = replica.leader_epoch
            self._committed.compare(world, machine.node_id, key, hosted.log, "S1")


class CandidatesComplete(Checker):
    """Whoever may be elected has everything that was committed: each running member of isr and elr, whenever they
    change."""

    numbers = ("S2",)
    says = "every member of isr and elr has everything that was committed"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed
        self._seen: dict[PartitionKey, int] = {}

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """Look at what changed."""
        for name, key, partition in world.partitions():
            if self._seen.get(key) == partition.partition_epoch:
                continue
            self._seen[key] = partition.partition_epoch
            for node_id in (*partition.isr, *partition.elr):
                if not world.is_registered(node_id):
                    continue
                trusted = partition.leader >= 0 and node_id in partition.isr
                if not trusted and (name, node_id) in world.rotten:
                    continue  # a suspect: what it says it has will be compared with what the others have
                hosted = world.hosted(node_id, key)
                if (
                    hosted is not None
                    and (trusted or not hosted.log.incomplete)
                    and hosted.replica.role.name != "offline"
                ):
                    self._committed.compare(world, node_id, key, hosted.log, "S2")


class OneLeaderPerEpoch(Checker):
    """At most one incarnation of one broker ever leads a partition in one leader epoch."""

    numbers = ("S5",)
    says = "one leader per epoch"

    def __init__(self) -> None:
        self._leaders: dict[tuple[PartitionKey, int], tuple[int, int]] = {}

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Who leads in which epoch?"""
        assert machine.node is not None
        who = (machine.node_id, machine.starts)
        for key, hosted in machine.node.hosted.items():
            replica = hosted.replica
            if replica.is_leader:
                known = self._leaders.setdefault((key, replica.leader_epoch), who)
                if known != who:
                    world.broken(
                        "S5", f"{hosted.topic_partition} epoch {replica.leader_epoch}: nodes {known} and {who}"
                    )


class MaximalSuperset(Checker):
    """Whoever the controller counts as in sync is in the maximal in-sync set of the leader of the newest epoch, so
    that its high watermark waits for them."""

    numbers = ("S7",)
    says = "the leader waits for everyone the controller counts as in sync"

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """After the leader's turn."""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            if hosted.replica.is_leader:
                self._look(world, key, machine.node_id)

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """After a decision."""
        for _, key, partition in world.partitions():
            self._look(world, key, partition.leader)

    def _look(self, world: ObservedWorld, key: PartitionKey, leader: int) -> None:
        partition = world.image.partition(key)
        if partition is None or partition.leader != leader or leader < 0:
            return
        hosted = world.hosted(leader, key)
        if hosted is None or not hosted.replica.is_leader or hosted.replica.leader_epoch != partition.leader_epoch:
            return
        maximal = hosted.replica.maximal_isr
        if len(partition.isr) >= hosted.log.config.min_insync_replicas and not all(
            member in maximal for member in partition.isr
        ):
            about = (
                f"{hosted.topic_partition}: the controller has {partition.isr}, leader {leader} waits for"
                f" {tuple(maximal)}"
            )
            world.broken("S7", about)


class MetadataWellFormed(Checker):
    """isr and elr are disjoint parts of the assignment, the leader is in the isr, at or above the minimum the elr
    is empty; epochs never fall, and every change has a partition epoch of its own."""

    numbers = ("S18",)
    says = "metadata is well formed"

    def __init__(self) -> None:
        self._epochs: dict[PartitionKey, tuple[int, int]] = {}

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """Look at every partition."""
        for name, key, one in world.partitions():
            before = self._epochs.get(key, (-1, -1))
            now = (one.leader_epoch, one.partition_epoch)
            if now == before:
                continue
            members = [*one.isr, *one.elr]
            well = (
                len(dict.fromkeys(members)) == len(members)
                and all(member in one.replicas for member in members)
                and (one.leader < 0 or one.leader in one.isr)
                and (len(one.isr) < effective_min_isr(image.topics[key[0]], one) or not one.elr)
            )
            if not well or one.leader_epoch < before[0] or one.partition_epoch <= before[1]:
                world.broken("S18", f"{name}: {one}")
            self._epochs[key] = now


class SomewhereKept(Checker):
    """What was exposed is on at least one replica, as long as no more was taken away than the acknowledgement table
    allows."""

    numbers = ("S19",)
    says = "what was committed is kept somewhere"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed
        self._starts = -1

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """Once everybody is up again: does anybody have all of it?"""
        starts = sum(machine.starts for machine in world.machines.values())
        if starts == self._starts:
            return
        for name, key, partition in world.partitions():
            ends = [world.log_of(node_id, key) for node_id in partition.replicas]
            there = [log.end_offset for log in ends if log is not None]
            if len(there) < len(ends):
                return
            if len(world.lost.get(name, ())) >= max(minimum_of(world, key), 1):
                continue  # more was taken than the table allows
            if max(there) < self._committed.end(key):
                world.broken(
                    "S19",
                    f"{name}: {self._committed.end(key)} was committed, and the longest copy ends at {max(there)}",
                )
        self._starts = starts


def minimum_of(world: ObservedWorld, key: PartitionKey) -> int:
    """The partition's ``min.insync.replicas``, as far as there are replicas."""
    partition = world.image.partition(key)
    return 1 if partition is None else effective_min_isr(world.image.topics[key[0]], partition)
