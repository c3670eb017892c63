"""The streaming read, as Spark drives it: one long-lived process beside the driver asks for the ends of the logs,
and tasks in the workers read the records.

The process keeps no state that a restart would need: the checkpoint has the end of each micro-batch, and the first
end also has the start of the query.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyreplog.errors import ConfigError, DataLossError, LogTruncatedError, RecordsDeletedError, TopicRecreatedError
from pyreplog.log import READ_COMMITTED
from pyreplog.spark.access import Access
from pyreplog.spark.logger import LOGGER
from pyreplog.spark.options import ReadOptions
from pyreplog.spark.places import log_of
from pyreplog.spark.planner import (
    REACH_UNKNOWN,
    Available,
    OffsetRange,
    check_partitions,
    no_log,
    plan,
    remaining,
    select,
    start_of,
)
from pyreplog.spark.progress import StreamProgress, limit_bytes, limit_offsets
from pyreplog.spark.schema import Field
from pyreplog.spark.several import access_of
from pyreplog.spark.tasks import Task, read_task
from pyreplog.values import TopicPartition

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow

    LIMITS = True
except ImportError:  # Spark before 4.2 asks for everything there is, and has no name for anything else

    class AvailableNow:  # type: ignore[no-redef]
        """What Spark before 4.2 does not have."""

    LIMITS = False

__all__ = ["LIMITS", "ReplogStreamReader"]


TASK_SIZE_MIN: Final = 16 << 20
"""A micro-batch of fewer bytes is one task: a second task costs more than reading them."""
SETTLE_S: Final = 30.0
"""How long a high watermark may lie below the offsets that were read, while a new leader is elected."""
PAUSE_S: Final = 0.1
"""The interval between checks of it, if Spark does not ask."""
TOLD_MAX: Final = 1000
"""So many losses are known to have been told. A query that is slower than its topic's retention loses something new
for ever."""

There = Mapping[TopicPartition, Available]


class _New(NamedTuple):
    """The offsets of each partition that may be read next."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    added: dict[TopicPartition, int]
    """The starts of those that the micro-batch before does not know, or where reading does not go on at its end."""


class ReplogStreamReader(DataSourceStreamReader, AvailableNow):
    """One streaming read. It is plain data when it is created; its later state belongs to the one process that
    plans the query."""

    def __init__(
        self,
        options: ReadOptions,
        fields: Sequence[Field],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if options.limited and not LIMITS:
            raise ConfigError(
                "limits per trigger need PySpark 4.2 or newer: before, Spark asks a source for all there is"
            )
        self._options = options
        self._fields = list(fields)
        self._monotonic = monotonic
        self._sleep = sleep
        self._access: Access | None = None
        #: The start of a new query, after the first request for it.
        self._initial: StreamProgress | None = None
        #: End of the micro-batch planned last.
        self._planned: StreamProgress | None = None
        #: Whether the query reads only the records that exist when it begins, and the ends of these
        #: records, once they are known.
        self._freezes = False
        self._frozen: There | None = None
        self._seen: There | None = None
        self._last_batch_s: float | None = None
        #: Since when a partition ends before the offsets that were read.
        self._short_since: dict[TopicPartition, float] = {}
        #: The last losses that were reported: every trigger finds the same losses again.
        self._told: deque[str] = deque(maxlen=TOLD_MAX)

    # -- where the query begins --

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query; the same at every call."""
        if self._initial is None:
            there = self._there(None)
            options = self._options
            check_partitions(options.starting, there)
            starts = {}
            for partition, available in there.items():
                start = start_of(options, partition, available, self._files().find_timestamp)
                _, lost = remaining(_range(partition, start, start), available, "were asked for as the start, but")
                if lost is not None:
                    self._tell(lost)
                starts[partition] = min(max(start, available.start), available.end)
            self._initial = self._progress(starts, {}, there)
        # No end of a micro-batch is equal to this. So Spark stores the first end even if the log is
        # empty, and later records count as new.
        return self._initial.to_json() | {"initial": True}

    # -- how far the next micro-batch goes --

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit by the options; those that Spark cannot say are added in :meth:`latestOffset`."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the end of the next micro-batch; ``start`` itself if there are no new records."""
        before = self._before(start)
        there = self._there(before)
        if before is None:
            return self._progress({partition: found.end for partition, found in there.items()}, {}, there).to_json()
        first = self._initial is not None and before == self._initial
        starts, ends, added = self._new(before, there)
        if LIMITS and not isinstance(limit, ReadAllAvailable):
            begun = {
                place: min(self._files().first_at(place, start), ends[place]) if place in there else start
                for place, start in _behind_deleted(starts, ends, there).items()
            }
            if not first and self._too_few(begun, ends):
                return before.to_json()
            ends = self._limited(begun, ends)
        if not first and not added and ends == before.ends:
            return before.to_json()
        self._last_batch_s = self._monotonic()
        return self._progress(ends, starts if first else added, there, before).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the records that exist now."""
        # The ends are read at the first request, because it has the offsets that were read before,
        # and these say which partitions are read.
        self._freezes = True

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where the partitions ended when last looked at: what ``lag`` compares with."""
        if self._seen is None:
            return None
        return StreamProgress(
            {partition: found.end for partition, found in self._seen.items()}, several=self._options.several
        ).to_json()

    # -- a micro-batch --

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one micro-batch, the same records at every call with the same offsets."""
        before, until = self._read_back(start), self._read_back(end)
        self._planned = until
        if before == until:
            return []  # where this one began may stand in it, but that was the micro-batch before
        access = self._files()
        ranges = []
        # The first micro-batch has the start of each partition. If Spark runs it again, there may
        # be new partitions by that time, which the next micro-batch reads.
        if not until.ends or until.starts.keys() != until.ends.keys():
            for partition, reached in before.ends.items():
                if partition not in until.ends:
                    self._tell(self._left_out(partition, reached))
        for partition, last in until.ends.items():
            first = self._first(partition, before, until)
            if first < last:
                reach = self._reach(partition, last)
                topic_id = until.topic_ids.get(partition, "")
                ranges.append(
                    replace(
                        _range(partition, first, last),
                        topic_id=topic_id,
                        reach=reach,
                        cluster_id=until.cluster_id(partition),
                    )
                )
        total = sum(map(access.size_of, ranges))
        # Every core gets two tasks, but no task less than is worth it.
        size = min(self._options.max_bytes_per_partition, max(total // (2 * (os.cpu_count() or 1)), TASK_SIZE_MIN))
        options = replace(self._options, max_bytes_per_partition=size)
        tasks = plan(options, ranges, access.split_points, access.size_of, share=1, missing=access.missing)
        return [Task(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task as Arrow batches, in exactly the types Spark expects."""
        return read_task(self._options, self._fields, partition)

    def stop(self) -> None:
        """Release the files."""
        if self._access is not None:
            self._access.close()
            self._access = None

    # -- inside --

    def _files(self) -> Access:
        if self._access is None:
            self._access = access_of(self._options, self._options.isolation)
        return self._access

    def _progress(
        self,
        ends: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int],
        there: There,
        before: StreamProgress | None = None,
    ) -> StreamProgress:
        """The end of a micro-batch, with the ids of its topics and logs: those of ``before`` if nothing is there
        any more."""
        ids, clusters = ({}, {}) if before is None else (dict(before.topic_ids), dict(before.cluster_ids))
        ids |= {place: found.topic_id for place, found in there.items() if found.topic_id}
        clusters |= {log_of(place): found.cluster_id for place, found in there.items() if found.cluster_id}
        logs = set(map(log_of, ends))
        ids = {place: one for place, one in ids.items() if log_of(place) in logs}
        clusters = {log: one for log, one in clusters.items() if log in logs}
        return StreamProgress(ends, starts, ids, clusters, several=self._options.several)

    def _read_back(self, offset: dict[str, Any]) -> StreamProgress:
        """The progress that Spark gives back, from this start of the query or an earlier one."""
        progress = StreamProgress.from_json(offset)
        if progress.several != self._options.several:
            was, now = (
                ("a pattern of several logs", "one folder")
                if progress.several
                else ("one folder", "a pattern of several logs")
            )
            raise ConfigError(
                f"the checkpoint is of a query whose path was {was}, and path {self._options.path} is {now}: "
                "give the query a checkpointLocation of its own, and set its start by startingOffsets"
            )
        return progress

    def _there(self, before: StreamProgress | None) -> There:
        """What :meth:`_look` finds, now or when the query began."""
        there = self._look(before) if self._frozen is None else self._frozen
        if self._freezes:
            # Such a query is not asked again: to it, what ends too early would be nothing new.
            while before is not None and self._short(before, there):
                self._sleep(PAUSE_S)
                there = self._look(before)
            self._frozen = there
        return there

    def _look(self, before: StreamProgress | None) -> There:
        """Return the available offsets of the partitions to read, new ones among them. The partitions in ``before``
        are always included."""
        access = self._files()
        found = access.partitions()
        access.refresh()
        options = self._options
        known = None if before is None else before.topics()
        if before is None and options.several and not found:
            raise no_log(options)
        # Partitions that match a pattern may appear, and partitions that were read may be gone:
        # each of the latter is reported.
        chosen = select(options, found, partly=before is not None or options.pattern is not None, known_topics=known)
        seen = {partition: available for partition in chosen if (available := access.available(partition)) is not None}
        self._seen = seen
        return seen

    def _before(self, start: dict[str, Any] | None) -> StreamProgress | None:
        """The end of the micro-batch before. Spark before 4.2 does not say it, so after a restart it may not be
        known (None)."""
        if start is not None:
            return self._read_back(start)
        return self._planned or self._initial

    def _new(self, before: StreamProgress, there: There) -> _New:
        """Return the offsets that may be read next."""
        starts: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        added: dict[TopicPartition, int] = {}
        left = set() if there.keys() >= before.ends.keys() else self._logs()
        for partition, end in before.ends.items():
            if partition not in there:
                self._tell(self._left_out(partition, end))
                # failOnDataLoss is false. The next offset no longer names a log that is gone, so
                # the option can be set back.
                if not left or log_of(partition) in left:
                    starts[partition] = ends[partition] = end
        for partition, found in there.items():
            end = before.ends.get(partition, -1)
            if end >= 0 and _is_another(before, partition, found):
                self._tell(_made_anew(partition, end, before.identity(partition), (found.cluster_id, found.topic_id)))
                added[partition] = found.start
            elif end < 0:
                # Kafka's rule: what appears while the query runs is read from its first record on.
                if found.start > 0 and (self._initial is None or self._planned is not None):
                    lost = f"{partition} is new and begins at offset {found.start}"
                    self._tell(RecordsDeletedError(f"{lost}: the records before it were deleted unread"))
                added[partition] = found.start
            elif found.end < end:
                if not self._settled(partition):
                    starts[partition] = ends[partition] = end
                    continue
                self._tell(_ends_before(partition, end, found.end))
                added[partition] = found.end
            else:
                self._short_since.pop(partition, None)
            starts[partition] = added.get(partition, end)
            ends[partition] = found.end
        return _New(starts, ends, added)

    def _logs(self) -> set[str]:
        """The logs of a pattern that are there; empty if none is, and if the path is one folder, whose topics may
        come back."""
        return {log_of(partition) for partition in self._files().partitions()} if self._options.several else set()

    def _left_out(self, partition: TopicPartition, end: int) -> DataLossError:
        why = "it is gone" if self._files().available(partition) is None else "the options leave it out now"
        return RecordsDeletedError(f"{partition} was read up to offset {end}, but {why}")

    def _first(self, partition: TopicPartition, before: StreamProgress, until: StreamProgress) -> int:
        """Return the start of a micro-batch in ``partition``. If the micro-batch was planned without the offsets
        that were read before, as after a restart before Spark 4.2, this checks that it goes on there."""
        end, last = before.ends.get(partition), until.ends[partition]
        if partition in until.starts:
            return until.starts[partition]
        was, now = before.identity(partition), until.identity(partition)
        if end is not None and _differ(was, now):
            self._tell(_made_anew(partition, end, was, now))
        elif end is not None and last < end:
            there = self._files().available(partition)
            self._tell(
                _ends_before(partition, end, last)
                if there is None or there.end < end
                else _planned_short(partition, end, last)
            )
            return last
        elif end is not None:
            return end
        found = self._files().available(partition)
        return last if found is None else found.start

    def _short(self, before: StreamProgress, there: There) -> bool:
        """Return whether a partition ends before the offsets that were read, and not for too long yet."""
        known = [
            partition
            for partition in before.ends
            if partition in there and not _is_another(before, partition, there[partition])
        ]
        settled = [self._settled(partition) for partition in known if there[partition].end < before.ends[partition]]
        return not all(settled)

    def _settled(self, partition: TopicPartition) -> bool:
        """Whether ``partition``, which ends too early, has done so for too long."""
        if partition not in self._short_since:
            self._short_since[partition] = self._monotonic()
            LOGGER.warning("%s ends before the offsets that were read; waiting for its new leader", partition)
        return self._monotonic() - self._short_since[partition] >= SETTLE_S

    def _too_few(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
        """Whether to wait for ``minOffsetsPerTrigger``: not for longer than ``maxTriggerDelay``, nor for what will
        not come."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._frozen is not None or self._last_batch_s is None:
            return False
        if (self._monotonic() - self._last_batch_s) * 1000 >= self._options.max_trigger_delay_ms:
            return False
        return (
            sum(end - starts[place] - self._missing(place, starts[place], end) for place, end in ends.items()) < least
        )

    def _limited(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return ``ends``, limited by ``maxOffsetsPerTrigger`` and ``maxBytesPerTrigger``."""
        options = self._options
        limited = dict(ends)
        if options.max_offsets_per_trigger is not None:
            limited = limit_offsets(starts, limited, options.max_offsets_per_trigger, self._missing)
        if options.max_bytes_per_trigger is not None:
            limited = limit_bytes(starts, limited, options.max_bytes_per_trigger, self._size, self._cut)
        return limited

    def _reach(self, partition: TopicPartition, end: int) -> int:
        """How far a copy has to reach that is read up to ``end``: this view knows it where all is decided below
        ``end`` for it."""
        if self._options.isolation != READ_COMMITTED:
            return 0
        found = self._files().available(partition)
        return found.reach if found is not None and found.end >= end else REACH_UNKNOWN

    def _size(self, partition: TopicPartition, start: int, end: int) -> int:
        return self._files().size_of(_range(partition, start, end))

    def _missing(self, partition: TopicPartition, start: int, end: int) -> int:
        return self._files().missing(_range(partition, start, end)) if start < end else 0

    def _cut(self, partition: TopicPartition, start: int, end: int, size: int) -> int:
        points = self._files().split_points(_range(partition, start, end), size)
        return points[0] if points else end

    def _tell(self, lost: DataLossError) -> None:
        if self._options.fail_on_data_loss:
            raise lost
        if lost.what not in self._told:
            self._told.append(lost.what)
            LOGGER.warning(lost.what)


def _behind_deleted(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], there: There
) -> dict[TopicPartition, int]:
    """``starts`` without the offsets that are known to be deleted. A limit counts from here, so a micro-batch
    passes the whole gap."""
    found = {}
    for partition, start in starts.items():
        available = there.get(partition)
        found[partition] = start if available is None else min(max(start, available.start), ends[partition])
    return found


def _is_another(before: StreamProgress, partition: TopicPartition, found: Available) -> bool:
    """Return whether the topic of ``partition`` was deleted and created again since it was read."""
    return _differ(before.identity(partition), (found.cluster_id, found.topic_id))


def _differ(was: tuple[str, str], now: tuple[str, str]) -> bool:
    """Whether two pairs of a cluster id and a topic id name different topics. An id that is missing says
    nothing."""
    return any(one and other and one != other for one, other in zip(was, now, strict=True))


def _made_anew(partition: TopicPartition, end: int, was: tuple[str, str], now: tuple[str, str]) -> DataLossError:
    if was[0] and now[0] and was[0] != now[0]:
        anew = f"but the folder {log_of(partition)} holds another log (its cluster id was {was[0]}, it is {now[0]})"
    else:
        anew = f"but topic {partition.topic} was created again (its id was {was[1]}, it is {now[1]})"
    return TopicRecreatedError(f"{partition} was read up to offset {end}, {anew}")


def _ends_before(partition: TopicPartition, end: int, now: int) -> DataLossError:
    return LogTruncatedError(f"{partition} was read up to offset {end}, but now ends at {now}")


def _planned_short(partition: TopicPartition, end: int, planned: int) -> DataLossError:
    short = (
        f"but only up to {planned} was seen when the query was started again, as while a leader is elected, and so"
        " Spark noted it down"
    )
    return LogTruncatedError(
        f"{partition} was read up to offset {end}, {short}: failOnDataLoss=false reads the records between again"
    )


def _range(partition: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(partition.topic, partition.partition, start, end, log=log_of(partition))
