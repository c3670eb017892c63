"""Random clusters under random faults: every invariant holds, and together they see the weather they should.

``--seeds N`` runs N of them (200 by default); ``regressions.txt`` lists seeds that once failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyreplog.testing import Totals, World

GROUPS = 2
SOAK_GROUPS = 8
SOAK_SEEDS = 4000
EVENTS_MIN = 3000
"""A seed has at least so many: 200 of them are 600,000 events."""
SIGHTINGS = (
    "a leader of the isr",
    "a leader of the elr",
    "no leader",
    "below the minimum",
    "a shrink",
    "a join",
    "a torn tail",
    "an incomplete copy",
    "an unclean complete copy",
    "a divergent tail",
    "complete again",
    "an append that is ok",
    "an append that is refused",
    "an append that is unknown",
    "a whole pass",
    "a swap of a leader",
)
FAULTS = (
    "kill",
    "power_loss",
    "clean_restart",
    "wipe",
    "kill_all",
    "power_loss_of_all",
    "cut",
    "isolate",
    "slow_link",
    "slow_disk",
    "controller_restart",
    "pause",
    "clock_jump",
    "rot",
    "io_error",
    "disk_full",
    "min_isr",
    "grow",
    "passing_topic",
)
FAULTS_OF_VOTERS = [kind for kind in FAULTS if kind not in ("min_isr", "grow", "passing_topic", "wipe", "rot")]
"""A majority of the voters keeps its disks, so wipe and rot strike few of them."""
HITS = [
    *(f"{kind} of the active controller" for kind in (*FAULTS_OF_VOTERS, "wipe")),
    *(f"{kind} of a majority of the voters" for kind in FAULTS_OF_VOTERS if kind != "controller_restart"),
]
DRAWN = [
    *(("nodes", number) for number in range(3, 9)),
    *(("voters", number) for number in (1, 3, 5)),
    *((what, is_so) for what in ("apart", "old nodes", "wrong clocks", "compacted") for is_so in (False, True)),
]
REGRESSIONS = Path(__file__).with_name("regressions.txt")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("group", range(GROUPS))
def test_seeds(group: int, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    """No invariant breaks under any seed; and a group of seeds meets every fault and everything worth seeing."""
    count = request.config.getoption("--seeds")
    totals = Totals()
    drawn: set[tuple[str, object]] = set()
    begun = time.process_time()
    for seed in range(group, count, GROUPS):
        world = World(seed)
        world.run()
        totals.add(world)
        options = world.options
        drawn |= {("nodes", options.nodes), ("voters", options.voters), ("apart", options.apart)}
        drawn |= {("old nodes", options.old_nodes > 0), ("wrong clocks", options.clock_error_ppm > 0)}
        drawn.add(("compacted", any(topic.compacts for topic in options.topics)))
        assert world.turns >= EVENTS_MIN, f"seed {seed} has {world.turns} events"
    seconds = time.process_time() - begun
    record_property("simulation", totals.text(seconds))
    if totals.seeds >= 40:
        assert not [what for what in SIGHTINGS if what not in totals.seen], "fair weather: these were never seen"
        assert not [what for what in FAULTS if what not in totals.faults], "these never happened"
        assert not [what for what in HITS if what not in totals.hits], "the quorum was spared these"
        assert not [what for what in DRAWN if what not in drawn], "no cluster is like this"


def regressions() -> list[int]:
    """The seeds of ``regressions.txt``: first word of each line that is no comment."""
    lines = REGRESSIONS.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("seed", regressions())
def test_regressions(seed: int) -> None:
    """A seed that once failed does not fail again."""
    World(seed).run()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", range(SOAK_GROUPS))
def test_soak(group: int, record_property: Callable[[str, object], None]) -> None:
    """Three thousand seeds, five million events and 300,000 faults in all the groups together, and no invariant
    breaks."""
    totals = Totals()
    begun = time.process_time()
    for seed in range(10_000 + group, 10_000 + SOAK_SEEDS, SOAK_GROUPS):
        world = World(seed)
        world.run()
        totals.add(world)
    record_property("simulation", totals.text(time.process_time() - begun))
    assert totals.seeds * SOAK_GROUPS >= 3000
    assert totals.events * SOAK_GROUPS >= 5_000_000
    assert totals.fault_count * SOAK_GROUPS >= 300_000
