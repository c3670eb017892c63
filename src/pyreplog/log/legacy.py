"""The part of a segment that is still in Kafka's formats before 0.11: messages of magic 0 and 1, before the first
batch of format v2.

An upgraded broker went on in the same log, so old messages always come first. The prefix is walked once, its
checksums are verified, and the places of its messages are kept in groups. A read converts messages into batches of
format v2 (:mod:`pyreplog.record`). Indexes cover only the batches behind the prefix.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pyreplog._core import HEADER_SIZE, RecordBatch, whole_batches, write_header
from pyreplog.errors import CorruptError, CorruptLogError
from pyreplog.log.layout import INT64_MAX, SCAN_CHUNK_SIZE
from pyreplog.ports import File
from pyreplog.record import (
    MAGIC_POSITION,
    SIZE_UP_TO_MAGIC,
    LegacyMessage,
    compress,
    convert_legacy,
    legacy_batches,
    shallow_messages,
)
from pyreplog.values import TimestampType

_LOG_APPEND_TIME_BIT: Final = 0x08
_GROUP_SIZE: Final = 64 << 10
_MESSAGE_SIZE_MAX: Final = 64 << 20
"""A message with a larger size field counts as damaged."""


class _MessageRange(NamedTuple):
    """Consecutive messages, or a single compressed one: [position, position + size) in bytes."""

    position: int
    size: int
    max_timestamp: int


class LegacyPrefix:
    """The old messages at the begin of a segment's file: its first ``end`` bytes, with records below offset
    ``next_offset``. Immutable; belongs to the segment."""

    __slots__ = ("_file", "_first", "_groups", "_last_offsets", "end", "next_offset")

    def __init__(self, file: Callable[[], File], size: int, base_offset: int) -> None:
        """Walk the old messages in the first ``size`` bytes of the segment's file. ``file`` returns the file, and
        opens it if needed."""
        self._file = file
        self._groups: list[_MessageRange] = []
        # The last offset of each group.
        self._last_offsets: list[int] = []
        self._first = base_offset
        self.end = 0
        self.next_offset = base_offset
        while self.end < size:
            messages = _rising(_messages_at(file(), self.end, size), self.next_offset - 1, INT64_MAX)
            if not messages:
                break
            self._gather(messages)
            self.end += sum(message.size for message in messages)
            self.next_offset = messages[-1].offset + 1

    def _gather(self, messages: list[LegacyMessage]) -> None:
        position = self.end
        begin, largest, gathered = position, -1, 0
        for index, message in enumerate(messages):
            position += message.size
            gathered += message.size
            largest = max(largest, message.timestamp)
            alone = message.codec != 0 or (index + 1 < len(messages) and messages[index + 1].codec != 0)
            if alone or gathered >= _GROUP_SIZE or index + 1 == len(messages):
                self._groups.append(_MessageRange(begin, gathered, largest))
                self._last_offsets.append(message.offset)
                begin, largest, gathered = position, -1, 0

    def locate(self, offset: int, size_max: int, end_offset: int) -> tuple[int, memoryview] | None:
        """Return the position of the messages that hold ``offset`` (or come next), and batches made of them and of
        the following messages below ``end_offset``: up to about ``size_max`` bytes, at least one batch.

        None if there are no such messages. Ends before messages with wrong checksums; raises
        :class:`CorruptLogError` if the first ones are damaged."""
        slot = bisect_left(self._last_offsets, offset)
        parts: list[bytes] = []
        size = 0
        position = -1
        while slot < len(self._groups) and (size < size_max or not size):
            group = self._groups[slot]
            found, damage = self._convert(slot, offset, end_offset)
            if damage is not None and not found and not parts:
                raise damage
            if found:
                if position < 0:
                    position = group.position
                parts.append(found)
                size += len(found)
            if damage is not None or self._last_offsets[slot] >= end_offset - 1:
                break
            slot += 1
        if not parts:
            return None
        data = memoryview(b"".join(parts))
        return position, data[: whole_batches(data, INT64_MAX, size_max)]

    def batches(self) -> Iterator[bytes]:
        """Yield all records as batches that may be stored, in order, each group with the codec of its messages.

        Raises :class:`CorruptLogError` for messages that have changed since the walk, :class:`CorruptError` for a
        compressed message that is malformed.
        """
        for slot, group in enumerate(self._groups):
            found, damage = self._convert(slot, self._last_offsets[slot - 1] + 1 if slot else self._first, INT64_MAX)
            if damage is not None:
                raise damage
            codec = shallow_messages(self._bytes(group))[0][0].codec
            for batch in legacy_batches(found):
                yield _stored(batch, codec)

    def position_of(self, offset: int) -> int | None:
        """Return the position of the message that holds ``offset`` or comes next; None if it lies behind the
        prefix."""
        slot = bisect_left(self._last_offsets, offset)
        if slot == len(self._groups):
            return None
        group = self._groups[slot]
        position = group.position
        for message in shallow_messages(self._bytes(group))[0]:
            if message.offset >= offset:
                return position
            position += message.size
        return position

    def find_timestamp(self, timestamp: int, start_offset: int, end_offset: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record in the half-open range that is not older than
        ``timestamp`` (ms), or None."""
        for slot in range(bisect_left(self._last_offsets, start_offset), len(self._groups)):
            group = self._groups[slot]
            if group.max_timestamp < timestamp:
                continue
            data, damage = self._convert(slot, start_offset, end_offset)
            for batch in legacy_batches(data):
                found = batch.find_timestamp(timestamp, start_offset)
                if found is not None:
                    return found
            if damage is not None:
                raise damage
        return None

    def _convert(self, slot: int, start: int, end: int) -> tuple[bytes, CorruptLogError | None]:
        """Return batches of a group's records with ``start`` <= offset < ``end``, up to the first message that has
        changed since the walk; and the error for the rest, or None."""
        group = self._groups[slot]
        data = self._bytes(group)
        try:
            before = self._last_offsets[slot - 1] if slot else self._first - 1
            messages = _rising(shallow_messages(data)[0], before, self._last_offsets[slot])
        except CorruptError:
            messages = []
        if (
            messages
            and messages[-1].offset != self._last_offsets[slot]
            and sum(message.size for message in messages) == group.size
        ):
            messages.pop()  # the offset of a compressed message gives those of its records, so it is damaged
        sound = sum(message.size for message in messages)
        found = convert_legacy(data[:sound], start, end)
        if sound == group.size or self._last_offsets[slot] < start:
            return found, None
        first = max(messages[-1].offset + 1, start) if messages else start
        if first >= end:
            return found, None
        reason = f"the message at byte {group.position + sound} has changed since the segment was opened"
        last = min(self._last_offsets[slot] + 1, end)
        return found, CorruptLogError(
            reason, start=first, end=last, file=self._file().path, position=group.position + sound
        )

    def _bytes(self, group: _MessageRange) -> memoryview:
        return self._file().read_at(group.position, group.size)


def begins_legacy(file: File, size: int) -> bool:
    """Return whether the first message of ``file`` is in an old format, or may be."""
    head = file.read_at(0, min(size, SIZE_UP_TO_MAGIC))
    return len(head) == SIZE_UP_TO_MAGIC and head[MAGIC_POSITION] <= 1


def _stored(batch: RecordBatch, codec: int) -> bytes:
    """Return ``batch``, which was made of old messages, as Kafka stores it: compressed by ``codec``, and without the
    mark of records that have no kind of timestamp. Its leader epoch stays -1."""
    data = bytearray(batch.data[:HEADER_SIZE])
    data += compress(codec, batch.payload) if codec else batch.payload
    attributes = codec | (_LOG_APPEND_TIME_BIT if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
    write_header(data, batch.record_count, attributes, batch.base_timestamp, batch.max_timestamp)
    return bytes(data)


def _rising(messages: list[LegacyMessage], before: int, last: int) -> list[LegacyMessage]:
    """Return the first of ``messages`` as long as their offsets rise, from above ``before`` to at most ``last``. No
    checksum covers the offset of a message. If two do not rise, either may be wrong, so neither is taken."""
    for index, message in enumerate(messages):
        if not before < message.offset <= last:
            return messages[: max(index - 1, 0)]
        before = message.offset
    return messages


def _messages_at(file: File, position: int, size: int) -> list[LegacyMessage]:
    """Return the old messages from ``position`` on, as many as fit a chunk; none if other bytes are there."""
    want = SCAN_CHUNK_SIZE
    while True:
        data = file.read_at(position, min(want, size - position))
        try:
            messages, _ = shallow_messages(data)
        except CorruptError:
            return []
        done = messages or len(data) < SIZE_UP_TO_MAGIC or data[MAGIC_POSITION] > 1 or position + len(data) >= size
        if done or len(data) >= _MESSAGE_SIZE_MAX:
            return messages
        want *= 4
