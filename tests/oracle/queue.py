"""A slow queue: KIP-932's states of every record, one by one, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

DELIVERIES_MAX = 5
LOCK_NS = 30


@dataclass
class SlowRecord:
    """One record of the log that the queue has reached."""

    state: str = "available"  # or acquired, acknowledged, archived, deleted
    deliveries: int = 0
    worker: int = 0
    deadline_ns: int = 0


class SlowQueue:
    """All records below the next one, and the rules as they are written down."""

    def __init__(self, in_flight_max: int) -> None:
        self.in_flight_max = in_flight_max
        self.records: dict[int, SlowRecord] = {}
        self.next_offset = 0

    def can_deliver(self, offset: int, now_ns: int, gone: set[int]) -> bool:
        """Whether a record may be delivered, or may become a dead letter."""
        record = self.records[offset]
        if record.state == "acquired":
            return record.deadline_ns <= now_ns or record.worker in gone
        return record.state == "available"

    def in_flight(self) -> int:
        """Available and acquired records."""
        return sum(record.state in ("available", "acquired") for record in self.records.values())

    def acquire(
        self, worker: int, count: int, log: list[int], now_ns: int, gone: set[int]
    ) -> tuple[list[tuple[int, int]], list[int]]:
        """Return (offset, delivery count) of the delivered records, and the offsets that must become dead letters."""
        delivered: list[tuple[int, int]] = []
        spent: list[int] = []
        room = self.in_flight_max - self.in_flight()
        for offset in sorted(self.records):
            record = self.records[offset]
            if not self.can_deliver(offset, now_ns, gone):
                continue
            if record.deliveries >= DELIVERIES_MAX:
                if len(spent) < count:
                    spent.append(offset)
                    self.give(record, worker, now_ns)
            elif len(delivered) < count:
                record.deliveries += 1
                self.give(record, worker, now_ns)
                delivered.append((offset, record.deliveries))
        for offset in log:
            if offset >= self.next_offset and len(delivered) < count and room > 0:
                record = self.records[offset] = SlowRecord(deliveries=1)
                self.give(record, worker, now_ns)
                delivered.append((offset, 1))
                self.next_offset = offset + 1
                room -= 1
        return delivered, spent

    @staticmethod
    def give(record: SlowRecord, worker: int, now_ns: int) -> None:
        """The worker has the record now."""
        record.state, record.worker, record.deadline_ns = "acquired", worker, now_ns + LOCK_NS

    def holds(self, worker: int, offset: int, deliveries: int) -> bool:
        """Whether the worker may settle this delivery."""
        record = self.records.get(offset)
        return (
            record is not None
            and record.state == "acquired"
            and record.worker == worker
            and record.deliveries == deliveries
        )

    def settle(self, worker: int, claims: list[tuple[int, int]], state: str, now_ns: int) -> list[int]:
        """Give the records the state; return the offsets that the worker does not hold: then nothing changed."""
        lost = [offset for offset, deliveries in claims if not self.holds(worker, offset, deliveries)]
        if not lost:
            for offset, _ in claims:
                if state == "renewed":
                    self.give(self.records[offset], worker, now_ns)
                else:
                    self.records[offset].state = state
        return lost
