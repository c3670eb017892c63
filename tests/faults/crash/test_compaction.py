"""Stop a compacted log at every call to the disk: either the old segments count or the new ones, never both and never
neither (C11), and of each key the newest acknowledged record is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, StorageError
from pyreplog.log import Cleaner, Log, compaction
from pyreplog.testing.crash import CrashFailure, crash_points, error_points
from pyreplog.testing.disk import SimDisk
from pyreplog.verify import CheckContext, Level, Report, check_partition
from tests.faults.crash.refusing import ERRORS
from tests.faults.crash.workloads import KEY, OTHER_ID, open_root
from tests.seed import SEED, tell
from tests.unit.log.support import CLOCK, batch, contents, sync

REPLAY = f"REPLOG_CRASH_SEED={SEED} .venv/bin/python -m pytest tests/faults/crash/test_compaction.py"
CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=1024, index_interval_bytes=100)


class Kept(NamedTuple):
    """An acknowledged record."""

    offset: int
    key: bytes
    value: bytes


def append(log: Log, kept: list[Kept], count: int) -> None:
    """Append batches of two records, durable and committed, and acknowledge them."""
    for _ in range(count):
        start = log.end_offset
        log.append_as_leader(batch(2, size=30, tag=b"%d:" % start), log.epochs.latest)
        sync(log.disk, log)
        log.advance_high_watermark(log.end_offset)
        log.write_mark()
        kept += [Kept(one.offset, one.key or b"", one.value or b"") for one in contents(log, start)]


def compact(log: Log) -> None:
    """One pass over all that is there."""
    log.close_active_segment()
    cleaner = Cleaner(log.disk, log.cleaning_plan(CLOCK.wall_ms()), bytes(16), lambda: None)
    end = cleaner.map_keys()
    for group in cleaner.plan.groups(end):
        log.install(cleaner.clean(group))
    log.note_cleaned(end)


def life(disk: SimDisk, kept: list[Kept]) -> None:
    """Two passes, the second of which joins segments; a clean stop; a third pass in another life."""
    root = open_root(disk)
    log = root.create_log(KEY.topic, KEY.partition, OTHER_ID, CONFIG)
    log.become_leader(0)
    append(log, kept, 8)
    compact(log)
    root.checkpoint_cleaned_ends()
    append(log, kept, 5)
    compact(log)
    root.close()
    root = open_root(disk, 2)
    if KEY not in root.logs:
        return
    log = root.logs[KEY]
    log.become_leader(log.epochs.latest + 1)
    append(log, kept, 4)
    compact(log)
    append(log, kept, 1)


def life_with_leftovers(disk: SimDisk, kept: list[Kept]) -> None:
    """As :func:`life` of one pass, but the folder has a file of an earlier pass that was given up."""
    root = open_root(disk)
    log = root.create_log(KEY.topic, KEY.partition, OTHER_ID, CONFIG)
    log.become_leader(0)
    append(log, kept, 8)
    left = disk.create(f"{log.directory}/{0:020d}.txnindex.cleaned")
    left.sync()
    left.close()
    disk.sync_directory(log.directory)
    compact(log)
    append(log, kept, 1)


def check(disk: SimDisk, kept: Sequence[Kept]) -> None:
    """What is left opens, has the newest record of each key, is whole, and can be compacted again."""
    root = open_root(disk, 77)
    try:
        assert not root.damaged, root.damaged
        log = root.logs.get(KEY)
        if log is None:
            assert not kept, "the partition is gone"
            return
        newest = {one.key: one for one in kept}
        for _ in range(2):
            found = [Kept(one.offset, one.key or b"", one.value or b"") for one in contents(log)]
            assert [one.offset for one in found] == sorted({one.offset for one in found})
            state = {one.key: one for one in found}
            for key, one in newest.items():
                assert key in state, f"the newest of {key!r} is gone"
                assert state[key].offset > one.offset or state[key] == one, f"an older one of {key!r} is the newest"
            book = Report()
            check_partition(disk, log.directory, *KEY, CheckContext(own=True), book)
            assert not [one for one in book.findings if one.level is Level.DAMAGE], book.findings
            names = disk.list(log.directory)
            assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
            log.set_high_watermark(log.end_offset)
            log.become_leader(log.epochs.latest + 1)
            sync(disk, log)
            compact(log)
    finally:
        root.close(clean=False)


@pytest.mark.parametrize("share", [pytest.param(1, marks=pytest.mark.soak), 31])
def test_a_pass_survives_a_crash_at_every_call(share: int) -> None:
    """Kill and power loss before each call that changes something."""
    tell()
    report = crash_points(
        life, check, seed=SEED, damages=2, every=share, first=1 + SEED % share, known=set(), replay=REPLAY
    )
    assert report.states


def test_leftovers_of_a_pass_that_was_given_up_cost_nothing() -> None:
    """An opening takes a ``.cleaned`` file for a part of a swap that is missing, and drops the ``.swap`` files."""
    crash_points(life_with_leftovers, check, seed=1, damages=1, every=2, first=120, compound=0, known=set())


@pytest.mark.parametrize("share", [pytest.param(1, marks=pytest.mark.soak), 67])
def test_a_pass_survives_a_refusal_at_every_call(share: int) -> None:
    """A full disk, an I/O error, a lack of descriptors: the log ends or goes on, and nothing is lost."""
    tell()

    def refused(disk: SimDisk, kept: list[Kept]) -> None:
        try:
            life(disk, kept)
        except (StorageError, CorruptError):
            pass
        except Exception as error:
            if not isinstance(error.__cause__, StorageError):
                raise

    error_points(refused, check, seed=SEED, errors=ERRORS, every=share, first=1 + SEED % share, replay=REPLAY)


def test_a_swap_without_a_sync_before_the_old_files_go_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the old files are renamed before the new names are durable. Some power loss shows it."""
    monkeypatch.setattr(compaction.LogCompactor, "_sync_directory", lambda _: None)
    with pytest.raises(CrashFailure):
        for seed in range(40):
            crash_points(life, check, seed=seed, damages=4, kills=False, compound=0, known=set())


def test_gaps_that_the_mark_does_not_name_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the mark says too late that the files of gaps count."""
    monkeypatch.setattr(compaction.LogCompactor, "_allow_recorded_gaps", lambda _: None)
    with pytest.raises((CrashFailure, CorruptError)):
        crash_points(life, check, seed=1, damages=2, every=5, compound=0, known=set())
