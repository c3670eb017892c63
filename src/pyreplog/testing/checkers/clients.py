"""Checkers of the promises to clients: S10, S12, S13, S14, S21.

``history.py`` has the checks that need only the history of the clients.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyreplog.controller import BrokerImage, PartitionKey
from pyreplog.log import Log, UnloadedLog
from pyreplog.record import Record, records_of
from pyreplog.testing.checkers.base import Checker, batches_of
from pyreplog.testing.checkers.logs import CommittedIdentical
from pyreplog.testing.observed import ObservedNode, ObservedWorld
from pyreplog.testing.workload import Attempt, SimConsumer, identity
from pyreplog.values import TopicPartition

__all__ = ["AckImplies", "DeletedStaysDeleted", "NoPhantoms", "OncePerRecord", "ReadsCommitted"]


class ReadsCommitted(Checker):
    """Checks that a reader gets only records below a high watermark that some leader has had."""

    numbers = ("S10",)
    says = "no reader passes the high watermark"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed

    def read(self, world: ObservedWorld, consumer: SimConsumer, record: Record) -> None:
        """Check one record that a consumer read."""
        if consumer.lost_position:
            world.broken("S10", f"{consumer.address} lost its position: {consumer.lost_position[0]}")
        topic_id = world.image.topic_ids[record.topic]
        if record.offset >= self._committed.end((topic_id, record.partition)):
            world.broken("S10", f"{record.topic}-{record.partition}: {consumer.address} read {record.offset}")


class OncePerRecord(Checker):
    """Checks that each acknowledged record is in the log once, at its acknowledged offset.

    It checks the acknowledgements that the acknowledgement table promises to keep. A producer's records must be in
    the order in which they were sent.
    """

    numbers = ("S12",)
    says = "acknowledged records are where they should be, once, in order"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed
        self._acknowledged: dict[tuple[TopicPartition, int], Attempt] = {}

    def settled(self, world: ObservedWorld, attempt: Attempt) -> None:
        """Check that no two records were acknowledged at the same offset."""
        if attempt.outcome == "ok" and attempt.offset >= 0 and world.promises(attempt):
            place = (attempt.topic_partition, attempt.offset)
            other = self._acknowledged.setdefault(place, attempt)
            if other is not attempt:
                world.broken("S12", f"{place}: {other.value[:60]!r} and {attempt.value[:60]!r}")

    def final(self, world: ObservedWorld) -> None:
        """Compare the leaders' logs with the attempts of the world's own producers.

        A world without producers of its own is not checked, because the attempts of its clients are not known.
        """
        if not world.producers:
            return
        for name, key, partition in world.partitions():
            log = world.log_of(partition.leader, key)
            assert log is not None
            seen: dict[bytes, int] = {}
            values: dict[int, bytes] = {}
            for offset, value in self._records(name, key, log).items():
                values[offset] = value
                if value in seen:
                    world.broken("S12", f"{name}: {value[:60]!r} at {seen[value]} and {offset}")
                seen[value] = offset
            for (place, offset), attempt in self._acknowledged.items():
                if place == name and offset >= log.start_offset and values.get(offset) != attempt.value:
                    there = values.get(offset, b"nothing")
                    about = f"{name} offset {offset}: {attempt.value[:60]!r} was acknowledged, found {there[:60]!r}"
                    world.broken("S12", about)
            for attempt in (
                one for producer in world.producers for one in producer.attempts if one.topic_partition == name
            ):
                somewhere = attempt.outcome == "ok" and attempt.offset < 0 and world.promises(attempt)
                if somewhere and attempt.value not in seen and not log.start_offset:
                    world.broken("S12", f"{name}: {attempt.value[:60]!r} was acknowledged, but is not in the log")
        self._ordered(world)

    def _records(self, name: TopicPartition, key: PartitionKey, log: Log | UnloadedLog) -> dict[int, bytes]:
        """Return what tells each record of a log, by its offset: for a compacted topic of all that was committed,
        with which another checker compares the logs."""
        history = self._committed.compacted.get(key)
        if history is not None:
            return {offset: kept.identity for offset, kept in history.records.items()}
        batches = batches_of(log, log.start_offset, log.end_offset)
        return {one.offset: identity(one) for batch in batches for one in records_of(batch, name.topic, name.partition)}

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
    """Checks that every record in a log was sent by a producer, and that no refused record is in a log."""

    numbers = ("S13",)
    says = "no record exists that no producer sent, or that was refused"

    def final(self, world: ObservedWorld) -> None:
        """Check every record of every leader's log, if the world has producers of its own."""
        if not world.producers:
            return
        attempts = {attempt.value: attempt for producer in world.producers for attempt in producer.attempts}
        for name, key, partition in world.partitions():
            log = world.log_of(partition.leader, key)
            assert log is not None
            for batch in batches_of(log, log.start_offset, log.end_offset):
                for record in records_of(batch, name.topic, name.partition):
                    attempt = attempts.get(identity(record))
                    if attempt is None:
                        world.broken(
                            "S13", f"{name} offset {record.offset}: no producer sent {identity(record)[:60]!r}"
                        )
                    elif attempt.outcome == "refused":
                        world.broken("S13", f"{name} offset {record.offset}: {attempt.value[:60]!r} was refused")


class AckImplies(Checker):
    """Checks that an acknowledged record is on ``min.insync.replicas`` replicas.

    When the high watermark moves, at least that many replicas must hold all records below it, flushed if the topic
    is ``sync``. An append with acks=all must be acknowledged only after that. A member that is down counts as
    holding the records that the leader believes it has.
    """

    numbers = ("S14",)
    says = "an acknowledged record is on enough replicas"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed
        self._seen: dict[PartitionKey, int] = {}
        self._epochs: dict[tuple[int, PartitionKey], int] = {}
        self._minimums: dict[tuple[int, PartitionKey], int] = {}
        self._leading: set[tuple[int, PartitionKey]] = set()

    def started(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Forget the leaderships of the node's former incarnation."""
        self._leading = {one for one in self._leading if one[0] != machine.node_id}

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Check each leader whose high watermark moved, also if it was replaced in the same turn."""
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
            minimum = hosted.log.config.min_insync_replicas
            earlier = self._minimums.get(place, minimum)
            self._minimums[place] = minimum
            if high_watermark <= self._seen.get(key, 0):
                continue
            self._seen[key] = high_watermark
            # If the set or the minimum changed in the same turn, the order of the two changes is
            # unknown: any replica counts then, and the lower minimum.
            same = leads and epoch == hosted.replica.partition_epoch
            members = hosted.replica.maximal_isr if same else hosted.replica.replicas
            brokers, replicas = hosted.replica.brokers, hosted.replica.replicas
            holders = [
                member
                for member in members
                if member not in brokers or self._holds(world, member, brokers[member].epoch, key, high_watermark)
            ]
            if len(holders) < min(minimum, earlier, len(replicas)):
                about = (
                    f"{hosted.topic_partition}: high watermark {high_watermark}, held by {holders} of {tuple(members)}"
                )
                world.broken("S14", about)

    def disk_call(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Check the high watermarks that moved earlier in this turn.

        If this call fails, the node stops before the turn ends, and may lead again with that high watermark.
        """
        self.node_turn(world, machine)

    def settled(self, world: ObservedWorld, attempt: Attempt) -> None:
        """Check that a record acknowledged with acks=all is committed."""
        if attempt.outcome == "ok" and attempt.acks == -1:
            topic_id = world.image.topic_ids[attempt.topic_partition.topic]
            end = self._committed.end((topic_id, attempt.topic_partition.partition))
            if attempt.offset >= end:
                world.broken(
                    "S14",
                    f"{attempt.topic_partition}: offset {attempt.offset} was acknowledged, committed up to {end}",
                )

    @staticmethod
    def _holds(world: ObservedWorld, member: int, epoch: int, key: PartitionKey, high_watermark: int) -> bool:
        if not world.is_registered(member) or world.image.brokers[member].epoch != epoch:
            return True  # it is down, or the leader does not know this incarnation yet
        log = world.log_of(member, key)
        return log is None or log.ack_offset >= high_watermark


class DeletedStaysDeleted(Checker):
    """Checks that deleted records cannot be read, and that no other record was deleted.

    After a DeleteRecords request succeeded, no live replica serves records below the low watermark of its response.
    No log ever begins above the offset that a client asked for, or above the committed end.
    """

    numbers = ("S21",)
    says = "a deleted record cannot be read, and no other record was deleted"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Check where the node's logs begin."""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            start = hosted.log.start_offset
            if start == 0:
                continue
            asked = world.delete_asked.get(hosted.topic_partition, 0)
            if start > asked or start > self._committed.end(key):
                about = (
                    f"{hosted.topic_partition} on node {machine.node_id} begins at {start}; clients asked to delete"
                    f" up to {asked}"
                )
                world.broken("S21", about)

    def deleted(
        self,
        world: ObservedWorld,
        topic_partition: TopicPartition,
        low_watermark: int,
        known: Mapping[int, BrokerImage] | None = None,
    ) -> None:
        """Check the live replicas after DeleteRecords succeeded with ``low_watermark``.

        A replica counts as live if the controller's metadata say so and, unless ``known`` is None, if ``known``
        says so too: these are the brokers in the metadata of the leader that answered.
        """
        for name, key, partition in world.partitions():
            if name != topic_partition:
                continue
            for node_id in partition.replicas:
                log = world.log_of(node_id, key)
                alive = log is not None and world.is_registered(node_id) and not world.image.brokers[node_id].fenced
                if known is not None and (node_id not in known or known[node_id].fenced):
                    continue
                # A replica serves no records above its own high watermark.
                if alive and log is not None and log.start_offset < min(low_watermark, log.high_watermark):
                    world.broken(
                        "S21",
                        f"{name} on node {node_id} begins at {log.start_offset}, below the reported {low_watermark}",
                    )
