"""Idempotent producers across leader changes: what a log has from a producer is known to whoever leads next. On
real logs."""

from __future__ import annotations

import pytest

from pyreplog.replica import Produce
from pyreplog.wire import ErrorCode
from tests.replica.batches import batch
from tests.replica.conftest import MakeHarness
from tests.replica.replica_harness import CLIENT, ReplicaHarness


@pytest.fixture
def log_kind() -> str:
    """The in-memory log knows no producers."""
    return "disk"


def send(harness: ReplicaHarness, broker: int, sequence: int, count: int = 1, *, acks: int = -1) -> int:
    """A batch of producer 7; the number under which ``results`` gets the answer."""
    harness.numbers += 1
    values = [b"%d" % (sequence + one) for one in range(count)]
    harness.step(broker, Produce(CLIENT, harness.numbers, acks, batch(values, numbers=(7, 0, sequence)), 30_000))
    return harness.numbers


def test_a_repetition_is_answered_when_the_first_time_is_committed(make_harness: MakeHarness) -> None:
    """It is not appended, and its acknowledgement waits as the first one does."""
    harness = make_harness(min_insync_replicas=2)
    harness.elect(1)
    harness.settle()
    first = send(harness, 1, 0, 2)
    second = send(harness, 1, 2)
    again = send(harness, 1, 0, 2)
    at_once = send(harness, 1, 0, 2, acks=1)
    assert harness.logs[1].end_offset == 3
    assert harness.results[at_once].base_offset == 0
    assert first not in harness.results
    assert again not in harness.results
    harness.settle()
    assert [harness.results[one].base_offset for one in (first, second, again)] == [0, 2, 0]
    assert harness.results[send(harness, 1, 2)].base_offset == 2, "committed: at once"
    assert harness.code(send(harness, 1, 5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert harness.logs[1].end_offset == 3


def test_a_repetition_is_in_the_mark_before_it_is_answered(make_harness: MakeHarness) -> None:
    """With acks=1, where the first time is synced, and its mark waits for the high watermark with those who want
    all replicas."""
    harness = make_harness(2, durability="sync", min_insync_replicas=2)
    harness.elect(1)
    harness.settle()
    first = send(harness, 1, 0)
    marked: list[tuple[int, int]] = []
    log = harness.logs[1]
    write = log.write_mark

    def spy() -> None:
        marked.append((log.flushed_offset, len(harness.replicas[1].out)))
        write()

    log.write_mark = spy
    harness.sync(1)
    assert (marked, first in harness.results) == ([], False)
    assert harness.code(send(harness, 1, 0, acks=1)) == 0
    assert marked == [(1, 0)]


def test_an_older_repetition_is_answered_when_it_is_committed(make_harness: MakeHarness) -> None:
    """One of which the offset is forgotten: that it is in the log says nothing until it counts. A leader that was
    restarted remembers one batch only."""
    harness = make_harness(min_insync_replicas=2)
    harness.elect(1)
    harness.settle()
    for sequence in range(7):
        send(harness, 1, sequence)
    again = send(harness, 1, 0)
    assert again not in harness.results
    assert harness.code(send(harness, 1, 0, acks=1)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    harness.settle()
    assert harness.code(again) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert harness.code(send(harness, 1, 0)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "committed: at once"
    assert harness.logs[1].end_offset == 7
    send(harness, 1, 7)
    lost = send(harness, 1, 1)
    harness.elect(2, isr=[2, 3])
    assert harness.code(lost) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "nobody knows"


def test_the_next_leader_knows_it(make_harness: MakeHarness) -> None:
    """The leader dies after the append and before the answer: whoever leads next answers the repetition with the
    original offsets once they are committed there, and goes on with the numbers."""
    harness = make_harness(min_insync_replicas=2)
    harness.elect(1)
    harness.settle()
    send(harness, 1, 0)
    harness.settle()
    lost = send(harness, 1, 1, 3)
    harness.exchange(2, 3)
    assert lost not in harness.results
    harness.elect(2, isr=[2, 3], tell=[2, 3])
    again = send(harness, 2, 1, 3)
    assert again not in harness.results, "in the log, not committed in this reign"
    harness.settle(without=[1])
    assert (harness.code(again), harness.results[again].base_offset) == (0, 1)
    more = send(harness, 2, 4)
    harness.settle(without=[1])
    assert (harness.code(more), harness.results[more].base_offset) == (0, 4)


def test_what_was_truncated_is_not_known(make_harness: MakeHarness) -> None:
    """F33: a batch that a follower cut off was never there: sent again to it as a leader it is appended, not taken
    for a repetition."""
    harness = make_harness(min_insync_replicas=1)
    harness.elect(1)
    harness.settle()
    send(harness, 1, 0)
    harness.settle()
    harness.drop(2)
    harness.drop(3)
    send(harness, 1, 1)
    harness.elect(2, isr=[2, 3], tell=[2, 3])
    harness.settle(without=[1])
    harness.tell(1)
    harness.settle()
    assert harness.ends() == [1, 1, 1]
    harness.elect(1, isr=[1, 2, 3])
    again = send(harness, 1, 1)
    harness.settle()
    assert (harness.code(again), harness.results[again].base_offset) == (0, 1)
    assert harness.ends() == [2, 2, 2]
