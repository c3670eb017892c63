"""The entries of the stored image: a key and a value for each part of an image.

Keys sort in the order in which the records can be applied: feature levels, brokers, defaults, the next
producer id, then each topic with its settings and its partitions. Format: docs/internals/format/stored_image.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from pyreplog.controller.image import CORDONED, MetadataImage, TopicImage, cordon_record
from pyreplog.controller.image_loader import PartitionEncoder
from pyreplog.log import decode_uuid
from pyreplog.wire import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    encode_record,
)

__all__ = ["NAME_PART", "PREFIX_SIZE", "TOPIC", "Entry", "ImageEntries", "topic_prefix"]

Entry = tuple[bytes, bytes | None]
"""A key and its value; None: it is removed."""
# On disk: never change.
_FEATURE: Final = b"a"
_BROKER: Final = b"b"
_CORDON: Final = b"c"
_DEFAULT: Final = b"d"
_PRODUCERS: Final = b"p"
TOPIC: Final = b"t"
PREFIX_SIZE: Final = 17
"""The size of the prefix of a topic's keys."""
NAME_PART: Final = b"\0"
"""Behind the prefix of a topic's first key."""
_CONFIG_PART: Final = b"\1"
_PARTITION_PART: Final = b"\2"


@lru_cache(maxsize=1024)
def topic_prefix(topic_id: str) -> bytes:
    """Return the beginning of all keys of a topic."""
    return TOPIC + decode_uuid(topic_id)


class ImageEntries:
    """Makes entries from images."""

    __slots__ = ("_encoder",)

    def __init__(self) -> None:
        self._encoder = PartitionEncoder()

    def of_record(self, image: MetadataImage, record: MetadataRecord) -> list[Entry]:
        """Return the entries that ``record`` changed. It is the last record that ``image`` applied.

        The settings and partitions of a removed topic are not among them.
        """
        if isinstance(record, PartitionChangeRecord | PartitionRecord):
            return [self.partition(image.topics[record.topic_id], record.partition_id)]
        if isinstance(record, TopicRecord):
            return [(topic_prefix(record.topic_id) + NAME_PART, encode_record(record))]
        if isinstance(record, RemoveTopicRecord):
            return [(topic_prefix(record.topic_id) + NAME_PART, None)]
        if isinstance(record, ConfigRecord):
            return self._of_setting(image, record)
        if isinstance(record, RegisterBrokerRecord | BrokerRegistrationChangeRecord | UnregisterBrokerRecord):
            return [self._broker(image, record.broker_id)]
        if isinstance(record, ProducerIdsRecord):
            return [_producers(image)]
        if isinstance(record, FeatureLevelRecord):
            return [(_FEATURE + record.name.encode(), encode_record(record))]
        return []  # an image does not have the other records

    def of_cluster(self, image: MetadataImage) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of everything but topics."""
        for name, level in image.feature_levels.items():
            yield _FEATURE + name.encode(), encode_record(FeatureLevelRecord(name, level))
        for broker in image.brokers.values():
            yield _BROKER + broker.broker_id.to_bytes(4, "big"), encode_record(broker.to_record())
        for broker_id in sorted(image.cordoned):
            yield _CORDON + broker_id.to_bytes(4, "big"), encode_record(cordon_record(broker_id, cordoned=True))
        for name, value in image.defaults.items():
            yield _DEFAULT + name.encode(), encode_record(ConfigRecord(RESOURCE_BROKER, "", name, value))
        if image.next_producer_id:
            yield _producers(image)

    def values(self, image: MetadataImage) -> Iterator[bytes]:
        """Yield the records that restate ``image``. REQUIRES that it does not change before the last one."""
        for _, value in self.of_cluster(image):
            yield value
        for topic in image.topics.values():
            prefix = topic_prefix(topic.topic_id)[len(TOPIC) :]
            for _, value in self.of_topic(topic):
                yield value
            for number, partition in topic.partitions.items():
                yield self._encoder.encode(prefix, number, partition)

    def of_topic(self, topic: TopicImage) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a topic but for its partitions."""
        prefix = topic_prefix(topic.topic_id)
        yield prefix + NAME_PART, encode_record(TopicRecord(topic.name, topic.topic_id))
        for name, value in topic.config.items():
            yield (
                prefix + _CONFIG_PART + name.encode(),
                encode_record(ConfigRecord(RESOURCE_TOPIC, topic.name, name, value)),
            )

    def partition(self, topic: TopicImage, number: int) -> tuple[bytes, bytes]:
        """Return the entry of a partition."""
        prefix = topic_prefix(topic.topic_id)
        value = self._encoder.encode(prefix[len(TOPIC) :], number, topic.partitions[number])
        return prefix + _PARTITION_PART + number.to_bytes(4, "big"), value

    def _of_setting(self, image: MetadataImage, record: ConfigRecord) -> list[Entry]:
        value = None if record.value is None else encode_record(record)
        if record.resource_type == RESOURCE_BROKER and not record.resource_name:
            return [(_DEFAULT + record.name.encode(), value)]
        if record.resource_type == RESOURCE_BROKER:
            if record.name != CORDONED or not record.resource_name.isdecimal():
                return []  # an image does not have the other settings of a broker
            return [(_CORDON + int(record.resource_name).to_bytes(4, "big"), value)]
        if record.resource_type != RESOURCE_TOPIC:
            return []
        return [
            (topic_prefix(image.topic_ids[record.resource_name]) + _CONFIG_PART + record.name.encode(), value),
        ]

    @staticmethod
    def _broker(image: MetadataImage, broker_id: int) -> Entry:
        broker = image.brokers.get(broker_id)
        return _BROKER + broker_id.to_bytes(4, "big"), None if broker is None else encode_record(broker.to_record())


def _producers(image: MetadataImage) -> tuple[bytes, bytes]:
    return _PRODUCERS, encode_record(ProducerIdsRecord(-1, -1, image.next_producer_id))
