"""Explicit-state exploration of the replicas until the time is up, a quarter of it under each of the bounds: one
line of JSON with the counts. Another seed goes other ways first."""

from __future__ import annotations

import json
import sys
import time

from tests.replication.sim.explore import Explorer
from tests.replication.sim.test_explore import BOUNDS

STATES_MAX = 2_000_000
"""Of one exploration: they are kept in memory."""


def main(seconds: float, seed: int) -> int:
    """A broken invariant is raised with the way that led to it."""
    states = steps = 0
    for number, bounds in enumerate(BOUNDS):
        until = time.monotonic() + seconds / len(BOUNDS)
        explorer = Explorer(bounds, seed=seed + number).run(STATES_MAX, until=until)
        states += len(explorer.seen)
        steps += explorer.steps
    print(json.dumps({"states": states, "steps": steps}))
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
