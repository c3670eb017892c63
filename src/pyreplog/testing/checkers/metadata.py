"""Checkers of the controller's decisions, alone and against the logs: S1, S2, S5, S7, S18, S19."""

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
    """Checks that a replica that begins to lead in the newest leader epoch has every committed record."""

    numbers = ("S1",)
    says = "the leader has every committed record"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed
        self._seen: dict[PartitionKey, int] = {}
        self._unclean: dict[PartitionKey, None] = {}

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """Note the unclean elections: after one nothing is promised for the partition."""
        for _, key, partition in world.partitions():
            if partition.recovering:
                self._unclean[key] = None

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Check each replica that has begun to lead."""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            replica = hosted.replica
            if replica.leader_epoch <= self._seen.get(key, -1) or not replica.is_leader:
                continue
            partition = world.image.partition(key)
            if partition is None or partition.leader_epoch != replica.leader_epoch or key in self._unclean:
                continue  # the epoch is not the newest any more, or a person asked for an unclean election
            self._seen[key] = replica.leader_epoch
            self._committed.compare(world, machine.node_id, key, hosted.log, "S1")


class CandidatesComplete(Checker):
    """Checks that every electable replica has every committed record.

    It looks at each running member of ISR and ELR whenever one of the two changes.
    """

    numbers = ("S2",)
    says = "every member of ISR and ELR has every committed record"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed
        self._seen: dict[PartitionKey, int] = {}

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """Check each partition whose metadata changed."""
        for name, key, partition in world.partitions():
            if self._seen.get(key) == partition.partition_epoch:
                continue
            self._seen[key] = partition.partition_epoch
            for node_id in (*partition.isr, *partition.elr):
                if not world.is_registered(node_id):
                    continue
                trusted = partition.leader >= 0 and node_id in partition.isr
                if not trusted and (name, node_id) in world.rotten:
                    continue  # a suspect: the election will compare its reported end with the others' ends
                hosted = world.hosted(node_id, key)
                if (
                    hosted is not None
                    and (trusted or not hosted.log.incomplete)
                    and hosted.replica.role.name != "offline"
                ):
                    self._committed.compare(world, node_id, key, hosted.log, "S2")


class OneLeaderPerEpoch(Checker):
    """Checks that at most one incarnation of one broker ever leads a partition in one leader epoch."""

    numbers = ("S5",)
    says = "one leader per epoch"

    def __init__(self) -> None:
        self._leaders: dict[tuple[PartitionKey, int], tuple[int, int]] = {}

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Note the leaders on this node, and compare them with the known leaders of their epochs."""
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
    """Checks that the leader of the newest epoch waits for every replica in the controller's ISR.

    Each of them must be in that leader's maximal in-sync set, because its high watermark waits for that set.
    """

    numbers = ("S7",)
    says = "the leader waits for every replica that the controller counts as in sync"

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Check the partitions that this node leads."""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            if hosted.replica.is_leader:
                self._look(world, key, machine.node_id)

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """Check every partition after a decision of the controller."""
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
    """Checks that the controller's metadata are well formed.

    ISR and ELR are disjoint parts of the assignment. The leader is in the ISR. If the ISR reaches the minimum, the
    ELR is empty. Epochs never fall, and every change has a partition epoch of its own.
    """

    numbers = ("S18",)
    says = "metadata is well formed"

    def __init__(self) -> None:
        self._epochs: dict[PartitionKey, tuple[int, int]] = {}

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """Check every partition that changed."""
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
    """Checks that every committed record is on at least one replica.

    It checks a partition only while no more copies lost records than the acknowledgement table allows.
    """

    numbers = ("S19",)
    says = "every committed record is on some replica"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed
        self._starts = -1

    def controller_turn(self, world: ObservedWorld, image: MetadataImage) -> None:
        """Check, once all nodes are up again, that one replica has every committed record."""
        starts = sum(machine.starts for machine in world.machines.values())
        if starts == self._starts:
            return
        for name, key, partition in world.partitions():
            ends = [world.log_of(node_id, key) for node_id in partition.replicas]
            there = [log.end_offset for log in ends if log is not None]
            if len(there) < len(ends):
                return
            if len(world.lost.get(name, ())) >= max(minimum_of(world, key), 1):
                continue  # more copies lost records than the table allows
            if max(there) < self._committed.end(key):
                world.broken(
                    "S19",
                    f"{name}: committed up to {self._committed.end(key)}, but the longest copy ends at {max(there)}",
                )
        self._starts = starts


def minimum_of(world: ObservedWorld, key: PartitionKey) -> int:
    """Return the partition's ``min.insync.replicas``, or the number of its replicas if that is less."""
    partition = world.image.partition(key)
    return 1 if partition is None else effective_min_isr(world.image.topics[key[0]], partition)
