"""The topics of dead letters in a cluster, and the reader that has no place for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pyreplog.config import INT32_MAX, LogConfig
from pyreplog.errors import ConfigError
from pyreplog.readers import dead_letter_topic, letter_headers
from pyreplog.record import Record
from pyreplog.runtime.dead_letter_log import HEADERS_SIZE, WrittenLetters
from pyreplog.system import OwnedLock
from pyreplog.values import TopicPartition

__all__ = ["ClusterDeadLetters", "NoDeadLetters"]


class LetterCluster(Protocol):
    """The methods of a running cluster that take dead letters."""

    @property
    def admin(self) -> Any:
        """The admin."""
        ...

    def producer(self) -> Any:
        """Return a producer."""
        ...

    def consumer(self, topics: tuple[str, int], /) -> Any:
        """Return a consumer of one partition."""
        ...


class ClusterDeadLetters:
    """Writes dead letters into topics of a cluster that this process runs. A topic is made when it is first needed,
    like its source. Any thread."""

    def __init__(self, cluster: LetterCluster) -> None:
        self._cluster = cluster
        self._lock = OwnedLock("the dead letters of a cluster")
        self._written: dict[tuple[str, TopicPartition], WrittenLetters] = {}
        """The letters that are there, by reader and by the partition of their records."""

    def write(self, records: Sequence[Record], *, group: str, message: str, floor: int) -> None:
        """Write the dead letters of ``records``, unless they are there already. They are then as durable as their
        topic. Raises what ``create_topic`` and ``send`` raise."""
        with self._lock.enter(), self._cluster.producer() as producer:
            for record in records:
                topic = dead_letter_topic(record.topic)
                partition = record.partition % self._partition_count(record.topic, topic)
                source = TopicPartition(record.topic, record.partition)
                written = self._written.setdefault((group, source), WrittenLetters(source, group))
                self._look(written, topic, partition, floor)
                if not written.holds(record):
                    producer.send(
                        topic,
                        record.value,
                        key=record.key,
                        headers=letter_headers(record, group, message),
                        partition=partition,
                    ).result()

    def _look(self, written: WrittenLetters, topic: str, partition: int, floor: int) -> None:
        """Read the dead letters of a partition that came since the last look.

        Its end is known only when the high watermark has reached the start of the leader's epoch (KIP-207). So a letter
        that a cluster wrote before it ended is below the end.
        """
        topic_id = self._cluster.admin.describe(topic).topic_id
        with self._cluster.consumer((topic, partition)) as consumer:
            start, end = consumer.start_offset(topic, partition), consumer.end_offset(topic, partition)
            consumer.seek(topic, partition, written.begin(floor, topic_id, start, end))
            written.add(consumer.until_end())

    def _partition_count(self, source: str, topic: str) -> int:
        """Return the number of partitions of the dead letters' topic. Make it if it is not there."""
        admin = self._cluster.admin
        if topic not in admin.topics():
            like = admin.describe(source)
            kept = {name: text for name, text in like.config.items() if name in ("durability", "min.insync.replicas")}
            size = int(like.config.get("max.message.bytes", LogConfig().max_message_bytes))
            admin.create_topic(
                topic,
                partitions=len(like.partitions),
                replication_factor=max(len(one.replicas) for one in like.partitions),
                # Compaction would drop letters.
                config={**kept, "cleanup.policy": "delete", "max.message.bytes": min(size + HEADERS_SIZE, INT32_MAX)},
            )
        count: int = len(admin.describe(topic).partitions)
        return count


class NoDeadLetters:
    """A reader that has no place for dead letters."""

    def __init__(self, why: str) -> None:
        self._why = why

    def write(self, records: Sequence[Record], *, group: str, message: str, floor: int) -> None:
        """Raise :class:`ConfigError`."""
        record = records[0]
        raise ConfigError(
            f"offset {record.offset} of {TopicPartition(record.topic, record.partition)} cannot become a dead letter:"
            f" {self._why}"
        )
