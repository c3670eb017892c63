"""Flips and cuts of the golden folders, a sixteenth of all after another, until the time is up: one line of JSON with the counts.

Sixteen parts are every bit of every file, and every length.
"""

from __future__ import annotations

import json
import sys
import time

from tests.flips.flipping import Account, cut_all, flip_all
from tests.flips.golden import KAFKA, OWN, golden

PARTS = 16


def main(seconds: float, seed: int) -> int:
    """A wrong record is raised with what made it."""
    until = time.monotonic() + seconds
    account = Account()
    parts = 0
    while time.monotonic() < until:
        part = (seed + parts) % PARTS
        for name in (*OWN, *KAFKA):
            for run in (flip_all(golden(name), account, part=(part, PARTS)), cut_all(golden(name), account, part=(part, PARTS))):
                for _ in run:
                    if time.monotonic() >= until:
                        break
        parts += 1
    print(json.dumps({"flips": account.flips, "cuts": account.cuts, "wrong": account.wrong}))
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
