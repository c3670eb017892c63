"""Reads a planned range from files that other processes change. It returns all planned records, or raises an error that
says why the rest is missing.

This module does not import Spark.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from pyreplog.config import INT64_MAX
from pyreplog.errors import CorruptLogError, DataLossError, LogTruncatedError
from pyreplog.log import CommittedSource, LogReader
from pyreplog.spark.access import CHANGES, Access, moved
from pyreplog.spark.planner import Available, OffsetRange, Warn, remaining

__all__ = ["PlannedRange"]

SETTLE_S: Final = 10.0
"""Planned records may be missing for this long from a partition with several replicas, while a new leader is
elected."""
PAUSE_S: Final = 0.05
DAMAGED_TRIES: Final = 5
"""A damaged batch is read this many times: from another replica, or after a change of the files has finished."""


class _Stable:
    """A reader without open transactions up to the end of the plan. The planner checked that, and a transaction
    that has ended does not open again.

    So this reader does not search for open transactions. Records behind the plan may be in one; they are read with
    their batches and left out.
    """

    def __init__(self, reader: LogReader, end: int) -> None:
        self._reader = reader
        self.last_stable_offset = min(reader.end_offset, end)
        self.start_offset = reader.start_offset
        self.end_offset = reader.end_offset
        self.refresh = reader.refresh
        self.find_timestamp = reader.find_timestamp
        self.damage = reader.damage
        self.max_batch_bytes = reader.max_batch_bytes

    def read(self, offset: int, size_max: int) -> memoryview:
        """Return batches below the high watermark. It may read behind the plan, because the end marker of a transaction
        may stand there."""
        return self._reader.read(offset, size_max) if offset < self._reader.end_offset else memoryview(b"")


class PlannedRange:
    """The source (:class:`pyreplog.arrow.BatchSource`) of one planned range. Belongs to one thread.

    It reads the replica that is ahead. If the files of that replica disappear, it goes on at the same offset in the
    replica that is ahead then. It ends at the end of the plan, even if the high watermark has moved. If planned records
    no longer exist it raises :class:`DataLossError`, or calls ``warn`` if ``fail_on_data_loss`` is false.
    """

    def __init__(
        self, access: Access, wanted: OffsetRange, *, fail_on_data_loss: bool, warn: Warn, committed: bool = False
    ) -> None:
        """``committed``: leave out aborted records. REQUIRES that all of ``wanted`` was stable when it was planned,
        and that its :attr:`~pyreplog.spark.planner.OffsetRange.reach` says how to recognise a copy that reaches its
        end."""
        self._access = access
        self._wanted = wanted
        self._partition = wanted.place
        self._fail = fail_on_data_loss
        self._warn = warn
        self._reader: LogReader | None = None
        self._committed = committed
        self._source: CommittedSource | LogReader | None = None
        #: Planned records from this offset on are lost, so committed reads end here.
        self._stable_end = INT64_MAX
        self._lost = ""
        self._begun = False
        #: The range behind missing records, which another source reads when this one ends. A batch
        #: may hold records of both.
        self.left: OffsetRange | None = None

    @property
    def start_offset(self) -> int:
        """Where the plan begins."""
        return self._wanted.start

    @property
    def end_offset(self) -> int:
        """Where the plan ends."""
        return self._wanted.end

    @property
    def max_batch_bytes(self) -> int:
        """The largest compressed batch, in unpacked bytes, that a scan reads. It unpacks the batch in parts."""
        return self._access.max_batch_bytes

    def refresh(self) -> None:
        """Do nothing: the plan fixes the offsets."""

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record that is not older; None if there is none."""
        reader = self._reader or self._settled(self.start_offset)
        return None if reader is None else reader.find_timestamp(timestamp)

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error for the damaged batch that was read for ``offset``, with its file and position."""
        reader = self._reader
        return (
            CorruptLogError(reason, start=offset, end=offset + 1) if reader is None else reader.damage(offset, reason)
        )

    def read(self, offset: int, size_max: int) -> memoryview:
        """Return whole, checked batches, starting at the batch with ``offset`` or the first one behind it; an empty
        result at the end of the plan."""
        damaged = 0
        while True:
            reader = self._reader or self._settled(offset)
            if reader is None or offset >= self._wanted.end:
                return memoryview(b"")
            try:
                data = self._source_of(reader).read(offset, size_max)
                if data.nbytes or self._really_ends(reader):
                    return data
                self._reader = None  # this view ends before the plan does
            except CHANGES as error:
                self._reader = None
                damaged += 1
                if not moved(error) or damaged >= DAMAGED_TRIES:
                    raise
                time.sleep(PAUSE_S)

    def _source_of(self, reader: LogReader) -> CommittedSource | LogReader:
        """Return the source to read from: ``reader``, or the committed records of it. It is made once for each
        reader."""
        if self._source is None:
            self._source = CommittedSource(_Stable(reader, self._stable_end)) if self._committed else reader
        return self._source

    def _really_ends(self, reader: LogReader) -> bool:
        """Return whether no record is left between the requested offset and the end, because of compaction."""
        return reader.end_offset >= self._wanted.end

    def _found(self, reader: LogReader) -> Available:
        found = Available(reader.start_offset, reader.end_offset, reader.topic_id)
        return replace(found, cluster_id=self._access.cluster_id(self._partition)) if self._wanted.cluster_id else found

    def _settled(self, offset: int) -> LogReader | None:
        """Return a new view from ``offset`` to the end of the plan; None if no record is left, or only records
        behind ``offset``."""
        self._source = None
        rest = replace(self._wanted, start=offset)
        deadline = time.monotonic() + SETTLE_S
        # The first time, the existing view is as good as a new one.
        reader = None if self._begun else self._access.reader(self._partition)
        self._begun = True
        while True:
            reader = reader or self._access.reopen(self._partition)
            found = None if reader is None else self._found(reader)
            kept, lost = remaining(rest, found)
            if self._committed and kept is not None and reader is not None:
                kept, lost = _decided(kept, lost, reader)
            if lost is None:
                self._reader = reader
                return reader
            # A single replica cannot catch up with another one; and deleted records stay deleted.
            several = reader is not None and len(reader.replicas) > 1
            if time.monotonic() >= deadline or not several or (kept is not None and kept.start > offset):
                break
            reader = None
            time.sleep(PAUSE_S)
        if self._fail:
            raise lost
        if lost.what != self._lost:
            self._warn(lost.what)
            self._lost = lost.what
        if kept is None or reader is None:
            return None
        if kept.start > offset:
            self.left = kept
            return None
        self._wanted = replace(self._wanted, end=kept.end)
        self._stable_end = kept.end
        self._reader = reader
        return reader


def _decided(
    kept: OffsetRange, lost: DataLossError | None, reader: LogReader
) -> tuple[OffsetRange | None, DataLossError | None]:
    """Return the part of ``kept`` that ``reader`` can read committed, and the loss if it is not all.

    A copy that lags does not know yet whether the last transactions were committed.
    """
    if reader.end_offset >= kept.reach:
        return kept, lost
    stable = reader.last_stable_offset
    if stable >= kept.end:
        return kept, lost
    why = (
        f"{kept} were planned, but whether they were committed stands behind offset {reader.end_offset}, where the log"
        " ends now"
    )
    return (replace(kept, end=stable) if stable > kept.start else None), lost or LogTruncatedError(why)
