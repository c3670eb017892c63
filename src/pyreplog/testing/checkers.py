"""Invariants as small classes. A world shows each of them every turn; one that is broken raises :class:`InvariantBroken`.

Ghost state (what was ever committed, who led when) is kept here, outside of what is checked. Names in brackets are those of
``docs/internals/replication.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyreplog.log import Log
from pyreplog.quorum import MetadataImage, PartitionImage, PartitionKey, effective_min_isr
from pyreplog.record import Record, RecordBatch, records_of, split
from pyreplog.testing.workload import Attempt, SimConsumer
from pyreplog.values import TopicPartition

if TYPE_CHECKING:
    from pyreplog.testing.world import Machine, World

__all__ = [
    "AcknowledgedSurvive",
    "CandidatesComplete",
    "Checker",
    "CommittedIdentical",
    "InvariantBroken",
    "MetadataWellFormed",
    "NoBrokenRule",
    "NothingReordered",
    "OneLeaderPerEpoch",
    "ReadsConsistent",
    "Sightings",
    "WatermarkMonotonic",
    "standard_checkers",
]

READ_SIZE = 1 << 20


class InvariantBroken(AssertionError):
    """``rule`` did not hold at ``at_ns`` of the run of ``seed``; ``events`` is what was done to the cluster before."""

    def __init__(self, rule: str, about: str, seed: int, at_ns: int, events: Sequence[str]) -> None:
        self.rule = rule
        self.about = about
        self.seed = seed
        self.at_ns = at_ns
        story = "\n  ".join(events[-40:])
        super().__init__(
            f"{rule} does not hold: {about}\n  at {at_ns / 1e9:.4f} s; repeat with: python -m pyreplog.testing --seed {seed}\n  {story}"
        )


class Checker:
    """Looks on. Every method may raise through ``world.broken``; the base class sees nothing wrong in anything."""

    def node_turn(self, world: World, machine: Machine) -> None:
        """A node had a turn."""

    def controller_turn(self, world: World, image: MetadataImage) -> None:
        """The controller had a turn."""

    def settled(self, world: World, attempt: Attempt) -> None:
        """A producer learnt the outcome of one of its records."""

    def read(self, world: World, consumer: SimConsumer, record: Record) -> None:
        """A consumer read a record."""

    def final(self, world: World) -> None:
        """All is healed and quiet."""


class Committed(NamedTuple):
    """A batch that was once below a leader's high watermark."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int


def batches_of(log: Log, start: int, end: int) -> list[RecordBatch]:
    """The batches of ``log`` from offset ``start`` up to ``end``."""
    found: list[RecordBatch] = []
    while start < end:
        slice_ = log.read(start, READ_SIZE, end)
        batches = [batch for part in slice_.parts() for batch in split(part)]
        if not batches:
            break
        found.extend(batches)
        start = batches[-1].next_offset
    return found


def summary(batch: RecordBatch) -> Committed:
    """What tells a batch from any other."""
    return Committed(batch.base_offset, batch.next_offset, batch.leader_epoch, batch.crc)


class CommittedIdentical(Checker):
    """What was below a leader's high watermark once is the same for ever, on every replica, byte for byte (S3, S4); offsets are dense
    and never used twice."""

    def __init__(self) -> None:
        self.committed: dict[PartitionKey, list[Committed]] = {}

    def end(self, key: PartitionKey) -> int:
        """One past the last offset that was ever committed."""
        found = self.committed.get(key)
        return found[-1].next_offset if found else 0

    def node_turn(self, world: World, machine: Machine) -> None:
        """Take in what this node's leaders committed."""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            if not hosted.replica.is_leader:
                continue
            end = self.end(key)
            if hosted.log.high_watermark > end:
                known = self.committed.setdefault(key, [])
                for batch in batches_of(hosted.log, end, hosted.log.high_watermark):
                    one = summary(batch)
                    if one.base_offset != end:
                        world.broken("offsets are dense", f"{hosted.topic_partition} on node {machine.node_id}: {one} after offset {end}")
                    known.append(one)
                    end = one.next_offset

    def compare(self, world: World, node_id: int, key: PartitionKey, log: Log, rule: str) -> None:
        """REQUIRES that ``log`` has all that is committed; compares it with what is known."""
        known = self.committed.get(key, [])
        end = self.end(key)
        if log.end_offset < end:
            world.broken(rule, f"{log.topic_partition} on node {node_id} ends at {log.end_offset}, but {end} was committed")
        found = [summary(batch) for batch in batches_of(log, log.start_offset, end)]
        for theirs, ours in zip(known, found, strict=False):
            if theirs != ours:
                world.broken(rule, f"{log.topic_partition} on node {node_id} has {ours} where {theirs} was committed")
        if len(found) != len(known):
            world.broken(rule, f"{log.topic_partition} on node {node_id} has {len(found)} of {len(known)} committed batches")

    def final(self, world: World) -> None:
        """Every replica has all of it."""
        for name, key, partition in world.partitions():
            for node_id in partition.replicas:
                log = world.log_of(node_id, key)
                if log is None:
                    world.broken("committed prefixes are identical", f"{name} is not on node {node_id}")
                    continue
                self.compare(world, node_id, key, log, "committed prefixes are identical")


class CandidatesComplete(Checker):
    """Whoever may be elected has everything that was committed (S2): each running member of isr and elr, whenever they change."""

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed
        self._seen: dict[PartitionKey, int] = {}

    def controller_turn(self, world: World, image: MetadataImage) -> None:
        """Look at what changed."""
        for _, key, partition in world.partitions():
            if self._seen.get(key) == partition.partition_epoch:
                continue
            self._seen[key] = partition.partition_epoch
            for node_id in (*partition.isr, *partition.elr):
                root = world.machines[node_id].root
                broker = image.brokers.get(node_id)
                if root is None or broker is None or broker.incarnation_id != root.incarnation_id:
                    continue
                hosted = world.hosted(node_id, key)
                if hosted is not None and not hosted.log.incomplete and hosted.replica.role != "offline":
                    self._committed.compare(world, node_id, key, hosted.log, "candidates are complete")


class OneLeaderPerEpoch(Checker):
    """At most one incarnation of one broker ever leads a partition in one leader epoch (S5)."""

    def __init__(self) -> None:
        self._leaders: dict[tuple[PartitionKey, int], tuple[int, int]] = {}

    def node_turn(self, world: World, machine: Machine) -> None:
        """Who leads in which epoch?"""
        assert machine.node is not None
        who = (machine.node_id, machine.starts)
        for key, hosted in machine.node.hosted.items():
            replica = hosted.replica
            if replica.is_leader:
                known = self._leaders.setdefault((key, replica.leader_epoch), who)
                if known != who:
                    world.broken("one leader per epoch", f"{hosted.topic_partition} epoch {replica.leader_epoch}: nodes {known} and {who}")


class WatermarkMonotonic(Checker):
    """A leader's high watermark never falls within its reign, and start <= high watermark <= end everywhere (S8, S9)."""

    def __init__(self) -> None:
        self._reigns: dict[tuple[PartitionKey, int, int], int] = {}

    def node_turn(self, world: World, machine: Machine) -> None:
        """Where do they stand?"""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            log = hosted.log
            if not log.start_offset <= log.high_watermark <= log.end_offset:
                about = f"{hosted.topic_partition} on node {machine.node_id}: {log.start_offset}, {log.high_watermark}, {log.end_offset}"
                world.broken("start <= high watermark <= end", about)
            if hosted.replica.is_leader:
                reign = (key, hosted.replica.leader_epoch, machine.node_id)
                before = self._reigns.get(reign, 0)
                if log.high_watermark < before:
                    world.broken("the high watermark is monotonic", f"{hosted.topic_partition}: {before} to {log.high_watermark}")
                self._reigns[reign] = log.high_watermark


class MetadataWellFormed(Checker):
    """isr and elr are disjoint parts of the assignment, the leader is in the isr, at or above the minimum the elr is empty; epochs never
    fall (S5, S18)."""

    def __init__(self) -> None:
        self._epochs: dict[PartitionKey, tuple[int, int]] = {}

    def controller_turn(self, world: World, image: MetadataImage) -> None:
        """Look at every partition."""
        for name, key, one in world.partitions():
            members = [*one.isr, *one.elr]
            well = (
                len(dict.fromkeys(members)) == len(members)
                and all(member in one.replicas for member in members)
                and (one.leader < 0 or one.leader in one.isr)
                and (len(one.isr) < effective_min_isr(image.topics[key[0]], one) or not one.elr)
            )
            before = self._epochs.get(key, (-1, -1))
            if not well or one.leader_epoch < before[0] or one.partition_epoch < before[1]:
                world.broken("metadata is well formed", f"{name}: {one}")
            self._epochs[key] = (one.leader_epoch, one.partition_epoch)


class NoBrokenRule(Checker):
    """No replica reported that one of its own safety rules did not hold; no disk failed that was not made to."""

    def node_turn(self, world: World, machine: Machine) -> None:
        """Ask the node."""
        assert machine.node is not None
        for broken in machine.node.broken_rules:
            world.broken(f"rule {broken.rule}", broken.about)
        if machine.node.offline is not None:
            world.broken("nobody goes offline", f"node {machine.node_id}: {machine.node.offline}")
        if machine.node.failure is not None:
            world.broken("everybody may join", f"node {machine.node_id}: {machine.node.failure}")


class ReadsConsistent(Checker):
    """Readers see every offset once, in order, without gaps, always the same bytes, and nothing that is not committed (S3, S10, S23)."""

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed
        self._values: dict[tuple[TopicPartition, int], bytes] = {}
        self._next: dict[tuple[str, TopicPartition], int] = {}

    def read(self, world: World, consumer: SimConsumer, record: Record) -> None:
        """One record."""
        name = TopicPartition(record.topic, record.partition)
        if consumer.lost_position:
            world.broken("readers keep their place", str(consumer.lost_position[0]))
        key = (consumer.address, name)
        expected = self._next.get(key, 0)
        if record.offset != expected:
            world.broken("readers see every offset once", f"{name}: {consumer.address} read {record.offset} where {expected} was next")
        self._next[key] = record.offset + 1
        value = record.value or b""
        known = self._values.setdefault((name, record.offset), value)
        if known != value:
            world.broken("nothing is altered", f"{name} offset {record.offset}: {known[:60]!r} was read, and now {value[:60]!r}")
        topic_id = world.image.topic_ids[record.topic]
        if record.offset >= self._committed.end((topic_id, record.partition)):
            world.broken("nobody reads past the high watermark", f"{name}: {consumer.address} read {record.offset}")


class AcknowledgedSurvive(Checker):
    """What was acknowledged as the table says is where the acknowledgement said, once; what was refused is nowhere; nothing is there that
    nobody sent (S1, S12, S13)."""

    def __init__(self) -> None:
        self._acknowledged: dict[tuple[TopicPartition, int], Attempt] = {}

    def settled(self, world: World, attempt: Attempt) -> None:
        """One offset is given to one record only."""
        if attempt.outcome == "ok" and self._promised(world, attempt):
            place = (attempt.topic_partition, attempt.offset)
            other = self._acknowledged.setdefault(place, attempt)
            if other is not attempt:
                world.broken("one record per offset", f"{place}: {other.value[:60]!r} and {attempt.value[:60]!r}")

    def _promised(self, world: World, attempt: Attempt) -> bool:
        """acks=1 promises nothing once somebody else leads."""
        return attempt.acks == -1 or world.topic_options(attempt.topic_partition.topic).replication_factor == 1

    def final(self, world: World) -> None:
        """Compare the logs with the attempts."""
        attempts = {attempt.value: attempt for producer in world.producers for attempt in producer.attempts}
        for name, key, partition in world.partitions():
            log = world.log_of(partition.leader, key)
            assert log is not None
            seen: dict[bytes, int] = {}
            values: dict[int, bytes] = {}
            for batch in batches_of(log, log.start_offset, log.end_offset):
                for record in records_of(batch, name.topic, name.partition):
                    value = record.value or b""
                    values[record.offset] = value
                    if value in seen:
                        world.broken("nothing is duplicated", f"{name}: {value[:60]!r} at {seen[value]} and {record.offset}")
                    seen[value] = record.offset
                    attempt = attempts.get(value)
                    if attempt is None:
                        world.broken("nothing is there that nobody sent", f"{name} offset {record.offset}: {value[:60]!r}")
                    elif attempt.outcome == "refused":
                        world.broken("what was refused is not there", f"{name} offset {record.offset}: {value[:60]!r}")
            for (place, offset), attempt in self._acknowledged.items():
                if place == name and values.get(offset) != attempt.value:
                    there = values.get(offset, b"nothing")
                    about = f"{name} offset {offset}: {attempt.value[:60]!r} was acknowledged, {there[:60]!r} is there"
                    world.broken("what was acknowledged survives", about)


class NothingReordered(Checker):
    """Acknowledged records of one producer are in the log in the order in which they were sent."""

    def final(self, world: World) -> None:
        """By producer and partition."""
        for producer in world.producers:
            last: dict[TopicPartition, int] = {}
            for attempt in producer.attempts:
                if attempt.outcome != "ok" or attempt.acks != -1:
                    continue
                before = last.get(attempt.topic_partition, -1)
                if attempt.offset <= before:
                    about = f"{attempt.topic_partition}: {attempt.value[:60]!r} at {attempt.offset}, after {before}"
                    world.broken("nothing is reordered", about)
                last[attempt.topic_partition] = attempt.offset


class Sightings(Checker):
    """Checks nothing, but counts in ``world.seen`` what a set of runs should reach together: else the others saw only fair weather."""

    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, PartitionImage] = {}
        self._logs: dict[tuple[int, int, PartitionKey], tuple[int, bool]] = {}

    def controller_turn(self, world: World, image: MetadataImage) -> None:
        """Elections and in-sync sets."""
        for _, key, now in world.partitions():
            before = self._partitions.get(key)
            if before is now:
                continue
            self._partitions[key] = now
            if before is None:
                continue
            if now.leader >= 0 and now.leader != before.leader:
                self._count(world, "a leader of the elr" if now.leader in before.elr else "a leader of the isr")
            if now.leader < 0 <= before.leader:
                self._count(world, "no leader")
            if now.elr and not before.elr:
                self._count(world, "below the minimum")
            if now.leader == before.leader and len(now.isr) < len(before.isr):
                self._count(world, "a shrink")
            if now.leader == before.leader and len(now.isr) > len(before.isr):
                self._count(world, "a join")

    def node_turn(self, world: World, machine: Machine) -> None:
        """What happened to logs."""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            log = hosted.log
            before = self._logs.get((machine.node_id, machine.starts, key))
            if before is None:
                self._count(world, "a torn tail", log.recovery.torn_size > 0)
                self._count(world, "an incomplete copy", log.incomplete)
                self._count(world, "an unclean complete copy", not log.recovery.clean and not log.incomplete)
            else:
                self._count(world, "a divergent tail", log.generation > before[0])
                self._count(world, "complete again", before[1] and not log.incomplete)
            self._logs[machine.node_id, machine.starts, key] = (log.generation, log.incomplete)

    def settled(self, world: World, attempt: Attempt) -> None:
        """Outcomes."""
        self._count(world, f"an append that is {attempt.outcome}")

    def _count(self, world: World, what: str, happened: bool = True) -> None:
        if happened:
            world.seen[what] = world.seen.get(what, 0) + 1


def standard_checkers() -> list[Checker]:
    """All of them, fresh."""
    committed = CommittedIdentical()
    return [
        committed,
        CandidatesComplete(committed),
        OneLeaderPerEpoch(),
        WatermarkMonotonic(),
        MetadataWellFormed(),
        NoBrokenRule(),
        ReadsConsistent(committed),
        AcknowledgedSurvive(),
        NothingReordered(),
        Sightings(),
    ]
