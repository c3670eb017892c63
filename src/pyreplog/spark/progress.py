"""The progress of a streaming query: the offset JSON that Spark keeps in its checkpoint, and the size of the next
micro-batch.

Pure. Spark compares offsets as text, so the same progress is always the same text. Rules: Spark's
``KafkaMicroBatchStream``. Kafka's source keeps the start of the query in a file of its own; here it is in the first
offset, with the start of each partition that appeared later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pyreplog.errors import ConfigError, excerpt
from pyreplog.spark.places import LogPartition, log_of
from pyreplog.values import TopicPartition

__all__ = ["StreamProgress", "limit_bytes", "limit_offsets", "offset_of"]

VERSION: Final = 1
VERSION_OF_SEVERAL: Final = 2
"""The version if the path is a pattern: it has the same fields for each log, by name, and the log's cluster id."""

Offsets = Mapping[TopicPartition, int]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """The end of a micro-batch: for each partition the offset behind the last one read."""

    ends: Offsets
    starts: Offsets = field(default_factory=dict)
    """The start of this micro-batch in partitions that the previous one does not know."""
    topic_ids: Mapping[TopicPartition, str] = field(default_factory=dict)
    """The topic ids of the partitions in ``ends``, if their folders hold them. They tell a topic from a later one of
    the same name."""
    cluster_ids: Mapping[str, str] = field(default_factory=dict)
    """With several logs, their cluster ids by name, if their folders hold them. They tell a log from another log that
    replaced it in its folder."""
    several: bool = False
    """Whether the places are those of several logs."""

    def cluster_id(self, place: TopicPartition) -> str:
        """The cluster id of the log of ``place``; "" if it is not known."""
        return self.cluster_ids.get(log_of(place), "")

    def identity(self, place: TopicPartition) -> tuple[str, str]:
        """The cluster id and the topic id of ``place``, each "" if it is not known."""
        return self.cluster_ids.get(log_of(place), ""), self.topic_ids.get(place, "")

    def topics(self) -> dict[str, set[str]]:
        """The topics that were read, by log."""
        found: dict[str, set[str]] = {}
        for partition in self.ends:
            found.setdefault(log_of(partition), set()).add(partition.topic)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the progress for ``json.dumps``, always in one order: ``{"v": 1, "t": {"topic": {"0": 5}}}``, with
        ``from`` and ``id`` if there are any; with several logs
        ``{"v": 2, "logs": {"worker-0": {"cluster": "...", "t": {...}}}}``."""
        if not self.several:
            return {"v": VERSION, **_entry(self.ends, self.starts, self.topic_ids)}
        logs: dict[str, Any] = {}
        for log in sorted({*map(log_of, self.ends), *map(log_of, self.starts), *self.cluster_ids}):
            entry = _entry(_of_log(log, self.ends), _of_log(log, self.starts), _of_log(log, self.topic_ids))
            logs[log] = ({"cluster": self.cluster_ids[log]} if log in self.cluster_ids else {}) | entry
        return {"v": VERSION_OF_SEVERAL, "logs": logs}

    @classmethod
    def from_json(cls, value: object) -> StreamProgress:
        """Return the progress that :meth:`to_json` wrote. Raise :class:`ConfigError` for anything else, such as a
        checkpoint of another source."""
        several = (
            isinstance(value, dict) and value.get("v") == VERSION_OF_SEVERAL and isinstance(value.get("logs"), dict)
        )
        if not several and (
            not isinstance(value, dict) or value.get("v") != VERSION or not isinstance(value.get("t"), dict)
        ):
            raise ConfigError(
                f"the checkpoint holds the offset {excerpt(str(value))}, which is not one of replog's: give the query a"
                " checkpointLocation of its own (one of Spark's Kafka source does not carry over; startingOffsets says"
                " where to go on)"
            )
        assert isinstance(value, dict), "checked just now"
        try:
            if not several:
                return cls(*_tables_of(value))
            ends: dict[TopicPartition, int] = {}
            starts: dict[TopicPartition, int] = {}
            ids: dict[TopicPartition, str] = {}
            clusters: dict[str, str] = {}
            for log, entry in value["logs"].items():
                if not log:
                    raise TypeError("a log has no name")
                own_ends, own_starts, own_ids = _tables_of(entry)
                ends |= {LogPartition(*partition, log): end for partition, end in own_ends.items()}
                starts |= {LogPartition(*partition, log): start for partition, start in own_starts.items()}
                ids |= {LogPartition(*partition, log): topic_id for partition, topic_id in own_ids.items()}
                if not isinstance(entry.get("cluster", ""), str):
                    raise TypeError("a cluster id is no text")
                if "cluster" in entry:
                    clusters[log] = entry["cluster"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the checkpoint holds the offset {excerpt(str(value))}, which is damaged: {error}"
            ) from None
        return cls(ends, starts, ids, clusters, several=True)


def _entry(ends: Offsets, starts: Offsets, topic_ids: Mapping[TopicPartition, str]) -> dict[str, Any]:
    """Return the JSON of one log."""
    made: dict[str, Any] = {"t": _by_topic(ends)}
    if starts:
        made["from"] = _by_topic(starts)
    if topic_ids:
        # Nearly always all partitions of a topic have its one id.
        ids = _by_topic(topic_ids)
        made["id"] = {
            topic: (
                next(iter(table.values()))
                if table.keys() == made["t"][topic].keys() and len(set(table.values())) == 1
                else table
            )
            for topic, table in ids.items()
        }
    return made


def _of_log(log: str, table: Mapping[TopicPartition, Value]) -> dict[TopicPartition, Value]:
    return {place: value for place, value in table.items() if log_of(place) == log}


def _tables_of(
    value: Mapping[str, Any],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, str]]:
    """Return the ends, starts and topic ids that :func:`_entry` wrote. Raises Python's own errors if ``value`` has
    another shape."""
    ends = _by_partition(value["t"], int)
    starts = _by_partition(value.get("from", {}), int)
    said = value.get("id", {})
    ids = _by_partition({topic: one for topic, one in said.items() if isinstance(one, dict)}, str)
    of_topics = {topic: one for topic, one in said.items() if not isinstance(one, dict)}
    if not all(isinstance(one, str) for one in of_topics.values()):
        raise TypeError("a topic id is no text")
    shared = {partition: of_topics[partition.topic] for partition in ends if partition.topic in of_topics}
    return ends, starts, shared | {partition: one for partition, one in ids.items() if partition in ends}


def _by_topic(table: Mapping[TopicPartition, Value]) -> dict[str, dict[str, Value]]:
    made: dict[str, dict[str, Value]] = {}
    for partition in sorted(table):
        made.setdefault(partition.topic, {})[str(partition.partition)] = table[partition]
    return made


def _by_partition(topics: Mapping[str, Mapping[str, Any]], kind: type[Value]) -> dict[TopicPartition, Value]:
    """Return the values by partition. Raises TypeError for a value that is not of ``kind``, and Python's own errors if
    ``topics`` has another shape."""
    made: dict[TopicPartition, Value] = {}
    for topic, numbers in topics.items():
        for number, value in numbers.items():
            if type(value) is not kind or not (number.isascii() and number.isdigit()):
                raise TypeError(f"{excerpt(str(value))} for partition {excerpt(number)} of {excerpt(topic)}")
            made[TopicPartition(topic, int(number))] = value
    return made


def limit_offsets(
    starts: Offsets, ends: Offsets, limit: int, missing: Callable[[TopicPartition, int, int], int] = lambda *_: 0
) -> dict[TopicPartition, int]:
    """Return ``ends``, lowered so that about ``limit`` offsets lie before them, in proportion to the offsets of
    each partition; no partition is left out.

    ``missing(partition, start, end)`` returns how many offsets of a range do not count, because compaction removed
    them.
    """
    counts = {place: max(0, end - starts[place] - missing(place, starts[place], end)) for place, end in ends.items()}
    total = sum(counts.values())
    if total <= limit:
        return dict(ends)
    limited = {}
    for partition, end in ends.items():
        start = starts[partition]
        share = max(1, limit * counts[partition] // total)

        def present(offset: int, partition: TopicPartition = partition, start: int = start) -> int:
            return offset - start - missing(partition, start, offset)

        limited[partition] = offset_of(range(start, end + 1), share, present) if counts[partition] else end
    return limited


def offset_of(offsets: range, count: int, present: Callable[[int], int]) -> int:
    """Return the first of ``offsets`` before which ``count`` offsets have records, by ``present``, which rises; the
    last one if there are fewer."""
    return offsets[min(bisect_left(offsets, count, key=present), len(offsets) - 1)]


def limit_bytes(
    starts: Offsets,
    ends: Offsets,
    limit: int,
    size_of: Callable[[TopicPartition, int, int], int],
    cut: Callable[[TopicPartition, int, int, int], int],
) -> dict[TopicPartition, int]:
    """Return ``ends``, lowered as by :func:`limit_offsets`, but to about ``limit`` bytes.

    ``size_of(partition, start, end)`` returns the bytes of a range, ``cut(partition, start, end, size)`` the offset
    behind about ``size`` bytes of it, above ``start``.
    """
    sizes = {
        partition: size_of(partition, starts[partition], end)
        for partition, end in ends.items()
        if end > starts[partition]
    }
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    return {
        partition: (
            cut(partition, starts[partition], end, max(1, limit * sizes[partition] // total))
            if partition in sizes
            else end
        )
        for partition, end in ends.items()
    }
