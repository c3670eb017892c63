"""The walk of log end offsets and high watermarks through leader and followers, step by step."""

from __future__ import annotations

from pyreplog.wire import FetchPartition
from tests.unit.replica.conftest import MakeStage
from tests.unit.replica.replica_stage import MS


def test_golden_walk(make_stage: MakeStage) -> None:
    """Progress is what a follower asks for, the high watermark is the smallest progress of those in play, and it
    travels with the next answer."""
    stage = make_stage(min_insync_replicas=1)
    stage.elect(1)
    for _ in range(5):
        stage.append(1, acks=1)
    assert stage.ends() == [5, 0, 0]
    size = stage.logs[1].read(0, 1, 5).size
    assert isinstance(stage.fetches[2].request, FetchPartition)
    stage.fetches[2].request.partition_max_bytes = 3 * size
    stage.fetches[3].request.partition_max_bytes = 4 * size
    stage.exchange(2)
    assert stage.progress(2) == 0
    stage.exchange(3)
    assert stage.ends() == [5, 3, 4]
    assert stage.high_watermarks() == [0, 0, 0]
    for _ in range(10):
        stage.append(1, acks=1)
    stage.exchange(2)
    assert (stage.progress(2), stage.logs[1].high_watermark) == (3, 0), "the other one has not said how far it is"
    stage.exchange(3)
    assert (stage.progress(3), stage.logs[1].high_watermark) == (4, 3)
    assert stage.high_watermarks() == [3, 0, 3], (
        "the answer carries the high watermark that its own fetch made possible"
    )
    stage.exchange(2, 3, 2, 3)
    assert stage.high_watermarks()[0] == 15
    stage.clock.advance(int(2 * MS))
    stage.settle()
    assert stage.ends() == [15, 15, 15]
    assert stage.high_watermarks() == [15, 15, 15]


def test_an_append_is_acknowledged_after_two_fetches_of_the_slowest(make_stage: MakeStage) -> None:
    """acks=all is answered when the slowest in-sync follower has fetched twice: once to get the record, once to say
    so."""
    stage = make_stage(min_insync_replicas=2)
    stage.elect(1)
    number = stage.append(1)
    stage.exchange(2, 3, 2)
    assert number not in stage.results
    stage.present(3)
    assert stage.results[number].error_code == 0
    assert stage.results[number].base_offset == 0


def test_dropping_the_slowest_lifts_the_high_watermark(make_stage: MakeStage) -> None:
    """Ends 9, 7, 6 in sync give 6; when the controller drops the third, 7."""
    stage = make_stage(min_insync_replicas=1)
    stage.elect(1)
    for _ in range(9):
        stage.append(1, acks=1)
    size = stage.logs[1].read(0, 1, 9).size
    for follower, count in ((2, 7), (3, 6)):
        stage.fetches[follower].request.partition_max_bytes = count * size
        stage.exchange(follower)
        stage.present(follower)
    assert stage.ends() == [9, 7, 6]
    assert stage.logs[1].high_watermark == 6
    stage.clock.advance(int(3_000 * MS))
    stage.set_isr(1, 2, tell=[1])
    assert stage.logs[1].high_watermark == 7
