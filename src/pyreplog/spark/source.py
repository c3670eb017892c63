"""The data source itself: what Spark calls, in its own processes, to plan a batch read and to carry out its tasks.

Planning pins what is read: a loaded DataFrame keeps seeing the offsets that its first action found; load again for newer ones. Tasks
open the files themselves. Everything that travels between processes is plain data.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyreplog.arrow import Scan
from pyreplog.errors import DataLossError
from pyreplog.spark.access import FileAccess
from pyreplog.spark.arrow_types import Converter
from pyreplog.spark.options import ReadOptions, parse_read_options
from pyreplog.spark.planner import OffsetRange, plan, remaining, resolve, select
from pyreplog.spark.schema import Field, default_ddl, project
from pyreplog.values import TopicPartition

__all__ = ["ReplogDataSource", "ReplogReader", "Task"]

logger = logging.getLogger(__name__)


@dataclass
class Task(InputPartition):
    """What one Spark task reads, one range after the other."""

    ranges: tuple[OffsetRange, ...]

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class ReplogDataSource(DataSource):
    """``spark.read.format("replog")``: a topic in a folder as a DataFrame, with the columns and options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """``replog``."""
        return "replog"

    def schema(self) -> str:
        """The columns without ``.schema(...)``; wrong options are refused here already."""
        return default_ddl(self._read_options().include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns that ``schema`` names."""
        options = self._read_options()
        fields = [Field(field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields]
        project(fields)
        return ReplogReader(options, fields)

    def _read_options(self) -> ReadOptions:
        options: Mapping[str, str] = self.options
        return parse_read_options(options)


class ReplogReader(DataSourceReader):
    """One batch read: plans it on the driver's side, carries out its tasks in the workers. Plain data."""

    def __init__(self, options: ReadOptions, fields: Sequence[Field]) -> None:
        self._options = options
        self._fields = list(fields)

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, from what the folder holds now."""
        options = self._options
        with FileAccess(options.path) as access:
            chosen = select(options, access.partitions())
            there = {partition: found for partition in chosen if (found := access.available(partition)) is not None}
            ranges = resolve(options, there, access.find_timestamp, logger.warning)
            return [Task(task) for task in plan(options, ranges, access.split_points)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task as Arrow batches, in exactly the types Spark expects."""
        if not isinstance(partition, Task):
            return  # Spark's stand-in for an empty plan
        converter = Converter(project(self._fields), [field.nullable for field in self._fields])
        with FileAccess(self._options.path) as access:
            for wanted in partition.ranges:
                yield from self._read_range(access, wanted, converter)

    def _read_range(self, access: FileAccess, wanted: OffsetRange, converter: Converter) -> Iterator[pa.RecordBatch]:
        kept = self._still_there(access, wanted)
        if kept is None:
            return
        name = f"topic {kept.topic} in {self._options.path}"
        sources = [(kept.partition, access.source(kept))]
        scan = Scan(sources, name=name, columns=converter.columns, checked=True, start=kept.start, end=kept.end)
        for batch in scan.batches():
            yield converter.convert(pa.record_batch(batch), kept)

    def _still_there(self, access: FileAccess, wanted: OffsetRange) -> OffsetRange | None:
        """``wanted``, or what is left of it where the option allows a loss between planning and reading; None: nothing."""
        found = access.available(TopicPartition(wanted.topic, wanted.partition))
        kept, lost = remaining(wanted, found)
        if lost is not None:
            if self._options.fail_on_data_loss:
                raise DataLossError(lost)
            logger.warning(lost)
        return kept
