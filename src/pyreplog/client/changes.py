"""Changes of topics, settings and partitions: the request, how to look up whether it was carried out,
and the value of its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyreplog.client.lookups import Lookup
from pyreplog.errors import ConfigError, PyreplogError, cluster_error
from pyreplog.ports import Address
from pyreplog.values import TopicPartition
from pyreplog.wire import (
    CONFIG_DELETE,
    CONFIG_SET,
    NO_ERROR,
    RESOURCE_TOPIC,
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    AlterableConfig,
    AlterConfigsResource,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    QuorumEndpoint,
    ReassignablePartition,
    ReassignableTopic,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    RequestBody,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

__all__ = [
    "ClusterChange",
    "added_voter",
    "altered_configs",
    "altered_reassignments",
    "creatable",
    "created_partitions",
    "created_topics",
    "deleted_topic",
    "removed_voter",
    "running_reassignments",
    "unregistered_broker",
]

CONFIG_SOURCE_TOPIC = 1
CONFIG_SOURCE_BROKER = 2
CONFIG_SOURCE_CLUSTER = 3


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """One change, or a question about one. ``value_of`` returns the value of an answer of the controller, or raises
    its error. ``retriable``: a second copy has the same effect."""

    what: str
    body: RequestBody
    value_of: Callable[[Any], Any]
    lookup: Lookup | None = None
    retriable: bool = False


def creatable(
    name: str, partitions: int, replication_factor: int, config: Mapping[str, str], placement: str | None = None
) -> CreatableTopic:
    """Return a topic to create. -1 and None: the cluster's default."""
    configs = [CreatableTopicConfig(key, value) for key, value in config.items()]
    return CreatableTopic(name, partitions, replication_factor, configs=configs, placement=placement)


def created_topics(topics: Sequence[CreatableTopic], timeout_ms: int) -> ClusterChange:
    """Create several topics. The value is the list of their CreatableTopicResults."""

    def value_of(body: CreateTopicsResponse) -> list[CreatableTopicResult]:
        return list(body.topics)

    return ClusterChange(f"creation of {len(topics)} topics", CreateTopicsRequest(topics, timeout_ms), value_of)


def deleted_topic(name: str, topic_id: str, timeout_ms: int) -> ClusterChange:
    """Delete the topic with this id. The value is True."""

    def judge(body: DescribeTopicPartitionsResponse) -> bool | None:
        there = any(one.topic_id == topic_id and one.error_code == NO_ERROR for one in body.topics)
        return None if there else True

    def value_of(body: DeleteTopicsResponse) -> bool:
        _check(body.responses[0], repr(name))
        return True

    lookup = Lookup(DescribeTopicPartitionsRequest([name]), judge, frozenset({ErrorCode.UNKNOWN_TOPIC_ID}))
    body = DeleteTopicsRequest([DeleteTopicState(None, topic_id)], timeout_ms)
    return ClusterChange(f"deletion of topic {name!r}", body, value_of, lookup)


def created_partitions(name: str, count: int, timeout_ms: int, placement: str | None = None) -> ClusterChange:
    """Grow a topic to ``count`` partitions. The value is the text with the consequence."""

    def judge(body: DescribeTopicPartitionsResponse) -> str | None:
        topic = next((one for one in body.topics if one.error_code == NO_ERROR), None)
        return None if topic is None or len(topic.partitions) < count else ""

    def value_of(body: CreatePartitionsResponse) -> str:
        _check(body.results[0], repr(name))
        return body.results[0].error_message or ""

    lookup = Lookup(DescribeTopicPartitionsRequest([name]), judge, frozenset({ErrorCode.INVALID_PARTITIONS}))
    body = CreatePartitionsRequest([CreatePartitionsTopic(name, count, placement=placement)], timeout_ms)
    return ClusterChange(f"growth of topic {name!r} to {count} partitions", body, value_of, lookup)


def altered_configs(kind: int, name: str, config: Mapping[str, str | None]) -> ClusterChange:
    """Change settings of a topic, of a node or of the cluster; None resets one. The value is True."""
    source = CONFIG_SOURCE_TOPIC if kind == RESOURCE_TOPIC else CONFIG_SOURCE_BROKER if name else CONFIG_SOURCE_CLUSTER

    def judge(body: DescribeConfigsResponse) -> bool | None:
        there = {one.name: one.value for one in body.results[0].configs if one.config_source == source}
        return True if all(there.get(key) == value for key, value in config.items()) else None

    def value_of(body: IncrementalAlterConfigsResponse) -> bool:
        _check(body.responses[0], repr(name))
        return True

    changes = [
        AlterableConfig(key, CONFIG_DELETE if value is None else CONFIG_SET, value) for key, value in config.items()
    ]
    owner = f"topic {name!r}" if kind == RESOURCE_TOPIC else f"node {name}" if name else "the cluster"
    what = f"change of settings of {owner}"
    lookup = Lookup(DescribeConfigsRequest([DescribeConfigsResource(kind, name)]), judge)
    return ClusterChange(
        what, IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, changes)]), value_of, lookup
    )


def removed_voter(node_id: int, directory_id: str, cluster_id: str) -> ClusterChange:
    """Take the vote from a node's folder. The value is True, also if the folder has none."""

    def value_of(body: RemoveRaftVoterResponse) -> bool:
        if body.error_code not in (NO_ERROR, ErrorCode.VOTER_NOT_FOUND):
            raise cluster_error(body.error_code, body.error_message or f"the vote of node {node_id}")
        return True

    body = RemoveRaftVoterRequest(node_id, directory_id, cluster_id)
    lookup = Lookup(body, lambda answer: True if answer.error_code in (NO_ERROR, ErrorCode.VOTER_NOT_FOUND) else None)
    return ClusterChange(f"removal of the vote of node {node_id}", body, value_of, lookup)


def added_voter(node_id: int, directory_id: str, address: Address, cluster_id: str) -> ClusterChange:
    """Give a vote to a node with this folder, whose controller is at ``address``, when it has the metadata. The value
    is True, also if it votes already."""

    def value_of(body: AddRaftVoterResponse) -> bool:
        if body.error_code not in (NO_ERROR, ErrorCode.DUPLICATE_VOTER):
            raise cluster_error(body.error_code, body.error_message or f"the vote of node {node_id}")
        return True

    listener = QuorumEndpoint("CONTROLLER", address, 0)
    body = AddRaftVoterRequest(node_id, directory_id, [listener], cluster_id)
    return ClusterChange(f"the vote of node {node_id}", body, value_of, retriable=True)


def unregistered_broker(node_id: int) -> ClusterChange:
    """Forget a node that does not run and holds nothing. The value is True, also if it was not known."""

    def value_of(body: UnregisterBrokerResponse) -> bool:
        if body.error_code not in (NO_ERROR, ErrorCode.BROKER_ID_NOT_REGISTERED):
            raise cluster_error(body.error_code, body.error_message or f"node {node_id}")
        return True

    return ClusterChange(f"removal of node {node_id}", UnregisterBrokerRequest(node_id), value_of, retriable=True)


def altered_reassignments(
    targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int, *, may_grow: bool = True
) -> ClusterChange:
    """Give each partition these replicas; None cancels its reassignment. The value is a dict of the errors of those
    that were refused."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for one, replicas in targets.items():
        topics.setdefault(one.topic, []).append(ReassignablePartition(one.partition, replicas))

    def value_of(body: AlterPartitionReassignmentsResponse) -> dict[TopicPartition, PyreplogError]:
        if body.error_code != NO_ERROR:
            raise error_of(body.error_code, body.error_message or "the reassignment")
        return {
            TopicPartition(topic.name, one.partition_index): error_of(one.error_code, one.error_message or topic.name)
            for topic in body.responses
            for one in topic.partitions
            if one.error_code != NO_ERROR
        }

    parts = [ReassignableTopic(name, partitions) for name, partitions in topics.items()]
    body = AlterPartitionReassignmentsRequest(parts, timeout_ms, may_grow)
    return ClusterChange(f"reassignment of {len(targets)} partitions", body, value_of, retriable=True)


def running_reassignments() -> ClusterChange:
    """Ask for the reassignments that go on. The value is a dict of OngoingPartitionReassignment by TopicPartition."""

    def value_of(body: ListPartitionReassignmentsResponse) -> dict[TopicPartition, OngoingPartitionReassignment]:
        if body.error_code != NO_ERROR:
            raise error_of(body.error_code, body.error_message or "the list of reassignments")
        return {
            TopicPartition(topic.name, one.partition_index): one for topic in body.topics for one in topic.partitions
        }

    return ClusterChange("list of reassignments", ListPartitionReassignmentsRequest(), value_of, retriable=True)


def error_of(code: int, text: str) -> PyreplogError:
    """Return the error of one part of an answer: settings are refused as they are when they are made."""
    return ConfigError(text) if code == ErrorCode.INVALID_CONFIG else cluster_error(code, text)


def _check(result: Any, name: str) -> None:
    if result.error_code != NO_ERROR:
        raise error_of(result.error_code, result.error_message or name)
