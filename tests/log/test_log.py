"""One partition's log: append, roll, read, find, truncate, sync, poison, settings."""

from __future__ import annotations

import contextlib
import errno
from functools import partial
from random import Random
from typing import Any, cast

import pytest

from pyreplog.config import Durability, LogConfig
from pyreplog.errors import (
    ClosedError,
    ConfigError,
    CorruptError,
    CorruptLogError,
    InternalError,
    InvalidRequestError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    StorageError,
)
from pyreplog.log import Log, NewLog
from pyreplog.log.layout import parse_base_offset
from pyreplog.log.producer_state import ProducerState
from pyreplog.log.segment import Segment
from pyreplog.record import CODEC_NUMBERS, RecordBatch, split
from pyreplog.testing.disk import SimDisk
from pyreplog.values import EpochEntry, TimestampType, TopicPartition
from tests.log.conftest import Place, damage_second_batch
from tests.log.support import CLOCK, StillClock, batch, contents, create, interrupted, raw, reopen, sync

SMALL = LogConfig(segment_bytes=1200, index_interval_bytes=100)


def filled(place: Place, count: int = 20, config: LogConfig = SMALL) -> Log:
    """A log of ``count`` batches of two records, over several segments."""
    log = create(place.disk, place.of("t-0"), config)
    for number in range(count):
        log.append_as_leader(batch(2, size=50, timestamp=1000 + 10 * number, tag=b"%d:" % number), 0)
    return log


def bases(place: Place) -> list[int]:
    """Base offsets of the log files."""
    return [base for name in place.disk.list(place.of("t-0")) if (base := parse_base_offset(name)) is not None]


# -- appending --


def test_a_leader_gives_offsets_and_epoch(place: Place) -> None:
    """Batches get consecutive offsets and the leader's epoch; the answer says which."""
    log = create(place.disk, place.of("t-0"))
    first = log.append_as_leader(batch(3), 0)
    second = log.append_as_leader(batch(2), 0)
    assert (first.base_offset, first.last_offset, first.record_count, first.timestamp) == (0, 2, 3, -1)
    assert (second.base_offset, second.last_offset) == (3, 4)
    assert log.end_offset == 5
    assert [(record.offset, record.leader_epoch) for record in contents(log)] == [(offset, 0) for offset in range(5)]
    assert log.stats().batches_appended == 2
    assert log.stats().records_appended == 5
    assert log.stats().bytes_appended == log.stats().size == first.size + second.size
    log.close(clean=True)


def test_a_read_only_batch_is_copied(place: Place) -> None:
    """Bytes that cannot be written to are not."""
    log = create(place.disk, place.of("t-0"), start_offset=7)
    content = bytes(batch(2))
    before = bytes(content)
    assert log.append_as_leader(content, 0).base_offset == 7
    assert content == before
    assert contents(log)[0].offset == 7
    log.close(clean=True)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_checked_and_kept(place: Place, codec: str) -> None:
    """A compressed batch is stored as it came and reads back."""
    log = create(place.disk, place.of("t-0"))
    log.append_as_leader(batch(5, codec=CODEC_NUMBERS[codec]), 0)
    assert split(raw(log))[0].codec == CODEC_NUMBERS[codec]
    assert [record.key for record in contents(log)] == [b"k%d" % number for number in range(5)]
    log.close(clean=True)


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_rewrites_batches(place: Place, codec: str) -> None:
    """With compression.type set, every batch is stored in that codec, with its records and header fields
    unchanged."""
    log = create(place.disk, place.of("t-0"), LogConfig(compression_type=codec))
    for sent in ("none", "zstd", "lz4"):
        log.append_as_leader(batch(4, codec=CODEC_NUMBERS[sent], timestamp=77), 0)
    assert {one.codec for one in split(raw(log))} == {CODEC_NUMBERS[codec]}
    assert [(record.offset, record.timestamp, record.key) for record in contents(log)] == [
        (o, 77 + o % 4, b"k%d" % (o % 4)) for o in range(12)
    ]
    log.close(clean=True)


def test_append_time_replaces_timestamps(place: Place) -> None:
    """With LogAppendTime every record bears the leader's clock, and the answer says so."""
    log = create(place.disk, place.of("t-0"), LogConfig(message_timestamp_type="LogAppendTime"))
    appended = log.append_as_leader(batch(3, timestamp=5), 0, trusted=True)
    assert appended.timestamp == CLOCK.wall_ms()
    assert {(record.timestamp, record.timestamp_type) for record in contents(log)} == {
        (CLOCK.wall_ms(), TimestampType.LOG_APPEND_TIME)
    }
    assert log.find_timestamp(CLOCK.wall_ms(), 3) == (0, CLOCK.wall_ms())
    log.close(clean=True)


def test_a_leader_refuses_bad_batches(place: Place) -> None:
    """A flipped bit, bytes behind the batch, a cut one, control records, offsets not from 0: refused, and nothing
    is appended."""
    log = create(place.disk, place.of("t-0"))
    good = bytes(batch(3))
    for position in range(16, len(good)):
        flipped = bytearray(good)
        flipped[position] ^= 4
        with pytest.raises(CorruptError):
            log.append_as_leader(flipped, 0)
    for bad in (good + b"\0", good + good, good[:-1], good[:40], b""):
        with pytest.raises(CorruptError):
            log.append_as_leader(bytearray(bad), 0)
    with pytest.raises(InvalidRequestError):
        log.append_as_leader(batch(1, base_offset=4), 0)
    assert log.end_offset == 0
    assert log.stats().size == 0
    log.append_as_leader(bytearray(good), 0)
    assert len(contents(log)) == 3
    log.close(clean=True)


def test_too_large_is_refused(place: Place) -> None:
    """A batch above max.message.bytes or segment.bytes is refused with its size; one exactly as large is taken."""
    one = batch(1, size=400)
    log = create(place.disk, place.of("t-0"), LogConfig(max_message_bytes=len(one)))
    log.append_as_leader(one, 0)
    with pytest.raises(MessageTooLargeError, match="max.message.bytes"):
        log.append_as_leader(batch(1, size=401), 0)
    log.close(clean=True)
    other = create(place.disk, place.of("t-1"), LogConfig(segment_bytes=1024))
    with pytest.raises(MessageTooLargeError, match="segment.bytes"):
        other.append_as_leader(batch(1, size=2000), 0)
    # A follower takes what its leader took (KAFKA-17375).
    assert other.append_as_follower([batch(1, size=2000, leader_epoch=0)]) == 1
    other.close(clean=True)


@pytest.mark.parametrize("trusted", [False, True])
def test_the_last_offsets_and_epochs(place: Place, trusted: bool) -> None:
    """Up to 2^63 - 2 records are taken, and found again; what does not fit below is refused, as is an epoch above
    2^31 - 1."""
    log = create(place.disk, place.of("t-0"), SMALL)
    first = 2**63 - 4
    log.truncate_fully(first)
    log.become_leader(2**31 - 1)
    log.append_as_leader(batch(2), 2**31 - 1, trusted=trusted)
    with pytest.raises(InvalidRequestError, match="used up its offsets: import"):
        log.append_as_leader(batch(2), 2**31 - 1, trusted=trusted)
    log.append_as_leader(batch(1), 2**31 - 1, trusted=trusted)
    for number in (1, 5):
        with pytest.raises(InvalidRequestError, match="used up its offsets: import"):
            log.append_as_leader(batch(number), 2**31 - 1, trusted=trusted)
    with pytest.raises(InvalidRequestError, match="used up its leader epochs: import"):
        log.become_leader(2**31)
    sync(place.disk, log)
    log.close(clean=False)
    again = reopen(place.disk, place.of("t-0"), same_boot=True)
    assert [record.offset for record in contents(again)] == [first, first + 1, first + 2]
    assert (again.end_offset, again.epochs.latest) == (2**63 - 1, 2**31 - 1)
    again.close(clean=True)


def test_a_follower_keeps_the_bytes(place: Place) -> None:
    """What a follower appends is what the leader has, byte for byte, with the same epochs, however it is cut into
    parts."""
    leader = create(place.disk, place.of("t-0"), SMALL)
    for number in range(12):
        if number in (4, 9):
            leader.become_leader(number)
        leader.append_as_leader(batch(1 + number % 3, size=60, tag=b"%d" % number), leader.epochs.latest)
    random = Random(5)
    for index in range(4):
        (follower,) = Log.create(
            place.disk, [NewLog(place.of(f"f-{index}"), TopicPartition("t", 0), leader.topic_id, SMALL)], CLOCK
        )
        while follower.end_offset < leader.end_offset:
            cut = leader.read(follower.end_offset, random.randrange(100, 900), leader.end_offset)
            assert follower.append_as_follower(cut.parts()) == follower.end_offset
        assert raw(follower) == raw(leader)
        assert follower.epochs == leader.epochs
        follower.close(clean=True)
    leader.close(clean=True)


class NoMemory:
    """In the place of what knows the producers."""

    def __getattr__(self, _: str) -> None:
        raise MemoryError


@pytest.mark.parametrize("count", [1, 2])
def test_what_a_follower_wrote_counts_although_memory_ended(place: Place, count: int) -> None:
    """Where there is no memory to note who sent a batch it is in the log all the same, once: given again it is
    refused."""
    log = create(place.disk, place.of("t-0"))
    for number in range(2):
        log.append_as_follower([batch(1, base_offset=number, leader_epoch=0, sequence=number)])
    parts = [batch(1, base_offset=2 + number, leader_epoch=0, sequence=2 + number) for number in range(count)]
    producers, log.producers = log.producers, cast("ProducerState", NoMemory())
    with pytest.raises(MemoryError):
        log.append_as_follower(parts, at_end=True)
    log.producers = producers
    assert log.end_offset == 2 + count
    with pytest.raises(ClosedError):  # it does not know who sent what it has
        log.append_as_follower(parts, at_end=True)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    with pytest.raises(CorruptError):
        log.append_as_follower(parts, at_end=True)
    assert (
        log.append_as_follower([batch(1, base_offset=2 + count, leader_epoch=0, sequence=2 + count)], at_end=True)
        == 3 + count
    )
    assert [record.offset for record in contents(log)] == [*range(3 + count)]


def test_what_a_leader_wrote_counts_although_memory_ended(place: Place) -> None:
    """As of a follower: the next batch goes behind it, and it is known when it is sent again."""
    log = create(place.disk, place.of("t-0"))
    for number in range(2):
        log.append_as_leader(batch(1, sequence=number), 0, trusted=True)
    known = log.producers
    sent: list[int] = []

    class Failing:
        """The first look finds the producer; then memory ends."""

        @property
        def table(self) -> object:
            if sent:
                raise MemoryError
            sent.append(1)
            return known.table

    log.producers = cast("ProducerState", Failing())
    with pytest.raises(MemoryError):
        log.append_as_leader(batch(1, sequence=2), 0, trusted=True)
    log.producers = known
    assert log.end_offset == 3
    with pytest.raises(ClosedError):
        log.append_as_leader(batch(1, sequence=2), 0, trusted=True)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert log.append_as_leader(batch(1, sequence=2), 0, trusted=True).duplicate
    assert log.append_as_leader(batch(1), 0, trusted=True).base_offset == 3
    assert [record.offset for record in contents(log)] == [0, 1, 2, 3]


def test_a_follower_refuses_what_does_not_follow(place: Place) -> None:
    """Offsets below the end, falling epochs, a bad checksum, half a batch: refused as a whole, and nothing of it is
    appended."""
    log = create(place.disk, place.of("t-0"))
    log.append_as_follower([batch(3, leader_epoch=4)])
    good = batch(2, base_offset=3, leader_epoch=4)
    for bad in (
        batch(1, base_offset=2, leader_epoch=4),
        batch(1, base_offset=3, leader_epoch=3),
        batch(1, base_offset=3, leader_epoch=-1),
        bytes(batch(1, base_offset=5, leader_epoch=4))[:-3],
    ):
        with pytest.raises(CorruptError):
            log.append_as_follower([good, bad])
        with pytest.raises(CorruptError):
            log.append_as_follower([bad], at_end=True)
    flipped = bytearray(batch(1, base_offset=5, leader_epoch=4))
    flipped[-1] ^= 1
    with pytest.raises(CorruptError):
        log.append_as_follower([good, flipped])
    near = bytearray(batch(1, base_offset=3, leader_epoch=4))
    near[-1] ^= 1
    with pytest.raises(CorruptError):
        log.append_as_follower([near], at_end=True)
    assert log.end_offset == 3
    assert log.append_as_follower([]) == 3
    assert log.append_as_follower([b""]) == 3
    # Gaps are allowed: the leader's log may have been compacted.
    assert log.append_as_follower([batch(1, base_offset=30, leader_epoch=6)]) == 31
    assert log.epochs.entries == [EpochEntry(0, 0), EpochEntry(6, 30)][-2:] or log.epochs.latest == 6
    assert [record.offset for record in contents(log)] == [0, 1, 2, 30]
    log.close(clean=True)


def test_a_gap_too_wide_for_a_segment_begins_a_new_one(place: Place) -> None:
    """Offsets further away than a segment's index can say begin a new segment, and the log opens again."""
    log = create(place.disk, place.of("t-0"))
    log.append_as_follower([batch(1, leader_epoch=0)])
    far = 2**33
    log.append_as_follower([batch(1, base_offset=far, leader_epoch=0)])
    assert bases(place) == [0, far]
    sync(place.disk, log)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"), same_boot=False)
    assert [record.offset for record in contents(log)] == [0, far]
    assert log.end_offset == far + 1
    log.close(clean=True)


# -- rolling --


def test_segments_roll_by_size(place: Place) -> None:
    """No segment grows above segment.bytes; each begins where the one before ends; reading goes across them."""
    log = filled(place)
    found = bases(place)
    assert len(found) > 2
    for name in place.disk.list(place.of("t-0")):
        if name.endswith(".log"):
            stat = place.disk.stat(place.of(f"t-0/{name}"))
            assert stat is not None
            assert 0 < stat.size <= 1200
    assert [record.offset for record in contents(log)] == list(range(40))
    log.set_tail_cache_size(0)
    assert [record.offset for record in contents(log, size_max=1)] == list(range(40))
    log.close(clean=True)


def test_segments_roll_by_message_time(place: Place) -> None:
    """A segment is closed by a batch whose timestamp is more than segment.ms after its first one's, whatever the
    clock says."""
    clock = StillClock()
    log = create(place.disk, place.of("t-0"), LogConfig(segment_ms=1000), clock=clock)
    for timestamp in (5000, 6000, 4000, 6001, 6500, 7002):
        clock.now_ms += 10_000
        log.append_as_leader(batch(1, timestamp=timestamp), 0)
    assert bases(place) == [0, 3, 5]
    log.close(clean=True)


@pytest.mark.parametrize(("segment_ms", "timestamp"), [(2**63 - 1, 5000), (1000, 2**63 - 1)])
def test_a_segment_may_be_kept_for_longer_than_there_are_times(place: Place, segment_ms: int, timestamp: int) -> None:
    """The sum of the first timestamp and segment.ms is no time any more: no later one closes the segment."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_ms=segment_ms))
    for later in (timestamp, timestamp, 2**63 - 1):
        log.append_as_leader(batch(1, timestamp=later), 0)
    assert (log.end_offset, bases(place)) == (3, [0])
    log.close(clean=True)


def test_damage_of_the_batch_with_the_greatest_timestamp_costs_no_more_than_it(place: Place) -> None:
    """The last entry of the time index names it, and cannot be checked any more: what lies behind it in its segment
    is found all the same."""
    log = create(place.disk, place.of("t-0"), SMALL)
    for number in range(40):
        log.append_as_leader(batch(1, timestamp=9000 if number == 1 else 1000 + number), 0)
    assert log.segments()[1][0] > 10
    sync(place.disk, log)
    log.close(clean=True)
    damage_second_batch(place)
    log = reopen(place.disk, place.of("t-0"), clean=True)
    with pytest.raises(CorruptLogError) as caught:
        log.read(1, 1, 40)
    assert (caught.value.start, caught.value.end) == (1, 2)
    assert [record.offset for record in contents(log, start=2)] == list(range(2, 40))
    log.close(clean=True)


@pytest.mark.parametrize(
    ("victim", "epoch", "end"), [(60, 0, 61), (60, 0, 120), (99, 0, 120), (30, 1, 31), (30, 7, 120)]
)
def test_a_wrong_epoch_among_many_small_batches_is_not_served(place: Place, victim: int, epoch: int, end: int) -> None:
    """A batch of one record after the other: one that bears the epoch before its own, or a later one, is met where
    it lies."""
    log = create(place.disk, place.of("t-0"))
    for number in range(120):
        log.append_as_leader(batch(1, timestamp=1000), number // 60)
    sync(place.disk, log)
    log.close(clean=True)
    name = f"t-0/{0:020d}.log"
    content = bytearray(place.read(name))
    log = reopen(place.disk, place.of("t-0"), clean=True)
    position = victim * (len(content) // 120) + 12
    content[position : position + 4] = epoch.to_bytes(4, "big")
    place.write(name, bytes(content))
    log._segments.last.release()
    with pytest.raises(CorruptLogError) as caught:
        contents(log, end=end)
    assert caught.value.start == victim
    log.close(clean=False)


def test_where_reading_ended_is_forgotten_when_the_log_is_cut(place: Place) -> None:
    """What is written behind the cut need not begin where the batches did that were there before."""
    log = create(place.disk, place.of("t-0"))
    log.set_tail_cache_size(0)
    for _ in range(4):
        log.append_as_leader(batch(1, size=50), 0)
    assert len(log.read(0, 1 << 20, 2).parts()) == 1  # and would go on at offset 2
    log.truncate_to(1)
    for size in (500, 20, 20):
        log.append_as_leader(batch(1, size=size), 0)
    assert log.read(2, 1 << 20, 4).size > 0
    assert [record.offset for record in contents(log, start=2)] == [2, 3]
    log.close(clean=True)


def test_a_gap_that_cannot_be_noted_is_not_appended() -> None:
    """Without the note in the mark the next opening would take it for damage."""
    disk = SimDisk(Random(1))
    log = create(disk, "t-0")
    log.append_as_follower([batch(1, base_offset=0, leader_epoch=0)])
    disk.fail("write", "*replog.mark", error=errno.ENOSPC)
    with pytest.raises(StorageError):
        log.append_as_follower([batch(1, base_offset=5, leader_epoch=0)])
    assert log.end_offset == 1
    assert log.append_as_follower([batch(1, base_offset=5, leader_epoch=0)]) == 6
    log.close(clean=False)
    log = reopen(disk, "t-0")
    assert [record.offset for record in contents(log)] == [0, 5]
    log.close(clean=True)


def test_segments_without_timestamps_roll_by_the_clock(place: Place) -> None:
    """Where the first batch has no timestamp, the wall clock since the segment was begun decides."""
    clock = StillClock()
    log = create(place.disk, place.of("t-0"), LogConfig(segment_ms=1000), clock=clock)
    for pause in (5000, 1000, 1, 500):
        clock.now_ms += pause
        log.append_as_leader(batch(1, timestamp=-1), 0)
    assert bases(place) == [0, 1]
    log.close(clean=True)


def test_segments_roll_when_an_index_is_full(place: Place) -> None:
    """A segment is closed when its index may not grow any more."""
    log = create(place.disk, place.of("t-0"), LogConfig(index_interval_bytes=0, segment_index_bytes=60))
    for number in range(12):
        log.append_as_leader(batch(1, timestamp=number), 0)
    for name in place.disk.list(place.of("t-0")):
        stat = place.disk.stat(place.of(f"t-0/{name}"))
        assert stat is not None
        if name.endswith("index"):
            assert stat.size <= 60
    assert len(bases(place)) > 2
    log.close(clean=True)


# -- reading --


@pytest.mark.parametrize("tail", [0, 500, 4 << 20])
def test_reads_give_whole_batches_below_the_end(place: Place, tail: int) -> None:
    """From any offset, up to any end, with any size: whole batches, in order, the first holding the offset, at
    least one where there is one; none where nothing is asked for."""
    log = create(place.disk, place.of("t-0"), SMALL)
    log.set_tail_cache_size(tail)
    for number in range(14):
        log.append_as_leader(batch(3, size=50, tag=b"%d:" % number), 0)
    size = len(raw(log)) // 14
    for start in range(log.end_offset + 1):
        for end in (start, start + 1, start + 3, start + 7, log.end_offset):
            for size_max in (0, 1, size, 2 * size + 1, 1 << 20):
                cut = log.read(start, size_max, end)
                batches = [one for part in cut.parts() for one in split(part)]
                assert cut.size == sum(one.size for one in batches)
                limit = min(end, log.end_offset)
                if start >= limit or start // 3 * 3 + 3 > limit or not size_max:
                    assert not batches
                    continue
                assert batches[0].base_offset == start // 3 * 3
                assert batches[-1].next_offset <= limit
                assert len(batches) == 1 or cut.size <= size_max
                assert [one.base_offset for one in batches] == list(
                    range(batches[0].base_offset, batches[-1].next_offset, 3)
                )
    log.close(clean=True)


def test_reads_outside_the_log_are_refused(place: Place) -> None:
    """Below the start and above the end is out of range; exactly at the end is empty."""
    log = filled(place)
    assert log.read(log.end_offset, 100, log.end_offset).parts() == []
    with pytest.raises(OffsetOutOfRangeError) as caught:
        log.read(log.end_offset + 1, 100, 1000)
    assert (caught.value.asked, caught.value.start, caught.value.end) == (41, 0, 40)
    log.set_high_watermark(40)
    assert log.increment_start_offset(11)
    assert not log.increment_start_offset(11)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(10, 100, 40)
    assert contents(log)[0].offset == 11
    with pytest.raises(OffsetOutOfRangeError):
        log.increment_start_offset(41)
    log.close(clean=True)
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert log.start_offset == 11
    log.close(clean=True)


def test_a_large_batch_is_read_whole(place: Place) -> None:
    """A batch larger than what was asked for, or than any chunk, comes whole."""
    log = create(place.disk, place.of("t-0"), LogConfig(max_message_bytes=1 << 20))
    for _ in range(3):
        log.append_as_leader(batch(3000, size=100), 0)
    log.set_tail_cache_size(0)
    cut = log.read(3500, 10, 9000)
    assert [one.base_offset for part in cut.parts() for one in split(part)] == [3000]
    log.close(clean=True)


def test_a_slice_is_void_after_a_truncation(place: Place) -> None:
    """A slice gives the bytes it was cut from, also after appends and close, and none once the log was
    truncated."""
    log = filled(place)
    cut = log.read(0, 300, 40)
    expected = b"".join(cut.parts())
    log.append_as_leader(batch(1), 0)
    assert b"".join(cut.parts()) == expected
    assert len(cut) == cut.size == len(expected)
    log.truncate_to(10)
    with pytest.raises(OutcomeUnknownError):
        cut.parts()
    log.close(clean=True)


def test_timestamps_are_found(place: Place) -> None:
    """The first record not older than the time asked for, below the end given, whether it is in memory, in a closed
    segment or nowhere."""
    log = filled(place)
    records = contents(log)
    for timestamp in range(990, 1210):
        for end in (0, 1, 7, 22, 40):
            expected = next(
                ((r.offset, r.timestamp) for r in records if r.timestamp >= timestamp and r.offset < end), None
            )
            assert log.find_timestamp(timestamp, end) == expected, (timestamp, end)
    log.close(clean=True)


def test_timestamps_out_of_order_are_found(place: Place) -> None:
    """Timestamps that go back and forth, and none at all, are found by offset order."""
    random = Random(3)
    log = create(place.disk, place.of("t-0"), SMALL)
    for _ in range(40):
        log.append_as_leader(
            batch(2, size=40, timestamp=random.choice([-1, 0, 5, random.randrange(1000)])), 0, trusted=True
        )
    records = contents(log)
    for timestamp in [0, 1, 5, *range(0, 1005, 13)]:
        expected = next(((r.offset, r.timestamp) for r in records if r.timestamp >= timestamp), None)
        assert log.find_timestamp(timestamp, 80) == expected
    log.close(clean=True)


def test_a_search_by_time_passes_over_old_segments(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a segment that was searched for nothing, because its newest record was deleted: the indexes say
    what is too old."""
    log = create(place.disk, place.of("t-0"), SMALL)
    for number in range(20):
        log.append_as_leader(batch(2, size=50, timestamp={0: 5000, 19: 6000}.get(number, 1000)), 0)
    sync(place.disk, log)
    log.advance_high_watermark(log.end_offset)
    log.delete_records(2)
    *_, before_last, last = bases(place)
    assert before_last > 2
    looked_into = []
    find = Segment.find_timestamp

    def noted(segment: Segment, *arguments: Any) -> tuple[int, int] | None:
        looked_into.append(segment.base_offset)
        return find(segment, *arguments)

    monkeypatch.setattr(Segment, "find_timestamp", noted)
    assert log.find_timestamp(4000, log.end_offset) == (38, 6000)
    assert set(looked_into) <= {0, last}
    log.close(clean=True)


def test_a_search_by_time_goes_on_over_several_segments(place: Place) -> None:
    """A segment whose only late record was deleted does not end the search, and neither do older segments behind
    it."""
    log = create(place.disk, place.of("t-0"), SMALL)
    late = {0: 5000, 25: 6000, 39: 7000}
    for number in range(40):
        log.append_as_leader(batch(2, size=50, timestamp=late.get(number, 1000)), 0)
    sync(place.disk, log)
    log.advance_high_watermark(log.end_offset)
    log.delete_records(2)
    first, *between, last = bases(place)
    assert (first, between[0] > 2, last > 51) == (0, True, True)
    assert sum(base <= 50 for base in between) >= 3, (
        "several segments lie between the deleted record and the one searched for"
    )
    assert log.find_timestamp(4000, log.end_offset) == (50, 6000)
    assert log.find_timestamp(6500, log.end_offset) == (78, 7000)
    assert log.find_timestamp(4000, 50) is None
    assert log.find_timestamp(4000, 51) == (50, 6000)
    assert log.find_timestamp(7002, log.end_offset) is None
    log.close(clean=True)


# -- what counts --


def test_the_end_that_counts(place: Place) -> None:
    """A sync log counts what was synced, an os log what was written; only appends since then need a sync."""
    for index, durability in enumerate(("sync", "os")):
        log = create(place.disk, place.of(f"t-{index}"), LogConfig(durability=durability, segment_bytes=1200))  # type: ignore[arg-type]
        assert log.sync_plan() is None
        for _ in range(20):
            log.append_as_leader(batch(2, size=50), 0)
        assert (log.end_offset, log.flushed_offset) == (40, 0)
        assert log.ack_offset == (0 if durability == "sync" else 40)
        plan = log.sync_plan()
        assert plan is not None
        assert plan.upto == 40
        assert len(plan.files) > 3
        log.append_as_leader(batch(1), 0)
        sync(place.disk, log)
        assert log.ack_offset == log.flushed_offset == 41
        assert log.sync_plan() is None
        log.synced(40, log.generation)
        assert log.flushed_offset == 41
        log.close(clean=True)


def test_a_segment_that_was_half_synced_and_closed_is_synced_once_more(place: Place) -> None:
    """A sync that began before the segment became full does not cover all of it: the next plan has its files
    again."""
    log = create(place.disk, place.of("t-0"), LogConfig(durability="os", segment_bytes=1200))
    log.append_as_leader(batch(2, size=50), 0)
    early = log.sync_plan()
    assert early is not None
    while log.stats().segment_count < 3:
        log.append_as_leader(batch(2, size=50), 0)
    first, second, _ = bases(place)
    log.synced(early.upto, early.generation)
    assert first < log.flushed_offset == early.upto < second
    assert log.has_unsynced_segment
    assert log.sync_due(0), "a segment that is closed asks for its sync, whatever flush.messages says"
    plan = log.sync_plan()
    assert plan is not None
    closed = 3  # its batches and its two indexes
    assert len(plan.files) == 2 * closed + 1
    # A sync up to the end of the first segment covers the first segment only.
    log.synced(second, log.generation)
    plan = log.sync_plan()
    assert plan is not None
    assert len(plan.files) == closed + 1
    log.synced(plan.upto, plan.generation)
    assert not log.has_unsynced_segment
    log.close(clean=True)


def test_a_segment_that_a_clean_stop_had_left_is_synced_again_after_it_grew(place: Place) -> None:
    """A clean stop syncs the segment, but not the records that follow later: the segment is in the plan after it is
    closed."""
    create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1200)).close(clean=True)
    log = reopen(place.disk, place.of("t-0"), clean=True, config=LogConfig(segment_bytes=1200))
    log.become_leader(1)
    assert not log.has_unsynced_segment
    while log.stats().segment_count < 2:
        log.append_as_leader(batch(2, size=50), 1)
    assert log.has_unsynced_segment
    plan = log.sync_plan()
    assert plan is not None
    assert len(plan.files) == 4, "the closed segment with its two indexes, and the one being written"
    log.close(clean=True)


def test_a_sync_of_before_a_truncation_is_void(place: Place) -> None:
    """What was synced of a log that was cut since does not count for what took its place."""
    log = filled(place)
    plan = log.sync_plan()
    assert plan is not None
    log.truncate_to(10)
    log.append_as_leader(batch(3), 0)
    log.synced(plan.upto, plan.generation)
    assert log.flushed_offset == 0
    log.close(clean=True)


def test_the_high_watermark_stays_within_the_log(place: Place) -> None:
    """It rises only, up to the end; setting it clamps; a truncation lowers it."""
    log = filled(place)
    assert log.advance_high_watermark(10)
    assert not log.advance_high_watermark(10)
    assert not log.advance_high_watermark(5)
    assert log.high_watermark == 10
    assert log.advance_high_watermark(1000)
    assert log.high_watermark == 40
    log.set_high_watermark(-5)
    assert log.high_watermark == 0
    log.set_high_watermark(30)
    log.truncate_to(21)
    assert log.end_offset == log.high_watermark == 20
    log.close(clean=True)


def test_flush_settings_ask_for_syncs(place: Place) -> None:
    """flush.messages and flush.ms make a sync due, and a sync makes it not due."""
    log = create(place.disk, place.of("t-0"), LogConfig(durability="os", flush_messages=3, flush_ms=1000))
    assert not log.sync_due(0)
    log.append_as_leader(batch(2), 0)
    assert not log.sync_due(1_000_000)
    assert not log.sync_due(1_000_000_000)
    assert log.sync_due(1_001_000_000)
    sync(place.disk, log)
    assert not log.sync_due(5_000_000_000)
    log.append_as_leader(batch(3), 0)
    assert log.sync_due(5_000_000_000)
    log.close(clean=True)


def test_a_closed_segment_asks_for_a_sync(place: Place) -> None:
    """An os log is synced when a segment was closed, as Kafka does."""
    log = filled(place, 4, LogConfig(durability="os"))
    assert not log.sync_due(0)
    log.close(clean=False)
    log = create(place.disk, place.of("t-1"), LogConfig(durability="os", segment_bytes=1200))
    while log.stats().segment_count == 1:
        assert not log.sync_due(0)
        log.append_as_leader(batch(2, size=100), 0)
    assert log.sync_due(0)
    sync(place.disk, log)
    assert not log.sync_due(0)
    log.close(clean=True)


# -- cutting --


def test_a_truncation_cuts_whole_batches(place: Place) -> None:
    """Cutting at any offset leaves the whole batches below it, their epochs, and a log that goes on and opens
    again."""
    for offset in range(0, 42, 3):
        log = create(place.disk, place.of(f"t-{offset}"), SMALL)
        for number in range(20):
            if number % 6 == 5:
                log.become_leader(number)
            log.append_as_leader(batch(2, size=50, tag=b"%d:" % number), log.epochs.latest)
        whole = raw(log)
        epochs = log.epochs.entries
        generation = log.generation
        log.truncate_to(offset)
        end = min(offset // 2 * 2, 40)
        assert log.end_offset == end
        assert log.generation == generation + (end < 40)
        assert whole.startswith(raw(log))
        assert [record.offset for record in contents(log)] == list(range(end))
        assert log.epochs.entries == [entry for entry in epochs if entry.start_offset < end]
        log.become_leader(50)
        assert log.append_as_leader(batch(2), 50).base_offset == end
        before = raw(log)
        log.close(clean=offset % 2 == 0)
        log = reopen(place.disk, place.of(f"t-{offset}"), clean=offset % 2 == 0)
        assert raw(log) == before
        assert log.find_timestamp(0, log.end_offset) == (0, 1000)
        log.close(clean=True)


@pytest.mark.parametrize("interval", [1, 4096])
def test_a_truncation_does_not_believe_a_damaged_batch(interval: int) -> None:
    """Whatever byte flips of the last batch that is to stay, or of the first that is to go: cut is at the right
    place, or with an error before anything is cut."""
    config = LogConfig(index_interval_bytes=interval)
    for victim in (5, 6):
        for at in range(8, 100):
            disk = SimDisk()
            log = create(disk, "t-0", config)
            sizes = [log.append_as_leader(batch(2, size=50, tag=b"%d:" % number), 0).size for number in range(10)]
            path = f"t-0/{0:020}.log"
            disk.flip(path, sum(sizes[:victim]) + at, 1)
            before = disk.stat(path)
            try:
                log.truncate_to(12)
            except CorruptError:
                assert disk.stat(path) == before or victim == 5
            else:
                assert (log.end_offset, log.stats().size) == (12, sum(sizes[:6]))
            log.close(clean=False)


def test_a_file_that_somebody_made_shorter_is_no_endless_loop() -> None:
    """Wherever it ends now: an error, or nothing was missing."""
    for end in range(1, 300, 7):
        disk = SimDisk()
        log = create(disk, "t-0")
        for number in range(3):
            log.append_as_leader(batch(2, size=50, tag=b"%d:" % number), 0)
        file = disk.open(f"t-0/{0:020}.log", write=True)
        file.truncate(end)
        file.close()
        with pytest.raises(CorruptError):
            log.truncate_to(2)
        log.close(clean=False)


def test_a_truncation_at_the_end_drops_an_unused_epoch(place: Place) -> None:
    """Cutting at or above the end changes no data, but an epoch that began there goes."""
    log = filled(place)
    log.become_leader(7)
    assert log.epochs.latest == 7
    log.truncate_to(45)
    assert log.epochs.latest == 0
    assert log.end_offset == 40
    assert log.generation == 0
    log.close(clean=True)


def test_a_log_begins_anew(place: Place) -> None:
    """Dropping everything leaves an empty log at the offset given, which opens again as that."""
    log = filled(place)
    sync(place.disk, log)
    for start in (1000, 1000, 20):
        log.truncate_fully(start)
        assert (log.start_offset, log.high_watermark, log.flushed_offset, log.end_offset) == (start,) * 4
        assert log.epochs.entries == []
        assert bases(place) == [start]
        log.close(clean=False)
        log = reopen(place.disk, place.of("t-0"))
        assert (log.start_offset, log.end_offset) == (start, start)
    log.truncate_to(5)  # below the first segment
    assert (log.start_offset, log.end_offset) == (5, 5)
    log.become_leader(9)
    assert log.append_as_leader(batch(2), 9).base_offset == 5
    log.close(clean=True)


def test_a_beginning_anew_that_is_cut_short_ends_the_log() -> None:
    """Ctrl-C at any line of it: what is called next is done, or refused with a typed error; the next opening has
    the log as it was, or empty."""
    moment = 0
    while True:
        moment += 1
        disk = SimDisk(Random(1))
        log = create(disk, "t-0", SMALL)
        disk.sync_directory("")
        for number in range(12):
            log.append_as_leader(batch(2, size=50, tag=b"%d:" % number), 0)
        if not interrupted(partial(log.truncate_fully, 50), moment, "log/truncation.py", "log/segments.py"):
            break
        try:
            log.truncate_fully(50)
            assert (log.start_offset, log.end_offset) == (50, 50)
        except ClosedError:
            assert log.failure is not None
        log.close(clean=False)
        log = reopen(disk, "t-0")
        assert log.start_offset in (0, 50), moment
        log.close(clean=True)
    assert moment > 20


def test_the_lowered_mark_comes_before_the_cut() -> None:
    """A truncation below the synced end lowers and syncs the mark first, then cuts."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = filled(Place(disk, "data"))
    sync(disk, log)
    disk.trace = []
    log.truncate_to(9)
    kinds = [line.split()[1:3] for line in disk.trace if line.split()[1] in {"write", "sync", "truncate", "remove"}]
    mark_synced = kinds.index(["sync", "data/t-0/replog.mark"])
    assert kinds[mark_synced - 1] == ["write", "data/t-0/replog.mark"]
    cuts = [
        index for index, (kind, path) in enumerate(kinds) if kind in {"truncate", "remove"} and path.endswith(".log")
    ]
    assert min(cuts) > mark_synced
    log.close(clean=True)


# -- refusals of the disk --


def test_a_full_disk_refuses_and_goes_on() -> None:
    """Wherever the disk is full, the append raises ENOSPC, leaves nothing behind, and works again when there is
    room."""
    for capacity in range(1200, 9000, 270):
        disk = SimDisk(Random(1), capacity=capacity)
        disk.make_directory("data")
        try:
            log = create(disk, "data/t-0", SMALL)
        except StorageError as error:
            assert error.errno == errno.ENOSPC
            continue
        appended = 0
        refused = 0
        for number in range(40):
            try:
                ones = [
                    (batch(2, size=50 + number % 30 + one, tag=b"%d" % number), True) for one in range(1 + number % 3)
                ]
                appended += len(log.append_many_as_leader(ones, 0))
            except StorageError as error:
                assert error.errno == errno.ENOSPC
                refused += 1
                if refused == 3:
                    disk.capacity = None
        assert log.failure is None
        assert log.end_offset == 2 * appended
        assert len(contents(log)) == 2 * appended
        before = raw(log)
        log.close(clean=False)
        log = reopen(disk, "data/t-0")
        assert raw(log) == before
        assert log.recovery.torn_size == 0
        log.close(clean=True)


def test_a_write_error_poisons() -> None:
    """After an I/O error nothing is appended any more, and what was written before is read as far as it was
    durable."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = create(disk, "data/t-0")
    log.append_as_leader(batch(2), 0)
    sync(disk, log)
    log.advance_high_watermark(2)
    log.append_as_leader(batch(2), 0)
    disk.fail("write", path="*.log", error=errno.EIO)
    with pytest.raises(StorageError):
        log.append_as_leader(batch(2), 0)
    disk.clear_faults()
    with pytest.raises(ClosedError, match="poisoned"):
        log.append_as_leader(batch(2), 0)
    assert log.failure is not None
    assert log.sync_plan() is None
    assert len(contents(log, 0, 4)) == 2
    log.close(clean=True)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("path", ["*.log", "*.index"])
def test_an_epoch_that_was_not_appended_is_not_in_the_history(path: str, code: int) -> None:
    """A fetch brings the rest of one epoch and the beginning of the next, and the disk refuses it, or the segment
    that it takes: the history ends where the log does. (Found by the simulation: the next fetch told the leader of
    an epoch that the log did not have, and got what could not follow it, again and again.)"""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = create(disk, "data/t-0", SMALL)
    log.append_as_follower([batch(2, size=400, leader_epoch=0)])
    fetched = [batch(2, size=400, base_offset=2, leader_epoch=0), batch(2, size=400, base_offset=4, leader_epoch=3)]
    disk.fail("write" if path == "*.log" else "create", path=path, error=code)
    with pytest.raises(StorageError):
        log.append_as_follower(fetched)
    assert log.end_offset == 2
    assert log.epochs.entries == [(0, 0)]
    disk.clear_faults()
    if code == errno.ENOSPC:
        assert log.append_as_follower(fetched[:1]) == 4
        log.become_leader(7)
        log.append_as_leader(batch(1), 7)
        expected = [(0, 0), (7, 4)]
    else:
        expected = [(0, 0)]
    log.close(clean=False)
    log = reopen(disk, "data/t-0")
    assert log.epochs.entries == expected


@pytest.mark.parametrize("size", [10, 400])
def test_a_full_disk_that_does_not_even_cut(size: int) -> None:
    """What a refused write left behind is gone before the next batch, or the next segment, is written: a file
    system that copies on write may have no room to shorten a file."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = create(disk, "data/t-0", SMALL)
    log.append_as_leader(batch(1, size=700), 0)
    disk.fail("write", path="*.log", error=errno.ENOSPC, partial=250)
    disk.fail("truncate", path="*.log", error=errno.ENOSPC)
    for _ in range(2):
        with pytest.raises(StorageError):
            log.append_as_leader(batch(1, size=200), 0)
        disk.fail("truncate", path="*.log", error=errno.ENOSPC)
    disk.clear_faults()
    log.append_as_leader(batch(1, size=size), 0)
    log.append_as_leader(batch(1, size=400), 0)
    log.advance_high_watermark(3)
    log.write_mark()
    log.close(clean=False)
    log = reopen(disk, "data/t-0")
    assert len(contents(log)) == log.high_watermark == 3
    log.close(clean=True)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EMFILE, errno.ENOMEM])
def test_deleting_needs_no_room_and_no_descriptor(code: int) -> None:
    """The leader epoch history cannot be written: what is deleted is so all the same, and for good."""
    disk = SimDisk(Random(1))
    log = create(disk, "t-0")
    disk.sync_directory("")
    for epoch in (1, 2):
        log.become_leader(epoch)
        log.append_as_leader(batch(2), epoch)
    sync(disk, log)
    log.advance_high_watermark(4)
    disk.fail(path="*leader-epoch-checkpoint*", times=None, error=code)
    assert log.delete_records(3) == 3
    disk.clear_faults()
    log = reopen(disk.crash(Random(2)), "t-0", same_boot=False)
    assert (log.start_offset, log.end_offset, log.epochs.entries) == (3, 4, [(2, 3)])


@pytest.mark.parametrize("times", [1, 2, 3])
def test_what_is_deleted_once_more_after_a_full_disk_stays_so(times: int) -> None:
    """The mark could not be written, and the deletion failed. Once more it succeeds: then it is durable, as
    always."""
    disk = SimDisk(Random(1))
    log = create(disk, "t-0")
    disk.sync_directory("")
    log.append_as_leader(batch(4), 0)
    sync(disk, log)
    log.advance_high_watermark(4)
    log.write_mark()
    disk.fail("write", path="*replog.mark", times=times, error=errno.ENOSPC)
    for _ in range(times):
        with contextlib.suppress(StorageError):
            log.delete_records(3)
    disk.clear_faults()
    assert log.delete_records(3) == 3
    assert reopen(disk.crash(Random(2)), "t-0", same_boot=False).start_offset == 3


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_history_that_could_not_be_written_is_at_the_close(durability: Durability) -> None:
    """Records were deleted while the disk was full, and the leader epoch history stayed as it was. A close in order
    leaves one that the mark vouches for: the next start need not scan, and an ``os`` log has everything after a
    reboot."""
    disk = SimDisk(Random(1))
    log = create(disk, "t-0", LogConfig(durability=durability))
    disk.sync_directory("")
    log.append_as_leader(batch(4), 0)
    sync(disk, log)
    log.advance_high_watermark(4)
    disk.fail(path="*leader-epoch-checkpoint*", error=errno.ENOSPC)
    assert log.delete_records(3) == 3
    disk.clear_faults()
    log.close(clean=True)
    log = reopen(disk, "t-0", clean=True, same_boot=False)
    assert log.recovery.clean
    assert not log.incomplete
    assert log.epochs.entries == [(0, 3)]
    log.close(clean=True)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_full_disk_while_epochs_are_cut(durability: Durability) -> None:
    """The history could not be written once the log was cut, and the cut is made again: no epoch that is gone comes
    back to contradict what is appended then."""
    disk = SimDisk(Random(1))
    log = create(disk, "t-0", LogConfig(segment_bytes=1024, durability=durability))
    disk.sync_directory("")
    log.append_as_leader(batch(4, size=90), 0)
    log.append_as_leader(batch(2), log.epochs.latest + 5)
    sync(disk, log)
    disk.fail(path="*leader-epoch-checkpoint*", error=errno.ENOSPC)
    with pytest.raises(StorageError):
        log.truncate_to(4)
    disk.clear_faults()
    log.truncate_to(4)
    assert log.epochs.entries == [(0, 0)]
    for base in (4, 8, 12):
        log.append_as_follower([batch(4, size=90, base_offset=base, leader_epoch=0)])
        sync(disk, log)
    assert len(log.segments()) > 1
    log.close(clean=False)
    log = reopen(disk, "t-0")
    assert (log.end_offset, log.epochs.entries) == (16, [(0, 0)])
    log.close(clean=True)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_what_could_not_be_cut_off_again_is_not_called_refused(code: int, count: int) -> None:
    """A write failed, and the cut of what it left behind too: a whole batch may be there at the next start, so
    nobody says that it is not. Less than a batch never comes back."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = create(disk, "data/t-0")
    log.append_as_leader(batch(2), 0)
    full = code == errno.ENOSPC
    disk.fail("write", path="*.log", error=code, partial=len(batch(2)) - full)
    disk.fail("truncate", path="*.log", error=code, times=99)
    with pytest.raises(StorageError if full and count == 1 else OutcomeUnknownError) as caught:
        log.append_many_as_leader([(bytearray(batch(2)), True) for _ in range(count)], 0)
    assert log.poisoned is not full
    assert code in (getattr(caught.value, "errno", None), getattr(caught.value.__cause__, "errno", None))
    log.close(clean=False)
    disk.clear_faults()
    log = reopen(disk, "data/t-0")
    assert log.end_offset == (2 if full else 4)
    log.close(clean=True)


def test_of_several_that_were_refused_none_comes_back() -> None:
    """An I/O error behind the first whole batch of several: the next start does not find what was refused."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = create(disk, "data/t-0")
    log.append_as_leader(batch(2), 0)
    disk.fail("write", path="*.log", error=errno.EIO, partial=len(batch(2)) + 10)
    with pytest.raises(StorageError):
        log.append_many_as_leader([(bytearray(batch(2)), True), (bytearray(batch(2)), True)], 0)
    assert log.poisoned
    log.close(clean=False)
    disk.clear_faults()
    log = reopen(disk, "data/t-0")
    assert log.end_offset == 2
    log.close(clean=True)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_sync_that_fails_at_the_close_is_told_to_the_next_start(durability: str) -> None:
    """The system takes for written what that sync lost: only what is written once more gets to the disk."""
    disk = SimDisk(Random(4))
    disk.make_directory("/data")
    log = create(disk, "/data/t-0", LogConfig(durability=durability))  # type: ignore[arg-type]
    disk.sync_directory("/")
    disk.sync_directory("/data")
    log.append_as_leader(batch(2), 0)
    disk.fail("sync", path="*.log")
    with pytest.raises(StorageError):
        log.close(clean=True)
    disk.clear_faults()
    log = reopen(disk, "/data/t-0", same_boot=True)
    assert log.recovery.poisoned
    log.close(clean=True)
    for seed in range(10):
        after = reopen(disk.crash(Random(seed)), "/data/t-0")
        assert len(contents(after, 0, 2)) == 2


def test_a_process_that_dies_before_it_notes_a_failed_sync() -> None:
    """What waited for a sync is written again by the next start on the same boot: the sync may have failed, and
    nobody could say so."""
    disk = SimDisk(Random(4))
    disk.make_directory("/data")
    log = create(disk, "/data/t-0", LogConfig(durability="sync"))
    disk.sync_directory("/")
    disk.sync_directory("/data")
    log.append_as_leader(batch(2), 0)
    plan = log.sync_plan()
    assert plan is not None
    disk.fail("sync", path="*.log")
    with pytest.raises(StorageError):
        plan.files[0].sync()
    disk.clear_faults()
    disk.kill()
    log = reopen(disk, "/data/t-0", same_boot=True)
    assert log.flushed_offset == 2
    for seed in range(10):
        after = reopen(disk.crash(Random(seed)), "/data/t-0", same_boot=False)
        assert len(contents(after, 0, 2)) == 2


@pytest.mark.parametrize("call", ["sync_mark", "set_incomplete"])
def test_a_mark_that_cannot_be_synced_poisons(call: str) -> None:
    """As any failed sync: the next one would only say that all is well."""
    disk = SimDisk(Random(4))
    disk.make_directory("data")
    log = create(disk, "data/t-0")
    log.append_as_leader(batch(2), 0)
    sync(disk, log)
    disk.fail("sync", path="*.mark")
    with pytest.raises(StorageError):
        log.sync_mark() if call == "sync_mark" else log.set_incomplete(True)
    assert log.failure is not None
    log.close(clean=False)


def test_a_failed_sync_poisons_for_good() -> None:
    """After a failed sync the log takes nothing, shows only what was durable before, and says so at the next start,
    which trusts no cache."""
    disk = SimDisk(Random(4))
    disk.make_directory("data")
    log = create(disk, "data/t-0", LogConfig(durability="os"))
    log.append_as_leader(batch(2), 0)
    sync(disk, log)
    log.append_as_leader(batch(2), 0)
    log.advance_high_watermark(4)
    log.write_mark()
    disk.fail("sync", path="*.log")
    with pytest.raises(StorageError):
        sync(disk, log)
    disk.clear_faults()
    assert log.high_watermark == 2
    with pytest.raises(ClosedError):
        log.append_as_leader(batch(1), 0)
    with pytest.raises(ClosedError):
        log.become_leader(3)
    assert [record.offset for record in contents(log, 0, 4)] == [0, 1]
    log.poison(OSError("again"))
    log.close(clean=True)
    log = reopen(disk, "data/t-0", same_boot=True)
    assert log.recovery.poisoned
    assert log.incomplete
    assert log.high_watermark <= 2
    log.close(clean=True)


def test_a_closed_log_refuses(place: Place) -> None:
    """Everything but closing again raises ClosedError."""
    log = filled(place)
    log.close(clean=True)
    log.close(clean=True)
    assert log.closed
    for call in (
        lambda: log.append_as_leader(batch(1), 0),
        lambda: log.append_as_follower([batch(1)]),
        lambda: log.read(0, 100, 40),
        lambda: log.find_timestamp(0, 40),
        lambda: log.truncate_to(3),
        lambda: log.truncate_fully(3),
        lambda: log.become_leader(9),
        lambda: log.increment_start_offset(1),
        lambda: log.set_incomplete(True),
        log.sync_mark,
    ):
        with pytest.raises(ClosedError):
            call()
    assert log.sync_plan() is None
    log.write_mark()
    log.synced(40, log.generation)
    log.poison(OSError())


def test_a_leader_epoch_never_falls(place: Place) -> None:
    """Leading in an older epoch than the log's is a bug."""
    log = filled(place)
    log.become_leader(5)
    with pytest.raises(InternalError):
        log.become_leader(4)
    with pytest.raises(InternalError):
        log.append_as_leader(batch(1), 4)
    assert log.epochs.entries == [(0, 0), (5, 40)]
    log.close(clean=True)


# -- settings --


def test_durability_stays(place: Place) -> None:
    """Opened without settings a log keeps its own; another durability is refused by both names; others are taken
    over and kept."""
    directory = place.of("t-0")
    create(place.disk, directory, LogConfig(durability="os", segment_bytes=2000)).close(clean=True)
    log = reopen(place.disk, directory, clean=True)
    assert log.config == LogConfig(durability="os", segment_bytes=2000)
    assert log.durability == "os"
    with pytest.raises(ConfigError, match=r"'os'.*'sync'"):
        log.update_config(LogConfig(durability="sync"))
    log.close(clean=True)
    with pytest.raises(ConfigError, match=r"'os'.*'sync'"):
        reopen(place.disk, directory, config=LogConfig(durability="sync"))
    reopen(place.disk, directory, config=LogConfig(durability="os", segment_bytes=3000)).close(clean=True)
    log = reopen(place.disk, directory)
    assert log.config.segment_bytes == 3000
    log.update_config(LogConfig(durability="os", segment_bytes=4000))
    log.close(clean=False)
    # Even without the file the mark knows.
    place.disk.remove(f"{directory}/replog.config")
    log = reopen(place.disk, directory)
    assert log.config == LogConfig(durability="os")
    log.close(clean=True)


def test_incomplete_is_durable_at_once() -> None:
    """Being incomplete is on stable storage when the call returns, and so is being complete again."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    disk.sync_directory("/")
    log = create(disk, "data/t-0", LogConfig(durability="sync"))
    for incomplete in (True, True, False, True):
        log.set_incomplete(incomplete)
        assert log.incomplete == incomplete
        disk.sync_directory("data")
        left = reopen(disk.crash(Random(3)), "data/t-0", same_boot=False)
        assert left.incomplete == incomplete
    log.close(clean=True)


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_reported_lasts_as_long_as_nothing_is_lost(durability: str) -> None:
    """That the controller has heard of an incomplete copy survives what the copy survives: the end of a process,
    and power loss under ``sync``. After a loss the controller has to hear of it anew, and of a complete copy there
    is nothing to hear."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    disk.sync_directory("/")
    log = create(disk, "data/t-0", LogConfig(durability=durability))  # type: ignore[arg-type]
    disk.sync_directory("data")
    log.set_reported()
    assert not log.reported, "it lacks nothing"
    log.set_incomplete(True)
    assert not log.reported
    log.set_reported()
    assert log.reported
    log.close(clean=False)
    log = reopen(disk, "data/t-0", same_boot=True)
    assert log.incomplete
    assert log.reported
    log.append_as_leader(batch(2), 0)
    log.close(clean=False)
    for chance in range(20):
        left = reopen(disk.crash(Random(chance)), "data/t-0", same_boot=False)
        assert left.incomplete
        assert left.reported == (durability == "sync")
    log = reopen(disk, "data/t-0", same_boot=True)
    log.poison(OSError(5, "the sync failed"))
    log.close(clean=False)
    log = reopen(disk, "data/t-0", same_boot=True)
    assert log.reported == (durability == "sync")
    log.set_reported()
    log.set_incomplete(True)
    assert not log.reported, "it lost something again"
    log.set_incomplete(False)
    log.set_incomplete(True)
    assert not log.reported
    log.close(clean=True)


def test_batches_of_a_slice_are_shared_not_copied(place: Place) -> None:
    """Near the end a reader gets the very memory that was appended."""
    log = create(place.disk, place.of("t-0"))
    sent = batch(2)
    log.append_as_leader(sent, 0, trusted=True)
    (part,) = log.read(0, 1000, 2).parts()
    assert RecordBatch(part).base_offset == 0
    sent[-1] ^= 1
    assert part[-1] == sent[-1]
    log.close(clean=True)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("follows", [False, True])
def test_a_lack_of_means_refuses_one_append_or_read(code: int, follows: bool) -> None:
    """Whichever file no descriptor or memory is left for: an append that must roll appends nothing, a read is
    refused, and the next ones succeed. A sync that fails poisons all the same; one that found no descriptor did not
    begin, and ends the log where it is, without a word of what the disk may have lost."""

    def append(log: Log, tag: bytes) -> None:
        if follows:
            log.append_as_follower([bytes(batch(1, size=500, base_offset=log.end_offset, leader_epoch=1, tag=tag))])
        else:
            log.append_as_leader(batch(1, size=500, tag=tag), 1)

    for kind in ("create", "open", "write", "read", "sync", "sync_directory"):
        for nth in range(1, 100):
            disk = SimDisk(Random(nth))
            log = create(disk, "t-0", LogConfig(durability="os", segment_bytes=1200, index_interval_bytes=100))
            for number in range(4):
                append(log, b"%d" % number)
            log.advance_high_watermark(3)
            log.write_mark()
            log.set_tail_cache_size(0)
            log._segments.close()
            fault = disk.fail(kind, "t-0*", nth=nth, error=code)
            refused = None
            try:
                for number in range(4, 6):
                    append(log, b"%d" % number)
                contents(log)
            except StorageError as error:
                refused = error.errno
            disk.clear_faults()
            if not fault.hits:
                assert nth > 1, kind
                break
            assert refused in (code, None), (kind, nth)
            if kind in ("sync", "sync_directory"):
                assert log.failure is not None
                assert log.poisoned == (code == errno.ENOMEM)
                continue
            assert log.failure is None, (kind, nth)
            while log.end_offset < 6:
                append(log, b"%d" % log.end_offset)
            assert [bytes(record.value or b"")[:1] for record in contents(log)] == [
                b"%d" % number for number in range(6)
            ]
            log.close(clean=True)
        else:
            raise AssertionError("there is an end to the calls")


def test_what_lies_before_a_flipped_leader_epoch_is_read(place: Place) -> None:
    """The epoch is outside the checksum. A batch that has another than the history says is damage: what lies before
    it is given, then it is raised with its offsets. The batches behind it confirm each other's offsets, and are
    read."""
    log = create(place.disk, place.of("t-0"))
    log.set_tail_cache_size(0)
    for number in range(10):
        log.append_as_leader(batch(2, tag=b"%d" % number), 0)
    path = "t-0/00000000000000000000.log"
    content = place.read(path)
    at = sum(one.size for one in list(split(content))[:6])
    file = place.disk.open(place.of(path), write=True)
    file.write_at(at + 12, [bytes([content[at + 12] ^ 1])])
    file.close()
    found = log.read(0, 1 << 20, log.end_offset)
    assert [one.base_offset for one in split(b"".join(found.parts()))] == [0, 2, 4, 6, 8, 10]
    with pytest.raises(CorruptLogError) as caught:
        log.read(12, 1 << 20, log.end_offset)
    assert (caught.value.start, caught.value.end) == (12, 14)
    found = log.read(14, 1 << 20, log.end_offset)
    assert [one.base_offset for one in split(b"".join(found.parts()))] == [14, 16, 18]
    log.close(clean=False)
