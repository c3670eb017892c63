"""Requests about the cluster rather than its records.

A node answers reads from its own image. For decisions it answers that the controller must be asked.
"""

from __future__ import annotations

from collections.abc import Callable

from pyreplog.controller import describe_cluster, describe_configs, describe_topics, metadata
from pyreplog.node.effects import Effects
from pyreplog.node.hosting import ClusterView
from pyreplog.wire import (
    AlterPartitionReassignmentsRequest,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    Request,
    refusal,
)

__all__ = ["AdminService"]


class AdminService:
    """Serves metadata and descriptions."""

    def __init__(self, effects: Effects, standing: ClusterView, cluster_id: str) -> None:
        self._effects = effects
        self._standing = standing
        self._cluster_id = cluster_id
        self.handlers: dict[type, Callable[[Request], None]] = {
            MetadataRequest: self._metadata,
            DescribeTopicPartitionsRequest: self._describe_topics,
            DescribeConfigsRequest: self._describe_configs,
            DescribeClusterRequest: self._describe_cluster,
            CreateTopicsRequest: self._create_topics,
            DeleteTopicsRequest: self._delete_topics,
            ElectLeadersRequest: self._elect_leaders,
            AlterPartitionReassignmentsRequest: self._refuse,
            CreatePartitionsRequest: self._refuse,
            ListPartitionReassignmentsRequest: self._refuse,
            IncrementalAlterConfigsRequest: self._refuse,
        }

    def _metadata(self, message: Request) -> None:
        assert isinstance(message.body, MetadataRequest)
        body = metadata(self._standing.image, message.body, self._cluster_id)
        if not self._standing.includes_registration:
            for topic in body.topics:
                if topic.error_code:
                    topic.error_code = ErrorCode.LEADER_NOT_AVAILABLE  # *this node* does not know it yet
        self._effects.answer(message.source, message.correlation_id, body)

    def _describe_topics(self, message: Request) -> None:
        assert isinstance(message.body, DescribeTopicPartitionsRequest)
        self._effects.answer(
            message.source, message.correlation_id, describe_topics(self._standing.image, message.body)
        )

    def _describe_configs(self, message: Request) -> None:
        assert isinstance(message.body, DescribeConfigsRequest)
        self._effects.answer(
            message.source, message.correlation_id, describe_configs(self._standing.image, message.body)
        )

    def _describe_cluster(self, message: Request) -> None:
        assert isinstance(message.body, DescribeClusterRequest)
        body = describe_cluster(self._standing.image, message.body, self._cluster_id)
        self._effects.answer(message.source, message.correlation_id, body)

    def _create_topics(self, message: Request) -> None:
        assert isinstance(message.body, CreateTopicsRequest)
        results = [
            CreatableTopicResult(topic.name, error_code=ErrorCode.NOT_CONTROLLER) for topic in message.body.topics
        ]
        self._effects.answer(message.source, message.correlation_id, CreateTopicsResponse(results))

    def _refuse(self, message: Request) -> None:
        body = refusal(message.body, ErrorCode.NOT_CONTROLLER, "ask the controller")
        self._effects.respond(message.source, message.correlation_id, body)

    def _elect_leaders(self, message: Request) -> None:
        self._effects.answer(
            message.source, message.correlation_id, ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER)
        )

    def _delete_topics(self, message: Request) -> None:
        assert isinstance(message.body, DeleteTopicsRequest)
        results = [
            DeletableTopicResult(topic.name, topic.topic_id, ErrorCode.NOT_CONTROLLER) for topic in message.body.topics
        ]
        self._effects.answer(message.source, message.correlation_id, DeleteTopicsResponse(results))
