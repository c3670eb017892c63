"""Bugs of recovery put in on purpose, by their numbers in the list of planted bugs (docs/internals/faults.md): each
is found by the same flips, crash points or failing calls that pass without it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from pyreplog._core import crc32c
from pyreplog.config import LogConfig
from pyreplog.errors import CorruptLogError, StorageError
from pyreplog.log import Log, LogRoot, lifetime, loader
from pyreplog.log.clean_shutdown import Incarnation, read_farewell, read_incarnation, write_incarnation
from pyreplog.log.index_files import IndexFiles
from pyreplog.log.layout import LOG_SUFFIX
from pyreplog.log.scan import feed_segment
from pyreplog.log.segment_writer import SegmentWriter
from pyreplog.ports import Disk
from pyreplog.testing.crash import crash_points, error_points
from pyreplog.testing.disk import SimDisk, SimFile
from tests.faults.crash import lives, test_rot
from tests.faults.crash.lives import DURABILITY, Workload, check, os_log, sync_log
from tests.faults.crash.test_rot import CLEAN, FOLDER, KEY, ROOT, TOPIC_ID, UNCLEAN, paths
from tests.unit.log.support import CLOCK, batch, bytes_of, create, raw, reopen, sync

Patch = Callable[[pytest.MonkeyPatch], None]
Run = Callable[[], None]

# -- what looks for them --


def _crashes(life: Workload, *, compound: int = 0, again: float = 0.0, every: int = 3) -> None:
    checking = partial(check, durability=DURABILITY[life], again=again)
    crash_points(life, checking, seed=0, damages=4, compound=compound, kills=False, every=every)


def _refusals(life: Workload, error: int) -> None:
    checking = partial(check, durability=DURABILITY[life], again=0.0)
    error_points(life, checking, seed=3, damages=2, errors=[error], every=3, first=1)


def _rot_of_a_log(choose: Callable[[list[str]], str] = min) -> None:
    path = choose([path for path in paths(UNCLEAN[0]) if path.endswith(LOG_SUFFIX)])
    test_rot.log_file(path, power=False)


def _rot_of_a_small_file(name: str) -> None:
    test_rot.small_file(next(path for path in test_rot.SMALL if path.endswith(name)))


def _a_mark_is_lost() -> None:
    disk, content, answers = CLEAN
    for size in (0, 40, 600):
        damaged = disk.snapshot()
        damaged.open(f"{FOLDER}/replog.mark", write=True).truncate(size)
        assert test_rot.look(damaged, content, answers)[1] == "whole", "the writer lost records with a mark"


def _no_room_before_a_roll() -> None:
    """A large batch finds no room, small ones do; then the segment is closed, and the process ends."""
    disk = SimDisk(Random(1))
    disk.make_directory(ROOT)
    log = create(disk, FOLDER, LogConfig(durability="os", segment_bytes=1100, index_interval_bytes=100))
    log.append_as_leader(batch(2, size=50), 0)
    disk.fail("write", f"*{LOG_SUFFIX}", error=errno.ENOSPC, partial=600)
    with pytest.raises(StorageError, match="No space"):
        log.append_as_leader(batch(2, size=300), 0)
    for _ in range(2):
        log.append_as_leader(batch(1, size=20), 0)
    for _ in range(4):
        log.append_as_leader(batch(1, size=900), 0)
    log.advance_high_watermark(log.end_offset)
    log.write_mark()
    want = raw(log)
    assert raw(reopen(disk.snapshot(), FOLDER)) == want


def _an_old_segment_comes_back() -> None:
    """A segment from before a truncation is back in the place of the one that followed: its batches are whole, at
    the right offsets."""
    disk = SimDisk(Random(1))
    disk.make_directory(ROOT)
    log = create(disk, FOLDER, LogConfig(segment_bytes=1100, index_interval_bytes=100))
    for epoch in (9, 7):  # of 9 the history will know nothing any more
        while log.end_offset < 12:
            log.append_as_follower(
                [bytes(batch(2, size=200, base_offset=log.end_offset, leader_epoch=0 if log.end_offset < 4 else epoch))]
            )
        name = f"{FOLDER}/{log.segments()[-1][0]:020d}.log"
        if epoch == 9:
            old = bytes_of(disk, name)
            log.truncate_to(4)
    sync(disk, log)
    log.close(clean=False)
    assert old != bytes_of(disk, name)
    assert len(old) == len(bytes_of(disk, name))
    file = disk.open(name, write=True)
    file.write_at(0, [old])
    with pytest.raises(CorruptLogError, match="has leader epoch 9, but its offsets belong to epoch 7"):
        reopen(disk, FOLDER)


def _a_close_that_fails() -> None:
    """It comes out of the root's own, and the next start is no clean one."""
    disk = SimDisk(Random(1))
    owner = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(1))
    owner.create_log("t", 0, TOPIC_ID, LogConfig()).append_as_leader(batch(2), 0)
    disk.fail("close", f"*{LOG_SUFFIX}")
    with pytest.raises(StorageError):
        owner.close()
    after = LogRoot.open(disk.snapshot(), ROOT, clock=CLOCK, random=Random(2))
    assert not after.clean
    assert after.logs[KEY].end_offset == 2


def _a_life_after_a_clean_stop() -> None:
    """Power loss takes what an ``os`` log acknowledged after a clean stop: the replica knows that it may miss
    something."""
    disk = SimDisk(Random(1))
    for life in range(2):
        owner = LogRoot.open(disk, ROOT, clock=CLOCK, random=Random(life))
        log = owner.logs.get(KEY) or owner.create_log("t", 0, TOPIC_ID, LogConfig(durability="os"))
        log.become_leader(life)
        log.append_as_leader(batch(2), life)
        if not life:
            owner.close()
    for seed in range(10):
        left = LogRoot.open(disk.crash(Random(seed)), ROOT, clock=CLOCK, random=Random(seed))
        assert left.logs[KEY].incomplete, "power loss is taken for a clean stop"


KERNELS: Final = Path(__file__).parents[3] / "src" / "_core" / "kernels"
AT_THE_EDGE: Final = """
#include <string.h>
#include <stdio.h>
#include <sys/mman.h>
#include "segment.h"
int main(int count, char **arguments) {
    static uint8_t data[65536];
    FILE *file = fopen(arguments[1], "rb");
    const size_t size = fread(data, 1, sizeof data, file);
    uint8_t *const pages = mmap(NULL, 131072, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (count != 2 || mprotect(pages + 65536, 65536, PROT_NONE)) { return 2; }
    for (size_t cut = 61; cut <= size; cut++) {
        uint8_t *const start = pages + 65536 - cut;
        memcpy(start, data, cut);
        segment_scan scan;
        segment_step step;
        segment_scan_begin(&scan, 0, 0, 0, 4096, true);
        if (segment_scan_step(&scan, start, pages + 65536, &step) != (cut == size)) { return 1; }
    }
    return 0;
}
"""


@pytest.mark.parametrize("planted", [False, True], ids=["right", "caught"])
def test_17_a_length_believed_before_it_is_compared(planted: bool, tmp_path: Path) -> None:
    """The kernel that reads a batch by the length it says, before comparing that with what is there: a batch cut
    off at the end of readable memory ends the program; without the bug it is called cut off at every length."""
    compiler = shutil.which("cc")
    if compiler is None or not KERNELS.is_dir():
        pytest.skip("SKIPPED FAULT RIG: no C compiler, or no sources")
    for file in KERNELS.iterdir():
        shutil.copy(file, tmp_path)
    if planted:
        source = (tmp_path / "batch.c").read_text()
        check_of_length = "return end - p < out->size ? STATUS_CUT : STATUS_OK;"
        assert source.count(check_of_length) == 1
        (tmp_path / "batch.c").write_text(source.replace(check_of_length, "return STATUS_OK;"))
    (tmp_path / "edge.c").write_text(AT_THE_EDGE)
    sources = [str(tmp_path / f"{name}.c") for name in ("edge", "segment", "batch", "legacy", "crc32c")]
    subprocess.run(
        [compiler, "-std=gnu11", "-O1", "-o", str(tmp_path / "edge"), *sources], check=True, capture_output=True
    )
    (tmp_path / "batch").write_bytes(batch(3, size=400))
    # A sanitizer in it would take the signal for itself.
    ended = subprocess.run(
        [str(tmp_path / "edge"), str(tmp_path / "batch")], env={**os.environ, "LD_PRELOAD": ""}, check=False
    )
    assert ended.returncode == (-signal.SIGSEGV if planted else 0)


# -- the bugs --


def an_interrupted_sync_counts(patch: pytest.MonkeyPatch) -> None:
    """EINTR counts as success."""

    def sync_all(disk: Disk, log: Log) -> None:
        plan = log.sync_plan()
        if plan is not None:
            for file in plan.files:
                try:
                    file.sync()
                except StorageError as error:
                    if error.errno != errno.EINTR:
                        raise
            log.synced(plan.upto, plan.generation)

    patch.setattr(lives, "sync", sync_all)


def half_a_batch_stays_when_the_disk_is_full(patch: pytest.MonkeyPatch) -> None:
    """A write that found no room is not cut off again, and the next one begins where it should."""

    patch.setattr(SegmentWriter, "take_back", lambda segment, error: None)


def the_error_of_a_close_ignored(patch: pytest.MonkeyPatch) -> None:
    """Files are closed whatever the system says."""
    real = SimFile.close

    def close(file: SimFile) -> None:
        try:
            real(file)
        except StorageError:
            pass

    patch.setattr(SimFile, "close", close)


class _Forgiving:
    """A file whose batches all have the checksum that their header and their records need."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def read_at(self, position: int, size: int) -> bytes:
        data = bytearray(self._file.read_at(position, size))
        bodies = {one[61:] for _, one in UNCLEAN[1]}
        at = 0
        while at + 61 <= len(data):
            end = at + 12 + struct.unpack_from(">i", data, at + 8)[0]
            # Stands for a checksum of the records alone: what only the header lost is forgiven.
            if bytes(data[at + 61 : end]) in bodies:
                struct.pack_into(">I", data, at + 17, crc32c(bytes(data[at + 21 : end])))
            at = max(end, at + 61)
        return bytes(data)


def header_not_in_the_checksum(patch: pytest.MonkeyPatch) -> None:
    """Recovery's checksum covers the records of a batch and not its header."""
    patch.setattr(
        loader,
        "feed_segment",
        lambda scan, file, *arguments: feed_segment(scan, _Forgiving(file), *arguments),  # type: ignore[arg-type]
    )


def cut_below_the_mark(patch: pytest.MonkeyPatch) -> None:
    """The log ends at the first bad batch, wherever that is."""
    patch.setattr(loader.Loader, "durable_end", property(lambda _: 0))


def a_damaged_mark_starts_at_nothing(patch: pytest.MonkeyPatch) -> None:
    """Without a good mark nothing is believed to be there."""
    real = loader.Loader._load_unclean

    def load(one: loader.Loader, segments: list[SegmentWriter]) -> loader.Loaded:
        if one.state is None:
            one.origin = one.origin._replace(recovery_point=0)
            one._torn.remove_from(segments, 0)
        return real(one, segments)

    patch.setattr(loader.Loader, "_load_unclean", load)


def a_stale_index_believed(patch: pytest.MonkeyPatch) -> None:
    """What an index says is not compared with the log."""

    def lookup(segment: SegmentWriter, offset: int, least: int) -> int:
        offsets = segment.indexes.offsets
        return max(offsets.lookup(offset)[1] if offsets.count else 0, least)

    patch.setattr(IndexFiles, "matches", lambda *_: True)
    patch.setattr(SegmentWriter, "_lookup", lookup)


class _Zeros:
    """A scan that takes the zeros behind the last batch for a part of the log."""

    def __init__(self, scan: Any, size: int) -> None:
        self._scan = scan
        self.position = size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scan, name)


def zeros_taken_for_records(patch: pytest.MonkeyPatch) -> None:
    """Where power loss left a file's length and not its content, nothing is cut."""
    real = loader.Loader._scan_one

    def scan_one(one: loader.Loader, segment: SegmentWriter, next_offset: int) -> Any:
        scan = real(one, segment, next_offset)
        rest = bytes(segment.file.read_at(scan.position, segment.size - scan.position))
        return scan if any(rest) else _Zeros(scan, segment.size)

    real_set: Callable[..., None] = SegmentWriter.set_scanned
    patch.setattr(
        SegmentWriter,
        "set_scanned",
        lambda segment, scan, **options: real_set(segment, getattr(scan, "_scan", scan), **options),
    )
    patch.setattr(loader.Loader, "_scan_one", scan_one)


def a_boot_noted_too_early(patch: pytest.MonkeyPatch) -> None:
    """The incarnation names this boot while logs are still as the last one left them: a second recovery takes them
    for a kill's."""

    def write(disk: Disk, path: str, incarnation: Incarnation) -> None:
        write_incarnation(disk, path, incarnation._replace(boot_id=disk.boot_id("")))

    patch.setattr(lifetime, "write_incarnation", write)


def any_epoch_accepted(patch: pytest.MonkeyPatch) -> None:
    """A batch's leader epoch is not compared with the history."""
    patch.setattr(loader.Loader, "_check_epochs", lambda *_: None)
    patch.setattr(loader.Loader, "_first_unknown_epoch", lambda *_: None)


def a_clean_stop_believed_for_ever(patch: pytest.MonkeyPatch) -> None:
    """The marker of a clean stop stays when the root is taken again, and counts whoever wrote it."""
    patch.setattr(lifetime, "remove_farewell", lambda *_: None)

    def read(disk: Disk, path: str) -> Any:
        found = read_farewell(disk, path)
        before = read_incarnation(disk, path)
        return found if found is None or before is None else found._replace(incarnation_id=before.incarnation_id)

    patch.setattr(lifetime, "read_farewell", read)


BUGS: Final[list[tuple[int, Patch, Run, str]]] = [
    (12, an_interrupted_sync_counts, lambda: _refusals(sync_log, errno.EINTR), "lost|are damaged"),
    (13, half_a_batch_stays_when_the_disk_is_full, _no_room_before_a_roll, "are damaged"),
    (14, the_error_of_a_close_ignored, _a_close_that_fails, "DID NOT RAISE"),
    (16, header_not_in_the_checksum, lambda: _rot_of_a_log(max), "bit . of byte"),
    (18, cut_below_the_mark, _rot_of_a_log, "data/t-0/0000"),
    (19, a_damaged_mark_starts_at_nothing, _a_mark_is_lost, "lost records"),
    (20, a_stale_index_believed, lambda: _rot_of_a_small_file(".index"), "Corrupt"),
    # The zeros are either read, or they are the content that a new segment finds in its way.
    (21, zeros_taken_for_records, lambda: _crashes(os_log, again=1.0, every=1), "lost|damaged|in the way of a new one"),
    (22, a_boot_noted_too_early, lambda: _crashes(os_log, compound=2), "second one during the recovery.*damaged"),
    (24, any_epoch_accepted, _an_old_segment_comes_back, "DID NOT RAISE"),
    (25, a_clean_stop_believed_for_ever, _a_life_after_a_clean_stop, "taken for a clean"),
]


ALONE: Final = (12, 13, 14, 19, 21, 22, 24, 25)
"""Whose run is not a test of its own, which passes."""


@pytest.mark.parametrize(
    ("bug", "run", "message"), [bug[1:] for bug in BUGS], ids=[f"{number}-{bug.__name__}" for number, bug, *_ in BUGS]
)
def test_it_is_caught(bug: Patch, run: Run, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks for it finds it, and says so."""
    bug(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, CorruptLogError)) as caught:
        run()
    said = f"{caught.value}: {caught.value.__cause__}"
    assert re.search(message, said, re.DOTALL), said


@pytest.mark.parametrize(
    "run", [bug[2] for bug in BUGS if bug[0] in ALONE], ids=[str(bug[0]) for bug in BUGS if bug[0] in ALONE]
)
def test_without_it_the_same_passes(run: Run) -> None:
    """The code as it is breaks nothing."""
    run()
