"""Accumulator: turns records into batches, with one queue per partition. Records are collected
while batches are in flight, so batches grow with the load.

A queue keeps its order. Batches leave it in the order of their first records. Refused batches
return to its front, unless a later batch may have been appended before them.

The batches of an idempotent producer have sequence numbers (KIP-98). They are assigned when a batch
is sealed, and assigned again at its first sending if an earlier batch was never sent. A batch that
was sent keeps its numbers when it is sent again, until a leader proves that it was not appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, SupportsIndex

from pyreplog.client.acks import Run
from pyreplog.client.outcome import BatchResult, Owner
from pyreplog.client.topic_limits import TopicLimits
from pyreplog.errors import ClusterError, InvalidRecordError, MessageTooLargeError
from pyreplog.log import unkeyed_text
from pyreplog.ports import Buffer, Headers
from pyreplog.record import Ack, BatchBuilder, Gathering, find_too_large, set_producer
from pyreplog.timestamps import TIMESTAMP_MAX, record_ms

__all__ = ["ProducerBatch", "UnackedBatches", "PartitionQueue", "Sequencer"]

COPY_SIZE_MAX: Final = 32 << 10
"""A batch of up to this many bytes is copied into memory of its own size."""
FLYING_MAX: Final = 5
"""Numbered batches in flight for one partition: a leader remembers this many."""

Numbers = tuple[int, int, int]
"""(producer id, producer epoch, base sequence)."""
NO_NUMBERS: Final[Numbers] = (-1, -1, -1)
SEQUENCES: Final = 1 << 31
"""The number of sequence numbers; they wrap to 0."""
EPOCH_MAX: Final = 32767


class Sequencer:
    """The sequence numbers of one partition's batches. ``producer_id`` -1: none yet.

    ``broken``: a leader proved that numbers are missing before the first unsettled batch. Then that
    batch begins a new epoch at 0.
    """

    __slots__ = ("broken", "epoch", "producer_id", "seal_next", "send_next")

    def __init__(self) -> None:
        self.producer_id = -1
        self.epoch = -1
        self.seal_next = 0
        self.send_next = 0
        self.broken = False

    def begin(self, producer_id: int) -> None:
        """Number from 0, as a new producer."""
        self.producer_id = producer_id
        self._begin(0)

    def begin_epoch(self) -> bool:
        """Number from 0 in the next epoch.

        Return False if all epochs are used and another producer id is needed.
        """
        if self.epoch == EPOCH_MAX:
            return False
        self._begin(self.epoch + 1)
        return True

    def _begin(self, epoch: int) -> None:
        self.epoch = epoch
        self.seal_next = self.send_next = 0
        self.broken = False

    def seal(self, count: int) -> Numbers:
        """Return the numbers for the next ``count`` records to be sealed; none without a producer
        id."""
        if self.producer_id < 0:
            return NO_NUMBERS
        sequence = self.seal_next
        self.seal_next = (sequence + count) % SEQUENCES
        return (self.producer_id, self.epoch, sequence)

    def send(self, batch: ProducerBatch) -> bool:
        """Give ``batch`` the next numbers; return whether it had others.

        Call it before the first sending, or before sending with new numbers. REQUIRES that no
        leader can have appended the batch.
        """
        numbers = (self.producer_id, self.epoch, self.send_next)
        self.send_next = (self.send_next + batch.count) % SEQUENCES
        batch.sent = True
        if batch.numbers == numbers:
            return False
        data = batch.data
        assert data is not None, "an unsettled batch has its bytes"
        batch.numbers = numbers
        set_producer(data, *numbers)
        return True


class UnackedBatches:
    """The unsettled batches, with the sizes of those that are sealed."""

    __slots__ = ("_sizes", "size")

    def __init__(self) -> None:
        self._sizes: dict[BatchResult, int] = {}
        self.size = 0
        """The bytes of sealed batches that are not settled."""

    def open(self, outcome: BatchResult) -> None:
        """Add a batch that was begun."""
        self._sizes[outcome] = 0

    def seal(self, outcome: BatchResult, size: int) -> None:
        """Note the size in bytes of a batch that was sealed."""
        self._sizes[outcome] = size
        self.size += size

    def close(self, outcome: BatchResult) -> None:
        """Remove a batch that is settled or will never be sent.

        Not earlier: after an interrupted turn, the cleanup settles all batches that are listed
        here.
        """
        self.size -= self._sizes.pop(outcome, 0)

    def outcomes(self) -> list[BatchResult]:
        """Return the batches that are not settled, oldest first."""
        return [outcome for outcome in list(self._sizes) if not outcome.settled]


class ProducerBatch:
    """One sealed batch.

    ``data`` is handed over with each sending and comes back if it is refused. ``sequence``: its
    place in its queue. ``numbers``: the producer id, epoch and base sequence in its header.
    ``sent``: a leader may have seen these. ``unsure``: it may have been appended. ``acks``: None, or
    other ones than its producer's.
    """

    __slots__ = (
        "acks",
        "count",
        "data",
        "deadline_ns",
        "error",
        "failures",
        "numbers",
        "outcome",
        "sent",
        "sequence",
        "size",
        "unsure",
    )

    def __init__(
        self,
        outcome: BatchResult,
        data: memoryview,
        size: int,
        count: int,
        sequence: int,
        deadline_ns: int,
        numbers: Numbers,
    ) -> None:
        self.outcome = outcome
        self.data: memoryview | None = data
        self.size = size
        self.count = count
        self.sequence = sequence
        self.deadline_ns = deadline_ns
        self.failures = 0
        self.error: ClusterError | None = None
        self.numbers = numbers
        self.sent = False
        self.unsure = False
        self.acks: int | None = None


class PartitionQueue:
    """The unsent batches of one partition. One owner at a time."""

    __slots__ = (
        "_begun_ns",
        "_builder",
        "_ledger",
        "_needs_keys",
        "_owner",
        "_sequence",
        "_several_max",
        "_size_max",
        "_stamps",
        "_timeout_ns",
        "batches_in_flight",
        "in_flight",
        "open",
        "partition",
        "passed",
        "paused_until_ns",
        "ready",
        "refused",
        "sealed_count",
        "sequencer",
        "topic",
    )

    def __init__(
        self,
        owner: Owner | None,
        ledger: UnackedBatches,
        topic: str,
        partition: int,
        limits: TopicLimits,
        timeout_ms: int,
    ) -> None:
        """Build batches within ``limits``.

        A record that is larger alone gets its own batch. Every batch is added to ``ledger``; the
        code that settles it removes it.
        """
        self.topic = topic
        self.partition = partition
        self._owner = owner
        self._ledger = ledger
        self._builder = BatchBuilder(limits.several_max, timestamp_max=TIMESTAMP_MAX)
        self._several_max = limits.several_max
        self._size_max = max(limits.alone_max, limits.several_max)
        self._needs_keys = limits.needs_keys
        self._timeout_ns = timeout_ms * 1_000_000
        self.open: BatchResult | None = None
        """The batch that accepts records."""
        self._stamps: list[int | datetime] = []
        self._begun_ns = 0
        self._sequence = 0
        self.sealed_count = 0
        self.ready: deque[ProducerBatch] = deque()
        self.in_flight = 0
        self.passed = -1
        """The latest batch that may have been appended."""
        self.refused: list[ProducerBatch] = []
        self.sequencer: Sequencer | None = None
        """Set for an idempotent producer."""
        self.batches_in_flight: dict[int, ProducerBatch] = {}
        """The numbered batches in flight, by place in the queue."""
        self.paused_until_ns = 0

    @property
    def deadline_ns(self) -> int | None:
        """The time by which the oldest waiting batch must be sent; None: no batch waits."""
        if self.ready:
            return self.ready[0].deadline_ns
        return None if self.open is None else self._begun_ns + self._timeout_ns

    def refuse(self, error: ClusterError) -> None:
        """Note why the oldest waiting batch is not sent yet."""
        outcome = self.ready[0].outcome if self.ready else self.open
        if outcome is not None:
            outcome.refusal = error

    def check(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int | datetime] | None,
    ) -> None:
        """Raise the error that repeated calls of :meth:`extend` would raise; add no record."""
        index = find_too_large(values, keys, headers, timestamps, self._size_max)
        if index < len(values):
            raise MessageTooLargeError(_too_large(f"record {index} of {len(values)} for {self.topic}", self._size_max))
        if self._needs_keys:
            for index in range(len(values)):
                if keys is None or _is_absent(keys[index]):
                    raise InvalidRecordError(unkeyed_text(index, f"topic {self.topic!r}"))

    def limit(self, limits: TopicLimits) -> None:
        """Build the next batches within other limits. The open batch is sealed."""
        self.seal()
        self._builder = BatchBuilder(limits.several_max, timestamp_max=TIMESTAMP_MAX)
        self._several_max = limits.several_max
        self._size_max = max(limits.alone_max, limits.several_max)
        self._needs_keys = limits.needs_keys

    def append(
        self,
        value: Buffer | None,
        key: Buffer | None,
        headers: Headers,
        timestamp: SupportsIndex | datetime,
        now_ns: Callable[[], int],
    ) -> tuple[BatchResult, int]:
        """Add one record; return (its batch, its index there)."""
        if self._needs_keys and _is_absent(key):
            raise InvalidRecordError(unkeyed_text(0, f"topic {self.topic!r}"))
        outcome = self.open
        if outcome is None:
            outcome = self._begin(now_ns())
        index = self._builder.count
        try:
            if not self._builder.append(value, key, headers, timestamp):
                if index:
                    self.seal()
                    outcome, index = self._begin(now_ns()), 0
                if not self._builder.append(value, key, headers, timestamp):
                    return self._append_alone(value, key, headers, timestamp, now_ns())
        except BaseException:
            self._forget_empty()
            raise
        stamps = self._stamps
        if len(stamps) != index:
            self._align(outcome, index)
        stamps.append(timestamp if isinstance(timestamp, int) else record_ms(timestamp))
        if not self._needs_keys and len(stamps) == index + 1:
            self._builder.resume(outcome, stamps, self._several_max)
        return outcome, index

    def gathering(self, now_ms: Callable[[], int] | None) -> Callable[..., Ack | None]:
        """Return a function that adds a record to the open batch as :meth:`append` does, in one call of the core.

        It returns None if that batch was sealed or has no room, and then has added nothing: call :meth:`append`.
        ``now_ms``: the time of records without one; None: this machine's clock.
        """
        return Gathering(self._builder, now_ms, _not_taken).append

    def extend(
        self,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: Sequence[int | datetime] | None,
        timestamp: int,
        start: int,
        now_ns: int,
    ) -> tuple[Run, int]:
        """Add records from ``values[start]`` on until the batch is full.

        Return (the run that was added, the index of the first record that was not).
        """
        outcome = self.open
        if outcome is None:
            outcome = self._begin(now_ns)
        first = self._builder.count
        try:
            taken = self._builder.extend(values, keys, headers, timestamps, timestamp, start)
        except BaseException:
            self._forget_empty()
            raise
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
        if timestamps is None and (first == 0 or outcome.timestamps == timestamp):
            outcome.timestamps = timestamp  # one number for all, until other records join them
        else:
            if len(self._stamps) != first:
                self._align(outcome, first)
            self._stamps.extend(timestamps[start:taken] if timestamps is not None else [timestamp] * (taken - start))
        if taken < len(values):
            self.seal()
        return (outcome, first, taken - start), taken

    def _align(self, outcome: BatchResult, count: int) -> None:
        """Store a timestamp for each of ``count`` records.

        Earlier records may share one, and one that a signal handler interrupted has none (-1).
        """
        stamp = outcome.timestamps
        stamps = self._stamps
        stamps.extend([stamp if isinstance(stamp, int) else -1] * (count - len(stamps)))
        outcome.timestamps = stamps

    def _begin(self, now_ns: int) -> BatchResult:
        self._stamps = []
        self._begun_ns = now_ns
        self._builder.reset()
        self.open = outcome = BatchResult(self._owner, self.topic, self.partition, self._stamps)
        self._ledger.open(outcome)
        return outcome

    def _append_alone(
        self,
        value: Buffer | None,
        key: Buffer | None,
        headers: Headers,
        timestamp: SupportsIndex | datetime,
        now_ns: int,
    ) -> tuple[BatchResult, int]:
        if self.open is not None:  # begun for this record, which does not fit
            self._ledger.close(self.open)
            self.open = None
        builder = BatchBuilder(self._size_max, timestamp_max=TIMESTAMP_MAX)
        if not builder.append(value, key, headers, timestamp):
            raise MessageTooLargeError(_too_large(f"a record for {self.topic}-{self.partition}", self._size_max))
        outcome = BatchResult(self._owner, self.topic, self.partition, [record_ms(timestamp)])
        self._ledger.open(outcome)
        self._add(outcome, builder.finish(), 1, now_ns, NO_NUMBERS)
        return outcome, 0

    def _forget_empty(self) -> None:
        """Remove a batch that was begun for a refused record: it will never be sent or waited
        for."""
        if self.open is not None and not self._builder.count:
            self._ledger.close(self.open)
            self.open = None

    def seal(self) -> None:
        """Seal the open batch, if there is one, and begin no other."""
        outcome, self.open = self.open, None
        if outcome is None:
            return
        if not self._builder.count:  # the first record was refused
            self._ledger.close(outcome)
            return
        count = self._builder.count
        sequencer = self.sequencer
        if sequencer is None or sequencer.producer_id < 0:
            data, numbers = self._builder.finish(), NO_NUMBERS
        else:
            numbers = sequencer.seal(count)
            data = self._builder.finish(producer_id=numbers[0], producer_epoch=numbers[1], base_sequence=numbers[2])
        if len(data) <= COPY_SIZE_MAX:
            # A leader keeps it for readers near the end, and must not keep the builder's whole
            # memory.
            data = memoryview(bytearray(data))
        self._add(outcome, data, count, self._begun_ns, numbers)
        self._builder.reset()

    def _add(self, outcome: BatchResult, data: memoryview, count: int, now_ns: int, numbers: Numbers) -> None:
        size = len(data)
        self._ledger.seal(outcome, size)
        self._sequence = sequence = self._sequence + 1
        self.sealed_count += 1
        self.ready.append(ProducerBatch(outcome, data, size, count, sequence, now_ns + self._timeout_ns, numbers))

    def may_send(self) -> bool:
        """Return whether the next batch may be sent.

        An idempotent producer is at most :data:`FLYING_MAX` batches ahead of the oldest unanswered
        one, and begins a new epoch only when no batch is in flight. REQUIRES a producer id.
        """
        sequencer = self.sequencer
        if sequencer is None:
            return True
        if self.batches_in_flight:
            # Counted from the oldest unanswered batch: later ones must not make the leader forget
            # it.
            place = self.ready[0].sequence if self.ready else self._sequence + 1
            if place - min(self.batches_in_flight) >= FLYING_MAX:
                return False
        if sequencer.broken and (not self.ready or not self.ready[0].unsure):
            if self.batches_in_flight:
                return False
            for batch in self.ready:  # a batch after a missing one was not appended
                batch.sent = batch.unsure = False
            if not sequencer.begin_epoch():
                sequencer.producer_id = -1
                return False
        return True

    def number(self, batch: ProducerBatch) -> None:
        """Number ``batch``, which is about to be sent."""
        if self.sequencer is not None:
            if not batch.sent and self.sequencer.send(batch):
                # Sealed batches after it get new numbers when they are sent; new batches follow
                # those.
                self.sequencer.seal_next = (self.sequencer.send_next + sum(one.count for one in self.ready)) % SEQUENCES
            self.batches_in_flight[batch.sequence] = batch

    def is_first(self, batch: ProducerBatch) -> bool:
        """Return whether every batch before this one is settled."""
        return not any(
            one.sequence < batch.sequence for one in (*self.batches_in_flight.values(), *self.refused, *self.ready)
        )

    def take(self) -> ProducerBatch | None:
        """Remove and return the next batch to send, or None."""
        if not self.ready:
            self.seal()
        return self.ready.popleft() if self.ready else None

    def settle_refused(self) -> list[ProducerBatch]:
        """Put the refused batches back in front, in order, once no batch is in flight.

        Return those that cannot go back because a later batch may have been appended: if they were
        sent again, they would be appended after it.
        """
        if self.in_flight or not self.refused:
            return []
        refused = sorted(self.refused, key=lambda batch: batch.sequence)
        self.refused.clear()
        if self.sequencer is not None:  # no later batch can have been appended after a missing one
            self.ready.extendleft(reversed(refused))
            return []
        self.ready.extendleft([batch for batch in reversed(refused) if batch.sequence > self.passed])
        return [batch for batch in refused if batch.sequence < self.passed]

    def withdraw(self, batch: ProducerBatch) -> bool:
        """Remove ``batch``; return False if it is in flight or settled."""
        if batch in self.ready:
            self.ready.remove(batch)
            return True
        if batch in self.refused:
            self.refused.remove(batch)
            return True
        return False

    def drain(self) -> list[ProducerBatch]:
        """Remove and return all batches that are not in flight."""
        self.seal()
        given_up = [*self.refused, *self.ready]
        self.refused.clear()
        self.ready.clear()
        return given_up


def _not_taken(value: object, key: object, headers: object, timestamp: object) -> None:
    """Stands for the record that the open batch did not take."""


def _is_absent(key: Buffer | None) -> bool:
    """Return whether ``key`` is none; a null of an Arrow array is none too."""
    return key is None or getattr(key, "is_valid", None) is False


def _too_large(what: str, size_max: int) -> str:
    return (
        f"{what} does not fit a batch of {size_max} bytes; nothing was sent. Send less at once, or to a topic made with"
        " a larger max.message.bytes (and segment.bytes)"
    )
