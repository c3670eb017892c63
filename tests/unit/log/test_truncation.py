"""Truncating a log, and beginning it again at another offset."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import (
    ClosedError,
    CorruptError,
)
from pyreplog.testing.disk import SimDisk
from tests.unit.log.conftest import Place
from tests.unit.log.support import (
    SMALL,
    bases,
    batch,
    contents,
    create,
    filled,
    interrupted,
    raw,
    reopen,
    sync,
)


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
        if not interrupted(partial(log.truncate_fully, 50), moment, "log/truncation.py", "log/log_segments.py"):
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
