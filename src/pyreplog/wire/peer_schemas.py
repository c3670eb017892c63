"""Kafka's messages between brokers and the controller. The conventions are those of
:mod:`pyreplog.wire.schemas`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "AlterPartitionData",
    "AlterPartitionRequest",
    "AlterPartitionResponse",
    "AlterPartitionResult",
    "AlterPartitionTopic",
    "AlterPartitionTopicResult",
    "BrokerHeartbeatRequest",
    "BrokerHeartbeatResponse",
    "BrokerRegistrationRequest",
    "BrokerRegistrationResponse",
    "BrokerState",
    "ControllerRegistrationRequest",
    "ControllerRegistrationResponse",
    "Feature",
    "LagReason",
    "Listener",
    "PartitionEnd",
    "ReplicaLag",
    "ReplicaStatus",
    "UnregisterBrokerRequest",
    "UnregisterBrokerResponse",
]

# ------------------------------------------------------------------------ AlterPartition (56), v2-3


@dataclass(slots=True)
class BrokerState:
    """A member of a proposed in-sync set, with the broker epoch that its leader knows."""

    broker_id: int
    broker_epoch: int = -1


@dataclass(slots=True)
class AlterPartitionData:
    """One proposal: the new in-sync set, by compare-and-swap on (leader epoch, partition epoch)."""

    partition_index: int
    leader_epoch: int
    new_isr_with_epochs: Sequence[BrokerState]
    partition_epoch: int
    leader_recovery_state: int = 0


@dataclass(slots=True)
class AlterPartitionTopic:
    """One topic's proposals."""

    topic_id: str
    partitions: Sequence[AlterPartitionData]


@dataclass(slots=True)
class AlterPartitionRequest:
    """A leader asks the controller to change in-sync sets."""

    broker_id: int
    broker_epoch: int
    topics: Sequence[AlterPartitionTopic]


@dataclass(slots=True)
class AlterPartitionResult:
    """One partition's state after the decision, or the reason of a refusal."""

    partition_index: int
    error_code: int = 0
    leader_id: int = -1
    leader_epoch: int = -1
    isr: Sequence[int] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = -1


@dataclass(slots=True)
class AlterPartitionTopicResult:
    """One topic's decisions."""

    topic_id: str
    partitions: Sequence[AlterPartitionResult]


@dataclass(slots=True)
class AlterPartitionResponse:
    """Answers :class:`AlterPartitionRequest`."""

    topics: Sequence[AlterPartitionTopicResult] = ()
    error_code: int = 0
    throttle_time_ms: int = 0


# ------------- BrokerRegistration (62), v0-4; BrokerHeartbeat (63), v0-1; UnregisterBroker (64), v0


@dataclass(slots=True)
class Listener:
    """The address at which a broker listens. In one process ``host`` is its address and ``port``
    0."""

    name: str
    host: str
    port: int = 0
    security_protocol: int = 0


@dataclass(slots=True)
class Feature:
    """The versions of a feature that the broker supports."""

    name: str
    min_supported_version: int
    max_supported_version: int


class ReplicaStatus(IntEnum):
    """Ours: the state of one replica, as its broker reports it."""

    OK = 0
    """The broker knows of no damage; the replica ends at the reported offset."""
    DAMAGED = 1
    """The replica is damaged in part and serves the rest, or its disk has no room for it yet."""
    MISSING = 2
    """The replica was found damaged and is not served."""
    RESTORED = 3
    """The replica exists now, after its disk had no room for it. It is as good as any other."""


@dataclass(slots=True)
class PartitionEnd:
    """Ours: the end of one hosted partition. ``last_epoch`` -1: it is empty.

    ``incomplete``: it may lack acknowledged records, so it may not lead before it has caught up.
    ``reported``: an earlier registration reported it as incomplete, and nothing was lost since, so
    the controller's later decisions are about this copy. ``status``: a :class:`ReplicaStatus`. All
    but OK are sent only in heartbeats, without an end (-1).
    """

    topic_id: str
    partition: int
    last_epoch: int = -1
    end_offset: int = -1
    incomplete: bool = False
    reported: bool = False
    status: int = ReplicaStatus.OK


@dataclass(slots=True)
class BrokerRegistrationRequest:
    """A broker starts. ``previous_broker_epoch``: that of its last clean shutdown; -1 after an
    unclean one.

    ``partition_ends`` (ours): all hosted partitions, with the incomplete ones marked.
    """

    broker_id: int
    cluster_id: str
    incarnation_id: str
    listeners: Sequence[Listener] = ()
    features: Sequence[Feature] = ()
    rack: str | None = None
    is_migrating_zk_broker: bool = False
    log_dirs: Sequence[str] = ()
    previous_broker_epoch: int = -1
    partition_ends: Sequence[PartitionEnd] = ()


@dataclass(slots=True)
class BrokerRegistrationResponse:
    """Answers :class:`BrokerRegistrationRequest`. ``broker_epoch``: the offset of the
    RegisterBroker record."""

    error_code: int = 0
    broker_epoch: int = -1
    throttle_time_ms: int = 0


class LagReason(IntEnum):
    """Ours: why a replica is out of sync."""

    IN_SYNC = 0
    """It is in sync, or not a replica any more: an earlier report is void."""
    UNKNOWN = 1
    """Its leader has not reported yet, or there is no leader."""
    STUCK = 2
    """It fetches, and its fetch offset does not move."""
    SLOW = 3
    """Its fetch offset moves, but it has not reached the end of the leader's log within
    ``replica.lag.time.max.ms`` and does not come nearer."""
    CATCHING_UP = 4
    """It comes nearer to the end of the leader's log."""
    DAMAGED = 5
    """Its broker reported damage in its copy."""
    GONE = 6
    """It does not fetch, or its broker is fenced."""


@dataclass(slots=True)
class ReplicaLag:
    """Ours: one replica that is out of sync, as its leader sees it.

    ``lag``: records that it lacks; -1: it has not fetched in this leader epoch. ``since_ms``: how
    many milliseconds ago it was last caught up, or was first seen by this leader. ``estimate_ms``:
    milliseconds until it is in sync; -1: unknown.
    """

    topic_id: str
    partition: int
    leader_epoch: int
    replica_id: int
    reason: int = LagReason.IN_SYNC
    lag: int = -1
    since_ms: int = 0
    estimate_ms: int = -1


@dataclass(slots=True)
class BrokerHeartbeatRequest:
    """A broker is alive. ``current_metadata_offset``: the last metadata offset that it applied.

    ``partition_ends`` (ours): the ends of hosted partitions without a leader, so that a requested
    unclean election can choose the longest log; and reports of damaged copies. ``replica_lags``
    (ours): the replicas out of sync of partitions that the broker leads, if their state changed.
    """

    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: Sequence[str] = ()
    partition_ends: Sequence[PartitionEnd] = ()
    replica_lags: Sequence[ReplicaLag] = ()


@dataclass(slots=True)
class BrokerHeartbeatResponse:
    """Answers :class:`BrokerHeartbeatRequest`. ``controller_epoch`` (ours): the epoch of the active
    controller, which knows nothing that was reported to an earlier one; -1: unknown."""

    error_code: int = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
    throttle_time_ms: int = 0
    controller_epoch: int = -1


@dataclass(slots=True)
class UnregisterBrokerRequest:
    """Remove a broker for good."""

    broker_id: int


@dataclass(slots=True)
class UnregisterBrokerResponse:
    """Answers :class:`UnregisterBrokerRequest`."""

    error_code: int = 0
    error_message: str | None = None
    throttle_time_ms: int = 0


# ------------------------------------------------------------------ ControllerRegistration (70), v0


@dataclass(slots=True)
class ControllerRegistrationRequest:
    """A voter that is not the active controller tells it its addresses and the features that it
    supports."""

    controller_id: int
    incarnation_id: str
    listeners: Sequence[Listener] = ()
    features: Sequence[Feature] = ()
    zk_migration_ready: bool = False


@dataclass(slots=True)
class ControllerRegistrationResponse:
    """Answers :class:`ControllerRegistrationRequest`."""

    error_code: int = 0
    error_message: str | None = None
    throttle_time_ms: int = 0
