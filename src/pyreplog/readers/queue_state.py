"""The picture of one queue: which records are delivered, to whom, and how often. Sans-IO.

The words are KIP-932's. A record is *available*, *acquired* (delivered to one worker, which has its
lock until a deadline), *acknowledged* (accepted) or *archived* (a dead letter). ``next_offset`` is
the first offset that was never acquired (the share partition's end offset). Below it only the
available and the acquired records are kept: every other offset is acknowledged, archived, or not in
the log any more.

The state changes by :meth:`QueueState.apply` alone, in the order of the journal's entries, so all
processes have the same one. The lock of a record ends without an entry: the next worker takes the
record over if the deadline has passed or its worker is gone. Until then its worker may still accept
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from pyreplog.errors import CorruptError
from pyreplog.readers.queue_entries import (
    Accepted,
    Acquired,
    Archived,
    Cut,
    Deleted,
    Entry,
    Joined,
    Lock,
    Released,
    Renewed,
    Run,
    Snapshot,
)
from pyreplog.values import QueueStats

__all__ = ["DELIVERIES_MAX", "IN_FLIGHT_MAX", "Choice", "QueueState", "counted_runs", "runs_of"]

DELIVERIES_MAX: Final = 5
"""A record that was delivered this often, and is available again, becomes a dead letter. So does a rejected one, whose
count has the bit :data:`REJECTED`."""
IN_FLIGHT_MAX: Final = 2000
"""The most records that are available again or acquired. At that limit no new record is delivered."""
NEVER_NS: Final = 2**63 - 1


class Choice(NamedTuple):
    """The next records of a worker, as runs of (first offset, count, delivery count).

    ``again`` were delivered before, ``new`` were not, ``exhausted`` must become dead letters; their
    delivery count stays as it is.
    """

    again: list[Run]
    new: list[Run]
    exhausted: list[Run]


class QueueState:
    """The state of a queue. Not thread-safe: its journal changes it under the lock of its file."""

    __slots__ = (
        "accepted_count",
        "acquired",
        "archived_count",
        "available",
        "deleted_count",
        "first_deadline_ns",
        "last_epoch",
        "last_worker",
        "next_offset",
        "workers",
    )

    def __init__(self) -> None:
        self.next_offset = 0
        self.last_epoch = -1
        """The leader epoch of the record below ``next_offset`` that was acquired last; -1 if none was."""
        self.last_worker = 0
        """The highest number of a worker so far. Workers count from 1."""
        self.available: dict[int, int] = {}
        """Offset -> delivery count."""
        self.acquired: dict[int, Lock] = {}
        """Offset -> (worker, delivery count, deadline in ns)."""
        self.workers: dict[int, int] = {}
        """Worker -> number of its acquired records, from 1."""
        self.first_deadline_ns = NEVER_NS
        """No deadline is earlier."""
        self.accepted_count = 0
        self.archived_count = 0
        self.deleted_count = 0

    # -- questions ---------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """The number of available and acquired records."""
        return len(self.available) + len(self.acquired)

    def stats(self) -> QueueStats:
        """Return the numbers of the queue."""
        return QueueStats(
            self.next_offset,
            len(self.acquired),
            len(self.available),
            self.accepted_count,
            self.archived_count,
            self.deleted_count,
        )

    def lost(self, worker: int, claims: Iterable[tuple[int, int]]) -> list[int]:
        """Return the offsets of the ``claims`` (offset, delivery count) that ``worker`` does not have."""
        acquired = self.acquired
        lost = []
        for offset, delivery_count in claims:
            lock = acquired.get(offset)
            if lock is None or lock[0] != worker or lock[1] != delivery_count:
                lost.append(offset)
        return lost

    def held_by(self, worker: int) -> list[int]:
        """Return the offsets of the records that ``worker`` has, rising."""
        return sorted([offset for offset, lock in self.acquired.items() if lock[0] == worker])

    def redeliverable(self, now_ns: int, gone: Collection[int]) -> dict[int, int]:
        """Return offset -> delivery count of the records that may be delivered again.

        These are the available ones, and those whose deadline has passed or whose worker is one of ``gone``.
        """
        found = dict(self.available)
        if now_ns >= self.first_deadline_ns or not self.workers.keys().isdisjoint(gone):
            first_ns = NEVER_NS
            for offset, (worker, count, deadline_ns) in self.acquired.items():
                if deadline_ns <= now_ns or worker in gone:
                    found[offset] = count
                elif deadline_ns < first_ns:
                    first_ns = deadline_ns
            if len(found) == len(self.available):
                self.first_deadline_ns = first_ns
        return found

    def choose(self, count: int, fresh: Sequence[int], now_ns: int, gone: Collection[int]) -> Choice:
        """Return up to ``count`` records for a worker: first those that were delivered before, by rising offset.

        ``fresh`` are offsets of the log, rising; those below ``next_offset`` do not count. Exhausted records are
        chosen too, also up to ``count``.
        """
        again: list[Run] = []
        exhausted: list[Run] = []
        if self.available or now_ns >= self.first_deadline_ns or (gone and not self.workers.keys().isdisjoint(gone)):
            found = self.redeliverable(now_ns, gone)
            spent = sorted([offset for offset, times in found.items() if times >= DELIVERIES_MAX])[:count]
            chosen = sorted([offset for offset, times in found.items() if times < DELIVERIES_MAX])[:count]
            exhausted = counted_runs([(offset, found[offset]) for offset in spent])
            again = counted_runs([(offset, found[offset] + 1) for offset in chosen])
            count -= len(chosen)
        room = min(count, IN_FLIGHT_MAX - len(self.available) - len(self.acquired))
        if room <= 0:
            return Choice(again, [], exhausted)
        next_offset = self.next_offset
        new = [offset for offset in fresh if offset >= next_offset]
        return Choice(again, [(first, size, 1) for first, size in runs_of(new[:room])], exhausted)

    # -- changes -----------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        """Change the state. Raises :class:`CorruptError` if the entry contradicts it; the state is then undefined."""
        if isinstance(entry, Acquired):
            self._acquire(entry)
        elif isinstance(entry, Accepted):
            self.accepted_count += self._finish(entry.runs)
        elif isinstance(entry, Released):
            for offset, lock in self._taken(entry.runs):
                self.available[offset] = lock[1]
        elif isinstance(entry, Archived):
            self.archived_count += self._finish(entry.runs)
        elif isinstance(entry, Renewed):
            self._renew(entry)
        elif isinstance(entry, Joined):
            if entry.worker <= self.last_worker:
                raise CorruptError(f"worker {entry.worker} joins a queue that has had {self.last_worker}")
            self.last_worker = entry.worker
        elif isinstance(entry, Deleted):
            self._delete(entry)
        elif isinstance(entry, Cut):
            self._cut(entry)
        else:
            self._restore(entry)

    def acquire_next(self, worker: int, deadline_ns: int) -> None:
        """Apply an :class:`Acquired` of the record at ``next_offset`` alone, of the same epoch. REQUIRES that fewer
        than :data:`IN_FLIGHT_MAX` records are in flight."""
        offset = self.next_offset
        self.acquired[offset] = (worker, 1, deadline_ns)
        self.next_offset = offset + 1
        self.workers[worker] = self.workers.get(worker, 0) + 1
        if deadline_ns < self.first_deadline_ns:
            self.first_deadline_ns = deadline_ns

    def accept_one(self, offset: int) -> None:
        """Apply an :class:`Accepted` of one record. REQUIRES that it is acquired."""
        self._forget(self.acquired.pop(offset)[0])
        self.accepted_count += 1

    def snapshot(self) -> Snapshot:
        """Return the whole state as one entry."""
        return Snapshot(
            self.next_offset,
            self.last_epoch,
            self.last_worker,
            self.accepted_count,
            self.archived_count,
            self.deleted_count,
            dict(self.available),
            dict(self.acquired),
        )

    def _acquire(self, entry: Acquired) -> None:
        worker, deadline_ns = entry.worker, entry.deadline_ns
        if not 0 < worker <= self.last_worker:
            raise CorruptError(f"worker {worker} acquires records, and the last one that joined is {self.last_worker}")
        acquired, workers = self.acquired, self.workers
        for first, count, delivery_count in entry.runs:
            lock = (worker, delivery_count, deadline_ns)
            if first >= self.next_offset:
                acquired.update(dict.fromkeys(range(first, first + count), lock))
                self.next_offset = first + count
                self.last_epoch = entry.epoch
            else:
                for offset in range(first, first + count):
                    if self.available.pop(offset, None) is None:
                        self._forget(self._lock_of(offset)[0])
                    acquired[offset] = lock
            workers[worker] = workers.get(worker, 0) + count
        if self.in_flight > IN_FLIGHT_MAX:
            raise CorruptError(f"{self.in_flight} records are in flight, and the limit is {IN_FLIGHT_MAX}")
        if deadline_ns < self.first_deadline_ns:
            self.first_deadline_ns = deadline_ns

    def _renew(self, entry: Renewed) -> None:
        for first, count in entry.runs:
            for offset in range(first, first + count):
                worker, delivery_count, _ = self._lock_of(offset)
                if worker != entry.worker:
                    raise CorruptError(f"worker {entry.worker} renews offset {offset}, which worker {worker} has")
                self.acquired[offset] = (worker, delivery_count, entry.deadline_ns)
        if entry.deadline_ns < self.first_deadline_ns:
            self.first_deadline_ns = entry.deadline_ns

    def _finish(self, runs: Sequence[tuple[int, int]]) -> int:
        """Drop acquired records, and return their number."""
        if len(runs) == 1 and runs[0][1] == 1:
            lock = self.acquired.pop(runs[0][0], None)
            if lock is None:
                raise self._not_acquired(runs[0][0])
            self._forget(lock[0])
            return 1
        return len(self._taken(runs))

    def _taken(self, runs: Sequence[tuple[int, int]]) -> list[tuple[int, Lock]]:
        """Remove acquired records, and return offset and lock of each."""
        acquired = self.acquired
        taken: list[tuple[int, Lock]] = []
        for first, count in runs:
            for offset in range(first, first + count):
                lock = acquired.pop(offset, None)
                if lock is None:
                    raise self._not_acquired(offset)
                taken.append((offset, lock))
        for _, lock in taken:
            self._forget(lock[0])
        return taken

    def _delete(self, entry: Deleted) -> None:
        if entry.next_offset < self.next_offset:
            raise CorruptError(f"the queue goes back from offset {self.next_offset} to {entry.next_offset}")
        self.deleted_count += entry.next_offset - self.next_offset
        self.next_offset = entry.next_offset
        for first, count in entry.runs:
            for offset in range(first, first + count):
                if self.available.pop(offset, None) is None:
                    self._lock_of(offset)
                    self._forget(self.acquired.pop(offset)[0])
                self.deleted_count += 1

    def _cut(self, entry: Cut) -> None:
        """Forget every record at and above an offset: the log was truncated there, and has other records now."""
        for offset in [offset for offset in self.available if offset >= entry.next_offset]:
            del self.available[offset]
        for offset in [offset for offset in self.acquired if offset >= entry.next_offset]:
            self._forget(self.acquired.pop(offset)[0])
        self.next_offset = min(self.next_offset, entry.next_offset)
        self.last_epoch = entry.epoch

    def _restore(self, entry: Snapshot) -> None:
        offsets = [*entry.available, *entry.acquired]
        if len(offsets) > IN_FLIGHT_MAX or len(set(offsets)) < len(offsets):
            raise CorruptError(f"a snapshot has {len(offsets)} records in flight; the limit is {IN_FLIGHT_MAX}")
        if offsets and max(offsets) >= entry.next_offset:
            raise CorruptError(f"offset {max(offsets)} is in flight, and the queue ends at {entry.next_offset}")
        self.next_offset, self.last_epoch, self.last_worker = entry.next_offset, entry.last_epoch, entry.last_worker
        self.accepted_count, self.archived_count = entry.accepted_count, entry.archived_count
        self.deleted_count = entry.deleted_count
        self.available, self.acquired = dict(entry.available), dict(entry.acquired)
        self.workers = {}
        self.first_deadline_ns = NEVER_NS
        for worker, _, deadline_ns in entry.acquired.values():
            self.workers[worker] = self.workers.get(worker, 0) + 1
            self.first_deadline_ns = min(self.first_deadline_ns, deadline_ns)

    def _lock_of(self, offset: int) -> Lock:
        lock = self.acquired.get(offset)
        if lock is None:
            raise self._not_acquired(offset)
        return lock

    def _not_acquired(self, offset: int) -> CorruptError:
        return CorruptError(f"an entry changes offset {offset}, which no worker has")

    def _forget(self, worker: int) -> None:
        """Count one record less for ``worker``."""
        left = self.workers[worker] - 1
        if left:
            self.workers[worker] = left
        else:
            del self.workers[worker]


def runs_of(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Return rising ``offsets`` as runs of (first offset, count)."""
    if not offsets:
        return []
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        return [(offsets[0], len(offsets))]
    runs = []
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            runs.append((first, last + 1 - first))
            first = offset
        last = offset
    runs.append((first, last + 1 - first))
    return runs


def counted_runs(pairs: Sequence[tuple[int, int]]) -> list[Run]:
    """Return pairs of (rising offset, delivery count) as runs with equal counts."""
    runs: list[Run] = []
    for offset, delivery_count in pairs:
        if runs and runs[-1][2] == delivery_count and runs[-1][0] + runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, delivery_count)
        else:
            runs.append((offset, 1, delivery_count))
    return runs
