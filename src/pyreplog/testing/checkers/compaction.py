"""The checker of compaction: a copy lacks no record that it must have, and no replaced record comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyreplog.controller import PartitionKey
from pyreplog.errors import CorruptError, PyreplogError
from pyreplog.log import Log, UnloadedLog
from pyreplog.record import RecordBatch
from pyreplog.testing.checkers.base import Checker, Swap, batches_of
from pyreplog.testing.checkers.committed_records import CommittedRecords, Kept
from pyreplog.testing.checkers.logs import CommittedIdentical
from pyreplog.testing.observed import ObservedNode, ObservedWorld

__all__ = ["CompactionKeeps"]

AnyLog = Log | UnloadedLog
GAP_TAKEN: Final = "a gap that a follower took"


class CompactionKeeps(Checker):
    """Checks the copies of compacted partitions below their high watermark.

    A record that is present was committed at that offset. A record may be missing only if a later record of its key is
    committed, or if it is a tombstone that was dropped rightly: its delete horizon, kept in the batch since the first
    pass, was over, and no other copy still has an older record of the key without it. The newest record of each key
    is that of the history. A pass that is over leaves one record of a key below its end.
    """

    numbers = ("compaction",)
    says = "of a compacted log the newest committed record of each key stays, and a deleted key stays deleted"

    def __init__(self, committed: CommittedIdentical) -> None:
        self._committed = committed
        self._seen: dict[tuple[int, int, PartitionKey], tuple[int, int]] = {}
        self._stopped: dict[int, dict[PartitionKey, dict[int, Kept]]] = {}
        """The records of the copies of each node that is down."""

    # -- each turn

    def started(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Check the copies with which a node comes back."""
        self._stopped.pop(machine.node_id, None)
        self.node_turn(world, machine)

    def stopped(self, world: ObservedWorld, machine: ObservedNode, how: str) -> None:
        """Remember the records of the node's copies, while it is down."""
        found: dict[PartitionKey, dict[int, Kept]] = {}
        if machine.node is not None and how != "wipe":
            for key, history in self._committed.compacted.items():
                hosted = machine.node.hosted.get(key)
                if hosted is not None:
                    found[key] = self._read(history, hosted.log)
        self._stopped[machine.node_id] = found

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Check the copies whose high watermark moved: the new records, and all after a gap or a truncation."""
        assert machine.node is not None
        for key, history in self._committed.compacted.items():
            hosted = machine.node.hosted.get(key)
            if hosted is None:
                continue
            log = hosted.log
            place = (machine.node_id, machine.starts, key)
            end = min(log.high_watermark, self._committed.end(key))
            generation, looked = self._seen.get(place, (-1, 0))
            if generation == log.generation and end <= looked:
                continue
            self._seen[place] = (log.generation, end)
            if generation == log.generation and looked >= log.start_offset:
                fresh = history.present(batches_of(log, looked, end), looked)
                if history.are_all(fresh, looked, end):
                    continue
                if not hosted.replica.is_leader:
                    world.seen[GAP_TAKEN] = world.seen.get(GAP_TAKEN, 0) + 1
            self._check(world, machine, key, log, log.start_offset, end)

    def _check(
        self, world: ObservedWorld, machine: ObservedNode, key: PartitionKey, log: AnyLog, start: int, end: int
    ) -> None:
        """Check all that a copy has from ``start`` to ``end``."""
        name = f"{log.topic_partition} on node {machine.node_id}"
        try:
            batches = batches_of(log, start, end)
        except CorruptError as error:
            if not machine.rotten and (log.topic_partition, machine.node_id) not in world.rotten:
                world.broken("compaction", f"{name} cannot be read: {error}")
            return
        wrong = self._committed.compacted[key].wrong(batches, start, end)
        if wrong:
            world.broken("compaction", f"{name}: {wrong}")

    # -- each pass

    def swapped(self, world: ObservedWorld, machine: ObservedNode, swap: Swap) -> None:
        """Check the records that a pass has just removed, and the delete horizons that it has set."""
        log = swap.log
        name = f"{log.topic_partition} on node {machine.node_id}"
        history = self._committed.compacted.get(swap.key)
        if history is None:
            world.broken("compaction", f"{name} was compacted, and its topic is not compacted")
            return
        start = max(swap.start_offset, log.start_offset)
        after = batches_of(log, start, swap.end_offset)
        left = history.present(after, start)
        end = min(log.high_watermark, self._committed.end(swap.key))
        horizons = {batch.base_offset: batch.delete_horizon_ms for batch in swap.before}
        self._check_horizons(world, name, swap, after, horizons)
        for batch in swap.before:
            for offset, kept in history.content(batch).items():
                if offset < start or offset in left:
                    continue
                removed = f"{name}: a pass removed offset {offset}, {kept}"
                if offset >= end:
                    world.broken("compaction", f"{removed}, above the high watermark {end}")
                if history.newest[kept.key] > offset:
                    continue
                horizon_ms = horizons[batch.base_offset]
                if kept.value is not None:
                    world.broken("compaction", f"{removed}, which is the newest of its key")
                if horizon_ms is None or horizon_ms > swap.now_ms:
                    world.broken("compaction", f"{removed}, at {swap.now_ms} ms; its delete horizon is {horizon_ms}")
                self._check_others(world, machine, swap, offset, kept)
                history.dropped[offset] = None
        self._check(world, machine, swap.key, log, start, min(swap.end_offset, end))

    @staticmethod
    def _check_horizons(
        world: ObservedWorld, name: str, swap: Swap, after: Sequence[RecordBatch], before: Mapping[int, int | None]
    ) -> None:
        retention_ms = world.image.topics[swap.key[0]].log_config.delete_retention_ms
        for batch in after:
            was, now = before.get(batch.base_offset), batch.delete_horizon_ms
            if now is None or now == was:
                continue
            if was is not None:
                world.broken(
                    "compaction", f"{name}: the horizon of the batch at {batch.base_offset} was {was}, is {now}"
                )
            if now < swap.now_ms + retention_ms:
                world.broken(
                    "compaction",
                    f"{name}: a pass at {swap.now_ms} ms set the horizon of the batch at {batch.base_offset} to {now};"
                    f" delete.retention.ms is {retention_ms}",
                )

    def _check_others(self, world: ObservedWorld, machine: ObservedNode, swap: Swap, offset: int, kept: Kept) -> None:
        """Check that no other copy has an older record of a key whose tombstone is gone now, without the tombstone."""
        partition = world.image.partition(swap.key)
        for node_id in () if partition is None else partition.replicas:
            if node_id == machine.node_id:
                continue
            theirs = self._records(world, node_id, swap.key)
            if theirs.get(offset) == kept:
                continue
            older = [one for one, other in theirs.items() if other.key == kept.key and one < offset]
            if older:
                world.broken(
                    "compaction",
                    f"{swap.log.topic_partition} on node {machine.node_id}: a pass dropped the tombstone at {offset},"
                    f" {kept}, which node {node_id} did not fetch; it has an older record of the key at {older[-1]}",
                )

    def _records(self, world: ObservedWorld, node_id: int, key: PartitionKey) -> dict[int, Kept]:
        """Return the records of a copy, or those that it had when its node ended."""
        log = world.log_of(node_id, key)
        if log is None:
            return self._stopped.get(node_id, {}).get(key, {})
        return self._read(self._committed.compacted[key], log)

    @staticmethod
    def _read(history: CommittedRecords, log: AnyLog) -> dict[int, Kept]:
        try:
            return history.present(batches_of(log, log.start_offset, log.end_offset), log.start_offset)
        except PyreplogError:  # its disk failed, or it is damaged
            return {}

    def cleaned(self, world: ObservedWorld, machine: ObservedNode, key: PartitionKey, log: Log, end: int) -> None:
        """Check that no record is left below ``end`` that a later one below it replaces."""
        start = log.start_offset
        self._check(world, machine, key, log, start, min(log.high_watermark, self._committed.end(key)))
        left = self._committed.compacted[key].not_replaced(batches_of(log, start, end), start, end)
        if left:
            name = f"{log.topic_partition} on node {machine.node_id}"
            world.broken("compaction", f"{name}: after a pass up to {end} {left}")

    def final(self, world: ObservedWorld) -> None:
        """Check all copies, and the table that a reader of a compacted log would build: the last reader began after
        all passes."""
        for name, key, partition in world.partitions():
            history = self._committed.compacted.get(key)
            if history is None:
                continue
            for node_id in partition.replicas:
                log = world.log_of(node_id, key)
                if log is not None:
                    self._check(world, world.machines[node_id], key, log, log.start_offset, log.high_watermark)
            reader = world.consumers[-1]
            wrong = history.wrong_table(dict(reader.read.get(name, ())))
            if wrong and len(world.consumers) > world.options.consumers:
                world.broken("compaction", f"{name}: {reader.address} {wrong}")
