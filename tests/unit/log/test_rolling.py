"""When a log begins a new segment."""

from __future__ import annotations

import pytest

from pyreplog.config import LogConfig
from tests.unit.log.conftest import Place
from tests.unit.log.support import (
    StillClock,
    bases,
    batch,
    contents,
    create,
    filled,
)


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
