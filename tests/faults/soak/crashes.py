"""Crash points, refused calls and refused recoveries of every workload, piece after piece, until the time is up:
one line of JSON with the counts, and how much there is of each.

The pieces are dealt by the seed, each once: as long as it takes, and every call has had 80 losses of power and its
kills, every refusal, and a recovery whose every call was refused. Then the next seed.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Final, NamedTuple

from tests.faults.crash.all_crash_points import (
    REFUSALS,
    WORKLOADS,
    count_calls,
    count_points,
    crash,
    refuse,
    refuse_recovery,
)
from tests.faults.soak.share_of_run import ShareOfRun

CALLS: Final = {"crash": 8, "refuse": 6, "recover": 3}
"""Of a piece, about: a second's work, and running the workload up to them is little beside it."""
SHARES: Final = {"crash": 0.5, "refuse": 0.25, "recover": 0.25}


class Piece(NamedTuple):
    """A part of a workload's calls."""

    name: str
    part: int
    parts: int


def pieces(names: list[str]) -> dict[str, tuple[list[Piece], float]]:
    """All there are of these workloads, by what is done with them."""
    groups = {}
    for group, calls in CALLS.items():
        cut = [(name, max(count_calls(name) // calls, 1)) for name in names]
        groups[group] = ([Piece(name, part, parts) for name, parts in cut for part in range(parts)], SHARES[group])
    return groups


def whole(names: list[str]) -> dict[str, int]:
    """How many of each there are."""
    points = [count_points(name) for name in names]
    return {
        "crash_points": sum(points),
        "refusals": sum(REFUSALS * count_calls(name) for name in names),
        "recoveries": sum(points) - len(points),  # at the end there is nothing left to be done
    }


def run(names: list[str], seconds: float, seed: int) -> dict[str, int]:
    """What these workloads came to in that time."""
    until = time.monotonic() + seconds
    counts = dict.fromkeys(
        (
            "crash_points",
            "crash_states",
            "compound_states",
            "refusals",
            "refused_calls",
            "recoveries",
            "recovery_refusals",
        ),
        0,
    )
    known: dict[tuple[str, str], set[bytes]] = {(group, name): set() for group in CALLS for name in names}
    share = ShareOfRun(pieces(names), seed)
    for group, (name, part, parts) in share.pieces_until(until):
        if group == "crash":
            report = crash(name, share.seed, part, parts, known=known[group, name])
            counts["crash_points"] += report.calls
            counts["crash_states"] += report.states
            counts["compound_states"] += report.compound
        elif group == "refuse":
            report = refuse(name, share.seed, part, parts)
            counts["refusals"] += report.calls
            counts["refused_calls"] += report.errors
        else:
            found = refuse_recovery(name, share.seed, part, parts, known=known[group, name])
            counts["recoveries"] += found.recoveries
            counts["recovery_refusals"] += found.refusals
    return counts


def main(seconds: float, seed: int) -> int:
    """A failing state is raised with what replays it."""
    names = list(WORKLOADS)
    print(json.dumps({**run(names, seconds, seed), "whole": whole(names)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
