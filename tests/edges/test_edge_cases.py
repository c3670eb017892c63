"""Edge cases 92 to 104 about truncation, loading and recovery. The others are in the files beside this one, by what they are about.

The edge cases that Kafka's own tests check have numbers, and each has its test here: ``pytest tests/edges -k e064`` runs one. The
numbers are those of the list that this project was written to: varints and records 1-9, batches 10-23, files 24-34, indexes 35-53,
segments 54-65, appending and rolling 66-83, reading 84-90, truncation and recovery 91-104, retention, epochs and checkpoints 105-116.
110 and 111 are about compaction, which is not here. ``tests/house/test_edges.py`` counts them. Where something holds that is not
Kafka's behaviour, the test's text says so, and docs/internals/durability.md why.
"""

from __future__ import annotations

import errno

import pytest

from pyreplog.config import LogConfig
from pyreplog.log import open_readers
from pyreplog.log.layout import INDEX_SUFFIX, SEGMENT_SUFFIXES, TIME_INDEX_SUFFIX, segment_name
from pyreplog.testing.disk import SimDisk
from tests.edges.support import filled, segments
from tests.log.conftest import Place
from tests.log.support import batch, contents, create, reopen, sync
from tests.log.test_producers import produced


def test_e092_truncation_below_the_first_segment(place: Place) -> None:
    """It empties the log, which then begins at that very offset."""
    log = create(place.disk, place.of("t-0"), start_offset=100)
    log.append_as_leader(batch(3), 0)
    log.truncate_to(50)
    assert (log.start_offset, log.end_offset, log.high_watermark) == (50, 50, 50)
    assert log.append_as_leader(batch(3), 0).base_offset == 50
    log.close(clean=True)


def test_e093_an_index_goes_on_after_a_cut(place: Place) -> None:
    """A segment that was closed and is written again after a truncation has room for entries, and gets them."""
    log = filled(place)
    log.truncate_to(7)
    segment = segments(log)[-1]
    before = segment.indexes.offsets.count
    assert segment.entries_left > 1000
    for _ in range(3):
        log.append_as_leader(batch(2), 0)
    assert segment.indexes.offsets.count == before + 3
    log.close(clean=True)


def test_e095_only_what_may_be_lost_is_scanned(place: Place) -> None:
    """After a kill, segments below the one that holds the durable mark are not read."""
    log = filled(place)
    sync(place.disk, log)
    total = log.stats().size
    last = segments(log)[-1].size
    log.close(clean=False)
    log = reopen(place.disk, place.of("t-0"))
    assert 0 < log.recovery.scanned_size <= last
    log.close(clean=False)
    for name in place.disk.list(place.of("t-0")):
        if name == "replog.mark":
            place.disk.remove(place.of(f"t-0/{name}"))
    log = reopen(place.disk, place.of("t-0"))
    assert log.recovery.scanned_size >= total
    log.close(clean=True)


@pytest.mark.parametrize("clean", [True, False])
def test_e097_orphans_and_missing_indexes(place: Place, clean: bool) -> None:
    """An index whose log is not there is removed; one that is missing is made anew."""
    log = filled(place)
    bases = [segment.base_offset for segment in segments(log)]
    log.close(clean=clean)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ".txnindex"):
        place.write(f"t-0/{segment_name(77777, suffix)}", b"")
    for base in bases:
        place.disk.remove(place.of(f"t-0/{segment_name(base, INDEX_SUFFIX)}"))
    log = reopen(place.disk, place.of("t-0"), clean=clean)
    assert not [name for name in place.disk.list(place.of("t-0")) if "77777" in name]
    log.keep_tail(0)
    for offset in range(80):
        assert contents(log, offset, log.end_offset)[0].offset == offset
    log.close(clean=True)


@pytest.mark.parametrize("place", ["sim"], indirect=True)
def test_e101_a_snapshot_that_cannot_be_written(place: Place) -> None:
    """Where a producer snapshot or its sync is refused, nothing else is: the log goes on, closes, and knows its producers afterwards."""
    assert isinstance(place.disk, SimDisk)
    for kind in ("create", "write", "sync", "rename"):
        directory = place.of(f"{kind}-0")
        log = create(place.disk, directory, LogConfig(segment_bytes=1024))
        fault = place.disk.fail(kind, "*.snapshot*", error=errno.EIO, times=None)
        for number in range(30):
            log.append_as_leader(produced(number, 2) if number == 0 else produced(2 * number, 2), 0)
        sync(place.disk, log)
        log.close(clean=True)
        assert fault.hits > 2
        place.disk.clear_faults()
        log = reopen(place.disk, directory, clean=True)
        assert (log.end_offset, log.flushed_offset) == (60, 60)
        assert log.append_as_leader(produced(58, 2), 0).duplicate
        log.close(clean=True)


def test_e104_a_folder_without_segments(place: Place) -> None:
    """A new partition whose segment files are gone opens as the empty log that it was; readers see nothing in it."""
    log = create(place.disk, place.of("t-0"))
    log.close(clean=True)
    for suffix in SEGMENT_SUFFIXES:
        path = place.of(f"t-0/{segment_name(0, suffix)}")
        if place.disk.stat(path) is not None:
            place.disk.remove(path)
    for reader in open_readers(place.disk, place.of("t-0")).values():
        assert (reader.start_offset, reader.end_offset) == (0, 0)
        reader.close()
    log = reopen(place.disk, place.of("t-0"), clean=True)
    assert log.append_as_leader(batch(1), 0).base_offset == 0
    log.close(clean=True)
