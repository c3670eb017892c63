"""Plans the tasks of a read: the offsets and partitions of each task, from the request and the logs' content.

Pure: the content of the logs comes in as values. Rules: Spark's Kafka source (``KafkaOffsetReader``,
``KafkaOffsetRangeCalculator``), with splits by bytes in its place, because the index knows them.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pyreplog.config import INT64_MAX, meant
from pyreplog.errors import (
    ConfigError,
    DataLossError,
    LogTruncatedError,
    RecordsDeletedError,
    TopicRecreatedError,
    UnknownTopicError,
)
from pyreplog.log import is_internal
from pyreplog.spark.offsets import EARLIEST_OFFSET, LATEST_OFFSET, Bound
from pyreplog.spark.options import ReadOptions
from pyreplog.spark.places import log_of, partition_of
from pyreplog.spark.progress import offset_of
from pyreplog.values import TopicPartition

__all__ = [
    "REACH_UNKNOWN",
    "Available",
    "FindTimestamp",
    "Missing",
    "OffsetRange",
    "SizeOf",
    "SplitPoints",
    "Warn",
    "check_partitions",
    "no_log",
    "plan",
    "remaining",
    "resolve",
    "select",
    "start_of",
]

UNITS_PER_TASK: Final = 16
"""A task's share is cut from pieces of a sixteenth of ``maxBytesPerPartition``: how exactly sizes are known."""
SMALL_SHARE: Final = 4
"""Ranges are put together into one task up to a quarter of ``maxBytesPerPartition``: a task costs more than reading
that."""
OPENING_SIZE: Final = 256 << 10
"""Opening a partition takes as long as reading about so many bytes. A smaller range counts as this size."""

REACH_UNKNOWN: Final = INT64_MAX

FindTimestamp = Callable[[TopicPartition, int], int | None]
"""Returns the offset of a partition's first record at or after a time (ms), below its end; None if there is
none."""
SplitPoints = Callable[["OffsetRange", int], Sequence[int]]
"""Offsets strictly inside a range at which pieces of about so many bytes begin."""
SizeOf = Callable[["OffsetRange"], int]
"""About how many bytes a range has on disk."""
Missing = Callable[["OffsetRange"], int]
"""How many offsets of a range have no batch because compaction removed it."""
Warn = Callable[[str], None]
"""Takes a loss that does not fail the query."""


@dataclass(frozen=True, slots=True)
class Available:
    """What one partition holds for readers: offsets from ``start`` up to (not including) ``end``, its high
    watermark."""

    start: int
    end: int
    topic_id: str = ""
    """Tells a topic from another one of the same name made later; empty where the folder does not say."""
    reach: int = 0
    """See :class:`OffsetRange`."""
    cluster_id: str = ""
    """With several logs: distinguishes a log from another one that replaced it in its folder; empty if unknown."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition from ``start`` up to (not including) ``end``. Plain data: it travels to the task
    that reads it."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""
    reach: int = 0
    """For committed reads: a copy that reaches so far has all markers of the range's transactions, which may stand
    behind its end. :data:`REACH_UNKNOWN`: each copy has to be asked."""
    log: str = ""
    """The log's name, if several are read."""
    cluster_id: str = ""
    """See :class:`Available`."""

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return partition_of(self.log, self.topic, self.partition)

    def __str__(self) -> str:
        return f"offsets {self.start} up to {self.end} of {self.place}"


class _Piece(NamedTuple):
    start: int
    end: int
    size: int


def select(
    options: ReadOptions,
    there: Iterable[TopicPartition],
    *,
    partly: bool = False,
    known_topics: Mapping[str, Iterable[str]] | None = None,
) -> list[TopicPartition]:
    """Return the partitions to read, in order. If a named one is missing, raise :class:`UnknownTopicError`, or with
    ``partly`` return the others.

    With several logs, each log contributes the named topics that it has, and at least one log must have each of
    them. If no topic is named, each log contributes its only topic. ``known_topics``: the topics that an earlier
    micro-batch read, by log; a log's only topic at that time stays its topic.
    """
    named = options.topics or options.pattern or options.assigned
    before = {} if known_topics is None or named else known_topics
    by_log: dict[str, dict[TopicPartition, TopicPartition]] = {}
    for place in there:
        by_log.setdefault(log_of(place), {})[TopicPartition(place.topic, place.partition)] = place
    if not options.several:
        if known_topics is not None and not named:
            options = replace(options, topics=tuple(sorted(before.get("", ()))))
        return [by_log[""][partition] for partition in _select(options, by_log.get("", {}), partly=partly)]
    chosen: list[TopicPartition] = []
    for log, places in sorted(by_log.items()):
        own = replace(options, path=f"{options.logs_in}/{log}")
        if log in before:
            own = replace(own, topics=tuple(sorted(before[log])))
        elif not named and all(is_internal(partition.topic) for partition in places):
            continue  # a log that has no topic yet
        chosen += [places[partition] for partition in _select(own, places, partly=True)]
    if not partly:
        _check_named(options, by_log, chosen)
    return chosen


def _check_named(
    options: ReadOptions, by_log: Mapping[str, Iterable[TopicPartition]], chosen: Sequence[TopicPartition]
) -> None:
    """Refuse what no log has of several. One of many may not have it."""
    topics = {place.topic for place in chosen}
    numbers = {place.partition for place in chosen}
    public = sorted(
        {partition.topic for places in by_log.values() for partition in places if not is_internal(partition.topic)}
    )
    where = f" in any log that matches {options.path}; they hold {', '.join(public) or 'no topic'}"
    for name in options.topics or ():
        if name not in topics:
            raise UnknownTopicError(f"no topic {name!r}{where}{meant(name, public)}")
    for partition in options.assigned or ():
        if all((place.topic, place.partition) != partition for place in chosen):
            raise UnknownTopicError(f"no partition {partition}{where}")
    if options.pattern is not None and not topics:
        raise UnknownTopicError(f"subscribePattern {options.pattern!r} matches no topic{where}")
    for number in sorted(options.partitions or ()):
        if number not in numbers:
            raise UnknownTopicError(
                f"option partitions asks for partition {number}, which no log that matches {options.path} has"
            )
    if not chosen:
        raise no_log(options)


def no_log(options: ReadOptions) -> ConfigError:
    """The error for a pattern that matches no log with a topic."""
    return ConfigError(
        f"no folder that matches path {options.path} holds a log with a topic; [[] stands for a [ that is part of a"
        " folder's name"
    )


def _select(options: ReadOptions, there: Iterable[TopicPartition], *, partly: bool) -> list[TopicPartition]:
    """As :func:`select`, of one log."""
    known = sorted(there)
    topics = tuple(dict.fromkeys(partition.topic for partition in known))
    public = tuple(topic for topic in topics if not is_internal(topic))
    where = f" in {options.path}, which holds {', '.join(public) or 'no topic'}"
    if options.assigned is not None:
        present = frozenset(known)
        for partition in options.assigned:
            if partition not in present and not partly:
                raise UnknownTopicError(f"no partition {partition}{where}")
        return [partition for partition in options.assigned if partition in present]
    if options.topics is not None:
        names = options.topics
        for name in names:
            if name not in topics and not partly:
                raise UnknownTopicError(f"no topic {name!r}{where}{meant(name, public)}")
    elif options.pattern is not None:
        names = tuple(topic for topic in public if re.search(options.pattern, topic))
        if not names and not partly:
            raise UnknownTopicError(f"subscribePattern {options.pattern!r} matches no topic{where}")
    elif len(public) == 1:
        names = public
    else:
        what = "it must be the folder of a log, of a cluster, or a broker's log.dirs"
        raise ConfigError(
            f"name the topic by option 'topic'{where}" if public else f"there is no topic in {options.path}; {what}"
        )
    chosen = [partition for partition in known if partition.topic in names]
    if options.partitions is not None:
        for number in sorted(options.partitions):
            if not any(partition.partition == number for partition in chosen) and not partly:
                raise UnknownTopicError(
                    f"option partitions asks for partition {number}, which {' and '.join(names)} does not have"
                )
        chosen = [partition for partition in chosen if partition.partition in options.partitions]
    return chosen


def resolve(
    options: ReadOptions, there: Mapping[TopicPartition, Available], find_timestamp: FindTimestamp, warn: Warn
) -> list[OffsetRange]:
    """Return the range of each partition of ``there`` (the partitions to read) without empty ones, limited to the
    available offsets.

    If that is less than requested, raise :class:`DataLossError`, or call ``warn`` with ``failOnDataLoss=false``.
    """
    for bound in (options.starting, options.ending):
        check_partitions(bound, there)
    ranges = []
    for partition, available in there.items():
        _check_order(options.starting, options.ending, partition)
        start = start_of(options, partition, available, find_timestamp)
        end = max(start, _end(options, partition, available, find_timestamp))
        names = partition.topic, partition.partition
        wanted = OffsetRange(
            *names,
            start,
            end,
            available.topic_id,
            available.reach,
            log=log_of(partition),
            cluster_id=available.cluster_id,
        )
        kept, lost = remaining(wanted, available, "were asked for, but")
        if lost is not None:
            if options.fail_on_data_loss:
                raise lost
            warn(lost.what)
        if kept is not None and kept.start < kept.end:
            ranges.append(kept)
    return ranges


def remaining(
    wanted: OffsetRange, found: Available | None, but: str = "were planned, but now"
) -> tuple[OffsetRange | None, DataLossError | None]:
    """Return the available part of ``wanted`` (None: no part), and the error for the missing part (None: no
    part)."""
    if found is None:
        return None, RecordsDeletedError(f"{wanted} {but} the partition is gone")
    if wanted.cluster_id and found.cluster_id and wanted.cluster_id != found.cluster_id:
        other = f"the folder holds another log (its cluster id was {wanted.cluster_id}, it is {found.cluster_id})"
        return None, TopicRecreatedError(f"{wanted} {but} {other}")
    if wanted.topic_id and found.topic_id and wanted.topic_id != found.topic_id:
        anew = f"the topic was deleted and created again (its id was {wanted.topic_id}, it is {found.topic_id})"
        return None, TopicRecreatedError(f"{wanted} {but} {anew}")
    kept = _part(wanted, max(wanted.start, found.start), min(wanted.end, found.end))
    if kept == wanted:
        return wanted, None
    there = f"offsets {found.start} up to {found.end} are there"
    lost = (
        RecordsDeletedError(f"{wanted} {but} {there}: the older ones were deleted")
        if wanted.start < found.start
        else LogTruncatedError(f"{wanted} {but} {there}: the log ends before")
    )
    return (kept if kept.start < kept.end else None), lost


def check_partitions(bound: Bound, there: Mapping[TopicPartition, Available]) -> None:
    """Offset JSON names exactly the partitions that are read, as in Kafka's source."""
    if bound.kind not in ("offsets", "timestamps"):
        return
    missing = [str(partition) for partition in there if partition not in bound.offsets]
    extra = [str(partition) for partition in bound.offsets if partition not in there]
    if missing or extra:
        what = (
            f"leaves out {', '.join(missing)}"
            if missing
            else f"names {', '.join(extra)}, which this load does not read"
        )
        raise ConfigError(
            f"{bound.option} {what}; it must name exactly the partitions read: {', '.join(map(str, there))}"
        )


def _check_order(starting: Bound, ending: Bound, partition: TopicPartition) -> None:
    """Check that the start is not above the end, if both are offsets or both are times. An offset and a time cannot
    be compared here, as in Kafka's source."""
    first, last = _said(starting, partition), _said(ending, partition)
    if (
        first is not None
        and last is not None
        and (starting.kind == "offsets") == (ending.kind == "offsets")
        and first > last
    ):
        asked = f"{starting.option} {first} lies behind {ending.option} {last}"
        raise ConfigError(f"{asked} for {partition}: nothing can be read between them")


def _said(bound: Bound, partition: TopicPartition) -> int | None:
    """The offset or the time that ``bound`` gives for ``partition``; None for the earliest and the latest."""
    number = bound.timestamp if bound.kind == "timestamp" else bound.offsets.get(partition)
    return None if bound.kind == "offsets" and number in (EARLIEST_OFFSET, LATEST_OFFSET) else number


def start_of(
    options: ReadOptions, partition: TopicPartition, available: Available, find_timestamp: FindTimestamp
) -> int:
    """Where reading ``partition`` begins, by the options."""
    bound = options.starting
    if bound.kind == "earliest":
        return available.start
    if bound.kind == "latest":
        return available.end
    if bound.kind == "offsets":
        offset = bound.offsets[partition]
        return {EARLIEST_OFFSET: available.start, LATEST_OFFSET: available.end}.get(offset, offset)
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


def plan(
    options: ReadOptions,
    ranges: Sequence[OffsetRange],
    split_points: SplitPoints,
    size_of: SizeOf,
    share: int = SMALL_SHARE,
    missing: Missing = lambda _: 0,
) -> list[tuple[OffsetRange, ...]]:
    """Return tasks that together read ``ranges`` once: each at most about ``maxBytesPerPartition`` bytes and at
    most ``maxRecordsPerPartition`` offsets; at least ``minPartitions`` tasks, if there are so many offsets. Small
    ranges share a task of up to 1 / ``share`` of those bytes. Offsets that are ``missing`` do not count."""
    size_max = options.max_bytes_per_partition
    unit = max(1, size_max // UNITS_PER_TASK)
    records_max = options.max_records_per_partition
    parts: list[tuple[OffsetRange, int]] = []
    for whole in ranges:
        size = size_of(whole)
        if size <= unit:
            pieces = [_Piece(whole.start, whole.end, size)]
        else:
            cuts = [whole.start, *split_points(whole, unit), whole.end]
            edges = [(start, end) for start, end in itertools.pairwise(cuts) if start < end]
            pieces = [_Piece(start, end, size // len(edges)) for start, end in edges]
        for piece in _joined(pieces, size_max):
            shares = _by_records(_part(whole, piece.start, piece.end), records_max, missing)
            parts += [(one, piece.size // len(shares)) for one in shares]
    if options.min_partitions is not None and len(parts) <= options.min_partitions:
        return [(part,) for part in _at_least(options.min_partitions, [part for part, _ in parts], missing)]
    tasks = _packed(parts, size_max // share, records_max, missing)
    if options.min_partitions is not None and len(tasks) < options.min_partitions:
        count = options.min_partitions if records_max is None else len(parts)
        return _dealt([part for part, _ in parts], count)
    return tasks


def _part(whole: OffsetRange, start: int, end: int) -> OffsetRange:
    return replace(whole, start=start, end=end)


def _joined(pieces: Sequence[_Piece], size_max: int) -> list[_Piece]:
    """Neighbouring pieces (of one size) put together as far as ``size_max`` allows, in even shares."""
    count = max(1, -(-sum(piece.size for piece in pieces) // size_max))
    shares = [pieces[len(pieces) * index // count : len(pieces) * (index + 1) // count] for index in range(count)]
    return [_Piece(share[0].start, share[-1].end, sum(piece.size for piece in share)) for share in shares if share]


def _by_records(piece: OffsetRange, records_max: int | None, missing: Missing) -> list[OffsetRange]:
    """``piece`` in equal parts of at most ``records_max`` offsets."""
    width = piece.end - piece.start - missing(piece)
    count = 1 if records_max is None else max(-(-width // records_max), 1)
    inner = [_behind(piece, width * index // count, missing) for index in range(1, count)]
    return [_part(piece, start, end) for start, end in itertools.pairwise([piece.start, *inner, piece.end])]


def _behind(piece: OffsetRange, count: int, missing: Missing) -> int:
    """Return the offset behind the first ``count`` offsets of ``piece`` that are not missing."""

    def present(offset: int) -> int:
        return offset - piece.start - missing(_part(piece, piece.start, offset))

    return offset_of(range(piece.start, piece.end + 1), count, present)


def _at_least(count: int, parts: Sequence[OffsetRange], missing: Missing) -> list[OffsetRange]:
    """The largest parts halved until there are ``count``, or all are single offsets."""

    def entry(part: OffsetRange) -> tuple[int, str, str, int, int, OffsetRange]:
        return missing(part) + part.start - part.end, part.log, part.topic, part.partition, part.start, part

    heap = [entry(part) for part in parts]
    heapq.heapify(heap)
    while heap and len(heap) < count and heap[0][0] < -1:
        width, *_, part = heapq.heappop(heap)
        middle = _behind(part, -width // 2, missing)
        for half in (_part(part, part.start, middle), _part(part, middle, part.end)):
            heapq.heappush(heap, entry(half))
    return sorted((entry[-1] for entry in heap), key=lambda part: (part.log, part.topic, part.partition, part.start))


def _dealt(parts: Sequence[OffsetRange], count: int) -> list[tuple[OffsetRange, ...]]:
    """Neighbouring parts in ``count`` tasks of about as many each. REQUIRES at least ``count`` parts."""
    return [tuple(parts[len(parts) * index // count : len(parts) * (index + 1) // count]) for index in range(count)]


def _packed(
    parts: Sequence[tuple[OffsetRange, int]], size_max: int, records_max: int | None, missing: Missing
) -> list[tuple[OffsetRange, ...]]:
    """Return the parts in tasks: parts smaller than ``size_max`` share a task with their neighbours."""
    tasks: list[list[OffsetRange]] = []
    size = size_max
    records = 0
    for part, bytes_of_part in parts:
        part_size = max(bytes_of_part, OPENING_SIZE)
        count = part.end - part.start - (0 if records_max is None else missing(part))
        if tasks and size + part_size <= size_max and (records_max is None or records + count <= records_max):
            tasks[-1].append(part)
            size += part_size
            records += count
        else:
            tasks.append([part])
            size, records = part_size, count
    return [tuple(task) for task in tasks]
