"""What a log's face reads from: the log this process writes, or somebody else's files. Both give batches below the high watermark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final, Protocol

from pyreplog.errors import ClosedError, CorruptError, CorruptLogError
from pyreplog.log import LogReader
from pyreplog.ports import Buffer
from pyreplog.record import Record, records_of, split
from pyreplog.runtime.writer import LogWriter
from pyreplog.values import LogStats

__all__ = ["LogView", "ReaderView", "WriterView", "records"]

READ_SIZE: Final = 1 << 20
"""Bytes taken from the log at once."""


class LogView(Protocol):
    """One partition as a reader may see it."""

    topic: str
    partition: int

    @property
    def start_offset(self) -> int:
        """The first offset that is there."""
        ...

    @property
    def end_offset(self) -> int:
        """The high watermark: where what readers may see ends."""
        ...

    @property
    def log_end_offset(self) -> int:
        """Where the log ends, as far as this view can tell."""
        ...

    def refresh(self) -> None:
        """Take notice of what was appended since."""
        ...

    def read(self, offset: int, size_max: int) -> Buffer:
        """Whole batches below the end, from the one that holds ``offset`` on; empty at the end."""
        ...

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after ``timestamp`` (ms); None when there is none."""
        ...

    def stats(self) -> LogStats:
        """Numbers of the log."""
        ...

    def close(self) -> None:
        """Release it."""
        ...


class WriterView:
    """The log that this process writes. Any thread: positions are looked up under the writer's lock, bytes are read without it."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self.topic, self.partition = writer.log.topic_partition

    @property
    def start_offset(self) -> int:
        """The first offset that is there."""
        return self._writer.log.start_offset

    @property
    def end_offset(self) -> int:
        """The high watermark."""
        return self._writer.log.high_watermark

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._writer.log.end_offset

    def refresh(self) -> None:
        """See what ``append_nowait`` gathered, too: it was appended before."""
        self._writer.settle_gathered()

    def read(self, offset: int, size_max: int) -> Buffer:
        """Whole batches below the high watermark, from the one that holds ``offset`` on; empty at the end."""
        writer = self._writer
        parts = writer.read(offset, size_max, writer.log.high_watermark).parts()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after ``timestamp`` (ms)."""
        return self._writer.find_timestamp(timestamp)

    def stats(self) -> LogStats:
        """Numbers of the log."""
        return self._writer.stats()

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()


class ReaderView:
    """Files that somebody else may be writing. One lock: a reader's own state belongs to one thread at a time."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self.topic, self.partition = reader.topic, reader.partition

    @property
    def start_offset(self) -> int:
        """The first offset that is there."""
        return self._reader.start_offset

    @property
    def end_offset(self) -> int:
        """The high watermark, as far as the last :meth:`refresh` saw it."""
        return self._reader.end_offset

    @property
    def log_end_offset(self) -> int:
        """The same: a reader cannot tell what lies beyond."""
        return self._reader.end_offset

    def refresh(self) -> None:
        """Read the mark again."""
        with self._lock:
            self._reader.refresh()

    def read(self, offset: int, size_max: int) -> Buffer:
        """Whole batches below the high watermark, from the one that holds ``offset`` on; empty at the end."""
        with self._lock:
            return self._reader.read(offset, size_max)

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after ``timestamp`` (ms)."""
        with self._lock:
            return self._reader.find_timestamp(timestamp)

    def stats(self) -> LogStats:
        """What a reader can tell: sizes of what it may see; it appended nothing."""
        raise ClosedError("a log opened with mode='r' has no statistics of its own")

    def close(self) -> None:
        """Release the files."""
        with self._lock:
            self._reader.close()


def records(view: LogView, start: int, end: int) -> Iterator[Record]:
    """The records of the half-open range, each batch verified before its first one is handed out."""
    while start < end:
        data = view.read(start, READ_SIZE)
        before = start
        for batch in split(data):
            try:
                batch.check_crc()
            except CorruptError as error:
                raise CorruptLogError(error.reason, start=start, end=batch.next_offset) from None
            yield from records_of(batch, view.topic, view.partition, start, end)
            start = batch.next_offset
            if start >= end:
                return
        if start == before:
            return  # nothing more is there
