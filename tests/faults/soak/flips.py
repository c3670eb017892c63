"""Flips and cuts of the golden folders, piece after piece, until the time is up: one line of JSON with the counts,
and how much there is.

The pieces are dealt by the seed, each once: all of them are every bit of every file, and every length. Then again.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Final

from tests.faults.flips.flipping import Account, cut_all, extent, flip_all
from tests.faults.flips.golden import KAFKA, OWN, golden
from tests.faults.soak.share_of_run import ShareOfRun

NAMES: Final = (*OWN, *KAFKA)
PARTS: Final = 64
"""Of each folder."""


def whole(names: tuple[str, ...]) -> dict[str, int]:
    """How many flips and cuts of these folders there are."""
    flips, cuts = zip(*(extent(golden(name)) for name in names), strict=True)
    return {"flips": sum(flips), "cuts": sum(cuts)}


def pieces(names: tuple[str, ...]) -> list[tuple[str, int]]:
    """All parts of these folders."""
    return [(name, part) for name in names for part in range(PARTS)]


def main(seconds: float, seed: int) -> int:
    """A wrong record is raised with what made it."""
    account = Account()
    share = ShareOfRun({"flips": (pieces(NAMES), 1.0)}, seed)
    for _, (name, part) in share.pieces_until(time.monotonic() + seconds):
        for work in (flip_all, cut_all):
            for _ in work(golden(name), account, part=(part, PARTS)):
                pass
    print(json.dumps({"flips": account.flips, "cuts": account.cuts, "wrong": account.wrong, "whole": whole(NAMES)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2])))
