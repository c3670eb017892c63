"""What consumers see: fetches up to the high watermark, offsets by time, ends of epochs; and how followers hear of
the high watermark."""

from __future__ import annotations

from pyreplog.replica import CancelFetch, ConsumerFetch, ListOffsets, OffsetForLeaderEpoch, Produce
from pyreplog.wire import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    EpochEndOffset,
    ErrorCode,
    FetchPartition,
    ListOffsetsPartition,
    OffsetForLeaderPartition,
    RecordsSlice,
)
from tests.oracle.memory_log import parse
from tests.replica.batches import batch
from tests.replica.conftest import MakeHarness
from tests.replica.replica_harness import CLIENT, led


def at(offset: int, *, epoch: int = -1, last: int = -1, size: int = 1 << 20) -> FetchPartition:
    """A consumer's question."""
    return FetchPartition(0, epoch, offset, last, partition_max_bytes=size)


def offsets(result: object) -> list[int]:
    """The base offsets in an answer."""
    records: RecordsSlice | None = getattr(result, "records", None)
    return [] if records is None else [b.base for b in parse(b"".join(bytes(p) for p in records.parts()))]


def test_nothing_above_the_high_watermark(make_harness: MakeHarness) -> None:
    """A consumer gets whole batches below the high watermark and nothing at it."""
    harness = led(make_harness(), 3, 2)
    answer = harness.ask(1, ConsumerFetch, at(1), 0)
    assert offsets(answer) == [1, 2]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (3, 3, 0)
    answer = harness.ask(1, ConsumerFetch, at(3), 0)
    assert (answer.error_code, answer.records) == (0, None)
    assert harness.ask(1, ConsumerFetch, at(4), 0).error_code == 0
    assert offsets(harness.ask(1, ConsumerFetch, at(0, size=1), 0)) == [0]


def test_who_asks_for_no_bytes_gets_a_batch(make_harness: MakeHarness) -> None:
    """As one message at least is wanted: else neither a consumer nor a follower would ever go on. So it is for a
    follower that waits."""
    harness = led(make_harness(), 3)
    assert offsets(harness.ask(1, ConsumerFetch, at(1, size=0), 0)) == [1]
    ends = []
    for _ in range(4):
        harness.append(1)
        harness.fetches[2].request.partition_max_bytes = 0
        harness.exchange(2)
        ends.append(harness.logs[2].end_offset)
    assert ends == sorted({*ends})
    assert ends[-1] > 5


def test_outside_the_log(make_harness: MakeHarness) -> None:
    """Offsets outside [start, end] answer OFFSET_OUT_OF_RANGE at once, whatever the wait."""
    harness = led(make_harness(), 3)
    for offset in (4, 100, -1):
        assert harness.ask(1, ConsumerFetch, at(offset), 1000).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    harness.logs[1].increment_start_offset(2)
    assert harness.ask(1, ConsumerFetch, at(1), 1000).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert harness.ask(1, ListOffsets, ListOffsetsPartition(0, EARLIEST_TIMESTAMP)).offset == 2


def test_waiting_readers_are_answered_by_the_high_watermark(make_harness: MakeHarness) -> None:
    """A reader at the end waits until the high watermark passes it, not until the append."""
    harness = led(make_harness(), 1)
    assert harness.ask(1, ConsumerFetch, at(1), 1000) is None
    number = harness.numbers
    harness.append(1)
    assert harness.code(number) is None
    harness.settle()
    assert offsets(harness.results[number]) == [1]


def test_waiting_readers_give_up(make_harness: MakeHarness) -> None:
    """After the wait the answer is empty; a cancelled wait has no answer; one that is cut by an election says
    so."""
    harness = led(make_harness(), 1)
    assert harness.ask(1, ConsumerFetch, at(1), 100) is None
    first = harness.numbers
    assert harness.ask(1, ConsumerFetch, at(1), 200) is None
    second = harness.numbers
    assert harness.ask(1, ConsumerFetch, at(1), 300) is None
    third = harness.numbers
    harness.step(1, CancelFetch(CLIENT, second))
    harness.pass_time(100, 1)
    assert (harness.code(first), harness.results[first].records) == (0, None)
    harness.elect(2)
    assert second not in harness.results
    assert harness.code(third) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert harness.results[third].current_leader.leader_id == 2


def test_readers_epochs_are_checked(make_harness: MakeHarness) -> None:
    """A reader that names an epoch is fenced or told to wait; one whose last epoch ends before its offset here
    learns where."""
    harness = led(make_harness(), 3)
    harness.elect(1)
    harness.settle()
    assert harness.ask(1, ConsumerFetch, at(0, epoch=0), 0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert harness.ask(1, ConsumerFetch, at(0, epoch=2), 0).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert harness.ask(1, ConsumerFetch, at(3, last=2), 0).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH, (
        "it has read from a later leader"
    )
    assert offsets(harness.ask(1, ConsumerFetch, at(2, epoch=1, last=0), 0)) == [2]
    harness.append(1)
    harness.settle()
    answer = harness.ask(1, ConsumerFetch, at(4, last=0), 0)
    assert answer.diverging_epoch == EpochEndOffset(0, 3)
    assert harness.ask(2, ConsumerFetch, at(0), 1000).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_offsets_by_time(make_harness: MakeHarness) -> None:
    """The first record at or after a time, below the high watermark; -1 where there is none; the ends by their
    names."""
    harness = led(make_harness())
    for timestamp in (10, 20, 30):
        harness.numbers += 1
        harness.step(1, Produce(CLIENT, harness.numbers, -1, batch(1, timestamp=timestamp), 1000))
    harness.settle()
    harness.append(1)

    def when(timestamp: int) -> tuple[int, int]:
        answer = harness.ask(1, ListOffsets, ListOffsetsPartition(0, timestamp))
        assert answer.error_code == 0
        return (answer.offset, answer.timestamp)

    assert [when(t) for t in (0, 10, 11, 30, 31)] == [(0, 10), (0, 10), (1, 20), (2, 30), (-1, -1)]
    assert when(EARLIEST_TIMESTAMP)[0] == 0
    assert when(LATEST_TIMESTAMP)[0] == 3
    assert harness.ask(1, ListOffsets, ListOffsetsPartition(0, LATEST_TIMESTAMP), 2).offset == 4, (
        "a replica sees the log's end"
    )
    assert harness.ask(1, ListOffsets, ListOffsetsPartition(0, -7)).error_code == ErrorCode.INVALID_REQUEST
    assert harness.ask(1, ListOffsets, ListOffsetsPartition(0, 0, 5)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert harness.ask(2, ListOffsets, ListOffsetsPartition(0, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_search_by_time_at_a_leader_ends_at_the_high_watermark(make_harness: MakeHarness) -> None:
    """A consumer gets no offset at or above the high watermark, whatever its time; a replica does."""
    harness = led(make_harness())
    produce = [
        Produce(CLIENT, number, -1, batch(1, timestamp=timestamp), 1000) for number, timestamp in ((101, 10), (102, 50))
    ]
    harness.step(1, produce[0])
    harness.settle()
    harness.step(1, produce[1])
    assert (harness.logs[1].high_watermark, harness.logs[1].end_offset) == (1, 2)
    answer = harness.ask(1, ListOffsets, ListOffsetsPartition(0, 20))
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)
    assert harness.ask(1, ListOffsets, ListOffsetsPartition(0, 20), 2).offset == 1
    harness.settle()
    assert harness.ask(1, ListOffsets, ListOffsetsPartition(0, 20)).offset == 1


def test_an_offset_comes_with_its_epoch(make_harness: MakeHarness) -> None:
    """The epoch of the record that a time leads to, by which its reader learns later whether the log was cut there;
    at the end the leader's."""
    harness = make_harness()
    for timestamp in (10, 20):
        harness.elect(1)
        harness.numbers += 1
        harness.step(1, Produce(CLIENT, harness.numbers, -1, batch(1, timestamp=timestamp), 1000))
        harness.settle()
    asked = (EARLIEST_TIMESTAMP, 10, 20, MAX_TIMESTAMP, LATEST_TIMESTAMP)
    answers = [harness.ask(1, ListOffsets, ListOffsetsPartition(0, timestamp)) for timestamp in asked]
    assert [(answer.offset, answer.leader_epoch) for answer in answers] == [(0, 0), (0, 0), (1, 1), (1, 1), (2, 1)]


def test_the_end_is_unknown_until_the_new_leader_caught_up(make_harness: MakeHarness) -> None:
    """KIP-207: while a new leader's high watermark is below the start of its epoch, "latest" is
    OFFSET_NOT_AVAILABLE: it might step back."""
    harness = led(make_harness(min_insync_replicas=1), 3)
    harness.append(1)
    harness.exchange(2, 3)
    harness.present(2)
    harness.present(3)
    harness.elect(2, tell=[2, 3])
    assert harness.logs[2].high_watermark == 3
    latest = ListOffsetsPartition(0, LATEST_TIMESTAMP)
    assert harness.ask(2, ListOffsets, latest).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert harness.ask(2, ListOffsets, ListOffsetsPartition(0, 10**12)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert harness.ask(2, ListOffsets, ListOffsetsPartition(0, 0)).offset == 0
    harness.set_isr(2, 3, tell=[2])
    harness.exchange(3)
    assert harness.ask(2, ListOffsets, latest).offset == 4


def test_ends_of_epochs(make_harness: MakeHarness) -> None:
    """OffsetForLeaderEpoch answers the greatest epoch not above the one asked for and its end."""
    harness = led(make_harness(), 2)
    harness.elect(1)
    harness.elect(1)
    harness.settle()
    harness.append(1)

    def end(epoch: int) -> tuple[int, int]:
        answer = harness.ask(1, OffsetForLeaderEpoch, OffsetForLeaderPartition(0, epoch))
        return (answer.leader_epoch, answer.end_offset)

    assert end(0) == (0, 2)
    assert end(2) == (2, 3)
    assert end(9) == (-1, -1)
    assert (
        harness.ask(2, OffsetForLeaderEpoch, OffsetForLeaderPartition(0, 0)).error_code
        == ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def test_an_idle_follower_hears_of_the_high_watermark(make_harness: MakeHarness) -> None:
    """F25: when nothing more is appended the followers learn the high watermark about a millisecond later, and not
    again and again."""
    harness = led(make_harness())
    harness.append(1)
    harness.exchange(2, 3)
    harness.present(2)
    harness.present(3)
    assert harness.high_watermarks() == [1, 0, 0]
    assert not harness.answers[2], "coalesced: records may carry it"
    harness.pass_time(1, 1)
    harness.answer(2)
    harness.answer(3)
    assert harness.high_watermarks() == [1, 1, 1]
    harness.exchange(2, 3)
    for _ in range(5):
        harness.pass_time(5, 1)
    assert not harness.answers[2]
    assert harness.logs[2].mark[1] == 1 if hasattr(harness.logs[2], "mark") else True


def test_records_carry_the_high_watermark(make_harness: MakeHarness) -> None:
    """Under steady appends no answer is spent on the high watermark alone."""
    harness = led(make_harness(2))
    carried = 0
    for _ in range(50):
        harness.append(1)
        while harness.answers[2]:
            carried += harness.answer(2).records is not None
        harness.present(2)
        harness.pass_time(0.05, 1)
    assert carried >= 49


def test_the_greatest_timestamp(make_harness: MakeHarness) -> None:
    """MAX_TIMESTAMP is the first record with the greatest timestamp below the high watermark; nothing in an empty
    log. There is no other storage, so the earliest local offset is the start and the latest tiered one is none."""
    harness = led(make_harness())

    def greatest() -> tuple[int, int]:
        answer = harness.ask(1, ListOffsets, ListOffsetsPartition(0, MAX_TIMESTAMP))
        assert answer.error_code == 0
        return (answer.offset, answer.timestamp)

    assert greatest() == (-1, -1)
    expected = {
        0: (0, 1),
        1: (1, 500),
        2: (1, 500),
        3: (3, 1_700_000_000_000),
        4: (3, 1_700_000_000_000),
        5: (5, 2**62),
    }
    for number, timestamp in enumerate((1, 500, 500, 1_700_000_000_000, 7, 2**62)):
        harness.numbers += 1
        harness.step(1, Produce(CLIENT, harness.numbers, -1, batch(1, timestamp=timestamp), 1000))
        assert number == 0 or greatest() == expected[number - 1], "not above the high watermark"
        harness.settle()
        assert greatest() == expected[number]
    assert harness.ask(1, ListOffsets, ListOffsetsPartition(0, EARLIEST_LOCAL_TIMESTAMP)).offset == 0
    assert harness.ask(1, ListOffsets, ListOffsetsPartition(0, LATEST_TIERED_TIMESTAMP)).offset == -1


def test_a_reader_waits_for_as_many_bytes_as_it_asked_for(make_harness: MakeHarness) -> None:
    """``min_bytes`` counts what lies below the high watermark; after the wait the answer is what there is; one
    answer cannot have more than ``partition_max_bytes``."""
    harness = led(make_harness(), 1)
    size = harness.ask(1, ConsumerFetch, at(0), 0).records.size
    assert harness.ask(1, ConsumerFetch, at(0), 1000, 3 * size) is None
    number = harness.numbers
    assert harness.ask(1, ConsumerFetch, at(0), 500, 100 * size) is None
    patient = harness.numbers
    harness.append(1)
    harness.settle()
    assert number not in harness.results
    harness.append(1)
    assert number not in harness.results, "not committed yet"
    harness.settle()
    assert offsets(harness.results[number]) == [0, 1, 2]
    harness.pass_time(500, 1)
    assert offsets(harness.results[patient]) == [0, 1, 2]
    assert offsets(harness.ask(1, ConsumerFetch, at(0, size=2 * size), 1000, 100 * size)) == [0, 1]


def test_a_follower_serves_who_wants_to_read_anywhere(make_harness: MakeHarness) -> None:
    """KIP-392: below its own high watermark, and only while it is in sync; above that it says so, and the reader
    asks the leader."""
    harness = led(make_harness(), 3)
    harness.append(1)
    assert harness.high_watermarks()[1] == 3
    assert harness.ask(2, ConsumerFetch, at(0), 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "not asked for"
    assert offsets(harness.ask(2, ConsumerFetch, at(1), 0, 1, 0, True)) == [1, 2]
    assert harness.ask(2, ConsumerFetch, at(4), 1000, 1, 0, True).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert harness.ask(2, ConsumerFetch, at(3), 1000, 1, 0, True) is None
    number = harness.numbers
    harness.settle()
    assert offsets(harness.results[number]) == [3]
    assert harness.ask(2, ConsumerFetch, at(4), 1000, 1, 0, True) is None
    number = harness.numbers
    harness.elect(3)
    assert harness.code(number) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    harness.settle()
    harness.set_isr(1, 3, tell=[1, 2, 3])
    assert harness.ask(2, ConsumerFetch, at(0), 0, 1, 0, True).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert harness.ask(2, ConsumerFetch, at(9), 0, 1, 0, True).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, (
        "else it would be asked again"
    )
