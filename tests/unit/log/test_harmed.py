"""What is damaged behind all that a mark vouches for, when only the process ended: an ``os`` log loses what it may
have acknowledged.

The end of a process leaves the beginning of a write at the log's end, and nothing else. Whoever elects a leader
must hear of anything more.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyreplog.config import LogConfig
from pyreplog.log import Log
from pyreplog.testing.disk import SimDisk
from pyreplog.testing.faults import Call
from tests.unit.log.support import batch, create, reopen, size_of

T = "data/t-0"
COUNT = 6


def left(durability: str = "os", segment_bytes: int = 1 << 20) -> SimDisk:
    """A folder whose process was killed: six batches, none of them synced or shown to anybody."""
    disk = SimDisk()
    disk.make_directory("data")
    log = create(disk, T, LogConfig(durability=durability, segment_bytes=segment_bytes))  # type: ignore[arg-type]
    for number in range(COUNT):
        log.append_as_leader(batch(2, size=300, tag=b"%d:" % number), 0)
    disk.kill()
    return disk


def logs(disk: SimDisk) -> list[str]:
    """The paths of its segments."""
    return sorted(f"{T}/{name}" for name in disk.list(T) if name.endswith(".log"))


def opened(disk: SimDisk, *, same_boot: bool = True) -> Log:
    """As the next process does."""
    return reopen(disk, T, same_boot=same_boot)


@pytest.mark.parametrize("number", range(COUNT))
def test_a_flipped_bit_is_no_torn_write(number: int) -> None:
    """Of whichever batch: what follows goes too. The log is good up to it, and says that it lacks something, for
    good."""
    disk = left()
    (path,) = logs(disk)
    size = size_of(disk, path) // COUNT
    disk.flip(path, number * size + 100)
    for attempt in range(2):
        log = opened(disk)
        assert (log.end_offset, log.incomplete, log.reported) == (2 * number, True, False)
        assert ("this is damage" in log.recovery.in_words()) == (attempt == 0)
        disk.kill()


def test_the_beginning_of_a_write_is_what_a_kill_leaves() -> None:
    """However much of the last batch is there: it was acknowledged by nobody."""
    whole = left()
    (path,) = logs(whole)
    size = size_of(whole, path)
    one = size // COUNT
    for cut in range(1, one + 1):
        disk = whole.snapshot()
        disk.open(path, write=True).truncate(size - cut)
        log = opened(disk)
        assert (log.end_offset, log.incomplete) == (2 * COUNT - 2, False), cut
        assert "this is damage" not in log.recovery.in_words()


def test_a_segment_that_is_cut_short_before_another() -> None:
    """Its process went on to the next one: no kill left that."""
    disk = left(segment_bytes=1400)
    paths = logs(disk)
    assert len(paths) > 2
    disk.open(paths[0], write=True).truncate(size_of(disk, paths[0]) - 10)
    log = opened(disk)
    assert log.end_offset < 2 * COUNT
    assert log.incomplete


def test_a_segment_that_is_gone() -> None:
    """The ones behind it are of no use, and were acknowledged."""
    disk = left(segment_bytes=1400)
    disk.remove(logs(disk)[1])
    log = opened(disk)
    assert log.end_offset < 2 * COUNT
    assert log.incomplete


def test_a_sync_log_acknowledged_nothing_there() -> None:
    """What is not synced was promised to nobody."""
    disk = left("sync")
    disk.flip(logs(disk)[0], 100)
    assert not opened(disk).incomplete


def test_after_power_loss_an_os_log_is_incomplete_anyway() -> None:
    """Whatever is left of it."""
    disk = left()
    log = opened(disk, same_boot=False)
    assert (log.end_offset, log.incomplete) == (2 * COUNT, True)


@pytest.mark.parametrize("segment_bytes", [1 << 20, 1400])
def test_who_dies_in_between_leaves_word(segment_bytes: int) -> None:
    """Wherever the recovery itself is killed, the next one finds the damage, or the mark that tells of it."""
    disk = left(segment_bytes=segment_bytes)
    disk.flip(logs(disk)[-1], 100)
    copies: list[SimDisk] = []

    def kill(call: Call) -> None:
        copies.append(disk.snapshot(call, len(call.data) // 2))

    disk.observer = kill
    first = opened(disk)
    assert first.incomplete
    disk.observer = None
    for copy in kept(copies):
        log = opened(copy)
        assert (log.end_offset, log.incomplete) == (first.end_offset, True)
    assert len(copies) > 10


def kept(copies: list[SimDisk]) -> Iterator[SimDisk]:
    """Each as the next process finds it."""
    for copy in copies:
        copy.kill()
        yield copy
