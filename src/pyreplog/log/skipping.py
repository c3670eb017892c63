"""Reading behind damage: what is left out is told, with its offsets and its place, and everything else is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from pyreplog._core import RecordBatch
from pyreplog.errors import BatchTooLargeError, ConfigError, CorruptError, CorruptLogError
from pyreplog.log.isolation import READ_COMMITTED, READ_UNCOMMITTED, StableSource
from pyreplog.ports import Buffer
from pyreplog.record import Record, parts_of, record_lists_of, split

_CHUNK_SIZE: Final = 1 << 20


def check_skipping(isolation: str) -> None:
    """Raises :class:`ConfigError` for a reader of committed records: a damaged marker hides whether its transaction
    was aborted."""
    if isolation == READ_COMMITTED:
        raise ConfigError(
            f"isolation {READ_COMMITTED!r} cannot skip damaged batches: if the marker that ends a transaction is"
            f" damaged, nobody can say whether its records were committed or aborted; read {READ_UNCOMMITTED!r} to skip"
            " damaged batches, or do not skip them"
        )


class Placed(Protocol):
    """A source that can tell the place of a batch."""

    @property
    def max_batch_bytes(self) -> int:
        """The most bytes that users of this source unpack of one compressed batch, in parts."""
        ...

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """The error for the batch that was read for ``offset`` and turned out to be damaged, with its place."""
        ...


class SkippedSource(StableSource, Protocol):
    """A source that can also show what damage hides."""

    def see_behind(self) -> None:
        """See also the whole batches behind damage at the end of a lone folder without a mark."""
        ...


class SkippingSource:
    """``source`` without its damaged batches. ``tell`` gets the error of each range that a pass leaves out. As
    thread-safe as ``source``.

    A batch is read only if all of its records are sound, so a reader never gets a part of a batch.
    """

    def __init__(self, source: SkippedSource, tell: Callable[[CorruptLogError], object]) -> None:
        self._source = source
        self._tell = tell
        source.see_behind()

    @property
    def start_offset(self) -> int:
        """The first offset that is there."""
        return self._source.start_offset

    @property
    def end_offset(self) -> int:
        """The high watermark."""
        return self._source.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Of the source."""
        return self._source.last_stable_offset

    @property
    def max_batch_bytes(self) -> int:
        """Of the source."""
        return self._source.max_batch_bytes

    def refresh(self) -> None:
        """Take notice of what was appended since."""
        self._source.refresh()
        self._source.see_behind()

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Of the source."""
        return self._source.damage(offset, reason)

    def read(self, offset: int, size_max: int) -> Buffer:
        """Whole sound batches from the one that holds ``offset`` on, or the next sound one; empty at the end."""
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
        """Bytes of the sound batches that ``data`` begins with. Raises :class:`CorruptLogError` if the first one is
        damaged."""
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
        """The sound batches that hold an offset in the half-open range. The first may begin below ``start``, the
        last end above ``end``."""
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
        """An offset that no sound record of at least ``timestamp`` (ms) lies before, and ``timestamp``: the start
        of the log if damage keeps the search from an exact answer; None if no record is so late."""
        try:
            return self._source.find_timestamp(timestamp)
        except CorruptError:
            return self._source.start_offset, timestamp


def _check(batch: RecordBatch, size_max: int) -> None:
    batch.check_crc()
    if batch.is_control:
        return
    for payload, count, _ in parts_of(batch, size_max):
        if count == batch.record_count:  # else the parts were checked as they were cut
            batch.check_records(payload)


def placed_lists(
    source: Placed, batch: RecordBatch, topic: str, partition: int, start: int, end: int
) -> Iterator[list[Record]]:
    """The records of ``batch``, which was read from ``source``, as :func:`record_lists_of` gives them. Damage is a
    :class:`CorruptLogError` with its place."""
    try:
        yield from record_lists_of(batch, topic, partition, start, end, source.max_batch_bytes)
    except BatchTooLargeError as error:
        raise error.placed(source.damage(max(start, batch.base_offset), "")) from None
    except CorruptError as error:
        raise source.damage(max(start, batch.base_offset), error.reason) from None
