"""TimedBatches: the batches of a producer that have a timeout of their own, wherever they are: queued, in flight, or
refused."""

from __future__ import annotations

from pyreplog.client.accumulator import PartitionQueue, ProducerBatch

__all__ = ["TimedBatches"]


class TimedBatches:
    """The batches whose ``deadline_ns`` must be kept to the point. One owner at a time."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[tuple[PartitionQueue, ProducerBatch]] = []
        """Few: they are sent one at a time. Settled ones leave at the next look."""

    def set(self, queue: PartitionQueue, batch: ProducerBatch, acks: int | None, until_ns: int | None) -> None:
        """Give a batch of ``queue`` other ``acks`` than its producer's, and a deadline, unless they are None."""
        batch.acks = acks
        if until_ns is not None:
            batch.deadline_ns = min(batch.deadline_ns, until_ns)
            self.entries.append((queue, batch))

    @property
    def next_ns(self) -> int:
        """The earliest deadline. REQUIRES entries."""
        return min(batch.deadline_ns for _, batch in self.entries)

    def take_late(self, now_ns: int) -> list[tuple[PartitionQueue, ProducerBatch]]:
        """Remove and return the unsettled batches whose deadline has passed; forget the settled ones."""
        late: list[tuple[PartitionQueue, ProducerBatch]] = []
        left: list[tuple[PartitionQueue, ProducerBatch]] = []
        for entry in self.entries:
            batch = entry[1]
            if not batch.outcome.settled:
                (late if batch.deadline_ns <= now_ns else left).append(entry)
        self.entries = left
        return late
