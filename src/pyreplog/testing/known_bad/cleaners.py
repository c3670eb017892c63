"""Wrong rules of compaction, each one overridden method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyreplog.log import Cleaner, CleaningPlan, Log
from pyreplog.ports import Disk
from pyreplog.record import decompress, split

__all__ = [
    "CleansAboveWatermark",
    "DropsUnfetched",
    "GapsUnrecorded",
    "HorizonForgotten",
    "HorizonIgnored",
    "NewestDropped",
    "OlderKept",
    "TakesAnyGap",
]

_DAY_MS = 86_400_000
_HEADER_SIZE = 61


class NewestDropped(Cleaner):
    """The map of keys has each offset one too high, so the newest record of a key counts as replaced."""

    def map_keys(self) -> int:
        """Note all keys once more, as if each batch began one offset later."""
        end = super().map_keys()
        for source in self.plan.dirty:
            file = self._disk.open(source.path)
            for batch in split(file.read_at(0, source.size)):
                if not batch.is_control and batch.next_offset <= end:
                    head = bytearray(batch.data[:_HEADER_SIZE])
                    head[:8] = (batch.base_offset + 1).to_bytes(8, "big")
                    self._map.note_records(head, decompress(batch), self.plan.first_dirty)
            file.close()
        return end


class OlderKept(Cleaner):
    """A pass notes no keys, reports success, and leaves the replaced records for ever."""

    def _map_segment(self, *_: object) -> bool:
        return True


class HorizonForgotten(Cleaner):
    """A tombstone goes at the next pass: `delete.retention.ms` counts as 0."""

    def __init__(self, disk: Disk, plan: CleaningPlan, secret: bytes, go_on: Callable[[], None]) -> None:
        super().__init__(disk, plan._replace(config=replace(plan.config, delete_retention_ms=0)), secret, go_on)


class HorizonIgnored(Cleaner):
    """A pass compares delete horizons with the time of tomorrow, and drops tombstones too early."""

    def __init__(self, disk: Disk, plan: CleaningPlan, secret: bytes, go_on: Callable[[], None]) -> None:
        if any(source.base_offset < plan.first_dirty for source in plan.sources):
            plan = plan._replace(now_ms=plan.now_ms + _DAY_MS)
        super().__init__(disk, plan, secret, go_on)


class CleansAboveWatermark(Log):
    """A pass compacts all that is durable, so a record that is not committed yet replaces a committed one. If it is
    truncated later, both are gone."""

    def cleaning_plan(self, now_ms: int) -> CleaningPlan:
        """Make the plan as if all records were committed."""
        high_watermark, self.high_watermark = self.high_watermark, self.end_offset
        try:
            return super().cleaning_plan(now_ms)
        finally:
            self.high_watermark = high_watermark


class DropsUnfetched(Log):
    """A pass drops tombstones that a replica has not fetched yet. That replica keeps an older record of the key."""

    @property
    def droppable_end(self) -> int:
        """Return the end of the log, whatever the replicas have."""
        return self.end_offset


class GapsUnrecorded(Log):
    """A follower does not write down the gaps of the batches that it fetched, so they look like lost batches."""

    def note_gaps(self, *_: object) -> None:
        """Write nothing."""


class TakesAnyGap(Log):
    """A follower takes a gap in a topic that was never compacted: it lacks records, and nothing shows it."""

    @property
    def takes_gaps(self) -> bool:
        """Return True."""
        return True
