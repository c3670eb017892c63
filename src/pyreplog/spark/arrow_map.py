"""A function of the user on the log's Arrow batches, inside the executors: only what it makes of them passes through the JVM."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from pyreplog.errors import ConfigError, excerpt
from pyreplog.spark.batch import plan_tasks
from pyreplog.spark.options import parse_read_options
from pyreplog.spark.schema import Field, default_columns, named
from pyreplog.spark.tasks import read_ranges

__all__ = ["BatchFunction", "map_arrow", "read_ahead"]

AHEAD_COUNT: Final = 2
"""So many batches are read while the function is at work on the one before."""

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_arrow(
    spark: SparkSession, fn: BatchFunction, schema: StructType | str, *, columns: Sequence[str] | None = None, **options: object
) -> DataFrame:
    """See :func:`pyreplog.spark.map_arrow`."""
    given = {name.lower(): str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    read = parse_read_options(given)
    chosen = default_columns(read.include_headers, read.several) if columns is None else named(columns, read.several)
    fields = [Field(column.name, column.type, True) for column in chosen]
    names = _names(schema)
    tasks = plan_tasks(read, arrow_cores=None if "maxbytesperpartition" in given else _cores(spark))

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for made in fn(read_ahead(read_ranges(read, fields, tasks[number]))):
                    yield _by_name(made, names)

    with warnings.catch_warnings():
        # Spark asks for pandas here, says that it does not know pandas 3 yet, and uses nothing of it.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(run, schema)


def _names(schema: StructType | str) -> list[str]:
    """The columns of ``schema``."""
    parsed = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(parsed, StructType):
        raise ConfigError(f"schema is {excerpt(str(schema))}; it must name columns, as in 'carrier string, delay long'")
    return list(parsed.names)


def _by_name(made: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """``made`` with its columns in the order of the schema: Spark itself would take them as they come, whatever their names are."""
    if not isinstance(made, pa.RecordBatch):
        raise TypeError(f"the function of map_arrow must give an iterator of pyarrow.RecordBatch; it gave {type(made).__name__}")
    if made.schema.names == names:
        return made
    if sorted(made.schema.names) != sorted(names):
        raise ConfigError(f"the function of map_arrow gave columns {', '.join(made.schema.names)}; the schema has {', '.join(names)}")
    return made.select(names)


def read_ahead(batches: Generator[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    """The same ``batches``, read by a thread of their own: reading and what a function does in Arrow both leave Python's lock alone."""
    with closing(batches), ThreadPoolExecutor(1, "pyreplog read") as reader:
        pending: deque[Future[pa.RecordBatch | None]] = deque(reader.submit(next, batches, None) for _ in range(AHEAD_COUNT))
        try:
            while (batch := pending.popleft().result()) is not None:
                pending.append(reader.submit(next, batches, None))
                yield batch
        finally:
            reader.shutdown(cancel_futures=True)


def _cores(spark: SparkSession) -> int:
    """How many tasks run at once; a guess where the session is on another machine."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:  # Spark Connect has none
        return os.cpu_count() or 1
