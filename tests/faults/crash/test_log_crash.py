"""Stop a log at every call to the disk, lose what was not synced, open it again: nothing promised is gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from pyreplog.testing.crash import crash_points, error_points
from pyreplog.testing.disk import SimDisk
from tests.faults.crash.refusing import ERRORS
from tests.faults.crash.workloads import Fact, appends_in_pieces, check, clean_stops, os_follower, sync_appends
from tests.seed import SEED, tell

LIVES = [
    pytest.param(sync_appends, "sync", id="sync-appends"),
    pytest.param(appends_in_pieces, "sync", id="appends-in-pieces"),
    pytest.param(os_follower, "os", id="os-follower"),
    pytest.param(clean_stops, "sync", id="clean-stops"),
]
REPLAY = f"REPLOG_CRASH_SEED={SEED} .venv/bin/python -m pytest tests/faults/crash/test_log_crash.py"
EVERY = 7
"""Of the calls so many are refused, from one on that the seed draws."""


def checking(durability: str) -> Callable[[SimDisk, Sequence[Fact]], None]:
    return partial(check, durability=durability)


@pytest.mark.parametrize(("life", "durability"), LIVES)
def test_no_crash_loses_what_was_promised(life: Callable[[SimDisk, list[Fact]], None], durability: str) -> None:
    """After power loss or a kill at any call, and again during recovery, everything promised is there and the log
    goes on."""
    tell()
    report = crash_points(life, checking(durability), seed=SEED, damages=12, replay=REPLAY)
    assert report.states > 1000
    assert report.compound > 100


@pytest.mark.parametrize(("life", "durability"), LIVES)
def test_no_refused_call_loses_what_was_promised(life: Callable[[SimDisk, list[Fact]], None], durability: str) -> None:
    """Whichever call the disk refuses, once or for ever, what was promised before is there after the next start."""
    tell()
    report = error_points(
        life,
        checking(durability),
        seed=SEED,
        errors=ERRORS,
        damages=1,
        every=EVERY,
        first=1 + SEED % EVERY,
        replay=REPLAY,
    )
    assert report.errors > 50
