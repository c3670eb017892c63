"""The walk of log end offsets and high watermarks through leader and followers, step by step."""

from __future__ import annotations

from pyreplog.wire import FetchPartition
from tests.replica.conftest import MakeHarness
from tests.replica.replica_harness import MS


def test_golden_walk(make_harness: MakeHarness) -> None:
    """Progress is what a follower asks for, the high watermark is the smallest progress of those in play, and it
    travels with the next answer."""
    harness = make_harness(min_insync_replicas=1)
    harness.elect(1)
    for _ in range(5):
        harness.append(1, acks=1)
    assert harness.ends() == [5, 0, 0]
    size = harness.logs[1].read(0, 1, 5).size
    assert isinstance(harness.fetches[2].request, FetchPartition)
    harness.fetches[2].request.partition_max_bytes = 3 * size
    harness.fetches[3].request.partition_max_bytes = 4 * size
    harness.exchange(2)
    assert harness.progress(2) == 0
    harness.exchange(3)
    assert harness.ends() == [5, 3, 4]
    assert harness.high_watermarks() == [0, 0, 0]
    for _ in range(10):
        harness.append(1, acks=1)
    harness.exchange(2)
    assert (harness.progress(2), harness.logs[1].high_watermark) == (3, 0), "the other one has not said how far it is"
    harness.exchange(3)
    assert (harness.progress(3), harness.logs[1].high_watermark) == (4, 3)
    assert harness.high_watermarks() == [3, 0, 3], (
        "the answer carries the high watermark that its own fetch made possible"
    )
    harness.exchange(2, 3, 2, 3)
    assert harness.high_watermarks()[0] == 15
    harness.now += 2 * MS
    harness.settle()
    assert harness.ends() == [15, 15, 15]
    assert harness.high_watermarks() == [15, 15, 15]


def test_an_append_is_acknowledged_after_two_fetches_of_the_slowest(make_harness: MakeHarness) -> None:
    """acks=all is answered when the slowest in-sync follower has fetched twice: once to get the record, once to say
    so."""
    harness = make_harness(min_insync_replicas=2)
    harness.elect(1)
    number = harness.append(1)
    harness.exchange(2, 3, 2)
    assert number not in harness.results
    harness.present(3)
    assert harness.results[number].error_code == 0
    assert harness.results[number].base_offset == 0


def test_dropping_the_slowest_lifts_the_high_watermark(make_harness: MakeHarness) -> None:
    """Ends 9, 7, 6 in sync give 6; when the controller drops the third, 7."""
    harness = make_harness(min_insync_replicas=1)
    harness.elect(1)
    for _ in range(9):
        harness.append(1, acks=1)
    size = harness.logs[1].read(0, 1, 9).size
    for follower, count in ((2, 7), (3, 6)):
        harness.fetches[follower].request.partition_max_bytes = count * size
        harness.exchange(follower)
        harness.present(follower)
    assert harness.ends() == [9, 7, 6]
    assert harness.logs[1].high_watermark == 6
    harness.now += 3_000 * MS
    harness.set_isr(1, 2, tell=[1])
    assert harness.logs[1].high_watermark == 7
