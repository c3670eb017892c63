"""Edge cases 54 to 65: one segment, and its life in a log."""

from __future__ import annotations

from random import Random

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import CorruptLogError
from pyreplog.log import EpochCache
from pyreplog.log.layout import (
    GAPS_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_name,
)
from pyreplog.log.transaction_index import format_aborted
from pyreplog.record import RecordBatch
from tests.interop.edges.support import INT32_MAX, filled, one_segment, segments
from tests.unit.log.conftest import Place
from tests.unit.log.producing import Play
from tests.unit.log.support import batch, contents, create, raw, reopen, sync


def test_e054_reads_of_a_segment(place: Place) -> None:
    """Nothing in an empty one; before the first offset the first batch; behind the last none; in a gap the next
    batch."""
    empty = one_segment(place, 0, [])
    assert empty.locate(0, 1 << 20, 100) is None
    segment = one_segment(place, 40, [50, 60, 62])
    for offset, expected in ((40, 50), (50, 50), (51, 50), (52, 60), (59, 60), (61, 60), (62, 62)):
        found = segment.locate(offset, 1, 1 << 40)
        assert found is not None
        assert RecordBatch(found[1]).base_offset == expected
    assert segment.locate(64, 1 << 20, 1 << 40) is None


def test_e055_no_room_to_read(place: Place) -> None:
    """An end at or below the offset reads nothing, and is no error."""
    log = filled(place)
    for offset, end in ((0, 0), (10, 10), (10, 4), (80, 80), (80, 0)):
        assert log.read(offset, 1 << 20, end).size == 0
    log.close(clean=True)


def test_e056_truncation_inside_a_gap(place: Place) -> None:
    """An offset in a gap cuts what lies behind the gap."""
    segment = one_segment(place, 40, [50, 60, 62])
    segment.truncate(55, 0)
    assert (segment.next_offset, segment.locate(52, 1 << 20, 1 << 40)) == (52, None)


def test_e057_an_emptied_segment_is_new(place: Place) -> None:
    """A segment that was cut to nothing counts its age from then."""
    segment = one_segment(place, 40, [50])
    segment.truncate(40, 7777)
    assert (segment.created_ms, segment.size, segment.first_timestamp) == (7777, 0, -1)


def test_e058_truncation_to_nothing_and_on(place: Place) -> None:
    """Cut to nothing, the same offsets are appended again, and read, also after a restart."""
    log = filled(place, 3)
    log.truncate_to(0)
    assert log.end_offset == 0
    for number in range(3):
        log.append_as_leader(batch(2, tag=b"again", timestamp=1000 * number), 0)
    expected = [one.value for one in contents(log)]
    assert expected[0] is not None
    assert expected[0].startswith(b"again")
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert [one.value for one in contents(log)] == expected
    log.close(clean=True)


def test_e059_an_empty_segment_ends_where_it_begins(place: Place) -> None:
    """Its next offset is its base; so is that of a new log, also after a restart."""
    assert one_segment(place, 345, []).end_offset() == 345
    log = create(place.disk, place.of("t-0"), start_offset=345)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert (log.start_offset, log.end_offset) == (345, 345)
    log.close(clean=True)


def test_e060_all_files_of_a_segment_go(place: Place) -> None:
    """A removed segment takes its log, both indexes, transaction index and snapshot along: renamed at once, and
    gone after the delay."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    play = Play(log)
    while len(segments(log)) < 4:
        play.data(1, 4)
        play.end(1, commit=False)
    log.set_high_watermark(log.end_offset)
    second = segments(log)[1].base_offset
    names = {segment_name(second, suffix) for suffix in SEGMENT_SUFFIXES if suffix != GAPS_SUFFIX}  # not compacted
    assert names <= set(place.disk.list(place.of("t-0")))
    log.increment_start_offset(segments(log)[2].base_offset)
    assert log.apply_retention(confirmed=True) == 2
    left = set(place.disk.list(place.of("t-0")))
    assert not names & left
    assert {f"{name}.deleted" for name in names} <= left
    log.close(clean=True)
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert not [name for name in place.disk.list(place.of("t-0")) if name.endswith(".deleted")]
    log.close(clean=True)


@pytest.mark.parametrize("clean", [True, False])
def test_e061_damage_anywhere(place: Place, clean: bool) -> None:
    """A wrong offset index or time index is made anew, and every answer stays. A wrong batch above the durable mark
    ends the log: what lies before is there. Below the mark nothing is cut, unlike in Kafka: the batch is named, and
    the file stays as it is."""
    log = filled(place, 60, segment_bytes=2048)
    log.set_high_watermark(120)
    whole = raw(log)
    times = [log.find_timestamp(1000 * number + 500, 120) for number in range(60)]
    bases = [segment.base_offset for segment in segments(log)]
    assert len(bases) > 3
    log.close(clean=True)
    random = Random(61)
    for base in bases:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            name = f"t-0/{segment_name(base, suffix)}"
            content = bytearray(place.read(name))
            for at in random.sample(range(len(content)), min(len(content), 9)):
                content[at] ^= random.randrange(1, 256)
            place.write(name, bytes(content))
    log = reopen(place.disk, place.of("t-0"), clean=clean)
    log.set_tail_cache_size(0)
    assert raw(log) == whole
    assert [log.find_timestamp(1000 * number + 500, 120) for number in range(60)] == times
    for offset in range(120):
        assert contents(log, offset)[0].offset == offset
    log.close(clean=True)
    # A batch below the mark: it is said which, and no byte goes.
    size = batch(2).nbytes
    name = f"t-0/{segment_name(bases[-1], '.log')}"
    good = place.read(name)
    for number in range(len(good) // size):
        rotten = bytearray(good)
        rotten[number * size + random.randrange(21, size)] ^= 1 << random.randrange(8)
        place.write(name, bytes(rotten))
        with pytest.raises(CorruptLogError) as caught:
            reopen(place.disk, place.of("t-0"), same_boot=False)
        assert (caught.value.start, caught.value.end) == (bases[-1] + 2 * number, bases[-1] + 2 * number + 2)
        assert place.read(name) == bytes(rotten)
    # And above it.
    place.write(name, good)
    log = reopen(place.disk, place.of("t-0"))
    end = log.end_offset
    for _ in range(4):
        log.append_as_leader(batch(2, timestamp=10**6), 0)
    name = f"t-0/{segment_name(segments(log)[-1].base_offset, '.log')}"
    log.close(clean=False)
    torn = bytearray(place.read(name))
    torn[-2 * size + 30] ^= 4
    place.write(name, bytes(torn))
    log = reopen(place.disk, place.of("t-0"), same_boot=False)
    assert log.end_offset == end + 4
    assert raw(log)[: len(whole)] == whole
    assert log.recovery.torn_size == 2 * size
    log.close(clean=True)


def test_e062_recovery_knows_transactions_and_epochs(place: Place) -> None:
    """After an unclean end, with the files gone that know them, the aborted transactions of every segment and the
    history of leader epochs, 0 included, are had again from the batches."""
    log = create(place.disk, place.of("t-0"), LogConfig(segment_bytes=1024))
    play = Play(log)
    for _ in range(12):
        play.data(1, 3)
        play.data(2)
        play.end(1, commit=False)
        play.other()
    play.end(2, commit=False)
    log.set_high_watermark(log.end_offset)
    starts = [(0, 0)]
    for epoch in (1, 5):
        starts.append((epoch, log.end_offset))
        for _ in range(6):
            log.append_as_follower([batch(2, base_offset=log.end_offset, leader_epoch=epoch)])
    expected = {segment.base_offset: format_aborted(segment.transactions.entries) for segment in segments(log)}
    assert len([content for content in expected.values() if content]) > 3
    listed = log.aborted_transactions(0, log.high_watermark)
    assert [tuple(entry) for entry in log.epochs.entries] == starts
    end = log.end_offset
    log.close(clean=False)
    for name in place.disk.list(place.of("t-0")):
        if name.endswith((TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)) or name in (
            "leader-epoch-checkpoint",
            "replog.mark",
        ):
            place.disk.remove(place.of(f"t-0/{name}"))
    log = reopen(place.disk, place.of("t-0"))
    assert log.end_offset == end
    assert {segment.base_offset: format_aborted(segment.transactions.entries) for segment in segments(log)} == expected
    log.set_high_watermark(end)
    assert log.aborted_transactions(0, log.last_stable_offset) == listed
    assert [tuple(entry) for entry in log.epochs.entries] == starts
    assert EpochCache.parse(place.read("t-0/leader-epoch-checkpoint")).entries == log.epochs.entries
    log.close(clean=True)


def test_e063_the_greatest_timestamp_after_a_cut(place: Place) -> None:
    """After a truncation a segment's greatest timestamp is that of what is left."""
    segment = one_segment(place, 0, [0])
    for start, timestamp in ((2, 900), (4, 100)):
        data = batch(2, base_offset=start, leader_epoch=0, timestamp=timestamp)
        segment.write((data,), data.nbytes)
        segment.note(data.nbytes, start + 1, timestamp + 1)
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (901, 3)
    segment.truncate(4, 0)
    assert segment.max_timestamp == 901
    segment.truncate(2, 0)
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (1, 1)


def test_e064_batches_too_far_apart_for_one_segment(place: Place) -> None:
    """Fetched batches that no segment could hold together are put into two, or refused as a whole; the log opens
    again."""
    log = create(place.disk, place.of("t-0"))
    far = INT32_MAX + 10
    log.append_as_follower([batch(2, base_offset=0, leader_epoch=0), batch(2, base_offset=far, leader_epoch=0)])
    assert log.end_offset == far + 2
    assert [one.offset for one in contents(log)] == [0, 1, far, far + 1]
    sync(place.disk, log)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert [one.offset for one in contents(log)] == [0, 1, far, far + 1]
    log.close(clean=True)


@pytest.mark.parametrize("leads", [True, False])
def test_e064_to_the_last_offset_of_a_segment(place: Place, leads: bool) -> None:
    """A segment holds offsets up to its base + 2**31 - 1, and not one more: what would reach further begins the
    next."""
    for last, expected in ((INT32_MAX - 1, 1), (INT32_MAX, 1), (INT32_MAX + 1, 2), (INT32_MAX + 2, 2)):
        log = create(place.disk, place.of(f"{last}-0"))
        log.append_as_follower(
            [batch(2, base_offset=0, leader_epoch=0), batch(1, base_offset=last - 2, leader_epoch=0)]
        )
        if leads:
            assert log.append_as_leader(batch(2), 0).last_offset == last
        else:
            log.append_as_follower([batch(2, base_offset=last - 1, leader_epoch=0)])
        assert len(segments(log)) == expected
        assert all(one.next_offset - one.base_offset <= 2**31 for one in segments(log))
        assert [one.offset for one in contents(log)] == [0, 1, last - 2, last - 1, last]
        sync(place.disk, log)
        log.close(clean=False)
        log = reopen(place.disk, place.of(f"{last}-0"))
        assert [one.offset for one in contents(log)] == [0, 1, last - 2, last - 1, last]
        log.close(clean=True)


def test_e065_removing_what_is_gone(place: Place) -> None:
    """A segment whose files somebody removed, some or all of them, is removed without an error: by retention, and
    when all is dropped."""
    log = filled(place, retention_bytes=0)
    for number, segment in enumerate(segments(log)[:-1]):
        segment.release()
        for suffix in ((INDEX_SUFFIX,), (TIME_INDEX_SUFFIX, LOG_SUFFIX), (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX))[
            number % 3
        ]:
            place.disk.remove(place.of(f"t-0/{segment_name(segment.base_offset, suffix)}"))
    log.set_high_watermark(segments(log)[3].base_offset)
    log.increment_start_offset(log.high_watermark)
    assert log.apply_retention(confirmed=True) == 3
    assert log.start_offset == log.segments()[0][0]
    log.truncate_fully(500)
    assert (log.start_offset, log.end_offset) == (500, 500)
    assert log.append_as_leader(batch(1), 0).base_offset == 500
    log.close(clean=True)
