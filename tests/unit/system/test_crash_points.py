"""The crash machinery finds the bugs it is for, passes what is right, and says how to replay what it found."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Sequence

import pytest

from pyreplog.errors import ClosedError, StorageError
from pyreplog.ports import File
from pyreplog.testing import CrashFailure, SimClock, SimDisk, crash_points, error_points

FRAME = struct.Struct(">II")
RECORDS = [bytes([65 + number]) * (20 + number) for number in range(24)]
PER_SYNC = 3


class Journal:
    """The smallest log worth crashing: framed records with a checksum, synced in groups, and a counter file
    replaced by rename.

    Each of ``bugs`` leaves one thing out that it takes to be right.
    """

    def __init__(self, disk: SimDisk, bugs: Sequence[str] = ()) -> None:
        self.disk = disk
        self.bugs = bugs
        self.broken = False
        disk.make_directory("/db")
        if "no parent sync" not in bugs:
            disk.sync_directory("/")
        if disk.stat("/db/tmp"):
            disk.remove("/db/tmp")
        found = disk.stat("/db/log")
        self.log = disk.create("/db/log") if found is None else disk.open("/db/log", write=True)
        if "no directory sync" not in bugs:
            disk.sync_directory("/db")
        self.records = self._recover(self.log)

    def _recover(self, log: File) -> list[bytes]:
        data = bytes(log.read_at(0, 1 << 20))
        records: list[bytes] = []
        position = 0
        while position + FRAME.size <= len(data):
            size, checksum = FRAME.unpack_from(data, position)
            record = data[position + FRAME.size : position + FRAME.size + size]
            if not record or len(record) < size or (zlib.crc32(record) != checksum and "no checksum" not in self.bugs):
                break
            records.append(record)
            position += FRAME.size + size
        if position < len(data):
            log.truncate(position)
        # Also what looked whole may have been read from a cache that a killed process left: it
        # counts from now on.
        if "no sync in recovery" not in self.bugs:
            log.sync()
        self.end = position
        return records

    def append(self, record: bytes) -> None:
        if self.broken:
            raise ClosedError("a sync failed before")
        data = FRAME.pack(len(record), zlib.crc32(record)) + record
        try:
            self.log.write_at(self.end, [data[: FRAME.size], data[FRAME.size :]])
        except StorageError:
            self.log.truncate(self.end)
            raise
        self.end += len(data)

    def sync(self) -> None:
        if "no sync" in self.bugs:
            return
        try:
            self.log.sync()
        except StorageError:
            self.broken = "sync retried" not in self.bugs
            if self.broken:
                raise
            self.log.sync()

    def checkpoint(self, count: int) -> None:
        path = "/db/counter" if "in place" in self.bugs else "/db/tmp"
        file = self.disk.open(path, write=True) if self.disk.stat(path) else self.disk.create(path)
        file.truncate(0)
        file.write_at(0, [b"%d." % count])
        if "checkpoint not synced" not in self.bugs:
            file.sync()
        file.close()
        if path == "/db/tmp":
            self.disk.rename(path, "/db/counter")
        if "rename not synced" not in self.bugs:
            self.disk.sync_directory("/db")


def workload_of(*bugs: str) -> Callable[[SimDisk, list[int]], None]:
    def workload(disk: SimDisk, acknowledged: list[int]) -> None:
        journal = Journal(disk, bugs)
        for number, record in enumerate(RECORDS):
            journal.append(record)
            if "acknowledged too early" in bugs:
                acknowledged.append(number + 1)
            if number % PER_SYNC == PER_SYNC - 1:
                journal.sync()
                acknowledged.append(number + 1)
                if number % 4 == 0:
                    journal.checkpoint(number + 1)
                    acknowledged.append(-(number + 1))

    return workload


def check_of(*bugs: str) -> Callable[[SimDisk, Sequence[int]], None]:
    def check(disk: SimDisk, acknowledged: Sequence[int]) -> None:
        records = Journal(disk, bugs).records
        assert records == RECORDS[: len(records)], "altered or reordered"
        assert len(records) >= max([0, *acknowledged]), "lost"
        counter = -min([0, *acknowledged])
        found = disk.stat("/db/counter")
        if counter or found:
            text = bytes(disk.open("/db/counter").read_at(0, 100))
            assert re.fullmatch(rb"\d+\.", text), "counter damaged"
            assert int(text[:-1]) >= counter, "counter went back"

    return check


def test_what_is_right_passes() -> None:
    """A correct journal survives every crash point and every error, also a second crash while it recovers."""
    report = crash_points(workload_of(), check_of(), seed=1, damages=30, compound=3)
    assert report.states > 1400
    assert report.compound > 100
    assert {"write", "sync", "rename", "sync_directory", "create", "end"} <= set(report.kinds)
    assert "seed 1: " in str(report)
    errors = error_points(workload_of(), check_of(), seed=1, every=3)
    assert errors.errors > 100


@pytest.mark.parametrize(
    "bug",
    [
        "acknowledged too early",
        "no sync",
        "no parent sync",
        "no directory sync",
        "no checksum",
        "in place",
        "checkpoint not synced",
        "rename not synced",
    ],
)
def test_what_is_wrong_is_caught(bug: str) -> None:
    """Each thing left out is found by some crash point."""
    with pytest.raises(CrashFailure) as caught:
        crash_points(workload_of(bug), check_of(bug), seed=1, damages=30)
    assert isinstance(caught.value.__cause__, Exception)


def test_an_early_cleanup_of_recovery_is_caught_by_a_second_crash() -> None:
    """A recovery that believes what a killed process had written, without syncing it, and acknowledges on top of
    it, loses it later."""

    def workload(disk: SimDisk, acknowledged: list[int]) -> None:
        first = Journal(disk)
        for record in RECORDS[:3]:
            first.append(record)
        disk.kill()
        second = Journal(disk, ["no sync in recovery"])
        acknowledged.append(len(second.records))

    with pytest.raises(CrashFailure):
        crash_points(workload, check_of(), seed=1)


def test_a_retried_sync_is_caught_by_the_error_loop() -> None:
    """Believing a second sync after a failed one loses acknowledged records."""
    with pytest.raises(CrashFailure):
        error_points(workload_of("sync retried"), check_of(), seed=1, damages=10)


def test_a_failure_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a failure names seed, call and state, and the command given; that state alone fails again,
    another alone does not."""
    with pytest.raises(CrashFailure, match=r"seed 5, .*\nThe calls before:\n  1 make_directory /db\n") as caught:
        crash_points(workload_of("no sync"), check_of(), seed=5, replay="pytest this")
    found = re.search(r"Replay: REPLOG_CRASH_ONLY=(\d+):(\d+) pytest this", str(caught.value))
    assert found
    monkeypatch.setenv("REPLOG_CRASH_ONLY", f"{found[1]}:{found[2]}")
    with pytest.raises(CrashFailure) as again:
        crash_points(workload_of("no sync"), check_of(), seed=5, replay="pytest this")
    assert str(again.value) == str(caught.value)
    monkeypatch.setenv("REPLOG_CRASH_ONLY", "1:1")
    assert crash_points(workload_of("no sync"), check_of(), seed=5).states == 1


def test_what_was_checked_before_is_counted_alone() -> None:
    """With a set of what is known a state is checked once, to the byte, with what was acknowledged by then; bugs
    are still found."""
    checked: list[tuple[bytes, int]] = []

    def check(disk: SimDisk, acknowledged: Sequence[int]) -> None:
        checked.append((disk.fingerprint(), len(acknowledged)))
        check_of()(disk, acknowledged)

    known: set[bytes] = set()
    plain = crash_points(workload_of(), check, seed=1, damages=30)
    everything = set(checked)
    assert len(everything) < len(checked)
    checked.clear()
    report = crash_points(workload_of(), check, seed=1, damages=30, known=known)
    assert (report.states, report.compound) == (plain.states, plain.compound)
    assert set(checked) == everything
    assert len(checked) < plain.states + plain.compound
    checked.clear()
    assert (
        crash_points(workload_of(), check, seed=1, damages=30, compound=0, kills=False, known=known).repeated
        == report.calls * 30
    )
    assert not checked
    with pytest.raises(CrashFailure):
        crash_points(workload_of("no sync"), check_of(), seed=1, damages=30, known=set())


def test_errors_of_other_kinds_are_failures() -> None:
    """A workload that answers a disk error with anything but an error of this library has a bug."""

    def workload(disk: SimDisk, acknowledged: list[int]) -> None:
        try:
            disk.create("/a")
        except StorageError:
            raise KeyError("oops") from None

    with pytest.raises(CrashFailure, match="EIO"):
        error_points(workload, lambda disk, acknowledged: None, seed=1)


def test_a_run_repeats_itself() -> None:
    """The same seed makes the same states, to the byte."""

    def states(seed: int) -> list[str]:
        seen: list[str] = []

        def check(disk: SimDisk, acknowledged: Sequence[int]) -> None:
            names = disk.list("/db") if disk.stat("/db") else []
            seen.append(str([(name, bytes(disk.open(f"/db/{name}").read_at(0, 10_000))) for name in names]))

        crash_points(workload_of(), check, seed=seed, disk=lambda random: SimDisk(random))
        return seen

    assert states(1) == states(1)
    assert states(1) != states(2)


def test_the_clock_moves_only_by_hand() -> None:
    """Monotonic time goes on only, by what it is told; wall time goes with it and may jump alone."""
    clock = SimClock(wall_ms=1000)
    begun = clock.monotonic_ns()
    clock.advance(2_500_000)
    clock.advance_to(begun)
    assert (clock.monotonic_ns() - begun, clock.wall_ms()) == (2_500_000, 1002)
    clock.skew_wall(-500)
    assert (clock.monotonic_ns() - begun, clock.wall_ms()) == (2_500_000, 502)
    with pytest.raises(ValueError):
        clock.advance(-1)
