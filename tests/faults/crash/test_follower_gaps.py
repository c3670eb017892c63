"""Stop a follower's log of a compacted topic at every call to the disk: a gap in what is kept is a recorded gap, or
the log is cut before it; nothing that was synced, or survives a kill, is lost or counts as damage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from pyreplog.config import LogConfig
from pyreplog.errors import CorruptError, StorageError
from pyreplog.log import Log, segment_writer
from pyreplog.testing.crash import CrashFailure, crash_points, error_points
from pyreplog.testing.disk import SimDisk
from pyreplog.verify import CheckContext, Level, Report, check_partition
from tests.faults.crash.refusing import ERRORS
from tests.faults.crash.workloads import KEY, OTHER_ID, open_root
from tests.seed import SEED, tell
from tests.unit.log.support import batch, contents, sync

REPLAY = f"REPLOG_CRASH_SEED={SEED} .venv/bin/python -m pytest tests/faults/crash/test_follower_gaps.py"
CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=1024, index_interval_bytes=100, durability="sync")


class Kept(NamedTuple):
    """What was acknowledged up to ``end``: the offsets of the records."""

    end: int
    offsets: tuple[int, ...]


def take(log: Log, bases: Sequence[int], *, epoch: int = 0, dropped: int = -1) -> None:
    """Append one fetch answer."""
    data = b"".join(batch(1, base_offset=base, leader_epoch=epoch, size=40, tag=b"%d:" % base) for base in bases)
    log.append_as_follower([data], at_end=True, dropped_tombstone=dropped)


def committed(log: Log, kept: list[Kept]) -> None:
    """Sync, and acknowledge that to the leader."""
    sync(log.disk, log)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()
    kept.append(Kept(log.end_offset, tuple(one.offset for one in contents(log))))


def life(disk: SimDisk, kept: list[Kept]) -> None:
    """Catch up over gaps, with rolls; a truncation into a gap; a clean stop; more; a batch far away."""
    root = open_root(disk)
    log = root.create_log(KEY.topic, KEY.partition, OTHER_ID, CONFIG)
    take(log, (3, 4, 8))
    committed(log, kept)
    for base in range(10, 60, 10):
        take(log, (base, base + 1, base + 4), dropped=40)
        take(log, (base + 6, base + 7))
        committed(log, kept)
    take(log, (62, 66, 70, 71))
    take(log, (75, 80))
    log.truncate_to(68)
    take(log, (67, 69), epoch=1)
    committed(log, kept)
    root.close()
    root = open_root(disk, 2)
    if KEY not in root.logs:
        return
    log = root.logs[KEY]
    take(log, (72, 75), epoch=1)
    committed(log, kept)
    take(log, (5 << 31, (5 << 31) + 3), epoch=1)
    committed(log, kept)
    take(log, ((5 << 31) + 9,), epoch=1)


def check(disk: SimDisk, kept: Sequence[Kept]) -> None:
    """What is left opens, and has everything that was acknowledged; its gaps are recorded; it goes on."""
    before = Report()
    root = open_root(disk, 77)
    try:
        assert not root.damaged, root.damaged
        log = root.logs.get(KEY)
        if log is None:
            assert not kept, "the partition is gone"
            return
        found = [one.offset for one in contents(log)]
        if kept:
            last = kept[-1]
            assert log.end_offset >= last.end, f"it ends at {log.end_offset}, acknowledged was {last.end}"
            assert [one for one in found if one < last.end] == list(last.offsets)
        assert not log.mark.may_have_gaps
        bounds = [bound for segment in log._segments for bound in segment.gaps.bounds]
        pairs = list(zip(bounds[::2], bounds[1::2], strict=True))
        at = log.first_base_offset
        for one in found:
            assert one == at or (at, one) in _joined(pairs), f"nobody recorded the gap from {at} to {one}"
            at = one + 1
        assert all(end <= log.end_offset for _, end in pairs), "a gap of batches that are not there"
        check_partition(disk, log.directory, *KEY, CheckContext(own=True), before)
        assert not [one for one in before.findings if one.level is Level.DAMAGE], before.findings
        end = log.end_offset
        take(log, (end, end + 1, end + 5), epoch=7)
        sync(disk, log)
        assert [one.offset for one in contents(log)] == [*found, end, end + 1, end + 5]
    finally:
        root.close(clean=False)


def _joined(pairs: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """With those that touch over the end of a segment as one."""
    found = set(pairs)
    for start, end in pairs:
        found |= {(start, other_end) for other, other_end in pairs if other == end}
    return found


@pytest.mark.parametrize("share", [pytest.param(1, marks=pytest.mark.soak), 23])
def test_a_follower_survives_a_crash_at_every_call(share: int) -> None:
    """Kill and power loss before each call that changes something."""
    tell()
    report = crash_points(
        life, check, seed=SEED, damages=2, every=share, first=1 + SEED % share, known=set(), replay=REPLAY
    )
    assert report.states


@pytest.mark.parametrize("share", [pytest.param(5, marks=pytest.mark.soak), 53])
def test_a_follower_survives_a_refusal_at_every_call(share: int) -> None:
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


def test_gaps_that_nobody_notes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the mark says that gaps are recorded, and they are not."""
    monkeypatch.setattr(Log, "note_gaps", lambda log, *_: log._allow_recorded_gaps())
    with pytest.raises(CrashFailure):
        crash_points(life, check, seed=1, damages=0, compound=0, known=set())


def test_gaps_that_no_sync_covers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: a sync covers the batches and not their gaps. Some power loss shows it."""
    right = segment_writer.SegmentWriter.files
    monkeypatch.setattr(
        segment_writer.SegmentWriter,
        "files",
        lambda segment, *, closed: [one for one in right(segment, closed=closed) if not one.path.endswith(".gaps")],
    )
    with pytest.raises(CrashFailure):
        for seed in range(10):
            crash_points(life, check, seed=seed, damages=4, kills=False, compound=0, known=set())
