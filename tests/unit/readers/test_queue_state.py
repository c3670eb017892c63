"""The state of a queue, beside a slow twin that keeps every record by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyreplog.errors import CorruptError
from pyreplog.readers import (
    Accepted,
    Acquired,
    Archived,
    Cut,
    Deleted,
    Entry,
    QueueState,
    Released,
    Renewed,
    queue_state,
    runs_of,
)
from pyreplog.readers.queue_entries import (
    Joined,
    Snapshot,
    decode_entry,
    encode_entry,
    encode_one_accepted,
    encode_one_acquired,
)
from tests.oracle.queue import LOCK_NS, SlowQueue

WORKERS = (1, 2, 3)
LIMIT = 12


def expand(runs: Any) -> list[tuple[int, int]]:
    return [(offset, run[2]) for run in runs for offset in range(run[0], run[0] + run[1])]


class Twins:
    """The state and its slow twin, which must agree after every step. Every entry passes through its bytes."""

    def __init__(self) -> None:
        self.state = QueueState()
        self.slow = SlowQueue(LIMIT)
        self.now_ns = 1000
        self.gone: set[int] = set()
        self.log: list[int] = []
        self.claims: list[tuple[int, int, int]] = []
        for worker in WORKERS:
            self.apply(Joined(worker))

    def apply(self, entry: Entry) -> None:
        short = QueueState()
        short.apply(self.state.snapshot())
        is_short = self.apply_shortly(short, entry)
        self.state.apply(decode_entry(encode_entry(entry)))
        if is_short:
            assert short.snapshot() == self.state.snapshot()
            assert short.workers == self.state.workers
            assert short.first_deadline_ns >= self.state.first_deadline_ns

    @staticmethod
    def apply_shortly(state: QueueState, entry: Entry) -> bool:
        """Apply an entry of one record by the method that most calls use; return whether there is one."""
        if isinstance(entry, Acquired) and entry.epoch == state.last_epoch:
            if entry.runs == [(state.next_offset, 1, 1)]:
                args = (entry.worker, entry.deadline_ns, entry.epoch, state.next_offset)
                assert encode_one_acquired(*args) == encode_entry(entry)
                state.acquire_next(entry.worker, entry.deadline_ns)
                return True
        elif isinstance(entry, Accepted) and len(entry.runs) == 1 and entry.runs[0][1] == 1:
            assert encode_one_accepted(entry.runs[0][0]) == encode_entry(entry)
            state.accept_one(entry.runs[0][0])
            return True
        return False

    def acquire(self, worker: int, count: int) -> None:
        choice = self.state.choose(count, self.log, self.now_ns, self.gone)
        expected = self.slow.acquire(worker, count, self.log, self.now_ns, self.gone)
        runs = [*choice.again, *choice.new]
        assert (expand(runs), [offset for offset, _ in expand(choice.exhausted)]) == expected
        if runs or choice.exhausted:
            self.apply(Acquired(worker, self.now_ns + LOCK_NS, 0, [*choice.exhausted, *runs]))
        self.claims += [(worker, offset, times) for offset, times in expand([*choice.exhausted, *runs])]

    def settle(self, worker: int, claims: list[tuple[int, int]], kind: str) -> None:
        claims = sorted(set(claims))
        lost = self.state.lost(worker, claims)
        slow = {"accept": "acknowledged", "release": "available", "reject": "archived", "renew": "renewed"}[kind]
        assert lost == self.slow.settle(worker, claims, slow, self.now_ns)
        if lost or not claims:
            return
        runs = runs_of([offset for offset, _ in claims])
        entries: dict[str, Entry] = {
            "accept": Accepted(runs),
            "release": Released(runs),
            "reject": Archived(runs),
            "renew": Renewed(worker, self.now_ns + LOCK_NS, runs),
        }
        self.apply(entries[kind])

    def check(self) -> None:
        state, records = self.state, self.slow.records
        assert state.available == {o: r.deliveries for o, r in records.items() if r.state == "available"}
        assert state.acquired == {
            o: (r.worker, r.deliveries, r.deadline_ns) for o, r in records.items() if r.state == "acquired"
        }
        for worker in WORKERS:
            count = sum(r.state == "acquired" and r.worker == worker for r in records.values())
            assert state.workers.get(worker, 0) == count
        assert state.next_offset == self.slow.next_offset
        assert state.accepted_count == sum(r.state == "acknowledged" for r in records.values())
        assert state.archived_count == sum(r.state == "archived" for r in records.values())
        copied = QueueState()
        copied.apply(decode_entry(encode_entry(state.snapshot())))
        assert copied.snapshot() == state.snapshot()
        assert copied.workers == state.workers


STEP = st.one_of(
    st.tuples(st.just("log"), st.lists(st.integers(1, 3), max_size=4)),
    st.tuples(st.just("acquire"), st.sampled_from(WORKERS), st.integers(1, 6)),
    st.tuples(st.just("acquire"), st.sampled_from(WORKERS), st.integers(1, 6)),
    st.tuples(
        st.sampled_from(["accept", "release", "release", "reject", "renew"]),
        st.sampled_from(WORKERS),
        st.lists(st.integers(0, 60), min_size=1, max_size=4),
    ),
    st.tuples(st.just("time"), st.integers(0, LOCK_NS + 1)),
    st.tuples(st.just("end"), st.sampled_from(WORKERS)),
)


@settings(deadline=None)
@given(st.lists(STEP, max_size=60))
def test_every_decision_is_that_of_the_slow_twin(steps: list[Any]) -> None:
    """Deliveries, their counts, dead letters, refusals and the whole state agree, through the bytes of each entry."""
    twins = Twins()
    monkey = pytest.MonkeyPatch()
    monkey.setattr(queue_state, "IN_FLIGHT_MAX", LIMIT)
    try:
        for name, *rest in steps:
            if name == "log":
                for gap in rest[0]:
                    twins.log.append((twins.log[-1] if twins.log else -1) + gap)
            elif name == "acquire":
                twins.acquire(*rest)
            elif name == "time":
                twins.now_ns += rest[0]
            elif name == "end":
                twins.gone.add(rest[0])
            else:
                worker, picks = rest
                own = [claim[1:] for claim in twins.claims if claim[0] == worker]
                twins.settle(worker, [own[-1 - pick] for pick in picks if pick < len(own)], name)
            twins.check()
    finally:
        monkey.undo()


def joined() -> QueueState:
    state = QueueState()
    state.apply(Joined(1))
    state.apply(Acquired(1, 100, 3, [(0, 10, 1)]))
    return state


def test_deleted_records_are_counted_and_gone() -> None:
    """A new end and records in flight count as deleted; the queue goes on behind them."""
    state = joined()
    state.apply(Released([(0, 2)]))
    state.apply(Deleted(20, [(0, 5)]))
    assert (state.next_offset, state.deleted_count) == (20, 15)
    assert state.held_by(1) == [5, 6, 7, 8, 9]
    assert not state.available


def test_a_cut_forgets_what_is_above_it() -> None:
    """After a truncation the records above it count as never delivered."""
    state = joined()
    state.apply(Released([(8, 1)]))
    state.apply(Cut(4, 2))
    assert (state.next_offset, state.last_epoch) == (4, 2)
    assert state.held_by(1) == [0, 1, 2, 3]
    assert not state.available
    assert state.choose(2, [4, 5], 0, set()).new == [(4, 2, 1)]


@pytest.mark.parametrize(
    "entry",
    [
        Joined(1),
        Acquired(2, 5, 0, [(10, 1, 1)]),
        Acquired(1, 5, 0, [(10, 1999, 1)]),
        Accepted([(10, 1)]),
        Released([(3, 1), (12, 1)]),
        Renewed(2, 5, [(0, 1)]),
        Deleted(3, []),
        Deleted(10, [(11, 1)]),
        Snapshot(4, 0, 1, 0, 0, 0, {4: 1}, {}),
        Snapshot(9, 0, 1, 0, 0, 0, {4: 1}, {4: (1, 1, 5)}),
    ],
)
def test_an_entry_that_contradicts_the_state_is_damage(entry: Entry) -> None:
    """No entry changes records that no worker has, goes back, or exceeds the limit."""
    with pytest.raises(CorruptError):
        joined().apply(entry)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        b"\x0a",
        b"\x03" + bytes(7),
        b"\x04" + (5).to_bytes(8, "big") + (2001).to_bytes(4, "big"),
        b"\x04" + bytes(12),
        b"\x04" + (2**64 - 1).to_bytes(8, "big") + (1).to_bytes(4, "big"),
        encode_entry(Accepted([(4, 2), (5, 1)])),
        encode_entry(Acquired(1, -1, 0, [(1, 1, 1)])),
        encode_entry(Acquired(1, 1, 0, [(1, 1, 0)])),
        encode_entry(Renewed(1, 1, [(1, 1)]))[:-1],
        encode_entry(Snapshot(4, 0, 1, 0, 0, 0, {1: 1}, {}))[:-1],
        encode_entry(Snapshot(-4, 0, 1, 0, 0, 0, {}, {})),
        encode_entry(Cut(-1, 0)),
    ],
)
def test_bytes_that_are_no_entry_are_refused(body: bytes) -> None:
    """Each kind has its own size and its own limits."""
    with pytest.raises(CorruptError):
        decode_entry(body)
