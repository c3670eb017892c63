"""Idempotent producers across leader changes: what a log has from a producer is known to whoever leads next. On
real logs."""

from __future__ import annotations

import pytest

from pyreplog.replica import Produce
from pyreplog.wire import ErrorCode
from tests.unit.replica.batches import batch
from tests.unit.replica.conftest import MakeStage
from tests.unit.replica.replica_stage import CLIENT, ReplicaStage


@pytest.fixture
def log_kind() -> str:
    """The in-memory log knows no producers."""
    return "disk"


def send(stage: ReplicaStage, broker: int, sequence: int, count: int = 1, *, acks: int = -1) -> int:
    """A batch of producer 7; the number under which ``results`` gets the answer."""
    stage.numbers += 1
    values = [b"%d" % (sequence + one) for one in range(count)]
    stage.step(broker, Produce(CLIENT, stage.numbers, acks, batch(values, numbers=(7, 0, sequence)), 30_000))
    return stage.numbers


def test_a_repetition_is_answered_when_the_first_time_is_committed(make_stage: MakeStage) -> None:
    """It is not appended, and its acknowledgement waits as the first one does."""
    stage = make_stage(min_insync_replicas=2)
    stage.elect(1)
    stage.settle()
    first = send(stage, 1, 0, 2)
    second = send(stage, 1, 2)
    again = send(stage, 1, 0, 2)
    at_once = send(stage, 1, 0, 2, acks=1)
    assert stage.logs[1].end_offset == 3
    assert stage.results[at_once].base_offset == 0
    assert first not in stage.results
    assert again not in stage.results
    stage.settle()
    assert [stage.results[one].base_offset for one in (first, second, again)] == [0, 2, 0]
    assert stage.results[send(stage, 1, 2)].base_offset == 2, "committed: at once"
    assert stage.code(send(stage, 1, 5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert stage.logs[1].end_offset == 3


def test_a_repetition_is_in_the_mark_before_it_is_answered(make_stage: MakeStage) -> None:
    """With acks=1, where the first time is synced, and its mark waits for the high watermark with those who want
    all replicas."""
    stage = make_stage(2, durability="sync", min_insync_replicas=2)
    stage.elect(1)
    stage.settle()
    first = send(stage, 1, 0)
    marked: list[tuple[int, int]] = []
    log = stage.logs[1]
    write = log.write_mark

    def spy() -> None:
        marked.append((log.flushed_offset, len(stage.replicas[1].out)))
        write()

    log.write_mark = spy
    stage.sync(1)
    assert (marked, first in stage.results) == ([], False)
    assert stage.code(send(stage, 1, 0, acks=1)) == 0
    assert marked == [(1, 0)]


def test_an_older_repetition_is_answered_when_it_is_committed(make_stage: MakeStage) -> None:
    """One of which the offset is forgotten: that it is in the log says nothing until it counts. A leader that was
    restarted remembers one batch only."""
    stage = make_stage(min_insync_replicas=2)
    stage.elect(1)
    stage.settle()
    for sequence in range(7):
        send(stage, 1, sequence)
    again = send(stage, 1, 0)
    assert again not in stage.results
    assert stage.code(send(stage, 1, 0, acks=1)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    stage.settle()
    assert stage.code(again) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert stage.code(send(stage, 1, 0)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "committed: at once"
    assert stage.logs[1].end_offset == 7
    send(stage, 1, 7)
    lost = send(stage, 1, 1)
    stage.elect(2, isr=[2, 3])
    assert stage.code(lost) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "nobody knows"


def test_the_next_leader_knows_it(make_stage: MakeStage) -> None:
    """The leader dies after the append and before the answer: whoever leads next answers the repetition with the
    original offsets once they are committed there, and goes on with the numbers."""
    stage = make_stage(min_insync_replicas=2)
    stage.elect(1)
    stage.settle()
    send(stage, 1, 0)
    stage.settle()
    lost = send(stage, 1, 1, 3)
    stage.exchange(2, 3)
    assert lost not in stage.results
    stage.elect(2, isr=[2, 3], tell=[2, 3])
    again = send(stage, 2, 1, 3)
    assert again not in stage.results, "in the log, not committed in this reign"
    stage.settle(without=[1])
    assert (stage.code(again), stage.results[again].base_offset) == (0, 1)
    more = send(stage, 2, 4)
    stage.settle(without=[1])
    assert (stage.code(more), stage.results[more].base_offset) == (0, 4)


def test_what_was_truncated_is_not_known(make_stage: MakeStage) -> None:
    """F33: a batch that a follower cut off was never there: sent again to it as a leader it is appended, not taken
    for a repetition."""
    stage = make_stage(min_insync_replicas=1)
    stage.elect(1)
    stage.settle()
    send(stage, 1, 0)
    stage.settle()
    stage.drop(2)
    stage.drop(3)
    send(stage, 1, 1)
    stage.elect(2, isr=[2, 3], tell=[2, 3])
    stage.settle(without=[1])
    stage.show(1)
    stage.settle()
    assert stage.ends() == [1, 1, 1]
    stage.elect(1, isr=[1, 2, 3])
    again = send(stage, 1, 1)
    stage.settle()
    assert (stage.code(again), stage.results[again].base_offset) == (0, 1)
    assert stage.ends() == [2, 2, 2]
