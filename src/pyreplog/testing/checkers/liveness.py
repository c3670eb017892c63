"""Checkers of the liveness conditions, which must come true after every fault has healed: L1 to L7, L11, L12.

Each checker returns from ``unrest`` the reason why its condition does not hold yet. A world runs until no checker
has a reason. If the liveness phase ends earlier, its error names the condition that did not come true.
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
CALMS_MAX: Final = 5
REBALANCE_SOON_MS: Final = 10_000
"""With a longer interval no pass over the preferred leaders falls into a run."""


class EverybodyLed(Checker):
    """Checks that every partition with an electable member gets a leader."""

    numbers = ("L1",)
    says = "every partition gets a leader"

    def unrest(self, world: ObservedWorld) -> str:
        """Return a partition that has no leader."""
        for name, _, partition in world.partitions():
            if partition.leader < 0:
                return f"{name} has no leader: {partition}"
        return ""


class AppendsSucceed(Checker):
    """Checks that appends succeed again once enough replicas are up.

    In every partition at least one append that was sent after the healing must succeed, and every append must have
    an outcome.
    """

    numbers = ("L2",)
    says = "appends succeed again"

    def unrest(self, world: ObservedWorld) -> str:
        """Return a producer that waits for an acknowledgement or an outcome."""
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
    """Checks that every replica is in sync again and that its log equals the leader's."""

    numbers = ("L3",)
    says = "every replica is in sync again, with the leader's log"

    def unrest(self, world: ObservedWorld) -> str:
        """Return a partition with a replica that is not in sync or has not caught up."""
        for name, key, partition in world.partitions():
            if len(partition.isr) != len(partition.replicas):
                return f"{name} is not all in sync: {partition}"
            leader = world.log_of(partition.leader, key)
            if leader is None:
                return f"{name}: node {partition.leader} is the leader, but does not host it"
            for node_id in partition.replicas:
                log = world.log_of(node_id, key)
                if log is None or log.end_offset != leader.end_offset or log.start_offset != leader.start_offset:
                    return f"{name}: node {node_id} has not caught up with node {partition.leader}"
        return ""


class WatermarksArrive(Checker):
    """Checks that the high watermark of every replica reaches the end of its log."""

    numbers = ("L4",)
    says = "high watermarks reach the end"

    def unrest(self, world: ObservedWorld) -> str:
        """Return a replica whose high watermark is below its log end."""
        for name, key, partition in world.partitions():
            for node_id in partition.replicas:
                log = world.log_of(node_id, key)
                if log is not None and log.high_watermark != log.end_offset:
                    return f"{name} on node {node_id}: high watermark {log.high_watermark} of {log.end_offset}"
        return ""


class DivergenceEnds(Checker):
    """Checks that a follower gets at most one divergence answer per epoch that it knows.

    The count is kept per leader epoch: finding the common prefix with that leader must end.
    """

    numbers = ("L5",)
    says = "finding the common prefix ends"

    def __init__(self) -> None:
        self._rounds: dict[tuple[str, int, PartitionKey, int], int] = {}

    def message(self, world: ObservedWorld, source: str, target: str, message: object) -> None:
        """Count the divergence answers to the fetches of nodes."""
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
    """Checks that every proposal of an in-sync set is decided or given up in the end."""

    numbers = ("L6",)
    says = "proposals are decided"

    def unrest(self, world: ObservedWorld) -> str:
        """Return a leader whose proposal is still pending."""
        for name, key, partition in world.partitions():
            hosted = None if partition.leader < 0 else world.hosted(partition.leader, key)
            role = None if hosted is None else hosted.replica.role
            if isinstance(role, Leader) and role.in_sync_set.pending is not None:
                return f"{name}: node {partition.leader} waits for the answer to {role.in_sync_set.pending.data}"
        return ""


class NoFlapping(Checker):
    """Checks that without faults metadata do not change any more: no election, no ISR change.

    It observes the cluster for ``CALM_MS`` after all conditions hold. It first waits until the longest timeout
    since the healing has passed, because an earlier fault may be noticed until then. If the controller makes a
    change in this time that a client had asked for, it observes once more.
    """

    numbers = ("L7",)
    says = "without faults nothing changes"

    def final(self, world: ObservedWorld) -> None:
        """Let time pass and check that no partition epoch has changed."""
        config = world.options.config
        settled_ns = world.healed_ns + (config.session_timeout_ms + config.replica_lag_time_max_ms * 3 // 2) * 1_000_000
        if 0 < config.leader_imbalance_check_interval_ms < REBALANCE_SOON_MS:
            # The first pass after the grace time gives the leaderships back.
            pause_ms = config.leader_imbalance_grace_ms + 2 * config.leader_imbalance_check_interval_ms
            settled_ns = max(settled_ns, world.clock.monotonic_ns()) + pause_ms * 1_000_000
        world.run_for(max(settled_ns - world.clock.monotonic_ns(), 0) / 1_000_000)
        for _ in range(CALMS_MAX):
            asked = self._asked(world)
            before: Mapping[PartitionKey, int] = {
                key: partition.partition_epoch for _, key, partition in world.partitions()
            }
            world.run_for(CALM_MS)
            if self._asked(world) == asked:
                break  # else the controller made a change that a client had asked for
        for name, key, partition in world.partitions():
            if partition.partition_epoch != before[key]:
                world.broken(
                    "L7",
                    f"{name}: {partition.partition_epoch - before[key]} changes within {CALM_MS} ms of calm:"
                    f" {partition}",
                )

    @staticmethod
    def _asked(world: ObservedWorld) -> dict[str, tuple[int, int]]:
        """Return the minimum of in-sync replicas and the number of partitions of each topic: both change on request."""
        topics = world.image.topics.values()
        return {one.name: (one.log_config.min_insync_replicas, len(one.partitions)) for one in topics}


class ReadersArrive(Checker):
    """Checks that every reader reads up to the end of each leader's log."""

    numbers = ("L11",)
    says = "readers read everything"

    def unrest(self, world: ObservedWorld) -> str:
        """Return a consumer that has not read a partition to its end."""
        for name, key, partition in world.partitions():
            log = None if partition.leader < 0 else world.log_of(partition.leader, key)
            for consumer in world.consumers:
                read = consumer.read.get(name)
                position = read[-1][0] + 1 if read else 0 if log is None else log.start_offset
                if world.options.compacts(name.topic):
                    position = max(position, consumer.position(name))  # the last records may be gone
                if log is not None and position < log.end_offset:
                    return f"{name}: {consumer.address} has not read everything"
        return ""


class NoRangeLoop(Checker):
    """Checks that no follower gets OFFSET_OUT_OF_RANGE for ever."""

    numbers = ("L12",)
    says = "no endless OFFSET_OUT_OF_RANGE"

    def __init__(self) -> None:
        self._answers: dict[tuple[str, int, PartitionKey, int], int] = {}

    def message(self, world: ObservedWorld, source: str, target: str, message: object) -> None:
        """Count the OFFSET_OUT_OF_RANGE answers to the fetches of nodes."""
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
                    f"{hosted.topic_partition} on {target}: {count} times OFFSET_OUT_OF_RANGE in epoch"
                    f" {hosted.replica.leader_epoch}",
                )


def _answers(
    world: ObservedWorld, target: str, message: object
) -> list[tuple[ObservedNode, PartitionKey, PartitionData]]:
    """Return the partitions of a node's fetch response that hold a divergence or an error."""
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
