"""Encoder: encode values and tables as the batches that a log writes. All records of an append are
encoded and checked before the first is written, so that a refused append leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import overload

from pyreplog.arrow import ArrowRows
from pyreplog.config import RECORDS_SIZE_MAX, batch_max, producer_batch_max
from pyreplog.errors import InvalidRecordError, MessageTooLargeError
from pyreplog.log import Log, LogValidator, first_unkeyed, unkeyed_text
from pyreplog.ports import Buffer, Headers
from pyreplog.record import HEADER_SIZE, BatchBuilder, RecordBatch
from pyreplog.timestamps import TIMESTAMP_MAX, beyond_last, record_ms

__all__ = ["Encoder", "RowStamps"]


class Encoder:
    """Make one log's batches, in memory that is reused. Only one thread at a time may use it,
    unless a method says otherwise."""

    def __init__(self, log: Log, now_ms: Callable[[], int]) -> None:
        """``now_ms`` returns the time for records without one."""
        config = log.config
        self._log_name = str(log.topic_partition)
        self._validator = LogValidator(config, log.topic_partition, log.clock)
        self.now_ms = now_ms
        self.bounded = self._validator.bounded
        """Whether a record's own timestamp may be outside the log's bounds. The time of the log's
        clock never is."""
        self.keyed = self._validator.keyed
        """Whether each record must have a key."""
        self.size_max = batch_max(config)
        """Bytes of a batch of one record, before it is compressed."""
        self.size_target = min(self.size_max, max(producer_batch_max(config), HEADER_SIZE + 1))
        """Bytes of a batch of several records; fewer if the log compresses, so that a batch that
        grows by compression is not
        refused."""
        self._builder = BatchBuilder(self.size_max, self.size_target, timestamp_max=TIMESTAMP_MAX)
        self._table_memory = bytearray()

    def one(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int | datetime | None
    ) -> memoryview:
        """Return a batch of one record."""
        if key is None and self.keyed:
            raise self.unkeyed(0)
        builder = self._builder
        builder.reset()
        if not builder.append(value, key, headers, self.now_ms() if timestamp is None else timestamp):
            raise self._too_large(0)
        batch = builder.finish()
        if self.bounded and timestamp is not None:
            self._validator.check_times(RecordBatch(batch), 0)
        return batch

    def many(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int | datetime] | None,
        stamp: int,
    ) -> list[tuple[memoryview, int]]:
        """Return (batch, record count) of all ``values`` in order; there must be at least one
        value. ``stamp`` is the time of all if ``timestamps`` is None."""
        if self.keyed:
            self._check_keys(keys)
        builder = self._builder
        builder.reset()
        count = len(values)
        taken = builder.extend(values, keys, headers, timestamps, stamp, 0)
        bounded = self.bounded and timestamps is not None
        if taken == count and not bounded:
            return [(builder.finish(), count)]
        batches: list[tuple[memoryview, int]] = []
        first = 0
        while True:
            if taken == first:
                raise self._too_large(first)
            batch = builder.finish()
            if bounded:
                self._validator.check_times(RecordBatch(batch), first)
            if count > 1:
                self.check_size(batch, first)
            batches.append((batch, taken - first))
            if taken == count:
                return batches
            builder.reset()
            first = taken
            taken = builder.extend(values, keys, headers, timestamps, stamp, first)

    def check_rows(self, rows: ArrowRows) -> None:
        """Raise the error of the first row that cannot be appended. Any thread, beside the others."""
        row = rows.check(self.size_max)
        if row < rows.row_count:
            raise self._too_large(row)

    def rows(self, rows: ArrowRows) -> Iterator[tuple[memoryview, int, int, int]]:
        """Yield (batch, first row, row count, time of rows without one) in order. A batch is valid
        until the next one is taken. REQUIRES :meth:`check_rows`."""
        stamp = self.now_ms()
        bounded = self.bounded and "timestamp" in rows.names
        if (
            self.keyed
            or bounded
            or (self.size_target < self.size_max and rows.check(self.size_target) < rows.row_count)
        ):
            # Encode twice, because there is memory for one batch only.
            for batch, first, _, _ in self._batches(rows, stamp):
                if bounded:
                    self._validator.check_times(RecordBatch(batch), first)
                if self.keyed and (at := first_unkeyed(RecordBatch(batch))) >= 0:
                    raise self.unkeyed(first + at)
                self.check_size(batch, first)
        return self._batches(rows, stamp)

    def _batches(self, rows: ArrowRows, stamp: int) -> Iterator[tuple[memoryview, int, int, int]]:
        row = 0
        while row < rows.row_count:
            if len(self._table_memory) < self.size_max:
                self._table_memory = bytearray(self.size_max)
            first = row
            row, size = rows.encode(first, stamp, self._table_memory, self.size_target)
            yield memoryview(self._table_memory)[:size], first, row - first, stamp

    def check_time(self, timestamp: int | datetime) -> int | datetime:
        """Return the checked ``timestamp`` of a record that will share a batch. Any thread.

        Raises :class:`InvalidTimestampError` if it is out of bounds. The builder refuses an object
        that is no time."""
        try:
            found = record_ms(timestamp)
        except TypeError:
            return timestamp
        if found > TIMESTAMP_MAX:
            raise beyond_last(found)
        if found >= 0:
            self._validator.check_time(found)
        return found

    def _check_keys(self, keys: Sequence[Buffer | None] | None) -> None:
        index = 0 if keys is None else next((index for index, key in enumerate(keys) if key is None), -1)
        if index >= 0:
            raise self.unkeyed(index)

    def unkeyed(self, index: int) -> InvalidRecordError:
        """Return the error for record ``index`` of a call, which has no key although the log is compacted."""
        return InvalidRecordError(unkeyed_text(index, self._log_name))

    def check_size(self, batch: memoryview, first: int) -> None:
        """Raise :class:`MessageTooLargeError` if the log would refuse ``batch`` because compression
        makes it larger. ``first`` is the index of its first record in the call."""
        if len(batch) > self.size_target:  # it has one record
            try:
                self._validator.check_size(RecordBatch(batch))
            except MessageTooLargeError as error:
                raise self._too_large(first, " once it is compressed") from error

    def _too_large(self, index: int, when: str = "") -> MessageTooLargeError:
        larger = "raise the topic's max.message.bytes (and segment.bytes)"
        if self.size_max == RECORDS_SIZE_MAX:
            larger = "leave out compression.type: a compressed batch cannot be larger"
        return MessageTooLargeError(
            f"record {index} does not fit a batch of {self.size_max} bytes{when}; nothing was appended. Send less at"
            f" once, or {larger}"
        )


class RowStamps(Sequence[int]):
    """The timestamps (ms) of a table's appended rows, for the Acks of these rows. Each is looked up
    on access."""

    __slots__ = ("_count", "_first", "_rows", "_stamp")

    def __init__(self, rows: ArrowRows, first: int, count: int, stamp: int) -> None:
        self._rows = rows
        self._first = first
        self._count = count
        self._stamp = stamp

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        return self._rows.timestamp(self._first + index, self._stamp)
