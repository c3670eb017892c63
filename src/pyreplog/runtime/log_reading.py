"""LogReading: the methods of a log's face that read records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from pyreplog.arrow import Scan, check_range, timestamp_ms
from pyreplog.config import check_seconds, whole
from pyreplog.errors import ClosedError, CorruptLogError, NoRecordError, OffsetOutOfRangeError
from pyreplog.record import Record
from pyreplog.runtime.damage_teller import teller_of
from pyreplog.runtime.follow import follow
from pyreplog.runtime.read_position import ReadPosition
from pyreplog.runtime.skipping_view import SkippingView
from pyreplog.runtime.views import (
    CommittedView,
    LogView,
    ReaderView,
    WriterView,
    record_lists,
    records,
    records_in_time,
)
from pyreplog.system import Process

__all__ = ["LogReading"]


class LogReading:
    """The part of :class:`Log` that reads. Thread-safe, except that one thread at a time iterates over the log
    itself."""

    _name: str
    _view: WriterView | ReaderView | CommittedView
    _position: ReadPosition
    _process: Process
    """The process that opened the log."""
    _closed: bool

    def _check(self) -> None:
        if self._process.left:
            raise self._process.refuse(self._name)
        if self._closed:
            raise ClosedError(f"{self._name} is closed: open it again to use it")

    def _refreshed(self) -> WriterView | ReaderView | CommittedView:
        """Return the view, as of now."""
        self._check()
        self._view.refresh()
        return self._view

    def __iter__(self) -> Iterator[Record]:
        """The records from ``position`` to the end as it is now; ``position`` moves along."""
        return self._position.records(self._refreshed())

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        start_timestamp: int | datetime | None = None,
        end_timestamp: int | datetime | None = None,
        skip_damaged: bool | Callable[[CorruptLogError], object] = False,
    ) -> Iterator[Record]:
        """The records with ``start`` <= offset < ``end`` (default: all that is there now) and a
        timestamp in the range, if one is given.

        Timestamps: ms since 1970 or an aware datetime; ``end_timestamp`` is exclusive, and a record
        without timestamp is in no range. Raises OffsetOutOfRangeError at once if ``start`` is not
        in the log or ``end`` is below 0; a ``start`` at the end reads nothing, and an ``end``
        behind it means the end. ConfigError for a ``start`` behind ``end``, of offsets or
        timestamps.

        Damage raises CorruptLogError with its file, position, partition and offsets. With
        ``skip_damaged=True`` the damaged batches are left out instead, and a DamagedRecordsWarning
        tells each range of offsets; a function in its place gets the CorruptLogError of each range
        (``skip_damaged=ranges.append``). With isolation ``"read_committed"`` it is a ConfigError: a
        damaged marker hides how its transaction ended.
        """
        self._check()
        low = None if start_timestamp is None else timestamp_ms(start_timestamp, "start_timestamp")
        high = None if end_timestamp is None else timestamp_ms(end_timestamp, "end_timestamp")
        start, end = self._range(start, end, low, high)
        view = self._looking(skip_damaged)
        if low is None and high is None:
            return records(view, start, end)
        return records_in_time(view, start, end, low, high)

    def batches(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        skip_damaged: bool | Callable[[CorruptLogError], object] = False,
    ) -> Iterator[list[Record]]:
        """Return the records of :meth:`read` as lists, one list for each batch of the log.

        A batch of more than a few MiB comes in several lists, and no list is empty. Lists are for
        programs that handle many records with one call. ``start``, ``end``, ``skip_damaged`` and
        the errors are those of :meth:`read`.
        """
        self._check()
        start, end = self._range(start, end, None, None)
        return record_lists(self._looking(skip_damaged), start, end)

    def _range(self, start: int | None, end: int | None, low: int | None, high: int | None) -> tuple[int, int]:
        """Return the half-open range of offsets to read now; raise the errors of :meth:`read`."""
        if start is not None:
            start = whole("start", start)
        if end is not None:
            end = whole("end", end)
        check_range(start, end, low, high)
        self._view.refresh()
        first, last = self._view.start_offset, self._view.end_offset
        start = first if start is None else start
        if end is not None and end < 0:
            raise OffsetOutOfRangeError(end, first, last, log=self._name)
        if not first <= start <= last:
            self._check_start(start)
        return start, last if end is None else min(end, last)

    def __len__(self) -> int:
        """Return the number of offsets that readers may see: ``high_watermark - start_offset``.

        It is the number of records, unless offsets in between have none: a compacted log has such
        gaps, and so has a broker's log of transactions.
        """
        view = self._refreshed()
        return view.end_offset - view.start_offset

    def __bool__(self) -> bool:
        """Return True, for an empty log too, as a file does. ``len(log)`` says whether it is empty."""
        return True

    __reversed__ = None
    """A log is not a sequence: ``log[5]`` is the record at offset 5."""

    def __getitem__(self, offset: int) -> Record:
        """Return the record at ``offset``, or, for a negative number, counted from the end: ``log[-1]`` is the last
        record that readers may see.

        ``position`` does not move. ``log[-n]`` reads about n records. Raises NoRecordError, an
        IndexError, if there is no such record: the offset is outside the log, or it is a gap of a
        compacted log. TypeError for a slice: use :meth:`read`.
        """
        if isinstance(offset, slice):
            raise TypeError("a log has no slices: log.read(start, end) returns the records of a range")
        number = whole("offset", offset)
        view = self._refreshed()
        start, end = view.start_offset, view.end_offset
        if number >= 0:
            if start <= number < end and (found := next(records(view, number, number + 1), None)) is not None:
                return found
            why = f"it holds offsets {start} to {end - 1}"
            if start <= number < end:
                why = "it is a gap, as compaction and transactions leave them"
            raise NoRecordError(f"offset {number} of {self._name} has no record: {why}")
        low = end
        while low > start:
            low = max(start, end - 2 * (end - low) if low < end else end + number)
            last = deque(records(view, low, end), maxlen=-number)
            if len(last) == -number:
                return last[0]
        raise NoRecordError(
            f"{self._name} has no record {number}: it has fewer records in offsets {start} to {end - 1}"
        )

    def _looking(self, skip_damaged: bool | Callable[[CorruptLogError], object]) -> LogView | SkippingView:
        """Return the view, without its damaged batches if the caller wants that."""
        tell = teller_of(skip_damaged)
        return self._view if tell is None else SkippingView(self._view, tell)

    def follow(
        self,
        start: int | None = None,
        *,
        timeout: float | None = None,
        skip_damaged: bool | Callable[[CorruptLogError], object] = False,
    ) -> Iterator[Record]:
        """The records from ``start`` on (default: the first that is there), and then each new one
        as soon as it may be read, for ever.

        Ends when none came for ``timeout`` seconds (None: never), and when the log is closed, by
        any thread. Waits without using the processor: this process's own appends wake it at once,
        those of another process by inotify, within a millisecond or so; without inotify it looks
        every 50 ms, and on a network file system every 250 ms. Any number of threads may follow.
        Raises OffsetOutOfRangeError at once if ``start`` is not in the log, and ClosedError once a
        failed sync has poisoned it. ``skip_damaged``: see :meth:`read`.
        """
        begin, patience = self._follow_from(start, timeout)
        return follow(self._looking(skip_damaged), begin, patience)

    def _follow_from(self, start: int | None, timeout: float | None) -> tuple[int, float | None]:
        """Where to begin, and how long to wait; the errors of :meth:`follow`."""
        self._check()
        patience = check_seconds("timeout", timeout)
        if start is not None:
            start = whole("start", start)
        self._view.refresh()
        start = self._view.start_offset if start is None else start
        self._check_start(start)
        return start, patience

    def _check_start(self, start: int) -> None:
        """Raise OffsetOutOfRangeError unless the log has ``start``. Records above the high
        watermark are fine: they can be read later."""
        first, last = self._view.start_offset, self._view.log_end_offset
        if not first <= start <= last:
            raise OffsetOutOfRangeError(start, first, last, log=self._name)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        start_timestamp: int | datetime | None = None,
        end_timestamp: int | datetime | None = None,
        skip_damaged: bool | Callable[[CorruptLogError], object] = False,
    ) -> Scan:
        """Return the ranges of :meth:`read` as Arrow columns, for pyarrow, Polars, DuckDB or pandas
        (``pl.DataFrame(log.scan())``). ``skip_damaged``: see :meth:`read`."""
        self._check()
        self._view.refresh()
        view = self._looking(skip_damaged)
        return Scan(
            [(view.partition, view)],
            name=self._name,
            columns=columns,
            checked=view.is_checked,
            start=start,
            end=end,
            start_timestamp=start_timestamp,
            end_timestamp=end_timestamp,
        )

    def __arrow_c_schema__(self) -> object:
        """A capsule of the Arrow schema of all columns."""
        return self.scan().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A log is an Arrow table (``pl.DataFrame(log)``) of all readable records, as :meth:`scan`
        gives it."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def seek(self, offset: int | None = None, *, timestamp: int | datetime | None = None) -> int:
        """Move ``position`` to ``offset``, or to the first record at or after ``timestamp`` (the
        end if there is none); returns it."""
        self._check()
        view = self._view
        if (offset is None) == (timestamp is None):
            raise TypeError("seek takes an offset or a timestamp")
        if offset is None:
            at = timestamp_ms(timestamp, "timestamp")
            found = view.find_timestamp(at)
            if found is None:  # perhaps in records that were appended since
                view.refresh()
                found = view.find_timestamp(at)
            offset = view.end_offset if found is None else max(found[0], view.start_offset)
        else:
            offset = whole("offset", offset)
            if not view.start_offset <= offset <= view.end_offset:
                view.refresh()
                self._check_start(offset)
        self._position.move(offset)
        return offset
