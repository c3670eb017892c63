"""What producers have done up to an offset, followed batch by batch: to compare with producer snapshots and
transaction indexes."""

from __future__ import annotations

import struct
from typing import Final

from pyreplog.verify.batches import CheckedBatch
from pyreplog.verify.records import PlainRecord
from pyreplog.verify.states import Aborted, SnapshotEntry

ABORT: Final = 0
COMMIT: Final = 1
CONTROL_NAMES: Final = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)


def control_type(record: PlainRecord) -> int:
    """The number of a control record's type; -1 where its key is none."""
    key = record.key or b""
    return int(struct.unpack_from(">h", key, 2)[0]) if len(key) >= 4 else -1


class Producers:
    """The producers of one partition. ``exact``: everything they did is known, so a snapshot or index that says
    otherwise is wrong."""

    def __init__(self) -> None:
        self.exact = False
        self.states: dict[int, SnapshotEntry] = {}
        # Transactions that are open: producer -> first offset.
        self._open: dict[int, int] = {}
        #: Transactions that were aborted since :meth:`take_aborted`.
        self._aborted: list[Aborted] = []

    def load(self, producers: list[SnapshotEntry]) -> None:
        """Begin with the state in a snapshot."""
        self.states = {producer.producer_id: producer for producer in producers}
        self._open = {
            producer.producer_id: producer.txn_first_offset for producer in producers if producer.txn_first_offset >= 0
        }
        self.exact = True

    def data(self, batch: CheckedBatch) -> None:
        """A batch of records with a producer."""
        first = self._open.get(batch.producer_id, -1)
        if batch.is_transactional and first < 0:
            first = self._open[batch.producer_id] = batch.base_offset
        before = self.states.get(batch.producer_id)
        self.states[batch.producer_id] = SnapshotEntry(
            batch.producer_id,
            batch.producer_epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.last_offset - batch.base_offset,
            batch.max_timestamp,
            before.coordinator_epoch if before else -1,
            first,
        )

    def marker(self, batch: CheckedBatch, record: PlainRecord) -> None:
        """The end of a transaction."""
        kind = control_type(record)
        if kind not in (ABORT, COMMIT) or len(record.value or b"") < 6:
            return
        coordinator = struct.unpack_from(">i", record.value or b"", 2)[0]
        first = self._open.pop(batch.producer_id, -1)
        if first >= 0 and kind == ABORT:
            stable = min([*self._open.values(), record.offset + 1])
            self._aborted.append(Aborted(batch.producer_id, first, record.offset, stable))
        before = self.states.get(batch.producer_id)
        if before is None or before.producer_epoch != batch.producer_epoch:
            before = SnapshotEntry(batch.producer_id, batch.producer_epoch, -1, -1, 0, -1, -1, -1)
        self.states[batch.producer_id] = before._replace(
            timestamp=batch.max_timestamp, coordinator_epoch=coordinator, txn_first_offset=-1
        )

    def take_aborted(self) -> list[Aborted]:
        """The transactions aborted since the last call."""
        found, self._aborted = self._aborted, []
        return found

    def differs(self, snapshot: list[SnapshotEntry]) -> str:
        """Return the difference between this state and a snapshot at this offset; "" if there is none. Producers
        that the snapshot lacks may have expired."""
        for producer in snapshot:
            known = self.states.get(producer.producer_id)
            if known is None:
                return f"it knows producer {producer.producer_id}, which has no batch"
            if known != producer:
                name = next(name for name in SnapshotEntry._fields if getattr(known, name) != getattr(producer, name))
                return (
                    f"producer {producer.producer_id} has {name} {getattr(producer, name)} in it, and"
                    f" {getattr(known, name)} by the batches"
                )
        named = {producer.producer_id for producer in snapshot}
        for producer_id, first in self._open.items():
            if producer_id not in named:
                return f"it leaves out producer {producer_id}, whose transaction is open since offset {first}"
        return ""
