"""Accumulator: records -> batches, one queue per partition. Gathers while batches are on their way, so batches grow with the load.

A queue keeps its order: batches leave it in the order in which their first records came, and those that were refused come back to its
front, unless a later one got ahead of them meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from pyreplog.client.acks import Run
from pyreplog.client.outcome import Outcome, Owner
from pyreplog.errors import ClusterError, MessageTooLargeError
from pyreplog.ports import Buffer
from pyreplog.record import BatchBuilder

__all__ = ["Batch", "Headers", "Ledger", "PartitionQueue"]

COPY_SIZE_MAX: Final = 32 << 10
"""A batch of up to this many bytes moves into memory of its own size."""

Headers = Sequence[tuple[str, bytes | None]]


class Ledger:
    """Which batches are not settled, and how large those are that are sealed."""

    __slots__ = ("_sizes", "size")

    def __init__(self) -> None:
        self._sizes: dict[Outcome, int] = {}
        self.size = 0
        """Bytes of sealed batches that are not settled."""

    def open(self, outcome: Outcome) -> None:
        """A batch was begun."""
        self._sizes[outcome] = 0

    def seal(self, outcome: Outcome, size: int) -> None:
        """It was ended with this many bytes."""
        self._sizes[outcome] = size
        self.size += size

    def close(self, outcome: Outcome) -> None:
        """It is settled, or will never be sent."""
        self.size -= self._sizes.pop(outcome)

    def outcomes(self) -> list[Outcome]:
        """What is not settled, begun first in front."""
        return [outcome for outcome in list(self._sizes) if not outcome.settled]


class Batch:
    """One sealed batch. ``data`` is handed over with each sending and comes back when it is refused."""

    __slots__ = ("count", "data", "deadline_ns", "error", "failures", "outcome", "sequence", "size")

    def __init__(self, outcome: Outcome, data: memoryview, count: int, sequence: int, deadline_ns: int) -> None:
        self.outcome = outcome
        self.data: memoryview | None = data
        self.size = len(data)
        self.count = count
        self.sequence = sequence
        self.deadline_ns = deadline_ns
        self.failures = 0
        self.error: ClusterError | None = None


class PartitionQueue:
    """What one partition is to be sent. One owner at a time."""

    __slots__ = (
        "_begun_ns",
        "_builder",
        "_ledger",
        "_open",
        "_owner",
        "_sequence",
        "_size_max",
        "_stamps",
        "_timeout_ns",
        "in_flight",
        "partition",
        "passed",
        "paused_until_ns",
        "ready",
        "refused",
        "sealed_count",
        "topic",
    )

    def __init__(
        self,
        owner: Owner | None,
        ledger: Ledger,
        topic: str,
        partition: int,
        batch_size_max: int,
        record_size_max: int,
        timeout_ms: int,
    ) -> None:
        """Batches of up to ``batch_size_max`` bytes; a record that is larger alone, up to ``record_size_max``, gets one of its own.

        Every batch begun is entered into ``ledger``; who settles it takes it out.
        """
        self.topic = topic
        self.partition = partition
        self._owner = owner
        self._ledger = ledger
        self._builder = BatchBuilder(batch_size_max)
        self._size_max = record_size_max
        self._timeout_ns = timeout_ms * 1_000_000
        self._open: Outcome | None = None
        self._stamps: list[int] = []
        self._begun_ns = 0
        self._sequence = 0
        self.sealed_count = 0
        self.ready: deque[Batch] = deque()
        self.in_flight = 0
        self.passed = -1
        """The latest batch that may have been appended."""
        self.refused: list[Batch] = []
        self.paused_until_ns = 0

    @property
    def has_work(self) -> bool:
        """Whether anything waits to be sent."""
        return self._open is not None or bool(self.ready)

    @property
    def deadline_ns(self) -> int | None:
        """When what waits longest must have been sent; None: nothing waits."""
        if self.ready:
            return self.ready[0].deadline_ns
        return None if self._open is None else self._begun_ns + self._timeout_ns

    def append(
        self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int, now_ns: Callable[[], int]
    ) -> tuple[Outcome, int]:
        """Add one record; (its batch, its index there)."""
        outcome = self._open
        if outcome is None:
            outcome = self._begin(now_ns())
        index = self._builder.count
        if not self._builder.append(value, key, headers, timestamp):
            if index:
                self.seal()
                outcome, index = self._begin(now_ns()), 0
            if not self._builder.append(value, key, headers, timestamp):
                return self._append_alone(value, key, headers, timestamp, now_ns())
        stamps = self._stamps
        if len(stamps) != index:
            self._align(outcome, index)
        stamps.append(timestamp)
        return outcome, index

    def extend(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int] | None,
        timestamp: int,
        start: int,
        now_ns: int,
    ) -> tuple[Run, int]:
        """Add records from ``values[start]`` on until the batch is full; (what was added, the index of the first that was not)."""
        outcome = self._open
        if outcome is None:
            outcome = self._begin(now_ns)
        first = self._builder.count
        taken = self._builder.extend(values, keys, headers, timestamps, timestamp, start)
        if taken == start:
            if first:
                self.seal()
                return self.extend(values, keys, headers, timestamps, timestamp, start, now_ns)
            outcome, _ = self._append_alone(
                values[start],
                None if keys is None else keys[start],
                () if headers is None else headers[start],
                timestamp if timestamps is None else timestamps[start],
                now_ns,
            )
            return (outcome, 0, 1), start + 1
        if first == 0 and timestamps is None:
            outcome.timestamps = timestamp  # one for all, until others join them
        else:
            if len(self._stamps) != first:
                self._align(outcome, first)
            self._stamps.extend(timestamps[start:taken] if timestamps is not None else [timestamp] * (taken - start))
        if taken < len(values):
            self.seal()
        return (outcome, first, taken - start), taken

    def _align(self, outcome: Outcome, count: int) -> None:
        """Give each of ``count`` records its timestamp: those that shared one, and one that a signal handler came in front of (-1)."""
        stamp = outcome.timestamps
        stamps = self._stamps
        stamps.extend([stamp if isinstance(stamp, int) else -1] * (count - len(stamps)))
        outcome.timestamps = stamps

    def _begin(self, now_ns: int) -> Outcome:
        self._stamps = []
        self._begun_ns = now_ns
        self._builder.reset()
        self._open = outcome = Outcome(self._owner, self.topic, self.partition, self._stamps)
        self._ledger.open(outcome)
        return outcome

    def _append_alone(self, value: Buffer | None, key: Buffer | None, headers: Headers, timestamp: int, now_ns: int) -> tuple[Outcome, int]:
        if self._open is not None:  # begun for this record, which it cannot hold
            self._ledger.close(self._open)
            self._open = None
        builder = BatchBuilder(self._size_max)
        if not builder.append(value, key, headers, timestamp):
            raise MessageTooLargeError(f"a record for {self.topic}-{self.partition} does not fit {self._size_max} bytes; nothing was sent")
        outcome = Outcome(self._owner, self.topic, self.partition, [timestamp])
        self._ledger.open(outcome)
        self._add(outcome, builder.finish(), 1, now_ns)
        return outcome, 0

    def seal(self) -> None:
        """End the open batch, if there is one, and begin no other."""
        outcome, self._open = self._open, None
        if outcome is None:
            return
        if not self._builder.count:  # the first record was refused
            self._ledger.close(outcome)
            return
        data = self._builder.finish()
        if len(data) <= COPY_SIZE_MAX:
            # Whoever keeps it (a leader, for readers near the end) must not keep the builder's whole memory with it.
            data = memoryview(bytearray(data))
        self._add(outcome, data, self._builder.count, self._begun_ns)
        self._builder.reset()

    def _add(self, outcome: Outcome, data: memoryview, count: int, now_ns: int) -> None:
        self._ledger.seal(outcome, len(data))
        self._sequence += 1
        self.sealed_count += 1
        self.ready.append(Batch(outcome, data, count, self._sequence, now_ns + self._timeout_ns))

    def take(self) -> Batch | None:
        """The next batch to send."""
        if not self.ready:
            self.seal()
        return self.ready.popleft() if self.ready else None

    def settle_refused(self) -> list[Batch]:
        """When nothing is on its way any more: put what was refused back in front, in order.

        Returns those that cannot go back, because a later batch may have been appended: sent again they would land behind it.
        """
        if self.in_flight or not self.refused:
            return []
        refused = sorted(self.refused, key=lambda batch: batch.sequence)
        self.refused.clear()
        self.ready.extendleft(batch for batch in reversed(refused) if batch.sequence > self.passed)
        return [batch for batch in refused if batch.sequence < self.passed]

    def drain(self) -> list[Batch]:
        """Give up all that is not on its way."""
        self.seal()
        given_up = [*self.refused, *self.ready]
        self.refused.clear()
        self.ready.clear()
        return given_up
