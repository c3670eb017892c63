"""ListedPartition: a partition that lacks replicas or a leader, and why, for how long, until when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal

from pyreplog.config import suggestion
from pyreplog.errors import ConfigError
from pyreplog.wire import DescribeTopicPartitionsResponse, LagReason, OutOfSyncReplica, PartitionFilter

__all__ = ["LaggingReplica", "ListedState", "OutOfSyncReason", "ListedPartition", "filter_of", "listed_partitions"]

ListedState = Literal["under_replicated", "under_min_isr", "at_min_isr", "offline"]
OutOfSyncReason = Literal["stuck", "slow", "catching_up", "damaged", "gone"]
_FILTERS: Final[Mapping[str, PartitionFilter]] = {
    "under_replicated": PartitionFilter.UNDER_REPLICATED,
    "under_min_isr": PartitionFilter.UNDER_MIN_ISR,
    "at_min_isr": PartitionFilter.AT_MIN_ISR,
    "offline": PartitionFilter.OFFLINE,
}
_REASONS: Final[Mapping[int, OutOfSyncReason]] = {
    LagReason.STUCK: "stuck",
    LagReason.SLOW: "slow",
    LagReason.CATCHING_UP: "catching_up",
    LagReason.DAMAGED: "damaged",
    LagReason.GONE: "gone",
}


@dataclass(frozen=True, slots=True)
class LaggingReplica:
    """One replica out of sync, as its leader last told the controller, at most a heartbeat ago.

    ``reason``: ``"gone"`` (its node does not fetch, or is fenced), ``"damaged"`` (its node reported
    damage in its copy), ``"stuck"`` (it fetches, and its fetch offset does not move), ``"slow"`` (it
    has not reached the end of the leader's log within ``replica_lag_time_max_ms``, and does not come
    nearer), ``"catching_up"`` (it comes nearer), or None: the leader has not told yet, or there is
    none. ``lag``: the records that it lacks; ``out_for_ms``: for how many milliseconds it has been
    out of sync, at least; ``estimate_ms``: in how many it will be in sync. None: unknown.
    """

    node: int
    reason: OutOfSyncReason | None
    lag: int | None
    out_for_ms: int | None
    estimate_ms: int | None


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """One partition as the controller knows it. Nodes by number; ``leader`` -1: none now.

    ``min_isr``: ``min.insync.replicas``, at most the number of replicas. ``out_of_sync``: the
    replicas that are not in sync, in the order of ``replicas``; without a leader also members of the
    ISR that are gone or damaged.
    """

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    min_isr: int
    out_of_sync: tuple[LaggingReplica, ...]

    def to_json(self) -> str:
        """Return the fields as one JSON object."""
        return json.dumps(asdict(self))


def filter_of(state: object) -> PartitionFilter:
    """Return the filter that a caller named. Raises ConfigError."""
    found = _FILTERS.get(state) if isinstance(state, str) else None
    if found is None:
        raise ConfigError(f"state is {state!r}{suggestion(str(state), tuple(_FILTERS))}")
    return found


def listed_partitions(answer: DescribeTopicPartitionsResponse) -> list[ListedPartition]:
    """Return the partitions of an answer, sorted by topic and number."""
    found = [
        ListedPartition(
            topic.name or "",
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            one.partition_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
            tuple(one.eligible_leader_replicas or ()),
            one.min_isr,
            tuple(map(_lagging, one.out_of_sync)),
        )
        for topic in answer.topics
        for one in topic.partitions
    ]
    return sorted(found, key=lambda one: (one.topic, one.partition))


def _lagging(one: OutOfSyncReplica) -> LaggingReplica:
    return LaggingReplica(
        one.replica_id,
        _REASONS.get(one.reason),
        _known(one.lag),
        _known(one.since_ms),
        _known(one.estimate_ms),
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number
