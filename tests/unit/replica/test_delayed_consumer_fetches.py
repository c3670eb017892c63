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
from tests.unit.replica.batches import batch
from tests.unit.replica.conftest import MakeStage
from tests.unit.replica.replica_stage import CLIENT, led


def at(offset: int, *, epoch: int = -1, last: int = -1, size: int = 1 << 20) -> FetchPartition:
    """A consumer's question."""
    return FetchPartition(0, epoch, offset, last, partition_max_bytes=size)


def offsets(result: object) -> list[int]:
    """The base offsets in an answer."""
    records: RecordsSlice | None = getattr(result, "records", None)
    return [] if records is None else [b.base for b in parse(b"".join(bytes(p) for p in records.parts()))]


def test_nothing_above_the_high_watermark(make_stage: MakeStage) -> None:
    """A consumer gets whole batches below the high watermark and nothing at it."""
    stage = led(make_stage(), 3, 2)
    answer = stage.ask(1, ConsumerFetch, at(1), 0)
    assert offsets(answer) == [1, 2]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (3, 3, 0)
    answer = stage.ask(1, ConsumerFetch, at(3), 0)
    assert (answer.error_code, answer.records) == (0, None)
    assert stage.ask(1, ConsumerFetch, at(4), 0).error_code == 0
    assert offsets(stage.ask(1, ConsumerFetch, at(0, size=1), 0)) == [0]


def test_who_asks_for_no_bytes_gets_a_batch(make_stage: MakeStage) -> None:
    """As one message at least is wanted: else neither a consumer nor a follower would ever go on. So it is for a
    follower that waits."""
    stage = led(make_stage(), 3)
    assert offsets(stage.ask(1, ConsumerFetch, at(1, size=0), 0)) == [1]
    ends = []
    for _ in range(4):
        stage.append(1)
        stage.fetches[2].request.partition_max_bytes = 0
        stage.exchange(2)
        ends.append(stage.logs[2].end_offset)
    assert ends == sorted({*ends})
    assert ends[-1] > 5


def test_outside_the_log(make_stage: MakeStage) -> None:
    """Offsets outside [start, end] answer OFFSET_OUT_OF_RANGE at once, whatever the wait."""
    stage = led(make_stage(), 3)
    for offset in (4, 100, -1):
        assert stage.ask(1, ConsumerFetch, at(offset), 1000).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    stage.logs[1].increment_start_offset(2)
    assert stage.ask(1, ConsumerFetch, at(1), 1000).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert stage.ask(1, ListOffsets, ListOffsetsPartition(0, EARLIEST_TIMESTAMP)).offset == 2


def test_waiting_readers_are_answered_by_the_high_watermark(make_stage: MakeStage) -> None:
    """A reader at the end waits until the high watermark passes it, not until the append."""
    stage = led(make_stage(), 1)
    assert stage.ask(1, ConsumerFetch, at(1), 1000) is None
    number = stage.numbers
    stage.append(1)
    assert stage.code(number) is None
    stage.settle()
    assert offsets(stage.results[number]) == [1]


def test_waiting_readers_give_up(make_stage: MakeStage) -> None:
    """After the wait the answer is empty; a cancelled wait has no answer; one that is cut by an election says
    so."""
    stage = led(make_stage(), 1)
    assert stage.ask(1, ConsumerFetch, at(1), 100) is None
    first = stage.numbers
    assert stage.ask(1, ConsumerFetch, at(1), 200) is None
    second = stage.numbers
    assert stage.ask(1, ConsumerFetch, at(1), 300) is None
    third = stage.numbers
    stage.step(1, CancelFetch(CLIENT, second))
    stage.pass_time(100, 1)
    assert (stage.code(first), stage.results[first].records) == (0, None)
    stage.elect(2)
    assert second not in stage.results
    assert stage.code(third) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stage.results[third].current_leader.leader_id == 2


def test_readers_epochs_are_checked(make_stage: MakeStage) -> None:
    """A reader that names an epoch is fenced or told to wait; one whose last epoch ends before its offset here
    learns where."""
    stage = led(make_stage(), 3)
    stage.elect(1)
    stage.settle()
    assert stage.ask(1, ConsumerFetch, at(0, epoch=0), 0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert stage.ask(1, ConsumerFetch, at(0, epoch=2), 0).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert stage.ask(1, ConsumerFetch, at(3, last=2), 0).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH, (
        "it has read from a later leader"
    )
    assert offsets(stage.ask(1, ConsumerFetch, at(2, epoch=1, last=0), 0)) == [2]
    stage.append(1)
    stage.settle()
    answer = stage.ask(1, ConsumerFetch, at(4, last=0), 0)
    assert answer.diverging_epoch == EpochEndOffset(0, 3)
    assert stage.ask(2, ConsumerFetch, at(0), 1000).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_offsets_by_time(make_stage: MakeStage) -> None:
    """The first record at or after a time, below the high watermark; -1 where there is none; the ends by their
    names."""
    stage = led(make_stage())
    for timestamp in (10, 20, 30):
        stage.numbers += 1
        stage.step(1, Produce(CLIENT, stage.numbers, -1, batch(1, timestamp=timestamp), 1000))
    stage.settle()
    stage.append(1)

    def when(timestamp: int) -> tuple[int, int]:
        answer = stage.ask(1, ListOffsets, ListOffsetsPartition(0, timestamp))
        assert answer.error_code == 0
        return (answer.offset, answer.timestamp)

    assert [when(t) for t in (0, 10, 11, 30, 31)] == [(0, 10), (0, 10), (1, 20), (2, 30), (-1, -1)]
    assert when(EARLIEST_TIMESTAMP)[0] == 0
    assert when(LATEST_TIMESTAMP)[0] == 3
    assert stage.ask(1, ListOffsets, ListOffsetsPartition(0, LATEST_TIMESTAMP), 2).offset == 4, (
        "a replica sees the log's end"
    )
    assert stage.ask(1, ListOffsets, ListOffsetsPartition(0, -7)).error_code == ErrorCode.INVALID_REQUEST
    assert stage.ask(1, ListOffsets, ListOffsetsPartition(0, 0, 5)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert stage.ask(2, ListOffsets, ListOffsetsPartition(0, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_search_by_time_at_a_leader_ends_at_the_high_watermark(make_stage: MakeStage) -> None:
    """A consumer gets no offset at or above the high watermark, whatever its time; a replica does."""
    stage = led(make_stage())
    produce = [
        Produce(CLIENT, number, -1, batch(1, timestamp=timestamp), 1000) for number, timestamp in ((101, 10), (102, 50))
    ]
    stage.step(1, produce[0])
    stage.settle()
    stage.step(1, produce[1])
    assert (stage.logs[1].high_watermark, stage.logs[1].end_offset) == (1, 2)
    answer = stage.ask(1, ListOffsets, ListOffsetsPartition(0, 20))
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)
    assert stage.ask(1, ListOffsets, ListOffsetsPartition(0, 20), 2).offset == 1
    stage.settle()
    assert stage.ask(1, ListOffsets, ListOffsetsPartition(0, 20)).offset == 1


def test_an_offset_comes_with_its_epoch(make_stage: MakeStage) -> None:
    """The epoch of the record that a time leads to, by which its reader learns later whether the log was cut there;
    at the end the leader's."""
    stage = make_stage()
    for timestamp in (10, 20):
        stage.elect(1)
        stage.numbers += 1
        stage.step(1, Produce(CLIENT, stage.numbers, -1, batch(1, timestamp=timestamp), 1000))
        stage.settle()
    asked = (EARLIEST_TIMESTAMP, 10, 20, MAX_TIMESTAMP, LATEST_TIMESTAMP)
    answers = [stage.ask(1, ListOffsets, ListOffsetsPartition(0, timestamp)) for timestamp in asked]
    assert [(answer.offset, answer.leader_epoch) for answer in answers] == [(0, 0), (0, 0), (1, 1), (1, 1), (2, 1)]


def test_the_end_is_unknown_until_the_new_leader_caught_up(make_stage: MakeStage) -> None:
    """KIP-207: while a new leader's high watermark is below the start of its epoch, "latest" is
    OFFSET_NOT_AVAILABLE: it might step back."""
    stage = led(make_stage(min_insync_replicas=1), 3)
    stage.append(1)
    stage.exchange(2, 3)
    stage.present(2)
    stage.present(3)
    stage.elect(2, tell=[2, 3])
    assert stage.logs[2].high_watermark == 3
    latest = ListOffsetsPartition(0, LATEST_TIMESTAMP)
    assert stage.ask(2, ListOffsets, latest).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert stage.ask(2, ListOffsets, ListOffsetsPartition(0, 10**12)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert stage.ask(2, ListOffsets, ListOffsetsPartition(0, 0)).offset == 0
    stage.set_isr(2, 3, tell=[2])
    stage.exchange(3)
    assert stage.ask(2, ListOffsets, latest).offset == 4


def test_ends_of_epochs(make_stage: MakeStage) -> None:
    """OffsetForLeaderEpoch answers the greatest epoch not above the one asked for and its end."""
    stage = led(make_stage(), 2)
    stage.elect(1)
    stage.elect(1)
    stage.settle()
    stage.append(1)

    def end(epoch: int) -> tuple[int, int]:
        answer = stage.ask(1, OffsetForLeaderEpoch, OffsetForLeaderPartition(0, epoch))
        return (answer.leader_epoch, answer.end_offset)

    assert end(0) == (0, 2)
    assert end(2) == (2, 3)
    assert end(9) == (-1, -1)
    assert (
        stage.ask(2, OffsetForLeaderEpoch, OffsetForLeaderPartition(0, 0)).error_code
        == ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def test_an_idle_follower_hears_of_the_high_watermark(make_stage: MakeStage) -> None:
    """F25: when nothing more is appended the followers learn the high watermark about a millisecond later, and not
    again and again."""
    stage = led(make_stage())
    stage.append(1)
    stage.exchange(2, 3)
    stage.present(2)
    stage.present(3)
    assert stage.high_watermarks() == [1, 0, 0]
    assert not stage.answers[2], "coalesced: records may carry it"
    stage.pass_time(1, 1)
    stage.answer(2)
    stage.answer(3)
    assert stage.high_watermarks() == [1, 1, 1]
    stage.exchange(2, 3)
    for _ in range(5):
        stage.pass_time(5, 1)
    assert not stage.answers[2]
    assert stage.logs[2].mark[1] == 1 if hasattr(stage.logs[2], "mark") else True


def test_records_carry_the_high_watermark(make_stage: MakeStage) -> None:
    """Under steady appends no answer is spent on the high watermark alone."""
    stage = led(make_stage(2))
    carried = 0
    for _ in range(50):
        stage.append(1)
        while stage.answers[2]:
            carried += stage.answer(2).records is not None
        stage.present(2)
        stage.pass_time(0.05, 1)
    assert carried >= 49


def test_the_greatest_timestamp(make_stage: MakeStage) -> None:
    """MAX_TIMESTAMP is the first record with the greatest timestamp below the high watermark; nothing in an empty
    log. There is no other storage, so the earliest local offset is the start and the latest tiered one is none."""
    stage = led(make_stage())

    def greatest() -> tuple[int, int]:
        answer = stage.ask(1, ListOffsets, ListOffsetsPartition(0, MAX_TIMESTAMP))
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
        stage.numbers += 1
        stage.step(1, Produce(CLIENT, stage.numbers, -1, batch(1, timestamp=timestamp), 1000))
        assert number == 0 or greatest() == expected[number - 1], "not above the high watermark"
        stage.settle()
        assert greatest() == expected[number]
    assert stage.ask(1, ListOffsets, ListOffsetsPartition(0, EARLIEST_LOCAL_TIMESTAMP)).offset == 0
    assert stage.ask(1, ListOffsets, ListOffsetsPartition(0, LATEST_TIERED_TIMESTAMP)).offset == -1


def test_a_reader_waits_for_as_many_bytes_as_it_asked_for(make_stage: MakeStage) -> None:
    """``min_bytes`` counts what lies below the high watermark; after the wait the answer is what there is; one
    answer cannot have more than ``partition_max_bytes``."""
    stage = led(make_stage(), 1)
    size = stage.ask(1, ConsumerFetch, at(0), 0).records.size
    assert stage.ask(1, ConsumerFetch, at(0), 1000, 3 * size) is None
    number = stage.numbers
    assert stage.ask(1, ConsumerFetch, at(0), 500, 100 * size) is None
    patient = stage.numbers
    stage.append(1)
    stage.settle()
    assert number not in stage.results
    stage.append(1)
    assert number not in stage.results, "not committed yet"
    stage.settle()
    assert offsets(stage.results[number]) == [0, 1, 2]
    stage.pass_time(500, 1)
    assert offsets(stage.results[patient]) == [0, 1, 2]
    assert offsets(stage.ask(1, ConsumerFetch, at(0, size=2 * size), 1000, 100 * size)) == [0, 1]


def test_a_follower_serves_who_wants_to_read_anywhere(make_stage: MakeStage) -> None:
    """KIP-392: below its own high watermark, and only while it is in sync; above that it says so, and the reader
    asks the leader."""
    stage = led(make_stage(), 3)
    stage.append(1)
    assert stage.high_watermarks()[1] == 3
    assert stage.ask(2, ConsumerFetch, at(0), 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "not asked for"
    assert offsets(stage.ask(2, ConsumerFetch, at(1), 0, 1, 0, True)) == [1, 2]
    assert stage.ask(2, ConsumerFetch, at(4), 1000, 1, 0, True).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert stage.ask(2, ConsumerFetch, at(3), 1000, 1, 0, True) is None
    number = stage.numbers
    stage.settle()
    assert offsets(stage.results[number]) == [3]
    assert stage.ask(2, ConsumerFetch, at(4), 1000, 1, 0, True) is None
    number = stage.numbers
    stage.elect(3)
    assert stage.code(number) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    stage.settle()
    stage.set_isr(1, 3, tell=[1, 2, 3])
    assert stage.ask(2, ConsumerFetch, at(0), 0, 1, 0, True).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stage.ask(2, ConsumerFetch, at(9), 0, 1, 0, True).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, (
        "else it would be asked again"
    )
