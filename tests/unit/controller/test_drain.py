"""Where the replicas of nodes that leave go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest

from pyreplog.controller import BrokerImage, MetadataImage, drained, too_large_topics
from pyreplog.wire import PartitionRecord, TopicRecord


def image_of(racks: Mapping[int, str | None], topics: dict[str, list[tuple[int, ...]]]) -> MetadataImage:
    """Metadata with these nodes, by their racks, and these replicas of each topic's partitions."""
    image = MetadataImage()
    for number, rack in racks.items():
        image.brokers[number] = BrokerImage(number, 1, f"i{number}", f"node-{number}", False, False, (), rack=rack)
    for index, (name, partitions) in enumerate(topics.items()):
        topic_id = f"AAAAAAAAAAAAAAAAAAAAA{'gAQw'[index]}"
        image.apply(image.offset + 1, TopicRecord(name, topic_id))
        for number, replicas in enumerate(partitions):
            record = PartitionRecord(number, topic_id, replicas, replicas, leader=replicas[0], leader_epoch=0)
            image.apply(image.offset + 1, record)
    return image


def test_only_what_leaves_moves_and_takes_its_place() -> None:
    """To the node with the fewest replicas of the topic; the order stays."""
    image = image_of(dict.fromkeys((1, 2, 3, 4)), {"t": [(1, 2), (2, 3), (3, 1)], "u": [(4, 1)]})
    assert drained(image, [1]) == {("t", 0): (4, 2), ("t", 2): (3, 4), ("u", 0): (4, 2)}


def test_a_new_rack_comes_first() -> None:
    """Also if its node has more replicas."""
    racks = {1: "a", 2: "b", 3: "b", 4: "c"}
    image = image_of(racks, {"t": [(1, 2)], "u": [(4,), (4,), (4,)]})
    assert drained(image, [1]) == {("t", 0): (4, 2)}


def test_a_cordoned_node_gets_nothing_and_keeps_what_it_has() -> None:
    """So it counts only for the partitions that it has."""
    image = image_of(dict.fromkeys((1, 2, 3)), {"t": [(1, 3)], "u": [(1, 2)]})
    image.cordoned = frozenset({3})
    assert too_large_topics(image, [1]) == {"u": 2}
    assert drained(image_of(dict.fromkeys((1, 2, 3)), {"t": [(1, 3)]}), [1]) == {("t", 0): (2, 3)}


def test_too_few_nodes() -> None:
    """The topics are named with their factors."""
    image = image_of(dict.fromkeys((1, 2, 3)), {"t": [(1, 2, 3)], "u": [(1, 2)]})
    assert too_large_topics(image, [3]) == {"t": 3}
    assert too_large_topics(image, [2, 3]) == {"t": 3, "u": 2}
    assert too_large_topics(image, []) == {}


@pytest.mark.parametrize("seed", range(30))
def test_random_clusters(seed: int) -> None:
    """No node has two replicas of a partition, none that leaves has any, as many move as had to, and the nodes that
    were even stay within two of each other."""
    chance = Random(seed)
    count = chance.randint(3, 8)
    nodes = list(range(1, count + 1))
    racks: dict[int, str | None] = dict.fromkeys(nodes)
    if chance.random() < 0.5:
        racks = {number: "abc"[number % 3] for number in nodes}
    factor = chance.randint(1, min(3, count - 1))
    partitions = [tuple(nodes[(first + step) % count] for step in range(factor)) for first in range(4 * count)]
    image = image_of(racks, {"t": partitions})
    leaving = chance.sample(nodes, chance.randint(1, count - factor))
    moved = drained(image, leaving)
    after = [moved.get(("t", number), before) for number, before in enumerate(partitions)]
    assert all(len(set(one)) == factor and not set(one) & set(leaving) for one in after)
    changed = sum(
        a != b for before, now in zip(partitions, after, strict=True) for a, b in zip(before, now, strict=True)
    )
    assert changed == sum(node in leaving for one in partitions for node in one)
    if not any(racks.values()):
        loads = Counter(node for one in after for node in one)
        assert max(loads.values()) - min(loads.values()) <= 2
