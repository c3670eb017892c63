"""Parquet in and out, through pyarrow if it is installed: the only file of the command that needs it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import IO, Any, Final, cast

from pyreplog.arrow import BatchSource, Scan
from pyreplog.cli.output import ProgressBar
from pyreplog.cli.reading import source_of
from pyreplog.cli.row_fields import VALUES
from pyreplog.cli.rows import Fields, Row, RowError, RowNumber, map_rows
from pyreplog.config import INT64_MAX
from pyreplog.errors import ConfigError, UnknownTopicError, excerpt
from pyreplog.log import LogReader
from pyreplog.timestamps import TIMESTAMP_MAX, beyond_last

__all__ = ["read_parquet", "write_parquet"]

_COLUMNS: Final = ("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")
_PER_MILLISECOND: Final = {"ms": 1, "us": 1000, "ns": 1_000_000}
_READ_SIZE: Final = 1 << 20
_ROWS: Final = 128
"""Rows held at once, at most: a file does not tell how large its largest row is."""
_HELD_SIZE: Final = 8 << 20
_PYTHON_SIZE: Final = 4 << 20
"""Of these rows, bytes that are Python's values at once."""
_REPEATED: Final = 4
"""One in so many rows is taken to have a column's repeated values as a whole."""
_GROUP_SIZE: Final = 64 << 20
"""Bytes of a row group in memory, about: engines read one at a time, and those of many small ones are slow and
large."""
_GROUP_ROWS: Final = 1 << 20
_PAGE_ROWS: Final = 64
"""After so many values the writer looks whether its page is full: pages of large values stay small."""


def _without(error: ImportError) -> str:
    """Return why pyarrow cannot be used: it is not installed, or cannot be loaded, for example for lack of
    memory."""
    why = ": pip install pyarrow" if isinstance(error, ModuleNotFoundError) else f", which cannot be loaded: {error}"
    return f"Parquet needs pyarrow{why}"


def read_parquet(path: str, fields: Fields, tell: Callable[[int], None] | None = None) -> Iterator[Row]:
    """Records of a Parquet file, by the rules of :func:`~pyreplog.cli.rows.read_rows`. Raises :class:`RowError`
    naming the row.

    ``tell`` is called with the number of bytes of the file that were used.
    """
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415  (optional)
    except ImportError as error:
        raise RowError(_without(error)) from None
    place = RowNumber()
    try:
        # Buffered: otherwise the bytes of a whole column of a row group are read at once. INT96 in
        # us: in ns, pyarrow's default, a time beyond 2262 becomes another one without an error.
        with parquet.ParquetFile(
            path, buffer_size=_READ_SIZE, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
        ) as file:
            names = file.schema_arrow.names
            twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
            if twice is not None:
                raise RowError(f"two columns have the name {excerpt(twice)}")
            rows = file.metadata.num_rows
            size = os.path.getsize(path)
            timed = _time_column(names, fields)
            flat = [file.schema.column(number) for number in range(len(file.schema))]
            old = frozenset(column.path for column in flat if column.physical_type == "INT96" and column.path in names)

            def objects() -> Iterator[tuple[dict[str, Any], bytes | None]]:
                for number in range(file.num_row_groups):
                    count = _rows_at_once(file.metadata.row_group(number))
                    for batch in _group_batches(file, number, count):
                        step = max(1, batch.num_rows * _PYTHON_SIZE // max(batch.nbytes, 1))
                        for start in range(0, batch.num_rows, step):
                            for row in _rows(_zoned(batch.slice(start, step), old), place.number, timed):
                                place.number += 1
                                error = None if timed is None else row.get(timed)
                                if isinstance(error, RowError):
                                    raise error
                                yield row, None
                        if tell is not None and rows:
                            tell(size * batch.num_rows // rows)

            yield from map_rows(place, objects(), fields, "row")
    except (ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the operating system
        raise RowError(f"not Parquet, or damaged: {error}") from None


def _group_batches(file: Any, number: int, count: int) -> Iterator[Any]:
    """Yield the record batches of row group ``number``. Raises :class:`RowError` naming it if its pages are
    damaged."""
    from pyarrow import ArrowException  # noqa: PLC0415  (optional)

    try:
        yield from file.iter_batches(batch_size=count, row_groups=[number])
    except (ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the operating system
        raise RowError(
            f"row group {number} of {file.num_row_groups} (from 0) is damaged: {error}; take the file from its source"
            " again"
        ) from None


def _rows_at_once(group: Any) -> int:
    """How many rows of a row group are held at once, as Arrow and as Python's values: a few MB of them, as far as
    the file tells.

    A value that is repeated stands in the file once, in a column's dictionary, so a row may have as many bytes as
    that.
    """
    row_size: int = group.total_byte_size // max(group.num_rows, 1)
    for number in range(group.num_columns):
        column = group.column(number)
        if column.has_dictionary_page and column.dictionary_page_offset is not None:
            packed = max(column.data_page_offset - column.dictionary_page_offset, 0)
            row_size += packed * column.total_uncompressed_size // max(column.total_compressed_size, 1) // _REPEATED
    return max(1, min(_ROWS, _HELD_SIZE // max(row_size, 1)))


def _time_column(names: Sequence[str], fields: Fields) -> str | None:
    """Return the column with the time of a record, by the rules of :func:`~pyreplog.cli.rows.map_rows`; None if
    there is none."""
    if fields.timestamp is None and fields.value is None and not VALUES.isdisjoint(names):
        return "timestamp"
    return fields.timestamp


def _zoned(batch: Any, old: frozenset[str]) -> Any:
    """Return a record batch whose columns ``old``, INT96 in the file, are in UTC: pyarrow gives that type no
    zone."""
    import pyarrow as pa  # noqa: PLC0415  (optional)

    columns = [
        column.cast(pa.timestamp(column.type.unit, "UTC")) if name in old else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if old else batch


def _rows(batch: Any, before: int, timed: str | None) -> list[dict[str, Any]]:
    """Return the rows of a record batch as Python's values. ``before`` rows of the file lie ahead of it.

    A value of the column ``timed``, the time of the record, may be the error to raise. Times keep all digits of
    their unit: those finer than a microsecond are text, because Python has no such type.
    """
    import pyarrow as pa  # noqa: PLC0415  (optional)

    columns: list[list[Any]] = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name == timed and pa.types.is_timestamp(field.type):
            columns.append(_record_times(column, field.name, before))
        else:
            columns.append(_values(column))
    names: list[str] = batch.schema.names
    return (
        [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        if names
        else [{}] * batch.num_rows
    )


def _values(column: Any) -> list[Any]:
    """Return a column as Python's values; see :func:`_value` for those that Python cannot hold."""
    if not _is_fine(column.type):
        try:
            values: list[Any] = column.to_pylist()
        except (OverflowError, ValueError):
            pass  # one of them is outside Python's range
        else:
            return values
    return [_value(scalar) for scalar in column]


def _is_fine(kind: Any) -> bool:
    """Whether a type holds nanoseconds, at any depth."""
    import pyarrow as pa  # noqa: PLC0415  (optional)

    if getattr(kind, "unit", None) == "ns":
        return True
    if pa.types.is_dictionary(kind):
        return _is_fine(kind.value_type)
    return any(_is_fine(kind.field(number).type) for number in range(kind.num_fields))


def _value(scalar: Any) -> Any:
    """Return an Arrow scalar as Python's value: nanoseconds as text with nine digits, and a date, time or duration
    outside Python's range as the number that Parquet holds, in text."""
    import pyarrow as pa  # noqa: PLC0415  (optional)

    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_dictionary(kind):
        return _value(scalar.value)
    if pa.types.is_struct(kind):
        return {field.name: _value(scalar[number]) for number, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return [(_value(pair[0]), _value(pair[1])) for pair in scalar.values]
    if pa.types.is_nested(kind):
        return [_value(one) for one in scalar.values]
    if getattr(kind, "unit", None) == "ns":
        return _nanoseconds(scalar.value, kind)
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return str(scalar.value)


def _nanoseconds(value: int, kind: Any) -> Any:
    """Return a time, or a duration, of ``value`` ns: Python's own if it is a whole number of microseconds, else
    text with nine digits."""
    import pyarrow as pa  # noqa: PLC0415  (optional)

    whole, rest = divmod(value, 1000)
    if pa.types.is_duration(kind):
        found = str(timedelta(microseconds=whole))
        return f"{found if '.' in found else found + '.000000'}{rest:03}" if rest else found
    coarse = pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.time64("us")
    moment = pa.scalar(whole, coarse).as_py()
    if not rest:
        return moment
    text: str = moment.isoformat(timespec="microseconds")
    end = text.index(".") + 7
    return f"{text[:end]}{rest:03}{text[end:]}"


def _record_times(column: Any, name: str, before: int) -> list[Any]:
    """Return a column of record times as :func:`_values` does, with the error to raise in place of a value that no
    record can have."""
    unit, zone = column.type.unit, column.type.tz
    found = _values(column)
    for index, value in enumerate(column.cast("int64").to_pylist()):
        if value is None:
            continue
        row = f"row {before + index + 1}: "
        moment = value * 1000 if unit == "s" else value // _PER_MILLISECOND[unit]
        if zone is None:
            found[index] = RowError(
                f"{row}column {name!r} is {_time_text(column[index])}, which has no time zone, so its moment is not"
                ' known: give the column one, as .dt.tz_localize("UTC") does in pandas and .cast(pa.timestamp("us",'
                ' "UTC")) in pyarrow'
            )
        elif moment < 0:
            found[index] = RowError(f"{row}column {name!r} is {value} {unit}, before 1970, when timestamps begin")
        elif moment > TIMESTAMP_MAX:
            found[index] = RowError(f"{row}column {name!r} is {value} {unit}: {beyond_last(moment)}")
    return found


def _time_text(scalar: Any) -> str:
    value = _value(scalar)
    return value if isinstance(value, str) else str(value.isoformat())


def write_parquet(
    file: IO[bytes], found: Sequence[LogReader], arguments: argparse.Namespace, progress: ProgressBar
) -> None:
    """Write ``file`` with the records of ``found`` that ``arguments`` select. Raises :class:`ConfigError` without
    pyarrow."""
    try:
        import pyarrow as pa  # noqa: PLC0415  (optional)
        from pyarrow import parquet  # noqa: PLC0415  (optional)
    except ImportError as error:
        raise ConfigError(_without(error)) from None
    if not found:
        raise UnknownTopicError(f"{arguments.path} holds no partition to export")
    schema = pa.schema(cast("Any", Scan([], columns=_COLUMNS))).insert(0, pa.field("topic", pa.string()))
    with parquet.ParquetWriter(
        file, schema, compression="zstd", write_batch_size=_PAGE_ROWS, write_page_checksum=True
    ) as writer:
        group = _RowGroup(writer, schema)
        for reader in found:
            source = source_of(reader, arguments)
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
            progress.begin(max(arguments.start, reader.start_offset))
            for part in scan.batches():  # not as a stream: of an error it carries the text alone
                batch = pa.record_batch(part)
                topics = pa.array([reader.topic] * batch.num_rows, pa.string())
                group.add(pa.record_batch([topics, *batch.columns], schema=schema))
                progress.add(batch.num_rows, batch.column("offset")[-1].as_py() + 1)
        group.write()


class _RowGroup:
    """Gathers batches until they are a row group of a useful size. Belongs to one thread."""

    def __init__(self, writer: Any, schema: Any) -> None:
        self._writer = writer
        self._schema = schema
        self._batches: list[Any] = []
        self._size = self._rows = 0

    def add(self, batch: Any) -> None:
        """Take a batch; write the row group if it is full."""
        self._batches.append(batch)
        self._size += batch.nbytes
        self._rows += batch.num_rows
        if self._size >= _GROUP_SIZE or self._rows >= _GROUP_ROWS:
            self.write()

    def write(self) -> None:
        """Write the gathered rows, if there are any."""
        import pyarrow as pa  # noqa: PLC0415  (optional)

        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, self._schema), row_group_size=self._rows)
        self._batches.clear()
        self._size = self._rows = 0
