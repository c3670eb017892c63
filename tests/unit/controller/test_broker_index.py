"""The partitions by broker: after any records the index says the same as a walk of all partitions."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from pyreplog.controller import MetadataImage, PartitionImage, PartitionKey
from pyreplog.controller.broker_index import PartitionSet
from pyreplog.wire import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    SuspectReplica,
    TopicRecord,
)

BROKERS = (1, 2, 3, 4)
TOPICS = ("topic-a", "topic-b")
NUMBERS = st.sampled_from([0, 1, 511, 512, 1300])


def walk(image: MetadataImage) -> list[tuple[PartitionKey, PartitionImage]]:
    """All partitions."""
    return [
        ((topic.topic_id, number), partition)
        for topic in image.topics.values()
        for number, partition in topic.partitions.items()
    ]


def is_right(image: MetadataImage) -> None:
    """Compare the index with the walk."""
    index, partitions = image.index, walk(image)

    def same(found: Iterable[PartitionKey], wanted: Iterable[PartitionKey]) -> None:
        found = list(found)
        assert sorted(found) == sorted(wanted)
        assert len(set(found)) == len(found)

    same(index.leaderless, [key for key, one in partitions if one.leader == NO_LEADER])
    for broker in BROKERS:
        members = [key for key, one in partitions if broker in one.isr or broker in one.elr]
        same(index.leads(broker), [key for key, one in partitions if one.leader == broker])
        same(index.members(broker), members)
        same(index.holds(broker), [key for key, one in partitions if broker in one.replicas])
        same(
            index.members(broker).also_in(index.leaderless),
            [key for key, one in partitions if key in members and one.leader == NO_LEADER],
        )
        same(
            index.members(broker).not_in(index.leaderless),
            [key for key, one in partitions if key in members and one.leader != NO_LEADER],
        )


def subsets(of: tuple[int, ...]) -> st.SearchStrategy[tuple[int, ...]]:
    """Some of them, in any order."""
    return st.lists(st.sampled_from(of), unique=True).map(tuple)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), use_from=st.integers(0, 12))
def test_the_index_equals_the_walk(data: st.DataObject, use_from: int) -> None:
    """Topics come and go, partitions change in any way; the index was first used at any time."""
    image = MetadataImage()
    for step in range(data.draw(st.integers(1, 25))):
        topic_id = data.draw(st.sampled_from(TOPICS))
        number = data.draw(NUMBERS)
        isr, elr, replicas = data.draw(subsets(BROKERS)), data.draw(subsets(BROKERS)), data.draw(subsets(BROKERS))
        known = image.partition((topic_id, number)) is not None
        what = data.draw(st.sampled_from(["partition", "change", "change", "remove"]))
        if topic_id not in image.topics:
            image.apply(step, TopicRecord(topic_id, topic_id))
        elif what == "remove":
            image.apply(step, RemoveTopicRecord(topic_id))
        elif what == "partition" or not known:
            leader = data.draw(st.sampled_from([NO_LEADER, *BROKERS]))
            image.apply(
                step,
                PartitionRecord(number, topic_id, replicas, isr, leader=leader, eligible_leader_replicas=elr),
            )
        else:
            change = PartitionChangeRecord(number, topic_id, suspects=(SuspectReplica(1, 0, step),))
            if data.draw(st.booleans()):
                change.isr, change.eligible_leader_replicas = isr, elr
            if data.draw(st.booleans()):
                change.replicas = replicas
            change.leader = data.draw(st.sampled_from([NO_LEADER_CHANGE, NO_LEADER, *BROKERS]))
            image.apply(step, change)
        if step >= use_from:
            is_right(image)
    is_right(image)
    is_right(image.copy())


def test_a_set_that_changes_while_it_is_walked() -> None:
    """A walk sees the partitions that were there when it began."""
    found = PartitionSet()
    for number in range(1500):
        found.add(("topic", number))
        found.add(("topic", number))
    seen = []
    for key in found:
        seen.append(key[1])
        found.discard(key)
        found.discard(key)
    assert seen == list(range(1500))
    assert not found
    assert ("topic", 3) not in found
