"""Gaps that a follower of a compacted topic takes from its leader: written down, exact, and cut with the log."""

from __future__ import annotations

import errno
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, CorruptLogError, StorageError, UnexpectedAppendOffsetError
from pyreplog.log import Log
from pyreplog.log.gaps import Gaps, format_gaps, parse_gaps
from pyreplog.ports import Disk
from pyreplog.testing.disk import SimDisk
from tests.unit.log.conftest import Place
from tests.unit.log.support import batch, contents, create, reopen, sync
from tests.unit.log.test_compaction import findings, run

SETTINGS: Final[dict[str, Any]] = {
    "cleanup_policy": "compact",
    "segment_bytes": 1024,
    "index_interval_bytes": 100,
    "delete_retention_ms": 0,
}


def make(disk: Disk, path: str, **settings: Any) -> Log:
    """A replica's log of a compacted topic."""
    log = create(disk, path, LogConfig(**{**SETTINGS, **settings}))
    log.tombstone_bound = 0
    return log


def at(base: int, count: int = 1, *, size: int = 20, epoch: int = 0) -> memoryview:
    """A batch as a leader has it."""
    return batch(count, base_offset=base, leader_epoch=epoch, size=size, timestamp=1000 + base, tag=b"%d:" % base)


def take(log: Log, *bases: int, dropped: int = -1, size: int = 20) -> None:
    """Append one fetch answer with batches of one record, synced and committed."""
    log.append_as_follower([b"".join(at(base, size=size) for base in bases)], at_end=True, dropped_tombstone=dropped)
    sync(log.disk, log)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()


def offsets(log: Log) -> list[int]:
    """The offsets of all records, each read from the disk, and by a look-up of its own."""
    log.set_tail_cache_size(0)
    found = [record.offset for record in contents(log)]
    for one in found:
        assert contents(log, one)[0].offset == one
        assert log.find_timestamp(1000 + one, log.end_offset) == (one, 1000 + one)
    return found


def gaps_of(log: Log) -> list[int]:
    """The bounds of all recorded gaps, of all segments."""
    return [bound for segment in log._segments for bound in segment.gaps.bounds]


def test_gaps_are_noted_and_exact(place: Place) -> None:
    """Before the first batch, between batches and answers, over rolls; reopened, and verified."""
    log = make(place.disk, place.of("t-0"))
    expected: list[int] = []
    draw, end = Random(3), 0
    for _ in range(40):
        bases = []
        for _ in range(draw.randrange(1, 5)):
            end += draw.choice((0, 0, 1, 7))
            bases.append(end)
            end += 1
        take(log, *bases)
        expected += bases
    assert len(log.segments()) > 3
    assert not log.mark.may_have_gaps
    assert log.mark.compacted
    for kind in (None, False, True):
        if kind is not None:
            log.close(clean=kind)
            log = reopen(place.disk, place.of("t-0"), clean=kind)
        assert offsets(log) == expected
        assert findings(place.disk, place.of("t-0")) == []
    # A read from an offset inside a gap gives the next record.
    for offset in range(log.end_offset):
        assert contents(log, offset)[0].offset == next(one for one in expected if one >= offset)
    missing = set(range(log.end_offset)) - set(expected)
    bounds = gaps_of(log)
    assert {one for start, stop in zip(bounds[::2], bounds[1::2], strict=True) for one in range(start, stop)} == missing
    log.close(clean=False)


def test_only_a_compacted_topic_takes_gaps(place: Place) -> None:
    """Elsewhere a gap is damage, before the first batch and between, and nothing of the answer is taken."""
    log = make(place.disk, place.of("t-0"), cleanup_policy="delete")
    take(log, 0, 1)
    wanted: list[tuple[tuple[int, ...], int, int]] = [((3,), 3, 2), ((2, 4, 5), 4, 3)]
    for bases, first, missing in wanted:
        with pytest.raises(UnexpectedAppendOffsetError, match="begins elsewhere") as caught:
            take(log, *bases)
        assert (caught.value.first_offset, caught.value.end_offset) == (first, missing)
        assert (log.end_offset, log.mark.compacted, log.mark.may_have_gaps) == (2, False, False)
    log.update_config(LogConfig(**{**SETTINGS, "cleanup_policy": "delete"}, was_compacted=True))
    take(log, 3, 9)
    assert offsets(log) == [0, 1, 3, 9]
    log.close(clean=True)


def test_a_file_grows_by_what_an_answer_adds(place: Place) -> None:
    """No answer rewrites what earlier ones wrote; and answers without gaps write nothing."""
    log = make(place.disk, place.of("t-0"), segment_bytes=1 << 20)
    sizes = []
    for number in range(20):
        take(log, number * 4, number * 4 + 2)
        sizes.append(len(place.read("t-0/00000000000000000000.gaps")))
    block = len(format_gaps(0, Gaps((0, 1, 2, 3))))
    assert sizes == [sizes[0] + block * number for number in range(20)]
    assert sizes[0] == len(format_gaps(0, Gaps((1, 2))))
    take(log, 79, 80)
    assert len(place.read("t-0/00000000000000000000.gaps")) == sizes[-1]
    log.close(clean=True)


@pytest.mark.parametrize("offset", range(26))
def test_truncation_cuts_the_gaps(place: Place, offset: int) -> None:
    """At any offset, also inside a gap: the log ends behind its last batch below, other batches follow, and a
    batch that is missing among them is found."""
    log = make(place.disk, place.of("t-0"), segment_bytes=1024)
    bases = [2, 3, 7, 12, 13, 20, 25]
    for base in bases:
        take(log, base, size=200)
    log.truncate_to(offset)
    kept = [base for base in bases if base < offset]
    end = log.end_offset
    assert offsets(log) == kept
    assert all(bound <= end for bound in gaps_of(log))
    log.append_as_follower([at(end, 30, size=1)], at_end=True)
    assert [one.offset for one in contents(log)] == [*kept, *range(end, end + 30)]
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert [one.offset for one in contents(log)] == [*kept, *range(end, end + 30)]
    assert findings(place.disk, place.of("t-0")) == []
    log.close(clean=True)


def test_a_lost_batch_is_no_gap(place: Place) -> None:
    """A batch that vanishes from the middle of a follower's segment is damage, although other gaps are recorded."""
    log = make(place.disk, place.of("t-0"))
    take(log, 0, 3, 5, 6, 9)
    log.close(clean=False)
    name = "t-0/00000000000000000000.log"
    data, size = place.read(name), len(at(0))
    place.write(name, data[: 2 * size] + data[3 * size :])
    assert findings(place.disk, place.of("t-0"))
    with pytest.raises(CorruptLogError, match="expected 5"):
        reopen(place.disk, place.of("t-0"))


def test_a_torn_block_cuts_the_log_before_its_batches() -> None:
    """Power loss keeps batches, and not the gaps before them: what was not durable is cut, the rest stays."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = make(disk, "data/t-0", durability="os")
    take(log, 0, 2)
    log.append_as_follower([b"".join((at(5), at(6)))], at_end=True)
    log.append_as_follower([b"".join((at(9), at(11)))], at_end=True)
    log.close(clean=False)
    path = "data/t-0/00000000000000000000.gaps"
    file = disk.open(path, write=True)
    file.truncate(file.size() - 3)
    file.close()
    log = reopen(disk, "data/t-0", same_boot=False)
    assert [one.offset for one in contents(log)] == [0, 2, 5, 6]
    take(log, 7, 8, 12)
    log.close(clean=False)
    log = reopen(disk, "data/t-0")
    assert [one.offset for one in contents(log)] == [0, 2, 5, 6, 7, 8, 12]
    assert findings(disk, "data/t-0") == []
    log.close(clean=True)


def test_a_far_batch_begins_a_segment_behind_its_gap(place: Place) -> None:
    """A gap too long for the indexes of a segment ends the segment; an empty one whose offsets are a gap stays."""
    log = make(place.disk, place.of("t-0"))
    far = 5 << 32
    take(log, 0)
    take(log, far)
    log.truncate_to(far)
    take(log, 3 * far)
    take(log, 3 * far + 1)
    assert offsets(log) == [0, 3 * far, 3 * far + 1]
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert offsets(log) == [0, 3 * far, 3 * far + 1]
    assert findings(place.disk, place.of("t-0")) == []
    log.close(clean=True)


def test_the_start_of_the_log_in_a_gap(place: Place) -> None:
    """DeleteRecords to an offset in a gap; a log that restarts at its leader's start; retention of old segments."""
    log = make(place.disk, place.of("t-0"), segment_bytes=1024, file_delete_delay_ms=0)
    for base in range(5, 200, 5):
        take(log, base, size=100)
    log.delete_records(18)
    assert offsets(log)[0] == 20
    assert contents(log, 18)[0].offset == 20
    log.delete_records(101)
    assert log.apply_retention() > 0
    assert offsets(log)[0] == 105
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert offsets(log) == list(range(105, 200, 5))
    log.truncate_fully(57)
    take(log, 60, 70)
    assert (log.start_offset, offsets(log)) == (57, [60, 70])
    assert findings(place.disk, place.of("t-0")) == []
    log.close(clean=True)


def test_a_followers_log_is_compacted_like_a_leaders(place: Place) -> None:
    """Over gaps of its own: a pass joins its segments, and the next answers follow."""
    log = make(place.disk, place.of("t-0"), segment_bytes=1024)
    bases = [base for base in range(100) if base % 7]
    for base in bases:
        log.append_as_follower([at(base, size=100)], at_end=True)
    sync(place.disk, log)
    log.advance_high_watermark(log.end_offset)
    done = run(log)
    assert done.records_kept <= done.records_read == len(bases)
    before = [one.offset for one in contents(log)]
    assert set(before) <= set(bases)
    take(log, 103, 110)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert [one.offset for one in contents(log)] == [*before, 103, 110]
    assert findings(place.disk, place.of("t-0")) == []
    log.close(clean=True)


def test_a_follower_keeps_what_its_leader_dropped(place: Place) -> None:
    """Its readers learn of a dropped tombstone, also of one that left no gap; never of one above its own end."""
    log = make(place.disk, place.of("t-0"))
    take(log, 0, 1, dropped=-1)
    assert log.dropped_tombstone == -1
    take(log, 2, 3, dropped=500)
    assert log.dropped_tombstone == 3
    take(log, 4, 9, dropped=7)
    assert log.dropped_tombstone == 7
    take(log, 10, 11, dropped=7)
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert log.dropped_tombstone == 7
    log.truncate_to(3)
    assert log.dropped_tombstone == 2
    log.close(clean=True)


@pytest.mark.parametrize("kind", ["write", "create", "sync", "rename"])
@pytest.mark.parametrize("path", ["*.gaps*", "*.log"])
def test_a_full_disk_leaves_no_gap_of_what_it_refused(kind: str, path: str) -> None:
    """An answer that the disk refuses at some call: its gaps are forgotten, and other batches take its place."""
    disk = SimDisk(Random(1))
    disk.make_directory("data")
    log = make(disk, "data/t-0", durability="os")
    if path == "*.log":
        take(log, 0, 2)
    else:
        take(log, 0, 1, 2)
    disk.fail(kind, path, error=errno.ENOSPC)
    try:
        log.append_as_follower([b"".join((at(5), at(9)))], at_end=True)
    except StorageError:
        if log.failure is not None:
            log.close(clean=False)
            log = reopen(disk, "data/t-0")
    before = [record.offset for record in contents(log, 0, 3)]
    if log.end_offset == 3:
        log.append_as_follower([b"".join((at(3), at(4), at(7)))], at_end=True)
        log.close(clean=False)
        log = reopen(disk, "data/t-0")
        assert [one.offset for one in contents(log)] == [*before, 3, 4, 7]
        assert gaps_of(log) == [*([1, 2] if len(before) == 2 else []), 5, 7]
    else:
        assert [one.offset for one in contents(log)] == [*before, 5, 9]
    log.close(clean=False)


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=4), min_size=1, max_size=6))
def test_blocks_are_read_as_one(blocks: list[list[tuple[int, int]]]) -> None:
    """The gaps of all blocks count, and touching ones are one; a torn last block counts for nothing."""
    content, whole, position = b"", Gaps(), 10
    for block in blocks:
        bounds = []
        for distance, length in block:
            bounds += [position + distance, position + distance + length]
            position += distance + length
        before = bytes(content)
        content += format_gaps(10, Gaps(bounds))
        torn = parse_gaps(content[:-1], 10) if before else None
        assert torn is None or (torn == whole and torn.file_size == len(before))
        whole.add(bounds, -1)
        assert parse_gaps(content, 10) == whole
    with pytest.raises(CorruptError):
        parse_gaps(content, 11)
