"""QueueWorker: one worker of a queue. It joins the journal, the records of the log, and the dead letters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from pyreplog.errors import ClosedError, InvalidRecordStateError, OffsetOutOfRangeError, PyreplogError, StorageError
from pyreplog.ports import Clock
from pyreplog.readers import (
    DELIVERIES_MAX,
    IN_FLIGHT_MAX,
    REJECTED,
    Accepted,
    Acquired,
    Archived,
    Cut,
    Deleted,
    Entry,
    QueueJournal,
    QueueState,
    Released,
    Renewed,
    counted_runs,
    runs_of,
)
from pyreplog.record import Record, delivered
from pyreplog.runtime.dead_letter_log import DeadLetterWriter
from pyreplog.runtime.follow import ChangeSignal
from pyreplog.runtime.logger import LOGGER
from pyreplog.runtime.queue_sync import JournalSync
from pyreplog.runtime.views import CommittedView, ReaderView, WriterView, record_lists
from pyreplog.system import OwnedLock
from pyreplog.values import QueueStats

__all__ = ["LOCK_NS", "DeadLetterWriter", "QueueWorker"]

LOCK_NS: Final = 30_000_000_000
"""How long a worker has a record before another one may take it over."""
LOOK_NS: Final = 100_000_000
"""A worker looks this often whether the others are alive."""
ROUNDS_MAX: Final = 1000
"""How often one call looks for records that other workers took before it could."""
READ_COUNT: Final = 500
"""The records that are read ahead, at most about."""
_EXHAUSTED: Final = f"not accepted in {DELIVERIES_MAX} deliveries"

_REJECTED: Final = "rejected by a worker that ended or failed before this was written"

Runs = list[tuple[int, int]]
Claims = list[tuple[int, int]]
"""(offset, delivery count), by rising offset."""


class QueueWorker:
    """One worker of a queue. Thread-safe. It never waits for records."""

    def __init__(
        self,
        name: str,
        view: WriterView | ReaderView | CommittedView,
        journal: QueueJournal,
        clock: Clock,
        dead_letters: DeadLetterWriter,
        *,
        is_sync: bool,
    ) -> None:
        self.title = f"the queue {name!r} of {view.topic}-{view.partition}"
        """How errors call the queue."""
        self._name = name
        self._view = view
        self._journal = journal
        self._now_ns = clock.monotonic_ns
        self._dead_letters = dead_letters
        self._syncs = JournalSync(journal) if is_sync else None
        # A thread that holds `_reading` may wait for the disk, and takes `_changing` within it.
        self._reading = OwnedLock(self.title)
        self._changing = OwnedLock(self.title)
        self._fresh: deque[Record] = deque()
        """Records that were read ahead, by rising offset. Changed under ``_changing``; only a thread that holds
        ``_reading`` too adds records."""
        self._read_end = 0
        """The offset up to which the log was read into ``_fresh``."""
        self._looked_ns = -LOOK_NS
        self._gone: set[int] = set()
        self._is_closed = False

    # -- receiving ---------------------------------------------------------------------------------

    def take_next(self) -> Record | None:
        """Acquire the next new record and return it, if nothing else is to be considered: no record may be delivered
        again, the next one follows the last, and no other worker has changed the journal. This is what most calls do,
        so it is short. If it returns None, nothing was changed: call :meth:`take`."""
        fresh = self._fresh
        with self._changing.enter():
            journal = self._journal
            state = journal.state
            if not fresh or state.available or self._gone or self._is_closed or self._failure is not None:
                return None
            record = fresh[0]
            now_ns = self._now_ns()
            if (
                now_ns >= state.first_deadline_ns
                or now_ns - self._looked_ns >= LOOK_NS
                or len(state.acquired) >= IN_FLIGHT_MAX
                or record.offset != state.next_offset
                or record.leader_epoch != state.last_epoch
                or not journal.acquire_next(now_ns + LOCK_NS)
            ):
                return None
            del fresh[0]
            return delivered([record], 1)[0]

    def take(self, count: int) -> list[Record]:
        """Acquire up to ``count`` records that can be delivered now, and return them.

        Dead letters that are due are written first.
        """
        with self._reading.enter():
            for _ in range(ROUNDS_MAX):
                self._fill(count)
                taken = self._take(count)
                if taken is not None:
                    return taken
        return []

    def _take(self, count: int) -> list[Record] | None:
        """Return acquired records; None if another look may find more. REQUIRES ``_reading``."""
        fresh = self._fresh
        with self._changing.enter(), self._open() as state:
            now_ns = self._now_ns()
            if now_ns - self._looked_ns >= LOOK_NS:
                self._look(state, now_ns)
            if state.next_offset < self._view.start_offset or self._is_cut(state):
                self._follow_log(state)
            next_offset = state.next_offset
            while fresh and fresh[0].offset < next_offset:
                fresh.popleft()
            offsets = [record.offset for record in islice(fresh, count)]
            choice = state.choose(count, offsets, now_ns, self._gone)
            if state.workers and not any(choice):
                self._look(state, now_ns)  # there is nothing else to do
                choice = state.choose(count, offsets, now_ns, self._gone)
            exhausted = choice.exhausted
            new_count = sum([run[1] for run in choice.new])
            runs = [*choice.again, *choice.new]
            if exhausted or runs:
                epoch = fresh[new_count - 1].leader_epoch if new_count else state.last_epoch
                self._journal.append(
                    Acquired(self._journal.worker, now_ns + LOCK_NS, epoch, [*exhausted, *runs] if exhausted else runs)
                )
            new = delivered([fresh.popleft() for _ in range(new_count)], 1)
        if not choice.again and not exhausted:
            return new if new or offsets or self._is_at_end(next_offset) else None
        again: list[Record] = []
        try:
            for first, size, delivery_count in choice.again:
                again += delivered(self._find(first, size), delivery_count)
            for first, size, times in exhausted:
                records = delivered(self._find(first, size), times & ~REJECTED)
                self._bury(
                    records,
                    [(record.offset, times) for record in records],
                    _REJECTED if times & REJECTED else _EXHAUSTED,
                )
        except BaseException:
            self._give_back([*exhausted, *runs])
            raise
        return again + new or None

    def _is_at_end(self, next_offset: int) -> bool:
        """Return whether the log has no record from ``next_offset`` on that was not read yet."""
        return max(self._read_end, next_offset) >= self._view.end_offset

    def _fill(self, count: int) -> None:
        """Read ahead until there are ``count`` new records, or the log ends. REQUIRES ``_reading``."""
        fresh = self._fresh
        with self._changing.enter():
            next_offset = self._journal.state.next_offset
            while fresh and fresh[0].offset < next_offset:
                fresh.popleft()
            if len(fresh) >= count:
                return
        view = self._view
        start = max(self._read_end, next_offset)
        if start >= view.end_offset:
            view.refresh()
        start = max(start, view.start_offset)
        end = view.end_offset
        if start >= end:
            self._read_end = max(self._read_end, view.start_offset)
            return
        wanted = min(count, READ_COUNT)
        try:
            for records in record_lists(view, start, end):
                with self._changing.enter():
                    fresh.extend(records)
                start = records[-1].offset + 1
                if len(fresh) >= wanted:
                    break
            else:
                start = end
        except OffsetOutOfRangeError:
            view.refresh()
            if start >= view.start_offset:
                raise
            # The records were deleted in the meantime; the next look begins behind them.
        except PyreplogError:
            if not fresh:
                raise  # deliver the records before the damage first
        finally:
            self._read_end = start

    def _find(self, first: int, count: int) -> list[Record]:
        """Return the records of a run that were delivered before. Those that are not in the log any more are noted as
        deleted."""
        view = self._view
        found: list[Record] = []
        start = max(first, view.start_offset)
        try:
            for records in record_lists(view, start, first + count):
                found += records
        except OffsetOutOfRangeError:
            view.refresh()
            if start >= view.start_offset:
                raise
            return self._find(first, count)
        if len(found) < count:
            there = {record.offset for record in found}
            missing = [offset for offset in range(first, first + count) if offset not in there]
            self._note_deleted(missing)
        return found

    def _note_deleted(self, offsets: list[int]) -> None:
        LOGGER.warning(
            "%s: %d records from offset %d on were deleted from the log before a worker accepted them",
            self.title,
            len(offsets),
            offsets[0],
        )
        with self._changing.enter(), self._open() as state:
            lost = set(offsets).difference(state.held_by(self._journal.worker))
            runs = runs_of([offset for offset in offsets if offset not in lost])
            if runs:
                self._journal.append(Deleted(state.next_offset, runs))

    def _look(self, state: QueueState, now_ns: int) -> None:
        """See which other workers have ended. REQUIRES the journal's lock."""
        self._looked_ns = now_ns
        self._gone = self._journal.gone(list(state.workers))
        if not self._journal.is_current():
            raise ClosedError(
                f"{self._journal.path}: the journal of {self.title} was removed or replaced: open the queue again"
            )

    def _is_cut(self, state: QueueState) -> bool:
        """Return whether the log may have been truncated below ``next_offset``: it ends before that, or its next
        record is of a newer epoch than the last one that was delivered."""
        if self._view.end_offset < state.next_offset:
            return True
        return bool(self._fresh) and state.last_epoch >= 0 and self._fresh[0].leader_epoch > state.last_epoch

    def _follow_log(self, state: QueueState) -> None:
        """Note in the journal if records that were not delivered yet were deleted, or if the log was truncated."""
        start = self._view.start_offset
        cuts = [
            entry.start_offset
            for entry in self._view.epochs
            if entry.epoch > state.last_epoch >= 0 and entry.start_offset < state.next_offset
        ]
        if cuts:
            cut = min(cuts)
            epoch = max([entry.epoch for entry in self._view.epochs if entry.start_offset < cut], default=-1)
            LOGGER.warning(
                "%s: the log was truncated to offset %d; records up to %d had been delivered; the queue goes on at %d",
                self.title,
                cut,
                state.next_offset,
                cut,
            )
            self._journal.append(Cut(cut, epoch))
            self._fresh.clear()
            self._read_end = cut
        if state.next_offset < start:
            LOGGER.warning(
                "%s: the records at offsets %d to %d were deleted from the log before their first delivery",
                self.title,
                state.next_offset,
                start - 1,
            )
            self._journal.append(Deleted(start, []))

    # -- settling ----------------------------------------------------------------------------------

    def accept(self, records: Sequence[Record]) -> None:
        """Note that ``records`` are done; durable if the log is."""
        if len(records) == 1 and self._accept_one(records[0]):
            return
        self._settle("accept", records, Accepted)

    def _accept_one(self, record: Record) -> bool:
        """Accept a record, as most calls do; return False if nothing was changed, because it is not as simple."""
        with self._changing.enter():
            journal = self._journal
            if (
                self._is_closed
                or self._failure is not None
                or not journal.accept_one(record.offset, record.delivery_count)
            ):
                return False
            count = journal.append_count
        if self._syncs is not None:
            self._syncs.wait(count)
        return True

    def release(self, records: Sequence[Record]) -> None:
        """Make ``records`` available again."""
        self._settle("release", records, Released, is_synced=False)

    def renew(self, records: Sequence[Record]) -> None:
        """Begin the lock of ``records`` again."""
        deadline_ns = self._now_ns() + LOCK_NS
        worker = self._journal.worker
        self._settle("renew", records, lambda runs: Renewed(worker, deadline_ns, runs), is_synced=False)

    def reject(self, records: Sequence[Record], message: str) -> None:
        """Make dead letters of ``records``. If that fails, a later :meth:`take` of any worker tries again."""
        now_ns = self._now_ns()
        claims = sorted({(record.offset, record.delivery_count) for record in records})
        if not claims:
            return
        with self._changing.enter(), self._open() as state:
            self._check_held(state, "reject", claims)
            spent = counted_runs([(offset, times | REJECTED) for offset, times in claims])
            self._journal.append(Acquired(self._journal.worker, now_ns + LOCK_NS, state.last_epoch, spent))
        try:
            self._bury(records, [(offset, times | REJECTED) for offset, times in claims], message)
        except BaseException:
            self._give_back(spent)
            raise

    def _bury(self, records: Sequence[Record], claims: Claims, message: str) -> None:
        """Write dead letters, then note them in the journal. A letter that is there already is not written again."""
        if records:
            with self._changing.enter():
                state = self._journal.state
                floor = min((*state.available, *state.acquired), default=0)
            self._dead_letters.write(records, group=self._name, message=message, floor=floor)
            self._change("reject", claims, Archived)

    def _settle(
        self, doing: str, records: Sequence[Record], make: Callable[[Runs], Entry], *, is_synced: bool = True
    ) -> None:
        """Append the entry that ``make`` makes of the records' offsets. All of them are changed, or none."""
        if len(records) == 1:
            record = records[0]
            claims = [(record.offset, record.delivery_count)]
        else:
            claims = sorted({(record.offset, record.delivery_count) for record in records})
        if claims:
            self._change(doing, claims, make, is_synced=is_synced)

    def _change(self, doing: str, claims: Claims, make: Callable[[Runs], Entry], *, is_synced: bool = True) -> None:
        runs = [(claims[0][0], 1)] if len(claims) == 1 else runs_of([claim[0] for claim in claims])
        entry = make(runs)
        with self._changing.enter():
            journal = self._open()
            if journal.state.lost(journal.worker, claims) or not journal.append_unchanged(entry):
                with journal as state:
                    self._check_held(state, doing, claims)
                    journal.append(entry)
            count = journal.append_count
        if is_synced and self._syncs is not None:
            self._syncs.wait(count)

    def _check_held(self, state: QueueState, doing: str, claims: Claims) -> None:
        lost = state.lost(self._journal.worker, claims)
        if lost:
            raise InvalidRecordStateError(doing, lost, self.title)

    def _give_back(self, runs: Sequence[tuple[int, int, int]]) -> None:
        """Release acquired records that could not be read, as far as the journal can be written."""
        try:
            with self._changing.enter(), self._open() as state:
                held = set(state.held_by(self._journal.worker))
                offsets = sorted(
                    [offset for first, count, _ in runs for offset in range(first, first + count) if offset in held]
                )
                if offsets:
                    self._journal.append(Released(runs_of(offsets)))
        except StorageError as error:
            LOGGER.warning("%s: records stay acquired for %d s: %s", self.title, LOCK_NS // 10**9, error)

    def _open(self) -> QueueJournal:
        """Return the journal, for one change. Raises ClosedError after :meth:`close`."""
        if self._is_closed:
            raise ClosedError(f"{self.title} is closed: open it again to use it")
        failure = self._failure
        if failure is not None:
            raise self._poisoned(failure)
        return self._journal

    @property
    def _failure(self) -> StorageError | None:
        """The failed sync that poisoned the journal."""
        return None if self._syncs is None else self._syncs.failure

    def _poisoned(self, failure: StorageError) -> ClosedError:
        error = ClosedError(f"{self.title} is poisoned by a failed sync of its journal ({failure}): open it again")
        error.__cause__ = failure
        return error

    # -- facts -------------------------------------------------------------------------------------

    def stats(self) -> QueueStats:
        """Return the numbers of the queue, as of now."""
        with self._changing.enter(), self._open() as state:
            return state.stats()

    def news(self) -> ChangeSignal:
        """Return a signal for new records, and for a change of the journal by another worker."""
        return self._view.news_with(self._journal.disk, self._journal.path)

    @property
    def path(self) -> str:
        """The journal's file."""
        return self._journal.path

    def close(self) -> None:
        """Release what this worker has, and close the journal. A second call is harmless."""
        with self._changing:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                with self._journal as state:
                    held = state.held_by(self._journal.worker)
                    if held:
                        self._journal.append(Released(runs_of(held)))
            except PyreplogError as error:
                # The end of the file's lock gives the records back too.
                LOGGER.warning("%s: %s", self.title, error)
            finally:
                self._journal.close()
