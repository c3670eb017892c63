"""A planned range, read from files that others change meanwhile: all of it, or an error that says what became of
the rest.

No Spark in here.
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
"""So long what was planned may be missing from a partition of several replicas: a new leader takes over
meanwhile."""
PAUSE_S: Final = 0.05
DAMAGED_TRIES: Final = 5
"""So often bytes that are wrong are looked for anew: in another replica, or after a change that is under way."""


class _Stable:
    """A reader that is stable as far as somebody reads it, as whoever planned that found: transactions that end do
    not open again.

    So nobody has to look for open ones. What lies behind the plan may be in one; it stands in batches that are read
    along and left out.
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
        """Batches below the high watermark: what became of a transaction may stand behind the part that is read."""
        return self._reader.read(offset, size_max) if offset < self._reader.end_offset else memoryview(b"")


class PlannedRange:
    """The source (:class:`pyreplog.arrow.BatchSource`) of one planned range. Belongs to one thread.

    The replica that is ahead is read; when its files go away, the one that is ahead then, from the same offset on.
    It ends at the end of the plan, wherever the high watermark is by then. What is not there any more is a
    :class:`DataLossError`, or with ``fail_on_data_loss`` false a call of ``warn``.
    """

    def __init__(
        self, access: Access, wanted: OffsetRange, *, fail_on_data_loss: bool, warn: Warn, committed: bool = False
    ) -> None:
        """``committed``: leave out what was aborted. REQUIRES that all of ``wanted`` was stable when it was
        planned, and that it says by :attr:`~pyreplog.spark.planner.OffsetRange.reach` how a copy is known to be as
        far."""
        self._access = access
        self._wanted = wanted
        self._partition = wanted.place
        self._fail = fail_on_data_loss
        self._warn = warn
        self._reader: LogReader | None = None
        self._committed = committed
        self._source: CommittedSource | LogReader | None = None
        #: Nothing from here on is read committed: it was planned, and is lost.
        self._stable_end = INT64_MAX
        self._lost = ""
        self._begun = False
        #: What is to be read by another source when this one ends: behind what is gone. A batch may
        #: hold both.
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
        """The most bytes that are unpacked of one compressed batch, in parts."""
        return self._access.max_batch_bytes

    def refresh(self) -> None:
        """Nothing: the plan says what is read."""

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of its first record that is not older; None where there is none."""
        reader = self._reader or self._settled(self.start_offset)
        return None if reader is None else reader.find_timestamp(timestamp)

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """The error for the batch that was read for ``offset`` and turned out to be damaged, with its place."""
        reader = self._reader
        return (
            CorruptLogError(reason, start=offset, end=offset + 1) if reader is None else reader.damage(offset, reason)
        )

    def read(self, offset: int, size_max: int) -> memoryview:
        """Whole, checked batches from the one that holds ``offset`` on, or the first behind it; empty where there
        is no more to read."""
        damaged = 0
        while True:
            reader = self._reader or self._settled(offset)
            if reader is None or offset >= self._wanted.end:
                return memoryview(b"")
            try:
                data = self._source_of(reader).read(offset, size_max)
                if data.nbytes or self._really_ends(reader):
                    return data
                self._reader = None  # it ends, for this view of it, before the plan does
            except CHANGES as error:
                self._reader = None
                damaged += 1
                if not moved(error) or damaged >= DAMAGED_TRIES:
                    raise
                time.sleep(PAUSE_S)

    def _source_of(self, reader: LogReader) -> CommittedSource | LogReader:
        """``reader``, or what of it is committed; the same for as long as the reader is."""
        if self._source is None:
            self._source = CommittedSource(_Stable(reader, self._stable_end)) if self._committed else reader
        return self._source

    def _really_ends(self, reader: LogReader) -> bool:
        """Whether there is nothing between the offset asked for and the end: what was there was compacted away."""
        return reader.end_offset >= self._wanted.end

    def _found(self, reader: LogReader) -> Available:
        found = Available(reader.start_offset, reader.end_offset, reader.topic_id)
        return replace(found, cluster_id=self._access.cluster_id(self._partition)) if self._wanted.cluster_id else found

    def _settled(self, offset: int) -> LogReader | None:
        """A fresh view from ``offset`` to the end of the plan; None where nothing is left, or only what lies behind
        ``offset``."""
        self._source = None
        rest = replace(self._wanted, start=offset)
        deadline = time.monotonic() + SETTLE_S
        # The view that is there is as good as a new one, the first time.
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
            # One replica alone has nobody to catch up with; and what is deleted stays deleted.
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
    """What of ``kept`` can be read committed by ``reader``: a copy that lags does not know yet what became of
    transactions."""
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
