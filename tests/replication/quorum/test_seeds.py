"""Random quorums under random faults: every invariant holds, and together they see the faults that they should.

One seed by hand: ``python -m pyreplog.testing --quorum --seed N``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pyreplog.testing.quorum import QuorumFaultRates, QuorumTotals, QuorumWorld

SEEDS = 32
GROUPS = 2
SOAK_SEEDS = 1200
SOAK_GROUPS = 4
EVENTS_MIN = 3000
"""A seed has at least so many on average."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("group", range(GROUPS))
def test_seeds(group: int, record_property: Callable[[str, object], None]) -> None:
    """No invariant breaks under any seed; a group of seeds meets every fault, and each that hits one node hits a
    leader."""
    totals = QuorumTotals()
    through_bytes = replacing = 0
    begun = time.process_time()
    for seed in range(group, SEEDS, GROUPS):
        world = QuorumWorld(seed)
        world.run()
        totals.add(world)
        through_bytes += world.options.through_bytes
        replacing += world.options.config.auto_replace
    record_property("simulation", totals.text(time.process_time() - begun))
    assert totals.events >= EVENTS_MIN * totals.seeds
    assert not [kind for kind in QuorumFaultRates.kinds() if kind not in totals.faults], "these never happened"
    assert through_bytes
    assert replacing
    assert totals.on_leader.keys() >= {"kill", "power_loss", "clean_restart", "wipe", "isolate", "pause", "io_error"}


def test_the_same_run_again() -> None:
    """A seed gives the same run: the same events and the same states after every turn."""
    found = []
    for _ in range(2):
        world = QuorumWorld(7)
        world.run()
        found.append((world.turns, world.digest, world.events))
    assert found[0] == found[1]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", range(SOAK_GROUPS))
def test_soak(group: int, record_property: Callable[[str, object], None]) -> None:
    """Over a thousand more seeds, and no invariant breaks."""
    totals = QuorumTotals()
    begun = time.process_time()
    for seed in range(10_000 + group, 10_000 + SOAK_SEEDS, SOAK_GROUPS):
        world = QuorumWorld(seed)
        world.run()
        totals.add(world)
    record_property("simulation", totals.text(time.process_time() - begun))
