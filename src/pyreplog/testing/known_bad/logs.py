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
    "NumbersKept",
    "NumbersNotCopied",
    "WatermarkKept",
]


class MarkTooEarly(Log):
    """The durable mark calls synced what is only written. After power loss an honest torn tail reads as rot, and a
    copy that is as good as any is refused."""

    def write_mark(self) -> None:
        """With the written end in place of the synced one."""
        self._mark.write(self.end_offset, self.high_watermark, self.start_offset)


class ChecksumUnchecked(Log):
    """Checksums are looked at neither by a leader that reads nor by a follower that fetched: rot on the leader's
    disk spreads to others."""

    def read(self, offset: int, size_max: int, end_offset: int, *, checked: bool = False) -> LogSlice:
        """Never checked."""
        return super().read(offset, size_max, end_offset)

    def append_as_follower(self, parts: Sequence[Buffer], *, at_end: bool = False) -> int:
        """As the original, but for the one line."""
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
    """What is deleted ends where a batch ends: records behind the offset that was named go with those before it."""

    def increment_start_offset(self, offset: int) -> bool:
        """To the end of the batch that the offset lies in."""
        if self.start_offset < offset < self.high_watermark:
            batch = next(one for part in self.read(offset, 1, self.high_watermark).parts() for one in split(part))
            offset = offset if batch.base_offset == offset else batch.next_offset
        return super().increment_start_offset(offset)


class EpochNotTrimmed(Log):
    """A truncation at or behind the end of the log leaves the epochs that begin there (KAFKA-10706)."""

    def truncate_to(self, offset: int) -> None:
        """Nothing to cut, nothing to do."""
        if offset < self.end_offset:
            super().truncate_to(offset)


class EpochsKept(Log):
    """A truncation cuts records, and leaves the epochs that they were of."""

    def truncate_to(self, offset: int) -> None:
        """With the epochs as before."""
        before = self.epochs.entries
        super().truncate_to(offset)
        self.epochs.restore(before)


class MarkBeforeCut(Log):
    """The mark still promises, after a truncation, what was cut."""

    def truncate_to(self, offset: int) -> None:
        """The old mark is written once more."""
        synced, high_watermark = self.flushed_offset, self.high_watermark
        super().truncate_to(offset)
        self._mark.write(synced, high_watermark, self.start_offset)
        self._mark.sync()


class NumbersKept(Log):
    """What is known of producers is not looked at anew after a truncation: a record that was cut is still "a
    duplicate"."""

    def truncate_to(self, offset: int) -> None:
        """With what was known of producers before."""
        table = self.producers.table.copy()
        super().truncate_to(offset)
        self.producers.table = table


class NumbersNotCopied(Log):
    """Followers do not learn which batches their leader has seen from whom: after an election a retry is appended
    once more."""

    def append_as_follower(self, parts: Sequence[Buffer], *, at_end: bool = False) -> int:
        """With what was known of producers before."""
        table = self.producers.table.copy()
        end = super().append_as_follower(parts, at_end=at_end)
        self.producers.table = table
        return end


class WatermarkKept(Log):
    """A log that begins anew where its leader's does keeps its high watermark, which may then lie below its
    start."""

    def truncate_fully(self, start_offset: int) -> None:
        """With the high watermark as before."""
        before = self.high_watermark
        super().truncate_fully(start_offset)
        self.high_watermark = before
