"""Reading behind damage: damaged batches are skipped and reported with offsets and place, all others are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from pyreplog._core import RecordBatch
from pyreplog.errors import BatchTooLargeError, ConfigError, CorruptError, CorruptLogError
from pyreplog.log.read_committed import READ_COMMITTED, READ_UNCOMMITTED, StableSource
from pyreplog.ports import Buffer
from pyreplog.record import Record, parts_of, record_lists_of, split

_CHUNK_SIZE: Final = 1 << 20


def check_skipping(isolation: str) -> None:
    """Raise :class:`ConfigError` for a reader of committed records, because a damaged marker hides whether its
    transaction was aborted."""
    if isolation == READ_COMMITTED:
        raise ConfigError(
            f"isolation {READ_COMMITTED!r} cannot skip damaged batches: if the marker that ends a transaction is"
            f" damaged, it is unknown whether its records were committed or aborted; read {READ_UNCOMMITTED!r} to skip"
            " damaged batches, or do not skip them"
        )


class Placed(Protocol):
    """A source that can tell the file and position of a batch."""

    @property
    def max_batch_bytes(self) -> int:
        """The number of bytes up to which readers unpack one compressed batch, in parts."""
        ...

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error, with file and position, for the damaged batch that was read for ``offset``."""
        ...


class SkippedSource(StableSource, Protocol):
    """A source that can also show the batches behind damage."""

    def see_behind(self) -> None:
        """Also show the sound batches behind damage at the end of a lone folder without a mark."""
        ...


class SkippingSource:
    """The sound batches of ``source``. ``tell`` gets the error of each range that a pass skips. As thread-safe as
    ``source``.

    A batch is read only if all of its records are sound, so a reader never gets a part of a batch.
    """

    def __init__(self, source: SkippedSource, tell: Callable[[CorruptLogError], object]) -> None:
        self._source = source
        self._tell = tell
        source.see_behind()

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._source.start_offset

    @property
    def end_offset(self) -> int:
        """The high watermark."""
        return self._source.end_offset

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset of the source."""
        return self._source.last_stable_offset

    @property
    def max_batch_bytes(self) -> int:
        """The number of bytes up to which readers unpack one compressed batch, in parts."""
        return self._source.max_batch_bytes

    def refresh(self) -> None:
        """Look for batches that were appended since the last call."""
        self._source.refresh()
        self._source.see_behind()

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error, with file and position, for the damaged batch that was read for ``offset``."""
        return self._source.damage(offset, reason)

    def read(self, offset: int, size_max: int) -> Buffer:
        """Return whole sound batches, beginning with the batch that holds ``offset`` or the next sound one; empty at
        the end."""
        while offset < self._source.end_offset:
            try:
                data = memoryview(self._source.read(offset, size_max))
                size = self._sound_size(data, offset)
                return data[:size]
            except CorruptLogError as error:
                self._tell(error)
                offset = max(error.end, offset + 1)
        return memoryview(b"")

    def _sound_size(self, data: memoryview, offset: int) -> int:
        """Return the size of the sound batches at the begin of ``data``. Raises :class:`CorruptLogError` if the first
        batch is damaged."""
        size = 0
        for batch in split(data):
            try:
                _check(batch, self._source.max_batch_bytes)
            except BatchTooLargeError as error:
                if size:
                    break
                raise error.placed(self._source.damage(max(offset, batch.base_offset), "")) from None
            except CorruptError as error:
                if size:
                    break
                raise self._source.damage(max(offset, batch.base_offset), error.reason) from None
            size += batch.size
        return size

    def batches(self, start: int, end: int) -> Iterator[RecordBatch]:
        """Yield the sound batches that hold an offset in the half-open range. The first may begin below ``start``, the
        last may end above ``end``."""
        end = min(end, self.end_offset)
        while start < end:
            found = split(self.read(start, _CHUNK_SIZE))
            for batch in found:
                if batch.base_offset >= end:
                    return
                yield batch
                start = batch.next_offset
            if not found:
                return

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record whose timestamp is at least ``timestamp`` (ms), or None. If
        damage prevents an exact answer, returns the start of the log and ``timestamp``, so that no sound record of
        that time is missed."""
        try:
            return self._source.find_timestamp(timestamp)
        except CorruptError:
            return self._source.start_offset, timestamp


def _check(batch: RecordBatch, size_max: int) -> None:
    batch.check_crc()
    if batch.is_control:
        return
    for payload, count, _ in parts_of(batch, size_max):
        if count == batch.record_count:  # otherwise `parts_of` has checked the parts
            batch.check_records(payload)


def placed_lists(
    source: Placed, batch: RecordBatch, topic: str, partition: int, start: int, end: int
) -> Iterator[list[Record]]:
    """Yield the records of ``batch``, which was read from ``source``, as :func:`record_lists_of` does. Raises
    :class:`CorruptLogError` with file and position if the batch is damaged."""
    try:
        yield from record_lists_of(batch, topic, partition, start, end, source.max_batch_bytes)
    except BatchTooLargeError as error:
        raise error.placed(source.damage(max(start, batch.base_offset), "")) from None
    except CorruptError as error:
        raise source.damage(max(start, batch.base_offset), error.reason) from None
