"""Explicit-state exploration of the quorum: no state that can be reached breaks an invariant; small bounds are seen
whole; known-bad rules are found."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyreplog.testing.known_bad.quorum import QUORUM_VARIANTS
from tests.replication.quorum.explore import Bounds, Explorer, ViolationError

SMALL = Bounds(appends=1, timers=0, drops=1, crashes=1, duplicates=1)
BOUNDS = [
    Bounds(),
    Bounds(timers=8, crashes=2, epochs=4),
    Bounds(duplicates=1, overtakes=1, timers=6),
    Bounds(told=False, timers=7, crashes=2, epochs=4),
    Bounds(fresh=True, timers=8),
    Bounds(changes=2, timers=6, crashes=2, epochs=4),
    Bounds(observers=1, changes=2, timers=5),
    Bounds(snapshots=2, timers=7, crashes=2, appends=3, told=False),
    Bounds(voters=5, timers=6, crashes=2, epochs=4),
    Bounds(voters=5, changes=2, timers=6, crashes=2, epochs=4),
    Bounds(voters=1, observers=1, changes=1, crashes=2, timers=5),
]
STATES = 50_000


def explore(states: int) -> str:
    """So many states under all bounds together; what they amounted to."""
    begun, seen, steps = time.process_time(), 0, 0
    for seed, bounds in enumerate(BOUNDS):
        explorer = Explorer(bounds, seed=seed).run((states - seen) // (len(BOUNDS) - seed))
        seen += len(explorer.seen)
        steps += explorer.steps
    assert seen >= states * 0.98
    return (
        f"quorum: {seen:,} states, {steps:,} steps, {seen / (time.process_time() - begun):,.0f} states a second: no"
        " invariant broke"
    )


@pytest.mark.timeout(600)
def test_fifty_thousand_states(record_property: Callable[[str, object], None]) -> None:
    """One, three and five voters: every order that is tried of appends, timers, losses, crashes, changes of the voters
    and snapshots keeps every invariant."""
    record_property("simulation", explore(STATES))


def test_small_bounds_are_seen_whole() -> None:
    """One append, one loss, one duplicate, one crash and no timers: the exploration ends by itself."""
    explorer = Explorer(SMALL).run(200_000)
    assert explorer.complete
    assert len(explorer.seen) > 100


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("CommitsWithHalf", Bounds(changes=2, timers=6)),
        ("VotesTwice", Bounds()),
        ("AnyLogGetsVote", Bounds()),
        ("TwoChangesAtOnce", Bounds(changes=2, timers=6)),
        ("WatermarkRecomputedByVoters", Bounds()),
        ("TruncatesOnEqualPrefix", Bounds()),
        ("TruncatesBelowWatermark", Bounds()),
    ],
)
def test_known_bad_rules_are_found(name: str, bounds: Bounds) -> None:
    """Within a share of the states of the true rules; the text says how it came to that."""
    with pytest.raises(ViolationError, match=r".*\n.*"):
        for seed in range(4):
            Explorer(bounds, node_class=QUORUM_VARIANTS[name], seed=seed).run(30_000)


def test_the_same_states_in_every_process() -> None:
    """What is seen does not depend on the order of Python's sets and dicts."""
    text = (
        "from hashlib import blake2b\nfrom tests.replication.quorum.explore import Bounds, Explorer\n"
        "print(blake2b(b''.join(sorted(Explorer(Bounds()).run(1500).seen))).hexdigest())"
    )
    command, root = [sys.executable, "-c", text], Path(__file__).parents[3]
    found = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert found[0]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_million_states(record_property: Callable[[str, object], None]) -> None:
    """The same, forty times as many."""
    record_property("simulation", explore(2_000_000))
