"""Kafka's messages about topics, settings and the cluster. The conventions are those of :mod:`pyreplog.wire.schemas`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyreplog.wire.schemas import NO_ID

__all__ = [
    "ELECT_PREFERRED",
    "ELECT_UNCLEAN",
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
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
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
]


# --------------------------------------------------------------------------------------------------------------------- Metadata (3), v0-13


@dataclass(slots=True)
class MetadataRequestTopic:
    """By id, or by name where the id is :data:`NO_ID`."""

    name: str | None = None
    topic_id: str = NO_ID


@dataclass(slots=True)
class MetadataRequest:
    """Who leads what. ``topics`` None: all."""

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
    """``leader_id`` -1 (with LEADER_NOT_AVAILABLE): none now."""

    partition_index: int
    leader_id: int
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    offline_replicas: Sequence[int] = ()
    error_code: int = 0


@dataclass(slots=True)
class MetadataResponseTopic:
    """A topic, or why there is none."""

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


# ---------------------------------------------------------------------------------------- CreateTopics (19), v2-7; DeleteTopics (20), v1-6


@dataclass(slots=True)
class CreatableReplicaAssignment:
    """Replicas of one partition, the preferred leader first."""

    partition_index: int
    broker_ids: Sequence[int]


@dataclass(slots=True)
class CreatableTopicConfig:
    """One setting with Kafka's key."""

    name: str
    value: str | None


@dataclass(slots=True)
class CreatableTopic:
    """``num_partitions`` and ``replication_factor`` are -1 where ``assignments`` says it all, or for the defaults."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[CreatableReplicaAssignment] = ()
    configs: Sequence[CreatableTopicConfig] = ()


@dataclass(slots=True)
class CreateTopicsRequest:
    """Make topics. Goes to the controller."""

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
    """The topic made, or why not."""

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
    """By name, or by id."""

    name: str | None = None
    topic_id: str = NO_ID


@dataclass(slots=True)
class DeleteTopicsRequest:
    """Remove topics. Goes to the controller."""

    topics: Sequence[DeleteTopicState]
    timeout_ms: int = 60_000


@dataclass(slots=True)
class DeletableTopicResult:
    """One topic's outcome."""

    name: str | None
    topic_id: str = NO_ID
    error_code: int = 0
    error_message: str | None = None


@dataclass(slots=True)
class DeleteTopicsResponse:
    """Answers :class:`DeleteTopicsRequest`."""

    responses: Sequence[DeletableTopicResult]
    throttle_time_ms: int = 0


# ---------------------------------------------------------------------------------- DescribeConfigs (32), v1-4; DescribeCluster (60), v0-2


@dataclass(slots=True)
class DescribeConfigsResource:
    """``resource_type`` 2 is a topic, 4 a broker. ``configuration_keys`` None: all."""

    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None = None


@dataclass(slots=True)
class DescribeConfigsRequest:
    """Settings of topics and brokers."""

    resources: Sequence[DescribeConfigsResource]
    include_synonyms: bool = False
    include_documentation: bool = False


@dataclass(slots=True)
class DescribeConfigsSynonym:
    """Where else a setting could come from, and what it is there."""

    name: str
    value: str | None
    source: int


@dataclass(slots=True)
class DescribeConfigsResourceResult:
    """One setting. ``config_source``: 1 set on the topic, 5 default."""

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
    """Who is in the cluster."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = True


@dataclass(slots=True)
class DescribeClusterBroker:
    """One broker. In one process ``host`` is its address and ``port`` 0."""

    broker_id: int
    host: str
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False


@dataclass(slots=True)
class DescribeClusterResponse:
    """Answers :class:`DescribeClusterRequest`."""

    cluster_id: str
    controller_id: int = -1
    brokers: Sequence[DescribeClusterBroker] = ()
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    throttle_time_ms: int = 0
    cluster_authorized_operations: int = -(2**31)


# -------------------------------------------------------------------------------------------------------- DescribeTopicPartitions (75), v0


@dataclass(slots=True)
class Cursor:
    """From where to go on."""

    topic_name: str
    partition_index: int


@dataclass(slots=True)
class DescribeTopicPartitionsRequest:
    """Partitions with their eligible leader replicas. ``topics`` are names; none: all."""

    topics: Sequence[str] = ()
    response_partition_limit: int = 2000
    cursor: Cursor | None = None


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
    """Answers :class:`DescribeTopicPartitionsRequest`, all at once."""

    topics: Sequence[DescribeTopicPartitionsTopic]
    throttle_time_ms: int = 0
    next_cursor: Cursor | None = None


# ----------------------------------------------------------------------------------------------------------------- ElectLeaders (43), v0-2

ELECT_PREFERRED: Final = 0
"""``ElectLeadersRequest.election_type``: the first replica in the list, where it is in sync."""
ELECT_UNCLEAN: Final = 1
"""``ElectLeadersRequest.election_type``: where nobody leads, the live replica that reaches furthest, whatever is lost."""


@dataclass(slots=True)
class ElectLeadersTopic:
    """Kafka's ``TopicPartitions`` of this message."""

    topic: str
    partitions: Sequence[int]


@dataclass(slots=True)
class ElectLeadersRequest:
    """Have leaders elected. ``topic_partitions`` None: all partitions."""

    election_type: int
    topic_partitions: Sequence[ElectLeadersTopic] | None
    timeout_ms: int = 60000


@dataclass(slots=True)
class ElectLeadersPartitionResult:
    """Kafka's ``PartitionResult`` of this message. After an unclean election ``error_message`` states what was lost."""

    partition_id: int
    error_code: int = 0
    error_message: str | None = None


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
