"""Idempotent producers across leader changes: what a log has from a producer is known to whoever leads next. On
real logs."""

from __future__ import annotations

import pytest

from pyreplog.replica import Produce
from pyreplog.wire import ErrorCode
from tests.replica.batches import batch
from tests.replica.conftest import MakeBench
from tests.replica.replica_harness import CLIENT, Bench


@pytest.fixture
def log_kind() -> str:
    """The in-memory log knows no producers."""
    return "disk"


def send(bench: Bench, broker: int, sequence: int, count: int = 1, *, acks: int = -1) -> int:
    """A batch of producer 7; the number under which ``results`` gets the answer."""
    bench.numbers += 1
    values = [b"%d" % (sequence + one) for one in range(count)]
    bench.step(broker, Produce(CLIENT, bench.numbers, acks, batch(values, numbers=(7, 0, sequence)), 30_000))
    return bench.numbers


def test_a_repetition_is_answered_when_the_first_time_is_committed(make_bench: MakeBench) -> None:
    """It is not appended, and its acknowledgement waits as the first one does."""
    bench = make_bench(min_insync_replicas=2)
    bench.elect(1)
    bench.settle()
    first = send(bench, 1, 0, 2)
    second = send(bench, 1, 2)
    again = send(bench, 1, 0, 2)
    at_once = send(bench, 1, 0, 2, acks=1)
    assert bench.logs[1].end_offset == 3
    assert bench.results[at_once].base_offset == 0
    assert first not in bench.results
    assert again not in bench.results
    bench.settle()
    assert [bench.results[one].base_offset for one in (first, second, again)] == [0, 2, 0]
    assert bench.results[send(bench, 1, 2)].base_offset == 2, "committed: at once"
    assert bench.code(send(bench, 1, 5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert bench.logs[1].end_offset == 3


def test_a_repetition_is_in_the_mark_before_it_is_answered(make_bench: MakeBench) -> None:
    """With acks=1, where the first time is synced, and its mark waits for the high watermark with those who want
    all replicas."""
    bench = make_bench(2, durability="sync", min_insync_replicas=2)
    bench.elect(1)
    bench.settle()
    first = send(bench, 1, 0)
    marked: list[tuple[int, int]] = []
    log = bench.logs[1]
    write = log.write_mark

    def spy() -> None:
        marked.append((log.flushed_offset, len(bench.replicas[1].out)))
        write()

    log.write_mark = spy
    bench.sync(1)
    assert (marked, first in bench.results) == ([], False)
    assert bench.code(send(bench, 1, 0, acks=1)) == 0
    assert marked == [(1, 0)]


def test_an_older_repetition_is_answered_when_it_is_committed(make_bench: MakeBench) -> None:
    """One of which the offset is forgotten: that it is in the log says nothing until it counts. A leader that was
    restarted remembers one batch only."""
    bench = make_bench(min_insync_replicas=2)
    bench.elect(1)
    bench.settle()
    for sequence in range(7):
        send(bench, 1, sequence)
    again = send(bench, 1, 0)
    assert again not in bench.results
    assert bench.code(send(bench, 1, 0, acks=1)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    bench.settle()
    assert bench.code(again) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert bench.code(send(bench, 1, 0)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "committed: at once"
    assert bench.logs[1].end_offset == 7
    send(bench, 1, 7)
    lost = send(bench, 1, 1)
    bench.elect(2, isr=[2, 3])
    assert bench.code(lost) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "nobody knows"


def test_the_next_leader_knows_it(make_bench: MakeBench) -> None:
    """The leader dies after the append and before the answer: whoever leads next answers the repetition with the
    original offsets once they are committed there, and goes on with the numbers."""
    bench = make_bench(min_insync_replicas=2)
    bench.elect(1)
    bench.settle()
    send(bench, 1, 0)
    bench.settle()
    lost = send(bench, 1, 1, 3)
    bench.exchange(2, 3)
    assert lost not in bench.results
    bench.elect(2, isr=[2, 3], tell=[2, 3])
    again = send(bench, 2, 1, 3)
    assert again not in bench.results, "in the log, not committed in this reign"
    bench.settle(without=[1])
    assert (bench.code(again), bench.results[again].base_offset) == (0, 1)
    more = send(bench, 2, 4)
    bench.settle(without=[1])
    assert (bench.code(more), bench.results[more].base_offset) == (0, 4)


def test_what_was_truncated_is_not_known(make_bench: MakeBench) -> None:
    """F33: a batch that a follower cut off was never there: sent again to it as a leader it is appended, not taken
    for a repetition."""
    bench = make_bench(min_insync_replicas=1)
    bench.elect(1)
    bench.settle()
    send(bench, 1, 0)
    bench.settle()
    bench.drop(2)
    bench.drop(3)
    send(bench, 1, 1)
    bench.elect(2, isr=[2, 3], tell=[2, 3])
    bench.settle(without=[1])
    bench.tell(1)
    bench.settle()
    assert bench.ends() == [1, 1, 1]
    bench.elect(1, isr=[1, 2, 3])
    again = send(bench, 1, 1)
    bench.settle()
    assert (bench.code(again), bench.results[again].base_offset) == (0, 1)
    assert bench.ends() == [2, 2, 2]
