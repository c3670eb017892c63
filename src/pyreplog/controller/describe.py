"""Build answers from an image: Metadata, DescribeTopicPartitions, DescribeConfigs, DescribeCluster.

The controller and every node answer these requests, each from its own image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from pyreplog.controller.image import (
    ALL_DIRECTORIES,
    CORDONED,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    effective_min_isr,
)
from pyreplog.controller.reassignments import list_reassignments
from pyreplog.controller.replica_lags import ReplicaLags
from pyreplog.log import is_internal
from pyreplog.wire import (
    NO_ID,
    NO_LEADER,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    STATE_FENCED,
    STATE_OFFLINE,
    STATE_ONLINE,
    STATE_STOPPING,
    STATE_UNKNOWN,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeTopicPartitionsPartition,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
    ErrorCode,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    PartitionFilter,
    RequestBody,
    ResponseBody,
)

__all__ = ["KnownByController", "answer", "describe_cluster", "describe_configs", "describe_topics", "metadata"]

CONFIG_SOURCE_TOPIC: Final = 1
CONFIG_SOURCE_BROKER: Final = 2
CONFIG_SOURCE_CLUSTER: Final = 3
CONFIG_SOURCE_DEFAULT: Final = 5


class KnownByController(NamedTuple):
    """Facts that only the active controller has, as of ``now_ns``.

    ``is_alive`` returns whether the controller hears from a broker.
    """

    is_alive: Callable[[int], bool]
    lags: ReplicaLags
    now_ns: int


def answer(
    image: MetadataImage, body: RequestBody, cluster_id: str, known: KnownByController | None = None
) -> ResponseBody | None:
    """Return the answer to a request that only reads the image; None for any other request.

    ``known`` None: the caller is not the active controller.
    """
    if isinstance(body, MetadataRequest):
        return metadata(image, body, cluster_id)
    if isinstance(body, DescribeTopicPartitionsRequest):
        return describe_topics(image, body, known)
    if isinstance(body, DescribeConfigsRequest):
        return describe_configs(image, body)
    if isinstance(body, DescribeClusterRequest):
        return describe_cluster(image, body, cluster_id, None if known is None else known.is_alive)
    if isinstance(body, ListPartitionReassignmentsRequest):
        return list_reassignments(image, body)
    return None


def metadata(image: MetadataImage, request: MetadataRequest, cluster_id: str) -> MetadataResponse:
    """Return the live brokers and the leaders of the requested topics (None: all)."""
    brokers = [
        MetadataResponseBroker(one.broker_id, one.address, rack=one.rack)
        for one in image.brokers.values()
        if not one.fenced
    ]
    if request.topics is None:
        topics = [_topic(image, topic) for topic in image.topics.values()]
    else:
        topics = []
        for wanted in request.topics:
            if wanted.name is not None:
                topic = image.topic(wanted.name)
                missing = MetadataResponseTopic(wanted.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                topic = image.topics.get(wanted.topic_id)
                missing = MetadataResponseTopic(None, wanted.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            topics.append(missing if topic is None else _topic(image, topic))
    return MetadataResponse(brokers, topics, cluster_id=cluster_id)


def _topic(image: MetadataImage, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        topic.name,
        topic.topic_id,
        [
            MetadataResponsePartition(
                number,
                one.leader,
                one.leader_epoch,
                one.replicas,
                one.isr,
                _offline(image, one),
                ErrorCode.LEADER_NOT_AVAILABLE if one.leader == NO_LEADER else 0,
            )
            for number, one in topic.partitions.items()
        ],
        is_internal=is_internal(topic.name),
    )


def _offline(image: MetadataImage, partition: PartitionImage) -> list[int]:
    return [member for member in partition.replicas if member not in image.brokers or image.brokers[member].fenced]


def describe_topics(
    image: MetadataImage, request: DescribeTopicPartitionsRequest, known: KnownByController | None = None
) -> DescribeTopicPartitionsResponse:
    """Answer like :func:`metadata`, with eligible leader replicas and, if the active controller
    answers, the replicas out of sync. An empty list means all topics. If the request asks for the
    partitions in one state, topics without such partitions are left out."""
    topics = []
    for name in request.topics or list(image.topic_ids):
        topic = image.topic(name)
        if topic is None:
            topics.append(DescribeTopicPartitionsTopic(name, NO_ID, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        partitions = [
            _description(image, topic, number, one, known)
            for number, one in topic.partitions.items()
            if request.state == PartitionFilter.ALL or _is_in_state(topic, one, request.state)
        ]
        if partitions or request.state == PartitionFilter.ALL:
            topics.append(DescribeTopicPartitionsTopic(name, topic.topic_id, partitions, is_internal=is_internal(name)))
    return DescribeTopicPartitionsResponse(topics, metadata_offset=image.offset)


def _is_in_state(topic: TopicImage, partition: PartitionImage, state: int) -> bool:
    if state == PartitionFilter.UNDER_REPLICATED:
        return partition.is_under_replicated
    if state == PartitionFilter.UNDER_MIN_ISR:
        return len(partition.isr) < effective_min_isr(topic, partition)
    if state == PartitionFilter.AT_MIN_ISR:
        return len(partition.isr) == effective_min_isr(topic, partition)
    return state == PartitionFilter.OFFLINE and partition.leader == NO_LEADER


def _description(
    image: MetadataImage, topic: TopicImage, number: int, one: PartitionImage, known: KnownByController | None
) -> DescribeTopicPartitionsPartition:
    return DescribeTopicPartitionsPartition(
        number,
        one.leader,
        one.leader_epoch,
        one.replicas,
        one.isr,
        one.elr,
        one.last_known_elr,
        _offline(image, one),
        partition_epoch=one.partition_epoch,
        out_of_sync=() if known is None else known.lags.out_of_sync(image, (topic.topic_id, number), one, known.now_ns),
        min_isr=effective_min_isr(topic, one),
        adding=one.adding,
        removing=one.removing,
    )


def describe_configs(image: MetadataImage, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Return every setting of the requested topics, given and default, and the cluster's defaults that were given
    (the resource of all brokers, with an empty name)."""
    return DescribeConfigsResponse([_configs(image, wanted) for wanted in request.resources])


def _configs(image: MetadataImage, wanted: DescribeConfigsResource) -> DescribeConfigsResult:
    kind, name = wanted.resource_type, wanted.resource_name
    topic = image.topic(name) if kind == RESOURCE_TOPIC else None
    if topic is not None:
        values = topic.log_config.to_mapping(whole=True)
    elif kind == RESOURCE_BROKER and not name:
        values = image.defaults
    elif kind == RESOURCE_BROKER and name in {str(one) for one in (*image.brokers, *image.cordoned)}:
        return _broker_configs(image, wanted)
    else:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if kind == RESOURCE_TOPIC else ErrorCode.INVALID_REQUEST
        return DescribeConfigsResult(kind, name, error_code=error)
    own = {} if topic is None else topic.config
    found = [
        DescribeConfigsResourceResult(
            key,
            value,
            config_source=CONFIG_SOURCE_TOPIC
            if key in own
            else CONFIG_SOURCE_CLUSTER
            if key in image.defaults
            else CONFIG_SOURCE_DEFAULT,
        )
        for key, value in values.items()
        if wanted.configuration_keys is None or key in wanted.configuration_keys
    ]
    return DescribeConfigsResult(kind, name, found)


def _broker_configs(image: MetadataImage, wanted: DescribeConfigsResource) -> DescribeConfigsResult:
    """Return the settings that one broker was given."""
    found = []
    if int(wanted.resource_name) in image.cordoned and CORDONED in (wanted.configuration_keys or (CORDONED,)):
        found.append(DescribeConfigsResourceResult(CORDONED, ALL_DIRECTORIES, config_source=CONFIG_SOURCE_BROKER))
    return DescribeConfigsResult(wanted.resource_type, wanted.resource_name, found)


def describe_cluster(
    image: MetadataImage,
    request: DescribeClusterRequest,
    cluster_id: str,
    is_alive: Callable[[int], bool] | None = None,
) -> DescribeClusterResponse:
    """Return the brokers, including fenced ones if the request asks for them.

    ``is_alive`` returns whether the controller hears from a broker; None: the caller does not know.
    """
    brokers = [
        DescribeClusterBroker(
            one.broker_id,
            one.address,
            rack=one.rack,
            is_fenced=one.fenced,
            state=STATE_UNKNOWN if is_alive is None else _state(one, is_alive),
            cordoned=one.broker_id in image.cordoned,
        )
        for one in image.brokers.values()
        if request.include_fenced_brokers or not one.fenced
    ]
    return DescribeClusterResponse(cluster_id, brokers=brokers, metadata_offset=image.offset)


def _state(broker: BrokerImage, is_alive: Callable[[int], bool]) -> int:
    if broker.fenced:
        return STATE_FENCED if is_alive(broker.broker_id) else STATE_OFFLINE
    return STATE_STOPPING if broker.in_controlled_shutdown else STATE_ONLINE
