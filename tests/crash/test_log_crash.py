"""Stop a log at every call to the disk, lose what was not synced, open it again: nothing promised is gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from pyreplog.testing.crash import crash_points, error_points
from pyreplog.testing.disk import SimDisk
from tests.crash.workloads import Fact, appends_in_pieces, check, clean_stops, os_follower, sync_appends

LIVES = [
    pytest.param(sync_appends, "sync", id="sync-appends"),
    pytest.param(appends_in_pieces, "sync", id="appends-in-pieces"),
    pytest.param(os_follower, "os", id="os-follower"),
    pytest.param(clean_stops, "sync", id="clean-stops"),
]
REPLAY = ".venv/bin/python -m pytest tests/crash/test_log_crash.py"


def checking(durability: str) -> Callable[[SimDisk, Sequence[Fact]], None]:
    return partial(check, durability=durability)


@pytest.mark.parametrize(("life", "durability"), LIVES)
def test_no_crash_loses_what_was_promised(life: Callable[[SimDisk, list[Fact]], None], durability: str) -> None:
    """After power loss or a kill at any call, and again during recovery, everything promised is there and the log goes on."""
    report = crash_points(life, checking(durability), seed=1, damages=12, replay=REPLAY)
    assert report.states > 1000
    assert report.compound > 100


@pytest.mark.parametrize(("life", "durability"), LIVES)
def test_no_refused_call_loses_what_was_promised(life: Callable[[SimDisk, list[Fact]], None], durability: str) -> None:
    """Whichever call the disk refuses, once or for ever, what was promised before is there after the next start."""
    report = error_points(life, checking(durability), seed=2, damages=1, every=5, replay=REPLAY)
    assert report.errors > 50
