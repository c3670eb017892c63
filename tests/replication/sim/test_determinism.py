"""A seed decides everything, whatever Python's own chance does."""

from __future__ import annotations

import os
import subprocess
import sys

from pyreplog.testing import World

SEEDS = ((4, ()), (9, ()), (3, ("--compacted",)))


def digests(hash_seed: str) -> str:
    """What a process with that hash seed prints about some runs."""
    found = []
    for seed, more in SEEDS:
        done = subprocess.run(
            [sys.executable, "-m", "pyreplog.testing", "--seed", str(seed), "--trace", *more],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        found.append(done.stdout)
    return "".join(found)


def test_two_processes_with_different_hash_seeds_agree() -> None:
    """The same seeds give the same traces in processes whose sets and dicts are ordered differently."""
    one, other = digests("1"), digests("2")
    assert one == other
    assert one.count("every invariant held") == len(SEEDS)


def test_different_seeds_differ() -> None:
    """Another seed is another run."""
    found = {}
    for seed in range(6):
        world = World(seed)
        world.run()
        found[world.digest] = seed
    assert len(found) == 6
