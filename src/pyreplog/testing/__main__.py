"""``python -m pyreplog.testing --seed N``: run the simulated cluster of a seed, and print its result.

The exit code is 1 if an invariant broke. A failing seed is shrunk: the options that the failure does not need are
removed, and the smaller world is printed too.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from random import Random
from typing import Any

from pyreplog.testing.checkers import InvariantBroken
from pyreplog.testing.known_bad import CLUSTERS, KNOWN_BAD
from pyreplog.testing.options import WorldOptions
from pyreplog.testing.quorum import QuorumTotals, QuorumWorld
from pyreplog.testing.shrink import shrink
from pyreplog.testing.totals import Totals
from pyreplog.testing.walk import Walk
from pyreplog.testing.world import World


def _run(seed: int, parts: dict[str, Any], options: WorldOptions) -> None:
    World(seed, options, **parts, replay="the call above").run()


def _walk(first: int, count: int, variant: str | None, *, trace: bool) -> int:
    steps = 0
    for seed in range(first, first + count):
        try:
            stage = Walk(seed, variant).run()
        except InvariantBroken as broken:
            print(broken)
            return 1
        steps += stage.steps
        if trace:
            print("\n".join(stage.events))
    print(f"{count} walks, {steps} steps: every invariant held")
    return 0


def _quorum(first: int, count: int, *, trace: bool) -> int:
    """Run simulated quorums without brokers; return 1 as soon as one fails."""
    totals = QuorumTotals()
    begun = time.process_time()
    for seed in range(first, first + count):
        world = QuorumWorld(seed)
        print(world.about(), flush=True)
        try:
            world.run()
        except InvariantBroken as broken:
            print(broken)
            return 1
        if trace:
            print("\n".join(world.events))
        totals.add(world)
        print(f"  {world.turns} events; every invariant held; digest {world.digest:08x}")
    print(totals.text(time.process_time() - begun))
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyreplog.testing", description="Run simulated clusters under faults."
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--count", type=int, default=1, help="number of seeds (default 1)")
    parser.add_argument("--trace", action="store_true", help="print every action on the cluster with its time")
    names = sorted((*KNOWN_BAD, *CLUSTERS))
    parser.add_argument("--variant", metavar="NAME", choices=names, help="replace the right rule by this known-bad one")
    parser.add_argument(
        "--walk",
        type=int,
        metavar="SEED",
        help="a random walk over one partition instead of a cluster (also with --count)",
    )
    parser.add_argument("--compacted", action="store_true", help="clusters with compacted topics alone")
    parser.add_argument("--quorum", action="store_true", help="the metadata quorum alone, without brokers")
    parser.add_argument("--no-shrink", action="store_true", help="do not shrink a failing seed")
    return parser


def _print_smaller(seed: int, parts: dict[str, Any], options: WorldOptions, rule: str) -> None:
    """Shrink the options of a failing seed, and print the smaller world that still fails."""
    print("shrinking ...", flush=True)
    smaller, last = shrink(options, partial(_run, seed, parts), rule)
    if last is not None:
        wrong = "".join(f", {name}={part.__name__}" for name, part in parts.items())
        print(f"it also fails as World({seed}, {smaller!r}{wrong}).run():\n{last}")


def _print_run(world: World) -> None:
    attempts = [attempt for producer in world.producers for attempt in producer.attempts]
    outcomes = {what: sum(attempt.outcome == what for attempt in attempts) for what in ("ok", "refused", "unknown")}
    print(f"  faults: {world.faults}")
    print(f"  seen: {world.seen}")
    print(f"  appends: {outcomes}; {world.turns} events, {world.clock.monotonic_ns() / 1e9:.1f} s of simulated time")
    print(f"  every invariant held; digest {world.digest:08x}")


def main() -> int:
    """Run the given seeds; return 1 as soon as one fails."""
    parser = _arguments()
    options = parser.parse_args()
    parts: dict[str, Any] = {}
    if options.variant is not None:
        parts = (CLUSTERS[options.variant] if options.variant in CLUSTERS else KNOWN_BAD[options.variant]).parts()
    if options.quorum:
        return _quorum(options.seed, options.count, trace=options.trace)
    if options.walk is not None:
        if options.variant in CLUSTERS:
            parser.error(
                f"{options.variant} needs a whole cluster, which a walk does not have; repeat it with: replog lesson"
                f" {options.variant}"
            )
        return _walk(options.walk, options.count, options.variant, trace=options.trace)
    totals = Totals()
    begun = time.process_time()
    for seed in range(options.seed, options.seed + options.count):
        replay = f"python -m pyreplog.testing --seed {seed}" + (" --compacted" if options.compacted else "")
        replay += "" if options.variant is None else f" --variant {options.variant}"
        drawn = WorldOptions.drawn(Random(seed), compacted=options.compacted)
        try:
            world = World(seed, drawn, **parts, replay=replay)
            print(world.about(), flush=True)
            world.run()
        except InvariantBroken as broken:
            print(broken)
            if not options.no_shrink:
                _print_smaller(seed, parts, drawn, broken.rule)
            return 1
        if options.trace:
            print("\n".join(world.events))
        totals.add(world)
        _print_run(world)
    if options.count > 1:
        print(totals.text(time.process_time() - begun))
    return 0


if __name__ == "__main__":
    sys.exit(main())
