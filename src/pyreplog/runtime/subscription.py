"""The subject of a consumer, as callers name it: a topic, a (topic, partition) pair, or several of these."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeGuard

from pyreplog.config import INT32_MAX, whole
from pyreplog.errors import ConfigError, UnknownTopicError
from pyreplog.log import LogReader
from pyreplog.system import is_interruption
from pyreplog.values import TopicPartition

__all__ = ["Subject", "Topics", "is_pair", "partitions_of", "place_of", "topics_of"]

Subject = str | tuple[str, int] | Collection[str | tuple[str, int]]
"""A topic (all its partitions), a (topic, partition) pair such as a TopicPartition, or several of these."""


class Topics(Protocol):
    """The partitions that a consumer may read."""

    def numbers(self, topic: str) -> list[int]:
        """Return the partition numbers of ``topic``, sorted. Raises :class:`UnknownTopicError`."""
        ...

    def open(self, partitions: Sequence[TopicPartition]) -> list[LogReader]:
        """Return a reader of each of these partitions. Raises :class:`StorageError` if one has no folder."""
        ...


def entries_of(subject: Subject) -> list[str | TopicPartition]:
    """Return the topics and the pairs that ``subject`` names, in its order. Raises :class:`ConfigError` for anything
    else."""
    several: Any = [subject] if isinstance(subject, str) or is_pair(subject) else subject
    try:
        if hasattr(several, "poll"):  # a consumer: iterating over it would wait for more at its end
            raise TypeError
        return [one if isinstance(one, str) else TopicPartition(*one) for one in several]
    except TypeError as error:
        if is_interruption(error):
            raise
        raise ConfigError(f"{subject!r} is none of a topic, a (topic, partition) pair, or several of these") from None


def topics_of(subject: Subject) -> list[str]:
    """Return the topics that ``subject`` names as a whole."""
    return [entry for entry in entries_of(subject) if isinstance(entry, str)]


def partitions_of(subject: Subject, numbers: Callable[[str], Sequence[int]]) -> list[TopicPartition]:
    """Return the partitions that ``subject`` names. ``numbers`` returns a topic's partitions, or raises
    :class:`UnknownTopicError`."""
    entries = entries_of(subject)
    partitions: list[TopicPartition] = []
    for entry in entries:
        if isinstance(entry, str):
            try:
                found = numbers(entry)
            except UnknownTopicError:
                if isinstance(subject, tuple) and len(entries) == 2 and entry is entries[1] and entry.isdecimal():
                    # The caller meant a pair, not a second topic: this raises.
                    whole(f"the partition of {subject[0]!r}", entry, 0, INT32_MAX)
                raise
            partitions += [TopicPartition(entry, number) for number in found]
        else:
            number = whole(f"the partition of {entry.topic!r}", entry.partition, 0, INT32_MAX)
            if number not in (found := numbers(entry.topic)):
                raise UnknownTopicError(f"{entry.topic!r} has partitions {_range_of(found)}, not {number}")
            partitions.append(TopicPartition(entry.topic, number))
    return partitions


def _range_of(numbers: Sequence[int]) -> str:
    """Return the partitions in words. A broker's folder may hold only some of a topic's."""
    if list(numbers) == list(range(len(numbers))):
        return f"0 to {len(numbers) - 1}"
    return ", ".join(map(str, numbers))


def is_pair(subject: object) -> TypeGuard[tuple[str, int]]:
    """Return whether ``subject`` is one (topic, partition) pair, and not two topics."""
    return (
        isinstance(subject, tuple)
        and len(subject) == 2
        and isinstance(subject[0], str)
        and hasattr(subject[1], "__index__")
    )


def place_of(call: str, topic: str | tuple[str, int], partition: int | None) -> tuple[str, int]:
    """Return the (topic, partition) that the arguments of ``call`` name: either a topic and a partition, or one pair
    instead of both."""
    if isinstance(topic, str) and partition is not None:
        return topic, whole("partition", partition, 0, INT32_MAX)
    if partition is None and is_pair(topic):
        return topic[0], whole("partition", topic[1], 0, INT32_MAX)
    raise TypeError(f"{call} takes a topic and a partition, or a TopicPartition in place of both")
