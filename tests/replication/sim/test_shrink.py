"""A failing run is made smaller without losing its failure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

import pyreplog.testing
from pyreplog.testing import Checker, FaultRates, InvariantBroken, TopicOptions, World, WorldOptions
from pyreplog.testing.__main__ import main
from pyreplog.testing.known_bad import NoMinimum
from pyreplog.testing.observed import ObservedNode, ObservedWorld
from pyreplog.testing.shrink import shrink
from tests.replication.sim.cluster import QUICK


def test_a_failing_seed_says_how_to_repeat_it_and_shrinks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with 1, names the rule, the one command that repeats it, and a smaller world that breaks it,
    too."""
    monkeypatch.setitem(shrink.__globals__, "TRIES_MAX", 8)
    words = "python -m pyreplog.testing --seed 4 --variant AckBeforeFsync"
    monkeypatch.setattr("sys.argv", words.split()[2:])
    assert main() == 1
    failure, smaller = capsys.readouterr().out.split("shrinking ...\n")
    rule = failure.partition(" does not hold")[0].splitlines()[-1].split()[0]
    assert rule in ("S8", "S14", "S1")
    assert f"repeat with: {words}\n" in failure
    assert smaller.startswith("it also fails as World(4, WorldOptions(")
    assert ", replica_class=AckBeforeFsync).run():\n" in smaller
    assert f"\n{rule} (" in smaller


class NeverContent(Checker):
    """Finds its rule broken as soon as a node has a turn behind the set-up."""

    numbers = ("X1",)

    def node_turn(self, world: ObservedWorld, machine: ObservedNode) -> None:
        """Broken, once the world runs."""
        if world.producers:
            world.broken("X1", "nothing is good enough")


def failure_of(program: Callable[[], object]) -> str:
    """The line of the failure that says how to repeat it."""
    with pytest.raises(InvariantBroken) as caught:
        program()
    return next(line for line in str(caught.value).splitlines() if "repeat with: " in line).partition("repeat with: ")[
        2
    ]


def test_a_failure_of_a_users_own_program_names_that_programs_world() -> None:
    """The module's command repeats only worlds that it can make: with options, parts, members or steps of the
    caller's own, the failure names the caller's world, as an expression that can be pasted."""
    content = NeverContent()
    faults = dataclasses.replace(FaultRates.none(), kill=3)
    options = WorldOptions(topics=(TopicOptions("orders", acks=1),), safety_ms=300, faults=faults)
    made = World(0, options)
    made.watch_with([content])
    line = failure_of(made.run)
    assert line.endswith(" in your program")
    expression = line.removesuffix(" in your program")
    assert expression.startswith(
        "World(0, WorldOptions(topics=(TopicOptions(name='orders', acks=1),), safety_ms=300, faults=FaultRates("
    )
    assert "nodes" not in expression, "settings that are the default are left out"
    again = eval(expression, vars(pyreplog.testing))
    assert (again.seed, again.options) == (0, options)

    watched = World(3)
    watched.watch_with([content])
    assert failure_of(watched.run) == "World(3) in your program"
    driven = World(3)
    assert failure_of(lambda: driven.broken("X1", "seen by the program itself")) == "World(3) in your program"
    variant = World(3, replica_class=NoMinimum)
    assert failure_of(lambda: variant.broken("X1", "")) == "World(3, replica_class=NoMinimum) in your program"
    named = World(3, replay="make it-again")
    assert failure_of(lambda: named.broken("X1", "")) == "make it-again"


def test_a_world_that_the_seed_alone_makes_is_repeated_by_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """``World(seed).run()`` does what the module does for that seed; after a step of the caller's own it no longer
    does."""
    monkeypatch.setattr("pyreplog.testing.world.standard_checkers", lambda: [NeverContent()])
    assert failure_of(World(3).run) == "python -m pyreplog.testing --seed 3"
    stepped = World(3)
    stepped.plan(1, lambda: None)
    assert failure_of(stepped.run) == "World(3) in your program"


def test_shrinking_keeps_the_broken_rule() -> None:
    """What the failure does not need goes: topics, producers, kinds of faults, time."""
    options = WorldOptions(
        topics=(TopicOptions("t", durability="os", acks=1), TopicOptions("u", partitions=2)),
        producers=2,
        burst_interval_ms=15,
        safety_ms=3000,
        faults=dataclasses.replace(
            FaultRates.none(), interval_ms=100, lasting_ms=200, kill=3, isolate=1, slow_link=1, clean_restart=1
        ),
        config=QUICK,
    )

    for seed in range(60):

        def run(smaller: WorldOptions, seed: int = seed) -> None:
            World(seed, smaller, replica_class=NoMinimum).run()

        try:
            run(options)
        except InvariantBroken as broken:
            smaller, last = shrink(options, run, broken.rule)
            assert last is not None
            assert last.rule == broken.rule
            assert dataclasses.asdict(smaller) != dataclasses.asdict(options)
            assert len(smaller.topics) <= len(options.topics)
            with pytest.raises(InvariantBroken):
                run(smaller)
            return
    pytest.fail("never caught")
