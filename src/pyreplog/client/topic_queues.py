"""The queues of one topic's partitions, and the partition that each record goes to.

Records with a key go to the partition of the key by Kafka's murmur2, as in every Kafka client.
Records without key go to one partition until its batch is sealed, then to another one at random
(Kafka's ``BuiltInPartitioner``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, SupportsIndex

from pyreplog.client.accumulator import PartitionQueue
from pyreplog.client.acks import Acks, Run
from pyreplog.client.outcome import BatchResult
from pyreplog.client.router import TopicRoute
from pyreplog.config import whole
from pyreplog.errors import ConfigError, UnknownTopicError
from pyreplog.ports import Buffer, Headers, Random
from pyreplog.record import partition_for_key

__all__ = ["TopicQueues", "check_lengths"]

KEYS_REMEMBERED_MAX: Final = 16384
"""Keys whose partition is remembered per topic, because hashing a key in Python costs more than the
rest of a send."""


class TopicQueues:
    """The queues of ``topic``, by partition. ``routes``: the leaders of all topics, kept up to date
    by the router."""

    __slots__ = ("_keys", "_random", "_routes", "_sticky", "_sticky_sealed", "queues", "topic")

    def __init__(self, topic: str, routes: Mapping[str, TopicRoute], random: Random) -> None:
        self.topic = topic
        self.queues: list[PartitionQueue] = []
        self._routes = routes
        self._random = random
        self._keys: dict[bytes, int] = {}
        self._sticky = -1
        self._sticky_sealed = -1

    def resize(self, count: int, new_queue: Callable[[int], PartitionQueue]) -> None:
        """Have ``count`` queues: the topic is new, or was re-created."""
        self._keys.clear()
        if self._sticky >= count:
            self._sticky = -1
        del self.queues[count:]
        self.queues.extend(new_queue(number) for number in range(len(self.queues), count))

    def queue(self, partition: SupportsIndex) -> PartitionQueue:
        """Return the queue of a partition that the caller named."""
        number = partition if type(partition) is int else whole("partition", partition)
        if not 0 <= number < len(self.queues):
            raise UnknownTopicError(f"{self.topic!r} has partitions 0 to {len(self.queues) - 1}, not {number}")
        return self.queues[number]

    def queue_for(self, key: Buffer | None, partition: SupportsIndex | None) -> PartitionQueue:
        """Return the queue of ``partition``, if it is not None, or that of a record with this key."""
        if partition is None:
            partition = self.sticky() if key is None else self.partition_of(key)
        return self.queue(partition)

    def last_queue(self, partition: int | None) -> PartitionQueue:
        """Return the queue of ``partition``, which exists; None: of the last record without key and partition."""
        return self.queues[self._sticky if partition is None else partition]

    def partition_of(self, key: Buffer) -> int:
        """Return the partition for a record with this key."""
        if type(key) is bytes:
            number = self._keys.get(key)
            if number is None:
                if len(self._keys) >= KEYS_REMEMBERED_MAX:
                    self._keys.clear()
                number = self._keys[key] = partition_for_key(key, len(self.queues))
            return number
        if getattr(key, "is_valid", None) is False:  # a null of an Arrow array
            return self.sticky()
        return partition_for_key(key, len(self.queues))

    def sticky(self) -> int:
        """Return the partition for a record without key."""
        number = self._sticky
        if number >= 0:
            queue = self.queues[number]
            if queue.sealed_count == self._sticky_sealed:
                return number
        leaders = self._routes[self.topic].leaders
        usable = [index for index, leader in enumerate(leaders) if leader >= 0] or list(range(len(leaders)))
        others = [index for index in usable if index != number] or usable
        number = self._sticky = others[int(self._random.random() * len(others))]
        self._sticky_sealed = self.queues[number].sealed_count
        return number

    def by_number(self, numbers: Sequence[int]) -> dict[int, list[int]]:
        """Return the indexes of ``numbers``, the partitions that the caller chose, by partition."""
        groups: dict[int, list[int]] = {}
        for index, number in enumerate(numbers):
            groups.setdefault(self.queue(number).partition, []).append(index)
        return groups

    def by_partition(self, keys: Sequence[Buffer | None]) -> dict[int, list[int]]:
        """Return the indexes of ``keys``, one key for each record, by the record's partition."""
        groups: dict[int, list[int]] = {}
        for index, key in enumerate(keys):
            number = self.sticky() if key is None else self.partition_of(key)
            group = groups.get(number)
            if group is None:
                groups[number] = [index]
            else:
                group.append(index)
        return groups

    def spread(
        self,
        groups: Mapping[int, Sequence[int]],
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int | datetime] | None,
        stamp_ms: int,
        now_ns: Callable[[], int],
        active: dict[tuple[str, int], PartitionQueue],
    ) -> Acks:
        """Queue the records of each partition, whose indexes are in ``groups``; note the place of each record.

        A queue is added to ``active`` before it gets a record.
        """
        order: list[tuple[BatchResult, int]] = [None] * len(values)  # type: ignore[list-item]
        runs: list[Run] = []
        for number, indexes in groups.items():
            queue = self.queues[number]
            part = [values[index] for index in indexes]
            part_keys = None if keys is None else [keys[index] for index in indexes]
            part_headers = None if headers is None else [headers[index] for index in indexes]
            part_stamps = None if timestamps is None else [timestamps[index] for index in indexes]
            taken = 0
            active[self.topic, number] = queue
            while taken < len(part):
                before = taken
                run, taken = queue.extend(part, part_keys, part_headers, part_stamps, stamp_ms, taken, now_ns())
                outcome, first, _ = run
                for place in range(before, taken):
                    order[indexes[place]] = (outcome, first + place - before)
                runs.append(run)
        return Acks(runs, order)


def check_lengths(count: int, **given: Sequence[object] | None) -> None:
    """Raise TypeError or ConfigError unless each of ``given`` is None or a list with ``count`` entries."""
    for name, entries in given.items():
        if entries is None:
            continue
        if not hasattr(entries, "__len__") or isinstance(entries, (str, bytes, bytearray, memoryview)):
            raise TypeError(f"{name} are a list, with one for each value, not {type(entries).__name__}")
        if len(entries) != count:
            raise ConfigError(f"{count} values but {len(entries)} {name}")
