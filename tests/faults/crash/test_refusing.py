"""Recoveries of what power loss left, whose disk refuses a call: whoever opens it next finds all that was promised.

A share of the crash points here, drawn by ``REPLOG_CRASH_SEED``; all in the soak.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest

from pyreplog.errors import StorageError
from pyreplog.log import loader
from pyreplog.log.scan import feed_segment
from pyreplog.testing.crash import CrashFailure
from tests.faults.crash.all_crash_points import WORKLOADS, count_calls, refuse_recovery
from tests.seed import SEED, tell

ENOUGH: Final = 40
"""Refusals of each workload; one recovery may have more."""


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_refused_call_of_a_recovery_breaks_a_promise(name: str) -> None:
    """Each of its calls fails, once or for ever, with an error that the seed draws: a typed error, and nothing is
    lost."""
    tell()
    parts = count_calls(name)
    refusals = 0
    for part in Random(SEED).sample(range(parts), parts):
        refusals += refuse_recovery(name, SEED, part, parts).refusals
        if refusals >= ENOUGH:
            break
    assert refusals >= ENOUGH


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", WORKLOADS)
def test_no_refused_call_of_a_recovery_breaks_a_promise_all(name: str) -> None:
    """The same after every crash point."""
    print(refuse_recovery(name, SEED, 0, 1))


def read_error_taken_for_the_end(patch: pytest.MonkeyPatch) -> None:
    """A segment that cannot be read counts as one that is torn at its beginning."""

    def feed(scan: Any, file: Any, size: int, *arguments: Any) -> Any:
        try:
            return feed_segment(scan, file, size, *arguments)
        except StorageError:
            return feed_segment(scan, file, 0, *arguments)

    patch.setattr(loader, "feed_segment", feed)


def _some() -> None:
    refuse_recovery("sync_log", 8, 0, 24)


def test_a_read_error_taken_for_the_end_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What recovery could not read it cuts off: found, and said."""
    read_error_taken_for_the_end(monkeypatch)
    with pytest.raises(CrashFailure, match=r"of the recovery failing.*(lost|before what was synced|are damaged)"):
        _some()


def test_without_it_the_same_passes() -> None:
    """The code as it is cuts nothing."""
    _some()
