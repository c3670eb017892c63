"""Random walks look for the known-bad rules, each within its budget and in weather of this seed,
until the time is up: one line of JSON with how many were found. One that is not found within its budget is an
error."""

from __future__ import annotations

import json
import sys
import time

from pyreplog.testing.known_bad import KNOWN_BAD
from pyreplog.testing.walk import search


def main(seconds: float, seed: int) -> int:
    """Each seed begins with another rule."""
    until = time.monotonic() + seconds
    names = [name for name, variant in KNOWN_BAD.items() if variant.search]
    begin = seed % len(names)
    found = 0
    for name in names[begin:] + names[:begin]:
        if time.monotonic() >= until:
            break
        budget = KNOWN_BAD[name].search
        if search(name, budget, first=seed * 10_007) is None:
            print(f"{name} was not found within {budget} walks from {seed * 10_007} on", file=sys.stderr)
            return 1
        found += 1
    print(json.dumps({"found": found, "exhibits": len(names)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
