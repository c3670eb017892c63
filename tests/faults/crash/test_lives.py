"""Every end of ten lives of a log root, and every refusal of its disk.

The share that runs by default is drawn by a seed that the output names: ``REPLOG_CRASH_SEED`` sets it. ``-m soak``
runs everything, with several seeds (``REPLOG_CRASH_SEEDS``).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import pytest

from pyreplog.testing.crash import CrashReport, crash_points, error_points
from pyreplog.testing.disk import SimDisk
from tests.faults.crash.lives import DURABILITY, LIVES, Fact, Workload, check, crowd, cycles, os_log, replaced, retained
from tests.seed import SEED, tell

SEEDS: Final = int(os.environ.get("REPLOG_CRASH_SEEDS") or 4)
ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EINTR)
"""A refused write has also written a part: a short one."""
PARTS: Final = 4
"""Of the longest test of the soak, so that several processes share it."""
EVERY: Final[dict[Workload, int]] = {cycles: 61, crowd: 73, retained: 41, replaced: 10}  # they make many calls, or few
SHARE: Final[dict[Workload, int]] = {cycles: 7, crowd: 11, retained: 6, replaced: 1}
REPLAY: Final = (
    '.venv/bin/python -c "from tests.faults.crash.lives import *; from tests.faults.crash.test_lives import *; {}"'
)
"""The command that makes one call of this module again; the text of the call is put into the braces."""


def checking(life: Workload, again: float) -> Callable[[SimDisk, Sequence[Fact]], None]:
    """The check of ``life``."""
    return partial(check, durability=DURABILITY[life], again=again)


def crashes(
    life: Workload,
    seed: int,
    *,
    damages: int,
    thorough: float,
    again: float,
    every: int = 1,
    part: int = 0,
    known: set[bytes] | None = None,
) -> CrashReport:
    """Its crash points, or ``part`` of every ``every``-th, but for the states in ``known``."""
    how = (
        f"crashes({life.__name__}, {seed}, damages={damages}, thorough={thorough}, again={again}, every={every},"
        f" part={part})"
    )
    return crash_points(
        life,
        checking(life, again),
        seed=seed,
        damages=damages,
        thorough=thorough,
        every=every,
        first=1 + (seed + part) % every,
        known=known,
        replay=REPLAY.format(how),
    )


def errors(life: Workload, seed: int, *, every: int, first: int) -> CrashReport:
    """Its refused calls."""
    how = f"errors({life.__name__}, {seed}, every={every}, first={first})"
    replay = REPLAY.format(how)
    return error_points(
        life, checking(life, 0.0), seed=seed, errors=ERRORS, damages=1, every=every, first=first, replay=replay
    )


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_no_end_breaks_a_promise(life: Workload) -> None:
    """After power loss or a kill at any call, and again while that is repaired: all that was promised is there, and
    nothing but it."""
    tell()
    report = crashes(life, SEED, damages=3, thorough=0.005, again=0.3, every=SHARE.get(life, 3))
    assert report.states > 100
    assert report.compound > 30


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_no_refusal_breaks_a_promise(life: Workload) -> None:
    """Whichever call the disk refuses, once or for ever: a typed error, a poisoned log after a failed sync, no
    promise broken."""
    tell()
    every = EVERY.get(life, 20)
    report = errors(life, SEED, every=every, first=1 + SEED % every)
    assert report.errors > 30


def test_a_truncation_that_has_no_descriptor_for_its_sync_loses_nothing() -> None:
    """The segments behind it stay removed. Empty ones in their place would make the log look like a damaged one."""
    assert errors(os_log, 15494218, every=20, first=19).errors > 30


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_no_end_breaks_a_promise_all(life: Workload, part: int) -> None:
    """The same for many seeds, the repair of every tenth state crashed again at each of its calls."""
    known: set[bytes] = set()
    for seed in range(SEED, SEED + SEEDS):
        print(
            crashes(life, seed, damages=20, thorough=0.1, again=1.0, every=PARTS, part=part - seed, known=known),
            flush=True,
        )


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_no_refusal_breaks_a_promise_all(life: Workload) -> None:
    """The same for every call."""
    print(errors(life, SEED, every=1, first=1))
