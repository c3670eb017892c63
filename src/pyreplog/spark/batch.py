"""The batch read, as Spark drives it: planned in a process beside the driver, carried out by tasks in the workers.

Planning fixes the offsets: a loaded DataFrame keeps the offsets that its first action found; load again for newer
ones. Tasks open the files themselves. Everything that travels between processes is plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyreplog.spark.logger import LOGGER
from pyreplog.spark.options import ReadOptions
from pyreplog.spark.planner import OffsetRange, plan, resolve, select
from pyreplog.spark.pushdown import narrowed
from pyreplog.spark.schema import Field
from pyreplog.spark.several import access_of
from pyreplog.spark.tasks import Task, read_task

__all__ = ["ReplogReader", "plan_tasks"]


ARROW_TASKS_PER_CORE: Final = 4
ARROW_TASK_SIZE_MAX: Final = 1 << 30


def plan_tasks(
    options: ReadOptions, filters: Sequence[Any] = (), *, arrow_cores: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task, from the present content of the folder. Records that cannot pass ``filters``
    (PySpark's) are left out.

    ``arrow_cores``: the rows do not pass through the JVM, and the tasks run on so many cores. A task then costs as
    much as reading 128 MiB, so a large log is read in larger tasks, a few for each core.
    """
    with access_of(options, options.isolation) as access:
        chosen = select(options, access.partitions())
        there = {partition: found for partition in chosen if (found := access.available(partition)) is not None}
        if options.limited:
            LOGGER.warning(
                "maxOffsetsPerTrigger, minOffsetsPerTrigger and maxBytesPerTrigger mean nothing to a batch read: all is"
                " read"
            )
        ranges = resolve(options, there, access.find_timestamp, LOGGER.warning)
        if filters:
            ranges = narrowed(ranges, filters, access.find_timestamp)
        if arrow_cores is None:
            return plan(options, ranges, access.split_points, access.size_of, missing=access.missing)
        share = sum(map(access.size_of, ranges)) // (ARROW_TASKS_PER_CORE * arrow_cores)
        size = max(options.max_bytes_per_partition, min(share, ARROW_TASK_SIZE_MAX))
        return plan(
            replace(options, max_bytes_per_partition=size),
            ranges,
            access.split_points,
            access.size_of,
            share=1,
            missing=access.missing,
        )


class _Push:
    """``pushFilters``, which Spark only ever calls where filters may be pushed.

    A reader that has the method fails every query in Spark's default settings, so to Spark this looks like the
    method of the base class.
    """

    def __init__(self, take: Callable[[list[Any]], list[Any]]) -> None:
        self._take = take
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)  # Spark 4.0 has none

    def __call__(self, filters: list[Any]) -> list[Any]:
        return self._take(filters)


class ReplogReader(DataSourceReader):
    """One batch read: plans it on the driver's side, carries out its tasks in the workers. Plain data."""

    def __init__(self, options: ReadOptions, fields: Sequence[Field]) -> None:
        self._options = options
        self._fields = list(fields)
        self._filters: list[Any] = []

    @property
    def pushFilters(self) -> _Push:
        """Take the filters of a query. Spark calls it if it pushes filters."""
        return _Push(self._take)

    def _take(self, filters: list[Any]) -> list[Any]:
        """Note ``filters`` where the option asks for it. All come back: Spark applies them too."""
        if self._options.pushdown != "false":
            self._filters = list(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks, from the present content of the folder."""
        return [Task(task) for task in plan_tasks(self._options, self._filters)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task as Arrow batches, in exactly the types Spark expects."""
        return read_task(self._options, self._fields, partition)
