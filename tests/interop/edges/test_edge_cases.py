"""Edge cases 92 to 104 about truncation, loading and recovery. The others are in the files beside this one, by what
they are about.

The edge cases that Kafka's own tests check have numbers, and each has its test here:
``pytest tests/interop/edges -k e064`` runs one. The numbers are those of the list that this project was written to:
varints and records 1-9, batches 10-23, files 24-34, indexes 35-53, segments 54-65, appending and rolling 66-83,
reading 84-90, truncation and recovery 91-104, retention, epochs and checkpoints 105-116. 110 and 111 are about
compaction, which is not here. ``tests/house/test_edges.py`` counts them. Where something holds that is not Kafka's
behaviour, the test's text says so, and docs/internals/durability.md why.
"""

from __future__ import annotations

import errno
from random import Random

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import StorageError
from pyreplog.log import LogRoot, open_readers, random_uuid
from pyreplog.log.layout import INDEX_SUFFIX, SEGMENT_SUFFIXES, TIME_INDEX_SUFFIX, segment_name
from pyreplog.log.snapshot import read_offsets
from pyreplog.testing.disk import SimDisk
from pyreplog.values import TopicPartition
from tests.interop.edges.support import filled, segments
from tests.unit.log.conftest import Place
from tests.unit.log.producing import produced
from tests.unit.log.support import CLOCK, batch, contents, create, reopen, sync


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
    log.set_tail_cache_size(0)
    for offset in range(80):
        assert contents(log, offset, log.end_offset)[0].offset == offset
    log.close(clean=True)


def recovery_points(disk: SimDisk) -> dict[TopicPartition, int]:
    """What the checkpoint of the root says."""
    return read_offsets(disk, "r/recovery-point-offset-checkpoint")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("kind", ["create", "write", "rename"])
def test_e101_a_snapshot_that_cannot_be_written(kind: str, error: int) -> None:
    """The log goes on, and what is acknowledged stays; but no checkpoint calls it recovered beyond the last
    snapshot, and its root was not left in order: whoever believed that would begin without its producers. The next
    snapshot that is there ends it."""
    key = TopicPartition("t", 0)
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, "r", clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, random_uuid(Random(7)), LogConfig(segment_bytes=1024))
    log.become_leader(0)
    for number in range(15):
        log.append_as_leader(produced(2 * number, 2), 0)
    sync(disk, log)
    root.checkpoint_recovery_points()
    assert recovery_points(disk) == {key: 30}
    first = log.segments()[-1][0]
    fault = disk.fail(kind, "*.snapshot*", error=error, times=None)
    for number in range(15, 40):
        log.append_as_leader(produced(2 * number, 2), 0)
    sync(disk, log)
    root.checkpoint_recovery_points()
    assert 0 < first < 30
    assert recovery_points(disk) == {key: first}
    root.close()
    assert (log.end_offset, log.flushed_offset) == (80, 80)
    assert fault.hits > 2
    assert recovery_points(disk) == {key: first}
    assert disk.stat("r/.kafka_cleanshutdown") is None
    disk.clear_faults()
    root = LogRoot.open(disk.crash(Random(2)), "r", clock=CLOCK, random=Random(2))
    log = root.logs[key]
    assert (log.end_offset, log.flushed_offset) == (80, 80)
    assert log.append_as_leader(produced(78, 2), 0).duplicate
    assert isinstance(root.disk, SimDisk)
    root.close()
    assert recovery_points(root.disk) == {key: 80}
    assert root.disk.stat("r/.kafka_cleanshutdown") is not None


@pytest.mark.parametrize("when", ["at a roll", "at the end"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_e101_a_snapshot_whose_sync_fails(when: str, error: int) -> None:
    """As any sync that fails: the log is poisoned, nothing is tried again. No checkpoint calls it recovered beyond
    the last snapshot, its root was not left in order, and what was acknowledged is there, with who wrote it."""
    key = TopicPartition("t", 0)
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, "r", clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, random_uuid(Random(7)), LogConfig(segment_bytes=1024))
    log.become_leader(0)
    for number in range(30):
        log.append_as_leader(produced(2 * number, 2), 0)
        sync(disk, log)
    fault = disk.fail("sync", "*.snapshot*", error=error, times=None)
    end = 60
    if when == "at a roll":
        with pytest.raises(StorageError) as caught:
            for _ in range(30):
                log.append_as_leader(produced(end, 2), 0)
                sync(disk, log)
                end += 2
        assert caught.value.errno == error
        assert log.poisoned
        root.checkpoint_recovery_points()
        assert recovery_points(disk) == {key: log.segments()[-1][0]}
        root.close()
    else:
        with pytest.raises(StorageError):
            root.close()
        assert log.poisoned
    assert log.flushed_offset == end
    assert fault.hits == 1
    assert recovery_points(disk).get(key, 0) < end
    assert disk.stat("r/.kafka_cleanshutdown") is None
    disk.clear_faults()
    root = LogRoot.open(disk.crash(Random(2)), "r", clock=CLOCK, random=Random(2))
    log = root.logs[key]
    assert (log.end_offset, log.flushed_offset) == (end, end)
    assert log.append_as_leader(produced(end - 2, 2), 0).duplicate
    root.close()


def test_e101_a_log_without_producers() -> None:
    """Nobody is forgotten where nobody wrote with an id: without a snapshot, too, the log was left in order."""
    disk = SimDisk(Random(1))
    root = LogRoot.open(disk, "r", clock=CLOCK, random=Random(1))
    log = root.create_log("t", 0, random_uuid(Random(7)), LogConfig(segment_bytes=1024))
    log.become_leader(0)
    fault = disk.fail("write", "*.snapshot*", error=errno.ENOSPC, times=None)
    for number in range(30):
        log.append_as_leader(batch(2, timestamp=number), 0)
    root.close()
    assert fault.hits > 2
    assert recovery_points(disk) == {TopicPartition("t", 0): 60}
    assert disk.stat("r/.kafka_cleanshutdown") is not None


def test_e104_a_folder_without_segments(place: Place) -> None:
    """A new partition whose segment files are gone opens as the empty log that it was; readers see nothing in
    it."""
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
