"""What clients may see: S10, S12, S13, S14, S21. (What a history alone can tell is in ``history.py``.)"""

from __future__ import annotations

from collections.abc import Mapping

from pyreplog.controller import BrokerImage, PartitionKey
from pyreplog.record import Record, records_of
from pyreplog.testing.checkers.base import Checker, batches_of
from pyreplog.testing.checkers.logs import CommittedIdentical
from pyreplog.testing.observed import ObservedNode, ObservedWorld
from pyreplog.testing.workload import Attempt, SimConsumer
from pyreplog.values import TopicPartition

__all__ = ["AckImplies", "DeletedStaysDeleted", "NoPhantoms", "OncePerRecord", "ReadsCommitted"]


class ReadsCommitted(Checker):
    """No reader ever gets an offset that no leader's high watermark had passed."""

    numbers = ("S10",)
    says = "nobody reads past the high watermark"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed

    def read(self, world: ObservedWorld, consumer: SimConsumer, record: Record) -> None:
        """One record."""
        if consumer.lost_position:
            world.broken("S10", f"a reader lost its place: {consumer.lost_position[0]}")
        topic_id = world.image.topic_ids[record.topic]
        if record.offset >= self._committed.end((topic_id, record.partition)):
            world.broken("S10", f"{record.topic}-{record.partition}: {consumer.address} read {record.offset}")


class OncePerRecord(Checker):
    """What was acknowledged as the table says is where the acknowledgement said, once, and a producer's records are
    in the order in which they were sent."""

    numbers = ("S12",)
    says = "acknowledged records are where they should be, once, in order"

    def __init__(self) -> None:
        self._acknowledged: dict[tuple[TopicPartition, int], Attempt] = {}

    def settled(self, world: ObservedWorld, attempt: Attempt) -> None:
        """One offset is given to one record only."""
        if attempt.outcome == "ok" and attempt.offset >= 0 and world.promises(attempt):
            place = (attempt.topic_partition, attempt.offset)
            other = self._acknowledged.setdefault(place, attempt)
            if other is not attempt:
                world.broken("S12", f"{place}: {other.value[:60]!r} and {attempt.value[:60]!r}")

    def final(self, world: ObservedWorld) -> None:
        """Compare the logs with the attempts (of the world's own producers: of other programs it does not know what
        they wanted)."""
        if not world.producers:
            return
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
                        world.broken("S12", f"{name}: {value[:60]!r} at {seen[value]} and {record.offset}")
                    seen[value] = record.offset
            for (place, offset), attempt in self._acknowledged.items():
                if place == name and offset >= log.start_offset and values.get(offset) != attempt.value:
                    there = values.get(offset, b"nothing")
                    about = f"{name} offset {offset}: {attempt.value[:60]!r} was acknowledged, {there[:60]!r} is there"
                    world.broken("S12", about)
            for attempt in (
                one for producer in world.producers for one in producer.attempts if one.topic_partition == name
            ):
                somewhere = attempt.outcome == "ok" and attempt.offset < 0 and world.promises(attempt)
                if somewhere and attempt.value not in seen and not log.start_offset:
                    world.broken("S12", f"{name}: {attempt.value[:60]!r} was acknowledged, and is nowhere")
        self._ordered(world)

    def _ordered(self, world: ObservedWorld) -> None:
        for producer in world.producers:
            last: dict[TopicPartition, int] = {}
            for attempt in producer.attempts:
                if attempt.outcome != "ok" or attempt.acks != -1 or attempt.offset < 0:
                    continue
                before = last.get(attempt.topic_partition, -1)
                if attempt.offset <= before:
                    world.broken(
                        "S12", f"{attempt.topic_partition}: {attempt.value[:60]!r} at {attempt.offset}, after {before}"
                    )
                last[attempt.topic_partition] = attempt.offset


class NoPhantoms(Checker):
    """Every record stems from an attempt, and what was refused is nowhere."""

    numbers = ("S13",)
    says = "nothing is there that nobody sent, or that was refused"

    def final(self, world: ObservedWorld) -> None:
        """Every record of every leader's log, in a world that has only its own producers."""
        if not world.producers:
            return
        attempts = {attempt.value: attempt for producer in world.producers for attempt in producer.attempts}
        for name, key, partition in world.partitions():
            log = world.log_of(partition.leader, key)
            assert log is not None
            for batch in batches_of(log, log.start_offset, log.end_offset):
                for record in records_of(batch, name.topic, name.partition):
                    attempt = attempts.get(record.value or b"")
                    if attempt is None:
                        world.broken(
                            "S13", f"{name} offset {record.offset}: nobody sent {(record.value or b'')[:60]!r}"
                        )
                    elif attempt.outcome == "refused":
                        world.broken("S13", f"{name} offset {record.offset}: {attempt.value[:60]!r} was refused")


class AckImplies(Checker):
    """When the high watermark moves, at least ``min.insync.replicas`` replicas hold all below it, flushed where the
    topic is ``sync``; and an acknowledgement of acks=all comes only after that. A member that is down is taken to
    hold what the leader believes it has."""

    numbers = ("S14",)
    says = "an acknowledged record is on enough replicas"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed
        self._seen: dict[PartitionKey, int] = {}
        self._epochs: dict[tuple[int, PartitionKey], int] = {}
        self._leading: set[tuple[int, PartitionKey]] = set()

    def started(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """It leads nothing yet."""
        self._leading = {one for one in self._leading if one[0] != machine.node_id}

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Leaders whose high watermark moved, those too that were replaced in the same turn."""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            high_watermark, leads = hosted.log.high_watermark, hosted.replica.is_leader
            place = (machine.node_id, key)
            led = place in self._leading
            if not (leads or led):
                continue
            (self._leading.add if leads else self._leading.discard)(place)
            epoch = self._epochs.get(place)
            self._epochs[place] = hosted.replica.partition_epoch
            if high_watermark <= self._seen.get(key, 0):
                continue
            self._seen[key] = high_watermark
            # Where the set changed in the same turn nobody knows which came first: then any replica
            # counts.
            same = leads and epoch == hosted.replica.partition_epoch
            members = hosted.replica.maximal_isr if same else hosted.replica.replicas
            brokers, replicas = hosted.replica.brokers, hosted.replica.replicas
            holders = [
                member
                for member in members
                if member not in brokers or self._holds(world, member, brokers[member].epoch, key, high_watermark)
            ]
            if len(holders) < min(hosted.log.config.min_insync_replicas, len(replicas)):
                about = (
                    f"{hosted.topic_partition}: high watermark {high_watermark}, held by {holders} of {tuple(members)}"
                )
                world.broken("S14", about)

    def disk_call(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """What moved before a leader's disk fails in the same turn: it stops, and may lead again with that high
        watermark."""
        self.node_turn(world, machine)

    def settled(self, world: ObservedWorld, attempt: Attempt) -> None:
        """Acknowledged means committed."""
        if attempt.outcome == "ok" and attempt.acks == -1:
            topic_id = world.image.topic_ids[attempt.topic_partition.topic]
            end = self._committed.end((topic_id, attempt.topic_partition.partition))
            if attempt.offset >= end:
                world.broken(
                    "S14",
                    f"{attempt.topic_partition}: offset {attempt.offset} was acknowledged, and committed is {end}",
                )

    @staticmethod
    def _holds(world: ObservedWorld, member: int, epoch: int, key: PartitionKey, high_watermark: int) -> bool:
        if not world.is_registered(member) or world.image.brokers[member].epoch != epoch:
            return True  # it is down, or another incarnation of which the leader has not heard
        log = world.log_of(member, key)
        return log is None or log.ack_offset >= high_watermark


class DeletedStaysDeleted(Checker):
    """After DeleteRecords succeeded nothing below the low watermark it told can be read on any replica that is
    alive; no log ever begins above what was asked for or above what is committed."""

    numbers = ("S21",)
    says = "what was deleted cannot be read, and nothing else was deleted"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Where do its logs begin?"""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            start = hosted.log.start_offset
            if start == 0:
                continue
            asked = world.delete_asked.get(hosted.topic_partition, 0)
            if start > asked or start > self._committed.end(key):
                about = (
                    f"{hosted.topic_partition} on node {machine.node_id} begins at {start}; up to {asked} was to be"
                    " deleted"
                )
                world.broken("S21", about)

    def deleted(
        self,
        world: ObservedWorld,
        topic_partition: TopicPartition,
        low_watermark: int,
        known: Mapping[int, BrokerImage] | None = None,
    ) -> None:
        """DeleteRecords succeeded with this low watermark: look at every replica that is alive as the controller
        sees it, and the leader that answered, where ``known`` says what that one has heard of."""
        for name, key, partition in world.partitions():
            if name != topic_partition:
                continue
            for node_id in partition.replicas:
                log = world.log_of(node_id, key)
                alive = log is not None and world.is_registered(node_id) and not world.image.brokers[node_id].fenced
                if known is not None and (node_id not in known or known[node_id].fenced):
                    continue
                # What lies above its own high watermark cannot be read there.
                if alive and log is not None and log.start_offset < min(low_watermark, log.high_watermark):
                    world.broken(
                        "S21", f"{name} on node {node_id} begins at {log.start_offset}; {low_watermark} was reported"
                    )
