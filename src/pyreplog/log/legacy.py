"""The part of a segment that is still in Kafka's formats before 0.11: messages of magic 0 and 1, up to the first
batch of today's.

A broker that was upgraded went on in the same log, so they are always in front. They are walked once, their
checksums verified, and remembered in groups; what is read of them is made into batches of format v2
(:mod:`pyreplog.record`). Indexes serve only what lies behind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, NamedTuple

from pyreplog._core import whole_batches
from pyreplog.errors import CorruptError, CorruptLogError
from pyreplog.log.layout import INT64_MAX, SCAN_CHUNK_SIZE
from pyreplog.ports import File
from pyreplog.record import (
    MAGIC_POSITION,
    SIZE_UP_TO_MAGIC,
    LegacyMessage,
    convert_legacy,
    legacy_batches,
    shallow_messages,
)

_GROUP_SIZE: Final = 64 << 10
_MESSAGE_SIZE_MAX: Final = 64 << 20
"""A message that says it is larger than this is damage."""


class _MessageRange(NamedTuple):
    """Messages one after another, or one that is compressed: [position, position + size) in bytes."""

    position: int
    size: int
    max_timestamp: int


class LegacyPrefix:
    """The first ``end`` bytes of a segment's file, whose records lie below offset ``next_offset``. Immutable;
    belongs to the segment."""

    __slots__ = ("_file", "_first", "_groups", "_last_offsets", "end", "next_offset")

    def __init__(self, file: Callable[[], File], size: int, base_offset: int) -> None:
        """Walks what of the first ``size`` bytes of the segment's file is in the old formats. ``file``: the file,
        opened where need be."""
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
        """Where the messages lie that hold ``offset`` or come next, and batches of them and of those behind, below
        ``end_offset``: up to about ``size_max`` bytes, at least one batch. None where there is none. Ends before
        messages that do not fit their checksums any more; raises :class:`CorruptLogError` where it would begin with
        such."""
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

    def position_of(self, offset: int) -> int | None:
        """Where the message begins that holds ``offset`` or comes next; None where it lies behind."""
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
        """(offset, timestamp) of the first record of the range that is not older than ``timestamp``."""
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
        """Batches of the records of a group with ``start`` <= offset < ``end``, up to the first message that is not
        as it was when it was walked; and the error for the rest."""
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
            messages.pop()  # one that is compressed says by its own offset which those in it have
        sound = sum(message.size for message in messages)
        found = convert_legacy(data[:sound], start, end)
        if sound == group.size or self._last_offsets[slot] < start:
            return found, None
        first = max(messages[-1].offset + 1, start) if messages else start
        if first >= end:
            return found, None
        reason = f"the message at byte {group.position + sound} is not what was written"
        last = min(self._last_offsets[slot] + 1, end)
        return found, CorruptLogError(
            reason, start=first, end=last, file=self._file().path, position=group.position + sound
        )

    def _bytes(self, group: _MessageRange) -> memoryview:
        return self._file().read_at(group.position, group.size)


def begins_legacy(file: File, size: int) -> bool:
    """Whether the first message of ``file`` is in an old format, or might be."""
    head = file.read_at(0, min(size, SIZE_UP_TO_MAGIC))
    return len(head) == SIZE_UP_TO_MAGIC and head[MAGIC_POSITION] <= 1


def _rising(messages: list[LegacyMessage], before: int, last: int) -> list[LegacyMessage]:
    """Those that ``messages`` begins with whose offsets rise, from above ``before`` to ``last`` at most. No
    checksum covers the offset of a message: of two that do not rise either may be wrong, and neither is taken."""
    for index, message in enumerate(messages):
        if not before < message.offset <= last:
            return messages[: max(index - 1, 0)]
        before = message.offset
    return messages


def _messages_at(file: File, position: int, size: int) -> list[LegacyMessage]:
    """The old messages from ``position`` on, as many as fit a chunk; none where something else is there."""
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
