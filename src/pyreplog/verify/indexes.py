"""The two sparse indexes of a segment, compared with its batches while they pass by.

A wrong entry costs time and no record: readers check an index against the log. So everything here is a warning.
"""

from __future__ import annotations

import struct
from typing import Final

from pyreplog.verify.batches import CheckedBatch
from pyreplog.verify.findings import Report

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12
REBUILT: Final = "nothing to do: readers compare it with the log, and rebuild it in memory if it is wrong"
MENDED: Final = (
    "nothing to do: readers do not need it, and it is rebuilt from the batches when the log is opened after a crash"
)
_OFFSET: Final = struct.Struct(">ii")
_TIME: Final = struct.Struct(">qi")


def _trimmed(data: bytes, size: int) -> tuple[bytes, bool]:
    """Whole entries without the zeros at the end, which preallocation leaves; whether there were any."""
    whole = data[: len(data) - len(data) % size]
    kept = len(whole.rstrip(b"\0"))
    kept += -kept % size
    return whole[:kept], kept < len(whole)


class OffsetIndexCheck:
    """The ``.index`` at ``path``. Feed every batch in order, then call :meth:`finish`."""

    def __init__(self, book: Report, path: str, data: bytes, base_offset: int) -> None:
        self._book, self._path = book, path
        trimmed, self._preallocated = _trimmed(data, OFFSET_ENTRY_SIZE)
        self._entries = [(base_offset + offset, position) for offset, position in _OFFSET.iter_unpack(trimmed)]
        self._next = 0
        # An old broker's entry names the last offset of a whole append, and where that began.
        self._wide: tuple[int, int] | None = None
        if len(data) % OFFSET_ENTRY_SIZE:
            self._warn(f"{len(data)} bytes are no whole number of entries", len(trimmed))
        for slot in range(1, len(self._entries)):
            if (
                self._entries[slot][0] <= self._entries[slot - 1][0]
                or self._entries[slot][1] <= self._entries[slot - 1][1]
            ):
                self._warn(f"entry {slot} does not rise", slot * OFFSET_ENTRY_SIZE)
                self._entries = []
                break

    def feed(self, batch: CheckedBatch) -> None:
        """The next batch of the log."""
        if self._wide is not None:
            if batch.last_offset == self._wide[0]:
                self._wide = None
            elif batch.last_offset > self._wide[0]:
                self._warn(f"an entry names offset {self._wide[0]}, with which no batch ends", self._wide[1])
                self._wide = None
        while self._next < len(self._entries):
            offset, position = self._entries[self._next]
            if position > batch.position:
                return
            self._next += 1
            at = (self._next - 1) * OFFSET_ENTRY_SIZE
            if position < batch.position:
                self._warn(f"an entry says that a batch begins at byte {position} of the log, and none does", at)
            elif offset > batch.last_offset:
                self._wide = (offset, at)
            elif offset < batch.last_offset:
                self._warn(
                    f"an entry says that the batch at byte {position} ends with offset {offset}, not"
                    f" {batch.last_offset}",
                    at,
                )

    def finish(self, size: int) -> None:
        """The log ended at byte ``size``."""
        if self._wide is not None:
            self._warn(f"an entry names offset {self._wide[0]}, with which no batch ends", self._wide[1])
        elif self._next < len(self._entries) and not self._preallocated:
            position = self._entries[self._next][1]
            self._warn(
                f"an entry says that a batch begins at byte {position}, and the log has {size}",
                self._next * OFFSET_ENTRY_SIZE,
            )

    def _warn(self, what: str, position: int) -> None:
        self._book.warn(self._path, what, REBUILT, position=position)


class TimeIndexCheck:
    """The ``.timeindex`` at ``path``. Feed every batch in order, then call :meth:`finish`.

    ``exact``: each entry names the last offset of a batch. Old brokers named the record's own.
    """

    def __init__(self, book: Report, path: str, data: bytes, base_offset: int, *, exact: bool) -> None:
        self._book, self._path, self._exact = book, path, exact
        trimmed, self._preallocated = _trimmed(data, TIME_ENTRY_SIZE)
        if len(data) == TIME_ENTRY_SIZE:
            trimmed, self._preallocated = data, False  # one batch at the base offset with timestamp 0
        self._entries = [(timestamp, base_offset + offset) for timestamp, offset in _TIME.iter_unpack(trimmed)]
        self._next = 0
        self._greatest = -1
        if len(data) % TIME_ENTRY_SIZE:
            self._warn(f"{len(data)} bytes are no whole number of entries", len(trimmed))
        for slot in range(1, len(self._entries)):
            if (
                self._entries[slot][0] <= self._entries[slot - 1][0]
                or self._entries[slot][1] < self._entries[slot - 1][1]
            ):
                if not self._preallocated:
                    self._warn(f"entry {slot} does not rise", slot * TIME_ENTRY_SIZE)
                self._entries = []
                break

    def feed(self, batch: CheckedBatch) -> None:
        """The next batch of the log."""
        before, self._greatest = self._greatest, max(self._greatest, batch.max_timestamp)
        while self._next < len(self._entries):
            timestamp, offset = self._entries[self._next]
            if offset > batch.last_offset:
                return
            self._next += 1
            at = (self._next - 1) * TIME_ENTRY_SIZE
            if offset < batch.base_offset or (self._exact and offset != batch.last_offset):
                self._warn(f"an entry names offset {offset}, with which no batch ends", at)
            elif timestamp != batch.max_timestamp or timestamp <= before:
                self._warn(
                    f"an entry says that the greatest timestamp up to offset {offset} is {timestamp}, and it is"
                    f" {self._greatest}",
                    at,
                )

    def finish(self, *, closed: bool) -> None:
        """Check the end of the log. ``closed``: the segment is complete, so its greatest timestamp must be in the
        index."""
        if self._next < len(self._entries):
            if not self._preallocated:
                self._warn(
                    f"an entry names offset {self._entries[self._next][1]}, behind the end of the log",
                    self._next * TIME_ENTRY_SIZE,
                )
        elif closed and self._greatest >= 0 and (not self._entries or self._entries[-1][0] < self._greatest):
            what = f"its last entry is not the segment's greatest timestamp, {self._greatest}"
            self._book.warn(self._path, what, MENDED, position=len(self._entries) * TIME_ENTRY_SIZE)

    def _warn(self, what: str, position: int) -> None:
        self._book.warn(self._path, what, REBUILT, position=position)
