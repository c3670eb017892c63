"""Explicit-state exploration: no state that can be reached breaks an invariant; small bounds are seen whole;
known-bad rules are found."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyreplog.controller import Controller
from pyreplog.replica import Replica
from pyreplog.testing.known_bad import AckBeforeFsync, CommittedIsrOnly, ElrKept, NoMinimum, NonDurableFollower
from tests.replication.sim.explore import Bounds, Explorer, ViolationError

SMALL = Bounds(records=2, epochs=0, fences=0, crashes=0, drops=1, duplicates=1)
BOUNDS = [
    Bounds(),
    Bounds(minimum=1),
    Bounds(durability="sync", power=True),
    Bounds(durability="sync", minimum=1, crashes=2, fences=1),
]
STATES = 50_000


def explore(states: int) -> str:
    """So many states under each of the bounds in turn; what they amounted to."""
    begun, seen, steps = time.process_time(), 0, 0
    for seed, bounds in enumerate(BOUNDS):
        explorer = Explorer(bounds, seed=seed).run(states // len(BOUNDS))
        seen += len(explorer.seen)
        steps += explorer.steps
    return (
        f"{seen:,} states, {steps:,} steps, {seen / (time.process_time() - begun):,.0f} states a second: no invariant"
        " broke"
    )


def test_fifty_thousand_states(record_property: Callable[[str, object], None]) -> None:
    """Three replicas, three records, three epochs, crashes, losses, duplicates: every order that is tried keeps
    every invariant."""
    record_property("simulation", explore(STATES))


def test_small_bounds_are_seen_whole() -> None:
    """Two records, one loss and one duplicate, nobody dies: the exploration ends by itself."""
    explorer = Explorer(SMALL).run(200_000)
    assert explorer.complete
    assert len(explorer.seen) > 100


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ({"replica_class": NoMinimum}, Bounds()),
        ({"replica_class": NonDurableFollower}, Bounds(durability="sync")),
        ({"replica_class": AckBeforeFsync}, Bounds(durability="sync", minimum=1)),
        ({"replica_class": CommittedIsrOnly}, Bounds()),
        ({"controller_class": ElrKept}, Bounds()),
    ],
    ids=lambda one: "" if isinstance(one, Bounds) else next(iter(one.values())).__name__,
)
def test_known_bad_rules_are_found(kind: dict[str, type[Replica] | type[Controller]], bounds: Bounds) -> None:
    """Within a share of the states of the true rules; the text says how it came to that."""
    with pytest.raises(ViolationError, match="S.*\n.*"):
        Explorer(bounds, **kind).run(40_000)  # type: ignore[arg-type]


def test_the_same_states_in_every_process() -> None:
    """What is seen does not depend on the order of Python's sets and dicts."""
    text = (
        "from hashlib import blake2b\nfrom tests.replication.sim.explore import Bounds, Explorer\n"
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
