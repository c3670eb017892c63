"""Crash points and failing calls of ``open_log``: what ``append``, ``append_many`` and a handle's ``result()``
promised is there.

The background thread is kept from starting (the simulated disk has one thread): whoever waits does the work, as it
may be at any time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Final, Literal, NamedTuple

import pytest

from pyreplog.errors import StorageError
from pyreplog.log import Log
from pyreplog.ports import File
from pyreplog.runtime import Log as Face
from pyreplog.runtime import open_log
from pyreplog.runtime.background import Background
from pyreplog.runtime.group_commit import GroupCommit
from pyreplog.testing.crash import CrashFailure, crash_points, error_points
from pyreplog.testing.disk import SimDisk, SimFile
from tests.faults.crash.refusing import ERRORS
from tests.seed import SEED, tell
from tests.unit.log.support import CLOCK

PATH: Final = "data/events"
CONFIG: Final = {"segment.bytes": 1024, "index.interval.bytes": 100}

Durability = Literal["sync", "os"]


class Promise(NamedTuple):
    """``values`` were handed to the log (``acked`` False), or are promised from ``offset`` on."""

    acked: bool
    offset: int
    values: tuple[bytes, ...]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No background thread."""
    monkeypatch.setattr(Background, "start", lambda _: None)


def opened(disk: SimDisk, durability: Durability | None) -> Face:
    """The log."""
    return open_log(PATH, durability=durability, config=CONFIG, disk=disk, clock=CLOCK)


def left(log: Face) -> None:
    """As the end of its process leaves it: nothing more is written."""
    assert log._writer is not None
    log._writer._forked()
    log._closed = True


def life(disk: SimDisk, promises: list[Promise], *, durability: Durability) -> None:
    """Two openings; all ways to append, over several segments."""
    number = 0

    def values(count: int) -> list[bytes]:
        nonlocal number
        number += count
        made = [(b"%d." % (number - count + index)) + b"x" * 60 for index in range(count)]
        promises.append(Promise(False, -1, tuple(made)))
        return made

    for turn in range(2):
        log = opened(disk, durability if turn == 0 else None)
        try:
            for _ in range(3):
                one = values(1)
                promises.append(Promise(True, log.append(one[0]), tuple(one)))
                many = values(4)
                promises.append(Promise(True, log.append_many(many).start, tuple(many)))
                some = values(3)
                acks = [log.append_nowait(value) for value in some]
                promises.append(Promise(True, acks[2].result().offset - 2, tuple(some)))
            log.append_nowait(values(1)[0])
            if turn == 0:
                log.close()
        finally:
            if not log.closed:
                left(log)
        if turn == 0:
            promises.append(Promise(True, 24, tuple(promises[-1].values[-1:])))


def check(disk: SimDisk, promises: Sequence[Promise], *, durability: Durability, power_too: bool = True) -> None:
    """Every promised record is where it was promised; whatever else is there was handed over; the log takes
    more."""
    handed = {value for promise in promises for value in promise.values}
    survived = disk.boot_id("") == SimDisk().boot_id("")
    try:
        with open_log(PATH, "r", disk=disk) as reader:
            seen = [record.value for record in reader]
    except StorageError:
        seen = []
    log = opened(disk, None if promises else durability)
    try:
        values = [record.value for record in log]
        assert seen == values[: len(seen)], "a reader saw what is not there"
        assert len(set(values)) == len(values), "twice"
        assert set(values) <= handed, "what nobody appended"
        for promise in promises:
            if promise.acked and (survived or durability == "sync"):
                assert tuple(values[promise.offset : promise.offset + len(promise.values)]) == promise.values, (
                    f"lost at {promise.offset}"
                )
    finally:
        left(log)
    onward = disk.snapshot()
    log = opened(onward, None)
    assert log.append(b"on") == len(values)
    left(log)
    if durability == "sync" and power_too:
        with opened(onward.crash(disk.random), None) as after:
            assert [record.value for record in after] == [*values, b"on"], "lost after a second power loss"


def crashes(durability: Durability, seed: int, *, damages: int, every: int) -> int:
    """Crash points; how many states."""
    return crash_points(
        partial(life, durability=durability),
        partial(check, durability=durability),
        seed=seed,
        damages=damages,
        every=every,
        first=1 + seed % every,
        replay=f"REPLOG_CRASH_SEED={seed} .venv/bin/python -m pytest tests/faults/crash/test_open_log.py",
    ).states


def refusals(durability: Durability, seed: int, *, every: int) -> int:
    """Failing calls; how many failed."""
    return error_points(
        partial(life, durability=durability),
        partial(check, durability=durability, power_too=False),
        seed=seed,
        errors=ERRORS,
        damages=1,
        every=every,
        first=1 + seed % every,
        replay=f"REPLOG_CRASH_SEED={seed} .venv/bin/python -m pytest tests/faults/crash/test_open_log.py",
    ).errors


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_no_end_loses_what_was_acknowledged(durability: Durability) -> None:
    """Power loss or a kill at any call loses no acknowledged record, alters none, and shows a reader nothing
    else."""
    tell()
    assert crashes(durability, SEED, damages=4, every=3) > 200


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_no_refused_call_loses_what_was_acknowledged(durability: Durability) -> None:
    """Whichever call the disk refuses, once or for ever: an error of this library, and what was acknowledged before
    is there."""
    tell()
    assert refusals(durability, SEED, every=15) > 60


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_no_end_loses_what_was_acknowledged_all(durability: Durability) -> None:
    """The same at every call, for many seeds."""
    for seed in range(SEED, SEED + int(os.environ.get("REPLOG_CRASH_SEEDS") or 4)):
        crashes(durability, seed, damages=20, every=1)
    refusals(durability, SEED, every=1)


def acknowledged_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """The syncer tells the log of a sync that it has not done."""

    def sync(syncer: GroupCommit, log: Log, plan: object) -> None:
        with syncer._lock:
            log.synced(plan.upto, plan.generation)  # type: ignore[attr-defined]
            syncer._pending.settle()

    patch.setattr(GroupCommit, "_sync", sync)


def failed_sync_swallowed(patch: pytest.MonkeyPatch) -> None:
    """A sync of batches that failed is taken for one that did not."""
    real = SimFile.sync

    def sync(file: File) -> None:
        try:
            real(file)  # type: ignore[arg-type]
        except StorageError:
            if not file.path.endswith(".log"):
                raise

    patch.setattr(SimFile, "sync", sync)


def test_acknowledging_before_the_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The crash points see it."""
    acknowledged_before_the_sync(monkeypatch)
    with pytest.raises(CrashFailure) as caught:
        crashes("sync", 1, damages=4, every=2)
    assert "lost" in str(caught.value.__cause__) or "before what was synced" in str(caught.value.__cause__)


def test_a_swallowed_failure_of_a_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failing calls see it."""
    failed_sync_swallowed(monkeypatch)
    with pytest.raises(CrashFailure) as caught:
        refusals("sync", 1, every=1)
    assert "are damaged" in str(caught.value.__cause__) or "lost" in str(caught.value.__cause__)
