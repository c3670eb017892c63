"""What must become so once everything is healed and nothing breaks any more: L1 to L7, L11, L12.

Each says in ``unrest`` what keeps it from holding yet. A world goes on until nobody has anything to say, and a
liveness phase that ends before that names the invariant that did not come true.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyreplog.controller import PartitionKey
from pyreplog.replica import Leader
from pyreplog.testing.checkers.base import Checker
from pyreplog.testing.observed import ObservedNode, ObservedWorld
from pyreplog.wire import ErrorCode, FetchResponse, PartitionData, Response

__all__ = [
    "AllInSync",
    "AppendsSucceed",
    "DivergenceEnds",
    "EverybodyLed",
    "NoFlapping",
    "NoRangeLoop",
    "NothingPending",
    "ReadersArrive",
    "WatermarksArrive",
]

RANGE_ANSWERS_MAX: Final = 40
CALM_MS: Final = 700


class EverybodyLed(Checker):
    """A partition with an electable member gets a leader."""

    numbers = ("L1",)
    says = "every partition gets a leader"

    def unrest(self, world: ObservedWorld) -> str:
        """Who has none?"""
        for name, _, partition in world.partitions():
            if partition.leader < 0:
                return f"{name} has no leader: {partition}"
        return ""


class AppendsSucceed(Checker):
    """With enough replicas up, appends succeed again: of every partition one that was sent after the healing; and
    each append has an outcome."""

    numbers = ("L2",)
    says = "appends succeed again"

    def unrest(self, world: ObservedWorld) -> str:
        """Who waits?"""
        for producer in world.producers:
            waits = producer.wants_success()
            if waits:
                return f"{producer.address} has had no append to {waits} acknowledged since everything was healed"
        for producer in world.producers:
            producer.sending = False
            if not producer.is_idle:
                return f"{producer.address} waits for outcomes"
        return ""


class AllInSync(Checker):
    """Every replica is in sync again and its log equals the leader's."""

    numbers = ("L3",)
    says = "every replica is in sync again, with the leader's log"

    def unrest(self, world: ObservedWorld) -> str:
        """Who is not?"""
        for name, key, partition in world.partitions():
            if len(partition.isr) != len(partition.replicas):
                return f"{name} is not all in sync: {partition}"
            leader = world.log_of(partition.leader, key)
            if leader is None:
                return f"{name}: node {partition.leader} leads and does not host it"
            for node_id in partition.replicas:
                log = world.log_of(node_id, key)
                if log is None or log.end_offset != leader.end_offset or log.start_offset != leader.start_offset:
                    return f"{name}: node {node_id} has not caught up with node {partition.leader}"
        return ""


class WatermarksArrive(Checker):
    """The leader's high watermark reaches its end, and every follower's the leader's."""

    numbers = ("L4",)
    says = "high watermarks reach the end"

    def unrest(self, world: ObservedWorld) -> str:
        """Whose does not?"""
        for name, key, partition in world.partitions():
            for node_id in partition.replicas:
                log = world.log_of(node_id, key)
                if log is not None and log.high_watermark != log.end_offset:
                    return f"{name} on node {node_id}: high watermark {log.high_watermark} of {log.end_offset}"
        return ""


class DivergenceEnds(Checker):
    """Under one leader epoch a follower is told that its log parts from the leader's at most once for every epoch
    it knows."""

    numbers = ("L5",)
    says = "finding the common prefix ends"

    def __init__(self) -> None:
        self._rounds: dict[tuple[str, int, PartitionKey, int], int] = {}

    def message(self, world: ObservedWorld, source: str, target: str, message: object) -> None:
        """Answers to fetches of nodes."""
        for machine, key, data in _answers(world, target, message):
            if data.error_code or data.diverging_epoch is None:
                continue
            hosted = None if machine.node is None else machine.node.hosted.get(key)
            if hosted is None:
                continue
            place = (target, machine.starts, key, hosted.replica.leader_epoch)
            rounds = self._rounds[place] = self._rounds.get(place, 0) + 1
            if rounds > hosted.replica.leader_epoch + 2:
                world.broken(
                    "L5",
                    f"{hosted.topic_partition} on {target}: {rounds} rounds in epoch {hosted.replica.leader_epoch}",
                )


class NothingPending(Checker):
    """Every proposal of an in-sync set is decided, or given up, in the end."""

    numbers = ("L6",)
    says = "proposals are decided"

    def unrest(self, world: ObservedWorld) -> str:
        """Whose is open?"""
        for name, key, partition in world.partitions():
            hosted = None if partition.leader < 0 else world.hosted(partition.leader, key)
            role = None if hosted is None else hosted.replica.role
            if isinstance(role, Leader) and role.in_sync_set.pending is not None:
                return f"{name}: node {partition.leader} waits for the answer to {role.in_sync_set.pending.data}"
        return ""


class NoFlapping(Checker):
    """Without faults nothing changes any more: no election, nobody leaves or joins. Looked at for a while after all
    was well, and after the longest timeout since the healing, because until then somebody may find out about what
    was."""

    numbers = ("L7",)
    says = "without faults nothing changes"

    def final(self, world: ObservedWorld) -> None:
        """Let time pass and compare."""
        config = world.options.config
        settled_ns = world.healed_ns + (config.session_timeout_ms + config.replica_lag_time_max_ms * 3 // 2) * 1_000_000
        world.run_for(max(settled_ns - world.clock.monotonic_ns(), 0) / 1_000_000)
        before: Mapping[PartitionKey, int] = {
            key: partition.partition_epoch for _, key, partition in world.partitions()
        }
        world.run_for(CALM_MS)
        for name, key, partition in world.partitions():
            if partition.partition_epoch != before[key]:
                world.broken(
                    "L7",
                    f"{name}: {partition.partition_epoch - before[key]} changes within {CALM_MS} ms of calm:"
                    f" {partition}",
                )


class ReadersArrive(Checker):
    """Readers reach the high watermark."""

    numbers = ("L11",)
    says = "readers read everything"

    def unrest(self, world: ObservedWorld) -> str:
        """Who has not?"""
        for name, key, partition in world.partitions():
            log = None if partition.leader < 0 else world.log_of(partition.leader, key)
            for consumer in world.consumers:
                read = consumer.read.get(name)
                if log is not None and (read[-1][0] + 1 if read else log.start_offset) < log.end_offset:
                    return f"{name}: {consumer.address} has not read everything"
        return ""


class NoRangeLoop(Checker):
    """Nobody is told OFFSET_OUT_OF_RANGE for ever."""

    numbers = ("L12",)
    says = "no endless OFFSET_OUT_OF_RANGE"

    def __init__(self) -> None:
        self._answers: dict[tuple[str, int, PartitionKey, int], int] = {}

    def message(self, world: ObservedWorld, source: str, target: str, message: object) -> None:
        """Answers to fetches of nodes."""
        for machine, key, data in _answers(world, target, message):
            if data.error_code != ErrorCode.OFFSET_OUT_OF_RANGE or machine.node is None:
                continue
            hosted = machine.node.hosted.get(key)
            if hosted is None:
                continue
            place = (target, machine.starts, key, hosted.replica.leader_epoch)
            count = self._answers[place] = self._answers.get(place, 0) + 1
            if count > RANGE_ANSWERS_MAX:
                world.broken(
                    "L12",
                    f"{hosted.topic_partition} on {target} was told {count} times in epoch"
                    f" {hosted.replica.leader_epoch}",
                )


def _answers(
    world: ObservedWorld, target: str, message: object
) -> list[tuple[ObservedNode, PartitionKey, PartitionData]]:
    """The partitions of an answer to a node's fetch that carry no records."""
    if type(message) is not Response or type(message.body) is not FetchResponse:
        return []
    machine = world.machine_at(target)
    if machine is None:
        return []
    return [
        (machine, (topic.topic_id, data.partition_index), data)
        for topic in message.body.responses
        for data in topic.partitions
        if data.diverging_epoch is not None or data.error_code
    ]
