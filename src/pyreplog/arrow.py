"""Logs as Arrow: ``log.scan()`` and ``topic.scan()`` return a :class:`Scan`; :func:`rows_of` reads the argument of
``append_arrow``.

A Scan speaks the Arrow C stream interface, so pyarrow, Polars, DuckDB and pandas read it without a copy, and this
module needs none of them. Offsets and timestamps select rows exactly. The time index only skips records that cannot
match.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn, Protocol, SupportsIndex, TypedDict

from pyreplog._core import COLUMNS, LOG_COLUMN, ArrowBatch, ArrowRows, ArrowSchema, ArrowStream, ColumnsBuilder
from pyreplog.config import INT64_MAX, suggestion, whole
from pyreplog.errors import (
    BatchTooLargeError,
    ConfigError,
    CorruptError,
    CorruptLogError,
    InternalError,
    OffsetOutOfRangeError,
)
from pyreplog.ports import Buffer
from pyreplog.record import Part, RecordBatch, parts_of
from pyreplog.timestamps import datetime_ms

__all__ = [
    "COLUMNS",
    "LOGS_COLUMNS",
    "LOG_COLUMN",
    "LOG_COLUMNS",
    "TOPIC_COLUMNS",
    "ArrowBatch",
    "ArrowRows",
    "ArrowSchema",
    "ArrowTable",
    "BatchSource",
    "Scan",
    "check_range",
    "rows_of",
    "timestamp_ms",
]

LOG_COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
"""The columns of a scan of one log unless the caller names others, such as ``partition`` and ``leader_epoch``."""
TOPIC_COLUMNS: Final = ("partition", *LOG_COLUMNS)
"""The columns of a scan of a topic unless the caller names others."""
LOGS_COLUMNS: Final = (LOG_COLUMN, *TOPIC_COLUMNS)
"""The columns of a scan of several logs unless the caller names others."""

APPENDED_COLUMNS: Final = ("value", "key", "headers", "timestamp")
"""The columns that ``append_arrow`` reads from a table. It ignores the other columns of a scan, because the log assigns
its own offsets and epochs."""
_LEFT_OUT: Final = frozenset(("topic", "timestampType", "leaderEpoch"))
"""Further columns, of a Spark frame of records, that ``append_arrow`` ignores for the same reason."""

BATCH_ROWS_MAX: Final = 32768
"""Rows of one Arrow batch."""
BATCH_SIZE: Final = 2 << 20
"""An Arrow batch ends at this many bytes of keys, values and headers; only a single larger record batch makes it
larger."""
READ_SIZE: Final = 1 << 19
"""Bytes of the first read from a source. They and the columns made from them fit a processor's near cache."""


class _Selection(TypedDict):
    partition: int
    start_offset: int
    end_offset: int
    start_timestamp: int | None
    end_timestamp: int | None


class BatchSource(Protocol):
    """The source of a scan's records: a partition's :class:`pyreplog.log.LogReader`, or a live log of the runtime. Any
    thread may read it."""

    @property
    def start_offset(self) -> int:
        """The first offset that the source has."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset behind the last record that readers may see."""
        ...

    @property
    def max_batch_bytes(self) -> int:
        """The largest compressed batch, in unpacked bytes, that a scan reads. It unpacks the batch in parts."""
        ...

    def refresh(self) -> None:
        """Move :attr:`end_offset` behind newly appended records."""
        ...

    def read(self, offset: int, size_max: int) -> Buffer:
        """Return whole batches as stored, starting at the batch with ``offset`` or the first one behind it: about
        ``size_max`` bytes, and at least one batch; empty at the end."""
        ...

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record whose timestamp is at least ``timestamp``; None if there is
        none."""
        ...

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error for the damaged batch that was read for ``offset``, with its file and position."""
        ...


def timestamp_ms(value: object, name: str) -> int:
    """Return ``value`` in ms since 1970. It may be a whole number or an aware datetime; a fraction of a ms is rounded
    up, so that "at or after" stays exact."""
    if type(value) is int and -INT64_MAX <= value <= INT64_MAX:
        return value
    if isinstance(value, datetime):
        return datetime_ms(value, name, up=True)
    try:
        return whole(name, value, -INT64_MAX, INT64_MAX)
    except ConfigError:
        what = "a whole number of milliseconds since 1970, or a datetime with a time zone"
        raise ConfigError(f"{name} is {value!r}; it must be {what}") from None


def _checked_columns(columns: Sequence[str] | None, default: tuple[str, ...], *, several: bool) -> tuple[str, ...]:
    if columns is None:
        return default
    if isinstance(columns, str):
        raise ConfigError(f"columns is the text {columns!r}; give a list of names, such as [{columns!r}]")
    if not isinstance(columns, Iterable):
        raise ConfigError(f"columns is {columns!r}; it must be a list of names, such as ['value']")
    names = tuple(columns)
    if not names:
        raise ConfigError("columns is empty; name at least one, or leave it out")
    known = (*COLUMNS, LOG_COLUMN) if several else COLUMNS
    for position, name in enumerate(names):
        if name == LOG_COLUMN and not several:
            raise ConfigError("the column 'log' is there only if several logs are read together: see pyreplog.scan")
        if name not in known:
            raise ConfigError(f"unknown column {name!r}{suggestion(str(name), known)}")
        if name in names[:position]:
            raise ConfigError(f"column {name!r} is asked for twice")
    return names


def rows_of(source: object) -> ArrowRows:
    """Return the rows of a table, record batch or stream that speaks Arrow's C interfaces. A stream is read to its end.

    Raises TypeError for any other object and for columns of the wrong type. Raises ConfigError if ``value`` is missing,
    and for a column with an unknown name, because it would be dropped silently.
    """
    _check_no_objects(source)
    rows = ArrowRows(source)
    for position, name in enumerate(rows.names):
        if name not in COLUMNS and name not in _LEFT_OUT:
            why = suggestion(name, APPENDED_COLUMNS)
            if name.startswith("__index_level_"):
                why = ": pandas hands the frame's index over as a column; leave it out by .reset_index(drop=True)"
            elif name == LOG_COLUMN:
                why = (
                    ": a record cannot hold the log that it came from; name the columns to append, as in scan(paths,"
                    " columns=[...])"
                )
            raise ConfigError(f"unknown column {name!r}{why}")
        if name in rows.names[:position]:
            raise ConfigError(f"column {name!r} is there twice")
    if "value" not in rows.names:
        raise ConfigError("there is no column 'value'")
    return rows


def _check_no_objects(source: object) -> None:
    """Raise TypeError for a Polars frame with a column of Python objects: Polars exports their memory addresses to
    Arrow, as bytes that look like any other value."""
    polars: Any = sys.modules.get("polars")
    if polars is None or not isinstance(source, polars.DataFrame):
        return
    for name, kind in source.schema.items():
        if kind == polars.Object:
            raise TypeError(
                f"column {name} holds Python objects, as Polars keeps bytearrays, for example; it must be binary or"
                " string"
            )


def check_range(start: int | None, end: int | None, start_timestamp: int | None, end_timestamp: int | None) -> None:
    """Raise :class:`ConfigError` if a range ends before it begins. A negative ``end`` is not refused here: the scan
    refuses it with the log's bounds."""
    if start is not None and end is not None and start > end >= 0:
        raise ConfigError(f"start {start} lies behind end {end}")
    if start_timestamp is not None and end_timestamp is not None and start_timestamp > end_timestamp:
        raise ConfigError(f"start_timestamp {start_timestamp} lies behind end_timestamp {end_timestamp}")


def _checked_offset(value: object, name: str) -> int | None:
    if value is None:
        return None
    return whole(name, value)


class Scan:
    """The rows of one log or of a topic's partitions. Each request for the Arrow stream reads them again.

    Hand it to any library that takes Arrow: ``pyarrow.table(scan)``, ``polars.DataFrame(scan)``,
    ``duckdb.from_arrow(scan)``. Each pass reads the records that were readable when it began. Partitions come one after
    another, each in offset order. Making a Scan raises :class:`ConfigError` and :class:`OffsetOutOfRangeError`; an
    error while it is read reaches the importing library, which raises an error of its own.
    """

    def __init__(
        self,
        sources: Sequence[tuple[int, BatchSource]],
        *,
        name: str = "the log",
        columns: Sequence[str] | None = None,
        default_columns: tuple[str, ...] = LOG_COLUMNS,
        checked: bool = False,
        start: int | None = None,
        end: int | None = None,
        start_timestamp: int | datetime | None = None,
        end_timestamp: int | datetime | None = None,
        spread: bool = False,
        logs: Sequence[str] = (),
    ) -> None:
        """``sources`` are (partition, its source). ``start`` and ``end`` are offsets of each partition, without
        ``end``; ``start_timestamp`` and ``end_timestamp`` are ms since 1970 or aware datetimes, without the end. A
        record without a timestamp is in no timestamp range.

        ``name``: the name of the log or topic in errors. ``checked``: the sources check the CRC of each batch, as
        :class:`pyreplog.log.LogReader` does. ``spread``: the sources share the records, so a source that ends before
        ``start`` has no rows; without it that raises OffsetOutOfRangeError. ``logs``: the name of each source's log, if
        the sources belong to several; it is the value of the column ``log``.
        """
        self._sources = tuple(sources)
        self._logs = tuple(logs) or ("",) * len(self._sources)
        self._several = bool(logs)
        self._name = name
        self._checked = checked
        self._spread = spread
        self._columns = _checked_columns(columns, default_columns, several=self._several)
        self._start = _checked_offset(start, "start")
        self._end = _checked_offset(end, "end")
        self._start_timestamp = None if start_timestamp is None else timestamp_ms(start_timestamp, "start_timestamp")
        self._end_timestamp = None if end_timestamp is None else timestamp_ms(end_timestamp, "end_timestamp")
        check_range(self._start, self._end, self._start_timestamp, self._end_timestamp)
        for log, (partition, source) in zip(self._logs, self._sources, strict=True):
            self._range(self._where(log, partition), source)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            "a Scan cannot be copied or pickled: it reads the files that its log has open. Send its rows:"
            " pyarrow.table(scan)"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the scan's columns, in order."""
        return self._columns

    def __repr__(self) -> str:
        return f"<pyreplog.Scan of {self._name}: {', '.join(self._columns)}>"

    def __arrow_c_schema__(self) -> object:
        """Return a capsule with the Arrow schema."""
        return ArrowSchema(self._columns).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with a new pass over the rows. ``requested_schema`` is ignored, as the interface
        allows."""
        return ArrowStream(self._columns, self.batches()).__arrow_c_stream__(requested_schema)

    def batches(self) -> Iterator[ArrowBatch]:
        """Yield the rows in a new pass, as Arrow batches (each speaks ``__arrow_c_array__``).

        An Arrow batch has at most 32768 rows and about 2 MiB, but at least one batch of the log. Errors are those of
        pyreplog.
        """
        builder = ColumnsBuilder(self._columns)
        before = ""
        for log, (partition, source) in zip(self._logs, self._sources, strict=True):
            if log != before and builder.row_count:
                yield from _finished(builder, before)  # one Arrow batch has rows of one log
            before = log
            yield from self._partition(builder, log, partition, source)
        if builder.row_count:
            yield from _finished(builder, before)

    def _where(self, log: str, partition: int) -> str:
        if self._several:
            return f"partition {partition} of the log {log!r} of {self._name}"
        return self._name if len(self._sources) == 1 else f"partition {partition} of {self._name}"

    def _range(self, where: str, source: BatchSource) -> tuple[int, int]:
        """Return the half-open range of offsets to read now."""
        first, last = source.start_offset, source.end_offset
        start = first if self._start is None else self._start
        if start < first or (start > last and not self._spread):
            raise OffsetOutOfRangeError(start, first, last, log=where)
        if self._end is not None and self._end < 0:
            raise OffsetOutOfRangeError(self._end, first, last, log=where)
        return start, last if self._end is None else min(self._end, last)

    def _partition(
        self, builder: ColumnsBuilder, log: str, partition: int, source: BatchSource
    ) -> Iterator[ArrowBatch]:
        """Yield the full Arrow batches of one partition. Rows of the last, incomplete one stay in ``builder``."""
        source.refresh()
        where = self._where(log, partition)
        start, end = self._range(where, source)
        if start >= end:
            return
        offset = start
        if self._start_timestamp is not None:
            found = source.find_timestamp(self._start_timestamp)
            if found is None:
                return
            offset = max(start, found[0])  # every record before it is older
        before = builder.next_offset
        asked = READ_SIZE
        try:
            while offset < end:
                data = memoryview(source.read(offset, asked))
                asked = _next_size(asked, len(data))
                if not len(data) or (yield from self._chunk(builder, log, partition, source, data, start, end)):
                    return
                del data  # before the next read: with two buffers alive each read would take new memory
                if builder.next_offset <= offset:
                    raise InternalError(f"{where} gave batches below offset {offset} when asked from there")
                offset = builder.next_offset
        except CorruptLogError:
            raise  # it names the place already
        except CorruptError as error:
            raise source.damage(
                offset if builder.next_offset == before else max(offset, builder.next_offset), error.reason
            ) from error

    def _chunk(
        self,
        builder: ColumnsBuilder,
        log: str,
        partition: int,
        source: BatchSource,
        data: memoryview,
        start: int,
        end: int,
    ) -> Generator[ArrowBatch, None, bool]:
        """Add the batches of ``data``, yield each full Arrow batch, and return whether ``end`` was reached."""
        selection = _Selection(
            partition=partition,
            start_offset=start,
            end_offset=end,
            start_timestamp=self._start_timestamp,
            end_timestamp=self._end_timestamp,
        )
        position = 0
        while True:
            position = builder.extend(
                data,
                position,
                **selection,
                check_crc=not self._checked,
                row_limit=BATCH_ROWS_MAX,
                size_limit=BATCH_SIZE,
            )
            if position == len(data):
                return False
            batch = RecordBatch(data, position)
            if batch.base_offset >= end:
                return True
            if not batch.codec and not batch.is_control:
                yield from _finished(builder, log)
                continue
            try:
                if not self._checked:
                    batch.check_crc()
                if batch.is_control:
                    builder.append(batch, None, **selection)
                else:
                    parts = parts_of(batch, source.max_batch_bytes, partition=self._where(log, partition))
                    yield from _unpacked(builder, log, batch, parts, selection)
            except BatchTooLargeError as error:
                raise error.placed(source.damage(max(start, batch.base_offset), "")) from None
            except CorruptError as error:
                raise source.damage(max(start, batch.base_offset), error.reason) from error
            position += batch.size


class ArrowTable:
    """Rows that were read into memory, as Arrow batches. Immutable: any thread may use it, any number of times.

    Hand it to any library that takes Arrow: ``pyarrow.table(table)``, ``polars.DataFrame(table)``.
    """

    __slots__ = ("_batches", "_columns")

    def __init__(self, columns: Sequence[str], batches: Sequence[ArrowBatch]) -> None:
        """Made by ``poll_arrow``."""
        self._columns = tuple(columns)
        self._batches = tuple(batches)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return sum(batch.row_count for batch in self._batches)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self._columns

    def batches(self) -> Iterator[ArrowBatch]:
        """Yield the Arrow batches; each speaks ``__arrow_c_array__``."""
        return iter(self._batches)

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        return f"<pyreplog.ArrowTable of {self.num_rows} rows: {', '.join(self._columns)}>"

    def __arrow_c_schema__(self) -> object:
        """Return a capsule with the Arrow schema."""
        return ArrowSchema(self._columns).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with the rows. ``requested_schema`` is ignored, as the interface allows."""
        return ArrowStream(self._columns, self._batches).__arrow_c_stream__(requested_schema)


def _unpacked(
    builder: ColumnsBuilder, log: str, batch: RecordBatch, parts: Iterator[Part], selection: _Selection
) -> Iterator[ArrowBatch]:
    """Add the records of a compressed batch, and yield each full Arrow batch."""
    for payload, count, last_offset in parts:
        size = 0 if payload is None else memoryview(payload).nbytes
        if builder.row_count and (builder.row_count + count > BATCH_ROWS_MAX or builder.size + size > BATCH_SIZE):
            yield from _finished(builder, log)
        if last_offset >= selection["start_offset"]:
            builder.append(batch, payload, record_count=count, **selection)
        if last_offset >= selection["end_offset"] - 1:
            break


def _next_size(asked: int, got: int) -> int:
    """Return the size of the next read, after a read of ``asked`` bytes returned ``got`` bytes in whole batches.

    It is a bit more than ``got``, so that as many batches of this size are read to their end, and little behind them.
    It stays the same while it fits. A short read means that a segment ended, so the size starts again.
    """
    if asked - asked // 32 <= got <= asked - asked // 128:
        return asked
    if got > asked:  # a single batch, read again after its size was known
        return got + got // 64
    if asked == READ_SIZE and got >= READ_SIZE // 2:
        return min(got + got // 64, READ_SIZE)
    return READ_SIZE


def _finished(builder: ColumnsBuilder, log: str) -> list[ArrowBatch]:
    """Return the gathered rows of ``log`` as Arrow batches: more than one if a single record batch has too many
    rows."""
    return builder.finish(log).slices(BATCH_ROWS_MAX)
