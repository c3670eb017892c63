"""Reads of a log, by offset and by time, beside appends, truncations and damage."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import (
    CorruptLogError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
)
from pyreplog.log.segment_reader import SegmentReader
from pyreplog.record import RecordBatch, split
from tests.unit.log.conftest import Place, damage_second_batch
from tests.unit.log.support import (
    SMALL,
    bases,
    batch,
    contents,
    create,
    filled,
    raw,
    reopen,
    sync,
)


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
    find = SegmentReader.find_timestamp

    def noted(segment: SegmentReader, *arguments: Any) -> tuple[int, int] | None:
        looked_into.append(segment.base_offset)
        return find(segment, *arguments)

    monkeypatch.setattr(SegmentReader, "find_timestamp", noted)
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
