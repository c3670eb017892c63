"""Wrong rules of a log, each one overridden method."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import Buffer

from pyreplog.errors import CorruptError
from pyreplog.log import Log, LogSlice
from pyreplog.record import RecordBatch, split

__all__ = [
    "ChecksumUnchecked",
    "DeletesWholeBatches",
    "EpochNotTrimmed",
    "EpochsKept",
    "MarkBeforeCut",
    "MarkTooEarly",
    "MarkTooLate",
    "NumbersKept",
    "NumbersNotCopied",
    "WatermarkKept",
]


class MarkTooEarly(Log):
    """The durable mark counts written data as synced. After power loss a legal torn tail then looks
    like rot, and a good copy is refused."""

    def write_mark(self) -> None:
        """Write the written end in place of the synced end."""
        self._mark.write(self.end_offset, self.high_watermark, self.start_offset)


class MarkTooLate(Log):
    """The durable mark is not written before others are told. After a kill, damage to records that
    others count on reads as an honest torn tail."""

    def write_mark(self) -> None:
        """Write nothing."""


class ChecksumUnchecked(Log):
    """Neither a leader that reads nor a follower that fetched checks checksums: rot on the leader's
    disk spreads to other replicas."""

    def read(self, offset: int, size_max: int, end_offset: int, *, checked: bool = False) -> LogSlice:
        """Read without a check."""
        return super().read(offset, size_max, end_offset)

    def append_as_follower(self, parts: Sequence[Buffer], *, at_end: bool = False, dropped_tombstone: int = -1) -> int:
        """Append as the original does, without the check of the checksum."""
        views = [memoryview(part) for part in parts]
        batches: list[tuple[int, int, int, int, int]] = []
        for view in views:
            position = 0
            while position < view.nbytes:
                one = RecordBatch(view, position)
                batches.append((one.base_offset, one.last_offset, one.leader_epoch, one.size, one.max_timestamp))
                position += one.size
        if batches:
            if at_end and batches[0][0] != self.end_offset:
                raise CorruptError(f"got a batch at {batches[0][0]}, not at {self.end_offset}")
            self._append_validated(views, batches, gaps=False)
        return self.end_offset


class DeletesWholeBatches(Log):
    """A deletion ends at the end of a batch: records above the given offset go with those below it."""

    def increment_start_offset(self, offset: int) -> bool:
        """Delete to the end of the batch that holds the offset."""
        if self.start_offset < offset < self.high_watermark:
            batch = next(one for part in self.read(offset, 1, self.high_watermark).parts() for one in split(part))
            offset = offset if batch.base_offset == offset else batch.next_offset
        return super().increment_start_offset(offset)


class EpochNotTrimmed(Log):
    """A truncation at or behind the end of the log leaves the epochs that begin there
    (KAFKA-10706)."""

    def truncate_to(self, offset: int) -> None:
        """Do nothing if there are no records to truncate."""
        if offset < self.end_offset:
            super().truncate_to(offset)


class EpochsKept(Log):
    """A truncation cuts records, and leaves their epochs."""

    def truncate_to(self, offset: int) -> None:
        """Truncate, and restore the epochs."""
        before = self.epochs.entries
        super().truncate_to(offset)
        self.epochs.restore(before)


class MarkBeforeCut(Log):
    """After a truncation the mark still promises the truncated records."""

    def truncate_to(self, offset: int) -> None:
        """Truncate, and write the old mark again."""
        synced, high_watermark = self.flushed_offset, self.high_watermark
        super().truncate_to(offset)
        self._mark.write(synced, high_watermark, self.start_offset)
        self._mark.sync()


class NumbersKept(Log):
    """The producer state is kept over a truncation: a truncated record still counts as a duplicate."""

    def truncate_to(self, offset: int) -> None:
        """Truncate, and restore the producer state."""
        table = self.producers.table.copy()
        super().truncate_to(offset)
        self.producers.table = table


class NumbersNotCopied(Log):
    """Followers do not learn the producer state of their leader: after an election a retry is
    appended once more."""

    def append_as_follower(self, parts: Sequence[Buffer], *, at_end: bool = False, dropped_tombstone: int = -1) -> int:
        """Append, and restore the producer state."""
        table = self.producers.table.copy()
        end = super().append_as_follower(parts, at_end=at_end)
        self.producers.table = table
        return end


class WatermarkKept(Log):
    """A log that restarts at its leader's start offset keeps its high watermark, which may then
    lie below its start."""

    def truncate_fully(self, start_offset: int) -> None:
        """Restart the log, and restore the high watermark."""
        before = self.high_watermark
        super().truncate_fully(start_offset)
        self.high_watermark = before
