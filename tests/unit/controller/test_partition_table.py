"""The table of a topic's partitions, and the copies of an image that share it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.controller import MetadataImage
from pyreplog.controller.broker_index import BrokerIndex
from pyreplog.controller.partition_table import CHUNK, PartitionTable
from pyreplog.wire import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

numbers = st.integers(0, 5) | st.sampled_from([CHUNK - 1, CHUNK, 3 * CHUNK + 1, 2**31 - 1])


@given(st.lists(st.tuples(st.integers(0, 3), numbers, st.text(max_size=2)), max_size=30))
def test_tables_and_their_copies_are_dictionaries(steps: list[tuple[int, int, str]]) -> None:
    """A table holds the entries of a dict with the same changes, and so does each copy of it."""
    tables, models = [PartitionTable[str]()], [dict[int, str]()]
    for which, number, value in steps:
        table, model = tables[which % len(tables)], models[which % len(tables)]
        if which == 3:
            tables.append(table.copy())
            models.append(dict(model))
        table[number] = model[number] = value
        for one, other in zip(tables, models, strict=True):
            assert one == other
            assert list(one.items()) == sorted(other.items())
            assert list(one) == sorted(other)
            assert list(one.values()) == [other[key] for key in sorted(other)]
            assert len(one) == len(other)
            assert list(one.items_from(number)) == [entry for entry in sorted(other.items()) if entry[0] >= number]
            assert (one.get(number + 1) is None) is (number + 1 not in other)
            assert (number in one) is (number in other)


def test_a_missing_number_raises_a_key_error() -> None:
    """A number without a value, a negative one too, is a KeyError, and ``get`` returns None."""
    table: PartitionTable[str] = PartitionTable()
    table[1] = "one"
    for number in (-1, 0, 2, CHUNK):
        with pytest.raises(KeyError):
            table[number]
        assert table.get(number) is None


def sets(index: BrokerIndex) -> list[object]:
    """The content of an index."""
    found = [sorted(one(broker)) for broker in range(5) for one in (index.leads, index.members, index.holds)]
    return [found, sorted(index.leaderless)]


def content(image: MetadataImage) -> list[object]:
    """The content of an image, and of an index that is made from it alone."""
    return [image.offset, {key: dict(topic.partitions.items()) for key, topic in image.topics.items()}]


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_of_an_image_changes_independently(seed: int) -> None:
    """Of an image and its copies, each has what was applied to it alone; so has its index."""
    random = Random(seed)
    pairs = [(MetadataImage(), list[tuple[int, object]]())]
    for offset in range(120):
        image, history = random.choice(pairs)
        topic, number = f"topic-{random.randrange(3)}", random.choice([0, 1, CHUNK, CHUNK + 1])
        replicas = random.sample(range(5), 3)
        record: object
        if topic not in image.topics:
            record = TopicRecord(topic, topic)
        elif random.random() < 0.05:
            record = RemoveTopicRecord(topic)
        elif number not in image.topics[topic].partitions:
            record = PartitionRecord(number, topic, replicas, replicas[:2], leader=random.choice([-1, replicas[0]]))
        else:
            record = PartitionChangeRecord(number, topic, replicas[1:], leader=replicas[1], replicas=replicas)
        image.apply(offset, record)
        history.append((offset, record))
        if random.random() < 0.1:
            assert image.index is not None
            pairs.append((image.copy(), list(history)))
    for image, history in pairs:
        plain = MetadataImage()
        for offset, record in history:
            plain.apply(offset, record)  # type: ignore[arg-type]
        assert content(image) == content(plain)
        assert sets(image.index) == sets(plain.index)
