"""How often the controllers of a cluster elected leaders, changed in-sync sets and fenced brokers: counted
from the committed records, so that no decision counts that was lost."""

from __future__ import annotations

from collections.abc import Sequence

from pyreplog.controller.image import MetadataImage, PartitionKey
from pyreplog.wire import NO_LEADER_CHANGE, BrokerRegistrationChangeRecord, MetadataRecord, PartitionChangeRecord

__all__ = ["MetadataCounts"]

RECOVERING = 1
"""The recovery state of a record that elects a leader uncleanly."""


class MetadataCounts:
    """Counters of one process. Several servers may share them: each record counts once. One owner."""

    __slots__ = ("elections", "fencings", "isr_expansions", "isr_shrinks", "offset", "unclean_elections")

    def __init__(self) -> None:
        self.elections = 0
        """Elections of a leader, with the unclean ones; the first leader of a new partition is none."""
        self.unclean_elections = 0
        self.isr_shrinks = 0
        self.isr_expansions = 0
        self.fencings = 0
        self.offset = -1
        """The last record that was counted, or passed over."""

    def note(self, image: MetadataImage, records: Sequence[tuple[int, MetadataRecord]]) -> None:
        """Count ``records``, which are committed and not yet applied to ``image``."""
        if not records or records[-1][0] <= self.offset:
            return
        newest: dict[PartitionKey, Sequence[int]] = {}
        for offset, record in records:
            if offset <= self.offset:
                continue
            if isinstance(record, PartitionChangeRecord):
                self._note_partition(image, record, newest)
            elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced > 0:
                self.fencings += 1
        self.offset = records[-1][0]

    def _note_partition(
        self, image: MetadataImage, record: PartitionChangeRecord, newest: dict[PartitionKey, Sequence[int]]
    ) -> None:
        if record.leader not in (NO_LEADER_CHANGE, -1):
            self.elections += 1
            self.unclean_elections += record.leader_recovery_state == RECOVERING
        if record.isr is None:
            return
        key = (record.topic_id, record.partition_id)
        before = newest.get(key)
        if before is None:
            partition = image.partition(key)
            before = record.isr if partition is None else partition.isr
        newest[key] = record.isr
        self.isr_shrinks += any(member not in record.isr for member in before)
        self.isr_expansions += any(member not in before for member in record.isr)
