"""Checkers of single logs and of logs compared with each other: S3, S4, S6, S8, S9, S11, S24, mark.

The checkers keep the ghost state themselves: every batch that was ever committed, and every batch seen at an offset.
"""

from __future__ import annotations

from itertools import pairwise

from pyreplog.controller import PartitionKey
from pyreplog.log import Log, UnloadedLog
from pyreplog.replica import Effect, Fetch, Reply
from pyreplog.testing.checkers.base import Checker, Committed, batches_of, summary
from pyreplog.testing.checkers.committed_records import CommittedRecords
from pyreplog.testing.observed import ObservedNode, ObservedWorld
from pyreplog.values import TopicPartition
from pyreplog.wire import PartitionData, PartitionProduceResponse

__all__ = [
    "CommittedIdentical",
    "CrashConsistent",
    "EpochsWellFormed",
    "LogsMatch",
    "MarkedBeforeTold",
    "NoBrokenRule",
    "WatermarkMonotonic",
]


class CommittedIdentical(Checker):
    """Checks that committed batches never change, on any replica.

    A batch is committed once it was below a leader's high watermark. From then on it must be the same, byte for
    byte. Offsets are dense and never used twice. Of a compacted topic a copy may lack records, as
    :class:`CommittedRecords` says, and everything else stays.
    """

    numbers = ("S3",)
    says = "a committed record never changes, on any replica"

    def __init__(self) -> None:
        self.committed: dict[PartitionKey, list[Committed]] = {}
        self.compacted: dict[PartitionKey, CommittedRecords] = {}
        """The records of the partitions that are or were compacted."""
        self._ends: dict[PartitionKey, int] = {}
        self._led: dict[tuple[int, int, PartitionKey], None] = {}

    def end(self, key: PartitionKey) -> int:
        """Return the offset after the last record that was ever committed."""
        return self._ends.get(key, 0)

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Note the batches that this node's leaders committed.

        That includes a leader that was replaced later in the same turn, after it had acknowledged them.
        """
        assert machine.node is not None
        ends, led = self._ends, self._led
        for key, hosted in machine.node.hosted.items():
            log = hosted.log
            end = ends.get(key, 0)
            place = (machine.node_id, machine.starts, key)
            if hosted.replica.is_leader:
                led[place] = None
            elif place not in led:
                continue
            else:
                del led[place]
            if log.high_watermark <= end:
                continue
            known = self.committed.setdefault(key, [])
            records = self.records_of(world, key)
            deleted = log.start_offset > end  # a wrong rule committed and deleted batches in one turn, unseen
            for batch in batches_of(log, max(end, log.start_offset), log.high_watermark):
                one = summary(batch)
                if one.base_offset != end and not deleted:
                    world.broken("S3", f"{hosted.topic_partition} on node {machine.node_id}: {one} after offset {end}")
                deleted = False
                known.append(one)
                if records is not None:
                    records.add(batch)
                end = one.next_offset
            ends[key] = end

    def records_of(self, world: ObservedWorld, key: PartitionKey) -> CommittedRecords | None:
        """Return the history of a partition whose topic is compacted from its beginning; None for another."""
        found = self.compacted.get(key)
        if found is None and not self._ends.get(key):
            topic = world.image.topics.get(key[0])
            if topic is not None and topic.log_config.may_have_gaps:
                found = self.compacted[key] = CommittedRecords()
        return found

    def disk_call(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Note the batches committed earlier in this turn: if this call fails, the log will show fewer."""
        self.node_turn(world, machine)

    def compare(self, world: ObservedWorld, node_id: int, key: PartitionKey, log: Log | UnloadedLog, rule: str) -> None:
        """Report ``rule`` as broken unless ``log`` has every committed batch and no other in its place."""
        end = self.end(key)
        if log.end_offset < end:
            world.broken(
                rule, f"{log.topic_partition} on node {node_id} ends at {log.end_offset}, but {end} was committed"
            )
        records = self.compacted.get(key)
        if records is not None:
            wrong = records.wrong(batches_of(log, log.start_offset, end), log.start_offset, end)
            if wrong:
                world.broken(rule, f"{log.topic_partition} on node {node_id}: {wrong}")
            return
        known = self.committed.get(key, [])
        if log.start_offset:
            known = [one for one in known if one.next_offset > log.start_offset]
        found = [summary(batch) for batch in batches_of(log, log.start_offset, end)]
        for theirs, ours in zip(known, found, strict=False):
            if theirs != ours:
                world.broken(rule, f"{log.topic_partition} on node {node_id} has {ours} where {theirs} was committed")
        if len(found) != len(known):
            world.broken(
                rule, f"{log.topic_partition} on node {node_id} has {len(found)} of {len(known)} committed batches"
            )

    def final(self, world: ObservedWorld) -> None:
        """Check that every replica has every committed batch."""
        for name, key, partition in world.partitions():
            for node_id in partition.replicas:
                log = world.log_of(node_id, key)
                if log is None:
                    world.broken("S3", f"{name} is not on node {node_id}")
                    continue
                self.compare(world, node_id, key, log, "S3")


class LogsMatch(Checker):
    """Checks that batches with the same offset and leader epoch are equal on every replica, committed or not.

    Their prefixes must be equal too. The comparison includes the offset and epoch of the batch before, so the
    prefixes are equal by induction. A compacted topic may have a gap before a batch, and a batch without some of its
    records: both only below the committed end, where other checkers look at the records.
    """

    numbers = ("S4",)
    says = "the same offset and epoch mean the same batch and the same prefix"

    def __init__(self, committed: CommittedIdentical | None = None) -> None:
        self._committed = committed
        self._batches: dict[tuple[PartitionKey, int, int, bool], tuple[int, int, int]] = {}
        self._seen: dict[tuple[int, int, PartitionKey], tuple[int, int]] = {}

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Compare the new batches of this node's logs."""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            log = hosted.log
            place = (machine.node_id, machine.starts, key)
            generation, looked = self._seen.get(place, (log.generation, log.start_offset))
            end = log.end_offset
            if end == looked and generation == log.generation:
                continue
            self._seen[place] = (log.generation, end)
            # Include the batch before the new ones: the first new batch is compared with it.
            begin = (
                log.start_offset if generation != log.generation or looked > end else max(looked - 1, log.start_offset)
            )
            before, behind = (-1, -1), -1
            cleaned_end = self._cleaned_end(key)
            for batch in batches_of(log, begin, end):
                base, epoch = batch.base_offset, batch.leader_epoch
                if base <= cleaned_end and behind != base:
                    pass  # compaction may have removed the batch before
                elif before[0] >= 0:
                    crc = batch.crc if base >= cleaned_end else -1
                    here = (crc, *before)
                    known = self._batches.setdefault((key, base, epoch, crc < 0), here)
                    if known != here:
                        about = (
                            f"offset {base} of epoch {epoch} is {here} on node {machine.node_id}, was {known}"
                            " (checksum, batch before)"
                        )
                        world.broken("S4", f"{hosted.topic_partition}: {about}")
                before, behind = (base, epoch), batch.next_offset

    def _cleaned_end(self, key: PartitionKey) -> int:
        """Return the offset below which compaction may have changed a partition; -1 if it is not compacted."""
        committed = self._committed
        return -1 if committed is None or key not in committed.compacted else committed.end(key)


class EpochsWellFormed(Checker):
    """Checks that epoch histories are well formed and match their batches.

    Epochs and offsets rise strictly, the history begins no later than the log, and it has the right leader epoch
    for every batch.
    """

    numbers = ("S6",)
    says = "epoch histories are well formed and match the batches"

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, PartitionKey], tuple[int, int, int, int]] = {}

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Check the epoch histories that changed."""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            log = hosted.log
            place = (machine.node_id, machine.starts, key)
            now = (log.generation, log.epochs.latest, len(log.epochs), log.end_offset)
            before = self._seen.get(place)
            if before == now:
                continue
            self._seen[place] = now
            begin = log.start_offset if before is None or before[:3] != now[:3] else before[3]
            self.look(world, machine.node_id, log, begin)

    def look(self, world: ObservedWorld, node_id: int, log: Log | UnloadedLog, begin: int) -> None:
        """Check the epoch history of ``log``, and its batches from offset ``begin``."""
        entries = log.epochs.entries
        about = (
            f"{log.topic_partition} on node {node_id}: {[tuple(one) for one in entries]}, log {log.start_offset} to"
            f" {log.end_offset}"
        )
        for one, other in pairwise(entries):
            if one.epoch >= other.epoch or one.start_offset >= other.start_offset:
                world.broken("S6", f"{about}: the history does not rise")
        if log.end_offset > log.start_offset and (not entries or entries[0].start_offset > log.start_offset):
            world.broken("S6", f"{about}: the history does not cover the log")
        if entries and entries[-1].start_offset > log.end_offset:
            world.broken("S6", f"{about}: the last epoch begins behind the log end")
        for batch in batches_of(log, max(begin, log.start_offset), log.end_offset):
            known = log.epochs.epoch_for_offset(
                max(batch.base_offset, log.start_offset)
            )  # the first batch may begin below the log start
            if known != batch.leader_epoch:
                world.broken("S6", f"{about}: the batch at {batch.base_offset} has epoch {batch.leader_epoch}")


class WatermarkMonotonic(Checker):
    """Checks that a leader's high watermark never falls, and never passes a member of the ISR.

    It must not fall within one reign. While the leader's epoch is the newest, it must not pass the end of any
    running ISR member, as the controller has the ISR; the flushed end counts if the topic is ``sync``. In every
    log, start <= high watermark <= end.
    """

    numbers = ("S8", "S9")
    says = "a leader's high watermark never falls and never passes a member of the in-sync set"

    def __init__(self) -> None:
        self._reigns: dict[tuple[PartitionKey, int, int], int] = {}

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Check the high watermarks of the node's replicas."""
        assert machine.node is not None
        for key, hosted in machine.node.hosted.items():
            log = hosted.log
            high_watermark = log.high_watermark
            if not log.start_offset <= high_watermark <= log.end_offset:
                about = (
                    f"{hosted.topic_partition} on node {machine.node_id}: {log.start_offset}, {high_watermark},"
                    f" {log.end_offset}"
                )
                world.broken("S9", about)
            if hosted.replica.is_leader:
                reign = (key, hosted.replica.leader_epoch, machine.node_id)
                before = self._reigns.get(reign, -1)
                if high_watermark < before:
                    world.broken(
                        "S8", f"{hosted.topic_partition}: the high watermark fell from {before} to {high_watermark}"
                    )
                if high_watermark > before:
                    self._reigns[reign] = high_watermark
                    self._members(world, key, hosted.topic_partition, hosted.replica.leader_epoch, high_watermark)

    def _members(
        self, world: ObservedWorld, key: PartitionKey, name: TopicPartition, leader_epoch: int, high_watermark: int
    ) -> None:
        partition = world.image.partition(key)
        if partition is None or partition.leader_epoch != leader_epoch:
            return
        for member in partition.isr:
            log = world.log_of(member, key)
            if log is not None and world.is_registered(member) and log.ack_offset < high_watermark:
                world.broken(
                    "S8",
                    f"{name}: high watermark {high_watermark}, but ISR member {member} has only {log.ack_offset}",
                )


class NoBrokenRule(Checker):
    """Checks that no node reports a broken rule or an unexpected failure.

    No replica may report that one of its own safety rules did not hold (T2: no truncation below its own high
    watermark). No client's request may fail with an unexpected exception. No node may go offline unless its disk
    was made to fail. Every node may join the cluster.
    """

    numbers = ("S11",)
    says = "no replica truncates below its high watermark, or reports another broken rule"

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Check the errors that the node has noted."""
        node = machine.node
        assert node is not None
        for broken in node.broken_rules:
            world.broken("S11", f"rule {broken.rule}: {broken.about}")
        for failed in node.failed_requests:
            world.broken("S11", f"node {machine.node_id}: a request failed unexpectedly: {failed}")
        if node.offline is not None and not machine.disk_failed:
            world.broken("S11", f"node {machine.node_id} went offline: {node.offline}")
        if node.failure is not None:
            world.broken("S11", f"node {machine.node_id} cannot join: {node.failure}")


class MarkedBeforeTold(Checker):
    """Checks that the durable mark holds what a replica tells others.

    After a kill only the mark separates a torn tail from damage. So a ``sync`` replica marks records as synced
    before it acknowledges them or fetches behind them, and a leader marks a high watermark before it sends it.
    """

    numbers = ("mark",)
    says = "what a replica tells others is in its durable mark"

    def effect(self, world: ObservedWorld, machine: ObservedNode, effect: Effect) -> None:
        """Compare a fetch or an answer with the mark."""
        assert machine.node is not None
        for hosted in machine.node.hosted.values():
            log = hosted.log
            if isinstance(log, UnloadedLog):
                continue
            mark = log.mark
            counts_synced = log.durability == "sync"
            match effect:
                case Fetch(_, request) if counts_synced and request.fetch_offset > log.start_offset:
                    told, marked = request.fetch_offset, mark.synced_end
                case Reply(_, _, PartitionProduceResponse(error_code=0) as result) if counts_synced:
                    told, marked = result.base_offset + 1, mark.synced_end
                case Reply(_, _, PartitionData(error_code=0)) if (
                    hosted.replica.is_leader and log.high_watermark > log.start_offset
                ):
                    told, marked = log.high_watermark, mark.high_watermark
                case _:
                    continue
            if marked < told:
                about = f"{type(effect).__name__} of node {machine.node_id} tells {told}, its mark says {marked}"
                world.broken("mark", f"{hosted.topic_partition}: {about}")


class CrashConsistent(Checker):
    """Checks that a restarted node finds a prefix of each log, no shorter than promised.

    After a process kill the log must be whole, after a power loss it must reach the flushed end.
    :func:`pyreplog.testing.crash_points` checks the same with a crash at every single write and sync.
    """

    numbers = ("S24",)
    says = "after a crash a log is a prefix of what it was, and no shorter than promised"

    def __init__(self) -> None:
        self._left: dict[tuple[int, TopicPartition], tuple[int, int]] = {}

    def stopped(self, world: ObservedWorld, machine: ObservedNode, how: str) -> None:
        """Note the promised end of each log."""
        for place in [place for place in self._left if place[0] == machine.node_id]:
            if how in ("wipe", "power loss") or (machine.root is not None and place[1] in machine.root.logs):
                del self._left[place]
        if machine.root is None or how == "wipe" or machine.disk_failed:
            return
        for topic_partition, log in machine.root.logs.items():
            promised = log.flushed_offset if how == "power loss" else log.end_offset
            self._left[machine.node_id, topic_partition] = (promised, log.end_offset)

    def started(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Check that each log ends between its promised end and its former end."""
        assert machine.root is not None
        if machine.rotten:
            for place in [place for place in self._left if place[0] == machine.node_id]:
                del self._left[place]
        for topic_partition, error in machine.root.damaged.items():
            if not machine.rotten:
                world.broken("S24", f"{topic_partition} on node {machine.node_id} cannot be opened: {error}")
        for (node_id, topic_partition), (promised, end) in list(self._left.items()):
            if node_id != machine.node_id:
                continue
            del self._left[node_id, topic_partition]
            log = machine.root.logs.get(topic_partition)
            if log is None:
                world.broken("S24", f"{topic_partition} on node {node_id} does not exist any more")
            elif not promised <= log.end_offset <= end:
                about = (
                    f"{topic_partition} on node {node_id} must end at {promised} to {end}, but ends at {log.end_offset}"
                )
                world.broken("S24", about)
