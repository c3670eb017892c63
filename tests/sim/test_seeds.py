"""Random clusters under random faults: every invariant holds, and together they see the weather they should.

``--seeds N`` runs N of them (200 by default); ``regressions.txt`` lists seeds that once failed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pyreplog.testing import World

GROUPS = 4
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
)
REGRESSIONS = Path(__file__).with_name("regressions.txt")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("group", range(GROUPS))
def test_seeds(group: int, request: pytest.FixtureRequest) -> None:
    """No invariant breaks under any seed; and a group of seeds meets every fault and everything worth seeing."""
    count = request.config.getoption("--seeds")
    seen: dict[str, int] = {}
    seeds = range(group, count, GROUPS)
    for seed in seeds:
        world = World(seed)
        world.run()
        for what, times in (*world.seen.items(), *world.faults.items()):
            seen[what] = seen.get(what, 0) + times
    if len(seeds) >= 40:
        assert not [what for what in (*SIGHTINGS, *FAULTS) if what not in seen], "fair weather: these were never seen"


def regressions() -> list[int]:
    """The seeds of ``regressions.txt``: first word of each line that is no comment."""
    lines = REGRESSIONS.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("seed", regressions())
def test_regressions(seed: int) -> None:
    """A seed that once failed does not fail again."""
    World(seed).run()
