"""Topics that grow, and topics that are internal."""

from __future__ import annotations

import pytest

from pyreplog.wire import (
    NO_ERROR,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ErrorCode,
)
from tests.unit.controller.controller_setup import ControllerSetup


def grow(setup: ControllerSetup, *topics: CreatePartitionsTopic, validate_only: bool = False) -> list[int]:
    """The error codes of growing them."""
    return [one.error_code for one in results(setup, *topics, validate_only=validate_only)]


def results(
    setup: ControllerSetup, *topics: CreatePartitionsTopic, validate_only: bool = False
) -> list[CreatePartitionsTopicResult]:
    """The results of growing them."""
    request = CreatePartitionsRequest(topics, validate_only=validate_only)
    return list(setup.controller.create_partitions(request).results)


def test_new_partitions_follow_the_old_ones() -> None:
    """They have the topic's replication factor and leaders of their own; the old ones do not change; the answer says
    that keys map to other partitions."""
    setup = ControllerSetup()
    key = setup.topic()
    before = setup[key]
    (result,) = results(setup, CreatePartitionsTopic("t", 4))
    assert result.error_code == NO_ERROR
    assert "keys map to another partition" in (result.error_message or "")
    topic = setup.image.topics[key[0]]
    assert list(topic.partitions) == [0, 1, 2, 3]
    assert topic.partitions[0] == before
    for number in (1, 2, 3):
        one = topic.partitions[number]
        assert sorted(one.replicas) == sorted(one.isr) == [1, 2, 3]
        assert (one.leader, one.leader_epoch, one.partition_epoch) == (one.replicas[0], 0, 0)
    assert len({topic.partitions[number].leader for number in (1, 2, 3)}) == 3


def test_a_fenced_node_gets_copies_and_leads_nothing() -> None:
    """It is in no in-sync set."""
    setup = ControllerSetup()
    key = setup.topic()
    setup.kill(2)
    assert grow(setup, CreatePartitionsTopic("t", 3)) == [0]
    for number in (1, 2):
        one = setup.image.topics[key[0]].partitions[number]
        assert 2 in one.replicas
        assert 2 not in one.isr
        assert one.leader in (1, 3)


def test_assignments_by_hand() -> None:
    """One for each new partition, of known nodes, with the topic's replication factor."""
    setup = ControllerSetup()
    key = setup.topic(replicas=(1, 2))

    def assigned(*replicas: list[int]) -> CreatePartitionsTopic:
        return CreatePartitionsTopic("t", 3, [CreatePartitionsAssignment(one) for one in replicas])

    for wrong in (assigned([1, 2]), assigned([1, 2], [1]), assigned([1, 2], [7, 1]), assigned([1, 1], [1, 2])):
        assert grow(setup, wrong) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert grow(setup, assigned([3, 1], [2, 3])) == [0]
    topic = setup.image.topics[key[0]]
    assert [topic.partitions[number].replicas for number in (1, 2)] == [(3, 1), (2, 3)]


def test_refusals_say_what_to_do() -> None:
    """Fewer partitions, the same number, too many at once, no such topic, no live node. Nothing is written."""
    setup = ControllerSetup()
    setup.topic()
    assert grow(setup, CreatePartitionsTopic("t", 3)) == [0]
    offset = setup.image.offset
    fewer, same, many, unknown = results(
        setup,
        CreatePartitionsTopic("t", 2),
        CreatePartitionsTopic("t", 3),
        CreatePartitionsTopic("t", 10_004),
        CreatePartitionsTopic("u", 3),
    )
    assert fewer.error_code == same.error_code == many.error_code == ErrorCode.INVALID_PARTITIONS
    assert "create another topic" in (fewer.error_message or "")
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    setup.kill(1, 2, 3)
    offset = setup.image.offset
    assert grow(setup, CreatePartitionsTopic("t", 4)) == [ErrorCode.BROKER_NOT_AVAILABLE]
    assert setup.image.offset == offset


def test_validate_only_writes_nothing() -> None:
    """A trial run answers and changes nothing."""
    setup = ControllerSetup()
    setup.topic()
    offset = setup.image.offset
    assert grow(setup, CreatePartitionsTopic("t", 3), validate_only=True) == [0]
    assert setup.image.offset == offset


@pytest.mark.parametrize("name", ["__consumer_offsets", "__cluster_metadata", "__mine"])
def test_internal_topics_are_not_created(name: str) -> None:
    """Their names are those of the system."""
    setup = ControllerSetup()
    (result,) = setup.controller.create_topics(CreateTopicsRequest([CreatableTopic(name)])).topics
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "internal" in (result.error_message or "")


def test_internal_topics_are_neither_grown_nor_deleted() -> None:
    """Only the system itself changes one that exists."""
    setup = ControllerSetup()
    setup.topic()
    topic = setup.image.topic("t")
    assert topic is not None
    topic.name = "__t"
    setup.image.topic_ids = {"__t": topic.topic_id}
    assert grow(setup, CreatePartitionsTopic("__t", 2)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    (result,) = setup.controller.delete_topics(DeleteTopicsRequest([DeleteTopicState("__t")])).responses
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert list(setup.image.topics) == [topic.topic_id]
