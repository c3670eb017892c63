"""The producers of one log, in memory: producer id -> epoch, last batches, open transaction.

A leader calls :meth:`ProducerTable.check` before it appends and :meth:`ProducerTable.note` after. A follower and
recovery only call ``note``. The rules are those of Kafka's ``ProducerAppendInfo`` and ``ProducerStateManager``
(KIP-98), with two differences:

* an unknown producer must begin at sequence 0 (else :class:`UnknownProducerIdError`), unless its state expired or a
  broker wrote the folder. Kafka accepts any first sequence, and so accepts a batch whose predecessors are lost;
* the age of a producer counts from its last batch in this process, by the monotonic clock, never by the timestamps
  of its records, which may be old.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from pyreplog._core import ProducerEntry, RecordBatch, SentBatch
from pyreplog.errors import (
    CorruptError,
    DuplicateSequenceError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    UnknownProducerIdError,
)
from pyreplog.log.layout import INT32_MAX
from pyreplog.record import ABORT, end_marker

PRODUCER_EXPIRATION_MS: Final = 24 * 3600 * 1000
"""A producer without an open transaction expires after this long without a batch (Kafka's default)."""
_EXPIRED_MAX: Final = 10_000
_NONE: Final = -1


def next_sequence(sequence: int) -> int:
    """Return the sequence after ``sequence``: 0 follows 2**31 - 1, and -1 (none)."""
    return 0 if sequence == INT32_MAX else sequence + 1


class CompletedTransaction(NamedTuple):
    """A transaction that a marker at ``last_offset`` ended. ``last_stable_offset``: see the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int


class ProducerTable:
    """The producers of one log, from its batches below ``end_offset``. Not thread-safe: call it under the log's
    lock.

    ``lenient``: an unknown producer may begin at any sequence, because a broker wrote the folder.
    """

    __slots__ = ("_expired", "_ongoing", "_unreplicated", "end_offset", "entries", "lenient")

    def __init__(self, end_offset: int = 0, entries: Iterable[ProducerEntry] = (), *, lenient: bool = False) -> None:
        self.end_offset = end_offset
        self.lenient = lenient
        #: By producer id. The fast path of an append reads this dict directly.
        self.entries: dict[int, ProducerEntry] = {entry.producer_id: entry for entry in entries}
        # producer id -> first offset of its open transaction
        self._ongoing = {
            entry.producer_id: entry.transaction_start
            for entry in self.entries.values()
            if entry.transaction_start >= 0
        }
        # (first, last offset) of ended transactions whose marker may be at or above the high
        # watermark
        self._unreplicated: list[tuple[int, int]] = []
        # Expired producers: no longer in the table or in snapshots, but check() still applies
        # their state as long as this table lives. If such a producer could begin at any sequence,
        # a refused batch could be followed by an accepted one and would then count as appended.
        self._expired: dict[int, ProducerEntry] = {}

    def copy(self) -> ProducerTable:
        """Return an independent copy of the table, without the expired producers."""
        entries = []
        for entry in self:
            twin = ProducerEntry(
                entry.producer_id, entry.epoch, entry.coordinator_epoch, transaction_start=entry.transaction_start
            )
            for sent in entry.batches:
                twin.sent(sent.last_sequence, sent.last_offset, sent.offset_delta, sent.timestamp)
            twin.last_timestamp, twin.seen_ms = entry.last_timestamp, entry.seen_ms
            entries.append(twin)
        return ProducerTable(self.end_offset, entries, lenient=self.lenient)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        """Iterate over the entries in the order of producer ids."""
        return iter([self.entries[producer_id] for producer_id in sorted(self.entries)])

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Return the entry of ``producer_id``, or None. Do not change it."""
        return self.entries.get(producer_id)

    # -- checks of the leader --

    def check(self, batch: RecordBatch) -> SentBatch | None:
        """Return None if a client's ``batch`` may be appended, or the appended batch that it repeats.

        REQUIRES that the batch has a producer id. Raises :class:`InvalidProducerEpochError`,
        :class:`OutOfOrderSequenceError` (:class:`DuplicateSequenceError` if the batch must be in the log because a
        later one is), :class:`UnknownProducerIdError`, :class:`InvalidTransactionStateError`. Changes nothing.
        """
        entry = self.entries.get(batch.producer_id)
        first = batch.base_sequence
        if (
            entry is not None
            and entry.batches
            and first == entry.batches[-1].last_sequence + 1
            and batch.producer_epoch == entry.epoch
            and entry.transaction_start < 0
        ):
            return None  # the common case: the same epoch, the next sequence
        if entry is None:
            entry = self._expired.get(batch.producer_id)
        if entry is None:
            if first and not self.lenient:
                raise UnknownProducerIdError(f"producer {batch.producer_id} begins at sequence {first}")
            return None
        epoch = batch.producer_epoch
        if epoch == entry.epoch:
            last = batch.last_sequence
            for sent in reversed(entry.batches):
                if sent.last_sequence == last and sent.first_sequence == first:
                    return sent
            if first != next_sequence(entry.last_sequence):
                oldest = entry.batches[0].first_sequence if entry.batches else 0
                if entry.batches and 0 < (oldest - last) % (INT32_MAX + 1) <= INT32_MAX // 2:
                    raise DuplicateSequenceError(
                        f"producer {entry.producer_id} sends sequence {first} in epoch {epoch} again, after"
                        f" {entry.last_sequence}"
                    )
                raise OutOfOrderSequenceError(
                    f"producer {entry.producer_id} sends sequence {first} in epoch {epoch}, whose last one is"
                    f" {entry.last_sequence}"
                )
        elif epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"producer {entry.producer_id} sends in epoch {epoch}, and {entry.epoch} has begun"
            )
        elif first and entry.epoch != _NONE:
            raise OutOfOrderSequenceError(f"producer {entry.producer_id} begins epoch {epoch} at sequence {first}")
        if entry.transaction_start >= 0 and not batch.is_transactional:
            raise InvalidTransactionStateError(
                f"producer {entry.producer_id} has one open since offset {entry.transaction_start}"
            )
        return None

    # -- appended batches --

    def note(self, batch: RecordBatch, base_offset: int) -> CompletedTransaction | None:
        """Record ``batch``, which has a producer id and was appended at ``base_offset``. Return the transaction
        that it ends, if any.

        The batch is not checked, because the leader has checked it.
        """
        producer_id, epoch, last_sequence, delta, timestamp, is_control, is_transactional = batch.origin()
        last_offset = base_offset + delta
        self.end_offset = last_offset + 1
        if is_control:
            return self._note_marker(batch, producer_id, last_offset)
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        entry.begin_epoch(epoch)
        entry.sent(last_sequence, last_offset, delta, timestamp)
        if is_transactional and entry.transaction_start < 0:
            entry.transaction_start = self._ongoing[producer_id] = base_offset
        return None

    def _note_marker(self, batch: RecordBatch, producer_id: int, last_offset: int) -> CompletedTransaction | None:
        try:
            marker = end_marker(batch)
        except CorruptError:
            marker = None  # written neither by pyreplog nor by Kafka
        if marker is None:
            return None  # no marker; compaction may have removed it
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        entry.begin_epoch(batch.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = marker.timestamp
        entry.seen_ms = _NONE
        entry.transaction_start = _NONE
        first_offset = self._ongoing.pop(producer_id, _NONE)
        if first_offset < 0:
            return None
        self._unreplicated.append((first_offset, last_offset))
        stable = min(self._ongoing.values(), default=last_offset + 1)
        return CompletedTransaction(producer_id, first_offset, last_offset, marker.type == ABORT, stable)

    # -- stability --

    def first_unstable(self, high_watermark: int) -> int:
        """Return the first offset of the oldest transaction that is open or whose marker is not below
        ``high_watermark``, or -1 if there is none."""
        if self._unreplicated:
            self._unreplicated = [ended for ended in self._unreplicated if ended[1] >= high_watermark]
        if not self._ongoing and not self._unreplicated:
            return _NONE
        starts = [*self._ongoing.values(), *(first for first, _ in self._unreplicated)]
        return min(starts)

    @property
    def open_transactions(self) -> dict[int, int]:
        """Producer id -> first offset of its open transaction, as a copy."""
        return dict(self._ongoing)

    # -- expiry and deletion --

    def expire(self, now_ms: int, kept: Collection[int] = ()) -> list[int]:
        """Remove producers without an open transaction that were silent for :data:`PRODUCER_EXPIRATION_MS`, except
        those in ``kept``. Return their ids.

        :meth:`check` still applies the state of the last 10,000 expired producers until the log is truncated or
        opened again.
        """
        gone = []
        for entry in self.entries.values():
            if entry.seen_ms < 0 or entry.producer_id in kept:
                entry.seen_ms = now_ms
            elif now_ms - entry.seen_ms >= PRODUCER_EXPIRATION_MS and entry.transaction_start < 0:
                gone.append(entry.producer_id)
        for producer_id in gone:
            self._expired.pop(producer_id, None)  # move it to the newest end of the dict
            self._expired[producer_id] = self.entries.pop(producer_id)
            if len(self._expired) > _EXPIRED_MAX:
                del self._expired[next(iter(self._expired))]
        return gone

    def forget_expired(self) -> None:
        """Drop the state of expired producers, because it may come from truncated batches."""
        self._expired.clear()

    def raise_start(self, start_offset: int) -> None:
        """Record that the log now begins at ``start_offset``. All producers stay in the table."""
        self._unreplicated = [ended for ended in self._unreplicated if ended[1] >= start_offset]
        self.end_offset = max(self.end_offset, start_offset)
