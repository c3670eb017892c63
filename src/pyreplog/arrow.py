"""Logs as Arrow: :class:`Scan` is what ``log.scan()`` and ``topic.scan()`` return; :func:`rows_of` takes what
``append_arrow`` is given.

It speaks the Arrow C stream interface, so pyarrow, Polars, DuckDB and pandas read it without a copy, and this
module needs none of them. Which rows: offsets and timestamps select exactly; the time index only skips what cannot
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
    "BatchSource",
    "Scan",
    "check_range",
    "rows_of",
    "timestamp_ms",
]

LOG_COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
"""What a scan of one log gives unless asked otherwise. ``partition`` and ``leader_epoch`` come on request."""
TOPIC_COLUMNS: Final = ("partition", *LOG_COLUMNS)
"""What a scan of a topic gives unless asked otherwise."""
LOGS_COLUMNS: Final = (LOG_COLUMN, *TOPIC_COLUMNS)
"""The columns of a scan of several logs unless the caller names others."""

APPENDED_COLUMNS: Final = ("value", "key", "headers", "timestamp")
"""What ``append_arrow`` takes of a table. It leaves out the other columns of a scan: the log gives its own."""
_LEFT_OUT: Final = frozenset(("topic", "timestampType", "leaderEpoch"))
"""The columns of a Spark frame of records, besides those of a scan. It leaves them out for the same reason."""

BATCH_ROWS_MAX: Final = 32768
"""Rows of one Arrow batch."""
BATCH_SIZE: Final = 2 << 20
"""Bytes of keys, values and headers at which an Arrow batch ends; only a single larger record batch makes it
larger."""
READ_SIZE: Final = 1 << 19
"""Bytes asked of a source at first: what stays in a processor's near cache until it is columns, beside the columns
themselves."""


class _Selection(TypedDict):
    partition: int
    start_offset: int
    end_offset: int
    start_timestamp: int | None
    end_timestamp: int | None


class BatchSource(Protocol):
    """One partition to be read: a :class:`pyreplog.log.LogReader`, or a live log of the runtime. Safe to read from
    any thread."""

    @property
    def start_offset(self) -> int:
        """The first offset that is there."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset behind the last one a reader may see."""
        ...

    @property
    def max_batch_bytes(self) -> int:
        """The most bytes that a scan unpacks of one compressed batch, in parts."""
        ...

    def refresh(self) -> None:
        """Take notice of what was appended since."""
        ...

    def read(self, offset: int, size_max: int) -> Buffer:
        """Whole batches as stored, from the one that holds ``offset`` (or the first behind it), about ``size_max``
        bytes and at least one; empty at the end."""
        ...

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record whose timestamp is at least ``timestamp``; None where there is
        none."""
        ...

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """The error for the batch that was read for ``offset`` and turned out to be damaged, with its place."""
        ...


def timestamp_ms(value: object, name: str) -> int:
    """``value`` in ms since 1970: a whole number, or an aware datetime (a part of a ms counts up, so that "at or
    after" stays exact)."""
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
    """The rows of a table, record batch or stream that speaks Arrow's C interfaces, which is read to its end.

    Raises TypeError for anything else and for columns of the wrong type, ConfigError where ``value`` is missing,
    and for a column of another name, which would be lost in silence.
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
    """Raises TypeError for a Polars frame with a column of Python objects: what it hands over as Arrow is their
    addresses in memory, as bytes that look like any other."""
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
    """Raises :class:`ConfigError` where a range ends before it begins. An offset below 0 is in no log, and refused
    with its bounds."""
    if start is not None and end is not None and start > end >= 0:
        raise ConfigError(f"start {start} lies behind end {end}")
    if start_timestamp is not None and end_timestamp is not None and start_timestamp > end_timestamp:
        raise ConfigError(f"start_timestamp {start_timestamp} lies behind end_timestamp {end_timestamp}")


def _checked_offset(value: object, name: str) -> int | None:
    if value is None:
        return None
    return whole(name, value)


class Scan:
    """Rows of one log or of a topic's partitions, read anew each time somebody asks for the stream.

    Hand it to anything that takes Arrow: ``pyarrow.table(scan)``, ``polars.DataFrame(scan)``,
    ``duckdb.from_arrow(scan)``. Each pass sees what was readable when it began. Partitions come one after another,
    each in offset order. Raises :class:`ConfigError` and :class:`OffsetOutOfRangeError` when it is made; what goes
    wrong while it is read reaches the importer as its own kind of error.
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
        """``sources`` are (partition, where to read it). ``start`` and ``end`` are offsets of each partition,
        ``end`` not included; ``start_timestamp`` and ``end_timestamp`` are ms since 1970 or aware datetimes, the
        end not included. A record without a timestamp is in no timestamp range. ``name`` is what errors call it.
        ``checked`` says that the sources check the CRC of what they read, as :class:`pyreplog.log.LogReader` does.
        ``spread``: the sources share what there is, so one that ends before ``start`` has no rows; where nobody
        says so, that is an error. ``logs``: the name of each source's log, if the sources belong to several. It is
        the value of the column ``log``.
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
            "a Scan cannot be copied or pickled: it reads the files that its log has open. Send what it holds:"
            " pyarrow.table(scan)"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, in order."""
        return self._columns

    def __repr__(self) -> str:
        return f"<pyreplog.Scan of {self._name}: {', '.join(self._columns)}>"

    def __arrow_c_schema__(self) -> object:
        """A capsule of the Arrow schema."""
        return ArrowSchema(self._columns).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule of a fresh pass over the rows. ``requested_schema`` is not acted on, as the interface
        allows."""
        return ArrowStream(self._columns, self.batches()).__arrow_c_stream__(requested_schema)

    def batches(self) -> Iterator[ArrowBatch]:
        """A fresh pass as Arrow batches (each speaks ``__arrow_c_array__``), of at most 32768 rows and about 2 MiB,
        or, where that is more, one batch of the log. Errors come as they are."""
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
        """The half-open range of offsets to read now."""
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
        """The Arrow batches that one partition completes; what is left stays in ``builder``."""
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
                del data  # before the next is read: two of them in turn cost new memory each
                if builder.next_offset <= offset:
                    raise InternalError(f"{where} gave batches below offset {offset} when asked from there")
                offset = builder.next_offset
        except CorruptLogError:
            raise  # says where already
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
        """Add the batches of ``data``, handing out what becomes full; returns whether ``end`` was reached."""
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


def _unpacked(
    builder: ColumnsBuilder, log: str, batch: RecordBatch, parts: Iterator[Part], selection: _Selection
) -> Iterator[ArrowBatch]:
    """Add the records of a compressed batch, handing out what becomes full."""
    for payload, count, last_offset in parts:
        size = 0 if payload is None else memoryview(payload).nbytes
        if builder.row_count and (builder.row_count + count > BATCH_ROWS_MAX or builder.size + size > BATCH_SIZE):
            yield from _finished(builder, log)
        if last_offset >= selection["start_offset"]:
            builder.append(batch, payload, record_count=count, **selection)
        if last_offset >= selection["end_offset"] - 1:
            break


def _next_size(asked: int, got: int) -> int:
    """Bytes to ask for after ``got`` of ``asked`` came, in whole batches: a bit more than these were, so that as
    many like them are read to their end and little behind it. That is kept to as long as it comes true. Where
    little came a segment ended, which says nothing."""
    if asked - asked // 32 <= got <= asked - asked // 128:
        return asked
    if got > asked:  # one batch, which was read twice
        return got + got // 64
    if asked == READ_SIZE and got >= READ_SIZE // 2:
        return min(got + got // 64, READ_SIZE)
    return READ_SIZE


def _finished(builder: ColumnsBuilder, log: str) -> list[ArrowBatch]:
    """The rows of ``log`` that were gathered; a single record batch may have made it longer than a batch should
    be."""
    return builder.finish(log).slices(BATCH_ROWS_MAX)
