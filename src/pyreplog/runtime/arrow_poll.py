"""The records behind the positions of a reader, as one Arrow table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from pyreplog.arrow import LOG_COLUMNS, LOGS_COLUMNS, TOPIC_COLUMNS, ArrowTable, Scan
from pyreplog.errors import CorruptLogError
from pyreplog.ports import Buffer
from pyreplog.record import split
from pyreplog.runtime.views import CommittedView, ReaderView
from pyreplog.values import TopicPartition

__all__ = ["TABLE_SIZE", "TableEnd", "read_table"]

View = ReaderView | CommittedView
TABLE_SIZE: Final = 4 << 20
"""Stored bytes after which a table ends. Larger ones take memory that the process did not have before, which costs
more than their rows."""


class TableEnd(NamedTuple):
    """The end of one partition's rows in a table."""

    key: TopicPartition
    offset: int
    """Behind the last record."""
    epoch: int
    """The leader epoch of the last batch."""


class _HeldBatches:
    """Whole batches of one partition in memory: a source of a scan."""

    def __init__(self, view: View, data: Buffer, offset: int) -> None:
        batches = split(data)
        self._view = view
        self._data = memoryview(data)
        self._ends = [batch.next_offset for batch in batches]
        self._positions = [0]
        for batch in batches:
            self._positions.append(self._positions[-1] + batch.size)
        self.start_offset = offset
        self.end_offset = self._ends[-1]
        self.epoch = batches[-1].leader_epoch
        self.max_batch_bytes = view.max_batch_bytes

    def refresh(self) -> None:
        """Do nothing: the rows are those that were read."""

    def read(self, offset: int, size_max: int) -> Buffer:
        """Return the batches from that of ``offset`` on."""
        return self._data[self._positions[bisect_right(self._ends, offset)] :]

    def find_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Return None: no table is selected by time."""
        return None

    def damage(self, offset: int, reason: str) -> CorruptLogError:
        """Return the error for a damaged batch, with its file and position."""
        return self._view.damage(offset, reason)


def read_table(positions: Sequence[tuple[TopicPartition, View, int]]) -> tuple[ArrowTable, list[TableEnd]]:
    """Return the records from these (partition, its view, offset) on, and where the next table begins.

    It ends with the batch that reaches :data:`TABLE_SIZE` bytes. A partition without further batches has no end in the
    list. Raises what reading raises; nothing was read then.
    """
    held: list[tuple[TopicPartition, _HeldBatches]] = []
    left = TABLE_SIZE
    for key, view, offset in positions:
        if left <= 0:
            break
        if offset < view.end_offset and len(data := memoryview(view.read(offset, left))):
            held.append((key, _HeldBatches(view, data, offset)))
            left -= len(data)
    topics = sorted({key.topic for key, _, _ in positions})
    several = len(topics) > 1
    columns = LOGS_COLUMNS if several else TOPIC_COLUMNS if len(positions) > 1 else LOG_COLUMNS
    if not held:
        return ArrowTable(columns, ()), []
    scan = Scan(
        [(key.partition, source) for key, source in held],
        name=f"topic {topics[0]!r}",
        columns=columns,
        default_columns=columns,
        checked=all(view.is_checked for _, view, _ in positions),
        logs=[key.topic for key, _ in held] if several else (),
    )
    table = ArrowTable(columns, list(scan.batches()))
    return table, [TableEnd(key, source.end_offset, source.epoch) for key, source in held]
