"""Bugs put in on purpose, one method each: the crash layer must find every one of them.

A check that finds nothing proves something only if it would have found something.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pyreplog._core import SegmentScanner
from pyreplog.log import Log, clean_shutdown, identity, loader, mark, settings, snapshot
from pyreplog.log.log_segments import LogSegments
from pyreplog.ports import Disk
from pyreplog.testing.crash import CrashFailure, crash_points
from pyreplog.testing.disk import SimDisk
from tests.faults.crash.workloads import Fact, check, os_follower, sync_appends

Patch = Callable[[pytest.MonkeyPatch], None]


def replace_everywhere(patch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    """Every module that imported the function ``name`` of ``snapshot`` gets ``value``."""
    for module in (snapshot, identity, clean_shutdown, settings):
        if hasattr(module, name):
            patch.setattr(module, name, value)


def checksum_not_checked_on_recovery(patch: pytest.MonkeyPatch) -> None:
    def scanner(*arguments: Any, **options: Any) -> SegmentScanner:
        return SegmentScanner(*arguments, **{**options, "check_crc": False})

    patch.setattr(loader, "SegmentScanner", scanner)


def mark_advanced_too_early(patch: pytest.MonkeyPatch) -> None:
    def write_mark(log: Log) -> None:
        log._mark.write(log.end_offset, log.high_watermark, log.start_offset)

    patch.setattr(Log, "write_mark", write_mark)


def file_written_in_place(patch: pytest.MonkeyPatch) -> None:
    def replace(disk: Disk, path: str, content: bytes, *, durable: bool = True, named: bool = True) -> None:
        if disk.stat(path) is None:
            file = disk.create(path)
        else:
            file = disk.open(path, write=True)
            file.truncate(0)
        file.write_at(0, [content])
        if durable:
            file.sync()
            disk.sync_directory(path.rpartition("/")[0])
        file.close()

    replace_everywhere(patch, "replace_file", replace)


def rename_without_directory_sync(patch: pytest.MonkeyPatch) -> None:
    _rename(patch, content_synced=True, name_synced=False)


def rename_without_sync(patch: pytest.MonkeyPatch) -> None:
    _rename(patch, content_synced=False, name_synced=True)


def _rename(patch: pytest.MonkeyPatch, *, content_synced: bool, name_synced: bool) -> None:
    def replace(disk: Disk, path: str, content: bytes, *, durable: bool = True, named: bool = True) -> None:
        if disk.stat(f"{path}.tmp") is not None:
            disk.remove(f"{path}.tmp")
        file = disk.create(f"{path}.tmp")
        file.write_at(0, [content])
        if content_synced:
            file.sync()
        file.close()
        disk.rename(f"{path}.tmp", path)
        if name_synced:
            disk.sync_directory(path.rpartition("/")[0])

    replace_everywhere(patch, "replace_file", replace)


def new_segments_folder_not_synced(patch: pytest.MonkeyPatch) -> None:
    real = SimDisk.sync_directory

    def sync_directory(disk: SimDisk, directory: str) -> None:
        # The first one is that of the partition's making.
        names = [name for name in disk.list(directory) if name.endswith(".log")]
        if len(names) < 2:
            real(disk, directory)

    patch.setattr(SimDisk, "sync_directory", sync_directory)


def only_the_last_segment_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogSegments, "unsynced", lambda _: [])


def mark_not_lowered_before_a_truncation(patch: pytest.MonkeyPatch) -> None:
    def lower(log: Log, offset: int) -> None:
        log.flushed_offset = min(log.flushed_offset, offset)
        log.high_watermark = min(log.high_watermark, offset)

    patch.setattr(Log, "_lower_mark_first", lower)


def mark_with_one_slot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mark, "SLOT_POSITIONS", (0, 0, 0))


def gap_between_segments_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loader.Loader, "_may_follow", lambda *_: True)


BUGS = [
    (checksum_not_checked_on_recovery, sync_appends, "sync"),
    (mark_advanced_too_early, sync_appends, "sync"),
    (file_written_in_place, sync_appends, "sync"),
    (rename_without_directory_sync, sync_appends, "sync"),
    (rename_without_sync, sync_appends, "sync"),
    (new_segments_folder_not_synced, sync_appends, "sync"),
    (only_the_last_segment_synced, sync_appends, "sync"),
    (mark_not_lowered_before_a_truncation, os_follower, "os"),
    (mark_with_one_slot, sync_appends, "sync"),
    (gap_between_segments_accepted, os_follower, "os"),
]


@pytest.mark.parametrize(("bug", "life", "durability"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS])
def test_a_planted_bug_is_caught(
    bug: Patch, life: Callable[[SimDisk, list[Fact]], None], durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one of these bugs in the code, some crash breaks a promise."""
    bug(monkeypatch)
    with pytest.raises(CrashFailure):
        for seed in range(6):
            crash_points(life, partial(check, durability=durability), seed=seed, damages=12, compound=3)
