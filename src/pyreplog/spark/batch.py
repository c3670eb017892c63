"""The batch read, as Spark drives it: planned in a process beside the driver, carried out by tasks in the workers.

Planning pins what is read: a loaded DataFrame keeps seeing the offsets that its first action found; load again for newer ones. Tasks
open the files themselves. Everything that travels between processes is plain data.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyreplog.spark.access import FileAccess
from pyreplog.spark.options import ReadOptions
from pyreplog.spark.planner import OffsetRange, plan, resolve, select
from pyreplog.spark.schema import Field
from pyreplog.spark.tasks import Task, read_ranges

__all__ = ["ReplogReader", "plan_tasks"]

logger = logging.getLogger("pyreplog")


def plan_tasks(options: ReadOptions) -> list[tuple[OffsetRange, ...]]:
    """What each task reads, from what the folder holds now."""
    with FileAccess(options.path) as access:
        chosen = select(options, access.partitions())
        there = {partition: found for partition in chosen if (found := access.available(partition)) is not None}
        ranges = resolve(options, there, access.find_timestamp, logger.warning)
        return plan(options, ranges, access.split_points, access.size_of)


class ReplogReader(DataSourceReader):
    """One batch read: plans it on the driver's side, carries out its tasks in the workers. Plain data."""

    def __init__(self, options: ReadOptions, fields: Sequence[Field]) -> None:
        self._options = options
        self._fields = list(fields)

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, from what the folder holds now."""
        return [Task(task) for task in plan_tasks(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task as Arrow batches, in exactly the types Spark expects."""
        # Spark has a stand-in for an empty plan.
        ranges = partition.ranges if isinstance(partition, Task) else ()
        return read_ranges(self._options, self._fields, ranges)
