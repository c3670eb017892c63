"""Crash points and refused calls of every life, seed after seed, until the time is up: one line of JSON with the counts."""

from __future__ import annotations

import json
import sys
import time

from tests.crash.lives import LIVES
from tests.crash.test_lives import crashes, errors


def main(seconds: float, seed: int) -> int:
    """A failing state is raised with what replays it."""
    until = time.monotonic() + seconds
    counts = {"crash_states": 0, "compound_states": 0, "refused_calls": 0, "crash_rounds": 0}
    while time.monotonic() < until:
        for life in LIVES:
            if time.monotonic() >= until:
                break
            # Small portions, so that the time is kept; another portion of the calls with each seed.
            report = crashes(life, seed, damages=6, thorough=0.02, again=0.3, every=7)
            counts["crash_states"] += report.states
            counts["compound_states"] += report.compound
            if time.monotonic() >= until:
                break
            report = errors(life, seed, every=41, first=1 + seed % 41)
            counts["refused_calls"] += report.errors
        counts["crash_rounds"] += 1
        seed += 1
    print(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
