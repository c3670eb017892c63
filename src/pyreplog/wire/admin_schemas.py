"""Kafka's messages about topics, settings and the cluster. The conventions are those of
:mod:`pyreplog.wire.schemas`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from pyreplog.wire.schemas import NO_ID

__all__ = [
    "CONFIG_APPEND",
    "CONFIG_DELETE",
    "CONFIG_SET",
    "CONFIG_SUBTRACT",
    "ELECT_PREFERRED",
    "ELECT_UNCLEAN",
    "STATE_FENCED",
    "STATE_OFFLINE",
    "STATE_ONLINE",
    "STATE_STOPPING",
    "STATE_UNKNOWN",
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterableConfig",
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "Cursor",
    "DeletableTopicResult",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeClusterBroker",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
    "DescribeTopicPartitionsPartition",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeTopicPartitionsTopic",
    "ElectLeadersPartitionResult",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "ElectLeadersResult",
    "ElectLeadersTopic",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
    "LostOffsets",
    "OutOfSyncReplica",
    "PartitionFilter",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
    "FeatureUpdate",
]


# ------------------------------------------------------------------------------ Metadata (3), v0-13


@dataclass(slots=True)
class MetadataRequestTopic:
    """A topic by id, or by name if the id is :data:`NO_ID`."""

    name: str | None = None
    topic_id: str = NO_ID


@dataclass(slots=True)
class MetadataRequest:
    """Ask for the leaders of topics. ``topics`` None: all."""

    topics: Sequence[MetadataRequestTopic] | None = None
    allow_auto_topic_creation: bool = False
    include_topic_authorized_operations: bool = False


@dataclass(slots=True)
class MetadataResponseBroker:
    """A live broker. In one process ``host`` is its address and ``port`` 0."""

    node_id: int
    host: str
    port: int = 0
    rack: str | None = None


@dataclass(slots=True)
class MetadataResponsePartition:
    """One partition. ``leader_id`` -1 (with LEADER_NOT_AVAILABLE): it has no leader now."""

    partition_index: int
    leader_id: int
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    offline_replicas: Sequence[int] = ()
    error_code: int = 0


@dataclass(slots=True)
class MetadataResponseTopic:
    """A topic, or the reason why there is none."""

    name: str | None
    topic_id: str = NO_ID
    partitions: Sequence[MetadataResponsePartition] = ()
    error_code: int = 0
    is_internal: bool = False
    topic_authorized_operations: int = -(2**31)


@dataclass(slots=True)
class MetadataResponse:
    """Answers :class:`MetadataRequest`."""

    brokers: Sequence[MetadataResponseBroker]
    topics: Sequence[MetadataResponseTopic]
    cluster_id: str | None = None
    controller_id: int = -1
    error_code: int = 0
    throttle_time_ms: int = 0


# ------------------------------------------------- CreateTopics (19), v2-7; DeleteTopics (20), v1-6


@dataclass(slots=True)
class CreatableReplicaAssignment:
    """The replicas of one partition, the preferred leader first."""

    partition_index: int
    broker_ids: Sequence[int]


@dataclass(slots=True)
class CreatableTopicConfig:
    """One setting under Kafka's key."""

    name: str
    value: str | None


@dataclass(slots=True)
class CreatableTopic:
    """A topic to create.

    ``num_partitions`` and ``replication_factor`` are -1 for the defaults, or if ``assignments``
    gives both. ``placement`` (ours) is the name of a rule of placement; None: the default.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[CreatableReplicaAssignment] = ()
    configs: Sequence[CreatableTopicConfig] = ()
    placement: str | None = None


@dataclass(slots=True)
class CreateTopicsRequest:
    """Create topics. Sent to the controller."""

    topics: Sequence[CreatableTopic]
    timeout_ms: int = 60_000
    validate_only: bool = False


@dataclass(slots=True)
class CreatableTopicConfigs:
    """One setting as it is now. ``config_source``: 1 set on the topic, 5 default."""

    name: str
    value: str | None
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False


@dataclass(slots=True)
class CreatableTopicResult:
    """The topic that was created, or the reason of a refusal."""

    name: str
    topic_id: str = NO_ID
    error_code: int = 0
    error_message: str | None = None
    topic_config_error_code: int = 0
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[CreatableTopicConfigs] | None = ()


@dataclass(slots=True)
class CreateTopicsResponse:
    """Answers :class:`CreateTopicsRequest`."""

    topics: Sequence[CreatableTopicResult]
    throttle_time_ms: int = 0


@dataclass(slots=True)
class DeleteTopicState:
    """A topic by name, or by id."""

    name: str | None = None
    topic_id: str = NO_ID


@dataclass(slots=True)
class DeleteTopicsRequest:
    """Delete topics. Sent to the controller."""

    topics: Sequence[DeleteTopicState]
    timeout_ms: int = 60_000


@dataclass(slots=True)
class DeletableTopicResult:
    """The result for one topic."""

    name: str | None
    topic_id: str = NO_ID
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class DeleteTopicsResponse:
    """Answers :class:`DeleteTopicsRequest`."""

    responses: Sequence[DeletableTopicResult]
    throttle_time_ms: int = 0


# ------------------------------------------- DescribeConfigs (32), v1-4; DescribeCluster (60), v0-2


@dataclass(slots=True)
class DescribeConfigsResource:
    """A topic (``resource_type`` 2) or broker (4). ``configuration_keys`` None: all."""

    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None = None


@dataclass(slots=True)
class DescribeConfigsRequest:
    """Ask for settings of topics and brokers."""

    resources: Sequence[DescribeConfigsResource]
    include_synonyms: bool = False
    include_documentation: bool = False


@dataclass(slots=True)
class DescribeConfigsSynonym:
    """Another source of a setting, with the value there."""

    name: str
    value: str | None
    source: int


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    """One setting. ``config_source``: 1 set on the topic, 3 default of the cluster, 5 default of
    pyreplog."""

    name: str
    value: str | None
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    config_type: int = 0
    documentation: str | None = None
    synonyms: Sequence[DescribeConfigsSynonym] = ()


@dataclass(slots=True)
class DescribeConfigsResult:
    """One resource's settings."""

    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResourceResult] = ()
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class DescribeConfigsResponse:
    """Answers :class:`DescribeConfigsRequest`."""

    results: Sequence[DescribeConfigsResult]
    throttle_time_ms: int = 0


@dataclass(slots=True)
class DescribeClusterRequest:
    """Ask for the brokers of the cluster."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = True


STATE_UNKNOWN: Final = -1
"""``DescribeClusterBroker.state``: the sender does not know it."""
STATE_OFFLINE: Final = 0
"""``DescribeClusterBroker.state``: the controller does not hear from the broker."""
STATE_FENCED: Final = 1
"""``DescribeClusterBroker.state``: the broker is registered and must not serve."""
STATE_ONLINE: Final = 2
"""``DescribeClusterBroker.state``: the broker serves."""
STATE_STOPPING: Final = 3
"""``DescribeClusterBroker.state``: the broker moves its leaderships away, to end then."""


@dataclass(slots=True)
class DescribeClusterBroker:
    """One broker. In one process ``host`` is its address and ``port`` 0.

    ``state`` (ours) is one of the ``STATE_`` values, or :data:`STATE_UNKNOWN` in an answer of a
    node, which does not know which brokers the controller hears from. ``cordoned`` (ours): it gets
    no new replicas.
    """

    broker_id: int
    host: str
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False
    state: int = -1
    cordoned: bool = False


@dataclass(slots=True)
class DescribeClusterResponse:
    """Answers :class:`DescribeClusterRequest`. ``metadata_offset``: the last metadata record that the answer reflects;
    -1: unknown."""

    cluster_id: str
    controller_id: int = -1
    brokers: Sequence[DescribeClusterBroker] = ()
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    throttle_time_ms: int = 0
    cluster_authorized_operations: int = -(2**31)
    metadata_offset: int = -1


# ------------------------------------------------------------------------ UpdateFeatures (57), v0-2


@dataclass(slots=True)
class FeatureUpdate:
    """Kafka's ``FeatureUpdateKey``. ``upgrade_type``: 1 only raise the level, 2 lower it if no
    metadata is lost, 3 lower it in any case."""

    feature: str
    max_version_level: int
    upgrade_type: int = 1


@dataclass(slots=True)
class UpdateFeaturesRequest:
    """Set the levels of features of the cluster. Sent to the controller."""

    feature_updates: Sequence[FeatureUpdate]
    timeout_ms: int = 60_000
    validate_only: bool = False


@dataclass(slots=True)
class UpdateFeaturesResponse:
    """Answers :class:`UpdateFeaturesRequest`: all levels are set, or none."""

    error_code: int = 0
    error_message: str | None = None
    throttle_time_ms: int = 0


# ----------------------------------------------------------------- DescribeTopicPartitions (75), v0


@dataclass(slots=True)
class Cursor:
    """The position at which to continue."""

    topic_name: str
    partition_index: int


class PartitionFilter(IntEnum):
    """Ours: the partitions that a description is about."""

    ALL = 0
    UNDER_REPLICATED = 1
    """A replica is out of sync."""
    UNDER_MIN_ISR = 2
    """Fewer replicas are in sync than ``min.insync.replicas``."""
    AT_MIN_ISR = 3
    """Exactly ``min.insync.replicas`` are in sync."""
    OFFLINE = 4
    """There is no leader."""


@dataclass(slots=True)
class OutOfSyncReplica:
    """Ours: a replica out of sync. ``reason``: a :class:`~pyreplog.wire.LagReason`. ``lag``: records that it lacks.
    ``since_ms``: how many milliseconds it has been so, at least. ``estimate_ms``: milliseconds until it is in sync.
    -1: unknown."""

    replica_id: int
    reason: int
    lag: int = -1
    since_ms: int = -1
    estimate_ms: int = -1


@dataclass(slots=True)
class DescribeTopicPartitionsRequest:
    """Ask for partitions with their eligible leader replicas. ``topics`` are names; none: all.
    ``state`` (ours): a :class:`PartitionFilter`; only the partitions in that state are returned."""

    topics: Sequence[str] = ()
    response_partition_limit: int = 2000
    cursor: Cursor | None = None
    state: int = PartitionFilter.ALL


@dataclass(slots=True)
class DescribeTopicPartitionsPartition:
    """One partition as the controller knows it."""

    partition_index: int
    leader_id: int
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    eligible_leader_replicas: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None
    offline_replicas: Sequence[int] = ()
    error_code: int = 0
    partition_epoch: int = -1
    out_of_sync: Sequence[OutOfSyncReplica] = ()
    min_isr: int = -1
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()


@dataclass(slots=True)
class DescribeTopicPartitionsTopic:
    """One topic."""

    name: str | None
    topic_id: str = NO_ID
    partitions: Sequence[DescribeTopicPartitionsPartition] = ()
    error_code: int = 0
    is_internal: bool = False
    topic_authorized_operations: int = -(2**31)


@dataclass(slots=True)
class DescribeTopicPartitionsResponse:
    """Answers :class:`DescribeTopicPartitionsRequest`, all at once. ``metadata_offset``: the last metadata record that
    the answer reflects, ``controller_epoch``: the epoch of the controller that answers; -1: unknown."""

    topics: Sequence[DescribeTopicPartitionsTopic]
    throttle_time_ms: int = 0
    next_cursor: Cursor | None = None
    metadata_offset: int = -1
    controller_epoch: int = -1


# ---------------------------------------------------------------------- CreatePartitions (37), v0-3


@dataclass(slots=True)
class CreatePartitionsAssignment:
    """The replicas of one new partition, the preferred leader first."""

    broker_ids: Sequence[int]


@dataclass(slots=True)
class CreatePartitionsTopic:
    """A topic to grow to ``count`` partitions in all.

    ``assignments`` None: the controller places the new partitions, by the rule ``placement`` (ours;
    None: the default).
    """

    name: str
    count: int
    assignments: Sequence[CreatePartitionsAssignment] | None = None
    placement: str | None = None


@dataclass(slots=True)
class CreatePartitionsRequest:
    """Add partitions to topics. Sent to the controller."""

    topics: Sequence[CreatePartitionsTopic]
    timeout_ms: int = 60_000
    validate_only: bool = False


@dataclass(slots=True)
class CreatePartitionsTopicResult:
    """The result for one topic."""

    name: str
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class CreatePartitionsResponse:
    """Answers :class:`CreatePartitionsRequest`."""

    results: Sequence[CreatePartitionsTopicResult]
    throttle_time_ms: int = 0


# --------------------------------------------------------------- IncrementalAlterConfigs (44), v0-1

CONFIG_SET: Final = 0
"""``AlterableConfig.config_operation``: give the setting this value."""
CONFIG_DELETE: Final = 1
"""``AlterableConfig.config_operation``: remove the setting, so that its default counts again."""
CONFIG_APPEND: Final = 2
"""``AlterableConfig.config_operation``: add to a list. No setting of pyreplog is a list."""
CONFIG_SUBTRACT: Final = 3
"""``AlterableConfig.config_operation``: remove from a list. No setting of pyreplog is a list."""


@dataclass(slots=True)
class AlterableConfig:
    """One change. ``value`` is None if the setting is deleted."""

    name: str
    config_operation: int
    value: str | None


@dataclass(slots=True)
class AlterConfigsResource:
    """The changes of a topic (``resource_type`` 2), or of the cluster (4, with an empty name)."""

    resource_type: int
    resource_name: str
    configs: Sequence[AlterableConfig]


@dataclass(slots=True)
class IncrementalAlterConfigsRequest:
    """Change settings; those that are not named stay. Sent to the controller."""

    resources: Sequence[AlterConfigsResource]
    validate_only: bool = False


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    """The result for one resource."""

    resource_type: int
    resource_name: str
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class IncrementalAlterConfigsResponse:
    """Answers :class:`IncrementalAlterConfigsRequest`."""

    responses: Sequence[AlterConfigsResourceResponse]
    throttle_time_ms: int = 0


# -------------------------------------------------------------------------- ElectLeaders (43), v0-2

ELECT_PREFERRED: Final = 0
"""``ElectLeadersRequest.election_type``: elect the first replica in the list, if it is in sync."""
ELECT_UNCLEAN: Final = 1
"""``ElectLeadersRequest.election_type``: if there is no leader, elect the live replica with the
longest log, even if records are lost."""


@dataclass(slots=True)
class ElectLeadersTopic:
    """Kafka's ``TopicPartitions`` of this message."""

    topic: str
    partitions: Sequence[int]


@dataclass(slots=True)
class ElectLeadersRequest:
    """Have leaders elected. ``topic_partitions`` None: all partitions. ``dry_run`` (ours): an unclean
    election is only worked out, and changes nothing."""

    election_type: int
    topic_partitions: Sequence[ElectLeadersTopic] | None
    timeout_ms: int = 60000
    dry_run: bool = False


@dataclass(slots=True)
class LostOffsets:
    """Ours: offsets that an unclean election gave up, from ``start`` to ``end`` (exclusive; -1: without an end).
    ``certain``: an absent copy is known to have records there."""

    start: int
    end: int
    certain: bool


@dataclass(slots=True)
class ElectLeadersPartitionResult:
    """Kafka's ``PartitionResult`` of this message. After an unclean election ``error_message``
    names the lost records, and ``lost`` (ours) has them; ``leader_id`` and ``leader_epoch`` (ours): after the
    election."""

    partition_id: int
    error_code: int = 0
    error_message: str | None = None
    leader_id: int = -1
    leader_epoch: int = -1
    lost: Sequence[LostOffsets] = ()


@dataclass(slots=True)
class ElectLeadersResult:
    """Kafka's ``ReplicaElectionResult``: one topic's part of the answer."""

    topic: str
    partition_result: Sequence[ElectLeadersPartitionResult]


@dataclass(slots=True)
class ElectLeadersResponse:
    """Answers :class:`ElectLeadersRequest`."""

    replica_election_results: Sequence[ElectLeadersResult] = ()
    error_code: int = 0
    throttle_time_ms: int = 0
