"""The walk of log end offsets and high watermarks through leader and followers, step by step."""

from __future__ import annotations

from pyreplog.wire import FetchPartition
from tests.replica.conftest import MakeBench
from tests.replica.replica_harness import MS


def test_golden_walk(make_bench: MakeBench) -> None:
    """Progress is what a follower asks for, the high watermark is the smallest progress of those in play, and it
    travels with the next answer."""
    bench = make_bench(min_insync_replicas=1)
    bench.elect(1)
    for _ in range(5):
        bench.append(1, acks=1)
    assert bench.ends() == [5, 0, 0]
    size = bench.logs[1].read(0, 1, 5).size
    assert isinstance(bench.fetches[2].request, FetchPartition)
    bench.fetches[2].request.partition_max_bytes = 3 * size
    bench.fetches[3].request.partition_max_bytes = 4 * size
    bench.exchange(2)
    assert bench.progress(2) == 0
    bench.exchange(3)
    assert bench.ends() == [5, 3, 4]
    assert bench.high_watermarks() == [0, 0, 0]
    for _ in range(10):
        bench.append(1, acks=1)
    bench.exchange(2)
    assert (bench.progress(2), bench.logs[1].high_watermark) == (3, 0), "the other one has not said how far it is"
    bench.exchange(3)
    assert (bench.progress(3), bench.logs[1].high_watermark) == (4, 3)
    assert bench.high_watermarks() == [3, 0, 3], (
        "the answer carries the high watermark that its own fetch made possible"
    )
    bench.exchange(2, 3, 2, 3)
    assert bench.high_watermarks()[0] == 15
    bench.now += 2 * MS
    bench.settle()
    assert bench.ends() == [15, 15, 15]
    assert bench.high_watermarks() == [15, 15, 15]


def test_an_append_is_acknowledged_after_two_fetches_of_the_slowest(make_bench: MakeBench) -> None:
    """acks=all is answered when the slowest in-sync follower has fetched twice: once to get the record, once to say
    so."""
    bench = make_bench(min_insync_replicas=2)
    bench.elect(1)
    number = bench.append(1)
    bench.exchange(2, 3, 2)
    assert number not in bench.results
    bench.present(3)
    assert bench.results[number].error_code == 0
    assert bench.results[number].base_offset == 0


def test_dropping_the_slowest_lifts_the_high_watermark(make_bench: MakeBench) -> None:
    """Ends 9, 7, 6 in sync give 6; when the controller drops the third, 7."""
    bench = make_bench(min_insync_replicas=1)
    bench.elect(1)
    for _ in range(9):
        bench.append(1, acks=1)
    size = bench.logs[1].read(0, 1, 9).size
    for follower, count in ((2, 7), (3, 6)):
        bench.fetches[follower].request.partition_max_bytes = count * size
        bench.exchange(follower)
        bench.present(follower)
    assert bench.ends() == [9, 7, 6]
    assert bench.logs[1].high_watermark == 6
    bench.now += 3_000 * MS
    bench.set_isr(1, 2, tell=[1])
    assert bench.logs[1].high_watermark == 7
