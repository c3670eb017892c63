"""Parquet in and out, through pyarrow where it is installed: the only file of the command that needs it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import IO, Any, Final, cast

from pyreplog.arrow import BatchSource, Scan
from pyreplog.cli.output import Progress
from pyreplog.cli.rows import Fields, Place, Row, RowError, map_rows
from pyreplog.config import INT64_MAX
from pyreplog.errors import ConfigError, UnknownTopicError, excerpt
from pyreplog.log import LogReader

__all__ = ["read_parquet", "write_parquet"]

_COLUMNS: Final = ("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")
_ROWS: Final = 4096


def _without(error: ImportError) -> str:
    """Why pyarrow is not to be had: it is not there, or cannot be loaded, for lack of memory, say."""
    why = ": pip install pyarrow" if isinstance(error, ModuleNotFoundError) else f", which cannot be loaded: {error}"
    return f"Parquet needs pyarrow{why}"


def read_parquet(path: str, fields: Fields, tell: Callable[[int], None] | None = None) -> Iterator[Row]:
    """Records of a Parquet file, by the rules of :func:`~pyreplog.cli.rows.read_rows`. Raises :class:`RowError` naming the row.

    ``tell`` is told how many bytes of the file were used.
    """
    try:
        from pyarrow import ArrowException, parquet, timestamp  # noqa: PLC0415  (optional)
    except ImportError as error:
        raise RowError(_without(error)) from None
    place = Place()
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
            if twice is not None:
                raise RowError(f"two columns have the name {excerpt(twice)}")
            rows = file.metadata.num_rows
            size = os.path.getsize(path)

            def objects() -> Iterator[tuple[dict[str, Any], bytes | None]]:
                for batch in file.iter_batches(batch_size=_ROWS):
                    for row in _rows(batch, place.number, partial(timestamp, "us")):
                        place.number += 1
                        yield row, None
                    if tell is not None and rows:
                        tell(size * batch.num_rows // rows)

            yield from map_rows(place, objects(), fields, "row")
    except ArrowException as error:
        raise RowError(f"not Parquet, or damaged: {error}") from None


def _rows(batch: Any, before: int, microseconds: Callable[[str | None], Any]) -> list[dict[str, Any]]:
    """The rows of a record batch, ``before`` of which lie ahead of it, as Python's own values; times to the microsecond, as the type
    that ``microseconds`` makes for a zone."""
    columns = []
    own = "timestamp_type" in batch.schema.names
    for field, column in zip(batch.schema, batch.columns, strict=True):
        kind = str(field.type)
        if own and field.name == "timestamp" and kind.startswith("timestamp[ms"):
            # Exported by us: a record without a time is not one of now, and any 64 bits are a time.
            columns.append(column.cast("int64").fill_null(-1))
        elif kind.startswith("timestamp[ns"):
            columns.append(column.cast(microseconds(field.type.tz), safe=False))
        else:
            columns.append(column)
    try:
        rows: list[dict[str, Any]] = type(batch).from_arrays(columns, names=batch.schema.names).to_pylist()
    except (OverflowError, ValueError) as error:
        raise RowError(f"rows {before + 1} to {before + batch.num_rows}: a value is none of Python's: {error}") from None
    return rows


def write_parquet(file: IO[bytes], found: Sequence[LogReader], arguments: argparse.Namespace, progress: Progress) -> None:
    """Write ``file`` with the records of ``found`` that ``arguments`` select. Raises :class:`ConfigError` without pyarrow."""
    try:
        import pyarrow as pa  # noqa: PLC0415  (optional)
        from pyarrow import parquet  # noqa: PLC0415  (optional)
    except ImportError as error:
        raise ConfigError(_without(error)) from None
    if not found:
        raise UnknownTopicError(f"{arguments.path} holds no partition to export")
    schema = pa.schema(cast("Any", Scan([], columns=_COLUMNS))).insert(0, pa.field("topic", pa.string()))
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for reader in found:
            source = reader.isolated(arguments.isolation)
            end = min(arguments.end, source.end_offset)
            if end < max(arguments.start, reader.start_offset):
                continue
            scan = Scan(
                [(reader.partition, cast("BatchSource", source))],
                name=str(reader.topic_partition),
                columns=_COLUMNS,
                checked=True,
                start=max(arguments.start, reader.start_offset),
                end=None if arguments.end == INT64_MAX else end,
                start_timestamp=arguments.start_timestamp,
                end_timestamp=arguments.end_timestamp,
            )
            for part in scan.batches():  # not as a stream: of an error it carries the text alone
                batch = pa.record_batch(part)
                topics = pa.array([reader.topic] * batch.num_rows, pa.string())
                writer.write_batch(pa.record_batch([topics, *batch.columns], schema=schema))
                progress.add(batch.num_rows)
