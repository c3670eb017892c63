"""The transactions of a pass of compaction: which batches were aborted, and which markers have nothing left.

Source: Kafka's ``CleanedTransactionMetadata``. A pass walks the batches by rising offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from pyreplog._core import RecordBatch
from pyreplog.log.transaction_index import AbortedRange
from pyreplog.record import ABORT, COMMIT, control_records


class CleanedTransactions:
    """The transactions of one walk over the segments of a log."""

    def __init__(self) -> None:
        self._known: set[AbortedRange] = set()
        # Aborted transactions that the walk did not reach, by their first offset.
        self._waiting: list[tuple[int, AbortedRange]] = []
        # Producer id -> its aborted transaction, and whether a batch of it was seen.
        self._aborted: dict[int, tuple[AbortedRange, bool]] = {}
        # Producers of committed transactions with a batch that was seen.
        self._committed: set[int] = set()
        #: The aborted transactions whose marker stays, since :meth:`take_index`.
        self._index: list[AbortedRange] = []

    def add_aborted(self, ranges: Iterable[AbortedRange]) -> None:
        """Add the aborted transactions of the segment that the walk reads next."""
        for one in ranges:
            if one not in self._known:
                self._known.add(one)
                heappush(self._waiting, (one.first_offset, one))

    def take_index(self) -> list[AbortedRange]:
        """Return the aborted transactions for the transaction index of the segment that is done."""
        index, self._index = self._index, []
        return index

    def read_data(self, batch: RecordBatch) -> bool:
        """Note a batch that is not a control batch, and return whether its transaction was aborted."""
        self._reach(batch.last_offset)
        if not batch.is_transactional:
            return False
        found = self._aborted.get(batch.producer_id)
        if found is None:
            self._committed.add(batch.producer_id)
            return False
        self._aborted[batch.producer_id] = (found[0], True)
        return True

    def read_control(self, batch: RecordBatch) -> bool:
        """Note a control batch, and return whether nothing of its transaction is left, so that it may be removed."""
        self._reach(batch.last_offset)
        if not batch.record_count:
            return True  # it was emptied before
        kind = control_records(batch)[0].type
        if kind == ABORT:
            found = self._aborted.pop(batch.producer_id, None)
            if found is not None and found[1]:
                self._index.append(found[0])
                return False
            return True
        if kind == COMMIT:
            if batch.producer_id in self._committed:
                self._committed.discard(batch.producer_id)
                return False
            return True
        return False

    def _reach(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            one = heappop(self._waiting)[1]
            self._aborted.setdefault(one.producer_id, (one, False))
