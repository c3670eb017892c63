"""The checks of a leader and of a follower before an append, and the rewriting of a client's batch. Touches no
file.

A leader takes one batch of a client, and rewrites it as the topic's settings require. A follower takes all of its
leader's bytes unchanged, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyreplog._core import HEADER_SIZE, RecordBatch, find_unkeyed
from pyreplog.config import INT64_MAX, RECORDS_SIZE_MAX, LogConfig, batch_max
from pyreplog.errors import (
    CorruptError,
    InternalError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    OutcomeUnknownError,
    PyreplogError,
    StorageError,
    UnexpectedAppendOffsetError,
    UnknownServerError,
    excerpt,
    is_interruption,
)
from pyreplog.ports import Buffer, Clock
from pyreplog.record import (
    CODEC_NUMBERS,
    control_records,
    payload_of,
    recompress,
    set_append_time,
    set_max_timestamp,
    validate_from_client,
)
from pyreplog.values import NO_TIMESTAMP, TopicPartition

Fetched = tuple[int, int, int, int, int]
"""A checked batch of a leader: base offset, last offset, leader epoch, size in bytes, greatest timestamp in ms."""


class Appended(NamedTuple):
    """The place of one appended batch. ``timestamp`` is the log's append time in ms, or -1 if the records keep
    their own. ``size`` is in bytes.

    ``duplicate``: its producer had sent the batch before. Nothing was appended (``size`` 0), and the offsets are
    those of the first append.
    """

    base_offset: int
    last_offset: int
    timestamp: int
    record_count: int
    size: int
    duplicate: bool = False


class LogValidator:
    """Checks and rewrites the batches that are appended to one log, by its settings. Immutable; the log makes a new
    one if its settings change."""

    __slots__ = (
        "_clock",
        "_codec",
        "_config",
        "_topic_partition",
        "append_time",
        "bounded",
        "converts",
        "keyed",
        "rewrites",
        "size_max",
    )

    def __init__(self, config: LogConfig, topic_partition: TopicPartition, clock: Clock) -> None:
        self._config = config
        self._topic_partition = topic_partition
        self._clock = clock
        self._codec = None if config.compression_type == "producer" else CODEC_NUMBERS[config.compression_type]
        #: Whether the leader's clock replaces the records' timestamps.
        self.append_time = config.message_timestamp_type == "LogAppendTime"
        #: Whether the topic bounds the records' own timestamps.
        self.bounded = not self.append_time and (
            config.message_timestamp_before_max_ms != INT64_MAX or config.message_timestamp_after_max_ms != INT64_MAX
        )
        #: Whether :meth:`take` changes a trusted, writable batch; and whether it changes or checks
        #: one whose times were not checked yet.
        self.converts = self.append_time or self._codec is not None
        self.rewrites = self.converts or self.bounded
        #: Whether each record must have a key, because the log is compacted.
        self.keyed = config.compacts
        #: The size in bytes of the largest batch that a client may append.
        self.size_max = batch_max(config)

    def take(self, batch: Buffer, *, trusted: bool, times_checked: bool = False) -> tuple[memoryview, RecordBatch]:
        """Return one batch as a leader appends it, and its header: checked unless ``trusted``, and rewritten if the
        settings require it.

        Raises the errors of :meth:`Log.append_as_leader`, also for unforeseen errors of the check. Nothing has
        changed then.
        """
        try:
            view = memoryview(batch)
            header = RecordBatch(view)
            if not trusted:
                view, header = admit(view, header)
            if self.bounded and not times_checked:
                self.check_times(header)
            if self.keyed:
                self.check_keys(header)
            if self.converts or view.readonly:
                view, header = self.rewrite(view, header)
        except Exception as error:
            if (
                isinstance(error, PyreplogError)
                or (trusted and isinstance(error, MemoryError))
                or is_interruption(error)
            ):
                raise
            about = f"{type(error).__name__}: {excerpt(str(error))}"
            raise UnknownServerError(
                f"a batch for {self._topic_partition} could not be checked ({about}); nothing was appended"
            ) from error
        return view, header

    def check(self, header: RecordBatch) -> None:
        """Check the size and the times of a batch that may be appended later.

        Raises the errors of :meth:`Log.append_as_leader` for them: :class:`MessageTooLargeError`,
        :class:`InvalidTimestampError`, :class:`CorruptError`, and of a compacted log
        :class:`InvalidRecordError` for a record without a key.
        """
        if self.bounded:
            self.check_times(header)
        if self.keyed:
            self.check_keys(header)
        self.check_size(header)

    def check_size(self, header: RecordBatch) -> None:
        """Check only the size of a batch, after it is recompressed with the topic's codec."""
        size = header.size
        # Another codec may add some bytes for each of its blocks.
        if self._codec is not None and header.codec != self._codec and size + size // 8 + 64 > self.size_max:
            size = RecordBatch(self._recompress(header, self._codec)).size
        if size > self.size_max:
            raise MessageTooLargeError(self.too_large(size))

    def rewrite(self, view: memoryview, header: RecordBatch) -> tuple[memoryview, RecordBatch]:
        """Return the batch in writable memory, with the topic's codec and the log's append time if the settings
        require them."""
        if self._codec is not None and header.codec != self._codec:
            view = memoryview(self._recompress(header, self._codec))
        elif view.readonly or self.append_time:
            # The sender's bytes stay unchanged: if the append is refused, the sender may try again.
            view = memoryview(bytearray(view))
        if self.append_time:
            set_append_time(view, self._clock.wall_ms())
        return view, RecordBatch(view)

    def _recompress(self, header: RecordBatch, codec: int) -> bytearray:
        if header.codec == 0 and codec and header.size > RECORDS_SIZE_MAX:
            raise MessageTooLargeError(self.too_large(header.size))  # readers would refuse it
        return recompress(header, codec)

    def check_keys(self, header: RecordBatch) -> None:
        """Raise :class:`InvalidRecordError` if a record of the batch has no key."""
        at = first_unkeyed(header)
        if at >= 0:
            raise InvalidRecordError(unkeyed_text(at - header.base_offset, str(self._topic_partition)))

    def check_times(self, header: RecordBatch, first: int | None = None) -> None:
        """Raise :class:`InvalidTimestampError` if a record's own timestamp is out of the topic's bounds. REQUIRES
        that the topic has bounds.

        ``first``: our own encoder made the batch, and its first record is record ``first`` of the call.
        """
        now, earliest, latest = self._bounds()
        if (
            first is not None
            and self._config.message_timestamp_before_max_ms == INT64_MAX
            and header.max_timestamp <= latest
        ):
            return  # the maximum timestamp in our own encoder's header is right
        for record in header.records(payload_of(header)):
            timestamp = record.timestamp
            if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
                index = record.offset - header.base_offset
                which = f"record {index} of a batch" if first is None else f"record {first + index}"
                raise self._out_of_bounds(which, timestamp, now)

    def check_time(self, timestamp: int) -> None:
        """Raise :class:`InvalidTimestampError` if the ``timestamp`` of one record is out of the topic's bounds."""
        now, earliest, latest = self._bounds()
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            raise self._out_of_bounds("a record", timestamp, now)

    def _bounds(self) -> tuple[int, int, int]:
        """Return the time now and the earliest and latest allowed timestamps, in ms. As in Kafka the bounds are
        inclusive, and a record without a timestamp is accepted."""
        now = self._clock.wall_ms()
        return (
            now,
            now - self._config.message_timestamp_before_max_ms,
            now + self._config.message_timestamp_after_max_ms,
        )

    def _out_of_bounds(self, which: str, timestamp: int, now: int) -> InvalidTimestampError:
        name = "before" if timestamp < now else "after"
        return InvalidTimestampError(
            f"{which} for {self._topic_partition} has the timestamp {timestamp}, the clock says {now}: "
            f"outside message.timestamp.{name}.max.ms"
        )

    def too_large(self, size: int) -> str:
        """Return the error text for a batch of ``size`` bytes, with the setting that it exceeds."""
        config = self._config
        if size > config.max_message_bytes:
            limit = f"max.message.bytes of {self._topic_partition} is {config.max_message_bytes}"
        elif size <= config.segment_bytes:
            return (
                f"a batch of {size} bytes; compressed, as compression.type of {self._topic_partition} has it, readers"
                f" take {RECORDS_SIZE_MAX} at most: append less at a time"
            )
        else:
            limit = f"segment.bytes of {self._topic_partition} is {config.segment_bytes}"
        return (
            f"a batch of {size} bytes; {limit}: append less at a time, or make that larger (`config=` of open_log,"
            " create_topic)"
        )

    def not_cut(self, count: int) -> OutcomeUnknownError:
        """Return the error for ``count`` records after a failed write whose bytes could not be cut off."""
        tried = f"append of {count} record{'' if count == 1 else 's'} to {self._topic_partition}"
        return OutcomeUnknownError(tried, "the write failed, and its bytes could not be cut off again")


def check_from_client(view: memoryview, header: RecordBatch) -> int:
    """Check that ``view`` holds exactly one batch, which a client may write. Return the greatest timestamp of
    its records. Raises :class:`CorruptError`, :class:`InvalidRequestError`, :class:`InvalidTimestampError`."""
    if header.size != view.nbytes:
        raise CorruptError("bytes behind the batch", position=header.size)
    return validate_from_client(header)


def is_valid(batch: Buffer) -> bool:
    """Return whether a client's batch may be appended unchanged. For other batches :func:`admit` raises the error,
    or corrects the header."""
    try:
        header = RecordBatch(batch)
        return check_from_client(memoryview(batch), header) == header.max_timestamp
    except Exception as error:
        if isinstance(error, (InternalError, StorageError)) or is_interruption(error):
            raise
        return False  # the full check of the batch meets an unforeseen error again, and raises it


def admit(view: memoryview, header: RecordBatch) -> tuple[memoryview, RecordBatch]:
    """Check a client's batch with :func:`check_from_client`, and set the greatest timestamp in its header to that
    of its records, because searches by time, retention and segments use the header. Kafka's leader does the same,
    and does not report it to the client."""
    max_timestamp = check_from_client(view, header)
    if max_timestamp == header.max_timestamp:
        return view, header
    if view.readonly:
        view = memoryview(bytearray(view))
    set_max_timestamp(view, max_timestamp)
    return view, RecordBatch(view)


def check_fetched(
    parts: Sequence[Buffer], end_offset: int, latest_epoch: int
) -> tuple[list[memoryview], list[Fetched], bool]:
    """Check that a leader's batches, whole ones in each of ``parts``, may follow the log's end.

    The log ends at ``end_offset``, in ``latest_epoch``. Returns the memory of the parts, the batches,
    and whether offsets are missing before or between them. Raises
    :class:`UnexpectedAppendOffsetError` for an offset that is too low, and :class:`CorruptError` for
    a wrong checksum, a leader epoch that falls, or a malformed control record.
    """
    views: list[memoryview] = []
    batches: list[Fetched] = []
    expected = end_offset
    latest = latest_epoch
    gaps = False
    for part in parts:
        view = memoryview(part)
        position, size = 0, view.nbytes
        while position < size:
            batch = RecordBatch(view, position)
            batch.check_crc()
            base, last, epoch, length, timestamp, _, is_control = batch.place()
            if base < expected:
                reason = "a fetched batch begins below the end of the log"
                raise UnexpectedAppendOffsetError(
                    reason, first_offset=base, last_offset=last, end_offset=expected, position=position
                )
            if epoch < latest or epoch < 0:
                raise CorruptError(f"a fetched batch has leader epoch {epoch} after {latest}", position=position)
            if is_control:
                control_records(batch)
            batches.append((base, last, epoch, length, timestamp))
            if base != expected:
                gaps = True
            expected, latest = last + 1, epoch
            position += length
        views.append(view)
    return views, batches, gaps


def cut_fetched(views: Sequence[memoryview], batches: Sequence[Fetched]) -> list[memoryview]:
    """Return the bytes of each of ``batches``, which lie one after another in ``views``."""
    cut: list[memoryview] = []
    for view in views:
        position = 0
        while position < view.nbytes:
            size = batches[len(cut)][3]
            cut.append(view[position : position + size])
            position += size
    return cut


def unkeyed_text(index: int, log: str) -> str:
    """Return the error text for record ``index`` of an append to a compacted ``log``, which has no key."""
    return (
        f"record {index} has no key, and {log} is compacted (cleanup.policy): it keeps the newest record of each key;"
        " nothing was appended. Give each record a key"
    )


def first_unkeyed(batch: RecordBatch) -> int:
    """Return the offset of the first record of ``batch`` without a key; -1 if all have one. Control batches are no
    records."""
    if batch.is_control or not batch.record_count:
        return -1
    records = payload_of(batch)
    return find_unkeyed(batch.data[:HEADER_SIZE], batch.payload if records is None else records)
