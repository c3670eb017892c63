"""Refusal: an answer with one error code for every part of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyreplog.wire.admin_schemas import (
    AlterConfigsResourceResponse,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from pyreplog.wire.peer_schemas import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from pyreplog.wire.quorum_schemas import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from pyreplog.wire.reassignment_schemas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from pyreplog.wire.schemas import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResult,
    OffsetForLeaderTopicResult,
    PartitionData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

__all__ = ["refusal"]

_SIMPLE: Final[dict[type, type]] = {
    InitProducerIdRequest: InitProducerIdResponse,
    ElectLeadersRequest: ElectLeadersResponse,
    AlterPartitionRequest: AlterPartitionResponse,
    BrokerRegistrationRequest: BrokerRegistrationResponse,
    BrokerHeartbeatRequest: BrokerHeartbeatResponse,
    VoteRequest: VoteResponse,
    BeginQuorumEpochRequest: BeginQuorumEpochResponse,
    EndQuorumEpochRequest: EndQuorumEpochResponse,
    FetchSnapshotRequest: FetchSnapshotResponse,
    UpdateRaftVoterRequest: UpdateRaftVoterResponse,
}
"""Requests whose answer has one error code for the whole and no text."""
_WITH_MESSAGE: Final[dict[type, type]] = {
    DescribeQuorumRequest: DescribeQuorumResponse,
    AddRaftVoterRequest: AddRaftVoterResponse,
    RemoveRaftVoterRequest: RemoveRaftVoterResponse,
    UnregisterBrokerRequest: UnregisterBrokerResponse,
    ControllerRegistrationRequest: ControllerRegistrationResponse,
    UpdateFeaturesRequest: UpdateFeaturesResponse,
    AlterPartitionReassignmentsRequest: AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest: ListPartitionReassignmentsResponse,
}
"""Requests whose answer has one error code for the whole, and a text."""


def refusal(body: object, code: int, message: str) -> Any:
    """Return the response to ``body`` with ``code`` for each of its parts.

    It includes ``message`` if Kafka's answer has a field for it. Return None if there is no such
    answer: for a produce request with acks=0.
    """
    simple = _SIMPLE.get(type(body))
    if simple is not None:
        return simple(error_code=code)
    told = _WITH_MESSAGE.get(type(body))
    if told is not None:
        return told(error_code=code, error_message=message)
    return _of_records(body, code, message) or _about_topics(body, code, message)


def _of_records(body: object, code: int, message: str) -> Any:
    if isinstance(body, ProduceRequest):
        if body.acks == 0:
            return None
        return ProduceResponse(
            [
                TopicProduceResponse(
                    topic.topic_id,
                    [PartitionProduceResponse(one.index, code, error_message=message) for one in topic.partition_data],
                )
                for topic in body.topic_data
            ]
        )
    if isinstance(body, FetchRequest):
        return FetchResponse(
            [
                FetchableTopicResponse(topic.topic_id, [PartitionData(one.partition, code) for one in topic.partitions])
                for topic in body.topics
            ]
        )
    if isinstance(body, ListOffsetsRequest):
        return ListOffsetsResponse(
            [
                ListOffsetsTopicResponse(
                    topic.name, [ListOffsetsPartitionResponse(one.partition_index, code) for one in topic.partitions]
                )
                for topic in body.topics
            ]
        )
    if isinstance(body, OffsetForLeaderEpochRequest):
        return OffsetForLeaderEpochResponse(
            [
                OffsetForLeaderTopicResult(
                    topic.topic, [OffsetForLeaderEpochResult(one.partition, code) for one in topic.partitions]
                )
                for topic in body.topics
            ]
        )
    if isinstance(body, DeleteRecordsRequest):
        return DeleteRecordsResponse(
            [
                DeleteRecordsTopicResult(
                    topic.name,
                    [DeleteRecordsPartitionResult(one.partition_index, -1, code) for one in topic.partitions],
                )
                for topic in body.topics
            ]
        )
    return None


def _about_topics(body: object, code: int, message: str) -> Any:
    if isinstance(body, MetadataRequest):
        topics = [MetadataResponseTopic(one.name, one.topic_id, error_code=code) for one in body.topics or ()]
        return MetadataResponse([], topics, error_code=code)
    if isinstance(body, DescribeTopicPartitionsRequest):
        # A question about all topics is refused by one part without a name.
        names: Sequence[str | None] = body.topics or [None]
        return DescribeTopicPartitionsResponse([DescribeTopicPartitionsTopic(name, error_code=code) for name in names])
    if isinstance(body, DescribeConfigsRequest):
        return DescribeConfigsResponse(
            [
                DescribeConfigsResult(one.resource_type, one.resource_name, error_code=code, error_message=message)
                for one in body.resources
            ]
        )
    if isinstance(body, DescribeClusterRequest):
        return DescribeClusterResponse("", error_code=code, error_message=message)
    if isinstance(body, CreateTopicsRequest):
        return CreateTopicsResponse(
            [CreatableTopicResult(topic.name, error_code=code, error_message=message) for topic in body.topics]
        )
    if isinstance(body, DeleteTopicsRequest):
        return DeleteTopicsResponse(
            [DeletableTopicResult(topic.name, topic.topic_id, code, message) for topic in body.topics]
        )
    if isinstance(body, CreatePartitionsRequest):
        return CreatePartitionsResponse(
            [CreatePartitionsTopicResult(topic.name, code, message) for topic in body.topics]
        )
    if isinstance(body, IncrementalAlterConfigsRequest):
        return IncrementalAlterConfigsResponse(
            [
                AlterConfigsResourceResponse(one.resource_type, one.resource_name, code, message)
                for one in body.resources
            ]
        )
    return None
