"""From what is asked and what is there to tasks: which offsets of which partitions each task reads.

Pure: what is there comes in as values. Rules: Spark's Kafka source (``KafkaOffsetReader``, ``KafkaOffsetRangeCalculator``), with splits by
bytes in its place, because the index knows them.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyreplog.config import suggestion
from pyreplog.errors import ConfigError, DataLossError, UnknownTopicError
from pyreplog.spark.offsets import EARLIEST_OFFSET, LATEST_OFFSET, Bound
from pyreplog.spark.options import ReadOptions
from pyreplog.values import TopicPartition

__all__ = ["Available", "OffsetRange", "plan", "remaining", "resolve", "select"]

UNITS_PER_TASK: Final = 16
"""A task's share is cut from pieces of a sixteenth of ``maxBytesPerPartition``: how exactly sizes are known."""
SMALL_SHARE: Final = 4
"""Ranges are put together into one task up to a quarter of ``maxBytesPerPartition``: a task costs more than reading that."""

FindTimestamp = Callable[[TopicPartition, int], int | None]
"""Offset of the first record of a partition at or after a time (ms), below its end; None where there is none."""
SplitPoints = Callable[["OffsetRange", int], Sequence[int]]
"""Offsets strictly inside a range at which pieces of about so many bytes begin."""


@dataclass(frozen=True, slots=True)
class Available:
    """What one partition holds for readers: offsets from ``start`` up to (not including) ``end``, its high watermark."""

    start: int
    end: int
    topic_id: str = ""
    """Tells a topic from another one of the same name made later; empty where the folder does not say."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition from ``start`` up to (not including) ``end``. Plain data: it travels to the task that reads it."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    def __str__(self) -> str:
        return f"offsets {self.start} up to {self.end} of {self.topic}-{self.partition}"


class _Piece(NamedTuple):
    start: int
    end: int
    size: int


def select(options: ReadOptions, there: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions to read, in order. :class:`UnknownTopicError` where what is named is not there."""
    known = sorted(there)
    topics = tuple(dict.fromkeys(partition.topic for partition in known))
    public = tuple(topic for topic in topics if not topic.startswith("__"))
    where = f" in {options.path}, which holds {', '.join(public) or 'no topic'}"
    if options.assigned is not None:
        for partition in options.assigned:
            if partition not in known:
                raise UnknownTopicError(f"no partition {partition}{where}")
        return list(options.assigned)
    if options.topics is not None:
        names = options.topics
        for name in names:
            if name not in topics:
                raise UnknownTopicError(f"no topic {name!r}{where}{suggestion(name, public) if public else ''}")
    elif options.pattern is not None:
        names = tuple(topic for topic in topics if re.fullmatch(options.pattern, topic))
        if not names:
            raise UnknownTopicError(f"subscribePattern {options.pattern!r} matches no topic{where}")
    elif len(public) == 1:
        names = public
    else:
        raise ConfigError(f"name the topic by option 'topic'{where}" if public else f"there is no topic{where}")
    chosen = [partition for partition in known if partition.topic in names]
    if options.partitions is not None:
        for number in sorted(options.partitions):
            if not any(partition.partition == number for partition in chosen):
                raise UnknownTopicError(f"option partitions asks for partition {number}, which {' and '.join(names)} does not have")
        chosen = [partition for partition in chosen if partition.partition in options.partitions]
    return chosen


def resolve(
    options: ReadOptions, there: Mapping[TopicPartition, Available], find_timestamp: FindTimestamp, warn: Callable[[str], None]
) -> list[OffsetRange]:
    """The range of each partition of ``there`` (those that are read), empty ones left out; never beyond what is available.

    :class:`DataLossError` where that is less than was asked, or ``warn`` with ``failOnDataLoss=false``.
    """
    for bound in (options.starting, options.ending):
        _check_partitions(bound, there)
    ranges = []
    for partition, available in there.items():
        start = _start(options, partition, available, find_timestamp)
        end = _end(options, partition, available, find_timestamp)
        if start > end:
            asked = f"{options.starting.option or 'start'} {start} lies behind {options.ending.option or 'end'} {end}"
            raise ConfigError(f"{asked} for {partition}: nothing can be read between them")
        kept = OffsetRange(partition.topic, partition.partition, start, end, available.topic_id)
        first, last = min(max(start, available.start), available.end), max(min(end, available.end), available.start)
        if (first, last) != (start, end):
            text = f"{kept} were asked for, but offsets {available.start} up to {available.end} are there"
            if options.fail_on_data_loss:
                raise DataLossError(text)
            warn(text)
            kept = OffsetRange(partition.topic, partition.partition, first, last, available.topic_id)
        if kept.start < kept.end:
            ranges.append(kept)
    return ranges


def remaining(wanted: OffsetRange, found: Available | None) -> tuple[OffsetRange | None, str | None]:
    """What of a planned range is still there (None: nothing), and the words for what is not (None: all of it is)."""
    if found is None:
        return None, f"{wanted} were planned, but the partition is gone"
    if wanted.topic_id != found.topic_id:
        return (
            None,
            f"{wanted} were planned, but the topic was made anew (its id was {wanted.topic_id}, it is {found.topic_id})",
        )
    kept = _part(wanted, max(wanted.start, found.start), min(wanted.end, found.end))
    if kept == wanted:
        return wanted, None
    return kept if kept.start < kept.end else None, f"{wanted} were planned, but now offsets {found.start} up to {found.end} are there"


def _check_partitions(bound: Bound, there: Mapping[TopicPartition, Available]) -> None:
    """Offset JSON names exactly the partitions that are read, as in Kafka's source."""
    if bound.kind not in ("offsets", "timestamps"):
        return
    missing = [str(partition) for partition in there if partition not in bound.offsets]
    extra = [str(partition) for partition in bound.offsets if partition not in there]
    if missing or extra:
        what = f"leaves out {', '.join(missing)}" if missing else f"names {', '.join(extra)}, which this load does not read"
        raise ConfigError(f"{bound.option} {what}; it must name exactly the partitions read: {', '.join(map(str, there))}")


def _start(options: ReadOptions, partition: TopicPartition, available: Available, find_timestamp: FindTimestamp) -> int:
    bound = options.starting
    if bound.kind == "earliest":
        return available.start
    if bound.kind == "offsets":
        offset = bound.offsets[partition]
        return available.start if offset == EARLIEST_OFFSET else offset
    timestamp = bound.timestamp if bound.kind == "timestamp" else bound.offsets[partition]
    found = find_timestamp(partition, timestamp)
    if found is not None:
        return found
    if options.starting_strategy == "latest":
        return available.end
    raise ConfigError(
        f"{bound.option} {timestamp}: {partition} has no record at or after it; "
        "set startingOffsetsByTimestampStrategy to latest to read nothing of such a partition"
    )


def _end(options: ReadOptions, partition: TopicPartition, available: Available, find_timestamp: FindTimestamp) -> int:
    bound = options.ending
    if bound.kind == "latest":
        return available.end
    if bound.kind == "offsets":
        offset = bound.offsets[partition]
        return available.end if offset == LATEST_OFFSET else offset
    found = find_timestamp(partition, bound.timestamp if bound.kind == "timestamp" else bound.offsets[partition])
    return available.end if found is None else found


def plan(options: ReadOptions, ranges: Sequence[OffsetRange], split_points: SplitPoints) -> list[tuple[OffsetRange, ...]]:
    """Tasks that together read ``ranges`` once: each at most about ``maxBytesPerPartition`` bytes and at most ``maxRecordsPerPartition``
    offsets, at least ``minPartitions`` of them where there are so many offsets, small ranges together."""
    unit = max(1, options.max_bytes_per_partition // UNITS_PER_TASK)
    records_max = options.max_records_per_partition
    parts: list[tuple[OffsetRange, int]] = []
    for whole in ranges:
        cuts = [whole.start, *split_points(whole, unit), whole.end]
        pieces = [_Piece(start, end, unit) for start, end in itertools.pairwise(cuts) if start < end]
        for piece in _joined(pieces, options.max_bytes_per_partition):
            parts += [(_part(whole, start, end), piece.size) for start, end in _by_records(piece, records_max)]
    if options.min_partitions is not None:
        return [(part,) for part in _at_least(options.min_partitions, [part for part, _ in parts])]
    return _packed(parts, options.max_bytes_per_partition // SMALL_SHARE, records_max)


def _part(whole: OffsetRange, start: int, end: int) -> OffsetRange:
    return OffsetRange(whole.topic, whole.partition, start, end, whole.topic_id)


def _joined(pieces: Sequence[_Piece], size_max: int) -> list[_Piece]:
    """Neighbouring pieces (of one size) put together as far as ``size_max`` allows, in even shares."""
    count = -(-sum(piece.size for piece in pieces) // size_max)
    shares = [pieces[len(pieces) * index // count : len(pieces) * (index + 1) // count] for index in range(count)]
    return [_Piece(share[0].start, share[-1].end, sum(piece.size for piece in share)) for share in shares if share]


def _by_records(piece: _Piece, records_max: int | None) -> list[tuple[int, int]]:
    """``piece`` in equal parts of at most ``records_max`` offsets."""
    count = 1 if records_max is None else -(-(piece.end - piece.start) // records_max)
    width = piece.end - piece.start
    edges = [piece.start + width * index // count for index in range(count + 1)]
    return list(itertools.pairwise(edges))


def _at_least(count: int, parts: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The largest parts halved until there are ``count``, or all are single offsets."""
    heap = [(part.start - part.end, part.topic, part.partition, part.start, part) for part in parts]
    heapq.heapify(heap)
    while heap and len(heap) < count and heap[0][0] < -1:
        part = heapq.heappop(heap)[-1]
        middle = (part.start + part.end) // 2
        for half in (_part(part, part.start, middle), _part(part, middle, part.end)):
            heapq.heappush(heap, (half.start - half.end, half.topic, half.partition, half.start, half))
    return sorted((entry[-1] for entry in heap), key=lambda part: (part.topic, part.partition, part.start))


def _packed(parts: Sequence[tuple[OffsetRange, int]], size_max: int, records_max: int | None) -> list[tuple[OffsetRange, ...]]:
    """Parts in tasks: what is smaller than ``size_max`` shares one with its neighbours."""
    tasks: list[list[OffsetRange]] = []
    size = size_max
    records = 0
    for part, part_size in parts:
        count = part.end - part.start
        if tasks and size + part_size <= size_max and (records_max is None or records + count <= records_max):
            tasks[-1].append(part)
            size += part_size
            records += count
        else:
            tasks.append([part])
            size, records = part_size, count
    return [tuple(task) for task in tasks]
