"""A function of the user on the log's Arrow batches, inside the executors: only its results pass through the
JVM."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from inspect import signature
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type
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
    spark: SparkSession,
    fn: BatchFunction,
    schema: StructType | str,
    *,
    columns: Sequence[str] | None = None,
    **options: object,
) -> DataFrame:
    """See :func:`pyreplog.spark.map_arrow`."""
    given = {
        name.lower(): str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }
    read = parse_read_options(given)
    chosen = default_columns(read.include_headers, read.several) if columns is None else named(columns, read.several)
    fields = [Field(column.name, column.type, True) for column in chosen]
    wanted = _columns(schema)
    tasks = plan_tasks(read, arrow_cores=None if "maxbytesperpartition" in given else _cores(spark))

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for made in fn(read_ahead(read_ranges(read, fields, tasks[number]))):
                    yield _by_name(made, wanted)

    with warnings.catch_warnings():
        # Spark asks for pandas here, says that it does not know pandas 3 yet, and uses nothing of
        # it.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(run, schema)


class _Wanted(NamedTuple):
    """A column of the schema. ``arrow``: its type in Arrow, None if Spark has none; ``ddl``: as Spark calls it."""

    name: str
    arrow: pa.DataType | None
    ddl: str


def _columns(schema: StructType | str) -> list[_Wanted]:
    """The columns of ``schema``."""
    parsed = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(parsed, StructType):
        raise ConfigError(f"schema is {excerpt(str(schema))}; it must name columns, as in 'carrier string, delay long'")
    return [_Wanted(field.name, _arrow_type(field.dataType), field.dataType.simpleString()) for field in parsed.fields]


def _arrow_type(kind: DataType) -> pa.DataType | None:
    convert: Any = to_arrow_type
    try:
        # Which zone does not matter here: see _fits.
        return convert(kind, timezone="UTC") if "timezone" in signature(convert).parameters else convert(kind)
    except PySparkException:  # Spark says so itself, when the query runs
        return None


def _by_name(made: pa.RecordBatch, wanted: list[_Wanted]) -> pa.RecordBatch:
    """Return ``made`` with its columns in the order of the schema: Spark takes them as they come, whatever their
    names are.

    Raises :class:`ConfigError` for other names, and for a type that Spark would fail to read, in the JVM and
    without the column's name.
    """
    if not isinstance(made, pa.RecordBatch):
        raise TypeError(
            f"the function of map_arrow must give an iterator of pyarrow.RecordBatch; it gave {type(made).__name__}"
        )
    names = [column.name for column in wanted]
    if made.schema.names != names:
        if sorted(made.schema.names) != sorted(names):
            raise ConfigError(
                f"the function of map_arrow gave columns {', '.join(made.schema.names)}; the schema has"
                f" {', '.join(names)}"
            )
        made = made.select(names)
    for column, given in zip(wanted, made.schema.types, strict=True):
        if column.arrow is not None and not _fits(given, column.arrow):
            raise ConfigError(
                f"the function of map_arrow gave column {column.name} as {given}; the schema says {column.ddl}, which"
                f" is {column.arrow} in Arrow: cast the column, or change the schema"
            )
    return made


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark reads a column of type ``given`` for one of type ``wanted``: what differs is how it lies in
    memory, or is named."""
    types = pa.types
    if given == wanted or types.is_null(given):
        return True
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return bool(given.unit == wanted.unit)  # Spark looks at no zone here
    if types.is_decimal(given) and types.is_decimal(wanted):
        return True
    if types.is_list(given) and types.is_list(wanted):
        return _fits(given.value_type, wanted.value_type)
    if types.is_map(given) and types.is_map(wanted):
        return _fits(given.key_type, wanted.key_type) and _fits(given.item_type, wanted.item_type)
    if types.is_struct(given) and types.is_struct(wanted):
        return given.num_fields == wanted.num_fields and all(
            _fits(a.type, b.type) for a, b in zip(given, wanted, strict=True)
        )
    return (given, wanted) in _ALIKE


_ALIKE: Final = frozenset(
    (one, other)
    for kinds in ((pa.string(), pa.large_string()), (pa.binary(), pa.large_binary()))
    for one in kinds
    for other in kinds
)


def read_ahead(batches: Generator[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    """Return the same ``batches``, read by a thread of their own: the reader and Arrow's functions both work
    without the GIL."""
    with closing(batches), ThreadPoolExecutor(1, "pyreplog read") as reader:
        pending: deque[Future[pa.RecordBatch | None]] = deque(
            reader.submit(next, batches, None) for _ in range(AHEAD_COUNT)
        )
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
