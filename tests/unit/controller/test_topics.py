"""Creating and deleting topics; placement; describing."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.controller import describe_cluster, describe_configs, describe_topics, metadata, new_id
from pyreplog.wire import (
    RESOURCE_TOPIC,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeTopicPartitionsRequest,
    ErrorCode,
    MetadataRequest,
    MetadataRequestTopic,
)
from tests.unit.controller.controller_setup import ControllerSetup


def create(setup: ControllerSetup, *topics: CreatableTopic) -> list[int]:
    """The error codes of creating them."""
    return [result.error_code for result in setup.controller.create_topics(CreateTopicsRequest(topics)).topics]


def test_defaults() -> None:
    """Replication is 3 where there are as many nodes. min.insync.replicas is RF/2 + 1, and the cluster's default can
    change it. The durability is recorded, because it never changes."""
    setup = ControllerSetup()
    assert create(setup, CreatableTopic("a")) == [0]
    topic = setup.image.topic("a")
    assert topic is not None
    assert topic.config == {"durability": "sync"}
    assert topic.log_config.min_insync_replicas == 2
    assert len(topic.partitions) == 1
    assert sorted(topic.partitions[0].replicas) == [1, 2, 3]
    assert create(setup, CreatableTopic("b", 1, 1)) == [0]
    other = setup.image.topic("b")
    assert other is not None
    assert other.log_config.min_insync_replicas == 1


def test_five_replicas_need_three() -> None:
    """The default minimum is a majority."""
    setup = ControllerSetup(brokers=(1, 2, 3, 4, 5))
    create(setup, CreatableTopic("a", 1, 5))
    topic = setup.image.topic("a")
    assert topic is not None
    assert topic.log_config.min_insync_replicas == 3


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\0", "__cluster_metadata"])
def test_bad_names(name: str) -> None:
    """A name that could leave its folder, or is not Kafka's, is refused and writes nothing."""
    setup = ControllerSetup()
    before = setup.image.offset
    assert create(setup, CreatableTopic(name)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert setup.image.offset == before


def test_a_longest_name_is_fine() -> None:
    """249 characters are allowed."""
    assert create(ControllerSetup(), CreatableTopic("x" * 249)) == [0]


def test_refusals() -> None:
    """Each wrong wish has its own error number, and the others of the same request are created all the same."""
    setup = ControllerSetup()
    codes = create(
        setup,
        CreatableTopic("a"),
        CreatableTopic("a"),
        CreatableTopic("b", 0),
        CreatableTopic("c", 10_001),
        CreatableTopic("d", 1, 4),
        CreatableTopic("e", 1, 0),
        CreatableTopic("f", configs=[CreatableTopicConfig("no.such.key", "1")]),
        CreatableTopic("g", configs=[CreatableTopicConfig("durability", "maybe")]),
        CreatableTopic("h", configs=[CreatableTopicConfig("min.insync.replicas", "0")]),
        CreatableTopic("i", assignments=[CreatableReplicaAssignment(1, [1])]),
        CreatableTopic("j", assignments=[CreatableReplicaAssignment(0, [1, 1])]),
        CreatableTopic("k", assignments=[CreatableReplicaAssignment(0, [7])]),
        CreatableTopic("l", 3, assignments=[CreatableReplicaAssignment(0, [1])]),
        CreatableTopic("m", assignments=[CreatableReplicaAssignment(0, [])]),
        CreatableTopic("z"),
    )
    assert codes == [
        0,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        0,
    ]
    assert list(setup.image.topic_ids) == ["a", "z"]


def test_nobody_up() -> None:
    """Without a node that is up there is nobody to lead."""
    setup = ControllerSetup()
    setup.kill(1, 2, 3)
    assert create(setup, CreatableTopic("a")) == [ErrorCode.BROKER_NOT_AVAILABLE]
    assert create(setup, CreatableTopic("b", assignments=[CreatableReplicaAssignment(0, [1])])) == [
        ErrorCode.INVALID_REPLICA_ASSIGNMENT
    ]


def test_validate_only_writes_nothing() -> None:
    """A trial run answers and changes nothing."""
    setup = ControllerSetup()
    before = setup.image.offset
    response = setup.controller.create_topics(CreateTopicsRequest([CreatableTopic("a")], validate_only=True))
    assert (response.topics[0].error_code, setup.image.offset) == (0, before)


def test_a_fenced_broker_is_placed_but_not_in_sync() -> None:
    """Fenced brokers only fill up: never first, and not in the ISR."""
    setup = ControllerSetup()
    setup.kill(2)
    create(setup, CreatableTopic("a", 6, 3))
    topic = setup.image.topic("a")
    assert topic is not None
    for partition in topic.partitions.values():
        assert partition.replicas[-1] == 2
        assert partition.isr == partition.replicas[:2]


def test_topics_begin_on_different_brokers() -> None:
    """The first replica of each new topic is on the broker after the one where the last topic ended, so that topics
    of one partition share the leaders out."""
    setup = ControllerSetup()
    assert create(setup, *(CreatableTopic(name) for name in "abcdef")) == [0] * 6
    leaders = [topic.partitions[0].replicas[0] for name in "abcdef" if (topic := setup.image.topic(name)) is not None]
    assert leaders == [1, 2, 3, 1, 2, 3]


def test_new_ids_are_version_4_and_never_begin_with_a_dash() -> None:
    """Topic ids are uuids in Kafka's text form."""
    random = Random(3)
    ids = [new_id(random) for _ in range(500)]
    assert len(set(ids)) == 500
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)


def test_deleting() -> None:
    """A topic goes by name or id; unknown ones are said to be unknown."""
    setup = ControllerSetup()
    create(setup, CreatableTopic("a"), CreatableTopic("b"))
    topic_id = setup.image.topic_ids["b"]
    wanted = [
        DeleteTopicState("a"),
        DeleteTopicState(None, topic_id),
        DeleteTopicState("a"),
        DeleteTopicState(None, topic_id),
    ]
    response = setup.controller.delete_topics(DeleteTopicsRequest(wanted))
    codes = [result.error_code for result in response.responses]
    assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
    assert not setup.image.topics
    assert not setup.image.topic_ids


def test_describing() -> None:
    """Metadata, topics, settings and the cluster are read off the image, with errors where something is unknown."""
    setup = ControllerSetup()
    create(setup, CreatableTopic("a", 2, 3))
    setup.kill(3)
    found = metadata(setup.image, MetadataRequest(), "c")
    assert [broker.node_id for broker in found.brokers] == [1, 2]
    assert found.topics[0].partitions[0].offline_replicas == [3]
    asked = metadata(setup.image, MetadataRequest([MetadataRequestTopic("nope"), MetadataRequestTopic(None, "x")]), "c")
    assert [topic.error_code for topic in asked.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    by_id = metadata(setup.image, MetadataRequest([MetadataRequestTopic(None, setup.image.topic_ids["a"])]), "c")
    assert by_id.topics[0].name == "a"
    described = describe_topics(setup.image, DescribeTopicPartitionsRequest(["a", "nope"]))
    assert [topic.error_code for topic in described.topics] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(described.topics[0].partitions) == 2
    settings = describe_configs(
        setup.image,
        DescribeConfigsRequest(
            [DescribeConfigsResource(RESOURCE_TOPIC, "a"), DescribeConfigsResource(RESOURCE_TOPIC, "nope")]
        ),
    )
    values = {one.name: one.value for one in settings.results[0].configs}
    assert (values["durability"], values["min.insync.replicas"], values["segment.bytes"]) == ("sync", "2", str(1 << 30))
    assert values["preallocate"] == "false", "as Kafka spells it, and create_topic's own text"
    assert settings.results[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster = describe_cluster(setup.image, DescribeClusterRequest(), "c")
    assert [broker.is_fenced for broker in cluster.brokers] == [False, False, True]
    setup.kill(1, 2)
    leaderless = metadata(setup.image, MetadataRequest(), "c")
    assert leaderless.topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
