"""Bugs of durability put in on purpose: crash points or failing calls find each, for the right reason; without it
the same run passes."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from pyreplog._core import SegmentScanner
from pyreplog.errors import StorageError
from pyreplog.log import Log, clean_shutdown, epochs, identity, loader, log_segments, settings, snapshot
from pyreplog.ports import Buffer, Disk
from pyreplog.testing.crash import CrashFailure, crash_points, error_points
from pyreplog.testing.disk import SimDisk, SimFile
from tests.faults.crash import lives
from tests.faults.crash.lives import DURABILITY, Workload, check, cycles, deleted, os_log, replaced, sync_log
from tests.unit.log.support import sync_in_place

Patch = Callable[[pytest.MonkeyPatch], None]
REAL_SYNC_DIRECTORY: Final = SimDisk.sync_directory
REAL_WRITE_AT: Final = SimFile.write_at


def _replacing(patch: pytest.MonkeyPatch, *, in_place: bool = False, synced: bool = True, naming: bool = True) -> None:
    """Small files replaced by other steps."""

    def replace(
        disk: Disk, path: str, content: bytes, *, durable: bool = True, named: bool = True, reserve_in: str = ""
    ) -> None:
        temporary = path if in_place else path + ".tmp"
        file = disk.create(temporary) if disk.stat(temporary) is None else disk.open(temporary, write=True)
        file.truncate(0)
        file.write_at(0, [content])
        if synced:
            file.sync()
        file.close()
        if not in_place:
            disk.rename(temporary, path)
        if naming and named:
            disk.sync_directory(path.rpartition("/")[0])

    for module in (snapshot, identity, clean_shutdown, settings, epochs):
        if hasattr(module, "replace_file"):
            patch.setattr(module, "replace_file", replace)


def checksum_not_checked_on_recovery(patch: pytest.MonkeyPatch) -> None:
    """Recovery believes headers."""
    patch.setattr(
        loader,
        "SegmentScanner",
        lambda *arguments, **options: SegmentScanner(*arguments, **{**options, "check_crc": False}),
    )


def mark_advanced_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """The durable mark says what was written, not what was synced."""
    patch.setattr(Log, "write_mark", lambda log: log._mark.write(log.end_offset, log.high_watermark, log.start_offset))


def state_files_in_place(patch: pytest.MonkeyPatch) -> None:
    """Checkpoints and settings are overwritten."""
    _replacing(patch, in_place=True)


def rename_without_directory_sync(patch: pytest.MonkeyPatch) -> None:
    """The new name of a state file is not made durable."""
    _replacing(patch, naming=False)


def rename_without_sync(patch: pytest.MonkeyPatch) -> None:
    """A state file is renamed before its content is durable."""
    _replacing(patch, synced=False)


def new_segment_without_directory_sync(patch: pytest.MonkeyPatch) -> None:
    """The names of a segment that a roll made are not made durable."""

    def sync_directory(disk: SimDisk, directory: str) -> None:
        if sum(name.endswith(".log") for name in disk._tree.folder(directory).entries) < 2:
            REAL_SYNC_DIRECTORY(disk, directory)

    patch.setattr(SimDisk, "sync_directory", sync_directory)


def rolled_segments_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A sync is on the newest file only."""
    patch.setattr(log_segments.LogSegments, "unsynced", lambda _: [])


def truncation_not_synced(patch: pytest.MonkeyPatch) -> None:
    """What follows a truncation may reach the disk before it."""
    real = SimFile.sync

    def sync(file: SimFile) -> None:
        if not file.path.endswith(".log"):
            real(file)

    patch.setattr(SimFile, "sync", sync)


def acknowledged_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """The log is told of a sync that has only begun."""

    def sync(disk: Disk, log: Log) -> None:
        plan = log.sync_plan()
        if plan is not None:
            log.synced(plan.upto, plan.generation)

    patch.setattr(lives, "sync", sync)


def failed_sync_swallowed(patch: pytest.MonkeyPatch) -> None:
    """A sync that failed counts like one that did not."""

    def sync(disk: Disk, log: Log) -> None:
        plan = log.sync_plan()
        if plan is not None:
            for file in plan.files:
                try:
                    file.sync()
                except StorageError:
                    pass
            log.synced(plan.upto, plan.generation)

    patch.setattr(lives, "sync", sync)


def short_write_ignored(patch: pytest.MonkeyPatch) -> None:
    """A write that only went in part counts as a whole one."""

    def write_at(file: SimFile, position: int, parts: list[Buffer]) -> None:
        try:
            REAL_WRITE_AT(file, position, parts)
        except StorageError:
            pass

    patch.setattr(SimFile, "write_at", write_at)


def _crashes(life: Workload) -> None:
    for seed in range(3):
        checking = partial(check, durability=DURABILITY[life], again=0.1)
        crash_points(life, checking, seed=seed, damages=4, compound=0, kills=False, every=3, first=seed)


def _many_crashes(life: Workload) -> None:
    crash_points(
        life, partial(check, durability=DURABILITY[life], again=0.0), seed=1, damages=30, compound=0, kills=False
    )


def _refusals(life: Workload) -> None:
    checking = partial(check, durability=DURABILITY[life], again=0.0)
    for first in (1, 2, 3, 4, 5):
        error_points(life, checking, seed=3, damages=3, errors=[errno.EIO], every=5, first=first)


def every_third_sync_skipped(patch: pytest.MonkeyPatch) -> None:
    """The system is asked to sync a log two times out of three."""
    real = SimFile.sync
    count = 0

    def sync(file: SimFile) -> None:
        nonlocal count
        if file.path.endswith(".log"):
            count += 1
            if count % 3 == 0:
                return
        real(file)

    patch.setattr(SimFile, "sync", sync)
    patch.setattr(lives, "sync", sync_in_place)


def failed_sync_tried_again(patch: pytest.MonkeyPatch) -> None:
    """A failed sync is repeated, and the success of the second one believed."""

    def sync(disk: SimDisk, log: Log) -> None:
        try:
            sync_in_place(disk, log)
        except StorageError:
            sync_in_place(disk, log)

    patch.setattr(lives, "sync", sync)


def start_not_durable_before_removal(patch: pytest.MonkeyPatch) -> None:
    """Segments go while only the page cache knows that the log begins later."""
    patch.setattr(Log, "_sync_mark", lambda log: None)


def _removals(life: Workload) -> None:
    crash_points(
        life,
        partial(check, durability=DURABILITY[life], again=0.0),
        seed=2,
        damages=6,
        compound=1,
        kills=False,
        every=4,
    )


BUGS: Final[list[tuple[Patch, Callable[[Workload], None], Workload, str]]] = [
    (checksum_not_checked_on_recovery, _crashes, sync_log, "checksum"),
    (mark_advanced_before_the_sync, _crashes, sync_log, "damaged: .*(before what was synced|damaged|missing)"),
    (state_files_in_place, _crashes, cycles, "settings went back|incomplete|damaged"),
    (rename_without_directory_sync, _crashes, cycles, "settings went back|incomplete"),
    (rename_without_sync, _crashes, sync_log, "damaged: .*partition.metadata|meta.properties|incomplete"),
    (new_segment_without_directory_sync, _crashes, sync_log, "lost|before what was synced"),
    (rolled_segments_not_synced, _crashes, sync_log, "lost|damaged: .*missing"),
    (truncation_not_synced, _many_crashes, replaced, "what never was"),
    (acknowledged_before_the_sync, _crashes, sync_log, "lost|before what was synced"),
    (failed_sync_swallowed, _refusals, sync_log, "a gap|are damaged|lost"),
    (short_write_ignored, _refusals, os_log, "is acknowledged|lost|damaged"),
    (every_third_sync_skipped, _crashes, sync_log, "lost|before what was synced|damaged: .*missing"),
    (failed_sync_tried_again, _refusals, sync_log, "lost|before what was synced|a gap|damaged"),
    (start_not_durable_before_removal, _removals, deleted, "begins at|missing|damaged"),
]


@pytest.mark.parametrize(("bug", "run", "life", "message"), BUGS, ids=[bug.__name__ for bug, *_ in BUGS])
def test_it_is_caught(
    bug: Patch, run: Callable[[Workload], None], life: Workload, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some state breaks a promise, and the check says which."""
    bug(monkeypatch)
    with pytest.raises(CrashFailure) as caught:
        run(life)
    cause = caught.value.__cause__
    assert re.search(message, str(cause), re.DOTALL), cause


RUNS: Final = list(dict.fromkeys((run, life) for _, run, life, _ in BUGS))


@pytest.mark.parametrize(("run", "life"), RUNS, ids=[f"{run.__name__}-{life.__name__}" for run, life in RUNS])
def test_without_it_the_same_run_passes(run: Callable[[Workload], None], life: Workload) -> None:
    """The code as it is breaks none."""
    run(life)
