"""What one Spark task reads, and reading it: the same for batches, streams and functions of the user."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Generator, Sequence
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from pyreplog.arrow import Scan
from pyreplog.log import READ_COMMITTED, READ_UNCOMMITTED
from pyreplog.spark.arrow_types import Converter
from pyreplog.spark.logger import LOGGER
from pyreplog.spark.options import ReadOptions
from pyreplog.spark.planned_range import PlannedRange
from pyreplog.spark.planner import OffsetRange
from pyreplog.spark.schema import Field, project
from pyreplog.spark.several import access_of

__all__ = ["Task", "read_ranges", "read_task"]


SETTLING_TASKS: Final = 2
"""So many tasks have loaded all that a worker loads: Spark loads some of it behind the first one."""
_tasks = itertools.count()


class Task(InputPartition):
    """What one Spark task reads, one range after the other. Plain data."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def read_task(options: ReadOptions, fields: Sequence[Field], partition: InputPartition) -> Generator[pa.RecordBatch]:
    """As :func:`read_ranges`, of what Spark hands to a worker: a task, or its own stand-in for an empty plan."""
    return read_ranges(options, fields, partition.ranges if isinstance(partition, Task) else ())


def read_ranges(
    options: ReadOptions, fields: Sequence[Field], ranges: Sequence[OffsetRange]
) -> Generator[pa.RecordBatch]:
    """Yield the rows of ``ranges`` as Arrow batches, in exactly the types Spark expects for ``fields``.

    If a part of them no longer exists, raise :class:`DataLossError`, or log a warning with
    ``failOnDataLoss=false``.
    """
    converter = Converter(project(fields, options.several), [field.nullable for field in fields])
    with access_of(options, READ_UNCOMMITTED) as access:
        committed = options.isolation == READ_COMMITTED
        for planned in ranges:
            wanted: OffsetRange | None = planned
            while wanted is not None:
                source = PlannedRange(
                    access,
                    wanted,
                    fail_on_data_loss=options.fail_on_data_loss,
                    warn=LOGGER.warning,
                    committed=committed,
                )
                name = f"topic {wanted.topic} in {f'{options.logs_in}/{wanted.log}' if wanted.log else options.path}"
                scan = Scan([(wanted.partition, source)], name=name, columns=converter.columns, checked=True)
                for batch in scan.batches():
                    yield converter.convert(pa.record_batch(batch), wanted)
                wanted = source.left
    if TaskContext.get() is not None and next(_tasks) < SETTLING_TASKS:
        # What all tasks use, a thousand modules, is not looked at any more by the collection of
        # garbage that a worker has after each task.
        gc.freeze()
