"""Withdrawn answers: what a node sends in place of an answer if its lease ended before the answer
could leave."""

from __future__ import annotations

from typing import Any, Final

from pyreplog.wire.admin_schemas import (
    DescribeClusterResponse,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from pyreplog.wire.codes import NO_ERROR, ErrorCode
from pyreplog.wire.schemas import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    FetchableTopicResponse,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResult,
    OffsetForLeaderTopicResult,
    PartitionData,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

__all__ = ["withdrawn"]

_NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
_UNKNOWN: Final = ErrorCode.REQUEST_TIMED_OUT
"""The work may have been done or not."""
_ELSEWHERE: Final = ErrorCode.BROKER_NOT_AVAILABLE
"""Another node must be asked."""


def withdrawn(body: Any, message: str) -> Any:
    """Return the answer in place of ``body`` if the lease of its node ended before it could leave.

    Another node may lead by now, so no record, offset or description of this node may be believed.
    An append may have been done. Refusals stay as they are. ``message`` is included if Kafka's
    answer has a field for it.
    """
    if isinstance(body, ProduceResponse):
        return ProduceResponse(
            [
                TopicProduceResponse(topic.topic_id, [_unknown(one, message) for one in topic.partition_responses])
                for topic in body.responses
            ]
        )
    if isinstance(body, FetchResponse):
        return FetchResponse(
            [
                FetchableTopicResponse(
                    topic.topic_id,
                    [PartitionData(one.partition_index, one.error_code or _NOT_LEADER) for one in topic.partitions],
                )
                for topic in body.responses
            ],
            body.error_code,
        )
    return _offsets(body) or _description(body, message)


def _offsets(body: Any) -> Any:
    if isinstance(body, ListOffsetsResponse):
        return ListOffsetsResponse(
            [
                ListOffsetsTopicResponse(
                    topic.name,
                    [
                        ListOffsetsPartitionResponse(one.partition_index, one.error_code or _NOT_LEADER)
                        for one in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )
    if isinstance(body, OffsetForLeaderEpochResponse):
        return OffsetForLeaderEpochResponse(
            [
                OffsetForLeaderTopicResult(
                    topic.topic,
                    [
                        OffsetForLeaderEpochResult(one.partition, one.error_code or _NOT_LEADER)
                        for one in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )
    if isinstance(body, DeleteRecordsResponse):
        return DeleteRecordsResponse(
            [
                DeleteRecordsTopicResult(
                    topic.name,
                    [
                        DeleteRecordsPartitionResult(one.partition_index, -1, one.error_code or _UNKNOWN)
                        for one in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )
    return None


def _unknown(result: PartitionProduceResponse, message: str) -> PartitionProduceResponse:
    if result.error_code != NO_ERROR:
        return result
    return PartitionProduceResponse(result.index, _UNKNOWN, error_message=message)


def _description(body: Any, message: str) -> Any:
    if isinstance(body, MetadataResponse):
        topics = [MetadataResponseTopic(one.name, one.topic_id, error_code=_ELSEWHERE) for one in body.topics]
        return MetadataResponse([], topics, error_code=_ELSEWHERE)
    if isinstance(body, DescribeTopicPartitionsResponse):
        names: list[str | None] = [topic.name for topic in body.topics]
        return DescribeTopicPartitionsResponse(
            [DescribeTopicPartitionsTopic(name, error_code=_ELSEWHERE) for name in names or [None]]
        )
    if isinstance(body, DescribeConfigsResponse):
        return DescribeConfigsResponse(
            [
                DescribeConfigsResult(
                    one.resource_type, one.resource_name, error_code=_ELSEWHERE, error_message=message
                )
                for one in body.results
            ]
        )
    if isinstance(body, DescribeClusterResponse):
        return DescribeClusterResponse("", error_code=_ELSEWHERE, error_message=message)
    return body
